//! Sealed keys as releases before decision 0018 wrote them, in the header of a node's volume: they open it, and are sealed
//! anew.
//!
//! Owns: the swtpm process that seals with the state of a machine that is turned off.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use installer::device::{Disk as Device, Part};
use installer::encryption::{Key, KeySecret, Seal, Vault, Wanted, open, synchronise};
use ondisk::luks2::{Cost, Secret};
use qemu_tests::node::BOOT_LIMIT;
use qemu_tests::process::POLL_INTERVAL;
use rustix::io::Errno;
use serde_json::{Map, Value, json};
use tpm::{Policy, Sealed, Transport};
use unlock::{KeyKind, SealedKey};

use crate::encryption::{BOOT, HEADER_BYTES, MACHINE, node_id, on, section};
use crate::tpm::with_tpm;
use crate::volumes::{BOOTED, Disk, GIB, shut_down};

/// For swtpm to open its socket, and for each answer.
const DEADLINE: Duration = Duration::from_secs(30);
const VOLUME: &str = "EPHEMERAL";

/// The TPM of a machine that is turned off.
struct HostTpm {
    process: Child,
    stream: UnixStream,
}

impl HostTpm {
    fn start(state: &Path) -> Self {
        let socket = state.with_extension("socket");
        let mut process = Command::new("swtpm")
            .args(["socket", "--tpm2", "--flags", "not-need-init,startup-clear"])
            .arg("--tpmstate")
            .arg(format!("dir={}", state.display()))
            .arg("--server")
            .arg(format!("type=unixio,path={}", socket.display()))
            .stdout(Stdio::null())
            .spawn()
            .expect("run swtpm; install it with: apt-get install swtpm");
        let end = Instant::now() + DEADLINE;
        let stream = loop {
            if let Ok(stream) = UnixStream::connect(&socket) {
                break stream;
            }
            assert!(process.try_wait().unwrap().is_none() && Instant::now() < end, "swtpm opened no socket");
            std::thread::sleep(POLL_INTERVAL);
        };
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        Self { process, stream }
    }
}

impl Transport for HostTpm {
    fn exchange(&mut self, command: &[u8]) -> Result<Vec<u8>, Errno> {
        let failed = |error: std::io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
        self.stream.write_all(command).map_err(failed)?;
        let mut answer = vec![0; 4096];
        let count = self.stream.read(&mut answer).map_err(failed)?;
        answer.truncate(count);
        Ok(answer)
    }

    fn pause(&mut self) {
        std::thread::sleep(POLL_INTERVAL);
    }
}

impl Drop for HostTpm {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The same as who seals keys: bound to no register.
struct OldVault(Mutex<HostTpm>);

impl Vault for OldVault {
    fn settings(&self) -> Map<String, Value> {
        Map::from_iter([("pcrs".to_owned(), json!([]))])
    }

    fn seal(&self, key: &[u8], _demands_config: bool) -> Result<Map<String, Value>, String> {
        let mut tpm = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let sealed = tpm::seal(&mut *tpm, key, Policy::default(), &mut random);
        sealed.map(|sealed| sealed.to_json()).map_err(|error| error.to_string())
    }

    fn unseal(&self, sealed: &SealedKey) -> Result<Secret, String> {
        let sealed = Sealed::from_json(&sealed.fields).map_err(|error| error.to_string())?;
        let mut tpm = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        tpm::unseal(&mut *tpm, &sealed, &mut random).map_err(|error| error.to_string())
    }
}

fn random(bytes: &mut [u8]) {
    std::fs::File::open("/dev/urandom").unwrap().read_exact(bytes).unwrap();
}

/// Gives EPHEMERAL of a machine that is turned off a key of the first rule in slot 0, and no other.
fn seal_as_before(disk: &Disk, state: &Path) {
    let seal =
        Seal { keeps_old: true, ..Seal::new(Arc::new(OldVault(HostTpm::start(state).into())), VOLUME) };
    let cost = Cost::Pbkdf2(1000);
    let old = Key { slot: 0, kind: KeyKind::Tpm, secret: KeySecret::Sealed(seal), cost };
    let secret = KeySecret::Known(Secret::new(format!("{MACHINE}{VOLUME}").into_bytes()));
    let own = Key { slot: 1, kind: KeyKind::NodeId, secret, cost };
    let mut device = Device::open_shared(&disk.path()).unwrap();
    let at = disk.offset(VOLUME).unwrap();
    let mut part = Part::new(&mut device, at, HEADER_BYTES as u64);
    let mut opened = open(&mut part, VOLUME, vec![Ok(own.clone())]).unwrap();
    // What is in slot 0 goes first: the token of a slot that is replaced keeps its rule.
    for keys in [&[own.clone()][..], &[old.clone(), own]] {
        let wanted = Wanted { keys, ..Wanted::default() };
        assert!(synchronise(&mut part, &mut opened, wanted, &mut random).problems.is_empty());
    }
    let mut opened = open(&mut part, VOLUME, vec![Ok(old.clone())]).unwrap();
    let wanted = Wanted { keys: &[old], ..Wanted::default() };
    assert_eq!(synchronise(&mut part, &mut opened, wanted, &mut random).removed, [1]);
}

fn header(disk: &Disk) -> String {
    String::from_utf8_lossy(&disk.bytes(disk.offset(VOLUME).unwrap(), 32 << 10)).into_owned()
}

/// A node after an upgrade from a release that bound its keys to nothing but the TPM.
#[test]
#[ignore = "long run"]
fn a_key_of_the_first_rule_opens_and_is_sealed_anew() {
    let disk = Disk::new(4 * GIB);
    let state = disk.dir.path().join("tpm");
    let tpm = "{tpm: {options: {pcrs: []}}, slot: 0}";
    let keys = section(&node_id(0), &format!("{tpm}, {}", node_id(1)));
    let builder = on(&disk, "old-token-first", MACHINE).machine_section(&keys);
    let node = with_tpm(builder, &state).start().unwrap();
    node.vm().wait_for(BOOTED, BOOT).unwrap();
    node.answers(BOOT_LIMIT).unwrap();
    shut_down(&node);
    drop(node);

    seal_as_before(&disk, &state);
    let before = header(&disk);
    assert!(before.contains(r#""billet":{"pcrs":[]}"#), "{before}");
    let start =
        |name: &str| with_tpm(on(&disk, name, MACHINE), &state).source("").no_config().start().unwrap();
    let node = start("old-token");
    node.vm().wait_for("EPHEMERAL is encrypted, opened by the tpm key in slot 0", BOOT).unwrap();
    for line in ["the key in slot 0 was replaced", "the key in slot 1 was added"] {
        node.vm().wait_for(&format!("EPHEMERAL: {line}"), BOOT).unwrap();
    }
    node.vm().wait_for(BOOTED, BOOT).unwrap();
    node.answers(BOOT_LIMIT).unwrap();
    shut_down(&node);
    drop(node);
    let after = header(&disk);
    let settings = r#""billet":{"lockToState":true,"pcrs":[],"version":3,"volume":"EPHEMERAL"}"#;
    assert!(after.contains(settings), "{after}");
    let node = start("old-token-again");
    node.vm().wait_for("EPHEMERAL is encrypted, opened by", BOOT).unwrap();
    node.vm().wait_for(BOOTED, BOOT).unwrap();
}
