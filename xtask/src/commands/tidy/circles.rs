//! Which modules of a crate need each other in a circle: none of them can be read, tested or moved alone.
//!
//! Owns: the two counts that may only shrink (invariant 14). A file belongs to the module that its path
//! says; tests may use everything.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;

use super::paths;
use super::sources::Sources;

/// Crates that have circles still: modules directly below `src` that are in one, and files that are in one with other
/// files of their module. A number that is too high is a fault too, so that it shrinks with the code.
pub(super) const KNOWN: [(&str, usize, usize); 11] = [
    ("crates/api", 0, 20),
    ("crates/config", 0, 29),
    ("crates/oci", 0, 15),
    ("crates/ondisk", 0, 46),
    ("crates/runtime", 0, 20),
    ("fuzz", 0, 2),
    ("init", 0, 2),
    ("installer", 0, 47),
    ("qemu-tests", 0, 3),
    ("service-manager", 0, 2),
    ("xtask", 0, 26),
];

/// A crate's modules by their paths (`["a", "b"]`), with those that each names.
type Graph = BTreeMap<Vec<String>, BTreeSet<Vec<String>>>;

pub(super) fn check(sources: &Sources) -> Result<Vec<String>> {
    let mut faults = Vec::new();
    for (directory, _) in sources.manifests() {
        let graph = graph(sources, directory);
        let top = circles(&at_top(&graph));
        let inner = circles(&within(&graph));
        let counts = [&top, &inner].map(|circles| circles.iter().map(Vec::len).sum::<usize>());
        let known = KNOWN.iter().find(|(name, ..)| *name == directory).map_or([0, 0], |(_, a, b)| [*a, *b]);
        let what = ["modules directly below src", "files of one module"];
        for ((found, known), (what, circles)) in counts.iter().zip(known).zip(what.iter().zip([top, inner])) {
            if *found > known {
                let circles: Vec<String> = circles.iter().map(|circle| named(circle)).collect();
                let circles = circles.join("; ");
                faults.push(format!(
                    "{directory}: {found} {what} need each other in circles, {known} at most: {circles}"
                ));
            } else if *found < known {
                faults.push(format!(
                    "{directory}: {found} {what} are in circles now: write that instead of {known}"
                ));
            }
        }
    }
    Ok(faults)
}

fn named(circle: &[Vec<String>]) -> String {
    circle.iter().map(|module| module.join("::")).collect::<Vec<_>>().join(", ")
}

fn graph(sources: &Sources, directory: &str) -> Graph {
    let prefix = format!("{directory}/src/");
    let files: Vec<_> = sources
        .rust()
        .filter_map(|file| Some((module_of(file.path.strip_prefix(&prefix)?)?, paths::read(&file.text))))
        .collect();
    let modules: BTreeSet<Vec<String>> = files.iter().map(|(module, _)| module.clone()).collect();
    // What the crate's root gives on belongs to the module that it comes from.
    let root = files.iter().filter(|(module, _)| module.is_empty());
    let given_on: BTreeMap<&str, Vec<String>> = root
        .flat_map(|(_, paths)| &paths.given_on)
        .filter_map(|(name, path)| Some((name.as_str(), resolve(&modules, &[], path)?)))
        .collect();
    let mut graph = Graph::new();
    for (module, paths) in &files {
        let needs = graph.entry(module.clone()).or_default();
        for path in &paths.named {
            let of_root =
                path.get(1).filter(|_| path[0] == "crate").and_then(|name| given_on.get(name.as_str()));
            if let Some(other) = of_root.cloned().or_else(|| resolve(&modules, module, path))
                && other != *module
                && !other.is_empty()
            {
                needs.insert(other);
            }
        }
    }
    graph.remove(&Vec::new());
    graph
}

/// The module of a file below `src`; the root's is empty. `None` for tests and programs of their own.
fn module_of(path: &str) -> Option<Vec<String>> {
    let path = path.strip_suffix(".rs")?;
    if path.starts_with("bin/") || path.split('/').any(|part| part == "tests" || part.ends_with("_tests")) {
        return None;
    }
    let mut parts: Vec<String> = path.split('/').map(str::to_owned).collect();
    if matches!(parts.last().map(String::as_str), Some("mod" | "lib" | "main")) {
        parts.pop();
    }
    Some(parts)
}

/// The module that holds what a path names, seen from a module: the longest part of it that is one.
fn resolve(modules: &BTreeSet<Vec<String>>, from: &[String], path: &[String]) -> Option<Vec<String>> {
    let mut at = from.to_vec();
    let mut rest = path;
    match path.first()?.as_str() {
        "crate" => {
            at.clear();
            rest = &path[1..];
        }
        "self" => rest = &path[1..],
        "super" => {
            while rest.first().is_some_and(|part| part == "super") {
                at.pop()?;
                rest = &rest[1..];
            }
        }
        // Without a prefix it is a module below this one, or of another crate.
        child => {
            at.push(child.to_owned());
            if !modules.contains(&at) {
                return None;
            }
            rest = &path[1..];
        }
    }
    for part in rest {
        at.push(part.clone());
        if !modules.contains(&at) {
            at.pop();
            break;
        }
    }
    Some(at)
}

/// Modules directly below `src` only.
fn at_top(graph: &Graph) -> Graph {
    let mut top = Graph::new();
    for (module, needs) in graph {
        let own = module[..1].to_vec();
        let others = needs.iter().map(|other| other[..1].to_vec()).filter(|other| *other != own);
        top.entry(own.clone()).or_default().extend(others);
    }
    top
}

/// Only what files of one module need of each other.
fn within(graph: &Graph) -> Graph {
    let inner = |module: &Vec<String>, needs: &BTreeSet<Vec<String>>| {
        needs.iter().filter(|other| other[0] == module[0]).cloned().collect()
    };
    graph.iter().map(|(module, needs)| (module.clone(), inner(module, needs))).collect()
}

/// Groups of modules that reach each other.
fn circles(graph: &Graph) -> Vec<Vec<Vec<String>>> {
    let reach: BTreeMap<_, _> = graph.keys().map(|module| (module, reachable(graph, module))).collect();
    let mut found: Vec<Vec<Vec<String>>> = Vec::new();
    for (module, others) in &reach {
        if found.iter().flatten().any(|known| known == *module) {
            continue;
        }
        let circle: Vec<_> = others
            .iter()
            .filter(|other| reach.get(*other).is_some_and(|back| back.contains(*module)))
            .cloned()
            .collect();
        if circle.len() > 1 {
            found.push(circle);
        }
    }
    found
}

fn reachable(graph: &Graph, from: &Vec<String>) -> BTreeSet<Vec<String>> {
    let mut found = BTreeSet::new();
    let mut next = vec![from];
    while let Some(module) = next.pop() {
        for other in graph.get(module).into_iter().flatten() {
            if found.insert(other.clone()) {
                next.push(other);
            }
        }
    }
    found
}
