//! The TPM's register that says whether a machine config came into force in this start that whoever holds the machine may
//! have written.
//!
//! Owns: which register; what it is extended with, once, before such a config comes into force; what keys of the TPM may
//! demand of the next start.
//! Does not: seal or unseal (`volumes::tpm` does); know sources (`found::Origin` says which are authenticated).
//! Order: the register, then STATE where it is made with that config, then the config. Nothing takes a register back.
//! Fails by: a sentence. Until the register is extended no key of the TPM is used (`volumes::encryption`): a TPM that
//! refuses, or appears late, opens nothing for such a config.
//! Source: docs/decisions/0022.

use std::sync::{Arc, Mutex, PoisonError};

use config::cmdline::ConfigSource;
use ondisk::Digest;
use runtime::Runtime;
use tpm::{Pcrs, Transport, Values};

use crate::tpm_device;

/// Neither the firmware nor systemd-boot, its stub or shim extend it; systemd-cryptsetup and systemd-pcrphase, which do,
/// do not run here. It cannot be reset without the machine.
pub(crate) const PCR: u8 = 15;
/// What it is extended with.
const EVENT: &[u8] = b"billet: config from outside";

/// Who may have written a machine config, the most trusted first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Trust {
    /// It lies on STATE: whoever could change that.
    State,
    /// It is under a signature that the image brings, or in the image: its owner.
    Image,
    /// Whoever holds the machine or is near its network.
    Outside,
}

/// What is known of the configs of this start.
pub(crate) struct Register {
    runtime: Arc<Runtime>,
    known: Mutex<Known>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Known {
    /// The least trusted that came into force; an earlier machined's is not known.
    trust: Option<Trust>,
    /// Whether the one in force is taken from STATE by the next start, if there is one.
    is_for_keeps: Option<bool>,
    /// The register was extended.
    is_extended: bool,
}

impl Register {
    /// Of a start in which no config came into force yet.
    pub(crate) fn new(runtime: Arc<Runtime>) -> Self {
        Self { runtime, known: Mutex::default() }
    }

    fn known(&self) -> Known {
        *self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut Known)) {
        change(&mut self.known.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Notes whether the config in force is for keeps. Whether that is another answer than before.
    pub(crate) fn keeps(&self, is_for_keeps: bool) -> bool {
        let before = self.known().is_for_keeps.replace(is_for_keeps);
        self.change(|known| known.is_for_keeps = Some(is_for_keeps));
        before.is_some_and(|before| before != is_for_keeps)
    }

    /// Before a config comes into force, and before STATE is made with it: a start that takes one from outside is none that
    /// keys of the TPM are for. Asks the TPM; blocks.
    pub(crate) fn admit(&self, trust: Trust, is_for_keeps: bool) {
        self.keeps(is_for_keeps);
        self.change(|known| known.trust = known.trust.max(Some(trust)));
        if let Err(reason) = self.close() {
            self.runtime.journal.warn(&format!("{reason}; keys of the TPM are not used in this start"));
        }
    }

    /// The same, beside what else the node does.
    pub(crate) async fn admit_soon(self: &Arc<Self>, trust: Trust, is_for_keeps: bool) -> Result<(), String> {
        let register = self.clone();
        let admitted = tokio::task::spawn_blocking(move || register.admit(trust, is_for_keeps)).await;
        admitted.map_err(|error| format!("extend PCR {PCR}: {error}"))
    }

    /// Sees to it that the register is extended if this start took a config from outside. An error: no key of the TPM may be
    /// used. Blocks.
    pub(crate) fn close(&self) -> Result<(), String> {
        let known = self.known();
        if known.trust != Some(Trust::Outside) || known.is_extended {
            return Ok(());
        }
        let failed =
            |reason: String| format!("PCR {PCR} could not be extended for a config from outside: {reason}");
        // Without a TPM there is no key of it either; one that appears later finds this asked again.
        let Some(mut device) = tpm_device::find(&self.runtime.root).map_err(failed)? else { return Ok(()) };
        let is_new = extend(&mut device).map_err(failed)?;
        self.change(|known| known.is_extended = true);
        if is_new {
            self.runtime
                .journal
                .say(&format!("the machine config comes from outside: PCR {PCR} of the TPM says so"));
        }
        Ok(())
    }

    /// Whether the next start has an authenticated config, as far as that is known: then keys of a volume that is made now
    /// demand one. `has_state`: there will be a STATE to take it from.
    pub(crate) fn next_is_authenticated(&self, has_state: bool) -> Option<bool> {
        let named = self.runtime.parameters.config.as_ref();
        let is_named = named.is_some_and(|source| *source != ConfigSource::None);
        decide(self.known(), has_state, is_named)
    }
}

/// Extends it unless it is; whether it was not.
fn extend(tpm: &mut dyn Transport) -> Result<bool, String> {
    let is_zero = |tpm: &mut dyn Transport| is_untouched(tpm).map_err(|error| error.to_string());
    if !is_zero(tpm)? {
        return Ok(false);
    }
    let digest = Digest::sha256(&[EVENT]);
    tpm::extend(tpm, PCR, digest.as_bytes()).map_err(|error| error.to_string())?;
    match is_zero(tpm)? {
        true => Err("the TPM took it, and the register stayed as it was".to_owned()),
        false => Ok(true),
    }
}

/// What keys demand that are for starts with an authenticated config.
pub(crate) fn demanded() -> Values {
    Values::from([(PCR, [0; 32])])
}

/// Whether this start meets that.
pub(crate) fn is_untouched(tpm: &mut dyn Transport) -> Result<bool, tpm::Error> {
    let pcrs = Pcrs::new(&[PCR]).unwrap_or_default();
    tpm::read_pcrs(tpm, pcrs).map(|values| values == demanded())
}

/// `is_named`: the command line names a source, which goes before a STATE whose config is not for keeps.
fn decide(known: Known, has_state: bool, is_named: bool) -> Option<bool> {
    if has_state && (known.is_for_keeps? || !is_named) {
        return Some(true);
    }
    known.trust.map(|trust| trust == Trust::Image)
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::*;

    fn path(root: &Path) -> PathBuf {
        root.join(tpm::PATH.trim_start_matches('/'))
    }

    fn known(trust: Option<Trust>, is_for_keeps: bool) -> Known {
        Known { trust, is_for_keeps: Some(is_for_keeps), is_extended: false }
    }

    #[test]
    fn the_next_start_is_checked_by_where_it_takes_its_config_from() {
        let (state, image, outside) = (Some(Trust::State), Some(Trust::Image), Some(Trust::Outside));
        for trust in [None, state, image, outside] {
            for is_named in [false, true] {
                assert_eq!(decide(known(trust, true), true, is_named), Some(true), "kept on STATE");
            }
            assert_eq!(decide(known(trust, false), true, false), Some(true), "no other source is named");
        }
        // From elsewhere each time.
        for (has_state, is_named) in [(true, true), (false, true), (false, false)] {
            let next = |trust| decide(known(trust, false), has_state, is_named);
            assert_eq!((next(image), next(outside)), (Some(true), Some(false)));
            // Applied over one of STATE: the next start takes one that nothing is known of.
            assert_eq!((next(state), next(None)), (Some(false), None));
        }
        assert_eq!(decide(known(outside, true), false, false), Some(false), "there is nothing to keep it on");
        assert_eq!(decide(Known::default(), true, false), None, "no config was read yet");
    }

    #[test]
    fn the_least_trusted_config_of_a_start_counts() {
        let dir = tempfile::tempdir().unwrap();
        let register = Register::new(Runtime::detached(dir.path().to_owned()));
        register.admit(Trust::Outside, true);
        register.admit(Trust::State, true);
        assert_eq!(register.known().trust, Some(Trust::Outside));
        assert!(!register.keeps(true) && register.keeps(false));
    }

    /// A TPM that is there and does not do it is an error for whoever would use its keys; one that is not there is none.
    #[test]
    fn a_tpm_that_does_not_extend_keeps_its_keys_from_being_used() {
        let dir = tempfile::tempdir().unwrap();
        let register = Register::new(Runtime::detached(dir.path().to_owned()));
        register.admit(Trust::Outside, true);
        assert_eq!(register.close(), Ok(()), "no TPM");
        // It appears late, and does not answer.
        std::fs::create_dir_all(path(dir.path())).unwrap();
        let error = register.close().unwrap_err();
        assert!(error.starts_with("PCR 15 could not be extended for a config from outside: "), "{error}");
        let other = tempfile::tempdir().unwrap();
        let register = Register::new(Runtime::detached(other.path().to_owned()));
        std::fs::create_dir_all(path(other.path())).unwrap();
        for trust in [Trust::State, Trust::Image] {
            register.admit(trust, true);
            assert_eq!(register.close(), Ok(()), "the TPM is not asked");
        }
    }
}
