//! Whether what clients of one key saw could have happened one after the other: linearizability, by etcd's revisions.
//!
//! Every acknowledged operation says at which revision it saw or wrote the key. The revisions are an order of all operations; what is
//! left to check is that this order is that of real time, and that one value belongs to one revision. An operation that failed may
//! have happened or not.
//!
//! Does not: search for an order; without revisions that would be another program.
//! Source: Herlihy and Wing, "Linearizability"; etcd's documentation, "KV API guarantees".

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// What a client did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// Wrote a value that no other write has; no revision: it failed.
    Write(Option<u64>),
    /// Read this value at this revision.
    Read(u64),
}

/// One operation of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operation {
    /// When it was sent.
    pub start: Duration,
    /// When its answer was there, or it was given up.
    pub end: Duration,
    /// The value.
    pub value: u64,
    /// What was done with it.
    pub what: What,
}

impl Operation {
    fn revision(&self) -> Option<u64> {
        match self.what {
            What::Write(revision) => revision,
            What::Read(revision) => Some(revision),
        }
    }

    fn is_write(&self) -> bool {
        matches!(self.what, What::Write(_))
    }
}

/// Whether the operations are linearizable; `first` is the value that was there before them.
///
/// # Errors
/// The first two operations that contradict each other.
pub fn check(first: u64, history: &[Operation]) -> Result<(), String> {
    values(first, history)?;
    let mut starts: Vec<&Operation> = history.iter().filter(|one| one.revision().is_some()).collect();
    let mut ends = starts.clone();
    starts.sort_by_key(|one| one.start);
    ends.sort_by_key(|one| one.end);
    let mut ended = ends.into_iter().peekable();
    let mut newest: Option<&Operation> = None;
    for one in starts {
        while let Some(before) = ended.next_if(|before| before.end < one.start) {
            if newest.is_none_or(|newest| newest.revision() < before.revision()) {
                newest = Some(before);
            }
        }
        let Some(before) = newest else { continue };
        let is_in_order = match one.is_write() {
            true => one.revision() > before.revision(),
            false => one.revision() >= before.revision(),
        };
        if !is_in_order {
            return Err(format!("{one:?} began after the end of {before:?}, and comes before it"));
        }
    }
    Ok(())
}

/// Each value is of one revision, of one write, and is not read before that write began.
fn values(first: u64, history: &[Operation]) -> Result<(), String> {
    let mut writes: BTreeMap<u64, &Operation> = BTreeMap::new();
    for one in history.iter().filter(|one| one.is_write()) {
        if let Some(other) = writes.insert(one.value, one) {
            return Err(format!("{one:?} and {other:?} write the same"));
        }
    }
    let mut of_revision: BTreeMap<u64, &Operation> = BTreeMap::new();
    let mut of_value: BTreeMap<u64, u64> = BTreeMap::new();
    let mut written = BTreeSet::new();
    for one in history {
        let Some(revision) = one.revision() else { continue };
        if let Some(other) = of_revision.insert(revision, one)
            && other.value != one.value
        {
            return Err(format!("{one:?} and {other:?} are of one revision"));
        }
        if of_value.insert(one.value, revision).is_some_and(|other| other != revision) {
            return Err(format!("{one:?}: its value had another revision"));
        }
        if one.is_write() && !written.insert(revision) {
            return Err(format!("{one:?}: another write has its revision"));
        }
        match writes.get(&one.value) {
            Some(write) if one.end < write.start => {
                return Err(format!("{one:?} was read before {write:?} began"));
            }
            None if one.value != first => return Err(format!("{one:?} was written by no client")),
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Start, end, value, what.
    fn history(operations: &[(u64, u64, u64, What)]) -> Result<(), String> {
        let operation = |&(start, end, value, what): &(u64, u64, u64, What)| Operation {
            start: Duration::from_millis(start),
            end: Duration::from_millis(end),
            value,
            what,
        };
        check(0, &operations.iter().map(operation).collect::<Vec<_>>())
    }

    #[test]
    fn what_could_have_happened_is_accepted() {
        use What::{Read, Write};
        for operations in [
            &[][..],
            &[(0, 1, 0, Read(5)), (2, 3, 1, Write(Some(6))), (4, 5, 1, Read(6))],
            // Both at once: either order.
            &[(0, 9, 1, Write(Some(6))), (1, 8, 0, Read(5)), (1, 8, 1, Read(6))],
            &[(0, 9, 1, Write(Some(7))), (1, 8, 2, Write(Some(6)))],
            // A failed write that is seen later, and one that is never seen.
            &[(0, 1, 1, Write(None)), (5, 6, 1, Read(6)), (0, 1, 2, Write(None))],
        ] {
            assert_eq!(history(operations), Ok(()), "{operations:?}");
        }
    }

    #[test]
    fn what_could_not_is_told() {
        use What::{Read, Write};
        for (operations, wanted) in [
            // An acknowledged write is lost.
            (&[(0, 1, 1, Write(Some(6))), (2, 3, 0, Read(5))][..], "comes before it"),
            // A later read is older.
            (&[(0, 9, 1, Write(Some(6))), (1, 2, 1, Read(6)), (3, 4, 0, Read(5))], "comes before it"),
            (&[(0, 1, 1, Write(Some(6))), (2, 3, 2, Write(Some(6)))], "are of one revision"),
            (&[(0, 1, 1, Write(Some(7))), (2, 3, 2, Write(Some(6)))], "comes before it"),
            (&[(0, 1, 9, Read(6))], "was written by no client"),
            (&[(0, 1, 1, Read(6)), (2, 3, 1, Write(None))], "was read before"),
            (&[(0, 1, 1, Write(Some(6))), (2, 3, 1, Read(8))], "its value had another revision"),
            (&[(0, 1, 1, Write(None)), (2, 3, 1, Write(None))], "write the same"),
        ] {
            let said = history(operations).unwrap_err();
            assert!(said.contains(wanted), "{operations:?}: {said}");
        }
    }
}
