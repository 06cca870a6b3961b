//! What a signature says: that an image has a digest.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ondisk::Digest;
use serde::Deserialize;

use super::Key;
use crate::document::Descriptor;

/// Type of a layer that is a payload.
const PAYLOAD: &str = "application/vnd.dev.cosign.simplesigning.v1+json";
/// Annotation of such a layer: the signature of its bytes, in base64.
const ANNOTATION: &str = "dev.cosignproject.cosign/signature";
/// What `critical.type` is.
const KIND: &str = "cosign container image signature";

/// A payload and its signature, not yet compared with anything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signature {
    payload: Vec<u8>,
    signature: Vec<u8>,
}

#[derive(Deserialize)]
struct Payload {
    critical: Critical,
}

#[derive(Deserialize)]
struct Critical {
    image: Image,
    #[serde(rename = "type")]
    kind: String,
}

#[derive(Deserialize)]
struct Image {
    #[serde(rename = "docker-manifest-digest")]
    digest: String,
}

impl Signature {
    /// Whether a layer is a payload.
    #[must_use]
    pub fn is_in(layer: &Descriptor) -> bool {
        layer.media_type == PAYLOAD
    }

    /// The signature of a layer with this content; `None` if the layer carries none that can be read.
    #[must_use]
    pub fn of(layer: &Descriptor, payload: Vec<u8>) -> Option<Self> {
        let signature = STANDARD.decode(layer.annotations.get(ANNOTATION)?).ok()?;
        Some(Self { payload, signature })
    }

    /// Compares it: that the key made it, and that it speaks of this digest. The text says what does not fit.
    pub fn check(&self, key: &Key, wanted: &Digest) -> Result<(), String> {
        // Nothing of the payload is read before its signature counts.
        if !key.made(&self.signature, &self.payload) {
            return Err("it is of another key".into());
        }
        let payload: Payload =
            serde_json::from_slice(&self.payload).map_err(|error| format!("its payload: {error}"))?;
        if payload.critical.kind != KIND {
            return Err(format!("it is a {:?}", payload.critical.kind));
        }
        if crate::digest::parse(&payload.critical.image.digest) != Some(*wanted) {
            return Err(format!("it is of the image {}", payload.critical.image.digest));
        }
        Ok(())
    }
}
