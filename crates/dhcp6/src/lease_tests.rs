//! T1 and T2, addresses that cannot be, and what a renewal changes.

use super::*;
use crate::testing::{self, Answer, Asked, IAID, address, seconds, server};

const ALL: u32 = u32::MAX;

fn asked() -> Asked {
    Asked { kind: 3, xid: [0, 0, 7], options: Vec::new(), addresses: Vec::new() }
}

fn reply() -> Answer {
    Answer::new(&asked(), testing::REPLY, server(1))
}

fn heard(answer: &Answer) -> Heard {
    message::decode(&answer.bytes(), IAID).unwrap()
}

fn lease(answer: &Answer) -> Option<Lease> {
    Lease::parse(&heard(answer), seconds(1000))
}

#[test]
fn times_that_are_left_open_are_parts_of_the_shortest_preferred_lifetime() {
    for (given, lifetimes, expected) in [
        // As the server says.
        ((300, 400), &[(1000, 2000)][..], (300, 400)),
        // Left open, or in part.
        ((0, 0), &[(1000, 2000)], (500, 800)),
        ((0, 0), &[(1000, 2000), (600, 3000)], (300, 480)),
        ((0, 300), &[(1000, 2000)], (300, 300)),
        ((0, 900), &[(1000, 2000)], (500, 900)),
        ((100, 0), &[(1000, 2000)], (100, 800)),
        ((900, 0), &[(1000, 2000)], (900, 900)),
        // For ever.
        ((0, 0), &[(ALL, ALL)], (ALL, ALL)),
        ((0, 0), &[(1000, ALL)], (500, 800)),
        ((300, ALL), &[(ALL, ALL)], (300, ALL)),
        ((ALL, ALL), &[(1000, ALL)], (ALL, ALL)),
        // Behind the end of the address.
        ((5000, 6000), &[(1000, 2000)], (500, 800)),
        ((ALL, ALL), &[(1000, 2000)], (500, 800)),
        ((100, 6000), &[(1000, 2000)], (100, 800)),
        // Not preferred any more, and of a moment.
        ((0, 0), &[(0, 1000)], (500, 800)),
        ((0, 0), &[(0, 1000), (500, 900)], (250, 400)),
        ((1, 1), &[(1000, 2000)], (5, 5)),
        ((1, 2), &[(6, 6)], (3, 3)),
    ] {
        let mut answer = reply().times(given.0, given.1);
        for (last, (preferred, valid)) in (5..).zip(lifetimes) {
            answer = answer.with(address(last), *preferred, *valid);
        }
        let lease = lease(&answer).unwrap();
        let expected = (seconds(expected.0.into()), seconds(expected.1.into()));
        assert_eq!((lease.t1, lease.t2), expected, "{given:?} {lifetimes:?}");
    }
}

#[test]
fn an_answer_grants_addresses_that_a_machine_can_have() {
    let lease = lease(
        &reply()
            .with(address(5), 300, 200)
            .with(address(6), 100, 0)
            .with("fe80::5".parse().unwrap(), 100, 200)
            .with("ff02::1".parse().unwrap(), 100, 200)
            .with(Ipv6Addr::LOCALHOST, 100, 200)
            .with(Ipv6Addr::UNSPECIFIED, 100, 200)
            .with("::ffff:10.0.0.1".parse().unwrap(), 100, 200)
            .with(address(7), 100, 200)
            .with(address(7), 500, 900),
    )
    .unwrap();
    assert_eq!(
        lease.addresses,
        [Address { address: address(7), preferred: seconds(100), valid: seconds(200) }]
    );
    assert_eq!((lease.server_duid, lease.obtained_at), (server(1), seconds(1000)));
}

#[test]
fn nothing_is_granted_without_success_or_address() {
    let good = || reply().with(address(5), 100, 200);
    assert!(lease(&good()).is_some());
    assert!(lease(&reply()).is_none());
    assert!(lease(&reply().with(address(5), 300, 200)).is_none());
    assert!(lease(&good().times(9, 8)).is_none());
    assert!(lease(&good().status(testing::NO_ADDRS_AVAIL)).is_none());
    assert!(lease(&good().own_status(testing::UNSPEC_FAIL)).is_none());
    assert!(lease(&Answer { iaid: 9, ..good() }).is_none());
}

#[test]
fn a_packet_of_another_exchange_grants_nothing() {
    let settings = testing::settings();
    let packet = reply().with(address(5), 100, 200).bytes();
    assert!(granted(&packet, 7, &settings).is_some());
    assert!(granted(&packet, 8, &settings).is_none());
    let other = Settings { duid: Some(server(9)), ..settings };
    assert!(granted(&packet, 7, &other).is_none());
    assert!(granted(&packet[..20], 7, &other).is_none());
}

#[test]
fn a_lease_counts_from_the_moment_at_which_it_was_obtained() {
    let lease = lease(&reply().with(address(5), 100, 200).with(address(6), ALL, ALL)).unwrap();
    assert_eq!((lease.renew_at(), lease.rebind_at()), (seconds(1050), seconds(1080)));
    assert_eq!(lease.first_end(), seconds(1200));
    let later = lease.at(seconds(1060));
    assert_eq!(later.addresses[0].preferred, seconds(40));
    assert_eq!(later.addresses[0].valid, seconds(140));
    assert_eq!(later.addresses[1].valid, FOREVER);
    assert_eq!((later.renew_at(), later.rebind_at()), (seconds(1060), seconds(1080)), "T1 has passed");
    assert_eq!(later.first_end(), seconds(1200));
    let last = lease.at(seconds(1200));
    assert!(last.has(address(6)) && !last.has(address(5)));
    assert_eq!(last.first_end(), Duration::MAX);
}

#[test]
fn a_renewal_prolongs_replaces_takes_back_and_leaves() {
    let old = lease(&reply().with(address(5), 100, 200).with(address(6), 100, 300)).unwrap();
    let renewed = |answer: Answer| {
        let lease = old.renewed(&heard(&answer), seconds(1050));
        lease.map(|lease| {
            lease.addresses.iter().map(|it| (it.address, it.valid.as_secs())).collect::<Vec<_>>()
        })
    };
    let (five, six, seven) = (address(5), address(6), address(7));
    assert_eq!(renewed(reply().with(five, 50, 900)), Some(vec![(five, 900), (six, 250)]));
    assert_eq!(renewed(reply().with(seven, 50, 900)), Some(vec![(seven, 900), (five, 150), (six, 250)]));
    assert_eq!(renewed(reply().with(five, 0, 0)), Some(vec![(six, 250)]));
    assert_eq!(renewed(reply().with(five, 0, 0).with(six, 50, 60)), Some(vec![(six, 60)]));
    assert_eq!(renewed(reply().with(five, 0, 0).with(six, 0, 0)), Some(Vec::new()));
    // Nothing is said about the addresses.
    assert_eq!(renewed(reply()), None);
    assert_eq!(renewed(reply().status(0)), None);
    assert_eq!(renewed(reply().with(five, 300, 200)), None, "times out of order");
    assert_eq!(renewed(reply().with(seven, 0, 0)), None, "an address that the client does not have");
    assert_eq!(renewed(reply().with(five, 50, 900).status(testing::NO_ADDRS_AVAIL)), None);
}

#[test]
fn a_renewal_makes_no_lease_longer_than_the_limit() {
    let mut answer = reply();
    for last in 5..21 {
        answer = answer.with(address(last), 100, 200);
    }
    let old = lease(&answer).unwrap();
    assert_eq!(old.addresses.len(), MOST_ADDRESSES);
    let new = old.renewed(&heard(&reply().with(address(99), 100, 200)), seconds(1010)).unwrap();
    assert_eq!(new.addresses.len(), MOST_ADDRESSES);
    assert!(new.has(address(99)));
}
