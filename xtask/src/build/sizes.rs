//! Sizes of the artefacts against the figures that the project has set itself.

use std::path::Path;

use anyhow::{Context, Result};

use super::Artefacts;
use crate::place;

const MIB: u64 = 1 << 20;

/// Limits in bytes: init 1.5 MB, initramfs 8 MB, base layer 90 MB, all in powers of ten.
const LIMITS: [(&str, u64); 3] = [("init", 1_500_000), ("initramfs", 8_000_000), ("layer base", 90_000_000)];

pub(super) fn print(artefacts: &Artefacts, directory: &Path) -> Result<()> {
    let root = place::repository();
    let image = &artefacts.production;
    let mut rows = vec![("init".to_owned(), &artefacts.init), ("machined".to_owned(), &artefacts.machined)];
    rows.push(("initramfs".to_owned(), &image.initramfs));
    rows.extend(image.layers.iter().map(|layer| (format!("layer {}", layer.name), &layer.file)));
    rows.push(("UKI".to_owned(), &image.uki));
    let (version, kernel) = (&artefacts.version, &artefacts.kernel_release);
    println!("\nBillet {version}, kernel {kernel}, in {}", directory.display());
    for (name, path) in rows {
        let path = root.join(path);
        let bytes = path.metadata().with_context(|| format!("inspect {}", path.display()))?.len();
        println!("  {name:<14}{:>7}.{} MiB{}", bytes / MIB, bytes % MIB * 10 / MIB, verdict(&name, bytes));
    }
    Ok(())
}

fn verdict(name: &str, bytes: u64) -> String {
    match LIMITS.iter().find(|(limited, _)| *limited == name) {
        Some((_, limit)) if bytes > *limit => {
            format!("  over its limit of {limit} bytes by {}", bytes - limit)
        }
        Some((_, limit)) => format!("  ({} % of its limit)", bytes * 100 / limit),
        None => String::new(),
    }
}
