//! Which disk is installed to.
//!
//! Owns: the choice, as a pure function of the config and of what the disks hold.
//! Does not: look at a disk ([`super::disks`] does); write.
//! Order: what this machine runs from, what cannot be written or is too small, what the config does not mean, what
//! somebody else's data is on; of those left a reset disk of ours, then an empty one, then one that may be wiped.
//! Fails by: [`Refused`], which lists every disk with the reason why it is not the one.

use std::fmt;

use config::selector::Expression;
use config::v1alpha1::Install;
use runtime::store::Disk;

use super::candidate::{Candidate, Holds};
use super::selector::Selector;
use crate::block;

/// EPHEMERAL is worth nothing below this.
const EPHEMERAL_LEAST_BYTES: u64 = 512 << 20;
/// STATE, as the first boot makes it, with room for alignment and both partition tables.
const REST_BYTES: u64 = 340 << 20;
/// The smallest disk: everything that an installed one has.
pub(crate) const LEAST_BYTES: u64 = installer::EFI_BYTES
    + 2 * installer::ROOT_BYTES
    + installer::META_BYTES
    + installer::BIOS_BYTES
    + REST_BYTES
    + EPHEMERAL_LEAST_BYTES;

/// What the config says.
pub(crate) enum Wanted {
    /// A path, and the disk that it leads to.
    Path {
        /// As the config has it.
        given: String,
        /// The node of the disk, if there is one.
        leads_to: Option<String>,
    },
    /// Properties.
    Selector(Selector),
    /// What an expression is true for.
    Expression(Expression),
}

/// Why there is no disk to install to.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) struct Refused {
    reason: String,
    /// One line a disk.
    disks: Vec<String>,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)?;
        if self.disks.is_empty() {
            return f.write_str("\nthis machine has no disks");
        }
        f.write_str("\nthe disks of this machine:")?;
        self.disks.iter().try_for_each(|line| write!(f, "\n  {line}"))
    }
}

impl Refused {
    /// A refusal without a look at the disks.
    pub(crate) fn of_config(reason: String) -> Self {
        Self { reason, disks: Vec::new() }
    }
}

impl Wanted {
    /// Reads the config. A document wins over the section, properties over a path, which generated configs always have.
    pub(crate) fn read(install: &Install, resolve: impl Fn(&str) -> Option<String>) -> Result<Self, String> {
        if !install.disk_expression.is_empty() {
            let read = Expression::read(&install.disk_expression);
            return read
                .map(Self::Expression)
                .map_err(|fault| format!("provisioning.diskSelector.match: {fault}"));
        }
        match &install.disk_selector {
            Some(selector) => Ok(Self::Selector(Selector::read(selector)?)),
            None => Ok(Self::Path { given: install.disk.clone(), leads_to: resolve(&install.disk) }),
        }
    }

    /// Why a disk is not meant.
    fn mismatch(&self, candidate: &Candidate) -> Option<String> {
        match self {
            Self::Path { given, leads_to } => {
                let disk = &candidate.disk;
                // A link may not be made yet: what counts is the name that the disk has.
                let meant =
                    leads_to.as_deref() == Some(disk.dev_path.as_str()) || disk.symlinks.contains(given);
                (!meant).then(|| format!("it is not {given}"))
            }
            Self::Selector(selector) => selector.mismatch(candidate),
            // The system's disk is not known before there is one: an expression that asks says why it fails.
            Self::Expression(expression) => {
                match expression.matches(&block::properties(&candidate.disk, None)) {
                    Ok(true) => None,
                    Ok(false) => Some(format!("{:?} is not true for it", expression.text())),
                    Err(fault) => Some(fault.to_string()),
                }
            }
        }
    }

    fn reason(&self, any_meant: bool) -> String {
        match self {
            Self::Path { given, leads_to: None } if !any_meant => {
                let links = given.starts_with("/dev/disk/");
                let hint = if links { "; `get blocksymlinks` shows the links of this machine" } else { "" };
                format!("specified install disk does not exist: {given:?}{hint}")
            }
            Self::Path { given, .. } => {
                format!("the disk {given} of machine.install.disk cannot be installed to")
            }
            Self::Selector(selector) if any_meant => {
                format!("no disk that matches the selector ({}) can be installed to", selector.describe())
            }
            Self::Selector(selector) => format!("no disks matched the expression: {}", selector.describe()),
            Self::Expression(expression) if any_meant => {
                format!("no disk for which {:?} is true can be installed to", expression.text())
            }
            Self::Expression(expression) => {
                format!("no disks matched the expression: {:?}", expression.text())
            }
        }
    }
}

impl Candidate {
    /// Why nothing is ever installed to it.
    fn never(&self) -> Option<String> {
        match &self.holds {
            Holds::Medium(how) => return Some(format!("this machine {how} it")),
            Holds::Unusable(why) => return Some(why.clone()),
            _ => {}
        }
        if self.disk.cdrom {
            return Some("it is a CD drive".to_owned());
        }
        if self.disk.readonly {
            return Some("it is read-only".to_owned());
        }
        (self.disk.size < LEAST_BYTES)
            .then(|| format!("it is too small: {} MiB are needed", LEAST_BYTES.div_ceil(1 << 20)))
    }

    /// Why what it holds must stay.
    fn occupied(&self, wipe: bool) -> Option<String> {
        const HOW: &str =
            "machine.install.wipe: true has it erased (provisioning.wipe in an UnattendedInstallConfig)";
        match &self.holds {
            Holds::Billet if !wipe => {
                Some(format!("it holds Billet with its configuration: reset it, or {HOW}"))
            }
            Holds::Foreign(what) if !wipe => Some(format!("it holds {what}: {HOW}")),
            _ => None,
        }
    }

    fn rank(&self) -> u8 {
        match &self.holds {
            Holds::Reset => 0,
            Holds::Nothing => 1,
            _ => 2,
        }
    }

    /// How a person knows it.
    pub(crate) fn describe(&self) -> String {
        let or_dash = |text: &str| if text.is_empty() { "-".to_owned() } else { text.to_owned() };
        let Disk { dev_path, model, serial, pretty_size, .. } = &self.disk;
        format!("{dev_path}: model {}, serial {}, {pretty_size}", or_dash(model), or_dash(serial))
    }

    fn line(&self, why: &str) -> String {
        format!("{}: {why}", self.describe())
    }
}

/// Chooses.
pub(crate) fn choose<'c>(
    wanted: &Wanted,
    wipe: bool,
    candidates: &'c [Candidate],
) -> Result<&'c Candidate, Refused> {
    let objection =
        |disk: &Candidate| disk.never().or_else(|| wanted.mismatch(disk)).or_else(|| disk.occupied(wipe));
    let refused = |reason: String| Refused {
        reason,
        disks: candidates
            .iter()
            .map(|disk| disk.line(&objection(disk).unwrap_or_else(|| "it could be installed to".to_owned())))
            .collect(),
    };
    let mut usable: Vec<&Candidate> = candidates.iter().filter(|disk| objection(disk).is_none()).collect();
    usable.sort_by_key(|disk| disk.rank());
    let Some(chosen) = usable.first().copied() else {
        let any_meant = candidates.iter().any(|disk| wanted.mismatch(disk).is_none());
        return Err(refused(wanted.reason(any_meant)));
    };
    // What is erased is not left to the order of drivers.
    if chosen.rank() > 1 && usable.len() > 1 {
        return Err(refused("several disks could be wiped: name one of them".to_owned()));
    }
    let other = candidates.iter().find(|disk| {
        disk.disk.dev_path != chosen.disk.dev_path && matches!(disk.holds, Holds::Billet | Holds::Reset)
    });
    match other {
        Some(other) => Err(refused(format!(
            "{} holds an installation of Billet already, and a machine has one: install to it, wipe it, or detach it \
             before {} is installed to",
            other.disk.dev_path, chosen.disk.dev_path
        ))),
        None => Ok(chosen),
    }
}

#[cfg(test)]
pub(super) mod tests;
