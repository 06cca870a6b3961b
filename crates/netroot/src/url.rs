//! Addresses of mirrors.
//!
//! Owns: `http://HOST[:PORT]/PATH` and `https://…`, joining a file's name to it, and where a redirect leads.
//! Does not: decode or encode; what is given is what is asked for. No user names, no IPv6 addresses.
//! Source: RFC 3986 §3 and §5.2, as far as an HTTP client needs it.

use alloc::format;
use alloc::string::{String, ToString};
use core::fmt;

/// The ports when none is given.
const HTTP_PORT: u16 = 80;
const HTTPS_PORT: u16 = 443;
/// Longest name of a host (RFC 1035 §3.1, without the length of the root).
const MOST_HOST_BYTES: usize = 253;

/// An HTTP or HTTPS address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Url {
    /// `https`
    pub secure: bool,
    /// Name or IPv4 address.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// Begins with `/`; with its query, if it has one.
    pub path: String,
}

/// Why text is no address that can be fetched from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UrlError {
    /// Another scheme or none.
    Scheme,
    /// No host, or one that cannot be.
    Host,
    /// A port that is no number from 1 to 65535.
    Port,
    /// A space or a control character.
    Character,
}

impl Url {
    /// Reads an address.
    pub fn parse(text: &str) -> Result<Self, UrlError> {
        let (scheme, rest) = text.split_once("://").ok_or(UrlError::Scheme)?;
        let secure = scheme.eq_ignore_ascii_case("https");
        if !secure && !scheme.eq_ignore_ascii_case("http") {
            return Err(UrlError::Scheme);
        }
        if !rest.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(UrlError::Character);
        }
        let rest = rest.split('#').next().unwrap_or_default();
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        if authority.starts_with('[') {
            return Err(UrlError::Host);
        }
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) => (host, port.parse().ok().filter(|p| *p != 0).ok_or(UrlError::Port)?),
            None => (authority, default_port(secure)),
        };
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
        if host.is_empty() || host.len() > MOST_HOST_BYTES || !host.bytes().all(is_name) {
            return Err(UrlError::Host);
        }
        let slash = if path.starts_with('/') { "" } else { "/" };
        Ok(Self { secure, host: host.to_string(), port, path: format!("{slash}{path}") })
    }

    /// The file of this name in the directory that this is the address of; a closing slash makes no difference.
    #[must_use]
    pub fn file(&self, name: &str) -> Self {
        let path = format!("{}/{name}", self.path.trim_end_matches('/'));
        Self { path, ..self.clone() }
    }

    /// Where `Location: to` leads from here.
    pub fn redirected(&self, to: &str) -> Result<Self, UrlError> {
        if to.contains("://") {
            return Self::parse(to);
        }
        if let Some(rest) = to.strip_prefix("//") {
            return Self::parse(&format!("{}://{rest}", self.scheme()));
        }
        if !to.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(UrlError::Character);
        }
        let directory =
            self.path.split('?').next().and_then(|path| path.rsplit_once('/')).map_or("", |(f, _)| f);
        let path = if to.starts_with('/') { to.to_string() } else { format!("{directory}/{to}") };
        Ok(Self { path, ..self.clone() })
    }

    /// Host and port as in the header `Host`.
    #[must_use]
    pub fn authority(&self) -> String {
        let is_default = self.port == default_port(self.secure);
        if is_default { self.host.clone() } else { format!("{}:{}", self.host, self.port) }
    }

    fn scheme(&self) -> &'static str {
        if self.secure { "https" } else { "http" }
    }
}

fn default_port(secure: bool) -> u16 {
    if secure { HTTPS_PORT } else { HTTP_PORT }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}{}", self.scheme(), self.authority(), self.path)
    }
}

impl fmt::Display for UrlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Scheme => "is no http:// or https:// address",
            Self::Host => "has no host name or IPv4 address",
            Self::Port => "has a port that is no number from 1 to 65535",
            Self::Character => "has a character that no address has",
        })
    }
}

impl core::error::Error for UrlError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_written() {
        for (text, whole) in [
            ("http://10.0.0.1", "http://10.0.0.1/"),
            ("HTTP://boot.lan:8080/a/b?c=d#e", "http://boot.lan:8080/a/b?c=d"),
            ("http://boot:80?x", "http://boot/?x"),
            ("HTTPS://boot:443/a", "https://boot/a"),
            ("https://boot:80", "https://boot:80/"),
        ] {
            assert_eq!(Url::parse(text).unwrap().to_string(), whole);
        }
        for (text, error) in [
            ("tftp://a/", UrlError::Scheme),
            ("layers", UrlError::Scheme),
            ("http://", UrlError::Host),
            ("http://user@a/", UrlError::Host),
            ("http://[::1]/", UrlError::Host),
            ("http://a:0/", UrlError::Port),
            ("http://a:b/", UrlError::Port),
            ("http://a/b c", UrlError::Character),
        ] {
            assert_eq!(Url::parse(text), Err(error), "{text}");
        }
        let named = |length| Url::parse(&format!("http://{}/", "a".repeat(length)));
        assert!(named(253).is_ok());
        assert_eq!(named(254), Err(UrlError::Host));
    }

    #[test]
    fn files_and_redirects() {
        let url = |text| Url::parse(text).unwrap();
        assert_eq!(url("http://a/b").file("c"), url("http://a/b/c"));
        assert_eq!(url("http://a/b/").file("c"), url("http://a/b/c"));
        let from = url("http://a:81/b/c?d");
        for (to, whole) in [
            ("e", "http://a:81/b/e"),
            ("/e", "http://a:81/e"),
            ("//x/e", "http://x/e"),
            ("http://x:9/e", "http://x:9/e"),
        ] {
            assert_eq!(from.redirected(to).unwrap().to_string(), whole);
        }
        assert_eq!(from.redirected("https://x/e").unwrap(), url("https://x:443/e"));
        assert_eq!(url("https://x/e").redirected("//y/f").unwrap(), url("https://y/f"));
        assert_eq!(from.redirected("a b"), Err(UrlError::Character));
    }
}
