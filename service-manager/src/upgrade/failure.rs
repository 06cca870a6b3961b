//! Why an upgrade or a rollback does not happen, and what a client is told.

use runtime::errors::chain;
use tonic::Status;

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

/// Runs disk work off the async threads.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    runtime::request::blocking(work).await
}
