//! networkd: loopback, static addresses and routes, DHCPv4 on every other wired link, status resources.
//!
//! | task | reads | writes | ends |
//! |---|---|---|---|
//! | [`run`] | netlink notifications, the machine config | status resources, addresses, clients | with the service |
//! | [`client::run`], one a link | UDP port 68 of the link | the link's address and routes, its `DhcpLeases` | when the link goes |
//!
//! Does not: apply bonds or VLANs (the network's own issue), or write resolv.conf and the host
//! name (controllers do, from the leases).
//! Source: spec/machine-facts.md §8.1, §8.2.

mod apply;
mod client;
mod exchange;
mod lease;
mod rules;
mod specs;
mod statics;
mod status;

pub use lease::granted;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{FutureExt, StreamExt};
use rtnetlink::{Handle, LinkUnspec, MulticastGroup, new_multicast_connection};
use runtime::Runtime;
use runtime::store::DHCP_LEASE;
use tokio::task::AbortHandle;

/// Notifications come in bursts: this long after the first one the state is read once.
const SETTLE: Duration = Duration::from_millis(10);

/// Ends a task with the value that owns it.
struct Owned(AbortHandle);

impl Drop for Owned {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A link as netlink shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) index: u32,
    pub(crate) name: String,
    pub(crate) hardware: Vec<u8>,
    pub(crate) up: bool,
    pub(crate) carrier: bool,
    pub(crate) mtu: u32,
}

/// Whether DHCP is asked on a link of this name (spec/machine-facts.md §8.1).
pub(crate) fn is_wired(name: &str) -> bool {
    name.starts_with("en") || name.starts_with("eth")
}

/// The service. `beside` runs as long as it does.
pub async fn run(
    runtime: Arc<Runtime>,
    beside: impl Future<Output = ()> + Send + 'static,
) -> Result<(), String> {
    let groups = [
        MulticastGroup::Link,
        MulticastGroup::Ipv4Ifaddr,
        MulticastGroup::Ipv6Ifaddr,
        MulticastGroup::Ipv4Route,
        MulticastGroup::Ipv4Rule,
        MulticastGroup::Ipv6Rule,
    ];
    let (connection, handle, mut messages) =
        new_multicast_connection(&groups).map_err(|e| format!("open a netlink socket: {e}"))?;
    let _connection = Owned(tokio::spawn(connection).abort_handle());
    let _beside = Owned(tokio::spawn(beside).abort_handle());
    let _specs = Owned(tokio::spawn(specs::follow(runtime.clone())).abort_handle());
    let mut managed = Managed::default();
    let mut config = runtime.config.subscribe();
    loop {
        config.mark_unchanged();
        let links = status::publish(&runtime, &handle).await?;
        managed.manage(&runtime, &handle, &links).await;
        tokio::select! {
            message = messages.next() => if message.is_none() {
                return Err("the netlink socket was closed".to_owned());
            },
            _ = config.changed() => {}
        }
        tokio::time::sleep(SETTLE).await;
        while let Some(Some(_)) = messages.next().now_or_never() {}
    }
}

/// What runs on the links.
#[derive(Default)]
struct Managed {
    /// Clients of DHCP by link index.
    clients: BTreeMap<u32, (String, Owned)>,
    applied: statics::Applied,
}

impl Managed {
    /// Brings links up, makes each what the config says, ends what belongs to links that are gone.
    async fn manage(&mut self, runtime: &Arc<Runtime>, handle: &Handle, links: &[Link]) {
        self.clients.retain(|index, (name, _)| {
            let stays = links.iter().any(|link| link.index == *index && link.name == *name);
            if !stays {
                forget_lease(runtime, name);
            }
            stays
        });
        self.applied.retain(links);
        let config = runtime.config();
        // A container's runtime has made everything else.
        let is_container = config::Mode::of_platform(&runtime.parameters.platform) == config::Mode::Container;
        let is_ours = |name: &str| name == "lo" || (!is_container && is_wired(name));
        for link in links.iter().filter(|link| is_ours(&link.name)) {
            let Some(wanted) = statics::wanted(config.as_deref(), &link.name) else { continue };
            if !link.up {
                set_up(runtime, handle, link).await;
            }
            self.applied.bring(handle, &runtime.journal, link, &wanted.statics).await;
            if link.name != "lo" {
                self.ask_dhcp(runtime, handle, link, &wanted).await;
            }
        }
    }

    /// Starts or ends the client of a link.
    async fn ask_dhcp(
        &mut self,
        runtime: &Arc<Runtime>,
        handle: &Handle,
        link: &Link,
        wanted: &statics::Wanted,
    ) {
        let runs = self.clients.contains_key(&link.index);
        if wanted.dhcp && link.carrier && !runs {
            let task = tokio::spawn(client::run(runtime.clone(), handle.clone(), link.clone()));
            self.clients.insert(link.index, (link.name.clone(), Owned(task.abort_handle())));
        }
        if !wanted.dhcp && runs {
            self.clients.remove(&link.index);
            statics::keep_only(handle, link, &wanted.statics).await;
            forget_lease(runtime, &link.name);
        }
    }
}

async fn set_up(runtime: &Runtime, handle: &Handle, link: &Link) {
    let up = LinkUnspec::new_with_index(link.index).up().build();
    if let Err(error) = handle.link().set(up).execute().await {
        runtime.journal.warn(&format!("networkd: set link {} up: {error}", link.name));
    }
}

fn forget_lease(runtime: &Runtime, name: &str) {
    if let Err(error) = runtime.store.remove(DHCP_LEASE.writer, &DHCP_LEASE, name) {
        runtime.journal.warn(&format!("networkd: {error}"));
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
