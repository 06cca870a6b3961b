//! A test in namespaces of its own for network and mounts.
//!
//! Owns: the second process, which runs the same test. Does not: need root, except where the test itself does (it then runs
//! as root from the start).

/// Names of network namespaces are files of the whole machine: here they are this test's own.
const SCRIPT: &str =
    "ip link set lo up && mkdir -p /run/netns && mount -t tmpfs tmpfs /run/netns && exec \"$@\"";

/// Whether this process is the one inside. If it is not, runs the named test (`module::function`) once more in namespaces,
/// waits for it, and returns false: the caller then returns too.
///
/// # Panics
/// When the test inside fails.
#[must_use]
pub fn inside(test: &str) -> bool {
    let with_root = ["--net", "--mount", "--propagation", "private"];
    let with_user = ["--map-root-user", "--net", "--mount", "--propagation", "private"];
    let flags = if rustix::process::geteuid().is_root() { &with_root[..] } else { &with_user };
    namespaces::is_inside_of(test, flags, SCRIPT)
}

/// Changes the network of the namespace, by the words of ip(8).
///
/// # Panics
/// When `ip` refuses them.
pub fn ip(words: &str) {
    namespaces::ip(words);
}
