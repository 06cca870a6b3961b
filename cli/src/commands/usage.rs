//! `usage`: what directories take on disk.

use crate::{
    output::{self, Cell, Format, StreamTable, Table, bytes_si},
    session::Session,
};
use anyhow::Result;
use api::proto::machine::{DiskUsageInfo, DiskUsageRequest};

#[derive(Debug, clap::Args)]
pub(crate) struct Flags {
    /// Directories or files
    #[arg(default_value = "/")]
    paths: Vec<String>,
    /// Sizes for people
    #[arg(short = 'H', long)]
    humanize: bool,
    /// Files too, not only directories
    #[arg(short, long)]
    all: bool,
    /// Only what is at least so large; if negative, at most so large (bytes)
    #[arg(short, long, default_value_t = 0, allow_negative_numbers = true, value_name = "BYTES")]
    threshold: i64,
    /// Only so many directories deep; 0 for no limit
    #[arg(short, long, default_value_t = 0, value_name = "LEVELS")]
    depth: i32,
}

pub(crate) async fn run(session: &Session, flags: Flags) -> Result<()> {
    let humanize = flags.humanize;
    let request = DiskUsageRequest {
        // The call counts the path itself as a level, and 0 is no limit.
        recursion_depth: if flags.depth > 0 { flags.depth.saturating_add(1) } else { 0 },
        all: flags.all,
        threshold: flags.threshold,
        paths: flags.paths,
    };
    let stream = session.client.machine().disk_usage(session.request(request)).await;
    let several = session.client.nodes().len() > 1;
    let mut lines = StreamTable::with_widths(if several { &[10, 9] } else { &[9] });
    let mut table = Table::new(&[("NODE", "node"), ("SIZE", "size"), ("NAME", "name")]);
    let is_table = session.global.output == Format::Table;
    if is_table {
        output::print(lines.line(&["NODE", "SIZE", "NAME"][usize::from(!several)..]))?;
    }
    let result = session
        .each(stream, |node, usage| {
            if !usage.error.is_empty() {
                // Nodes of earlier versions do not name the path.
                let path = if usage.error.contains(&usage.name) { "" } else { &format!("{}: ", usage.name) };
                session.global.part_failed.warn(format!("{node}: {path}{}", usage.error));
                return Ok(());
            }
            let (text, size) = size(&usage, humanize);
            if is_table {
                let cells = [node, &text, &usage.relative_name];
                return Ok(output::print(lines.line(&cells[usize::from(!several)..]))?);
            }
            table.push(vec![node.into(), Cell::new(text, size), usage.relative_name.into()]);
            Ok(())
        })
        .await;
    if !is_table {
        output::print_table(&table, session.global.output)?;
    }
    result
}

fn size(usage: &DiskUsageInfo, humanize: bool) -> (String, u64) {
    let size = u64::try_from(usage.size).unwrap_or(0);
    (if humanize { bytes_si(size) } else { size.to_string() }, size)
}
