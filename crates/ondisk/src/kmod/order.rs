//! The order in which modules can be loaded: a walk through their dependencies.
//!
//! Owns: depth first with a stack of its own, since the depth of a hostile index must not be the depth of ours; each
//! module once, so that a circle ends.

use alloc::vec::Vec;
use core::cmp::Ordering;

use super::{Index, Module, When, stem};

/// The order found so far.
pub(super) struct Walk<'a, 'i> {
    index: &'i Index<'a>,
    /// Lines of modules.dep sorted by name: one look-up a module would otherwise read the whole text.
    table: Vec<(&'a str, &'a str)>,
    /// Names met so far, sorted.
    seen: Vec<&'a str>,
    order: Vec<Module<'a>>,
}

enum Step<'a> {
    Visit(&'a str),
    Emit(&'a str),
}

/// Order of names in which `-` and `_` are one letter.
fn compare(a: &str, b: &str) -> Ordering {
    let fold = |byte: u8| if byte == b'-' { b'_' } else { byte };
    a.bytes().map(fold).cmp(b.bytes().map(fold))
}

/// Order of the table's lines. Never inline: each of a sort's dozen comparisons would be a copy, and init has a limit.
#[inline(never)]
fn by_name(a: &(&str, &str), b: &(&str, &str)) -> Ordering {
    compare(stem(a.0), stem(b.0))
}

impl<'a, 'i> Walk<'a, 'i> {
    pub(super) fn new(index: &'i Index<'a>) -> Self {
        let mut table: Vec<_> = index.entries().collect();
        table.sort_unstable_by(by_name);
        Self { index, table, seen: Vec::new(), order: Vec::new() }
    }

    pub(super) fn add(&mut self, module: Module<'a>) {
        let mut stack = Vec::from([Step::Visit(module.path)]);
        while let Some(step) = stack.pop() {
            match step {
                Step::Emit(path) => self.order.push(Module { path }),
                Step::Visit(path) => {
                    let name = stem(path);
                    if let Err(at) = self.seen.binary_search_by(|seen| compare(seen, name)) {
                        self.seen.insert(at, name);
                        self.push_steps(path, &mut stack);
                    }
                }
            }
        }
    }

    pub(super) fn finish(self) -> Vec<Module<'a>> {
        self.order
    }

    /// What a module takes, last step first because a stack turns it round.
    fn push_steps(&self, path: &'a str, stack: &mut Vec<Step<'a>>) {
        let name = stem(path);
        let start = stack.len();
        // modules.dep names the dependency that must be loaded first last.
        let (_, dependencies) = self.find(name).unwrap_or_default();
        stack.extend(dependencies.split_ascii_whitespace().rev().map(Step::Visit));
        stack.extend(self.soft(name, When::Pre));
        stack.push(Step::Emit(path));
        stack.extend(self.soft(name, When::Post));
        if let Some(steps) = stack.get_mut(start..) {
            steps.reverse();
        }
    }

    /// Soft dependencies may be given by an alias: `crc32c` stands for every implementation.
    fn soft(&self, name: &str, when: When) -> impl Iterator<Item = Step<'a>> {
        self.index.soft(name, when).flat_map(|wanted| self.named(wanted)).map(Step::Visit)
    }

    fn named(&self, wanted: &str) -> Vec<&'a str> {
        match self.find(wanted) {
            Some((path, _)) => Vec::from([path]),
            None => {
                self.index.aliases(wanted).filter_map(|name| self.find(name)).map(|(path, _)| path).collect()
            }
        }
    }

    fn find(&self, name: &str) -> Option<(&'a str, &'a str)> {
        let at = self.table.binary_search_by(|(path, _)| compare(stem(path), name)).ok()?;
        self.table.get(at).copied()
    }
}
