//! Resource types of the hardware: what the firmware and the buses say.
//!
//! Source: crates/api/tests/data/resources.tsv; the `billet.dev` type is ours.

use serde::Serialize;

use super::Definition;
use super::definition::{PLAIN, column};

const HARDWARE: Definition = Definition { namespace: "hardware", ..PLAIN };

/// A processor in its socket.
pub static PROCESSOR: Definition = Definition {
    kind: "Processors.hardware.talos.dev",
    display: "Processor",
    aliases: &["cpus", "cpu"],
    columns: &[
        column("Manufacturer", "{.manufacturer}"),
        column("Model", "{.productName}"),
        column("Cores", "{.coreCount}"),
        column("Threads", "{.threadCount}"),
    ],
    writer: "hardware.SystemInfoController",
    ..HARDWARE
};

/// A memory module.
pub static MEMORY_MODULE: Definition = Definition {
    kind: "MemoryModules.hardware.talos.dev",
    display: "MemoryModule",
    aliases: &["memory", "ram"],
    columns: &[
        column("Manufacturer", "{.manufacturer}"),
        column("Model", "{.productName}"),
        column("SizeMiB", "{.sizeMiB}"),
    ],
    writer: "hardware.SystemInfoController",
    ..HARDWARE
};

/// The machine as its maker describes it.
pub static SYSTEM_INFORMATION: Definition = Definition {
    kind: "SystemInformations.hardware.talos.dev",
    display: "SystemInformation",
    columns: &[
        column("Manufacturer", "{.manufacturer}"),
        column("ProductName", "{.productName}"),
        column("Version", "{.version}"),
        column("SerialNumber", "{.serialnumber}"),
        column("UUID", "{.uuid}"),
        column("WakeUpType", "{.wakeUpType}"),
        column("SKUNumber", "{.skuNumber}"),
    ],
    writer: "hardware.SystemInfoController",
    ..HARDWARE
};

/// A device of the PCI bus.
pub static PCI_DEVICE: Definition = Definition {
    kind: "PCIDevices.hardware.talos.dev",
    display: "PCIDevice",
    aliases: &["devices", "device"],
    columns: &[
        column("Class", "{.class}"),
        column("Subclass", "{.subclass}"),
        column("Vendor", "{.vendor}"),
        column("Product", "{.product}"),
    ],
    writer: "hardware.PCIDevicesController",
    ..HARDWARE
};

/// The key that tells the machine's TPM from all others. No secret.
pub static TPM_KEY: Definition = Definition {
    kind: "TPMKeys.hardware.billet.dev",
    display: "TPMKey",
    columns: &[column("SHA256", "{.sha256}")],
    abbreviated: false,
    writer: "hardware.TPMKeyController",
    ..HARDWARE
};

/// What a resource of these types says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Hardware {
    /// `Processors`.
    Processor(Processor),
    /// `MemoryModules`.
    MemoryModule(MemoryModule),
    /// `SystemInformations`.
    SystemInformation(SystemInformation),
    /// `PCIDevices`.
    PciDevice(PciDevice),
    /// `TPMKeys`.
    TpmKey(TpmKey),
}

/// A processor in its socket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Processor {
    /// Name of the socket.
    pub socket: String,
    /// Who made it.
    pub manufacturer: String,
    /// What it is called.
    pub product_name: String,
    /// Highest frequency.
    pub max_speed_mhz: u16,
    /// Frequency at boot.
    pub boot_speed_mhz: u16,
    /// The firmware's status byte.
    pub status: u8,
    /// Serial number.
    pub serial_number: String,
    /// The owner's mark.
    pub asset_tag: String,
    /// The maker's part number.
    pub part_number: String,
    /// Cores.
    pub core_count: u16,
    /// Cores that are switched on.
    pub core_enabled: u16,
    /// Threads.
    pub thread_count: u16,
}

/// A memory module.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MemoryModule {
    /// Its size.
    #[serde(rename = "sizeMiB")]
    pub size_mib: u32,
    /// Its place on the board.
    pub device_locator: String,
    /// Its bank.
    pub bank_locator: String,
    /// Millions of transfers a second.
    pub speed: u16,
    /// Who made it.
    pub manufacturer: String,
    /// What it is called.
    pub product_name: String,
    /// Serial number.
    pub serial_number: String,
    /// The owner's mark.
    pub asset_tag: String,
}

/// The machine as its maker describes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SystemInformation {
    /// Who made it.
    pub manufacturer: String,
    /// What it is called.
    pub product_name: String,
    /// Which version of it.
    pub version: String,
    /// Serial number.
    #[serde(rename = "serialnumber")]
    pub serial_number: String,
    /// Identifier.
    pub uuid: String,
    /// What woke it up last.
    pub wake_up_type: &'static str,
    /// The maker's order number.
    pub sku_number: String,
}

/// A device of the PCI bus. A name that the image has no table for is its number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PciDevice {
    /// Name of the class.
    pub class: String,
    /// Name of the subclass.
    pub subclass: String,
    /// Name of the maker.
    pub vendor: String,
    /// Name of the device.
    pub product: String,
    /// Class, hexadecimal.
    pub class_id: String,
    /// Subclass, hexadecimal.
    pub subclass_id: String,
    /// Maker, hexadecimal.
    pub vendor_id: String,
    /// Device, hexadecimal.
    pub product_id: String,
    /// The driver that has it; empty for none.
    pub driver: String,
}

/// The key that tells the machine's TPM from all others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TpmKey {
    /// What names it: SHA-256 of the key as the TPM gives it.
    pub sha256: String,
    /// The file that `image add-config --tpm-key` takes.
    pub public: String,
}
