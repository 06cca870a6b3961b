//! A page of the manual as a script: its commands, what they print, what a machine's console shows.
//!
//! Owns: the blocks of a page, which line belongs to which command, and when an answer is the one that the page shows.
//! Does not: run anything ([`crate::shell`] does).
//! Fails by: the line of the page.
//!
//! | block | means |
//! |---|---|
//! | `sh` | commands that succeed |
//! | `sh fails` | commands that succeed, but for the last one, which must not |
//! | `text` | lines that the commands above printed, among others, in this order; `…` is anything |
//! | `console` | texts that the machine's console shows, in this order |
//!
//! A command that is nothing but `NAME=value` sets a variable, for which a test may put in its own value.

use anyhow::{Result, bail};

/// What stands for anything in an answer.
const ANYTHING: char = '…';

/// One command with its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// Line of the page, from 1.
    pub line: usize,
    /// What the shell gets; several lines if they end with a backslash.
    pub text: String,
}

/// One block of the page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Block {
    /// Commands; whether the last one must fail.
    Commands(Vec<Command>, bool),
    /// What the commands before printed, from this line of the page on.
    Answer(usize, Vec<String>),
    /// What a machine shows, from this line of the page on.
    Console(usize, Vec<String>),
}

/// The blocks of a page, in order. Blocks in other languages (`yaml`, none) are for reading.
pub fn blocks(page: &str) -> Result<Vec<Block>> {
    let mut found = Vec::new();
    let mut lines = page.lines().zip(1..);
    while let Some((line, number)) = lines.next() {
        let Some(kind) = line.strip_prefix("```") else { continue };
        let body: Vec<String> = lines
            .by_ref()
            .map(|(line, _)| line)
            .take_while(|line| *line != "```")
            .map(str::to_owned)
            .collect();
        match kind {
            "sh" => found.push(Block::Commands(commands(number, &body), false)),
            "sh fails" => found.push(Block::Commands(commands(number, &body), true)),
            "text" => found.push(Block::Answer(number, body)),
            "console" => found.push(Block::Console(number, body)),
            other if other.starts_with("sh") => bail!("line {number}: a block `{other}` is not known"),
            _ => {}
        }
    }
    Ok(found)
}

fn commands(fence: usize, body: &[String]) -> Vec<Command> {
    let mut found: Vec<Command> = Vec::new();
    let mut goes_on = false;
    for (text, line) in body.iter().zip(fence + 1..) {
        match found.last_mut() {
            Some(last) if goes_on => last.text.push_str(&format!("\n{text}")),
            _ if text.is_empty() || text.starts_with('#') => continue,
            _ => found.push(Command { line, text: text.clone() }),
        }
        goes_on = text.ends_with('\\');
    }
    found
}

impl Command {
    /// The variable that this sets, if it does nothing else.
    pub fn variable(&self) -> Option<&str> {
        let (name, value) = self.text.split_once('=')?;
        let is_name = !name.is_empty() && name.bytes().all(|b| b.is_ascii_uppercase() || b == b'_');
        let quoted = value.len() > 1 && value.starts_with('\'') && value.ends_with('\'');
        (is_name && (quoted || !value.contains([' ', '"']))).then_some(name)
    }
}

/// The first of the shown lines that is not in the printed text behind the one before it.
pub fn missing<'a>(shown: &'a [String], printed: &str) -> Option<&'a str> {
    let mut printed = printed.lines();
    let mut absent = |shown: &&String| !printed.any(|line| is_like(shown.trim(), line.trim()));
    shown.iter().filter(|line| !line.trim().is_empty()).find(|line| absent(line)).map(String::as_str)
}

/// Whether a line is what the page shows.
fn is_like(shown: &str, line: &str) -> bool {
    let Some((first, rest)) = shown.split_once(ANYTHING) else { return shown == line };
    let Some(mut left) = line.strip_prefix(first) else { return false };
    let mut parts: Vec<&str> = rest.split(ANYTHING).collect();
    let last = parts.pop().unwrap_or_default();
    for part in parts {
        let Some(at) = left.find(part) else { return false };
        left = &left[at + part.len()..];
    }
    left.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_found_with_their_lines() {
        let page = "# A\n```sh\nNODE=10.0.0.2\n# why\na \\\n  b\n\nc\n```\ntext\n```text\nx …\n```\n```yaml\nk: v\n```\n\
                    ```sh fails\nd\n```\n```console\nhello\n```\n";
        let command = |line, text: &str| Command { line, text: text.to_owned() };
        assert_eq!(
            blocks(page).unwrap(),
            [
                Block::Commands(
                    vec![command(3, "NODE=10.0.0.2"), command(5, "a \\\n  b"), command(8, "c")],
                    false
                ),
                Block::Answer(11, vec!["x …".to_owned()]),
                Block::Commands(vec![command(18, "d")], true),
                Block::Console(20, vec!["hello".to_owned()]),
            ]
        );
        assert!(blocks("```sh failing\n```\n").unwrap_err().to_string().contains("line 1"));
    }

    #[test]
    fn only_plain_assignments_are_variables() {
        let variable = |text: &str| Command { line: 1, text: text.to_owned() }.variable().map(str::to_owned);
        assert_eq!(variable("NODE=10.0.0.2").as_deref(), Some("NODE"));
        assert_eq!(variable("FINGERPRINT='a b='").as_deref(), Some("FINGERPRINT"));
        for other in
            ["EDITOR=true billetctl edit mc", "EDITOR=\"sed -i\" x", "until x=1", "billetctl -o=a", "A='x' b"]
        {
            assert_eq!(variable(other), None, "{other}");
        }
    }

    #[test]
    fn shown_lines_are_in_the_answer_in_order() {
        let shown = |lines: &[&str]| lines.iter().map(|&line| line.to_owned()).collect::<Vec<_>>();
        let printed = "created a\n  NODE:   10.0.0.2\nuntil 2026 UTC\nlast\n";
        assert_eq!(missing(&shown(&["created a", "", "NODE: …", "until … UTC", "last"]), printed), None);
        assert_eq!(missing(&shown(&["last", "created a"]), printed), Some("created a"));
        assert_eq!(missing(&shown(&["created"]), printed), Some("created"));
        assert_eq!(missing(&shown(&["until … CET"]), printed), Some("until … CET"));
        assert!(is_like("a…b…c", "a1b2c") && !is_like("a…b…c", "a1c") && is_like("…", ""));
    }
}
