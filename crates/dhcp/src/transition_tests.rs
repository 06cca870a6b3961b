//! Every event in every state: RFC 2131, figure 5, and what this client has besides.
//!
//! States have the names of the RFC. `in use`: the link had a lease when its cable came back, and has it in the meantime.
//! `asking both`: the address of before was asked for, and then servers. An event that has no row changes nothing.

use super::*;

/// What each state begins with: server 1 grants 10.0.0.5 for an hour from second 0 on.
struct Scene {
    client: Client,
    now: Duration,
    /// What was sent last.
    asked: Option<Output>,
}

impl Scene {
    fn new() -> Self {
        Self { client: client(1), now: Duration::ZERO, asked: None }
    }

    fn then(mut self, now: Duration, act: impl FnOnce(&mut Client, Option<&Output>) -> Vec<Output>) -> Self {
        let outputs = act(&mut self.client, self.asked.as_ref());
        let last = outputs.into_iter().rfind(|output| sent(output).is_some());
        Self { now, asked: last.or(self.asked), ..self }
    }

    fn hear(self, at: Duration, kind: MessageType, last: u8, number: u8) -> Self {
        self.then(at, |client, asked| client.hear(at, &says(asked, kind, last, number).to_vec().unwrap()))
    }

    fn tick(self) -> Self {
        let due = self.client.deadline().unwrap();
        self.then(due, |client, _| client.tick(due))
    }

    fn later(self, by: Duration) -> Self {
        Self { now: self.now + by, ..self }
    }

    fn held(&self) -> Option<&Held> {
        match &self.client.state {
            State::Bound(held) | State::Renewing { held, .. } => Some(held),
            State::Selecting { held, .. } | State::Requesting { held, .. } => held.as_ref(),
            State::Waiting(_) => None,
        }
    }
}

fn host(last: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, last)
}

/// What a server says to the last question; where there was none, to some question.
fn says(asked: Option<&Output>, kind: MessageType, last: u8, number: u8) -> Message {
    let to = asked.and_then(sent).unwrap_or_default();
    answer(&to, kind, host(last), host(number), HOUR)
}

fn made(state: &str) -> Scene {
    let start = |before: Option<u8>| {
        Scene::new().then(Duration::ZERO, |client, _| client.start(Duration::ZERO, before.map(host)))
    };
    let requesting = || start(None).hear(Duration::ZERO, MessageType::Offer, 5, 1);
    let bound = || requesting().hear(Duration::ZERO, MessageType::Ack, 5, 1);
    let back = || bound().then(seconds(100), |client, _| client.start(seconds(100), None));
    let rebinding = || {
        let mut scene = bound();
        while !matches!(scene.asked, Some(Output::Broadcast(_))) || scene.now.is_zero() {
            scene = scene.tick();
        }
        scene
    };
    match state {
        "init" => Scene::new(),
        "selecting" => start(None).later(seconds(2)),
        "requesting" => requesting().later(seconds(2)),
        "bound" => bound().later(seconds(100)),
        "renewing" => bound().tick().later(seconds(1)),
        "rebinding" => rebinding().later(seconds(1)),
        "rebooting" => start(Some(5)).later(REBOOT_WAIT / 2),
        "asking both" => start(Some(5)).tick().later(seconds(2)),
        "rebooting in use" => back().later(REBOOT_WAIT / 2),
        "selecting in use" => back().tick().later(seconds(2)),
        "requesting in use" => back().tick().hear(seconds(101), MessageType::Offer, 5, 1).later(seconds(2)),
        "requesting 6 in use" => back().tick().hear(seconds(101), MessageType::Offer, 6, 2).later(seconds(2)),
        "waiting" => bound().then(seconds(100), |client, _| client.conflict(seconds(100))),
        other => panic!("{other}"),
    }
}

const STATES: [&str; 13] = [
    "init",
    "selecting",
    "requesting",
    "bound",
    "renewing",
    "rebinding",
    "rebooting",
    "asking both",
    "rebooting in use",
    "selecting in use",
    "requesting in use",
    "requesting 6 in use",
    "waiting",
];

/// The state as it is called here.
fn word(scene: &Scene) -> &'static str {
    match &scene.client.state {
        State::Waiting(None) => "init",
        State::Waiting(Some(_)) => "waiting",
        State::Bound(_) => "bound",
        State::Renewing { held, .. } if scene.now >= held.rebind => "rebinding",
        State::Renewing { .. } => "renewing",
        State::Requesting { held: None, .. } => "requesting",
        State::Requesting { held: Some(held), offer, .. } if held.lease.address == offer.address => {
            "requesting in use"
        }
        State::Requesting { .. } => "requesting 6 in use",
        State::Selecting { exchange, wanted, held } => match (exchange.sent, wanted, held) {
            (0, Some(_), None) => "rebooting",
            (0, Some(_), Some(_)) => "rebooting in use",
            (0, None, _) => "waiting in use",
            (_, None, None) => "selecting",
            (_, Some(_), None) => "asking both",
            (_, _, Some(_)) => "selecting in use",
        },
    }
}

/// Messages of servers: kind, last byte of the address, number of the server.
const ANSWERS: [(&str, MessageType, u8, u8); 9] = [
    ("offer", MessageType::Offer, 5, 1),
    ("offer of no server", MessageType::Offer, 5, 0),
    ("ack", MessageType::Ack, 5, 1),
    ("ack of 2", MessageType::Ack, 5, 2),
    ("ack of 6 of 2", MessageType::Ack, 6, 2),
    ("ack at once of 6 of 2", MessageType::Ack, 6, 2),
    ("nak", MessageType::Nak, 5, 1),
    ("nak of 2", MessageType::Nak, 5, 2),
    ("nak of no server", MessageType::Nak, 5, 0),
];

const OTHERS: [&str; 8] =
    ["due", "T2", "end", "carrier", "carrier, had 7", "word of 7", "conflict", "other name"];

fn spoken(scene: &Scene, event: &str) -> Option<Message> {
    let (name, kind, last, number) = *ANSWERS.iter().find(|(name, ..)| *name == event)?;
    let mut message = says(scene.asked.as_ref(), kind, last, number);
    if number == 0 {
        message.opts_mut().remove(OptionCode::ServerIdentifier);
    }
    if name.contains("at once") {
        message.opts_mut().insert(DhcpOption::RapidCommit);
    }
    Some(message)
}

/// Lets it happen; where it cannot, nothing does.
fn happens(scene: &mut Scene, event: &str) -> Vec<Output> {
    if let Some(message) = spoken(scene, event) {
        return scene.client.hear(scene.now, &message.to_vec().unwrap());
    }
    let moment = match event {
        "due" => scene.client.deadline(),
        "T2" => scene.held().map(|held| held.rebind),
        "end" => scene.held().map(|held| held.end),
        _ => Some(scene.now),
    };
    let Some(moment) = moment else { return Vec::new() };
    scene.now = scene.now.max(moment);
    let (client, now) = (&mut scene.client, scene.now);
    match event {
        "due" | "T2" | "end" => client.tick(now),
        "carrier" => client.start(now, None),
        "carrier, had 7" => client.start(now, Some(host(7))),
        "word of 7" => client.remember(now, host(7)),
        "conflict" => client.conflict(now),
        "other name" => {
            let settings = Settings { hostname: Some("node-2".into()), ..client.settings().clone() };
            client.change(now, settings)
        }
        other => panic!("{other}"),
    }
}

/// Kind, receiver, whether the number is another one than that of the last message, and the fields that say something.
fn shown(output: &Output, before: Option<&Output>) -> Option<String> {
    let message = sent(output)?;
    let to = match output {
        Output::Unicast(server, _) => format!("to {}", server.octets()[3]),
        _ => "to all".into(),
    };
    let is_same = before.and_then(sent).is_some_and(|before| before.xid() == message.xid());
    let kind = match message.opts().msg_type()? {
        MessageType::Discover => "DISCOVER",
        MessageType::Request => "REQUEST",
        MessageType::Decline => "DECLINE",
        other => panic!("{other:?}"),
    };
    let mut text = format!("{kind} {to}, {}", if is_same { "same" } else { "new" });
    if !message.ciaddr().is_unspecified() {
        text += &format!(", ciaddr {}", message.ciaddr().octets()[3]);
    }
    if let Some(DhcpOption::RequestedIpAddress(address)) = message.opts().get(OptionCode::RequestedIpAddress)
    {
        text += &format!(", requested {}", address.octets()[3]);
    }
    if let Some(DhcpOption::ServerIdentifier(server)) = message.opts().get(OptionCode::ServerIdentifier) {
        text += &format!(", server {}", server.octets()[3]);
    }
    Some(text)
}

/// What else is told. A lease with the seconds that are left of it.
fn told(scene: &Scene, output: &Output) -> Option<String> {
    let last = |lease: &Lease| lease.address.octets()[3];
    let left = (scene.client.remaining(scene.now) + Duration::from_millis(500)).as_secs();
    match output {
        Output::Bound(lease) => Some(format!("bound {} for {left}", last(lease))),
        Output::Lost(lease, loss) => Some(format!("lost {} {loss:?}", last(lease))),
        Output::Refused(address) => Some(format!("refused {}", address.octets()[3])),
        Output::Broadcast(_) | Output::Unicast(..) => None,
    }
}

const AGAIN: &str = "DISCOVER to all, new";
const REBOOT: &str = "REQUEST to all, new, requested 5";
const REBOOT_7: &str = "REQUEST to all, new, requested 7";
const BOTH: &str = "DISCOVER to all, same, requested 5";
const BOTH_AGAIN: &str = "DISCOVER to all, new, requested 5";
const TAKE: &str = "REQUEST to all, same, requested 5, server 1";
const TAKE_6: &str = "REQUEST to all, same, requested 6, server 2";
const RENEW: &str = "REQUEST to 1, new, ciaddr 5";
const REBIND: &str = "REQUEST to all, new, ciaddr 5";
const DECLINE: &str = "DECLINE to all, new, requested 5, server 1";
const OVER: &str = "lost 5 Expired";
const TAKEN: &str = "lost 5 Refused";
const CLASH: &str = "lost 5 Conflict";

/// State, event, state after it, what is sent, what is told.
static TABLE: [(&str, &str, &str, &str, &str); 119] = [
    ("init", "carrier", "selecting", AGAIN, ""),
    ("init", "carrier, had 7", "rebooting", REBOOT_7, ""),
    ("init", "other name", "selecting", AGAIN, ""),
    ("selecting", "offer", "requesting", TAKE, ""),
    ("selecting", "ack at once of 6 of 2", "bound", "", "bound 6 for 3598"),
    ("selecting", "due", "selecting", AGAIN, ""),
    ("selecting", "carrier", "selecting", AGAIN, ""),
    ("selecting", "carrier, had 7", "rebooting", REBOOT_7, ""),
    ("selecting", "word of 7", "rebooting", REBOOT_7, ""),
    ("selecting", "other name", "selecting", AGAIN, ""),
    ("requesting", "ack", "bound", "", "bound 5 for 3598"),
    ("requesting", "ack of 2", "bound", "", "bound 5 for 3598"),
    ("requesting", "nak", "selecting", AGAIN, ""),
    ("requesting", "nak of no server", "selecting", AGAIN, ""),
    ("requesting", "due", "requesting", TAKE, ""),
    ("requesting", "carrier", "selecting", AGAIN, ""),
    ("requesting", "carrier, had 7", "rebooting", REBOOT_7, ""),
    ("requesting", "other name", "selecting", AGAIN, ""),
    ("bound", "due", "renewing", RENEW, ""),
    ("bound", "T2", "rebinding", REBIND, ""),
    ("bound", "end", "selecting", AGAIN, OVER),
    ("bound", "carrier", "rebooting in use", REBOOT, ""),
    ("bound", "carrier, had 7", "rebooting in use", REBOOT, ""),
    ("bound", "conflict", "waiting", DECLINE, CLASH),
    ("bound", "other name", "rebooting in use", REBOOT, ""),
    ("renewing", "ack", "bound", "", "bound 5 for 3599"),
    ("renewing", "ack of 2", "bound", "", "bound 5 for 3599"),
    ("renewing", "nak", "selecting", AGAIN, TAKEN),
    ("renewing", "nak of no server", "selecting", AGAIN, TAKEN),
    ("renewing", "due", "renewing", RENEW, ""),
    ("renewing", "T2", "rebinding", REBIND, ""),
    ("renewing", "end", "selecting", AGAIN, OVER),
    ("renewing", "carrier", "rebooting in use", REBOOT, ""),
    ("renewing", "carrier, had 7", "rebooting in use", REBOOT, ""),
    ("renewing", "conflict", "waiting", DECLINE, CLASH),
    ("renewing", "other name", "rebooting in use", REBOOT, ""),
    ("rebinding", "ack", "bound", "", "bound 5 for 3599"),
    ("rebinding", "ack of 2", "bound", "", "bound 5 for 3599"),
    ("rebinding", "nak", "selecting", AGAIN, TAKEN),
    ("rebinding", "nak of 2", "selecting", AGAIN, TAKEN),
    ("rebinding", "nak of no server", "selecting", AGAIN, TAKEN),
    ("rebinding", "due", "rebinding", REBIND, ""),
    ("rebinding", "end", "selecting", AGAIN, OVER),
    ("rebinding", "carrier", "rebooting in use", REBOOT, ""),
    ("rebinding", "carrier, had 7", "rebooting in use", REBOOT, ""),
    ("rebinding", "conflict", "waiting", DECLINE, CLASH),
    ("rebinding", "other name", "rebooting in use", REBOOT, ""),
    ("rebooting", "ack", "bound", "", "bound 5 for 3600"),
    ("rebooting", "ack of 2", "bound", "", "bound 5 for 3600"),
    ("rebooting", "nak", "selecting", AGAIN, "refused 5"),
    ("rebooting", "nak of 2", "selecting", AGAIN, "refused 5"),
    ("rebooting", "nak of no server", "selecting", AGAIN, "refused 5"),
    ("rebooting", "due", "asking both", BOTH, ""),
    ("rebooting", "carrier", "selecting", AGAIN, ""),
    ("rebooting", "carrier, had 7", "rebooting", REBOOT_7, ""),
    ("rebooting", "other name", "rebooting", REBOOT, ""),
    ("asking both", "offer", "requesting", TAKE, ""),
    ("asking both", "ack", "bound", "", "bound 5 for 3598"),
    ("asking both", "ack of 2", "bound", "", "bound 5 for 3598"),
    ("asking both", "ack at once of 6 of 2", "bound", "", "bound 6 for 3598"),
    ("asking both", "nak", "selecting", AGAIN, "refused 5"),
    ("asking both", "nak of 2", "selecting", AGAIN, "refused 5"),
    ("asking both", "nak of no server", "selecting", AGAIN, "refused 5"),
    ("asking both", "due", "asking both", BOTH_AGAIN, ""),
    ("asking both", "carrier", "selecting", AGAIN, ""),
    ("asking both", "carrier, had 7", "rebooting", REBOOT_7, ""),
    ("asking both", "other name", "rebooting", REBOOT, ""),
    ("rebooting in use", "ack", "bound", "", "bound 5 for 3600"),
    ("rebooting in use", "ack of 2", "bound", "", "bound 5 for 3600"),
    ("rebooting in use", "nak", "selecting", AGAIN, TAKEN),
    ("rebooting in use", "nak of 2", "selecting", AGAIN, TAKEN),
    ("rebooting in use", "nak of no server", "selecting", AGAIN, TAKEN),
    ("rebooting in use", "due", "selecting in use", BOTH, ""),
    ("rebooting in use", "T2", "selecting in use", BOTH, ""),
    ("rebooting in use", "end", "asking both", BOTH, OVER),
    ("rebooting in use", "carrier", "rebooting in use", REBOOT, ""),
    ("rebooting in use", "carrier, had 7", "rebooting in use", REBOOT, ""),
    ("rebooting in use", "conflict", "waiting", DECLINE, CLASH),
    ("rebooting in use", "other name", "rebooting in use", REBOOT, ""),
    ("selecting in use", "offer", "requesting in use", TAKE, ""),
    ("selecting in use", "ack", "bound", "", "bound 5 for 3598"),
    ("selecting in use", "ack of 2", "bound", "", "bound 5 for 3598"),
    ("selecting in use", "ack at once of 6 of 2", "bound", "", "bound 6 for 3598"),
    ("selecting in use", "nak", "selecting", AGAIN, TAKEN),
    ("selecting in use", "nak of 2", "selecting", AGAIN, TAKEN),
    ("selecting in use", "nak of no server", "selecting", AGAIN, TAKEN),
    ("selecting in use", "due", "selecting in use", BOTH_AGAIN, ""),
    ("selecting in use", "T2", "selecting in use", BOTH_AGAIN, ""),
    ("selecting in use", "end", "asking both", BOTH_AGAIN, OVER),
    ("selecting in use", "carrier", "rebooting in use", REBOOT, ""),
    ("selecting in use", "carrier, had 7", "rebooting in use", REBOOT, ""),
    ("selecting in use", "conflict", "waiting", DECLINE, CLASH),
    ("selecting in use", "other name", "rebooting in use", REBOOT, ""),
    ("requesting in use", "ack", "bound", "", "bound 5 for 3597"),
    ("requesting in use", "ack of 2", "bound", "", "bound 5 for 3597"),
    ("requesting in use", "nak", "selecting", AGAIN, TAKEN),
    ("requesting in use", "nak of no server", "selecting", AGAIN, TAKEN),
    ("requesting in use", "due", "requesting in use", TAKE, ""),
    ("requesting in use", "T2", "selecting in use", AGAIN, ""),
    ("requesting in use", "end", "selecting", AGAIN, OVER),
    ("requesting in use", "carrier", "rebooting in use", REBOOT, ""),
    ("requesting in use", "carrier, had 7", "rebooting in use", REBOOT, ""),
    ("requesting in use", "conflict", "waiting", DECLINE, CLASH),
    ("requesting in use", "other name", "rebooting in use", REBOOT, ""),
    ("requesting 6 in use", "ack of 6 of 2", "bound", "", "bound 6 for 3598"),
    ("requesting 6 in use", "ack at once of 6 of 2", "bound", "", "bound 6 for 3598"),
    ("requesting 6 in use", "nak of 2", "selecting in use", AGAIN, ""),
    ("requesting 6 in use", "nak of no server", "selecting in use", AGAIN, ""),
    ("requesting 6 in use", "due", "requesting 6 in use", TAKE_6, ""),
    ("requesting 6 in use", "T2", "selecting in use", AGAIN, ""),
    ("requesting 6 in use", "end", "selecting", AGAIN, OVER),
    ("requesting 6 in use", "carrier", "rebooting in use", REBOOT, ""),
    ("requesting 6 in use", "carrier, had 7", "rebooting in use", REBOOT, ""),
    ("requesting 6 in use", "conflict", "waiting", DECLINE, CLASH),
    ("requesting 6 in use", "other name", "rebooting in use", REBOOT, ""),
    ("waiting", "due", "selecting", AGAIN, ""),
    ("waiting", "carrier", "selecting", AGAIN, ""),
    ("waiting", "carrier, had 7", "rebooting", REBOOT_7, ""),
    ("waiting", "other name", "selecting", AGAIN, ""),
];

/// What is of another number, of another machine or no answer changes nothing in any state.
fn is_deaf_to_strangers(state: &str, event: &str) {
    for strange in 0..3 {
        let mut scene = made(state);
        let Some(mut message) = spoken(&scene, event) else { return };
        match strange {
            0 => message.set_xid(message.xid() ^ 1),
            1 => message.set_chaddr(&[2, 0, 0, 0, 0, 1]),
            _ => message.set_opcode(Opcode::BootRequest),
        };
        assert_eq!(scene.client.hear(scene.now, &message.to_vec().unwrap()), [], "{state}: strange {event}");
        assert_eq!(word(&scene), state, "strange {event}");
    }
}

#[test]
fn each_event_leads_from_each_state_where_it_must() {
    let events: Vec<&str> = ANSWERS.iter().map(|(name, ..)| *name).chain(OTHERS).collect();
    let mut faults = Vec::new();
    for state in STATES {
        assert_eq!(word(&made(state)), state);
        for &event in &events {
            let rows: Vec<_> = TABLE.iter().filter(|row| (row.0, row.1) == (state, event)).collect();
            let expected = match &rows[..] {
                [] => (state, String::new(), String::new()),
                [(_, _, to, sent, told)] => (*to, (*sent).to_owned(), (*told).to_owned()),
                _ => panic!("{state}, {event}: two rows"),
            };
            let mut scene = made(state);
            let outputs = happens(&mut scene, event);
            let before = scene.asked.as_ref();
            let said: Vec<String> = outputs.iter().filter_map(|output| shown(output, before)).collect();
            let told: Vec<String> = outputs.iter().filter_map(|output| told(&scene, output)).collect();
            let found = (word(&scene), said.join("; "), told.join("; "));
            if found != expected {
                faults.push(format!("{state}, {event}: {found:?}, not {expected:?}"));
            }
            is_deaf_to_strangers(state, event);
        }
    }
    for (state, event, ..) in &TABLE {
        assert!(STATES.contains(state) && events.contains(event), "{state}, {event}: no such row");
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// RFC 2131 §4.1, and table 5 for what each message has: the code of each option, in the order on the wire.
#[test]
fn each_message_has_its_options_and_no_other() {
    let (address, server) = (host(5), host(1));
    let say = |say| message::encode(say, 7, 0, client(1).settings());
    for (say, expected) in [
        (say(message::Say::Discover { wanted: None }), &[53, 55, 57, 61, 80][..]),
        (say(message::Say::Discover { wanted: Some(address) }), &[50, 53, 55, 57, 61, 80]),
        (say(message::Say::Select { address, server }), &[50, 53, 54, 55, 57, 61]),
        (say(message::Say::Reboot { address }), &[50, 53, 55, 57, 61]),
        (say(message::Say::Renew { address }), &[53, 55, 57, 61]),
        (say(message::Say::Decline { address, server }), &[50, 53, 54, 61]),
        (say(message::Say::Release { address, server }), &[53, 54, 61]),
    ] {
        let (mut codes, mut rest) = (Vec::new(), &say[240..]);
        while let [code, length, value @ ..] = rest {
            codes.push(*code);
            rest = &value[usize::from(*length)..];
        }
        assert_eq!((codes, rest), (expected.to_vec(), &[255][..]));
    }
}

/// RFC 2131 §3.1, step 3: a REQUEST for an offer says the seconds of its DISCOVER, whenever it is sent.
#[test]
fn a_request_says_the_seconds_of_its_discover() {
    let mut scene = made("selecting").tick().tick();
    let discover = sent(scene.asked.as_ref().unwrap()).unwrap();
    assert!(discover.secs() > 9, "{} s", discover.secs());
    scene.now += seconds(5);
    let at = scene.now;
    let mut scene = scene.hear(at, MessageType::Offer, 5, 1);
    for _ in 0..3 {
        let request = sent(scene.asked.as_ref().unwrap()).unwrap();
        assert_eq!(
            (request.opts().msg_type(), request.secs()),
            (Some(MessageType::Request), discover.secs())
        );
        scene = scene.tick();
    }
    assert_eq!(sent(scene.asked.as_ref().unwrap()).unwrap().secs(), 0, "servers are looked for anew");
}

/// RFC 2131 §4.4.5: however late an ACK comes, the lease is over when the server's clock says so.
#[test]
fn a_lease_counts_from_the_question_that_its_ack_answers() {
    let ack = |scene: Scene| {
        let at = scene.now;
        scene.hear(at, MessageType::Ack, 5, 1).client
    };
    // One number for all repeats: the first counts.
    let scene = made("requesting").tick().tick();
    let at = scene.now;
    assert!(at > seconds(9), "{at:?}");
    assert_eq!(ack(scene).remaining(at), seconds(3600) - at);
    // Each renewal has a number: the ACK to the one before is none of this exchange.
    let mut scene = made("renewing");
    let before = scene.asked.take();
    let mut scene = scene.tick();
    let at = scene.now;
    let late = says(before.as_ref(), MessageType::Ack, 5, 1).to_vec().unwrap();
    assert!(scene.client.hear(at, &late).is_empty());
    assert_eq!(ack(scene).remaining(at), seconds(3600));
    // What is over when it comes is no lease.
    let mut scene = made("asking both");
    let asked = sent(scene.asked.as_ref().unwrap()).unwrap();
    let late = answer(&asked, MessageType::Ack, ADDRESS, SERVER, 60).to_vec().unwrap();
    assert!(scene.client.hear(seconds(60), &late).is_empty());
    assert!(matches!(&scene.client.hear(seconds(59), &late)[..], [Output::Bound(_)]));
}

#[test]
fn a_request_is_sent_three_times_before_servers_are_looked_for_again() {
    let mut scene = made("requesting").tick().tick();
    assert_eq!(word(&scene), "requesting");
    scene = scene.tick();
    assert_eq!((word(&scene), kinds(&[scene.asked.unwrap()])), ("selecting", vec![MessageType::Discover]));
}

/// A lease would count from the first REQUEST, and be over soon.
#[test]
fn after_a_sleep_an_offer_of_before_is_not_asked_for() {
    let mut scene = made("requesting");
    assert_eq!(kinds(&scene.client.tick(LONGEST_WAIT)), [MessageType::Discover]);
}

/// A server that offers another address and refuses it again and again costs no lease of another server.
#[test]
fn refusals_of_an_offer_cost_no_other_address() {
    let mut scene = made("selecting in use");
    let mut asked = Vec::new();
    while scene.now < seconds(3000) {
        let at = scene.now;
        if word(&scene) == "selecting in use" {
            asked.push(at);
            scene = scene.hear(at, MessageType::Offer, 6, 2).hear(at, MessageType::Nak, 6, 2);
        } else {
            assert_eq!(word(&scene), "waiting in use");
            scene = scene.tick();
        }
        assert_eq!(scene.client.lease().map(|lease| lease.address), Some(ADDRESS), "at {at:?}");
    }
    assert!(asked.len() < 100, "{} times", asked.len());
    let gaps: Vec<u64> = asked.windows(2).map(|pair| (pair[1] - pair[0]).as_secs()).collect();
    assert!(gaps[8..].iter().all(|gap| *gap >= 32), "{gaps:?}");
}

/// An address of a lease that is over is asked for, but not used, and not declined.
#[test]
fn a_lease_that_is_over_before_the_timer_ran_is_not_used_on() {
    let over = seconds(3600);
    let outputs = made("bound").client.start(over, None);
    assert!(matches!(&outputs[..], [Output::Lost(_, Loss::Expired), Output::Broadcast(_)]), "{outputs:?}");
    assert_eq!(kinds(&outputs), [MessageType::Request]);
    let outputs = made("bound").client.conflict(over);
    assert_eq!(kinds(&outputs), [MessageType::Discover], "{outputs:?}");
}
