//! The descriptor store.
//!
//! Owns: names of what machined deposited, in a table of fixed size. The descriptors themselves are the kernel side's.

use alloc::vec::Vec;

use handoff::{MAX_NAME_BYTES, MAX_STORED};

use crate::kernel::Descriptor;

#[derive(Debug, Clone, Copy)]
struct Entry {
    name: [u8; MAX_NAME_BYTES],
    len: usize,
    descriptor: Descriptor,
}

impl Entry {
    fn name(&self) -> &str {
        core::str::from_utf8(&self.name[..self.len]).unwrap_or_default()
    }
}

/// Named descriptors.
#[derive(Debug)]
pub struct Store {
    entries: Vec<Entry>,
}

impl Store {
    /// An empty table; the only allocation it ever makes.
    pub fn new() -> Self {
        Self { entries: Vec::with_capacity(MAX_STORED) }
    }

    /// Keeps a descriptor. Returns the one that had the name before, to be closed; or why it is refused.
    pub fn put(&mut self, name: &str, descriptor: Descriptor) -> Result<Option<Descriptor>, &'static str> {
        if name.is_empty() || name.len() > MAX_NAME_BYTES {
            return Err("a stored descriptor's name has 1 to 64 bytes");
        }
        if let Some(entry) = self.entries.iter_mut().find(|e| e.name() == name) {
            return Ok(Some(core::mem::replace(&mut entry.descriptor, descriptor)));
        }
        if self.entries.len() == MAX_STORED {
            return Err("the descriptor store is full");
        }
        let mut bytes = [0; MAX_NAME_BYTES];
        bytes[..name.len()].copy_from_slice(name.as_bytes());
        self.entries.push(Entry { name: bytes, len: name.len(), descriptor });
        Ok(None)
    }

    /// Forgets a name and returns what it named, to be closed.
    pub fn take(&mut self, name: &str) -> Option<Descriptor> {
        let index = self.entries.iter().position(|e| e.name() == name)?;
        Some(self.entries.swap_remove(index).descriptor)
    }

    /// An entry by its place, for replaying.
    pub fn get(&self, index: usize) -> Option<(&str, Descriptor)> {
        self.entries.get(index).map(|e| (e.name(), e.descriptor))
    }
}

impl Default for Store {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_replaced_and_taken() {
        let mut store = Store::new();
        assert_eq!(store.put("log", Descriptor(1)), Ok(None));
        assert_eq!(store.put("log", Descriptor(2)), Ok(Some(Descriptor(1))));
        assert_eq!(store.get(0), Some(("log", Descriptor(2))));
        assert_eq!(store.take("log"), Some(Descriptor(2)));
        assert_eq!(store.take("log"), None);
        assert_eq!(store.get(0), None);
    }

    #[test]
    fn limits_are_refused_in_words() {
        let mut store = Store::new();
        assert!(store.put("", Descriptor(0)).is_err());
        assert!(store.put(&"x".repeat(65), Descriptor(0)).is_err());
        for n in 0..MAX_STORED {
            store.put(&alloc::format!("{n}"), Descriptor(n)).unwrap();
        }
        assert_eq!(store.put("one more", Descriptor(0)), Err("the descriptor store is full"));
        assert_eq!(store.put("7", Descriptor(999)), Ok(Some(Descriptor(7))));
        assert_eq!(store.entries.capacity(), MAX_STORED);
    }
}
