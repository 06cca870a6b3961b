//! Which network cards are used, and bringing them up.
//!
//! Owns: the choice: `ip=` before `BOOTIF=` before any with a carrier.
//! Does not: wait for a card longer than for any other device; know what of a card is changed ([`crate::card`]).
//! Source: netdevice(7) for the flags.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::boot::Boot;
use crate::card::{self, Card};
use crate::cmdline::Network;
use crate::events;
use crate::failure::Failure;
use crate::kernel::Kernel;

/// IFF_UP in `flags`.
const UP: u32 = 1;

/// IFF_PROMISC in `flags`.
const PROMISCUOUS: u32 = 0x100;

/// Auto-negotiation takes some seconds, a switch that starts with the machine a minute.
const CARRIER_LIMIT_NS: u64 = 60 * 1_000_000_000;

/// A carrier is no device event.
const LOOK_AGAIN_NS: u64 = 100 * 1_000_000;

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
        let names = card::ethernet(boot.kernel);
        Ok((!names.is_empty()).then_some(names))
    })?;
    let wanted = boot.parameters.network.clone();
    let picked = pick(boot.kernel, &wanted, &all);
    if !picked.is_empty() && (wanted.mac.is_some() || !wanted.cards.is_empty()) {
        return Ok(picked);
    }
    // One that has not shown itself yet may be the right one.
    events::wait_until_quiet(boot)?;
    let all = card::ethernet(boot.kernel);
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
    let is_booted = |name: &&String| card::address(kernel, name) == Some(mac);
    let booted: Vec<String> = named.iter().filter(is_booted).cloned().collect();
    if booted.is_empty() && !wanted.cards.is_empty() { named } else { booted }
}
