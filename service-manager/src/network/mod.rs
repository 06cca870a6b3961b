//! networkd: links of the configuration, static addresses and routes, DHCPv4 on every other wired link, status resources.
//!
//! | task | reads | writes | ends |
//! |---|---|---|---|
//! | [`run`] | notifications of netlink, the machine config | status resources, addresses, clients | with the service |
//! | [`client::run`], one a link | DHCP and ARP of the link | the link's address and routes, its `DhcpLeases` | when the link goes |
//! | [`client6::run`], one a link | DHCPv6 of the link | the link's addresses, its `DhcpLeases` | when the link goes |
//! | [`gateways::follow`] | default routes of the store, the kernel's neighbours | `GatewayStatuses` | with the service |
//! | [`console::follow`] | `NetworkStatuses` | the console | with the service |
//! | [`kept::Kept::follow`], one a kind of DHCP | STATE, once it is there | addresses that links had | with the service |
//!
//! Order: the kernel tells of each change, and `view` follows it: a table is listed anew only where no message says what it has. A
//! route's change changes its resource and wakes nothing else; a link's or a rule's has the plan brought about, at once, but not
//! twice within [`SETTLE`].
//! Does not: read the config itself: `network_plan` says what every link is to be. Write resolv.conf and the host name
//! (controllers do, from the leases).
//! Source: rtnetlink(7), packet(7).

mod advertisement;
mod apply;
mod batch;
mod bond_status;
mod card;
mod client;
mod client6;
mod console;
pub(crate) mod dhcp_status;
mod dump;
mod ethernet;
mod ethtool;
mod exchange;
mod facts;
#[cfg(test)]
mod figures;
mod firewall;
mod firewall_chains;
pub(crate) mod gateways;
mod generic;
#[cfg(test)]
mod kea;
mod kept;
mod link;
mod link_status;
mod made;
mod media;
mod names;
mod news;
mod opening;
mod owned;
mod route;
mod routes;
mod rules;
mod salvage;
pub(crate) mod shared;
mod specs;
mod statics;
mod status;
#[cfg(test)]
pub(crate) mod testing;
mod view;
mod wireguard;
mod wireguard_status;
mod words;

use apply::Asked;
use client::ClientInput;
use kept::Kept;
use link::Link;
use news::News;
pub(crate) use owned::Owned;
use status::Status;

pub use kept::Disk;
pub(crate) use routes::link_towards;

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use config::Config;
use config::documents::ClientIdentifier;
use dhcp::{Identifier, Settings};
use network_plan::Plan;
use rtnetlink::{Handle, LinkUnspec};
use runtime::Runtime;
use runtime::store::{ETCD_PEER, MachineDocument, Spec};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

/// Between two times that the plan is brought about because of the kernel's changes, which come in bursts.
const SETTLE: Duration = Duration::from_millis(10);

/// Between two looks at tunnels: the kernel tells no one of a peer that moves, or that is silent.
const TUNNELS: Duration = Duration::from_secs(60);

/// Between two attempts to bring about what was refused.
const RETRY: Duration = Duration::from_secs(10);

/// After changes of the kernel were lost, until all is listed anew: what makes so many goes on for a while.
const FLOOD: Duration = Duration::from_millis(100);

/// Whether DHCP is asked on a link of this name (docs/users/network.md).
pub(crate) fn is_wired(name: &str) -> bool {
    name.starts_with("en") || name.starts_with("eth")
}

/// The service. `beside` runs as long as it does; `disk` has STATE once that is there.
pub async fn run<D: Disk>(
    runtime: Arc<Runtime>,
    disk: watch::Receiver<Option<D>>,
    beside: impl Future<Output = ()> + Send + 'static,
) -> Result<(), String> {
    // Before the first look, so that it misses nothing.
    let mut news = News::open().map_err(|e| format!("open a netlink socket: {e}"))?;
    let (connection, handle, _) =
        rtnetlink::new_connection().map_err(|e| format!("open a netlink socket: {e}"))?;
    let _connection = Owned(tokio::spawn(connection).abort_handle());
    let _beside = Owned(tokio::spawn(beside).abort_handle());
    let (planned, plan) = watch::channel(Arc::<Plan>::default());
    let _gateways = Owned(tokio::spawn(gateways::follow(runtime.clone())).abort_handle());
    let _console = Owned(tokio::spawn(console::follow(runtime.clone())).abort_handle());
    let _specs = Owned(tokio::spawn(specs::follow(runtime.clone(), plan)).abort_handle());
    let (kept, kept6) = (Kept::read(&runtime, kept::ADDRESSES), Kept::read(&runtime, kept::LEASES));
    let _kept = Owned(tokio::spawn(kept.clone().follow(disk.clone())).abort_handle());
    let _kept6 = Owned(tokio::spawn(kept6.clone().follow(disk)).abort_handle());
    let mut managed = Managed::new(&runtime, (kept, kept6), planned);
    let mut status = Status::new(&runtime).map_err(|error| error.to_string())?;
    let changed = managed.made.changed.clone();
    let mut config = runtime.config.subscribe();
    let mut changes = runtime.store.follow(&[&ETCD_PEER]);
    let (mut is_wide, mut is_settled, mut has_tunnels) = (true, true, false);
    let mut last = Instant::now();
    loop {
        config.mark_unchanged();
        let has_news = status.publish(&runtime, is_wide).await.map_err(|error| error.to_string())?;
        if is_wide || has_news {
            let links = status.links();
            is_settled = managed.manage(&runtime, &handle, &links).await;
            has_tunnels = links.iter().any(wireguard_status::is_tunnel);
            last = Instant::now();
        }
        is_wide = tokio::select! {
            () = sleep_until(last + RETRY), if !is_settled => true,
            () = sleep_until(last + TUNNELS), if has_tunnels => true,
            () = changed.notified() => true,
            heard = news.wait() => heard.map(|()| false).map_err(deaf)?,
            _ = config.changed() => managed.has_other_config(&runtime),
            () = changes.next() => true,
        };
        hear(&mut news, &mut status).map_err(deaf)?;
        if status.view().is_some_and(|view| view.has_news() && !view.is_urgent()) {
            sleep_until(last + SETTLE).await;
            hear(&mut news, &mut status).map_err(deaf)?;
        }
        if status.view().is_some_and(|view| view.has_lost()) {
            tokio::time::sleep(FLOOD).await;
            hear(&mut news, &mut status).map_err(deaf)?;
        }
    }
}

fn deaf(error: io::Error) -> String {
    format!("hear of the kernel's changes: {error}")
}

/// Has the view follow what the kernel has told.
fn hear(news: &mut News, status: &mut Status) -> io::Result<()> {
    let Some(view) = status.view() else { return Ok(()) };
    if news.read(|message| view.hear(message).map_err(io::Error::other))? {
        view.lost();
    }
    Ok(())
}

/// What runs on the links.
struct Managed {
    /// Clients of DHCPv4 by link index.
    clients: BTreeMap<u32, Client<ClientInput>>,
    /// The same of DHCPv6.
    clients6: BTreeMap<u32, Client<client6::ClientInput>>,
    kept: Arc<Kept>,
    kept6: Arc<Kept>,
    applied: statics::Applied,
    made: made::Made,
    cards: ethernet::Cards,
    filter: firewall::Filter,
    planned: watch::Sender<Arc<Plan>>,
    /// What the last plan was made of.
    config: Option<Arc<Config>>,
    document: Option<Arc<MachineDocument>>,
}

impl Managed {
    fn new(
        runtime: &Runtime,
        (kept, kept6): (Arc<Kept>, Arc<Kept>),
        planned: watch::Sender<Arc<Plan>>,
    ) -> Self {
        Self {
            clients: BTreeMap::new(),
            clients6: BTreeMap::new(),
            kept,
            kept6,
            applied: statics::Applied::default(),
            made: made::Made::read(runtime),
            cards: ethernet::Cards::read(runtime),
            filter: firewall::Filter::new(runtime),
            planned,
            config: None,
            document: None,
        }
    }

    /// Whether the config in force says something else than that of the last plan.
    fn has_other_config(&self, runtime: &Runtime) -> bool {
        match (runtime.document(), &self.document) {
            (Some(new), Some(known)) => new != *known,
            (None, None) => runtime.config() != self.config,
            _ => true,
        }
    }

    /// Makes links, makes each what the config says, ends what belongs to links that are gone. Answers whether everything is
    /// as it is to be.
    async fn manage(&mut self, runtime: &Arc<Runtime>, handle: &Handle, links: &[Link]) -> bool {
        let stays =
            |index: u32, name: &str| links.iter().any(|link| link.index == index && link.name == name);
        let gone = self.clients.extract_if(.., |index, client| !stays(*index, &client.name));
        gone.for_each(|(_, client)| client::forget_lease(runtime, &client.name));
        let gone = self.clients6.extract_if(.., |index, client| !stays(*index, &client.name));
        gone.for_each(|(_, client)| client6::forget_lease(runtime, &client.name));
        self.applied.retain(links);
        (self.config, self.document) = (runtime.config(), runtime.document());
        let plan = Arc::new(plan(runtime, links));
        tell(&self.planned, &plan);
        let mut refused = rules::bring(handle, &plan).await;
        // Before a link of the plan is up.
        match self.filter.bring(plan.firewall.as_ref()).await {
            Ok(()) => firewall_chains::publish(runtime, plan.firewall.as_ref()),
            Err(fault) => refused.push(fault),
        }
        refused.extend(names::bring(handle, &plan, links).await);
        refused.extend(self.cards.bring(runtime, &plan, links).await);
        let is_settled = self.made.bring(runtime, handle, &plan, links, refused).await;
        let own: Vec<Vec<u8>> = links.iter().map(|link| link.hardware.clone()).collect();
        for link in links {
            let Some(wanted) = plan.links.get(&link.name) else { continue };
            // A bond takes members only that are down.
            let is_joining = wanted.controller.is_some() && link.controller.is_none();
            if link.up == wanted.is_down && !is_joining {
                switch(runtime, handle, link, !wanted.is_down).await;
            }
            self.applied.bring(handle, &runtime.journal, link, &wanted.into()).await;
            self.ask_dhcp(runtime, handle, link, wanted, &own).await;
            self.ask_dhcp6(runtime, handle, link, wanted).await;
        }
        is_settled
    }

    /// Starts or ends the client of a link, or tells it what changed.
    async fn ask_dhcp(
        &mut self,
        runtime: &Arc<Runtime>,
        handle: &Handle,
        link: &Link,
        wanted: &network_plan::Link,
        own: &[Vec<u8>],
    ) {
        // Without an address of Ethernet there is no client of DHCP.
        let hardware = <[u8; 6]>::try_from(link.hardware.as_slice());
        let asked =
            wanted.dhcp.as_ref().zip(hardware.ok()).map(|(dhcp, hardware)| asked(runtime, dhcp, hardware));
        let Some(asked) = asked else {
            if let Some(client) = self.clients.remove(&link.index) {
                client.end().await;
                statics::keep_only(handle, link, &wanted.into()).await;
                client::forget_lease(runtime, &link.name);
            }
            return;
        };
        let told = ClientInput { asked, carrier: link.carrier, ups: link.carrier_ups, own: own.to_vec() };
        if let Some(client) = self.clients.get(&link.index) {
            tell(&client.told, &told);
        } else if link.carrier {
            let (sender, receiver) = watch::channel(told);
            let kept = self.kept.clone();
            let task =
                tokio::spawn(client::run(runtime.clone(), handle.clone(), kept, link.clone(), receiver));
            self.clients.insert(link.index, Client { name: link.name.clone(), told: sender, task });
        }
    }
}

impl Managed {
    async fn ask_dhcp6(
        &mut self,
        runtime: &Arc<Runtime>,
        handle: &Handle,
        link: &Link,
        wanted: &network_plan::Link,
    ) {
        let hardware = <[u8; 6]>::try_from(link.hardware.as_slice());
        let Some((dhcp, hardware)) = wanted.dhcp6.as_ref().zip(hardware.ok()) else {
            if let Some(client) = self.clients6.remove(&link.index) {
                client.end().await;
                client6::remove_all(runtime, handle, &self.kept6, link).await;
            }
            return;
        };
        let settings = dhcp6::Settings {
            hardware,
            duid: dhcp6::Duid::new(&dhcp.duid).ok(),
            hostname: own_name(runtime).filter(|_| dhcp.tells_hostname),
            ..dhcp6::Settings::default()
        };
        let told = client6::ClientInput { settings, carrier: link.carrier, ups: link.carrier_ups };
        if let Some(client) = self.clients6.get(&link.index) {
            tell(&client.told, &told);
        } else if link.carrier {
            let (sender, receiver) = watch::channel(told);
            let kept = self.kept6.clone();
            let task =
                tokio::spawn(client6::run(runtime.clone(), handle.clone(), kept, link.clone(), receiver));
            self.clients6.insert(link.index, Client { name: link.name.clone(), told: sender, task });
        }
    }
}

/// Wakes who follows only if there is news.
fn tell<T: Clone + PartialEq>(sender: &watch::Sender<T>, value: &T) {
    sender.send_if_modified(|known| {
        let is_new = known != value;
        if is_new {
            known.clone_from(value);
        }
        is_new
    });
}

/// A client that runs.
struct Client<T> {
    name: String,
    told: watch::Sender<T>,
    task: JoinHandle<()>,
}

impl<T> Client<T> {
    /// Has it give its lease back.
    async fn end(mut self) {
        self.task.abort();
        // It ends by being aborted, or has ended.
        let _ = (&mut self.task).await;
    }
}

impl<T> Drop for Client<T> {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn asked(runtime: &Runtime, dhcp: &network_plan::Dhcp, hardware: [u8; 6]) -> Asked {
    let settings = Settings {
        hardware,
        identifier: match dhcp.identifier {
            ClientIdentifier::Mac => Identifier::Hardware,
            ClientIdentifier::Duid => Identifier::Duid(dhcp.duid.clone()),
            ClientIdentifier::None => Identifier::None,
        },
        hostname: own_name(runtime),
        ignores_hostname: !dhcp.takes_hostname,
    };
    Asked { settings, metric: dhcp.metric, takes_routes: dhcp.takes_routes }
}

/// The name that the config or the kernel's command line gives the node.
fn own_name(runtime: &Runtime) -> Option<String> {
    let config = runtime.config();
    let named = config.as_ref().map(|config| config.machine.network.hostname.clone());
    let given = |name: &String| !name.is_empty();
    named.filter(given).or_else(|| runtime.parameters.hostname.clone().filter(given))
}

/// What every link is to be. A container's runtime has made all of them but loopback.
fn plan(runtime: &Runtime, links: &[Link]) -> Plan {
    let document = runtime.document();
    let documents = document.as_deref().map(|document| document.documents.as_slice()).unwrap_or_default();
    let present = facts::present(links);
    let mut plan = network_plan::plan(&runtime.parameters, runtime.config().as_deref(), documents, &present);
    if config::Mode::of_platform(&runtime.parameters.platform) == config::Mode::Container {
        plan.links.retain(|name, _| name == "lo");
        plan.aliases.clear();
        plan.faults.clear();
    }
    if runtime.config().is_some_and(|config| config.machine.machine_type.is_control_plane()) {
        plan.firewall = Some(network_plan::firewall::close_etcd(plan.firewall, &etcd_peers(runtime)));
    }
    plan
}

/// Who may reach etcd, as Kubernetes' part of machined found out; none before it has.
fn etcd_peers(runtime: &Runtime) -> Vec<IpAddr> {
    let peers = runtime.store.get(&ETCD_PEER, "local");
    match peers.as_ref().map(|resource| &resource.spec) {
        Some(Spec::Fields(fields)) => serde_json::from_value(fields["addresses"].clone()).unwrap_or_default(),
        _ => Vec::new(),
    }
}

async fn switch(runtime: &Runtime, handle: &Handle, link: &Link, on: bool) {
    let link_message = LinkUnspec::new_with_index(link.index);
    let (message, word) =
        if on { (link_message.up().build(), "up") } else { (link_message.down().build(), "down") };
    if let Err(error) = handle.link().set(message).execute().await {
        runtime.journal.warn(&format!("networkd: set link {} {word}: {error}", link.name));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_wired_links_are_ours() {
        assert!(is_wired("eth0") && is_wired("enp1s0"));
        assert!(!is_wired("lo") && !is_wired("bond0") && !is_wired("veth0") && !is_wired("wlan0"));
    }
}
