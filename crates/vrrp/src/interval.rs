//! The time between two advertisements, as a packet can say it.
//!
//! Owns: the range. Source: RFC 9568 §5.2.7.

use std::time::Duration;

/// Twelve bits of a packet.
const MOST_CENTISECONDS: u16 = 0xfff;

/// Max Advertise Interval: 1..=4095 centiseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Interval(u16);

impl Interval {
    /// One second: what routers use that are told nothing else (RFC 9568 §6.1).
    pub const DEFAULT: Self = Self(100);

    /// None out of range.
    #[must_use]
    pub const fn from_centiseconds(centiseconds: u16) -> Option<Self> {
        if centiseconds == 0 || centiseconds > MOST_CENTISECONDS { None } else { Some(Self(centiseconds)) }
    }

    /// None out of range, and for what is no whole number of centiseconds.
    #[must_use]
    pub fn from_duration(time: Duration) -> Option<Self> {
        let centiseconds = u16::try_from(time.as_millis() / 10).ok().and_then(Self::from_centiseconds)?;
        (centiseconds.duration() == time).then_some(centiseconds)
    }

    /// As a packet has it.
    #[must_use]
    pub const fn centiseconds(self) -> u16 {
        self.0
    }

    /// As clocks have it.
    #[must_use]
    pub const fn duration(self) -> Duration {
        Duration::from_millis(self.0 as u64 * 10)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_packet_can_say_is_an_interval() {
        for (millis, centiseconds) in
            [(0, None), (5, None), (10, Some(1)), (15, None), (1000, Some(100)), (40_950, Some(4095))]
        {
            let interval = Interval::from_duration(Duration::from_millis(millis));
            assert_eq!(interval.map(Interval::centiseconds), centiseconds, "{millis} ms");
        }
        assert_eq!(Interval::from_duration(Duration::from_millis(40_960)), None);
        assert_eq!(Interval::from_duration(Duration::MAX), None);
        assert_eq!(Interval::DEFAULT.duration(), Duration::from_secs(1));
    }
}
