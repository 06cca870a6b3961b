//! etcd's command line.
//!
//! Source: `etcd --help` of 3.4 to 3.7; docs/users/configuration.md.

use std::net::IpAddr;

use crate::arguments::{Arguments, Flag, fixed, flag};
use crate::version::{Minors, since, until};
use crate::{Cluster, Error, Node, images, paths};

/// The program in its image.
pub const PROGRAM: &str = "/usr/local/bin/etcd";
/// Its checks had names of experiments until 3.5.
const EXPERIMENTS: Minors = until(5);
/// They are features since 3.6.
const FEATURES: Minors = since(6);

/// How a member comes into its cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Membership {
    /// The first member of a new cluster.
    New,
    /// A further member; the others and itself as `name=peer-url`.
    Join(Vec<String>),
    /// Its data says what it is.
    Known,
}

/// Arguments of the program.
///
/// # Errors
/// [`Error::Version`], [`Error::Denied`]; [`Error::Missing`] on a node without an address.
pub fn arguments(cluster: &Cluster<'_>, node: &Node, membership: &Membership) -> Result<Arguments, Error> {
    let version = images::etcd_version(cluster)?;
    let Some(address) = node.addresses.first() else {
        let hint = "etcd needs an address by which other members reach it";
        return Err(Error::Missing { field: "the node's address", hint });
    };
    let flags = [identity(node, *address), keys(), membership_flags(node, *address, membership), checks()];
    let built_in = Arguments::built_in(version, flags.into_iter().flatten());
    built_in.with("cluster.etcd.extraArgs", &cluster.config().cluster.etcd.extra_args)
}

/// `https://address:port`, with brackets where the address has colons.
#[must_use]
pub fn url(address: IpAddr, port: u16) -> String {
    format!("https://{}", std::net::SocketAddr::new(address, port))
}

fn identity(node: &Node, address: IpAddr) -> Vec<Flag> {
    let every = if node.addresses.iter().any(IpAddr::is_ipv6) { "[::]" } else { "0.0.0.0" };
    vec![
        fixed("name", node.host_name.as_str()),
        fixed("data-dir", paths::ETCD_DATA),
        fixed("listen-peer-urls", format!("https://{every}:2380")),
        fixed("listen-client-urls", format!("https://{every}:2379")),
        flag("advertise-client-urls", url(address, 2379)),
    ]
}

fn keys() -> Vec<Flag> {
    let secret = |name: &str| format!("{}/{name}", paths::ETCD_SECRETS);
    vec![
        fixed("auto-tls", "false"),
        fixed("peer-auto-tls", "false"),
        fixed("client-cert-auth", "true"),
        fixed("peer-client-cert-auth", "true"),
        fixed("trusted-ca-file", secret("ca.crt")),
        fixed("peer-trusted-ca-file", secret("ca.crt")),
        fixed("cert-file", secret("server.crt")),
        fixed("key-file", secret("server.key")),
        fixed("peer-cert-file", secret("peer.crt")),
        fixed("peer-key-file", secret("peer.key")),
    ]
}

/// A member whose data says what it is gets none of these: with them, etcd would compare and stop.
fn membership_flags(node: &Node, address: IpAddr, membership: &Membership) -> Vec<Flag> {
    let own = format!("{}={}", node.host_name, url(address, 2380));
    let (state, members) = match membership {
        Membership::New => ("new", own),
        Membership::Join(members) => ("existing", members.join(",")),
        Membership::Known => ("", String::new()),
    };
    let is_named = *membership != Membership::Known;
    vec![
        flag("initial-cluster", members).when(is_named),
        flag("initial-cluster-state", state).when(is_named),
        flag("initial-advertise-peer-urls", url(address, 2380)).when(is_named),
    ]
}

/// Corruption is found at the start and while compacting; watches tell their progress.
fn checks() -> Vec<Flag> {
    vec![
        flag("experimental-initial-corrupt-check", "true").only(EXPERIMENTS),
        flag("experimental-watch-progress-notify-interval", "5s").only(EXPERIMENTS.and_since(5)),
        flag("experimental-compact-hash-check-enabled", "true").only(EXPERIMENTS.and_since(5)),
        flag("feature-gates", "CompactHashCheck=true,InitialCorruptCheck=true").only(FEATURES),
        flag("watch-progress-notify-interval", "5s").only(FEATURES),
    ]
}
