//! When machined is started again.

const MS: u64 = 1_000_000;

/// Shortest wait after the first immediate restart.
const FIRST_NS: u64 = 250 * MS;

/// Longest wait: a node must not stay without its API for long once the cause is gone.
const LONGEST_NS: u64 = 10_000 * MS;

/// Grows from none, and is reset when machined was ready.
#[derive(Debug, Default)]
pub struct Backoff {
    next_ns: u64,
}

impl Backoff {
    /// The wait before the next start: nothing at first, then 250 ms, doubling to 10 s.
    pub fn wait_ns(&mut self) -> u64 {
        let wait = self.next_ns;
        self.next_ns = (wait * 2).clamp(FIRST_NS, LONGEST_NS);
        wait
    }

    /// machined was ready: the next end is a first one.
    pub fn reset(&mut self) {
        self.next_ns = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_ten_seconds_and_start_over() {
        let mut backoff = Backoff::default();
        let waits: [u64; 9] = core::array::from_fn(|_| backoff.wait_ns() / MS);
        assert_eq!(waits, [0, 250, 500, 1000, 2000, 4000, 8000, 10_000, 10_000]);
        backoff.reset();
        assert_eq!(backoff.wait_ns(), 0);
    }
}
