//! Installer images that others build on: this program in them, and what it does there.
//!
//! Does not: know what is taken in, and how; `installer::image::container` does.
//! Fails by: a line, which ends the container's build.

use crate::output::bytes_si;
use anyhow::{Context as _, Result, bail, ensure};
use installer::image::Architecture;
use installer::image::container::{self, Machine, REMOVE, machine};
use std::{
    fs::File,
    io::Read as _,
    path::{Path, PathBuf},
};

/// This program, also when its file was replaced.
const SELF: &str = "/proc/self/exe";
/// Offset and length of an ELF file's program headers are in its first bytes, and these are in the first page (elf(5)).
const HEAD_BYTES: u64 = 4096;
/// The interpreter's path stands there.
const LOADER: &[u8] = b"/ld-linux";

/// billetctl for an image for these machines, which has nothing that it could be linked with: the one that is named, else
/// this program.
pub(super) fn program(named: Option<&Path>, architecture: Architecture) -> Result<PathBuf> {
    let path = named.unwrap_or(Path::new(SELF));
    let mut head = Vec::new();
    let file = File::open(path).with_context(|| format!("open {}", path.display()))?;
    file.take(HEAD_BYTES).read_to_end(&mut head).with_context(|| format!("read {}", path.display()))?;
    let name = if named.is_some() { path.display().to_string() } else { "this billetctl".to_owned() };
    let Some(machine) = machine(&head) else { bail!("{name} is no program for Linux") };
    ensure!(
        machine == Machine::Of(architecture),
        "--kind docker puts billetctl into the image, which is for {0}, and {name} is for {machine}: name one for {0} with \
         --billetctl (`cargo xtask build --arch {0}` makes it), or use --kind installer",
        architecture.name()
    );
    ensure!(
        !head.windows(LOADER.len()).any(|window| window == LOADER),
        "{name} is linked with libraries, and the image has none: use the one that `cargo xtask build` makes, \
         target/billet/billetctl"
    );
    Ok(path.to_owned())
}

/// In the container of an image that is built on ours.
pub(super) fn take_in() -> Result<()> {
    let words = std::env::var(REMOVE).unwrap_or_default();
    let remove = words.split_whitespace().map(str::to_owned).collect();
    let taken = container::take_in(Path::new("/"), remove, &mut installer::silent)?;
    for layer in taken.layers {
        eprintln!("layer {}: {}", layer.name, bytes_si(layer.total_bytes()));
    }
    for warning in taken.warnings {
        eprintln!("warning: {warning}");
    }
    if taken.lost_signature {
        eprintln!(
            "the base image's signed UKI is not of what is in this image and is left out: sign the result with \
             `{}`",
            installer::system::SIGN_COMMAND
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(directory: &Path, machine: u16, more: &[u8]) -> PathBuf {
        let path = directory.join(format!("program-{machine}"));
        let mut bytes = b"\x7fELF".to_vec();
        // To `e_machine` (elf(5)).
        bytes.resize(18, 0);
        bytes.extend(machine.to_le_bytes());
        bytes.extend(more);
        std::fs::write(&path, bytes).unwrap();
        path
    }

    #[test]
    fn a_program_must_be_for_the_images_machines_and_need_no_libraries() {
        let dir = tempfile::tempdir().unwrap();
        let arm64 = file(dir.path(), 183, b"");
        assert_eq!(program(Some(&arm64), Architecture::Arm64).unwrap(), arm64);
        let refused = |path: &Path| program(Some(path), Architecture::Arm64).unwrap_err().to_string();
        assert!(refused(&file(dir.path(), 62, b"")).contains("is for amd64: name one for arm64"));
        assert!(
            refused(&file(dir.path(), 243, b""))
                .contains("is for other processors (number 243 of ELF): name")
        );
        assert!(
            refused(&file(dir.path(), 183, b"/lib/ld-linux-aarch64.so.1")).contains("linked with libraries")
        );
        let text = dir.path().join("text");
        std::fs::write(&text, "#!/bin/sh\n").unwrap();
        assert!(refused(&text).ends_with("text is no program for Linux"));
    }
}
