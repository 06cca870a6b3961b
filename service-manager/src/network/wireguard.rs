//! Keys and peers of WireGuard links, by generic netlink.
//!
//! | task | reads | writes | ends |
//! |---|---|---|---|
//! | [`keep`], one a tunnel | names of endpoints | the tunnel's key and peers | with the link, or when its settings change |
//!
//! Owns: what the kernel is told of a tunnel. A peer that stays keeps its session: only what is no longer wanted is removed.
//! Does not: make the link (`made` does).
//! Order: endpoints are resolved first; a peer whose endpoint has no address is set up without it. The kernel is told again
//! only when the address of an endpoint is no longer among those of its name: a peer may have moved by itself.
//! Fails by: a line without a key, once a reason; tried again.
//! Source: include/uapi/linux/wireguard.h of Linux; genetlink(7).

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use netlink_packet_core::NLM_F_ACK;
use netlink_packet_wireguard::{
    WireguardAddressFamily, WireguardAllowedIp, WireguardAllowedIpAttr, WireguardAttribute, WireguardCmd,
    WireguardMessage, WireguardPeer, WireguardPeerAttribute, WireguardPeerFlags,
};
use network_plan::link::{Key, Peer, Wireguard};
use runtime::Runtime;
use tokio::sync::Notify;
use zeroize::Zeroizing;

use super::generic::{Family, GenericError};
use super::wireguard_status::{self, WIREGUARD};

/// For the addresses of one endpoint's name.
const RESOLVE_DEADLINE: Duration = Duration::from_secs(3);
/// Between two looks at names that all have addresses, and at those of which one has none.
const IDLE_PERIOD: Duration = Duration::from_secs(60);
const RETRY_PERIOD: Duration = Duration::from_secs(10);

type Endpoints = BTreeMap<Key, SocketAddr>;

/// Keeps a link's tunnel as it is wanted. `news` is told of what the kernel tells no one: a tunnel that was changed.
pub(super) async fn keep(runtime: Arc<Runtime>, name: String, wanted: Wireguard, news: Arc<Notify>) {
    let (mut told, mut said) = (None, String::new());
    loop {
        let (endpoints, mut faults) = resolve(&wanted, told.as_ref().unwrap_or(&Endpoints::new())).await;
        if told.as_ref() != Some(&endpoints) {
            let (link, settings, new) = (name.clone(), wanted.clone(), endpoints.clone());
            let result = tokio::task::spawn_blocking(move || tell(&link, &settings, &new)).await;
            match result.map_err(|error| error.to_string()).and_then(|told| told) {
                Ok(()) => {
                    told = Some(endpoints);
                    news.notify_one();
                }
                Err(fault) => faults.push(fault),
            }
        }
        let fault = faults.join("; ");
        if fault != said && !fault.is_empty() {
            runtime.journal.warn(&format!("networkd: link {name}: {fault}"));
        }
        tokio::time::sleep(if fault.is_empty() { IDLE_PERIOD } else { RETRY_PERIOD }).await;
        said = fault;
    }
}

/// The address of each endpoint: the one of before while its name still has it. And which names have none.
async fn resolve(wanted: &Wireguard, before: &Endpoints) -> (Endpoints, Vec<String>) {
    let (mut endpoints, mut faults) = (Endpoints::new(), Vec::new());
    for peer in &wanted.peers {
        let Some(text) = &peer.endpoint else { continue };
        let found = tokio::time::timeout(RESOLVE_DEADLINE, tokio::net::lookup_host(text.as_str())).await;
        let found: Vec<SocketAddr> =
            found.ok().and_then(Result::ok).map(Iterator::collect).unwrap_or_default();
        let old = before.get(&peer.public_key);
        let address = found.iter().find(|address| Some(*address) == old).or(found.first());
        if address.is_none() {
            let seconds = RESOLVE_DEADLINE.as_secs();
            faults.push(format!("the endpoint {text} has no address (deadline lookup, {seconds} s)"));
        }
        // Where no name server answers, what is known goes on.
        if let Some(address) = address.or(old) {
            endpoints.insert(peer.public_key, *address);
        }
    }
    (endpoints, faults)
}

fn tell(name: &str, wanted: &Wireguard, endpoints: &Endpoints) -> Result<(), String> {
    let mut family = Family::open::<WireguardMessage>(WIREGUARD).map_err(|error| error.to_string())?;
    let failed = |error: GenericError| error.to_string();
    let kept: BTreeSet<Key> = wanted.peers.iter().map(|peer| peer.public_key).collect();
    let gone = peers(&mut family, name).map_err(failed)?.into_iter().filter(|key| !kept.contains(key));
    let removed: Vec<WireguardPeer> = gone
        .map(|key| {
            let flags = WireguardPeerAttribute::Flags(WireguardPeerFlags::RemoveMe);
            WireguardPeer(vec![WireguardPeerAttribute::PublicKey(key), flags])
        })
        .collect();
    let key = key_of(wanted.private_key.expose_secret()).ok_or("privateKey is no key of 32 bytes")?;
    let attributes = vec![
        WireguardAttribute::IfName(name.to_owned()),
        WireguardAttribute::PrivateKey(*key),
        WireguardAttribute::ListenPort(wanted.listen_port.unwrap_or_default()),
        WireguardAttribute::Fwmark(wanted.firewall_mark.unwrap_or_default()),
        WireguardAttribute::Peers(removed),
    ];
    set(&mut family, attributes).map_err(failed)?;
    for peer in &wanted.peers {
        let peer = described(peer, endpoints)?;
        let attributes =
            vec![WireguardAttribute::IfName(name.to_owned()), WireguardAttribute::Peers(vec![peer])];
        set(&mut family, attributes).map_err(failed)?;
    }
    Ok(())
}

/// A key in base64.
fn key_of(text: &str) -> Option<Zeroizing<Key>> {
    let bytes = Zeroizing::new(STANDARD.decode(text.trim()).ok()?);
    Some(Zeroizing::new(bytes.as_slice().try_into().ok()?))
}

fn described(peer: &Peer, endpoints: &Endpoints) -> Result<WireguardPeer, String> {
    // A key of zeros is none.
    let shared = match &peer.preshared_key {
        Some(key) => *key_of(key.expose_secret()).ok_or("presharedKey is no key of 32 bytes")?,
        None => Key::default(),
    };
    let allowed = peer.allowed.iter().map(|(address, length)| {
        let family = match address {
            IpAddr::V4(_) => WireguardAddressFamily::Ipv4,
            IpAddr::V6(_) => WireguardAddressFamily::Ipv6,
        };
        WireguardAllowedIp(vec![
            WireguardAllowedIpAttr::Family(family),
            WireguardAllowedIpAttr::IpAddr(*address),
            WireguardAllowedIpAttr::Cidr(*length),
        ])
    });
    let mut attributes = vec![
        WireguardPeerAttribute::PublicKey(peer.public_key),
        WireguardPeerAttribute::PresharedKey(shared),
        WireguardPeerAttribute::Flags(WireguardPeerFlags::ReplaceAllowedIps),
        WireguardPeerAttribute::PersistentKeepalive(peer.keepalive_seconds),
        WireguardPeerAttribute::AllowedIps(allowed.collect()),
    ];
    attributes.extend(endpoints.get(&peer.public_key).copied().map(WireguardPeerAttribute::Endpoint));
    Ok(WireguardPeer(attributes))
}

/// Public keys of a link's peers.
fn peers(family: &mut Family, name: &str) -> Result<BTreeSet<Key>, GenericError> {
    let answers = wireguard_status::device(family, name)?;
    let peers = answers.into_iter().flat_map(|answer| answer.attributes).filter_map(|it| match it {
        WireguardAttribute::Peers(peers) => Some(peers),
        _ => None,
    });
    let keys = peers.flatten().flat_map(|peer| peer.0).filter_map(|attribute| match attribute {
        WireguardPeerAttribute::PublicKey(key) => Some(key),
        _ => None,
    });
    Ok(keys.collect())
}

fn set(family: &mut Family, attributes: Vec<WireguardAttribute>) -> Result<(), GenericError> {
    let told = WireguardMessage { cmd: WireguardCmd::SetDevice, attributes };
    family.request(told, NLM_F_ACK).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(endpoint: &str) -> Wireguard {
        let peer = Peer {
            public_key: [1; 32],
            preshared_key: None,
            endpoint: Some(endpoint.to_owned()),
            keepalive_seconds: 0,
            allowed: Vec::new(),
        };
        let private_key = config::Secret::new("");
        Wireguard { private_key, listen_port: None, firewall_mark: None, peers: vec![peer] }
    }

    #[tokio::test]
    async fn an_endpoint_keeps_its_address_and_without_a_name_server_what_is_known() {
        let known = |text: &str| Endpoints::from([([1; 32], text.parse().unwrap())]);
        let (found, faults) = resolve(&wanted("127.0.0.1:5"), &Endpoints::new()).await;
        assert_eq!((found, faults.len()), (known("127.0.0.1:5"), 0));
        // A name that has another address now.
        let (found, _) = resolve(&wanted("127.0.0.1:5"), &known("127.0.0.9:5")).await;
        assert_eq!(found, known("127.0.0.1:5"));
        let (found, faults) = resolve(&wanted("no such name:5"), &known("127.0.0.9:5")).await;
        assert_eq!(found, known("127.0.0.9:5"));
        assert!(faults[0].contains("the endpoint no such name:5 has no address"), "{faults:?}");
    }

    #[test]
    fn a_key_has_32_bytes() {
        assert!(key_of("1EsxUygZo8/URWs18tqB5FW2cLVlaTA+lUisKIf8nh4=").is_some());
        assert!(key_of("YQ==").is_none() && key_of("not base64").is_none());
    }
}
