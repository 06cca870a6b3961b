//! The report for people, in Markdown.

use super::{Report, Sizes, idle};
use crate::bench::measure::{Cost, giga};
use crate::bench::schedule::KERNEL_PREFIX;

/// Programs and kernel threads named one by one; the rest is a sum.
const NAMED: usize = 10;

/// Limits of issue "Boot", in bytes and KiB.
const INIT_LIMIT: u64 = 1_500_000;
const INITRAMFS_LIMIT: u64 = 8_000_000;
const BASE_LIMIT: u64 = 90_000_000;
const MEMORY_LIMIT: u64 = 30 * 1024;

/// Limits as parts of the peers' instructions.
const SYSTEMD_LIMIT: f64 = 0.05;
const BUSYBOX_AIM: f64 = 2.0;

pub(super) fn markdown(report: &Report<'_>, sizes: &Sizes, date: &str, qemu: &str) -> String {
    let release = &report.artefacts.kernel_release;
    let mut text = format!(
        "Measured {date} with kernel {release} (Debian), QEMU {qemu}, Billet {}; median of {} runs.\n\n",
        report.artefacts.version, report.runs
    );
    text += &comparison(report);
    text += &split(report);
    text += &profile("Billet", &report.billet.cost);
    text += &profile("systemd", &report.systemd);
    text += &profile("busybox", &report.busybox);
    text + &resources(report, sizes)
}

fn comparison(report: &Report<'_>) -> String {
    let row = |name: &str, cost: &Cost| {
        let (cost_g, idle_g) = (giga(cost.instructions), giga(idle(cost)));
        let kernel_g = giga(kernel_threads(cost));
        format!("| {name} | {cost_g:.4} | {idle_g:.4} | {kernel_g:.4} | {:.1e} |\n", cost.spread)
    };
    let (systemd, busybox) = (report.ratio_systemd(), report.ratio_busybox());
    String::from(
        "| from init to | G instructions | idle | kernel threads | spread of runs |\n|---|---|---|---|---|\n",
    ) + &row("Billet's API", &report.billet.cost)
        + &row("Debian with systemd: open SSH port", &report.systemd)
        + &row("busybox script: open HTTP port", &report.busybox)
        + &format!(
            "\nBillet needs {systemd:.4} of systemd's instructions (limit {SYSTEMD_LIMIT}: {}) and {busybox:.2} of the \
             script's (aim {BUSYBOX_AIM}: {}).\n\n",
            verdict(systemd <= SYSTEMD_LIMIT),
            verdict(busybox <= BUSYBOX_AIM),
        )
}

/// Work of the kernel that nobody in user space waits for by name.
fn kernel_threads(cost: &Cost) -> u64 {
    let threads = cost.usage.iter().filter(|(name, _)| name.starts_with(KERNEL_PREFIX));
    threads.map(|(_, value)| *value).sum()
}

fn split(report: &Report<'_>) -> String {
    let split = &report.billet.split;
    let row = |name: &str, value: u64| format!("| {name} | {:.4} |\n", giga(value));
    let mut text = String::from("| part of Billet's boot | G instructions, traced |\n|---|---|\n")
        + &row("init: mounts, parameters, modules", split.init)
        + &row("init: root assembly", split.root_assembly)
        + &row("machined, until it starts apid", split.machined)
        + &row("until apid serves", split.apid);
    text += "\n| longest tasks | source | phase | ms |\n|---|---|---|---|\n";
    let mut bars = report.billet.timeline.clone();
    bars.sort_by_key(|bar| std::cmp::Reverse(bar.duration_ns));
    for bar in bars.iter().filter(|bar| bar.source != "kernel").take(NAMED) {
        let ms = giga(bar.duration_ns) * 1e3;
        text += &format!("| {} | {} | {} | {ms:.1} |\n", bar.task, bar.source, bar.phase);
    }
    text + "\n"
}

/// Who used the processor, the most first.
fn profile(system: &str, cost: &Cost) -> String {
    let mut rows: Vec<(&String, &u64)> = cost.usage.iter().collect();
    rows.sort_by_key(|(_, value)| std::cmp::Reverse(**value));
    let mut text = format!("| {system}: processor time of | M instructions, traced |\n|---|---|\n");
    for (name, value) in rows.iter().take(NAMED) {
        text += &format!("| {name} | {:.1} |\n", giga(**value) * 1e3);
    }
    let rest: u64 = rows.iter().skip(NAMED).map(|(_, value)| **value).sum();
    text + &format!("| all others | {:.1} |\n\n", giga(rest) * 1e3)
}

fn resources(report: &Report<'_>, sizes: &Sizes) -> String {
    let limited = |name: &str, bytes: u64, limit: u64| {
        format!("| {name} | {bytes} | {limit}: {} |\n", verdict(bytes <= limit))
    };
    let total: u64 = report.memory.values().sum();
    let mut text = String::from("| size | bytes | limit |\n|---|---|---|\n")
        + &limited("init", sizes.init, INIT_LIMIT)
        + &format!("| machined, apid, trustd: one binary | {} | |\n", sizes.machined)
        + &limited("initramfs without layers", sizes.initramfs, INITRAMFS_LIMIT)
        + &limited("base layer", sizes.base_layer, BASE_LIMIT)
        + &format!("| kernel layer | {} | |\n", sizes.kernel_layer);
    text += "\n| memory (PSS) | KiB | limit |\n|---|---|---|\n";
    for (name, kib) in &report.memory {
        text += &format!("| {name} | {kib} | |\n");
    }
    text + &limited("together", total, MEMORY_LIMIT)
}

fn verdict(met: bool) -> &'static str {
    if met { "met" } else { "**missed**" }
}
