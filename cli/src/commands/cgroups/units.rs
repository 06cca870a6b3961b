//! Texts for bytes, times and shares, as Go's tools write them.

/// `96 MiB`, `8.0 MiB`: powers of 1024, one decimal below 10.
pub(super) fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 10 {
        return format!("{bytes} B");
    }
    let exponent = usize::try_from(bytes.ilog2() / 10).unwrap_or(0).min(UNITS.len() - 1);
    let unit = 1_u128 << (10 * exponent);
    // Tenths, rounded.
    let tenths = (u128::from(bytes) * 10 + unit / 2) / unit;
    match tenths < 100 {
        true => format!("{}.{} {}", tenths / 10, tenths % 10, UNITS[exponent]),
        false => format!("{} {}", (tenths + 5) / 10, UNITS[exponent]),
    }
}

/// `1h2m3.5s`, `9.724ms`, `467µs`, `0s`: Go's durations.
pub(super) fn microseconds(usec: u64) -> String {
    match usec {
        0 => "0s".to_owned(),
        1..1000 => format!("{usec}µs"),
        1000..1_000_000 => format!("{}ms", fraction(usec / 1000, usec % 1000, 3)),
        _ => {
            let (seconds, rest) = (usec / 1_000_000, usec % 1_000_000);
            let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
            let seconds = fraction(seconds % 60, rest, 6);
            match (hours, minutes) {
                (0, 0) => format!("{seconds}s"),
                (0, _) => format!("{minutes}m{seconds}s"),
                _ => format!("{hours}h{minutes}m{seconds}s"),
            }
        }
    }
}

/// Decimals without zeros at their end.
fn fraction(whole: u64, rest: u64, digits: usize) -> String {
    let decimals = format!("{rest:0digits$}");
    match decimals.trim_end_matches('0') {
        "" => whole.to_string(),
        decimals => format!("{whole}.{decimals}"),
    }
}

/// `45.39%`; a part of nothing is all of it.
pub(super) fn percent(part: u64, whole: u64) -> String {
    if whole == 0 {
        return if part == 0 { "0.00%".to_owned() } else { "max%".to_owned() };
    }
    let hundredths = (u128::from(part) * 10_000 + u128::from(whole) / 2) / u128::from(whole);
    format!("{}.{:02}%", hundredths / 100, hundredths % 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_times_and_shares() {
        for (size, text) in [
            (0, "0 B"),
            (872 << 10, "872 KiB"),
            (8 << 20, "8.0 MiB"),
            (96 << 20, "96 MiB"),
            (1_503_238_554, "1.4 GiB"),
        ] {
            assert_eq!(bytes(size), text);
        }
        for (usec, text) in [
            (0, "0s"),
            (467, "467µs"),
            (9724, "9.724ms"),
            (86_554, "86.554ms"),
            (1_000_000, "1s"),
            (35_061_148, "35.061148s"),
            (132_512_921, "2m12.512921s"),
            (3_600_500_000, "1h0m0.5s"),
        ] {
            assert_eq!(microseconds(usec), text);
        }
        assert_eq!(
            (percent(1, 3).as_str(), percent(5, 0).as_str(), percent(0, 0).as_str()),
            ("33.33%", "max%", "0.00%")
        );
    }
}
