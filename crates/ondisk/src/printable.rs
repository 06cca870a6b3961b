//! Text that came from elsewhere, as a terminal may have it.
//!
//! Owns: which characters would act on a terminal instead of being shown: controls, those of the C1 set, and those that
//! turn the direction of text. Does not: change what goes into a file or another program.
//! Source: ECMA-48; Unicode Standard Annex 9 (bidirectional formatting characters).

use alloc::borrow::Cow;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::{self, Write};

/// The text with such characters as `\x1b` or `\u{202e}`. Lines and tabs stay; bytes that are no UTF-8 do too, since a
/// character may be cut between two messages.
#[must_use]
pub fn printable(bytes: &[u8]) -> Cow<'_, [u8]> {
    let acts = |text: &str| {
        let mut signs = text.chars().peekable();
        core::iter::from_fn(|| signs.next().map(|sign| is_acting(sign, signs.peek().copied())))
            .any(|acts| acts)
    };
    if !bytes.utf8_chunks().any(|chunk| acts(chunk.valid())) {
        return Cow::Borrowed(bytes);
    }
    let mut shown = Vec::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        shown.extend_from_slice(escaped(chunk.valid()).as_bytes());
        shown.extend_from_slice(chunk.invalid());
    }
    Cow::Owned(shown)
}

/// The same of text.
#[must_use]
pub fn shown(text: &str) -> String {
    escaped(text)
}

/// The same for one line: the ends of lines within it are shown too, so that it stays one.
#[must_use]
pub fn line(text: &str) -> String {
    // A carriage return before the end of a line went through.
    escaped(text).replace('\r', "\\x0d").replace('\n', "\\n")
}

fn escaped(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    // A String takes everything.
    let _ = write(&mut shown, text);
    shown
}

/// The same, written without an allocator.
///
/// # Errors
/// Those of `to`.
pub fn write(to: &mut impl Write, text: &str) -> fmt::Result {
    let mut signs = text.chars().peekable();
    while let Some(sign) = signs.next() {
        if !is_acting(sign, signs.peek().copied()) {
            to.write_char(sign)?;
        } else if u32::from(sign) < 0x100 {
            write!(to, "\\x{:02x}", u32::from(sign))?;
        } else {
            write!(to, "\\u{{{:x}}}", u32::from(sign))?;
        }
    }
    Ok(())
}

fn is_acting(sign: char, next: Option<char>) -> bool {
    match sign {
        '\n' | '\t' => false,
        '\r' => next != Some('\n'),
        '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => true,
        other => other.is_control(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on_terminal(text: &str) -> String {
        String::from_utf8(printable(text.as_bytes()).into_owned()).unwrap()
    }

    #[test]
    fn what_acts_on_a_terminal_is_shown() {
        assert_eq!(on_terminal("a\x1b[2Jb\x07"), "a\\x1b[2Jb\\x07");
        assert_eq!(on_terminal("\u{9b}31m"), "\\x9b31m");
        assert_eq!(on_terminal("txt.\u{202e}exe"), "txt.\\u{202e}exe");
        assert_eq!(on_terminal("over\rwritten\r\n"), "over\\x0dwritten\r\n");
        assert_eq!(line("a name\nerror: none\x1b"), "a name\\nerror: none\\x1b");
        assert_eq!(line("a name\r\nerror"), "a name\\x0d\\nerror");
    }

    #[test]
    fn other_text_and_cut_characters_stay() {
        let text = "Größe\t漢字 😀\nok\n";
        assert!(matches!(printable(text.as_bytes()), Cow::Borrowed(bytes) if bytes == text.as_bytes()));
        let cut = &"€".as_bytes()[..2];
        assert_eq!(printable(cut), cut);
        assert_eq!(printable(b"\xe2\x82\x1b").as_ref(), b"\xe2\x82\\x1b");
    }
}
