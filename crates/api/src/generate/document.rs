//! YAML text, written line by line.
//!
//! Owns: indentation and quoting. The order of fields is the order of the calls. It holds secrets: wiped, no `Debug`.

use config::patch::yaml_word;
use zeroize::Zeroizing;

const STEP: usize = 4;

/// A text under construction.
pub(super) struct Document {
    text: Zeroizing<String>,
    depth: usize,
}

impl Document {
    pub(super) fn new() -> Self {
        // Large enough for a whole configuration, so that no grown copy with secrets stays in memory.
        Self { text: Zeroizing::new(String::with_capacity(64 * 1024)), depth: 0 }
    }

    pub(super) fn finish(self) -> config::Secret {
        config::Secret::new(self.text.as_str())
    }

    /// `key: value`, a text.
    pub(super) fn text(&mut self, key: &str, value: &str) {
        self.raw(key, &yaml_word(value));
    }

    /// `key: value`, as it stands: numbers, booleans, `{}`.
    pub(super) fn raw(&mut self, key: &str, value: &str) {
        self.pad();
        for piece in [key, ": ", value, "\n"] {
            self.text.push_str(piece);
        }
    }

    /// `key: true`.
    pub(super) fn flag(&mut self, key: &str, value: bool) {
        self.raw(key, if value { "true" } else { "false" });
    }

    /// `key:` and what `content` writes below it.
    pub(super) fn map(&mut self, key: &str, content: impl FnOnce(&mut Self)) {
        self.pad();
        self.text.push_str(&yaml_word(key));
        self.text.push_str(":\n");
        self.depth += 1;
        content(self);
        self.depth -= 1;
    }

    /// `key:` and a list of texts.
    pub(super) fn list(&mut self, key: &str, items: &[String]) {
        if items.is_empty() {
            return self.raw(key, "[]");
        }
        self.map(key, |doc| {
            for item in items {
                doc.pad();
                doc.text.push_str("- ");
                doc.text.push_str(&yaml_word(item));
                doc.text.push('\n');
            }
        });
    }

    /// Lines that are the same for everyone, four spaces a step.
    pub(super) fn lines(&mut self, lines: &str) {
        for line in lines.lines() {
            self.pad();
            self.text.push_str(line);
            self.text.push('\n');
        }
    }

    /// A certificate and its key, both base64 already.
    pub(super) fn pair(&mut self, key: &str, certificate: &str, private: &str) {
        self.map(key, |doc| {
            doc.raw("crt", certificate);
            doc.raw("key", if private.is_empty() { "\"\"" } else { private });
        });
    }

    fn pad(&mut self) {
        self.text.extend(std::iter::repeat_n(' ', self.depth * STEP));
    }
}
