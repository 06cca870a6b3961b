//! Every place that a configuration has, from the schema: each field of each section of each document, and each
//! section itself, with a text that puts a value there and nothing else.

use config::{
    Config, Document,
    schema::{Field, Section, Shape},
};

/// One step of the way to a place.
#[derive(Clone)]
enum Step {
    Field(&'static str),
    /// The first entry of a list.
    Item,
    /// An entry of a mapping with free names.
    Name,
}

/// A place and what belongs there.
pub(crate) struct Place {
    /// The document's kind; empty for the v1alpha1 document.
    pub(crate) kind: &'static str,
    steps: Vec<Step>,
    /// What it takes.
    pub(crate) shape: Shape,
    /// The field that leads here, unless an entry of a list or mapping is meant.
    pub(crate) field: Option<&'static Field>,
    /// Whether it, or a section around it, waits for a feature.
    pub(crate) later: bool,
}

/// A text with one value at a place.
pub(crate) struct Text {
    pub(crate) text: String,
    /// Where the value begins.
    pub(crate) document: usize,
    pub(crate) line: usize,
    pub(crate) column: usize,
}

impl Place {
    /// As remarks name it: `machine.disks[0].device`.
    pub(crate) fn path(&self) -> String {
        let mut path = String::new();
        for step in &self.steps {
            match step {
                Step::Item => path.push_str("[0]"),
                Step::Field(name) if path.is_empty() => path.push_str(name),
                Step::Field(name) => path.push_str(&format!(".{name}")),
                Step::Name => path.push_str(".name0"),
            }
        }
        path
    }

    /// As a person names it: with the document's kind, `HostnameConfig hostname`, and `[]` and `.*` for entries.
    pub(crate) fn name(&self) -> String {
        let path = self.path().replace("[0]", "[]").replace(".name0", ".*");
        [self.kind, &path].join(" ").trim().to_owned()
    }

    /// Names of the fields on the way.
    pub(crate) fn fields(&self) -> Vec<&'static str> {
        let name = |step: &Step| match step {
            Step::Field(name) => Some(*name),
            Step::Item | Step::Name => None,
        };
        self.steps.iter().filter_map(name).collect()
    }

    /// The configuration in which `value` stands here.
    pub(crate) fn text(&self, value: &str) -> Text {
        let mut line = String::new();
        let mut closing = String::new();
        for (index, step) in self.steps.iter().enumerate() {
            // The outermost level is written as a block, the levels inside as one line.
            let open = |line: &mut String, closing: &mut String, left: char, right: char| {
                if index > 0 {
                    line.push(left);
                    closing.insert(0, right);
                }
            };
            match step {
                Step::Item => open(&mut line, &mut closing, '[', ']'),
                Step::Field(name) => {
                    open(&mut line, &mut closing, '{', '}');
                    line.push_str(&format!("{name}: "));
                }
                Step::Name => {
                    open(&mut line, &mut closing, '{', '}');
                    line.push_str("name0: ");
                }
            }
        }
        let head = match self.kind {
            "" if self.path().starts_with("version") => "machine: {}\n".to_owned(),
            "" => "version: v1alpha1\n".to_owned(),
            kind => format!("version: v1alpha1\nmachine: {{}}\n---\napiVersion: v1alpha1\nkind: {kind}\n"),
        };
        Text {
            document: if self.kind.is_empty() { 1 } else { 2 },
            line: head.lines().count() + 1,
            column: line.chars().count() + 1,
            text: format!("{head}{line}{value}{closing}\n"),
        }
    }
}

/// Every place of every document.
pub(crate) fn places() -> Vec<Place> {
    let mut out = Vec::new();
    fields("", Config::SECTION, &[], false, &mut out);
    for (kind, section) in Document::KINDS {
        fields(kind, section, &[], false, &mut out);
    }
    out
}

fn fields(kind: &'static str, section: &'static Section, before: &[Step], later: bool, out: &mut Vec<Place>) {
    for field in section.fields {
        let steps = [before, &[Step::Field(field.key)]].concat();
        let later = later || !field.later.is_empty();
        add(kind, steps, (field.shape)(), Some(field), later, out);
    }
}

fn add(
    kind: &'static str,
    steps: Vec<Step>,
    shape: Shape,
    field: Option<&'static Field>,
    later: bool,
    out: &mut Vec<Place>,
) {
    match &shape {
        Shape::Section(section) => fields(kind, section, &steps, later, out),
        Shape::List(_) => add(kind, [&steps[..], &[Step::Item]].concat(), inner(&shape), None, later, out),
        Shape::Map(_) => add(kind, [&steps[..], &[Step::Name]].concat(), inner(&shape), None, later, out),
        _ => {}
    }
    out.push(Place { kind, steps, shape, field, later });
}

/// What entries of a list or mapping are.
fn inner(shape: &Shape) -> Shape {
    match shape {
        Shape::List(inner) | Shape::Map(inner) => copy(inner),
        other => copy(other),
    }
}

fn copy(shape: &Shape) -> Shape {
    match shape {
        Shape::Single(name, example) => Shape::Single(name, example),
        Shape::Choice(words) => Shape::Choice(words),
        Shape::Section(section) => Shape::Section(section),
        Shape::List(inner) => Shape::List(Box::new(copy(inner))),
        Shape::Map(inner) => Shape::Map(Box::new(copy(inner))),
        Shape::Any => Shape::Any,
    }
}
