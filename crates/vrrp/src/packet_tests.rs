use fastrand::Rng;

use super::*;

const VRID: NonZeroU8 = NonZeroU8::new(51).unwrap();

/// What keepalived 2.2.7 sends, read by a packet socket, without the header of IPv4 or IPv6. Its configuration:
/// `vrrp_version 3`, `virtual_router_id 51` and 52, `priority 100`, `advert_int 0.2`; its addresses 10.9.0.2 and fe80::2.
const KEEPALIVED: [u8; 12] = [0x31, 51, 100, 1, 0, 20, 0x75, 0xb0, 10, 9, 0, 100];
const KEEPALIVED_V6: [u8; 24] =
    [0x31, 52, 100, 1, 0, 20, 0x6e, 0x8c, 0xfd, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0];

fn text(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn advertisement(addresses: &[&str]) -> Advertisement {
    let addresses = Addresses::new(addresses.iter().map(|address| text(address)).collect()).unwrap();
    let interval = Interval::from_centiseconds(20).unwrap();
    Advertisement { vrid: VRID, priority: 100, interval, addresses }
}

fn envelope(source: &str) -> Envelope {
    let source = text(source);
    Envelope { source, destination: group(source.is_ipv4()), hops: HOPS }
}

/// A packet of IPv4 with these changes and a right checksum.
fn changed(changes: &[(usize, u8)]) -> Vec<u8> {
    let mut bytes = advertisement(&["10.9.0.100"]).encode(text("10.9.0.2"));
    for (at, value) in changes {
        bytes[*at] = *value;
    }
    seal(&mut bytes, &envelope("10.9.0.2"));
    bytes
}

fn seal(bytes: &mut [u8], envelope: &Envelope) {
    bytes[CHECKSUM_AT..HEADER_BYTES].fill(0);
    let checksum = !sum(pseudo_sum(envelope, bytes.len()), bytes);
    bytes[CHECKSUM_AT..HEADER_BYTES].copy_from_slice(&checksum.to_be_bytes());
}

#[test]
fn packets_are_those_of_keepalived() {
    let ours = advertisement(&["10.9.0.100"]);
    assert_eq!(ours.encode(text("10.9.0.2")), KEEPALIVED);
    assert_eq!(Advertisement::decode(&KEEPALIVED, &envelope("10.9.0.2"), VRID), Ok(ours));
    let vrid = NonZeroU8::new(52).unwrap();
    let ours = Advertisement { vrid, ..advertisement(&["fd00:9::100"]) };
    assert_eq!(ours.encode(text("fe80::2")), KEEPALIVED_V6);
    assert_eq!(Advertisement::decode(&KEEPALIVED_V6, &envelope("fe80::2"), vrid), Ok(ours));
}

#[test]
fn what_goes_out_comes_back() {
    let many: Vec<String> = (0..255).map(|last| format!("10.9.1.{last}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    for (source, addresses) in [
        ("10.9.0.2", &["10.9.0.100"][..]),
        ("10.9.0.2", &["10.9.0.100", "10.9.0.101", "192.0.2.1"]),
        ("10.9.0.2", &many),
        ("fe80::2", &["fe80::100", "fd00:9::100"]),
        ("fe80::2", &["fd00:9::100"]),
    ] {
        for (priority, centiseconds) in [(0, 1), (1, 100), (255, 4095)] {
            let interval = Interval::from_centiseconds(centiseconds).unwrap();
            let sent = Advertisement { priority, interval, ..advertisement(addresses) };
            let bytes = sent.encode(text(source));
            assert!(bytes.len() <= MOST_BYTES);
            assert_eq!(Advertisement::decode(&bytes, &envelope(source), VRID), Ok(sent));
        }
    }
}

#[test]
fn packets_that_do_not_count_are_told_apart() {
    let of = envelope("10.9.0.2");
    let near = Envelope { hops: 254, ..of };
    let good = changed(&[]);
    let mut torn = good.clone();
    torn[HEADER_BYTES] ^= 1;
    let longer = [&good[..], &[0; 4]].concat();
    for (bytes, envelope, error) in [
        (&good[..], near, DecodeError::Hops(254)),
        (&[], of, DecodeError::Short(0)),
        (&good[..7], of, DecodeError::Short(7)),
        (&changed(&[(0, 0x21)]), of, DecodeError::Version(2)),
        (&changed(&[(0, 0x32)]), of, DecodeError::Type(2)),
        (&changed(&[(1, 52)]), of, DecodeError::Vrid(52)),
        (&changed(&[(3, 0)]), of, DecodeError::Length { found: 12, expected: 8 }),
        (&changed(&[(3, 0)])[..8], of, DecodeError::Count),
        (&changed(&[(3, 2)]), of, DecodeError::Length { found: 12, expected: 16 }),
        (&good[..11], of, DecodeError::Length { found: 11, expected: 12 }),
        (&longer, of, DecodeError::Length { found: 16, expected: 12 }),
        (&torn, of, DecodeError::Checksum),
        (&good, self::envelope("10.9.0.3"), DecodeError::Checksum),
        (&changed(&[(4, 0), (5, 0)]), of, DecodeError::Interval),
    ] {
        assert_eq!(Advertisement::decode(bytes, &envelope, VRID), Err(error), "{bytes:?}");
    }
    assert!(DecodeError::Version(2).is_of_others() && DecodeError::Vrid(1).is_of_others());
    assert!(!DecodeError::Checksum.is_of_others());
}

#[test]
fn reserved_bits_are_ignored() {
    let read = Advertisement::decode(&changed(&[(4, 0xf0)]), &envelope("10.9.0.2"), VRID).unwrap();
    assert_eq!(read.interval.centiseconds(), 20);
}

#[test]
fn a_checksum_without_pseudo_header_is_taken_of_ipv4_alone() {
    let alone = |address: &str, source: &str| {
        let mut bytes = advertisement(&[address]).encode(text(source));
        bytes[CHECKSUM_AT..HEADER_BYTES].fill(0);
        let checksum = !sum(0, &bytes);
        bytes[CHECKSUM_AT..HEADER_BYTES].copy_from_slice(&checksum.to_be_bytes());
        Advertisement::decode(&bytes, &envelope(source), VRID)
    };
    assert!(alone("10.9.0.100", "10.9.0.2").is_ok());
    assert_eq!(alone("fd00:9::100", "fe80::2"), Err(DecodeError::Checksum));
}

#[test]
fn the_header_of_ipv4_is_taken_off_with_its_options() {
    let mut packet = join_ipv4(Ipv4Addr::new(10, 9, 0, 2), &KEEPALIVED);
    // The kernel fills it in.
    packet[3] = 32;
    assert_eq!(split_ipv4(&packet), Ok((envelope("10.9.0.2"), &KEEPALIVED[..])));
    let mut padded = packet.clone();
    padded.extend([0; 14]);
    assert_eq!(split_ipv4(&padded).unwrap().1, KEEPALIVED);
    let mut options = packet.clone();
    options.splice(20..20, [1; 4]);
    (options[0], options[3]) = (0x46, 36);
    assert_eq!(split_ipv4(&options).unwrap().1, KEEPALIVED);
    for (at, value) in [(0, 0x44), (0, 0x65), (0, 0x4f), (2, 1), (3, 19)] {
        let mut broken = packet.clone();
        broken[at] = value;
        assert_eq!(split_ipv4(&broken), Err(DecodeError::Ipv4Header), "{at}: {value}");
    }
    assert_eq!(split_ipv4(&packet[..19]), Err(DecodeError::Ipv4Header));
    assert_eq!(split_ipv4(&packet[..31]), Err(DecodeError::Ipv4Header));
}

fn mutate(bytes: &mut Vec<u8>, random: &mut Rng) {
    for _ in 0..=random.usize(..4) {
        let at = random.usize(..=bytes.len());
        match random.u8(..5) {
            0 => bytes.truncate(at),
            1 => bytes.insert(at, random.u8(..)),
            2 => bytes.splice(at..at, [0; 16]).for_each(drop),
            _ if at == bytes.len() => {}
            3 => bytes[at] ^= 1 << random.u8(..8),
            _ => bytes[at] = [0, 1, 2, 0x31, 254, 255][random.usize(..6)],
        }
    }
}

/// What is read from a mutated packet says the same when it is written again.
#[test]
fn mutated_packets_are_refused_or_read_as_what_they_say() {
    let seed = 9568;
    println!("seed {seed}");
    let mut random = Rng::with_seed(seed);
    let mut taken = 0;
    for round in 0..200_000 {
        let (source, addresses) = if round % 2 == 0 {
            ("10.9.0.2", &["10.9.0.100", "10.9.0.101"][..])
        } else {
            ("fe80::2", &["fe80::100", "fd00:9::100"][..])
        };
        let of = envelope(source);
        let mut bytes = advertisement(addresses).encode(of.source);
        mutate(&mut bytes, &mut random);
        if random.bool() && bytes.len() >= HEADER_BYTES {
            seal(&mut bytes, &of);
        }
        let _ = split_ipv4(&bytes);
        let Ok(read) = Advertisement::decode(&bytes, &of, VRID) else { continue };
        taken += 1;
        bytes[4] &= 0xf;
        seal(&mut bytes, &of);
        assert_eq!(read.encode(of.source), bytes, "round {round}");
    }
    assert!(taken > 2_000, "{taken} were read: the test would test nothing");
}
