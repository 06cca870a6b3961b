//! Directories of an image as bytes: directory records with Rock Ridge entries, path tables.
//!
//! Owns: short names, record order, the entries that give files their real names and modes.
//! Source: ECMA-119 §9.1 (records), §9.4 (path tables); IEEE P1281 (SP, CE, ER); IEEE P1282, RRIP_1991A (PX, NM).

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

use super::write::{Error, SECTOR_BYTES, both16, both32};
use crate::field::put;

/// Bytes of a record before the name.
const RECORD_BYTES: usize = 33;

/// Longest record: its length is one byte, and records are of even length.
const MAX_RECORD_BYTES: usize = 254;

/// 1980-01-01 00:00:00: no image has a time of its own.
const TIME: [u8; 7] = [80, 1, 1, 0, 0, 0, 0];

const IS_FOLDER: u8 = 2;
const FOLDER_MODE: u32 = 0o040_555;
const FILE_MODE: u32 = 0o100_444;

/// A directory with what is in it.
#[derive(Debug, Default)]
pub(super) struct Directory {
    /// Directories and files by the short name that orders them.
    entries: BTreeMap<String, Entry>,
    /// Number of the directory that it is in.
    parent: usize,
    /// Its own short name.
    short: String,
}

#[derive(Debug)]
struct Entry {
    name: String,
    target: Target,
}

#[derive(Debug, Clone, Copy)]
enum Target {
    Directory(usize),
    File(usize),
}

/// All directories; the root is number 0, and a parent comes before its children.
#[derive(Debug)]
pub(super) struct Tree {
    pub(super) directories: Vec<Directory>,
}

/// Where something lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) sector: u32,
    pub(super) bytes: u32,
}

impl Tree {
    /// The directories of these paths.
    pub(super) fn of<'p>(paths: impl Iterator<Item = &'p str>) -> Result<Self, Error> {
        let mut tree = Self { directories: vec![Directory::default()] };
        for (number, path) in paths.enumerate() {
            let (directories, name) = path.rsplit_once('/').unwrap_or(("", path));
            let mut at = 0;
            for directory in directories.split('/').filter(|part| !part.is_empty()) {
                at = tree.directory(at, directory, path)?;
            }
            tree.add(at, name, Target::File(number), path)?;
        }
        tree.in_order();
        Ok(tree)
    }

    /// The directory of this name, which is made if it is not there.
    fn directory(&mut self, at: usize, name: &str, path: &str) -> Result<usize, Error> {
        let here = self.directories.get(at).into_iter().flat_map(|directory| directory.entries.values());
        if let Some(entry) = here.into_iter().find(|entry| entry.name == name) {
            return match entry.target {
                Target::Directory(number) => Ok(number),
                Target::File(_) => Err(Error::Path(path.into())),
            };
        }
        let number = self.directories.len();
        let short = self.add(at, name, Target::Directory(number), path)?;
        self.directories.push(Directory { entries: BTreeMap::new(), parent: at, short });
        Ok(number)
    }

    fn add(&mut self, at: usize, name: &str, target: Target, path: &str) -> Result<String, Error> {
        let bad = || Error::Path(path.into());
        if name.is_empty() || matches!(name, "." | "..") || name.contains('\0') {
            return Err(bad());
        }
        let directory = self.directories.get_mut(at).ok_or_else(bad)?;
        if directory.entries.values().any(|entry| entry.name == name) {
            return Err(bad());
        }
        let is_directory = matches!(target, Target::Directory(_));
        let short = (0..1000).map(|number| short_name(name, number, is_directory));
        let short = short.into_iter().find(|short| !directory.entries.contains_key(short)).ok_or_else(bad)?;
        if record(&short, name, Place { sector: 0, bytes: 0 }, is_directory).len() > MAX_RECORD_BYTES {
            return Err(bad());
        }
        directory.entries.insert(short.clone(), Entry { name: name.into(), target });
        Ok(short)
    }

    /// Numbers the directories level by level, as path tables want them: by parent, then by name.
    fn in_order(&mut self) {
        let mut order: Vec<usize> = vec![0];
        let mut next = 0;
        while let Some(directory) = order.get(next).and_then(|number| self.directories.get(*number)) {
            let children = directory.entries.values().filter_map(|entry| match entry.target {
                Target::Directory(number) => Some(number),
                Target::File(_) => None,
            });
            let children: Vec<usize> = children.collect();
            order.extend(children);
            next += 1;
        }
        let new_number = |old: usize| order.iter().position(|number| *number == old).unwrap_or(0);
        let mut sorted: Vec<(usize, Directory)> =
            core::mem::take(&mut self.directories).into_iter().enumerate().collect();
        sorted.sort_by_key(|(old, _)| new_number(*old));
        self.directories = sorted.into_iter().map(|(_, directory)| directory).collect();
        for directory in &mut self.directories {
            directory.parent = new_number(directory.parent);
            for entry in directory.entries.values_mut() {
                if let Target::Directory(number) = &mut entry.target {
                    *number = new_number(*number);
                }
            }
        }
    }

    /// Bytes that each directory takes: whole sectors.
    pub(super) fn sizes(&self) -> Vec<u32> {
        let blank = vec![Place { sector: 0, bytes: 0 }; self.directories.len()];
        let files = self.file_count();
        let nowhere = vec![Place { sector: 0, bytes: 0 }; files];
        (0..self.directories.len())
            .map(|number| u32::try_from(self.render(number, &blank, &nowhere, 0).len()).unwrap_or(u32::MAX))
            .collect()
    }

    fn file_count(&self) -> usize {
        let entries = self.directories.iter().flat_map(|directory| directory.entries.values());
        entries.filter(|entry| matches!(entry.target, Target::File(_))).count()
    }

    /// A directory's records. `continuation` is the sector with what does not fit into the root's first one.
    pub(super) fn render(
        &self,
        number: usize,
        directories: &[Place],
        files: &[Place],
        continuation: u32,
    ) -> Vec<u8> {
        let nowhere = Place { sector: 0, bytes: 0 };
        let place = |number: usize| directories.get(number).copied().unwrap_or(nowhere);
        let Some(directory) = self.directories.get(number) else { return Vec::new() };
        let mut own = dot(0, place(number));
        if number == 0 {
            own.extend([b"SP".as_slice(), &[7, 1, 0xBE, 0xEF, 0]].concat());
        }
        own.extend(posix(FOLDER_MODE));
        if number == 0 {
            own.extend(continued(continuation));
        }
        let mut parent = dot(1, place(directory.parent));
        parent.extend(posix(FOLDER_MODE));
        let mut records = vec![finished(own), finished(parent)];
        for (short, entry) in &directory.entries {
            let (place, is_directory) = match entry.target {
                Target::Directory(number) => (place(number), true),
                Target::File(number) => (files.get(number).copied().unwrap_or(nowhere), false),
            };
            records.push(record(short, &entry.name, place, is_directory));
        }
        in_sectors(&records)
    }

    /// The path table; numbers with their low byte first, or last.
    pub(super) fn path_table(&self, places: &[Place], little: bool) -> Vec<u8> {
        let mut table = Vec::new();
        for (directory, place) in self.directories.iter().zip(places) {
            let name: &[u8] = if directory.short.is_empty() { &[0] } else { directory.short.as_bytes() };
            let parent = u16::try_from(directory.parent + 1).unwrap_or(u16::MAX);
            table.push(u8::try_from(name.len()).unwrap_or(u8::MAX));
            table.push(0);
            if little {
                table.extend(place.sector.to_le_bytes());
                table.extend(parent.to_le_bytes());
            } else {
                table.extend(place.sector.to_be_bytes());
                table.extend(parent.to_be_bytes());
            }
            table.extend(name);
            if !name.len().is_multiple_of(2) {
                table.push(0);
            }
        }
        table
    }
}

/// The root's record, as the volume descriptor has it.
pub(super) fn root_record(place: Place) -> Vec<u8> {
    finished(dot(0, place))
}

/// What the root's first record continues in: that Rock Ridge is in use.
pub(super) fn continuation() -> Vec<u8> {
    let id: &[u8] = b"RRIP_1991A";
    let text: &[u8] = b"THE ROCK RIDGE INTERCHANGE PROTOCOL PROVIDES SUPPORT FOR POSIX FILE SYSTEM SEMANTICS";
    let source: &[u8] =
        b"PLEASE CONTACT DISC PUBLISHER FOR SPECIFICATION SOURCE.  SEE PUBLISHER IDENTIFIER IN \
        PRIMARY VOLUME DESCRIPTOR FOR CONTACT INFORMATION.";
    let length = |bytes: &[u8]| u8::try_from(bytes.len()).unwrap_or(0);
    let whole = 8 + length(id) + length(text) + length(source);
    let head = [b'E', b'R', whole, 1, length(id), length(text), length(source), 1];
    [&head[..], id, text, source].concat()
}

fn continued(sector: u32) -> Vec<u8> {
    let length = u32::try_from(continuation().len()).unwrap_or(0);
    [b"CE".as_slice(), &[28, 1], &both32(sector), &both32(0), &both32(length)].concat()
}

/// Mode, links and owner.
fn posix(mode: u32) -> Vec<u8> {
    [b"PX".as_slice(), &[36, 1], &both32(mode), &both32(1), &both32(0), &both32(0)].concat()
}

/// The record of a directory itself (0) or of its parent (1).
fn dot(name: u8, place: Place) -> Vec<u8> {
    head(&[name], place, true)
}

fn record(short: &str, name: &str, place: Place, is_directory: bool) -> Vec<u8> {
    let mut record = head(short.as_bytes(), place, is_directory);
    record.extend(posix(if is_directory { FOLDER_MODE } else { FILE_MODE }));
    record.extend([b'N', b'M', u8::try_from(name.len() + 5).unwrap_or(u8::MAX), 1, 0]);
    record.extend(name.as_bytes());
    finished(record)
}

fn head(name: &[u8], place: Place, is_directory: bool) -> Vec<u8> {
    let mut record = vec![0; RECORD_BYTES];
    put(&mut record, 2, &both32(place.sector));
    put(&mut record, 10, &both32(place.bytes));
    put(&mut record, 18, &TIME);
    put(&mut record, 25, &[if is_directory { IS_FOLDER } else { 0 }]);
    put(&mut record, 28, &both16(1));
    put(&mut record, 32, &[u8::try_from(name.len()).unwrap_or(u8::MAX)]);
    record.extend(name);
    if name.len().is_multiple_of(2) {
        record.push(0);
    }
    record
}

/// Of even length, which stands in its first byte.
fn finished(mut record: Vec<u8>) -> Vec<u8> {
    if !record.len().is_multiple_of(2) {
        record.push(0);
    }
    let length = u8::try_from(record.len()).unwrap_or(u8::MAX);
    put(&mut record, 0, &[length]);
    record
}

/// No record lies in two sectors.
fn in_sectors(records: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for record in records {
        let room = SECTOR_BYTES - bytes.len() % SECTOR_BYTES;
        if record.len() > room {
            bytes.resize(bytes.len() + room, 0);
        }
        bytes.extend(record);
    }
    bytes.resize(bytes.len().next_multiple_of(SECTOR_BYTES), 0);
    bytes
}

/// A name of at most 8 letters, with an extension of 3 for a file; `number` tells it from others.
fn short_name(name: &str, number: u32, is_directory: bool) -> String {
    let clean = |text: &str, length: usize| -> String {
        let letter = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
        text.chars().map(letter).take(length).collect()
    };
    let (stem, extension) = match name.rsplit_once('.') {
        Some((stem, extension)) if !is_directory && !stem.is_empty() => (stem, clean(extension, 3)),
        _ => (name, String::new()),
    };
    let stem = match number {
        0 => clean(stem, 8),
        _ => format!("{}{number:03}", clean(stem, 5)),
    };
    if is_directory { stem.to_string() } else { format!("{stem}.{extension};1") }
}
