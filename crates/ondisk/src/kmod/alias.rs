//! Lines of modules.alias, and a table of them for many look-ups.

use alloc::vec::Vec;

use super::glob::alias_matches;

/// One line: devices like this want that module.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry<'a> {
    pub(super) pattern: &'a str,
    pub(super) module: &'a str,
}

/// The entries of a modules.alias, in its order. A pattern holds no space.
pub(super) fn entries(text: &str) -> impl Iterator<Item = Entry<'_>> {
    super::lines(text).filter_map(|line| {
        let (pattern, module) = line.strip_prefix("alias ")?.trim_start().split_once(' ')?;
        Some(Entry { pattern, module: module.trim_ascii() })
    })
}

/// modules.alias, split into its fields once and sorted by bus, for the coldplug of many devices.
#[derive(Debug)]
pub struct AliasTable<'a> {
    /// With their [`bus`] and sorted by it; entries of one bus keep the order of the file.
    entries: Vec<(&'a str, Entry<'a>)>,
}

/// The text before the first `:`; patterns that start with a wildcard have none and match any bus.
fn bus(text: &str) -> &str {
    let bus = text.split_once(':').map_or("", |(bus, _)| bus);
    if bus.contains(['*', '?', '[', '\\', '-', '_']) { "" } else { bus }
}

impl<'a> AliasTable<'a> {
    /// Reads the text of modules.alias.
    #[must_use]
    pub fn new(text: &'a str) -> Self {
        let mut entries: Vec<_> = entries(text).map(|entry| (bus(entry.pattern), entry)).collect();
        entries.sort_by_key(|(bus, _)| *bus);
        Self { entries }
    }

    /// Names of the modules whose patterns match the alias.
    pub fn matches<'s>(&'s self, alias: &'s str) -> impl Iterator<Item = &'a str> + 's {
        let bus = bus(alias);
        let named = if bus.is_empty() { &[] } else { self.of_bus(bus) };
        let any = self.of_bus("");
        named
            .iter()
            .chain(any)
            .map(|(_, entry)| entry)
            .filter(move |entry| alias_matches(entry.pattern, alias))
            .map(|entry| entry.module)
    }

    fn of_bus(&self, wanted: &str) -> &[(&'a str, Entry<'a>)] {
        let start = self.entries.partition_point(|(bus, _)| *bus < wanted);
        let end = self.entries.partition_point(|(bus, _)| *bus <= wanted);
        self.entries.get(start..end).unwrap_or(&[])
    }
}
