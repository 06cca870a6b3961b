//! The signatures that lie beside an image.

use super::{Client, Image};
use crate::Error;
use crate::document::{self, Document};
use crate::signature::{self, Key, MOST_SIGNATURES, Signature};

impl Client {
    /// Makes sure that the image was signed with this key. What counts is a signature of the name's own document, which
    /// is an index where the image is for several kinds of machines, or one of the image itself.
    ///
    /// # Errors
    /// [`Error::Unsigned`] names what was found; any other error says that nobody could be asked.
    pub async fn check_signed(&self, image: &Image, key: &Key) -> Result<(), Error> {
        let mut reasons = Vec::new();
        let mut digests = vec![image.named, image.digest];
        digests.dedup();
        for digest in digests {
            let tag = signature::tag(&digest);
            let found = match self.signatures(&tag).await {
                Ok(found) => found,
                // An answer that says no for good. A registry that does not answer is another error.
                Err(Error::Fetch { reasons: why, .. }) => {
                    reasons.push(format!("{tag}: {why}"));
                    continue;
                }
                Err(error) => return Err(error),
            };
            if found.is_empty() {
                reasons.push(format!("{tag} holds no signature"));
            }
            for signature in found {
                match signature.check(key, &digest) {
                    Ok(()) => return Ok(()),
                    Err(reason) => reasons.push(format!("a signature of {tag} does not count: {reason}")),
                }
            }
        }
        Err(Error::Unsigned { image: self.reference.to_string(), reasons: reasons.join("; ") })
    }

    async fn signatures(&self, tag: &str) -> Result<Vec<Signature>, Error> {
        let name = format!("{}/{}:{tag}", self.reference.registry, self.reference.repository);
        let Document::Manifest(manifest) = document::parse(&name, &self.document(tag, None).await?)? else {
            let reason = "signatures lie in a manifest, and this is an index".to_owned();
            return Err(Error::Document { what: "signature", image: name, reason });
        };
        let mut found = Vec::new();
        for layer in manifest.layers.iter().filter(|layer| Signature::is_in(layer)).take(MOST_SIGNATURES) {
            let payload = self.small_blob("signature", layer).await?;
            found.extend(Signature::of(layer, payload));
        }
        Ok(found)
    }
}
