//! Where a server answers: `https://kms.example.org:4443`, `grpc://10.0.0.5:4050`, `10.0.0.5:4050`.
//!
//! Owns: which of them is encrypted, as configs of Talos mean it: `https` is, `grpc` and no scheme are not. New configs say one
//! (decision 0023); no scheme is for those that were written before.
//! Does not: take `http`, which there is TLS all the same: who writes it means something else.

use std::fmt;

/// Where gRPC clients go unless a port is given.
const PORT: u16 = 443;

/// An address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    authority: String,
    secure: bool,
}

/// Why a text is no address of a server.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    /// It begins with something else.
    #[error("{0}:// is not supported: write https://HOST:PORT, or grpc://HOST:PORT without encryption")]
    Scheme(String),
    /// There is no host, or more than host and port.
    #[error("{0:?} is no HOST:PORT")]
    Authority(String),
}

impl Endpoint {
    /// Reads an address.
    pub fn parse(text: &str) -> Result<Self, EndpointError> {
        let (scheme, rest) = text.split_once("://").unwrap_or(("grpc", text));
        let secure = match scheme {
            "https" => true,
            "grpc" => false,
            other => return Err(EndpointError::Scheme(other.to_owned())),
        };
        let wrong = || EndpointError::Authority(rest.to_owned());
        let authority = rest.split_once(['/', '?', '#']).map_or(rest, |(authority, _)| authority);
        if authority.contains('@') || authority.chars().any(char::is_whitespace) {
            return Err(wrong());
        }
        let behind_brackets = authority.rsplit_once(']').map_or(authority, |(_, behind)| behind);
        let host = match behind_brackets.split_once(':') {
            Some((_, port)) => {
                port.parse::<u16>().ok().filter(|port| *port > 0).ok_or_else(wrong)?;
                authority.rsplit_once(':').map_or("", |(host, _)| host)
            }
            None => authority,
        };
        let is_bracketed = host.starts_with('[') && host.ends_with(']');
        if host.is_empty() || host.contains(':') != is_bracketed {
            return Err(wrong());
        }
        let authority = match host.len() == authority.len() {
            true => format!("{authority}:{PORT}"),
            false => authority.to_owned(),
        };
        Ok(Self { authority, secure })
    }

    /// Whether an address says if it is encrypted.
    #[must_use]
    pub fn has_scheme(text: &str) -> bool {
        text.contains("://")
    }

    /// Whether the server proves who it is, and nobody else hears what is said.
    #[must_use]
    pub fn is_secure(&self) -> bool {
        self.secure
    }

    pub(crate) fn uri(&self) -> String {
        let scheme = if self.secure { "https" } else { "http" };
        format!("{scheme}://{}", self.authority)
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.secure { "https" } else { "grpc" };
        write!(f, "{scheme}://{}", self.authority)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_what_configs_mean_by_them() {
        for (text, shown) in [
            ("https://kms.example.org", "https://kms.example.org:443"),
            ("https://kms.example.org:4443/", "https://kms.example.org:4443"),
            ("grpc://10.0.0.5:4050", "grpc://10.0.0.5:4050"),
            ("10.0.0.5:4050", "grpc://10.0.0.5:4050"),
            ("kms", "grpc://kms:443"),
            ("https://[fd00::1]", "https://[fd00::1]:443"),
            ("https://[fd00::1]:9", "https://[fd00::1]:9"),
        ] {
            assert_eq!(Endpoint::parse(text).unwrap().to_string(), shown);
        }
        assert_eq!(Endpoint::parse("kms:1").unwrap().uri(), "http://kms:1");
        assert_eq!(Endpoint::parse("kms:1"), Endpoint::parse("grpc://kms:1"));
        assert!(Endpoint::has_scheme("grpc://kms:1") && !Endpoint::has_scheme("kms:1"));
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for text in ["", "https://", "https://:443", "kms:0", "kms:x", "a@b", "fd00::1", "[fd00::1:9", "a b"]
        {
            assert!(matches!(Endpoint::parse(text), Err(EndpointError::Authority(_))), "{text}");
        }
        let error = Endpoint::parse("http://kms:80").unwrap_err().to_string();
        assert!(error.starts_with("http:// is not supported: write https://HOST:PORT"), "{error}");
    }
}
