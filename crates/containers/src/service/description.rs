//! The OCI description of a container of the node's own.
//!
//! Owns: namespaces, mounts, rights and limits, from the few things that differ between such containers.
//! Source: OCI runtime specification 1.0.2 (config.md, config-linux.md); the paths that containerd masks by default.

use std::path::Path;

use serde_json::{Value, json};
use sys::rights::{CAPABILITIES, OwnRights};

/// What a container may do beyond a plain process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rights {
    /// These capabilities alone.
    Capabilities(&'static [&'static str]),
    /// Everything that the host's root may.
    Privileged,
}

/// Something of the host that it sees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// Where, in the container.
    pub destination: String,
    /// Kind of file system; `bind` for a path of the host.
    pub kind: String,
    /// What: a path of the host, for `bind`.
    pub source: String,
    /// Mount options.
    pub options: Vec<String>,
}

impl Mount {
    /// A path of the host at the same place.
    pub fn bind(path: &str, options: &[&str]) -> Self {
        Self::bind_at(path, path, options)
    }

    /// A path of the host at another place.
    pub fn bind_at(source: &str, destination: &str, options: &[&str]) -> Self {
        let options = ["rbind"].iter().chain(options).map(|option| (*option).to_owned()).collect();
        Self { destination: destination.to_owned(), kind: "bind".into(), source: source.to_owned(), options }
    }
}

/// A container of the node's own. It has the host's network.
#[derive(Debug, Clone)]
pub struct Description {
    /// Program and arguments.
    pub argv: Vec<String>,
    /// `NAME=value`.
    pub env: Vec<String>,
    /// User and group.
    pub user: (u32, u32),
    /// What it sees of the host.
    pub mounts: Vec<Mount>,
    /// What it may do.
    pub rights: Rights,
    /// Whether it sees the host's processes.
    pub host_pid: bool,
    /// Path below the root of the control groups.
    pub group: String,
    /// `oom_score_adj`.
    pub oom_score_adj: i16,
    /// Open files.
    pub open_files: u64,
}

/// Files of the kernel that no container has to read.
const MASKED: [&str; 9] = [
    "/proc/acpi",
    "/proc/asound",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/sys/firmware",
];
/// Files of the kernel that no container has to write.
const READ_ONLY: [&str; 5] = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];
impl Description {
    /// The description as runc reads it. Capabilities that this process lacks are left out, since runc refuses to give what it
    /// does not have.
    pub fn to_spec(&self, own: &OwnRights) -> Value {
        let wanted: &[&str] = match self.rights {
            Rights::Capabilities(names) => names,
            Rights::Privileged => &CAPABILITIES,
        };
        let capabilities: Vec<&str> = wanted.iter().copied().filter(|name| own.has(name)).collect();
        let open_files = own.open_files(self.open_files);
        let limits = json!([{ "type": "RLIMIT_NOFILE", "hard": open_files, "soft": open_files }]);
        json!({
            "ociVersion": "1.0.2",
            "process": {
                "args": self.argv,
                "env": self.env,
                "cwd": "/",
                "user": { "uid": self.user.0, "gid": self.user.1 },
                "capabilities": {
                    "bounding": capabilities,
                    "effective": capabilities,
                    "permitted": capabilities,
                },
                "noNewPrivileges": self.rights != Rights::Privileged,
                "oomScoreAdj": own.oom_score_adj(self.oom_score_adj),
                "rlimits": limits,
            },
            "root": { "path": "rootfs", "readonly": true },
            "mounts": self.mounts(),
            "linux": self.linux(),
        })
    }

    fn mounts(&self) -> Vec<Value> {
        let mount = |destination: &str, kind: &str, options: &[&str]| json!({ "destination": destination, "type": kind, "source": kind, "options": options });
        let plain = ["nosuid", "noexec", "nodev"];
        let mut mounts = vec![
            mount("/proc", "proc", &plain),
            mount("/dev", "tmpfs", &["nosuid", "strictatime", "mode=755", "size=65536k"]),
            mount(
                "/dev/pts",
                "devpts",
                &["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"],
            ),
            mount("/dev/shm", "tmpfs", &["nosuid", "noexec", "nodev", "mode=1777", "size=65536k"]),
            mount("/dev/mqueue", "mqueue", &plain),
            mount("/sys", "sysfs", &["nosuid", "noexec", "nodev", "ro"]),
            mount("/tmp", "tmpfs", &["nosuid", "nodev", "mode=1777"]),
        ];
        let is_given =
            |value: &Value| self.mounts.iter().any(|given| value["destination"] == given.destination);
        // A path of the host takes the place of what a container has by itself, with all below it.
        mounts.retain(|value| !is_given(value) && !self.is_below_given(value));
        mounts.extend(self.mounts.iter().map(|given| {
            json!({
                "destination": given.destination,
                "type": given.kind,
                "source": given.source,
                "options": given.options,
            })
        }));
        mounts
    }

    fn is_below_given(&self, value: &Value) -> bool {
        let destination = Path::new(value["destination"].as_str().unwrap_or_default());
        self.mounts.iter().any(|given| destination.starts_with(&given.destination))
    }

    fn linux(&self) -> Value {
        let kinds = ["mount", "ipc", "uts", "pid"];
        // The host's names and processes come with its network and its processes.
        let own = kinds.into_iter().filter(|kind| match *kind {
            "pid" | "ipc" => !self.host_pid,
            kind => kind != "uts",
        });
        let namespaces: Vec<Value> = own.map(|kind| json!({ "type": kind })).collect();
        let is_privileged = self.rights == Rights::Privileged;
        let devices = match is_privileged {
            true => json!([{ "allow": true, "access": "rwm" }]),
            false => json!([{ "allow": false, "access": "rwm" }]),
        };
        json!({
            "namespaces": namespaces,
            "cgroupsPath": format!("/{}", self.group),
            "resources": { "devices": devices },
            // What the kubelet mounts for pods has to appear on the host.
            "rootfsPropagation": if is_privileged { "shared" } else { "private" },
            "maskedPaths": if is_privileged { &[][..] } else { &MASKED[..] },
            "readonlyPaths": if is_privileged { &[][..] } else { &READ_ONLY[..] },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn description(rights: Rights) -> Description {
        Description {
            argv: vec!["/usr/local/bin/etcd".into()],
            env: vec!["A=b".into()],
            user: (60, 60),
            mounts: vec![Mount::bind("/var/lib/etcd", &["rw"]), Mount::bind("/dev", &["rshared", "rw"])],
            rights,
            host_pid: rights == Rights::Privileged,
            group: "podruntime/etcd".into(),
            oom_score_adj: -998,
            open_files: 10_240,
        }
    }

    const ROOT: OwnRights = OwnRights { bounding: u64::MAX, oom_score_adj: 0, open_files: 1024 };

    #[test]
    fn a_plain_container_has_no_rights_and_no_devices() {
        let spec = description(Rights::Capabilities(&["CAP_NET_BIND_SERVICE"])).to_spec(&ROOT);
        assert_eq!(spec["process"]["capabilities"]["bounding"], json!(["CAP_NET_BIND_SERVICE"]));
        assert_eq!(spec["process"]["noNewPrivileges"], json!(true));
        assert_eq!(spec["process"]["oomScoreAdj"], json!(-998));
        assert_eq!(spec["linux"]["resources"]["devices"], json!([{ "allow": false, "access": "rwm" }]));
        assert_eq!(
            spec["linux"]["namespaces"],
            json!([{ "type": "mount" }, { "type": "ipc" }, { "type": "pid" }])
        );
        assert_eq!(spec["linux"]["cgroupsPath"], json!("/podruntime/etcd"));
        assert_eq!(spec["root"]["readonly"], json!(true));
    }

    #[test]
    fn a_privileged_container_is_the_host_s_root_with_files_of_its_own() {
        let spec = description(Rights::Privileged).to_spec(&ROOT);
        assert_eq!(spec["process"]["capabilities"]["bounding"].as_array().unwrap().len(), CAPABILITIES.len());
        assert_eq!(spec["linux"]["namespaces"], json!([{ "type": "mount" }]));
        assert_eq!(spec["linux"]["rootfsPropagation"], json!("shared"));
        assert_eq!(spec["linux"]["maskedPaths"], json!([]));
    }

    #[test]
    fn a_path_of_the_host_takes_the_place_of_what_is_below_it() {
        let spec = description(Rights::Privileged).to_spec(&ROOT);
        let mounts = spec["mounts"].as_array().unwrap();
        let at = |path: &str| mounts.iter().filter(|mount| mount["destination"] == path).count();
        assert_eq!((at("/dev"), at("/dev/pts"), at("/proc"), at("/var/lib/etcd")), (1, 0, 1, 1));
    }

    #[test]
    fn what_machined_lacks_is_not_asked_for() {
        let own = OwnRights { bounding: 1, oom_score_adj: 100, open_files: 1024 };
        let spec = description(Rights::Privileged).to_spec(&own);
        assert_eq!(spec["process"]["capabilities"]["bounding"], json!(["CAP_CHOWN"]));
        assert_eq!(spec["process"]["oomScoreAdj"], json!(100));
        assert_eq!(spec["process"]["rlimits"][0]["hard"], json!(1024));
    }
}
