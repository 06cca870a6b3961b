//! Trees as YAML text.
//!
//! Owns: the look of a patched configuration: block style, four spaces, as talosctl writes. A text is quoted only
//! where it would mean something else without quotes; several lines become a literal block.

use super::{scalar::Scalar, tree::Node};

const STEP: usize = 4;

/// The documents, parted by `---`.
pub(super) fn documents(documents: &[Node]) -> String {
    let mut out = String::new();
    for (index, document) in documents.iter().enumerate() {
        if index > 0 {
            out.push_str("---\n");
        }
        match document {
            Node::Map(entries) if !entries.is_empty() => map(&mut out, entries, 0),
            Node::List(items) if !items.is_empty() => list(&mut out, items, 0),
            other => {
                inline(&mut out, other, STEP);
                out.push('\n');
            }
        }
    }
    out
}

fn map(out: &mut String, entries: &[(String, Node)], indent: usize) {
    for (index, (name, value)) in entries.iter().enumerate() {
        if index > 0 {
            pad(out, indent);
        }
        out.push_str(&word(name));
        out.push(':');
        child(out, value, indent);
    }
}

fn list(out: &mut String, items: &[Node], indent: usize) {
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            pad(out, indent);
        }
        out.push('-');
        match item {
            Node::Map(entries) if !entries.is_empty() => {
                out.push(' ');
                map(out, entries, indent + 2);
            }
            Node::List(items) if !items.is_empty() => {
                out.push(' ');
                list(out, items, indent + 2);
            }
            other => {
                out.push(' ');
                inline(out, other, indent + 2);
                out.push('\n');
            }
        }
    }
}

fn child(out: &mut String, value: &Node, indent: usize) {
    match value {
        Node::Map(entries) if !entries.is_empty() => {
            out.push('\n');
            pad(out, indent + STEP);
            map(out, entries, indent + STEP);
        }
        Node::List(items) if !items.is_empty() => {
            out.push('\n');
            pad(out, indent + STEP);
            list(out, items, indent + STEP);
        }
        other => {
            out.push(' ');
            inline(out, other, indent + STEP);
            out.push('\n');
        }
    }
}

fn inline(out: &mut String, node: &Node, indent: usize) {
    match node {
        Node::Map(_) => out.push_str("{}"),
        Node::List(_) => out.push_str("[]"),
        Node::Scalar(s) if is_block(s) => block(out, &s.text, indent),
        Node::Scalar(s) if s.plain => out.push_str(&plain(&s.text)),
        Node::Scalar(s) => out.push_str(&word(&s.text)),
    }
}

/// A plain value stands as it was, since only its field's type says what `yes` means; but in one line.
fn plain(text: &str) -> String {
    match text {
        "" => "null".to_owned(),
        text if text.contains('\n') => quoted(text),
        text => text.to_owned(),
    }
}

/// A text, in quotes where it needs them.
pub(super) fn word(text: &str) -> String {
    let safe = |c: char| c.is_alphanumeric() || "-_./+=@()$%^;~<".contains(c);
    let inner = |c: char| safe(c) || " :#,*&!?[]{}'\"|>".contains(c);
    let starts_well = text.starts_with(|c: char| c.is_alphanumeric() || "/._+$(".contains(c));
    let ends_well = !text.ends_with([' ', ':']);
    let bare = starts_well
        && ends_well
        && text.chars().all(inner)
        && !text.contains(": ")
        && !text.contains(" #")
        && !text.starts_with("...")
        && !means_else_to_others(text)
        && Scalar::is_text_when_plain(text);
    if bare { text.to_owned() } else { quoted(text) }
}

/// Words that other YAML readers take for booleans, dates or numbers; Go's writer quotes them too.
fn means_else_to_others(text: &str) -> bool {
    let is_date = text.starts_with(|c: char| c.is_ascii_digit())
        && text.contains(['-', '_', ':'])
        && text.chars().all(|c| c.is_ascii_digit() || "-_:. TtZz+".contains(c));
    is_date || ["y", "n", "yes", "no", "on", "off"].iter().any(|word| text.eq_ignore_ascii_case(word))
}

fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            c if is_printable(c) => out.push(c),
            c => out.push_str(&format!("\\U{:08X}", u32::from(c))),
        }
    }
    out.push('"');
    out
}

/// Whether the text is best read as a literal block: several lines of ordinary characters.
fn is_block(scalar: &Scalar) -> bool {
    let text = &scalar.text;
    let body = text.trim_end_matches('\n');
    body.contains('\n')
        && !body.starts_with([' ', '\t', '\n'])
        && body.chars().all(|c| c == '\n' || c == '\t' || is_printable(c))
        && !body.lines().any(|line| !line.is_empty() && line.trim().is_empty())
}

fn is_printable(c: char) -> bool {
    !c.is_control() && !matches!(c, '\u{feff}' | '\u{2028}' | '\u{2029}' | '\u{fffe}' | '\u{ffff}')
}

fn block(out: &mut String, text: &str, indent: usize) {
    let body = text.trim_end_matches('\n');
    let end = text.len() - body.len();
    out.push_str(match end {
        0 => "|-",
        1 => "|",
        _ => "|+",
    });
    for line in body.split('\n') {
        out.push('\n');
        if !line.is_empty() {
            pad(out, indent);
            out.push_str(line);
        }
    }
    // The caller ends the last line; the others are the text's own.
    for _ in 1..end {
        out.push('\n');
    }
}

fn pad(out: &mut String, indent: usize) {
    out.extend(std::iter::repeat_n(' ', indent));
}
