//! Changes to a configuration that a person writes down: JSON patches and strategic merge patches.
//!
//! Owns: telling both kinds apart, reading them, applying them to a configuration's text. Order of fields is kept,
//! comments are not. Does not: read files (`@file` is the CLI's), or judge the result ([`crate::validate`]).
//! Fails by: [`PatchError`]: which patch, which operation, which path, and what exists there. Values are not repeated,
//! since they may be secret. Source: RFC 6902, RFC 6901; docs/users/editing-config.md.

mod json;
mod merge;
mod pointer;
mod restyle;
mod scalar;
mod tree;
mod write;

use json::Operation;
use tree::Node;

/// Longest list of names that an error shows.
const SHOWN_NAMES: usize = 12;

/// One change. It may hold secrets, hence no `Debug`.
#[derive(Clone)]
pub struct Patch(Kind);

#[derive(Clone)]
enum Kind {
    /// RFC 6902: operations, applied all or not at all.
    Json(Vec<Operation>),
    /// A piece of configuration, one or several documents, laid over the existing one.
    Merge(Vec<Node>),
}

/// Why a patch can not be read or applied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    /// The text is no YAML or JSON.
    #[error("read the patch: line {line}, column {column}: {reason}")]
    Syntax {
        /// Line, counted from 1.
        line: usize,
        /// Column, counted from 1.
        column: usize,
        /// What is wrong.
        reason: String,
    },
    /// The text is neither kind of patch.
    #[error("read the patch: {0}")]
    Kind(String),
    /// An operation of a JSON patch is not complete or not known.
    #[error("read the patch: operation {operation}: {reason}")]
    Operation {
        /// Which, counted from 1.
        operation: usize,
        /// What is wrong.
        reason: String,
    },
    /// The configuration that shall be changed is no YAML.
    #[error("read the configuration that shall be patched: line {line}, column {column}: {reason}")]
    Target {
        /// Line, counted from 1.
        line: usize,
        /// Column, counted from 1.
        column: usize,
        /// What is wrong.
        reason: String,
    },
    /// JSON pointers can not say which document they mean.
    #[error(
        "patch {patch}: JSON6902 patches are not supported for multi-document machine configuration; \
         write it as a strategic merge patch"
    )]
    SeveralDocuments {
        /// Which patch, counted from 1.
        patch: usize,
    },
    /// An operation of a JSON patch does not fit.
    #[error("patch {patch}, operation {operation} ({name} {path}): {reason}")]
    Json {
        /// Which patch, counted from 1.
        patch: usize,
        /// Which operation in it, counted from 1.
        operation: usize,
        /// Its name: `replace`.
        name: &'static str,
        /// The path in question.
        path: String,
        /// What does not fit, and what exists there.
        reason: String,
    },
    /// A strategic merge patch does not fit.
    #[error("patch {patch}, at {path}: {reason}")]
    Merge {
        /// Which patch, counted from 1.
        patch: usize,
        /// The path: `machine.network.interfaces`.
        path: String,
        /// What does not fit, and what exists there.
        reason: String,
    },
}

/// Reads a patch: a list of operations is a JSON patch, a map is a strategic merge patch; both in JSON or YAML.
/// Documents of a stream that are maps are one patch together.
///
/// # Errors
/// [`PatchError::Syntax`], [`PatchError::Kind`], [`PatchError::Operation`].
pub fn load_patches(text: &str) -> Result<Vec<Patch>, PatchError> {
    let mut patches: Vec<Patch> = Vec::new();
    for document in tree::documents(text).map_err(|e| e.in_patch())? {
        match document {
            Node::List(operations) => patches.push(Patch(Kind::Json(json::operations(operations)?))),
            map @ Node::Map(_) => add_merge(&mut patches, map)?,
            Node::Scalar(s) if s.is_null() => {}
            Node::Scalar(_) => {
                let reason = "a single value is no patch; write a list of operations (JSON patch) or a piece of \
                              configuration such as `machine: {…}`; `@FILE` names a file";
                return Err(PatchError::Kind(reason.to_owned()));
            }
        }
    }
    if patches.is_empty() { Err(PatchError::Kind("it is empty".to_owned())) } else { Ok(patches) }
}

fn add_merge(patches: &mut Vec<Patch>, map: Node) -> Result<(), PatchError> {
    if map.get("op").is_some() && map.get("path").is_some() {
        let reason = "a JSON patch is a list of operations; write `[` and `]` around this one";
        return Err(PatchError::Kind(reason.to_owned()));
    }
    match patches.last_mut() {
        Some(Patch(Kind::Merge(documents))) => documents.push(map),
        _ => patches.push(Patch(Kind::Merge(vec![map]))),
    }
    Ok(())
}

/// Applies `patches` in their order. Without any the text is answered as it is.
///
/// # Errors
/// [`PatchError`]; nothing is changed then.
pub fn apply(text: &str, patches: &[Patch]) -> Result<String, PatchError> {
    if patches.is_empty() {
        return Ok(text.to_owned());
    }
    let mut documents = tree::documents(text).map_err(|e| e.in_target())?;
    for (index, patch) in patches.iter().enumerate() {
        match &patch.0 {
            Kind::Json(operations) => json::apply(&mut documents, operations, index + 1)?,
            Kind::Merge(pieces) => merge::apply(&mut documents, pieces, index + 1)?,
        }
    }
    Ok(write::documents(&documents))
}

/// `new` in the order and spelling of `old`, where both say the same. Comments are lost.
///
/// # Errors
/// [`PatchError::Target`] if one of them is no YAML.
pub(crate) fn restyled(old: &str, new: &str) -> Result<String, PatchError> {
    let read = |text| tree::documents(text).map_err(|e| e.in_target());
    Ok(write::documents(&restyle::documents(&read(old)?, read(new)?)))
}

/// Whether two configurations mean the same: order of maps, comments and spelling do not matter. Texts that can not
/// be read are the same only if they are equal.
pub fn is_same(a: &str, b: &str) -> bool {
    match (tree::documents(a), tree::documents(b)) {
        (Ok(a), Ok(b)) => a.len() == b.len() && a.iter().zip(&b).all(|(a, b)| a.same(b)),
        _ => a == b,
    }
}

/// A text as a YAML value of one line, in quotes where it would mean something else without.
pub fn yaml_word(text: &str) -> String {
    write::word(text)
}

/// Names for an error, shortened.
fn listed<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let mut names: Vec<_> = names.collect();
    let more = names.len().saturating_sub(SHOWN_NAMES);
    names.truncate(SHOWN_NAMES);
    let shown = names.join(", ");
    match (shown.is_empty(), more) {
        (true, _) => "nothing".to_owned(),
        (false, 0) => shown,
        (false, more) => format!("{shown} and {more} more"),
    }
}

/// What a node is, for an error: its shape and the names in it, never a value.
fn described(node: &Node) -> String {
    match node {
        Node::Map(entries) => format!("a map with {}", listed(entries.iter().map(|(k, _)| k.as_str()))),
        Node::List(items) => format!("a list of {}", items.len()),
        Node::Scalar(s) => s.kind().to_owned(),
    }
}

#[cfg(test)]
#[path = "fuzz_tests.rs"]
mod fuzz_tests;
#[cfg(test)]
#[path = "tests.rs"]
mod tests;
