//! A test in namespaces of its own for network and mounts.
//!
//! Owns: the second process, which runs the same test. Does not: need root, except where the test itself does (it then runs
//! as root from the start).

use std::process::Command;

/// Set in the process that runs in the namespaces.
const INSIDE: &str = "BILLET_TEST_INSIDE";
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
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    let program = std::env::current_exe().expect("find this program");
    let mut command = Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        command.arg("--map-root-user");
    }
    let status = command
        .args(["--net", "--mount", "--propagation", "private", "--", "sh", "-c", SCRIPT, "sh"])
        .arg(program)
        .args(["--exact", test, "--include-ignored", "--nocapture"])
        .env(INSIDE, "1")
        .status()
        .expect("run unshare; install it with: apt-get install util-linux");
    assert!(status.success(), "{test} in namespaces: {status}");
    false
}

/// Changes the network of the namespace, by the words of ip(8).
///
/// # Panics
/// When `ip` refuses them.
pub fn ip(words: &str) {
    let status = Command::new("ip").args(words.split(' ')).status();
    let status = status.expect("run ip; install it with: apt-get install iproute2");
    assert!(status.success(), "ip {words}: {status}");
}
