//! The forwarder step by step, with time that does not pass by itself.
#![expect(clippy::cast_possible_truncation, reason = "numbers of tests are small")]

use std::net::{Ipv4Addr, Ipv6Addr};

use fastrand::Rng;
use hickory_proto::op::{Edns, MessageType, OpCode, Query};
use hickory_proto::rr::rdata::{A, SOA, TXT};
use hickory_proto::rr::{Name, RData, Record, RecordType};

use super::*;

type Outputs = Vec<Output<u32>>;

fn server(number: u8) -> SocketAddr {
    (Ipv4Addr::new(192, 0, 2, number), 53).into()
}

fn forwarder(servers: &[u8]) -> Forwarder<u32> {
    let mut random = Rng::with_seed(7);
    let mut forwarder = Forwarder::new(move || random.u16(..));
    forwarder.set_servers(&servers.iter().copied().map(server).collect::<Vec<_>>());
    forwarder
}

fn question(id: u16, name: &str, kind: RecordType) -> Vec<u8> {
    let mut message = Message::new(id, MessageType::Query, OpCode::Query);
    message.metadata.recursion_desired = true;
    message.add_query(Query::query(Name::from_ascii(name).unwrap(), kind));
    message.to_vec().unwrap()
}

fn at(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// The question that was sent to a server: exchange, server, message, transport.
fn sent(outputs: &Outputs) -> Vec<(u64, SocketAddr, Message, Transport)> {
    outputs
        .iter()
        .filter_map(|output| match output {
            Output::Ask { exchange, server, message, transport } => {
                Some((*exchange, *server, Message::from_vec(message).unwrap(), *transport))
            }
            _ => None,
        })
        .collect()
}

fn replies(outputs: &Outputs) -> Vec<(u32, Message)> {
    outputs
        .iter()
        .filter_map(|output| match output {
            Output::Reply(client, message) => Some((*client, Message::from_vec(message).unwrap())),
            _ => None,
        })
        .collect()
}

fn respond(asked: &Message, code: ResponseCode, ttl: u32, value: u16) -> Message {
    let mut answer = Message::response(asked.metadata.id, OpCode::Query);
    answer.metadata.response_code = code;
    answer.metadata.recursion_available = true;
    let query = asked.queries[0].clone();
    let name = query.name().clone();
    answer.add_query(query);
    match code {
        ResponseCode::NoError => {
            let data = RData::A(A(Ipv4Addr::from(0xc633_0000 | u32::from(value))));
            answer.add_answer(Record::from_rdata(name, ttl, data));
        }
        ResponseCode::NXDomain => {
            let zone = SOA::new(Name::root(), Name::root(), 1, 2, 3, 4, ttl);
            answer.add_authority(Record::from_rdata(Name::root(), ttl, RData::SOA(zone)));
        }
        _ => {}
    }
    answer.set_edns(Edns::new());
    answer
}

/// The last two bytes of the first address.
fn address(message: &Message) -> Option<u16> {
    message.answers.iter().find_map(|record| match &record.data {
        RData::A(A(address)) => Some(u32::from(*address) as u16),
        _ => None,
    })
}

#[test]
fn an_answer_is_given_to_all_who_wait_and_kept() {
    let mut forwarder = forwarder(&[1, 2]);
    let first = forwarder.asked(at(0), 1, &question(11, "A.Example.", RecordType::A), Transport::Datagram);
    let (exchange, to, asked, transport) = sent(&first).remove(0);
    assert_eq!((sent(&first).len(), transport), (1, Transport::Datagram));
    assert_eq!(to, server(1));
    assert!(asked.metadata.recursion_desired && asked.queries[0].name().to_ascii() == "a.example.");
    assert_ne!(asked.metadata.id, 11, "the number is another one");
    assert!(
        forwarder.asked(at(1), 2, &question(12, "a.example.", RecordType::A), Transport::Datagram).is_empty()
    );
    let answer = respond(&asked, ResponseCode::NoError, 60, 9).to_vec().unwrap();
    let outputs = forwarder.answered(at(20), exchange, &answer);
    assert!(outputs.contains(&Output::Cancel(exchange)));
    let got = replies(&outputs);
    assert_eq!(
        got.iter().map(|(client, it)| (*client, it.metadata.id)).collect::<Vec<_>>(),
        [(1, 11), (2, 12)]
    );
    assert!(got.iter().all(|(_, it)| address(it) == Some(9) && it.edns.is_none() && it.answers[0].ttl == 60));
    assert_eq!(got[0].1.queries[0].name().to_ascii(), "A.Example.", "the client's own spelling");
    let again =
        forwarder.asked(at(10_000), 3, &question(13, "a.EXAMPLE.", RecordType::A), Transport::Datagram);
    assert_eq!(replies(&again)[0].1.answers[0].ttl, 51, "older by 9 whole seconds");
    let over =
        forwarder.asked(at(60_020), 4, &question(14, "a.example.", RecordType::A), Transport::Datagram);
    assert!(sent(&over).len() == 1 && replies(&over).is_empty());
    assert_eq!(forwarder.deadline(), Some(at(61_020)));
}

#[test]
fn a_server_that_is_silent_or_fails_is_followed_by_the_next() {
    let mut silent = forwarder(&[1, 2]);
    let first = silent.asked(at(0), 1, &question(1, "a.", RecordType::A), Transport::Datagram);
    assert_eq!(sent(&first)[0].1, server(1));
    assert_eq!(silent.deadline(), Some(at(1000)));
    assert!(silent.tick(at(999)).is_empty());
    let next = silent.tick(at(1000));
    assert_eq!(sent(&next)[0].1, server(2));
    // The first one's answer still counts.
    let answer = respond(&sent(&first)[0].2, ResponseCode::NXDomain, 5, 0).to_vec().unwrap();
    let outputs = silent.answered(at(1100), sent(&first)[0].0, &answer);
    assert!(outputs.contains(&Output::Cancel(sent(&next)[0].0)));
    assert_eq!(replies(&outputs)[0].1.metadata.response_code, ResponseCode::NXDomain);
    assert_eq!(silent.deadline(), None);

    let mut failing = forwarder(&[1, 2]);
    let first = failing.asked(at(0), 1, &question(1, "a.", RecordType::A), Transport::Datagram);
    let answer = respond(&sent(&first)[0].2, ResponseCode::Refused, 0, 0).to_vec().unwrap();
    let next = failing.answered(at(5), sent(&first)[0].0, &answer);
    assert_eq!(sent(&next)[0].1, server(2), "at once");
    let answer = respond(&sent(&next)[0].2, ResponseCode::ServFail, 0, 0).to_vec().unwrap();
    let last = failing.answered(at(9), sent(&next)[0].0, &answer);
    assert_eq!(replies(&last)[0].1.metadata.response_code, ResponseCode::Refused, "the first failure");

    let mut unreachable = forwarder(&[1]);
    let first = unreachable.asked(at(0), 1, &question(1, "a.", RecordType::A), Transport::Datagram);
    assert!(unreachable.failed(at(1), sent(&first)[0].0).is_empty(), "it may come back within the second");
    let second = unreachable.tick(at(1000));
    let last = unreachable.failed(at(1001), sent(&second)[0].0);
    assert_eq!(replies(&last)[0].1.metadata.response_code, ResponseCode::ServFail);
}

#[test]
fn a_server_without_answers_comes_last_until_it_has_one() {
    let mut forwarder = forwarder(&[1, 2]);
    let mut now = 0;
    for number in 0..3 {
        let first = forwarder.asked(
            at(now),
            1,
            &question(1, &format!("n{number}."), RecordType::A),
            Transport::Datagram,
        );
        assert_eq!(sent(&first)[0].1, server(1));
        let next = forwarder.tick(at(now + 1000));
        let answer = respond(&sent(&next)[0].2, ResponseCode::NoError, 5, 1).to_vec().unwrap();
        forwarder.answered(at(now + 1010), sent(&next)[0].0, &answer);
        now += 2000;
    }
    let healthy: Vec<bool> = forwarder.health().iter().map(|it| it.is_healthy).collect();
    assert_eq!(healthy, [false, true]);
    let beside = forwarder.asked(at(now), 1, &question(1, "m0.", RecordType::A), Transport::Datagram);
    assert_eq!(sent(&beside).iter().map(|it| it.1).collect::<Vec<_>>(), [server(2)], "not yet probed");
    let beside = forwarder.asked(at(now + 5000), 1, &question(1, "m1.", RecordType::A), Transport::Datagram);
    assert_eq!(sent(&beside).iter().map(|it| it.1).collect::<Vec<_>>(), [server(2), server(1)]);
    let (exchange, _, asked, _) = sent(&beside).remove(1);
    forwarder.answered(
        at(now + 5001),
        exchange,
        &respond(&asked, ResponseCode::NoError, 5, 1).to_vec().unwrap(),
    );
    assert!(forwarder.health().iter().all(|it| it.is_healthy));
}

#[test]
fn what_is_over_is_given_when_no_server_answers() {
    let mut forwarder = forwarder(&[1]);
    let first = forwarder.asked(at(0), 1, &question(1, "a.", RecordType::A), Transport::Datagram);
    let answer = respond(&sent(&first)[0].2, ResponseCode::NoError, 5, 7).to_vec().unwrap();
    forwarder.answered(at(1), sent(&first)[0].0, &answer);
    let again = forwarder.asked(at(10_000), 2, &question(2, "a.", RecordType::A), Transport::Datagram);
    assert!(replies(&again).is_empty());
    forwarder.tick(at(11_000));
    let stale = replies(&forwarder.tick(at(11_800)));
    assert_eq!((address(&stale[0].1), stale[0].1.answers[0].ttl), (Some(7), 30));
    // The question is still open: the next client does not wait.
    let third = forwarder.asked(at(11_900), 3, &question(3, "a.", RecordType::A), Transport::Datagram);
    assert_eq!(address(&replies(&third)[0].1), Some(7));
    // And its answer is for those who come later.
    let late = respond(&sent(&again)[0].2, ResponseCode::NoError, 5, 8).to_vec().unwrap();
    assert!(replies(&forwarder.answered(at(12_000), sent(&again)[0].0, &late)).is_empty());
    let fourth = forwarder.asked(at(12_100), 4, &question(4, "a.", RecordType::A), Transport::Datagram);
    assert_eq!(address(&replies(&fourth)[0].1), Some(8));
}

/// RFC 8767 §4: a server that fails has not answered; one that refuses has.
#[test]
fn what_is_over_is_given_when_servers_fail() {
    for (code, expected) in [(ResponseCode::ServFail, Some(7)), (ResponseCode::Refused, None)] {
        let mut forwarder = forwarder(&[1]);
        let first = forwarder.asked(at(0), 1, &question(1, "a.", RecordType::A), Transport::Datagram);
        let answer = respond(&sent(&first)[0].2, ResponseCode::NoError, 5, 7).to_vec().unwrap();
        forwarder.answered(at(1), sent(&first)[0].0, &answer);
        let again = forwarder.asked(at(10_000), 2, &question(2, "a.", RecordType::A), Transport::Datagram);
        let failure = respond(&sent(&again)[0].2, code, 0, 0).to_vec().unwrap();
        let got = replies(&forwarder.answered(at(10_010), sent(&again)[0].0, &failure));
        assert_eq!((got.len(), address(&got[0].1)), (1, expected), "{code:?}");
    }
}

#[test]
fn what_a_server_of_before_says_is_not_kept() {
    let mut forwarder = forwarder(&[1]);
    let first = forwarder.asked(at(0), 1, &question(1, "a.", RecordType::A), Transport::Datagram);
    forwarder.set_servers(&[server(2)]);
    let answer = respond(&sent(&first)[0].2, ResponseCode::NoError, 60, 7).to_vec().unwrap();
    let got = replies(&forwarder.answered(at(1), sent(&first)[0].0, &answer));
    assert_eq!(address(&got[0].1), Some(7), "who waited has it");
    let again = forwarder.asked(at(2), 2, &question(2, "a.", RecordType::A), Transport::Datagram);
    assert_eq!(sent(&again).first().map(|it| it.1), Some(server(2)));
}

#[test]
fn what_is_cut_off_is_asked_for_by_a_stream() {
    let mut forwarder = forwarder(&[1]);
    let first = forwarder.asked(at(0), 1, &question(1, "a.", RecordType::TXT), Transport::Datagram);
    let mut cut = respond(&sent(&first)[0].2, ResponseCode::NoError, 5, 7);
    cut.answers.clear();
    cut.metadata.truncation = true;
    let next = forwarder.answered(at(1), sent(&first)[0].0, &cut.to_vec().unwrap());
    let (exchange, to, asked, transport) = sent(&next).remove(0);
    assert_eq!((sent(&next).len(), transport), (1, Transport::Stream));
    assert_eq!(to, server(1));
    let mut whole = respond(&asked, ResponseCode::NoError, 5, 7);
    whole.answers = (0..40)
        .map(|number| {
            let data = RData::TXT(TXT::new(vec![format!("{number:0100}")]));
            Record::from_rdata(asked.queries[0].name().clone(), 5, data)
        })
        .collect();
    let got = replies(&forwarder.answered(at(2), exchange, &whole.to_vec().unwrap()));
    assert!(got[0].1.metadata.truncation && got[0].1.answers.is_empty(), "4 kB are no datagram of 512 bytes");
    let stream = forwarder.asked(at(3), 2, &question(2, "a.", RecordType::TXT), Transport::Stream);
    assert_eq!(replies(&stream)[0].1.answers.len(), 40);
}

#[test]
fn names_of_the_node_are_answered_without_a_server() {
    let mut forwarder = forwarder(&[]);
    let addresses = vec![Ipv4Addr::from(0xc633_0005).into(), Ipv6Addr::LOCALHOST.into()];
    forwarder.set_hosts(BTreeMap::from([("worker-1".to_owned(), addresses)]));
    let ask = |forwarder: &mut Forwarder<u32>, name, kind| {
        replies(&forwarder.asked(at(0), 1, &question(1, name, kind), Transport::Datagram)).remove(0).1
    };
    let four = ask(&mut forwarder, "Worker-1.", RecordType::A);
    assert!(four.metadata.authoritative && address(&four) == Some(5) && four.answers.len() == 1);
    assert_eq!(ask(&mut forwarder, "worker-1.", RecordType::AAAA).answers.len(), 1);
    let none = ask(&mut forwarder, "worker-1.", RecordType::MX);
    assert_eq!((none.metadata.response_code, none.answers.len()), (ResponseCode::NoError, 0));
    let other = ask(&mut forwarder, "worker-2.", RecordType::A);
    assert_eq!(other.metadata.response_code, ResponseCode::ServFail, "there is no server");
}

#[test]
fn what_is_no_question_is_refused_or_dropped() {
    let mut forwarder = forwarder(&[1]);
    let code = |forwarder: &mut Forwarder<u32>, message: &[u8]| {
        let outputs = forwarder.asked(at(0), 1, message, Transport::Datagram);
        assert!(sent(&outputs).is_empty());
        replies(&outputs).first().map(|it| (it.1.metadata.response_code, it.1.metadata.id))
    };
    let good = question(0x1234, "a.", RecordType::A);
    assert_eq!(code(&mut forwarder, &good[..11]), None);
    assert_eq!(code(&mut forwarder, &good[..14]), Some((ResponseCode::FormErr, 0x1234)));
    let mut answer = good.clone();
    answer[2] |= 0x80;
    assert_eq!(code(&mut forwarder, &answer), None, "an answer has no answer");
    let mut update = good.clone();
    update[2] |= 5 << 3;
    assert!(matches!(code(&mut forwarder, &update), Some((ResponseCode::NotImp | ResponseCode::FormErr, _))));
    let transfer = question(3, "a.", RecordType::AXFR);
    assert_eq!(code(&mut forwarder, &transfer), Some((ResponseCode::Refused, 3)));
    let mut chaos = good.clone();
    *chaos.last_mut().unwrap() = 3;
    assert_eq!(code(&mut forwarder, &chaos), Some((ResponseCode::Refused, 0x1234)));
}

#[test]
fn limits_hold() {
    let mut forwarder = forwarder(&[1]);
    for client in 0..2000_u32 {
        let outputs =
            forwarder.asked(at(0), client, &question(1, "same.", RecordType::A), Transport::Datagram);
        assert_eq!(replies(&outputs).is_empty(), client < MAX_WAITING as u32);
    }
    let mut refused = 0;
    for client in 0..2000_u32 {
        let name = format!("n{client}.");
        refused +=
            replies(&forwarder.asked(at(0), client, &question(1, &name, RecordType::A), Transport::Datagram))
                .len();
    }
    assert_eq!((refused, forwarder.open.len()), (2000 - (MAX_OPEN - 1), MAX_OPEN));
    forwarder.tick(at(4500));
    assert!(forwarder.open.is_empty() && forwarder.by_key.is_empty() && forwarder.by_exchange.is_empty());
}

#[test]
fn mutated_messages_are_answered_or_dropped_and_never_lied_about() {
    let mut numbers = Rng::with_seed(42);
    let mut forwarder = forwarder(&[1]);
    for round in 0..rounds::count(10_000, 300_000) {
        let now = at(round * 10_000);
        let mut client = question(1, "a.example.", RecordType::A);
        let flips = numbers.u64(..3);
        for _ in 0..flips {
            let place = numbers.u64(..client.len() as u64) as usize;
            client[place] ^= 1 << numbers.u64(..8);
        }
        let outputs = forwarder.asked(now, 1, &client, Transport::Datagram);
        let Some((exchange, _, asked, _)) = sent(&outputs).into_iter().next() else { continue };
        let mut answer = respond(&asked, ResponseCode::NoError, 1, 9).to_vec().unwrap();
        for _ in 0..1 + numbers.u64(..4) {
            let place = numbers.u64(..answer.len() as u64) as usize;
            answer[place] = numbers.u64(..) as u8;
        }
        for (_, message) in replies(&forwarder.answered(now, exchange, &answer)) {
            assert_eq!(message.queries[0].name().to_lowercase(), asked.queries[0].name().to_lowercase());
        }
        forwarder.tick(now + at(9000));
        forwarder.tick(now + at(9000));
    }
    assert!(forwarder.open.is_empty());
}

#[path = "network_tests.rs"]
mod network;
