//! Which resources a label or id query selects.
//!
//! Owns: the operators. Several queries: any of them; the terms of one: all of them.
//! Fails by: `InvalidArgument` for a pattern or operator that cannot be read.
//! Source: crates/api/proto/cosi/resource/state.proto.

use std::collections::BTreeMap;

use api::proto::cosi::resource as proto;
use api::proto::cosi::resource::label_term::Operation;
use regex::bytes::{Regex, RegexBuilder};
use tonic::Status;

use super::query;

use runtime::store::Resource;

/// Largest compiled pattern: a query must not take the node's memory.
const PATTERN_BYTES: usize = 1 << 20;

/// What a request selects; nothing in it selects everything.
#[derive(Debug, Default)]
pub(super) struct Selection {
    labels: Vec<Vec<Term>>,
    id: Option<Regex>,
}

#[derive(Debug)]
struct Term {
    key: String,
    operation: Operation,
    values: Vec<String>,
    invert: bool,
}

impl Selection {
    /// Reads the queries of a request.
    pub(super) fn new(labels: &[proto::LabelQuery], id: Option<&proto::IdQuery>) -> Result<Self, Status> {
        let labels: Result<Vec<Vec<Term>>, Status> = labels
            .iter()
            .filter(|query| !query.terms.is_empty())
            .map(|query| query.terms.iter().map(Term::new).collect())
            .collect();
        let id = match id.map(|query| query.regexp.as_str()).filter(|pattern| !pattern.is_empty()) {
            Some(pattern) => Some(compile(pattern)?),
            None => None,
        };
        Ok(Self { labels: labels?, id })
    }

    pub(super) fn selects(&self, resource: &Resource) -> bool {
        let metadata = &resource.metadata;
        let id = self.id.as_ref().is_none_or(|pattern| pattern.is_match(metadata.id.as_bytes()));
        let holds = |terms: &Vec<Term>| terms.iter().all(|term| term.holds(&metadata.labels));
        id && (self.labels.is_empty() || self.labels.iter().any(holds))
    }
}

/// A pattern as the client's language reads it: classes like `\w` are ASCII.
fn compile(pattern: &str) -> Result<Regex, Status> {
    RegexBuilder::new(pattern).unicode(false).size_limit(PATTERN_BYTES).build().map_err(|e| {
        // Its words have the whole pattern in them.
        let (pattern, reason) = (query::quoted(pattern), query::shortened(&e.to_string()));
        Status::invalid_argument(format!("id query {pattern}: {reason}"))
    })
}

impl Term {
    fn new(term: &proto::LabelTerm) -> Result<Self, Status> {
        let operation = Operation::try_from(term.op)
            .map_err(|_| Status::invalid_argument(format!("label query: unknown operator {}", term.op)))?;
        let takes_value = !matches!(operation, Operation::Exists | Operation::NotExists);
        if takes_value && term.value.is_empty() {
            let key = query::quoted(&term.key);
            let text = format!("label query: {} of {key} needs a value", operation.as_str_name());
            return Err(Status::invalid_argument(text));
        }
        Ok(Self { key: term.key.clone(), operation, values: term.value.clone(), invert: term.invert })
    }

    fn holds(&self, labels: &BTreeMap<String, String>) -> bool {
        let label = labels.get(&self.key).map(String::as_str);
        let value = self.values.first().map_or("", String::as_str);
        let numeric = |holds: fn(&i64, &i64) -> bool| {
            let pair = label.and_then(|label| label.parse().ok()).zip(value.parse().ok());
            pair.is_some_and(|(label, value)| holds(&label, &value))
        };
        let found = match self.operation {
            Operation::Exists => label.is_some(),
            Operation::NotExists => label.is_none(),
            Operation::Equal => label == Some(value),
            Operation::In => label.is_some_and(|label| self.values.iter().any(|value| value == label)),
            Operation::Lt => label.is_some_and(|label| label < value),
            Operation::Lte => label.is_some_and(|label| label <= value),
            Operation::LtNumeric => numeric(i64::lt),
            Operation::LteNumeric => numeric(i64::le),
        };
        found != self.invert
    }
}

#[cfg(test)]
mod tests {
    use runtime::store::{SERVICE, ServiceStatus, Spec, Store};

    use super::*;

    fn resource(id: &str, labels: &[(&str, &str)]) -> Resource {
        let store = Store::new();
        let spec = Spec::Service(ServiceStatus { running: true, healthy: true, unknown: false });
        store.put(SERVICE.writer, &SERVICE, id, spec).unwrap();
        let mut resource = (*store.get(&SERVICE, id).unwrap()).clone();
        resource.metadata.labels = labels.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect();
        resource
    }

    fn query(key: &str, op: Operation, values: &[&str], invert: bool) -> proto::LabelQuery {
        let value = values.iter().map(ToString::to_string).collect();
        proto::LabelQuery { terms: vec![proto::LabelTerm { key: key.into(), op: op.into(), value, invert }] }
    }

    #[test]
    fn every_operator() {
        let r = resource("x", &[("n", "10"), ("word", "b")]);
        let holds = |key: &str, op, values: &[&str]| {
            let plain = Selection::new(&[query(key, op, values, false)], None).unwrap().selects(&r);
            let inverted = Selection::new(&[query(key, op, values, true)], None).unwrap().selects(&r);
            assert_ne!(plain, inverted);
            plain
        };
        assert!(holds("n", Operation::Exists, &[]) && !holds("m", Operation::Exists, &[]));
        assert!(holds("m", Operation::NotExists, &[]) && !holds("n", Operation::NotExists, &[]));
        assert!(holds("word", Operation::Equal, &["b"]) && !holds("word", Operation::Equal, &["a"]));
        assert!(holds("word", Operation::In, &["a", "b"]) && !holds("word", Operation::In, &["a"]));
        assert!(holds("word", Operation::Lt, &["c"]) && !holds("word", Operation::Lt, &["b"]));
        assert!(holds("word", Operation::Lte, &["b"]) && !holds("word", Operation::Lte, &["a"]));
        // As words 10 is less than 9, as numbers it is not.
        assert!(holds("n", Operation::Lt, &["9"]) && !holds("n", Operation::LtNumeric, &["9"]));
        assert!(holds("n", Operation::LteNumeric, &["10"]) && !holds("word", Operation::LtNumeric, &["10"]));
    }

    #[test]
    fn terms_are_all_wanted_and_queries_are_alternatives() {
        let r = resource("x", &[("a", "1")]);
        let (yes, no) =
            (query("a", Operation::Exists, &[], false), query("b", Operation::Exists, &[], false));
        let both = proto::LabelQuery { terms: [yes.terms.clone(), no.terms.clone()].concat() };
        assert!(!Selection::new(&[both], None).unwrap().selects(&r));
        assert!(Selection::new(&[no.clone(), yes], None).unwrap().selects(&r));
        assert!(!Selection::new(&[no], None).unwrap().selects(&r));
        assert!(Selection::new(&[proto::LabelQuery::default()], None).unwrap().selects(&r));
    }

    #[test]
    fn ids_match_patterns_and_bad_queries_are_refused() {
        let r = resource("kube-system/pod-1", &[]);
        let id = |regexp: &str| Selection::new(&[], Some(&proto::IdQuery { regexp: regexp.into() }));
        assert!(id("").unwrap().selects(&r));
        assert!(id(r"^kube-\w+/pod-\d$").unwrap().selects(&r));
        assert!(!id("^pod").unwrap().selects(&r));
        assert!(id("(").unwrap_err().message().contains("id query \"(\""));
        assert!(id(&"(a{999}){999}".repeat(9)).is_err(), "a pattern without end");
        let empty = query("a", Operation::Equal, &[], false);
        assert!(Selection::new(&[empty], None).unwrap_err().message().contains("needs a value"));
        let mut unknown = query("a", Operation::Exists, &[], false);
        unknown.terms[0].op = 99;
        assert!(Selection::new(&[unknown], None).is_err());
    }
}
