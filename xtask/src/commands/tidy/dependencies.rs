//! Crates from outside, held against deny.toml: what is banned, what may be there twice, which licences will do.
//!
//! Does not: know of security advisories; cargo-deny does and reads the same file (`xtask test` runs it when it is
//! installed).

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use serde::Deserialize;

use super::sources::Sources;
use crate::command::Cmd;
use crate::place;

#[derive(Deserialize)]
pub(super) struct Policy {
    bans: Bans,
    licenses: Licenses,
}

#[derive(Deserialize)]
struct Bans {
    deny: Vec<Named>,
    skip: Vec<Named>,
}

#[derive(Deserialize)]
struct Named {
    #[serde(rename = "crate")]
    name: String,
}

#[derive(Deserialize)]
struct Licenses {
    allow: Vec<String>,
}

/// One crate of the graph.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Crate {
    pub(super) name: String,
    pub(super) version: String,
    pub(super) licence: String,
}

pub(super) fn check(sources: &Sources) -> Result<Vec<String>> {
    let text = sources.all().find(|file| file.path == "deny.toml").map(|file| file.text.as_str());
    let policy: Policy =
        toml::from_str(text.context("the repository has no deny.toml")?).context("parse deny.toml")?;
    Ok(judge(&policy, &graph()?))
}

pub(super) fn judge(policy: &Policy, graph: &BTreeSet<Crate>) -> Vec<String> {
    let mut faults = Vec::new();
    let mut versions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for found in graph {
        versions.entry(&found.name).or_default().push(&found.version);
        if policy.bans.deny.iter().any(|banned| banned.name == found.name) {
            faults.push(format!("deny.toml: {} {} is banned", found.name, found.version));
        }
        if !acceptable(&found.licence, &policy.licenses.allow) {
            faults.push(format!("deny.toml: {} has the licence {:?}", found.name, found.licence));
        }
    }
    for (name, versions) in versions.iter().filter(|(_, versions)| versions.len() > 1) {
        if !policy.bans.skip.iter().any(|skip| skip.name.split('@').next() == Some(name)) {
            faults.push(format!("deny.toml: {name} is there in versions {}", versions.join(", ")));
        }
    }
    faults
}

/// Whether an SPDX expression can be met with allowed licences. `/` is the `OR` of older crates.
fn acceptable(expression: &str, allowed: &[String]) -> bool {
    let expression = expression.replace('/', " OR ").replace(['(', ')'], " ");
    // Of the crates' expressions none nests; `A OR B AND C` without brackets binds AND first, as here.
    expression
        .split(" OR ")
        .any(|side| side.split(" AND ").all(|licence| allowed.iter().any(|known| known == licence.trim())))
}

/// All crates that anything in the workspace is built from, build scripts and tests included.
fn graph() -> Result<BTreeSet<Crate>> {
    let tree = Cmd::new("cargo")
        .args(["tree", "--workspace", "--locked", "--edges", "normal,build,dev", "--prefix", "none"])
        .args(["--target", "x86_64-unknown-linux-gnu", "--format", "{p}|{l}"])
        .directory(&place::repository());
    Ok(tree.read()?.lines().filter_map(parse).collect())
}

/// `name v1.2.3 (directory or remark)|licence`, perhaps with ` (*)`; crates of the workspace have a directory.
fn parse(line: &str) -> Option<Crate> {
    let (package, licence) = line.trim_end_matches(" (*)").split_once('|')?;
    let mut words = package.split_whitespace();
    let (name, version) = (words.next()?, words.next()?.trim_start_matches('v'));
    Some(Crate { name: name.into(), version: version.into(), licence: licence.into() })
}
