//! Matching of device aliases: fnmatch as kmod uses it.
//!
//! Owns: `*`, `?`, `[...]` with ranges and negation, `\` before a literal. Outside brackets `-` and `_` are the
//! same letter, as kmod turns one into the other in both pattern and alias.
//! Source: man fnmatch(3), POSIX pattern matching; no flags, so `/` and a leading `.` are ordinary.

/// Whether a pattern of modules.alias matches an alias. Time is at most pattern length times alias length.
#[must_use]
pub fn alias_matches(pattern: &str, alias: &str) -> bool {
    let (pattern, text) = (pattern.as_bytes(), alias.as_bytes());
    let (mut at, mut here) = (0, 0);
    // Where to go on when a match fails: behind the last star, one letter further than last time.
    let mut retry: Option<(usize, usize)> = None;
    loop {
        match step(pattern, at, text.get(here).copied()) {
            Step::End => return true,
            Step::Star => {
                at += 1;
                retry = Some((at, here));
            }
            Step::Taken(next) => (at, here) = (next, here + 1),
            Step::Failed => match retry {
                Some((star, from)) if from < text.len() => {
                    (at, here) = (star, from + 1);
                    retry = Some((star, from + 1));
                }
                _ => return false,
            },
        }
    }
}

enum Step {
    /// Pattern and text end together.
    End,
    Star,
    /// The letter matches; the pattern goes on at this index.
    Taken(usize),
    Failed,
}

fn step(pattern: &[u8], at: usize, letter: Option<u8>) -> Step {
    let (wanted, letter) = match (pattern.get(at), letter) {
        (None, None) => return Step::End,
        (Some(b'*'), _) => return Step::Star,
        (Some(wanted), Some(letter)) => (*wanted, fold(letter)),
        _ => return Step::Failed,
    };
    match wanted {
        b'?' => Step::Taken(at + 1),
        b'[' => match bracket(pattern, at + 1, letter) {
            Some((true, next)) => Step::Taken(next),
            Some((false, _)) => Step::Failed,
            None => literal(b'[', letter, at + 1),
        },
        b'\\' => pattern.get(at + 1).map_or(Step::Failed, |escaped| literal(*escaped, letter, at + 2)),
        _ => literal(wanted, letter, at + 1),
    }
}

fn fold(letter: u8) -> u8 {
    if letter == b'-' { b'_' } else { letter }
}

fn literal(wanted: u8, letter: u8, next: usize) -> Step {
    if fold(wanted) == letter { Step::Taken(next) } else { Step::Failed }
}

/// Reads a bracket from behind its `[`: whether the letter is in it, and where it ends. `None` if it never ends.
fn bracket(pattern: &[u8], start: usize, letter: u8) -> Option<(bool, usize)> {
    let negated = matches!(pattern.get(start), Some(b'!' | b'^'));
    let first = start + usize::from(negated);
    let mut at = first;
    let mut found = false;
    loop {
        let low = match *pattern.get(at)? {
            b']' if at > first => return Some((found != negated, at + 1)),
            b'\\' => {
                at += 1;
                *pattern.get(at)?
            }
            low => low,
        };
        let high = match (pattern.get(at + 1), pattern.get(at + 2)) {
            (Some(b'-'), Some(high)) if *high != b']' => {
                at += 2;
                *high
            }
            _ => low,
        };
        found |= (low..=high).contains(&letter) || (low == high && fold(low) == letter);
        at += 1;
    }
}
