//! Network cards: which, and up or down.
//!
//! Owns: the choice (`ip=` before `BOOTIF=` before any with a carrier), and every setting of a card that is changed, with
//! what it was before.
//! Does not: wait for a card longer than for any other device.
//! Source: Documentation/ABI/testing/sysfs-class-net; netdevice(7) for the flags; ip-sysctl.rst (`disable_ipv6`).

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::boot::Boot;
use crate::cmdline::Network;
use crate::events;
use crate::failure::Failure;
use crate::kernel::{Kernel, Merging};

const FOLDER: &str = "/sys/class/net";

/// ARPHRD_ETHER in `type`.
const ETHERNET: &str = "1";

/// IFF_UP in `flags`.
const UP: u32 = 1;

/// IFF_PROMISC in `flags`.
const PROMISCUOUS: u32 = 0x100;

/// Auto-negotiation takes some seconds, a switch that starts with the machine a minute.
const CARRIER_LIMIT_NS: u64 = 60 * 1_000_000_000;

/// A carrier is no device event.
const LOOK_AGAIN_NS: u64 = 100 * 1_000_000;

/// A card that was brought up.
#[derive(Debug)]
pub(super) struct Card {
    /// `eth0`
    pub(super) name: String,
    pub(super) mac: [u8; 6],
    flags: u32,
    /// IPv6 was on, and was turned off.
    ipv6: bool,
    merging: Option<Merging>,
}

/// Brings up the cards in question and waits until one has a carrier.
pub(super) fn raise(boot: &mut Boot<'_>) -> Result<(), Failure> {
    if boot.modules.knows("af_packet")
        && let Err(failure) = boot.modules.load(boot.kernel, "af_packet")
    {
        boot.warn(&failure.to_string());
    }
    let names = choose(boot)?;
    // Cards drop frames of VLANs that the kernel's own network has not asked for, and it has asked for none.
    let tagged = boot.parameters.network.vlan.is_some();
    let up = if tagged { UP | PROMISCUOUS } else { UP };
    for name in &names {
        let card = Card::raise(boot.kernel, name, up)?;
        boot.network.cards.push(card);
    }
    let deadline = boot.kernel.now_ns() + CARRIER_LIMIT_NS;
    while !boot.network.cards.iter().any(|card| card.has_carrier(boot.kernel)) {
        let now = boot.kernel.now_ns();
        if now >= deadline {
            let seconds = CARRIER_LIMIT_NS / 1_000_000_000;
            let reason = format!("none after {seconds} s; plug in a cable, or name another card in ip=");
            return Err(Failure::reason("wait for a carrier on", &names.join(", "), reason));
        }
        let until = (now + LOOK_AGAIN_NS).min(deadline);
        boot.kernel.wait(Some(until), false).map_err(Failure::at("wait for", "a carrier"))?;
        boot.watchdog.feed(boot.kernel);
        events::drain(boot);
    }
    Ok(())
}

/// Names of the cards that may be used.
fn choose(boot: &mut Boot<'_>) -> Result<Vec<String>, Failure> {
    let all = events::wait_for(boot, "a network card with a driver", |boot| {
        let names = cards(boot.kernel);
        Ok((!names.is_empty()).then_some(names))
    })?;
    let wanted = boot.parameters.network.clone();
    let picked = pick(boot.kernel, &wanted, &all);
    if !picked.is_empty() && (wanted.mac.is_some() || !wanted.cards.is_empty()) {
        return Ok(picked);
    }
    // One that has not shown itself yet may be the right one.
    events::wait_until_quiet(boot)?;
    let all = cards(boot.kernel);
    let picked = pick(boot.kernel, &wanted, &all);
    if !picked.is_empty() {
        return Ok(picked);
    }
    let word = if wanted.cards.is_empty() { "BOOTIF=" } else { "ip=" };
    let nameless = Network { cards: Vec::new(), ..wanted };
    let picked = pick(boot.kernel, &nameless, &all);
    let tried = if picked.is_empty() { all } else { picked };
    boot.warn(&format!("there is no card that {word} names; tried are {}", tried.join(", ")));
    Ok(tried)
}

/// Those of these that are wanted. What `ip=` names is somebody's word, and `BOOTIF=` that of every script: of the cards of a
/// bond it is the one that something came by already.
fn pick(kernel: &mut dyn Kernel, wanted: &Network, all: &[String]) -> Vec<String> {
    let is_named = |name: &&String| wanted.cards.is_empty() || wanted.cards.contains(name);
    let named: Vec<String> = all.iter().filter(is_named).cloned().collect();
    let Some(mac) = wanted.mac else { return named };
    let is_booted = |name: &&String| address(kernel, name) == Some(mac);
    let booted: Vec<String> = named.iter().filter(is_booted).cloned().collect();
    if booted.is_empty() && !wanted.cards.is_empty() { named } else { booted }
}

/// Ethernet with hardware behind it: neither the loopback nor what software made.
fn cards(kernel: &mut dyn Kernel) -> Vec<String> {
    let mut names = kernel.list(FOLDER).unwrap_or_default();
    names.retain(|name| {
        text(kernel, name, "type").as_deref() == Some(ETHERNET)
            && kernel.status(&format!("{FOLDER}/{name}/device")).is_ok()
    });
    names
}

impl Card {
    /// Sets these flags too. IPv6 first: a card that comes up with it makes itself an address.
    fn raise(kernel: &mut dyn Kernel, name: &str, up: u32) -> Result<Self, Failure> {
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
    pub(super) fn has_carrier(&self, kernel: &mut dyn Kernel) -> bool {
        text(kernel, &self.name, "carrier").as_deref() == Some("1")
    }

    /// Opens it for frames, which are to come as they were sent. A card that merges them all the same is only slower
    /// to understand.
    pub(super) fn open(&mut self, kernel: &mut dyn Kernel) -> Result<(), Failure> {
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
    pub(super) fn restore(self, kernel: &mut dyn Kernel) -> Vec<Failure> {
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
    let path = format!("{FOLDER}/{name}/flags");
    kernel.write(&path, format!("{flags:#x}").as_bytes()).map_err(Failure::at("write", &path))
}

/// A file of a card, without its line end.
fn text(kernel: &mut dyn Kernel, name: &str, file: &str) -> Option<String> {
    let bytes = kernel.read(&format!("{FOLDER}/{name}/{file}"), 4096).ok()?;
    Some(core::str::from_utf8(&bytes).ok()?.trim().to_string())
}

/// `0x1003`
fn hexadecimal(text: &str) -> Option<u32> {
    u32::from_str_radix(text.strip_prefix("0x")?, 16).ok()
}

/// `52:54:00:12:34:56`
fn address(kernel: &mut dyn Kernel, name: &str) -> Option<[u8; 6]> {
    let text = text(kernel, name, "address")?;
    let bytes: Vec<u8> = text.split(':').map(|p| u8::from_str_radix(p, 16).ok()).collect::<Option<_>>()?;
    bytes.try_into().ok()
}
