//! Mounts, limits and kernel settings.
//!
//! Source: mount(8), cgroups(7).

use runtime::sequencer::{TaskError, TaskFuture};
use std::ffi::{CStr, CString};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use rustix::io::Errno;
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use rustix::process::{Resource, Rlimit, setrlimit};

use crate::controllers::NEEDED_KERNEL_PARAMS;
use crate::node::Node;
use crate::{time, volumes};
use runtime::beneath;

/// Where the cgroup tree is.
const CGROUPS: &str = "/sys/fs/cgroup";
/// Open files of machined.
const OPEN_FILES: u64 = 1_048_576;

struct Mount {
    source: &'static CStr,
    target: &'static str,
    kind: &'static CStr,
    flags: MountFlags,
    data: &'static CStr,
}

const HARD: MountFlags = MountFlags::NOSUID.union(MountFlags::NOEXEC).union(MountFlags::NODEV);

const SYSTEM: Mount = Mount {
    source: c"tmpfs",
    target: "/system",
    kind: c"tmpfs",
    flags: MountFlags::NOSUID.union(MountFlags::NODEV),
    data: c"mode=0755",
};

const CGROUP2: Mount = Mount {
    source: c"cgroup2",
    target: CGROUPS,
    kind: c"cgroup2",
    flags: HARD,
    data: c"nsdelegate,memory_recursiveprot",
};

const BPF: Mount =
    Mount { source: c"bpf", target: "/sys/fs/bpf", kind: c"bpf", flags: HARD, data: c"mode=0700" };

const PSEUDO: [Mount; 5] = [
    Mount {
        source: c"devpts",
        target: "/dev/pts",
        kind: c"devpts",
        flags: MountFlags::NOSUID.union(MountFlags::NOEXEC),
        data: c"ptmxmode=0666,mode=0620,gid=5",
    },
    Mount { source: c"tmpfs", target: "/dev/shm", kind: c"tmpfs", flags: HARD, data: c"mode=1777" },
    Mount { source: c"tmpfs", target: "/tmp", kind: c"tmpfs", flags: HARD, data: c"mode=1777,size=64M" },
    Mount {
        source: c"securityfs",
        target: "/sys/kernel/security",
        kind: c"securityfs",
        flags: HARD,
        data: c"",
    },
    Mount {
        source: c"efivarfs",
        target: "/sys/firmware/efi/efivars",
        kind: c"efivarfs",
        flags: HARD,
        data: c"",
    },
];

/// Mounts /system and makes its directories.
pub fn setup_system_directory(_node: Arc<Node>) -> TaskFuture {
    Box::pin(async {
        make(&SYSTEM)?;
        for (path, mode) in [
            ("/system/etc", 0o755),
            (kubernetes_node::facts::RESOLV_DIRECTORY, 0o755),
            ("/system/run", 0o711),
            ("/system/var", 0o700),
            ("/system/state", 0o700),
            ("/system/secrets", 0o700),
            ("/system/run/machined", 0o711),
            // `services::process` mounts there, in namespaces of services.
            ("/system/run/root", 0o700),
            ("/run/log", 0o700),
        ] {
            directory(path, mode)?;
        }
        Ok(())
    })
}

/// Mounts the cgroup2 tree, makes the inner groups and moves machined into one of its own.
pub fn mount_cgroups(_node: Arc<Node>) -> TaskFuture {
    Box::pin(async {
        make(&CGROUP2)?;
        let root = Path::new(CGROUPS);
        // A group with members may not hand controllers on: machined leaves the root before it does.
        fs::create_dir_all(root.join("init")).map_err(|e| TaskError(format!("create cgroup init: {e}")))?;
        write(&root.join("init/cgroup.procs"), "0")?;
        // init stays in the root group, which is allowed there only.
        let _ = fs::write(root.join("init/cpu.weight"), "1000");
        for group in ["", "system", "system/extensions", "podruntime"] {
            let path = root.join(group);
            fs::create_dir_all(&path).map_err(|e| TaskError(format!("create cgroup {group}: {e}")))?;
            for controller in ["+cpu", "+memory", "+pids", "+io"] {
                // A kernel without one of them runs services without that limit.
                let _ = fs::write(path.join("cgroup.subtree_control"), controller);
            }
        }
        Ok(())
    })
}

/// Whether the tree of control groups is of version 2.
pub fn has_cgroup2() -> bool {
    Path::new(CGROUPS).join("cgroup.controllers").exists()
}

/// In a container: makes the inner groups in the tree that it was given, if that is of version 2.
pub fn use_given_cgroups(node: Arc<Node>) -> TaskFuture {
    if has_cgroup2() { mount_cgroups(node) } else { Box::pin(async { Ok(()) }) }
}

/// Mounts what programs expect below /dev, /sys and /tmp.
pub fn mount_pseudo_filesystems(node: Arc<Node>) -> TaskFuture {
    Box::pin(async move {
        for mount in &PSEUDO {
            match fs::create_dir(mount.target) {
                Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                    // A machine without EFI has no place for its variables.
                    if mount.kind != c"efivarfs" {
                        node.runtime.journal.warn(&format!("create mount point {}: {error}", mount.target));
                    }
                }
                _ => {
                    if let Err(error) = make(mount) {
                        node.runtime.journal.warn(&error.to_string());
                    }
                }
            }
        }
        Ok(())
    })
}

/// Mounts the bpf file system.
pub fn mount_bpffs(node: Arc<Node>) -> TaskFuture {
    Box::pin(async move {
        if let Err(error) = make(&BPF) {
            node.runtime.journal.warn(&error.to_string());
        }
        Ok(())
    })
}

/// Raises the limit of open files and protects machined from the OOM killer.
pub fn set_rlimit(node: Arc<Node>) -> TaskFuture {
    Box::pin(async move {
        let limit = Rlimit { current: Some(OPEN_FILES), maximum: Some(OPEN_FILES) };
        setrlimit(Resource::Nofile, limit)
            .map_err(|e| TaskError(format!("raise RLIMIT_NOFILE to {OPEN_FILES}: {e}")))?;
        if let Err(error) = fs::write("/proc/self/oom_score_adj", "-999") {
            node.runtime.journal.warn(&format!("write /proc/self/oom_score_adj: {error}"));
        }
        Ok(())
    })
}

/// Writes the sysctls.
pub fn write_required_sysctls(node: Arc<Node>) -> TaskFuture {
    Box::pin(async move {
        write_sysctls(&node, |_| true);
        Ok(())
    })
}

/// In a container: the same of its own network; the others are the host's.
pub fn write_network_sysctls(node: Arc<Node>) -> TaskFuture {
    Box::pin(async move {
        write_sysctls(&node, |name| name.starts_with("net."));
        Ok(())
    })
}

fn write_sysctls(node: &Node, is_chosen: impl Fn(&str) -> bool) {
    for (name, value) in NEEDED_KERNEL_PARAMS.iter().filter(|(name, _)| is_chosen(name)) {
        // Its controller says which ones this kernel lacks.
        let path = Path::new("/proc/sys").join(name.replace('.', "/"));
        match fs::write(path, value) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                node.runtime.journal.warn(&format!("write sysctl {name}: {error}"));
            }
            _ => {}
        }
    }
}

/// In a container: mounts that the kubelet makes for pods are seen by containerd and by machined.
pub fn share_file_systems(_node: Arc<Node>) -> TaskFuture {
    Box::pin(async {
        let flags = MountPropagationFlags::SHARED | MountPropagationFlags::REC;
        mount_change("/", flags).map_err(|errno| TaskError(format!("share the mounts of /: {errno}")))
    })
}

/// In a container: the clock is the host's.
pub fn trust_host_clock(node: Arc<Node>) -> TaskFuture {
    Box::pin(async move { time::trust_host(&node.runtime).map_err(TaskError) })
}

/// Ends the hurry of the boot (`shorten_grace_periods` in init): on a busy node expedited grace periods would
/// interrupt every processor. Failing costs speed, not function.
pub fn restore_grace_periods(node: Arc<Node>) -> TaskFuture {
    Box::pin(async move {
        let path = "/sys/kernel/rcu_expedited";
        if let Err(error) = fs::write(path, "0") {
            node.runtime.journal.warn(&format!("write {path}: {error}"));
        }
        Ok(())
    })
}

const VAR_FOLDERS: [&str; 7] = [
    volumes::VAR,
    "/var/log",
    "/var/log/pods",
    "/var/lib",
    "/var/lib/kubelet",
    "/var/lib/containerd",
    "/var/lib/cni",
];
const VAR_MODE: u32 = 0o755;

/// Makes the directories of /var; mounts a tmpfs there where no disk has an EPHEMERAL. A container has what its runtime mounted.
pub fn setup_var_directory(node: Arc<Node>) -> TaskFuture {
    Box::pin(async move {
        if !node.is_container() && !volumes::is_mounted(volumes::VAR) {
            make(&Mount {
                source: c"tmpfs",
                target: volumes::VAR,
                kind: c"tmpfs",
                flags: MountFlags::NOSUID.union(MountFlags::NODEV),
                data: c"mode=0755",
            })?;
        }
        fill_var(Path::new("/")).map_err(TaskError)
    })
}

/// What services expect below /var. It may hold what workloads left there in an earlier boot.
fn fill_var(root: &Path) -> Result<(), String> {
    for path in VAR_FOLDERS {
        let made = beneath::make_directory(root, Path::new(path), VAR_MODE)
            .and_then(|directory| directory.set_mode(VAR_MODE));
        made.map_err(|error| format!("create directory {path}: {error}"))?;
    }
    let var = beneath::make_directory(root, Path::new(volumes::VAR), VAR_MODE);
    let linked = var.and_then(|var| var.link(Path::new("run"), Path::new("/run")));
    linked.map_err(|error| format!("link /var/run to /run: {error}"))
}

fn make(what: &Mount) -> Result<(), TaskError> {
    if is_mounted(what.target, what.kind) {
        return Ok(());
    }
    let target =
        CString::new(what.target).map_err(|_| TaskError(format!("mount point {:?}", what.target)))?;
    match mount(what.source, &target, what.kind, what.flags, Some(what.data)) {
        Ok(()) => Ok(()),
        // A module or a kernel option is missing: the caller decides whether that matters.
        Err(Errno::NODEV) => {
            Err(TaskError(format!("mount {}: the kernel lacks {:?}", what.target, what.kind)))
        }
        Err(errno) => Err(TaskError(format!("mount {:?} at {}: {errno}", what.kind, what.target))),
    }
}

/// Whether this very file system is there already: a machined before us mounted it.
fn is_mounted(target: &str, kind: &CStr) -> bool {
    let Ok(mounts) = fs::read_to_string("/proc/self/mounts") else { return false };
    let kind = kind.to_str().unwrap_or_default();
    mounts.lines().any(|line| {
        let mut words = line.split(' ').skip(1);
        words.next() == Some(target) && words.next() == Some(kind)
    })
}

fn directory(path: &str, mode: u32) -> Result<(), TaskError> {
    fs::create_dir_all(path).map_err(|e| TaskError(format!("create directory {path}: {e}")))?;
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
        .map_err(|e| TaskError(format!("set mode of {path}: {e}")))
}

fn write(path: &Path, text: &str) -> Result<(), TaskError> {
    fs::write(path, text).map_err(|e| TaskError(format!("write {}: {e}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a workload with `/var` as host path leaves there keeps no node from starting, and leads to no other directory.
    #[test]
    fn planted_links_below_var_give_way_to_directories() {
        let dir = tempfile::tempdir().unwrap();
        let secrets = dir.path().join("secrets");
        fs::create_dir_all(dir.path().join("var/lib")).unwrap();
        fs::create_dir(&secrets).unwrap();
        fs::set_permissions(&secrets, fs::Permissions::from_mode(0o700)).unwrap();
        for name in ["var/log", "var/lib/kubelet"] {
            std::os::unix::fs::symlink(&secrets, dir.path().join(name)).unwrap();
        }
        for _ in 0..2 {
            fill_var(dir.path()).unwrap();
        }
        for path in VAR_FOLDERS {
            let status = fs::symlink_metadata(dir.path().join(&path[1..])).unwrap();
            assert!(status.is_dir() && status.permissions().mode() & 0o7777 == VAR_MODE, "{path}");
        }
        assert_eq!(fs::read_link(dir.path().join("var/run")).unwrap(), Path::new("/run"));
        assert_eq!(fs::metadata(&secrets).unwrap().permissions().mode() & 0o7777, 0o700);
        assert_eq!(fs::read_dir(&secrets).unwrap().count(), 0);
    }
}
