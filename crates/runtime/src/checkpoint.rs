//! What machined remembers across its own death: a small file in memory that init keeps open.
//!
//! Owns: the memfd `checkpoint` and its two slots.
//! Does not: hold secrets (the machine config has a memfd of its own, [`Keep`]).
//! Order: a save writes the slot that is not the newest, header last part of the same write; a machined that is
//! killed in between leaves the other slot whole.
//! Fails by: starting empty when neither slot is whole, which costs the history, not the services.
//!
//! Slot: length (u32), generation (u64), CRC-32 of generation and body (u32), all little endian, then JSON.
//! A memfd and not a file below /run: a full tmpfs must not stop it.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::MemfdFlags;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::init_link::InitLink;
use crate::request;
use crate::store::BootTimeline;

/// Room for one slot; a node with fifty services needs about 200 KiB.
const SLOT_BYTES: u64 = 1 << 20;
const HEADER_BYTES: usize = 16;
const NAME: &str = "checkpoint";

/// A service as it was.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedService {
    /// Its id.
    pub id: String,
    /// Someone wants it to run.
    pub wanted: bool,
    /// Its process was being created: it may exist without anyone having noted its pid.
    pub starting: bool,
    /// Its process.
    pub pid: Option<i32>,
    /// When that process started, ticks since boot.
    pub start_ticks: u64,
    /// Its events, oldest first.
    pub events: Vec<SavedEvent>,
}

/// An event of a service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedEvent {
    /// State word.
    pub state: String,
    /// Text.
    pub message: String,
    /// Nanoseconds since 1970.
    pub time_ns: i128,
}

/// A sequence under way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedSequence {
    /// Its name.
    pub name: String,
    /// The phase that was running.
    pub phase: usize,
    /// Who started it.
    pub actor_id: String,
}

/// Everything that is remembered.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// By id.
    pub services: Vec<SavedService>,
    /// At most one.
    pub sequence: Option<SavedSequence>,
    /// Names of sequences that ended well since boot.
    pub done: Vec<String>,
    /// Where the boot time went.
    pub timeline: BootTimeline,
}

/// A handle to the memory; clones share it.
#[derive(Debug, Clone)]
pub struct Checkpoint {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug)]
struct Inner {
    file: Option<File>,
    generation: u64,
    memory: Memory,
}

impl Checkpoint {
    /// Takes over the memory of an earlier machined, or begins one and deposits it.
    pub fn open(stored: Option<OwnedFd>, link: &InitLink) -> Self {
        let (file, (generation, memory)) = match stored {
            Some(fd) => {
                let file = File::from(fd);
                let found = newest(&file).unwrap_or_default();
                (Some(file), found)
            }
            None => (create(NAME, link), (0, Memory::default())),
        };
        Self { inner: Arc::new(Mutex::new(Inner { file, generation, memory })) }
    }

    /// What is remembered now.
    pub fn memory(&self) -> Memory {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).memory.clone()
    }

    /// Changes the memory; it is saved with the next [`Checkpoint::update`].
    pub fn remember(&self, change: impl FnOnce(&mut Memory)) {
        change(&mut self.inner.lock().unwrap_or_else(PoisonError::into_inner).memory);
    }

    /// Changes the memory and saves it.
    pub fn update(&self, change: impl FnOnce(&mut Memory)) {
        let _outside = request::outside();
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut inner.memory);
        inner.generation += 1;
        let slot = slot_bytes(inner.generation, &inner.memory);
        if let (Some(file), Some(bytes)) = (&inner.file, slot) {
            // A failed write leaves the other slot: the memory is then one step old.
            let _ = file.write_all_at(&bytes, (inner.generation % 2) * SLOT_BYTES);
        }
    }
}

fn create(name: &str, link: &InitLink) -> Option<File> {
    let fd = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC).ok()?;
    link.store(name, fd.as_fd()).ok()?;
    Some(File::from(fd))
}

fn slot_bytes(generation: u64, memory: &Memory) -> Option<Vec<u8>> {
    let body = serde_json::to_vec(memory).ok()?;
    let length = u32::try_from(body.len()).ok()?;
    if body.len() + HEADER_BYTES > usize::try_from(SLOT_BYTES).ok()? {
        return None;
    }
    let mut bytes = Vec::with_capacity(HEADER_BYTES + body.len());
    bytes.extend(length.to_le_bytes());
    bytes.extend(generation.to_le_bytes());
    bytes.extend(checksum(generation, &body).to_le_bytes());
    bytes.extend(body);
    Some(bytes)
}

fn checksum(generation: u64, body: &[u8]) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(&generation.to_le_bytes());
    crc.update(body);
    crc.finalize()
}

fn newest(file: &File) -> Option<(u64, Memory)> {
    [0, SLOT_BYTES].into_iter().filter_map(|at| read_slot(file, at)).max_by_key(|(generation, _)| *generation)
}

fn read_slot(file: &File, at: u64) -> Option<(u64, Memory)> {
    let mut header = [0; HEADER_BYTES];
    file.read_exact_at(&mut header, at).ok()?;
    let length = u32::from_le_bytes(header[..4].try_into().ok()?);
    let generation = u64::from_le_bytes(header[4..12].try_into().ok()?);
    let crc = u32::from_le_bytes(header[12..].try_into().ok()?);
    if u64::from(length) + HEADER_BYTES as u64 > SLOT_BYTES {
        return None;
    }
    let mut body = vec![0; usize::try_from(length).ok()?];
    file.read_exact_at(&mut body, at + HEADER_BYTES as u64).ok()?;
    (checksum(generation, &body) == crc)
        .then(|| serde_json::from_slice(&body).ok())
        .flatten()
        .map(|m| (generation, m))
}

/// One secret document that survives machined, in a memfd of its own.
#[derive(Debug)]
pub struct Keep;

impl Keep {
    /// The descriptor's name in init's store.
    pub const CONFIG: &'static str = "config";
    /// The config to return to, while the one in force is for a while only.
    pub const RETURN: &'static str = "config-return";

    /// Deposits a document, replacing the one before.
    pub fn save(name: &str, text: &str, link: &InitLink) -> Result<(), String> {
        let fd = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC)
            .map_err(|e| format!("create memfd {name}: {e}"))?;
        let file = File::from(fd);
        file.write_all_at(text.as_bytes(), 0).map_err(|e| format!("write memfd {name}: {e}"))?;
        link.store(name, file.as_fd()).map_err(|e| e.to_string())
    }

    /// Reads a deposited document.
    pub fn read(stored: &OwnedFd) -> Option<Zeroizing<String>> {
        let file = File::from(stored.try_clone().ok()?);
        let length = usize::try_from(file.metadata().ok()?.len()).ok()?;
        let mut bytes = Zeroizing::new(vec![0; length]);
        file.read_exact_at(&mut bytes, 0).ok()?;
        let text = std::str::from_utf8(&bytes).ok()?.to_owned();
        (!text.is_empty()).then(|| Zeroizing::new(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memfd() -> OwnedFd {
        rustix::fs::memfd_create("test", MemfdFlags::CLOEXEC).unwrap()
    }

    #[test]
    fn the_next_machined_finds_what_was_saved() {
        let fd = memfd();
        let first = Checkpoint::open(Some(fd.try_clone().unwrap()), &InitLink::detached());
        first.update(|m| m.done.push("initialize".into()));
        first.update(|m| {
            m.services.push(SavedService { id: "apid".into(), wanted: true, ..Default::default() })
        });
        let second = Checkpoint::open(Some(fd), &InitLink::detached());
        assert_eq!(second.memory(), first.memory());
        assert_eq!(second.memory().services[0].id, "apid");
    }

    #[test]
    fn a_torn_slot_costs_one_step() {
        let fd = memfd();
        let file = File::from(fd.try_clone().unwrap());
        let first = Checkpoint::open(Some(fd.try_clone().unwrap()), &InitLink::detached());
        first.update(|m| m.done.push("one".into()));
        first.update(|m| m.done.push("two".into()));
        // Generation 2 is in slot 0: destroy a byte of its body.
        file.write_all_at(b"#", HEADER_BYTES as u64 + 3).unwrap();
        let second = Checkpoint::open(Some(fd.try_clone().unwrap()), &InitLink::detached());
        assert_eq!(second.memory().done, ["one"]);
        file.write_all_at(b"#", SLOT_BYTES + HEADER_BYTES as u64 + 3).unwrap();
        let third = Checkpoint::open(Some(fd), &InitLink::detached());
        assert_eq!(third.memory(), Memory::default());
    }

    #[test]
    fn a_kept_document_comes_back() {
        let fd = memfd();
        File::from(fd.try_clone().unwrap()).write_all_at(b"machine: {}", 0).unwrap();
        assert_eq!(Keep::read(&fd).unwrap().as_str(), "machine: {}");
        assert!(Keep::read(&memfd()).is_none());
    }
}
