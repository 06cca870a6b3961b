//! Why an image could not be had.

/// Characters of somebody else's text in an error.
const MOST_SHOWN: usize = 100;

/// A text of a registry or an image as an error says it: its beginning, and nothing that acts on a terminal.
pub(crate) fn shown(text: &str) -> String {
    let mut shown: String = text.chars().filter(|c| !c.is_control()).take(MOST_SHOWN).collect();
    if text.chars().nth(MOST_SHOWN).is_some() {
        shown.push('…');
    }
    shown
}

/// What went wrong, for people.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A text is no reference.
    #[error("image reference {text:?}: {reason}")]
    Reference {
        /// As given.
        text: String,
        /// What is wrong, and what to write.
        reason: &'static str,
    },
    /// A manifest, an index or a config is not what it should be.
    #[error("{what} of {image}: {reason}")]
    Document {
        /// `manifest`, `config`, …
        what: &'static str,
        /// Whose.
        image: String,
        /// What is wrong.
        reason: String,
    },
    /// The image is for other machines.
    #[error("{image} is for {offered}, and this node is {wanted}: use an image for {wanted}")]
    Architecture {
        /// The image.
        image: String,
        /// What this node is.
        wanted: String,
        /// What the image is for.
        offered: String,
    },
    /// Content is not what its digest stands for.
    #[error(
        "{what} has the digest sha256:{found}, not sha256:{wanted}: it was changed on the way or in the registry"
    )]
    Digest {
        /// Which content.
        what: String,
        /// What was asked for.
        wanted: ondisk::Digest,
        /// What came.
        found: ondisk::Digest,
    },
    /// Content is longer or shorter than its descriptor says.
    #[error("{what} is not {wanted} bytes long, as its manifest says")]
    Length {
        /// Which content.
        what: String,
        /// What the descriptor says.
        wanted: u64,
    },
    /// No registry and no mirror gave what was asked for.
    #[error("fetch {what}: {reasons}")]
    Fetch {
        /// What was asked for.
        what: String,
        /// Each address and why.
        reasons: String,
    },
    /// Nothing came for too long, or all of it took too long.
    #[error("fetch {what}: {reasons} (deadline {deadline}, {seconds} s)")]
    Deadline {
        /// What was asked for.
        what: String,
        /// The last reason.
        reasons: String,
        /// Which deadline.
        deadline: &'static str,
        /// How long it was.
        seconds: u64,
    },
    /// A setting of a registry cannot be used.
    #[error("registry {host}: {reason}")]
    Setting {
        /// Whose setting.
        host: String,
        /// What is wrong.
        reason: String,
    },
    /// A local archive could not be written.
    #[error("{operation} the archive")]
    Archive {
        /// `write`.
        operation: &'static str,
        /// Why.
        source: std::io::Error,
    },
    /// A local archive could not be read.
    #[error("read {name}")]
    ReadArchive {
        /// The file.
        name: String,
        /// Why.
        source: std::io::Error,
    },
    /// A file that should be a tar file is something else.
    #[error("{name} is no tar file (it is {found}): {advice}")]
    NoTar {
        /// The file.
        name: String,
        /// What it is.
        found: &'static str,
        /// What to do.
        advice: String,
    },
    /// An image that must be signed is not.
    #[error("{image} is not signed with the key that ImageVerificationConfig names: {reasons}")]
    Unsigned {
        /// The image.
        image: String,
        /// What was looked at, and why it does not count.
        reasons: String,
    },
}
