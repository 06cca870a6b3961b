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
    /// The entries of each [`bus`], in the order of the file.
    buses: Vec<(&'a str, Vec<Entry<'a>>)>,
}

/// The text before the first `:`. Patterns with a wildcard there, and names in which `-` could be `_`, have none:
/// they are tried for every alias.
fn bus(text: &str) -> &str {
    let bus = text.split_once(':').map_or("", |(bus, _)| bus);
    let plain = bus.bytes().all(|byte| byte.is_ascii_alphanumeric());
    if plain { bus } else { "" }
}

impl<'a> AliasTable<'a> {
    /// Reads the text of modules.alias.
    #[must_use]
    pub fn new(text: &'a str) -> Self {
        let mut buses: Vec<(&str, Vec<Entry<'_>>)> = Vec::new();
        // A module's lines are mostly of one bus: the last one used is the first to try.
        let mut last = 0;
        for entry in entries(text) {
            let bus = bus(entry.pattern);
            if buses.get(last).is_none_or(|(name, _)| *name != bus) {
                last = buses.iter().position(|(name, _)| *name == bus).unwrap_or_else(|| {
                    buses.push((bus, Vec::new()));
                    buses.len() - 1
                });
            }
            if let Some((_, entries)) = buses.get_mut(last) {
                entries.push(entry);
            }
        }
        Self { buses }
    }

    /// Names of the modules whose patterns match the alias.
    pub fn matches<'s>(&'s self, alias: &'s str) -> impl Iterator<Item = &'a str> + 's {
        let bus = bus(alias);
        let tried = self.buses.iter().filter(move |(name, _)| name.is_empty() || *name == bus);
        let entries = tried.flat_map(|(_, entries)| entries);
        entries.filter(move |entry| alias_matches(entry.pattern, alias)).map(|entry| entry.module)
    }
}
