//! Log lines without an allocator.
//!
//! Owns: a fixed buffer to format into; what does not fit is cut. One event is one line: its ends within become spaces.
//! What would act on the console is shown instead, since servers and neighbours choose some of the words.

use core::fmt::{self, Write};

/// A kernel log record holds at most 976 bytes of text; a failure with its object is a fraction of that.
const CAPACITY: usize = 900;

/// Text under construction.
#[derive(Debug)]
pub struct Line {
    bytes: [u8; CAPACITY],
    used: usize,
}

impl Line {
    /// Formats a line.
    pub fn new(arguments: fmt::Arguments<'_>) -> Self {
        let mut line = Self { bytes: [0; CAPACITY], used: 0 };
        let _ = line.write_fmt(arguments);
        line
    }

    /// What was written.
    pub fn as_str(&self) -> &str {
        let bytes = &self.bytes[..self.used];
        match core::str::from_utf8(bytes) {
            Ok(text) => text,
            // A character was cut at the end.
            Err(error) => core::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default(),
        }
    }
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        ondisk::printable::write(&mut Rest(self), text)
    }
}

/// What of a line is still free.
struct Rest<'l>(&'l mut Line);

impl Write for Rest<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for &byte in text.as_bytes() {
            let Some(slot) = self.0.bytes.get_mut(self.0.used) else { break };
            *slot = if matches!(byte, b'\n' | b'\r') { b' ' } else { byte };
            self.0.used += 1;
        }
        Ok(())
    }
}

/// Logs a formatted line: `say!(kernel, Level::Info, "…")`.
macro_rules! say {
    ($kernel:expr, $level:expr, $($arguments:tt)*) => {
        $kernel.log($level, $crate::line::Line::new(format_args!($($arguments)*)).as_str())
    };
}
pub(crate) use say;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_stay_one_line_and_end_on_a_character() {
        assert_eq!(Line::new(format_args!("a\nb {}", 7)).as_str(), "a b 7");
        let long = "ä".repeat(CAPACITY);
        assert_eq!(Line::new(format_args!("x{long}")).as_str().len(), CAPACITY - 1);
    }

    /// Of an answer, a name in a certificate, an option of DHCP.
    #[test]
    fn what_others_say_does_not_act_on_the_console() {
        let said = "it answers 404 \x1b]0;owned\x07\x1b[2J\u{9b}31mNot\r\nFound\r";
        let line = Line::new(format_args!("<3>billet: init: fetch {}: {said}", "http://a/\u{202e}b"));
        assert_eq!(
            line.as_str(),
            "<3>billet: init: fetch http://a/\\u{202e}b: it answers 404 \\x1b]0;owned\\x07\\x1b[2J\\x9b31mNot  Found\\x0d"
        );
    }
}
