//! What selectors ask of a link: its addresses from netlink, its device from sysfs.
//!
//! Source: Documentation/ABI/testing/sysfs-class-net of Linux.

use std::fs;
use std::path::{Path, PathBuf};

use network_plan::Present;

use super::link::{Device, Link};
use super::names;

const LINKS: &str = "sys/class/net";
/// ARPHRD_ETHER
const ETHERNET: &str = "1";

/// As selectors see the links.
pub(super) fn present(links: &[Link]) -> Vec<Present> {
    let one = |link: &Link| {
        // A member of a bond has the bond's address for as long as it is one.
        let is_lent = link.controller.is_some() && !link.permanent.is_empty();
        Present {
            name: link.name.clone(),
            // Those that the card is about to get count already: else it would ask DHCP until it has them.
            alt_names: [link.alt_names.clone(), names::missing(link, links)].concat(),
            kind: link.kind.clone(),
            hardware: if is_lent { &link.permanent } else { &link.hardware }.clone(),
            permanent: link.permanent.clone(),
            driver: link.device.driver.clone(),
            bus_path: link.device.bus_path.clone(),
            pci_id: link.device.pci_id.clone(),
            is_physical: link.device.is_physical,
        }
    };
    links.iter().map(one).collect()
}

/// What is behind a link of a machine with this root.
pub(super) fn device(root: &Path, link: &str) -> Device {
    let directory = root.join(LINKS).join(link);
    let device = fs::canonicalize(directory.join("device")).ok();
    let is_wireless = ["wireless", "phy80211"].iter().any(|part| directory.join(part).exists());
    let is_ethernet = fs::read_to_string(directory.join("type")).is_ok_and(|kind| kind.trim() == ETHERNET);
    let driver = device.as_deref().and_then(|device| name_of_link(&device.join("driver")));
    let bus = device.as_deref().map(on_bus);
    let bus_path = bus.as_deref().and_then(Path::file_name).map(text).unwrap_or_default();
    let is_multi_function = bus.as_deref().is_some_and(is_multi_function);
    Device {
        driver: driver.unwrap_or_default(),
        path_name: names::of_place(&bus_path, is_multi_function).unwrap_or_default(),
        bus_path,
        pci_id: bus.as_deref().and_then(pci_id).unwrap_or_default(),
        is_physical: device.is_some() && is_ethernet && !is_wireless,
    }
}

/// The device that is on a bus of the machine: those of virtio are behind one.
fn on_bus(device: &Path) -> PathBuf {
    let is_virtio = name_of_link(&device.join("subsystem")).is_some_and(|bus| bus == "virtio");
    match device.parent() {
        Some(parent) if is_virtio => parent.to_owned(),
        _ => device.to_owned(),
    }
}

/// The bit of a PCI device's header that says so (PCI Local Bus Specification, "Header Type").
fn is_multi_function(device: &Path) -> bool {
    const HEADER_TYPE: usize = 0x0e;
    const MULTI_FUNCTION: u8 = 0x80;
    let header = fs::read(device.join("config")).unwrap_or_default();
    header.get(HEADER_TYPE).is_some_and(|kind| kind & MULTI_FUNCTION != 0)
}

fn pci_id(device: &Path) -> Option<String> {
    let number = |file: &str| {
        let text = fs::read_to_string(device.join(file)).ok()?;
        Some(text.trim().trim_start_matches("0x").to_owned())
    };
    Some(format!("{}:{}", number("vendor")?, number("device")?))
}

fn name_of_link(path: &Path) -> Option<String> {
    fs::read_link(path).ok()?.file_name().map(text)
}

fn text(name: &std::ffi::OsStr) -> String {
    name.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn write(path: &Path, text: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn a_card_of_virtio_has_the_place_of_its_bus() {
        let root = tempfile::tempdir().unwrap();
        let pci = root.path().join("sys/devices/pci0000:00/0000:00:03.0");
        use super::device as device_of;
        let (device, net) = (pci.join("virtio0"), root.path().join(LINKS).join("eth0"));
        write(&pci.join("vendor"), "0x1af4\n");
        write(&pci.join("device"), "0x1000\n");
        write(&net.join("type"), "1\n");
        fs::create_dir_all(&device).unwrap();
        symlink("/sys/bus/virtio", device.join("subsystem")).unwrap();
        symlink("/sys/bus/virtio/drivers/virtio_net", device.join("driver")).unwrap();
        symlink(&device, net.join("device")).unwrap();
        write(&root.path().join(LINKS).join("cni0/type"), "1\n");
        write(&root.path().join(LINKS).join("wlan0/type"), "1\n");
        fs::create_dir_all(root.path().join(LINKS).join("wlan0/phy80211")).unwrap();
        symlink(&device, root.path().join(LINKS).join("wlan0/device")).unwrap();
        let named = |name: &str| Link {
            name: name.to_owned(),
            device: device_of(root.path(), name),
            ..Link::default()
        };
        let found = present(&["eth0", "cni0", "wlan0", "gone"].map(named));
        let card = &found[0];
        assert_eq!((card.driver.as_str(), card.bus_path.as_str()), ("virtio_net", "0000:00:03.0"));
        assert_eq!((card.pci_id.as_str(), card.is_physical), ("1af4:1000", true));
        assert_eq!(card.alt_names, ["enp0s3"]);
        assert!(found[1..].iter().all(|link| !link.is_physical));
        let of_bond = Link { hardware: vec![1], permanent: vec![2], controller: Some(7), ..named("eth0") };
        let found = present(&[of_bond.clone(), Link { controller: None, ..of_bond }]);
        assert_eq!((found[0].hardware.as_slice(), found[1].hardware.as_slice()), (&[2][..], &[1][..]));
    }
}
