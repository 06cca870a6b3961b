//! `boot`: where the boot time went.
//!
//! Owns: the table of the resource `BootTimelines.runtime.billet.dev`, id `boot`: firmware, loader, kernel, then
//! each task of init and machined and each service by its start.

mod picture;
mod timeline;

use super::get;
use crate::{
    output::{self, Cell, Format, Table},
    session::Session,
};
use anyhow::{Context, Result, bail};
use std::path::PathBuf;
use timeline::{Entry, Timeline, seconds};

const KIND: &str = "BootTimelines.runtime.billet.dev";
const ID: &str = "boot";
/// Characters of the longest bar.
const BAR_CHARS: u64 = 30;

#[derive(Debug, clap::Args)]
pub(crate) struct Flags {
    /// Draw the picture into this file as well; for several nodes one below the other
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

pub(crate) async fn run(session: &Session, flags: &Flags) -> Result<()> {
    let mut drawn = Vec::new();
    for node in session.each_node() {
        let name = session.name_of(node.as_deref()).to_owned();
        let resources = get::fetch(session, node.as_deref(), KIND, ID).await?;
        let Some(spec) = resources.first().and_then(|r| r.spec.as_ref()) else {
            bail!("{name} has no boot timeline")
        };
        let timeline: Timeline =
            serde_saphyr::from_str(&spec.yaml_spec).with_context(|| format!("boot timeline of {name}"))?;
        if session.global.output == Format::Table {
            output::print(summary(&name, &timeline))?;
        }
        if flags.svg.is_some() {
            drawn.push((name.clone(), timeline.clone()));
        }
        output::print_table(&table(&name, timeline), session.global.output)?;
    }
    if let Some(path) = &flags.svg {
        std::fs::write(path, picture::svg(&drawn)).with_context(|| format!("write {}", path.display()))?;
    }
    Ok(())
}

fn summary(node: &str, timeline: &Timeline) -> String {
    let end = timeline.entries.iter().map(|e| e.end_ns).max().unwrap_or(timeline.kernel_ns);
    let before = timeline.firmware_ns + timeline.loader_ns;
    let unknown = |ns: u64| if ns == 0 { "unknown".to_owned() } else { seconds(ns) };
    format!(
        "{node}: {} from power-on (firmware {}, loader {}, kernel {}, user space {})\n",
        seconds(before + end),
        unknown(timeline.firmware_ns),
        unknown(timeline.loader_ns),
        unknown(timeline.kernel_ns),
        seconds(end.saturating_sub(timeline.kernel_ns)),
    )
}

fn table(node: &str, mut timeline: Timeline) -> Table {
    let mut table = Table::new(&[
        ("NODE", "node"),
        ("START", "startNs"),
        ("TIME", "durationNs"),
        ("SOURCE", "source"),
        ("PHASE", "phase"),
        ("TASK", "task"),
        ("", "bar"),
    ]);
    timeline.entries.sort_by_key(|e| (e.start_ns, e.end_ns));
    let (begin, end) = (timeline.kernel_ns, timeline.entries.iter().map(|e| e.end_ns).max().unwrap_or(0));
    if timeline.kernel_ns > 0 {
        table.push(row(
            node,
            &Entry { source: "kernel".into(), end_ns: begin, ..Entry::default() },
            String::new(),
        ));
    }
    for entry in &timeline.entries {
        table.push(row(node, entry, bar(entry, begin, end)));
    }
    table
}

fn row(node: &str, entry: &Entry, bar: String) -> Vec<Cell> {
    let time = entry.end_ns.saturating_sub(entry.start_ns);
    vec![
        node.into(),
        Cell::new(seconds(entry.start_ns), entry.start_ns),
        Cell::new(seconds(time), time),
        entry.source.as_str().into(),
        entry.phase.as_str().into(),
        entry.task.as_str().into(),
        bar.into(),
    ]
}

/// The entry's place between `begin` and `end`, at least one character long.
fn bar(entry: &Entry, begin: u64, end: u64) -> String {
    let whole = u128::from(end.saturating_sub(begin)).max(1);
    let place = |ns: u64| {
        let cells = u128::from(ns.clamp(begin, end.max(begin)) - begin) * u128::from(BAR_CHARS) / whole;
        usize::try_from(cells).unwrap_or(0)
    };
    let from = place(entry.start_ns).min(usize::try_from(BAR_CHARS).unwrap_or(0) - 1);
    let length = place(entry.end_ns).saturating_sub(from).max(1);
    format!("{}{}", " ".repeat(from), "█".repeat(length))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPEC: &str = "firmwareNs: 0
loaderNs: 250000000
kernelNs: 1000000000
entries:
  - {source: service, phase: '', task: apid, startNs: 1500000000, endNs: 2000000000}
  - {source: init, phase: root, task: open_layers, startNs: 1000000000, endNs: 1012345678}
";

    fn timeline() -> Timeline {
        serde_saphyr::from_str(SPEC).unwrap()
    }

    #[test]
    fn the_summary_says_what_is_unknown() {
        assert_eq!(
            summary("n", &timeline()),
            "n: 2.250s from power-on (firmware unknown, loader 250.000ms, kernel 1.000s, user space 1.000s)\n"
        );
    }

    #[test]
    fn rows_are_in_order_with_bars() {
        assert_eq!(
            table("n", timeline()).to_string(),
            "NODE   START     TIME        SOURCE    PHASE   TASK\n\
             n      0.000ms   1.000s      kernel\n\
             n      1.000s    12.345ms    init      root    open_layers   █\n\
             n      1.500s    500.000ms   service           apid                         ███████████████\n"
        );
    }

    #[test]
    fn an_empty_timeline_is_no_crash() {
        assert_eq!(table("n", Timeline::default()).to_string().lines().count(), 1);
        assert!(summary("n", &Timeline::default()).starts_with("n: 0.000ms"));
    }
}
