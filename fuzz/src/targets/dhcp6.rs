//! DHCPv6: what a node takes from an answer.
//!
//! What must hold: nothing panics; memory is bounded; a lease is one that a node can live with.

use std::time::Duration;

use dhcp6::{Duid, Settings};

use crate::check;
use crate::target::{Outcome, Target};

pub(super) const TARGET: Target = Target {
    name: "dhcp6-client",
    about: "answers of DHCPv6 servers to a node",
    seeds,
    words: &[
        "\u{0}\u{3}\u{0}\u{28}",
        "\u{0}\u{5}\u{0}\u{18}",
        "\u{0}\u{d}\u{0}\u{2}",
        "\u{0}\u{17}\u{0}\u{10}",
    ],
    run: client,
};

const XID: u32 = 7;
const OWN: [u8; 6] = [0x52, 0x54, 0, 0, 0, 1];
/// What an Ethernet without jumbo frames takes.
const FRAME_BYTES: usize = 1500;
/// A message's options as values, and a lease.
const MOST_BYTES: usize = 256 << 10;

fn option(code: u16, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(value.len()).expect("an option of a seed");
    [&code.to_be_bytes()[..], &length.to_be_bytes(), value].concat()
}

fn seeds() -> Vec<Vec<u8>> {
    let address = |valid: u32| {
        let mut value = vec![0xfd, 0, 0, 9];
        value.extend([0; 11]);
        value.push(1);
        value.extend((valid / 2).to_be_bytes());
        value.extend(valid.to_be_bytes());
        option(5, &value)
    };
    let association = |parts: &[u8]| {
        let iaid = &OWN[2..];
        option(3, &[iaid, &[0; 8], parts].concat())
    };
    let message = |kind: u8, association: Vec<u8>| {
        let mut dns = vec![0xfd, 0, 0, 9];
        dns.extend([0; 11]);
        dns.push(3);
        [
            vec![kind, 0, 0, 7],
            option(1, Duid::of_hardware(&OWN).bytes()),
            option(2, Duid::of_hardware(&[2, 0, 0, 0, 0, 9]).bytes()),
            association,
            option(23, &dns),
            option(24, b"\x01a\x07example\0"),
            option(56, &option(1, &dns)),
        ]
        .concat()
    };
    let refused = option(13, &[&[0, 2][..], b"no more"].concat());
    vec![
        message(2, association(&address(3600))),
        message(7, association(&[address(3600), address(u32::MAX)].concat())),
        message(7, association(&refused)),
    ]
}

/// A packet as the node's client gets it in an exchange of its own.
fn client(packet: &[u8]) -> Outcome {
    let packet = &packet[..packet.len().min(FRAME_BYTES)];
    let settings = Settings { hardware: OWN, ..Settings::default() };
    let Some(lease) = check::within(MOST_BYTES, || dhcp6::granted(packet, XID, &settings)) else {
        return Outcome::refused("nothing granted");
    };
    assert!(!lease.addresses.is_empty(), "a lease without an address");
    for address in &lease.addresses {
        assert!(address.valid > Duration::ZERO && address.preferred <= address.valid, "{address:?}");
        let is_link = address.address.is_unicast_link_local() || address.address.is_loopback();
        assert!(!is_link && !address.address.is_multicast(), "{address:?}");
    }
    assert!(lease.t1 <= lease.t2, "{lease:?}");
    for name in &lease.domains {
        let is_plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte));
        assert!(is_plain && name.len() <= 255, "{name:?} becomes a line of resolv.conf");
    }
    let shape =
        format!("{} addresses, {} servers", lease.addresses.len().min(3), lease.dns_servers.len().min(3));
    Outcome { accepted: true, shapes: vec![shape] }
}
