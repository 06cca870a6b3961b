//! What is known of a disk, under the names that expressions have for it.
//!
//! Source: the fields of the second generation's resource `Disks.block.talos.dev`.

use super::subject::{Field, Subject, Value};
use super::types::{BOOL, TEXT, TEXTS, UINT};

/// What is known of a disk.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Properties {
    /// `system_disk`: the system runs from it; `None` while that is not known.
    pub system_disk: Option<bool>,
    /// Its node: `/dev/sda`.
    pub dev_path: String,
    /// Bytes.
    pub size: u64,
    /// The same for people.
    pub pretty_size: String,
    /// Best size of a transfer, bytes.
    pub io_size: u64,
    /// Bytes of a sector.
    pub sector_size: u64,
    /// It cannot be written.
    pub readonly: bool,
    /// It is a CD.
    pub cdrom: bool,
    /// It turns.
    pub rotational: bool,
    /// What it is called.
    pub model: String,
    /// Serial number.
    pub serial: String,
    /// What drivers are found by.
    pub modalias: String,
    /// World-wide identifier.
    pub wwid: String,
    /// Identifier.
    pub uuid: String,
    /// Its place on the bus.
    pub bus_path: String,
    /// The bus.
    pub sub_system: String,
    /// How it is attached: `nvme`, `sata`, `virtio`, …
    pub transport: String,
    /// Disks it is made of.
    pub secondary_disks: Vec<String>,
    /// Additional names of its node.
    pub symlinks: Vec<String>,
}

impl Subject for Properties {
    const NAME: &'static str = "disk";
    const EXAMPLE: &'static str = "disk.size";
    const FIELDS: &'static [Field<Self>] = &[
        ("dev_path", TEXT, |disk| Value::Text(&disk.dev_path)),
        ("size", UINT, |disk| Value::Uint(disk.size)),
        ("pretty_size", TEXT, |disk| Value::Text(&disk.pretty_size)),
        ("io_size", UINT, |disk| Value::Uint(disk.io_size)),
        ("sector_size", UINT, |disk| Value::Uint(disk.sector_size)),
        ("readonly", BOOL, |disk| Value::Bool(disk.readonly)),
        ("cdrom", BOOL, |disk| Value::Bool(disk.cdrom)),
        ("rotational", BOOL, |disk| Value::Bool(disk.rotational)),
        ("model", TEXT, |disk| Value::Text(&disk.model)),
        ("serial", TEXT, |disk| Value::Text(&disk.serial)),
        ("modalias", TEXT, |disk| Value::Text(&disk.modalias)),
        ("wwid", TEXT, |disk| Value::Text(&disk.wwid)),
        ("uuid", TEXT, |disk| Value::Text(&disk.uuid)),
        ("bus_path", TEXT, |disk| Value::Text(&disk.bus_path)),
        ("sub_system", TEXT, |disk| Value::Text(&disk.sub_system)),
        ("transport", TEXT, |disk| Value::Text(&disk.transport)),
        ("secondary_disks", TEXTS, |disk| texts(&disk.secondary_disks)),
        ("symlinks", TEXTS, |disk| texts(&disk.symlinks)),
    ];
    const HAS_SYSTEM_DISK: bool = true;

    fn system_disk(&self) -> Option<bool> {
        self.system_disk
    }
}

pub(super) fn texts(list: &[String]) -> Value<'_> {
    Value::List(list.iter().map(|text| Value::Text(text)).collect())
}

/// Names of sizes, as unsigned numbers.
pub(super) const UNITS: [(&str, u64); 12] = [
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("PiB", 1 << 50),
    ("EiB", 1 << 60),
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("PB", 1_000_000_000_000_000),
    ("EB", 1_000_000_000_000_000_000),
];
