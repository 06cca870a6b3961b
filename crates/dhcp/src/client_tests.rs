//! A client step by step, with time that does not pass by itself.

use dhcproto::v4::{DhcpOption, MessageType, Opcode};
use dhcproto::{Decodable, Decoder, Encodable};

use super::*;
use crate::message;

const MAC: [u8; 6] = [0x52, 0x54, 0, 1, 2, 3];
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 5);
const HOUR: u32 = 3600;

fn client(seed: u64) -> Client {
    Client::new(Settings { hardware: MAC, ..Settings::default() }, seed)
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn read(message: &[u8]) -> Message {
    Message::decode(&mut Decoder::new(message)).unwrap()
}

fn sent(output: &Output) -> Option<Message> {
    match output {
        Output::Broadcast(message) | Output::Unicast(_, message) => Some(read(message)),
        _ => None,
    }
}

/// Kinds of the messages that were sent.
fn kinds(outputs: &[Output]) -> Vec<MessageType> {
    outputs.iter().filter_map(sent).map(|message| message.opts().msg_type().unwrap()).collect()
}

fn answer(to: &Message, kind: MessageType, address: Ipv4Addr, server: Ipv4Addr, time: u32) -> Message {
    let none = Ipv4Addr::UNSPECIFIED;
    let mut answer = Message::new_with_id(to.xid(), none, address, none, none, &MAC);
    answer.set_opcode(Opcode::BootReply);
    answer.opts_mut().insert(DhcpOption::MessageType(kind));
    answer.opts_mut().insert(DhcpOption::ServerIdentifier(server));
    if kind != MessageType::Nak {
        answer.opts_mut().insert(DhcpOption::SubnetMask([255, 255, 255, 0].into()));
        answer.opts_mut().insert(DhcpOption::AddressLeaseTime(time));
    }
    answer
}

fn bytes(to: &Output, kind: MessageType, address: Ipv4Addr, server: Ipv4Addr) -> Vec<u8> {
    answer(&sent(to).unwrap(), kind, address, server, HOUR).to_vec().unwrap()
}

/// A client that has a lease of an hour from second 0 on.
fn bound(seed: u64) -> Client {
    let mut client = client(seed);
    let discover = client.start(Duration::ZERO, None);
    assert_eq!(kinds(&discover), [MessageType::Discover]);
    let request = client.hear(Duration::ZERO, &bytes(&discover[0], MessageType::Offer, ADDRESS, SERVER));
    assert_eq!(kinds(&request), [MessageType::Request]);
    let outputs = client.hear(Duration::ZERO, &bytes(&request[0], MessageType::Ack, ADDRESS, SERVER));
    assert!(matches!(&outputs[..], [Output::Bound(lease)] if lease.address == ADDRESS));
    client
}

/// Does what is due, up to and with the first messages.
fn next(client: &mut Client) -> (Duration, Vec<Output>) {
    let now = client.deadline().unwrap();
    (now, client.tick(now))
}

#[test]
fn without_servers_it_asks_ever_more_slowly() {
    let mut client = client(1);
    let _ = client.start(Duration::ZERO, None);
    let mut last = Duration::ZERO;
    for wait in [4, 8, 16, 32, 64, 64, 64] {
        let (now, outputs) = next(&mut client);
        assert_eq!(kinds(&outputs), [MessageType::Discover]);
        let gap = now - last;
        assert!(gap >= seconds(wait) - JITTER && gap <= seconds(wait) + JITTER, "{gap:?} for {wait} s");
        last = now;
    }
}

#[test]
fn an_address_of_before_is_asked_for_alone_for_a_moment() {
    let mut client = client(1);
    let reboot = client.start(Duration::ZERO, Some(ADDRESS));
    assert_eq!(kinds(&reboot), [MessageType::Request]);
    let (now, discover) = next(&mut client);
    assert_eq!((now, kinds(&discover)), (REBOOT_WAIT, vec![MessageType::Discover]));
    assert_eq!(sent(&reboot[0]).unwrap().xid(), sent(&discover[0]).unwrap().xid());
    // The answer to either counts.
    let outputs = client.hear(now, &bytes(&reboot[0], MessageType::Ack, ADDRESS, SERVER));
    assert!(matches!(&outputs[..], [Output::Bound(_)]));
}

#[test]
fn its_own_server_prolongs_a_lease_first_and_then_any() {
    for seed in 0..50 {
        let mut client = bound(seed);
        let (mut unicast, mut broadcast) = (Vec::new(), Vec::new());
        let lost = loop {
            let (now, outputs) = next(&mut client);
            match &outputs[..] {
                [Output::Unicast(server, _)] if *server == SERVER => unicast.push(now),
                [Output::Broadcast(message)] => {
                    assert_eq!(read(message).ciaddr(), ADDRESS);
                    broadcast.push(now);
                }
                [Output::Lost(lease, Loss::Expired), Output::Broadcast(_)] if lease.address == ADDRESS => {
                    break now;
                }
                other => panic!("{other:?}"),
            }
        };
        let within =
            |time: Duration, late: u64| time <= seconds(late) && time >= seconds(late) - seconds(late) / FUZZ;
        assert!(within(unicast[0], 1800), "T1 {:?}", unicast[0]);
        assert!(within(broadcast[0], 3150), "T2 {:?}", broadcast[0]);
        assert_eq!(lost, seconds(3600));
        assert!(unicast.len() > 3 && broadcast.len() > 3);
        let gaps = |times: &[Duration]| times.windows(2).all(|pair| pair[1] - pair[0] >= REBOOT_WAIT);
        assert!(gaps(&unicast) && gaps(&broadcast));
    }
}

#[test]
fn a_prolonged_lease_begins_again() {
    let mut client = bound(1);
    let (now, renew) = next(&mut client);
    let mut ack = answer(&sent(&renew[0]).unwrap(), MessageType::Ack, ADDRESS, SERVER, HOUR);
    ack.opts_mut().insert(DhcpOption::InterfaceMtu(1400));
    let outputs = client.hear(now, &ack.to_vec().unwrap());
    assert!(matches!(&outputs[..], [Output::Bound(lease)] if lease.mtu == Some(1400)));
    assert!(client.deadline().unwrap() > now + seconds(1700));
}

#[test]
fn what_remains_of_a_lease_gets_less_unless_it_is_for_ever() {
    let mut client = bound(1);
    assert_eq!(
        (client.remaining(Duration::ZERO), client.remaining(seconds(3500))),
        (seconds(3600), seconds(100))
    );
    let _ = client.conflict(seconds(1));
    assert_eq!(client.remaining(seconds(1)), Duration::ZERO);
    let mut client = self::client(1);
    let discover = client.start(Duration::ZERO, None);
    let mut ack = answer(&sent(&discover[0]).unwrap(), MessageType::Ack, ADDRESS, SERVER, u32::MAX);
    ack.opts_mut().insert(DhcpOption::RapidCommit);
    let _ = client.hear(Duration::ZERO, &ack.to_vec().unwrap());
    assert_eq!(client.remaining(seconds(1_000_000)), FOREVER);
}

#[test]
fn a_client_with_another_name_asks_again_and_keeps_its_address() {
    let mut client = bound(1);
    let settings = Settings { hostname: Some("node-2".into()), ..client.settings().clone() };
    let reboot = client.change(seconds(9), settings);
    let message = sent(&reboot[0]).unwrap();
    assert_eq!(message.opts().get(OptionCode::Hostname), Some(&DhcpOption::Hostname("node-2".into())));
    assert_eq!(client.lease().map(|lease| lease.address), Some(ADDRESS));
}

#[test]
fn a_pulled_cable_costs_no_address() {
    let mut client = bound(1);
    let reboot = client.start(seconds(100), None);
    assert_eq!(kinds(&reboot), [MessageType::Request]);
    assert_eq!(client.lease().map(|lease| lease.address), Some(ADDRESS));
    // No server answers: it stays until it is over.
    let lost = loop {
        let (now, outputs) = next(&mut client);
        if matches!(&outputs[..], [Output::Lost(_, Loss::Expired), ..]) {
            break now;
        }
    };
    assert_eq!(lost, seconds(3600));
    // In another network there is another address.
    let mut client = bound(1);
    let reboot = client.start(seconds(100), None);
    let outputs = client.hear(seconds(100), &bytes(&reboot[0], MessageType::Nak, ADDRESS, SERVER));
    assert!(matches!(&outputs[..], [Output::Lost(_, Loss::Refused), Output::Broadcast(_)]));
}

#[test]
fn an_address_that_another_machine_has_is_declined() {
    let mut client = bound(1);
    let outputs = client.conflict(seconds(1));
    assert_eq!(kinds(&outputs), [MessageType::Decline]);
    assert!(matches!(&outputs[1..], [Output::Lost(_, Loss::Conflict)]));
    let (now, outputs) = next(&mut client);
    assert_eq!((now, kinds(&outputs)), (seconds(1) + DECLINE_WAIT, vec![MessageType::Discover]));
    assert!(client.conflict(now).is_empty(), "it has none");
}

#[test]
fn a_server_that_refuses_everything_is_asked_ever_more_slowly() {
    let mut client = client(1);
    let mut outputs = client.start(Duration::ZERO, None);
    let (mut now, mut starts) = (Duration::ZERO, Vec::new());
    while starts.len() < 8 {
        if let Some(discover) = outputs.iter().find(|output| sent(output).is_some()) {
            starts.push(now);
            let request = client.hear(now, &bytes(discover, MessageType::Offer, ADDRESS, SERVER));
            outputs = client.hear(now, &bytes(&request[0], MessageType::Nak, ADDRESS, SERVER));
        } else {
            (now, outputs) = next(&mut client);
        }
    }
    let gaps: Vec<u64> = starts.windows(2).map(|pair| (pair[1] - pair[0]).as_secs()).collect();
    assert!(gaps[0] == 0 && gaps[1..].is_sorted() && gaps[6] >= 32, "{gaps:?}");
}

#[test]
fn settings_decide_about_the_name() {
    let settings = Settings { hardware: MAC, ignores_hostname: true, ..Settings::default() };
    let mut client = Client::new(settings, 1);
    let discover = client.start(Duration::ZERO, None);
    let mut ack = answer(&sent(&discover[0]).unwrap(), MessageType::Ack, ADDRESS, SERVER, HOUR);
    ack.opts_mut().insert(DhcpOption::RapidCommit);
    ack.opts_mut().insert(DhcpOption::Hostname("given".into()));
    let outputs = client.hear(Duration::ZERO, &ack.to_vec().unwrap());
    assert!(matches!(&outputs[..], [Output::Bound(lease)] if lease.hostname.is_none()));
}

#[path = "hostile_tests.rs"]
mod hostile;
#[path = "network_tests.rs"]
mod network;
#[path = "transition_tests.rs"]
mod transitions;
