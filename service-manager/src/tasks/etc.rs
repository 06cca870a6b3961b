//! The files of /etc that a running node writes: on /system/etc, bound over the read-only ones.
//!
//! Source: docs/users/files.md, docs/users/network.md.

use runtime::sequencer::{TaskError, TaskFuture};
use std::ffi::CString;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use crate::node::Node;

/// Resolvers without any other word (docs/users/files.md, docs/users/network.md).
const DEFAULT_RESOLVERS: &str = "nameserver 1.1.1.1\nnameserver 8.8.8.8\n";
const DEFAULT_HOSTS: &str =
    "127.0.0.1       localhost\n::1             localhost ip6-localhost ip6-loopback\n";

/// Writes hosts and resolv.conf, which networkd fills later, and binds them.
pub fn create_etc_network_files(_node: Arc<Node>) -> TaskFuture {
    Box::pin(async {
        publish("hosts", DEFAULT_HOSTS)?;
        publish("resolv.conf", DEFAULT_RESOLVERS)
    })
}

/// Writes os-release and binds it.
pub fn create_os_release_file(node: Arc<Node>) -> TaskFuture {
    Box::pin(async move { publish("os-release", &os_release(node.runtime.version())) })
}

/// Billet's own version, also as Kubernetes shows it (`PRETTY_NAME`); the interface's is in the API's tag alone.
fn os_release(version: &str) -> String {
    format!("NAME=\"Billet\"\nID=billet\nVERSION_ID={version}\nPRETTY_NAME=\"Billet ({version})\"\n")
}

/// Makes `/system/etc/<name>`, unless it is there, and shows it as `/etc/<name>`.
fn publish(name: &str, text: &str) -> Result<(), TaskError> {
    let (source, target) = (format!("/system/etc/{name}"), format!("/etc/{name}"));
    if !Path::new(&source).exists() {
        fs::write(&source, text).map_err(|e| TaskError(format!("write {source}: {e}")))?;
    }
    let leads_there = fs::read_link(&target).is_ok();
    if leads_there || is_bound(&source, &target) {
        return Ok(());
    }
    let path = |text: &str| CString::new(text).map_err(|_| TaskError(format!("path {text:?}")));
    rustix::mount::mount_bind(path(&source)?.as_c_str(), path(&target)?.as_c_str())
        .map_err(|e| TaskError(format!("bind {source} over {target}: {e}")))
}

fn is_bound(source: &str, target: &str) -> bool {
    use std::os::unix::fs::MetadataExt;
    let identity = |path: &str| fs::metadata(path).map(|m| (m.dev(), m.ino())).ok();
    identity(source).is_some_and(|source| identity(target) == Some(source))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn os_release_names_the_version() {
        let text = os_release("1.2.3");
        assert!(text.contains("ID=billet\n") && text.contains("VERSION_ID=1.2.3\n"));
    }
}
