//! A driver on a link that fails, with a caller that fails, and with peers that send what they should not.
//!
//! Owns: the packets of such peers, which come from the other end of the wire in the same namespace.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::num::NonZeroU8;
use std::time::Duration;

use common::{Ours, VRID, is_here, settings, throughout, until, within};
use namespaces::{ip, is_inside};
use socket2::{Domain, Protocol, Socket, Type};
use vrrp::packet::{Advertisement, GROUP_V6, PROTOCOL, group, join_ipv4};
use vrrp::router::State;
use vrrp::{Addresses, HOLD_PERIOD, Interval};

const PEERS: [(&str, &str); 2] = [("10.9.0.100", "10.9.0.2"), ("fd00:9::100", "fe80::2")];

/// `eth0` with addresses, and `srv0` at the other end of the wire.
fn link() {
    ip("link add eth0 type veth peer name srv0");
    ip("link set eth0 up");
    // The kernel sends from no address that it still asks for, and asks for a second or more.
    std::fs::write("/proc/sys/net/ipv6/conf/srv0/accept_dad", "0").unwrap();
    ip("link set srv0 up");
    ip("address add 10.9.0.1/24 dev eth0");
}

/// Sends what it likes.
struct Peer {
    socket: Socket,
    source: IpAddr,
}

impl Peer {
    fn new(source: IpAddr) -> Self {
        let domain = if source.is_ipv4() { Domain::IPV4 } else { Domain::IPV6 };
        let protocol = Protocol::from(i32::from(PROTOCOL));
        let socket = Socket::new(domain, Type::RAW, Some(protocol)).unwrap();
        socket.bind_device(Some(b"srv0")).unwrap();
        match source {
            IpAddr::V4(_) => socket.set_header_included_v4(true).unwrap(),
            IpAddr::V6(_) => socket.set_header_included_v6(true).unwrap(),
        }
        Self { socket, source }
    }

    fn send(&self, payload: &[u8], hops: u8) {
        let packet = match self.source {
            IpAddr::V4(source) => {
                let mut packet = join_ipv4(source, payload);
                packet[8] = hops;
                packet
            }
            IpAddr::V6(source) => join_ipv6(source, payload, hops),
        };
        let to: SocketAddr = match group(self.source.is_ipv4()) {
            IpAddr::V4(group) => (group, 0).into(),
            IpAddr::V6(group) => {
                let index = std::fs::read_to_string("/proc/net/if_inet6").unwrap();
                let line = index.lines().find(|line| line.ends_with(" srv0")).unwrap();
                let index = u32::from_str_radix(line.split(' ').nth(1).unwrap(), 16).unwrap();
                SocketAddrV6::new(group, 0, 0, index).into()
            }
        };
        self.socket.send_to(&packet, &to.into()).unwrap();
    }

    /// An advertisement that is in order.
    fn advertisement(&self, vrid: NonZeroU8, priority: u8, address: &str) -> Vec<u8> {
        let addresses = Addresses::new(vec![address.parse().unwrap()]).unwrap();
        let interval = Interval::from_centiseconds(20).unwrap();
        Advertisement { vrid, priority, interval, addresses }.encode(self.source)
    }
}

fn join_ipv6(source: Ipv6Addr, payload: &[u8], hops: u8) -> Vec<u8> {
    let length = u16::try_from(payload.len()).unwrap().to_be_bytes();
    let mut packet = vec![0x60, 0, 0, 0, length[0], length[1], PROTOCOL, hops];
    packet.extend(source.octets());
    packet.extend(GROUP_V6.octets());
    packet.extend(payload);
    packet
}

#[tokio::test]
async fn broken_and_foreign_packets_are_counted_and_change_nothing() {
    if !is_inside("broken_and_foreign_packets_are_counted_and_change_nothing") {
        return;
    }
    link();
    for (address, source) in PEERS {
        let ours = Ours::start(settings(address.parse().unwrap()));
        until("it is ours", || ours.holds()).await;
        let peer = Peer::new(source.parse().unwrap());
        let good = peer.advertisement(VRID, 200, address);
        peer.send(&good, 254);
        peer.send(&good[..7], 255);
        peer.send(&[&good[..], &[0]].concat(), 255);
        let mut torn = good.clone();
        torn[2] ^= 1;
        peer.send(&torn, 255);
        // Counts more addresses than there are.
        let mut counts = good.clone();
        counts[3] = 255;
        peer.send(&counts, 255);
        let other = peer.advertisement(NonZeroU8::MIN, 200, address);
        peer.send(&other, 255);
        let mut older = good.clone();
        older[0] = 0x21;
        peer.send(&older, 255);
        until("all are counted", || (ours.status().malformed, ours.status().ignored) == (5, 2)).await;
        throughout(Duration::from_millis(500), "it stays ours", || ours.holds()).await;
        peer.send(&good, 255);
        until("one that is in order counts", || ours.state() == State::Backup).await;
        assert_eq!(ours.status().active, Some(peer.source));
        assert_eq!(ours.said(), [""; 0]);
        ours.stop().await;
    }
}

#[tokio::test]
async fn other_addresses_of_the_same_number_are_told_once() {
    if !is_inside("other_addresses_of_the_same_number_are_told_once") {
        return;
    }
    link();
    for (address, source) in PEERS {
        let ours = Ours::start(settings(address.parse().unwrap()));
        until("it is ours", || ours.holds()).await;
        let peer = Peer::new(source.parse().unwrap());
        let other = if peer.source.is_ipv4() { ["10.9.0.7", "10.9.0.8"] } else { ["fd00::7", "fd00::8"] };
        for (priority, address) in [(1, other[0]), (2, other[1]), (200, other[0])] {
            peer.send(&peer.advertisement(VRID, priority, address), 255);
        }
        until("it counts all the same", || ours.state() == State::Backup).await;
        until("it is ours again", || ours.holds()).await;
        let said = ours.said();
        let [text] = &said[..] else { panic!("{said:?}") };
        let begin = format!("router {source} of link eth0 advertises {} as virtual router 51", other[0]);
        assert!(text.starts_with(&begin), "{text}");
        ours.stop().await;
    }
}

#[tokio::test]
async fn a_link_that_fails_is_told_once_and_used_when_it_is_back() {
    if !is_inside("a_link_that_fails_is_told_once_and_used_when_it_is_back") {
        return;
    }
    let gone = "look at link eth0: No such device (os error 19)";
    for (address, _) in PEERS {
        let ours = Ours::start(settings(address.parse().unwrap()));
        until("it is told", || ours.said() == [gone]).await;
        throughout(Duration::from_millis(2500), "it is told once", || ours.said() == [gone]).await;
        link();
        until("it is ours", || ours.holds()).await;
        // The cable is out of the other end.
        let said = ours.said().len();
        ip("link set srv0 down");
        until("it is without", || ours.is_without()).await;
        until("it is told", || ours.said()[said..] == ["link eth0 is down"]).await;
        assert_eq!(ours.state(), State::Initialize);
        ip("link set srv0 up");
        until("it is ours", || ours.holds()).await;
        // Another card of the same name.
        let said = ours.said().len();
        ip("link del eth0");
        until("it is told", || ours.said()[said..].iter().any(|text| text == gone)).await;
        link();
        until("it is ours", || ours.holds()).await;
        ours.stop().await;
        ip("link del eth0");
    }
}

#[tokio::test]
async fn another_address_of_the_link_is_noticed() {
    if !is_inside("another_address_of_the_link_is_noticed") {
        return;
    }
    link();
    let ours = Ours::start(settings("10.9.0.100".parse().unwrap()));
    until("it is ours", || ours.holds()).await;
    assert_eq!(ours.status().active, Some("10.9.0.1".parse().unwrap()));
    ip("address del 10.9.0.1/24 dev eth0");
    // The virtual one is not its own.
    until("it is without", || ours.is_without()).await;
    until("it is told", || !ours.said().is_empty()).await;
    ip("address add 10.9.0.3/24 dev eth0");
    until("it is ours", || ours.holds()).await;
    assert_eq!(ours.status().active, Some("10.9.0.3".parse().unwrap()));
    ours.stop().await;
}

#[tokio::test]
async fn an_address_is_held_again_and_again_and_announced_some_times() {
    if !is_inside("an_address_is_held_again_and_again_and_announced_some_times") {
        return;
    }
    link();
    let address = "10.9.0.100".parse().unwrap();
    let ours = Ours::start(settings(address));
    until("it is ours", || ours.holds()).await;
    throughout(Duration::from_secs(4), "it stays", || is_here(address)).await;
    until("it is announced", || ours.calls().announced == 3).await;
    throughout(Duration::from_secs(2), "no more", || ours.calls().announced == 3).await;
    let holds = ours.calls().holds.clone();
    // Never more often; how much less depends on the machine.
    assert!(holds.windows(2).all(|pair| pair[1] - pair[0] >= HOLD_PERIOD - Duration::from_millis(5)));
    assert!(holds.len() > 12, "{}", holds.len());
    ours.drop_dead().await;
    within(Duration::from_secs(4), "the kernel takes it away", || !is_here(address)).await;
}

#[tokio::test]
async fn a_caller_that_cannot_have_the_address_resigns() {
    if !is_inside("a_caller_that_cannot_have_the_address_resigns") {
        return;
    }
    link();
    for (address, _) in PEERS {
        let ours = Ours::start(settings(address.parse().unwrap()));
        for (fails, hangs, why) in
            [(true, false, "there is no room"), (false, true, "no answer within 1000 ms")]
        {
            until("it is ours", || ours.holds()).await;
            let said = ours.said().len();
            (ours.calls().fails, ours.calls().hangs) = (fails, hangs);
            until("it is told", || ours.said().len() > said).await;
            until("it is without", || ours.is_without()).await;
            let tried = ours.calls().holds.len();
            until("it is tried again", || ours.calls().holds.len() > tried + 1).await;
            let text = format!("hold {address} of link eth0: {why}");
            assert_eq!(ours.said()[said..], [text], "once");
            (ours.calls().fails, ours.calls().hangs) = (false, false);
        }
        until("it is ours", || ours.holds()).await;
        ours.stop().await;
    }
}

#[tokio::test]
async fn an_unfit_machine_is_without_the_address_though_no_other_has_it() {
    if !is_inside("an_unfit_machine_is_without_the_address_though_no_other_has_it") {
        return;
    }
    link();
    for (address, _) in PEERS {
        let ours = Ours::start(settings(address.parse().unwrap()));
        until("it is ours", || ours.holds()).await;
        ours.set_fit(false);
        until("it is without", || ours.is_without()).await;
        throughout(Duration::from_millis(1500), "it stays so", || ours.is_without()).await;
        assert_eq!(ours.state(), State::Initialize);
        ours.set_fit(true);
        until("it is ours", || ours.holds()).await;
        ours.stop().await;
    }
}
