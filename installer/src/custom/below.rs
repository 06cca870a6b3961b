//! What lies below a path in a map of paths.
//!
//! Owns: finding it by the map's order, whatever else the map holds. Somebody's tar file or layer decides how often this is
//! asked for: once a file, or once a whiteout.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

/// Removes what lies in a directory, the root for an empty name, and not the directory itself. Returns how many paths were looked
/// at: those that go, and one more.
pub(super) fn remove<V>(entries: &mut BTreeMap<String, V>, directory: &str) -> usize {
    let below = if directory.is_empty() { String::new() } else { format!("{directory}/") };
    let from = (Bound::Excluded(below.as_str()), Bound::Unbounded);
    let mut looked_at = 0;
    let inside = entries.range::<str, _>(from).map(|(path, _)| path);
    let inside = inside.inspect(|_| looked_at += 1).take_while(|path| path.starts_with(&below));
    let gone: Vec<String> = inside.cloned().collect();
    for path in gone {
        entries.remove(&path);
    }
    looked_at
}

/// Whether a path, or a directory that it lies in, is one of these.
pub(super) fn is_in(paths: &BTreeSet<&str>, path: &str) -> bool {
    let above = path.match_indices('/').filter_map(|(end, _)| path.get(..end));
    above.chain([path]).any(|path| paths.contains(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn many() -> BTreeMap<String, u32> {
        (0..10_000).map(|number| (format!("etc/{:02}/{number:04}", number % 100), number)).collect()
    }

    #[test]
    fn only_what_lies_below_goes() {
        let paths = ["a", "a-b", "a/b", "a/b/c", "a/bc", "a0"];
        let mut entries: BTreeMap<_, _> = paths.map(|path| (path.to_owned(), ())).into();
        remove(&mut entries, "a/b");
        assert_eq!(entries.keys().collect::<Vec<_>>(), ["a", "a-b", "a/b", "a/bc", "a0"]);
        remove(&mut entries, "a");
        assert_eq!(entries.keys().collect::<Vec<_>>(), ["a", "a-b", "a0"]);
        remove(&mut entries, "");
        assert!(entries.is_empty());
        let gone = BTreeSet::from(["a/b", "c"]);
        assert!(is_in(&gone, "a/b") && is_in(&gone, "a/b/c/d") && is_in(&gone, "c/x"));
        assert!(!is_in(&gone, "a") && !is_in(&gone, "a/bc") && !is_in(&gone, "x/c"));
    }

    /// The work is that of what goes, not of what there is: it was 10,000 paths for each of 10,000 whiteouts.
    #[test]
    fn ten_thousand_whiteouts_in_ten_thousand_entries_look_at_each_about_once() {
        let mut entries = many();
        let names: Vec<String> = entries.keys().cloned().collect();
        let looked_at: usize = names.iter().map(|name| remove(&mut entries, name)).sum();
        assert_eq!((entries.len(), looked_at), (10_000, 9_999));
        let looked_at: usize = (0..100).map(|number| remove(&mut entries, &format!("etc/{number:02}"))).sum();
        assert_eq!((entries.len(), looked_at), (0, 10_099));
    }
}
