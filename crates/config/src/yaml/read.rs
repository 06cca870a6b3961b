//! Parser events to trees.
//!
//! Order: every document of the stream; a syntax error ends the reading, all other faults do not.

use super::{Content, Entry, Mark, Node, Scalar, elision};
use granit_parser::{Event, Parser, ScalarStyle, Span, StrInput};
use std::collections::{BTreeMap, HashMap};
use zeroize::Zeroizing;

/// Nodes that a stream may hold after its aliases are expanded: some hundred times a large configuration.
const MAX_NODES: usize = 200_000;
/// Mappings and lists inside each other.
const MAX_DEPTH: usize = 64;

/// What could be read of a stream.
#[derive(Default)]
pub(crate) struct Parsed {
    pub(crate) documents: Vec<Node>,
    /// Faults of the YAML itself, with the document's number.
    pub(crate) faults: Vec<(usize, Mark, String)>,
    /// Lines of dots that were left out.
    pub(crate) elisions: Vec<usize>,
}

/// Reads `text`; where it is no YAML only because of lines of dots, they are left out.
pub(crate) fn read(text: &str) -> Parsed {
    let parsed = Builder::default().stream(text);
    if parsed.faults.is_empty() && !parsed.documents.iter().any(is_dots) {
        return parsed;
    }
    let (blanked, elisions) = elision::blank(text);
    if elisions.is_empty() {
        return parsed;
    }
    let again = Builder::default().stream(&Zeroizing::new(blanked));
    if again.faults.len() <= parsed.faults.len() { Parsed { elisions, ..again } } else { parsed }
}

/// A document that is a line of dots and nothing else.
fn is_dots(node: &Node) -> bool {
    node.text().is_some_and(|t| t.starts_with("...") && t.trim_end_matches('.').is_empty())
}

#[derive(Default)]
struct Builder {
    out: Parsed,
    anchors: HashMap<usize, Node>,
    nodes: usize,
}

/// The reading cannot go on; the fault is noted.
struct Stop;

type Events<'a> = Parser<'a, StrInput<'a>>;

impl Builder {
    fn stream(mut self, text: &str) -> Parsed {
        let mut events = Parser::new_from_str(text);
        while let Some(Ok((event, span))) = self.next(&mut events) {
            if !matches!(event, Event::DocumentStart(..)) {
                continue;
            }
            self.anchors.clear();
            match self.root(&mut events) {
                Ok(Some(node)) => self.out.documents.push(node),
                // A document without content still counts in the numbers that remarks use.
                Ok(None) => self.out.documents.push(null(mark(span))),
                Err(Stop) => break,
            }
        }
        self.out
    }

    fn root(&mut self, events: &mut Events<'_>) -> Result<Option<Node>, Stop> {
        match self.next(events) {
            Some(Ok((Event::DocumentEnd, _))) | None => Ok(None),
            Some(Ok((event, span))) => self.node(event, span, events, 0).map(Some),
            Some(Err(stop)) => Err(stop),
        }
    }

    /// The next event that is part of the data.
    fn next<'a>(&mut self, events: &mut Events<'a>) -> Option<Result<(Event<'a>, Span), Stop>> {
        loop {
            match events.next_event()? {
                Ok((Event::Comment(..) | Event::Anchor(..), _)) => {}
                Ok((Event::StreamEnd, _)) => return None,
                Ok(pair) => return Some(Ok(pair)),
                Err(error) => {
                    let m = error.marker();
                    let at = Mark { line: m.line().max(1), column: m.col() + 1 };
                    self.fault(at, format!("this is no YAML: {}", error.info()));
                    return Some(Err(Stop));
                }
            }
        }
    }

    fn node<'a>(
        &mut self,
        event: Event<'a>,
        span: Span,
        events: &mut Events<'a>,
        depth: usize,
    ) -> Result<Node, Stop> {
        let at = mark(span);
        if depth > MAX_DEPTH {
            return Err(self.stop(at, format!("more than {MAX_DEPTH} levels inside each other")));
        }
        self.count(at, 1)?;
        let (content, anchor) = match event {
            Event::Scalar(text, style, anchor, tag) => {
                let tag = tag.as_deref();
                if tag.is_some_and(|t| !t.is_yaml_core_schema()) {
                    self.fault(
                        at,
                        "tags of an application have no meaning here; leave the `!` word out".to_owned(),
                    );
                }
                let plain =
                    style == ScalarStyle::Plain && !tag.is_some_and(|t| t.is_yaml_core_schema_tag("str"));
                (Content::Scalar(Scalar { text: Zeroizing::new(text.into_owned()), plain }), anchor)
            }
            Event::SequenceStart(_, anchor, _) => (Content::List(self.list(events, depth)?), anchor),
            Event::MappingStart(_, anchor, _) => (Content::Map(self.map(events, depth)?), anchor),
            Event::Alias(id) => return self.alias(id, at),
            _ => return Err(self.stop(at, "a value is missing here".to_owned())),
        };
        let last_line = span.end.line().max(at.line).max(last_line(&content));
        let node = Node { content, mark: at, last_line };
        if anchor != 0 {
            self.anchors.insert(anchor, node.clone());
        }
        Ok(node)
    }

    fn list<'a>(&mut self, events: &mut Events<'a>, depth: usize) -> Result<Vec<Node>, Stop> {
        let mut items = Vec::new();
        loop {
            match self.next(events) {
                Some(Ok((Event::SequenceEnd, _))) | None => return Ok(items),
                Some(Ok((event, span))) => items.push(self.node(event, span, events, depth + 1)?),
                Some(Err(stop)) => return Err(stop),
            }
        }
    }

    fn map<'a>(&mut self, events: &mut Events<'a>, depth: usize) -> Result<Vec<Entry>, Stop> {
        let mut entries: Vec<Entry> = Vec::new();
        let (mut lines, mut merged) = (BTreeMap::new(), Vec::new());
        loop {
            let key = match self.next(events) {
                Some(Ok((Event::MappingEnd, _))) | None => break,
                Some(Ok((event, span))) => self.node(event, span, events, depth + 1)?,
                Some(Err(stop)) => return Err(stop),
            };
            let value = match self.next(events) {
                Some(Ok((event, span))) => self.node(event, span, events, depth + 1)?,
                Some(Err(stop)) => return Err(stop),
                None => return Ok(entries),
            };
            let Some(name) = key.text().map(str::to_owned) else {
                self.fault(key.mark, format!("a key must be a name, this is {}", key.kind()));
                continue;
            };
            if name == "<<" {
                merged.push(value);
            } else if let Some(first) = lines.get(&name) {
                let shown = super::source::shortened(&name);
                self.fault(
                    key.mark,
                    format!("the key `{shown}` stands here twice; it is on line {first} already"),
                );
            } else {
                lines.insert(name.clone(), key.mark.line);
                entries.push(Entry { key: name, mark: key.mark, value });
            }
        }
        for value in merged {
            self.merge(value, &mut entries);
        }
        Ok(entries)
    }

    /// `<<`: entries of another mapping, or of several, which the mapping's own override.
    fn merge(&mut self, value: Node, entries: &mut Vec<Entry>) {
        match value.content {
            Content::Map(more) => {
                for entry in more {
                    if !entries.iter().any(|e| e.key == entry.key) {
                        entries.push(entry);
                    }
                }
            }
            Content::List(items) => items.into_iter().for_each(|item| self.merge(item, entries)),
            Content::Scalar(_) => {
                self.fault(value.mark, "`<<` takes a mapping or a list of mappings".to_owned())
            }
        }
    }

    fn alias(&mut self, id: usize, at: Mark) -> Result<Node, Stop> {
        match self.anchors.get(&id) {
            Some(node) => {
                let (node, size) = (node.clone(), size(node));
                self.count(at, size)?;
                Ok(Node { mark: at, last_line: at.line, ..node })
            }
            None => Err(self.stop(at, "an alias inside the value that it stands for".to_owned())),
        }
    }

    fn count(&mut self, at: Mark, more: usize) -> Result<(), Stop> {
        self.nodes += more;
        if self.nodes <= MAX_NODES {
            return Ok(());
        }
        Err(self
            .stop(at, format!("more than {MAX_NODES} values, aliases expanded; a configuration is smaller")))
    }

    fn fault(&mut self, at: Mark, message: String) {
        self.out.faults.push((self.out.documents.len() + 1, at, message));
    }

    fn stop(&mut self, at: Mark, message: String) -> Stop {
        self.fault(at, message);
        Stop
    }
}

fn mark(span: Span) -> Mark {
    Mark { line: span.start.line().max(1), column: span.start.col() + 1 }
}

fn null(at: Mark) -> Node {
    let text = Zeroizing::new(String::new());
    Node { content: Content::Scalar(Scalar { text, plain: true }), mark: at, last_line: at.line }
}

fn last_line(content: &Content) -> usize {
    match content {
        Content::Scalar(_) => 0,
        Content::List(items) => items.last().map_or(0, |n| n.last_line),
        Content::Map(entries) => entries.last().map_or(0, |e| e.value.last_line),
    }
}

fn size(node: &Node) -> usize {
    1 + match &node.content {
        Content::Scalar(_) => 0,
        Content::List(items) => items.iter().map(size).sum(),
        Content::Map(entries) => entries.iter().map(|e| 1 + size(&e.value)).sum(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(text: &str) -> Vec<String> {
        read(text).faults.into_iter().map(|(d, m, t)| format!("{d} {}:{} {t}", m.line, m.column)).collect()
    }

    #[test]
    fn a_bomb_of_aliases_is_refused() {
        let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for i in 1..12 {
            let previous = format!("*a{}, ", i - 1).repeat(10);
            text += &format!("a{i}: &a{i} [{}]\n", previous.trim_end_matches(", "));
        }
        let found = faults(&text);
        assert_eq!(found.len(), 1);
        assert!(found[0].contains("aliases expanded"), "{found:?}");
    }

    #[test]
    fn both_places_of_a_double_key_are_told() {
        assert_eq!(
            faults("a: 1\nb: 2\na: 3\n"),
            ["1 3:1 the key `a` stands here twice; it is on line 1 already"]
        );
    }

    #[test]
    fn merge_keys_fill_what_is_not_given() {
        let parsed = read("base: &b {x: 1, y: 2}\nnode: {<<: *b, y: 3}\n");
        let node = parsed.documents[0].get("node").unwrap();
        assert_eq!((node.get("x").unwrap().text(), node.get("y").unwrap().text()), (Some("1"), Some("3")));
    }

    #[test]
    fn depth_is_limited() {
        let found = faults(&"[".repeat(500));
        assert_eq!(found.len(), 1, "{found:?}");
    }

    #[test]
    fn windows_line_ends_tabs_and_a_byte_order_mark() {
        let parsed = read("\u{feff}a: 1\r\nb:\r\n  c: |\r\n    x\r\n    y\r\n");
        assert!(parsed.faults.is_empty(), "{:?}", parsed.faults);
        assert_eq!(parsed.documents[0].get("b").unwrap().get("c").unwrap().text(), Some("x\ny\n"));
        let found = faults("a:\n\tb: 1\n");
        assert!(found[0].starts_with("1 2:"), "{found:?}");
    }

    #[test]
    fn dots_of_a_guide_are_left_out() {
        let parsed = read("a:\n  ...\n  b: 1\n...\n");
        assert!(parsed.faults.is_empty(), "{:?}", parsed.faults);
        assert_eq!((parsed.elisions.len(), parsed.documents[0].get("a").unwrap().entries().len()), (2, 1));
    }
}
