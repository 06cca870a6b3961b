//! The plugin that makes interfaces: what it is told, and starting it.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Map, Value, json};

use crate::settings::Settings;
use crate::{Call, Error};

/// The plugin where the configuration names none.
const BRIDGE: &str = "bridge";
/// Fields that the plugin gets from the whole configuration.
const PASSED: [&str; 4] = ["name", "cniVersion", "runtimeConfig", "args"];

/// What the plugin is told: what the configuration says for it, then what is not said, from the daemon's settings.
pub(crate) fn configuration(
    all: &Map<String, Value>,
    settings: &Settings,
) -> Result<Map<String, Value>, Error> {
    let mut told = match all.get("delegate") {
        None | Some(Value::Null) => Map::new(),
        Some(Value::Object(told)) => told.clone(),
        Some(_) => return Err(Error::Delegate("it is no object")),
    };
    for field in ["ipam", "name"] {
        if told.contains_key(field) {
            return Err(Error::Delegate(if field == "ipam" {
                "it has `ipam`: addresses come from flannel's network; leave it out"
            } else {
                "it has `name`: it has the name of the whole; leave it out"
            }));
        }
    }
    for field in PASSED {
        if let Some(value) = all.get(field) {
            told.insert(field.to_owned(), value.clone());
        }
    }
    let kind = told.entry("type").or_insert_with(|| json!(BRIDGE)).clone();
    // Where the daemon masks what leaves the network, masking here would hide pods from each other.
    told.entry("ipMasq").or_insert(json!(!settings.masks));
    if let Some(mtu) = settings.mtu {
        told.entry("mtu").or_insert(json!(mtu));
    }
    if kind == BRIDGE {
        told.entry("isGateway").or_insert(json!(true));
    }
    told.insert("ipam".to_owned(), addresses(all.get("ipam"), settings));
    Ok(told)
}

/// Addresses of this node's part, and the way to the other nodes' parts.
fn addresses(given: Option<&Value>, settings: &Settings) -> Value {
    let mut ipam = given.and_then(Value::as_object).cloned().unwrap_or_default();
    ipam.entry("type").or_insert_with(|| json!("host-local"));
    let families = [&settings.v4, &settings.v6];
    let known = || families.iter().filter_map(|family| family.as_ref());
    let ranges: Vec<_> = known().map(|(_, part)| json!([{ "subnet": part }])).collect();
    let mut routes: Vec<_> = known().map(|(network, _)| json!({ "dst": network })).collect();
    routes.extend(ipam.get("routes").and_then(Value::as_array).cloned().unwrap_or_default());
    ipam.insert("ranges".to_owned(), json!(ranges));
    ipam.insert("routes".to_owned(), json!(routes));
    Value::Object(ipam)
}

/// Starts the plugin with the environment of this process. Answers what it wrote.
pub(crate) fn start(call: &Call, told: &Map<String, Value>) -> Result<Vec<u8>, Error> {
    let kind = told.get("type").and_then(Value::as_str).unwrap_or(BRIDGE);
    let program = find(call, kind)?;
    let failed = |source| Error::Start { program: program.clone(), source };
    let mut child = Command::new(&program)
        .env("CNI_COMMAND", &call.command)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    if let Some(mut input) = child.stdin.take() {
        input.write_all(Value::Object(told.clone()).to_string().as_bytes()).map_err(failed)?;
    }
    let output = child.wait_with_output().map_err(failed)?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    // Its own words are already in the form that the runtime reads.
    Err(Error::Refused { plugin: kind.to_owned(), said: output.stdout, status: output.status.to_string() })
}

fn find(call: &Call, kind: &str) -> Result<PathBuf, Error> {
    let is_name = Path::new(kind).file_name().is_some_and(|last| last == kind);
    let mut places = std::env::split_paths(&call.path).map(|directory| directory.join(kind));
    let found = if is_name { places.find(|path| path.is_file()) } else { None };
    found.ok_or_else(|| Error::NoPlugin { plugin: kind.to_owned(), path: call.path.clone() })
}

/// Keeps what the plugin is told, for the way back. The configuration may hold what only root should read.
pub(crate) fn keep(file: &Path, told: &Map<String, Value>) -> Result<(), Error> {
    let failed = |source| Error::File { what: "write", path: file.to_owned(), source };
    let directory = file.parent().unwrap_or(Path::new("/"));
    DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(failed)?;
    let beside = file.with_extension("new");
    let options = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&beside);
    let text = Value::Object(told.clone()).to_string();
    let written =
        options.and_then(|mut opened| opened.write_all(text.as_bytes()).and_then(|()| opened.sync_all()));
    written.and_then(|()| fs::rename(&beside, file)).map_err(failed)
}

/// What the plugin of a container was told; `None` where nothing was.
pub(crate) fn kept(file: &Path) -> Result<Option<Map<String, Value>>, Error> {
    let text = match fs::read(file) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        read => read.map_err(|source| Error::File { what: "read", path: file.to_owned(), source })?,
    };
    serde_json::from_slice(&text).map(Some).map_err(|source| Error::Kept { path: file.to_owned(), source })
}

/// Removes what was kept.
pub(crate) fn forget(file: &Path) -> Result<(), Error> {
    match fs::remove_file(file) {
        Err(source) if source.kind() != ErrorKind::NotFound => {
            Err(Error::File { what: "remove", path: file.to_owned(), source })
        }
        _ => Ok(()),
    }
}
