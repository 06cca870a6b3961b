//! A wire between the cards of two VMs: every frame passes this program, which keeps a copy.
//!
//! Owns: the sockets and two threads, one for each direction. They end with this value.
//! Does not: change or delay frames; reach any network of the host.
//! Fails by: a frame that its receiver does not take is lost, as on any wire.
//! Source: IEEE 802.3 and 802.1Q for the head of a frame.

use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::paths;

/// A thread looks so often whether it is to end.
const TURN: Duration = Duration::from_millis(20);
/// Who does not take frames loses them.
pub(crate) const SEND_LIMIT: Duration = Duration::from_secs(1);
/// The largest that comes over the wire: a segment that a card would cut.
pub(crate) const MOST_FRAME_BYTES: usize = 64 << 10;
/// Copies that are kept; later ones are passed on only.
const MOST_COPIES: usize = 100_000;
/// Of a frame's bytes, enough for every head that a test reads.
const COPY_BYTES: usize = 256;
/// Two hardware addresses stand before the type.
const TYPE_AT: usize = 12;

/// The type of IPv4.
pub const IPV4: u16 = 0x0800;
/// The type of a frame with a tag of 802.1Q.
pub const TAGGED: u16 = 0x8100;
/// The type of the slow protocols, of which LACP is one (IEEE 802.3 annex 57A).
pub const SLOW: u16 = 0x8809;

/// The beginning of a frame that passed.
#[derive(Debug, Clone)]
pub struct Frame {
    /// The end that sent it, 0 or 1.
    pub from: usize,
    /// At most 256 bytes of it.
    pub bytes: Vec<u8>,
}

impl Frame {
    /// The number of the VLAN in the outermost tag.
    pub fn vlan(&self) -> Option<u16> {
        (self.outer_type()? == TAGGED).then_some(self.number(TYPE_AT + 2)? & 0xfff)
    }

    /// The type of what is in the frame, behind a tag.
    pub fn kind(&self) -> Option<u16> {
        if self.outer_type()? == TAGGED { self.number(TYPE_AT + 4) } else { self.outer_type() }
    }

    /// Source, destination and protocol of an IPv4 packet.
    pub fn ipv4(&self) -> Option<([u8; 4], [u8; 4], u8)> {
        let at = if self.outer_type()? == TAGGED { TYPE_AT + 6 } else { TYPE_AT + 2 };
        let head = self.bytes.get(at..at + 20).filter(|_| self.kind() == Some(IPV4))?;
        Some((head[12..16].try_into().ok()?, head[16..20].try_into().ok()?, head[9]))
    }

    fn outer_type(&self) -> Option<u16> {
        self.number(TYPE_AT)
    }

    fn number(&self, at: usize) -> Option<u16> {
        Some(u16::from_be_bytes(self.bytes.get(at..at + 2)?.try_into().ok()?))
    }
}

/// A wire with two ends.
#[derive(Debug)]
pub struct Wire {
    directory: tempfile::TempDir,
    ends: [Arc<UnixDatagram>; 2],
    copies: Arc<Mutex<Vec<Frame>>>,
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Wire {
    /// A wire at whose ends no card is yet.
    pub fn new() -> Result<Self> {
        let directory = paths::temporary_dir()?;
        let socket = |end: usize| {
            let socket = UnixDatagram::bind(here(directory.path(), end)).context("bind an end of a wire")?;
            socket.set_read_timeout(Some(TURN)).context("limit what a wire waits for")?;
            socket.set_write_timeout(Some(SEND_LIMIT)).context("limit what a wire waits for")?;
            Ok::<_, anyhow::Error>(Arc::new(socket))
        };
        let ends = [socket(0)?, socket(1)?];
        let mut wire =
            Self { directory, ends, copies: Arc::default(), is_over: Arc::default(), threads: Vec::new() };
        for from in 0..2 {
            let (ends, copies, is_over) = (wire.ends.clone(), wire.copies.clone(), wire.is_over.clone());
            let receiver = card(wire.directory.path(), 1 - from);
            let pass = move || {
                while !is_over.load(Ordering::Relaxed) {
                    pass_on(from, &ends, &receiver, &copies);
                }
            };
            wire.threads.push(std::thread::spawn(pass));
        }
        Ok(wire)
    }

    /// QEMU's words for the card's side of an end, as the backend `id`.
    pub fn backend(&self, id: &str, end: usize) -> String {
        let (card, here) = (card(self.directory.path(), end), here(self.directory.path(), end));
        datagrams(id, &card, &here)
    }

    /// Forgets the frames that passed so far.
    pub fn forget(&self) {
        self.copies.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// The frames that passed since they were forgotten.
    pub fn frames(&self) -> Vec<Frame> {
        self.copies.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sends a frame to both cards.
    pub fn send(&self, frame: &[u8]) {
        for (end, socket) in self.ends.iter().enumerate() {
            // A card that is not there takes nothing.
            let _ = socket.send_to(frame, card(self.directory.path(), end));
        }
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // A panic there was printed there.
            let _ = thread.join();
        }
    }
}

/// QEMU's words for a backend that sends each frame as a datagram from one socket to another.
pub(crate) fn datagrams(id: &str, from: &Path, to: &Path) -> String {
    let (from, to) = (from.display(), to.display());
    format!("dgram,id={id},local.type=unix,local.path={from},remote.type=unix,remote.path={to}")
}

/// The wire's socket at an end.
fn here(directory: &Path, end: usize) -> PathBuf {
    directory.join(format!("wire{end}"))
}

/// QEMU's socket at an end.
fn card(directory: &Path, end: usize) -> PathBuf {
    directory.join(format!("card{end}"))
}

/// Waits for a frame for a moment, and passes it on.
fn pass_on(from: usize, ends: &[Arc<UnixDatagram>; 2], receiver: &Path, copies: &Mutex<Vec<Frame>>) {
    let mut bytes = vec![0; MOST_FRAME_BYTES];
    let Ok(count) = ends[from].recv(&mut bytes) else { return };
    bytes.truncate(count);
    let mut copies = copies.lock().unwrap_or_else(PoisonError::into_inner);
    if copies.len() < MOST_COPIES {
        copies.push(Frame { from, bytes: bytes[..count.min(COPY_BYTES)].to_vec() });
    }
    drop(copies);
    let _ = ends[1 - from].send_to(&bytes, receiver);
}

#[cfg(test)]
mod tests {
    use super::{Frame, IPV4, SLOW};

    const ADDRESSES: [u8; 12] = [0; 12];
    const TYPE_IPV4: [u8; 2] = [8, 0];

    fn packet() -> Vec<u8> {
        let mut packet = vec![0; 20];
        packet[9] = 17;
        packet[12..16].copy_from_slice(&[10, 0, 0, 1]);
        packet[16..20].copy_from_slice(&[10, 0, 0, 2]);
        packet
    }

    #[test]
    fn heads_are_read_with_and_without_a_tag() {
        let told = Some(([10, 0, 0, 1], [10, 0, 0, 2], 17));
        let bare = Frame { from: 0, bytes: [&ADDRESSES[..], &TYPE_IPV4, &packet()].concat() };
        assert_eq!((bare.vlan(), bare.kind(), bare.ipv4()), (None, Some(IPV4), told));
        let tag = [0x81, 0, 0x20, 100];
        let tagged = Frame { from: 0, bytes: [&ADDRESSES[..], &tag, &TYPE_IPV4, &packet()].concat() };
        assert_eq!((tagged.vlan(), tagged.kind(), tagged.ipv4()), (Some(100), Some(IPV4), told));
        let slow = Frame { from: 1, bytes: [&ADDRESSES[..], &[0x88, 9, 1]].concat() };
        assert_eq!((slow.vlan(), slow.kind(), slow.ipv4()), (None, Some(SLOW), None));
        let short = Frame { from: 1, bytes: vec![0; 13] };
        assert_eq!((short.vlan(), short.kind(), short.ipv4()), (None, None, None));
    }
}
