//! Volumes of the user's, by the name of their partition, on other disks than the system's: `u-NAME`, `r-NAME`.
//!
//! Owns: which disks take them, the place of a new one, the order in which it is made.
//! Does not: choose the disk; mount; open one that is there.
//! Order: the kernel is told about the partition, it is encrypted and formatted and flushed, then the table is written,
//! backup before primary. The entry is the last thing: a power cut before leaves free room, and the volume is begun again.
//! So no intent is needed, and META neither. One that somebody emptied loses its entry first.
//! Fails by: [`Error::ForeignDisk`] for a disk that holds anything else than such volumes, [`Error::OtherVolume`] for a
//! volume that is not as the config wants it.
//! Source: docs/users/disks.md (labels).

use ondisk::gpt::{ALIGNMENT_BYTES, Geometry, Guid, Partition, Request, Size, Table, attributes, types};
use ondisk::probe::Kind;

use super::extra::is_begun;
use super::{Content, Did, EMPTY_BYTES, Holds, Ready, content};
use crate::Error;
use crate::device::apply;
use crate::host::{Host, partition, read_table, write_table};
use crate::install::{Contents, inspect};

/// What names of such partitions begin with: with a file system, without one, for memory.
const PREFIXES: [&str; 3] = ["u-", "r-", "s-"];
/// As many entries as tables have.
const MOST_PARTITIONS: u32 = 128;

/// A volume that is wanted.
#[derive(Debug, Clone, Copy)]
pub struct Named<'a> {
    /// Its partition's name: `u-data`.
    pub name: &'a str,
    /// Less is no use.
    pub least_bytes: u64,
    /// More is not taken; `None`: all the room that there is.
    pub most_bytes: Option<u64>,
    /// Whether it has a file system; what is on one without is its user's affair.
    pub has_filesystem: bool,
}

/// The table of a disk, as far as it may have volumes.
struct Usable {
    table: Table,
    /// Nothing is on the disk yet, or a cut off beginning of this.
    is_new: bool,
}

/// Makes a volume where it is missing. `seed` gives the GUIDs, and must be the same at every try on this disk: by them
/// the first table of a disk is known when writing it was cut off.
pub fn provision_named(
    host: &mut dyn Host,
    path: &str,
    wanted: &Named<'_>,
    seed: &[u8; 32],
) -> Result<Ready, Error> {
    let Usable { mut table, is_new } = usable(host, path, seed)?;
    let (new, did) = match partition(&table, wanted.name)?.cloned() {
        Some(found) if is_as_wanted(host, path, &table, &found, wanted)? => {
            return Ok(Ready { table, partition: found, did: Did::Nothing });
        }
        Some(emptied) => {
            table.partitions.retain(|partition| partition.number != emptied.number);
            write_table(host, &table)?;
            (emptied, Did::Formatted)
        }
        None => (place(&table, wanted, seed)?, Did::Made),
    };
    table.partitions.push(new.clone());
    table.check()?;
    if is_new {
        refuse_foreign(host, path, &table)?;
    }
    make(host, &table, &new, wanted)?;
    match is_new {
        // There is no older table that would have to stay whole.
        true => apply(host.disk(), 0, &[vec![table.backup()?], vec![table.primary()?]])?,
        false => write_table(host, &table)?,
    }
    host.disk().acknowledge(wanted.name);
    Ok(Ready { table, partition: new, did })
}

/// How long the volume would become on this disk, or is. Nothing is written but a damaged copy of the table.
pub fn room_for(host: &mut dyn Host, path: &str, wanted: &Named<'_>, seed: &[u8; 32]) -> Result<u64, Error> {
    let Usable { mut table, is_new } = usable(host, path, seed)?;
    if let Some(found) = partition(&table, wanted.name)? {
        return Ok(table.size_bytes(found));
    }
    let new = place(&table, wanted, seed)?;
    let bytes = table.size_bytes(&new);
    table.partitions.push(new);
    if is_new {
        refuse_foreign(host, path, &table)?;
    }
    Ok(bytes)
}

/// What the volume of this name holds, if it is on this disk. Nothing is written, and it may be in use.
pub fn holds_named(host: &mut dyn Host, name: &str) -> Result<Option<(Holds, Partition)>, Error> {
    let table = read_table(host)?.table;
    let Some(found) = partition(&table, name)?.cloned() else { return Ok(None) };
    let holds = content(&mut *host.open_shared(&table, &found)?, name)?.holds();
    Ok(Some((holds, found)))
}

/// The disk's table, or an empty one.
fn usable(host: &mut dyn Host, path: &str, seed: &[u8; 32]) -> Result<Usable, Error> {
    let Ok(found) = read_table(host) else {
        let geometry = Geometry::new(host.disk().sector_bytes(), host.disk().bytes())?;
        let table = Table { geometry, disk_guid: Guid::from_seed(seed), partitions: Vec::new() };
        return Ok(Usable { table, is_new: true });
    };
    let is_ours = |partition: &Partition| PREFIXES.iter().any(|prefix| partition.name.starts_with(prefix));
    if let Some(other) = found.table.partitions.iter().find(|partition| !is_ours(partition)) {
        let found = format!("the partition {:?}", other.name);
        return Err(Error::ForeignDisk { device: path.to_owned(), found });
    }
    if found.primary_fault.is_some() {
        write_table(host, &found.table)?;
    }
    Ok(Usable { table: found.table, is_new: false })
}

/// A disk without a table must be empty, or hold the beginning of this one.
fn refuse_foreign(host: &mut dyn Host, path: &str, table: &Table) -> Result<(), Error> {
    let found = inspect(host.disk())?.contents;
    if found == Contents::Nothing || is_begun(host.disk(), table)? {
        return Ok(());
    }
    Err(Error::ForeignDisk { device: path.to_owned(), found: found.to_string() })
}

/// Whether what is there can be used; `false`: it is empty, and may be made anew.
fn is_as_wanted(
    host: &mut dyn Host,
    path: &str,
    table: &Table,
    found: &Partition,
    wanted: &Named<'_>,
) -> Result<bool, Error> {
    let encrypts = host.encrypts(found);
    if !encrypts && !wanted.has_filesystem {
        host.announce(table, found)?;
        return Ok(true);
    }
    // One that is encrypted may be open already, and one that is not may be mounted.
    let held = match (content(&mut *host.open_shared(table, found)?, &found.name)?, encrypts) {
        (Content::Luks2, true) | (Content::Mountable(_), false) => return Ok(true),
        (Content::Empty, _) => return Ok(false),
        (Content::Luks2, false) => Kind::Luks2.to_string(),
        (Content::Mountable(kind), true) => kind.to_string(),
        (Content::Other(held), _) => held,
    };
    let wanted = if encrypts { "encrypted" } else { "with a file system and not encrypted" };
    let (name, device) = (found.name.clone(), path.to_owned());
    Err(Error::OtherVolume { name, device, found: held, wanted })
}

fn make(host: &mut dyn Host, table: &Table, new: &Partition, wanted: &Named<'_>) -> Result<(), Error> {
    host.announce(table, new)?;
    if host.encrypts(new) {
        host.encrypt(table, new)?;
    }
    if wanted.has_filesystem {
        host.format(table, new)?;
    } else if !host.encrypts(new) {
        // What an earlier partition left here is nobody's file system.
        let mut part = host.open(table, new)?;
        let bytes = EMPTY_BYTES.min(part.bytes());
        part.zero(0, bytes)?;
        let end = part.bytes() - bytes;
        part.zero(end, bytes)?;
    }
    Ok(host.open_volume(table, new)?.flush()?)
}

/// In the largest free room, the first of several; from its start.
fn place(table: &Table, wanted: &Named<'_>, seed: &[u8; 32]) -> Result<Partition, Error> {
    let sector = u64::from(table.geometry.sector_bytes);
    let step = ALIGNMENT_BYTES / sector;
    let mut best: Option<(u64, u64)> = None;
    for (first, room) in rooms(table, step) {
        if best.is_none_or(|(_, most)| room > most) {
            best = Some((first, room));
        }
    }
    let (first, room) = best.unwrap_or_default();
    let most = wanted.most_bytes.map_or(room, |bytes| (bytes / sector / step).saturating_mul(step));
    let sectors = room.min(most);
    let needed = wanted.least_bytes.div_ceil(sector).max(step);
    if sectors < needed {
        let (needed_bytes, room_bytes) = (needed.saturating_mul(sector), sectors.saturating_mul(sector));
        return Err(Error::NoRoom { name: wanted.name.into(), needed_bytes, room_bytes });
    }
    let is_free = |number: &u32| table.partitions.iter().all(|partition| partition.number != *number);
    // A table that is full is refused when it is checked.
    let number = (1..=MOST_PARTITIONS).find(is_free).unwrap_or(MOST_PARTITIONS);
    let guid = Guid::from_seed(&[seed, wanted.name.as_bytes()].concat());
    let request = Request {
        name: wanted.name.to_owned(),
        type_guid: types::LINUX,
        guid,
        attributes: attributes::NO_AUTO,
        size: Size::Rest,
    };
    Ok(request.placed(number, first, sectors))
}

/// Free room in whole steps: first sector and length.
fn rooms(table: &Table, step: u64) -> Vec<(u64, u64)> {
    let mut taken: Vec<(u64, u64)> =
        table.partitions.iter().map(|p| (p.first_lba, p.last_lba.saturating_add(1))).collect();
    let end = table.geometry.last_usable().saturating_add(1);
    taken.push((end, end));
    taken.sort_unstable();
    let mut free = Vec::new();
    let mut next = table.geometry.first_usable();
    for (first, behind) in taken {
        let (start, limit) = (next.next_multiple_of(step), first / step * step);
        if limit > start {
            free.push((start, limit - start));
        }
        next = next.max(behind);
    }
    free
}

#[cfg(test)]
#[path = "named_tests.rs"]
mod tests;
