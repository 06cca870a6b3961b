//! Counting tests in the output of `cargo test`.

use std::fmt;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) passed: u64,
    pub(super) failed: u64,
}

impl Tally {
    /// The sum of all `test result:` lines. A run that failed without a failed test (it did not compile, a test
    /// program died) counts as one failure.
    pub(super) fn of(output: &str, succeeded: bool) -> Self {
        let results = output.lines().filter_map(|line| line.trim().strip_prefix("test result: "));
        let mut sum = Self::default();
        for result in results {
            sum.passed += count(result, "passed");
            sum.failed += count(result, "failed");
        }
        if !succeeded && sum.failed == 0 {
            sum.failed = 1;
        }
        sum
    }

    pub(super) fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.failed)
    }
}

/// The number before a word: `ok. 3 passed; 0 failed; 1 ignored`.
fn count(result: &str, word: &str) -> u64 {
    let mut words = result.split([' ', ';', '.']).filter(|word| !word.is_empty());
    let mut number = 0;
    words.by_ref().find(|found| {
        if let Ok(value) = found.parse() {
            number = value;
        }
        *found == word
    });
    number
}

/// The parts of cargo's output that tell why: failed tests' own output, compiler errors, names of failed tests.
pub(super) fn failures(output: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    let mut inside = false;
    for line in output.lines() {
        let starts = line.starts_with("---- ") || line.starts_with("error") || line == "failures:";
        let ends = line.starts_with("test result:")
            || line.starts_with("     Running")
            || line.starts_with("warning");
        inside = (inside || starts) && !ends;
        if inside {
            kept.push(line);
        }
    }
    kept.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "   Compiling x\n     Running unittests src/lib.rs\nrunning 3 tests\ntest a ... ok\n\
        test b ... FAILED\ntest c ... ignored\n\nfailures:\n\n---- b stdout ----\nbecause of this\n\nfailures:\n    b\n\n\
        test result: FAILED. 1 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.0s\n\n\
        error: test failed, to rerun pass `-p x`\n   Doc-tests x\n\
        test result: ok. 20 passed; 0 failed; 0 ignored; 0 measured; 5 filtered out; finished in 1.07s\n";

    #[test]
    fn all_suites_are_summed() {
        assert_eq!(Tally::of(OUTPUT, false), Tally { passed: 21, failed: 1 });
        assert_eq!(Tally::of(OUTPUT, false).to_string(), "21 passed, 1 failed");
    }

    #[test]
    fn a_run_that_did_not_compile_is_a_failure() {
        assert_eq!(Tally::of("error[E0425]: no\n", false), Tally { passed: 0, failed: 1 });
        assert_eq!(Tally::of("", true), Tally::default());
    }

    #[test]
    fn a_failed_test_shows_its_output() {
        let text = failures(OUTPUT);
        assert!(text.contains("---- b stdout ----\nbecause of this"), "{text}");
        assert!(!text.contains("test a ... ok"), "{text}");
    }
}
