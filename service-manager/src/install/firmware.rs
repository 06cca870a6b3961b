//! The firmware's boot entry of an installed disk.
//!
//! Owns: one `Boot####` of ours, first in `BootOrder`; an older one of ours is replaced.
//! Does not: touch entries of others. The loader lies where firmware looks without an entry, too, so failing costs a
//! node whose firmware prefers another disk, and nothing else.
//! Source: UEFI specification 2.10 §3.1; Documentation/filesystems/efivarfs.rst: a variable is written at once.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use ondisk::Architecture;
use ondisk::efi::{
    BootEntry, GLOBAL, NON_VOLATILE, read_order, read_variable_file, variable_file, write_order,
};
use ondisk::gpt::Table;

/// Where the variables are files.
pub(super) const VARIABLES: &str = "/sys/firmware/efi/efivars";
/// What the firmware's menu calls it.
const DESCRIPTION: &str = "Billet";
const LOADER: &str = match Architecture::OWN {
    Architecture::Amd64 => r"\EFI\BOOT\BOOTX64.EFI",
    Architecture::Arm64 => r"\EFI\BOOT\BOOTAA64.EFI",
};

/// Has the firmware start this disk first; `None`: there are no variables, as on machines without UEFI. Returns the
/// entry's name.
pub(super) fn add(directory: &Path, table: &Table) -> Result<Option<String>, String> {
    let is_empty = fs::read_dir(directory).map_or(true, |mut entries| entries.next().is_none());
    if is_empty {
        return Ok(None);
    }
    let efi = table.by_name("EFI").ok_or("the disk has no partition EFI")?;
    let entry = BootEntry {
        active: true,
        description: DESCRIPTION.to_owned(),
        partition: efi.number,
        first_lba: efi.first_lba,
        sectors: efi.sectors(),
        guid: efi.guid,
        path: LOADER.to_owned(),
    };
    let order = read_order(&read(directory, "BootOrder")?.unwrap_or_default());
    let number = free(directory, &order)?;
    let name = format!("Boot{number:04X}");
    write(directory, &name, &entry.encode())?;
    let rest = order.into_iter().filter(|other| *other != number);
    let order: Vec<u16> = std::iter::once(number).chain(rest).collect();
    write(directory, "BootOrder", &write_order(&order))?;
    Ok(Some(name))
}

/// The number of the entry that is ours already, else the first that nobody has.
fn free(directory: &Path, order: &[u16]) -> Result<u16, String> {
    for number in order {
        let option = read(directory, &format!("Boot{number:04X}"))?.unwrap_or_default();
        let ours = BootEntry::decode(&option)
            .is_some_and(|entry| entry.description == DESCRIPTION && entry.path.eq_ignore_ascii_case(LOADER));
        if ours {
            return Ok(*number);
        }
    }
    let taken = |number: &u16| directory.join(file(&format!("Boot{number:04X}"))).exists();
    (0..=u16::MAX)
        .find(|number| !order.contains(number) && !taken(number))
        .ok_or_else(|| "all entries are taken".into())
}

fn file(name: &str) -> String {
    format!("{name}-{GLOBAL}")
}

fn read(directory: &Path, name: &str) -> Result<Option<Vec<u8>>, String> {
    match fs::read(directory.join(file(name))) {
        Ok(content) => Ok(read_variable_file(&content).map(|(_, value)| value.to_vec())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("read the EFI variable {name}: {error}")),
    }
}

/// One write: the kernel hands each to the firmware as a whole variable.
fn write(directory: &Path, name: &str, value: &[u8]) -> Result<(), String> {
    let content = variable_file(NON_VOLATILE, value);
    let failed = |error: io::Error| format!("write the EFI variable {name}: {error}");
    let mut file = fs::File::options()
        .write(true)
        .create(true)
        .truncate(false)
        .open(directory.join(file(name)))
        .map_err(failed)?;
    let count = file.write(&content).map_err(failed)?;
    if count == content.len() { Ok(()) } else { Err(failed(io::ErrorKind::WriteZero.into())) }
}

#[cfg(test)]
mod tests {
    use ondisk::gpt::{Geometry, Guid, Request, Size, lay_out, types};

    use super::*;

    fn table(seed: &[u8]) -> Table {
        let request = Request {
            name: "EFI".into(),
            type_guid: types::EFI_SYSTEM,
            guid: Guid::from_seed(seed),
            attributes: 0,
            size: Size::Bytes(8 << 20),
        };
        lay_out(Geometry::new(512, 64 << 20).unwrap(), Guid::from_seed(b"d"), &[request]).unwrap()
    }

    fn order(directory: &Path) -> Vec<u16> {
        read_order(&read(directory, "BootOrder").unwrap().unwrap())
    }

    #[test]
    fn our_entry_comes_first_and_is_replaced_the_next_time() {
        let dir = tempfile::tempdir().unwrap();
        // What firmware has: a menu and a disk.
        let other = BootEntry { description: "Other".into(), ..entry_of(&table(b"other")) };
        write(dir.path(), "Boot0000", b"\x09\0\0\0\0\0menu").unwrap();
        write(dir.path(), "Boot0001", &other.encode()).unwrap();
        write(dir.path(), "BootOrder", &write_order(&[0, 1])).unwrap();
        assert_eq!(add(dir.path(), &table(b"one")).unwrap().unwrap(), "Boot0002");
        assert_eq!(order(dir.path()), [2, 0, 1]);
        write(dir.path(), "BootOrder", &write_order(&[0, 1, 2])).unwrap();
        assert_eq!(add(dir.path(), &table(b"two")).unwrap().unwrap(), "Boot0002");
        assert_eq!(order(dir.path()), [2, 0, 1]);
        let ours = BootEntry::decode(&read(dir.path(), "Boot0002").unwrap().unwrap()).unwrap();
        assert_eq!((ours.guid, ours.path.as_str()), (Guid::from_seed(b"two"), LOADER));
        assert_eq!(read(dir.path(), "Boot0001").unwrap().unwrap(), other.encode());
    }

    fn entry_of(table: &Table) -> BootEntry {
        let efi = table.by_name("EFI").unwrap();
        BootEntry {
            active: true,
            description: DESCRIPTION.into(),
            partition: efi.number,
            first_lba: efi.first_lba,
            sectors: efi.sectors(),
            guid: efi.guid,
            path: LOADER.into(),
        }
    }

    #[test]
    fn a_machine_without_variables_has_no_entry() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(add(dir.path(), &table(b"one")), Ok(None));
        assert_eq!(add(&dir.path().join("nothing"), &table(b"one")), Ok(None));
    }
}
