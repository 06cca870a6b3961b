//! The machine's TPM as a vault of `installer::encryption`.
//!
//! Owns: which registers are fixed and which are approved; the systems of the disk, which a new key is approved for;
//! `checkSecurebootStatusOnEnroll`; approving the system of an upgrade in a header's tokens.
//! Does not: run in machined itself: the process of `opening` has it.
//! Order of an upgrade: the tokens of both volumes, then the new UKI, see docs/decisions/0009.
//! Fails by: the sentence of `tpm::Error`; a machine without a TPM is one as well.

use std::fs;
use std::path::{Path, PathBuf};

use installer::device::{BlockDevice, Disk, apply};
use installer::encryption::Vault;
use installer::esp::Esp;
use installer::measured;
use ondisk::gpt::{self, Geometry};
use ondisk::luks2::{self, Id};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tpm::{Demand, Device, Pcrs, Sealed, Values};
use unlock::{KeyKind, SealedKey, Secret};

use super::random::random;
use crate::register;
use crate::secure_boot;

/// Where the config names none: what Secure Boot measured.
const USUAL: [u8; 1] = [7];
/// There where the machine has UEFI, whose stub is what measures a UKI.
const UEFI: &str = "/sys/firmware/efi";
const CLASS: &str = "/sys/class/block";
/// The setting of a key that was made under Secure Boot.
const NEEDS_SECURE_BOOT: &str = "checkSecurebootStatusOnEnroll";

/// The TPM, for a key of a volume.
#[derive(Debug)]
pub(super) struct TpmVault {
    /// Registers, as the config has them.
    pub(super) pcrs: Option<Vec<u8>>,
    /// Whether a key is only made under Secure Boot.
    pub(super) needs_secure_boot: bool,
    /// The partition, whose disk holds the systems that may open it.
    pub(super) device: PathBuf,
}

impl TpmVault {
    fn pcrs(&self) -> &[u8] {
        self.pcrs.as_deref().unwrap_or(&USUAL)
    }

    fn demand(&self, demands_config: bool) -> Result<Demand, String> {
        let set = |is_approved: bool| {
            let wanted = self.pcrs().iter().filter(|pcr| (**pcr == measured::PCR) == is_approved);
            let numbers: Vec<u8> = wanted.copied().collect();
            Pcrs::new(&numbers).ok_or_else(|| "a register is none of 0 to 23".to_owned())
        };
        let (fixed, approved) = (set(false)?, set(true)?);
        let systems = if approved == Pcrs::default() { Vec::new() } else { systems(&self.device) };
        let given = if demands_config { register::demanded() } else { Values::new() };
        Ok(Demand { fixed, given, approved, systems })
    }
}

impl Vault for TpmVault {
    fn settings(&self) -> Map<String, Value> {
        let mut pcrs = self.pcrs().to_vec();
        pcrs.sort_unstable();
        pcrs.dedup();
        let mut settings = Map::from_iter([("pcrs".to_owned(), json!(pcrs))]);
        if self.needs_secure_boot {
            settings.insert(NEEDS_SECURE_BOOT.to_owned(), Value::Bool(true));
        }
        settings
    }

    fn binds(&self) -> bool {
        true
    }

    fn seal(&self, key: &[u8], demands_config: bool) -> Result<Map<String, Value>, String> {
        if self.needs_secure_boot && !secure_boot::is_on(Path::new("/")) {
            return Err("failed to enroll the TPM2 key, as SecureBoot is disabled (and \
                        checkSecurebootStatusOnEnroll is enabled): turn it on in the firmware"
                .to_owned());
        }
        if self.pcrs().contains(&measured::PCR) && !Path::new(UEFI).exists() {
            return Err(
                "nothing measures register 11 on a machine without UEFI: leave it out of pcrs".to_owned()
            );
        }
        let demand = self.demand(demands_config)?;
        let sealed = tpm::seal_to(&mut open()?, key, &demand, &mut random);
        Ok(sealed.map_err(|error| told(&error))?.to_json())
    }

    fn unseal(&self, sealed: &SealedKey) -> Result<Secret, String> {
        let sealed = Sealed::from_json(&sealed.fields).map_err(|error| error.to_string())?;
        tpm::unseal(&mut open()?, &sealed, &mut random).map_err(|error| told(&error))
    }

    /// In a start with a config from outside a key for others does not come back. The same key without that demand does,
    /// if everything else is right.
    fn try_out(&self, sealed: &SealedKey, key: &[u8]) -> Result<Secret, String> {
        let is_met = |tpm: &mut Device| register::is_untouched(tpm).map_err(|error| told(&error));
        if !sealed.demands_config() || is_met(&mut open()?)? {
            return self.unseal(sealed);
        }
        let demand = self.demand(false)?;
        let without = tpm::seal_to(&mut open()?, key, &demand, &mut random).map_err(|error| told(&error))?;
        tpm::unseal(&mut open()?, &without, &mut random).map_err(|error| told(&error))
    }
}

/// Why a start with a config from outside has no use of a key that demands another one.
const FROM_OUTSIDE: &str = "the machine config of this start came from outside (PCR 15), and the key is for starts with one \
    from STATE or a signed image: ";
/// What helps, where the next start has one.
pub(super) const RESTART_FIRST: &str = "restart the machine first";

/// A TPM's refusal in words.
fn told(error: &tpm::Error) -> String {
    match error {
        tpm::Error::Changed(pcrs) if pcrs.as_slice() == [register::PCR] => {
            format!("{FROM_OUTSIDE}{RESTART_FIRST}")
        }
        other => other.to_string(),
    }
}

fn open() -> Result<Device, String> {
    crate::tpm_device::open(Path::new("/"))
}

/// What the systems on this partition's disk will measure. Nothing where there is no EFI system partition, or none of
/// its UKIs can be read: the key is then approved for the system that runs.
fn systems(partition: &Path) -> Vec<Values> {
    let found = disk_of(Path::new(CLASS), partition).and_then(|disk| {
        let mut disk = Disk::open_shared(&disk).ok()?;
        let geometry = Geometry::new(disk.sector_bytes(), disk.bytes()).ok()?;
        let table = gpt::read(&mut disk, geometry).ok()?.table;
        let esp = table.by_name("EFI")?;
        let (start, length) = (table.offset_bytes(esp), table.size_bytes(esp));
        let mut esp = Esp::new(&mut disk, start, length);
        let entries = esp.entries().ok()?;
        let measured = entries.into_iter().filter_map(|entry| measured::pcr_11(&esp.read(entry).ok()?).ok());
        Some(measured.map(values).collect())
    });
    found.unwrap_or_default()
}

fn values(pcr_11: [u8; 32]) -> Values {
    Values::from([(measured::PCR, pcr_11)])
}

/// `/dev/vda5` → `/dev/vda`
fn disk_of(class: &Path, partition: &Path) -> Option<PathBuf> {
    let directory = fs::canonicalize(class.join(partition.file_name()?)).ok()?;
    directory
        .join("partition")
        .exists()
        .then(|| Some(Path::new("/dev").join(directory.parent()?.file_name()?)))?
}

/// What became of approving a system for the slots of a header.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Approved {
    /// Slots whose key the new system has unsealed as well.
    pub(super) slots: Vec<u8>,
    /// Slots whose key it will not, and why.
    pub(super) failed: Vec<(u8, String)>,
    /// Whether other slots open the volume.
    pub(super) has_others: bool,
}

/// Approves the system that will measure this, for every key of the TPM in a header.
pub(super) fn approve(
    tpm: &mut dyn FnMut(&mut Sealed, &Values) -> Result<bool, String>,
    part: &mut dyn BlockDevice,
    pcr_11: [u8; 32],
) -> Result<Approved, String> {
    let mut header = luks2::read(&mut &mut *part).map_err(|error| error.to_string())?.header;
    let mut done = Approved::default();
    let slots: Vec<Id> = header.metadata.keyslots.keys().copied().collect();
    for slot in slots {
        let sealed = SealedKey::of(&header, slot.0);
        if sealed.as_ref().is_some_and(|key| key.kind == KeyKind::Recovery) {
            // Nobody may be there to type it when the new system starts.
            continue;
        }
        let Some(mut key) = sealed.filter(|key| key.kind == KeyKind::Tpm) else {
            done.has_others = true;
            continue;
        };
        let added =
            Sealed::from_json(&key.fields).map_err(|error| error.to_string()).and_then(|mut sealed| {
                let added = tpm(&mut sealed, &values(pcr_11))?;
                key.fields = sealed.to_json();
                Ok(added)
            });
        match added {
            Ok(true) => {
                let change =
                    header.with_token(slot, key.token_of(slot)).map_err(|error| error.to_string())?;
                apply(part, 0, &change.steps).map_err(|error| error.to_string())?;
                header = change.header;
                done.slots.push(slot.0);
            }
            // It does not depend on the system; or as much as any other key does.
            Ok(false) => done.has_others = true,
            Err(reason) => done.failed.push((slot.0, reason)),
        }
    }
    Ok(done)
}

/// The same with this machine's TPM.
pub(super) fn approve_here(part: &mut dyn BlockDevice, pcr_11: [u8; 32]) -> Result<Approved, String> {
    let mut ask = |sealed: &mut Sealed, values: &Values| {
        tpm::approve(&mut open()?, sealed, values, &mut random).map_err(|error| told(&error))
    };
    approve(&mut ask, part, pcr_11)
}

#[cfg(test)]
mod tests {
    use ondisk::luks2::{Cost, Format, NewSlot};

    use super::*;

    fn vault(pcrs: Option<&[u8]>) -> TpmVault {
        TpmVault { pcrs: pcrs.map(<[u8]>::to_vec), needs_secure_boot: true, device: "/dev/none9".into() }
    }

    #[test]
    fn register_11_is_approved_and_the_others_are_fixed() {
        let demand = vault(Some(&[7, 11, 14])).demand(false).unwrap();
        assert_eq!((Pcrs::new(&[7, 14]), Pcrs::new(&[11])), (Some(demand.fixed), Some(demand.approved)));
        let demand = vault(None).demand(false).unwrap();
        assert_eq!((Pcrs::new(&[7]), Pcrs::default()), (Some(demand.fixed), demand.approved));
        assert!(vault(Some(&[24])).demand(false).is_err());
        let settings = json!({ "pcrs": [7, 11], "checkSecurebootStatusOnEnroll": true });
        assert_eq!(Value::Object(vault(Some(&[11, 7, 7])).settings()), settings);
        let any = TpmVault { needs_secure_boot: false, ..vault(None) };
        assert_eq!(Value::Object(any.settings()), json!({ "pcrs": [7] }));
    }

    #[test]
    fn a_register_is_given_for_starts_with_an_authenticated_config() {
        let given = |demands_config| vault(None).demand(demands_config).unwrap().given;
        assert_eq!((given(true), given(false)), (Values::from([(15, [0; 32])]), Values::new()));
        let told = |pcrs: &[u8]| super::told(&tpm::Error::Changed(pcrs.to_vec()));
        assert_eq!(
            told(&[15]),
            "the machine config of this start came from outside (PCR 15), and the key is for starts with one from STATE or \
             a signed image: restart the machine first"
        );
        assert_eq!(told(&[7, 15]), "PCRs 7 and 15 changed since the key was sealed");
    }

    #[test]
    fn a_key_that_wants_secure_boot_is_not_made_without() {
        if !secure_boot::is_on(Path::new("/")) {
            let error = vault(None).seal(&[1; 32], true).unwrap_err();
            assert!(error.starts_with("failed to enroll the TPM2 key, as SecureBoot is disabled"), "{error}");
        }
    }

    #[test]
    fn a_partitions_disk_is_known_from_the_kernels_directories() {
        let dir = tempfile::tempdir().unwrap();
        let (class, disk) = (dir.path().join("class"), dir.path().join("devices/nvme0n1"));
        fs::create_dir_all(disk.join("nvme0n1p5")).unwrap();
        fs::create_dir(&class).unwrap();
        fs::write(disk.join("nvme0n1p5/partition"), "5\n").unwrap();
        for (name, target) in [("nvme0n1p5", disk.join("nvme0n1p5")), ("nvme0n1", disk.clone())] {
            std::os::unix::fs::symlink(target, class.join(name)).unwrap();
        }
        let found = disk_of(&class, Path::new("/dev/nvme0n1p5"));
        assert_eq!(found.as_deref(), Some(Path::new("/dev/nvme0n1")));
        assert_eq!(disk_of(&class, Path::new("/dev/nvme0n1")), None);
    }

    /// A header with a key of the TPM in slot 0, and another's in slot 2.
    fn volume(path: &Path) -> Disk {
        let name = "A".repeat(44) + "AA==";
        let fields = json!({ "storageKey": name, "public": "", "private": "", "pcrs": {}, "signed": null });
        let fields = fields.as_object().cloned().unwrap();
        let token = SealedKey { kind: KeyKind::Tpm, settings: None, fields }.token().unwrap();
        let slot =
            |id, token| NewSlot { slot: Some(Id(id)), passphrase: b"x", cost: Cost::Pbkdf2(1000), token };
        let format = Format::new("0e1f2a3b-4c5d-6e7f-8091-a2b3c4d5e6f7", 512);
        let slots = [slot(0, Some(&token)), slot(2, None)];
        let change = format.make(&[1; 64], &slots, &mut random).unwrap();
        fs::File::create(path).unwrap().set_len(17 << 20).unwrap();
        let mut disk = Disk::open_shared(path).unwrap();
        apply(&mut disk, 0, &change.steps).unwrap();
        disk
    }

    #[test]
    fn an_approval_is_in_the_token_and_what_fails_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let mut disk = volume(&dir.path().join("volume.img"));
        let refuse = |_: &mut Sealed, _: &Values| Err("PCR 7 changed".to_owned());
        let failed = vec![(0, "PCR 7 changed".to_owned())];
        let expected = Approved { slots: Vec::new(), failed, has_others: true };
        assert_eq!(approve(&mut { refuse }, &mut disk, [5; 32]), Ok(expected));
        let add = |sealed: &mut Sealed, values: &Values| {
            sealed.policy.values.extend(values.clone());
            Ok(true)
        };
        let expected = Approved { slots: vec![0], failed: Vec::new(), has_others: true };
        assert_eq!(approve(&mut { add }, &mut disk, [5; 32]), Ok(expected));
        let header = luks2::read(&mut disk).unwrap().header;
        let key = SealedKey::of(&header, 0).unwrap();
        assert_eq!(Sealed::from_json(&key.fields).unwrap().policy.values, values([5; 32]));
        assert_eq!(header.metadata.tokens.len(), 1);
    }
}
