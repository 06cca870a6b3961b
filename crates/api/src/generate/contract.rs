//! Which generation of configurations is written.
//!
//! Owns: reading `--talos-version`, and from which version on a field exists. A node takes all of them; the choice is
//! for clusters whose other nodes run that version.
//! Source: docs/users/configuration.md.

use std::{fmt, str::FromStr};

/// A version without its last number, ordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Contract {
    major: u32,
    minor: u32,
}

/// Text that is no version, or one that can not be served.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ContractError {
    /// No version.
    #[error("invalid talos-version: error parsing version {0:?}; write it as v1.13")]
    Syntax(String),
    /// Before v0.9: RSA keys, which are not made here.
    #[error(
        "talos-version {0} is older than v0.9, whose configurations need RSA keys; v0.9 and later are made here"
    )]
    TooOld(Contract),
}

impl Contract {
    /// The newest that is known.
    pub const NEWEST: Self = Self { major: 1, minor: 13 };

    pub(super) const fn at(major: u32, minor: u32) -> Self {
        Self { major, minor }
    }

    /// Whether there is a separate configuration for the first node (`init`), workers are called `join`, and the
    /// secrets of discovery do not exist.
    pub fn is_first_generation(self) -> bool {
        self < Self::at(0, 12)
    }

    pub(super) fn has_roles(self) -> bool {
        self >= Self::at(0, 11)
    }
    pub(super) fn has_discovery(self) -> bool {
        self >= Self::at(0, 14)
    }
    pub(super) fn has_pod_security(self) -> bool {
        self >= Self::at(1, 1)
    }
    pub(super) fn has_secretbox(self) -> bool {
        self >= Self::at(1, 3)
    }
    pub(super) fn has_disk_quota(self) -> bool {
        self >= Self::at(1, 5)
    }
    pub(super) fn has_kube_prism(self) -> bool {
        self >= Self::at(1, 6)
    }
    pub(super) fn has_host_dns(self) -> bool {
        self >= Self::at(1, 7)
    }
    pub(super) fn has_balancer_label(self) -> bool {
        self >= Self::at(1, 8)
    }
    pub(super) fn has_kernel_image_cmdline(self) -> bool {
        self >= Self::at(1, 12)
    }
}

impl FromStr for Contract {
    type Err = ContractError;

    /// `v1.13`, `1.13.9`, `v1.13.0-alpha.1`.
    fn from_str(text: &str) -> Result<Self, ContractError> {
        let wrong = || ContractError::Syntax(text.to_owned());
        let numbers = text.strip_prefix('v').unwrap_or(text);
        let numbers = numbers.split_once(['-', '+']).map_or(numbers, |(numbers, _)| numbers);
        let parts: Vec<u32> =
            numbers.split('.').map(|p| p.parse().map_err(|_| wrong())).collect::<Result<_, _>>()?;
        let found = match parts[..] {
            [major, minor] | [major, minor, _] => Self { major, minor },
            _ => return Err(wrong()),
        };
        if found < Self::at(0, 9) { Err(ContractError::TooOld(found)) } else { Ok(found) }
    }
}

impl fmt::Display for Contract {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v{}.{}", self.major, self.minor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_and_ordered() {
        for text in ["v1.13", "1.13.9", "v1.13.0-alpha.1"] {
            assert_eq!(text.parse::<Contract>(), Ok(Contract::NEWEST), "{text}");
        }
        assert!("v0.9".parse::<Contract>().unwrap().is_first_generation());
        assert!(!"v1.0".parse::<Contract>().unwrap().is_first_generation());
        assert_eq!(
            "one".parse::<Contract>().unwrap_err().to_string(),
            "invalid talos-version: error parsing version \"one\"; write it as v1.13"
        );
        assert!("v0.8".parse::<Contract>().unwrap_err().to_string().contains("older than v0.9"));
    }
}
