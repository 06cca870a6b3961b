//! The text that remarks point into, and what of a line may be shown.
//!
//! Owns: cutting secrets out of a shown line. A line is masked if a secret's value touches it (the typed reading
//! says so) or, while no tree exists, if it looks like it.

use std::collections::BTreeSet;

/// Words that name secrets; a line with one of them is shown up to its first colon only.
const SECRET_WORDS: &[&str] =
    &["token", "key", "secret", "crt", "passphrase", "password", "auth", "proxy", "content", "private"];
/// Longest piece of a line that is shown, in characters.
const SHOWN_CHARS: usize = 100;

/// The text of a stream.
pub(crate) struct Source<'a> {
    lines: Vec<&'a str>,
    secret_lines: BTreeSet<usize>,
    /// Whether the typed reading has marked the secrets.
    typed: bool,
}

impl<'a> Source<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        Self { lines: text.lines().collect(), secret_lines: BTreeSet::new(), typed: false }
    }

    /// From here on only the lines that [`Source::hide`] named are masked.
    pub(crate) fn now_typed(&mut self) {
        self.typed = true;
    }

    /// Lines that hold a secret.
    pub(crate) fn hide(&mut self, first: usize, last: usize) {
        self.secret_lines.extend(first..=last.min(self.lines.len()));
    }

    /// The line `number`, shortened, without secrets.
    pub(crate) fn shown(&self, number: usize) -> String {
        let Some(line) = number.checked_sub(1).and_then(|i| self.lines.get(i)) else { return String::new() };
        let hidden =
            if self.typed { self.secret_lines.contains(&number) } else { self.looks_secret(number - 1) };
        if !hidden {
            return shortened(line.trim_end());
        }
        match line.split_once(':') {
            // What stands before the colon of a name is no secret; anything else might be.
            Some((key, _)) if is_name(key) => format!("{key}: …"),
            _ => String::new(),
        }
    }

    /// Whether this line, or the one it belongs to by its indentation, names a secret or is no `name: value`.
    fn looks_secret(&self, index: usize) -> bool {
        let line = self.lines[index];
        let names_secret = |l: &str| {
            let lower = l.to_lowercase();
            SECRET_WORDS.iter().any(|word| lower.contains(word))
        };
        if names_secret(line) || !line.contains(':') {
            return true;
        }
        let depth = indent(line);
        let parent = self.lines[..index].iter().rev().find(|l| !l.trim().is_empty() && indent(l) < depth);
        parent.is_some_and(|p| names_secret(p))
    }
}

/// A text cut to what one line can hold.
pub(crate) fn shortened(text: &str) -> String {
    if text.chars().count() <= SHOWN_CHARS {
        text.to_owned()
    } else {
        text.chars().take(SHOWN_CHARS).chain(['…']).collect()
    }
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

fn is_name(key: &str) -> bool {
    let name = key.trim_start_matches([' ', '-', '{', '"', '\'']).trim_end_matches(['"', '\'', ' ']);
    !name.is_empty()
        && name.len() <= 40
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"_.-/".contains(&b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn before_the_tree_exists_whatever_looks_secret_is_cut() {
        let source =
            Source::new("a: b\ntoken: hunter2\nkey: |\n  hunter2\n  hunter: 2\nx: {password: hunter2}\n");
        let shown: Vec<_> = (1..=6).map(|n| source.shown(n)).collect();
        assert_eq!(shown, ["a: b", "token: …", "key: …", "", "  hunter: …", "x: …"]);
        assert_eq!(source.shown(0) + &source.shown(99), "");
    }

    #[test]
    fn after_it_only_marked_lines_are() {
        let mut source = Source::new("tokens: 3\na: hunter2\n");
        source.now_typed();
        source.hide(2, 2);
        assert_eq!((source.shown(1).as_str(), source.shown(2).as_str()), ("tokens: 3", "a: …"));
    }
}
