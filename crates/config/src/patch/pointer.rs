//! JSON pointers.
//!
//! Owns: reading them and finding the place they name. Fails by: a sentence that says how far the path goes and what
//! exists there. Source: RFC 6901; RFC 6902 §4.1 (`-`).

use super::{
    described, listed,
    tree::{Node, is_key},
};

/// A path of names and indices.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Pointer(Vec<String>);

impl Pointer {
    /// Reads `/machine/certSANs/0`; the empty text is the whole document.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Ok(Self(Vec::new()));
        }
        let rest = text.strip_prefix('/').ok_or_else(|| {
            format!("`{text}` is not a path; it starts with `/`: `/machine/network/hostname`")
        })?;
        rest.split('/').map(unescaped).collect::<Option<_>>().map(Self).ok_or_else(|| {
            format!("`{text}` is not a path: `~` is written `~0`, and a `/` inside a name `~1`")
        })
    }

    /// Whether `other` lies below this place.
    pub(super) fn holds(&self, other: &Self) -> bool {
        other.0.len() > self.0.len() && other.0.starts_with(&self.0)
    }

    /// The names.
    pub(super) fn parts(&self) -> &[String] {
        &self.0
    }

    /// The value at this place.
    pub(super) fn find<'a>(&self, root: &'a Node) -> Result<&'a Node, String> {
        let mut node = root;
        for (depth, part) in self.0.iter().enumerate() {
            node = match node {
                Node::Map(_) => node.get(part),
                Node::List(items) => items.get(index(part, items.len(), &self.text(depth))?),
                Node::Scalar(_) => None,
            }
            .ok_or_else(|| self.missing(depth, node))?;
        }
        Ok(node)
    }

    /// The container that holds this place, and the last name.
    pub(super) fn container<'a>(&self, root: &'a mut Node) -> Result<Option<(&'a mut Node, &str)>, String> {
        let Some((last, parents)) = self.0.split_last() else { return Ok(None) };
        let mut node = root;
        for (depth, part) in parents.iter().enumerate() {
            // Looked up twice, since the borrow of a found child would outlive the error's look at its parent.
            let found = match &*node {
                Node::Map(entries) => entries.iter().position(|(k, _)| k == part),
                Node::List(items) => Some(index(part, items.len(), &self.text(depth))?),
                Node::Scalar(_) => None,
            };
            let Some(found) = found else { return Err(self.missing(depth, node)) };
            node = match node {
                Node::Map(entries) => &mut entries[found].1,
                Node::List(items) => &mut items[found],
                Node::Scalar(_) => return Err(format!("there is no `{part}`")),
            };
        }
        Ok(Some((node, last)))
    }

    /// The sentence for a part that does not exist in `node`.
    pub(super) fn missing(&self, depth: usize, node: &Node) -> String {
        let (place, part) = (self.text(depth), &self.0[depth]);
        match node {
            Node::Map(entries) => {
                let names = listed(entries.iter().map(|(k, _)| k.as_str()));
                format!("there is no `{part}` at {place}; there is {names}")
            }
            other => format!("there is no `{part}` at {place}, which is {}", described(other)),
        }
    }

    /// The text of the first `depth` parts.
    pub(super) fn text(&self, depth: usize) -> String {
        if depth == 0 {
            return "the top".to_owned();
        }
        let escaped = |part: &String| format!("/{}", part.replace('~', "~0").replace('/', "~1"));
        self.0.iter().take(depth).map(escaped).collect()
    }
}

/// The index that `part` is in a list of `length` at `place`.
pub(super) fn index(part: &str, length: usize, place: &str) -> Result<usize, String> {
    let is_index = part.bytes().all(|b| b.is_ascii_digit()) && (part == "0" || !part.starts_with('0'));
    let parsed = part.parse::<usize>().ok().filter(|_| is_index && !part.is_empty());
    let index = parsed.ok_or_else(|| {
        let end = if part == "-" { " (`-`, the place after the last, is for `add` only)" } else { "" };
        format!("`{part}` is not an index{end}; {place} is a list of {length}")
    })?;
    if index < length {
        return Ok(index);
    }
    Err(format!("there is no element {index} at {place}, which is a list of {length} (counted from 0)"))
}

fn unescaped(part: &str) -> Option<String> {
    let mut out = String::with_capacity(part.len());
    let mut chars = part.chars();
    while let Some(c) = chars.next() {
        match c {
            '~' => out.push(match chars.next()? {
                '0' => '~',
                '1' => '/',
                _ => return None,
            }),
            c => out.push(c),
        }
    }
    Some(out).filter(|part| is_key(part))
}
