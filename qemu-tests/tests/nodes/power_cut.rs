//! A power cut while a config is applied: the node has the old config or the new one, whole, and boots with it.

use std::path::PathBuf;

use qemu_tests::credentials::{Credentials, HOSTNAME};
use qemu_tests::node::BOOT_LIMIT;
use qemu_tests::settings::{Random, rounds, seed};
use qemu_tests::write_log::{self, WriteLog};
use qemu_tests::{Bus, Drive, TestNode, paths, state_volume};
use serde_json::json;

/// Where a node keeps its config.
const KEPT: &str = "/system/state/config.yaml";
/// A file that nobody flushes, on the same partition.
const UNFLUSHED: &str = "/system/state/unflushed";
/// Changes in the recording.
const CHANGES: usize = 6;
/// Added to each config as a comment, so that one does not fit into a few sectors.
const COMMENT_LINES: usize = 300;

/// One config, and when the node was given it and had acknowledged it, as places in the log.
struct Version {
    text: String,
    begun: u64,
    kept: u64,
}

/// A node's life as far as its STATE saw it.
struct Recording {
    credentials: Credentials,
    versions: Vec<Version>,
    /// Where the file was written that nobody flushes.
    unflushed: u64,
    log: WriteLog,
    /// The disk before everything.
    blank: PathBuf,
    dir: tempfile::TempDir,
}

/// A config that differs from the others in a field and in its size.
fn version(config: &str, number: usize) -> String {
    let comment = format!("# {number} {}\n", "x".repeat(90)).repeat(COMMENT_LINES * (number % 3));
    format!("{comment}{}", config.replace(HOSTNAME, &format!("cut-{number}")))
}

fn record() -> Recording {
    let dir = paths::temporary_dir().unwrap();
    let [blank, disk, log] = ["blank", "disk", "log"].map(|name| dir.path().join(name));
    state_volume::write(&blank).unwrap();
    std::fs::copy(&blank, &disk).unwrap();
    let recorded = log.clone();
    let node = TestNode::builder("power-cut")
        .machine(move |vm, _| write_log::record(vm, &disk, &recorded))
        .boot()
        .unwrap();
    node.wait_services().unwrap();
    let config = node.credentials().machine_config().unwrap();
    assert_eq!(node.admin().ok(&["read", KEPT]).unwrap(), config, "the node keeps its first config");
    let now = || write_log::length(&log).unwrap();
    let mut versions = vec![Version { text: config.clone(), begun: 0, kept: now() }];
    for number in 1..=CHANGES {
        let text = version(&config, number);
        let file = node.files().join("new.yaml");
        std::fs::write(&file, &text).unwrap();
        let begun = now();
        node.admin().ok(&["apply-config", "--immediate", "--file", file.to_str().unwrap()]).unwrap();
        versions.push(Version { text, begun, kept: now() });
    }
    let unflushed = json!({ "op": "write", "path": UNFLUSHED, "text": "nobody flushed this" });
    node.agent().unwrap().ask(unflushed).unwrap();
    let unflushed = now();
    node.vm().quit().unwrap();
    let credentials = node.credentials().clone();
    Recording { credentials, versions, unflushed, log: WriteLog::read(&log).unwrap(), blank, dir }
}

/// A moment of the power cut, and what becomes of the writes that were not flushed.
#[derive(Debug, Clone)]
struct Cut {
    requests: usize,
    random: Option<Random>,
}

impl Recording {
    /// The moments are spread over all changes; one in three is just after a flush, one just before one.
    fn cut(&self, round: u32, random: &mut Random) -> Cut {
        let last = self.log.before(self.versions[CHANGES].kept);
        let anywhere = 1 + random.below(last);
        let seed = Random::new(random.number());
        match round % 3 {
            0 => Cut { requests: self.log.sure(anywhere), random: None },
            1 => Cut { requests: self.log.before_flush(anywhere).min(last), random: Some(seed) },
            _ => Cut { requests: anywhere, random: Some(seed) },
        }
    }

    fn disk(&self, cut: &Cut) -> PathBuf {
        let image = self.dir.path().join("replayed");
        std::fs::copy(&self.blank, &image).unwrap();
        self.log.replay(&image, cut.requests, cut.random.clone()).unwrap();
        image
    }

    /// What may be found after that moment: the config acknowledged last, or one that was on its way.
    fn allowed(&self, cut: &Cut) -> Vec<Option<&str>> {
        let kept = |version: &Version| self.log.before(version.kept) <= cut.requests;
        let begun = |version: &Version| self.log.before(version.begun) < cut.requests;
        let acknowledged = self.versions.iter().rposition(kept);
        let first = acknowledged.unwrap_or(0);
        let on_their_way = self.versions[first..].iter().enumerate();
        let texts = on_their_way.filter(|(at, version)| *at == 0 || begun(version));
        let texts = texts.map(|(_, version)| Some(version.text.as_str()));
        let nothing = acknowledged.is_none().then_some(None);
        nothing.into_iter().chain(texts).collect()
    }

    /// What lies on the disk, after the journal was replayed.
    fn found(&self, cut: &Cut) -> Option<String> {
        self.read(cut, "config.yaml")
    }

    fn read(&self, cut: &Cut, name: &str) -> Option<String> {
        let volume = state_volume::recover(&self.disk(cut));
        let volume = volume.unwrap_or_else(|error| panic!("{cut:?}: {error:#}"));
        state_volume::read(&volume, name).unwrap().map(|bytes| String::from_utf8(bytes).unwrap())
    }

    fn boots(&self, cut: &Cut, text: &str) {
        let image = self.disk(cut);
        let node = TestNode::builder("power-cut-boot")
            .source("")
            .no_config()
            .credentials(self.credentials.clone())
            .machine(move |vm, _| Ok(vm.drive(Drive::writable(&image, Bus::Virtio))))
            .boot()
            .unwrap_or_else(|error| panic!("{cut:?}: {error:#}"));
        node.vm().wait_for("machine config: taken from STATE", BOOT_LIMIT).unwrap();
        assert_eq!(node.admin().ok(&["read", KEPT]).unwrap(), text, "{cut:?}");
        node.vm().wait_for("billet: boot sequence: done", BOOT_LIMIT * 2).unwrap();
    }
}

#[test]
#[ignore = "long run"]
fn a_power_cut_leaves_the_old_config_or_the_new_one() {
    let seed = seed();
    eprintln!("BILLET_SEED={seed} repeats this run");
    let mut random = Random::new(seed);
    let recording = record();
    let whole = recording.log.len();
    assert_eq!(
        recording.found(&Cut { requests: whole, random: None }).as_deref(),
        Some(recording.versions[CHANGES].text.as_str())
    );
    // The rig sees a lost flush: this file was written, and is not there after a cut.
    let cut = Cut { requests: recording.log.before(recording.unflushed), random: None };
    assert!(recording.read(&cut, "unflushed").unwrap_or_default().is_empty());

    let all = rounds(10, 100);
    let mut to_boot = rounds(1, 10);
    let mut different = std::collections::BTreeSet::new();
    for round in 0..all {
        let cut = recording.cut(round, &mut random);
        let found = recording.found(&cut);
        let allowed = recording.allowed(&cut);
        assert!(
            allowed.contains(&found.as_deref()),
            "round {round}, {cut:?} of {whole}: the config is neither the old nor the new one, but {} bytes: {:.200}",
            found.as_ref().map_or(0, String::len),
            found.as_deref().unwrap_or("(no file)"),
        );
        let Some(text) = found else { continue };
        if different.insert(text.clone()) && to_boot > 0 {
            recording.boots(&cut, &text);
            to_boot -= 1;
        }
    }
    assert!(different.len() > 1, "all cuts left the same config");
}
