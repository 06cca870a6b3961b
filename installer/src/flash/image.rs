//! The image that is written: a raw file with or without holes, or one that is packed by zstd.
//!
//! Owns: refusing what is no whole image, its length, its partition table, and its content in pieces from the front.
//! Does not: unpack to a file; read holes.
//! Fails by: [`Error::Unsuitable`] with the command that makes something suitable of the file.
//! Source: lseek(2) on `SEEK_DATA`.

use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::fs::{FileExt as _, FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use ondisk::gpt::{self, Geometry, Table, types};
use ondisk::{Digest, iso9660};
use rustix::fs::SeekFrom as Place;

use super::Error;
use super::form::{self, Head, Mistake};
use super::packed::{self, Fault, decoder};
use super::zeros::{self, length};
use crate::device::Buffer;
use crate::upgrade::Slot;

/// What is read at once.
pub(super) const CHUNK_BYTES: usize = 4 << 20;

/// The start of an image, which is written last: it has the partition table.
pub const HEAD_BYTES: u64 = 1 << 20;

/// Places in an image are multiples of this: a page, and the largest sector.
const GRAIN_BYTES: u64 = 4096;

/// The smallest sector: an image ends with a whole one.
const SECTOR_BYTES: u64 = 512;

/// What begins files of other kinds, what they are and what to do.
const UNSUITABLE: [(&[u8], &str, &str); 7] = [
    (b"QFI\xfb", "a qcow2 image", "convert it first: qemu-img convert -O raw IMAGE disk.raw"),
    (b"KDMV", "a VMDK image", "convert it first: qemu-img convert -O raw IMAGE disk.raw"),
    (b"vhdxfile", "a VHDX image", "convert it first: qemu-img convert -O raw IMAGE disk.raw"),
    (b"conectix", "a VHD image", "convert it first: qemu-img convert -O raw IMAGE disk.raw"),
    (b"\xfd7zXZ\0", "packed by xz", "unpack it first: xz --decompress --keep IMAGE"),
    (b"\x1f\x8b", "packed by gzip", "unpack it first: gunzip --keep IMAGE"),
    (b"BZh", "packed by bzip2", "unpack it first: bunzip2 --keep IMAGE"),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Raw,
    Zstd,
}

/// An image file.
#[derive(Debug)]
pub struct Image {
    path: PathBuf,
    kind: Kind,
    bytes: u64,
    /// Of a packed image none are known.
    holes: Vec<Range<u64>>,
    /// Whether it is whole, as far as can be seen.
    is_checked: bool,
    head: Vec<u8>,
    table: Option<Table>,
    identity: String,
}

/// A part of an image, in the order of the bytes.
pub(super) enum Chunk {
    /// A hole.
    Zeros { offset: u64, length: u64 },
    /// The first `length` bytes of a buffer.
    Bytes { offset: u64, buffer: Buffer, length: usize },
}

impl Image {
    /// Looks at a file, and refuses one that is no image of a disk or was cut off.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let image = Self { is_checked: true, ..Self::open_as_is(path)? };
        let layouts = form::layouts(&image.head);
        if layouts.is_empty() {
            let Mistake { what, advice } = form::mistake(path, &image.head);
            return Err(Error::NoImage { path: path.to_owned(), what, advice });
        }
        match layouts.iter().find(|layout| layout.end_bytes > image.bytes) {
            Some(layout) => {
                let (name, end, bytes) = (layout.name, layout.end_bytes, image.bytes);
                let reason = format!("its {name} reaches to byte {end}, and it has {bytes} bytes");
                Err(Error::CutOff { path: path.to_owned(), reason })
            }
            None => Ok(image),
        }
    }

    /// Looks at a file that is to be written whatever it holds.
    pub fn open_as_is(path: &Path) -> Result<Self, Error> {
        let failed = |source| Error::ReadImage { path: path.to_owned(), source };
        let file = File::open(path).map_err(failed)?;
        let status = file.metadata().map_err(failed)?;
        let mut magic = Vec::new();
        (&file).take(16).read_to_end(&mut magic).map_err(failed)?;
        check(path, &status)?;
        let kind = if magic.starts_with(&packed::MAGIC) { Kind::Zstd } else { Kind::Raw };
        let bytes = match kind {
            Kind::Raw => status.len(),
            Kind::Zstd => packed::unpacked_bytes(&file).map_err(|fault| unpack(path, fault))?,
        };
        let mut head = vec![0; usize::try_from(bytes.min(HEAD_BYTES)).unwrap_or(0)];
        match kind {
            Kind::Raw => file.read_exact_at(&mut head, 0).map_err(failed)?,
            Kind::Zstd => decoder(&file)
                .and_then(|mut data| data.read_exact(&mut head))
                .map_err(|error| unpack(path, error.into()))?,
        }
        check_start(path, &head)?;
        let changed = (status.mtime(), status.mtime_nsec());
        let identity = format!("{bytes} {changed:?} {}", Digest::sha256(&[&head]));
        let bytes = bytes.next_multiple_of(SECTOR_BYTES);
        let holes = match kind {
            Kind::Raw => holes(&file, bytes).map_err(failed)?,
            Kind::Zstd => Vec::new(),
        };
        let table = read_table(&head, bytes);
        let path = path.to_owned();
        Ok(Self { path, kind, bytes, holes, is_checked: false, head, table, identity })
    }

    /// Where the file lies.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What it takes on a disk.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether it is packed: what of it is zeros shows only when it is unpacked.
    #[must_use]
    pub fn is_packed(&self) -> bool {
        self.kind == Kind::Zstd
    }

    /// How much of it is not a hole; of a packed image all of it.
    #[must_use]
    pub fn mapped_bytes(&self) -> u64 {
        self.bytes - self.holes.iter().map(length).sum::<u64>()
    }

    /// How much of its holes has to be on a disk that can make no zeros without writing them; none: what of a packed
    /// image is zeros shows only when it is unpacked.
    #[must_use]
    pub fn zero_bytes(&self) -> Option<u64> {
        (!self.is_packed()).then(|| zeros::counting(&self.holes, self.slots()).iter().map(length).sum())
    }

    /// Its holes; of a packed image none are known.
    pub(super) fn holes(&self) -> &[Range<u64>] {
        &self.holes
    }

    /// The root slots of an image of ours that is written for what it is: of these it is known who reads what.
    pub(super) fn slots(&self) -> Vec<Range<u64>> {
        let table = self.table.as_ref().filter(|_| self.is_checked && self.is_ours());
        let slots = [Slot::A, Slot::B].into_iter().filter_map(|slot| {
            let table = table?;
            let found = table.by_name(slot.partition()).filter(|found| found.type_guid == types::LINUX)?;
            let start = table.offset_bytes(found);
            Some(start..start.saturating_add(table.size_bytes(found)))
        });
        let mut slots: Vec<_> = slots.collect();
        slots.sort_by_key(|slot| slot.start);
        slots
    }

    /// Its GUID partition table.
    #[must_use]
    pub fn table(&self) -> Option<&Table> {
        self.table.as_ref()
    }

    /// Bytes of its sectors, if its table says so.
    #[must_use]
    pub fn sector_bytes(&self) -> Option<u32> {
        self.table.as_ref().map(|table| table.geometry.sector_bytes)
    }

    /// Whether it is an image of ours: of those it is known that nothing in it goes by GUIDs.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        let Some(table) = &self.table else { return false };
        let disk = ["EFI", "ROOT-A", "META"].iter().all(|name| table.by_name(name).is_some());
        disk || iso9660::parse(&self.head).is_some_and(|volume| volume.label == "BILLET")
    }

    /// The first bytes, at most [`HEAD_BYTES`].
    pub(super) fn head(&self) -> &[u8] {
        &self.head
    }

    /// What tells this image from another one, and from itself after a change.
    pub(super) fn identity(&self) -> &str {
        &self.identity
    }

    /// Hands the whole image to `each`, with buffers from `free`; ends early when either has enough.
    pub(super) fn read(
        &self,
        free: &mut dyn FnMut() -> Option<Buffer>,
        each: &mut dyn FnMut(Chunk) -> bool,
    ) -> Result<(), Error> {
        let failed = |source| Error::ReadImage { path: self.path.clone(), source };
        let file = File::open(&self.path).map_err(failed)?;
        match self.kind {
            Kind::Raw => self.read_raw(&file, free, each).map_err(failed),
            Kind::Zstd => {
                let mut data = decoder(&file).map_err(failed)?;
                let read = self.read_stream(&mut data, free, each);
                let read = read.map_err(|error| unpack(&self.path, error.into()))?;
                if read { Ok(()) } else { Err(Error::ImageChanged { path: self.path.clone() }) }
            }
        }
    }

    fn read_raw(
        &self,
        file: &File,
        free: &mut dyn FnMut() -> Option<Buffer>,
        each: &mut dyn FnMut(Chunk) -> bool,
    ) -> io::Result<()> {
        let mut at = 0;
        while let Some((start, end)) = next_data(file, at, self.bytes)? {
            if start > at && !each(Chunk::Zeros { offset: at, length: start - at }) {
                return Ok(());
            }
            at = start;
            while at < end {
                let Some(mut buffer) = free() else { return Ok(()) };
                let length = usize::try_from(end - at).unwrap_or(usize::MAX).min(CHUNK_BYTES);
                read_padded(file, at, buffer.bytes_mut().get_mut(..length).unwrap_or(&mut []))?;
                if !each(Chunk::Bytes { offset: at, buffer, length }) {
                    return Ok(());
                }
                at += length as u64;
            }
        }
        if at < self.bytes {
            each(Chunk::Zeros { offset: at, length: self.bytes - at });
        }
        Ok(())
    }

    /// Whether the stream was as long as it said.
    fn read_stream(
        &self,
        data: &mut dyn Read,
        free: &mut dyn FnMut() -> Option<Buffer>,
        each: &mut dyn FnMut(Chunk) -> bool,
    ) -> io::Result<bool> {
        let mut at = 0;
        while at < self.bytes {
            let Some(mut buffer) = free() else { return Ok(true) };
            let length = usize::try_from(self.bytes - at).unwrap_or(usize::MAX).min(CHUNK_BYTES);
            let bytes = buffer.bytes_mut().get_mut(..length).unwrap_or(&mut []);
            let count = fill(data, bytes)?;
            bytes.get_mut(count..).unwrap_or(&mut []).fill(0);
            // Less than a sector may be missing: the image was rounded up to whole ones.
            if (length - count) as u64 >= SECTOR_BYTES {
                return Ok(false);
            }
            if !each(Chunk::Bytes { offset: at, buffer, length }) {
                return Ok(true);
            }
            at += length as u64;
        }
        Ok(data.read(&mut [0])? == 0)
    }
}

fn check(path: &Path, status: &std::fs::Metadata) -> Result<(), Error> {
    let what = match status.len() {
        _ if status.is_dir() || status.file_type().is_char_device() => "no image file",
        0 => "empty",
        _ => return Ok(()),
    };
    let advice = "name a raw disk image or one that is packed by zstd";
    Err(Error::Unsuitable { path: path.to_owned(), what: what.to_owned(), advice })
}

/// Refuses what holds an image and is none, also where zstd packed it.
fn check_start(path: &Path, head: &[u8]) -> Result<(), Error> {
    match UNSUITABLE.iter().find(|(start, ..)| head.starts_with(start)) {
        Some((_, what, advice)) => {
            Err(Error::Unsuitable { path: path.to_owned(), what: (*what).to_owned(), advice })
        }
        None => Ok(()),
    }
}

fn unpack(path: &Path, fault: Fault) -> Error {
    let path = path.to_owned();
    match fault {
        Fault::Cut => Error::CutOff { path, reason: "it ends in the middle of what zstd packed".to_owned() },
        Fault::Damaged(source) => Error::Damaged { path, source },
        Fault::Read(source) => Error::ReadImage { path, source },
    }
}

/// The next range from `at` on that may hold something, widened to whole grains.
fn next_data(file: &File, at: u64, bytes: u64) -> io::Result<Option<(u64, u64)>> {
    if at >= bytes {
        return Ok(None);
    }
    let start = match rustix::fs::seek(file, Place::Data(at)) {
        Ok(start) => start / GRAIN_BYTES * GRAIN_BYTES,
        Err(sys::Errno::NXIO) => return Ok(None),
        // A file system that knows no holes.
        Err(sys::Errno::INVAL | sys::Errno::OPNOTSUPP) => return Ok(Some((at, bytes))),
        Err(errno) => return Err(errno.into()),
    };
    let start = start.max(at);
    let end = rustix::fs::seek(file, Place::Hole(start)).map_err(io::Error::from)?;
    let end = end.next_multiple_of(GRAIN_BYTES).min(bytes);
    Ok((start < end).then_some((start, end)))
}

/// What of a file nothing was written to.
fn holes(file: &File, bytes: u64) -> io::Result<Vec<Range<u64>>> {
    let (mut at, mut holes) = (0, Vec::new());
    while let Some((start, end)) = next_data(file, at, bytes)? {
        holes.push(at..start);
        at = end;
    }
    holes.push(at..bytes);
    holes.retain(|hole| hole.start < hole.end);
    Ok(holes)
}

/// Fills a buffer; zeros behind the end of the file.
fn read_padded(file: &File, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
    let mut done = 0;
    while let Some(rest) = bytes.get_mut(done..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, offset + done as u64)? {
            0 => {
                rest.fill(0);
                return Ok(());
            }
            count => done += count,
        }
    }
    Ok(())
}

/// Reads until the buffer is full or the stream ends.
fn fill(data: &mut dyn Read, bytes: &mut [u8]) -> io::Result<usize> {
    let mut done = 0;
    while let Some(rest) = bytes.get_mut(done..).filter(|rest| !rest.is_empty()) {
        match data.read(rest)? {
            0 => break,
            count => done += count,
        }
    }
    Ok(done)
}

/// The table at the start of an image, for either sector size.
fn read_table(head: &[u8], bytes: u64) -> Option<Table> {
    [512, 4096].into_iter().find_map(|sector_bytes| {
        let geometry = Geometry::new(sector_bytes, bytes).ok()?;
        let found = gpt::read(&mut Head(head), geometry).ok()?;
        Some(found.table)
    })
}
