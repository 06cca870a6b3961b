//! Upgrade and rollback of this node.
//!
//! Owns: the request under way, the order of an upgrade, what is told of it, the trial of a new system and its end.
//! Does not: decide what is written where (`installer::upgrade`), speak with registries (`oci`), restart (the sequence).
//! Order: everything that can be wrong with a request is found before anything changes; then the record in META, the
//! slot that does not run, the boot entry on trial. The new system judges itself ([`trial`]).
//! Fails by: [`Failure`], told in the answer, the status, an event and a line. The running system is as it was.

mod apply;
mod booted;
mod image;
pub(crate) mod import;
mod registries;
mod signatures;
mod staged;
pub(crate) mod status;
pub(crate) mod trial;
pub(crate) mod wipe;

use runtime::errors::chain;
use runtime::sequencer;
use std::sync::{Mutex, PoisonError};

use tonic::Status;

use crate::node::Node;
use crate::order::Order;

pub(crate) use apply::{Tell, install, roll_back};
#[cfg(test)]
pub(crate) use image::tests as image_tests;
pub(crate) use image::{CALL_PATIENCE, Found, Layers, download_settings, look_up, prepare, registry_of};
pub(crate) use staged::is_kept as is_staged;

use signatures::Ruling;

/// What a client asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Request {
    /// The image's reference.
    pub(crate) image: String,
    /// Whether the new system wipes EPHEMERAL at its first start.
    pub(crate) wipe_ephemeral: bool,
}

/// The node's upgrades.
#[derive(Debug, Default)]
pub struct Upgrades {
    /// Handed from the call that asked to the sequence that does it.
    request: Mutex<Option<Request>>,
    /// Held by whoever changes the disk: one at a time.
    busy: tokio::sync::Mutex<()>,
    /// Held by an image that comes over the API.
    importing: std::sync::Arc<tokio::sync::Mutex<()>>,
}

/// Why an upgrade or a rollback does not happen.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Failure {
    /// The request itself is wrong.
    #[error("{0}")]
    Request(String),
    /// This node, now, or this image on it.
    #[error("{0}")]
    Refused(String),
    /// Something outside: the registry, the network, a disk.
    #[error("{0}")]
    Outside(String),
}

impl From<Failure> for Status {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Request(text) => Self::invalid_argument(text),
            Failure::Refused(text) => Self::failed_precondition(text),
            Failure::Outside(text) => Self::unavailable(text),
        }
    }
}

impl From<oci::Error> for Failure {
    fn from(error: oci::Error) -> Self {
        use oci::Error as E;
        let text = chain(&error);
        match error {
            E::Reference { .. } => Self::Request(text),
            E::Architecture { .. }
            | E::Setting { .. }
            | E::Document { .. }
            | E::NoTar { .. }
            | E::Unsigned { .. } => Self::Refused(text),
            E::Digest { .. }
            | E::Length { .. }
            | E::Fetch { .. }
            | E::Deadline { .. }
            | E::Archive { .. }
            | E::ReadArchive { .. } => Self::Outside(text),
        }
    }
}

impl From<oci::installer::Refusal> for Failure {
    fn from(refusal: oci::installer::Refusal) -> Self {
        Self::Refused(refusal.to_string())
    }
}

impl From<installer::Error> for Failure {
    fn from(error: installer::Error) -> Self {
        use installer::Error as E;
        let text = chain(&error);
        match error {
            E::Device(_) | E::ReadDevice(_) | E::ReadLayer { .. } | E::BadUki { .. } => Self::Outside(text),
            _ => Self::Refused(text),
        }
    }
}

impl Upgrades {
    /// Leaves a request for the sequence.
    pub(crate) fn ask(&self, request: Request) {
        *self.request.lock().unwrap_or_else(PoisonError::into_inner) = Some(request);
    }

    /// Keeps others from changing the disk while the answer lives; `None` while somebody else does.
    pub(crate) fn try_begin(&self) -> Option<tokio::sync::MutexGuard<'_, ()>> {
        self.busy.try_lock().ok()
    }

    fn take(&self) -> Option<Request> {
        self.request.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Whether a registry has an installer image of ours under this name. Newer clients have the node pull an image before
/// they have it installed.
pub(crate) async fn is_installer_image(node: &Node, name: &str) -> bool {
    let Ok(reference) = name.parse() else { return false };
    if import::is_import(&reference) {
        return true;
    }
    let resolved = image::resolve(node, reference, CALL_PATIENCE).await;
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
pub(crate) async fn admit(node: &Node, name: &str) -> Result<String, Failure> {
    if !Ruling::of(node, &name.parse().map_err(Failure::from)?)?.wants_signature() {
        return Ok(name.to_owned());
    }
    Ok(verify(node, name).await?.digested)
}

/// Applies `ImageVerificationConfig` to an image.
pub(crate) async fn verify(node: &Node, name: &str) -> Result<Verified, Failure> {
    let reference: oci::Reference = name.parse().map_err(Failure::from)?;
    let ruling = Ruling::of(node, &reference)?;
    let is_signed = ruling.wants_signature();
    if reference.digest.is_some() && !is_signed {
        return Ok(Verified { digested: reference.to_string(), is_signed, message: ruling.describe() });
    }
    let (client, image) = image::resolve(node, reference.clone(), CALL_PATIENCE).await?;
    ruling.check(&client, &image).await?;
    // What was signed may be an index: it stands for its images, and each node finds its own.
    let digest = if is_signed { image.named } else { image.digest };
    let digested = oci::Reference { digest: Some(digest), ..reference }.to_string();
    Ok(Verified { digested, is_signed, message: ruling.describe() })
}

/// Keeps a request until the next start.
pub(crate) async fn stage(node: &Node, request: &Request) -> Result<(), Failure> {
    staged::keep(node, request).await.map_err(|error| Failure::Outside(error.to_string()))
}

/// The request that the sequence works on: that of a call, or the one that was staged.
pub(crate) async fn next_request(node: &Node) -> Result<Request, Failure> {
    if let Some(request) = node.upgrades.take() {
        return Ok(request);
    }
    let staged = staged::take(node).await.map_err(|error| Failure::Outside(error.to_string()))?;
    // A machined that took over a sequence has no request of a call: it died with the one before.
    staged
        .ok_or_else(|| Failure::Refused("machined was restarted meanwhile: ask for the upgrade again".into()))
}

/// An upgrade that failed: told everywhere.
pub(crate) fn publish_failure(node: &Node, image: &str, failure: &Failure) {
    status::publish(node, &status::failed(node, image, &failure.to_string()));
}

/// The end of an upgrade that nobody waits for any more, as an event.
fn publish_event(node: &Node, text: &str) {
    sequencer::noop(
        &node.runtime,
        Order::Upgrade.name(),
        "",
        api::proto::common::Code::Fatal,
        text.to_owned(),
    );
}
