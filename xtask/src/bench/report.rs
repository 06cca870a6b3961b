//! The figures as `target/bench/boot.json` and as the table in docs/benchmarks.md.
//!
//! Owns: which figures are reported under which name, and what the project has set itself as their limits.
//! Does not: write docs/benchmarks.md itself ([`document`]).

mod table;

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::billet::BootCost;
use super::document;
use super::measure::{Cost, ratio};
use super::schedule::IDLE_NAME;
use crate::build::Artefacts;
use crate::place;

/// Everything that was measured.
pub(crate) struct Report<'a> {
    pub(crate) artefacts: &'a Artefacts,
    pub(crate) runs: u32,
    pub(crate) billet: BootCost,
    pub(crate) systemd: Cost,
    pub(crate) busybox: Cost,
    /// KiB by process.
    pub(crate) memory: BTreeMap<String, u64>,
}

/// Bytes of what a node consists of.
struct Sizes {
    init: u64,
    machined: u64,
    initramfs: u64,
    base_layer: u64,
    kernel_layer: u64,
}

impl Report<'_> {
    /// Writes both forms and prints the table.
    pub(crate) fn write(&self, directory: &Path) -> Result<()> {
        let sizes = self.sizes()?;
        document::keep(directory, "boot", &self.json(&sizes))?;
        let table = table::markdown(self, &sizes, &document::today()?, &document::qemu_version()?);
        document::write("boot", &table)
    }

    fn json(&self, sizes: &Sizes) -> Value {
        let billet = &self.billet.cost;
        let split = &self.billet.split;
        json!({
            "version": self.artefacts.version,
            "kernel_release": self.artefacts.kernel_release,
            "cmdline": self.artefacts.cmdline,
            "init_bytes": sizes.init,
            "machined_bytes": sizes.machined,
            "initramfs_bytes": sizes.initramfs,
            "base_layer_bytes": sizes.base_layer,
            "kernel_layer_bytes": sizes.kernel_layer,
            "instructions_init_to_api": billet.instructions,
            "idle_instructions": idle(billet),
            "split": {
                "init": split.init,
                "root_assembly": split.root_assembly,
                "machined": split.machined,
                "apid": split.apid,
            },
            "ratio_systemd": self.ratio_systemd(),
            "ratio_busybox": self.ratio_busybox(),
            "rss_kib": self.memory,
            "runs": self.runs,
            "billet": details(billet),
            "systemd": details(&self.systemd),
            "busybox": details(&self.busybox),
        })
    }

    /// Billet's instructions in parts of systemd's: 0.05 is a twentieth.
    fn ratio_systemd(&self) -> f64 {
        ratio(self.billet.cost.instructions, self.systemd.instructions)
    }

    /// Billet's instructions in parts of the script's.
    fn ratio_busybox(&self) -> f64 {
        ratio(self.billet.cost.instructions, self.busybox.instructions)
    }

    fn sizes(&self) -> Result<Sizes> {
        let image = &self.artefacts.production;
        let layer = |name: &str| {
            let found = image.layers.iter().find(|layer| layer.name == name);
            found.map(|layer| layer.bytes).with_context(|| format!("the image has no layer {name}"))
        };
        Ok(Sizes {
            init: file_bytes(&self.artefacts.init)?,
            machined: file_bytes(&self.artefacts.machined)?,
            initramfs: file_bytes(&image.initramfs)?,
            base_layer: layer("base")?,
            kernel_layer: layer("kernel")?,
        })
    }
}

fn details(cost: &Cost) -> Value {
    json!({
        "instructions": cost.instructions,
        "spread": cost.spread,
        "traced_instructions": cost.traced,
        "idle_instructions": idle(cost),
        "by_program": cost.usage,
    })
}

/// What the traced run waited.
fn idle(cost: &Cost) -> u64 {
    cost.usage.get(IDLE_NAME).copied().unwrap_or(0)
}

fn file_bytes(path: &Path) -> Result<u64> {
    let path = place::repository().join(path);
    Ok(path.metadata().with_context(|| format!("inspect {}", path.display()))?.len())
}
