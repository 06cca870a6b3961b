//! Recorded lists (`testdata/network`), as they are and with an attribute that has another length than the decoder expects.

use super::super::exchange::{collect, messages};
use super::super::link_status;
use super::*;

const LINKS_BYTES: &[u8] = include_bytes!("../../testdata/network/links.bin");
const ADDRESSES_BYTES: &[u8] = include_bytes!("../../testdata/network/addresses.bin");
const ROUTES_BYTES: &[u8] = include_bytes!("../../testdata/network/routes.bin");

/// Bytes of the headers: struct nlmsghdr and the one of its kind.
const LINK_HEAD: usize = 32;
const ADDRESS_HEAD: usize = 24;
const ROUTE_HEAD: usize = 28;

const IFLA_MTU: u16 = 4;
const IFLA_LINKINFO: u16 = 18;
const IFLA_INFO_DATA: u16 = 2;
const IFLA_BR_FORWARD_DELAY: u16 = 1;
const IFA_ADDRESS: u16 = 1;
const RTA_OIF: u16 = 4;

fn read<T>(datagram: &[u8], form: &Form<T>) -> Dumped<T> {
    let mut dumped = Dumped::new();
    collect(datagram, &mut |message: &[u8]| dumped.take(message, form)).unwrap();
    dumped
}

fn split(datagram: &[u8]) -> Vec<Vec<u8>> {
    messages(datagram).map(|message| message.unwrap().to_vec()).collect()
}

/// Numbers and values of attributes.
fn attributes(mut bytes: &[u8]) -> Vec<(u16, Vec<u8>)> {
    let mut found = Vec::new();
    while bytes.len() >= 4 {
        let length = usize::from(u16::from_ne_bytes([bytes[0], bytes[1]]));
        found.push((u16::from_ne_bytes([bytes[2], bytes[3]]), bytes[4..length].to_vec()));
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    found
}

fn joined(attributes: &[(u16, Vec<u8>)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (number, value) in attributes {
        let length = u16::try_from(4 + value.len()).unwrap();
        bytes.extend([&length.to_ne_bytes()[..], &number.to_ne_bytes(), value].concat());
        bytes.resize(bytes.len().next_multiple_of(4), 0);
    }
    bytes
}

/// A message with other attributes.
fn with(message: &[u8], head: usize, attributes: &[(u16, Vec<u8>)]) -> Vec<u8> {
    let mut bytes = [&message[..head], &joined(attributes)].concat();
    let length = u32::try_from(bytes.len()).unwrap();
    bytes[..4].copy_from_slice(&length.to_ne_bytes());
    bytes
}

/// A message of which one attribute is a byte shorter.
fn cut(message: &[u8], head: usize, number: u16) -> Vec<u8> {
    let mut all = attributes(&message[head..]);
    let (_, value) = all.iter_mut().find(|(found, _)| *found == number).unwrap();
    value.pop().unwrap();
    with(message, head, &all)
}

fn names(links: &[LinkMessage]) -> Vec<String> {
    links.iter().map(|message| link_status::link(message).name).collect()
}

#[test]
fn recorded_lists_are_read_whole() {
    let links = read(LINKS_BYTES, &LINKS);
    assert_eq!(
        (names(&links.found), links.losses),
        (vec!["lo".into(), "eth1".into(), "eth0".into(), "br0".into()], Losses::default())
    );
    let addresses = read(ADDRESSES_BYTES, &ADDRESSES);
    assert_eq!(
        (addresses.found.len(), addresses.losses),
        (split(ADDRESSES_BYTES).len() - 1, Losses::default())
    );
    let routes = read(ROUTES_BYTES, &ROUTES);
    assert_eq!((routes.found.len(), routes.losses), (split(ROUTES_BYTES).len() - 1, Losses::default()));
}

#[test]
fn an_attribute_that_cannot_be_read_costs_the_link_nothing_else() {
    let mut recorded = split(LINKS_BYTES);
    for message in &mut recorded[1..3] {
        *message = cut(message, LINK_HEAD, IFLA_MTU);
    }
    let dumped = read(&recorded.concat(), &LINKS);
    assert_eq!(names(&dumped.found), ["lo", "eth1", "eth0", "br0"]);
    let links: Vec<_> = dumped.found.iter().map(link_status::link).collect();
    assert_eq!(links.iter().map(|link| link.mtu).collect::<Vec<_>>(), [65536, 0, 0, 1500]);
    assert!(
        links[2].up && links[2].carrier && links[2].hardware == [0x52, 0x54, 0, 1, 2, 3],
        "{:?}",
        links[2]
    );
    assert_eq!((links[1].kind.as_str(), links[1].controller), ("veth", Some(links[3].index)));

    let mut said = BTreeSet::new();
    let lines = dumped.losses.unsaid(&mut said);
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].starts_with("attribute 4 of 2 links cannot be read and is left out: "), "{lines:?}");
    assert_eq!(dumped.losses.unsaid(&mut said), Vec::<String>::new(), "it is said once");
}

#[test]
fn a_kind_whose_options_cannot_be_read_is_still_that_kind() {
    let mut recorded = split(LINKS_BYTES);
    let mut all = attributes(&recorded[3][LINK_HEAD..]);
    let (_, info) = all.iter_mut().find(|(number, _)| *number == IFLA_LINKINFO).unwrap();
    let mut parts = attributes(info);
    let (_, data) = parts.iter_mut().find(|(number, _)| *number == IFLA_INFO_DATA).unwrap();
    let mut options = attributes(data);
    options.iter_mut().find(|(number, _)| *number == IFLA_BR_FORWARD_DELAY).unwrap().1.pop();
    *data = joined(&options);
    *info = joined(&parts);
    recorded[3] = with(&recorded[3], LINK_HEAD, &all);
    let dumped = read(&recorded.concat(), &LINKS);
    let bridge = link_status::link(&dumped.found[3]);
    assert_eq!((bridge.name.as_str(), bridge.kind.as_str(), bridge.mtu), ("br0", "bridge", 1500));
    assert_eq!(dumped.losses.0.keys().copied().collect::<Vec<_>>(), [(What::Link, Some(IFLA_LINKINFO))]);
}

#[test]
fn a_message_that_cannot_be_read_costs_no_other() {
    // A link that ends within its header.
    let mut recorded = split(LINKS_BYTES);
    recorded[1].truncate(24);
    recorded[1][..4].copy_from_slice(&24_u32.to_ne_bytes());
    let dumped = read(&recorded.concat(), &LINKS);
    assert_eq!(names(&dumped.found), ["lo", "eth0", "br0"]);
    let lines = dumped.losses.unsaid(&mut BTreeSet::new());
    assert!(lines[0].starts_with("1 links cannot be read and are left out: "), "{lines:?}");

    // Without its address or its link, an address or a route would be another one.
    let mut recorded = split(ADDRESSES_BYTES);
    recorded[1] = cut(&recorded[1], ADDRESS_HEAD, IFA_ADDRESS);
    let dumped = read(&recorded.concat(), &ADDRESSES);
    assert_eq!(dumped.found.len(), recorded.len() - 2);
    assert_eq!(dumped.losses.0.keys().copied().collect::<Vec<_>>(), [(What::Address, None)]);
    let mut recorded = split(ROUTES_BYTES);
    recorded[0] = cut(&recorded[0], ROUTE_HEAD, RTA_OIF);
    let dumped = read(&recorded.concat(), &ROUTES);
    assert_eq!(dumped.found.len(), recorded.len() - 2);
    assert_eq!(dumped.losses.0.keys().copied().collect::<Vec<_>>(), [(What::Route, None)]);
}

/// Every attribute of every message: shorter, longer, empty, and as a list that is cut off.
fn sweep<T>(
    datagram: &[u8],
    head: usize,
    form: &Form<T>,
    mut judge: impl FnMut(&Dumped<T>, usize, u16, &str),
) {
    let recorded = split(datagram);
    for (at, message) in recorded.iter().enumerate().take(recorded.len() - 1) {
        for (place, (number, value)) in attributes(&message[head..]).into_iter().enumerate() {
            for (word, other) in [
                ("shorter", value[..value.len().saturating_sub(1)].to_vec()),
                ("longer", [&value[..], &[0xff; 5]].concat()),
                ("empty", Vec::new()),
                ("all ones", vec![0xff; value.len()]),
            ] {
                let mut all = attributes(&message[head..]);
                all[place].1 = other;
                let mut changed = recorded.clone();
                changed[at] = with(message, head, &all);
                // Without the flag of a list.
                judge(&read(&changed.concat(), form), at, number & 0x3fff, word);
            }
        }
    }
}

#[test]
fn whatever_one_attribute_says_every_other_message_is_read() {
    const IFLA_IFNAME: u16 = 3;
    let whole = read(LINKS_BYTES, &LINKS).found;
    let mut count = 0;
    sweep(LINKS_BYTES, LINK_HEAD, &LINKS, |dumped, at, number, word| {
        let about = format!("message {at}, attribute {number} {word}");
        count += 1;
        assert_eq!(dumped.found.len(), whole.len(), "{about}");
        for (other, (link, before)) in dumped.found.iter().zip(&whole).enumerate() {
            assert!(other == at || link == before, "{about}");
        }
        assert!(dumped.losses.0.keys().all(|lost| *lost == (What::Link, Some(number))), "{about}");
        let (link, before) = (link_status::link(&dumped.found[at]), link_status::link(&whole[at]));
        assert!(number == IFLA_IFNAME || link.name == before.name, "{about}");
        assert!(number == IFLA_LINKINFO || link.kind == before.kind, "{about}");
    });
    assert!(count > 400, "{count}");
    let all = split(ADDRESSES_BYTES).len() - 1;
    sweep(ADDRESSES_BYTES, ADDRESS_HEAD, &ADDRESSES, |dumped, at, number, word| {
        assert!(dumped.found.len() >= all - 1, "message {at}, attribute {number} {word}");
    });
    let all = split(ROUTES_BYTES).len() - 1;
    sweep(ROUTES_BYTES, ROUTE_HEAD, &ROUTES, |dumped, at, number, word| {
        assert!(dumped.found.len() >= all - 1, "message {at}, attribute {number} {word}");
    });
}
