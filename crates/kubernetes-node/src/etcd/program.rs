//! How the programs of etcd's image run: as etcd's user, without any right, with nothing of the host but what they are given.

use containers::service::{Description, Mount, Rights};
use kubernetes::Owner;

/// They are the last but the node's own that the kernel may end.
pub(super) const OOM_SCORE: i16 = -998;
const OPEN_FILES: u64 = 65_536;
/// Of programs in the image.
const PATH: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Processors that etcd serves only when told to.
const UNSUPPORTED: [(&str, &str); 1] = [("aarch64", "ETCD_UNSUPPORTED_ARCH=arm64")];

/// A program with these arguments; `group` is its place in the tree of control groups.
pub(super) fn description(argv: Vec<String>, mounts: Vec<Mount>, group: &str) -> Description {
    let unsupported = UNSUPPORTED.iter().find(|(arch, _)| *arch == std::env::consts::ARCH);
    let env = [PATH].into_iter().chain(unsupported.map(|(_, variable)| *variable));
    Description {
        argv,
        env: env.map(str::to_owned).collect(),
        user: (Owner::Etcd.id(), Owner::Etcd.id()),
        mounts,
        rights: Rights::Capabilities(&[]),
        host_pid: false,
        group: group.to_owned(),
        oom_score_adj: OOM_SCORE,
        open_files: OPEN_FILES,
    }
}
