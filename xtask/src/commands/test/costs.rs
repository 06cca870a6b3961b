//! What the virtual machines cost: their sum, and the dearest.
//!
//! Owns: the reading of `target/qemu-tests/costs.tsv`, which the tests append to.
//! Does not: judge. It is what one looks at before a run becomes too long.

use std::fs;
use std::path::PathBuf;

use crate::place;
use crate::step::note;

/// Enough to see where the minutes are.
const SHOWN: usize = 12;

#[derive(Debug, PartialEq)]
struct Machine {
    name: String,
    /// Seconds from start to end.
    alive: f64,
    /// Seconds of processor time.
    processor: f64,
}

fn path() -> PathBuf {
    place::target().join("qemu-tests").join("costs.tsv")
}

/// Forgets earlier runs.
pub(super) fn begin() {
    // There is none before the first run.
    let _ = fs::remove_file(path());
}

pub(super) fn show() {
    for line in lines(machines(&fs::read_to_string(path()).unwrap_or_default())) {
        note(&line);
    }
}

fn machines(text: &str) -> Vec<Machine> {
    let machine = |line: &str| {
        let mut fields = line.split('\t');
        let name = fields.next()?.to_owned();
        Some(Machine { name, alive: fields.next()?.parse().ok()?, processor: fields.next()?.parse().ok()? })
    };
    text.lines().filter_map(machine).collect()
}

fn lines(mut machines: Vec<Machine>) -> Vec<String> {
    if machines.is_empty() {
        return Vec::new();
    }
    let (alive, processor) =
        machines.iter().fold((0.0, 0.0), |sum, machine| (sum.0 + machine.alive, sum.1 + machine.processor));
    machines.sort_by(|one, other| other.alive.total_cmp(&one.alive));
    let sum = format!(
        "  {} machines ran for {:.1} min together and took {:.1} min of processor time; the longest:",
        machines.len(),
        alive / 60.0,
        processor / 60.0
    );
    let dearest = machines.iter().take(SHOWN);
    let dearest =
        dearest.map(|one| format!("    {:6.1} s, {:6.1} s  {}", one.alive, one.processor, one.name));
    std::iter::once(sum).chain(dearest).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_come_first_behind_the_sum() {
        let shown = lines(machines("short\t6.0\t5.0\nlong\t54.0\t25.0\nhalf a line"));
        assert_eq!(
            shown[0],
            "  2 machines ran for 1.0 min together and took 0.5 min of processor time; the longest:"
        );
        assert!(shown[1].ends_with("long") && shown[2].ends_with("short"), "{shown:?}");
        assert_eq!(lines(machines("")), Vec::<String>::new());
    }
}
