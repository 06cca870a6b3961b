//! Log lines without an allocator.
//!
//! Owns: a fixed buffer to format into; what does not fit is cut. Newlines become spaces: one event, one line.

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
        for &byte in text.as_bytes() {
            let Some(slot) = self.bytes.get_mut(self.used) else { break };
            *slot = if byte == b'\n' { b' ' } else { byte };
            self.used += 1;
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
}
