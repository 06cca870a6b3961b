//! What is different between two machine configs, and what it takes to put the second into force.
//!
//! Owns: the list of fields that a running node can take ([`WITHOUT_REBOOT`]), and of documents that it cannot
//! ([`DOCUMENTS_WITH_REBOOT`]).
//! Does not: know types or defaults: two documents are compared as trees, so that a comment or an order of keys is
//! no change, and a document kind that this version does not know yet is compared like any other.
//! Fails by: a text that is no YAML; whoever applies a config has read it before.
//! Source: docs/users/config-lifecycle.md.

use std::collections::BTreeMap;

use serde_json::Value;

/// Paths, and everything below them, that take effect while the node runs.
const WITHOUT_REBOOT: &[&str] = &[
    "debug",
    "cluster",
    "machine.ca",
    "machine.acceptedCAs",
    "machine.time",
    "machine.certSANs",
    "machine.install",
    "machine.network",
    "machine.sysfs",
    "machine.sysctls",
    "machine.logging",
    "machine.controlPlane",
    "machine.kubelet",
    "machine.kernel",
    "machine.registries",
    "machine.pods",
    "machine.seccompProfiles",
    "machine.nodeLabels",
    "machine.nodeAnnotations",
    "machine.nodeTaints",
    "machine.features.kubernetesTalosAPIAccess",
    "machine.features.kubePrism",
    "machine.features.hostDNS",
    "machine.features.imageCache",
    "machine.features.nodeAddressSortAlgorithm",
];

/// Kinds of documents that stand for fields which are read at boot only. All others take effect while the node runs.
const DOCUMENTS_WITH_REBOOT: &[&str] =
    &["CRIBaseRuntimeSpecConfig", "CRICustomizationConfig", "EtcFileConfig", "UdevRulesConfig"];

/// The difference between two configs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Change {
    /// Paths of the fields of the main document that differ, sorted: `machine.network.hostname`.
    fields: Vec<String>,
    /// Other documents that differ, sorted: `HostnameConfig/eth0`.
    documents: Vec<String>,
}

impl Change {
    /// Compares two config texts.
    pub(crate) fn between(old: &str, new: &str) -> Result<Self, String> {
        let (old, new) = (Documents::read(old)?, Documents::read(new)?);
        let mut fields = Vec::new();
        compare("", &old.main, &new.main, &mut fields);
        let mut documents: Vec<String> = old.others.keys().chain(new.others.keys()).cloned().collect();
        documents.sort();
        documents.dedup();
        documents.retain(|name| old.others.get(name) != new.others.get(name));
        Ok(Self { fields, documents })
    }

    /// Nothing differs but perhaps comments and order.
    pub(crate) fn is_empty(&self) -> bool {
        self.fields.is_empty() && self.documents.is_empty()
    }

    /// The fields and documents that only a restart of the machine puts into force.
    pub(crate) fn need_reboot(&self) -> Vec<&str> {
        let fields = self.fields.iter().filter(|field| !is_live(field));
        let documents = self.documents.iter().filter(|name| {
            let kind = name.split('/').next().unwrap_or_default();
            DOCUMENTS_WITH_REBOOT.contains(&kind)
        });
        fields.chain(documents).map(String::as_str).collect()
    }

    /// Everything that differs.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &str> {
        self.fields.iter().chain(&self.documents).map(String::as_str)
    }
}

fn is_live(field: &str) -> bool {
    WITHOUT_REBOOT.iter().any(|path| {
        field.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
    })
}

/// Whether a config says of itself that it is for keeps: not without `persist: false`, which has it not taken from the disk.
pub(crate) fn is_for_keeps(text: &str) -> bool {
    !Documents::read(text).is_ok_and(|found| found.main.get("persist") == Some(&Value::Bool(false)))
}

/// The difference as lines with `+` and `-`, with three lines around each change. It may hold secrets.
pub(crate) fn diff(old: &str, new: &str) -> String {
    let lines = similar::TextDiff::from_lines(old, new);
    lines.unified_diff().context_radius(3).header("running", "new").to_string()
}

struct Documents {
    main: Value,
    others: BTreeMap<String, Value>,
}

impl Documents {
    fn read(text: &str) -> Result<Self, String> {
        let options = serde_saphyr::options! { with_snippet: false, strict_booleans: true };
        let all: Vec<Value> =
            serde_saphyr::from_multiple_with_options(text, options).map_err(|e| e.to_string())?;
        let mut found = Self { main: Value::Null, others: BTreeMap::new() };
        for document in all.into_iter().map(without_empty) {
            match name_of(&document) {
                Some(name) => drop(found.others.insert(name, document)),
                None if document.is_null() => {}
                None => found.main = document,
            }
        }
        Ok(found)
    }
}

/// The kind and name of a document that is not the main one.
fn name_of(document: &Value) -> Option<String> {
    let kind = document.get("kind")?.as_str()?;
    let name = document.get("name").and_then(Value::as_str).unwrap_or_default();
    Some(if name.is_empty() { kind.to_owned() } else { format!("{kind}/{name}") })
}

/// A field without a value is as good as none.
fn without_empty(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let kept: serde_json::Map<_, _> = fields
                .into_iter()
                .map(|(name, value)| (name, without_empty(value)))
                .filter(|(_, value)| !is_empty(value))
                .collect();
            Value::Object(kept)
        }
        Value::Array(items) => Value::Array(items.into_iter().map(without_empty).collect()),
        other => other,
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(fields) => fields.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::String(text) => text.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

/// Notes the paths at which two trees part. Lists are one value: an item has no name that would survive a shift.
fn compare(path: &str, old: &Value, new: &Value, out: &mut Vec<String>) {
    if old == new {
        return;
    }
    let below = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    let (Some(old), Some(new)) = (fields(old), fields(new)) else {
        return out.push(path.to_owned());
    };
    let mut names: Vec<&String> = old.keys().chain(new.keys()).collect();
    names.sort();
    names.dedup();
    for name in names {
        let (old, new) = (old.get(name).unwrap_or(&Value::Null), new.get(name).unwrap_or(&Value::Null));
        compare(&below(name), old, new, out);
    }
}

/// A missing tree has no fields: what is added below it is then named field by field.
fn fields(value: &Value) -> Option<std::borrow::Cow<'_, serde_json::Map<String, Value>>> {
    match value {
        Value::Object(fields) => Some(std::borrow::Cow::Borrowed(fields)),
        Value::Null => Some(std::borrow::Cow::Owned(serde_json::Map::new())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: &str =
        "version: v1alpha1\nmachine:\n  type: worker\n  token: a.b\n  network:\n    hostname: one\n";

    fn change(new: &str) -> Change {
        Change::between(BASE, new).unwrap()
    }

    fn paths(new: &str) -> Vec<String> {
        change(new).paths().map(str::to_owned).collect()
    }

    #[test]
    fn comments_order_and_empty_fields_are_no_change() {
        let same = "# mine\nmachine: {token: a.b, type: worker, network: {hostname: one}, certSANs: []}\nversion: v1alpha1\ncluster: {}\n";
        assert!(change(same).is_empty());
        assert!(diff(BASE, BASE).is_empty());
    }

    #[test]
    fn every_live_path_is_live_and_its_neighbours_are_not() {
        for path in WITHOUT_REBOOT {
            assert!(is_live(path) && is_live(&format!("{path}.x")), "{path}");
            assert!(!is_live(&format!("{path}x")), "{path}");
        }
        for path in
            ["machine.type", "machine.token", "machine", "version", "machine.files", "machine.features"]
        {
            assert!(!is_live(path), "{path}");
        }
    }

    #[test]
    fn changes_are_named_to_the_leaf() {
        let new = "version: v1alpha1\nmachine:\n  type: controlplane\n  token: a.b\n  network:\n    hostname: two\n  sysctls:\n    vm.swappiness: \"1\"\n";
        assert_eq!(paths(new), ["machine.network.hostname", "machine.sysctls.vm.swappiness", "machine.type"]);
        assert_eq!(change(new).need_reboot(), ["machine.type"]);
    }

    #[test]
    fn a_section_that_becomes_a_scalar_is_one_change() {
        assert_eq!(paths("version: v1alpha1\nmachine: 5\n"), ["machine"]);
        assert_eq!(change("version: v1alpha1\nmachine: 5\n").need_reboot(), ["machine"]);
    }

    #[test]
    fn documents_need_a_reboot_where_their_fields_do() {
        let new = format!(
            "{BASE}---\napiVersion: v1alpha1\nkind: HostnameConfig\nhostname: two\n---\nkind: LinkConfig\nname: eth0\nup: true\n"
        );
        assert_eq!(paths(&new), ["HostnameConfig", "LinkConfig/eth0"]);
        assert!(change(&new).need_reboot().is_empty());
        assert!(Change::between(&new, &new).unwrap().is_empty());
        let new = format!(
            "{BASE}---\nkind: SysctlConfig\nparams: {{a: b}}\n---\nkind: CRICustomizationConfig\nname: a\ncontent: b\n---\nkind: UdevRulesConfig\nrules: [a]\n"
        );
        assert_eq!(change(&new).need_reboot(), ["CRICustomizationConfig/a", "UdevRulesConfig"]);
    }

    #[test]
    fn the_diff_shows_both_sides() {
        let text = diff(BASE, &BASE.replace("one", "two"));
        assert!(text.contains("-    hostname: one\n") && text.contains("+    hostname: two\n"), "{text}");
    }

    #[test]
    fn a_config_is_for_keeps_unless_it_says_otherwise() {
        assert!(!is_for_keeps("version: v1alpha1\npersist: false\n"));
        assert!(is_for_keeps("version: v1alpha1\npersist: true\n") && is_for_keeps(BASE));
    }

    #[test]
    fn broken_text_is_an_error() {
        assert!(Change::between(BASE, "a: [").is_err());
    }
}
