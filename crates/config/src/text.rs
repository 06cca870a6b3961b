//! Forms of text: names, addresses, networks, endpoints, keys.
//!
//! Fails by: a sentence that shows the right form.

use base64::{Engine, engine::general_purpose::STANDARD};
use std::net::IpAddr;

/// The host of an `https://host:port` endpoint, brackets of an IPv6 address removed; `None` if it is not one.
pub fn endpoint_host(endpoint: &str) -> Option<&str> {
    let authority = endpoint.strip_prefix("https://")?.trim_end_matches('/');
    let (host, port) = split_port(authority)?;
    let good = port.is_none_or(|p| port_number(p).is_some()) && is_host(host);
    good.then_some(host)
}

/// Why `endpoint` is not an address of the Kubernetes API.
pub(crate) fn api_endpoint(endpoint: &str) -> Result<(), String> {
    if endpoint.is_empty() {
        return Err("cluster controlplane endpoint is required".to_owned());
    }
    if endpoint_host(endpoint).is_some_and(|host| port_behind_dot(host).is_none()) {
        return Ok(());
    }
    Err(format!("invalid controlplane endpoint: {}", endpoint_fault(endpoint)))
}

fn endpoint_fault(endpoint: &str) -> String {
    let right = |rest: &str| format!("https://{rest}");
    let Some(authority) = endpoint.strip_prefix("https://").map(|a| a.trim_end_matches('/')) else {
        let rest = endpoint.split_once("://").map_or(endpoint, |(_, rest)| rest);
        return format!("`{endpoint}` does not begin with https://; write `{}`", right(rest));
    };
    if let Some(corrected) = port_behind_dot(authority) {
        return format!("`{endpoint}` has a dot before the port; write `{}`", right(&corrected));
    }
    if authority.contains('/') || authority.contains('@') {
        return format!("`{endpoint}` has more than a host and a port; write `https://host:port`");
    }
    if authority.matches(':').count() > 1 && !authority.starts_with('[') {
        return "IPv6 addresses MUST be enclosed by square brackets".to_owned();
    }
    match split_port(authority) {
        None | Some(("", _)) => "hostname must not be blank".to_owned(),
        Some((_, Some(port))) if !port.bytes().all(|b| b.is_ascii_digit()) || port.is_empty() => {
            "port number must be numeric".to_owned()
        }
        Some((_, Some(port))) if port_number(port).is_none() => {
            "port number must be between 1 and 65535".to_owned()
        }
        Some((host, _)) => format!("`{host}` is neither an address nor a name"),
    }
}

/// A host with a port, as a WireGuard peer or a service has it.
pub(crate) fn host_and_port(endpoint: &str) -> Result<(), String> {
    if let Some(corrected) = port_behind_dot(endpoint) {
        return Err(format!("`{endpoint}` has a dot before the port; write `{corrected}`"));
    }
    match split_port(endpoint) {
        Some((host, Some(port))) if is_host(host) && port_number(port).is_some() => Ok(()),
        _ => Err(format!(
            "`{endpoint}` is not a host with a port: 10.0.0.1:51820, [fd00::1]:51820 or example.org:51820"
        )),
    }
}

/// `tcp://` or `udp://`, a host and a port.
pub(crate) fn log_receiver(url: &str) -> Result<(), String> {
    match url.strip_prefix("tcp://").or_else(|| url.strip_prefix("udp://")) {
        Some(rest) => host_and_port(rest.trim_end_matches('/')),
        None => Err(format!("`{url}` is no receiver of logs: tcp://10.0.0.1:12345 or udp://10.0.0.1:12345")),
    }
}

/// `209.202.254.14.8172` with its last dot made a colon.
fn port_behind_dot(text: &str) -> Option<String> {
    let (address, port) = text.rsplit_once('.')?;
    let is_v4 = address.parse::<std::net::Ipv4Addr>().is_ok();
    (is_v4 && port_number(port).is_some()).then(|| format!("{address}:{port}"))
}

fn split_port(authority: &str) -> Option<(&str, Option<&str>)> {
    match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']')?;
            if port.is_empty() { Some((host, None)) } else { Some((host, Some(port.strip_prefix(':')?))) }
        }
        None => Some(authority.split_once(':').map_or((authority, None), |(host, port)| (host, Some(port)))),
    }
}

fn port_number(text: &str) -> Option<u16> {
    text.parse().ok().filter(|port| *port != 0 && !text.starts_with('+'))
}

/// A host, with or without a port.
pub(crate) fn is_host_with_port(text: &str) -> bool {
    is_host(text)
        || split_port(text).is_some_and(|(host, port)| {
            is_host(host.trim_matches(['[', ']'])) && port.is_some_and(|port| port_number(port).is_some())
        })
}

pub(crate) fn is_host(text: &str) -> bool {
    text.parse::<IpAddr>().is_ok() || is_host_name(text)
}

pub(crate) fn cidr(text: &str) -> Result<(), String> {
    if is_cidr(text) {
        Ok(())
    } else {
        Err(format!("`{text}` is not an address with prefix length: 10.0.0.2/24"))
    }
}

/// An address of a link: without a prefix length it stands alone, as `/32` or `/128`.
pub(crate) fn is_link_address(text: &str) -> bool {
    is_cidr(text) || text.parse::<IpAddr>().is_ok()
}

/// Whether an address, with a prefix length or without, lies in a network.
pub(crate) fn is_inside(address: &str, network: &str) -> bool {
    let number = |text: &str| match text.parse::<IpAddr>().ok()? {
        IpAddr::V4(address) => Some((u128::from(address.to_bits()) << 96, false)),
        IpAddr::V6(address) => Some((address.to_bits(), true)),
    };
    let address = number(address.split_once('/').map_or(address, |(address, _)| address));
    let Some((network, prefix)) = network.split_once('/') else { return false };
    let (Some((address, is_v6)), Some((network, is_network_v6)), Ok(prefix)) =
        (address, number(network), prefix.parse::<u32>())
    else {
        return false;
    };
    let mask = u128::MAX.checked_shl(128_u32.saturating_sub(prefix)).unwrap_or_default();
    is_v6 == is_network_v6 && address & mask == network & mask
}

pub(crate) fn is_cidr(text: &str) -> bool {
    let Some((address, prefix)) = text.split_once('/') else { return false };
    let longest = match address.parse::<IpAddr>() {
        Ok(IpAddr::V4(_)) => 32,
        Ok(IpAddr::V6(_)) => 128,
        Err(_) => return false,
    };
    prefix.bytes().all(|b| b.is_ascii_digit()) && prefix.parse::<u8>().is_ok_and(|p| p <= longest)
}

/// RFC 1123 name: labels of letters, digits and inner hyphens, 253 bytes in all.
pub(crate) fn is_host_name(name: &str) -> bool {
    (1..=253).contains(&name.len()) && name.split('.').all(is_label)
}

pub(crate) fn is_label(label: &str) -> bool {
    (1..=63).contains(&label.len())
        && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
        && !label.starts_with('-')
        && !label.ends_with('-')
}

/// A name of a link. IFNAMSIZ is 16 with the final NUL.
pub(crate) fn link_name(name: &str) -> Result<(), String> {
    if name.is_empty() || name.len() > 15 || name.contains(['/', ' ', ':']) || matches!(name, "." | "..") {
        return Err(format!("`{name}` is not a link name: 1 to 15 bytes without `/`, blanks and `:`"));
    }
    Ok(())
}

/// An Ethernet address: six bytes in hexadecimal, between colons or hyphens.
pub(crate) fn hardware_address(text: &str) -> Result<(), String> {
    if hardware_bytes(text).is_some() {
        return Ok(());
    }
    Err(format!("`{text}` is not a hardware address: 02:00:00:00:00:01"))
}

/// The bytes of an Ethernet address; `None` for anything else.
pub fn hardware_bytes(text: &str) -> Option<[u8; 6]> {
    let byte = |part: &str| {
        let is_hex = (1..=2).contains(&part.len()) && part.bytes().all(|digit| digit.is_ascii_hexdigit());
        is_hex.then(|| u8::from_str_radix(part, 16).ok()).flatten()
    };
    let bytes: Vec<u8> = text.split([':', '-']).map(byte).collect::<Option<_>>()?;
    bytes.try_into().ok()
}

/// The number of a routing table, by its number or its name (ip-route(8)); `None` for anything else.
pub fn routing_table(text: &str) -> Option<u32> {
    match text {
        "default" => Some(253),
        "main" => Some(254),
        "local" => Some(255),
        number => number.parse().ok().filter(|number| *number != 0),
    }
}

/// One certificate or several, as PEM.
pub(crate) fn certificates(text: &str) -> Result<(), String> {
    const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
    const END: &str = "-----END CERTIFICATE-----";
    let blocks: Vec<_> = text.split(BEGIN).skip(1).collect();
    if blocks.is_empty() {
        return Err(format!("it has no PEM of a certificate: {BEGIN}"));
    }
    for (index, block) in blocks.iter().enumerate() {
        let body = block.split_once(END).map(|(body, _)| body.split_whitespace().collect::<String>());
        // A certificate is a sequence: DER's tag 0x30.
        let read = body.and_then(|body| STANDARD.decode(body).ok());
        if read.is_none_or(|der| der.first() != Some(&0x30)) {
            return Err(format!("certificate {} is not base64 of a certificate", index + 1));
        }
    }
    Ok(())
}

/// 32 bytes in base64. The text may be a secret and is not repeated.
pub(crate) fn key_of_32_bytes(text: &str) -> Result<(), String> {
    match STANDARD.decode(text.trim()) {
        Ok(bytes) if bytes.len() == 32 => Ok(()),
        Ok(bytes) => Err(format!("the key has {} bytes; it needs 32, in base64", bytes.len())),
        Err(_) => Err("the key is not base64 of 32 bytes".to_owned()),
    }
}

/// `http://` or `https://` with a host.
pub(crate) fn http_url(text: &str) -> Result<(), String> {
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    let authority = rest.map(|r| r.split(['/', '?', '#']).next().unwrap_or(""));
    let good = authority
        .and_then(split_port)
        .is_some_and(|(host, port)| is_host(host) && port.is_none_or(|p| port_number(p).is_some()));
    if good { Ok(()) } else { Err(format!("`{text}` is not an address: http://host:port or https://host")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_lie_in_networks_of_their_own_kind() {
        for (address, network) in [
            ("10.96.0.1/12", "10.96.0.0/12"),
            ("10.111.255.255", "10.96.7.7/12"),
            ("10.0.0.1", "0.0.0.0/0"),
            ("fd00:10:96::5/64", "fd00:10:96::/112"),
            ("192.0.2.1/24", "192.0.2.1/32"),
        ] {
            assert!(is_inside(address, network), "{address} {network}");
        }
        for (address, network) in [
            ("10.112.0.0/12", "10.96.0.0/12"),
            ("::a60:1", "10.96.0.0/12"),
            ("10.0.0.1", "::/0"),
            ("a", "10.0.0.0/8"),
            ("10.0.0.1", "10.0.0.0"),
            ("192.0.2.2", "192.0.2.1/32"),
        ] {
            assert!(!is_inside(address, network), "{address} {network}");
        }
    }

    #[test]
    fn hosts_may_have_a_port() {
        for good in ["10.0.2.2", "10.0.2.2:1123", "time.example:123", "fd00::1", "[fd00::1]:123"] {
            assert!(is_host_with_port(good), "{good}");
        }
        for bad in ["a b", "time.example:", "time.example:0x", "time.example:99999", ":123"] {
            assert!(!is_host_with_port(bad), "{bad}");
        }
    }

    #[test]
    fn endpoint_hosts() {
        assert_eq!(endpoint_host("https://10.0.0.1:6443"), Some("10.0.0.1"));
        assert_eq!(endpoint_host("https://[fd00::1]:6443"), Some("fd00::1"));
        assert_eq!(endpoint_host("https://k8s.example.org"), Some("k8s.example.org"));
        for wrong in [
            "",
            "10.0.0.1:6443",
            "https://",
            "https://a:0",
            "https://a:70000",
            "https://a b",
            "https://[::1]x",
        ] {
            assert_eq!(endpoint_host(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn each_fault_of_an_endpoint_is_told() {
        for (endpoint, fault) in [
            ("", "cluster controlplane endpoint is required"),
            (
                "https://fd00::1:6443",
                "invalid controlplane endpoint: IPv6 addresses MUST be enclosed by square brackets",
            ),
            ("https://:6443", "invalid controlplane endpoint: hostname must not be blank"),
            ("https://a:b", "invalid controlplane endpoint: port number must be numeric"),
            ("https://a:0", "invalid controlplane endpoint: port number must be between 1 and 65535"),
            ("https://a:65536", "invalid controlplane endpoint: port number must be between 1 and 65535"),
            (
                "a:6443",
                "invalid controlplane endpoint: `a:6443` does not begin with https://; write `https://a:6443`",
            ),
            (
                "http://a",
                "invalid controlplane endpoint: `http://a` does not begin with https://; write `https://a`",
            ),
            (
                "https://10.0.0.1.6443",
                "invalid controlplane endpoint: `https://10.0.0.1.6443` has a dot before the port; write `https://10.0.0.1:6443`",
            ),
            (
                "https://a/b",
                "invalid controlplane endpoint: `https://a/b` has more than a host and a port; write `https://host:port`",
            ),
            ("https://a_b:1", "invalid controlplane endpoint: `a_b` is neither an address nor a name"),
        ] {
            assert_eq!(api_endpoint(endpoint), Err(fault.to_owned()));
        }
        assert_eq!(api_endpoint("https://[::1]:6443"), Ok(()));
    }

    #[test]
    fn a_dot_before_the_port_is_shown_right() {
        let told = "`209.202.254.14.8172` has a dot before the port; write `209.202.254.14:8172`";
        assert_eq!(host_and_port("209.202.254.14.8172"), Err(told.to_owned()));
        assert!(host_and_port("209.202.254.14").is_err() && host_and_port("example.org:8172").is_ok());
    }
}
