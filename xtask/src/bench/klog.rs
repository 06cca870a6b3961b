//! Times in kernel log lines: `[    1.893566] Run /init as init process`.

/// The time of the record in which `needle` stands, in nanoseconds. What a program was writing to the console when the
/// kernel cut in may stand before it on the line.
pub(crate) fn time_of(line: &str, needle: &str) -> Option<u64> {
    let record = line.get(..line.find(needle)?)?;
    let (seconds, rest) = record.get(record.rfind('[')? + 1..)?.trim_start().split_once('.')?;
    let (micros, _) = rest.split_once(']')?;
    if micros.len() != 6 {
        return None;
    }
    let micros = seconds.parse::<u64>().ok()?.checked_mul(1_000_000)?.checked_add(micros.parse().ok()?)?;
    micros.checked_mul(1000)
}

#[cfg(test)]
mod tests {
    use super::time_of;

    #[test]
    fn times_are_nanoseconds() {
        assert_eq!(time_of("[    1.893566] Run /init as init process", "Run /init"), Some(1_893_566_000));
        assert_eq!(time_of("[   12.000001] billet: API ready", "API"), Some(12_000_001_000));
        assert_eq!(
            time_of("  Starting [0;1mssh[0m...[    5.969474] bench: open", "bench:"),
            Some(5_969_474_000)
        );
    }

    #[test]
    fn lines_without_a_time_have_none() {
        for line in ["bench: open", "[bench] bench: open", "[ 1.5] bench: open", "[    1.893566 bench: open"]
        {
            assert_eq!(time_of(line, "bench: open"), None, "{line}");
        }
    }
}
