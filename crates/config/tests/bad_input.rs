//! Bad input, made from the schema: a wrong value for every field, an unknown and a double key in every section; and
//! texts that are bad as a whole. Each is refused with a place, and with what is allowed there.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use common::places::{Place, places};
use config::{Diagnostic, Mode, load, schema::Shape};
use std::{fs, path::Path, time::Instant};

/// Values that `shape` does not take, each with a part of the remark that says what it takes instead.
fn wrong(shape: &Shape) -> Vec<(&'static str, String)> {
    let text = |text: &str| text.to_owned();
    match shape {
        Shape::Single("text, or a list of texts", _) => {
            vec![("{x: y}", text("a single value is needed here, this is a mapping"))]
        }
        Shape::Single(kind, example) => {
            let mut values = vec![
                ("[x, y]", text("a single value is needed here, this is a list")),
                ("{x: y}", text("a single value is needed here, this is a mapping")),
            ];
            values.extend(match *kind {
                "text" | "secret text" => None,
                "true or false" => Some(("maybe", text("`maybe` is not one of: true, false"))),
                "whole number" => Some(("much", text("`much` is not a whole number from "))),
                "duration" => Some(("soon", text("`soon` is not a duration: 30s"))),
                "size" => Some(("much", text("`much` is not a size: "))),
                "IP address" => Some(("here", text("`here` is not an IP address: "))),
                "file mode, octal" => Some(("rw", text("`rw` is not a file mode: "))),
                "base64 of PEM" | "base64 of PEM, secret" => Some(("'!!'", text("base64"))),
                other => panic!("a new kind of value, {other} ({example}): say here what it does not take"),
            });
            values
        }
        Shape::Choice(words) => vec![
            ("no-such-word", words.join(", ")),
            ("[x]", text("a single value is needed here, this is a list")),
        ],
        Shape::Section(_) | Shape::Map(_) => vec![
            ("text", text("a mapping (`name: value`) is needed here, this is a single value")),
            ("[x]", text("a mapping (`name: value`) is needed here, this is a list")),
        ],
        Shape::List(_) => vec![
            ("text", text("a list (`- value`) is needed here, this is a single value")),
            ("{x: y}", text("a list (`- value`) is needed here, this is a mapping")),
        ],
        Shape::Any => Vec::new(),
    }
}

/// A guide writes this one as a mapping, and it is taken so, with a remark.
const TAKEN_ALL_THE_SAME: [(&str, &str); 1] = [("machine.network.interfaces[].wireguard.peers", "{x: y}")];

fn only_error(text: &str) -> Diagnostic {
    let errors = load(text.as_bytes()).err().unwrap_or_else(|| panic!("this is accepted:\n{text}")).0;
    assert_eq!(errors.len(), 1, "more than one error: {errors:#?}\n{text}");
    errors.into_iter().next().unwrap()
}

fn is_at(error: &Diagnostic, document: usize, line: usize, column: usize) -> bool {
    (error.document, error.line, error.column) == (document, line, column)
}

#[test]
fn a_wrong_value_of_every_field_is_refused_at_its_place_with_what_is_allowed() {
    let (places, mut tried) = (places(), 0);
    for place in &places {
        for (value, allowed) in wrong(&place.shape) {
            if TAKEN_ALL_THE_SAME.contains(&(&place.name(), value)) {
                continue;
            }
            let made = place.text(value);
            let error = only_error(&made.text);
            assert_eq!(error.path, place.path(), "{error}\n{}", made.text);
            assert!(error.message.contains(&allowed), "{allowed:?} is missing: {error}\n{}", made.text);
            assert!(is_at(&error, made.document, made.line, made.column), "{error}\n{}", made.text);
            tried += 1;
        }
    }
    assert!(places.len() > 800 && tried > 2 * places.len() - 100, "{} places, {tried} values", places.len());
}

/// Sections, with the names of their fields; the documents themselves are not among them.
fn sections(places: &[Place]) -> impl Iterator<Item = (&Place, Vec<&'static str>)> {
    places.iter().filter_map(|place| match &place.shape {
        Shape::Section(section) => Some((place, section.fields.iter().map(|f| f.key).collect())),
        _ => None,
    })
}

#[test]
fn an_unknown_key_in_every_section_is_refused_with_the_known_ones() {
    let places = places();
    let mut tried = 0;
    for (place, known) in sections(&places) {
        let made = place.text("{noSuchField: 1}");
        let error = only_error(&made.text);
        assert_eq!(error.path, format!("{}.noSuchField", place.path()), "{}", made.text);
        assert!(error.message.starts_with("unknown field `noSuchField`"), "{error}");
        assert!(known.iter().all(|field| error.message.contains(field)), "{error}: {known:?}");
        assert!(is_at(&error, made.document, made.line, made.column + 1), "{error}\n{}", made.text);
        tried += 1;
    }
    assert!(tried > 150, "{tried}");
}

#[test]
fn an_unknown_key_at_the_top_of_every_document_is_refused() {
    let error = only_error("version: v1alpha1\nmachine: {}\nnoSuchField: 1\n");
    assert!(is_at(&error, 1, 3, 1) && error.path == "noSuchField", "{error}");
    for (kind, _) in config::Document::KINDS {
        let head = "version: v1alpha1\nmachine: {}\n---\napiVersion: v1alpha1\n";
        let error = only_error(&format!("{head}kind: {kind}\nnoSuchField: 1\n"));
        assert!(is_at(&error, 2, 6, 1), "{error}");
        assert!(error.message.starts_with("unknown field `noSuchField` (known here: "), "{kind}: {error}");
    }
}

#[test]
fn a_double_key_in_every_section_is_refused_with_both_places() {
    let places = places();
    for (place, known) in sections(&places).filter(|(_, known)| !known.is_empty()) {
        let made = place.text(&format!("{{{0}: , {0}: }}", known[0]));
        let error = only_error(&made.text);
        let message =
            format!("the key `{}` stands here twice; it is on line {} already", known[0], made.line);
        assert_eq!(error.message, message, "{}", made.text);
        let second = made.column + 1 + known[0].len() + 4;
        assert!(is_at(&error, made.document, made.line, second), "{error}\n{}", made.text);
    }
}

fn full() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/all-fields-v1.13.yaml");
    fs::read_to_string(path).unwrap()
}

#[test]
fn line_ends_of_windows_and_a_byte_order_mark_change_nothing() {
    let text = full();
    let plain = load(text.as_bytes()).ok().unwrap();
    for other in [text.replace('\n', "\r\n"), format!("\u{feff}{text}")] {
        let loaded = load(other.as_bytes()).unwrap_or_else(|error| panic!("{error}"));
        assert!(loaded.config == plain.config && loaded.documents == plain.documents);
        let places = |found: &[Diagnostic]| found.iter().map(|w| (w.document, w.line)).collect::<Vec<_>>();
        assert_eq!(places(&loaded.warnings), places(&plain.warnings));
    }
    let error = only_error("version: v1alpha1\r\nmachine:\r\n  mtu: 1\r\n");
    assert!(is_at(&error, 1, 3, 3) && !error.snippet.contains('\r'), "{error:?}");
}

#[test]
fn a_text_that_is_bad_as_a_whole_is_refused_once_with_a_place() {
    for (text, line, message) in [
        // A tab cannot indent, and is named where it stands.
        ("machine:\n\ttype: worker\n".to_owned(), 2, "tab"),
        ("machine:\n  network:\n\t  hostname: a\n".to_owned(), 3, "tab"),
        ("machine: {type: worker\n".to_owned(), 2, "this is no YAML: "),
        ("machine:\n  token: \"abc\n".to_owned(), 3, "this is no YAML: "),
        ("machine:\n  a: 1\n b: 2\n".to_owned(), 3, "this is no YAML: "),
        ("machine: *nothing\n".to_owned(), 1, "this is no YAML: "),
        ("machine: &a [*a]\n".to_owned(), 1, "an alias inside the value that it stands for"),
        ("machine: !secret x\n".to_owned(), 1, "tags of an application have no meaning here"),
        ("machine: {}\n? [a]\n: b\n".to_owned(), 2, "a key must be a name, this is a list"),
        ("machine: {}\n<<: 3\n".to_owned(), 2, "`<<` takes a mapping"),
        (
            format!("machine: {}{}\n", "[".repeat(100), "]".repeat(100)),
            1,
            "more than 64 levels inside each other",
        ),
        (
            format!("machine: {}{}\n", "{a: ".repeat(100), "}".repeat(100)),
            1,
            "more than 64 levels inside each other",
        ),
        (format!("machine: [{}]\n", "a, ".repeat(250_000)), 1, "more than 200000 values"),
        (
            format!("machine:\n{}", (0..150_000).map(|i| format!("  k{i}: 1\n")).collect::<String>()),
            100_001,
            "more than 200000 values",
        ),
    ] {
        let shown = &text[..text.len().min(80)];
        let error = load(text.as_bytes()).err().unwrap_or_else(|| panic!("accepted: {shown}")).0.remove(0);
        assert!(error.message.contains(message), "{shown}: {error}");
        assert!(
            error.line.abs_diff(line) <= 1 && error.column > 0 && error.document == 1,
            "{shown}: {error}"
        );
    }
}

#[test]
fn what_is_large_is_read_or_refused_at_once() {
    let huge = format!("machine:\n  files:\n    - content: {}\n      path: /var/a\n", "x".repeat(7 << 20));
    let many = format!(
        "machine:\n  sysctls:\n{}",
        (0..60_000).map(|i| format!("    a{i}: \"{i}\"\n")).collect::<String>()
    );
    let merges = format!(
        "a: &a {{{}}}\nmachine:\n  env: {{<<: [{}]}}\n",
        (0..500).map(|i| format!("k{i}: v, ")).collect::<String>(),
        vec!["*a"; 300].join(", ")
    );
    let errors = format!("machine: {{}}\n{}", (0..50_000).map(|i| format!("x{i}: 1\n")).collect::<String>());
    for (name, text) in [("huge value", huge), ("many values", many), ("merges", merges), ("errors", errors)]
    {
        let begin = Instant::now();
        if let Ok(loaded) = load(text.as_bytes()) {
            let _ = loaded.validate(Mode::Metal);
        }
        // Milliseconds in a release build; what grows with the square of the size would take minutes.
        assert!(begin.elapsed().as_secs() < 30, "{name} took {:?}", begin.elapsed());
    }
}

#[test]
fn bytes_that_are_no_text_are_named_wherever_they_stand() {
    let text = full();
    for at in (0..text.len()).step_by(997).filter(|at| text.is_char_boundary(*at)) {
        let mut bytes = text.as_bytes().to_vec();
        bytes.insert(at, 0xff);
        let error = load(&bytes).err().unwrap().0.remove(0);
        let before = &text[..at];
        let column = before.rsplit('\n').next().unwrap().chars().count() + 1;
        assert_eq!((error.line, error.column), (before.matches('\n').count() + 1, column));
        assert!(error.message.contains("not UTF-8"), "{error}");
    }
}
