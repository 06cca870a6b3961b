//! `memory`: in megabytes, or as /proc/meminfo with `-v`.

use crate::{
    output::{self, Cell, Format, Table},
    session::Session,
};
use anyhow::Result;
use api::proto::machine::{MemInfo, Memory};
use std::fmt::Write;

#[derive(Debug, clap::Args)]
pub(crate) struct Flags {
    /// Every figure that the kernel gives
    #[arg(short, long)]
    verbose: bool,
}

pub(crate) async fn run(session: &Session, flags: &Flags) -> Result<()> {
    let answers =
        session.answers(session.client.machine().memory(session.request(())).await, |r| r.messages)?;
    match session.global.output {
        Format::Table if flags.verbose => Ok(output::print(verbose(&answers))?),
        Format::Table => output::print_table(&table(&answers), Format::Table),
        format if flags.verbose => output::print_table(&verbose_table(&answers), format),
        format => output::print_table(&table(&answers), format),
    }
}

fn table(answers: &[(String, Memory)]) -> Table {
    let mut table = Table::new(&[
        ("NODE", "node"),
        ("TOTAL", "total"),
        ("USED", "used"),
        ("FREE", "free"),
        ("SHARED", "shared"),
        ("BUFFERS", "buffers"),
        ("CACHE", "cache"),
        ("AVAILABLE", "available"),
    ]);
    for (node, memory) in answers {
        let m = memory.meminfo.unwrap_or_default();
        let not_used = m.memfree.saturating_add(m.cached).saturating_add(m.buffers);
        let used = m.memtotal.saturating_sub(not_used);
        let figures = [m.memtotal, used, m.memfree, m.shmem, m.buffers, m.cached, m.memavailable];
        let cells = figures.into_iter().map(|kb| Cell::new((kb / 1024).to_string(), kb / 1024));
        table.push(std::iter::once(node.as_str().into()).chain(cells).collect());
    }
    table
}

fn verbose(answers: &[(String, Memory)]) -> String {
    let mut out = String::new();
    for (node, memory) in answers {
        let _ = writeln!(out, "NODE: {node}");
        for (name, value, unit) in figures(&memory.meminfo.unwrap_or_default()) {
            let _ = writeln!(out, "{}", format!("{name}: {value} {unit}").trim_end());
        }
    }
    out
}

fn verbose_table(answers: &[(String, Memory)]) -> Table {
    let mut table = Table::new(&[("NODE", "node"), ("NAME", "name"), ("VALUE", "value"), ("UNIT", "unit")]);
    for (node, memory) in answers {
        for (name, value, unit) in figures(&memory.meminfo.unwrap_or_default()) {
            table.push(vec![
                node.as_str().into(),
                name.into(),
                Cell::new(value.to_string(), value),
                unit.into(),
            ]);
        }
    }
    table
}

/// Every figure under its name in /proc/meminfo, with its unit.
fn figures(m: &MemInfo) -> Vec<(&'static str, u64, &'static str)> {
    const KB: &str = "kB";
    vec![
        ("MemTotal", m.memtotal, KB),
        ("MemFree", m.memfree, KB),
        ("MemAvailable", m.memavailable, KB),
        ("Buffers", m.buffers, KB),
        ("Cached", m.cached, KB),
        ("SwapCached", m.swapcached, KB),
        ("Active", m.active, KB),
        ("Inactive", m.inactive, KB),
        ("ActiveAnon", m.activeanon, KB),
        ("InactiveAnon", m.inactiveanon, KB),
        ("ActiveFile", m.activefile, KB),
        ("InactiveFile", m.inactivefile, KB),
        ("Unevictable", m.unevictable, KB),
        ("Mlocked", m.mlocked, KB),
        ("SwapTotal", m.swaptotal, KB),
        ("SwapFree", m.swapfree, KB),
        ("Dirty", m.dirty, KB),
        ("Writeback", m.writeback, KB),
        ("AnonPages", m.anonpages, KB),
        ("Mapped", m.mapped, KB),
        ("Shmem", m.shmem, KB),
        ("Slab", m.slab, KB),
        ("SReclaimable", m.sreclaimable, KB),
        ("SUnreclaim", m.sunreclaim, KB),
        ("KernelStack", m.kernelstack, KB),
        ("PageTables", m.pagetables, KB),
        ("NFSUnstable", m.nfsunstable, KB),
        ("Bounce", m.bounce, KB),
        ("WritebackTmp", m.writebacktmp, KB),
        ("CommitLimit", m.commitlimit, KB),
        ("CommittedAS", m.committedas, KB),
        ("VmallocTotal", m.vmalloctotal, KB),
        ("VmallocUsed", m.vmallocused, KB),
        ("VmallocChunk", m.vmallocchunk, KB),
        ("HardwareCorrupted", m.hardwarecorrupted, KB),
        ("AnonHugePages", m.anonhugepages, KB),
        ("ShmemHugePages", m.shmemhugepages, KB),
        ("ShmemPmdMapped", m.shmempmdmapped, KB),
        ("CmaTotal", m.cmatotal, KB),
        ("CmaFree", m.cmafree, KB),
        ("HugePagesTotal", m.hugepagestotal, ""),
        ("HugePagesFree", m.hugepagesfree, ""),
        ("HugePagesRsvd", m.hugepagesrsvd, ""),
        ("HugePagesSurp", m.hugepagessurp, ""),
        ("Hugepagesize", m.hugepagesize, KB),
        ("DirectMap4k", m.directmap4k, KB),
        ("DirectMap2M", m.directmap2m, KB),
        ("DirectMap1G", m.directmap1g, KB),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer() -> (String, Memory) {
        let meminfo = MemInfo {
            memtotal: 2_048_000,
            memfree: 1_024_000,
            cached: 102_400,
            buffers: 10_240,
            shmem: 1024,
            memavailable: 1_536_000,
            hugepagestotal: 4,
            ..Default::default()
        };
        ("n".into(), Memory { metadata: None, meminfo: Some(meminfo) })
    }

    #[test]
    fn megabytes() {
        assert_eq!(
            table(&[answer()]).to_string(),
            "NODE   TOTAL   USED   FREE   SHARED   BUFFERS   CACHE   AVAILABLE\n\
             n      2000    890    1000   1        10        100     1500\n"
        );
    }

    #[test]
    fn meminfo_style() {
        let text = verbose(&[answer()]);
        assert!(text.starts_with("NODE: n\nMemTotal: 2048000 kB\nMemFree: 1024000 kB\n"), "{text}");
        assert!(text.contains("\nHugePagesTotal: 4\n"));
        assert_eq!(figures(&MemInfo::default()).len(), 48, "every field of the message");
    }
}
