//! Values that YAML writes as one text and the binary form as bytes or numbers.

use std::net::IpAddr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::Fault;

/// Names of interface flags, bit by bit from the lowest (linux/if.h).
const INTERFACE_FLAGS: [&str; 19] = [
    "UP",
    "BROADCAST",
    "DEBUG",
    "LOOPBACK",
    "POINTTOPOINT",
    "NOTRAILERS",
    "RUNNING",
    "NOARP",
    "PROMISC",
    "ALLMULTI",
    "MASTER",
    "SLAVE",
    "MULTICAST",
    "PORTSEL",
    "AUTOMEDIA",
    "DYNAMIC",
    "LOWER_UP",
    "DORMANT",
    "ECHO",
];

/// The enum that names the bits of a field whose number is written as words; empty: interface flags.
pub(super) fn flags_of(message: &str, key: &str) -> Option<&'static str> {
    match (message, key) {
        ("network.LinkStatusSpec", "flags") => Some(""),
        ("network.AddressStatusSpec" | "network.AddressSpecSpec", "flags") => {
            Some(".talos.resource.definitions.enums.NethelpersAddressFlag")
        }
        ("network.RouteStatusSpec" | "network.RouteSpecSpec", "flags") => {
            Some(".talos.resource.definitions.enums.NethelpersRouteFlag")
        }
        _ => None,
    }
}

/// The words of interface flags (linux/if.h), as clients read them: `UP,BROADCAST`.
pub fn interface_flags(bits: u32) -> String {
    let set = INTERFACE_FLAGS.iter().enumerate().filter(|(bit, _)| bits >> bit & 1 == 1);
    set.map(|(_, name)| *name).collect::<Vec<_>>().join(",")
}

pub(super) fn interface_flag(word: &str) -> Result<u64, Fault> {
    let bit = INTERFACE_FLAGS.iter().position(|name| name.eq_ignore_ascii_case(word));
    let bit = bit.ok_or_else(|| Fault::UnknownWord(word.to_owned(), "interface flags".to_owned()))?;
    Ok(1 << bit)
}

/// A hardware address, or base64.
pub(super) fn bytes(text: &str) -> Result<Vec<u8>, Fault> {
    let hex = |part: &str| (part.len() == 2).then(|| u8::from_str_radix(part, 16).ok()).flatten();
    if text.contains(':') {
        let parts: Option<Vec<u8>> = text.split(':').map(hex).collect();
        return parts.ok_or_else(|| shape("a hardware address", text));
    }
    STANDARD.decode(text).map_err(|_| shape("base64", text))
}

/// `addr`, as its 4 or 16 bytes. A zone has no place in the binary form.
pub(super) fn address(text: &str) -> Result<Vec<u8>, Fault> {
    let bare = text.split_once('%').map_or(text, |(bare, _)| bare);
    Ok(match bare.parse().map_err(|_| shape("an address", text))? {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    })
}

/// `addr/length` or `addr:port`, split.
pub(super) fn pair(text: &str, separator: char) -> Result<(Vec<u8>, u64), Fault> {
    let expected =
        if separator == '/' { "an address with a prefix length" } else { "an address with a port" };
    let (left, right) = text.rsplit_once(separator).ok_or_else(|| shape(expected, text))?;
    let number = right.parse::<u16>().map_err(|_| shape(expected, text))?;
    Ok((address(left.trim_start_matches('[').trim_end_matches(']'))?, number.into()))
}

/// `1h2m3.5s` as nanoseconds.
pub(super) fn duration(text: &str) -> Result<i128, Fault> {
    let fault = || shape("a duration", text);
    let (sign, mut rest) = text.strip_prefix('-').map_or((1, text), |rest| (-1, rest));
    let mut sum: i128 = 0;
    if rest == "0" {
        return Ok(0);
    }
    if rest.is_empty() {
        return Err(fault());
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(fault)?;
        let (number, after) = rest.split_at(digits);
        let unit_end = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        let (unit, next) = after.split_at(unit_end);
        let unit: i128 = match unit {
            "ns" => 1,
            "us" | "µs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return Err(fault()),
        };
        let (whole, part) = number.split_once('.').unwrap_or((number, ""));
        if whole.len() > 12 || part.len() > 12 || (whole.is_empty() && part.is_empty()) {
            return Err(fault());
        }
        let whole: i128 = if whole.is_empty() { 0 } else { whole.parse().map_err(|_| fault())? };
        let scale = 10_i128.pow(u32::try_from(part.len()).map_err(|_| fault())?);
        let part: i128 = if part.is_empty() { 0 } else { part.parse().map_err(|_| fault())? };
        sum += whole * unit + part * unit / scale;
        rest = next;
    }
    Ok(sign * sum)
}

pub(super) fn shape(expected: &'static str, found: &str) -> Fault {
    Fault::Shape { expected, found: found.chars().take(40).collect() }
}
