//! Every event in every state: RFC 8415 §18.2, and what this client has besides.
//!
//! `in use`: the link has the lease in the meantime. `in use` is missing where it has none: a lease of before the start is being
//! confirmed. An event that has no row changes nothing.

use super::*;

/// A client in a state, and its last message. Server 1 grants address 5 from second 0 on: T1 500 s, T2 800 s, the end 2000 s.
struct Scene {
    client: Client,
    now: Duration,
    asked: Option<Asked>,
}

impl Scene {
    fn of(mut client: Client, now: Duration, act: impl FnOnce(&mut Client) -> Vec<Output>) -> Self {
        let asked = sent(&act(&mut client)).pop();
        Self { client, now, asked }
    }

    fn hear(mut self, say: impl FnOnce(&Asked) -> Answer) -> Self {
        let answer = say(self.asked.as_ref().unwrap());
        let outputs = self.client.hear(self.now, &answer.bytes());
        Self { asked: sent(&outputs).pop().or(self.asked), ..self }
    }

    fn later(self, by: Duration) -> Self {
        Self { now: self.now + by, ..self }
    }
}

const STATES: [&str; 16] = [
    "init",
    "selecting",
    "selecting, offered",
    "selecting again",
    "requesting",
    "requesting in use",
    "bound",
    "renewing",
    "rebinding",
    "confirming",
    "confirming in use",
    "declining",
    "declining, rest in use",
    "releasing",
    "informing",
    "informed",
];

fn made(state: &str) -> Scene {
    let half = Duration::from_millis(500);
    let start = |settings| Scene::of(Client::new(settings, 1), ZERO, |client| client.start(ZERO, None));
    let stateless = || Settings { stateless: true, ..settings() };
    let selecting = || start(settings());
    let renewing = || {
        let (client, asked, now) = renewing();
        Scene { client, now, asked: Some(asked) }
    };
    let (at, rest) = (seconds(100), selecting);
    match state {
        "init" => Scene { client: client(), now: ZERO, asked: None },
        "selecting" => selecting().later(half),
        "selecting, offered" => selecting().later(half).hear(|to| grant(to, ADVERTISE, 2).preference(3)),
        "selecting again" => {
            let mut client = client();
            let _ = client.start(ZERO, None);
            let now = client.deadline().unwrap();
            Scene::of(client, now, |client| client.tick(now)).later(half)
        }
        "requesting" => selecting().hear(|to| grant(to, ADVERTISE, 1).preference(255)).later(half),
        "requesting in use" => {
            let no_binding = |to: &Asked| Answer::new(to, REPLY, server(1)).status(NO_BINDING);
            renewing().hear(no_binding).later(half)
        }
        "bound" => selecting().hear(|to| grant(to, REPLY, 1).rapid()).later(at),
        "renewing" => renewing().later(half),
        "rebinding" => {
            let (client, asked, now) = rebinding();
            Scene { client, now, asked: Some(asked) }.later(half)
        }
        "confirming" => Scene::of(client(), at, |client| client.start(at, Some(kept()))).later(half),
        "confirming in use" => Scene::of(bound(), at, |client| client.start(at, None)).later(half),
        "declining" => Scene::of(bound(), at, |client| client.conflict(at, address(5))).later(half),
        "declining, rest in use" => {
            let both = rest().hear(|to| grant(to, REPLY, 1).with(address(6), 1000, 2000).rapid());
            Scene::of(both.client, at, |client| client.conflict(at, address(6))).later(half)
        }
        "releasing" => Scene::of(bound(), at, |client| client.release(at)).later(half),
        "informing" => start(stateless()).later(half),
        "informed" => {
            let settings = |to: &Asked| {
                let answer = Answer::new(to, REPLY, server(1)).own_status(0);
                answer.option(options::REFRESH_TIME, &7200u32.to_be_bytes())
            };
            start(stateless()).hear(settings).later(at)
        }
        other => panic!("{other}"),
    }
}

/// The state as it is called here.
fn word(client: &Client) -> &'static str {
    let in_use = client.held.as_ref().is_some_and(|held| held.in_use);
    match &client.state {
        State::Waiting(None) => "init",
        State::Waiting(Some(_)) => "waiting",
        State::Selecting(Some(_)) => "selecting, offered",
        State::Selecting(None) if in_use => "selecting in use",
        State::Selecting(None) if client.exchange.sent > 1 => "selecting again",
        State::Selecting(None) => "selecting",
        State::Requesting(_) if in_use => "requesting in use",
        State::Requesting(_) => "requesting",
        State::Bound => "bound",
        State::Renewing => "renewing",
        State::Rebinding => "rebinding",
        State::Confirming if in_use => "confirming in use",
        State::Confirming => "confirming",
        State::Declining(_) if in_use => "declining, rest in use",
        State::Declining(_) => "declining",
        State::Releasing(_) => "releasing",
        State::Informing => "informing",
        State::Informed(_) => "informed",
    }
}

type Say = fn(&Asked) -> Answer;

const ANSWERS: [(&str, Say); 17] = [
    ("advertise", |to| grant(to, ADVERTISE, 1)),
    ("advertise, 255", |to| grant(to, ADVERTISE, 1).preference(255)),
    ("advertise, NoAddrsAvail", |to| grant(to, ADVERTISE, 1).own_status(NO_ADDRS_AVAIL).preference(255)),
    ("advertise, UnspecFail", |to| grant(to, ADVERTISE, 1).own_status(UNSPEC_FAIL).preference(255)),
    ("advertise of nothing", |to| Answer::new(to, ADVERTISE, server(1)).preference(255)),
    ("reply", |to| grant(to, REPLY, 1)),
    ("reply of 2", |to| grant(to, REPLY, 2)),
    ("reply at once", |to| grant(to, REPLY, 1).rapid()),
    ("reply at once, NoAddrsAvail", |to| Answer::new(to, REPLY, server(1)).rapid().status(NO_ADDRS_AVAIL)),
    ("reply, Success", |to| Answer::new(to, REPLY, server(1)).own_status(0)),
    ("reply, UnspecFail", |to| grant(to, REPLY, 1).own_status(UNSPEC_FAIL)),
    ("reply, NoAddrsAvail", |to| Answer::new(to, REPLY, server(1)).status(NO_ADDRS_AVAIL)),
    ("reply, NoBinding", |to| Answer::new(to, REPLY, server(1)).status(NO_BINDING)),
    ("reply of 2, NoBinding", |to| Answer::new(to, REPLY, server(2)).status(NO_BINDING)),
    ("reply, NotOnLink", |to| Answer::new(to, REPLY, server(1)).own_status(NOT_ON_LINK)),
    ("reply, UseMulticast", |to| grant(to, REPLY, 1).own_status(USE_MULTICAST)),
    ("reply, 5 for 0 s", |to| Answer::new(to, REPLY, server(1)).with(address(5), 0, 0)),
];

const OTHERS: [&str; 12] = [
    "due",
    "silence",
    "T2",
    "end",
    "carrier",
    "carrier, had 5",
    "word of 5",
    "conflict",
    "release",
    "other name",
    "other identity",
    "no addresses",
];

/// Lets it happen; where it cannot, nothing does.
fn happens(scene: &mut Scene, event: &str) -> Vec<Output> {
    if let Some((_, say)) = ANSWERS.iter().find(|(name, _)| *name == event) {
        let none = Asked { kind: SOLICIT, xid: [1, 2, 3], options: Vec::new(), addresses: Vec::new() };
        let answer = say(scene.asked.as_ref().unwrap_or(&none));
        is_deaf_to_strangers(scene, &answer, event);
        return scene.client.hear(scene.now, &answer.bytes());
    }
    let held = |moment: fn(&Lease) -> Duration| scene.client.lease().map(moment);
    let moment = match event {
        "due" | "silence" => scene.client.deadline(),
        "T2" => held(Lease::rebind_at),
        "end" => held(Lease::first_end),
        _ => Some(scene.now),
    };
    let Some(moment) = moment else { return Vec::new() };
    scene.now = scene.now.max(moment);
    let now = scene.now;
    let client = &mut scene.client;
    let own = client.settings().clone();
    match event {
        "due" | "T2" | "end" => client.tick(now),
        "silence" => silence(scene),
        "carrier" => client.start(now, None),
        "carrier, had 5" => client.start(now, Some(kept())),
        "word of 5" => client.remember(now, kept()),
        "conflict" => client.conflict(now, address(5)),
        "release" => client.release(now),
        "other name" => client.change(now, Settings { hostname: Some("node-2".into()), ..own }),
        "other identity" => client.change(now, Settings { duid: Some(server(9)), ..own }),
        "no addresses" => client.change(now, Settings { stateless: true, ..own }),
        other => panic!("{other}"),
    }
}

/// No server answers until the client does something else; this is that.
fn silence(scene: &mut Scene) -> Vec<Output> {
    let before = word(&scene.client);
    for _ in 0..15 {
        let Some(due) = scene.client.deadline() else { break };
        scene.now = due;
        let outputs = scene.client.tick(due);
        if word(&scene.client) != before {
            return outputs;
        }
        scene.asked = sent(&outputs).pop();
    }
    Vec::new()
}

/// What is not for this client or exchange, or of no known kind, changes nothing in any state.
fn is_deaf_to_strangers(scene: &mut Scene, answer: &Answer, event: &str) {
    let ([a, b, c], state) = (answer.xid, word(&scene.client));
    for stranger in [
        Answer { xid: [a, b, c ^ 1], ..answer.clone() },
        Answer { client: Some(server(9)), ..answer.clone() },
        Answer { client: None, ..answer.clone() },
        Answer { server: None, ..answer.clone() },
        Answer { kind: 10, ..answer.clone() },
    ] {
        let found = (scene.client.hear(scene.now, &stranger.bytes()), word(&scene.client));
        assert_eq!(found, (Vec::new(), state), "strange {event}");
    }
}

/// Kind, whether the number is another one than that of the last message, the server that is meant, the addresses.
fn shown(asked: &Asked, before: Option<&Asked>) -> String {
    let kind = match asked.kind {
        SOLICIT => "SOLICIT",
        REQUEST => "REQUEST",
        CONFIRM => "CONFIRM",
        RENEW => "RENEW",
        REBIND => "REBIND",
        RELEASE => "RELEASE",
        DECLINE => "DECLINE",
        INFORM => "INFORMATION-REQUEST",
        other => panic!("{other}"),
    };
    let number = if before.is_some_and(|before| before.xid == asked.xid) { "same" } else { "new" };
    let mut text = format!("{kind}, {number}");
    if let Some(server) = asked.option(options::SERVER_ID) {
        text += &format!(", server {}", server.last().unwrap());
    }
    for address in &asked.addresses {
        text += &format!(", {}", address.segments()[7]);
    }
    text
}

/// What else is told. A lease with the seconds that are left of it.
fn told(scene: &Scene, output: &Output) -> Option<String> {
    let list = |lease: &Lease| {
        let last: Vec<String> = lease.list().iter().map(|it| it.segments()[7].to_string()).collect();
        last.join(" and ")
    };
    let left = (scene.client.remaining(scene.now) + Duration::from_millis(500)).as_secs();
    match output {
        Output::Bound(lease) => Some(format!("bound {} for {left}", list(lease))),
        Output::Lost(lease, loss) => Some(format!("lost {} {loss:?}", list(lease))),
        Output::Refused(lease) => Some(format!("refused {}", list(lease))),
        Output::Informed(_) => Some("informed".into()),
        Output::Send(_) => None,
    }
}

const ASK: &str = "SOLICIT, new";
const ASK_5: &str = "SOLICIT, new, 5";
const TAKE: &str = "REQUEST, new, server 1, 5";
const TAKE_ON: &str = "REQUEST, same, server 1, 5";
const PROLONG: &str = "RENEW, new, server 1, 5";
const PROLONG_BY_ANY: &str = "REBIND, new, 5";
const CHECK: &str = "CONFIRM, new, 5";
const LOOK_UP: &str = "INFORMATION-REQUEST, new";
const GIVE_BACK: &str = "RELEASE, new, server 1, 5";
const GIVE_BACK_AND_LOOK_UP: &str = "RELEASE, new, server 1, 5; INFORMATION-REQUEST, new";
const OBJECT: &str = "DECLINE, new, server 1, 5";
const OVER: &str = "lost 5 Expired";
const TAKEN: &str = "lost 5 Refused";
const CLASH: &str = "lost 5 Conflict";
const GIVEN: &str = "lost 5 Released";
const GRANTED: &str = "bound 5 for 2000";
const CONFIRMED: &str = "bound 5 for 1900";

/// State, event, state after it, what is sent, what is told.
static TABLE: [(&str, &str, &str, &str, &str); 220] = [
    ("init", "carrier", "selecting", ASK, ""),
    ("init", "carrier, had 5", "confirming", CHECK, ""),
    ("init", "other name", "selecting", ASK, ""),
    ("init", "other identity", "selecting", ASK, ""),
    ("init", "no addresses", "informing", LOOK_UP, ""),
    ("selecting", "advertise", "selecting, offered", "", ""),
    ("selecting", "advertise, 255", "requesting", TAKE, ""),
    ("selecting", "reply at once", "bound", "", GRANTED),
    ("selecting", "due", "selecting again", "SOLICIT, same", ""),
    ("selecting", "silence", "selecting again", "SOLICIT, same", ""),
    ("selecting", "carrier", "selecting", ASK, ""),
    ("selecting", "carrier, had 5", "confirming", CHECK, ""),
    ("selecting", "word of 5", "confirming", CHECK, ""),
    ("selecting", "release", "init", "", ""),
    ("selecting", "other name", "selecting", ASK, ""),
    ("selecting", "other identity", "selecting", ASK, ""),
    ("selecting", "no addresses", "informing", LOOK_UP, ""),
    ("selecting, offered", "advertise, 255", "requesting", TAKE, ""),
    ("selecting, offered", "reply at once", "bound", "", GRANTED),
    ("selecting, offered", "due", "requesting", "REQUEST, new, server 2, 5", ""),
    ("selecting, offered", "silence", "requesting", "REQUEST, new, server 2, 5", ""),
    ("selecting, offered", "carrier", "selecting", ASK, ""),
    ("selecting, offered", "carrier, had 5", "confirming", CHECK, ""),
    ("selecting, offered", "release", "init", "", ""),
    ("selecting, offered", "other name", "selecting", ASK, ""),
    ("selecting, offered", "other identity", "selecting", ASK, ""),
    ("selecting, offered", "no addresses", "informing", LOOK_UP, ""),
    ("selecting again", "advertise", "requesting", TAKE, ""),
    ("selecting again", "advertise, 255", "requesting", TAKE, ""),
    ("selecting again", "reply at once", "bound", "", GRANTED),
    ("selecting again", "due", "selecting again", "SOLICIT, same", ""),
    ("selecting again", "carrier", "selecting", ASK, ""),
    ("selecting again", "carrier, had 5", "confirming", CHECK, ""),
    ("selecting again", "word of 5", "confirming", CHECK, ""),
    ("selecting again", "release", "init", "", ""),
    ("selecting again", "other name", "selecting", ASK, ""),
    ("selecting again", "other identity", "selecting", ASK, ""),
    ("selecting again", "no addresses", "informing", LOOK_UP, ""),
    ("requesting", "reply", "bound", "", GRANTED),
    ("requesting", "reply at once", "bound", "", GRANTED),
    ("requesting", "reply at once, NoAddrsAvail", "selecting", ASK, ""),
    ("requesting", "reply, Success", "selecting", ASK, ""),
    ("requesting", "reply, NoAddrsAvail", "selecting", ASK, ""),
    ("requesting", "reply, NoBinding", "selecting", ASK, ""),
    ("requesting", "reply, NotOnLink", "selecting", ASK, ""),
    ("requesting", "reply, 5 for 0 s", "selecting", ASK, ""),
    ("requesting", "due", "requesting", TAKE_ON, ""),
    ("requesting", "silence", "selecting", ASK, ""),
    ("requesting", "carrier", "selecting", ASK, ""),
    ("requesting", "carrier, had 5", "confirming", CHECK, ""),
    ("requesting", "release", "init", "", ""),
    ("requesting", "other name", "selecting", ASK, ""),
    ("requesting", "other identity", "selecting", ASK, ""),
    ("requesting", "no addresses", "informing", LOOK_UP, ""),
    ("requesting in use", "reply", "bound", "", GRANTED),
    ("requesting in use", "reply at once", "bound", "", GRANTED),
    ("requesting in use", "reply at once, NoAddrsAvail", "selecting in use", ASK_5, ""),
    ("requesting in use", "reply, Success", "selecting in use", ASK_5, ""),
    ("requesting in use", "reply, NoAddrsAvail", "selecting in use", ASK_5, ""),
    ("requesting in use", "reply, NoBinding", "selecting in use", ASK_5, ""),
    ("requesting in use", "reply, NotOnLink", "selecting", ASK, TAKEN),
    ("requesting in use", "reply, 5 for 0 s", "selecting in use", ASK_5, ""),
    ("requesting in use", "due", "requesting in use", TAKE_ON, ""),
    ("requesting in use", "silence", "selecting in use", ASK_5, ""),
    ("requesting in use", "T2", "requesting in use", TAKE_ON, ""),
    ("requesting in use", "end", "requesting", TAKE_ON, OVER),
    ("requesting in use", "carrier", "confirming in use", CHECK, ""),
    ("requesting in use", "carrier, had 5", "confirming in use", CHECK, ""),
    ("requesting in use", "conflict", "declining", OBJECT, CLASH),
    ("requesting in use", "release", "releasing", GIVE_BACK, GIVEN),
    ("requesting in use", "other name", "selecting in use", ASK_5, ""),
    ("requesting in use", "other identity", "selecting in use", ASK_5, ""),
    ("requesting in use", "no addresses", "informing", GIVE_BACK_AND_LOOK_UP, GIVEN),
    ("bound", "due", "renewing", PROLONG, ""),
    ("bound", "silence", "renewing", PROLONG, ""),
    ("bound", "T2", "rebinding", PROLONG_BY_ANY, ""),
    ("bound", "end", "selecting", ASK, OVER),
    ("bound", "carrier", "confirming in use", CHECK, ""),
    ("bound", "carrier, had 5", "confirming in use", CHECK, ""),
    ("bound", "conflict", "declining", OBJECT, CLASH),
    ("bound", "release", "releasing", GIVE_BACK, GIVEN),
    ("bound", "other name", "renewing", PROLONG, ""),
    ("bound", "other identity", "selecting in use", ASK_5, ""),
    ("bound", "no addresses", "informing", GIVE_BACK_AND_LOOK_UP, GIVEN),
    ("renewing", "reply", "bound", "", GRANTED),
    ("renewing", "reply at once", "bound", "", GRANTED),
    ("renewing", "reply, NoBinding", "requesting in use", TAKE, ""),
    ("renewing", "reply, 5 for 0 s", "selecting", ASK, TAKEN),
    ("renewing", "due", "renewing", "RENEW, same, server 1, 5", ""),
    ("renewing", "silence", "rebinding", PROLONG_BY_ANY, ""),
    ("renewing", "T2", "rebinding", PROLONG_BY_ANY, ""),
    ("renewing", "end", "selecting", ASK, OVER),
    ("renewing", "carrier", "confirming in use", CHECK, ""),
    ("renewing", "carrier, had 5", "confirming in use", CHECK, ""),
    ("renewing", "conflict", "declining", OBJECT, CLASH),
    ("renewing", "release", "releasing", GIVE_BACK, GIVEN),
    ("renewing", "other name", "renewing", PROLONG, ""),
    ("renewing", "other identity", "selecting in use", ASK_5, ""),
    ("renewing", "no addresses", "informing", GIVE_BACK_AND_LOOK_UP, GIVEN),
    ("rebinding", "reply", "bound", "", GRANTED),
    ("rebinding", "reply of 2", "bound", "", GRANTED),
    ("rebinding", "reply at once", "bound", "", GRANTED),
    ("rebinding", "reply, NoBinding", "requesting in use", TAKE, ""),
    ("rebinding", "reply of 2, NoBinding", "requesting in use", "REQUEST, new, server 2, 5", ""),
    ("rebinding", "reply, 5 for 0 s", "selecting", ASK, TAKEN),
    ("rebinding", "due", "rebinding", "REBIND, same, 5", ""),
    ("rebinding", "silence", "selecting", ASK, OVER),
    ("rebinding", "end", "selecting", ASK, OVER),
    ("rebinding", "carrier", "confirming in use", CHECK, ""),
    ("rebinding", "carrier, had 5", "confirming in use", CHECK, ""),
    ("rebinding", "conflict", "declining", OBJECT, CLASH),
    ("rebinding", "release", "releasing", GIVE_BACK, GIVEN),
    ("rebinding", "other name", "rebinding", PROLONG_BY_ANY, ""),
    ("rebinding", "other identity", "selecting in use", ASK_5, ""),
    ("rebinding", "no addresses", "informing", GIVE_BACK_AND_LOOK_UP, GIVEN),
    ("confirming", "reply", "bound", "", CONFIRMED),
    ("confirming", "reply of 2", "bound", "", CONFIRMED),
    ("confirming", "reply at once", "bound", "", CONFIRMED),
    ("confirming", "reply, Success", "bound", "", CONFIRMED),
    ("confirming", "reply, NotOnLink", "selecting", ASK, "refused 5"),
    ("confirming", "reply, 5 for 0 s", "bound", "", CONFIRMED),
    ("confirming", "due", "confirming", "CONFIRM, same, 5", ""),
    ("confirming", "silence", "bound", "", "bound 5 for 1890"),
    ("confirming", "carrier", "confirming", CHECK, ""),
    ("confirming", "carrier, had 5", "confirming", CHECK, ""),
    ("confirming", "release", "releasing", GIVE_BACK, ""),
    ("confirming", "other name", "confirming", CHECK, ""),
    ("confirming", "other identity", "selecting", ASK, ""),
    ("confirming", "no addresses", "informing", GIVE_BACK_AND_LOOK_UP, ""),
    ("confirming in use", "reply", "bound", "", CONFIRMED),
    ("confirming in use", "reply of 2", "bound", "", CONFIRMED),
    ("confirming in use", "reply at once", "bound", "", CONFIRMED),
    ("confirming in use", "reply, Success", "bound", "", CONFIRMED),
    ("confirming in use", "reply, NotOnLink", "selecting", ASK, TAKEN),
    ("confirming in use", "reply, 5 for 0 s", "bound", "", CONFIRMED),
    ("confirming in use", "due", "confirming in use", "CONFIRM, same, 5", ""),
    ("confirming in use", "silence", "bound", "", "bound 5 for 1890"),
    ("confirming in use", "T2", "rebinding", PROLONG_BY_ANY, "bound 5 for 1200"),
    ("confirming in use", "end", "selecting", ASK, OVER),
    ("confirming in use", "carrier", "confirming in use", CHECK, ""),
    ("confirming in use", "carrier, had 5", "confirming in use", CHECK, ""),
    ("confirming in use", "conflict", "declining", OBJECT, CLASH),
    ("confirming in use", "release", "releasing", GIVE_BACK, GIVEN),
    ("confirming in use", "other name", "confirming in use", CHECK, ""),
    ("confirming in use", "other identity", "selecting in use", ASK_5, ""),
    ("confirming in use", "no addresses", "informing", GIVE_BACK_AND_LOOK_UP, GIVEN),
    ("declining", "reply", "selecting", ASK, ""),
    ("declining", "reply at once", "selecting", ASK, ""),
    ("declining", "reply at once, NoAddrsAvail", "selecting", ASK, ""),
    ("declining", "reply, Success", "selecting", ASK, ""),
    ("declining", "reply, UnspecFail", "selecting", ASK, ""),
    ("declining", "reply, NoAddrsAvail", "selecting", ASK, ""),
    ("declining", "reply, NoBinding", "selecting", ASK, ""),
    ("declining", "reply, NotOnLink", "selecting", ASK, ""),
    ("declining", "reply, 5 for 0 s", "selecting", ASK, ""),
    ("declining", "due", "declining", "DECLINE, same, server 1, 5", ""),
    ("declining", "silence", "selecting", ASK, ""),
    ("declining", "carrier", "selecting", ASK, ""),
    ("declining", "carrier, had 5", "confirming", CHECK, ""),
    ("declining", "release", "init", "", ""),
    ("declining", "other name", "selecting", ASK, ""),
    ("declining", "other identity", "selecting", ASK, ""),
    ("declining", "no addresses", "informing", LOOK_UP, ""),
    ("declining, rest in use", "reply", "bound", "", ""),
    ("declining, rest in use", "reply at once", "bound", "", ""),
    ("declining, rest in use", "reply at once, NoAddrsAvail", "bound", "", ""),
    ("declining, rest in use", "reply, Success", "bound", "", ""),
    ("declining, rest in use", "reply, UnspecFail", "bound", "", ""),
    ("declining, rest in use", "reply, NoAddrsAvail", "bound", "", ""),
    ("declining, rest in use", "reply, NoBinding", "bound", "", ""),
    ("declining, rest in use", "reply, NotOnLink", "bound", "", ""),
    ("declining, rest in use", "reply, 5 for 0 s", "bound", "", ""),
    ("declining, rest in use", "due", "declining, rest in use", "DECLINE, same, server 1, 6", ""),
    ("declining, rest in use", "silence", "bound", "", ""),
    ("declining, rest in use", "T2", "declining, rest in use", "DECLINE, same, server 1, 6", ""),
    ("declining, rest in use", "end", "declining", "DECLINE, same, server 1, 6", OVER),
    ("declining, rest in use", "carrier", "confirming in use", CHECK, ""),
    ("declining, rest in use", "carrier, had 5", "confirming in use", CHECK, ""),
    ("declining, rest in use", "conflict", "declining", "DECLINE, new, server 1, 5, 6", CLASH),
    ("declining, rest in use", "release", "releasing", GIVE_BACK, GIVEN),
    ("declining, rest in use", "other name", "renewing", PROLONG, ""),
    ("declining, rest in use", "other identity", "selecting in use", ASK_5, ""),
    ("declining, rest in use", "no addresses", "informing", GIVE_BACK_AND_LOOK_UP, GIVEN),
    ("releasing", "reply", "init", "", ""),
    ("releasing", "reply at once", "init", "", ""),
    ("releasing", "reply at once, NoAddrsAvail", "init", "", ""),
    ("releasing", "reply, Success", "init", "", ""),
    ("releasing", "reply, UnspecFail", "init", "", ""),
    ("releasing", "reply, NoAddrsAvail", "init", "", ""),
    ("releasing", "reply, NoBinding", "init", "", ""),
    ("releasing", "reply, NotOnLink", "init", "", ""),
    ("releasing", "reply, 5 for 0 s", "init", "", ""),
    ("releasing", "due", "releasing", "RELEASE, same, server 1, 5", ""),
    ("releasing", "silence", "init", "", ""),
    ("releasing", "carrier", "selecting", ASK, ""),
    ("releasing", "carrier, had 5", "confirming", CHECK, ""),
    ("releasing", "release", "init", "", ""),
    ("releasing", "other name", "selecting", ASK, ""),
    ("releasing", "other identity", "selecting", ASK, ""),
    ("releasing", "no addresses", "informing", LOOK_UP, ""),
    ("informing", "reply", "informed", "", "informed"),
    ("informing", "reply of 2", "informed", "", "informed"),
    ("informing", "reply at once", "informed", "", "informed"),
    ("informing", "reply, Success", "informed", "", "informed"),
    ("informing", "reply, 5 for 0 s", "informed", "", "informed"),
    ("informing", "due", "informing", "INFORMATION-REQUEST, same", ""),
    ("informing", "carrier", "informing", LOOK_UP, ""),
    ("informing", "carrier, had 5", "informing", LOOK_UP, ""),
    ("informing", "release", "init", "", ""),
    ("informing", "other name", "informing", LOOK_UP, ""),
    ("informing", "other identity", "informing", LOOK_UP, ""),
    ("informing", "no addresses", "informing", LOOK_UP, ""),
    ("informed", "due", "informing", LOOK_UP, ""),
    ("informed", "silence", "informing", LOOK_UP, ""),
    ("informed", "carrier", "informing", LOOK_UP, ""),
    ("informed", "carrier, had 5", "informing", LOOK_UP, ""),
    ("informed", "release", "init", "", ""),
    ("informed", "other name", "informing", LOOK_UP, ""),
    ("informed", "other identity", "informing", LOOK_UP, ""),
    ("informed", "no addresses", "informing", LOOK_UP, ""),
];

#[test]
fn each_event_leads_from_each_state_where_it_must() {
    let events: Vec<&str> = ANSWERS.iter().map(|(name, _)| *name).chain(OTHERS).collect();
    let mut faults = Vec::new();
    for state in STATES {
        assert_eq!(word(&made(state).client), state);
        for &event in &events {
            let rows: Vec<_> = TABLE.iter().filter(|row| (row.0, row.1) == (state, event)).collect();
            let expected = match &rows[..] {
                [] => (state, String::new(), String::new()),
                [(_, _, to, sent, told)] => (*to, (*sent).to_owned(), (*told).to_owned()),
                _ => panic!("{state}, {event}: two rows"),
            };
            let mut scene = made(state);
            let outputs = happens(&mut scene, event);
            let said: Vec<String> =
                sent(&outputs).iter().map(|asked| shown(asked, scene.asked.as_ref())).collect();
            let told: Vec<String> = outputs.iter().filter_map(|output| told(&scene, output)).collect();
            let found = (word(&scene.client), said.join("; "), told.join("; "));
            if found != expected {
                faults.push(format!("{state}, {event}: {found:?}, not {expected:?}"));
            }
        }
    }
    for (state, event, ..) in &TABLE {
        assert!(STATES.contains(state) && events.contains(event), "{state}, {event}: no such row");
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
