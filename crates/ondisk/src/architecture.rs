//! Processors that images are for.
//!
//! Owns: what each is called by images, and which one a program for firmware is for.
//! Source: OCI image index specification (GOARCH's names); Microsoft PE format specification, "Machine Types".

use crate::field::{bytes, le16, le32};

/// A kind of processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Architecture {
    /// x86-64.
    Amd64,
    /// 64-bit ARM.
    Arm64,
}

impl Architecture {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Amd64, Self::Arm64];

    /// The one that this program runs on.
    pub const OWN: Self = if cfg!(target_arch = "aarch64") { Self::Arm64 } else { Self::Amd64 };

    /// As container images and Debian call it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Amd64 => "amd64",
            Self::Arm64 => "arm64",
        }
    }

    /// By [`Self::name`].
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.name() == name)
    }

    /// Which one a program for firmware (PE) is for.
    #[must_use]
    pub fn of_program(program: &[u8]) -> Option<Self> {
        let header = usize::try_from(le32(program, 0x3c)?).ok()?;
        if bytes(program, header, 4)? != b"PE\0\0" {
            return None;
        }
        match le16(program, header.checked_add(4)?)? {
            0x8664 => Some(Self::Amd64),
            0xaa64 => Some(Self::Arm64),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_say_what_they_are_for() {
        let stub = include_bytes!("../testdata/stub.efi");
        assert_eq!(Architecture::of_program(stub), Some(Architecture::Amd64));
        let mut other = stub.to_vec();
        let at = usize::try_from(le32(stub, 0x3c).unwrap()).unwrap() + 4;
        other[at..at + 2].copy_from_slice(&[0x64, 0xaa]);
        assert_eq!(Architecture::of_program(&other), Some(Architecture::Arm64));
        other[at] = 0;
        assert_eq!(Architecture::of_program(&other), None);
        for length in 0..at {
            assert_eq!(Architecture::of_program(&stub[..length]), None);
        }
    }

    #[test]
    fn names_lead_back() {
        for one in Architecture::ALL {
            assert_eq!(Architecture::named(one.name()), Some(one));
        }
        assert_eq!(Architecture::named("riscv64"), None);
        assert_eq!(Architecture::OWN.name(), "amd64");
    }
}
