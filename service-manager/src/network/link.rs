//! A link as the kernel has it.

/// A link as netlink shows it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) index: u32,
    pub(crate) name: String,
    /// Its further names.
    pub(crate) alt_names: Vec<String>,
    /// The name that the config gives it; empty for none.
    pub(crate) alias: String,
    /// `bond`, `vlan`; empty for hardware.
    pub(crate) kind: String,
    pub(crate) hardware: Vec<u8>,
    /// The address that it was made with.
    pub(crate) permanent: Vec<u8>,
    /// What it is a member of.
    pub(crate) controller: Option<u32>,
    pub(crate) up: bool,
    pub(crate) carrier: bool,
    /// How often the carrier came: a cable that was out for a moment shows in this alone.
    pub(crate) carrier_ups: u32,
    pub(crate) mtu: u32,
    /// It takes multicast.
    pub(crate) multicast: bool,
    /// What is behind it.
    pub(crate) device: Device,
}

/// The device of a link; empty for links that programs made.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Device {
    /// `virtio_net`.
    pub(crate) driver: String,
    /// The place on its bus: `0000:00:03.0`.
    pub(crate) bus_path: String,
    /// The name that is made of a PCI device's place: `enp0s3`.
    pub(crate) path_name: String,
    /// Vendor and product of a PCI device: `1af4:1000`.
    pub(crate) pci_id: String,
    /// It is a wired Ethernet card.
    pub(crate) is_physical: bool,
}
