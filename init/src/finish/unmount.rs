//! Saving file systems, in a process that may hang without harm.
//!
//! Owns: unmounting in reverse order, removing the mappings below, remounting the rest read-only.
//! Does not: touch the pseudo file systems or the root and its `billet-` mappings, which stay to the end.
//! Source: proc_pid_mountinfo(5).

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::kernel::{Kernel, Level};
use crate::line::say;
use crate::tasks::mapping::MAPPING_PREFIX;

/// A node with hundreds of pods has some thousands of mounts.
const MAX_MOUNTINFO_BYTES: usize = 16 << 20;

/// Mounts below mounts below bind mounts: each pass frees at least one level.
const PASSES: usize = 4;

/// File systems that may wait for another machine; they come last.
const NETWORK: &[&str] = &["9p", "ceph", "cifs", "nfs", "nfs4", "smb3"];

/// A line of mountinfo.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Mount {
    target: String,
    kind: String,
    writable: bool,
}

impl Mount {
    fn is_network(&self) -> bool {
        NETWORK.contains(&self.kind.as_str()) || self.kind.starts_with("fuse")
    }
}

/// Does it all and returns an exit status.
pub fn unmount_everything(kernel: &mut dyn Kernel) -> i32 {
    let mut failed = 0;
    for pass in 1..=PASSES {
        let mounts = removable(kernel);
        failed = 0;
        for mount in &mounts {
            if let Err(errno) = kernel.unmount(&mount.target, mount.is_network()) {
                failed += 1;
                if pass == PASSES {
                    let (target, errno) = (&mount.target, sys::errno::Described(errno));
                    say!(kernel, Level::Warning, "unmount {target}: {errno}");
                }
            }
        }
        if failed == 0 {
            break;
        }
    }
    unmap_everything(kernel);
    for mount in removable(kernel).iter().filter(|m| m.writable && !m.is_network()) {
        if let Err(errno) = kernel.remount_read_only(&mount.target) {
            say!(
                kernel,
                Level::Warning,
                "remount {} read-only: {}",
                mount.target,
                sys::errno::Described(errno)
            );
        }
    }
    kernel.sync();
    i32::from(failed > 0)
}

/// Encrypted and other mappings of unmounted file systems; keys leave the memory with them.
fn unmap_everything(kernel: &mut dyn Kernel) {
    let Ok(mappings) = kernel.mappings() else { return };
    for mapping in mappings.iter().rev().filter(|m| !m.name.starts_with(MAPPING_PREFIX)) {
        if let Err(errno) = kernel.unmap(&mapping.name) {
            say!(kernel, Level::Warning, "remove mapping {}: {}", mapping.name, sys::errno::Described(errno));
        }
    }
}

/// What can go, last mounted first, network file systems last of all.
fn removable(kernel: &mut dyn Kernel) -> Vec<Mount> {
    let text = kernel.read("/proc/self/mountinfo", MAX_MOUNTINFO_BYTES).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let mounts = text.lines().filter_map(parse).filter(|m| !stays(&m.target));
    let (mut network, mut mounts): (Vec<_>, Vec<_>) = mounts.partition(Mount::is_network);
    mounts.reverse();
    network.reverse();
    mounts.append(&mut network);
    mounts
}

/// The root, the pseudo file systems with all below them, and the boot medium that layers are on.
fn stays(target: &str) -> bool {
    let below = |directory: &str| {
        target.strip_prefix(directory).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    target == "/"
        || target == "/run"
        || below("/proc")
        || below("/sys")
        || below("/dev")
        || below("/run/billet")
}

/// `36 35 98:0 /root /mount/point rw,noatime shared:1 - ext3 /dev/root rw,errors=continue`
fn parse(line: &str) -> Option<Mount> {
    let (fields, tail) = line.split_once(" - ")?;
    let mut fields = fields.split(' ').skip(4);
    let target = unescape(fields.next()?);
    let options = fields.next()?;
    let mut tail = tail.split(' ');
    let kind = tail.next()?.to_string();
    let super_options = tail.nth(1)?;
    let is_rw = |options: &str| options.split(',').any(|o| o == "rw");
    Some(Mount { target, kind, writable: is_rw(options) && is_rw(super_options) })
}

/// `\040` and its like stand for space, tab, newline and backslash.
fn unescape(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        if first == b'\\'
            && let Some(code) = tail.get(..3).and_then(|d| core::str::from_utf8(d).ok())
            && let Ok(byte) = u8::from_str_radix(code, 8)
        {
            bytes.push(byte);
            rest = &tail[3..];
        } else {
            bytes.push(first);
            rest = tail;
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mountinfo_lines_are_read() {
        let line = r"41 23 254:3 / /var/with\040space rw,noatime shared:5 master:1 - xfs /dev/vda6 rw,attr2";
        let mount = Mount { target: "/var/with space".into(), kind: "xfs".into(), writable: true };
        assert_eq!(parse(line), Some(mount));
        let line = "41 23 254:3 / /ro ro,noatime - xfs /dev/vda6 rw,attr2";
        assert!(!parse(line).unwrap().writable);
        assert_eq!(parse("garbage"), None);
    }

    #[test]
    fn the_root_and_the_pseudo_file_systems_stay() {
        for target in
            ["/", "/proc", "/proc/sys/fs/binfmt_misc", "/sys/fs/cgroup", "/dev/pts", "/run", "/run/billet/x"]
        {
            assert!(stays(target), "{target}");
        }
        for target in ["/var", "/system", "/device", "/run/containerd/x", "/procfs"] {
            assert!(!stays(target), "{target}");
        }
    }
}
