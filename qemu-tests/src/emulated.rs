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

/// An emulated processor that the host leaves waiting gets no timer interrupts while the kernel tries whether there are
/// any, and the kernel panics. Guests under KVM skip the trial by themselves.
pub const NO_TIMER_CHECK: &str = "no_timer_check";

/// Beside that, no self-tests of two parts of the kernel's crypto that nothing of ours calls, and that
/// `cryptomgr.notests` does not turn off.
pub(crate) const WORDS: [&str; 2] = [NO_TIMER_CHECK, "initcall_blacklist=jent_mod_init,crypto_kdf108_init"];

/// The kernel to give to QEMU: an ELF file is entered directly (PVH), where a bzImage unpacks itself, emulated.
/// What is no bzImage, packed in a way that we cannot unpack, or has no such entry, is given as it is.
pub(crate) fn kernel(image: &Path) -> Result<PathBuf> {
    let bytes = fs::read(image).with_context(|| format!("read the kernel {}", image.display()))?;
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    let directory = paths::work_dir();
    let path = directory.join(format!("vmlinux-{:016x}", hasher.finish()));
    if path.exists() {
        return Ok(path);
    }
    let Some(kernel) = unpacked(&bytes).filter(|kernel| has_direct_entry(kernel)) else {
        return Ok(image.to_owned());
    };
    // Several tests may get here at once: each writes a file of its own, and the last one stays.
    let stored = |directory: &Path| -> std::io::Result<()> {
        fs::create_dir_all(directory)?;
        let mut file = tempfile::NamedTempFile::new_in(directory)?;
        file.write_all(&kernel)?;
        file.persist(&path)?;
        Ok(())
    };
    stored(&directory).with_context(|| format!("write {}", path.display()))?;
    Ok(path)
}

/// Whether an ELF file names an entry for PVH in its notes (CONFIG_PVH), without which QEMU refuses it.
/// Source: ELF-64 Object File Format §4 and §8; xen/include/public/elfnote.h (`XEN_ELFNOTE_PHYS32_ENTRY`).
fn has_direct_entry(kernel: &[u8]) -> bool {
    const PT_NOTE: u64 = 4;
    const ENTRY_OF_XEN: &[u8] = b"\x12\0\0\0Xen\0";
    let number = |at: u64, bytes: usize| {
        let at = usize::try_from(at).ok()?;
        let field = kernel.get(at..at.checked_add(bytes)?)?;
        Some(field.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
    };
    let notes = |index: u64| {
        let header = number(0x20, 8)?.checked_add(index.checked_mul(number(0x36, 2)?)?)?;
        if number(header, 4)? != PT_NOTE {
            return None;
        }
        let [at, length] = [number(header + 8, 8)?, number(header + 32, 8)?];
        kernel.get(usize::try_from(at).ok()?..usize::try_from(at.checked_add(length)?).ok()?)
    };
    let count = number(0x38, 2).unwrap_or(0);
    let mut all = (0..count).filter_map(notes);
    kernel.starts_with(b"\x7fELF\x02\x01")
        && all.any(|notes| notes.windows(ENTRY_OF_XEN.len()).any(|window| window == ENTRY_OF_XEN))
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

    #[test]
    fn only_a_kernel_with_the_note_is_entered_directly() {
        let notes = |kind: u8| [&[4, 0, 0, 0, 8, 0, 0, 0, kind, 0, 0, 0][..], b"Xen\0", &[0; 8]].concat();
        let elf = |notes: &[u8]| {
            let mut file = vec![0; 120];
            file[..6].copy_from_slice(b"\x7fELF\x02\x01");
            (file[0x20], file[0x36], file[0x38]) = (64, 56, 1);
            (file[64], file[72], file[96]) = (4, 120, u8::try_from(notes.len()).unwrap());
            file.extend(notes);
            file
        };
        assert!(has_direct_entry(&elf(&notes(0x12))));
        assert!(!has_direct_entry(&elf(&notes(0x13))));
        let whole = elf(&notes(0x12));
        for length in 0..whole.len() {
            assert!(!has_direct_entry(&whole[..length]), "the first {length} bytes");
        }
    }
}
