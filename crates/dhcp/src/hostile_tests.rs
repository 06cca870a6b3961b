//! A hostile server: answers with wrong lengths, foreign numbers, a huge option 121 and random changes of good ones.

use super::*;

/// More routes than a lease takes.
const MANY_ROUTES: u8 = 200;

/// An answer with every option that a lease takes something from.
fn full(to: &Output, kind: MessageType, server: Ipv4Addr) -> Vec<u8> {
    let mut answer = answer(&sent(to).unwrap(), kind, ADDRESS, server, HOUR);
    if kind == MessageType::Ack {
        answer.opts_mut().insert(DhcpOption::RapidCommit);
    }
    for option in [
        DhcpOption::Router(vec![SERVER]),
        DhcpOption::DomainNameServer(vec![SERVER, ADDRESS]),
        DhcpOption::NtpServers(vec![SERVER]),
        DhcpOption::Hostname("given".into()),
        DhcpOption::DomainName("example.org".into()),
        DhcpOption::InterfaceMtu(1400),
        DhcpOption::Renewal(1800),
        DhcpOption::Rebinding(3000),
    ] {
        answer.opts_mut().insert(option);
    }
    answer.to_vec().unwrap()
}

/// The same with an option of any length, cut into parts of 255 bytes (RFC 3396).
fn with_option(mut packet: Vec<u8>, code: u8, value: &[u8]) -> Vec<u8> {
    let end = packet.iter().rposition(|byte| *byte == 255).unwrap();
    packet.truncate(end);
    for part in value.chunks(255) {
        packet.extend([code, u8::try_from(part.len()).unwrap()]);
        packet.extend(part);
    }
    packet.push(255);
    packet
}

/// States of a client that hears answers.
const STATES: usize = 7;

/// A client in one of them, with a good answer.
fn state(number: usize) -> (Client, Vec<u8>) {
    let mut client = client(u64::try_from(number).unwrap());
    let before = (number == 4).then_some(ADDRESS);
    if let 5 | 6 = number {
        client = bound(5);
        // Its own server is asked first, and then any.
        let (_, renewing) = next(&mut client);
        let kind = if number == 5 { MessageType::Ack } else { MessageType::Nak };
        return (client, full(&renewing[0], kind, SERVER));
    }
    let asked = client.start(Duration::ZERO, before).remove(0);
    let kind = match number {
        0 => MessageType::Offer,
        1 | 4 => MessageType::Ack,
        _ => {
            let request = client.hear(Duration::ZERO, &full(&asked, MessageType::Offer, SERVER)).remove(0);
            let kind = if number == 2 { MessageType::Ack } else { MessageType::Nak };
            return (client, full(&request, kind, SERVER));
        }
    };
    (client, full(&asked, kind, SERVER))
}

/// The bytes that mean something here: padding, options of a lease, the end.
const TELLING: [u8; 9] = [0, 1, 3, 6, 51, 53, 54, 121, 255];

fn mutate(packet: &mut Vec<u8>, random: &mut Rng) {
    rounds::mutate(packet, &TELLING, random);
    // Routes of any length, in place of the end.
    if random.u8(..7) == 0 {
        let value: Vec<u8> = (0..random.usize(..600)).map(|_| random.u8(..)).collect();
        let end = packet.iter().rposition(|byte| *byte == 255).unwrap_or(packet.len());
        packet.truncate(end.max(1));
        packet.extend([121, u8::try_from(value.len() % 256).unwrap()]);
        packet.extend(value);
    }
}

/// What no lease may be, whatever a server says.
fn is_sound(lease: &Lease) {
    let Lease { address, prefix, routes, resolvers, time, renew_after, rebind_after, .. } = lease;
    assert!(!address.is_unspecified() && !address.is_loopback() && !address.is_multicast(), "{address}");
    assert!(*prefix <= 32 && routes.len() <= 128 && resolvers.len() <= 8);
    assert!(routes.iter().all(|(_, bits, _)| *bits <= 32));
    assert!(*time >= seconds(30), "a lease of {time:?} is asked for without end");
    assert!(renew_after <= rebind_after && rebind_after <= time, "{renew_after:?} {rebind_after:?} {time:?}");
}

/// No answer panics. A lease is given by an ACK of this exchange that names its address, and taken back by a NAK of it.
#[test]
fn mutated_answers_neither_forge_nor_lose_a_lease() {
    let count = usize::try_from(rounds::count(10_000, 1_000_000)).unwrap();
    let seed = rounds::first_seed();
    println!("BILLET_SEED={seed}");
    let mut random = Rng::with_seed(seed);
    let mut ready: Vec<_> = (0..STATES).map(state).collect();
    let mut changed = 0;
    for round in 0..count {
        let (client, good) = &mut ready[round % STATES];
        let mut packet = good.clone();
        mutate(&mut packet, &mut random);
        let now = client.deadline().unwrap().saturating_sub(seconds(1));
        let before = client.lease().cloned();
        let outputs = client.hear(now, &packet);
        let after = client.lease().cloned();
        if outputs.is_empty() {
            assert_eq!(before, after, "round {round}");
            continue;
        }
        changed += 1;
        let heard = message::read(&packet).expect("an output comes of a message");
        assert_eq!(heard.opcode(), Opcode::BootReply, "round {round}");
        assert_eq!((heard.xid(), heard.chaddr()), (read(good).xid(), &MAC[..]), "round {round}");
        let kind = heard.opts().msg_type();
        if let Some(after) = after.as_ref().filter(|after| before.as_ref() != Some(*after)) {
            is_sound(after);
            assert_eq!((after.address, kind), (heard.yiaddr(), Some(MessageType::Ack)), "round {round}");
        }
        if before.is_some() && after.is_none() {
            assert_eq!(kind, Some(MessageType::Nak), "the lease is lost, round {round}");
        }
        ready[round % STATES] = state(round % STATES);
    }
    assert!(changed > count / 100, "{changed} of {count} answers counted: the test would test nothing");
}

#[test]
fn options_of_any_size_are_taken_within_limits() {
    let ack = |code: u8, value: &[u8]| {
        let mut client = client(1);
        let discover = client.start(Duration::ZERO, None).remove(0);
        let packet = with_option(full(&discover, MessageType::Ack, SERVER), code, value);
        let outputs = client.hear(Duration::ZERO, &packet);
        if let Some(lease) = client.lease() {
            is_sound(lease);
        }
        (outputs, client.lease().cloned())
    };
    // 10.0.0.0/8 by the server, and so on.
    let routes: Vec<u8> = (0..MANY_ROUTES).flat_map(|it| [8, it, 10, 0, 0, 1]).collect();
    let (_, lease) = ack(121, &routes);
    assert_eq!(lease.map(|lease| lease.routes.len()), Some(128), "more routes than a lease takes");
    for length in 0..=u8::MAX {
        let (_, lease) = ack(121, &vec![length; usize::from(length)]);
        assert!(lease.is_some(), "a route that cannot be read costs the address");
    }
    for (code, value) in
        [(119, vec![0xc0; 600]), (119, vec![63; 700]), (12, vec![b'a'; 2000]), (15, vec![0; 900])]
    {
        let (_, lease) = ack(code, &value);
        assert!(lease.is_none_or(|lease| lease.search_domains.len() <= 6), "option {code}");
    }
    // A lease of no time is one of the least, for a moment as for ever.
    for time in [0, 1, 29, u32::MAX] {
        let mut client = client(1);
        let discover = client.start(Duration::ZERO, None).remove(0);
        let mut ack = answer(&sent(&discover).unwrap(), MessageType::Ack, ADDRESS, SERVER, time);
        ack.opts_mut().insert(DhcpOption::RapidCommit);
        let _ = client.hear(Duration::ZERO, &ack.to_vec().unwrap());
        is_sound(client.lease().unwrap());
    }
}

/// Answers of the transaction before, and refusals without end.
#[test]
fn a_server_that_repeats_itself_and_refuses_makes_no_load() {
    let mut client = client(1);
    let discover = client.start(Duration::ZERO, None).remove(0);
    let old = full(&discover, MessageType::Offer, SERVER);
    let mut now = Duration::ZERO;
    let mut outputs = client.hear(now, &old);
    let mut messages = 0;
    while now < seconds(3600) {
        messages += outputs.iter().filter_map(sent).count();
        let refusals: Vec<Vec<u8>> = outputs
            .iter()
            .filter(|it| sent(it).is_some())
            .map(|it| full(it, MessageType::Nak, SERVER))
            .collect();
        outputs = Vec::new();
        for packet in refusals.iter().chain([&old]) {
            outputs.extend(client.hear(now, packet));
        }
        if outputs.is_empty() {
            (now, outputs) = next(&mut client);
        }
    }
    assert!(client.lease().is_none());
    assert!(messages < 200, "{messages} messages in an hour");
}
