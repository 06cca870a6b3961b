//! A config that was found, and where.
//!
//! Owns: the names of places, who may have written there, and texts that are packed.

use std::fmt;
use std::io::Read;

use zeroize::Zeroizing;

use super::MAX_BYTES;
use crate::register::Trust;

/// How zstd data begins (RFC 8878 §3.1.1).
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// A place that a config came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The partition.
    State,
    /// A file of the image.
    Image(&'static str),
    /// A variable that a container was started with.
    Environment(&'static str),
    /// A kernel parameter.
    Parameter(&'static str),
    /// The volume labelled `metal-iso`.
    Volume,
    /// The boot medium's config bundle.
    Bundle {
        /// Which disk or medium.
        device: String,
        /// Number of the entry, from 1.
        entry: usize,
        /// What makes it this machine's.
        selector: String,
    },
    /// An address.
    Address(String),
    /// Several of these, the later laid over the earlier.
    Several(Vec<Origin>),
}

impl Origin {
    /// Who may have written it. Nobody knows who wrote a command line, or answers under an address that one names.
    pub(crate) fn trust(&self) -> Trust {
        match self {
            Self::State => Trust::State,
            Self::Image(_) | Self::Bundle { .. } => Trust::Image,
            Self::Environment(_) | Self::Parameter(_) | Self::Volume | Self::Address(_) => Trust::Outside,
            Self::Several(origins) => origins.iter().map(Self::trust).max().unwrap_or(Trust::Outside),
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::State => f.write_str("STATE (/system/state/config.yaml)"),
            Self::Image(path) => write!(f, "the image ({path})"),
            Self::Environment(name) => write!(f, "the environment variable {name}"),
            Self::Parameter(name) => write!(f, "the kernel parameter {name}"),
            Self::Volume => f.write_str("the volume labelled metal-iso"),
            Self::Bundle { device, entry, selector } => {
                write!(f, "entry {entry} of the config bundle of {device}, by {selector}")
            }
            Self::Address(address) => f.write_str(address),
            Self::Several(origins) => {
                let names: Vec<String> = origins.iter().map(ToString::to_string).collect();
                write!(f, "{}, the later laid over the earlier", names.join(", "))
            }
        }
    }
}

/// A config's text.
pub(crate) struct Candidate {
    pub(crate) origin: Origin,
    pub(crate) text: Zeroizing<String>,
}

/// What a look at one source brought.
pub(crate) enum Search {
    /// A text.
    Found(Candidate),
    /// This source has nothing, and is not expected to.
    Nothing,
    /// It has nothing yet, and may have soon; why.
    Absent(String),
    /// It should have something.
    Failed(String),
}

/// What a source that has something brought.
pub(super) fn found(origin: Origin, text: Result<Zeroizing<String>, String>) -> Search {
    match text {
        Ok(text) => Search::Found(Candidate { origin, text }),
        Err(error) => Search::Failed(error),
    }
}

/// A config's text from bytes, which may be packed by zstd or gzip.
pub(super) fn text_of(bytes: &[u8]) -> Result<Zeroizing<String>, String> {
    if bytes.starts_with(&ZSTD_MAGIC) {
        return text_of(&unzstd(bytes)?);
    }
    if bytes.starts_with(&[0x1f, 0x8b]) {
        return text_of(&gunzip(bytes)?);
    }
    let text = std::str::from_utf8(bytes).map_err(|_| "it is not UTF-8 text")?;
    if text.trim().is_empty() {
        return Err("it is empty".to_owned());
    }
    Ok(Zeroizing::new(text.to_owned()))
}

fn gunzip(packed: &[u8]) -> Result<Zeroizing<Vec<u8>>, String> {
    let mut bytes = Zeroizing::new(Vec::new());
    flate2::read::MultiGzDecoder::new(packed)
        .take(MAX_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(|e| format!("unpack gzip data: {e}"))?;
    if u64::try_from(bytes.len()).is_ok_and(|length| length <= MAX_BYTES) {
        return Ok(bytes);
    }
    Err(format!("it is larger than {MAX_BYTES} bytes when unpacked"))
}

fn unzstd(packed: &[u8]) -> Result<Zeroizing<Vec<u8>>, String> {
    let mut decoder =
        ruzstd::decoding::StreamingDecoder::new(packed).map_err(|e| format!("not zstd data: {e}"))?;
    let limit = usize::try_from(MAX_BYTES).unwrap_or(usize::MAX);
    let mut bytes = Zeroizing::new(Vec::new());
    let mut part = Zeroizing::new([0; 4096]);
    loop {
        let read =
            ruzstd::io::Read::read(&mut decoder, &mut *part).map_err(|e| format!("unpack zstd data: {e}"))?;
        bytes.extend_from_slice(&part[..read]);
        if read == 0 {
            return Ok(bytes);
        }
        if bytes.len() > limit {
            return Err(format!("it is larger than {limit} bytes when unpacked"));
        }
    }
}
