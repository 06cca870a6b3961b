//! What is known of a link, under the names that expressions have for it.
//!
//! Source: the fields of the second generation's resource `LinkStatuses.net.talos.dev`.

use super::properties::texts;
use super::subject::{Field, Subject, Value};
use super::types::{HARDWARE, TEXT, TEXTS};

/// What is known of a link.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LinkProperties {
    /// Its hardware address: `02:00:00:00:00:01`.
    pub hardware_addr: String,
    /// The hardware address that it was made with.
    pub permanent_addr: String,
    /// `virtio_net`.
    pub driver: String,
    /// Its place on the bus: `0000:00:03.0`.
    pub bus_path: String,
    /// Vendor and product of a PCI device: `1AF4:1000`.
    pub pci_id: String,
    /// The kernel's word for a link that a program made, `vlan`; empty for a card.
    pub kind: String,
    /// Its further names.
    pub alt_names: Vec<String>,
}

impl Subject for LinkProperties {
    const NAME: &'static str = "link";
    const EXAMPLE: &'static str = "link.driver";
    const FIELDS: &'static [Field<Self>] = &[
        ("hardware_addr", HARDWARE, |link| Value::Hardware(&link.hardware_addr)),
        ("permanent_addr", HARDWARE, |link| Value::Hardware(&link.permanent_addr)),
        ("driver", TEXT, |link| Value::Text(&link.driver)),
        ("bus_path", TEXT, |link| Value::Text(&link.bus_path)),
        ("pciid", TEXT, |link| Value::Text(&link.pci_id)),
        ("kind", TEXT, |link| Value::Text(&link.kind)),
        ("alt_names", TEXTS, |link| texts(&link.alt_names)),
    ];
}
