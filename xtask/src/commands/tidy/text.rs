//! Rules that look at the text of one file at a time.

use std::collections::BTreeSet;

use anyhow::Result;

use super::sources::{SourceFile, Sources};

/// Longest file in lines of code; house style asks to split before.
const MOST_LINES: usize = 600;

/// The only crate with unsafe code (invariant 1).
const UNSAFE_CRATE: &str = "crates/sys/";

/// Host names that belong into a user's configuration. Written in halves, so that this file passes its own rule.
const HOSTS: [(&str, &str); 9] = [
    ("debian", ".org"),
    ("crates", ".io"),
    ("docker", ".io"),
    ("gcr", ".io"),
    ("ghcr", ".io"),
    ("quay", ".io"),
    ("registry.k8s", ".io"),
    ("ubuntu", ".com"),
    ("static.rust-lang", ".org"),
];

/// Files that hold such names for a reason.
const HOSTS_ALLOWED: [&str; 4] = [
    // Where a generated configuration says that images of Kubernetes are, as talosctl writes it.
    "crates/api/src/generate/images.rs",
    // The images of a configuration that names none, as both generations of clients expect them.
    "crates/kubernetes/src/images.rs",
    // The pause image as containerd is told it; `images` prints the same.
    "rootfs-overlay/etc/cri/containerd.toml",
    // Cargo writes the registry's address beside each package.
    "Cargo.lock",
];

/// Words that code does not use, and the field's own. In halves, as above.
const WORDS: [([&str; 2], &str); 8] = [
    (["cha", "nce"], "random"),
    (["fol", "der"], "directory"),
    (["gre", "et"], "handshake, or what is printed"),
    (["jud", "ged"], "checked"),
    (["ob", "ey"], "handle, perform or apply"),
    (["surroun", "dings"], "dependencies or context"),
    (["trou", "ble"], "error or failure"),
    (["wi", "sh"], "request"),
];

pub(super) fn headers(sources: &Sources) -> Result<Vec<String>> {
    // Tests that moved out of a module speak for it.
    let program = sources.rust().filter(|file| !file.path.ends_with("tests.rs"));
    let faults = program.filter(|file| !file.text.starts_with("//! "));
    Ok(faults
        .map(|file| format!("{}: begin with a `//!` header that says what the file owns", file.path))
        .collect())
}

pub(super) fn sizes(sources: &Sources) -> Result<Vec<String>> {
    let long =
        sources.rust().map(|file| (file, code_lines(&file.text))).filter(|(_, lines)| *lines > MOST_LINES);
    Ok(long
        .map(|(file, lines)| format!("{}: {lines} lines of code, {MOST_LINES} at most", file.path))
        .collect())
}

pub(super) fn unsafe_code(sources: &Sources) -> Result<Vec<String>> {
    let outside = sources.rust().filter(|file| !file.path.starts_with(UNSAFE_CRATE));
    Ok(find(outside, |line| {
        let code = line.split("//").next().unwrap_or(line);
        let words =
            |word: &str| code.split(|c: char| !c.is_alphanumeric() && c != '_').any(|found| found == word);
        // Within quotes it is a word of prose.
        (words("unsafe") && !code.contains('"')).then(|| format!("unsafe code belongs into {UNSAFE_CRATE}"))
    }))
}

pub(super) fn hosts(sources: &Sources) -> Result<Vec<String>> {
    let names: Vec<String> = HOSTS.iter().map(|(start, end)| format!("{start}{end}")).collect();
    let checked = sources.all().filter(|file| !HOSTS_ALLOWED.contains(&file.path.as_str()));
    Ok(find(checked, |line| {
        let name = names.iter().find(|name| line.contains(name.as_str()))?;
        Some(format!("{name} is an address for the user's configuration"))
    }))
}

pub(super) fn machine_paths(sources: &Sources) -> Result<Vec<String>> {
    let places =
        [["/wo", "rk/"], ["/ho", "me/"], ["/root", "/."], ["/Use", "rs/"]].map(|halves| halves.concat());
    Ok(find(sources.all(), |line| {
        let place = places.iter().find(|place| names_directory(line, place))?;
        Some(format!("{place}… is a path of one machine"))
    }))
}

/// A reader opens the page that a comment names: it is one of this repository.
pub(super) fn pages(sources: &Sources) -> Result<Vec<String>> {
    let known: BTreeSet<&str> = sources.all().map(|file| file.path.as_str()).collect();
    Ok(find(sources.rust(), |line| {
        let (_, comment) = line.split_once("//")?;
        let words = comment.split_whitespace().map(|word| word.trim_matches(|c| "`().,;:\"[]".contains(c)));
        let mut pages = words.filter(|word| {
            let is_path = ["docs/", "spec/", "shared/"].iter().any(|start| word.starts_with(start));
            is_path && word.ends_with(".md")
        });
        let page = pages.find(|page| !known.contains(page))?;
        Some(format!("{page} is no page of this repository"))
    }))
}

/// Names and comments of the code have the words that a maintainer would search for.
pub(super) fn words(sources: &Sources) -> Result<Vec<String>> {
    let words = WORDS.map(|(halves, instead)| (halves.concat(), instead));
    Ok(find(sources.rust(), |line| {
        let mut found = parts(line).filter_map(|part| {
            let (word, instead) = words.iter().find(|(word, _)| part.eq_ignore_ascii_case(word))?;
            Some(format!("write {instead} instead of {word}"))
        });
        // An earlier name that a reader still takes.
        found.next().filter(|_| !line.contains("alias ="))
    }))
}

/// The words of prose, and those that names in snake and camel case are made of.
fn parts(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !c.is_alphabetic()).flat_map(|name| {
        let humps = name.char_indices().filter(|(at, c)| *at > 0 && c.is_uppercase()).map(|(at, _)| at);
        let ends: Vec<usize> = humps.chain([name.len()]).collect();
        let begins: Vec<usize> = std::iter::once(0).chain(ends.iter().copied()).collect();
        begins.into_iter().zip(ends).filter_map(|(begin, end)| name.get(begin..end))
    })
}

/// Whether the line has the path itself, not one that ends like it (`network/`, `docs/work/`).
fn names_directory(line: &str, place: &str) -> bool {
    line.match_indices(place).any(|(at, _)| {
        let before = line.get(..at).and_then(|start| start.chars().next_back());
        before.is_none_or(|c| !c.is_alphanumeric() && !"_-.$}>".contains(c))
    })
}

/// Lines that are neither empty nor comments.
fn code_lines(text: &str) -> usize {
    text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("//")).count()
}

/// `path:line: fault` for every line that has one.
fn find<'a>(
    files: impl Iterator<Item = &'a SourceFile>,
    fault: impl Fn(&str) -> Option<String>,
) -> Vec<String> {
    let mut faults = Vec::new();
    for file in files {
        for (number, line) in file.text.lines().enumerate() {
            if let Some(fault) = fault(line) {
                faults.push(format!("{}:{}: {fault}", file.path, number + 1));
            }
        }
    }
    faults
}
