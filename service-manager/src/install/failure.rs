//! Why a machine was not installed.

use runtime::errors::chain;

use super::choose::Refused;

/// Why a machine was not installed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// There is no disk to install to.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// The image of the config cannot be reached: it may be, soon.
    #[error("machine.install.image {0}: {1}")]
    Image(String, String),
    /// The disk was pulled out.
    #[error("the disk {0} is gone; the installation starts over when it is there again")]
    Gone(String),
    /// This machine, now, whatever the disk.
    #[error("{0}")]
    Installed(&'static str),
    /// Something else went wrong; the whole chain of reasons.
    #[error("{0}")]
    Other(String),
}

impl From<installer::Error> for Failure {
    fn from(error: installer::Error) -> Self {
        Self::Other(chain(&error))
    }
}

impl From<installer::device::DeviceError> for Failure {
    fn from(error: installer::device::DeviceError) -> Self {
        Self::Other(chain(&error))
    }
}
