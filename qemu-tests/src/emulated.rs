//! What an emulated machine is spared, since it is slow: no test looks at it, and it is a third of a boot up to init.
//!
//! Owns: the words on the command line of emulated kernels, and the unpacked kernels in `target/qemu-tests`.
//! Does not: change what is measured or checked: machines that start from firmware get a bzImage as users do.
//! Source: measured with QEMU 7.2 (docs/benchmarks.md, "A boot in the tests").

use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use installer::kernel::unpacked;

use crate::paths;

/// * An emulated processor that the host leaves waiting gets no timer interrupts while the kernel tries whether there
///   are any, and the kernel panics. Guests under KVM skip the trial by themselves.
/// * The self-tests of two parts of the kernel's crypto that nothing of ours calls, and that `cryptomgr.notests` does
///   not turn off.
pub(crate) const WORDS: &str = "no_timer_check initcall_blacklist=jent_mod_init,crypto_kdf108_init";

/// The kernel to give to QEMU: an ELF file is entered directly (PVH), where a bzImage unpacks itself, emulated.
/// What is no bzImage, or packed in a way that we cannot unpack, is given as it is.
pub(crate) fn kernel(image: &Path) -> Result<PathBuf> {
    let bytes = fs::read(image).with_context(|| format!("read the kernel {}", image.display()))?;
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    let folder = paths::work_dir();
    let path = folder.join(format!("vmlinux-{:016x}", hasher.finish()));
    if path.exists() {
        return Ok(path);
    }
    let Some(kernel) = unpacked(&bytes) else { return Ok(image.to_owned()) };
    // Several tests may get here at once: each writes a file of its own, and the last one stays.
    let stored = |folder: &Path| -> std::io::Result<()> {
        fs::create_dir_all(folder)?;
        let mut file = tempfile::NamedTempFile::new_in(folder)?;
        file.write_all(&kernel)?;
        file.persist(&path)?;
        Ok(())
    };
    stored(&folder).with_context(|| format!("write {}", path.display()))?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_unpacked_is_given_as_it_is() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "no bzImage").unwrap();
        assert_eq!(kernel(file.path()).unwrap(), file.path());
        assert!(kernel(Path::new("/nowhere")).is_err());
    }
}
