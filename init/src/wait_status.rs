//! How a process ended, in words.
//!
//! Source: wait(2).

/// A wait status in words.
pub(crate) struct WaitStatus(pub(crate) i32);

impl core::fmt::Display for WaitStatus {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self.0 & 0x7f {
            0 => write!(f, "exit status {}", (self.0 >> 8) & 0xff),
            signal => write!(f, "signal {signal}"),
        }
    }
}
