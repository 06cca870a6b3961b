//! How the kernel steers the clock, as a resource.
//!
//! Source: adjtimex(2), include/uapi/linux/timex.h.

use runtime::store::{Adjtime, Fact, Spec};
use sys::clock::Standing;

/// Flags of `status` by bit.
const FLAGS: [&str; 16] = [
    "STA_PLL",
    "STA_PPSFREQ",
    "STA_PPSTIME",
    "STA_FLL",
    "STA_INS",
    "STA_DEL",
    "STA_UNSYNC",
    "STA_FREQHOLD",
    "STA_PPSSIGNAL",
    "STA_PPSJITTER",
    "STA_PPSWANDER",
    "STA_PPSERROR",
    "STA_CLOCKERR",
    "STA_NANO",
    "STA_MODE",
    "STA_CLK",
];

/// What the call returns.
const STATES: [&str; 6] = ["TIME_OK", "TIME_INS", "TIME_DEL", "TIME_OOP", "TIME_WAIT", "TIME_ERROR"];

/// The spec of the resource.
pub(super) fn spec(standing: &Standing) -> Spec {
    let flags = FLAGS.iter().enumerate().filter(|(bit, _)| standing.status & (1 << bit) != 0);
    let status = flags.map(|(_, name)| *name).collect::<Vec<_>>().join(" | ");
    let adjtime = Adjtime {
        offset: duration(standing.offset_ns),
        frequency_adjustment_ratio: ratio(standing.frequency),
        max_error: duration(standing.max_error_us.saturating_mul(1000)),
        est_error: duration(standing.estimated_error_us.saturating_mul(1000)),
        status,
        constant: standing.constant,
        sync_status: standing.steered,
        state: STATES.get(standing.state).copied().unwrap_or("TIME_ERROR"),
    };
    Spec::Fact(Box::new(Fact::Adjtime(Box::new(adjtime))))
}

/// The kernel's frequency is parts per million, scaled by 65536, and at most 500 of them.
fn ratio(frequency: i64) -> f64 {
    let frequency = i32::try_from(frequency).unwrap_or_default();
    1.0 + f64::from(frequency) / 65536.0 / 1_000_000.0
}

/// `1.5ms`: the largest unit that leaves a whole part.
fn duration(ns: i64) -> String {
    let (size, sign) = (ns.unsigned_abs(), if ns < 0 { "-" } else { "" });
    let (unit, name): (u64, _) = match size {
        0 => return "0s".to_owned(),
        1..1_000 => (1, "ns"),
        1_000..1_000_000 => (1_000, "µs"),
        1_000_000..1_000_000_000 => (1_000_000, "ms"),
        _ => (1_000_000_000, "s"),
    };
    let width = unit.ilog10() as usize;
    let part = format!(".{:0width$}", size % unit);
    let part = part.trim_end_matches('0').trim_end_matches('.');
    format!("{sign}{}{part}{name}", size / unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_those_of_go() {
        for (ns, text) in [
            (0, "0s"),
            (7, "7ns"),
            (-1_500, "-1.5µs"),
            (1_000_000, "1ms"),
            (-1_020_300, "-1.0203ms"),
            (16_000_000_000, "16s"),
            (1_000_000_001, "1.000000001s"),
        ] {
            assert_eq!(duration(ns), text);
        }
    }

    #[test]
    fn the_kernels_words_have_their_names() {
        let standing = Standing {
            steered: true,
            frequency: 65536 * 20,
            offset_ns: -1_500,
            max_error_us: 16_000_000,
            estimated_error_us: 250,
            status: 0x2001,
            constant: 7,
            state: 0,
        };
        let text = spec(&standing).yaml().unwrap();
        assert_eq!(
            text,
            "offset: -1.5µs\nfrequencyAdjustmentRatio: 1.00002\nmaxError: 16s\nestError: 250µs\nstatus: STA_PLL | \
             STA_NANO\nconstant: 7\nsyncStatus: true\nstate: TIME_OK\n"
        );
        let lost = spec(&Standing { steered: false, status: 0x40, state: 5, ..standing });
        let text = lost.yaml().unwrap();
        assert!(text.contains("status: STA_UNSYNC\n") && text.contains("state: TIME_ERROR\n"), "{text}");
    }
}
