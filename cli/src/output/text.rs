//! Texts for times and sizes, as Go's tools write them.

use jiff::{Timestamp, tz::TimeZone};
use std::time::Duration;

/// `1h2m3s`: whole seconds, as Go prints a rounded duration.
pub(crate) fn go_duration(duration: Duration) -> String {
    let seconds = duration.as_secs() + u64::from(duration.subsec_millis() >= 500);
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    match (hours, minutes) {
        (0, 0) => format!("{seconds}s"),
        (0, _) => format!("{minutes}m{seconds}s"),
        _ => format!("{hours}h{minutes}m{seconds}s"),
    }
}

/// `4.1 kB`: powers of 1000, one decimal below 10.
pub(crate) fn bytes_si(bytes: u64) -> String {
    const UNITS: [&str; 7] = ["B", "kB", "MB", "GB", "TB", "PB", "EB"];
    if bytes < 10 {
        return format!("{bytes} B");
    }
    let exponent = usize::try_from(bytes.ilog10() / 3).unwrap_or(0).min(UNITS.len() - 1);
    let unit = (0..exponent).fold(1_u128, |unit, _| unit * 1000);
    // Tenths, rounded.
    let tenths = (u128::from(bytes) * 10 + unit / 2) / unit;
    match tenths < 100 {
        true => format!("{}.{} {}", tenths / 10, tenths % 10, UNITS[exponent]),
        false => format!("{} {}", (tenths + 5) / 10, UNITS[exponent]),
    }
}

/// `Nov 21 2026 03:17:45` in `zone`.
pub(crate) fn local_time(unix_seconds: i64, zone: &TimeZone) -> String {
    let Ok(time) = Timestamp::from_second(unix_seconds) else { return unix_seconds.to_string() };
    time.to_zoned(zone.clone()).strftime("%b %-d %Y %H:%M:%S").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        for (ms, text) in [
            (0, "0s"),
            (1499, "1s"),
            (1500, "2s"),
            (61_000, "1m1s"),
            (3_600_000, "1h0m0s"),
            (90_061_000, "25h1m1s"),
        ] {
            assert_eq!(go_duration(Duration::from_millis(ms)), text);
        }
    }

    #[test]
    fn sizes() {
        for (bytes, text) in [
            (0, "0 B"),
            (9, "9 B"),
            (10, "10 B"),
            (999, "999 B"),
            (1000, "1.0 kB"),
            (4096, "4.1 kB"),
            (82_854_982, "83 MB"),
            (9_960_000, "10 MB"),
        ] {
            assert_eq!(bytes_si(bytes), text);
        }
        assert_eq!(bytes_si(u64::MAX), "18 EB");
    }

    #[test]
    fn times() {
        assert_eq!(local_time(0, &TimeZone::UTC), "Jan 1 1970 00:00:00");
    }
}
