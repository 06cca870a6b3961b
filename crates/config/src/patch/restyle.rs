//! A text that a program wrote in the order and spelling of the one that a person wrote.
//!
//! Owns: which documents and list entries belong together: by kind and name, and by their place. What means the same is
//! taken as the person spelled it (`0644`, `yes`), and new fields stand behind the known ones.

use super::{merge::Identity, tree::Node};

/// `new` with what it shares with `old` spelled and ordered as there.
pub(super) fn documents(old: &[Node], new: Vec<Node>) -> Vec<Node> {
    let twin = |document: &Node| old.iter().position(|known| Identity::of(known) == Identity::of(document));
    let mut placed: Vec<_> = new.into_iter().map(|document| (twin(&document), document)).collect();
    // The sort is stable: new documents keep their order, behind those that were there.
    placed.sort_by_key(|(at, _)| at.unwrap_or(usize::MAX));
    let styled = |(at, document): (Option<usize>, Node)| match at.and_then(|at| old.get(at)) {
        Some(known) => node(known, document),
        None => document,
    };
    placed.into_iter().map(styled).collect()
}

fn node(old: &Node, new: Node) -> Node {
    match (old, new) {
        (Node::Scalar(old), Node::Scalar(new)) if old.same(&new) => Node::Scalar(old.clone()),
        (Node::Map(old), Node::Map(new)) => Node::Map(map(old, new)),
        (Node::List(old), Node::List(new)) => {
            let items = new.into_iter().enumerate().map(|(at, item)| match old.get(at) {
                Some(known) => node(known, item),
                None => item,
            });
            Node::List(items.collect())
        }
        (_, new) => new,
    }
}

fn map(old: &[(String, Node)], mut new: Vec<(String, Node)>) -> Vec<(String, Node)> {
    let at = |key: &str| old.iter().position(|(known, _)| known == key);
    new.sort_by_key(|(key, _)| at(key).unwrap_or(usize::MAX));
    let styled = |(key, value): (String, Node)| match at(&key) {
        Some(index) => (key, node(&old[index].1, value)),
        None => (key, value),
    };
    new.into_iter().map(styled).collect()
}
