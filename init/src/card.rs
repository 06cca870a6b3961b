//! A network card that init uses: what it is, up and down, and as it was.
//!
//! Owns: every setting of a card that is changed, with what it was before.
//! Does not: choose one.
//! Source: Documentation/ABI/testing/sysfs-class-net; netdevice(7) for the flags; ip-sysctl.rst (`disable_ipv6`).

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::failure::Failure;
use crate::kernel::{Kernel, Merging};

const CARDS: &str = "/sys/class/net";

/// ARPHRD_ETHER in `type`.
const ETHERNET: &str = "1";

/// A card that was brought up.
#[derive(Debug)]
pub(crate) struct Card {
    /// `eth0`
    pub(crate) name: String,
    pub(crate) mac: [u8; 6],
    flags: u32,
    /// IPv6 was on, and was turned off.
    ipv6: bool,
    merging: Option<Merging>,
}

/// Names of those of Ethernet with hardware behind them: neither the loopback nor what software made.
pub(crate) fn ethernet(kernel: &mut dyn Kernel) -> Vec<String> {
    let mut names = kernel.list(CARDS).unwrap_or_default();
    names.retain(|name| {
        text(kernel, name, "type").as_deref() == Some(ETHERNET)
            && kernel.status(&format!("{CARDS}/{name}/device")).is_ok()
    });
    names
}

impl Card {
    /// Sets these flags too. IPv6 first: a card that comes up with it makes itself an address.
    pub(crate) fn raise(kernel: &mut dyn Kernel, name: &str, up: u32) -> Result<Self, Failure> {
        let failure = |what: &str| Failure::reason("read network card", name, format!("has no {what}"));
        let mac = address(kernel, name).ok_or_else(|| failure("address"))?;
        let flags = text(kernel, name, "flags").and_then(|text| hexadecimal(&text));
        let flags = flags.ok_or_else(|| failure("flags"))?;
        let path = ipv6_path(name);
        // A kernel without IPv6 has no such file.
        let ipv6 = kernel.read(&path, 16).is_ok_and(|value| value.starts_with(b"0"));
        if ipv6 {
            kernel.write(&path, b"1").map_err(Failure::at("write", &path))?;
        }
        set_flags(kernel, name, flags | up)?;
        Ok(Self { name: name.to_string(), mac, flags, ipv6, merging: None })
    }

    /// A card that is down does not say.
    pub(crate) fn has_carrier(&self, kernel: &mut dyn Kernel) -> bool {
        text(kernel, &self.name, "carrier").as_deref() == Some("1")
    }

    /// Opens it for frames, which are to come as they were sent. A card that merges them all the same is only slower
    /// to understand.
    pub(crate) fn open(&mut self, kernel: &mut dyn Kernel) -> Result<(), Failure> {
        if let Ok(before) = kernel.merging(&self.name)
            && kernel.set_merging(&self.name, Merging { kernel: false, card: false }).is_ok()
        {
            self.merging = Some(before);
        }
        let index = text(kernel, &self.name, "ifindex").and_then(|text| text.parse().ok());
        let index = index.ok_or_else(|| Failure::reason("read network card", &self.name, "has no number"))?;
        kernel.open_frames(index).map_err(Failure::at("open packet socket on", &self.name))
    }

    /// Everything as it was; what could not be is returned.
    pub(crate) fn restore(self, kernel: &mut dyn Kernel) -> Vec<Failure> {
        let mut failures = Vec::new();
        failures.extend(set_flags(kernel, &self.name, self.flags).err());
        if let Some(before) = self.merging {
            let restored = kernel.set_merging(&self.name, before);
            failures.extend(restored.map_err(Failure::at("restore merging of", &self.name)).err());
        }
        if self.ipv6 {
            let path = ipv6_path(&self.name);
            failures.extend(kernel.write(&path, b"0").map_err(Failure::at("write", &path)).err());
        }
        failures
    }
}

fn ipv6_path(name: &str) -> String {
    format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6")
}

fn set_flags(kernel: &mut dyn Kernel, name: &str, flags: u32) -> Result<(), Failure> {
    let path = format!("{CARDS}/{name}/flags");
    kernel.write(&path, format!("{flags:#x}").as_bytes()).map_err(Failure::at("write", &path))
}

/// A file of a card, without its line end.
fn text(kernel: &mut dyn Kernel, name: &str, file: &str) -> Option<String> {
    let bytes = kernel.read(&format!("{CARDS}/{name}/{file}"), 4096).ok()?;
    Some(core::str::from_utf8(&bytes).ok()?.trim().to_string())
}

/// `0x1003`
fn hexadecimal(text: &str) -> Option<u32> {
    u32::from_str_radix(text.strip_prefix("0x")?, 16).ok()
}

/// `52:54:00:12:34:56`, as its file has it.
pub(crate) fn address(kernel: &mut dyn Kernel, name: &str) -> Option<[u8; 6]> {
    let text = text(kernel, name, "address")?;
    let bytes: Vec<u8> = text.split(':').map(|p| u8::from_str_radix(p, 16).ok()).collect::<Option<_>>()?;
    bytes.try_into().ok()
}
