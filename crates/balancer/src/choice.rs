//! Which upstream is next.
//!
//! Owns: the order. Does not: count, dial or remember: the caller passes what it knows.

/// What dials and probes say of an upstream, best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum State {
    Healthy,
    /// Not tried yet.
    Unknown,
    /// The last try failed: it is taken when no other is left, for it may be back before a probe sees it.
    Unhealthy,
}

/// What an upstream is chosen by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub(crate) state: State,
    /// Lower first.
    pub(crate) priority: u8,
    /// Connections that are open or being dialled.
    pub(crate) open: usize,
    /// The turn in which it was chosen last, 0 if never.
    pub(crate) last_turn: u64,
    /// This client's connection was refused by it.
    pub(crate) is_tried: bool,
}

/// The place of the one that is tried next.
pub(crate) fn choose(candidates: impl IntoIterator<Item = Candidate>) -> Option<usize> {
    let untried = candidates.into_iter().enumerate().filter(|(_, candidate)| !candidate.is_tried);
    let best = untried.min_by_key(|(_, c)| (c.state, c.priority, c.open, c.last_turn));
    best.map(|(place, _)| place)
}

#[cfg(test)]
mod tests {
    use super::State::{Healthy, Unhealthy, Unknown};
    use super::*;

    const TRIED: bool = true;

    /// (state, priority, open, last turn, tried)
    type Row = (State, u8, usize, u64, bool);

    #[test]
    fn the_next_one_is_the_best_that_was_not_tried() {
        let table: &[(&str, &[Row], Option<usize>)] = &[
            ("none at all", &[], None),
            ("a single one", &[(Healthy, 0, 9, 9, false)], Some(0)),
            ("a single one that is unhealthy", &[(Unhealthy, 0, 0, 0, false)], Some(0)),
            ("all tried", &[(Healthy, 0, 0, 0, TRIED), (Unhealthy, 0, 0, 0, TRIED)], None),
            ("equals by their place", &[(Healthy, 0, 1, 1, false), (Healthy, 0, 1, 1, false)], Some(0)),
            ("equals in turn", &[(Healthy, 0, 1, 2, false), (Healthy, 0, 1, 1, false)], Some(1)),
            ("fewest before turn", &[(Healthy, 0, 2, 1, false), (Healthy, 0, 1, 2, false)], Some(1)),
            ("priority before fewest", &[(Healthy, 1, 0, 0, false), (Healthy, 0, 9, 9, false)], Some(1)),
            ("healthy before priority", &[(Unhealthy, 0, 0, 0, false), (Healthy, 9, 9, 9, false)], Some(1)),
            ("unknown after healthy", &[(Unknown, 0, 0, 0, false), (Healthy, 9, 9, 9, false)], Some(1)),
            ("unknown before unhealthy", &[(Unhealthy, 0, 0, 0, false), (Unknown, 9, 9, 9, false)], Some(1)),
            (
                "the second after the first failed",
                &[(Healthy, 0, 0, 0, TRIED), (Healthy, 1, 5, 3, false), (Healthy, 1, 4, 4, false)],
                Some(2),
            ),
            (
                "unhealthy ones after all healthy failed, lowest priority first",
                &[(Healthy, 0, 0, 0, TRIED), (Unhealthy, 2, 0, 0, false), (Unhealthy, 1, 0, 7, false)],
                Some(2),
            ),
        ];
        for (case, rows, expected) in table {
            let candidates = rows.iter().map(|&(state, priority, open, last_turn, is_tried)| Candidate {
                state,
                priority,
                open,
                last_turn,
                is_tried,
            });
            assert_eq!(choose(candidates), *expected, "{case}");
        }
    }
}
