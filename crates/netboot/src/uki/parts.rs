//! What all UKIs of a bundle have in common, kept once; and what each has of its own, counted.
//!
//! Owns: the stub in memory, kernel and initramfs as open files, their sum for the checksum; when they are looked at anew.
//! Does not: hold a UKI. Its bytes are read from the page cache while they are sent, so a transfer costs its headers and
//! its command line: [`Count`] says how much that is together.
//! Fails by: what cannot be read, by the file's name.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ondisk::pe::{Image, Layout, words};

use super::joined::{Joined, Piece, Source};
use super::script::Started;

/// systemd's stub, which a UKI starts with.
pub(crate) const STUB: &str = "stub.efi";

/// A stub has a hundred kilobytes; a file of this name that is longer is something else.
const MOST_STUB_BYTES: u64 = 4 << 20;
/// How much is read at once for the sum; even.
const SUM_BYTES: usize = 64 << 10;

/// The parts of the bundle as it is, and what was made of them.
#[derive(Debug, Default)]
pub(crate) struct Ukis {
    parts: Mutex<Option<Arc<Parts>>>,
    /// How often they were read.
    reads: AtomicU64,
    own: Arc<Count>,
}

/// Bytes that UKIs under way have of their own.
#[derive(Debug, Default)]
pub(crate) struct Count {
    now: AtomicU64,
    most: AtomicU64,
}

/// Some of them, until the value is dropped.
#[derive(Debug)]
struct Counted {
    count: Arc<Count>,
    bytes: u64,
}

/// One state of the bundle.
#[derive(Debug)]
pub(crate) struct Parts {
    stub: Arc<[u8]>,
    kernel: Part,
    initramfs: Vec<Part>,
    /// Of the words of kernel and initramfs: it takes a second to read, so nobody waits for it before it is needed.
    sum: Mutex<Option<u64>>,
    seen: Vec<Identity>,
}

#[derive(Debug)]
struct Part {
    file: Arc<File>,
    bytes: u64,
}

/// Which content a name had.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Identity {
    name: String,
    device: u64,
    inode: u64,
    bytes: u64,
    changed: (i64, i64),
}

impl Identity {
    fn of(name: &str, metadata: &fs::Metadata) -> Self {
        let changed = (metadata.ctime(), metadata.ctime_nsec());
        let (device, inode) = (metadata.dev(), metadata.ino());
        Self { name: name.to_owned(), device, inode, bytes: metadata.len(), changed }
    }
}

/// The UKI of one machine, of which nothing was made yet.
#[derive(Debug)]
pub(crate) struct Plan {
    parts: Arc<Parts>,
    line: String,
    length: u64,
    count: Arc<Count>,
}

impl Ukis {
    /// What the script starts, with this command line.
    ///
    /// # Errors
    /// A file that cannot be read or is no stub, by its name.
    pub(super) fn plan(&self, bundle: &Path, started: &Started<'_>, line: String) -> io::Result<Plan> {
        let parts = self.parts(bundle, started)?;
        let length = parts.with_layout(line.len() as u64, |_, layout| Ok(layout.file_bytes()))?;
        Ok(Plan { parts, line, length, count: self.own.clone() })
    }

    /// Those of before, while the files are the same.
    fn parts(&self, bundle: &Path, started: &Started<'_>) -> io::Result<Arc<Parts>> {
        let names = [STUB, started.kernel].into_iter().chain(started.initramfs.iter().copied());
        let seen = |name: &str| {
            let metadata = fs::metadata(bundle.join(name)).map_err(|error| named(name, &error))?;
            Ok(Identity::of(name, &metadata))
        };
        let seen = names.map(seen).collect::<io::Result<Vec<_>>>()?;
        let mut kept = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(parts) = kept.as_ref().filter(|parts| parts.seen == seen) {
            return Ok(parts.clone());
        }
        let parts = Arc::new(Parts::read(bundle, started)?);
        self.reads.fetch_add(1, Ordering::Relaxed);
        *kept = Some(parts.clone());
        Ok(parts)
    }

    #[cfg(test)]
    pub(crate) fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }

    /// Bytes that UKIs have of their own, now and at most.
    #[cfg(test)]
    pub(crate) fn own_bytes(&self) -> (u64, u64) {
        (self.own.now.load(Ordering::Relaxed), self.own.most.load(Ordering::Relaxed))
    }
}

impl Counted {
    fn new(count: &Arc<Count>, bytes: u64) -> Self {
        let now = count.now.fetch_add(bytes, Ordering::Relaxed) + bytes;
        count.most.fetch_max(now, Ordering::Relaxed);
        Self { count: count.clone(), bytes }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.count.now.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Parts {
    fn read(bundle: &Path, started: &Started<'_>) -> io::Result<Self> {
        let mut seen = Vec::new();
        let mut open = |name: &str| {
            let opened = File::open(bundle.join(name)).and_then(|file| Ok((file.metadata()?, file)));
            let (metadata, file) = opened.map_err(|error| named(name, &error))?;
            seen.push(Identity::of(name, &metadata));
            Ok::<_, io::Error>(Part { file: Arc::new(file), bytes: metadata.len() })
        };
        let (stub, kernel) = (open(STUB)?, open(started.kernel)?);
        let initramfs = started.initramfs.iter().map(|name| open(name)).collect::<io::Result<Vec<_>>>()?;
        if stub.bytes > MOST_STUB_BYTES {
            return Err(io::Error::other(format!("{STUB}: has {} bytes, more than any stub", stub.bytes)));
        }
        let mut bytes = Vec::new();
        stub.file
            .as_ref()
            .take(MOST_STUB_BYTES)
            .read_to_end(&mut bytes)
            .map_err(|error| named(STUB, &error))?;
        Ok(Self { stub: bytes.into(), kernel, initramfs, sum: Mutex::new(None), seen })
    }

    fn initramfs_bytes(&self) -> u64 {
        self.initramfs.iter().map(|part| part.bytes).sum()
    }

    /// The kernel last: it may take memory behind its own image.
    fn with_layout<T>(
        &self,
        line_bytes: u64,
        with: impl FnOnce(&Image<'_>, &Layout<'_>) -> Result<T, ondisk::pe::Error>,
    ) -> io::Result<T> {
        let new =
            [(".cmdline", line_bytes), (".initrd", self.initramfs_bytes()), (".linux", self.kernel.bytes)];
        let made = Image::parse(&self.stub).and_then(|stub| with(&stub, &stub.layout(&new)?));
        made.map_err(|error| io::Error::other(format!("{STUB}: {error}")))
    }

    /// The contents that are the same for all, one behind the other.
    fn pieces<'p>(&self, parts: impl Iterator<Item = &'p Part>, mut start: u64) -> Vec<Piece> {
        let place = |part: &Part| {
            let piece = Piece { start, bytes: part.bytes, source: Source::File(part.file.clone()) };
            start += part.bytes;
            piece
        };
        parts.map(place).collect()
    }

    fn sum(&self) -> io::Result<u64> {
        let mut known = self.sum.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(sum) = *known {
            return Ok(sum);
        }
        let of = |parts: &[Part]| {
            let pieces = self.pieces(parts.iter(), 0);
            let length = pieces.iter().map(|piece| piece.bytes).sum();
            let (mut whole, mut buffer, mut sum) = (Joined { pieces, length, at: 0 }, Vec::new(), 0);
            loop {
                buffer.clear();
                (&mut whole).take(SUM_BYTES as u64).read_to_end(&mut buffer)?;
                sum += words(&buffer);
                if buffer.len() < SUM_BYTES {
                    return Ok::<u64, io::Error>(sum);
                }
            }
        };
        let sum = of(&self.initramfs)? + of(std::slice::from_ref(&self.kernel))?;
        Ok(*known.insert(sum))
    }
}

impl Plan {
    /// Length of the UKI.
    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    /// The UKI, to be read.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub(crate) fn make(self) -> io::Result<impl Read + io::Seek + Send> {
        let parts = &self.parts;
        let sum = parts.sum()? + words(self.line.as_bytes());
        let (head, offsets) = parts.with_layout(self.line.len() as u64, |stub, layout| {
            Ok((stub.head(layout, sum)?, layout.offsets().collect::<Vec<_>>()))
        })?;
        let [line_at, initramfs_at, kernel_at] = offsets[..] else {
            return Err(io::Error::other("invariant: a place for each section"));
        };
        // Only the headers are another machine's own; behind them the stub is that of all.
        let same = head.iter().zip(parts.stub.iter()).rev().take_while(|(own, all)| own == all).count();
        let own = head.get(..head.len() - same).unwrap_or_default();
        let memory = |start, bytes: u64, of: &Arc<[u8]>, from| Piece {
            start,
            bytes,
            source: Source::Memory(of.clone(), from),
        };
        let (own, line): (Arc<[u8]>, Arc<[u8]>) = (own.into(), self.line.as_bytes().into());
        let (own_bytes, line_bytes) = (own.len() as u64, line.len() as u64);
        let mut pieces = vec![
            memory(0, own_bytes, &own, 0),
            memory(own_bytes, same as u64, &parts.stub, own.len()),
            memory(line_at, line_bytes, &line, 0),
        ];
        pieces.extend(parts.pieces(parts.initramfs.iter(), initramfs_at));
        pieces.extend(parts.pieces(std::iter::once(&parts.kernel), kernel_at));
        let counted = Counted::new(&self.count, own_bytes + line_bytes);
        Ok(Uki { whole: Joined { pieces, length: self.length, at: 0 }, _counted: counted })
    }
}

/// A UKI that is sent, and counted until it was.
#[derive(Debug)]
struct Uki {
    whole: Joined,
    _counted: Counted,
}

impl Read for Uki {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.whole.read(buffer)
    }
}

impl io::Seek for Uki {
    fn seek(&mut self, to: io::SeekFrom) -> io::Result<u64> {
        self.whole.seek(to)
    }
}

fn named(name: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{name}: {error}"))
}
