//! Tables.
//!
//! Owns: the look of Go's tabwriter as talosctl uses it: upper-case headings, cells padded to their column, three
//! blanks between, no blanks at the end of a line. Does not: colour, wrap or cut.

use serde_json::{Map, Value};
use std::fmt::{self, Write};

/// Blanks between columns.
const GAP: usize = 3;

/// A column: its heading and its key in YAML and JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Column {
    heading: String,
    key: String,
}

impl Column {
    pub(crate) fn new(heading: impl Into<String>, key: impl Into<String>) -> Self {
        Self { heading: heading.into(), key: key.into() }
    }
}

/// A cell: its text in a table and its value in YAML and JSON.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Cell {
    text: String,
    value: Value,
}

impl Cell {
    pub(crate) fn new(text: impl Into<String>, value: impl Into<Value>) -> Self {
        Self { text: text.into(), value: value.into() }
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::new(text, text)
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::new(text.clone(), text)
    }
}

/// Rows under headings.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    /// A table of `HEADING` and key pairs.
    pub(crate) fn new(columns: &[(&str, &str)]) -> Self {
        Self::of(columns.iter().map(|(heading, key)| Column::new(*heading, *key)).collect())
    }

    /// A table whose columns are known at run time only.
    pub(crate) fn of(columns: Vec<Column>) -> Self {
        Self { columns, rows: Vec::new() }
    }

    /// Adds a row; one cell for each column.
    pub(crate) fn push(&mut self, row: Vec<Cell>) {
        self.rows.push(row);
    }

    /// The rows as objects.
    pub(crate) fn to_value(&self) -> Value {
        let object = |row: &Vec<Cell>| {
            let pairs = self.columns.iter().zip(row).map(|(c, cell)| (c.key.clone(), cell.value.clone()));
            Value::Object(pairs.collect::<Map<_, _>>())
        };
        Value::Array(self.rows.iter().map(object).collect())
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lines = StreamTable::default();
        let headings: Vec<_> = self.columns.iter().map(|c| c.heading.clone()).collect();
        let rows: Vec<Vec<String>> =
            self.rows.iter().map(|r| r.iter().map(|c| c.text.clone()).collect()).collect();
        std::iter::once(&headings).chain(&rows).for_each(|row| lines.widen(row));
        std::iter::once(&headings).chain(&rows).try_for_each(|row| f.write_str(&lines.line(row)))
    }
}

/// A table whose rows come one after the other: columns only ever grow.
#[derive(Debug, Clone, Default)]
pub(crate) struct StreamTable {
    widths: Vec<usize>,
}

impl StreamTable {
    /// A table whose columns begin with these widths.
    pub(crate) fn with_widths(widths: &[usize]) -> Self {
        Self { widths: widths.to_vec() }
    }

    /// One line, newline included. Line breaks inside cells become blanks.
    pub(crate) fn line<T: AsRef<str>>(&mut self, cells: &[T]) -> String {
        self.widen(cells);
        let mut line = String::new();
        for (cell, width) in cells.iter().zip(&self.widths) {
            let text = one_line(cell.as_ref());
            let _ = write!(line, "{text:width$}{:GAP$}", "");
        }
        line.truncate(line.trim_end().len());
        line.push('\n');
        line
    }

    fn widen<T: AsRef<str>>(&mut self, cells: &[T]) {
        self.widths.resize(self.widths.len().max(cells.len()), 0);
        for (width, cell) in self.widths.iter_mut().zip(cells) {
            *width = (*width).max(cell.as_ref().chars().count());
        }
    }
}

fn one_line(text: &str) -> String {
    text.replace(['\n', '\t'], " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new(&[("NODE", "node"), ("SIZE(B)", "size"), ("NAME", "name")]);
        table.push(vec!["10.0.0.1".into(), Cell::new("12", 12), "a".into()]);
        table.push(vec!["n".into(), Cell::new("3", 3), "longer\nname".into()]);
        table
    }

    #[test]
    fn columns_are_padded_and_lines_end_without_blanks() {
        assert_eq!(
            table().to_string(),
            "NODE       SIZE(B)   NAME\n10.0.0.1   12        a\nn          3         longer name\n"
        );
    }

    #[test]
    fn rows_are_objects_with_values() {
        assert_eq!(
            crate::output::json(&table().to_value()).unwrap().split_whitespace().collect::<String>(),
            r#"[{"name":"a","node":"10.0.0.1","size":12},{"name":"longer\nname","node":"n","size":3}]"#
        );
    }

    #[test]
    fn an_empty_table_is_its_headings() {
        assert_eq!(Table::new(&[("A", "a"), ("B", "b")]).to_string(), "A   B\n");
    }

    #[test]
    fn a_stream_grows_its_columns() {
        let mut stream = StreamTable::with_widths(&[4]);
        assert_eq!(stream.line(&["a", "b"]), "a      b\n");
        assert_eq!(stream.line(&["longer", "b"]), "longer   b\n");
        assert_eq!(stream.line(&["a", "b"]), "a        b\n");
    }
}
