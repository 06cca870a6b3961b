//! etcd's command line, and that of the tool that makes a member's data of a snapshot.
//!
//! Source: `etcd --help` of 3.4 to 3.7, `etcdctl snapshot restore --help` of 3.4, `etcdutl snapshot restore --help` of 3.6 and 3.7;
//! docs/users/configuration.md.

use std::net::IpAddr;

use crate::arguments::{Arguments, Flag, fixed, flag};
use crate::version::{Minors, since, until};
use crate::{Cluster, Error, Node, images, paths};

/// The program in its image.
pub const PROGRAM: &str = "/usr/local/bin/etcd";
/// Restores snapshots in images of 3.5 and newer.
const UTILITY: &str = "/usr/local/bin/etcdutl";
/// It did before.
const CLIENT: &str = "/usr/local/bin/etcdctl";
/// Since this minor version snapshots are restored by a program of their own.
const UTILITY_SINCE: u32 = 5;
/// Revisions between the snapshot and what is written after it: more than a cluster can have written since. What clients have seen of
/// the time after the snapshot is never newer than what they see from now on.
const REVISIONS: &str = "1000000000";
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
    let address = address(node)?;
    let flags = [identity(node, address), keys(), membership_flags(node, address, membership), checks()];
    let built_in = Arguments::built_in(version, flags.into_iter().flatten());
    built_in.with("cluster.etcd.extraArgs", &cluster.config().cluster.etcd.extra_args)
}

/// `https://address:port`, with brackets where the address has colons.
#[must_use]
pub fn url(address: IpAddr, port: u16) -> String {
    format!("https://{}", std::net::SocketAddr::new(address, port))
}

/// How data is made of a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Restore<'a> {
    /// The snapshot's file, as the tool sees it.
    pub snapshot: &'a str,
    /// A directory that is not there yet, as the tool sees it.
    pub data: &'a str,
    /// Unique: members of the cluster that the snapshot is of are then never taken for members of this one.
    pub token: &'a str,
    /// The snapshot is a copy of the database's file, which has no digest.
    pub skip_hash_check: bool,
}

/// The command that makes the data of this node's member, the only one of a new cluster: program and arguments.
///
/// # Errors
/// [`Error::Version`]; [`Error::Missing`] on a node without an address.
pub fn restore(cluster: &Cluster<'_>, node: &Node, restore: &Restore<'_>) -> Result<Vec<String>, Error> {
    let version = images::etcd_version(cluster)?;
    let address = address(node)?;
    let flags = [
        flag("data-dir", restore.data),
        flag("name", node.host_name.as_str()),
        flag("initial-cluster", format!("{}={}", node.host_name, url(address, 2380))),
        flag("initial-advertise-peer-urls", url(address, 2380)),
        flag("initial-cluster-token", restore.token),
        flag("skip-hash-check", "true").when(restore.skip_hash_check),
        flag("bump-revision", REVISIONS).only(FEATURES),
        flag("mark-compacted", "true").only(FEATURES),
    ];
    let program = if version.minor < UTILITY_SINCE { CLIENT } else { UTILITY };
    let words = [program, "snapshot", "restore", restore.snapshot].map(str::to_owned).to_vec();
    Ok([words, Arguments::built_in(version, flags).to_vec()].concat())
}

fn address(node: &Node) -> Result<IpAddr, Error> {
    node.addresses.first().copied().ok_or(Error::Missing {
        field: "the node's address",
        hint: "etcd needs an address by which other members reach it",
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    fn command(image: &str, skip_hash_check: bool) -> String {
        let text =
            include_str!("../testdata/current.yaml").replace("VERSION", "v1.34.10").replace("ETCD", "v3.6.4");
        let mut config = config::load(text.as_bytes()).unwrap().config;
        config.cluster.etcd.image = format!("registry.example.org/etcd:{image}");
        let node = Node {
            host_name: "cp-1".into(),
            domain: String::new(),
            addresses: vec!["10.0.0.3".parse().unwrap()],
            shared: Vec::new(),
            is_container: false,
            has_cgroup_v1: false,
            resolv_conf: String::new(),
        };
        let wanted = Restore { snapshot: "/s", data: "/restored/data", token: "t-1", skip_hash_check };
        restore(&Cluster::new(&config).unwrap(), &node, &wanted).unwrap().join(" ")
    }

    #[test]
    fn each_version_restores_with_its_own_tool() {
        let cluster = "snapshot restore /s --data-dir=/restored/data --initial-advertise-peer-urls=https://10.0.0.3:2380 \
                       --initial-cluster=cp-1=https://10.0.0.3:2380 --initial-cluster-token=t-1 --name=cp-1";
        assert_eq!(command("v3.4.13-0", false), format!("/usr/local/bin/etcdctl {cluster}"));
        assert_eq!(
            command("v3.5.21-0", true),
            format!("/usr/local/bin/etcdutl {cluster} --skip-hash-check=true")
        );
        let bumped = cluster.replace("--data-dir", "--bump-revision=1000000000 --data-dir");
        let bumped = bumped.replace("--name", "--mark-compacted=true --name");
        for version in ["3.6.4-0", "v3.7.0"] {
            assert_eq!(command(version, false), format!("/usr/local/bin/etcdutl {bumped}"));
        }
    }
}
