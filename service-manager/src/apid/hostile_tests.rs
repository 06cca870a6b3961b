//! The hostile clients of crates/hostile against a real apid in front of a real machined.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use hostile::{Attack, Port, Target, Witness, attacks};

use super::tests::{Fixture, in_maintenance, two_nodes};
use crate::hostile_tests::{Arena, addresses};
use crate::locked::Maintenance;

/// Where the other client comes from.
const WITNESS: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 9));

fn target(f: &Fixture, role: Option<&str>, sources: Vec<IpAddr>) -> Target {
    let identity = role.map(|role| f.identity(Some(role)));
    let authority = f.authority.certificate();
    let mut target = Target::new(Port::Api, f.address, authority, identity.as_ref()).unwrap();
    let strangers = if role.is_some() { hostile::strangers(&f.authority).unwrap() } else { Vec::new() };
    let nodes = ["127.0.0.1", "n1", "127.0.0.2"].map(str::to_owned).to_vec();
    (target.sources, target.strangers, target.nodes) = (sources.into(), strangers.into(), nodes.into());
    target
}

fn play(
    arena: &Arena,
    name: &str,
    f: &Fixture,
    role: Option<&str>,
    sources: Vec<IpAddr>,
    attacks: &[Attack],
) {
    let server = f.server.clone();
    let places = Arc::new(move || u64::try_from(server.held()).unwrap());
    let witness = Witness::new(target(f, role.and(Some("os:admin")), vec![WITNESS]), true);
    arena.play(name, target(f, role, sources), witness, Some(places), attacks);
}

/// Attacks whose point is how many connections there are.
fn crowds() -> Vec<Attack> {
    let crowds = ["many-connections", "silent", "slow-preface", "stream-window-zero", "slow-body"];
    attacks(Port::Api).into_iter().filter(|attack| crowds.contains(&attack.name)).collect()
}

#[test]
fn a_reader_keeps_nobody_from_the_api() {
    let arena = Arena::enter();
    let (f, _other) = arena.servers(two_nodes());
    play(&arena, "apid", &f, Some("os:reader"), addresses(1), &attacks(Port::Api));
}

/// Two hundred machines with the same certificate.
#[test]
fn a_readers_certificate_at_many_addresses_keeps_nobody_from_the_api() {
    let arena = Arena::enter();
    let (f, _other) = arena.servers(two_nodes());
    play(&arena, "apid-many-addresses", &f, Some("os:reader"), addresses(200), &crowds());
}

#[test]
fn whoever_reaches_a_node_in_maintenance_keeps_nobody_from_it() {
    let arena = Arena::enter();
    let f = arena.servers(in_maintenance(Maintenance::Open));
    play(&arena, "maintenance", &f, None, addresses(8), &attacks(Port::Api));
}
