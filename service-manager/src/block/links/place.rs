//! Names of the place where a disk is attached.
//!
//! Source: systemd's udev-builtin-path_id.c; Documentation/ABI/testing/sysfs-ata.

use std::path::{Path, PathBuf};

use runtime::Runtime;

use super::super::device::{Device, names, text};

/// Names of a disk in `by-path`; a place that has no name here has none.
pub(super) fn of(runtime: &Runtime, disk: &Device) -> Vec<String> {
    let Ok(below) = disk.directory.strip_prefix(runtime.path("/sys/devices")) else { return Vec::new() };
    let parts: Vec<&str> = below.iter().filter_map(|part| part.to_str()).collect();
    let Some(bus) = bus(&parts) else { return Vec::new() };
    let at = |index: usize| -> PathBuf {
        runtime.path("/sys/devices").join(parts[..=index].iter().collect::<PathBuf>())
    };
    let has = |prefix: &str| parts.iter().position(|part| numbered(part, prefix));
    match () {
        () if disk.name.starts_with("nvme") => match text(&disk.directory.join("nsid")) {
            number if number.is_empty() => Vec::new(),
            number => vec![format!("{bus}-nvme-{number}")],
        },
        () if disk.name.starts_with("vd") => vec![bus.clone(), format!("virtio-{bus}")],
        () if disk.is_card() => vec![bus],
        () if !disk.name.starts_with("sd") => Vec::new(),
        () if ["end_device-", "rport-", "session"]
            .iter()
            .any(|kind| parts.iter().any(|part| part.starts_with(kind))) =>
        {
            Vec::new()
        }
        () => match (has("ata"), has("host")) {
            (Some(index), _) => {
                let port = text(&at(index).join("ata_port").join(parts[index]).join("port_no"));
                if port.is_empty() {
                    return Vec::new();
                }
                vec![format!("{bus}-ata-{port}"), format!("{bus}-ata-{port}.0")]
            }
            (None, Some(index)) => scsi(&parts, index, &at(index)).map_or_else(Vec::new, |address| {
                let usb = parts[..index].iter().rev().find_map(|part| usb(part));
                vec![format!("{bus}{}-scsi-{address}", usb.unwrap_or_default())]
            }),
            (None, None) => Vec::new(),
        },
    }
}

/// The nearest function of a PCI device, or a platform device where there is none.
fn bus(parts: &[&str]) -> Option<String> {
    if let Some(function) = parts.iter().rev().find(|part| is_pci(part)) {
        return Some(format!("pci-{function}"));
    }
    let platform = parts.first().filter(|first| **first == "platform")?;
    let device = parts.iter().rev().find(|part| part.contains('.') && **part != *platform)?;
    Some(format!("platform-{device}"))
}

/// `0000:00:1f.2`.
fn is_pci(part: &str) -> bool {
    let hex =
        |text: &str, length: usize| text.len() == length && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let mut fields = part.split([':', '.']);
    let mut next = |length: usize| fields.next().is_some_and(|field| hex(field, length));
    part.len() == 12 && next(4) && next(2) && next(2) && next(1)
}

fn numbered(part: &str, prefix: &str) -> bool {
    part.strip_prefix(prefix)
        .is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit()))
}

/// `-usb-0:4:1.0` of an interface `2-4:1.0`: numbers of buses depend on the order of drivers.
fn usb(part: &str) -> Option<String> {
    let (bus, rest) = part.split_once('-')?;
    let is_interface = bus.bytes().all(|byte| byte.is_ascii_digit()) && rest.contains(':');
    is_interface.then(|| format!("-usb-0:{rest}"))
}

/// `0:0:1:0`: the host counted from the first one of its controller, then channel, target and unit.
fn scsi(parts: &[&str], host: usize, directory: &Path) -> Option<String> {
    let number = |name: &str| name.strip_prefix("host")?.parse::<u32>().ok();
    let own = number(parts[host])?;
    let first = names(directory.parent()?).iter().filter_map(|name| number(name)).min()?;
    let address = parts.iter().rev().find(|part| part.split(':').count() == 4)?;
    let (_, rest) = address.split_once(':')?;
    Some(format!("{}:{rest}", own.saturating_sub(first)))
}
