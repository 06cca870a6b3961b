//! Resources as a table.
//!
//! Owns: the fixed columns, those of the type's definition, and the column of a watched table.

use super::{
    definition::Definition,
    document::{Change, typed},
    json_path,
};
use crate::output::StreamTable;
use anyhow::{Context as _, Result};
use api::proto::cosi::resource::Resource;

/// A growing table; rows wait until [`Rows::flush`] or the end.
pub(super) struct Rows {
    display: String,
    paths: Vec<String>,
    waiting: Vec<Vec<String>>,
    table: StreamTable,
    live: bool,
}

impl Rows {
    /// The headings of `definition`'s table.
    pub(super) fn new(definition: &Definition, watched: bool) -> Self {
        let star = watched.then(|| "*".to_owned());
        let fixed = ["NAMESPACE", "TYPE", "ID", "VERSION"].map(str::to_owned);
        let own = definition.columns.iter().map(|(heading, _)| heading.clone());
        let headings = std::iter::once("NODE".to_owned()).chain(star).chain(fixed).chain(own).collect();
        Self {
            display: definition.display.clone(),
            paths: definition.columns.iter().map(|(_, path)| path.clone()).collect(),
            waiting: vec![headings],
            table: StreamTable::default(),
            live: false,
        }
    }

    /// Adds one resource.
    pub(super) fn add(&mut self, node: &str, change: Option<Change>, resource: &Resource) -> Result<()> {
        let m = resource.metadata.clone().unwrap_or_default();
        let spec = typed(resource).with_context(|| format!("{} `{}`", m.r#type, m.id))?;
        let mut row = vec![node.to_owned()];
        row.extend(change.map(|c| c.sign().to_owned()));
        row.extend([m.namespace, self.display.clone(), m.id, m.version]);
        row.extend(self.paths.iter().map(|path| json_path::text(path, &spec)));
        self.waiting.push(row);
        Ok(())
    }

    /// The waiting rows; from now on the table is live.
    pub(super) fn flush(&mut self) -> String {
        self.live = true;
        let waiting = std::mem::take(&mut self.waiting);
        // Once to widen the columns, once to print.
        waiting.iter().for_each(|row| drop(self.table.line(row)));
        waiting.iter().map(|row| self.table.line(row)).collect()
    }

    /// Whether rows are printed as they come.
    pub(super) fn is_live(&self) -> bool {
        self.live
    }

    /// The whole table.
    pub(super) fn finish(mut self) -> String {
        self.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::document::tests::{resource, service},
        *,
    };

    fn definition() -> Definition {
        Definition {
            kind: "Services.v1alpha1.talos.dev".into(),
            display: "Service".into(),
            default_namespace: "runtime".into(),
            columns: vec![("RUNNING".into(), "{.running}".into()), ("HEALTHY".into(), "{.healthy}".into())],
            sensitive: false,
        }
    }

    #[test]
    fn the_table() {
        let mut rows = Rows::new(&definition(), false);
        rows.add("n", None, &service("apid", true)).unwrap();
        assert_eq!(
            rows.finish(),
            "NODE   NAMESPACE   TYPE      ID     VERSION   RUNNING   HEALTHY\n\
             n      runtime     Service   apid   2         true      false\n"
        );
    }

    #[test]
    fn a_type_whose_binary_form_is_missing_is_wrong_in_the_table() {
        for watched in [None, Some(Change::Updated)] {
            let mut rows = Rows::new(&definition(), watched.is_some());
            rows.add("n", watched, &resource("apid", "running: true\nhealthy: true")).unwrap();
            let table = rows.finish();
            assert!(!table.contains("true") && table.contains("false     false\n"), "{table}");
        }
    }

    #[test]
    fn a_watched_table_is_live_after_the_first_flush() {
        let mut rows = Rows::new(&definition(), true);
        rows.add("n", Some(Change::Created), &service("apid", true)).unwrap();
        assert!(!rows.is_live());
        assert_eq!(
            rows.flush(),
            "NODE   *   NAMESPACE   TYPE      ID     VERSION   RUNNING   HEALTHY\n\
             n      +   runtime     Service   apid   2         true      false\n"
        );
        rows.add("n", Some(Change::Destroyed), &service("apid", false)).unwrap();
        assert_eq!(rows.flush(), "n      -   runtime     Service   apid   2         false     false\n");
        assert!(rows.is_live());
    }
}
