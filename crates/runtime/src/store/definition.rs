//! A resource definition: the name of a type in all its spellings, where it lives, what a table shows of it.
//!
//! Source: crates/api/proto/cosi/resource/meta.proto (order of `all_aliases`); crates/api/tests/data/resources.tsv.

use api::definitions::{PUBLISHED, Published};

pub use api::definitions::Column;

/// Who may read a type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sensitivity {
    /// Every reader.
    NonSensitive,
    /// `os:admin` only.
    Sensitive,
}

/// Everything about a type that is not a resource of it.
#[derive(Debug, PartialEq, Eq)]
pub struct Definition {
    /// `<PluralCamel>.<suffix>`.
    pub kind: &'static str,
    /// Singular, for tables: `MachineConfig`.
    pub display: &'static str,
    /// Where its resources live.
    pub namespace: &'static str,
    /// Declared short names.
    pub aliases: &'static [&'static str],
    /// Extra table columns.
    pub columns: &'static [Column],
    /// Who may read it.
    pub sensitivity: Sensitivity,
    /// Whether its capitals are a name too; not where an older type has the same ones.
    pub abbreviated: bool,
    /// Only names with the suffix are its own; where an older type has the same plural.
    pub qualified: bool,
    /// Never visible through the API.
    pub internal: bool,
    /// The one that may write resources of this type; empty: nothing does, the node lacks what it tells of.
    pub writer: &'static str,
}

/// A type of our own, to be completed: readable by every reader, with short words, written by nothing yet.
pub(super) const PLAIN: Definition = Definition {
    kind: "",
    display: "",
    namespace: "runtime",
    aliases: &[],
    columns: &[],
    sensitivity: Sensitivity::NonSensitive,
    abbreviated: true,
    qualified: false,
    internal: false,
    writer: "",
};

pub(super) const fn column(name: &'static str, path: &'static str) -> Column {
    Column { name, path }
}

impl Definition {
    /// The id of its ResourceDefinition.
    pub fn id(&self) -> String {
        self.kind.to_ascii_lowercase()
    }

    /// A published type that something of this node writes.
    pub(super) const fn published(kind: &str, writer: &'static str) -> Self {
        let mut at = 0;
        while at < PUBLISHED.len() {
            if same_name(PUBLISHED[at].kind.as_bytes(), kind.as_bytes(), false) {
                return Self { writer, ..Self::unwritten(&PUBLISHED[at], false) };
            }
            at += 1;
        }
        panic!("no published type has this name")
    }

    /// A type that clients know and nothing of this node writes.
    pub(super) const fn unwritten(known: &Published, qualified: bool) -> Self {
        Self {
            kind: known.kind,
            display: known.display,
            namespace: known.namespace,
            aliases: known.aliases,
            columns: known.columns,
            sensitivity: if known.sensitive { Sensitivity::Sensitive } else { Sensitivity::NonSensitive },
            // Short words stay with the types that have something to show.
            abbreviated: false,
            qualified,
            internal: false,
            writer: "",
        }
    }

    fn plural(&self) -> &'static str {
        self.kind.split_once('.').map_or(self.kind, |(plural, _)| plural)
    }

    /// The `aliases` of the definition: declared, singular, and the capitals when there are two or more.
    pub fn short_aliases(&self) -> Vec<String> {
        let mut names: Vec<String> = self.aliases.iter().map(|&alias| alias.to_owned()).collect();
        if !self.qualified {
            push_new(&mut names, self.display.to_ascii_lowercase());
        }
        let capitals: String = self.plural().chars().filter(char::is_ascii_uppercase).collect();
        if self.abbreviated && capitals.len() >= 2 {
            push_new(&mut names, capitals.to_ascii_lowercase());
            if !capitals.ends_with('S') {
                push_new(&mut names, format!("{}s", capitals.to_ascii_lowercase()));
            }
        }
        names
    }

    /// Everything a client may type for it, its id apart.
    pub fn all_aliases(&self) -> Vec<String> {
        let id = self.id();
        let dots = id.match_indices('.').map(|(at, _)| at).skip(usize::from(self.qualified));
        let mut names: Vec<String> = dots.map(|at| id[..at].to_owned()).collect();
        for alias in self.short_aliases() {
            push_new(&mut names, alias);
        }
        names
    }

    /// Whether a word typed by a client names this type.
    pub fn answers_to(&self, word: &str) -> bool {
        let word = word.to_ascii_lowercase();
        self.id() == word || self.all_aliases().contains(&word)
    }
}

/// Whether two names are equal; with `plural`, up to their first dot.
pub(super) const fn same_name(left: &[u8], right: &[u8], plural: bool) -> bool {
    let mut at = 0;
    while at < left.len() && at < right.len() && left[at] == right[at] {
        if plural && left[at] == b'.' {
            return true;
        }
        at += 1;
    }
    at == left.len() && at == right.len()
}

fn push_new(names: &mut Vec<String>, name: String) {
    if !names.contains(&name) {
        names.push(name);
    }
}

#[cfg(test)]
mod tests {
    use crate::store::{HOSTNAME_STATUS, MACHINE_CONFIG, SERVICE};

    #[test]
    fn aliases_follow_the_order_of_the_spec() {
        let expected = [
            "machineconfigs",
            "machineconfigs.config",
            "machineconfigs.config.talos",
            "machineconfig",
            "mc",
            "mcs",
        ];
        assert_eq!(MACHINE_CONFIG.all_aliases(), expected);
        assert_eq!(
            SERVICE.all_aliases(),
            ["services", "services.v1alpha1", "services.v1alpha1.talos", "svc", "service"]
        );
        assert_eq!(HOSTNAME_STATUS.short_aliases(), ["hostname", "hostnamestatus", "hs"]);
    }

    #[test]
    fn words_match_in_any_case() {
        assert!(SERVICE.answers_to("SVC") && SERVICE.answers_to("Services.v1alpha1.talos.dev"));
        assert!(!SERVICE.answers_to("serv"));
    }
}
