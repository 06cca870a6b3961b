//! Strategic merge patches.
//!
//! Owns: the rules. Maps merge by key, lists append, except the places of [`KEYED`] (elements with the same key merge)
//! and [`REPLACED`] (the patch's value stands alone). A value that Go calls zero (null, empty text, 0) leaves what is
//! there; `false` does not. `$patch: delete` takes away the map it stands in; in a list, the elements that have the
//! values beside it. Documents are found by kind and name; a new one is appended.
//! Source: shared/spec/machine-facts-v1.13.md §9.2.

use super::{PatchError, described, listed, tree::Node};

/// The key that asks for something else than merging.
const DIRECTIVE: &str = "$patch";

/// Lists whose elements are found by a key, and the keys, of which the first that an element has counts.
const KEYED: &[(&str, &[&str])] = &[
    ("machine.network.interfaces", &["interface", "deviceSelector"]),
    ("machine.network.interfaces.vlans", &["vlanId"]),
    ("cluster.apiServer.admissionControl", &["name"]),
];

/// Places where the patch's value replaces the old one.
const REPLACED: &[&str] =
    &["cluster.network.podSubnets", "cluster.network.serviceSubnets", "cluster.apiServer.auditPolicy"];

/// Lays `pieces` over the documents.
pub(super) fn apply(documents: &mut Vec<Node>, pieces: &[Node], patch: usize) -> Result<(), PatchError> {
    let mut changed = documents.clone();
    for piece in pieces {
        document(&mut changed, piece).map_err(|(path, reason)| PatchError::Merge { patch, path, reason })?;
    }
    *documents = changed;
    Ok(())
}

/// A fault: path and reason.
type Fault = (String, String);

fn document(documents: &mut Vec<Node>, piece: &Node) -> Result<(), Fault> {
    let identity = Identity::of(piece);
    let found = documents.iter().position(|d| Identity::of(d) == identity);
    if is_deletion(piece, &identity.path())? {
        let at = found.ok_or_else(|| {
            let known: Vec<_> = documents.iter().map(|d| Identity::of(d).path()).collect();
            let known = listed(known.iter().map(String::as_str));
            (identity.path(), format!("there is no such document to delete; there is {known}"))
        })?;
        documents.remove(at);
        return Ok(());
    }
    match found {
        Some(at) => merge(&mut documents[at], piece, &Place::default()),
        None => {
            documents.push(cleaned(piece, &Place::default())?);
            Ok(())
        }
    }
}

/// What tells documents apart.
#[derive(PartialEq)]
struct Identity<'a> {
    kind: Option<&'a str>,
    name: Option<&'a str>,
}

impl<'a> Identity<'a> {
    fn of(document: &'a Node) -> Self {
        let text = |key| document.get(key).and_then(Node::text);
        match text("kind") {
            None => Self { kind: None, name: None },
            kind => Self { kind, name: text("name") },
        }
    }

    fn path(&self) -> String {
        match (self.kind, self.name) {
            (None, _) => "the v1alpha1 document".to_owned(),
            (Some(kind), None) => kind.to_owned(),
            (Some(kind), Some(name)) => format!("{kind} {name}"),
        }
    }
}

/// Where the merge stands, without list indices: the rules' paths.
#[derive(Clone, Default)]
struct Place(String);

impl Place {
    fn below(&self, key: &str) -> Self {
        if self.0.is_empty() { Self(key.to_owned()) } else { Self(format!("{}.{key}", self.0)) }
    }

    fn keys(&self) -> &'static [&'static str] {
        KEYED.iter().find(|(path, _)| *path == self.0).map_or(&[], |(_, keys)| keys)
    }

    fn is_replaced(&self) -> bool {
        // One argument is a text or a list of them, and the patch's stands for the old one.
        let is_argument = self.0.rsplit_once('.').is_some_and(|(map, _)| map.ends_with(".extraArgs"));
        is_argument || REPLACED.contains(&self.0.as_str())
    }

    fn fault(&self, reason: String) -> Fault {
        (if self.0.is_empty() { "the top".to_owned() } else { self.0.clone() }, reason)
    }
}

fn merge(target: &mut Node, piece: &Node, place: &Place) -> Result<(), Fault> {
    match (target, piece) {
        (_, Node::Scalar(new)) if new.is_unset() => Ok(()),
        (old, new) if place.is_replaced() => {
            *old = cleaned(new, place)?;
            Ok(())
        }
        (Node::Map(old), Node::Map(new)) => maps(old, new, place),
        (Node::List(old), Node::List(new)) => lists(old, new, place),
        (old @ Node::Scalar(_), Node::Scalar(_)) => {
            *old = piece.clone();
            Ok(())
        }
        (old @ Node::Scalar(_), _) if old.text().is_none() => {
            *old = cleaned(piece, place)?;
            Ok(())
        }
        (old, new) => {
            let reason = format!(
                "the patch has {}, but there is {}; a JSON patch can replace it",
                described(new),
                described(old)
            );
            Err(place.fault(reason))
        }
    }
}

fn maps(old: &mut Vec<(String, Node)>, new: &[(String, Node)], place: &Place) -> Result<(), Fault> {
    for (key, value) in new {
        let below = place.below(key);
        let found = old.iter().position(|(k, _)| k == key);
        if is_deletion(value, &below.0)? {
            let Some(at) = found else {
                let names = listed(old.iter().map(|(k, _)| k.as_str()));
                return Err(below.fault(format!("there is nothing to delete; beside it there is {names}")));
            };
            old.remove(at);
            continue;
        }
        match found {
            Some(at) => merge(&mut old[at].1, value, &below)?,
            None => old.push((key.clone(), cleaned(value, &below)?)),
        }
    }
    Ok(())
}

fn lists(old: &mut Vec<Node>, new: &[Node], place: &Place) -> Result<(), Fault> {
    for item in new {
        if is_deletion(item, &place.0)? {
            delete_elements(old, item, place)?;
            continue;
        }
        let twin = identity_of(item, place.keys())
            .and_then(|(key, value)| old.iter().position(|o| o.get(key).is_some_and(|v| v.same(value))));
        match twin {
            Some(at) => merge(&mut old[at], item, place)?,
            None => old.push(cleaned(item, place)?),
        }
    }
    Ok(())
}

/// The first of `keys` that an element has, with its value.
fn identity_of<'a>(item: &'a Node, keys: &[&'static str]) -> Option<(&'static str, &'a Node)> {
    keys.iter().find_map(|key| item.get(key).map(|value| (*key, value)))
}

fn delete_elements(old: &mut Vec<Node>, selector: &Node, place: &Place) -> Result<(), Fault> {
    let Node::Map(entries) = selector else { return Ok(()) };
    let wanted: Vec<_> = entries.iter().filter(|(k, _)| k != DIRECTIVE).collect();
    if wanted.is_empty() {
        let reason = "`$patch: delete` in a list needs a field that says which element: \
                      `- interface: eth0` and `$patch: delete` below it";
        return Err(place.fault(reason.to_owned()));
    }
    let before = old.len();
    old.retain(|item| !wanted.iter().all(|(k, v)| item.get(k).is_some_and(|found| found.same(v))));
    if old.len() < before {
        return Ok(());
    }
    let fields = listed(wanted.iter().map(|(k, _)| k.as_str()));
    Err(place.fault(format!("none of its {before} elements has the value given for {fields}")))
}

/// Whether `$patch: delete` stands in a map.
fn is_deletion(node: &Node, path: &str) -> Result<bool, Fault> {
    match node.get(DIRECTIVE).map(|d| d.text().unwrap_or_default()) {
        None => Ok(false),
        Some("delete") => Ok(true),
        Some(_) => Err((path.to_owned(), "`$patch` takes `delete` only".to_owned())),
    }
}

/// A piece that goes where nothing was: it can not delete anything there.
fn cleaned(piece: &Node, place: &Place) -> Result<Node, Fault> {
    if is_deletion(piece, &place.0)? {
        return Err(place.fault("there is nothing to delete".to_owned()));
    }
    Ok(match piece {
        Node::Scalar(_) => piece.clone(),
        Node::List(items) => {
            Node::List(items.iter().map(|item| cleaned(item, place)).collect::<Result<_, _>>()?)
        }
        Node::Map(entries) => {
            let entry = |(k, v): &(String, Node)| Ok((k.clone(), cleaned(v, &place.below(k))?));
            Node::Map(entries.iter().map(entry).collect::<Result<_, Fault>>()?)
        }
    })
}
