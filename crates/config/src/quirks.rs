//! What the guides write differently from the schema: accepted, with a remark on how to write it.
//!
//! Owns: rewriting a tree before it is read with types. Each rewriting keeps the places.
//! Source: the public guides of Talos v0.9; docs/users/configuration.md.

use crate::{
    schema::Walk,
    yaml::{Content, Entry, Node, Scalar},
};
use zeroize::Zeroizing;

/// Rewrites the v1alpha1 document `root`.
pub(crate) fn rewrite(root: &mut Node, walk: &mut Walk<'_>) {
    let Some(machine) = root.get_mut("machine") else { return };
    partitions(machine, walk);
    if let Some(registries) = machine.get_mut("registries") {
        mirrors(registries, walk);
    }
    for label in ["state", "ephemeral"] {
        if let Some(encryption) = machine.get_mut("systemDiskEncryption").and_then(|s| s.get_mut(label)) {
            slots(encryption, label, walk);
        }
    }
    if let Some(Content::List(items)) =
        machine.get_mut("network").and_then(|n| n.get_mut("interfaces")).map(|i| &mut i.content)
    {
        items.iter_mut().enumerate().for_each(|(index, item)| interface(item, index, walk));
        merge_interfaces(items, walk);
    }
}

/// `machine.state` and `machine.ephemeral`, which belong below `systemDiskEncryption`.
fn partitions(machine: &mut Node, walk: &mut Walk<'_>) {
    for label in ["state", "ephemeral"] {
        let Content::Map(entries) = &mut machine.content else { return };
        let Some(index) = entries.iter().position(|e| e.key == label) else { continue };
        let moved = entries.remove(index);
        let path = format!("machine.{label}");
        walk.warn_at(
            &path,
            moved.mark,
            format!("`{label}` is taken as `systemDiskEncryption.{label}`; write it there"),
        );
        match machine.get_mut("systemDiskEncryption").map(|n| &mut n.content) {
            Some(Content::Map(known)) if known.iter().any(|e| e.key == label) => {
                walk.error_at(
                    &path,
                    moved.mark,
                    format!("`systemDiskEncryption.{label}` is given too; keep one of them"),
                );
            }
            Some(Content::Map(known)) => known.push(moved),
            _ => {
                let Content::Map(entries) = &mut machine.content else { return };
                entries.retain(|e| e.key != "systemDiskEncryption");
                let (mark, last_line) = (moved.mark, moved.value.last_line);
                let value = Node { content: Content::Map(vec![moved]), mark, last_line };
                entries.push(Entry { key: "systemDiskEncryption".to_owned(), mark, value });
            }
        }
    }
}

/// A missing `provider`, and `keySlot` for `slot`.
fn slots(encryption: &mut Node, label: &str, walk: &mut Walk<'_>) {
    let path = format!("machine.systemDiskEncryption.{label}");
    if !encryption.is_null()
        && encryption.get("provider").is_none()
        && matches!(encryption.content, Content::Map(_))
    {
        walk.warn_at(&path, encryption.mark, "`provider` is missing; `provider: luks2` is taken");
    }
    let Some(Content::List(keys)) = encryption.get_mut("keys").map(|k| &mut k.content) else { return };
    for (index, key) in keys.iter_mut().enumerate() {
        let Content::Map(entries) = &mut key.content else { continue };
        if entries.iter().any(|e| e.key == "slot") {
            continue;
        }
        if let Some(entry) = entries.iter_mut().find(|e| e.key == "keySlot") {
            walk.warn_at(
                &format!("{path}.keys[{index}].keySlot"),
                entry.mark,
                "`keySlot` is taken as `slot`; write that",
            );
            "slot".clone_into(&mut entry.key);
        }
    }
}

/// Registries beside an empty `mirrors` instead of below it.
fn mirrors(registries: &mut Node, walk: &mut Walk<'_>) {
    let is_empty = registries
        .get("mirrors")
        .is_some_and(|m| m.is_null() || m.entries().is_empty() && m.text().is_none());
    let Content::Map(entries) = &mut registries.content else { return };
    if !is_empty {
        return;
    }
    let (strays, kept): (Vec<_>, Vec<_>) = std::mem::take(entries).into_iter().partition(is_mirror);
    *entries = kept;
    for stray in &strays {
        let path = format!("machine.registries.{}", stray.key);
        walk.warn_at(
            &path,
            stray.mark,
            format!("`{}` is taken as an entry of `mirrors`; indent it below", stray.key),
        );
    }
    if let Some(node) = registries.get_mut("mirrors").filter(|_| !strays.is_empty()) {
        node.last_line = strays.last().map_or(node.last_line, |s| s.value.last_line);
        node.content = Content::Map(strays);
    }
}

/// Whether this looks like a mirror: no field of `registries`, and with endpoints.
fn is_mirror(entry: &Entry) -> bool {
    !matches!(entry.key.as_str(), "mirrors" | "config") && entry.value.get("endpoints").is_some()
}

/// `lo0`, and WireGuard peers as one mapping.
fn interface(node: &mut Node, index: usize, walk: &mut Walk<'_>) {
    let path = format!("machine.network.interfaces[{index}]");
    if let Some(name) = node.get_mut("interface").filter(|n| n.text() == Some("lo0")) {
        walk.warn_at(
            &format!("{path}.interface"),
            name.mark,
            "`lo0` is taken as `lo`, the loopback link of Linux",
        );
        name.content = Content::Scalar(Scalar { text: Zeroizing::new("lo".to_owned()), plain: true });
    }
    let peers = node.get_mut("wireguard").and_then(|w| w.get_mut("peers"));
    if let Some(peers) = peers.filter(|p| matches!(p.content, Content::Map(_))) {
        let message = "one mapping is taken as a list of one peer; write `- ` before it";
        walk.warn_at(&format!("{path}.wireguard.peers"), peers.mark, message);
        peers.content = Content::List(vec![peers.clone()]);
    }
}

/// Several entries for one link become one; lists are joined, `cidr` becomes one of `addresses`.
fn merge_interfaces(items: &mut Vec<Node>, walk: &mut Walk<'_>) {
    let mut merged: Vec<Node> = Vec::new();
    for (index, item) in std::mem::take(items).into_iter().enumerate() {
        let name = item.get("interface").and_then(Node::text).filter(|n| !n.is_empty()).map(str::to_owned);
        let same =
            |n: &&mut Node| name.is_some() && n.get("interface").and_then(Node::text) == name.as_deref();
        match merged.iter_mut().find(same) {
            Some(first) => {
                let path = format!("machine.network.interfaces[{index}]");
                let line = first.mark.line;
                walk.warn_at(
                    &path,
                    item.mark,
                    format!("a second entry for the same link is joined with that on line {line}"),
                );
                join(first, item, &path, walk);
            }
            None => merged.push(item),
        }
    }
    *items = merged;
}

fn join(first: &mut Node, second: Node, path: &str, walk: &mut Walk<'_>) {
    let (Content::Map(known), Content::Map(more)) = (&mut first.content, second.content) else { return };
    for mut entry in more {
        if entry.key == "interface" {
            continue;
        }
        if entry.key == "cidr" && known.iter().any(|e| e.key == "cidr") {
            "addresses".clone_into(&mut entry.key);
            entry.value.content = Content::List(vec![entry.value.clone()]);
        }
        let field = format!("{path}.{}", entry.key);
        match known.iter_mut().find(|e| e.key == entry.key) {
            None => known.push(entry),
            Some(old) => match (&mut old.value.content, entry.value.content) {
                (Content::List(items), Content::List(others)) => items.extend(others),
                (Content::Scalar(a), Content::Scalar(b)) if a.text == b.text => {}
                _ => {
                    let line = old.mark.line;
                    walk.error_at(
                        &field,
                        entry.mark,
                        format!("the link has another `{}` on line {line}", entry.key),
                    );
                }
            },
        }
    }
}
