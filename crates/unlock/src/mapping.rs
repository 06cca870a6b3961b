//! The device over an open volume.
//!
//! Owns: names, the mapping's parameters from header and config, the link below /dev/mapper, which nobody else makes on
//! a node.
//! Does not: mount.
//! Fails by: naming the mapping, the device and the kernel's error.

use alloc::format;
use alloc::string::{String, ToString};
use core::fmt;

use ondisk::luks2::{Cipher, Mapping};
use sys::Errno;
use sys::crypt::{Crypt, Switches};
use sys::dm::Mapped;
use sys::errno::Described;

/// For AES in XTS mode: the fast ciphers of each architecture, the mode and what it is made of.
const AES_XTS: &[&str] = &["aesni_intel", "aes_ce_blk", "aes_neon_bs", "ecb", "xts", TARGET];
/// For Adiantum: its ciphers and hashes, by the names of older and newer kernels and of each architecture, and what makes
/// one of them.
const ADIANTUM: &[&str] = &[
    "aesni_intel",
    "aes_ce_blk",
    "chacha_x86_64",
    "chacha_neon",
    "chacha_generic",
    "chacha",
    "nhpoly1305",
    "nhpoly1305_avx2",
    "nhpoly1305_sse2",
    "nhpoly1305_neon",
    "adiantum",
    TARGET,
];
/// The one that no mapping does without.
const TARGET: &str = "dm_crypt";

/// Kernel modules that a mapping needs, in their order, the target last. The others a kernel may have built in, and a
/// processor may not have what the fast ones take. Nothing on a node loads them when the kernel asks for them by name.
#[must_use]
pub fn modules(cipher: &str) -> &'static [&'static str] {
    match Cipher::named(cipher) {
        Some(Cipher::Adiantum12 | Cipher::Adiantum20) => ADIANTUM,
        Some(Cipher::AesXts) | None => AES_XTS,
    }
}

/// The kernel's sector, which offsets and lengths of mappings count in.
const SECTOR_BYTES: u64 = 512;

/// What a volume's mapping is called: `luks2-STATE`.
#[must_use]
pub fn mapping_name(volume: &str) -> String {
    format!("luks2-{volume}")
}

/// A mapping to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// `luks2-STATE`
    pub name: String,
    /// The mapping's UUID: of the volume, and the name.
    pub uuid: String,
    /// Device below.
    pub device: String,
    /// Where the data begins and how it is encrypted.
    pub mapping: Mapping,
    /// Length of the volume key in bytes.
    pub key_bytes: usize,
    /// Length of the data, in sectors of 512 bytes.
    pub length_sectors: u64,
    /// Switches, of header and config together.
    pub switches: Switches,
}

/// Why there is no mapping.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MapError {
    /// The device ends before the data does, or the data is no whole number of sectors.
    Length {
        /// The device.
        device: String,
        /// Its length in bytes.
        device_bytes: u64,
    },
    /// The kernel refused.
    Kernel {
        /// The mapping.
        name: String,
        /// The device below.
        device: String,
        /// Its answer.
        errno: Errno,
    },
}

impl fmt::Display for MapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length { device, device_bytes } => {
                write!(
                    f,
                    "{device} with its {device_bytes} bytes does not hold the data that its header states"
                )
            }
            Self::Kernel { name, device, errno } => {
                write!(f, "map {device} as {name}: {}", Described(*errno))
            }
        }
    }
}

impl core::error::Error for MapError {}

impl Plan {
    /// What an opened volume on a device of this length is to become. `options` are the config's, by their names there.
    pub fn new(
        volume: &str,
        header_uuid: &str,
        device: &str,
        device_bytes: u64,
        opened: &crate::Opened,
        options: &[String],
    ) -> Result<Self, MapError> {
        let mapping = opened.mapping.clone();
        let length = mapping.length.or_else(|| device_bytes.checked_sub(mapping.offset)).unwrap_or(0);
        let end = mapping.offset.checked_add(length);
        let sector = u64::from(mapping.sector_size).max(SECTOR_BYTES);
        if length == 0 || end.is_none_or(|end| end > device_bytes) || !length.is_multiple_of(sector) {
            return Err(MapError::Length { device: device.into(), device_bytes });
        }
        let name = mapping_name(volume);
        Ok(Self {
            uuid: format!("CRYPT-LUKS2-{}-{name}", header_uuid.replace('-', "")),
            name,
            device: device.to_string(),
            key_bytes: opened.key.len(),
            length_sectors: length / SECTOR_BYTES,
            switches: switches(&mapping.flags, options),
            mapping,
        })
    }

    /// For dm-crypt.
    #[must_use]
    pub fn crypt(&self) -> Crypt<'_> {
        Crypt {
            cipher: &self.mapping.cipher,
            key_bytes: self.key_bytes,
            device: &self.device,
            offset_sectors: self.mapping.offset / SECTOR_BYTES,
            length_sectors: self.length_sectors,
            iv_offset: self.mapping.iv_offset,
            sector_size: self.mapping.sector_size,
            switches: self.switches,
        }
    }

    /// Path of the mapped device.
    #[must_use]
    pub fn path(&self) -> String {
        path(&self.name)
    }

    /// Makes the mapping and its link.
    pub fn make(&self, key: &[u8]) -> Result<Mapped, MapError> {
        self.create(key).map_err(|errno| MapError::Kernel {
            name: self.name.clone(),
            device: self.device.clone(),
            errno,
        })
    }

    /// The same, with the kernel's bare answer.
    pub fn create(&self, key: &[u8]) -> Result<Mapped, Errno> {
        let control = sys::dm::control()?;
        let mapped = sys::crypt::create(&control, &self.name, &self.uuid, false, &self.crypt(), key)?;
        let link = sys::fs::make_link(&self.path(), &format!("../dm-{}", mapped.minor));
        if let Err(errno) = link {
            let _ = sys::dm::remove(&control, &self.name, false);
            return Err(errno);
        }
        Ok(mapped)
    }
}

/// Takes a mapping away, and the volume key out of the kernel with it.
pub fn remove(name: &str) -> Result<(), Errno> {
    sys::dm::remove(sys::dm::control()?, name, false)?;
    match sys::fs::remove_file(&path(name)) {
        Err(Errno::NOENT) => Ok(()),
        other => other,
    }
}

fn path(name: &str) -> String {
    format!("/dev/mapper/{name}")
}

/// Headers spell switches with dashes, configs with underscores.
fn switches(flags: &[String], options: &[String]) -> Switches {
    let on = |name: &str| {
        let is = |other: &String| other.replace('-', "_") == name;
        flags.iter().any(is) || options.iter().any(is)
    };
    Switches {
        allow_discards: on("allow_discards"),
        same_cpu_crypt: on("same_cpu_crypt"),
        submit_from_crypt_cpus: on("submit_from_crypt_cpus"),
        no_read_workqueue: on("no_read_workqueue"),
        no_write_workqueue: on("no_write_workqueue"),
        iv_large_sectors: false,
    }
}

#[cfg(test)]
mod tests {
    use zeroize::Zeroizing;

    use super::*;
    use crate::{KeyKind, Opened};

    fn opened(length: Option<u64>) -> Opened {
        let mapping = Mapping {
            cipher: "aes-xts-plain64".into(),
            offset: 16 << 20,
            length,
            iv_offset: 0,
            sector_size: 4096,
            flags: vec!["allow-discards".into(), "no-journal".into()],
        };
        Opened { slot: 0, kind: KeyKind::NodeId, key: Zeroizing::new(vec![1; 64]), mapping }
    }

    fn plan(length: Option<u64>, device_bytes: u64) -> Result<Plan, MapError> {
        let options = ["no_read_workqueue".to_string()];
        let uuid = "0e1f2a3b-4c5d-6e7f-8091-a2b3c4d5e6f7";
        Plan::new("STATE", uuid, "/dev/vda5", device_bytes, &opened(length), &options)
    }

    #[test]
    fn a_plan_names_volume_and_switches() {
        let plan = plan(None, 336 << 20).unwrap();
        assert_eq!(plan.path(), "/dev/mapper/luks2-STATE");
        assert_eq!(plan.uuid, "CRYPT-LUKS2-0e1f2a3b4c5d6e7f8091a2b3c4d5e6f7-luks2-STATE");
        let target = plan.crypt().target("billet:luks2-STATE");
        assert_eq!(target.length_sectors, (320 << 20) / 512);
        assert_eq!(
            target.parameters,
            "aes-xts-plain64 :64:logon:billet:luks2-STATE 0 /dev/vda5 32768 3 allow_discards no_read_workqueue \
             sector_size:4096"
        );
    }

    #[test]
    fn each_cipher_has_its_modules_and_the_target_last() {
        for cipher in Cipher::ALL {
            assert_eq!(modules(cipher.name()).last(), Some(&TARGET));
        }
        assert!(modules("xchacha12,aes-adiantum-plain64").contains(&"adiantum"));
        assert_eq!(modules(""), modules("aes-xts-plain64"));
    }

    #[test]
    fn data_that_does_not_fit_is_refused() {
        for (length, device) in [
            (None, 16 << 20),
            (None, 1),
            (Some(4096), 16 << 20),
            (Some(u64::MAX), 1 << 30),
            (None, (17 << 20) + 512),
        ] {
            let error = plan(length, device).unwrap_err();
            assert!(error.to_string().contains("/dev/vda5"), "{error}");
        }
        assert_eq!(plan(Some(8192), 17 << 20).unwrap().length_sectors, 16);
    }
}
