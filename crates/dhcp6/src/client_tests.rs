//! A client step by step: which message leads where (RFC 8415 §18.2), with time that does not pass by itself.

use super::*;
use crate::FOREVER;
use crate::exchange::{CONFIRM as CONFIRM_PLAN, REQUEST as REQUEST_PLAN};
use crate::options;
use crate::testing::*;

const ZERO: Duration = Duration::ZERO;

fn client() -> Client {
    Client::new(settings(), 1)
}

/// What a server of this number grants: preferred for 1000 s, valid for 2000 s, T1 500 s, T2 800 s.
fn grant(to: &Asked, kind: u8, number: u8) -> Answer {
    Answer::new(to, kind, server(number)).with(address(5), 1000, 2000)
}

fn only(outputs: &[Output]) -> Asked {
    let [asked] = &sent(outputs)[..] else { panic!("{outputs:?}") };
    asked.clone()
}

fn next(client: &mut Client) -> (Duration, Vec<Output>) {
    let now = client.deadline().unwrap();
    (now, client.tick(now))
}

/// A client that has a lease of server 1 from second 0 on.
fn bound() -> Client {
    let mut client = client();
    let solicit = only(&client.start(ZERO, None));
    let outputs = client.hear(ZERO, &grant(&solicit, REPLY, 1).rapid().bytes());
    assert!(matches!(&outputs[..], [Output::Bound(lease)] if lease.has(address(5))));
    client
}

/// One that renews, and its message.
fn renewing() -> (Client, Asked, Duration) {
    let mut client = bound();
    let (now, outputs) = next(&mut client);
    assert_eq!((now, kinds(&outputs)), (seconds(500), vec![RENEW]));
    (client, only(&outputs), now)
}

fn rebinding() -> (Client, Asked, Duration) {
    let mut client = bound();
    loop {
        let (now, outputs) = next(&mut client);
        if kinds(&outputs) == [REBIND] {
            assert_eq!(now, seconds(800));
            return (client, only(&outputs), now);
        }
    }
}

fn requesting() -> (Client, Asked) {
    let mut client = client();
    let solicit = only(&client.start(ZERO, None));
    let outputs = client.hear(ZERO, &grant(&solicit, ADVERTISE, 1).preference(255).bytes());
    (client, only(&outputs))
}

fn confirming() -> (Client, Asked) {
    let mut client = bound();
    let confirm = only(&client.start(seconds(100), None));
    assert_eq!((confirm.kind, &confirm.addresses[..]), (CONFIRM, &[address(5)][..]));
    (client, confirm)
}

fn kept() -> Lease {
    bound().lease().unwrap().clone()
}

/// What an answer led to: messages, and the rest in words.
fn shape(outputs: &[Output]) -> String {
    let word = |output: &Output| match output {
        Output::Send(message) => format!("send {}", message[0]),
        Output::Bound(_) => "bound".into(),
        Output::Lost(_, loss) => format!("lost {loss:?}"),
        Output::Refused(_) => "refused".into(),
        Output::Informed(_) => "informed".into(),
    };
    outputs.iter().map(word).collect::<Vec<_>>().join(", ")
}

#[test]
fn the_first_message_waits_for_a_moment_and_no_later_one() {
    for seed in 0..100 {
        let mut client = Client::new(Settings { first_delay: seconds(1), ..settings() }, seed);
        let at = seconds(10);
        let outputs = client.start(at, None);
        let begun = if outputs.is_empty() { client.deadline().unwrap() } else { at };
        assert!(begun <= at + seconds(1), "{begun:?}");
        let solicit = if outputs.is_empty() { client.tick(begun) } else { outputs };
        assert_eq!(only(&solicit).option(options::ELAPSED_TIME), Some(&[0, 0][..]));
        let (again, outputs) = next(&mut client);
        assert!(again - begun > seconds(1) && again - begun <= Duration::from_millis(1100));
        assert_eq!(only(&outputs).xid, only(&solicit).xid);
        let elapsed =
            u16::from_be_bytes(only(&outputs).option(options::ELAPSED_TIME).unwrap().try_into().unwrap());
        assert!((100..=110).contains(&elapsed), "{elapsed} hundredths");
    }
}

#[test]
fn offers_are_collected_and_the_greatest_preference_counts() {
    let mut client = client();
    let solicit = only(&client.start(ZERO, None));
    for (number, preference) in [(1, 3), (2, 7), (3, 7), (4, 0)] {
        let offer = grant(&solicit, ADVERTISE, number).preference(preference);
        assert!(client.hear(seconds(0), &offer.bytes()).is_empty());
    }
    let (now, outputs) = next(&mut client);
    let request = only(&outputs);
    assert!(now > seconds(1) && request.kind == REQUEST && request.xid != solicit.xid);
    assert!(request.is_to(&server(2)) && request.addresses == [address(5)]);
    // An offer after the first repeat counts at once.
    let mut client = self::client();
    let solicit = only(&client.start(ZERO, None));
    let (now, _) = next(&mut client);
    assert_eq!(kinds(&client.hear(now, &grant(&solicit, ADVERTISE, 1).bytes())), [REQUEST]);
}

#[test]
fn servers_set_the_longest_wait_even_when_they_have_no_address() {
    let mut client = client();
    let solicit = only(&client.start(ZERO, None));
    let offer = Answer::new(&solicit, ADVERTISE, server(1)).status(NO_ADDRS_AVAIL);
    let offer = offer.option(options::SOL_MAX_RT, &60u32.to_be_bytes());
    assert!(client.hear(ZERO, &offer.bytes()).is_empty());
    let mut last = ZERO;
    for _ in 0..50 {
        let (now, outputs) = next(&mut client);
        assert_eq!(kinds(&outputs), [SOLICIT]);
        assert!(now - last <= seconds(66), "{:?}", now - last);
        last = now;
    }
    assert!(client.lease().is_none());
}

#[test]
fn a_request_is_repeated_ten_times_before_servers_are_looked_for_again() {
    let (mut client, first) = requesting();
    let mut count = 1;
    let solicit = loop {
        let (_, outputs) = next(&mut client);
        match only(&outputs) {
            asked if asked.kind == REQUEST => {
                assert_eq!(asked.xid, first.xid);
                count += 1;
            }
            asked => break asked,
        }
    };
    assert_eq!((Some(count), solicit.kind), (REQUEST_PLAN.count, SOLICIT));
}

#[test]
fn its_own_server_prolongs_a_lease_first_and_then_any() {
    let mut client = bound();
    let (mut renews, mut rebinds) = (Vec::new(), Vec::new());
    let lost = loop {
        let (now, outputs) = next(&mut client);
        match &outputs[..] {
            [Output::Send(message)] if message[0] == RENEW => {
                assert!(Asked::read(message).option(options::SERVER_ID).is_some());
                renews.push(now);
            }
            [Output::Send(message)] if message[0] == REBIND => {
                assert!(Asked::read(message).option(options::SERVER_ID).is_none());
                rebinds.push(now);
            }
            [Output::Lost(_, Loss::Expired), Output::Send(message)] if message[0] == SOLICIT => break now,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!((renews[0], rebinds[0], lost), (seconds(500), seconds(800), seconds(2000)));
    assert!(renews.len() > 3 && rebinds.len() > 3);
    assert!(client.lease().is_none() && client.remaining(lost) == ZERO);
}

#[test]
fn a_lease_for_ever_is_never_renewed_and_does_not_pass() {
    let mut client = client();
    let solicit = only(&client.start(ZERO, None));
    let reply = Answer::new(&solicit, REPLY, server(1)).with(address(5), u32::MAX, u32::MAX).rapid();
    let _ = client.hear(ZERO, &reply.bytes());
    assert_eq!((client.deadline(), client.remaining(seconds(1 << 40))), (None, FOREVER));
}

#[test]
fn an_unknown_binding_is_requested_again_while_the_lease_is_used() {
    let (mut client, renew, now) = renewing();
    let outputs = client.hear(now, &Answer::new(&renew, REPLY, server(1)).status(NO_BINDING).bytes());
    let request = only(&outputs);
    assert!(request.is_to(&server(1)) && request.addresses == [address(5)]);
    assert!(client.lease().is_some());
    let reply = Answer::new(&request, REPLY, server(1)).with(address(9), 1000, 2000);
    assert!(matches!(&client.hear(now, &reply.bytes())[..], [Output::Bound(lease)] if lease.has(address(9))));
    assert!(!client.lease().unwrap().has(address(5)));
}

#[test]
fn one_address_of_several_is_over_and_the_rest_is_used_on() {
    let mut client = client();
    let solicit = only(&client.start(ZERO, None));
    let reply = grant(&solicit, REPLY, 1).with(address(6), 100, 300).times(1999, 0).rapid();
    let _ = client.hear(ZERO, &reply.bytes());
    while client.deadline().unwrap() < seconds(300) {
        let (_, outputs) = next(&mut client);
        assert_eq!(kinds(&outputs).len(), outputs.len());
    }
    let (_, outputs) = next(&mut client);
    let [Output::Bound(lease), ..] = &outputs[..] else { panic!("{outputs:?}") };
    assert_eq!((lease.list(), lease.addresses[0].valid), (vec![address(5)], seconds(1700)));
}

#[test]
fn a_lease_of_before_is_used_when_a_server_confirms_it_or_none_answers() {
    let mut client = client();
    let confirm = only(&client.start(seconds(100), Some(kept())));
    assert!(confirm.kind == CONFIRM && client.lease().is_none(), "not in use yet");
    let outputs = client.hear(seconds(101), &Answer::new(&confirm, REPLY, server(3)).own_status(0).bytes());
    let [Output::Bound(lease)] = &outputs[..] else { panic!("{outputs:?}") };
    assert_eq!((lease.addresses[0].valid, lease.renew_at()), (seconds(1899), seconds(500)));

    let mut client = self::client();
    let _ = client.start(seconds(100), Some(kept()));
    let now = loop {
        let (now, outputs) = next(&mut client);
        if let [Output::Bound(_)] = &outputs[..] {
            break now;
        }
        assert_eq!(kinds(&outputs), [CONFIRM]);
    };
    assert_eq!(now, seconds(100) + CONFIRM_PLAN.duration.unwrap());

    let mut client = self::client();
    let confirm = only(&client.start(seconds(100), Some(kept())));
    let outputs =
        client.hear(seconds(101), &Answer::new(&confirm, REPLY, server(3)).own_status(NOT_ON_LINK).bytes());
    assert_eq!(shape(&outputs), "refused, send 1");
    // T1 has passed in the meantime; and one that is over is not asked for.
    let mut client = self::client();
    let confirm = only(&client.start(seconds(700), Some(kept())));
    let outputs = client.hear(seconds(700), &Answer::new(&confirm, REPLY, server(3)).own_status(0).bytes());
    assert_eq!(shape(&outputs), "bound, send 5");
    assert_eq!(kinds(&self::client().start(seconds(2000), Some(kept()))), [SOLICIT]);
}

#[test]
fn a_pulled_cable_costs_no_address() {
    let (mut client, _) = confirming();
    assert!(client.lease().is_some());
    while client.deadline().unwrap() < seconds(110) {
        assert_eq!(kinds(&next(&mut client).1), [CONFIRM]);
    }
    let (now, outputs) = next(&mut client);
    assert_eq!((now, shape(&outputs).as_str()), (seconds(110), "bound"));
    assert_eq!(client.deadline(), Some(seconds(500)));
}

#[test]
fn word_of_a_lease_counts_while_nothing_is_offered() {
    let mut other = client();
    assert!(other.remember(ZERO, kept()).is_empty(), "it has not begun");
    let _ = other.start(ZERO, None);
    assert_eq!(kinds(&other.remember(ZERO, kept())), [CONFIRM]);
    assert!(other.remember(ZERO, kept()).is_empty(), "it asks already");
    assert!(bound().remember(ZERO, kept()).is_empty());
}

#[test]
fn an_address_that_another_machine_has_is_declined() {
    let mut client = bound();
    assert!(client.conflict(seconds(1), address(6)).is_empty(), "it does not have it");
    let outputs = client.conflict(seconds(1), address(5));
    assert_eq!(shape(&outputs), "lost Conflict, send 9");
    let decline = only(&outputs);
    assert!(decline.is_to(&server(1)) && decline.addresses == [address(5)]);
    let outputs =
        client.hear(seconds(2), &Answer::new(&decline, REPLY, server(1)).own_status(NO_BINDING).bytes());
    assert_eq!(shape(&outputs), "send 1", "the server knows, whatever it says");
    // No server answers: four times.
    let mut client = bound();
    let mut outputs = client.conflict(seconds(1), address(5));
    let mut declines = 0;
    while kinds(&outputs) == [DECLINE] {
        declines += 1;
        outputs = next(&mut client).1;
    }
    assert_eq!((declines, kinds(&outputs)), (4, vec![SOLICIT]));
}

#[test]
fn the_rest_of_a_lease_is_used_on_after_a_conflict() {
    let mut client = client();
    let solicit = only(&client.start(ZERO, None));
    let reply = grant(&solicit, REPLY, 1).with(address(6), 1000, 2000).with(address(7), 1000, 2000).rapid();
    let _ = client.hear(ZERO, &reply.bytes());
    assert_eq!(shape(&client.conflict(ZERO, address(5))), "bound, send 9");
    let outputs = client.conflict(ZERO, address(6));
    let decline = only(&outputs);
    assert_eq!(decline.addresses, [address(6), address(5)], "the first is not confirmed yet");
    assert!(client.hear(ZERO, &Answer::new(&decline, REPLY, server(1)).bytes()).is_empty());
    assert_eq!(client.lease().unwrap().list(), [address(7)]);
    assert_eq!(client.deadline(), Some(seconds(500)));
}

#[test]
fn a_lease_is_given_back() {
    let mut client = bound();
    let outputs = client.release(seconds(1));
    assert_eq!(shape(&outputs), "lost Released, send 8");
    let release = only(&outputs);
    assert!(release.is_to(&server(1)) && release.addresses == [address(5)]);
    let _ = client.hear(seconds(1), &Answer::new(&release, REPLY, server(1)).own_status(0).bytes());
    assert_eq!(client.deadline(), None);
    let mut client = bound();
    let mut releases = kinds(&client.release(seconds(1))).len();
    while client.deadline().is_some() {
        releases += kinds(&next(&mut client).1).len();
    }
    assert_eq!(releases, 4);
    assert!(client.release(seconds(99)).is_empty(), "it has none");
    assert_eq!(kinds(&client.start(seconds(100), None)), [SOLICIT]);
}

#[test]
fn a_changed_client_keeps_its_lease_in_the_meantime() {
    let named = Settings { hostname: Some("node-2".into()), ..settings() };
    let mut client = bound();
    let renew = only(&client.change(seconds(9), named.clone()));
    assert!(renew.kind == RENEW && renew.option(options::CLIENT_FQDN).is_some());
    assert!(client.lease().is_some());
    let mut client = confirming().0;
    assert_eq!(kinds(&client.change(seconds(101), named)), [CONFIRM]);
    let mut client = bound();
    let outputs = client.change(seconds(9), Settings { duid: Some(server(9)), ..settings() });
    assert_eq!(kinds(&outputs), [SOLICIT]);
    assert!(client.lease().is_some());
    let mut client = bound();
    let outputs = client.change(seconds(9), Settings { stateless: true, ..settings() });
    assert_eq!(shape(&outputs), "lost Released, send 8, send 11");
}

#[test]
fn a_client_without_addresses_asks_for_settings() {
    let mut client = Client::new(Settings { stateless: true, ..settings() }, 1);
    let inform = only(&client.start(ZERO, Some(kept())));
    assert_eq!((inform.kind, inform.option(options::IA_NA)), (INFORM, None));
    let answer = |to: &Asked, refresh: u32| {
        let answer = Answer::new(to, REPLY, server(1)).option(options::DNS_SERVERS, &address(0x53).octets());
        answer.option(options::REFRESH_TIME, &refresh.to_be_bytes())
    };
    let outputs = client.hear(seconds(1), &answer(&inform, 7200).with(address(5), 10, 20).bytes());
    assert!(matches!(&outputs[..], [Output::Informed(it)] if it.dns_servers == [address(0x53)]));
    assert!(client.lease().is_none() && client.information().is_some());
    let (now, outputs) = next(&mut client);
    assert_eq!((now, kinds(&outputs)), (seconds(7201), vec![INFORM]));
    let _ = client.hear(now, &answer(&only(&outputs), u32::MAX).bytes());
    assert_eq!(client.deadline(), None);
    assert_eq!(kinds(&client.change(now, settings())), [SOLICIT]);
    assert!(client.information().is_none());
}

/// RFC 8415 §21.23: clients that were told together ask again at moments of their own.
#[test]
fn settings_are_refreshed_after_a_random_moment() {
    let mut moments: Vec<Duration> = Vec::new();
    for seed in 0..50 {
        let settings = Settings { stateless: true, first_delay: seconds(1), ..settings() };
        let mut client = Client::new(settings, seed);
        let begun = client.start(ZERO, None);
        let inform = only(&if begun.is_empty() { next(&mut client).1 } else { begun });
        let answer = Answer::new(&inform, REPLY, server(1));
        let _ = client.hear(seconds(2), &answer.bytes());
        let (refresh, outputs) = next(&mut client);
        assert_eq!((refresh, outputs), (seconds(2 + 86_400), Vec::new()));
        let (asked, outputs) = next(&mut client);
        assert_eq!(kinds(&outputs), [INFORM]);
        assert!(asked - refresh <= seconds(1), "{:?}", asked - refresh);
        moments.push(asked);
    }
    moments.sort();
    moments.dedup();
    assert!(moments.len() > 40, "{moments:?}");
}

#[test]
fn a_server_that_refuses_everything_is_asked_ever_more_slowly() {
    let mut client = client();
    let mut outputs = client.start(ZERO, None);
    let (mut now, mut starts) = (ZERO, Vec::new());
    while starts.len() < 8 {
        if let Some(solicit) = sent(&outputs).first() {
            starts.push(now);
            let request = only(&client.hear(now, &grant(solicit, ADVERTISE, 1).preference(255).bytes()));
            outputs =
                client.hear(now, &Answer::new(&request, REPLY, server(1)).status(NO_ADDRS_AVAIL).bytes());
        } else {
            (now, outputs) = next(&mut client);
        }
    }
    let gaps: Vec<u64> = starts.windows(2).map(|pair| (pair[1] - pair[0]).as_secs()).collect();
    assert!(gaps[0] == 0 && gaps[1..].is_sorted() && gaps[6] >= 32, "{gaps:?}");
}

#[test]
fn addresses_that_are_taken_back_go_and_the_rest_is_asked_for_on() {
    let mut client = client();
    let solicit = only(&client.start(ZERO, None));
    let _ = client.hear(ZERO, &grant(&solicit, REPLY, 1).with(address(6), 1000, 2000).rapid().bytes());
    let (now, outputs) = next(&mut client);
    let reply = Answer::new(&only(&outputs), REPLY, server(1)).with(address(6), 0, 0);
    let outputs = client.hear(now, &reply.bytes());
    assert!(matches!(&outputs[..], [Output::Bound(lease)] if lease.list() == [address(5)]));
    assert!(client.deadline().unwrap() > now + seconds(8), "the same exchange goes on");
    let (_, outputs) = next(&mut client);
    let again = only(&outputs);
    assert_eq!((again.kind, again.xid, again.addresses), (RENEW, reply.xid, vec![address(5)]));
}

#[test]
fn whatever_happens_it_sends_no_more_than_the_limit() {
    let mut client = client();
    let count = (0..100).map(|_| kinds(&client.start(seconds(9), None)).len()).sum::<usize>();
    assert_eq!(count, 20);
    // What was held back is repeated like what was lost.
    let (now, outputs) = next(&mut client);
    assert!(now > seconds(10) && kinds(&outputs) == [SOLICIT]);
}

#[path = "transition_tests.rs"]
mod transitions;
