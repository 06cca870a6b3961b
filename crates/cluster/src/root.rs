//! Roots of nodes: the image's layers, mounted once for the cluster, and an overlay for each node.
//!
//! Owns: what a container's root has besides the image: its PID 1, the root manifest, settings for what this host withholds.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use rustix::mount::{MountFlags, UnmountFlags, mount};
use sys::rights::OwnRights;

use crate::program::run;
use crate::spec::Image;
use crate::{Error, make_directory, write};

/// The root of a node, below its directory.
pub(crate) const ROOT: &str = "root";
/// The layers, below the cluster's directory.
const LAYERS: &str = "layers";
/// OVERLAYFS_SUPER_MAGIC of statfs(2).
const OVERLAY_MAGIC: rustix::fs::FsWord = 0x794c_7630;
/// PID 1 in the root.
pub(crate) const INIT: &str = "/usr/lib/billet/init";
const MANIFEST: &str = "etc/billet/root.json";
const CRI: &str = "etc/cri/containerd.toml";
/// What a line of the image's settings gets besides where this machine may not lower the score of the OOM killer.
const CRI_TABLE: &str = "[plugins.\"io.containerd.grpc.v1.cri\"]\n";
const CRI_LINE: &str = "  restrict_oom_score_adj = true\n";

fn layer(cluster: &Path, index: usize) -> PathBuf {
    cluster.join(LAYERS).join(index.to_string())
}

pub(crate) fn mount_layers(cluster: &Path, image: &Image) -> Result<(), Error> {
    for (index, file) in image.layers.iter().enumerate() {
        let target = layer(cluster, index);
        make_directory(&target)?;
        let (file, target) = (file.display().to_string(), target.display().to_string());
        run("mount", &["-t", "squashfs", "-o", "loop,ro,nodev", &file, &target])?;
    }
    Ok(())
}

pub(crate) fn unmount_layers(cluster: &Path) -> Result<(), Error> {
    let Ok(listed) = fs::read_dir(cluster.join(LAYERS)) else { return Ok(()) };
    listed.flatten().try_for_each(|entry| unmount(&entry.path()))
}

/// Refuses a directory that cannot hold the upper layer of an overlay.
pub(crate) fn check_file_system(directory: &Path) -> Result<(), Error> {
    let status = rustix::fs::statfs(directory).map_err(|errno| Error::File {
        what: "look at the file system of",
        path: directory.to_owned(),
        source: errno.into(),
    })?;
    if status.f_type != OVERLAY_MAGIC {
        return Ok(());
    }
    Err(Error::Spec(format!(
        "{} is on an overlay file system, as the root of a container is, and an overlay cannot lie on another one: \
         choose a directory elsewhere",
        directory.display()
    )))
}

/// Makes a node's root.
pub(crate) fn mount_root(cluster: &Path, node: &Path, image: &Image) -> Result<(), Error> {
    let [root, upper, work] = [ROOT, "upper", "work"].map(|name| node.join(name));
    for path in [&root, &upper, &work] {
        make_directory(path)?;
    }
    // What is above the image's root is a directory of its kind: others than root go through it.
    fs::set_permissions(&upper, fs::Permissions::from_mode(0o755)).map_err(|source| Error::File {
        what: "open to all",
        path: upper.clone(),
        source,
    })?;
    let lower: Vec<String> =
        (0..image.layers.len()).rev().map(|index| layer(cluster, index).display().to_string()).collect();
    let layers =
        format!("lowerdir={},upperdir={},workdir={}", lower.join(":"), upper.display(), work.display());
    let layers = std::ffi::CString::new(layers).map_err(|error| Error::Spec(error.to_string()))?;
    mount("overlay", &root, "overlay", MountFlags::NODEV, layers.as_c_str())
        .map_err(|source| Error::Mount { what: "mount an overlay on", path: root.clone(), source })?;
    fill(&root, image)
}

fn fill(root: &Path, image: &Image) -> Result<(), Error> {
    for (from, to, mode) in
        [(&image.init, INIT.trim_start_matches('/'), 0o755), (&image.manifest, MANIFEST, 0o644)]
    {
        let to = root.join(to);
        if let Some(parent) = to.parent() {
            fs::create_dir_all(parent).map_err(|source| Error::File {
                what: "make",
                path: parent.to_owned(),
                source,
            })?;
        }
        fs::copy(from, &to).map_err(|source| Error::File { what: "copy", path: from.clone(), source })?;
        fs::set_permissions(&to, fs::Permissions::from_mode(mode)).map_err(|source| Error::File {
            what: "set the mode of",
            path: to.clone(),
            source,
        })?;
    }
    if OwnRights::of_this_process().has("CAP_SYS_RESOURCE") { Ok(()) } else { allow_own_scores(root) }
}

/// Lets Kubernetes' containerd start containers where it may not lower their score for the OOM killer.
fn allow_own_scores(root: &Path) -> Result<(), Error> {
    let path = root.join(CRI);
    let text = fs::read_to_string(&path);
    let text = text.map_err(|source| Error::File { what: "read", path: path.clone(), source })?;
    if !text.contains(CRI_TABLE) {
        let line = CRI_TABLE.trim();
        return Err(Error::Spec(format!("{}: no line {line}; rebuild the image", path.display())));
    }
    write(&path, text.replace(CRI_TABLE, &format!("{CRI_TABLE}{CRI_LINE}")).as_bytes())
}

/// Unmounts what is there.
pub(crate) fn unmount(path: &Path) -> Result<(), Error> {
    use rustix::io::Errno;
    match rustix::mount::unmount(path, UnmountFlags::DETACH) {
        Ok(()) | Err(Errno::INVAL | Errno::NOENT) => Ok(()),
        Err(source) => Err(Error::Mount { what: "unmount", path: path.to_owned(), source }),
    }
}
