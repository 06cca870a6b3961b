//! Kea in the namespace of a neighbour: another program's view of the clients, for tests of the long run.
//!
//! Does not: read or change what Kea of this machine has: leases, locks and the log are in a directory of the test.
//! Source: kea-dhcp4(8), kea-dhcp6(8); the Kea Administrator Reference Manual.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::Child;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::testing::{Neighbour, until};

/// Which of the two servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Version {
    V4,
    V6,
}

/// A server that lives as long as this, and begins without leases.
pub(crate) struct Kea {
    child: Child,
    log: PathBuf,
    _directory: TempDir,
}

impl Kea {
    /// Returns when it answers on srv0, which has an address by then. `settings`: what its section has besides the places of files.
    pub(crate) async fn start(neighbour: &Neighbour, version: Version, settings: Value) -> Self {
        let (program, section) = match version {
            Version::V4 => ("kea-dhcp4", "Dhcp4"),
            Version::V6 => ("kea-dhcp6", "Dhcp6"),
        };
        // The sockets of DHCPv6 are bound to the address of the link, which the kernel first looks for elsewhere.
        until("no tentative address of srv0", || {
            !neighbour.ip("address show dev srv0").contains("tentative")
        })
        .await;
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let mut all = json!({
            "interfaces-config": { "interfaces": ["srv0"] },
            "lease-database": { "type": "memfile", "name": path("leases.csv"), "lfc-interval": 0 },
            "loggers": [{
                "name": program,
                "output_options": [{ "output": "stdout", "flush": true }],
                "severity": "DEBUG",
                "debuglevel": 50,
            }],
        });
        let Value::Object(settings) = settings else { panic!("{settings}") };
        all.as_object_mut().unwrap().extend(settings);
        fs::write(path("kea.json"), json!({ section: all }).to_string()).unwrap();
        let log = path("log");
        let output = File::create(&log).unwrap();
        let mut command = neighbour.inside(program);
        command.arg("-c").arg(path("kea.json"));
        // Newer ones write nowhere else than these say.
        for variable in ["KEA_LOCKFILE_DIR", "KEA_PIDFILE_DIR", "KEA_DHCP_DATA_DIR"] {
            command.env(variable, directory.path());
        }
        command.stdout(output.try_clone().unwrap()).stderr(output);
        let child = command.spawn().unwrap();
        let mut kea = Self { child, log, _directory: directory };
        let started = format!("{}_STARTED", section.to_uppercase());
        until("a server that has started", || {
            let ended = kea.child.try_wait().unwrap();
            assert!(ended.is_none(), "{program}: {ended:?}\n{}", kea.text());
            kea.text().contains(&started)
        })
        .await;
        kea
    }

    /// Its log.
    pub(crate) fn text(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Messages that it heard and sent, since this many: `DHCPDISCOVER`, `SOLICIT` and so on.
    pub(crate) fn messages(&self, since: usize) -> Vec<String> {
        let name = |line: &str| {
            let is_message = line.contains("_PACKET_RECEIVED") || line.contains("_PACKET_SEND ");
            let before =
                line.split(" (type ").next().filter(|before| is_message && before.len() < line.len())?;
            before.split(' ').next_back().map(str::to_owned)
        };
        self.text().lines().filter_map(name).skip(since).collect()
    }

    /// Whether these messages came in this order, among others: on a slow machine a client asks twice.
    pub(crate) fn has_in_order(&self, since: usize, wanted: &[&str]) -> bool {
        let messages = self.messages(since);
        let mut left = messages.iter();
        wanted.iter().all(|wanted| left.any(|message| message == wanted))
    }

    /// Whether there was this one.
    pub(crate) fn has(&self, since: usize, message: &str) -> bool {
        self.messages(since).iter().any(|word| word == message)
    }

    /// Waits for a message.
    pub(crate) async fn exchanges(&self, since: usize, message: &str) {
        until(message, || self.has(since, message)).await;
    }
}

impl Drop for Kea {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        // What a failed test has to say.
        if std::thread::panicking() {
            eprintln!("{}", self.text());
        }
    }
}
