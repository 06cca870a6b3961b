//! The clocks machined reads.
//!
//! Owns: the one place that says which clock serves what: `CLOCK_BOOTTIME` for spans and timelines, `CLOCK_REALTIME`
//! for what people read.
//! Does not: set the time.

use jiff::Timestamp;
use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds since the kernel started, sleep included.
pub fn boottime_ns() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

/// Wall-clock time.
pub fn now() -> Timestamp {
    Timestamp::now()
}

/// A moment in whole seconds of UTC (RFC 3339).
pub fn text(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Nanoseconds since 1970; what is beyond 64 bits is the end of them.
pub fn unix_ns() -> i64 {
    i64::try_from(now().as_nanosecond()).unwrap_or(i64::MAX)
}

/// Waits until a moment; without one it never ends.
pub async fn until(due: Option<tokio::time::Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}

/// The form protobuf wants.
pub fn proto(time: Timestamp) -> prost_types::Timestamp {
    prost_types::Timestamp { seconds: time.as_second(), nanos: time.subsec_nanosecond() }
}

/// The wall-clock time of a moment given in microseconds since boot (the kernel log's stamp).
pub fn at_boot_us(since_boot_us: u64) -> Timestamp {
    let age_us = (boottime_ns() / 1000).saturating_sub(since_boot_us);
    let age = jiff::SignedDuration::from_micros(i64::try_from(age_us).unwrap_or(i64::MAX));
    now().checked_sub(age).unwrap_or(Timestamp::UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_of_now_is_about_now() {
        let stamp = at_boot_us(boottime_ns() / 1000);
        assert!((now().as_millisecond() - stamp.as_millisecond()).abs() < 5_000);
    }

    #[test]
    fn a_moment_is_written_in_whole_seconds() {
        assert_eq!(text(Timestamp::new(1_796_000_403, 999).unwrap()), "2026-11-30T01:00:03Z");
    }

    #[test]
    fn proto_time_keeps_the_parts() {
        let time = Timestamp::new(12, 345).unwrap();
        assert_eq!(proto(time), prost_types::Timestamp { seconds: 12, nanos: 345 });
    }
}
