//! An image onto a disk: the steps.
//!
//! Owns: their order, what is written of each piece, the comparison afterwards.
//! Order: | step | writes | why then |
//! |---|---|---|
//! | erase | zeros at both ends of the disk, flush | the table of before never leads to new content |
//! | write | the image but for its first MiB and the table's copy; flush and note every 64 MiB | what is cut off starts nothing |
//! | verify | nothing: reads all of it back | before the disk counts as anything |
//! | table | the copy at the end of the disk, flush; the first MiB, flush; read back | the disk is whole with the last write |
//!
//! A piece that an earlier attempt has noted is compared first, and written only if it is not there.

use std::ops::Range;
use std::path::Path;

use ondisk::Extent;
use ondisk::gpt::{Geometry, Guid, Table};

use super::image::{CHUNK_BYTES, HEAD_BYTES, Image};
use super::stream::{Piece, stream};
use super::{Error, journal};
use crate::Progress;
use crate::device::{BlockDevice, Buffer};

/// Between two notes.
const NOTE_BYTES: u64 = 64 << 20;

/// Bytes of boot code in the first sector, which no table owns.
const BOOT_CODE_BYTES: usize = 440;

/// What is written where.
#[derive(Debug)]
pub struct Request<'a> {
    /// The image.
    pub image: &'a Image,
    /// What the disk is called in errors.
    pub name: &'a str,
    /// What tells this disk from others, for the note.
    pub identity: &'a str,
    /// Where the note is kept; none: an interrupted attempt begins anew.
    pub note: Option<&'a Path>,
    /// Random, for the new GUIDs; none: the image's stay.
    pub seed: Option<[u8; 32]>,
    /// Whether the disk is known to be zeros, as a new file is.
    pub is_blank: bool,
}

/// What was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Done {
    /// Bytes of the image that were written.
    pub written_bytes: u64,
    /// Bytes that were made zeros.
    pub zeroed_bytes: u64,
    /// Bytes that an earlier attempt had written.
    pub kept_bytes: u64,
}

/// Writes the image and proves that it is there.
pub fn write(
    request: &Request<'_>,
    device: &mut dyn BlockDevice,
    progress: &mut dyn FnMut(Progress),
) -> Result<Done, Error> {
    let table = fitted(request, device)?;
    let (body, note) = (body(request.image), request.note);
    let mut work = Work { request, device, progress, body, note, done: Done::default() };
    work.erase()?;
    work.write()?;
    work.verify()?;
    work.finish(table.as_ref())?;
    if let Some(note) = request.note {
        journal::forget(note);
    }
    Ok(work.done)
}

/// Looks whether the image can be written to the disk at all, and at its table as it will be there.
fn fitted(request: &Request<'_>, device: &dyn BlockDevice) -> Result<Option<Table>, Error> {
    let image = request.image;
    if image.bytes() > device.bytes() {
        return Err(Error::TooSmall {
            path: image.path().to_owned(),
            target: request.name.to_owned(),
            needed_bytes: image.bytes(),
            bytes: device.bytes(),
        });
    }
    let Some(table) = image.table() else { return Ok(None) };
    let (image_bytes, disk_bytes) = (table.geometry.sector_bytes, device.sector_bytes());
    if image_bytes != disk_bytes {
        let (path, target) = (image.path().to_owned(), request.name.to_owned());
        return Err(Error::Sectors { path, target, image_bytes, disk_bytes });
    }
    let failed = |source| Error::Table { target: request.name.to_owned(), source };
    let geometry = Geometry::new(disk_bytes, device.bytes()).map_err(failed)?;
    let mut table = table.clone().on(geometry).map_err(failed)?;
    if let Some(seed) = &request.seed {
        renew(&mut table, seed);
    }
    Ok(Some(table))
}

/// Other GUIDs, so that two disks from one image can be in one machine.
fn renew(table: &mut Table, seed: &[u8; 32]) {
    table.disk_guid = Guid::from_seed(&[&seed[..], b"disk"].concat());
    for partition in &mut table.partitions {
        partition.guid = Guid::from_seed(&[&seed[..], &partition.number.to_le_bytes()].concat());
    }
}

/// What is written in one go: all but the first MiB and the copy of the table, which moves.
fn body(image: &Image) -> Range<u64> {
    let end = match image.table() {
        Some(table) => {
            // An image without the copy may have a partition where that would be.
            let last = table.partitions.iter().map(|partition| partition.last_lba).max().unwrap_or(0);
            let sectors = last.max(table.geometry.last_usable()).saturating_add(1);
            sectors.saturating_mul(u64::from(table.geometry.sector_bytes))
        }
        None => image.bytes(),
    };
    HEAD_BYTES.min(end)..end
}

struct Work<'w, 'r> {
    request: &'w Request<'r>,
    device: &'w mut dyn BlockDevice,
    progress: &'w mut dyn FnMut(Progress),
    body: Range<u64>,
    /// Where to note from here on.
    note: Option<&'r Path>,
    done: Done,
}

impl Work<'_, '_> {
    fn erase(&mut self) -> Result<(), Error> {
        let end = self.device.bytes();
        let length = HEAD_BYTES.min(end);
        self.zero(0, length)?;
        self.zero(end - length, length)?;
        self.flush()
    }

    fn write(&mut self) -> Result<(), Error> {
        let noted = match self.request.note {
            Some(path) => journal::read(path, self.request.image.identity(), self.request.identity),
            None => 0,
        };
        let mut meter = Meter::new("write", self.request.image);
        let mut since_note = 0;
        let mut room = Buffer::new(CHUNK_BYTES);
        stream(self.request.image, |piece| {
            let Some(piece) = clip(piece, &self.body) else { return Ok(()) };
            meter.tell(&piece, self.progress);
            let (end, length) = match piece {
                Piece::Zeros { offset, length } => {
                    self.zero(offset, length)?;
                    (offset + length, 0)
                }
                Piece::Bytes { offset, bytes } => {
                    self.put(offset, bytes, noted, &mut room)?;
                    (offset + bytes.len() as u64, bytes.len() as u64)
                }
            };
            since_note += length;
            if since_note >= NOTE_BYTES && end > noted {
                since_note = 0;
                self.flush()?;
                self.note(end);
            }
            Ok(())
        })?;
        meter.end(self.progress);
        self.flush()?;
        self.note(self.body.end);
        Ok(())
    }

    /// Writes bytes, unless an earlier attempt has.
    fn put(&mut self, offset: u64, bytes: &[u8], noted: u64, room: &mut Buffer) -> Result<(), Error> {
        let length = bytes.len() as u64;
        // What cannot be read is written: that mends bad sectors.
        if offset + length <= noted && self.holds(offset, bytes, room).is_ok_and(|differs| differs.is_none())
        {
            self.done.kept_bytes += length;
            return Ok(());
        }
        self.device.write_at(offset, bytes).map_err(|error| Error::of_write(self.request.name, error))?;
        self.done.written_bytes += length;
        Ok(())
    }

    /// The first place where the disk does not hold these bytes.
    fn holds(&mut self, offset: u64, bytes: &[u8], room: &mut Buffer) -> Result<Option<u64>, Error> {
        let found = room.bytes_mut().get_mut(..bytes.len()).unwrap_or(&mut []);
        let failed = |source| Error::ReadBack { target: self.request.name.to_owned(), source };
        self.device.read_at(offset, found).map_err(failed)?;
        if found == bytes {
            return Ok(None);
        }
        let differs = found.iter().zip(bytes).position(|(a, b)| a != b).unwrap_or(0);
        Ok(Some(offset + differs as u64))
    }

    /// Reads everything back that is not zeros; those the disk was told to make.
    fn verify(&mut self) -> Result<(), Error> {
        let mut meter = Meter::new("verify", self.request.image);
        let mut room = Buffer::new(CHUNK_BYTES);
        stream(self.request.image, |piece| {
            let Some(piece) = clip(piece, &self.body) else { return Ok(()) };
            meter.tell(&piece, self.progress);
            let Piece::Bytes { offset, bytes } = piece else { return Ok(()) };
            self.compare(offset, bytes, &mut room)
        })?;
        meter.end(self.progress);
        Ok(())
    }

    fn compare(&mut self, offset: u64, bytes: &[u8], room: &mut Buffer) -> Result<(), Error> {
        match self.holds(offset, bytes, room)? {
            None => Ok(()),
            Some(offset) => {
                // The next attempt must not take this for done.
                if let Some(note) = self.request.note {
                    journal::forget(note);
                }
                Err(Error::Differs { target: self.request.name.to_owned(), offset })
            }
        }
    }

    fn finish(&mut self, table: Option<&Table>) -> Result<(), Error> {
        let image = self.request.image;
        let length = usize::try_from(self.body.start).unwrap_or(0);
        let mut head = image.head().get(..length).unwrap_or(image.head()).to_vec();
        head.resize(head.len().next_multiple_of(512), 0);
        let mut last = Vec::new();
        if let Some(table) = table {
            let failed = |source| Error::Table { target: self.request.name.to_owned(), source };
            last.push(table.backup().map_err(failed)?);
            let primary = table.primary().map_err(failed)?;
            // The first sectors are the table's, but for the boot code.
            let owned = primary.bytes.get(BOOT_CODE_BYTES..).unwrap_or(&[]);
            if let Some(place) = head.get_mut(BOOT_CODE_BYTES..BOOT_CODE_BYTES + owned.len()) {
                place.copy_from_slice(owned);
            }
        }
        last.push(Extent::new(0, head));
        let mut room = Buffer::new(CHUNK_BYTES);
        for extent in last {
            let mut aligned = Buffer::new(extent.bytes.len());
            aligned.bytes_mut().copy_from_slice(&extent.bytes);
            self.device
                .write_at(extent.offset, aligned.bytes())
                .map_err(|error| Error::of_write(self.request.name, error))?;
            self.flush()?;
            self.compare(extent.offset, aligned.bytes(), &mut room)?;
            self.done.written_bytes += extent.bytes.len() as u64;
        }
        Ok(())
    }

    fn zero(&mut self, offset: u64, length: u64) -> Result<(), Error> {
        if self.request.is_blank {
            return Ok(());
        }
        self.device.zero(offset, length).map_err(|error| Error::of_write(self.request.name, error))?;
        self.done.zeroed_bytes += length;
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Error> {
        self.device.flush().map_err(|error| Error::of_write(self.request.name, error))
    }

    /// A note that cannot be kept is no reason to stop: the last one still holds.
    fn note(&mut self, done_bytes: u64) {
        let Some(path) = self.note else { return };
        if journal::write(path, self.request.image.identity(), self.request.identity, done_bytes).is_err() {
            self.note = None;
        }
    }
}

/// The part of a piece that lies in a range.
fn clip<'b>(piece: Piece<'b>, range: &Range<u64>) -> Option<Piece<'b>> {
    let within = |offset: u64, length: u64| {
        let (start, end) = (offset.max(range.start), (offset + length).min(range.end));
        (start < end).then(|| (start, end - start))
    };
    match piece {
        Piece::Zeros { offset, length } => {
            within(offset, length).map(|(offset, length)| Piece::Zeros { offset, length })
        }
        Piece::Bytes { offset, bytes } => {
            let (start, length) = within(offset, bytes.len() as u64)?;
            let skip = usize::try_from(start - offset).ok()?;
            let bytes = bytes.get(skip..skip + usize::try_from(length).ok()?)?;
            Some(Piece::Bytes { offset: start, bytes })
        }
    }
}

/// Counts what is told of the progress: of a raw image what is no hole.
struct Meter {
    step: &'static str,
    counts_zeros: bool,
    done_bytes: u64,
    total_bytes: u64,
}

impl Meter {
    fn new(step: &'static str, image: &Image) -> Self {
        let total_bytes = image.mapped_bytes();
        Self { step, counts_zeros: image.is_packed(), done_bytes: 0, total_bytes }
    }

    fn tell(&mut self, piece: &Piece<'_>, progress: &mut dyn FnMut(Progress)) {
        self.done_bytes += match piece {
            Piece::Zeros { length, .. } if self.counts_zeros => *length,
            Piece::Zeros { .. } => 0,
            Piece::Bytes { bytes, .. } => bytes.len() as u64,
        };
        let done_bytes = self.done_bytes.min(self.total_bytes);
        progress(Progress { step: self.step, done_bytes, total_bytes: self.total_bytes });
    }

    /// All of it, also what is written with the table.
    fn end(&self, progress: &mut dyn FnMut(Progress)) {
        progress(Progress { step: self.step, done_bytes: self.total_bytes, total_bytes: self.total_bytes });
    }
}
