//! Links, addresses, routes and routing rules as resources.
//!
//! Order: what is to be listed anew is listed off the async threads; then what changed is published. Routes are published when the
//! kernel tells of them (`view`).
//! Fails by: a list that the kernel refuses ends the service. What cannot be read, and a tunnel that cannot be asked, are a line
//! each, said once; the rest is published.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::PathBuf;

use runtime::Runtime;
use runtime::store::{
    ADDRESS_STATUS, AddressStatus, DEFAULT_ROUTE, LINK_STATUS, Spec, StoreError, WireguardStatus,
};

use super::card::Cards;
use super::dump::{Lost, What};
use super::link::Link;
use super::view::{AddressKey, SeenLink, View, ViewError};
use super::words::word;
use super::{link_status, rules, wireguard_status};

/// Why nothing more is published.
#[derive(Debug, thiserror::Error)]
pub(super) enum StatusError {
    /// The kernel's state is not known.
    #[error(transparent)]
    View(#[from] ViewError),
    /// The node ends.
    #[error("read the network's state: {0}")]
    Ended(#[from] tokio::task::JoinError),
    /// The store refuses.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What the kernel has, and what is kept of it from one look to the next.
struct Seen {
    view: View,
    cards: Cards,
    /// By index of the link.
    tunnels: BTreeMap<u32, WireguardStatus>,
    faults: Vec<String>,
}

/// What the kernel has as resources.
pub(super) struct Status {
    /// None while it is in another thread.
    seen: Option<Box<Seen>>,
    root: PathBuf,
    said: BTreeSet<Lost>,
    said_of_tunnels: BTreeSet<String>,
}

impl Status {
    /// Of a kernel that has told nothing yet.
    pub(super) fn new(runtime: &Runtime) -> Result<Self, StoreError> {
        let view = View::new(&runtime.root, &runtime.store)?;
        let seen = Seen { view, cards: Cards::default(), tunnels: BTreeMap::new(), faults: Vec::new() };
        let root = runtime.root.clone();
        Ok(Self { seen: Some(Box::new(seen)), root, said: BTreeSet::new(), said_of_tunnels: BTreeSet::new() })
    }

    /// The view of the kernel. There is none once a look at the kernel has failed: the service ends then.
    pub(super) fn view(&mut self) -> Option<&mut View> {
        self.seen.as_mut().map(|seen| &mut seen.view)
    }

    /// The links as they were last published.
    pub(super) fn links(&self) -> Vec<Link> {
        let links = self.seen.iter().flat_map(|seen| seen.view.links.values());
        links.map(|seen| seen.link.clone()).collect()
    }

    /// Lists what is to be listed, publishes what changed, and answers whether links or rules did. `is_wide`: not only for news,
    /// so that what the kernel tells nothing of is looked at, too.
    pub(super) async fn publish(&mut self, runtime: &Runtime, is_wide: bool) -> Result<bool, StatusError> {
        let Some(mut seen) = self.seen.take() else { return Ok(false) };
        // The kernel and its cards may take a while.
        if is_wide || seen.view.needs_list() {
            let root = self.root.clone();
            let looked = tokio::task::spawn_blocking(move || {
                seen.view.list()?;
                let links = || seen.view.links.values().map(|seen| &seen.link);
                seen.cards.follow(&root, links());
                (seen.tunnels, seen.faults) = wireguard_status::all(links());
                Ok::<_, ViewError>(seen)
            });
            seen = looked.await??;
        }
        for line in seen.view.losses().unsaid(&mut self.said) {
            runtime.journal.warn(&format!("networkd: {line}"));
        }
        for fault in seen.faults.iter().filter(|fault| !self.said_of_tunnels.contains(*fault)) {
            runtime.journal.warn(&format!("networkd: {fault}"));
        }
        self.said_of_tunnels = seen.faults.iter().cloned().collect();
        let mut changed = seen.view.changed();
        if is_wide || changed.contains(&What::Link) {
            let statuses = seen.view.links.values().map(|of| seen.link_status(of)).collect();
            runtime.store.replace(LINK_STATUS.writer, &LINK_STATUS, statuses)?;
            // They are shown by the name of their link.
            changed.insert(What::Address);
        }
        if changed.contains(&What::Address) {
            let addresses = seen.view.addresses.iter();
            let statuses = addresses.map(|(key, scope)| address_status(key, word(scope), &seen.view.links));
            runtime.store.replace(ADDRESS_STATUS.writer, &ADDRESS_STATUS, statuses.collect())?;
        }
        if changed.contains(&What::Rule) {
            rules::publish(runtime, &seen.view.rules)?;
        }
        if let Some(defaults) = seen.view.new_defaults() {
            let statuses = defaults.into_iter().map(|(id, status)| (id, Spec::RouteStatus(status)));
            runtime.store.replace(DEFAULT_ROUTE.writer, &DEFAULT_ROUTE, statuses.collect())?;
        }
        let has_news = seen.view.has_other_links() || changed.contains(&What::Rule);
        self.seen = Some(seen);
        Ok(has_news)
    }
}

impl Seen {
    fn link_status(&self, SeenLink { message, link }: &SeenLink) -> (String, Spec) {
        let mut status = link_status::link_status(message, link, &self.cards.of(link));
        status.wireguard = self.tunnels.get(&link.index).cloned();
        (link.name.clone(), Spec::LinkStatus(Box::new(status)))
    }
}

fn address_status(
    &(index, address, _, prefix): &AddressKey,
    scope: String,
    links: &BTreeMap<u32, SeenLink>,
) -> (String, Spec) {
    let name = links.get(&index).map(|seen| seen.link.name.as_str()).unwrap_or_default();
    let cidr = format!("{address}/{prefix}");
    let status = AddressStatus {
        address: cidr.clone(),
        link_index: index,
        link_name: name.to_owned(),
        family: family(address),
        scope,
    };
    (format!("{name}/{cidr}"), Spec::AddressStatus(status))
}

fn family(address: IpAddr) -> &'static str {
    if address.is_ipv4() { "inet4" } else { "inet6" }
}

/// Publishes what the kernel has, and answers the links.
#[cfg(test)]
pub(super) async fn look(runtime: &Runtime) -> Vec<Link> {
    let mut status = Status::new(runtime).expect("the types are networkd's");
    status.publish(runtime, true).await.expect("the kernel lists what it has");
    status.links()
}

#[cfg(test)]
mod tests {
    use runtime::store::ROUTE_STATUS;

    use super::*;

    /// The loopback interface is up wherever tests run, and the kernel has a local route of its address.
    #[tokio::test]
    async fn routes_has_the_local_ones_and_loopback_is_no_card() {
        let dir = tempfile::tempdir().unwrap();
        let runtime = Runtime::detached(dir.path().to_path_buf());
        look(&runtime).await;
        let found = runtime.store.list(&ROUTE_STATUS);
        let local = found.iter().find_map(|resource| match &resource.spec {
            Spec::RouteStatus(route) if route.dst == "127.0.0.1/32" => Some(route.clone()),
            _ => None,
        });
        let local = local.unwrap_or_else(|| panic!("{found:?}"));
        assert_eq!(
            (local.table.as_ref(), local.kind.as_str(), local.scope.as_str()),
            ("local", "local", "host")
        );
        assert_eq!((local.out_link_name.as_str(), local.family), ("lo", "inet4"));
        let loopback = runtime.store.get(&LINK_STATUS, "lo").unwrap().spec.yaml().unwrap();
        for line in ["flags: UP,LOOPBACK,RUNNING,LOWER_UP\n", "port: Other\n", "duplex: Unknown\n"] {
            assert!(loopback.contains(line), "{line}: {loopback}");
        }
    }
}
