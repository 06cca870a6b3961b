//! Tunnels of WireGuard as the kernel tells them: what `wg show` prints.
//!
//! Owns: that no secret of a tunnel goes further: private and preshared keys are wiped when an answer is read.
//! Fails by: a line for each tunnel that cannot be asked; the link has the rest of its status.
//! Source: include/uapi/linux/wireguard.h of Linux; wg(8).

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use config::schema::GoDuration;
use jiff::Timestamp;
use netlink_packet_core::NLM_F_DUMP;
use netlink_packet_wireguard::{
    WireguardAllowedIp, WireguardAllowedIpAttr, WireguardAttribute, WireguardCmd, WireguardMessage,
    WireguardPeer, WireguardPeerAttribute,
};
use runtime::store::{WireguardPeerStatus, WireguardStatus};
use zeroize::Zeroize as _;

use super::generic::{Family, GenericError};
use super::link::Link;

/// For people.
pub(super) const WIREGUARD: &str = "WireGuard";
/// The kernel's word for links of this kind.
const KIND: &str = "wireguard";

/// Whether a link is a tunnel.
pub(super) fn is_tunnel(link: &Link) -> bool {
    link.kind == KIND
}

/// Every tunnel by the index of its link, and what went wrong. Without tunnels the kernel is not asked.
pub(super) fn all<'a>(
    links: impl Iterator<Item = &'a Link>,
) -> (BTreeMap<u32, WireguardStatus>, Vec<String>) {
    let mut family = None;
    let (mut found, mut faults) = (BTreeMap::new(), Vec::new());
    for link in links.filter(|link| is_tunnel(link)) {
        match read(&mut family, &link.name) {
            Ok(status) => drop(found.insert(link.index, status)),
            Err(error) => faults.push(format!("link {}: {error}", link.name)),
        }
    }
    (found, faults)
}

/// Opens the family with the first tunnel.
fn read(family: &mut Option<Family>, link: &str) -> Result<WireguardStatus, GenericError> {
    let opened = match family.take() {
        Some(family) => family,
        None => Family::open::<WireguardMessage>(WIREGUARD)?,
    };
    Ok(status(&device(family.insert(opened), link)?))
}

/// What the kernel tells of a tunnel, without its secrets.
pub(super) fn device(family: &mut Family, link: &str) -> Result<Vec<WireguardMessage>, GenericError> {
    let attributes = vec![WireguardAttribute::IfName(link.to_owned())];
    let ask = WireguardMessage { cmd: WireguardCmd::GetDevice, attributes };
    let mut answers = family.request(ask, NLM_F_DUMP)?;
    answers.iter_mut().for_each(wipe);
    Ok(answers)
}

fn wipe(message: &mut WireguardMessage) {
    for attribute in &mut message.attributes {
        match attribute {
            WireguardAttribute::PrivateKey(key) => key.zeroize(),
            WireguardAttribute::Peers(peers) => {
                for part in peers.iter_mut().flat_map(|peer| &mut peer.0) {
                    if let WireguardPeerAttribute::PresharedKey(key) = part {
                        key.zeroize();
                    }
                }
            }
            _ => {}
        }
    }
}

/// A peer with many networks goes on in the next message, under the same key.
fn status(answers: &[WireguardMessage]) -> WireguardStatus {
    let mut status = WireguardStatus::default();
    for attribute in answers.iter().flat_map(|answer| &answer.attributes) {
        match attribute {
            WireguardAttribute::PublicKey(key) => status.public_key = STANDARD.encode(key),
            WireguardAttribute::ListenPort(port) => status.listen_port = *port,
            WireguardAttribute::Fwmark(mark) => status.firewall_mark = *mark,
            WireguardAttribute::Peers(peers) => {
                for peer in peers.iter().map(peer_status) {
                    match status.peers.last_mut() {
                        Some(last) if last.public_key == peer.public_key => {
                            last.allowed_ips.extend(peer.allowed_ips);
                        }
                        _ => status.peers.push(peer),
                    }
                }
            }
            _ => {}
        }
    }
    status
}

fn peer_status(peer: &WireguardPeer) -> WireguardPeerStatus {
    let mut status = WireguardPeerStatus::default();
    for part in &peer.0 {
        match part {
            WireguardPeerAttribute::PublicKey(key) => status.public_key = STANDARD.encode(key),
            WireguardPeerAttribute::Endpoint(address) => status.endpoint = address.to_string(),
            WireguardPeerAttribute::PersistentKeepalive(seconds) => {
                status.persistent_keepalive_interval =
                    GoDuration(Duration::from_secs((*seconds).into())).to_string();
            }
            // Zero: there was none.
            WireguardPeerAttribute::LastHandshake(time) if time.seconds != 0 => {
                status.last_handshake =
                    Timestamp::from_second(time.seconds).map(|time| time.to_string()).unwrap_or_default();
            }
            WireguardPeerAttribute::RxBytes(count) => status.received_bytes = *count,
            WireguardPeerAttribute::TxBytes(count) => status.transmitted_bytes = *count,
            WireguardPeerAttribute::AllowedIps(networks) => {
                status.allowed_ips = networks.iter().filter_map(network).collect();
            }
            _ => {}
        }
    }
    status
}

fn network(allowed: &WireguardAllowedIp) -> Option<String> {
    let address = allowed.0.iter().find_map(|part| match part {
        WireguardAllowedIpAttr::IpAddr(address) => Some(*address),
        _ => None,
    })?;
    let length = allowed.0.iter().find_map(|part| match part {
        WireguardAllowedIpAttr::Cidr(length) => Some(*length),
        _ => None,
    })?;
    Some(format!("{address}/{length}"))
}

#[cfg(test)]
mod tests {
    use netlink_packet_core::{NetlinkMessage, NetlinkPayload};
    use netlink_packet_generic::GenlMessage;
    use netlink_packet_wireguard::{WireguardAddressFamily, WireguardTimeSpec};

    use super::*;

    fn allowed(address: &str, length: u8) -> WireguardAllowedIp {
        WireguardAllowedIp(vec![
            WireguardAllowedIpAttr::Family(WireguardAddressFamily::Ipv4),
            WireguardAllowedIpAttr::IpAddr(address.parse().unwrap()),
            WireguardAllowedIpAttr::Cidr(length),
        ])
    }

    /// As it comes from the kernel.
    fn answer(attributes: Vec<WireguardAttribute>) -> WireguardMessage {
        let message = WireguardMessage { cmd: WireguardCmd::GetDevice, attributes };
        let mut message = NetlinkMessage::from(GenlMessage::from_payload(message));
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        match NetlinkMessage::<GenlMessage<WireguardMessage>>::deserialize(&bytes).unwrap().payload {
            NetlinkPayload::InnerMessage(message) => message.payload,
            other => panic!("{other:?}"),
        }
    }

    fn answers() -> Vec<WireguardMessage> {
        let first = WireguardPeer(vec![
            WireguardPeerAttribute::PublicKey([1; 32]),
            WireguardPeerAttribute::PresharedKey([0x5a; 32]),
            WireguardPeerAttribute::Endpoint("[fd00::9]:51820".parse().unwrap()),
            WireguardPeerAttribute::PersistentKeepalive(65),
            WireguardPeerAttribute::LastHandshake(WireguardTimeSpec {
                seconds: 1_700_000_000,
                nano_seconds: 9,
            }),
            WireguardPeerAttribute::RxBytes(5_000_000_000),
            WireguardPeerAttribute::TxBytes(7),
            WireguardPeerAttribute::AllowedIps(vec![allowed("10.1.0.0", 16)]),
        ]);
        let more = WireguardPeer(vec![
            WireguardPeerAttribute::PublicKey([1; 32]),
            WireguardPeerAttribute::AllowedIps(vec![allowed("10.2.0.0", 16)]),
        ]);
        let silent = WireguardPeer(vec![
            WireguardPeerAttribute::PublicKey([2; 32]),
            WireguardPeerAttribute::LastHandshake(WireguardTimeSpec::default()),
            WireguardPeerAttribute::PersistentKeepalive(0),
        ]);
        vec![
            answer(vec![
                WireguardAttribute::IfName("wg0".into()),
                WireguardAttribute::PrivateKey([0x5b; 32]),
                WireguardAttribute::PublicKey([3; 32]),
                WireguardAttribute::ListenPort(51820),
                WireguardAttribute::Fwmark(9),
                WireguardAttribute::Peers(vec![first]),
            ]),
            answer(vec![WireguardAttribute::Peers(vec![more, silent])]),
        ]
    }

    #[test]
    fn a_tunnel_is_shown_with_its_peers() {
        let key = |byte: u8| STANDARD.encode([byte; 32]);
        let expected = WireguardStatus {
            public_key: key(3),
            listen_port: 51820,
            firewall_mark: 9,
            peers: vec![
                WireguardPeerStatus {
                    public_key: key(1),
                    endpoint: "[fd00::9]:51820".into(),
                    persistent_keepalive_interval: "1m5s".into(),
                    allowed_ips: vec!["10.1.0.0/16".into(), "10.2.0.0/16".into()],
                    last_handshake: "2023-11-14T22:13:20Z".into(),
                    received_bytes: 5_000_000_000,
                    transmitted_bytes: 7,
                },
                WireguardPeerStatus {
                    public_key: key(2),
                    persistent_keepalive_interval: "0s".into(),
                    ..WireguardPeerStatus::default()
                },
            ],
        };
        assert_eq!(status(&answers()), expected);
    }

    #[test]
    fn no_secret_is_shown_or_kept() {
        let mut told = answers();
        told.iter_mut().for_each(wipe);
        let shown = format!("{told:?} {}", serde_json::to_string(&status(&told)).unwrap());
        // The bytes of both keys as numbers, and as base64.
        for secret in ["90, 90", "91, 91", &STANDARD.encode([0x5a; 32]), &STANDARD.encode([0x5b; 32])] {
            assert!(!shown.contains(secret), "{secret}: {shown}");
        }
        assert!(format!("{:?}", answers()).contains("90, 90"), "the test looks for what is there");
    }

    #[test]
    fn a_tunnel_that_cannot_be_asked_is_a_line() {
        let link =
            |kind: &str| Link { index: 3, name: "no-such-link".into(), kind: kind.into(), ..Link::default() };
        let (found, faults) = all([&link("wireguard")].into_iter());
        assert!(found.is_empty() && faults.len() == 1, "{found:?} {faults:?}");
        assert!(faults[0].starts_with("link no-such-link: ") && faults[0].contains(WIREGUARD), "{faults:?}");
        assert_eq!(all([&link("bridge")].into_iter()), (BTreeMap::new(), Vec::new()));
    }
}
