//! Which of several servers to believe.
//!
//! Each server says an interval that holds the true time. The time that most intervals agree on is believed, and it
//! must be more than half of them: one wrong server of three changes nothing, two that contradict each other are
//! both not believed.
//! Source: RFC 5905 §11.2.1 (intersection), §11.2.3 (combining by distance).

use sys::clock::Leap;

use super::query::Sample;

/// The time that the servers agree on.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Choice {
    /// True time minus ours.
    pub(super) offset_ns: i64,
    /// How far that may be wrong.
    pub(super) error_ns: i64,
    /// What most of the believed ones announce.
    pub(super) leap: Leap,
    /// Which samples are believed, by index.
    pub(super) believed: Vec<usize>,
}

/// No time is agreed on.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(super) enum Disagreement {
    /// Nobody answered.
    #[error("no time server answered")]
    Silence,
    /// There is no majority.
    #[error("{of} time servers answered and at most {agree} agree; check machine.time.servers")]
    NoMajority { agree: usize, of: usize },
}

/// Combines what the servers said.
pub(super) fn choose(samples: &[Sample]) -> Result<Choice, Disagreement> {
    if samples.is_empty() {
        return Err(Disagreement::Silence);
    }
    let (low, high, agree) = intersection(samples);
    if agree * 2 <= samples.len() {
        return Err(Disagreement::NoMajority { agree, of: samples.len() });
    }
    let holds = |sample: &Sample| bounds(sample).0 <= low && bounds(sample).1 >= high;
    let believed: Vec<usize> = (0..samples.len()).filter(|&index| holds(&samples[index])).collect();
    let picked: Vec<&Sample> = believed.iter().map(|&index| &samples[index]).collect();
    let error_ns = picked.iter().map(|sample| sample.distance_ns()).min().unwrap_or(i64::MAX);
    Ok(Choice { offset_ns: mean(&picked), error_ns, leap: leap(&picked), believed })
}

fn bounds(sample: &Sample) -> (i64, i64) {
    let distance = sample.distance_ns();
    (sample.offset_ns.saturating_sub(distance), sample.offset_ns.saturating_add(distance))
}

/// The interval that most samples share, and how many those are.
fn intersection(samples: &[Sample]) -> (i64, i64, usize) {
    let mut best = (0, 0, 0);
    // The shared interval begins where one of them begins.
    for low in samples.iter().map(|sample| bounds(sample).0) {
        let holding: Vec<i64> =
            samples.iter().map(bounds).filter(|b| b.0 <= low && low <= b.1).map(|b| b.1).collect();
        if holding.len() > best.2 {
            best = (low, holding.iter().copied().min().unwrap_or(low), holding.len());
        }
    }
    best
}

/// The mean, in which a near server counts for more.
fn mean(samples: &[&Sample]) -> i64 {
    const ONE: i128 = 1 << 60;
    let weight = |sample: &Sample| ONE / i128::from(sample.distance_ns().max(1));
    let total: i128 = samples.iter().map(|sample| weight(sample)).sum();
    // Offsets reach 2^61; relative to the first one they are small, and products stay within 128 bits.
    let first = samples.first().map_or(0, |sample| sample.offset_ns);
    let sum: i128 = samples.iter().map(|sample| i128::from(sample.offset_ns - first) * weight(sample)).sum();
    first.saturating_add(i64::try_from(sum / total.max(1)).unwrap_or(0))
}

fn leap(samples: &[&Sample]) -> Leap {
    [Leap::Insert, Leap::Delete]
        .into_iter()
        .find(|kind| samples.iter().filter(|sample| sample.leap == *kind).count() * 2 > samples.len())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000_000;

    fn sample(offset_ms: i64, round_trip_ms: i64) -> Sample {
        Sample {
            server: "t".into(),
            address: ([127, 0, 0, 1], 123).into(),
            offset_ns: offset_ms * MS,
            round_trip_ns: round_trip_ms * MS,
            remote_time_ns: 0,
            stratum: 1,
            root_delay_ns: 0,
            root_dispersion_ns: 0,
            leap: Leap::None,
            reference: *b"GPS\0",
        }
    }

    #[test]
    fn one_server_is_believed() {
        let choice = choose(&[sample(40, 20)]).unwrap();
        assert_eq!((choice.offset_ns, choice.believed), (40 * MS, vec![0]));
        assert_eq!(choose(&[]), Err(Disagreement::Silence));
    }

    #[test]
    fn a_wrong_server_of_three_changes_nothing() {
        let choice = choose(&[sample(100_000, 2), sample(5, 10), sample(6, 10)]).unwrap();
        assert_eq!(choice.believed, [1, 2]);
        assert!((5 * MS..=6 * MS).contains(&choice.offset_ns), "{choice:?}");
    }

    #[test]
    fn two_that_contradict_are_not_believed() {
        let error = choose(&[sample(0, 10), sample(5_000, 10)]).unwrap_err();
        assert_eq!(error, Disagreement::NoMajority { agree: 1, of: 2 });
        let four = [sample(0, 2), sample(1, 2), sample(900, 2), sample(901, 2)];
        assert_eq!(choose(&four), Err(Disagreement::NoMajority { agree: 2, of: 4 }));
    }

    #[test]
    fn a_near_server_counts_for_more() {
        let choice = choose(&[sample(0, 2), sample(40, 200)]).unwrap();
        assert_eq!(choice.believed, [0, 1]);
        assert!((0..4 * MS).contains(&choice.offset_ns), "{choice:?}");
    }

    #[test]
    fn a_leap_second_needs_a_majority() {
        let mut samples = [sample(0, 10), sample(0, 10), sample(0, 10)];
        samples[0].leap = Leap::Insert;
        assert_eq!(choose(&samples).unwrap().leap, Leap::None);
        samples[1].leap = Leap::Insert;
        assert_eq!(choose(&samples).unwrap().leap, Leap::Insert);
    }

    #[test]
    fn an_offset_of_decades_does_not_overflow() {
        let decades = 56 * 365 * 86_400_000;
        let choice = choose(&[sample(decades, 10), sample(decades + 1, 30)]).unwrap();
        assert!((decades * MS..=(decades + 1) * MS).contains(&choice.offset_ns));
    }
}
