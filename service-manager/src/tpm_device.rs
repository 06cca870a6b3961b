//! The machine's TPM.
//!
//! Owns: opening it, and what is said where there is none.
//! Does not: ask it anything; each use has a connection of its own, with which the kernel frees what is left in the TPM.
//! Fails by: a sentence.

use std::path::Path;

use sys::Errno;
use sys::errno::Described;
use tpm::Device;

/// The TPM below `root`. `None`: the kernel has found none, or not yet.
pub(crate) fn find(root: &Path) -> Result<Option<Device>, String> {
    let path = root.join(tpm::PATH.trim_start_matches('/')).display().to_string();
    match Device::open(&path) {
        Ok(device) => Ok(Some(device)),
        Err(Errno::NOENT | Errno::NODEV | Errno::NXIO) => Ok(None),
        Err(errno) => Err(format!("open {path}: {}", Described(errno))),
    }
}

/// The TPM, where one is needed.
pub(crate) fn open(root: &Path) -> Result<Device, String> {
    find(root)?.ok_or_else(|| "this machine has no TPM 2.0, or the firmware has it disabled".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_without_a_tpm_says_so() {
        let root = tempfile::tempdir().unwrap();
        assert!(find(root.path()).unwrap().is_none());
        let error = open(root.path()).unwrap_err();
        assert!(error.starts_with("this machine has no TPM 2.0"), "{error}");
        std::fs::create_dir_all(root.path().join("dev/tpmrm0")).unwrap();
        let error = find(root.path()).unwrap_err();
        assert!(error.contains("/dev/tpmrm0: EISDIR"), "{error}");
    }
}
