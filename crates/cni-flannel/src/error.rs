//! What can go wrong, and how the runtime is told.
//!
//! Source: CNI specification 1.0.0, section 5, "Error"; codes from 100 on are a plugin's own.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

use serde_json::{Value, json};

/// Why a call is not answered.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Standard input ended early.
    #[error("read the configuration: {0}")]
    Input(#[source] io::Error),
    /// What came is no configuration.
    #[error("the configuration is not understood: {0}")]
    Configuration(#[source] serde_json::Error),
    /// The part for the other plugin.
    #[error("`delegate` of the configuration: {0}")]
    Delegate(&'static str),
    /// A call that there is not.
    #[error("CNI_COMMAND={0:?} is not known")]
    Command(String),
    /// An id that names no file.
    #[error("CNI_CONTAINERID={0:?} is no id of a container")]
    Container(String),
    /// A check of a container that was not added.
    #[error("the container was not added by this plugin")]
    UnknownContainer,
    /// The daemon has not written yet.
    #[error("{} is not there: the pod of flannel on this node has not started yet", .0.display())]
    NoSettings(PathBuf),
    /// The daemon wrote something else.
    #[error("{}: {reason}", .path.display())]
    Settings {
        /// Its file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// A file.
    #[error("{what} {}: {source}", .path.display())]
    File {
        /// `read`, `write`, `remove`.
        what: &'static str,
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file of a container.
    #[error("{} is not understood: {source}; remove it and the pod", .path.display())]
    Kept {
        /// Which.
        path: PathBuf,
        /// Why.
        source: serde_json::Error,
    },
    /// The other plugin is not there.
    #[error("there is no plugin {plugin:?} in {}", .path.display())]
    NoPlugin {
        /// Its name.
        plugin: String,
        /// Where plugins are looked for.
        path: OsString,
    },
    /// The other plugin did not start.
    #[error("start {}: {source}", .program.display())]
    Start {
        /// Its file.
        program: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The other plugin failed.
    #[error("plugin {plugin} failed ({status}): {}", String::from_utf8_lossy(.said))]
    Refused {
        /// Its name.
        plugin: String,
        /// What it wrote.
        said: Vec<u8>,
        /// How it ended.
        status: String,
    },
}

impl Error {
    /// As the specification wants it. What another plugin said in that form is passed on as it is.
    #[must_use]
    pub fn to_json(&self) -> Value {
        if let Self::Refused { said, .. } = self
            && let Ok(Value::Object(object)) = serde_json::from_slice(said)
        {
            return Value::Object(object);
        }
        json!({ "cniVersion": "1.0.0", "code": self.code(), "msg": self.to_string() })
    }

    /// The codes of the specification; from 100 on they are this plugin's.
    const fn code(&self) -> u32 {
        match self {
            Self::Input(_) | Self::File { .. } => 5,
            Self::Configuration(_) => 6,
            Self::Delegate(_) => 7,
            Self::Command(_) | Self::Container(_) => 4,
            Self::UnknownContainer => 3,
            // "Try again later".
            Self::NoSettings(_) => 11,
            Self::Settings { .. } => 100,
            Self::Kept { .. } => 101,
            Self::NoPlugin { .. } | Self::Start { .. } | Self::Refused { .. } => 102,
        }
    }
}
