//! The OCI configuration of a node.
//!
//! A node is a machine to those who run on it: it has every device and every right that its host has to give, since its pods may
//! have them too. It is no boundary against them.
//! Source: opencontainers/runtime-spec config.md, config-linux.md.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use serde_json::{Value, json};
use sys::rights::{CAPABILITIES, OwnRights};

use crate::root::{INIT, ROOT};
use crate::spec::NodeSpec;

/// What no node needs of its host: the host's modules, its ports and its clock.
const WITHHELD: [&str; 3] = ["CAP_SYS_MODULE", "CAP_SYS_RAWIO", "CAP_SYS_TIME"];

/// Where a node's files and its network are on this machine.
pub(crate) struct Places {
    root: PathBuf,
    /// /system/state
    state: PathBuf,
    /// /var
    var: PathBuf,
    namespace: PathBuf,
}

impl Places {
    pub(crate) fn below(node: &Path, namespace: &Path) -> Self {
        let [root, state, var] = [ROOT, "state", "var"].map(|name| node.join(name));
        Self { root, state, var, namespace: namespace.to_owned() }
    }

    /// Directories that a node keeps over restarts.
    pub(crate) fn kept(&self) -> [&Path; 2] {
        [&self.state, &self.var]
    }
}

/// The whole configuration. It holds the node's secrets.
pub(crate) fn configuration(node: &NodeSpec, places: &Places, cgroup: &str) -> Value {
    let mut variables = vec!["PLATFORM=container".to_owned()];
    if let Some(config) = &node.config {
        let text = base64::engine::general_purpose::STANDARD.encode(config.expose_secret());
        variables.push(format!("USERDATA={text}"));
    }
    let kinds = ["pid", "mount", "uts", "ipc", "cgroup"];
    let mut namespaces: Vec<Value> = kinds.iter().map(|kind| json!({ "type": kind })).collect();
    namespaces.push(json!({ "type": "network", "path": places.namespace }));
    let rights = rights(&OwnRights::of_this_process());
    json!({
        "ociVersion": "1.0.2",
        "hostname": node.name,
        "root": { "path": places.root, "readonly": true },
        "process": {
            "terminal": false,
            "user": { "uid": 0, "gid": 0 },
            "args": [INIT],
            "env": variables,
            "cwd": "/",
            "capabilities": { "bounding": rights, "effective": rights, "permitted": rights },
            "noNewPrivileges": false,
        },
        "mounts": mounts(places),
        "linux": {
            "cgroupsPath": cgroup,
            "namespaces": namespaces,
            "resources": { "devices": [{ "allow": true, "access": "rwm" }] },
            // One byte there restarts or crashes the host.
            "readonlyPaths": ["/proc/sysrq-trigger"],
        },
    })
}

/// What the host has to give.
fn rights(own: &OwnRights) -> Vec<&'static str> {
    CAPABILITIES.into_iter().filter(|name| own.has(name) && !WITHHELD.contains(name)).collect()
}

fn mounts(places: &Places) -> Value {
    let mount = |target: &str, kind: &str, source: &Path, options: &[&str]| json!({ "destination": target, "type": kind, "source": source, "options": options });
    let kernel = |target: &str, kind: &str, options: &[&str]| mount(target, kind, Path::new(kind), options);
    let bind = |target: &str, source: &Path| mount(target, "bind", source, &["rbind", "rw"]);
    json!([
        kernel("/proc", "proc", &["nosuid", "noexec", "nodev"]),
        kernel("/dev", "tmpfs", &["nosuid", "mode=755", "size=65536k"]),
        kernel(
            "/dev/pts",
            "devpts",
            &["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"]
        ),
        kernel("/dev/shm", "tmpfs", &["nosuid", "noexec", "nodev", "mode=1777"]),
        kernel("/dev/mqueue", "mqueue", &["nosuid", "noexec", "nodev"]),
        // The kubelet wants one to read; the host's is not a node's to read or write.
        bind("/dev/kmsg", Path::new("/dev/null")),
        kernel("/sys", "sysfs", &["nosuid", "noexec", "nodev", "rw"]),
        kernel("/sys/fs/cgroup", "cgroup", &["nosuid", "noexec", "nodev", "rw"]),
        kernel("/run", "tmpfs", &["nosuid", "nodev", "mode=755"]),
        kernel("/tmp", "tmpfs", &["nosuid", "nodev", "mode=1777"]),
        kernel("/system", "tmpfs", &["nosuid", "nodev", "mode=755"]),
        bind("/system/state", &places.state),
        bind("/var", &places.var),
    ])
}
