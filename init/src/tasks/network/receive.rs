//! The kernel's side of a download: frames in and out, bytes into a file, and their hashes.
//!
//! Owns: the comparison with the root manifest: the hash tree over what came, which ends in the layer's root hash and is
//! what the file has behind its data.
//! Does not: keep a frame; what the kernel's queue cannot hold is sent again by whoever sent it.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::cell::RefCell;
use core::fmt;

use netroot::{Arrived, Broken, Link, Sink, Tone};
use ondisk::manifest::Layer;
use ondisk::verity::TreeBuilder;
use sys::Errno;

use crate::boot::Boot;
use crate::events;
use crate::failure::Failure;
use crate::kernel::Level;
use crate::line::Line;

/// What is written to the file at once.
const PIECE_BYTES: usize = 256 << 10;

/// Frames of a card. The boot is shared with the file that the frames' content goes to; neither holds it longer than a
/// call.
pub(super) struct Frames<'a, 'b, 'k> {
    pub(super) boot: &'a RefCell<&'b mut Boot<'k>>,
    pub(super) card: &'a str,
}

impl Frames<'_, '_, '_> {
    fn broken(&self, operation: &'static str, errno: Errno) -> Broken {
        Broken(Failure::errno(operation, self.card, errno).to_string())
    }
}

impl Link for Frames<'_, '_, '_> {
    fn now_ns(&mut self) -> u64 {
        self.boot.borrow_mut().kernel.now_ns()
    }

    fn send(&mut self, frame: &[u8]) -> Result<(), Broken> {
        match self.boot.borrow_mut().kernel.send_frame(frame) {
            // A full queue, or a cable that was pulled: what it carried is sent again.
            Ok(()) | Err(Errno::AGAIN | Errno::NOBUFS | Errno::NETDOWN) => Ok(()),
            Err(errno) => Err(self.broken("send frame on", errno)),
        }
    }

    fn receive(&mut self, buffer: &mut [u8]) -> Result<Option<Arrived>, Broken> {
        match self.boot.borrow_mut().kernel.receive_frame(buffer) {
            Ok(found) => {
                let sys::packet::Arrived { length, tag, checksum_missing } = found;
                Ok(Some(Arrived { length, tag, checksum_missing }))
            }
            Err(Errno::AGAIN | Errno::NETDOWN | Errno::MSGSIZE) => Ok(None),
            Err(errno) => Err(self.broken("receive frame from", errno)),
        }
    }

    fn wait(&mut self, until_ns: u64) -> Result<(), Broken> {
        let boot = &mut **self.boot.borrow_mut();
        let until_ns = boot.watchdog.next_ns().map_or(until_ns, |next| until_ns.min(next));
        let ready = boot.kernel.wait(Some(until_ns), false).map_err(|errno| self.broken("wait on", errno))?;
        boot.watchdog.feed(boot.kernel);
        if ready.device {
            events::drain(boot);
        }
        Ok(())
    }

    fn say(&mut self, tone: Tone, text: fmt::Arguments<'_>) {
        let line = Line::new(text);
        let boot = &mut **self.boot.borrow_mut();
        match tone {
            Tone::Note => boot.kernel.log(Level::Info, line.as_str()),
            Tone::Warning => boot.warn(line.as_str()),
        }
    }
}

/// A layer on its way into a file.
pub(super) struct LayerFile<'a, 'b, 'k> {
    boot: &'a RefCell<&'b mut Boot<'k>>,
    layer: &'a Layer,
    path: String,
    /// Not in the file yet.
    pending: Vec<u8>,
    /// Bytes that came.
    offset: u64,
    /// Over the data.
    tree: TreeBuilder,
    /// What came behind the data.
    hashes: Vec<u8>,
}

impl<'a, 'b, 'k> LayerFile<'a, 'b, 'k> {
    pub(super) fn new(boot: &'a RefCell<&'b mut Boot<'k>>, layer: &'a Layer, path: String) -> Self {
        let tree = TreeBuilder::new(layer.salt);
        Self { boot, layer, path, pending: Vec::new(), offset: 0, tree, hashes: Vec::new() }
    }

    fn flush(&mut self) -> Result<(), Broken> {
        let added = self.boot.borrow_mut().kernel.append(&self.path, &self.pending);
        self.pending.clear();
        added.map_err(|errno| Broken(Failure::errno("write layer to", &self.path, errno).to_string()))
    }
}

impl Sink for LayerFile<'_, '_, '_> {
    fn restart(&mut self) -> Result<(), Broken> {
        self.pending.clear();
        self.hashes.clear();
        (self.offset, self.tree) = (0, TreeBuilder::new(self.layer.salt));
        let made = self.boot.borrow_mut().kernel.create(&self.path, 0o400, b"");
        made.map_err(|errno| Broken(Failure::errno("make file for layer", &self.path, errno).to_string()))
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), Broken> {
        let Layer { data_bytes, hash_offset, .. } = *self.layer;
        let clip =
            |at: u64| usize::try_from(at.saturating_sub(self.offset)).unwrap_or(usize::MAX).min(bytes.len());
        self.tree.push(bytes.get(..clip(data_bytes)).unwrap_or_default());
        self.hashes.extend_from_slice(bytes.get(clip(hash_offset)..).unwrap_or_default());
        self.offset += bytes.len() as u64;
        self.pending.extend_from_slice(bytes);
        if self.pending.len() >= PIECE_BYTES { self.flush() } else { Ok(()) }
    }

    fn judge(&mut self) -> Result<Option<String>, Broken> {
        self.flush()?;
        let tree = core::mem::replace(&mut self.tree, TreeBuilder::new(self.layer.salt));
        let wanted = self.layer.root_hash;
        Ok(match tree.finish() {
            Ok(tree) if tree.root != wanted => {
                Some(format!("wrong digest: the root hash is {}, the root manifest has {wanted}", tree.root))
            }
            Ok(tree) if tree.bytes != self.hashes => {
                Some("wrong digest: its hash tree is not that of its data".into())
            }
            Ok(_) => None,
            Err(error) => Some(error.to_string()),
        })
    }
}
