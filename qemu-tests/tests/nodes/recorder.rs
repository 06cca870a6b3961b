//! The flight recorder: what earlier boots left, however they ended.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use ondisk::recorder::{Boot, boots};
use ondisk::{Digest, ReadAt, ReadError};
use qemu_tests::agent::signal;
use qemu_tests::artifacts::build;
use qemu_tests::credentials::Credentials;
use qemu_tests::node::{BOOT_LIMIT, NodeBuilder};
use qemu_tests::root::{Root, copy_sparse, partition_offset};
use qemu_tests::{TestNode, Transport, deadline, paths};

/// machined writes a warning at once, all else within a second.
const RECORDED_LIMIT: Duration = Duration::from_secs(20);
/// init looks for the root's disk for 45 s.
const SEARCH_LIMIT: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(200);

/// An ordinary line.
const DONE: &str = "billet: boot sequence: done";
/// A warning of the machined after the one that was killed.
const RESTARTED: &str = "started again (restart 1)";

/// A disk that several boots share.
struct Disk {
    image: PathBuf,
    credentials: Credentials,
    _dir: tempfile::TempDir,
}

/// META's bytes within the image.
struct Meta(File, u64);

impl ReadAt for Meta {
    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> Result<(), ReadError> {
        let failed = ReadError { offset, length: buffer.len(), errno: 5 };
        self.0.read_exact_at(buffer, self.1 + offset).map_err(|_| failed)
    }
}

impl Disk {
    fn new() -> Self {
        let dir = paths::temporary_dir().unwrap();
        let image = dir.path().join("disk.img");
        copy_sparse(&build().test.disk, &image).unwrap();
        Self { image, credentials: Credentials::generate().unwrap(), _dir: dir }
    }

    fn node(&self, name: &str) -> NodeBuilder {
        let builder = TestNode::builder(name).transport(Transport::Slot).disk(&self.image);
        builder.credentials(self.credentials.clone())
    }

    /// What a power cut at this moment would leave.
    fn recorded(&self) -> Vec<Boot> {
        let file = File::open(&self.image).unwrap();
        let offset = partition_offset(&file, "META").unwrap();
        boots(&mut Meta(file, offset)).unwrap()
    }

    fn wait_recorded(&self, text: &str) {
        let end = Instant::now() + deadline(RECORDED_LIMIT);
        while !self
            .recorded()
            .last()
            .is_some_and(|boot| boot.lines.iter().any(|line| line.text.contains(text)))
        {
            assert!(Instant::now() < end, "{text:?} was not recorded: {:?}", self.recorded().last());
            std::thread::sleep(POLL);
        }
    }
}

fn cut_the_power(node: &TestNode) {
    let pid = node.vm().pid().unwrap().to_string();
    assert!(std::process::Command::new("kill").args(["-9", &pid]).status().unwrap().success());
    assert!(!node.vm().wait_exit(BOOT_LIMIT).unwrap().success());
}

/// A manifest whose first layer no slot holds.
fn wrong_root_hash(root: &mut Root) -> anyhow::Result<()> {
    let mut manifest = Root::built_manifest()?;
    manifest.layers[0].root_hash = Digest([7; 32]);
    root.set_manifest(&manifest);
    Ok(())
}

#[test]
#[ignore = "long run"]
fn earlier_boots_are_shown_however_they_ended() {
    let disk = Disk::new();

    // A boot that runs, whose machined is killed, and that loses its power.
    let node = disk.node("recorder-cut").boot().unwrap();
    node.vm().wait_for(DONE, BOOT_LIMIT).unwrap();
    let refusal = node.admin().refused(&["dmesg", "--boot", "-1"]).unwrap();
    assert!(refusal.contains("0 earlier boots"), "{refusal}");
    disk.wait_recorded(DONE);
    let agent = node.agent().unwrap();
    agent.signal(agent.process("machined").unwrap().pid, signal::KILL).unwrap();
    disk.wait_recorded("billet: init: machined ended: signal 9");
    node.answers(BOOT_LIMIT).unwrap();
    disk.wait_recorded(RESTARTED);
    cut_the_power(&node);
    drop(node);

    // A boot that fails in init.
    let failing =
        disk.node("recorder-failing").spoil(wrong_root_hash).command_line("panic=3 billet.root=disk");
    let node = failing.machine(|vm, _| Ok(vm.reboot_ends())).start().unwrap();
    node.vm().expect("billet: init: boot failed: find_layers", SEARCH_LIMIT).unwrap();
    assert!(node.vm().wait_exit(BOOT_LIMIT).unwrap().success());
    drop(node);

    // What a good boot shows of them.
    let node = disk.node("recorder-after").boot().unwrap();
    let before = |boot: &str| node.admin().ok(&["dmesg", &format!("--boot={boot}")]).unwrap();
    let (failed, cut) = (before("-1"), before("-2"));
    assert!(failed.contains("billet: init: boot failed: find_layers: "), "{failed}");
    assert!(failed.contains("Linux version"), "the kernel's first line is missing:\n{failed}");
    for line in ["Linux version", DONE, "machined ended: signal 9", RESTARTED] {
        assert_eq!(cut.matches(line).count(), 1, "{line} once in\n{cut}");
    }
    let list = node.admin().ok(&["dmesg", "--list-boots"]).unwrap();
    let lines: Vec<&str> = list.lines().collect();
    assert!(lines[1].contains(" -1 ") && lines[1].contains("failed in find_layers: "), "{list}");
    assert!(
        lines[2].contains(" -2 ") && lines[2].contains(" ROOT-A ") && lines[2].contains(" running "),
        "{list}"
    );
    assert!(lines[2].contains("cut off"), "{list}");

    // An end in order is recorded as one.
    node.admin().ok_within(&["shutdown"], BOOT_LIMIT).unwrap();
    node.vm().wait_exit(BOOT_LIMIT).unwrap();
    let last = disk.recorded().pop().unwrap();
    assert_eq!(last.end.as_ref().unwrap().get("action"), Some("PowerOff"));
    assert!(last.lines.iter().any(|line| line.text.contains("final action PowerOff")));
}
