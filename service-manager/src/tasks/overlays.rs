//! Directories of the image that Kubernetes' programs write to.
//!
//! Owns: one writable overlay for each, over the image's; what is written lies on /var, and goes with it.
//! Order: after /var, before anything of Kubernetes. Once a boot: a machined that is started again leaves what is there.
//! Fails by: a warning. The node goes on; what needs a directory then says that it cannot write.
//! Source: docs/formats/disk.md; filesystems/overlayfs.rst of the kernel.

use std::ffi::CString;
use std::path::Path;
use std::sync::Arc;

use runtime::beneath;
use runtime::sequencer::TaskFuture;
use rustix::mount::{MountFlags, mount};

use crate::node::Node;
use crate::{modules, mounts};

/// What the overlays say they are made from, by which they are known again.
const SOURCE: &str = "overlay-of-var";
/// Where their upper layers lie.
const UPPER: &str = "/var/system/overlays";
const DIRECTORY_MODE: u32 = 0o755;
/// The kernel's own directory beside an upper layer.
const WORK_MODE: u32 = 0o700;

const DATA: MountFlags = MountFlags::NOSUID.union(MountFlags::NODEV).union(MountFlags::NOEXEC);
const PROGRAMS: MountFlags = MountFlags::NOSUID.union(MountFlags::NODEV);
const OVERLAYS: [(&str, MountFlags); 4] = [
    ("/etc/cni", DATA),
    ("/etc/kubernetes", DATA),
    // Programs of network plugins and of volume drivers.
    ("/opt", PROGRAMS),
    ("/usr/libexec/kubernetes", PROGRAMS),
];

/// Makes the directories writable, and takes away the static pods of an earlier boot: the kubelet would start them before the
/// etcd that they need.
pub fn mount_overlay_filesystems(node: Arc<Node>) -> TaskFuture {
    Box::pin(async move {
        let root = &node.runtime.root;
        if let Err(error) = mount_all(root) {
            node.runtime.journal.warn(&format!("{error}; Kubernetes cannot run"));
        }
        if let Err(error) = kubernetes_node::remove_static_pods(root) {
            node.runtime.journal.warn(&format!("static pods of an earlier boot: {error}"));
        }
        Ok(())
    })
}

fn mount_all(root: &Path) -> Result<(), String> {
    // A root of one layer is mounted without it.
    modules::load_modules(&["overlay"])?;
    let mounted = mounts::table().map_err(|error| format!("read what is mounted: {error}"))?;
    for (path, flags) in OVERLAYS {
        let target = root.join(path.trim_start_matches('/'));
        let is_there =
            mounted.iter().any(|mount| Path::new(&mount.target) == target && mount.source == SOURCE);
        if !is_there {
            overlay(root, path, flags).map_err(|error| format!("make {path} writable: {error}"))?;
        }
    }
    Ok(())
}

fn overlay(root: &Path, path: &str, flags: MountFlags) -> Result<(), String> {
    let relative = path.trim_start_matches('/');
    let name = relative.replace('/', "-");
    let [upper, work] = ["diff", "workdir"].map(|kind| format!("{UPPER}/{name}-{kind}"));
    for (directory, mode) in [(&upper, DIRECTORY_MODE), (&work, WORK_MODE)] {
        beneath::make_directory(root, Path::new(directory), mode)
            .map_err(|error| format!("create {directory}: {error}"))?;
    }
    let target = root.join(relative);
    let below = |path: &str| root.join(path.trim_start_matches('/'));
    let layers = format!(
        "lowerdir={},upperdir={},workdir={}",
        target.display(),
        below(&upper).display(),
        below(&work).display()
    );
    let layers = CString::new(layers).map_err(|error| error.to_string())?;
    mount(SOURCE, &target, "overlay", flags, layers.as_c_str())
        .map_err(|errno| format!("mount an overlay: {errno}"))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rustix::mount::{UnmountFlags, unmount};

    use super::*;

    #[test]
    fn what_is_written_lies_on_var_and_the_image_stays_as_it_is() {
        let made = tempfile::tempdir().unwrap();
        let root = made.path().canonicalize().unwrap();
        // Upper layers cannot lie on an overlay, as a build machine's file system may be.
        for path in ["var", "etc/cni", "etc/kubernetes", "opt/cni/bin", "usr/libexec/kubernetes"] {
            fs::create_dir_all(root.join(path)).unwrap();
        }
        fs::write(root.join("opt/cni/bin/bridge"), "image").unwrap();
        mount("tmpfs", root.join("var"), "tmpfs", MountFlags::empty(), None).unwrap();
        let outcome = std::panic::catch_unwind(|| {
            mount_all(&root).unwrap();
            mount_all(&root).unwrap();
            let count = mounts::table().unwrap().iter().filter(|m| m.target.ends_with("/opt")).count();
            fs::write(root.join("opt/cni/bin/flannel"), "new").unwrap();
            fs::write(root.join("etc/kubernetes/kubelet.yaml"), "new").unwrap();
            assert_eq!(fs::read_to_string(root.join("opt/cni/bin/bridge")).unwrap(), "image");
            count
        });
        let upper = fs::read_to_string(root.join("var/system/overlays/opt-diff/cni/bin/flannel"));
        for (path, _) in OVERLAYS {
            let _ = unmount(root.join(path.trim_start_matches('/')), UnmountFlags::DETACH);
        }
        unmount(root.join("var"), UnmountFlags::DETACH).unwrap();
        assert!(outcome.is_ok() && upper.unwrap() == "new");
        assert!(!root.join("opt/cni/bin/flannel").exists());
    }
}
