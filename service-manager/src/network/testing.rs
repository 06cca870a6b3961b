//! Network namespaces of tests: each test runs in one of its own, and may have a neighbour in another.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Set in the process that has a network namespace of its own.
const INSIDE: &str = "BILLET_TEST_INSIDE";

/// Whether this is the process with a namespace of its own. The other one starts it and waits; `test` is the test's full name.
pub(crate) fn is_inside(test: &str) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    let status = Command::new("unshare")
        .args(["--map-root-user", "--net", "--"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(INSIDE, "1")
        .status()
        .unwrap();
    assert!(status.success(), "{status}");
    false
}

/// Runs a program to its end; answers what it printed.
pub(crate) fn done(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

pub(crate) fn ip(arguments: &str) -> String {
    done(Command::new("ip").args(arguments.split(' ')))
}

/// A machine at the other end of a wire: a namespace that lives as long as this.
pub(crate) struct Neighbour(Child);

impl Neighbour {
    /// `eth0` here and `srv0` there, both up.
    pub(crate) fn start() -> Self {
        ip("link add eth0 address 52:54:00:01:02:03 type veth peer name srv0");
        // It says a word when it has its namespace.
        let mut namespace = Command::new("unshare")
            .args(["--net", "--", "sh", "-c", "echo ready; exec cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut word = [0; 6];
        namespace.stdout.as_mut().unwrap().read_exact(&mut word).unwrap();
        let neighbour = Self(namespace);
        ip(&format!("link set srv0 netns {}", neighbour.0.id()));
        ip("link set eth0 up");
        neighbour.ip("link set srv0 up");
        neighbour
    }

    pub(crate) fn inside(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--net", "--target", &self.0.id().to_string(), "--", program]);
        command
    }

    pub(crate) fn ip(&self, arguments: &str) {
        done(self.inside("ip").args(arguments.split(' ')));
    }
}

/// dnsmasq, which lives as long as this.
pub(crate) struct Dnsmasq {
    child: Child,
    log: PathBuf,
}

impl Dnsmasq {
    /// `program`: dnsmasq here, or inside of a neighbour. Arguments stand between spaces.
    pub(crate) fn start(mut program: Command, directory: &Path, arguments: &str) -> Self {
        let log = directory.join("dnsmasq.log");
        let leases = format!("--dhcp-leasefile={}", directory.join("leases").display());
        let child = program
            .args(["--no-daemon", "--conf-file=/dev/null", "--bind-interfaces", &leases])
            .args(arguments.split_whitespace())
            .stderr(File::create(&log).unwrap())
            .spawn()
            .unwrap();
        Self { child, log }
    }

    /// Messages that it logged, `DHCPDISCOVER` and so on, since this many.
    pub(crate) fn heard(&self, since: usize) -> Vec<String> {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let words = text.split_whitespace().filter(|word| word.starts_with("DHCP") && word.contains('('));
        words.skip(since).map(|word| word.split('(').next().unwrap().to_owned()).collect()
    }

    pub(crate) async fn hears(&self, since: usize, what: &str) {
        until(what, || self.heard(since).iter().any(|word| word == what)).await;
    }
}

impl Drop for Dnsmasq {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < Duration::from_secs(60), "{what} within 60 s");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
