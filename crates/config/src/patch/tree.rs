//! YAML documents as trees in which order and spelling are kept.
//!
//! Owns: reading with bounds (depth, number of nodes, so that aliases cannot explode), refusing duplicate keys,
//! resolving aliases and `<<`. Does not: know the schema. It may hold secrets: no `Debug`.

use super::{PatchError, scalar::Scalar};
use granit_parser::{Event, Parser, ScalarStyle, Span, StrInput};
use std::collections::HashMap;

/// Deepest nesting; the schema needs about ten.
const MAX_DEPTH: usize = 64;
/// Most nodes of a stream, aliases counted as what they stand for.
const MAX_NODES: usize = 200_000;
/// Longest key, so that it can be written in one line again.
const MAX_KEY_BYTES: usize = 400;

/// A value.
#[derive(Clone)]
pub(super) enum Node {
    /// A single value.
    Scalar(Scalar),
    /// A list.
    List(Vec<Node>),
    /// A map in its written order.
    Map(Vec<(String, Node)>),
}

impl Node {
    /// No value.
    pub(super) fn null() -> Self {
        Self::Scalar(Scalar::null())
    }

    /// The value of a key, if this is a map that has it.
    pub(super) fn get(&self, key: &str) -> Option<&Self> {
        let Self::Map(entries) = self else { return None };
        entries.iter().find(|(k, _)| k == key).map(|(_, v)| v)
    }

    /// The text, if this is a single value that is not null.
    pub(super) fn text(&self) -> Option<&str> {
        match self {
            Self::Scalar(s) if !s.is_null() => Some(&s.text),
            _ => None,
        }
    }

    /// Whether both mean the same; the order of a map does not matter.
    pub(super) fn same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Scalar(a), Self::Scalar(b)) => a.same(b),
            (Self::List(a), Self::List(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.same(b)),
            (Self::Map(a), Self::Map(b)) => {
                a.len() == b.len() && a.iter().all(|(k, v)| other.get(k).is_some_and(|o| v.same(o)))
            }
            _ => false,
        }
    }

    fn size(&self) -> usize {
        1 + match self {
            Self::Scalar(_) => 0,
            Self::List(items) => items.iter().map(Self::size).sum(),
            Self::Map(entries) => entries.iter().map(|(_, v)| v.size()).sum(),
        }
    }
}

/// Text that is no tree.
pub(super) struct TreeError {
    line: usize,
    column: usize,
    reason: String,
}

impl TreeError {
    /// As the fault of a patch.
    pub(super) fn in_patch(self) -> PatchError {
        PatchError::Syntax { line: self.line, column: self.column, reason: self.reason }
    }

    /// As the fault of what shall be patched.
    pub(super) fn in_target(self) -> PatchError {
        PatchError::Target { line: self.line, column: self.column, reason: self.reason }
    }
}

/// All documents of `text`.
pub(super) fn documents(text: &str) -> Result<Vec<Node>, TreeError> {
    let mut reader = Reader { parser: Parser::new_from_str(text), anchors: HashMap::new(), nodes: 0 };
    let mut documents = Vec::new();
    loop {
        match reader.next()? {
            (Event::StreamEnd, _) => return Ok(documents),
            (Event::DocumentStart(..), _) => {
                reader.anchors.clear();
                let (event, span) = reader.next()?;
                documents.push(reader.node(event, &span, 0)?);
            }
            _ => {}
        }
    }
}

struct Reader<'a> {
    parser: Parser<'a, StrInput<'a>>,
    anchors: HashMap<usize, Node>,
    nodes: usize,
}

impl<'a> Reader<'a> {
    /// The next event that is content.
    fn next(&mut self) -> Result<(Event<'a>, Span), TreeError> {
        loop {
            match self.parser.next_event() {
                None => return Ok((Event::StreamEnd, Span::default())),
                Some(Ok((Event::Comment(..), _))) => {}
                Some(Ok(found)) => return Ok(found),
                Some(Err(error)) => {
                    let marker = error.marker();
                    return Err(TreeError {
                        line: marker.line(),
                        column: marker.col() + 1,
                        reason: error.info(),
                    });
                }
            }
        }
    }

    fn node(&mut self, event: Event<'a>, span: &Span, depth: usize) -> Result<Node, TreeError> {
        if event.tag().is_some_and(|tag| tag.core_suffix() != Some("str")) {
            return Err(at(span, "tags other than `!!str` are not known here"));
        }
        self.nodes += 1;
        if depth > MAX_DEPTH || self.nodes > MAX_NODES {
            return Err(at(span, "this is nested too deeply or has too many values"));
        }
        let (node, anchor) = match event {
            Event::Scalar(text, style, anchor, tag) => {
                // `!!str 1` is a text.
                let plain = style == ScalarStyle::Plain && tag.is_none();
                (Node::Scalar(Scalar { text: text.into_owned(), plain }), anchor)
            }
            Event::SequenceStart(_, anchor, _) => (self.list(depth)?, anchor),
            Event::MappingStart(_, anchor, _) => (self.map(depth)?, anchor),
            Event::Alias(id) => {
                let node =
                    self.anchors.get(&id).ok_or_else(|| at(span, "the alias refers to itself"))?.clone();
                self.nodes += node.size();
                return Ok(node);
            }
            _ => return Err(at(span, "a value is missing here")),
        };
        if anchor != 0 {
            self.anchors.insert(anchor, node.clone());
        }
        Ok(node)
    }

    fn list(&mut self, depth: usize) -> Result<Node, TreeError> {
        let mut items = Vec::new();
        loop {
            match self.next()? {
                (Event::SequenceEnd, _) => return Ok(Node::List(items)),
                (event, span) => items.push(self.node(event, &span, depth + 1)?),
            }
        }
    }

    fn map(&mut self, depth: usize) -> Result<Node, TreeError> {
        let mut entries: Vec<(String, Node)> = Vec::new();
        let mut merged = Vec::new();
        loop {
            let (event, span) = self.next()?;
            if matches!(event, Event::MappingEnd) {
                break;
            }
            let Node::Scalar(key) = self.node(event, &span, depth + 1)? else {
                return Err(at(&span, "a key must be a single word"));
            };
            if !is_key(&key.text) {
                return Err(at(&span, "a key is one line of at most 400 bytes"));
            }
            let (event, value_span) = self.next()?;
            let value = self.node(event, &value_span, depth + 1)?;
            if key.plain && key.text == "<<" {
                merged.extend(merge_source(value).ok_or_else(|| at(&value_span, "`<<` takes maps only"))?);
                continue;
            }
            if entries.iter().any(|(k, _)| *k == key.text) {
                return Err(at(&span, "this key stands in the same map twice"));
            }
            entries.push((key.text, value));
        }
        for (key, value) in merged {
            if !entries.iter().any(|(k, _)| *k == key) {
                entries.push((key, value));
            }
        }
        Ok(Node::Map(entries))
    }
}

/// Whether the text can be a key.
pub(super) fn is_key(text: &str) -> bool {
    text.len() <= MAX_KEY_BYTES
        && !text.contains(|c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}'))
}

/// Entries that `<<` brings: of a map, or of a list of maps of which the first wins.
fn merge_source(value: Node) -> Option<Vec<(String, Node)>> {
    match value {
        Node::Map(entries) => Some(entries),
        Node::List(items) => {
            let maps = items.into_iter().map(|item| match item {
                Node::Map(entries) => Some(entries),
                _ => None,
            });
            Some(maps.collect::<Option<Vec<_>>>()?.into_iter().flatten().collect())
        }
        Node::Scalar(_) => None,
    }
}

fn at(span: &Span, reason: &str) -> TreeError {
    TreeError { line: span.start.line(), column: span.start.col() + 1, reason: reason.to_owned() }
}
