//! The key that tells the machine's TPM from all others, for who seals a config for it.
//!
//! Owns: asking the TPM once, the resource, one line for who stands before a machine without a config.
//! Does not: use the key (`configuration/bundle.rs` does).
//! Fails by: a warning and no resource; a machine without a TPM has none and says nothing.
//! Source: docs/users/per-device.md.

use ondisk::Digest;
use runtime::Runtime;
use runtime::store::{Hardware, Spec, TPM_KEY, TpmKey};
use tpm::DeviceKey;

use super::shown::put;

/// Its only id.
const ID: &str = "tpm";

pub(super) fn publish(runtime: &Runtime) {
    let found = crate::tpm_device::find(&runtime.root).and_then(|device| {
        let Some(mut device) = device else { return Ok(None) };
        DeviceKey::of(&mut device).map(Some).map_err(|error| error.to_string())
    });
    match found {
        Ok(Some(key)) => {
            let key = spec(&key);
            let line = format!("this machine's TPM key: {} (`billetctl get tpmkeys`)", key.sha256);
            put(runtime, &TPM_KEY, vec![(ID.to_owned(), Spec::Hardware(Box::new(Hardware::TpmKey(key))))]);
            if runtime.config().is_none() {
                runtime.journal.say(&line);
            }
        }
        Ok(None) => {}
        Err(error) => runtime.journal.warn(&format!("no key of the TPM is shown: {error}")),
    }
}

fn spec(key: &DeviceKey) -> TpmKey {
    TpmKey { sha256: Digest(key.digest()).to_string(), public: key.to_pem() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `get -o yaml` prints is a file that `add-config` takes.
    #[test]
    fn the_key_can_be_taken_from_the_resources_document() {
        let file = include_bytes!("../../../crates/tpm/testdata/duplicate.txt");
        let text = std::str::from_utf8(file).unwrap();
        let vector = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        let area: Vec<u8> = (0..vector("device ").len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&vector("device ")[at..at + 2], 16).unwrap())
            .collect();
        let key = DeviceKey::from_file(&area).unwrap();
        let spec = spec(&key);
        assert_eq!(spec.sha256, vector("digest "));
        let yaml = Spec::Hardware(Box::new(Hardware::TpmKey(spec))).yaml().unwrap();
        assert_eq!(DeviceKey::from_file(yaml.as_bytes()), Ok(key), "{yaml}");
    }

    #[test]
    fn a_machine_without_a_tpm_has_no_key_and_is_not_warned() {
        let dir = tempfile::tempdir().unwrap();
        let runtime = Runtime::detached(dir.path().to_owned());
        publish(&runtime);
        assert!(runtime.store.list(&TPM_KEY).is_empty());
    }
}
