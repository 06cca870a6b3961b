//! The figures as `target/bench/boot.json` and as the table in docs/benchmarks.md.
//!
//! Owns: which figures are reported under which name, and what the project has set itself as their limits.
//! Does not: write anything else in docs/benchmarks.md than what stands between its two marks.

mod table;

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::billet::BootCost;
use super::measure::{Cost, ratio};
use super::schedule::IDLE_NAME;
use crate::build::Artefacts;
use crate::command::Cmd;
use crate::place;
use crate::step::note;

const DOCUMENT: &str = "docs/benchmarks.md";
const BEGIN: &str = "<!-- written by `cargo xtask bench boot` -->\n";
const END: &str = "<!-- end of what is written -->";

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
    pub(crate) fn write(&self, folder: &Path) -> Result<()> {
        let sizes = self.sizes()?;
        let path = folder.join("boot.json");
        let text = serde_json::to_string_pretty(&self.json(&sizes)).context("serialise the report")?;
        std::fs::write(&path, text + "\n").with_context(|| format!("write {}", path.display()))?;
        let table = table::markdown(self, &sizes, &today()?, &qemu_version()?);
        print!("\n{table}");
        let document = place::repository().join(DOCUMENT);
        let before =
            std::fs::read_to_string(&document).with_context(|| format!("read {}", document.display()))?;
        std::fs::write(&document, between_marks(&before, &table)?)
            .with_context(|| format!("write {}", document.display()))?;
        note(&format!("written: {} and {DOCUMENT}", path.display()));
        Ok(())
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

fn today() -> Result<String> {
    Ok(Cmd::new("date").args(["-u", "+%F"]).read()?.trim().to_owned())
}

fn qemu_version() -> Result<String> {
    let text = Cmd::new(qemu_tests::accel::QEMU).arg("--version").read()?;
    let line = text.lines().next().unwrap_or_default();
    Ok(line.trim_start_matches("QEMU emulator version ").split(' ').next().unwrap_or_default().to_owned())
}

fn between_marks(document: &str, table: &str) -> Result<String> {
    let marks = document.split_once(BEGIN).and_then(|(head, rest)| Some((head, rest.split_once(END)?.1)));
    let (head, tail) = marks.with_context(|| format!("{DOCUMENT} has lost the marks around its table"))?;
    ensure!(!table.contains(END), "the table holds the mark of its end");
    Ok(format!("{head}{BEGIN}{table}{END}{tail}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_between_the_marks_changes() {
        let before = format!("# Title\n\n{BEGIN}old\n{END}\n\nText.\n");
        let after = between_marks(&before, "new\n").unwrap();
        assert_eq!(after, format!("# Title\n\n{BEGIN}new\n{END}\n\nText.\n"));
        assert_eq!(between_marks(&after, "new\n").unwrap(), after);
        assert!(between_marks("# Title\n", "new\n").is_err());
    }
}
