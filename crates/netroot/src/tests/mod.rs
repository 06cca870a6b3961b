//! Downloads over frames in memory: good networks, and each fault that a network can have.

use core::fmt;
use core::net::Ipv4Addr;

use crate::peer::{Answer, CLIENT, MAC, Manner, Peer, Plan, SECOND, SERVER, Site};
use crate::{
    Arrived, Broken, Error, Item, Lease, Link, Mirrors, PATIENCE_NS, SECOND_NS, Setup, Sink, Station, Tone,
    Trust, Url, fetch,
};

mod tls;

/// The client's end of the wire, and a clock that only moves when somebody waits.
struct Wire {
    peer: Peer,
    now_ns: u64,
    checksum_missing: bool,
    lines: Vec<String>,
    /// From this time on the link is down.
    breaks_ns: Option<u64>,
}

impl Wire {
    fn new(plan: &Plan) -> Self {
        Self {
            peer: Peer::new(plan),
            now_ns: SECOND_NS,
            checksum_missing: plan.checksum_missing,
            lines: Vec::new(),
            breaks_ns: None,
        }
    }

    fn said(&self, part: &str) -> bool {
        self.lines.iter().any(|line| line.contains(part))
    }
}

impl Link for Wire {
    fn now_ns(&mut self) -> u64 {
        self.now_ns
    }

    fn send(&mut self, frame: &[u8]) -> Result<(), Broken> {
        self.peer.take(frame);
        Ok(())
    }

    fn receive(&mut self, buffer: &mut [u8]) -> Result<Option<Arrived>, Broken> {
        if self.breaks_ns.is_some_and(|at| self.now_ns >= at) {
            return Err(Broken("eth0: the card is gone".into()));
        }
        let Some((frame, tag)) = self.peer.give() else { return Ok(None) };
        buffer[..frame.len()].copy_from_slice(&frame);
        Ok(Some(Arrived { length: frame.len(), tag, checksum_missing: self.checksum_missing }))
    }

    fn wait(&mut self, until_ns: u64) -> Result<(), Broken> {
        self.peer.turn(self.now_ns);
        if !self.peer.has_frames() {
            self.now_ns =
                self.peer.next_ns().map_or(until_ns, |next| next.min(until_ns)).max(self.now_ns + 1);
            self.peer.turn(self.now_ns);
        } else {
            self.now_ns += 50_000;
        }
        Ok(())
    }

    fn say(&mut self, _: Tone, text: fmt::Arguments<'_>) {
        self.lines.push(text.to_string());
    }
}

/// Keeps the bytes, and knows what they should be.
struct Kept {
    bytes: Vec<u8>,
    wanted: Vec<u8>,
}

impl Sink for Kept {
    fn restart(&mut self) -> Result<(), Broken> {
        self.bytes.clear();
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), Broken> {
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    fn judge(&mut self) -> Result<Option<String>, Broken> {
        Ok((self.bytes != self.wanted).then(|| "wrong digest".to_string()))
    }
}

fn content(length: usize) -> Vec<u8> {
    (0..length).map(|at| u8::try_from((at * 7 + at / 251) % 256).unwrap()).collect()
}

const LENGTH: usize = 700_000;

fn file() -> Answer {
    Answer::File(content(LENGTH))
}

fn setup() -> Setup {
    Setup { mac: MAC, vlan: None, lease: None, seed: 77 }
}

fn run(wire: &mut Wire, setup: Setup, mirrors: &[&str]) -> Result<Url, Error> {
    run_with(wire, setup, mirrors, None)
}

fn run_with(wire: &mut Wire, setup: Setup, mirrors: &[&str], trust: Option<&Trust>) -> Result<Url, Error> {
    let mut station = Station::new(wire, setup);
    station.take_address(wire)?;
    let urls: Vec<Url> = mirrors.iter().map(|text| Url::parse(text).unwrap()).collect();
    let mut sink = Kept { bytes: Vec::new(), wanted: content(LENGTH) };
    let item = Item { name: "base", file: "base.layer", bytes: LENGTH as u64 };
    fetch(&mut station, wire, Mirrors { urls: &urls, trust }, item, &mut sink)
}

fn text(result: Result<Url, Error>) -> String {
    result.unwrap_err().to_string()
}

#[test]
fn an_address_by_dhcp_and_a_file() {
    let mut wire = Wire::new(&Plan::with([Site::new(80, Manner::Good).file("/x/base.layer", file())]));
    let url = run(&mut wire, setup(), &["http://10.77.0.1/x/"]).unwrap();
    assert_eq!(url.to_string(), "http://10.77.0.1/x/base.layer");
    assert_eq!(wire.peer.requests, ["80 /x/base.layer from 0"]);
    assert_eq!(wire.peer.sent_bytes, LENGTH as u64);
    assert!(wire.said("layer base: 0.7 MB from http://10.77.0.1/x/base.layer, "), "{:?}", wire.lines);
}

#[test]
fn a_vlan_with_a_fixed_address_and_a_name() {
    let mut plan = Plan::with([Site::new(8080, Manner::Good).file("/base.layer", file())]);
    plan.vlan = Some(5);
    plan.dhcp.clear();
    plan.names = vec![("boot.lan", SECOND)];
    plan.checksum_missing = true;
    let lease = Lease { address: CLIENT, prefix: 24, gateway: Some(SERVER), dns: vec![SERVER], from: None };
    let own = Setup { vlan: Some(5), lease: Some(lease), ..setup() };
    let mut wire = Wire::new(&plan);
    run(&mut wire, own.clone(), &["http://boot.lan:8080"]).unwrap();
    let mut wire = Wire::new(&plan);
    assert_eq!(
        text(run(&mut wire, Setup { vlan: None, ..own }, &["http://10.77.0.1:8080"])),
        "layer base: given up after 180 s: http://10.77.0.1:8080/base.layer: no connection to 10.77.0.1:8080 within \
         10 s"
    );
}

#[test]
fn dhcp_gives_the_name_server_and_unknown_names_are_said() {
    let mut plan = Plan::with([Site::new(80, Manner::Good).file("/base.layer", file())]);
    plan.names = vec![("boot.lan", SERVER)];
    let mut wire = Wire::new(&plan);
    run(&mut wire, setup(), &["http://other.lan/", "http://boot.lan/"]).unwrap();
    assert!(wire.said("the name servers do not know other.lan"), "{:?}", wire.lines);
    plan.names.clear();
    let mut wire = Wire::new(&plan);
    let said = text(run(&mut wire, setup(), &["http://boot.lan/"]));
    assert!(said.ends_with("no name server knows boot.lan: neither DHCP nor ip= gave one"), "{said}");
}

#[test]
fn nobody_gives_an_address() {
    let mut wire = Wire::new(&Plan::default());
    assert_eq!(
        text(run(&mut wire, setup(), &["http://10.77.0.1/"])),
        "no DHCP server gave an address within 60 s; give one with ip=ADDRESS::GATEWAY:NETMASK::INTERFACE"
    );
}

#[test]
fn a_dhcp_server_that_knows_of_no_next_server_gives_addresses() {
    let mut plan = Plan::with([Site::new(80, Manner::Good).file("/base.layer", file())]);
    plan.no_next_server = true;
    let mut wire = Wire::new(&plan);
    let lease = Station::new(&mut wire, setup()).take_address(&mut wire).unwrap();
    assert_eq!((lease.address, lease.from), (CLIENT, Some(SERVER)));
    // The offer and the acknowledgement.
    assert_eq!(wire.peer.next_servers, [Ipv4Addr::UNSPECIFIED; 2]);
    let url = run(&mut Wire::new(&plan), setup(), &["http://10.77.0.2/"]).unwrap();
    assert_eq!(url.to_string(), "http://10.77.0.2/base.layer");
}

#[test]
fn a_second_dhcp_server_is_named() {
    let mut plan = Plan::with([Site::new(80, Manner::Good).file("/base.layer", file())]);
    plan.dhcp.push(SECOND);
    let mut wire = Wire::new(&plan);
    run(&mut wire, setup(), &["http://10.77.0.1/"]).unwrap();
    assert!(wire.said("another DHCP server is on this network: 10.77.0.2"), "{:?}", wire.lines);
}

#[test]
fn a_broken_connection_goes_on_where_it_was() {
    let site = Site::new(80, Manner::Breaks(vec![300_000, 100_000])).file("/base.layer", file());
    let mut wire = Wire::new(&Plan::with([site]));
    run(&mut wire, setup(), &["http://10.77.0.1/"]).unwrap();
    let wanted = ["80 /base.layer from 0", "80 /base.layer from 300000", "80 /base.layer from 400000"];
    assert_eq!(wire.peer.requests, wanted);
    assert_eq!(wire.peer.sent_bytes, LENGTH as u64);
    assert!(wire.said("the connection ended after 300000 of 700000 bytes"), "{:?}", wire.lines);
}

#[test]
fn another_mirror_goes_on_with_it_and_one_without_ranges_begins_anew() {
    let sites = [
        Site::new(80, Manner::Breaks(vec![300_000])).file("/base.layer", file()),
        Site::new(81, Manner::Good).file("/base.layer", file()),
    ];
    let mut wire = Wire::new(&Plan::with(sites));
    let url = run(&mut wire, setup(), &["http://10.77.0.1/", "http://10.77.0.1:81/"]).unwrap();
    assert_eq!(url.port, 81);
    assert_eq!(wire.peer.requests, ["80 /base.layer from 0", "81 /base.layer from 300000"]);
    let sites = [
        Site::new(80, Manner::Breaks(vec![300_000])).file("/base.layer", file()),
        Site::new(81, Manner::NoRanges).file("/base.layer", file()),
    ];
    let mut wire = Wire::new(&Plan::with(sites));
    run(&mut wire, setup(), &["http://10.77.0.1/", "http://10.77.0.1:81/"]).unwrap();
    assert_eq!(wire.peer.sent_bytes, 300_000 + LENGTH as u64);
}

/// Each attempt brings a hundred kilobytes, always the same ones.
#[test]
fn a_server_without_ranges_that_always_breaks_is_given_up() {
    let site = |port| Site::new(port, Manner::BreaksAnew(100_000)).file("/base.layer", file());
    let broke = "the connection ended after 100000 of 700000 bytes";
    let (one, two) = ("http://10.77.0.1/base.layer", "http://10.77.0.1:81/base.layer");
    for (mirrors, reasons) in [
        (&["http://10.77.0.1/"][..], format!("{one}: {broke}")),
        (&["http://10.77.0.1/", "http://10.77.0.1:81/"], format!("{one}: {broke}; {two}: {broke}")),
    ] {
        let mut wire = Wire::new(&Plan::with([site(80), site(81)]));
        // Ends a test that would run for ever.
        wire.breaks_ns = Some(2 * PATIENCE_NS);
        let began = wire.now_ns;
        let said = text(run(&mut wire, setup(), mirrors));
        assert_eq!(said, format!("layer base: given up after 180 s: {reasons}"));
        let took = wire.now_ns - began;
        assert!((PATIENCE_NS..PATIENCE_NS + 40 * SECOND_NS).contains(&took), "{took}");
        // Pauses grow, since nothing new came.
        assert!(wire.peer.requests.len() < 20, "{:?}", wire.peer.requests);
    }
}

/// Little by little it all comes, over more time than a server may do nothing in.
#[test]
fn a_server_that_breaks_early_again_and_again_is_not_given_up() {
    let site = Site::new(80, Manner::Breaks(vec![10_000; 69])).file("/base.layer", file());
    let mut wire = Wire::new(&Plan::with([site]));
    let began = wire.now_ns;
    run(&mut wire, setup(), &["http://10.77.0.1/"]).unwrap();
    assert_eq!(wire.peer.sent_bytes, LENGTH as u64);
    assert!(wire.now_ns - began > PATIENCE_NS);
}

/// Each of the two is wrong once: together, and alone. What the good one brings afterwards counts from the beginning.
#[test]
fn wrong_bytes_are_no_measure_of_those_that_come_after_them() {
    let mut wrong = content(LENGTH);
    wrong[5] ^= 1;
    let breaks = [vec![LENGTH], vec![10_000; 69]].concat();
    let sites = [
        Site::new(80, Manner::Breaks(vec![300_000])).file("/base.layer", Answer::File(wrong)),
        Site::new(81, Manner::Breaks(breaks)).file("/base.layer", file()),
    ];
    let mut wire = Wire::new(&Plan::with(sites));
    let began = wire.now_ns;
    let url = run(&mut wire, setup(), &["http://10.77.0.1/", "http://10.77.0.1:81/"]).unwrap();
    assert_eq!(url.port, 81);
    let wrong = |port: &str| wire.said(&format!("10.77.0.1{port}/base.layer: wrong digest"));
    assert!(wrong("") && wrong(":81"), "{:?}", wire.lines);
    assert!(wire.now_ns - began > PATIENCE_NS);
}

#[test]
fn wrong_bytes_drop_the_mirror() {
    let mut wrong = content(LENGTH);
    wrong[5] ^= 1;
    let bad = Site::new(80, Manner::Good).file("/base.layer", Answer::File(wrong));
    let good = Site::new(81, Manner::Good).file("/base.layer", file());
    let mut wire = Wire::new(&Plan::with([bad.clone(), good]));
    run(&mut wire, setup(), &["http://10.77.0.1/", "http://10.77.0.1:81/"]).unwrap();
    assert!(wire.said("layer base from http://10.77.0.1/base.layer: wrong digest"), "{:?}", wire.lines);
    let mut wire = Wire::new(&Plan::with([bad]));
    let said = text(run(&mut wire, setup(), &["http://10.77.0.1/"]));
    assert_eq!(said, "layer base: http://10.77.0.1/base.layer: wrong digest");
}

#[test]
fn a_file_that_is_not_there_or_of_another_length_is_not_fetched() {
    let site = Site::new(80, Manner::Good).file("/a/base.layer", Answer::File(content(10)));
    let mut wire = Wire::new(&Plan::with([site]));
    assert_eq!(
        text(run(&mut wire, setup(), &["http://10.77.0.1/", "http://10.77.0.1/a"])),
        "layer base: http://10.77.0.1/base.layer: it answers 404 Not Found; http://10.77.0.1/a/base.layer: it has 10 \
         bytes, the root manifest says 700000"
    );
}

#[test]
fn redirects_are_followed_but_not_for_ever_and_not_to_https_without_an_authority() {
    let site = Site::new(80, Manner::Good)
        .file("/base.layer", Answer::Redirect("/real/base".into()))
        .file("/real/base", file())
        .file("/tls/base.layer", Answer::Redirect("https://10.77.0.1/base".into()))
        .file("/loop/base.layer", Answer::Redirect("base.layer".into()));
    let plan = Plan::with([site]);
    let mut wire = Wire::new(&plan);
    let url = run(&mut wire, setup(), &["http://10.77.0.1/"]).unwrap();
    assert_eq!(url.path, "/real/base");
    let mut wire = Wire::new(&plan);
    let said = text(run(&mut wire, setup(), &["http://10.77.0.1/tls", "http://10.77.0.1/loop"]));
    let wanted = "it sends us to https://10.77.0.1/base: https needs an authority to trust";
    assert!(said.contains(wanted), "{said}");
    assert!(said.ends_with("more than 5 redirects"), "{said}");
}

#[test]
fn slow_and_silent_servers_meet_their_deadlines() {
    let sites = [
        Site::new(80, Manner::Slow(100)).file("/base.layer", file()),
        Site::new(81, Manner::Mute).file("/base.layer", file()),
    ];
    let mut wire = Wire::new(&Plan::with(sites));
    let began = wire.now_ns;
    let said = text(run(&mut wire, setup(), &["http://10.77.0.1/", "http://10.77.0.1:81/"]));
    assert!(
        said.starts_with("layer base: given up after 180 s: http://10.77.0.1/base.layer: too slow: "),
        "{said}"
    );
    assert!(said.ends_with("http://10.77.0.1:81/base.layer: no answer within 20 s"), "{said}");
    let took = wire.now_ns - began;
    assert!((PATIENCE_NS..PATIENCE_NS + 40 * SECOND_NS).contains(&took), "{took}");
}

#[test]
fn a_modem_is_slow_enough_to_see_lines_and_fast_enough_to_end() {
    let site = Site::new(80, Manner::Slow(50_000)).file("/base.layer", file());
    let mut wire = Wire::new(&Plan::with([site]));
    run(&mut wire, setup(), &["http://10.77.0.1/"]).unwrap();
    assert!(wire.said(" of 0.7 MB, 0.0 MB/s from 10.77.0.1"), "{:?}", wire.lines);
}

#[test]
fn a_port_without_server_and_a_server_that_has_no_time() {
    let site = Site::new(80, Manner::Good).file("/base.layer", Answer::Status("503 Busy"));
    let mut wire = Wire::new(&Plan::with([site]));
    let said = text(run(&mut wire, setup(), &["http://10.77.0.1/", "http://10.77.0.1:9/"]));
    assert!(
        said.contains("it answers 503 Busy; http://10.77.0.1:9/base.layer: 10.77.0.1:9 refuses"),
        "{said}"
    );
    let far = Ipv4Addr::new(192, 0, 2, 1);
    let lease = Lease { address: CLIENT, prefix: 24, gateway: None, dns: vec![], from: None };
    let mut wire = Wire::new(&Plan::default());
    let said = text(run(&mut wire, Setup { lease: Some(lease), ..setup() }, &[&format!("http://{far}/")]));
    assert!(said.contains("no connection to 192.0.2.1:80"), "{said}");
}

#[test]
fn a_card_that_goes_away_ends_it() {
    let site = Site::new(80, Manner::Slow(10_000)).file("/base.layer", file());
    let mut wire = Wire::new(&Plan::with([site]));
    wire.breaks_ns = Some(12 * SECOND_NS);
    assert_eq!(text(run(&mut wire, setup(), &["http://10.77.0.1/"])), "eth0: the card is gone");
}
