//! The hostile clients of crates/hostile against a real trustd.

use std::net::{IpAddr, Ipv4Addr};

use hostile::{Port, Target, Witness, attacks};

use super::tests::{MATERIAL_NAME, material};
use super::*;
use crate::hostile_tests::{Arena, addresses};

#[test]
fn whoever_reaches_trustd_keeps_no_node_from_it() {
    let arena = Arena::enter();
    let material = material();
    let trust = Trust::new(&material).unwrap();
    let connections = trust.connections.clone();
    let address = arena.servers(async {
        let what = "trustd's certificate";
        let identity = Identity::from_pem(what, &material.certificate, &material.key).unwrap();
        let identities = Identities::new(&identity).unwrap();
        let listener = TcpListener::bind((MATERIAL_NAME, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(serve(listener, identities, trust));
        address
    });
    let target = |sources: Vec<IpAddr>| {
        let mut target = Target::new(Port::Trust, address, &material.authority, None).unwrap();
        target.sources = sources.into();
        target
    };
    let witness = Witness::new(target(vec![Ipv4Addr::new(127, 0, 0, 9).into()]), true);
    let places = Arc::new(move || u64::try_from(connections.held()).unwrap());
    arena.play("trustd", target(addresses(8)), witness, Some(places), &attacks(Port::Trust));
}
