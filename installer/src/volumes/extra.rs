//! Additional disks: partitioned and formatted once, while they are empty.
//!
//! Owns: the layout of such a disk and the order in which it is made.
//! Order: the kernel is told about the partitions, each is formatted and flushed, then the table is written, backup
//! before primary: it is the last thing, so a power cut before leaves a disk that counts as empty and is begun again;
//! a table of which only sectors arrived is known by its GUIDs. META is not needed, so that it works without an
//! installed system, too.
//! Fails by: [`Error::Occupied`] for a disk that holds anything without a table.
//! Source: docs/users/disks.md (`disks`).

use ondisk::gpt::{Geometry, Guid, Partition, Request, Size, Table, attributes, lay_out, types};

use crate::Error;
use crate::device::{BlockDevice, apply};
use crate::host::{Host, read_table, write_table};
use crate::install::{Contents, END_BYTES, inspect};

/// A further disk with file systems.
#[derive(Debug, Clone)]
pub struct Extra {
    /// Its table.
    pub table: Table,
    /// Whether it was made just now.
    pub made: bool,
}

/// Makes the partitions of an empty disk; `None` as a size takes the rest. A disk with a table is left as it is.
/// `seed` gives the GUIDs and must be the same at every try on this disk: by them a table that was cut off is known.
pub fn provision_extra(
    host: &mut dyn Host,
    path: &str,
    sizes: &[Option<u64>],
    seed: &[u8; 32],
) -> Result<Extra, Error> {
    let disk = host.disk();
    let geometry = Geometry::new(disk.sector_bytes(), disk.bytes())?;
    let requests: Vec<Request> =
        (1..).zip(sizes).map(|(number, size)| request(seed, number, *size)).collect();
    let wanted = lay_out(geometry, Guid::from_seed(seed), &requests);
    if let Ok(found) = read_table(host) {
        if found.primary_fault.is_some() && wanted.as_ref() == Ok(&found.table) {
            write_table(host, &found.table)?;
        }
        return Ok(Extra { table: found.table, made: false });
    }
    let table = wanted?;
    let found = inspect(host.disk())?.contents;
    if found != Contents::Nothing && !is_begun(host.disk(), &table)? {
        return Err(Error::Occupied { device: path.to_owned(), found: found.to_string() });
    }
    for partition in &table.partitions {
        make(host, &table, partition)?;
    }
    // The disk has no older table that would have to stay whole.
    apply(host.disk(), 0, &[vec![table.backup()?], vec![table.primary()?]])?;
    host.disk().acknowledge("extra disk");
    Ok(Extra { table, made: true })
}

/// Whether both ends of the disk hold nothing but sectors of this very table: writing it was cut off.
pub(super) fn is_begun(disk: &mut dyn BlockDevice, table: &Table) -> Result<bool, Error> {
    let sector = usize::try_from(disk.sector_bytes()).unwrap_or(512);
    let tail = disk.bytes().saturating_sub(END_BYTES);
    for (start, extent) in [(0, table.primary()?), (tail, table.backup()?)] {
        let mut held = vec![0; usize::try_from(END_BYTES).unwrap_or(0)];
        disk.read_at(start, &mut held)?;
        let mut expected = vec![0; held.len()];
        let at = usize::try_from(extent.offset.saturating_sub(start)).unwrap_or(0);
        lay(&mut expected, at, &extent.bytes);
        let mut pairs = held.chunks(sector).zip(expected.chunks(sector));
        if !pairs.all(|(held, expected)| held == expected || held.iter().all(|byte| *byte == 0)) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn lay(into: &mut [u8], at: usize, bytes: &[u8]) {
    if let Some(place) = at.checked_add(bytes.len()).and_then(|end| into.get_mut(at..end)) {
        place.copy_from_slice(bytes);
    }
}

fn make(host: &mut dyn Host, table: &Table, partition: &Partition) -> Result<(), Error> {
    host.announce(table, partition)?;
    host.format(table, partition)?;
    Ok(host.open(table, partition)?.flush()?)
}

fn request(seed: &[u8; 32], number: u32, size: Option<u64>) -> Request {
    // The name is the file system's label, too: xfs takes twelve letters.
    let name = format!("user-{number}");
    let guid = Guid::from_seed(&[seed, name.as_bytes()].concat());
    let size = size.map_or(Size::Rest, Size::Bytes);
    Request { name, type_guid: types::LINUX, guid, attributes: attributes::NO_AUTO, size }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::certify::{MemoryHost, formatted};
    use crate::device::Memory;

    const BYTES: u64 = 64 << 20;
    const SIZES: [Option<u64>; 2] = [Some(16 << 20), None];

    fn starts(host: &mut MemoryHost, table: &Table) -> Vec<Vec<u8>> {
        let read = |partition: &Partition| {
            let mut start = vec![0; 16 << 10];
            host.open(table, partition).unwrap().read_at(0, &mut start).unwrap();
            start
        };
        table.partitions.iter().map(read).collect()
    }

    #[test]
    fn an_empty_disk_is_made_once() {
        let mut host = MemoryHost::new(Memory::new(BYTES, 512));
        let first = provision_extra(&mut host, "/dev/sdb", &SIZES, &[1; 32]).unwrap();
        assert!(first.made);
        let sizes: Vec<u64> =
            first.table.partitions.iter().map(|p| first.table.size_bytes(p) >> 20).collect();
        assert_eq!(sizes, [16, 46]);
        let again = provision_extra(&mut host, "/dev/sdb", &SIZES, &[1; 32]).unwrap();
        assert!(!again.made && again.table == first.table);
        assert_eq!(starts(&mut host, &first.table), [formatted("user-1"), formatted("user-2")]);
    }

    #[test]
    fn a_disk_that_holds_something_is_left_alone() {
        let mut disk = Memory::new(BYTES, 512);
        disk.write_at(4096, b"somebody's").unwrap();
        let mut host = MemoryHost::new(disk);
        let error = provision_extra(&mut host, "/dev/sdb", &SIZES, &[1; 32]).unwrap_err();
        assert!(error.to_string().contains("/dev/sdb holds data of an unknown kind"), "{error}");
        assert!(host.disk.finish().0.events.is_empty());
        let full = [Some(16 << 20), Some(64 << 20)];
        let mut host = MemoryHost::new(Memory::new(BYTES, 512));
        assert!(provision_extra(&mut host, "/dev/sdb", &full, &[1; 32]).is_err());
        assert!(host.disk.finish().0.events.is_empty());
    }

    #[test]
    fn every_cut_is_begun_again_or_is_whole() {
        let mut host = MemoryHost::new(Memory::new(BYTES, 512));
        provision_extra(&mut host, "/dev/sdb", &SIZES, &[1; 32]).unwrap();
        let (recording, _) = host.disk.finish();
        let count = recording.each_state(&|_| true, |state| {
            let promised = !state.promises.is_empty();
            let mut host = MemoryHost::new(state.disk);
            let done = provision_extra(&mut host, "/dev/sdb", &SIZES, &[1; 32]).unwrap();
            assert!(!(promised && done.made), "{:?}", state.cut);
            let whole = [formatted("user-1"), formatted("user-2")];
            assert_eq!(starts(&mut host, &done.table), whole, "{:?}", state.cut);
        });
        assert!(count > 100, "{count}");
    }
}
