//! Strategic merge patches.
//!
//! Owns: the rules. Maps merge by key, lists append, except the places of [`KEYED`] (elements with the same key merge)
//! and [`REPLACED`] (the patch's value stands alone), and maps of a certificate and its key, which belong together
//! ([`is_key_pair`]). A value that Go calls zero (null, empty text, 0) leaves what is there; `false` does not.
//! `$patch: delete` takes away the map it stands in; in a list, the elements that have the values beside it; where
//! nothing is, nothing is deleted. Documents are found by kind and name; a new one is appended.
//! Source: docs/users/editing-config.md.

use super::{PatchError, described, tree::Node};

/// The key that asks for something else than merging.
const DIRECTIVE: &str = "$patch";

/// Lists whose elements are found by a key, and the keys, of which the first that an element has counts.
const KEYED: &[(&str, &[&str])] = &[
    ("machine.network.interfaces", &["interface", "deviceSelector"]),
    ("machine.network.interfaces.vlans", &["vlanId"]),
    ("cluster.apiServer.admissionControl", &["name"]),
    // of an ExtensionServiceConfig
    ("configFiles", &["mountPath"]),
];

/// Places where the patch's value replaces the old one.
const REPLACED: &[&str] =
    &["cluster.network.podSubnets", "cluster.network.serviceSubnets", "cluster.apiServer.auditPolicy"];

/// Certificates with their keys: machine config, documents of v1.13 and of v1.14.
const KEY_PAIRS: &[&str] =
    &["machine.ca", "cluster.ca", "cluster.aggregatorCA", "cluster.etcd.ca", "clientIdentity", "issuingCA"];

/// Whether a map at this path holds a certificate with its key. Half of an old pair is never kept beside half of a new one.
fn is_key_pair(path: &str) -> bool {
    let of_registry = path.starts_with("machine.registries.config.") && path.ends_with(".tls.clientIdentity");
    of_registry || KEY_PAIRS.contains(&path)
}

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
    match (found, is_deletion(piece, &identity.path())?) {
        (Some(at), true) => drop(documents.remove(at)),
        (Some(at), false) => merge(&mut documents[at], piece, &Place::default())?,
        (None, true) => {}
        (None, false) => documents.extend(cleaned(piece, &Place::default())?),
    }
    Ok(())
}

/// What tells documents apart.
#[derive(PartialEq)]
pub(super) struct Identity<'a> {
    kind: Option<&'a str>,
    name: Option<&'a str>,
}

impl<'a> Identity<'a> {
    pub(super) fn of(document: &'a Node) -> Self {
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
        is_argument || is_key_pair(&self.0) || REPLACED.contains(&self.0.as_str())
    }

    fn fault(&self, reason: String) -> Fault {
        (if self.0.is_empty() { "the top".to_owned() } else { self.0.clone() }, reason)
    }
}

fn merge(target: &mut Node, piece: &Node, place: &Place) -> Result<(), Fault> {
    match (target, piece) {
        (_, Node::Scalar(new)) if new.is_unset() => Ok(()),
        (old, new) if place.is_replaced() => replace(old, new, place),
        (Node::Map(old), Node::Map(new)) => maps(old, new, place),
        (Node::List(old), Node::List(new)) => lists(old, new, place),
        (old @ Node::Scalar(_), Node::Scalar(_)) => {
            *old = piece.clone();
            Ok(())
        }
        (old @ Node::Scalar(_), _) if old.text().is_none() => replace(old, piece, place),
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

fn replace(old: &mut Node, piece: &Node, place: &Place) -> Result<(), Fault> {
    if let Some(new) = cleaned(piece, place)? {
        *old = new;
    }
    Ok(())
}

fn maps(old: &mut Vec<(String, Node)>, new: &[(String, Node)], place: &Place) -> Result<(), Fault> {
    for (key, value) in new {
        let below = place.below(key);
        let found = old.iter().position(|(k, _)| k == key);
        match (found, is_deletion(value, &below.0)?) {
            (Some(at), true) => drop(old.remove(at)),
            (Some(at), false) => merge(&mut old[at].1, value, &below)?,
            (None, true) => {}
            (None, false) => old.extend(cleaned(value, &below)?.map(|new| (key.clone(), new))),
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
            None => old.extend(cleaned(item, place)?),
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
    old.retain(|item| !wanted.iter().all(|(k, v)| item.get(k).is_some_and(|found| found.same(v))));
    Ok(())
}

/// Whether `$patch: delete` stands in a map.
fn is_deletion(node: &Node, path: &str) -> Result<bool, Fault> {
    match node.get(DIRECTIVE).map(|d| d.text().unwrap_or_default()) {
        None => Ok(false),
        Some("delete") => Ok(true),
        Some(_) => Err((path.to_owned(), "`$patch` takes `delete` only".to_owned())),
    }
}

/// A piece that goes where nothing was, without its deletions; `None` if it consists of them alone.
fn cleaned(piece: &Node, place: &Place) -> Result<Option<Node>, Fault> {
    if is_deletion(piece, &place.0)? {
        return Ok(None);
    }
    let (given, new) = match piece {
        Node::Scalar(_) => return Ok(Some(piece.clone())),
        Node::List(items) => {
            let kept = items.iter().filter_map(|item| cleaned(item, place).transpose());
            (items.len(), Node::List(kept.collect::<Result<_, _>>()?))
        }
        Node::Map(entries) => {
            let entry = |(k, v): &(String, Node)| {
                cleaned(v, &place.below(k)).map(|kept| kept.map(|kept| (k.clone(), kept))).transpose()
            };
            (entries.len(), Node::Map(entries.iter().filter_map(entry).collect::<Result<_, Fault>>()?))
        }
    };
    let is_empty = match &new {
        Node::Scalar(_) => false,
        Node::List(items) => items.is_empty(),
        Node::Map(entries) => entries.is_empty(),
    };
    Ok((given == 0 || !is_empty).then_some(new))
}
