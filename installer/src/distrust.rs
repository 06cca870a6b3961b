//! Why firmware with Secure Boot would not start what an image brings, with what to do.
//!
//! Does not: judge; [`crate::system::Trusted`] does.

/// How an image is signed.
pub const SIGN_COMMAND: &str =
    "billetctl image build --from IMAGE --kind installer --sign-key KEY --sign-certificate CERTIFICATE";

/// Why a file would not start under Secure Boot.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Distrust {
    /// There is no UKI with a signature.
    #[error("it has no signed UKI: sign the image with `{SIGN_COMMAND}`")]
    NoUki,
    /// The UKI was made of something else.
    #[error(
        "its signed UKI is of other parts than it has now, so something was changed after it was signed: sign the image \
         anew with `{SIGN_COMMAND}`"
    )]
    OtherParts,
    /// A file without a signature.
    #[error("its {0} is not signed: sign the image with `{SIGN_COMMAND}`")]
    Unsigned(&'static str),
    /// A file with a signature of other bytes.
    #[error("its {0} was changed after it was signed: sign the image anew with `{SIGN_COMMAND}`")]
    Altered(&'static str),
    /// A file that is signed with a key that the firmware does not know.
    #[error(
        "its {0} is signed with a key that is not in this machine's db: sign the image with the key that this machine \
         knows (`{SIGN_COMMAND}`), or enrol the other one in the firmware"
    )]
    UnknownKey(&'static str),
    /// A file whose signature was not made by the key of the certificate that it names.
    #[error("its {0} has a signature that does not verify: sign the image anew with `{SIGN_COMMAND}`")]
    Forged(&'static str),
}
