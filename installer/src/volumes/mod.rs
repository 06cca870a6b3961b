//! STATE and EPHEMERAL: made on the first boot, in a way that a power cut may end anywhere.
//!
//! Owns: their place and size, when they are formatted and when that is refused, growing EPHEMERAL's entry.
//! Does not: mount; choose the file system ([`Host::format`] does).
//! Order: the intent in META; the table with the new entry, backup before primary; the kernel; the LUKS2 header, if the
//! volume is to be encrypted; the file system; the intent goes. An intent that is found means that what the partition
//! holds is half made: it is formatted again, with a new key.
//! Fails by: [`Error::ForeignVolume`] for a partition that holds something and has no intent, [`Error::NotEmpty`] and
//! [`Error::Encrypted`] for one that is not as the config wants it: nobody's data is lost.
//! Source: docs/formats/disk.md, docs/formats/meta.md.

mod extra;
mod named;

use ondisk::gpt::{ALIGNMENT_BYTES, Partition, Table, types};
use ondisk::luks2;
use ondisk::probe::{Extent, Kind, Verdict, survey};

use crate::Error;
use crate::device::BlockDevice;
use crate::host::{Host, partition, read_table, values, with_meta, write_table};
use crate::layout::{STATE_BYTES, partition as request};
use crate::meta::{FormatIntent, begin_format, end_format, format_intents, reset_intent};

pub use extra::{Extra, provision_extra};
pub use named::{Named, holds_named, provision_named, room_for};

/// EPHEMERAL is not made smaller than this.
pub const EPHEMERAL_LEAST_BYTES: u64 = 512 << 20;

/// How much of a partition must be zeros for it to count as empty: no superblock lies further in.
const EMPTY_BYTES: u64 = 1 << 20;

/// The name of [`Volume::State`]'s partition.
pub const STATE: &str = "STATE";
/// The name of [`Volume::Ephemeral`]'s partition.
pub const EPHEMERAL: &str = "EPHEMERAL";

/// A partition of the system disk that the node makes itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Volume {
    /// The machine config and what must outlive upgrades.
    State,
    /// /var: everything that may be lost.
    Ephemeral,
}

/// What was done to make a volume usable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Did {
    /// It was there.
    Nothing,
    /// It was there, empty, and was formatted.
    Formatted,
    /// It was made and formatted.
    Made,
    /// Making it had been cut off; that was done again.
    Resumed,
}

/// A volume with a file system.
#[derive(Debug, Clone)]
pub struct Ready {
    /// The disk's partitions.
    pub table: Table,
    /// The volume's.
    pub partition: Partition,
    /// What was done.
    pub did: Did,
}

/// What a partition holds.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Content {
    Empty,
    Mountable(Kind),
    Luks2,
    Other(String),
}

impl Content {
    fn holds(&self) -> Holds {
        match self {
            Self::Empty => Holds::Nothing,
            Self::Luks2 => Holds::Encrypted,
            Self::Mountable(_) | Self::Other(_) => Holds::Other,
        }
    }
}

impl Volume {
    /// The one whose partition has this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        [Self::State, Self::Ephemeral].into_iter().find(|volume| volume.name() == name)
    }

    /// Its GPT name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::State => STATE,
            Self::Ephemeral => EPHEMERAL,
        }
    }
}

/// Makes a volume usable; `seed` is random and gives a new partition its GUID.
pub fn provision(host: &mut dyn Host, volume: Volume, seed: &[u8; 32]) -> Result<Ready, Error> {
    let mut table = read_table(host)?.table;
    let meta = values(host, &table)?;
    if reset_intent(&meta).is_some() {
        return Err(Error::ResetPending { name: volume.name().into() });
    }
    let intents = format_intents(&meta);
    let Some(found) = partition(&table, volume.name())?.cloned() else {
        let new = place(&table, volume, seed)?;
        let intent = FormatIntent::new(volume.name(), new.guid);
        with_meta(host, &table, |meta| begin_format(meta, &intent))?;
        table.partitions.push(new.clone());
        write_table(host, &table)?;
        host.announce(&table, &new)?;
        return finish(host, table, new, &intent, Did::Made);
    };
    let intent = FormatIntent::new(volume.name(), found.guid);
    if intents.contains(&intent) {
        return finish(host, table, found, &intent, Did::Resumed);
    }
    let name = volume.name().to_owned();
    let encrypts = host.encrypts(&found);
    // One that is to be encrypted may be open already.
    let held = match encrypts {
        true => content(&mut *host.open_shared(&table, &found)?, &found.name)?,
        false => content(&mut *host.open(&table, &found)?, &found.name)?,
    };
    match (held, encrypts) {
        (Content::Luks2, true) | (Content::Mountable(_), false) => {
            Ok(Ready { table, partition: found, did: Did::Nothing })
        }
        (Content::Empty, _) => {
            with_meta(host, &table, |meta| begin_format(meta, &intent))?;
            finish(host, table, found, &intent, Did::Formatted)
        }
        (Content::Luks2, false) => Err(Error::Encrypted { name }),
        (Content::Mountable(kind), true) => Err(Error::NotEmpty { name, found: kind.to_string() }),
        (Content::Other(found), true) => Err(Error::NotEmpty { name, found }),
        (Content::Other(found), false) => Err(Error::ForeignVolume { name, found }),
    }
}

/// What a volume of the node's holds, as far as it matters to whoever wants it encrypted or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holds {
    /// Zeros, or a volume that is half made.
    Nothing,
    /// A LUKS2 header.
    Encrypted,
    /// Anything else.
    Other,
}

/// What the partition of this name on the system disk holds, if there is one. Nothing is written, and it may be in use.
pub fn holds(host: &mut dyn Host, name: &str) -> Result<Option<(Holds, Partition)>, Error> {
    let table = read_table(host)?.table;
    let Some(found) = partition(&table, name)?.cloned() else { return Ok(None) };
    let intent = FormatIntent::new(name, found.guid);
    if format_intents(&values(host, &table)?).contains(&intent) {
        return Ok(Some((Holds::Nothing, found)));
    }
    let holds = content(&mut *host.open_shared(&table, &found)?, &found.name)?.holds();
    Ok(Some((holds, found)))
}

/// Whether making the file system of a partition was cut off.
pub fn is_half_made(host: &mut dyn Host, partition: &Partition) -> Result<bool, Error> {
    let table = read_table(host)?.table;
    let intent = FormatIntent::new(&partition.name, partition.guid);
    Ok(format_intents(&values(host, &table)?).contains(&intent))
}

/// Formats and takes the intent back.
fn finish(
    host: &mut dyn Host,
    table: Table,
    partition: Partition,
    intent: &FormatIntent,
    did: Did,
) -> Result<Ready, Error> {
    if host.encrypts(&partition) {
        host.encrypt(&table, &partition)?;
    }
    host.format(&table, &partition)?;
    host.open_volume(&table, &partition)?.flush()?;
    with_meta(host, &table, |meta| end_format(meta, intent))?;
    host.disk().acknowledge(&partition.name);
    Ok(Ready { table, partition, did })
}

/// Lets the volume's partition reach to the end of its disk; says by how many bytes it grew. A damaged primary table
/// is written anew on the way.
pub fn grow(host: &mut dyn Host, volume: Volume) -> Result<u64, Error> {
    let found = read_table(host)?;
    let mut table = found.table;
    let number = partition(&table, volume.name())?.map_or(0, |partition| partition.number);
    let sectors = table.grow(number).unwrap_or(0);
    if sectors == 0 && found.primary_fault.is_none() {
        return Ok(0);
    }
    write_table(host, &table)?;
    if let Some(grown) = table.partitions.iter().find(|partition| partition.number == number).cloned() {
        host.announce(&table, &grown)?;
    }
    Ok(sectors.saturating_mul(u64::from(table.geometry.sector_bytes)))
}

/// Behind all other partitions. STATE is not made where EPHEMERAL would find no room.
fn place(table: &Table, volume: Volume, seed: &[u8; 32]) -> Result<Partition, Error> {
    let sector = u64::from(table.geometry.sector_bytes);
    let step = ALIGNMENT_BYTES / sector;
    let behind = table.partitions.iter().map(|partition| partition.last_lba.saturating_add(1)).max();
    let first_lba = behind.unwrap_or_else(|| table.geometry.first_usable()).next_multiple_of(step);
    let limit = table.geometry.last_usable().saturating_add(1) / step * step;
    let room = limit.saturating_sub(first_lba);
    let (sectors, needed) = match volume {
        Volume::State => {
            let later = match partition(table, Volume::Ephemeral.name())? {
                Some(_) => 0,
                None => EPHEMERAL_LEAST_BYTES,
            };
            (STATE_BYTES / sector, (STATE_BYTES + later) / sector)
        }
        Volume::Ephemeral => (room, EPHEMERAL_LEAST_BYTES / sector),
    };
    if needed > room {
        let (needed_bytes, room_bytes) = (needed.saturating_mul(sector), room.saturating_mul(sector));
        return Err(Error::NoRoom { name: volume.name().into(), needed_bytes, room_bytes });
    }
    let wanted = request(seed, volume.name(), types::LINUX, 0);
    let number = table.partitions.iter().map(|partition| partition.number).max().unwrap_or(0) + 1;
    Ok(wanted.placed(number, first_lba, sectors))
}

/// Looks at both ends of a partition. What contradicts itself is an error, whoever asks: whatever came of it could be the
/// end of somebody's data.
fn content(part: &mut dyn BlockDevice, name: &str) -> Result<Content, Error> {
    let bytes = part.bytes();
    let found = survey(&mut &mut *part, bytes, Extent::Partition)?.without_data_of_files();
    let kind = found.filesystem().map(|volume| volume.kind);
    let (signature, text) = match found.verdict() {
        several @ Verdict::Several(_) => {
            return Err(Error::Contradiction { name: name.to_owned(), found: several.to_string() });
        }
        one @ Verdict::One(signature) => (signature.name, one.to_string()),
        Verdict::Unknown => {
            let mut start = vec![0; usize::try_from(EMPTY_BYTES.min(bytes)).unwrap_or(0)];
            part.read_at(0, &mut start)?;
            let is_empty = start.iter().all(|byte| *byte == 0);
            let unknown = || Content::Other("data of an unknown kind".into());
            return Ok(if is_empty { Content::Empty } else { unknown() });
        }
    };
    Ok(match (signature, kind) {
        ("xfs" | "ext2" | "ext3" | "ext4" | "vfat", Some(kind @ (Kind::Xfs | Kind::Ext4 | Kind::Vfat))) => {
            Content::Mountable(kind)
        }
        ("crypto_LUKS", Some(Kind::Luks2)) => Content::Luks2,
        // Its second copy opens it, and mends the first.
        ("crypto_LUKS", None) if luks2::read(&mut &mut *part).is_ok() => Content::Luks2,
        _ => Content::Other(text),
    })
}

/// Refuses what has the signature of something else beside that of an encrypted volume.
pub(crate) fn refuse_contradiction(part: &mut dyn BlockDevice, name: &str) -> Result<(), Error> {
    content(part, name).map(drop)
}

#[cfg(test)]
mod tests;
