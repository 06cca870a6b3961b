//! Whether the gateways of default routes answer on their links, as resources.
//!
//! | task | reads | writes | ends |
//! |---|---|---|---|
//! | [`follow`] | default routes and links of the store, the kernel's neighbours | `GatewayStatuses` | with the service |
//!
//! Owns: asking. The kernel asks by ARP or neighbour discovery and knows what came; here it is only told to.
//! Does not: send packets itself; know what is behind a gateway.
//! Fails by: one line a reason, while what was known before stays.
//! Source: rtnetlink(7); NTF_USE of include/uapi/linux/neighbour.h.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::TryStreamExt;
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState,
};
use rtnetlink::Handle;
use runtime::store::{DEFAULT_ROUTE, GATEWAY_STATUS, LINK_STATUS, Spec, Store};
use runtime::{Runtime, clock};
use serde::{Deserialize, Serialize};

use super::owned::Owned;

/// Between two questions to gateways that all answer, and while one does not.
const IDLE_PERIOD: Duration = Duration::from_secs(60);
const PERIOD: Duration = Duration::from_secs(5);
/// Routes and links change in bursts.
const SETTLE: Duration = Duration::from_millis(100);

/// What is known of a gateway.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum State {
    /// It was asked, and there is time to answer.
    #[default]
    Asked,
    /// The link's neighbours know its hardware address.
    Answers,
    /// It was asked three times, and said nothing.
    Silent,
}

/// What is shown of a gateway.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Status {
    /// Name of the link.
    pub(crate) link: String,
    /// Its address.
    pub(crate) gateway: IpAddr,
    /// Whether it answers.
    pub(crate) state: State,
    /// RFC 3339: since when.
    pub(crate) since: String,
}

/// A gateway of a link with a carrier: name and index of the link, address.
type Gateway = (String, u32, IpAddr);

/// Asks the gateways for as long as it is polled, by a socket of its own: on one socket the kernel makes one list at a time.
pub(super) async fn follow(runtime: Arc<Runtime>) {
    let (connection, handle, _) = match rtnetlink::new_connection() {
        Ok(opened) => opened,
        Err(error) => {
            runtime.journal.warn(&format!("networkd: ask no gateways: open a netlink socket: {error}"));
            return;
        }
    };
    let _connection = Owned(tokio::spawn(connection).abort_handle());
    let mut changes = runtime.store.follow(&[&LINK_STATUS, &DEFAULT_ROUTE]);
    let (mut known, mut said) = (BTreeMap::new(), String::new());
    loop {
        let wanted = gateways(&runtime.store);
        let found = neighbours(&handle, &wanted).await;
        match found {
            Ok(found) => {
                said.clear();
                known = judge(&known, &wanted, &found, &clock::text(clock::now()));
                publish(&runtime, &known);
            }
            // What was known before is shown until the kernel answers.
            Err(error) => {
                let fault = error.to_string();
                if fault != said {
                    runtime.journal.warn(&format!("networkd: list neighbours: {fault}"));
                }
                said = fault;
            }
        }
        for (_, index, address) in &wanted {
            // A link that went down meanwhile has no neighbours.
            let ask = handle.neighbours().add(*index, *address).state(NeighbourState::None);
            let _ = ask.flags(NeighbourFlags::Use).replace().execute().await;
        }
        let all_answer = known.values().all(|status| status.state == State::Answers);
        tokio::select! {
            () = tokio::time::sleep(if all_answer { IDLE_PERIOD } else { PERIOD }) => {}
            () = changes.next() => tokio::time::sleep(SETTLE).await,
        }
    }
}

/// The gateways of all default routes, on links that carry packets.
fn gateways(store: &Store) -> BTreeSet<Gateway> {
    let links: BTreeMap<String, u32> = store
        .list(&LINK_STATUS)
        .into_iter()
        .filter_map(|resource| match &resource.spec {
            Spec::LinkStatus(link) if link.link_state => Some((resource.metadata.id.clone(), link.index)),
            _ => None,
        })
        .collect();
    let routes = store.list(&DEFAULT_ROUTE);
    let gateways = routes.iter().filter_map(|resource| match &resource.spec {
        Spec::RouteStatus(route) => {
            let index = *links.get(&route.out_link_name)?;
            Some((route.out_link_name.clone(), index, route.gateway.parse().ok()?))
        }
        _ => None,
    });
    gateways.collect()
}

/// What the kernel knows of these gateways.
async fn neighbours(
    handle: &Handle,
    wanted: &BTreeSet<Gateway>,
) -> Result<BTreeMap<(u32, IpAddr), NeighbourState>, rtnetlink::Error> {
    if wanted.is_empty() {
        return Ok(BTreeMap::new());
    }
    let mut messages = handle.neighbours().get().execute();
    let mut found = BTreeMap::new();
    while let Some(message) = messages.try_next().await? {
        let Some(address) = address(&message) else { continue };
        let index = message.header.ifindex;
        if wanted.iter().any(|(_, of, gateway)| *of == index && *gateway == address) {
            found.insert((index, address), message.header.state);
        }
    }
    Ok(found)
}

fn address(message: &NeighbourMessage) -> Option<IpAddr> {
    message.attributes.iter().find_map(|attribute| match attribute {
        NeighbourAttribute::Destination(NeighbourAddress::Inet(address)) => Some((*address).into()),
        NeighbourAttribute::Destination(NeighbourAddress::Inet6(address)) => Some((*address).into()),
        _ => None,
    })
}

/// What is shown of each gateway from now on, by the id of its resource. One that was silent is so until it answers.
fn judge(
    known: &BTreeMap<String, Status>,
    wanted: &BTreeSet<Gateway>,
    found: &BTreeMap<(u32, IpAddr), NeighbourState>,
    now: &str,
) -> BTreeMap<String, Status> {
    let checked = wanted.iter().map(|(link, index, gateway)| {
        let id = format!("{link}/{gateway}");
        let before = known.get(&id);
        let state = match found.get(&(*index, *gateway)) {
            Some(NeighbourState::Failed) => State::Silent,
            None | Some(NeighbourState::Incomplete | NeighbourState::None) => {
                before.map(|status| status.state).filter(|state| *state == State::Silent).unwrap_or_default()
            }
            // Also where a link has no such questions.
            Some(_) => State::Answers,
        };
        let same = before.filter(|status| status.state == state);
        let since = same.map_or(now, |status| &status.since).to_owned();
        (id, Status { link: link.clone(), gateway: *gateway, state, since })
    });
    checked.collect()
}

fn publish(runtime: &Runtime, known: &BTreeMap<String, Status>) {
    let specs =
        known.iter().map(|(id, status)| Ok((id.clone(), Spec::Fields(serde_json::to_value(status)?))));
    let put = specs.collect::<Result<Vec<_>, serde_json::Error>>().map_err(|error| error.to_string());
    let put = put.and_then(|specs| {
        let replaced = runtime.store.replace(GATEWAY_STATUS.writer, &GATEWAY_STATUS, specs);
        replaced.map_err(|error| error.to_string())
    });
    if let Err(error) = put {
        runtime.journal.warn(&format!("networkd: show the gateways: {error}"));
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Neighbour, ip, is_inside, until};
    use super::*;
    use runtime::store::{LinkStatus, RouteStatus};

    #[test]
    fn a_gateway_is_silent_until_it_answers() {
        let gateway: IpAddr = [10, 0, 0, 1].into();
        let wanted: BTreeSet<Gateway> = [("eth0".to_owned(), 2, gateway)].into();
        let mut known = BTreeMap::new();
        let steps = [
            (None, State::Asked, "1"),
            (Some(NeighbourState::Incomplete), State::Asked, "1"),
            (Some(NeighbourState::Failed), State::Silent, "3"),
            (Some(NeighbourState::Incomplete), State::Silent, "3"),
            (None, State::Silent, "3"),
            (Some(NeighbourState::Reachable), State::Answers, "6"),
            (Some(NeighbourState::Stale), State::Answers, "6"),
            (Some(NeighbourState::Noarp), State::Answers, "6"),
            (None, State::Asked, "9"),
        ];
        for (moment, (neighbour, state, since)) in steps.into_iter().enumerate() {
            let found = neighbour.map(|neighbour| ((2, gateway), neighbour)).into_iter().collect();
            known = judge(&known, &wanted, &found, &(moment + 1).to_string());
            let status = &known["eth0/10.0.0.1"];
            assert_eq!((status.state, status.since.as_str()), (state, since), "step {}", moment + 1);
        }
        assert!(judge(&known, &BTreeSet::new(), &BTreeMap::new(), "10").is_empty());
    }

    #[tokio::test]
    async fn the_kernel_asks_and_tells_what_came() {
        const TEST: &str = "network::gateways::tests::the_kernel_asks_and_tells_what_came";
        if !is_inside(TEST) {
            return;
        }
        let other = Neighbour::start();
        ip("address add 10.0.0.2/24 dev eth0");
        other.ip("address add 10.0.0.1/24 dev srv0");
        let directory = tempfile::tempdir().unwrap();
        let runtime = Runtime::detached(directory.path().to_owned());
        let (connection, handle, _) = rtnetlink::new_connection().unwrap();
        tokio::spawn(connection);
        let mut found = handle.link().get().match_name("eth0").execute();
        let index = found.try_next().await.unwrap().unwrap().header.index;
        let link = LinkStatus { index, link_state: true, ..LinkStatus::default() };
        runtime
            .store
            .put(LINK_STATUS.writer, &LINK_STATUS, "eth0", Spec::LinkStatus(Box::new(link)))
            .unwrap();
        let route = |gateway: &str| {
            let route = RouteStatus {
                family: "inet4",
                dst: String::new(),
                src: String::new(),
                gateway: gateway.into(),
                out_link_name: "eth0".into(),
                table: "main".into(),
                priority: 0,
                scope: "global".into(),
                kind: "unicast".into(),
                protocol: "static".into(),
            };
            runtime
                .store
                .put(DEFAULT_ROUTE.writer, &DEFAULT_ROUTE, gateway, Spec::RouteStatus(route))
                .unwrap();
        };
        route("10.0.0.1");
        route("10.0.0.9");
        tokio::spawn(follow(runtime.clone()));
        let state = |gateway: &str| {
            let resource = runtime.store.get(&GATEWAY_STATUS, &format!("eth0/{gateway}"))?;
            let Spec::Fields(fields) = &resource.spec else { panic!("{resource:?}") };
            Some(serde_json::from_value::<Status>(fields.clone()).unwrap().state)
        };
        until("the gateway answers", || state("10.0.0.1") == Some(State::Answers)).await;
        until("the other is silent", || state("10.0.0.9") == Some(State::Silent)).await;
        assert_eq!(state("10.0.0.1"), Some(State::Answers));
        other.ip("address add 10.0.0.9/24 dev srv0");
        until("the other answers", || state("10.0.0.9") == Some(State::Answers)).await;
    }
}
