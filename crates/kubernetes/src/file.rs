//! Files that a program of the control plane reads, and how values become YAML.

use config::schema::Value as Given;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::Error;

/// Whose a file is, by the user that the program runs as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// root: what machined and the kubelet read.
    Root,
    /// The API server.
    ApiServer,
    /// The controller manager.
    ControllerManager,
    /// The scheduler.
    Scheduler,
    /// etcd.
    Etcd,
}

impl Owner {
    /// User and group id.
    #[must_use]
    pub const fn id(self) -> u32 {
        match self {
            Self::Root => 0,
            Self::ApiServer => 65_534,
            Self::ControllerManager => 65_535,
            Self::Scheduler => 65_536,
            Self::Etcd => 60,
        }
    }
}

/// A file for one program. Mode 0400 and in a directory of its owner: several of them hold secrets.
#[derive(Clone, PartialEq, Eq)]
pub struct File {
    /// Whole path on the node.
    pub path: String,
    /// Who reads it.
    pub owner: Owner,
    /// What stands in it.
    pub contents: config::Secret,
}

impl File {
    pub(crate) fn new(directory: &str, name: &str, owner: Owner, contents: String) -> Self {
        Self { path: format!("{directory}/{name}"), owner, contents: config::Secret::new(contents) }
    }
}

/// A value as YAML.
///
/// # Errors
/// [`Error::Write`], naming `what`.
pub fn yaml(what: &'static str, value: &impl Serialize) -> Result<String, Error> {
    serde_saphyr::to_string(value).map_err(|error| Error::Write { what, reason: error.to_string() })
}

/// A free-form mapping of a configuration.
///
/// # Errors
/// [`Error::NotAMapping`], naming `field`.
pub(crate) fn mapping(field: &'static str, given: &Given) -> Result<Map<String, Value>, Error> {
    let value = serde_json::to_value(given);
    match value.map_err(|error| Error::Write { what: field, reason: error.to_string() })? {
        Value::Object(fields) => Ok(fields),
        _ => Err(Error::NotAMapping { field }),
    }
}

/// The same, with the header of its kind where it has none.
pub(crate) fn headed(
    field: &'static str,
    given: &Given,
    api_version: &str,
    kind: &str,
) -> Result<Value, Error> {
    let mut fields = mapping(field, given)?;
    fields.entry("apiVersion").or_insert_with(|| api_version.into());
    fields.entry("kind").or_insert_with(|| kind.into());
    Ok(Value::Object(fields))
}
