//! Printing.
//!
//! Owns: tables in the look of talosctl, the same rows as YAML or JSON, texts for times and sizes, how far a long
//! operation is.
//! Does not: know any command.

pub(crate) mod progress;
mod table;
mod text;

pub(crate) use ondisk::printable::{line, printable, shown};
pub(crate) use table::{Cell, Column, StreamTable, Table};
pub(crate) use text::{bytes_si, go_duration, local_time};

use clap::ValueEnum;
use serde_json::Value;
use std::io::{self, IsTerminal as _, Write};

/// How rows are printed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Columns.
    #[default]
    Table,
    /// YAML.
    Yaml,
    /// JSON.
    Json,
}

/// Writes to stdout at once. On a terminal nothing of the text acts on it.
pub(crate) fn print(text: impl AsRef<[u8]>) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    match stdout.is_terminal() {
        true => stdout.write_all(&printable(text.as_ref()))?,
        false => stdout.write_all(text.as_ref())?,
    }
    stdout.flush()
}

/// Writes a line to stderr, terminal or not. Nothing of the text acts there.
pub(crate) fn note(text: &str) {
    eprintln!("{}", shown(text));
}

/// Cursor home, then clear to the end of the screen (ECMA-48).
pub(crate) fn clear_screen() -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(b"\x1b[H\x1b[J")?;
    stdout.flush()
}

/// Prints a table in the wanted form.
pub(crate) fn print_table(table: &Table, format: Format) -> anyhow::Result<()> {
    let text = match format {
        Format::Table => table.to_string(),
        Format::Yaml => yaml(&table.to_value())?,
        Format::Json => json(&table.to_value())?,
    };
    Ok(print(text)?)
}

/// YAML text of a value.
pub(crate) fn yaml(value: &Value) -> anyhow::Result<String> {
    let options = serde_saphyr::ser_options! { indent_step: 4, compact_list_indent: false, prefer_block_scalars: false };
    Ok(serde_saphyr::to_string_with_options(value, options)?)
}

/// JSON text of a value, indented by four as talosctl does.
pub(crate) fn json(value: &Value) -> anyhow::Result<String> {
    let mut out = Vec::new();
    let formatter = serde_json::ser::PrettyFormatter::with_indent(b"    ");
    let mut serializer = serde_json::Serializer::with_formatter(&mut out, formatter);
    serde::Serialize::serialize(value, &mut serializer)?;
    out.push(b'\n');
    Ok(String::from_utf8(out)?)
}
