//! HTTP proxies: which hosts are reached through one, and through which.
//!
//! Owns: the rules of `HTTP_PROXY`, `HTTPS_PROXY` and `NO_PROXY`, upper case before lower case.
//! Does not: connect ([`super::exchange`] does); derive Debug, since an address may hold a password.
//! Fails by: a sentence without the address, for the same reason.
//! Source: golang.org/x/net/http/httpproxy's documentation, which is what the services that pull images go by.

use std::net::IpAddr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderValue, Uri};

/// The proxies of a node.
#[derive(Clone, Default)]
pub struct Proxies {
    http: Option<Proxy>,
    https: Option<Proxy>,
    direct: Vec<Direct>,
}

/// One proxy.
#[derive(Clone)]
pub(super) struct Proxy {
    pub(super) host: String,
    pub(super) port: u16,
    /// For `Proxy-Authorization`.
    pub(super) authorization: Option<HeaderValue>,
}

/// What is reached without one.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Direct {
    Everything,
    Network(IpAddr, u8),
    /// The domain, whether it stands for itself too, and the port if only one is meant.
    Domain(String, bool, Option<u16>),
}

impl Proxies {
    /// What an environment says; `variable` gives a variable's value.
    pub fn of_environment(variable: impl Fn(&str) -> Option<String>) -> Result<Self, String> {
        let either = |name: &str| {
            let found = variable(name).filter(|value| !value.is_empty());
            found.or_else(|| variable(&name.to_ascii_lowercase())).filter(|value| !value.is_empty())
        };
        let proxy = |name: &str| match either(name) {
            Some(value) => Proxy::parse(&value).map(Some).map_err(|reason| format!("{name}: {reason}")),
            None => Ok(None),
        };
        let direct = either("NO_PROXY").unwrap_or_default();
        let direct = direct.split([',', ' ']).filter_map(|entry| Direct::parse(entry.trim())).collect();
        Ok(Self { http: proxy("HTTP_PROXY")?, https: proxy("HTTPS_PROXY")?, direct })
    }

    /// The proxy on the way to a host; `None`: it is reached directly.
    pub(super) fn for_host(&self, secure: bool, host: &str, port: u16) -> Option<&Proxy> {
        let proxy = if secure { self.https.as_ref() } else { self.http.as_ref() }?;
        let address: Option<IpAddr> = host.parse().ok();
        let host = host.trim_end_matches('.').to_ascii_lowercase();
        // Nobody else has our loopback.
        if host == "localhost" || address.is_some_and(|address| address.is_loopback()) {
            return None;
        }
        let is_direct = self.direct.iter().any(|direct| direct.holds(&host, address, port));
        (!is_direct).then_some(proxy)
    }
}

impl Proxy {
    fn parse(text: &str) -> Result<Self, String> {
        let text = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
        let uri: Uri = text.parse().map_err(|_| "it is no address: write http://host:port")?;
        match uri.scheme_str() {
            Some("http") => {}
            Some(other) => {
                return Err(format!(
                    "a proxy that is spoken to by {other} is not supported: use an http:// one"
                ));
            }
            None => return Err("it is no address: write http://host:port".to_owned()),
        }
        let authority = uri.authority().ok_or("it names no host")?;
        let authorization = match authority.as_str().rsplit_once('@') {
            Some((who, _)) => Some(basic(who)?),
            None => None,
        };
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        Ok(Self { host, port: authority.port_u16().unwrap_or(80), authorization })
    }
}

/// `user:password`, percent-encoded, as a header.
pub(crate) fn basic(who: &str) -> Result<HeaderValue, String> {
    let who = if who.contains(':') { decoded(who) } else { [decoded(who), vec![b':']].concat() };
    let value = HeaderValue::from_str(&format!("Basic {}", STANDARD.encode(who)));
    let mut value = value.map_err(|_| "its name and password cannot be sent")?;
    value.set_sensitive(true);
    Ok(value)
}

/// Without percent-encoding.
fn decoded(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let code = after.get(..2).and_then(|two| u8::from_str_radix(std::str::from_utf8(two).ok()?, 16).ok());
        match (first, code) {
            (b'%', Some(byte)) => {
                out.push(byte);
                rest = after.get(2..).unwrap_or(&[]);
            }
            _ => {
                out.push(*first);
                rest = after;
            }
        }
    }
    out
}

impl Direct {
    fn parse(entry: &str) -> Option<Self> {
        let entry = entry.to_ascii_lowercase();
        if entry.is_empty() {
            return None;
        }
        if entry == "*" {
            return Some(Self::Everything);
        }
        if let Some((address, bits)) = entry.split_once('/') {
            let address: IpAddr = address.parse().ok()?;
            let bits = bits.parse().ok().filter(|bits| *bits <= width(address))?;
            return Some(Self::Network(address, bits));
        }
        if let Ok(address) = entry.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>() {
            return Some(Self::Network(address, width(address)));
        }
        let (name, port) = match entry.rsplit_once(':') {
            Some((name, port)) => (name.to_owned(), Some(port.parse().ok()?)),
            None => (entry, None),
        };
        let below = name.strip_prefix('*').unwrap_or(&name);
        match below.strip_prefix('.') {
            Some(domain) => Some(Self::Domain(domain.to_owned(), false, port)),
            None => Some(Self::Domain(name, true, port)),
        }
    }

    fn holds(&self, host: &str, address: Option<IpAddr>, port: u16) -> bool {
        match self {
            Self::Everything => true,
            Self::Network(network, bits) => address.is_some_and(|address| shares(address, *network, *bits)),
            Self::Domain(domain, itself, only) => {
                let below = host.strip_suffix(domain.as_str()).is_some_and(|before| before.ends_with('.'));
                only.is_none_or(|only| only == port) && (below || *itself && host == domain)
            }
        }
    }
}

fn width(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// Whether the first bits are the same.
fn shares(one: IpAddr, other: IpAddr, bits: u8) -> bool {
    let number = |address| match address {
        IpAddr::V4(address) => u128::from(address.to_bits()),
        IpAddr::V6(address) => address.to_bits(),
    };
    let rest = width(other) - bits;
    one.is_ipv4() == other.is_ipv4()
        && (number(one) ^ number(other)).checked_shr(u32::from(rest)).unwrap_or(0) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxies(variables: &[(&str, &str)]) -> Result<Proxies, String> {
        let found = |name: &str| variables.iter().find(|(known, _)| *known == name);
        Proxies::of_environment(|name| found(name).map(|(_, value)| (*value).to_owned()))
    }

    fn through(proxies: &Proxies, secure: bool, host: &str, port: u16) -> Option<(String, u16)> {
        proxies.for_host(secure, host, port).map(|proxy| (proxy.host.clone(), proxy.port))
    }

    #[test]
    fn each_scheme_has_its_proxy() {
        let both = proxies(&[
            ("http_proxy", "p.example:3128"),
            ("HTTPS_PROXY", "http://[fd00::1]"),
            ("https_proxy", "x"),
        ]);
        let both = both.ok().unwrap();
        assert_eq!(through(&both, false, "r.example", 80), Some(("p.example".into(), 3128)));
        assert_eq!(through(&both, true, "r.example", 443), Some(("fd00::1".into(), 80)));
        for ours in ["localhost", "127.0.0.9", "::1"] {
            assert_eq!(through(&both, true, ours, 443), None, "{ours}");
        }
        assert!(through(&proxies(&[]).ok().unwrap(), true, "r.example", 443).is_none());
    }

    #[test]
    fn what_is_reached_directly() {
        let list = "10.0.0.0/8, .below.example,*.star.example,whole.example,port.example:5000,192.0.2.7,fd00::/16,nonsense/33";
        let proxies = proxies(&[("http_proxy", "p"), ("no_proxy", list)]).ok().unwrap();
        let direct = |host: &str, port| through(&proxies, false, host, port).is_none();
        for (host, port) in [
            ("10.9.8.7", 80),
            ("a.below.example", 80),
            ("a.star.example", 80),
            ("whole.example", 80),
            ("A.WHOLE.example.", 80),
            ("port.example", 5000),
            ("192.0.2.7", 1),
            ("fd00::5", 80),
        ] {
            assert!(direct(host, port), "{host}:{port}");
        }
        for (host, port) in [
            ("11.0.0.1", 80),
            ("below.example", 80),
            ("notwhole.example", 80),
            ("port.example", 443),
            ("192.0.2.8", 1),
            ("fd01::5", 80),
        ] {
            assert!(!direct(host, port), "{host}:{port}");
        }
        let none = self::proxies(&[("HTTP_PROXY", "p"), ("NO_PROXY", "*")]).ok().unwrap();
        assert!(through(&none, false, "r.example", 80).is_none());
        let zero = self::proxies(&[("HTTP_PROXY", "p"), ("NO_PROXY", "::/0")]).ok().unwrap();
        assert!(
            through(&zero, false, "2001:db8::1", 80).is_none()
                && through(&zero, false, "10.0.0.1", 80).is_some()
        );
    }

    #[test]
    fn names_and_passwords_are_sent_and_never_told() {
        let known = proxies(&[("HTTP_PROXY", "http://me:p%40ss@p.example:1")]).ok().unwrap();
        let header = known.for_host(false, "r.example", 80).unwrap().authorization.clone().unwrap();
        assert_eq!(header.to_str().unwrap(), "Basic bWU6cEBzcw==");
        assert!(header.is_sensitive());
        for (bad, why) in [
            ("https://me:secret@p", "by https"),
            ("http://me:secret@", "no address"),
            ("socks5://secret", "by socks5"),
        ] {
            let error = proxies(&[("HTTPS_PROXY", bad)]).err().unwrap();
            assert!(
                error.starts_with("HTTPS_PROXY: ") && error.contains(why) && !error.contains("secret"),
                "{error}"
            );
        }
    }
}
