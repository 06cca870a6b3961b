//! The config bundle: configs of single machines on the medium that this one was started from.
//!
//! Owns: which disk or medium that is, what tells this machine from others, taking the one entry that is for it.
//! Does not: know the file ([`ondisk::bundle`]) or check its signature ([`installer::bundle`]).
//! Order: key, signature, then the entries. What cannot be used is told with what to do, and the node waits for a config.
//! Source: docs/formats/config-bundle.md; docs/users/per-device.md.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use installer::bundle::{Selector, entries, find};
use ondisk::bundle::{KEPT_KEY_PATH, PATH, Payload, PublicKey, matching};

use super::source::{Candidate, Origin, Search, text_of};
use super::volume::Volume;
use crate::node::Node;

/// Where init mounts a medium whose files the root's layers are.
const MEDIUM: &str = "/run/billet/medium";

/// How long the drivers of network cards may take, whose addresses tell this machine from others.
const CARDS_DEADLINE: Duration = Duration::from_secs(5);
/// Between two looks meanwhile.
const CARDS_INTERVAL: Duration = Duration::from_millis(200);

/// This machine's config in the bundle.
pub(super) async fn read(node: &Arc<Node>) -> Search {
    let end = Instant::now() + CARDS_DEADLINE;
    loop {
        let reader = node.clone();
        let error = match tokio::task::spawn_blocking(move || look(&reader)).await {
            Ok(Ok(Some(candidate))) => return Search::Found(candidate),
            Ok(Ok(None)) => return Search::Nothing,
            Ok(Err(error)) => error,
            Err(error) => return Search::Failed(format!("look for the config bundle: {error}")),
        };
        if *node.configuration.settled.borrow() || Instant::now() >= end {
            // A person can mend it, waiting cannot: the node opens itself to one.
            return Search::Absent(error);
        }
        node.config_misses.send_modify(|count| *count += 1);
        tokio::time::sleep(CARDS_INTERVAL).await;
    }
}

fn look(node: &Node) -> Result<Option<Candidate>, String> {
    let Some(device) = device(node) else { return Ok(None) };
    let name = device.display().to_string();
    let mut disk = Volume::open(&node.path(&name)).map_err(|error| format!("open {name}: {error}"))?;
    let bytes = disk.bytes().map_err(|error| format!("size of {name}: {error}"))?;
    let found = find(&mut disk, bytes).map_err(|error| format!("{PATH} of {name}: {error}"))?;
    let Some(file) = found else { return Ok(None) };
    let Some(key) = key(node)? else {
        return Err(format!(
            "{name} has a config bundle ({PATH}), and this system has no key to check it with: it was made without \
             `image build --config-key`, so no config of the bundle is taken; apply one"
        ));
    };
    take(&file, &key, &name, &own(&node.path("/sys")))
}

/// The one entry that is for this machine.
fn take(file: &[u8], key: &PublicKey, device: &str, own: &[Selector]) -> Result<Option<Candidate>, String> {
    let all = entries(file, key).map_err(|error| format!("{PATH} of {device}: {error}"))?;
    if all.is_empty() {
        // An image that nothing was added to.
        return Ok(None);
    }
    let found = matching(&all, own);
    let names = || own.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let (index, selector) = match found.as_slice() {
        [one] => *one,
        [] => {
            return Err(format!(
                "none of the {} configs in the bundle of {device} is for this machine ({}): add one to the image with \
                 `billetctl image add-config`, or apply one{}",
                all.len(),
                names(),
                tpm(&all)
            ));
        }
        several => {
            let list: Vec<String> =
                several.iter().map(|(index, selector)| format!("{} by {selector}", index + 1)).collect();
            return Err(format!(
                "several configs in the bundle of {device} are for this machine (entries {}): none is taken; give it one \
                 with `billetctl image add-config --replace`, naming both",
                list.join(", ")
            ));
        }
    };
    let origin =
        Origin::Bundle { device: device.to_owned(), entry: index + 1, selector: selector.to_string() };
    match all.get(index).map(|entry| entry.payload) {
        Some(Payload::Plain(text)) => {
            let text = text_of(text).map_err(|error| format!("{origin}: {error}"))?;
            Ok(Some(Candidate { origin, text }))
        }
        _ => Err(format!(
            "{origin} is sealed: this version has no key of the device's to open it with; add the config without sealing it"
        )),
    }
}

/// What keeps an entry from being found.
fn tpm(entries: &[ondisk::bundle::Entry<'_>]) -> &'static str {
    let mut all = entries.iter().flat_map(|entry| &entry.selectors);
    if all.any(|selector| matches!(selector, Selector::TpmKey(_))) {
        "; entries that name a TPM's key are passed over: this version does not read it"
    } else {
        ""
    }
}

/// The image's key, as init left it.
fn key(node: &Node) -> Result<Option<PublicKey>, String> {
    let kept = installer::system::kept_config_key(&node.path("/"));
    kept.map_err(|error| format!("{error} ({KEPT_KEY_PATH})"))
}

/// The disk or medium that this machine was started from; where that is neither, its installed disk.
fn device(node: &Node) -> Option<PathBuf> {
    let mounts = fs::read_to_string(node.path("/proc/self/mounts")).unwrap_or_default();
    // Of several installed disks none is this machine's.
    mounted(&mounts, MEDIUM).or_else(|| Some(node.system_disk()?.path))
}

fn mounted(mounts: &str, target: &str) -> Option<PathBuf> {
    let mut lines = mounts.lines().map(|line| line.split(' '));
    lines.find_map(|mut words| {
        let source = words.next()?;
        (words.next()? == target).then(|| PathBuf::from(source))
    })
}

/// What tells this machine from others: MACs of its cards, serial number and UUID of its firmware.
fn own(sys: &Path) -> Vec<Selector> {
    let text = |path: PathBuf| fs::read_to_string(path).ok();
    let links = fs::read_dir(sys.join("class/net")).into_iter().flatten().flatten();
    // What is made by software has no device behind it.
    let cards = links.map(|link| link.path()).filter(|link| link.join("device").exists());
    let macs = cards.filter_map(|card| Selector::mac(text(card.join("address"))?.trim()).ok());
    let dmi = |name: &str| text(sys.join("class/dmi/id").join(name));
    let serial = dmi("product_serial").and_then(|serial| Selector::serial(serial.trim()).ok());
    let uuid = dmi("product_uuid").and_then(|uuid| Selector::uuid(uuid.trim()).ok());
    let mut own: Vec<Selector> = macs.chain(serial).chain(uuid).collect();
    own.sort();
    own.dedup();
    own
}

#[cfg(test)]
mod tests {
    use installer::bundle::SigningKey;
    use ondisk::bundle::{Entry, blank};

    use super::*;

    fn key() -> SigningKey {
        let prefix =
            [0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20];
        SigningKey::from_pkcs8(&[&prefix[..], &[5; 32]].concat()).unwrap()
    }

    fn serial(text: &str) -> Selector {
        Selector::serial(text).unwrap()
    }

    fn entry<'t>((selector, payload): &(Selector, Payload<'t>)) -> Entry<'t> {
        Entry { selectors: vec![selector.clone()], payload: *payload }
    }

    /// What comes of a bundle with these entries on a machine with MAC 52:54:00:00:00:01 and serial A-1.
    fn taken(list: &[(Selector, Payload<'_>)]) -> Result<Option<(String, String)>, String> {
        let list: Vec<Entry<'_>> = list.iter().map(entry).collect();
        let file = key().sign(&list).unwrap();
        let own = [Selector::mac("52:54:00:00:00:01").unwrap(), serial("A-1")];
        let found = take(&file, &key().public(), "/dev/vda", &own)?;
        Ok(found.map(|candidate| (candidate.origin.to_string(), candidate.text.to_string())))
    }

    #[test]
    fn a_machine_takes_its_own_config_alone() {
        let (mine, other) = (Payload::Plain(b"mine\n"), Payload::Plain(b"other\n"));
        let (origin, text) = taken(&[(serial("B-2"), other), (serial("A-1"), mine)]).unwrap().unwrap();
        assert_eq!(
            (origin.as_str(), text.as_str()),
            ("entry 2 of the config bundle of /dev/vda, by serial A-1", "mine\n")
        );
        let error = taken(&[(serial("B-2"), other)]).unwrap_err();
        assert!(
            error.contains("none of the 1 configs") && error.contains("(MAC 52:54:00:00:00:01, serial A-1)"),
            "{error}"
        );
        let both = [(Selector::mac("52:54:00:00:00:01").unwrap(), other), (serial("A-1"), mine)];
        let error = taken(&both).unwrap_err();
        assert!(error.contains("entries 1 by MAC 52:54:00:00:00:01, 2 by serial A-1"), "{error}");
        let error = taken(&[(serial("A-1"), Payload::Sealed(b"?"))]).unwrap_err();
        assert!(error.contains("entry 1") && error.contains("is sealed"), "{error}");
        let tpm = Selector::tpm_key(&"ab".repeat(32)).unwrap();
        assert!(taken(&[(tpm, mine)]).unwrap_err().contains("TPM's key are passed over"));
    }

    #[test]
    fn nothing_is_taken_of_a_bundle_that_is_not_the_image_s() {
        let own = [serial("A-1")];
        let take = |file: &[u8]| take(file, &key().public(), "/dev/vda", &own).map(drop);
        assert_eq!(take(&blank(&key().public())), Ok(()));
        let error = take(&blank(&[1; 32])).unwrap_err();
        assert!(
            error.starts_with("EFI/billet/configs.bundle of /dev/vda: ") && error.contains("key"),
            "{error}"
        );
        let entry = Entry { selectors: own.to_vec(), payload: Payload::Plain(b"mine\n") };
        let mut file = key().sign(&[entry]).unwrap().to_vec();
        let at = file.len() - 70;
        file[at] ^= 1;
        assert!(take(&file).unwrap_err().contains("its signature is wrong"));
        assert!(take(&file[..at]).unwrap_err().contains("cut off"));
    }

    #[test]
    fn a_machine_is_told_by_cards_and_firmware() {
        let sys = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = sys.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        for (card, mac) in [("eth0", "52:54:00:00:00:02\n"), ("eth1", "52:54:00:00:00:01\n")] {
            write(&format!("class/net/{card}/address"), mac);
            write(&format!("class/net/{card}/device/uevent"), "");
        }
        write("class/net/lo/address", "00:00:00:00:00:00\n");
        write("class/net/bond0/address", "52:54:00:00:00:09\n");
        write("class/dmi/id/product_serial", "To be filled by O.E.M.\n");
        write("class/dmi/id/product_uuid", "4c4c4544-0039-3510-8059-b7c04f333231\n");
        let own: Vec<String> = own(sys.path()).iter().map(ToString::to_string).collect();
        let uuid = "UUID 4c4c4544-0039-3510-8059-b7c04f333231";
        assert_eq!(own, ["MAC 52:54:00:00:00:01", "MAC 52:54:00:00:00:02", uuid]);
    }

    #[test]
    fn the_medium_is_what_is_mounted_there() {
        let mounts = "proc /proc proc rw 0 0\n/dev/sr0 /run/billet/medium iso9660 ro 0 0\n";
        assert_eq!(mounted(mounts, MEDIUM), Some("/dev/sr0".into()));
        assert_eq!(mounted("", MEDIUM), None);
    }
}
