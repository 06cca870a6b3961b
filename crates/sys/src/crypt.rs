//! Encrypted mappings: dm-crypt.
//!
//! Owns: the target's parameters as text, and the volume key's way into the kernel: through a key of the calling
//! thread that is gone once the table is loaded, never through the table.
//! Does not: read headers, derive keys, or know where a volume comes from.
//! Fails by: `EINVAL` of the kernel for a cipher, key length or sector size that it does not take, `ENOKEY` where key
//! and table do not meet.
//! Source: Documentation/admin-guide/device-mapper/dm-crypt.rst.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use rustix::fd::AsFd;

use crate::dm::{self, Mapped, Target};
use crate::{Result, keyring};

/// dm-crypt counts in these, whatever it encrypts together.
const SECTOR_BYTES: u32 = 512;

/// What is mapped, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Crypt<'a> {
    /// As the kernel names it: `aes-xts-plain64`.
    pub cipher: &'a str,
    /// Length of the volume key in bytes.
    pub key_bytes: usize,
    /// Device below.
    pub device: &'a str,
    /// Where the data begins on it, in sectors of 512 bytes.
    pub offset_sectors: u64,
    /// Length of the data, in sectors of 512 bytes.
    pub length_sectors: u64,
    /// Added to a sector's number for its initialisation vector.
    pub iv_offset: u64,
    /// Bytes that are encrypted together: 512 to 4096.
    pub sector_size: u32,
    /// Switches.
    pub switches: Switches,
}

/// Switches of a mapping.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Switches {
    /// Discards reach the device, which then shows what is free.
    pub allow_discards: bool,
    /// Encrypt on the processor of the request.
    pub same_cpu_crypt: bool,
    /// Submit writes from the threads that encrypt.
    pub submit_from_crypt_cpus: bool,
    /// Decrypt in the reading thread.
    pub no_read_workqueue: bool,
    /// Encrypt in the writing thread.
    pub no_write_workqueue: bool,
    /// Initialisation vectors count sectors of `sector_size`. LUKS2 never does that.
    pub iv_large_sectors: bool,
}

impl Crypt<'_> {
    /// The line of the table, with the key by its description.
    #[must_use]
    pub fn target(&self, key_description: &str) -> Target {
        let Self { cipher, key_bytes, device, offset_sectors, iv_offset, .. } = self;
        let options = self.options();
        let options = if options.is_empty() {
            String::new()
        } else {
            format!(" {} {}", options.len(), options.join(" "))
        };
        let key = format!(":{key_bytes}:logon:{key_description}");
        Target {
            start_sectors: 0,
            length_sectors: self.length_sectors,
            kind: "crypt",
            parameters: format!("{cipher} {key} {iv_offset} {device} {offset_sectors}{options}"),
        }
    }

    fn options(&self) -> Vec<String> {
        let on = self.switches;
        let switches = [
            (on.allow_discards, "allow_discards"),
            (on.same_cpu_crypt, "same_cpu_crypt"),
            (on.submit_from_crypt_cpus, "submit_from_crypt_cpus"),
            (on.no_read_workqueue, "no_read_workqueue"),
            (on.no_write_workqueue, "no_write_workqueue"),
            (on.iv_large_sectors, "iv_large_sectors"),
        ];
        let mut options: Vec<String> =
            switches.into_iter().filter(|(on, _)| *on).map(|(_, name)| String::from(name)).collect();
        if self.sector_size != SECTOR_BYTES {
            options.push(format!("sector_size:{}", self.sector_size));
        }
        options
    }
}

/// Makes a live mapping. `name` names its key too, while that is needed.
pub fn create<Fd: AsFd>(
    control: Fd,
    name: &str,
    uuid: &str,
    read_only: bool,
    crypt: &Crypt<'_>,
    key: &[u8],
) -> Result<Mapped> {
    let description = format!("billet:{name}");
    // The kernel copies the key when the table is loaded; it is revoked at the end of this function, done or not.
    let _key = keyring::add_logon(&description, key)?;
    dm::create(control, name, uuid, read_only, &[crypt.target(&description)])
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Crypt<'_> = Crypt {
        cipher: "aes-xts-plain64",
        key_bytes: 64,
        device: "/dev/vda5",
        offset_sectors: 32768,
        length_sectors: 655_360,
        iv_offset: 0,
        sector_size: 512,
        switches: Switches {
            allow_discards: false,
            same_cpu_crypt: false,
            submit_from_crypt_cpus: false,
            no_read_workqueue: false,
            no_write_workqueue: false,
            iv_large_sectors: false,
        },
    };

    #[test]
    fn a_table_names_the_key_and_holds_none() {
        let target = PLAIN.target("billet:luks2-STATE");
        assert_eq!((target.kind, target.start_sectors, target.length_sectors), ("crypt", 0, 655_360));
        assert_eq!(target.parameters, "aes-xts-plain64 :64:logon:billet:luks2-STATE 0 /dev/vda5 32768");
    }

    #[test]
    fn options_are_counted() {
        let switches = Switches { allow_discards: true, no_read_workqueue: true, ..Switches::default() };
        let target = Crypt { sector_size: 4096, iv_offset: 8, switches, ..PLAIN }.target("billet:x");
        assert_eq!(
            target.parameters,
            "aes-xts-plain64 :64:logon:billet:x 8 /dev/vda5 32768 3 allow_discards no_read_workqueue \
             sector_size:4096"
        );
        let all = Switches {
            allow_discards: true,
            same_cpu_crypt: true,
            submit_from_crypt_cpus: true,
            no_read_workqueue: true,
            no_write_workqueue: true,
            iv_large_sectors: true,
        };
        let target = Crypt { switches: all, ..PLAIN }.target("billet:x");
        assert!(target.parameters.ends_with(
            " 6 allow_discards same_cpu_crypt submit_from_crypt_cpus no_read_workqueue no_write_workqueue \
             iv_large_sectors"
        ));
    }
}
