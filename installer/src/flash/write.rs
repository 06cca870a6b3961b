//! An image onto a disk: the steps.
//!
//! Owns: their order, what is written of each piece, the comparison afterwards.
//! Order: | step | writes | why then |
//! |---|---|---|
//! | erase | zeros at both ends of the disk, flush | the table of before never leads to new content; shows how zeros are made |
//! | write | the image but for its first MiB and the table's copy; flush and note every 64 MiB | what is cut off starts nothing |
//! | verify | nothing: reads back all that was written, zeros too unless the disk made them by itself | before the disk counts as anything |
//! | table | the copy at the end of the disk, flush; the first MiB, flush; read back | the disk is whole with the last write |
//!
//! A piece that an earlier attempt has noted is compared first, and written only if it is not there. Where zeros have to be
//! written they are pieces too, and only those that count ([`super::zeros`]).

use std::ops::Range;
use std::path::Path;

use ondisk::Extent;
use ondisk::gpt::{Geometry, Guid, Table};

use super::image::{CHUNK_BYTES, HEAD_BYTES, Image};
use super::meter::Meter;
use super::stream::{Piece, clip, stream};
use super::zeros::{self, Zeros};
use super::{Error, journal};
use crate::Progress;
use crate::device::{BlockDevice, Buffer, DeviceError};

/// Between two notes.
const NOTE_BYTES: u64 = 64 << 20;

/// What zeros on the disk are compared with.
static ZEROS: [u8; CHUNK_BYTES] = [0; CHUNK_BYTES];

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
    /// Bytes that an earlier attempt had written, zeros too where they have to be.
    pub kept_bytes: u64,
    /// Bytes behind the layers of the root slots that are zeros in the image, and on the disk what they were.
    pub left_bytes: u64,
}

/// Writes the image and proves that it is there.
pub fn write(
    request: &Request<'_>,
    device: &mut dyn BlockDevice,
    progress: &mut dyn FnMut(Progress),
) -> Result<Done, Error> {
    let table = fitted(request, device)?;
    let (body, note) = (body(request.image), request.note);
    let (slots, done) = (Vec::new(), Done::default());
    let mut work = Work { request, device, progress, body, slots, note, done };
    work.erase()?;
    if work.writes_zeros() {
        work.slots = request.image.slots();
    }
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
    /// Where not all zeros count; none where they cost nothing.
    slots: Vec<Range<u64>>,
    /// Where to note from here on.
    note: Option<&'r Path>,
    done: Done,
}

/// One way through the image.
struct Pass {
    meter: Meter,
    zeros: Zeros,
    /// For what is read back.
    room: Buffer,
    /// Up to where an earlier attempt came.
    noted: u64,
    /// Bytes since this one noted something.
    since_note: u64,
}

impl Work<'_, '_> {
    fn erase(&mut self) -> Result<(), Error> {
        for end in self.ends() {
            self.zero(&end)?;
        }
        self.flush()
    }

    /// Both ends of the disk, where tables are.
    fn ends(&self) -> [Range<u64>; 2] {
        let end = self.device.bytes();
        let length = HEAD_BYTES.min(end);
        [0..length, end - length..end]
    }

    /// Whether zeros take as long as other bytes.
    fn writes_zeros(&self) -> bool {
        !self.request.is_blank && !self.device.zeroes_at_once()
    }

    fn pass(&self, step: &'static str) -> Pass {
        let image = self.request.image;
        let written = match self.writes_zeros() {
            true => zeros::counting(image.holes(), self.slots.clone()),
            false => Vec::new(),
        };
        Pass {
            meter: Meter::new(step, image.bytes(), image.holes(), &written),
            zeros: Zeros::new(self.slots.clone()),
            room: Buffer::new(CHUNK_BYTES),
            noted: 0,
            since_note: 0,
        }
    }

    /// Hands all pieces to `each`, of zeros those that count.
    fn walk(
        &mut self,
        pass: &mut Pass,
        each: fn(&mut Self, &mut Pass, Piece<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let body = self.body.clone();
        stream(self.request.image, |piece| {
            let Some(piece) = clip(piece, &body) else { return Ok(()) };
            let end = piece.end();
            let counting = match piece {
                Piece::Zeros { offset, .. } => pass.zeros.more(offset..end),
                Piece::Bytes { .. } => pass.zeros.end().into_iter().collect(),
            };
            for zeros in counting {
                each(self, pass, Piece::zeros(&zeros))?;
            }
            if let Piece::Bytes { .. } = piece {
                each(self, pass, piece)?;
            }
            pass.meter.tell(end, self.progress);
            Ok(())
        })?;
        if let Some(zeros) = pass.zeros.end() {
            each(self, pass, Piece::zeros(&zeros))?;
        }
        pass.meter.end(self.progress);
        Ok(())
    }

    fn write(&mut self) -> Result<(), Error> {
        let mut pass = self.pass("write");
        if let Some(path) = self.request.note {
            pass.noted = journal::read(path, self.request.image.identity(), self.request.identity);
        }
        self.walk(&mut pass, |work, pass, piece| match piece {
            Piece::Bytes { offset, bytes } => work.put(offset, bytes, pass),
            Piece::Zeros { offset, length } if work.writes_zeros() => {
                chunks(&(offset..offset + length)).try_for_each(|chunk| work.put_zeros(&chunk, pass))
            }
            Piece::Zeros { offset, length } => work.zero(&(offset..offset + length)),
        })?;
        self.done.left_bytes = pass.zeros.left_bytes();
        self.flush()?;
        self.note(self.body.end);
        Ok(())
    }

    /// Writes bytes, unless an earlier attempt has.
    fn put(&mut self, offset: u64, bytes: &[u8], pass: &mut Pass) -> Result<(), Error> {
        let length = bytes.len() as u64;
        if self.is_there(offset, bytes, pass) {
            self.done.kept_bytes += length;
        } else {
            self.device.write_at(offset, bytes).map_err(|error| self.failed(error))?;
            self.done.written_bytes += length;
        }
        self.passed(&(offset..offset + length), pass)
    }

    /// Writes zeros where that takes its time, unless an earlier attempt has.
    fn put_zeros(&mut self, chunk: &Range<u64>, pass: &mut Pass) -> Result<(), Error> {
        if self.is_there(chunk.start, zeros_of(chunk), pass) {
            self.done.kept_bytes += zeros::length(chunk);
        } else {
            self.zero(chunk)?;
        }
        pass.meter.tell(chunk.end, self.progress);
        self.passed(chunk, pass)
    }

    /// Whether an earlier attempt has written this. What cannot be read is written: that mends bad sectors.
    fn is_there(&mut self, offset: u64, bytes: &[u8], pass: &mut Pass) -> bool {
        offset + bytes.len() as u64 <= pass.noted
            && self.holds(offset, bytes, &mut pass.room).is_ok_and(|differs| differs.is_none())
    }

    /// Notes now and then how far it got.
    fn passed(&mut self, range: &Range<u64>, pass: &mut Pass) -> Result<(), Error> {
        pass.since_note += zeros::length(range);
        if pass.since_note >= NOTE_BYTES && range.end > pass.noted {
            pass.since_note = 0;
            self.flush()?;
            self.note(range.end);
        }
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

    /// Reads back everything that was written; zeros that the disk made by itself were not.
    fn verify(&mut self) -> Result<(), Error> {
        let mut pass = self.pass("verify");
        self.walk(&mut pass, |work, pass, piece| match piece {
            Piece::Bytes { offset, bytes } => work.compare(offset, bytes, &mut pass.room),
            Piece::Zeros { offset, length } if work.writes_zeros() => chunks(&(offset..offset + length))
                .try_for_each(|chunk| {
                    work.compare(chunk.start, zeros_of(&chunk), &mut pass.room)?;
                    pass.meter.tell(chunk.end, work.progress);
                    Ok(())
                }),
            Piece::Zeros { .. } => Ok(()),
        })?;
        if self.writes_zeros() {
            for end in self.ends() {
                for chunk in chunks(&(end.start.max(self.body.end)..end.end)) {
                    self.compare(chunk.start, zeros_of(&chunk), &mut pass.room)?;
                }
            }
        }
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
            self.device.write_at(extent.offset, aligned.bytes()).map_err(|error| self.failed(error))?;
            self.flush()?;
            self.compare(extent.offset, aligned.bytes(), &mut room)?;
            self.done.written_bytes += extent.bytes.len() as u64;
        }
        Ok(())
    }

    fn zero(&mut self, range: &Range<u64>) -> Result<(), Error> {
        if self.request.is_blank {
            return Ok(());
        }
        let length = zeros::length(range);
        self.device.zero(range.start, length).map_err(|error| self.failed(error))?;
        self.done.zeroed_bytes += length;
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Error> {
        self.device.flush().map_err(|error| self.failed(error))
    }

    fn failed(&self, error: DeviceError) -> Error {
        Error::of_write(self.request.name, &*self.device, error)
    }

    /// A note that cannot be kept is no reason to stop: the last one still holds.
    fn note(&mut self, done_bytes: u64) {
        let Some(path) = self.note else { return };
        if journal::write(path, self.request.image.identity(), self.request.identity, done_bytes).is_err() {
            self.note = None;
        }
    }
}

/// A range in parts that are written at once.
fn chunks(range: &Range<u64>) -> impl Iterator<Item = Range<u64>> + use<> {
    let Range { start, end } = *range;
    (start..end).step_by(CHUNK_BYTES).map(move |at| at..(at + CHUNK_BYTES as u64).min(end))
}

/// As many zeros as a chunk is long.
fn zeros_of(chunk: &Range<u64>) -> &'static [u8] {
    usize::try_from(zeros::length(chunk)).ok().and_then(|length| ZEROS.get(..length)).unwrap_or(&ZEROS)
}
