//! Texts made from the schema: with every field, or with a random choice of fields and values.

#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    dead_code,
    reason = "a helper of several tests, each of which uses a part; its numbers are small"
)]

pub(crate) mod places;
pub(crate) mod published;

use config::{
    Config, Document,
    schema::{Field, Section, Shape},
};
use std::fmt::Write;

/// Texts that a careless writer would turn into something else.
const TRICKY: &[&str] =
    &["no", "0123", "null", "1e3", "a: b", "# x", "", "ü", "two\\nlines", "- a", "{}", "'", " x "];

/// Makes documents from their description.
pub(crate) struct Maker {
    /// Without the fields that only the second generation knows.
    pub(crate) older: bool,
    /// State of the random numbers; `None` takes every field with its example.
    pub(crate) random: Option<u64>,
    count: usize,
}

impl Maker {
    pub(crate) fn new(older: bool, random: Option<u64>) -> Self {
        Self { older, random, count: 0 }
    }

    /// A number below `limit`.
    fn below(&mut self, limit: u64) -> u64 {
        let Some(state) = &mut self.random else { return 0 };
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = *state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % limit
    }

    /// The v1alpha1 document, and each other kind once.
    pub(crate) fn stream(&mut self) -> String {
        let body = self.section(Config::SECTION, 0);
        let mut out = if body.contains("\nversion:") || body.starts_with("version:") {
            body
        } else {
            format!("version: v1alpha1\n{body}")
        };
        if out.trim_end() == "version: v1alpha1" || !(out.contains("machine:") || out.contains("cluster:")) {
            out.push_str("machine: {}\n");
        }
        if self.older {
            return out;
        }
        for (kind, section) in Document::KINDS {
            if self.random.is_none() || self.below(3) == 0 {
                write!(out, "---\napiVersion: v1alpha1\nkind: {kind}\n{}", self.section(section, 0)).unwrap();
            }
        }
        out
    }

    fn section(&mut self, section: &Section, depth: usize) -> String {
        let mut out = String::new();
        for field in section.fields {
            let skipped = self.older && field.newer;
            if skipped || (field.key != "version" && self.random.is_some() && self.below(3) == 0) {
                continue;
            }
            write!(out, "{:depth$}{}:{}", "", field.key, self.field(field, depth)).unwrap();
        }
        out
    }

    /// What stands behind the colon, with the line's end.
    fn field(&mut self, field: &Field, depth: usize) -> String {
        if matches!(field.key, "interface" | "version") && self.random.is_some() {
            self.count += 1;
            return if field.key == "version" {
                " v1alpha1\n".to_owned()
            } else {
                format!(" eth{}\n", self.count)
            };
        }
        if !field.example.is_empty() && (self.random.is_none() || self.below(2) == 0) {
            return format!(" {}\n", field.example);
        }
        self.value(&(field.shape)(), depth)
    }

    fn value(&mut self, shape: &Shape, depth: usize) -> String {
        match shape {
            Shape::Single(kind, example) => format!(" {}\n", self.single(kind, example)),
            Shape::Choice(words) => {
                let index = self.below(words.len() as u64) as usize;
                format!(" {:?}\n", words[index])
            }
            Shape::Section(section) => match self.section(section, depth + 2) {
                body if body.is_empty() => " {}\n".to_owned(),
                body => format!("\n{body}"),
            },
            Shape::List(inner) => {
                let many = if self.random.is_some() { self.below(3) } else { 1 };
                let items: String = (0..many)
                    .map(|_| format!("{:w$}-{}", "", self.value(inner, depth + 2), w = depth + 2))
                    .collect();
                if items.is_empty() { " []\n".to_owned() } else { format!("\n{items}") }
            }
            Shape::Map(inner) => {
                let many = if self.random.is_some() { self.below(3) } else { 1 };
                let items: String = (0..many)
                    .map(|i| format!("{:w$}name{i}:{}", "", self.value(inner, depth + 2), w = depth + 2))
                    .collect();
                if items.is_empty() { " {}\n".to_owned() } else { format!("\n{items}") }
            }
            Shape::Any => " {a: [1, 2.5, no, \"1\", null, true], b: {c: d}}\n".to_owned(),
        }
    }

    fn single(&mut self, kind: &str, example: &str) -> String {
        if self.random.is_none() {
            return example.to_owned();
        }
        match kind {
            "text" | "secret text" => {
                let index = self.below(TRICKY.len() as u64) as usize;
                format!("\"{}\"", TRICKY[index])
            }
            "true or false" => ["true", "false"][self.below(2) as usize].to_owned(),
            "whole number" => self.below(256).to_string(),
            "duration" => format!("{}h{}m{}.25s", self.below(99), self.below(60), self.below(60)),
            "size" => format!("{} MB", self.below(10_000)),
            "IP address" => ["10.0.0.7", "fd00::7"][self.below(2) as usize].to_owned(),
            _ => example.to_owned(),
        }
    }
}
