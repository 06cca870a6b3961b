//! Why there is no key.

use alloc::vec::Vec;
use core::fmt;

use sys::Errno;
use sys::errno::Described;

use crate::Code;

/// Why the TPM keeps or gives no key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    /// A command did not reach the TPM, or no answer came.
    Exchange {
        /// The command, as the specification names it.
        command: &'static str,
        /// The kernel's answer.
        errno: Errno,
    },
    /// An answer is not what the specification says.
    Answer {
        /// The command.
        command: &'static str,
    },
    /// The TPM refused.
    Refused {
        /// The command.
        command: &'static str,
        /// Its reason.
        code: Code,
    },
    /// Who answered does not know the session's key.
    Forged {
        /// The command.
        command: &'static str,
    },
    /// The TPM does not measure with SHA-256.
    NoBank,
    /// A register that the TPM does not have with SHA-256.
    NoRegister(u8),
    /// The storage key is another one than at the time of sealing.
    OtherTpm,
    /// The endorsement key is another one than what was sealed for: the digests of both.
    OtherDevice {
        /// Whose it is.
        wanted: [u8; 32],
        /// This TPM's.
        own: [u8; 32],
    },
    /// Registers have other values than at the time of sealing.
    Changed(Vec<u8>),
    /// Registers have values that nobody approved.
    NotApproved(Vec<u8>),
    /// The object is damaged.
    Damaged,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exchange { command, errno } => write!(f, "TPM command {command}: {}", Described(*errno)),
            Self::Answer { command } => write!(f, "TPM command {command}: its answer is damaged"),
            Self::Refused { command, code } => write!(f, "TPM command {command}: {code}"),
            Self::Forged { command } => {
                write!(f, "TPM command {command}: the answer is not the TPM's: somebody is on its bus")
            }
            Self::NoBank => {
                f.write_str("the TPM does not measure with SHA-256: turn that on in the firmware")
            }
            Self::NoRegister(pcr) => write!(f, "the TPM has no PCR {pcr} with SHA-256"),
            Self::OtherTpm => {
                f.write_str("the key was sealed by another TPM, or before this one was cleared")
            }
            Self::OtherDevice { wanted, own } => {
                write!(
                    f,
                    "it is sealed for the TPM with key {}, and this one has key {}",
                    Hex(wanted),
                    Hex(own)
                )
            }
            Self::Changed(pcrs) => write!(f, "{} changed since the key was sealed", List(pcrs)),
            Self::NotApproved(pcrs) => {
                write!(
                    f,
                    "what {} measured is no system that an upgrade or an installation approved",
                    List(pcrs)
                )
            }
            Self::Damaged => f.write_str("the sealed key is damaged"),
        }
    }
}

impl core::error::Error for Error {}

struct Hex<'a>(&'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Prints `PCR 7`, `PCRs 4 and 7`.
struct List<'a>(&'a [u8]);

impl fmt::Display for List<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.len() == 1 { "PCR " } else { "PCRs " })?;
        let last = self.0.len().saturating_sub(1);
        for (at, number) in self.0.iter().enumerate() {
            let before = match at {
                0 => "",
                at if at == last => " and ",
                _ => ", ",
            };
            write!(f, "{before}{number}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    #[test]
    fn registers_are_listed_in_words() {
        let text = |list: &[u8]| List(list).to_string();
        assert_eq!(
            [text(&[7]), text(&[4, 7]), text(&[1, 4, 7])],
            ["PCR 7", "PCRs 4 and 7", "PCRs 1, 4 and 7"]
        );
    }
}
