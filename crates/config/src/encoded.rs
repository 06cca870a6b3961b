//! PEM text as configurations hold it: wrapped in standard base64.
//!
//! Owns: decoding that tolerates line breaks, and the certificate-and-key pair.
//! Does not: read the PEM (`api::pki`).
//! Source: docs/users/configuration.md.

use crate::{
    Secret,
    schema::{Decode, Shape, Walk, section},
    yaml::Node,
};
use base64::{Engine, engine::general_purpose::STANDARD};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};
use zeroize::Zeroizing;

/// Decodes standard base64, ignoring white space, to UTF-8 text.
///
/// # Errors
/// A sentence without the input in it, since the input may be a key.
pub fn decode_base64(text: &str) -> Result<Zeroizing<String>, &'static str> {
    let packed: Zeroizing<String> =
        Zeroizing::new(text.chars().filter(|c| !c.is_ascii_whitespace()).collect());
    let bytes = STANDARD.decode(packed.as_bytes()).map_err(|_| "not standard base64")?;
    String::from_utf8(bytes).map(Zeroizing::new).map_err(|_| "base64 of something that is not text")
}

/// Public PEM text, base64 in the document.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EncodedPem(pub String);

impl<'de> Deserialize<'de> for EncodedPem {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        decode_base64(&text).map(|pem| Self(pem.to_string())).map_err(D::Error::custom)
    }
}

impl Serialize for EncodedPem {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(&self.0))
    }
}

/// Secret PEM text, base64 in the document.
#[derive(Clone, PartialEq, Eq)]
pub struct EncodedSecret(pub Secret);

impl Default for EncodedSecret {
    fn default() -> Self {
        Self(Secret::new(""))
    }
}

impl EncodedSecret {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<'de> Deserialize<'de> for EncodedSecret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Zeroizing::new(String::deserialize(deserializer)?);
        decode_base64(&text).map(|pem| Self(Secret::new(pem.as_str()))).map_err(D::Error::custom)
    }
}

impl Serialize for EncodedSecret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&Zeroizing::new(STANDARD.encode(self.0.expose_secret())))
    }
}

impl Decode for EncodedPem {
    fn decode(node: &Node, walk: &mut Walk<'_>) -> Option<Self> {
        pem(node, walk).map(|text| Self(text.to_string()))
    }

    fn shape() -> Shape {
        Shape::Single("base64 of PEM", "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCi4uLgo=")
    }
}

impl Decode for EncodedSecret {
    fn decode(node: &Node, walk: &mut Walk<'_>) -> Option<Self> {
        pem(node, walk).map(|text| Self(Secret::new(text.as_str())))
    }

    fn shape() -> Shape {
        Shape::Single("base64 of PEM, secret", "LS0tLS1CRUdJTiBQUklWQVRFIEtFWS0tLS0tCi4uLgo=")
    }
}

fn pem(node: &Node, walk: &mut Walk<'_>) -> Option<Zeroizing<String>> {
    walk.hide(node);
    match decode_base64(walk.scalar(node)?) {
        Ok(text) => Some(text),
        Err(reason) => {
            walk.error(node.mark, format!("{reason}; the PEM text, encoded with `base64`, belongs here"));
            None
        }
    }
}

section! {
    /// A certificate and, where this machine may sign or serve with it, its key.
    CertificateAndKey {
        /// The certificate.
        crt "crt": EncodedPem {};
        /// The private key; absent where only the certificate is known.
        key "key": EncodedSecret { secret true };
    }
}

impl CertificateAndKey {
    /// The key, if there is one.
    pub fn key(&self) -> Option<&Secret> {
        (!self.key.is_empty()).then_some(&self.key.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn white_space_inside_base64_is_ignored() {
        assert_eq!(decode_base64(" aGVs\n  bG8=\n").unwrap().as_str(), "hello");
    }

    #[test]
    fn refuses_what_is_not_base64_or_not_text() {
        assert_eq!(decode_base64("!").unwrap_err(), "not standard base64");
        assert_eq!(decode_base64("/w==").unwrap_err(), "base64 of something that is not text");
    }
}
