//! Devices of the PCI bus.
//!
//! Owns: the names of classes (PCI Code and ID Assignment Specification, as far as they are met in servers); names of
//! makers and devices where the image brings the public list of them.
//! Fails by: a number in the place of a name.

use std::fs;
use std::path::Path;

use runtime::Runtime;
use runtime::store::{Hardware, PciDevice, Spec};

const DEVICES: &str = "/sys/bus/pci/devices";
/// Where distributions put the list of makers and devices, below the root.
const LISTS: [&str; 2] = ["usr/share/misc/pci.ids", "usr/share/hwdata/pci.ids"];

/// Every device, by address.
pub(super) fn devices(runtime: &Runtime) -> Vec<(String, Spec)> {
    let names = list(&runtime.root);
    let entries = fs::read_dir(runtime.path(DEVICES)).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| {
            let id = entry.file_name().into_string().ok()?;
            Some((id, Spec::Hardware(Box::new(Hardware::PciDevice(device(&entry.path(), &names)?)))))
        })
        .collect()
}

fn device(directory: &Path, names: &str) -> Option<PciDevice> {
    let number = |file: &str| {
        let text = fs::read_to_string(directory.join(file)).ok()?;
        u32::from_str_radix(text.trim().trim_start_matches("0x"), 16).ok()
    };
    let (class, vendor, product) = (number("class")?, number("vendor")?, number("device")?);
    // Class, subclass, programming interface.
    let (base, sub) = (class >> 16 & 0xff, class >> 8 & 0xff);
    let (vendor_name, product_name) = look_up(names, vendor, product);
    let name = |name: Option<&str>, number: String| name.map_or(number, str::to_owned);
    Some(PciDevice {
        class: name(class_name(base), format!("0x{base:02x}")),
        subclass: name(subclass_name(base, sub), format!("0x{sub:02x}")),
        vendor: name(vendor_name, format!("0x{vendor:04x}")),
        product: name(product_name, format!("0x{product:04x}")),
        class_id: format!("0x{base:02x}"),
        subclass_id: format!("0x{sub:02x}"),
        vendor_id: format!("0x{vendor:04x}"),
        product_id: format!("0x{product:04x}"),
        driver: crate::block::target_name(&directory.join("driver")),
    })
}

/// Names of the maker and the device of these numbers, on a machine with this root.
pub(crate) fn names(root: &Path, vendor: u32, product: u32) -> (Option<String>, Option<String>) {
    let list = list(root);
    let (vendor, product) = look_up(&list, vendor, product);
    (vendor.map(str::to_owned), product.map(str::to_owned))
}

/// The public list; empty where the image brings none.
fn list(root: &Path) -> String {
    LISTS.iter().find_map(|path| fs::read_to_string(root.join(path)).ok()).unwrap_or_default()
}

/// Names in the public list: `vvvv  Maker`, and below it `<tab>pppp  Device`.
fn look_up(list: &str, vendor: u32, product: u32) -> (Option<&str>, Option<&str>) {
    let (vendor, product) = (format!("{vendor:04x}  "), format!("\t{product:04x}  "));
    // The makers end where the classes begin.
    let mut lines = list.lines().take_while(|line| !line.starts_with("C "));
    let Some(maker) = lines.find_map(|line| line.strip_prefix(vendor.as_str())) else { return (None, None) };
    let own = lines.take_while(|line| line.starts_with(['\t', '#']) || line.is_empty());
    let mut found = own.filter_map(|line| line.strip_prefix(product.as_str()));
    (Some(maker), found.next())
}

fn class_name(class: u32) -> Option<&'static str> {
    const NAMES: [&str; 20] = [
        "Unclassified device",
        "Mass storage controller",
        "Network controller",
        "Display controller",
        "Multimedia controller",
        "Memory controller",
        "Bridge",
        "Communication controller",
        "Generic system peripheral",
        "Input device controller",
        "Docking station",
        "Processor",
        "Serial bus controller",
        "Wireless controller",
        "Intelligent controller",
        "Satellite communications controller",
        "Encryption controller",
        "Signal processing controller",
        "Processing accelerators",
        "Non-Essential Instrumentation",
    ];
    NAMES.get(usize::try_from(class).ok()?).copied()
}

fn subclass_name(class: u32, subclass: u32) -> Option<&'static str> {
    Some(match (class, subclass) {
        (0x01, 0x00) => "SCSI storage controller",
        (0x01, 0x01) => "IDE interface",
        (0x01, 0x04) => "RAID bus controller",
        (0x01, 0x06) => "SATA controller",
        (0x01, 0x07) => "Serial Attached SCSI controller",
        (0x01, 0x08) => "Non-Volatile memory controller",
        (0x02, 0x00) => "Ethernet controller",
        (0x02, 0x07) => "Infiniband controller",
        (0x02, 0x80) => "Network controller",
        (0x03, 0x00) => "VGA compatible controller",
        (0x03, 0x02) => "3D controller",
        (0x03, 0x80) => "Display controller",
        (0x04, 0x03) => "Audio device",
        (0x05, 0x00) => "RAM memory",
        (0x06, 0x00) => "Host bridge",
        (0x06, 0x01) => "ISA bridge",
        (0x06, 0x04) => "PCI bridge",
        (0x06, 0x80) => "Bridge",
        (0x07, 0x00) => "Serial controller",
        (0x07, 0x80) => "Communication controller",
        (0x08, 0x00) => "PIC",
        (0x08, 0x06) => "IOMMU",
        (0x08, 0x80) => "System peripheral",
        (0x0c, 0x03) => "USB controller",
        (0x0c, 0x05) => "SMBus",
        (0x10, 0x80) => "Encryption controller",
        (0x12, 0x00) => "Processing accelerators",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_have_names_where_there_are_any_and_their_driver() {
        let dir = tempfile::tempdir().unwrap();
        let runtime = Runtime::detached(dir.path().canonicalize().unwrap());
        let write = |address: &str, class: &str, vendor: &str, device: &str| {
            let directory = dir.path().join("sys/bus/pci/devices").join(address);
            fs::create_dir_all(&directory).unwrap();
            for (file, text) in [("class", class), ("vendor", vendor), ("device", device)] {
                fs::write(directory.join(file), format!("{text}\n")).unwrap();
            }
            directory
        };
        let net = write("0000:00:02.0", "0x020000", "0x1af4", "0x1000");
        write("0000:00:03.0", "0xff1200", "0xabcd", "0x0001");
        fs::create_dir_all(dir.path().join("sys/bus/pci/drivers/virtio-pci")).unwrap();
        std::os::unix::fs::symlink("../../drivers/virtio-pci", net.join("driver")).unwrap();
        let found = |runtime: &Runtime| -> Vec<PciDevice> {
            let mut all = devices(runtime);
            all.sort_by(|a, b| a.0.cmp(&b.0));
            let device = |spec| match spec {
                Spec::Hardware(found) => match *found {
                    Hardware::PciDevice(found) => Some(found),
                    _ => None,
                },
                _ => None,
            };
            all.into_iter().filter_map(|(_, spec)| device(spec)).collect()
        };
        let bare = found(&runtime);
        assert_eq!(
            (bare[0].class.as_str(), bare[0].subclass.as_str()),
            ("Network controller", "Ethernet controller")
        );
        assert_eq!((bare[0].vendor.as_str(), bare[0].driver.as_str()), ("0x1af4", "virtio-pci"));
        assert_eq!(
            (bare[1].class.as_str(), bare[1].subclass.as_str(), bare[1].driver.as_str()),
            ("0xff", "0x12", "")
        );
        fs::create_dir_all(dir.path().join("usr/share/misc")).unwrap();
        let list = "# list\n1af3  Other\n\t1000  Wrong\n1af4  Red Hat, Inc.\n\t1000  Virtio network device\n\t\t1af4 0001  Sub\nC 02  Network controller\n";
        fs::write(dir.path().join("usr/share/misc/pci.ids"), list).unwrap();
        let named = &found(&runtime)[0];
        assert_eq!(
            (named.vendor.as_str(), named.product.as_str()),
            ("Red Hat, Inc.", "Virtio network device")
        );
        assert_eq!(named.product_id, "0x1000");
    }
}
