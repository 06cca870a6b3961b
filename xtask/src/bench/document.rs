//! What measurements write: a JSON each, and their parts of docs/benchmarks.md.
//!
//! Owns: replacing what stands between a command's two marks. Does not: touch anything else in the document.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::command::Cmd;
use crate::place;
use crate::step::note;

const DOCUMENT: &str = "docs/benchmarks.md";
const END: &str = "<!-- end of what is written -->";

/// Writes the figures with all their digits as `<name>.json`.
pub(crate) fn keep(directory: &Path, name: &str, figures: &Value) -> Result<()> {
    let path = directory.join(format!("{name}.json"));
    let text = serde_json::to_string_pretty(figures).context("serialise the report")?;
    std::fs::write(&path, text + "\n").with_context(|| format!("write {}", path.display()))?;
    note(&format!("written: {}", path.display()));
    Ok(())
}

/// Prints what `cargo xtask bench <name>` found and writes it between that command's marks.
pub(crate) fn write(name: &str, text: &str) -> Result<()> {
    print!("\n{text}");
    let path = place::repository().join(DOCUMENT);
    let before = std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    std::fs::write(&path, between_marks(&before, name, text)?)
        .with_context(|| format!("write {}", path.display()))?;
    note(&format!("written: {DOCUMENT}"));
    Ok(())
}

pub(crate) fn today() -> Result<String> {
    Ok(Cmd::new("date").args(["-u", "+%F"]).read()?.trim().to_owned())
}

/// The short hash of what is checked out.
pub(crate) fn commit() -> Result<String> {
    let command = Cmd::new("git").args(["rev-parse", "--short", "HEAD"]).directory(&place::repository());
    Ok(command.read()?.trim().to_owned())
}

pub(crate) fn qemu_version() -> Result<String> {
    let text = Cmd::new(qemu_tests::accel::QEMU).arg("--version").read()?;
    let line = text.lines().next().unwrap_or_default();
    Ok(line.trim_start_matches("QEMU emulator version ").split(' ').next().unwrap_or_default().to_owned())
}

fn between_marks(document: &str, name: &str, text: &str) -> Result<String> {
    let begin = format!("<!-- written by `cargo xtask bench {name}` -->\n");
    let marks = document.split_once(&begin).and_then(|(head, rest)| Some((head, rest.split_once(END)?.1)));
    let (head, tail) =
        marks.with_context(|| format!("{DOCUMENT} has lost the marks around what bench {name} writes"))?;
    ensure!(!text.contains(END), "the table holds the mark of its end");
    Ok(format!("{head}{begin}{text}{END}{tail}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_between_the_marks_changes() {
        let other = format!("<!-- written by `cargo xtask bench other` -->\nkept\n{END}\n");
        let begin = "<!-- written by `cargo xtask bench boot` -->\n";
        let before = format!("# Title\n\n{other}{begin}old\n{END}\n\nText.\n");
        let after = between_marks(&before, "boot", "new\n").unwrap();
        assert_eq!(after, format!("# Title\n\n{other}{begin}new\n{END}\n\nText.\n"));
        assert_eq!(between_marks(&after, "boot", "new\n").unwrap(), after);
        assert!(between_marks("# Title\n", "boot", "new\n").is_err());
    }
}
