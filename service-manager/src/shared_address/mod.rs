//! Addresses that nodes share: one of them has each at a time, and clients reach the cluster by it.
//!
//! | task | reads | writes | ends |
//! |---|---|---|---|
//! | [`run`] | `OperatorSpecs`, the config | one holder an address | with machined |
//! | [`elected::hold`] | etcd's election, the API server of this node | the link's address | with the address in the config |
//! | [`leadership::pass_on`] | etcd's members | who leads etcd | with the address on the link |
//! | [`routed::hold`] | packets of VRRP, the API server of this node | the link's address | with the document in the config |
//!
//! Owns: which addresses there are, and that each has one holder.
//! Does not: give an address to a link: `network::shared` does, for a second or two at a time.
//! Source: docs/users/shared-address.md.

mod cluster;
mod elected;
mod leadership;
mod link;
mod routed;
mod serving;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use config::own::Vrrp;
use runtime::store::OPERATOR_SPEC;
use tokio::sync::watch;

pub(crate) use cluster::Cluster;
use serving::is_control_plane;

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Shared {
    /// Of a link, by etcd.
    Elected(String, IpAddr),
    /// By VRRP.
    Routed(Vrrp),
}

/// Follows the addresses of the config.
pub(crate) async fn run(cluster: Arc<Cluster>) {
    let mut holders: BTreeMap<Shared, watch::Sender<()>> = BTreeMap::new();
    let mut changes = cluster.runtime.store.follow(&[&OPERATOR_SPEC]);
    let mut config = cluster.runtime.config.subscribe();
    loop {
        config.mark_unchanged();
        let wanted = wanted(&cluster);
        // A holder ends when its sender does.
        holders.retain(|shared, _| wanted.contains(shared));
        for shared in wanted {
            let cluster = &cluster;
            holders.entry(shared.clone()).or_insert_with(|| {
                let (sender, ends) = watch::channel(());
                match shared {
                    Shared::Elected(link, address) => {
                        tokio::spawn(elected::hold(cluster.clone(), link, address, ends))
                    }
                    Shared::Routed(router) => tokio::spawn(routed::hold(cluster.clone(), router, ends)),
                };
                sender
            });
        }
        tokio::select! {
            changed = config.changed() => if changed.is_err() { return },
            () = changes.next() => {}
        }
    }
}

/// The addresses of this node: those of etcd on a control plane node, those of VRRP on any.
fn wanted(cluster: &Cluster) -> Vec<Shared> {
    let document = cluster.runtime.document();
    let documents = document.as_ref().map(|document| document.documents.as_slice()).unwrap_or_default();
    let mut wanted: Vec<Shared> = Vrrp::of(documents).into_iter().map(Shared::Routed).collect();
    if is_control_plane(cluster) {
        let operators = cluster.runtime.store.list(&OPERATOR_SPEC);
        let elected = operators.iter().filter_map(|resource| resource.spec.shared_address());
        wanted.extend(elected.map(|(link, address)| Shared::Elected(link.to_owned(), address)));
    }
    wanted
}
