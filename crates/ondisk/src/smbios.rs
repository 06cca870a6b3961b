//! What the firmware says about the machine: the SMBIOS structure table.
//!
//! Owns: walking the structures, and the fields of system (1), processor (4) and memory device (17).
//! Does not: find the table; the kernel shows it as /sys/firmware/dmi/tables/DMI.
//! Fails by: leaving out what a structure of an older version does not have; a cut table ends the walk.
//! Source: DMTF DSP0134 §6.1 (structures and their strings), §7.2, §7.5, §7.18. All numbers are little-endian.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::field::{array, le16, le32, u8_at};

/// Type, length and handle.
const HEADER_BYTES: usize = 4;
/// The last structure.
const END_OF_TABLE: u8 = 127;

/// A structure: the fixed part with its header, and the strings behind it.
#[derive(Debug, Clone, Copy)]
struct Structure<'a> {
    fixed: &'a [u8],
    strings: &'a [u8],
}

impl Structure<'_> {
    fn kind(&self) -> u8 {
        u8_at(self.fixed, 0).unwrap_or(END_OF_TABLE)
    }

    /// The string whose number stands at `offset`; empty for none. Boards pad strings with blanks.
    fn string(&self, offset: usize) -> String {
        let number = u8_at(self.fixed, offset).map_or(0, usize::from);
        let Some(index) = number.checked_sub(1) else { return String::new() };
        let text = self.strings.split(|byte| *byte == 0).nth(index).unwrap_or_default();
        String::from_utf8_lossy(text).trim().to_string()
    }
}

/// The structures of a table, in order.
fn structures(table: &[u8]) -> impl Iterator<Item = Structure<'_>> {
    let mut rest = table;
    core::iter::from_fn(move || {
        let length = usize::from(u8_at(rest, 1)?);
        let fixed = rest.get(..length).filter(|fixed| fixed.len() >= HEADER_BYTES)?;
        let behind = rest.get(length..)?;
        // Two zero bytes end the strings, also where there are none.
        let end = behind.windows(2).position(|pair| pair == [0, 0])?;
        let structure = Structure { fixed, strings: behind.get(..end)? };
        rest = behind.get(end + 2..).unwrap_or_default();
        (structure.kind() != END_OF_TABLE).then_some(structure)
    })
}

/// The machine as its maker describes it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct System {
    /// Who made it.
    pub manufacturer: String,
    /// What it is called.
    pub product: String,
    /// Which version of it.
    pub version: String,
    /// Its serial number.
    pub serial: String,
    /// Its identifier in lower case; empty when the maker left it out.
    pub uuid: String,
    /// What woke it up last.
    pub wake_up: &'static str,
    /// The maker's order number.
    pub sku: String,
}

/// A socket with a processor.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Processor {
    /// Name of the socket on the board.
    pub socket: String,
    /// Who made it.
    pub manufacturer: String,
    /// What it is called.
    pub version: String,
    /// Highest frequency that the socket allows.
    pub max_mhz: u16,
    /// Frequency at boot.
    pub boot_mhz: u16,
    /// Status byte: bit 6 says that the socket is taken, bits 0 to 2 that it works (1).
    pub status: u8,
    /// Its serial number.
    pub serial: String,
    /// The owner's mark.
    pub asset_tag: String,
    /// The maker's part number.
    pub part: String,
    /// Cores.
    pub cores: u16,
    /// Cores that are switched on.
    pub cores_enabled: u16,
    /// Threads.
    pub threads: u16,
}

/// A place for memory with a module in it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Memory {
    /// Its size.
    pub size_mib: u32,
    /// Name of the place on the board.
    pub device_locator: String,
    /// Name of the bank.
    pub bank_locator: String,
    /// Transfers a second, in millions.
    pub speed: u16,
    /// Who made it.
    pub manufacturer: String,
    /// Its serial number.
    pub serial: String,
    /// The owner's mark.
    pub asset_tag: String,
    /// The maker's part number.
    pub part: String,
}

/// What a table says that is of use here.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Table {
    /// The machine.
    pub system: Option<System>,
    /// Sockets that are taken.
    pub processors: Vec<Processor>,
    /// Places that are taken.
    pub memory: Vec<Memory>,
}

/// The machine's identifier as the table has it, whatever it says: 16 bytes of structure 1.
#[must_use]
pub fn system_uuid(table: &[u8]) -> Option<[u8; 16]> {
    structures(table).find(|structure| structure.kind() == 1).and_then(|system| array(system.fixed, 8))
}

/// The version that an entry point states, as major and minor.
///
/// Source: DSP0134 §5.2: `_SM_` has them at 6 and 7, `_SM3_` at 7 and 8.
#[must_use]
pub fn version(entry_point: &[u8]) -> Option<(u8, u8)> {
    let at = match entry_point {
        [b'_', b'S', b'M', b'3', b'_', ..] => 7,
        [b'_', b'S', b'M', b'_', ..] => 6,
        _ => return None,
    };
    Some((u8_at(entry_point, at)?, u8_at(entry_point, at + 1)?))
}

/// Reads a structure table.
#[must_use]
pub fn parse(table: &[u8]) -> Table {
    let mut found = Table::default();
    for structure in structures(table) {
        match structure.kind() {
            1 if found.system.is_none() => found.system = Some(system(structure)),
            4 => found.processors.extend(processor(structure)),
            17 => found.memory.extend(memory(structure)),
            _ => {}
        }
    }
    found
}

fn system(from: Structure<'_>) -> System {
    const WAKE_UP: [&str; 9] = [
        "Reserved",
        "Other",
        "Unknown",
        "APM Timer",
        "Modem Ring",
        "LAN Remote",
        "Power Switch",
        "PCI PME#",
        "AC Power Restored",
    ];
    let wake_up = u8_at(from.fixed, 0x18).and_then(|code| WAKE_UP.get(usize::from(code)));
    System {
        manufacturer: from.string(4),
        product: from.string(5),
        version: from.string(6),
        serial: from.string(7),
        uuid: array::<16>(from.fixed, 8).and_then(uuid).unwrap_or_default(),
        wake_up: wake_up.copied().unwrap_or_default(),
        sku: from.string(0x19),
    }
}

/// The first three groups are numbers and so little-endian; all zeros or all ones say that there is none.
fn uuid(bytes: [u8; 16]) -> Option<String> {
    if bytes == [0; 16] || bytes == [0xff; 16] {
        return None;
    }
    let [a, b, c, d, e, f, g, h, i, j, rest @ ..] = bytes;
    let node: String = rest.iter().map(|byte| format!("{byte:02x}")).collect();
    let (time, middle, high) =
        (u32::from_le_bytes([a, b, c, d]), u16::from_le_bytes([e, f]), u16::from_le_bytes([g, h]));
    Some(format!("{time:08x}-{middle:04x}-{high:04x}-{i:02x}{j:02x}-{node}"))
}

fn processor(from: Structure<'_>) -> Option<Processor> {
    const TAKEN: u8 = 1 << 6;
    let status = u8_at(from.fixed, 0x18)?;
    if status & TAKEN == 0 {
        return None;
    }
    // 0xff in the byte sends to the word that version 3.0 added.
    let count = |byte: usize, word: usize| match u8_at(from.fixed, byte) {
        Some(0xff) => le16(from.fixed, word).unwrap_or(0xff),
        Some(count) => u16::from(count),
        None => 0,
    };
    Some(Processor {
        socket: from.string(4),
        manufacturer: from.string(7),
        version: from.string(0x10),
        max_mhz: le16(from.fixed, 0x14).unwrap_or(0),
        boot_mhz: le16(from.fixed, 0x16).unwrap_or(0),
        status,
        serial: from.string(0x20),
        asset_tag: from.string(0x21),
        part: from.string(0x22),
        cores: count(0x23, 0x2a),
        cores_enabled: count(0x24, 0x2c),
        threads: count(0x25, 0x2e),
    })
}

fn memory(from: Structure<'_>) -> Option<Memory> {
    Some(Memory {
        size_mib: memory_mib(from.fixed)?,
        device_locator: from.string(0x10),
        bank_locator: from.string(0x11),
        speed: le16(from.fixed, 0x15).unwrap_or(0),
        manufacturer: from.string(0x17),
        serial: from.string(0x18),
        asset_tag: from.string(0x19),
        part: from.string(0x1a),
    })
}

/// `None` for an empty place, and for a size that the firmware does not know.
fn memory_mib(fixed: &[u8]) -> Option<u32> {
    const IN_KIB: u16 = 1 << 15;
    match le16(fixed, 0xc)? {
        0 | 0xffff => None,
        0x7fff => le32(fixed, 0x1c).map(|size| size & 0x7fff_ffff),
        size if size & IN_KIB != 0 => Some(u32::from(size & !IN_KIB) / 1024),
        size => Some(u32::from(size)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn structure(kind: u8, body: &[u8], strings: &[&str]) -> Vec<u8> {
        let mut bytes = vec![kind, u8::try_from(body.len() + HEADER_BYTES).unwrap(), 0, 0];
        bytes.extend(body);
        for string in strings {
            bytes.extend(string.as_bytes());
            bytes.push(0);
        }
        bytes.extend(if strings.is_empty() { &[0, 0][..] } else { &[0][..] });
        bytes
    }

    fn table() -> Vec<u8> {
        let mut system = vec![1, 2, 0, 3];
        system.extend([0x33, 0x22, 0x11, 0x00, 0x55, 0x44, 0x77, 0x66, 0x88, 0x99, 1, 2, 3, 4, 5, 6]);
        system.extend([6, 0]);
        // From offset 4 on; the names of the fields stand in `processor`.
        let mut cpu = vec![0; 0x30 - HEADER_BYTES];
        let mut set = |offset: usize, bytes: &[u8]| {
            cpu[offset - HEADER_BYTES..][..bytes.len()].copy_from_slice(bytes);
        };
        set(4, &[1]);
        set(7, &[2]);
        set(0x10, &[3]);
        set(0x14, &3000u16.to_le_bytes());
        set(0x18, &[0x41]);
        set(0x23, &[0xff, 4, 8]);
        set(0x2a, &300u16.to_le_bytes());
        let mut dimm = vec![0; 0x20 - HEADER_BYTES];
        dimm[0xc - HEADER_BYTES..][..2].copy_from_slice(&0x7fffu16.to_le_bytes());
        dimm[0x10 - HEADER_BYTES] = 1;
        dimm[0x1c - HEADER_BYTES..][..4].copy_from_slice(&65536u32.to_le_bytes());
        let empty = vec![0; 0x20 - HEADER_BYTES];
        [
            structure(0, &[0; 20], &["firmware"]),
            structure(1, &system, &["QEMU", "Standard PC  ", "S-1"]),
            structure(4, &cpu, &["CPU 0", "Maker", "Model X"]),
            structure(17, &dimm, &["DIMM 0"]),
            structure(17, &empty, &[]),
            structure(END_OF_TABLE, &[], &[]),
            structure(17, &dimm, &["behind the end"]),
        ]
        .concat()
    }

    #[test]
    fn the_three_structures_are_read() {
        let found = parse(&table());
        let system = found.system.unwrap();
        assert_eq!((system.manufacturer.as_str(), system.product.as_str()), ("QEMU", "Standard PC"));
        assert_eq!((system.serial.as_str(), system.version.as_str()), ("S-1", ""));
        assert_eq!(system.uuid, "00112233-4455-6677-8899-010203040506");
        assert_eq!(system.wake_up, "Power Switch");
        let [cpu] = found.processors.as_slice() else { panic!("{found:?}", found = found.processors) };
        assert_eq!((cpu.socket.as_str(), cpu.version.as_str(), cpu.max_mhz), ("CPU 0", "Model X", 3000));
        assert_eq!((cpu.cores, cpu.cores_enabled, cpu.threads), (300, 4, 8));
        let [dimm] = found.memory.as_slice() else { panic!("an empty place is no module") };
        assert_eq!((dimm.size_mib, dimm.device_locator.as_str()), (65536, "DIMM 0"));
    }

    #[test]
    fn the_identifier_and_the_version_are_read_as_they_are() {
        let bytes = [0x33, 0x22, 0x11, 0x00, 0x55, 0x44, 0x77, 0x66, 0x88, 0x99, 1, 2, 3, 4, 5, 6];
        assert_eq!(system_uuid(&table()), Some(bytes));
        assert_eq!(system_uuid(&structure(1, &[1, 2, 0, 3], &["old"])), None);
        assert_eq!(version(b"_SM_\0\x1f\x02\x08"), Some((2, 8)));
        assert_eq!(version(b"_SM3_\0\x18\x03\x05"), Some((3, 5)));
        assert_eq!((version(b"_DMI_"), version(b"_SM_")), (None, None));
    }

    #[test]
    fn sizes_of_memory_come_in_three_forms() {
        let sized = |size: u16| {
            let mut fixed = vec![0; 0x20];
            fixed[0xc..0xe].copy_from_slice(&size.to_le_bytes());
            memory_mib(&fixed)
        };
        assert_eq!((sized(2048), sized(0x8000 | 2048)), (Some(2048), Some(2)));
        assert_eq!((sized(0), sized(0xffff)), (None, None));
    }

    #[test]
    fn cut_and_damaged_tables_end_the_walk() {
        let table = table();
        for end in 0..table.len() {
            let found = parse(&table[..end]);
            assert!(found.memory.len() <= 1 && found.processors.len() <= 1);
        }
        for at in 0..table.len() {
            for value in [0, 1, 3, 0x7f, 0xff] {
                let mut damaged = table.clone();
                damaged[at] = value;
                drop(parse(&damaged));
            }
        }
    }
}
