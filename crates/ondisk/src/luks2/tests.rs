//! Headers against `cryptsetup`, in both directions; changes cut off at any write; damaged headers.

mod changes;
mod damage;
mod recipes;
mod reference;

use std::path::PathBuf;
use std::process::{Command, Output};
use std::string::{String, ToString as _};
use std::vec::Vec;
use std::{env, fs};

use super::*;
use crate::Step;

/// Length of the devices: a header of 16 MiB, as cryptsetup makes it, and some data.
const DEVICE_BYTES: u64 = 17 << 20;
/// A header with room for three slots, for what looks at many devices.
const SMALL_BYTES: u64 = 1 << 20;
const PASSPHRASE: &[u8] = b"correct horse";
const OTHER: &[u8] = b"battery staple";
/// Cheap, so that what is tested is the format.
const CHEAP: Cost = Cost::Argon2id(Argon2Cost { memory_kib: 64, passes: 4, lanes: 1 });

/// Whether the long form was asked for.
fn long() -> bool {
    env::var("BILLET_LONG").is_ok_and(|value| value == "1")
}

/// Pseudorandom bytes, the same in every run.
fn random() -> impl FnMut(&mut [u8]) {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    move |bytes| {
        for byte in bytes {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            *byte = state.to_be_bytes()[0];
        }
    }
}

fn key(bytes: usize) -> Vec<u8> {
    let mut key = vec![0; bytes];
    random()(&mut key);
    key
}

fn apply(device: &mut [u8], steps: &[Step<'_>]) {
    steps.iter().flatten().for_each(|extent| put(device, extent.offset, &extent.bytes));
}

fn put(device: &mut [u8], offset: u64, bytes: &[u8]) {
    let start = usize::try_from(offset).unwrap();
    device[start..start + bytes.len()].copy_from_slice(bytes);
}

fn new_device() -> Vec<u8> {
    vec![0; usize::try_from(DEVICE_BYTES).unwrap()]
}

fn slot(passphrase: &[u8]) -> NewSlot<'_> {
    NewSlot { slot: None, passphrase, cost: CHEAP, token: None }
}

/// A small volume of ours with one slot.
fn volume(key: &[u8]) -> (Header, Vec<u8>) {
    let mut device = vec![0; usize::try_from(SMALL_BYTES + 4096).unwrap()];
    let format =
        Format { data_offset: SMALL_BYTES, ..Format::new("0e1f2a3b-4c5d-6e7f-8091-a2b3c4d5e6f7", 4096) };
    let change = format.make(key, &[slot(PASSPHRASE)], &mut random()).unwrap();
    apply(&mut device, &change.steps);
    (change.header, device)
}

fn opened(device: &[u8], passphrase: &[u8]) -> Result<Unlocked, UnlockError> {
    read(&mut &*device).unwrap().header.unlock(&mut &*device, passphrase, None)
}

/// A directory with a device and key files, and cryptsetup at work on them.
struct Bench {
    dir: tempfile::TempDir,
}

impl Bench {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("key"), PASSPHRASE).unwrap();
        fs::write(dir.path().join("other"), OTHER).unwrap();
        let bench = Self { dir };
        bench.write(&[]);
        bench
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn device(&self) -> PathBuf {
        self.path("device")
    }

    /// The device holds these bytes and nothing behind them.
    fn write(&self, bytes: &[u8]) {
        fs::write(self.device(), bytes).unwrap();
        fs::File::options().write(true).open(self.device()).unwrap().set_len(DEVICE_BYTES).unwrap();
    }

    fn bytes(&self) -> Vec<u8> {
        fs::read(self.device()).unwrap()
    }

    /// `cryptsetup ACTION DEVICE` with options.
    fn run(&self, action: &str, options: &[&str]) -> Output {
        let mut command = Command::new("cryptsetup");
        command
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .arg("--batch-mode")
            .args(action.split(' '))
            .arg(self.device());
        let words = options.iter().map(|word| word.replace('@', &self.dir.path().to_string_lossy()));
        let output = command.args(words).output();
        output.unwrap_or_else(|e| panic!("this test needs cryptsetup (Debian package cryptsetup-bin): {e}"))
    }

    fn ok(&self, action: &str, options: &[&str]) -> String {
        let output = self.run(action, options);
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "cryptsetup {action} {options:?}: {said}{errors}");
        said
    }

    /// Whether cryptsetup opens with the passphrase in this file.
    fn opens(&self, key_file: &str) -> bool {
        self.run("open", &["--test-passphrase", "--key-file", &self.named(key_file)]).status.success()
    }

    fn named(&self, file: &str) -> String {
        self.path(file).to_string_lossy().into_owned()
    }

    /// The volume key as cryptsetup has it.
    fn volume_key(&self) -> Vec<u8> {
        let file = self.path("volume-key");
        // cryptsetup overwrites no file.
        let _ = fs::remove_file(&file);
        self.ok("luksDump", &["--dump-volume-key", "--key-file=@/key", "--volume-key-file=@/volume-key"]);
        fs::read(file).unwrap()
    }
}

/// The cheapest derivations that cryptsetup makes.
fn cheap(kdf: &str) -> Vec<&'static str> {
    match kdf {
        "pbkdf2" => vec!["--pbkdf=pbkdf2", "--pbkdf-force-iterations=1000"],
        "argon2i" => {
            vec!["--pbkdf=argon2i", "--pbkdf-force-iterations=4", "--pbkdf-memory=64", "--pbkdf-parallel=1"]
        }
        _ => {
            vec!["--pbkdf=argon2id", "--pbkdf-force-iterations=4", "--pbkdf-memory=64", "--pbkdf-parallel=2"]
        }
    }
}
