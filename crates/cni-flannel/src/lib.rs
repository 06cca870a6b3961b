//! The network plugin `flannel`, which containerd starts for each pod.
//!
//! | module | what it does |
//! |---|---|
//! | [`settings`] | what the daemon of flannel wrote about this node's part of the network |
//! | [`delegate`] | the configuration for the plugin that makes interfaces, and starting that |
//! | [`error`] | what can go wrong, as the specification wants it said |
//!
//! Owns: the answer on standard output, and a file for each container with what its plugin was told: the way back needs the
//! same, whatever the daemon has written since.
//! Does not: make interfaces or addresses; `bridge` and `host-local` do, which lie beside it.
//! Order: the file is there before the plugin runs, and goes after it has taken everything back.
//! Fails by: the JSON object of the specification on standard output, and exit status 1.
//! Source: CNI specification 1.0.0, sections 2 to 4; README of flannel's own plugin, "Format" and "Delegation".
#![warn(missing_docs)]

mod delegate;
mod error;
mod settings;

use std::ffi::OsString;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use serde_json::{Map, Value, json};

pub use error::Error;
use settings::Settings;

/// Versions of the specification whose results the plugins beside it give.
const VERSIONS: [&str; 6] = ["0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0"];
/// Where the daemon writes, unless the configuration says otherwise.
const SETTINGS: &str = "/run/flannel/subnet.env";
/// Where the files of containers are, unless the configuration says otherwise.
const DATA: &str = "/var/lib/cni/flannel";
/// The node takes pods as soon as the network has a configuration, which the pod of flannel writes a moment before its daemon
/// starts. A kubelet that is refused tries again only after ten seconds and more.
const PATIENCE: Duration = Duration::from_secs(10);
/// Longest configuration: those of real networks have less than 4 KiB.
const LONGEST: u64 = 1 << 20;

/// What a runtime says besides the configuration.
pub struct Call {
    /// `ADD`, `DEL`, `CHECK`, `VERSION`, …
    pub command: String,
    /// The container's id, the name of its file.
    pub container: String,
    /// Where plugins are.
    pub path: OsString,
    /// How long an `ADD` waits for the daemon to write its settings.
    pub patience: Duration,
}

/// Does what the environment and standard input say.
#[must_use]
pub fn run() -> ExitCode {
    let variable = |name: &str| std::env::var_os(name).unwrap_or_default();
    let text = |name: &str| variable(name).to_string_lossy().into_owned();
    let call = Call {
        command: text("CNI_COMMAND"),
        container: text("CNI_CONTAINERID"),
        path: variable("CNI_PATH"),
        patience: PATIENCE,
    };
    let mut configuration = Vec::new();
    let read = std::io::stdin().take(LONGEST).read_to_end(&mut configuration);
    let answer = read.map_err(Error::Input).and_then(|_| answer(&call, &configuration));
    let (answer, code) = match answer {
        Ok(answer) => (answer, ExitCode::SUCCESS),
        Err(error) => (error.to_json().to_string().into_bytes(), ExitCode::FAILURE),
    };
    // Without a reader there is no one to tell.
    let written = std::io::stdout().write_all(&answer);
    drop(written);
    code
}

/// What is answered to a call.
///
/// # Errors
/// [`Error`].
pub fn answer(call: &Call, configuration: &[u8]) -> Result<Vec<u8>, Error> {
    if call.command == "VERSION" {
        return Ok(json!({ "cniVersion": "1.0.0", "supportedVersions": VERSIONS }).to_string().into_bytes());
    }
    let own = Own::parse(configuration)?;
    match call.command.as_str() {
        "ADD" => {
            let settings = Settings::wait(&own.settings, call.patience)?;
            let told = delegate::configuration(&own.all, &settings)?;
            let file = own.file(call)?;
            delegate::keep(&file, &told)?;
            delegate::start(call, &told)
        }
        "CHECK" => {
            let mut told = delegate::kept(&own.file(call)?)?.ok_or(Error::UnknownContainer)?;
            if let Some(previous) = own.all.get("prevResult") {
                told.insert("prevResult".to_owned(), previous.clone());
            }
            delegate::start(call, &told)
        }
        "DEL" => {
            let file = own.file(call)?;
            // A second call, or one for a container that was never added: the specification wants success.
            let Some(told) = delegate::kept(&file)? else { return Ok(Vec::new()) };
            let answer = delegate::start(call, &told)?;
            delegate::forget(&file)?;
            Ok(answer)
        }
        // A newer runtime asks whether pods can be added.
        "STATUS" => Settings::read(&own.settings).map(|_| Vec::new()),
        "GC" => Ok(Vec::new()),
        other => Err(Error::Command(other.to_owned())),
    }
}

/// The plugin's own part of the configuration.
struct Own {
    all: Map<String, Value>,
    settings: PathBuf,
    data: PathBuf,
}

impl Own {
    fn parse(text: &[u8]) -> Result<Self, Error> {
        let all: Map<String, Value> = serde_json::from_slice(text).map_err(Error::Configuration)?;
        let path = |field: &str, default: &str| {
            let given = all.get(field).and_then(Value::as_str).filter(|text| !text.is_empty());
            PathBuf::from(given.unwrap_or(default))
        };
        Ok(Self { settings: path("subnetFile", SETTINGS), data: path("dataDir", DATA), all })
    }

    /// The file of the call's container.
    fn file(&self, call: &Call) -> Result<PathBuf, Error> {
        let name = Path::new(&call.container);
        let is_name = name.file_name().is_some_and(|last| last == name.as_os_str());
        if !is_name {
            return Err(Error::Container(call.container.clone()));
        }
        Ok(self.data.join(name))
    }
}

#[cfg(test)]
mod tests;
