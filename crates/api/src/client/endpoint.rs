//! An endpoint as people write it.
//!
//! Owns: `host`, `host:port`, `[v6]`, `[v6]:port`, a bare IPv6 address and `https://` addresses.
//! Source: docs/users/endpoint.md.

use std::{fmt, net::IpAddr, str::FromStr};

/// Port of the node API.
pub const DEFAULT_PORT: u16 = 50_000;
/// Port of an `https://` endpoint without one.
const HTTPS_PORT: u16 = 443;

/// Where to connect to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// Address or name, an IPv6 address without brackets.
    pub host: String,
    /// TCP port.
    pub port: u16,
}

/// Text that is no endpoint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not an endpoint; write host or host:port, an IPv6 address in brackets")]
pub struct EndpointError(String);

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, EndpointError> {
        let (rest, default) = match text.strip_prefix("https://") {
            Some(rest) => (rest.trim_end_matches('/'), HTTPS_PORT),
            None => (text, DEFAULT_PORT),
        };
        split(rest, default).ok_or_else(|| EndpointError(text.to_owned()))
    }
}

fn split(text: &str, default: u16) -> Option<Endpoint> {
    if text.parse::<IpAddr>().is_ok() {
        return Some(Endpoint { host: text.to_owned(), port: default });
    }
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, after) = rest.split_once(']')?;
            host.parse::<IpAddr>().ok()?;
            (host, if after.is_empty() { None } else { Some(after.strip_prefix(':')?) })
        }
        None => text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
    };
    let is_name = !host.is_empty() && host.bytes().all(|b| b.is_ascii_alphanumeric() || b".-_:".contains(&b));
    let port = port.map_or(Some(default), |p| p.parse().ok()).filter(|p| *p != 0)?;
    is_name.then(|| Endpoint { host: host.to_owned(), port })
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_is_read() {
        for (text, expected) in [
            ("10.0.0.1", "10.0.0.1:50000"),
            ("10.0.0.1:1234", "10.0.0.1:1234"),
            ("node-1.example.org", "node-1.example.org:50000"),
            ("fd00::1", "[fd00::1]:50000"),
            ("[fd00::1]", "[fd00::1]:50000"),
            ("[fd00::1]:1", "[fd00::1]:1"),
            ("https://api.example.org", "api.example.org:443"),
            ("https://api.example.org:8443/", "api.example.org:8443"),
        ] {
            assert_eq!(text.parse::<Endpoint>().map(|e| e.to_string()).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_is_none_is_refused() {
        for text in ["", ":1", "a:", "a:0", "a:70000", "[x]:1", "[::1", "[::1]x", "a/b", "http://a", "a b"] {
            assert!(text.parse::<Endpoint>().is_err(), "{text}");
        }
    }
}
