//! Links below /dev/disk: names of disks and partitions that do not change with the order in which drivers find them.
//!
//! Owns: the names, which are udev's, and the links.
//! Invariant: a link leads to the one device that has the name. Where two devices have it there is no link, and machined says
//! so: the contents of a disk are not trusted to choose which disk a name means.
//! Does not: name the place of disks behind SAS, Fibre Channel and iSCSI, or CDs.
//! Source: systemd's rules.d/60-persistent-storage.rules, udev-builtin-path_id.c, ata_id.c, scsi_serial.c.

mod identity;
mod place;
mod words;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::Path;

use runtime::Runtime;
use runtime::store::DiscoveredVolume;

use super::device::{Device, node_path, text};
use words::encode;

/// Where the links are.
const DIRECTORY: &str = "/dev/disk";
/// Longest name of a file.
const MAX_NAME_BYTES: usize = 255;
/// Kinds of names that two devices never share by intent; partitions of two disks often have the same label.
const UNIQUE: [&str; 3] = ["by-id/", "by-uuid/", "by-partuuid/"];

/// Links, such as `by-id/virtio-abc`, each with the names of the devices that claim it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Claims(BTreeMap<String, Vec<String>>);

impl Claims {
    /// What the hardware of these devices says; reads sysfs.
    pub(super) fn of_hardware(runtime: &Runtime, devices: &[Device]) -> Self {
        let mut claims = Self::default();
        for device in devices {
            let disk = match &device.parent {
                Some(parent) => devices.iter().find(|disk| disk.name == *parent),
                None => Some(device),
            };
            let Some(disk) = disk else { continue };
            let part = match device.parent {
                Some(_) => format!("-part{}", device.property("PARTN")),
                None => String::new(),
            };
            let ids = identity::of(disk).into_iter().map(|id| format!("by-id/{id}"));
            let places = place::of(runtime, disk).into_iter().map(|place| format!("by-path/{place}"));
            let sequence = Some(text(&disk.directory.join("diskseq"))).filter(|number| !number.is_empty());
            let sequence = sequence.map(|number| format!("by-diskseq/{number}"));
            for link in ids.chain(places).chain(sequence) {
                claims.add(format!("{link}{part}"), &device.name);
            }
        }
        claims
    }

    /// What lies on a device says.
    pub(super) fn add_contents(&mut self, device: &Device, volume: &DiscoveredVolume) {
        let names = [
            ("by-partuuid", &volume.partition_uuid),
            ("by-partlabel", &volume.partition_label),
            ("by-uuid", &volume.uuid),
            ("by-label", &volume.label),
        ];
        for (directory, name) in names {
            // The identifier of a partition table is not one of a file system.
            if directory != "by-uuid" || volume.name != "gpt" {
                self.add(format!("{directory}/{}", encode(name)), &device.name);
            }
        }
    }

    fn add(&mut self, link: String, device: &str) {
        let name = link.rsplit('/').next().unwrap_or_default();
        if name.len() > MAX_NAME_BYTES || ["", ".", ".."].contains(&name) {
            return;
        }
        let devices = self.0.entry(link).or_default();
        if !devices.iter().any(|known| known == device) {
            devices.push(device.to_owned());
        }
    }

    /// Links that lead to one device, without `/dev/disk/`.
    fn clear(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().filter_map(|(link, devices)| match devices.as_slice() {
            [device] => Some((link.as_str(), device.as_str())),
            _ => None,
        })
    }

    /// Paths of the links that lead to a device, sorted.
    pub(super) fn of(&self, device: &str) -> Vec<String> {
        let own = self.clear().filter(|(_, leads_to)| *leads_to == device);
        own.map(|(link, _)| format!("{DIRECTORY}/{link}")).collect()
    }

    /// A sentence for each name that two devices have and should not.
    pub(super) fn doubled(&self) -> Vec<String> {
        let doubled = self.0.iter().filter(|(link, devices)| {
            devices.len() > 1 && UNIQUE.iter().any(|directory| link.starts_with(directory))
        });
        doubled
            .map(|(link, devices)| {
                let devices = devices.join(", ");
                format!("{DIRECTORY}/{link} leads nowhere: these devices have that name: {devices}")
            })
            .collect()
    }

    /// Makes the links, and removes those of `made`, an earlier call's answer, that are not wanted any more. A link leads to a
    /// device that has a node.
    pub(super) fn write(&self, runtime: &Runtime, made: &[String]) -> io::Result<Vec<String>> {
        let directory = runtime.path(DIRECTORY);
        let has_node = |device: &str| runtime.path(&node_path(device)).exists();
        let wanted: Vec<_> = self.clear().filter(|(_, device)| has_node(device)).collect();
        for gone in made.iter().filter(|link| !wanted.iter().any(|(wanted, _)| wanted == link)) {
            match fs::remove_file(directory.join(gone)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        for (link, device) in &wanted {
            make(&directory.join(link), &format!("../../{}", device.replace('!', "/")))?;
        }
        Ok(wanted.into_iter().map(|(link, _)| link.to_owned()).collect())
    }
}

/// Has a link lead to a target, in one step.
fn make(link: &Path, target: &str) -> io::Result<()> {
    if fs::read_link(link).is_ok_and(|found| found == Path::new(target)) {
        return Ok(());
    }
    let Some(directory) = link.parent() else { return Ok(()) };
    fs::create_dir_all(directory)?;
    // No name of ours begins so: an encoded name has no `%`.
    let fresh = directory.join("%new");
    let _ = fs::remove_file(&fresh);
    symlink(target, &fresh)?;
    fs::rename(&fresh, link)
}

#[cfg(test)]
mod tests;
