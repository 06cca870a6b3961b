//! Upgrade and rollback of this node.
//!
//! Owns: the request under way, the order of an upgrade, what is told of it, the trial of a new system and its end.
//! Does not: decide what is written where (`installer::upgrade`), speak with registries (`oci`), restart (the sequence).
//! Order: everything that can be wrong with a request is found before anything changes; then the record in META, the
//! slot that does not run, the boot entry on trial. The new system judges itself ([`trial`]).
//! Fails by: [`Failure`], told in the answer, the status, an event and a line. The running system is as it was.

mod apply;
mod booted;
mod failure;
mod handle;
mod image;
pub(crate) mod import;
mod registries;
mod signatures;
mod staged;
pub(crate) mod status;
pub(crate) mod trial;
pub(crate) mod wipe;

use runtime::Runtime;

pub(crate) use apply::{Tell, install, roll_back};
pub(crate) use failure::Failure;
pub(crate) use handle::{Parts, Request, Upgrades};
#[cfg(test)]
pub(crate) use image::tests as image_tests;
pub(crate) use image::{CALL_PATIENCE, Found, Layers, download_settings, look_up, prepare, registry_of};
pub(crate) use staged::is_kept as is_staged;

use signatures::Ruling;

/// Whether a registry has an installer image of ours under this name. Newer clients have the node pull an image before
/// they have it installed.
pub(crate) async fn is_installer_image(runtime: &Runtime, name: &str) -> bool {
    let Ok(reference) = name.parse() else { return false };
    if import::is_import(&reference) {
        return true;
    }
    let resolved = image::resolve(runtime, reference, CALL_PATIENCE).await;
    resolved.is_ok_and(|(_, image)| image.config.config.labels.contains_key(oci::installer::FORMAT_LABEL))
}

/// An image by its digest, and what its signatures are.
pub(crate) struct Verified {
    /// The name with the digest that its registry has for it now.
    pub(crate) digested: String,
    /// Whether the config wants a signature, and a good one was found.
    pub(crate) is_signed: bool,
    /// What was found, for people.
    pub(crate) message: String,
}

/// The name under which an image may be pulled: with the digest that was signed, where a signature is needed.
pub(crate) async fn admit(runtime: &Runtime, name: &str) -> Result<String, Failure> {
    if !Ruling::of(runtime, &name.parse().map_err(Failure::from)?)?.wants_signature() {
        return Ok(name.to_owned());
    }
    Ok(verify(runtime, name).await?.digested)
}

/// Applies `ImageVerificationConfig` to an image.
pub(crate) async fn verify(runtime: &Runtime, name: &str) -> Result<Verified, Failure> {
    let reference: oci::Reference = name.parse().map_err(Failure::from)?;
    let ruling = Ruling::of(runtime, &reference)?;
    let is_signed = ruling.wants_signature();
    if reference.digest.is_some() && !is_signed {
        return Ok(Verified { digested: reference.to_string(), is_signed, message: ruling.describe() });
    }
    let (client, image) = image::resolve(runtime, reference.clone(), CALL_PATIENCE).await?;
    ruling.check(&client, &image).await?;
    // What was signed may be an index: it stands for its images, and each node finds its own.
    let digest = if is_signed { image.named } else { image.digest };
    let digested = oci::Reference { digest: Some(digest), ..reference }.to_string();
    Ok(Verified { digested, is_signed, message: ruling.describe() })
}

/// Keeps a request until the next start.
pub(crate) async fn stage(upgrades: &Upgrades, request: &Request) -> Result<(), Failure> {
    staged::keep(&upgrades.meta, request).await.map_err(|error| Failure::Outside(error.to_string()))
}

/// The request that the sequence works on: that of a call, or the one that was staged.
pub(crate) async fn next_request(upgrades: &Upgrades) -> Result<Request, Failure> {
    if let Some(request) = upgrades.take() {
        return Ok(request);
    }
    let staged = staged::take(&upgrades.meta).await.map_err(|error| Failure::Outside(error.to_string()))?;
    // A machined that took over a sequence has no request of a call: it died with the one before.
    staged
        .ok_or_else(|| Failure::Refused("machined was restarted meanwhile: ask for the upgrade again".into()))
}

/// An upgrade that failed: told everywhere.
pub(crate) fn publish_failure(runtime: &Runtime, image: &str, failure: &Failure) {
    status::publish(runtime, &status::failed(runtime, image, &failure.to_string()));
}
