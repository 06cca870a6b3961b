//! What the caller was told already.
//!
//! Owns: that each cause is said once, until it is over or another text says more.

use std::collections::BTreeMap;

/// What went wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Cause {
    Link,
    Receive,
    Send,
    Hold,
    Announce,
    Drop,
    /// Of a peer; it is over when the driver ends.
    Addresses,
}

/// Says things through the caller's function.
pub(crate) struct Reporter<S> {
    say: S,
    last: BTreeMap<Cause, String>,
}

impl<S: Fn(&str)> Reporter<S> {
    pub(crate) fn new(say: S) -> Self {
        Self { say, last: BTreeMap::new() }
    }

    pub(crate) fn tell(&mut self, cause: Cause, text: String) {
        if self.last.get(&cause) != Some(&text) {
            (self.say)(&text);
            self.last.insert(cause, text);
        }
    }

    /// Not again, whatever the text: a peer could make up new ones for ever.
    pub(crate) fn tell_first(&mut self, cause: Cause, text: impl FnOnce() -> String) {
        if !self.last.contains_key(&cause) {
            self.tell(cause, text());
        }
    }

    /// It is over: the next time is news.
    pub(crate) fn over(&mut self, cause: Cause) {
        self.last.remove(&cause);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn a_cause_is_said_once_until_it_is_over() {
        let said = RefCell::new(Vec::new());
        let mut told = Reporter::new(|text: &str| said.borrow_mut().push(text.to_owned()));
        for text in ["a", "a", "b", "b"] {
            told.tell(Cause::Link, text.to_owned());
        }
        told.tell(Cause::Send, "a".to_owned());
        told.over(Cause::Link);
        told.tell(Cause::Link, "b".to_owned());
        told.tell_first(Cause::Addresses, || "c".to_owned());
        told.tell_first(Cause::Addresses, || "d".to_owned());
        drop(told);
        assert_eq!(said.into_inner(), ["a", "b", "a", "b", "c"]);
    }
}
