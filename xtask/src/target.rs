//! What differs between the machines that images are built for.
//!
//! Owns: names: of the compiler's target, of directories and files in Debian's packages, of the serial console.
//! Does not: know how anything is compiled for them; [`crate::programs`] and [`crate::toolchain`] do.

pub(crate) use ondisk::Architecture;

/// Reads the value of `--arch`.
pub(crate) fn parse(name: &str) -> Result<Architecture, String> {
    Architecture::named(name).ok_or_else(|| "images are made for amd64 and arm64".to_owned())
}

/// As rustc and cargo call it.
pub(crate) fn triple(architecture: Architecture) -> &'static str {
    match architecture {
        Architecture::Amd64 => "x86_64-unknown-linux-gnu",
        Architecture::Arm64 => "aarch64-unknown-linux-gnu",
    }
}

/// Where Debian's dynamic linker looks without any configuration.
pub(crate) fn libraries(architecture: Architecture) -> &'static str {
    match architecture {
        Architecture::Amd64 => "usr/lib/x86_64-linux-gnu",
        Architecture::Arm64 => "usr/lib/aarch64-linux-gnu",
    }
}

/// The dynamic linker, at the path that programs name, and where that leads.
pub(crate) fn linker(architecture: Architecture) -> &'static str {
    match architecture {
        Architecture::Amd64 => "usr/lib64/ld-linux-x86-64.so.2",
        Architecture::Arm64 => "usr/lib/ld-linux-aarch64.so.1",
    }
}

/// systemd's stub in its package.
pub(crate) fn stub(architecture: Architecture) -> &'static str {
    match architecture {
        Architecture::Amd64 => "linuxx64.efi.stub",
        Architecture::Arm64 => "linuxaa64.efi.stub",
    }
}

/// systemd-boot in its package.
pub(crate) fn loader(architecture: Architecture) -> &'static str {
    match architecture {
        Architecture::Amd64 => "systemd-bootx64.efi",
        Architecture::Arm64 => "systemd-bootaa64.efi",
    }
}

/// The first serial line, as the kernel calls it.
pub(crate) fn console(architecture: Architecture) -> &'static str {
    match architecture {
        Architecture::Amd64 => "ttyS0",
        Architecture::Arm64 => "ttyAMA0",
    }
}
