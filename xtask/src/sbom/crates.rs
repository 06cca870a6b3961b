//! Crates that are compiled into a program of ours: cargo's own account of them.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use serde::Deserialize;

use super::Component;
use crate::command::Cmd;
use crate::place;
use crate::target::{self, Architecture};

/// Splits the fields of a line of `cargo tree`; no name, version or licence holds it.
const SEPARATOR: char = '|';

/// All crates in these programs (workspace package and its features).
pub(crate) fn compiled_in(
    programs: &[(&str, &[&str])],
    architecture: Architecture,
) -> Result<Vec<Component>> {
    let checksums = checksums()?;
    let mut lines = BTreeSet::new();
    for (package, features) in programs {
        // `normal`: what build scripts and tests use is not in the program.
        let tree = Cmd::new("cargo")
            .args([
                "tree",
                "--locked",
                "--offline",
                "--edges",
                "normal",
                "--prefix",
                "none",
                "--format",
                "{p}|{l}",
            ])
            .args([
                "--target",
                target::triple(architecture),
                "--package",
                package,
                "--features",
                &features.join(","),
            ])
            .directory(&place::repository());
        lines.extend(tree.read()?.lines().map(|line| line.trim_end_matches(" (*)").to_owned()));
    }
    Ok(lines.iter().filter_map(|line| component(line, &checksums)).collect())
}

/// `serde v1.0.228|MIT OR Apache-2.0`, a directory or `(proc-macro)` between version and licence.
fn component(line: &str, checksums: &BTreeMap<(String, String), String>) -> Option<Component> {
    let (package, licence) = line.split_once(SEPARATOR)?;
    if package.contains("(proc-macro)") {
        return None;
    }
    let mut words = package.split_whitespace();
    let (name, version) = (words.next()?.to_owned(), words.next()?.trim_start_matches('v').to_owned());
    let sha256 = checksums.get(&(name.clone(), version.clone())).cloned();
    let purl = sha256.is_some().then(|| format!("pkg:cargo/{name}@{}", version.replace('+', "%2B")));
    // Older crates separate alternatives with a slash.
    let licence = licence.replace('/', " OR ");
    Some(Component { name, version, sha256, licence: Some(licence), purl, origin: "cargo" })
}

#[derive(Deserialize)]
struct Lock {
    package: Vec<Locked>,
}

#[derive(Deserialize)]
struct Locked {
    name: String,
    version: String,
    checksum: Option<String>,
}

fn checksums() -> Result<BTreeMap<(String, String), String>> {
    let path = place::repository().join("Cargo.lock");
    let text = std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    let lock: Lock = toml::from_str(&text).with_context(|| format!("parse {}", path.display()))?;
    let known = lock.package.into_iter();
    Ok(known.filter_map(|crate_| Some(((crate_.name, crate_.version), crate_.checksum?))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_cargo_tree() {
        let checksums = BTreeMap::from([(("serde".to_owned(), "1.0.2".to_owned()), "ab".to_owned())]);
        let serde = component("serde v1.0.2|MIT/Apache-2.0", &checksums).unwrap();
        assert_eq!(serde.licence.as_deref(), Some("MIT OR Apache-2.0"));
        assert_eq!(serde.purl.as_deref(), Some("pkg:cargo/serde@1.0.2"));
        let own = component("init v0.1.0 (/some/directory/init)|Apache-2.0 OR MIT", &checksums).unwrap();
        assert_eq!((own.version.as_str(), own.sha256, own.purl), ("0.1.0", None, None));
        assert_eq!(component("serde_derive v1.0.2 (proc-macro)|MIT", &checksums), None);
    }

    #[test]
    fn the_crates_of_init_are_found() {
        let found = compiled_in(&[("init", &["pid1"])], Architecture::Amd64).unwrap();
        assert!(found.iter().any(|component| component.name == "rustix" && component.sha256.is_some()));
        assert!(found.iter().all(|component| component.name != "tokio"), "init links no tokio");
    }
}
