//! `EtcFileSpecs` and `EtcFileStatuses`: the files of /etc that follow from resources, and those that the config gives.

use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use runtime::Runtime;
use runtime::store::{ETC_FILE_SPEC, ETC_FILE_STATUS, EtcFile, Fact, Spec};

/// As they are made.
const MODE: u32 = 0o644;

/// What /etc shows of the node's own.
const SOURCE: &str = "/system/etc";

/// Publishes a file that was written, if it is one of /etc.
pub(super) fn publish(runtime: &Runtime, path: &str, text: &str) -> Result<(), String> {
    match Path::new(path).strip_prefix(SOURCE).ok().and_then(Path::to_str) {
        Some(name) => publish_as(runtime, name, text.as_bytes(), MODE),
        None => Ok(()),
    }
}

/// Publishes a file under its path from /etc.
pub(crate) fn publish_as(runtime: &Runtime, name: &str, content: &[u8], mode: u32) -> Result<(), String> {
    let file = EtcFile { contents: STANDARD.encode(content), mode, selinux_label: "" };
    let put = |kind, fact| runtime.store.put(ETC_FILE_SPEC.writer, kind, name, Spec::Fact(Box::new(fact)));
    put(&ETC_FILE_SPEC, Fact::EtcFile(file)).map_err(|e| e.to_string())?;
    let version = runtime.store.get(&ETC_FILE_SPEC, name).map_or(0, |found| found.metadata.version);
    put(&ETC_FILE_STATUS, Fact::EtcFileStatus { spec_version: version.to_string() })
        .map(drop)
        .map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_follows_the_content() {
        let dir = tempfile::tempdir().unwrap();
        let runtime = Runtime::detached(dir.path().to_owned());
        let version = || runtime.store.get(&ETC_FILE_STATUS, "hosts").unwrap().spec.yaml().unwrap();
        publish(&runtime, "/system/etc/hosts", "127.0.0.1 localhost\n").unwrap();
        publish(&runtime, "/system/etc/hosts", "127.0.0.1 localhost\n").unwrap();
        assert!(version().contains("specVersion: \"1\"\n"), "{}", version());
        publish(&runtime, "/system/etc/hosts", "127.0.0.1 localhost n1\n").unwrap();
        assert!(version().contains("specVersion: \"2\"\n"), "{}", version());
    }
}
