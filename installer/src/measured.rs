//! What a UKI will measure of itself.
//!
//! Owns: the value that systemd's stub leaves in PCR 11, computed from the file before it runs.
//! Does not: measure; know other registers: what the firmware and a loader add to theirs is not known beforehand.
//! Order: of the sections, as the UKI specification has it, whatever their order in the file: name with its zero byte,
//! then content.
//! Source: the UAPI group's UKI specification, "UKI TPM PCR Measurements"; systemd-stub(7).

use ondisk::Digest;
use ondisk::pe::{Image, Section};

use crate::Error;

/// The register.
pub const PCR: u8 = 11;

/// Sections that are measured, in their order. `.pcrsig` is not: it says what the others come to.
const SECTIONS: [&str; 13] = [
    ".linux", ".osrel", ".cmdline", ".initrd", ".ucode", ".splash", ".dtb", ".uname", ".sbat", ".pcrpkey",
    ".profile", ".dtbauto", ".hwids",
];

/// The value of [`PCR`] when the kernel of this UKI starts.
pub fn pcr_11(uki: &[u8]) -> Result<[u8; 32], Error> {
    let image = Image::parse(uki)?;
    let section = |name: &str| image.sections().iter().find(|section| section.name == name);
    let found = SECTIONS.into_iter().filter_map(section);
    Ok(found.fold([0; 32], |value, section| {
        let named = Digest::sha256(&[section.name.as_bytes(), &[0]]);
        let value = extended(&value, &named);
        extended(&value, &content(section))
    }))
}

/// As it lies in memory: what the file does not hold is zeros there.
fn content(section: &Section<'_>) -> Digest {
    let length = usize::try_from(section.virtual_bytes).unwrap_or(section.content.len());
    let zeros = vec![0; length.saturating_sub(section.content.len())];
    Digest::sha256(&[section.content, &zeros])
}

fn extended(value: &[u8; 32], digest: &Digest) -> [u8; 32] {
    Digest::sha256(&[value, &digest.0]).0
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::process::Command;

    use super::*;

    /// systemd's own program, which takes sections as files. It belongs to the package systemd, which a container may lack.
    const REFERENCE: &str = "/usr/lib/systemd/systemd-measure";

    fn reference(directory: &Path, image: &Image<'_>) -> String {
        let mut command = Command::new(REFERENCE);
        command.args(["calculate", "--bank=sha256", "--phase=:"]);
        for name in [".linux", ".osrel", ".cmdline", ".initrd"] {
            let path = directory.join(name);
            std::fs::write(&path, image.section(name).unwrap()).unwrap();
            command.arg(format!("-{}={}", name.replace('.', "-"), path.display()));
        }
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).unwrap();
        text.trim().split_once("11:sha256=").unwrap().1.to_owned()
    }

    fn hex(value: &[u8; 32]) -> String {
        value.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn a_uki_measures_what_systemd_says() {
        let uki = crate::certify::payload::uki("1.0.0", b"{}", &[2; 5000]);
        let value = pcr_11(&uki).unwrap();
        // What systemd's program said when this was written.
        assert_eq!(hex(&value), "4ef64b834d1a37c0eec4a20055ba83cbaefb8a3c5896f0ef4a9debe83485bdf0");
        if Path::new(REFERENCE).exists() {
            let dir = tempfile::tempdir().unwrap();
            assert_eq!(hex(&value), reference(dir.path(), &Image::parse(&uki).unwrap()));
        }
        let other = crate::certify::payload::uki("1.0.0", b"{ }", &[2; 5000]);
        assert_ne!(pcr_11(&other).unwrap(), value);
        // Where in the file a section is, and what else there is, is not measured.
        let elsewhere = crate::certify::payload::uki("2.0.0", b"{}", &[2; 5000]);
        assert_eq!(pcr_11(&elsewhere).unwrap(), value);
    }
}
