//! The client configuration file.
//!
//! Owns: where it is, reading and writing it, choosing and merging contexts. The same file as talosctl's, of both
//! generations. Does not: connect (`client`). Keys it does not know are ignored, as talosctl does.
//! Fails by: [`TalosconfigError`], which says what to do. Source: docs/users/pki.md.

use crate::pki::{Identity, PkiError};
use config::{Secret, decode_base64};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs, io,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

/// Contexts and which of them is used.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Talosconfig {
    /// Name of the current context.
    #[serde(default)]
    pub context: String,
    /// All contexts by name.
    #[serde(default)]
    pub contexts: BTreeMap<String, Context>,
}

/// How to reach one cluster. It holds a key, hence no `Debug`.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Context {
    /// Addresses that are connected to, `host` or `host:port`.
    #[serde(default)]
    pub endpoints: Vec<String>,
    /// Nodes that calls are for, as the endpoint sees them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<String>,
    /// base64 of the CA's PEM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<String>,
    /// base64 of the client certificate's PEM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crt: Option<String>,
    /// base64 of the client key's PEM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<Secret>,
    /// Name of the cluster behind a proxy that serves several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// Other ways to authenticate; kept, not used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth: Option<Auth>,
    /// Old name of a single endpoint; moved to `endpoints` when read.
    #[serde(default, skip_serializing)]
    pub target: Option<String>,
}

/// Other ways to authenticate.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Auth {
    /// Name and password.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basic: Option<Basic>,
    /// A hosted identity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub siderov1: Option<Siderov1>,
}

/// Name and password.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct Basic {
    /// The name.
    #[serde(default)]
    pub username: String,
    /// The password.
    pub password: Secret,
}

/// A hosted identity.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Siderov1 {
    /// Its name.
    #[serde(default)]
    pub identity: String,
}

/// What went wrong with the file or a context.
#[derive(Debug, thiserror::Error)]
pub enum TalosconfigError {
    /// The file can not be read.
    #[error("read {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// There is no file.
    #[error("there is no client configuration at {0}; give one with --talosconfig or TALOSCONFIG")]
    Missing(PathBuf),
    /// The file can not be written.
    #[error("write {path}: {source}")]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file is no talosconfig.
    #[error("{path} is not a talosconfig: {reason}")]
    Syntax {
        /// The file.
        path: PathBuf,
        /// The reader's words, without the file's content.
        reason: String,
    },
    /// The file names no current context.
    #[error(
        "no context is chosen; give --context or run `billetctl config context NAME` (there are: {known})"
    )]
    NoContext {
        /// Names of the contexts.
        known: String,
    },
    /// No such context.
    #[error("there is no context `{name}`; there are: {known}")]
    UnknownContext {
        /// The name asked for.
        name: String,
        /// Names of the contexts.
        known: String,
    },
    /// A field of the context is not base64 of PEM.
    #[error("field `{field}` of the context: {reason}")]
    Field {
        /// The field.
        field: &'static str,
        /// Why.
        reason: &'static str,
    },
    /// Certificate or key are no good.
    #[error(transparent)]
    Pki(#[from] PkiError),
}

/// The file to use: `given`; else the first that exists of `$TALOSCONFIG`, `$TALOS_HOME/config` (if absolute) or
/// `~/.talos/config`, and the one mounted into pods; else the first of these, to be created.
pub fn path(given: Option<&Path>, env: impl Fn(&str) -> Option<OsString>) -> PathBuf {
    if let Some(path) = given {
        return path.to_owned();
    }
    let set = |name| env(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let home =
        set("TALOS_HOME").filter(|p| p.is_absolute()).or_else(|| set("HOME").map(|h| h.join(".talos")));
    let writable: Vec<PathBuf> =
        set("TALOSCONFIG").into_iter().chain(home.map(|h| h.join("config"))).collect();
    let in_pod = PathBuf::from("/var/run/secrets/talos.dev/config");
    let existing = writable.iter().chain([&in_pod]).find(|p| p.exists()).cloned();
    existing.or_else(|| writable.into_iter().next()).unwrap_or(in_pod)
}

impl Talosconfig {
    /// Reads the file at `path`.
    ///
    /// # Errors
    /// [`TalosconfigError::Missing`], [`TalosconfigError::Read`], [`TalosconfigError::Syntax`].
    pub fn load(path: &Path) -> Result<Self, TalosconfigError> {
        match fs::read_to_string(path) {
            Ok(text) => Self::parse(&text)
                .map_err(|reason| TalosconfigError::Syntax { path: path.to_owned(), reason }),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Err(TalosconfigError::Missing(path.to_owned())),
            Err(source) => Err(TalosconfigError::Read { path: path.to_owned(), source }),
        }
    }

    /// Reads text.
    ///
    /// # Errors
    /// What is wrong and where, without the content.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.trim().is_empty() {
            return Ok(Self::default());
        }
        let options = serde_saphyr::options! { with_snippet: false };
        let mut config: Self = serde_saphyr::from_str_with_options(text, options).map_err(|e| {
            let at = e
                .location()
                .map_or(String::new(), |l| format!(" at line {}, column {}", l.line(), l.column()));
            format!("it can not be read{at}")
        })?;
        for context in config.contexts.values_mut() {
            context.endpoints.extend(context.target.take());
        }
        Ok(config)
    }

    /// The text of the file. It holds keys.
    pub fn to_yaml(&self) -> Secret {
        let options = serde_saphyr::ser_options! { prefer_block_scalars: false };
        // Strings, lists and maps with string keys: nothing here can fail to be written.
        Secret::new(serde_saphyr::to_string_with_options(self, options).unwrap_or_default())
    }

    /// Writes the file: a new one beside it, then renamed over it; readable by its owner only.
    ///
    /// # Errors
    /// [`TalosconfigError::Write`].
    pub fn save(&self, path: &Path) -> Result<(), TalosconfigError> {
        let failed = |source| TalosconfigError::Write { path: path.to_owned(), source };
        if let Some(dir) = path.parent().filter(|d| !d.as_os_str().is_empty()) {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(failed)?;
        }
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}.new", std::process::id()));
        let beside = path.with_file_name(name);
        write_private(&beside, self.to_yaml().expose_secret()).map_err(failed)?;
        fs::rename(&beside, path).map_err(failed)
    }

    /// The context called `name`, or the current one.
    ///
    /// # Errors
    /// [`TalosconfigError::NoContext`], [`TalosconfigError::UnknownContext`].
    pub fn choose(&self, name: Option<&str>) -> Result<(&str, &Context), TalosconfigError> {
        let name = name.unwrap_or(&self.context);
        if name.is_empty() {
            return Err(TalosconfigError::NoContext { known: self.known() });
        }
        self.contexts
            .get_key_value(name)
            .map(|(name, context)| (name.as_str(), context))
            .ok_or_else(|| TalosconfigError::UnknownContext { name: name.to_owned(), known: self.known() })
    }

    /// Adds the contexts of `other`, numbering names that exist already, and takes over its current context.
    /// Answers the renames, old name first.
    pub fn merge(&mut self, other: Self) -> Vec<(String, String)> {
        let mut renamed = Vec::new();
        for (name, context) in other.contexts {
            let new = self.free_name(&name);
            if other.context == name {
                self.context.clone_from(&new);
            }
            if new != name {
                renamed.push((name, new.clone()));
            }
            self.contexts.insert(new, context);
        }
        renamed
    }

    fn free_name(&self, name: &str) -> String {
        let numbered = (1..).map(|n: u32| format!("{name}-{n}"));
        let mut candidates = std::iter::once(name.to_owned()).chain(numbered);
        candidates.find(|n| !self.contexts.contains_key(n)).unwrap_or_default()
    }

    fn known(&self) -> String {
        let names: Vec<_> = self.contexts.keys().map(String::as_str).collect();
        if names.is_empty() { "none".to_owned() } else { names.join(", ") }
    }
}

impl Context {
    /// PEM of the CA, if the context has one.
    ///
    /// # Errors
    /// [`TalosconfigError::Field`].
    pub fn authority(&self) -> Result<Option<String>, TalosconfigError> {
        let ca = self.ca.as_deref().filter(|ca| !ca.is_empty());
        ca.map(|ca| decoded("ca", ca).map(|pem| pem.to_string())).transpose()
    }

    /// The client certificate with its key, if the context has one.
    ///
    /// # Errors
    /// [`TalosconfigError::Field`], [`TalosconfigError::Pki`].
    pub fn identity(&self) -> Result<Option<Identity>, TalosconfigError> {
        let (Some(crt), Some(key)) = (self.crt.as_deref(), &self.key) else { return Ok(None) };
        if crt.is_empty() && key.is_empty() {
            return Ok(None);
        }
        let (crt, key) = (decoded("crt", crt)?, decoded("key", key.expose_secret())?);
        Ok(Some(Identity::from_pem("the client certificate", &crt, &Secret::new(key.as_str()))?))
    }
}

fn decoded(field: &'static str, text: &str) -> Result<zeroize::Zeroizing<String>, TalosconfigError> {
    decode_base64(text).map_err(|reason| TalosconfigError::Field { field, reason })
}

fn write_private(path: &Path, text: &str) -> io::Result<()> {
    let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    io::Write::write_all(&mut file, text.as_bytes())?;
    file.sync_all()
}

#[cfg(test)]
#[path = "talosconfig_tests.rs"]
mod tests;
