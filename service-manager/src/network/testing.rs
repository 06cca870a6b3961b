//! Network namespaces of tests: each test runs in one of its own, and may have a neighbour in another.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

pub(crate) use namespaces::{Neighbour, done, ip, is_inside};

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
