//! Network namespaces of tests: each test runs in one of its own, and may have a neighbour in another.

use std::fs::{self, File};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

pub(crate) use namespaces::{Neighbour, done, ip, is_inside};

use runtime::store::Store;

use super::Disk;
use super::route::{AnyRoute, Route};
use super::routes::{Deed, Routes, Verdict};

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

    /// Returns when its sockets are there: what is sent before is lost.
    pub(crate) async fn started(self) -> Self {
        let text = || fs::read_to_string(&self.log).unwrap_or_default();
        until("a server that has started", || text().contains("started, version")).await;
        self
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

/// STATE of a test.
#[derive(Clone)]
pub(crate) struct Directory(pub(crate) PathBuf);

impl Disk for Directory {
    fn text(&self, name: &str) -> Result<Option<String>, String> {
        Ok(fs::read_to_string(self.0.join(name)).ok())
    }

    fn replace(&self, name: &str, text: &str) -> Result<(), String> {
        fs::write(self.0.join(name), text).map_err(|error| error.to_string())
    }
}

/// Has the main table lead to these networks over links of these names.
pub(crate) fn lead(store: &Store, networks: &[(&str, &str)]) {
    let routes = Routes::serve(store).unwrap();
    for (index, (network, link)) in (1..).zip(networks) {
        let (destination, prefix) = network_plan::link::prefix(network).unwrap();
        let IpAddr::V4(destination) = destination else { panic!("{network} is none of IPv4") };
        routes.name(store, index, link).unwrap();
        let route = Route { link: index, ..Route::first_to(destination, prefix) };
        assert_eq!(routes.hear(store, AnyRoute::V4(route), Deed::Added).unwrap(), Verdict::Known);
    }
}

pub(crate) async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < Duration::from_secs(60), "{what} within 60 s");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
