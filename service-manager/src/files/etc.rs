//! New files below /etc: the config's `EtcFileConfig` documents, laid over the image's own /etc.
//!
//! Owns: which of them are refused, their tree on /system, and the read-only overlay of that tree and the image's /etc.
//! Does not: let anything be written through /etc: the overlay has no upper layer, and what it does not change is still read
//! through the root's verity devices.
//! Order: everything is made beside /etc, what is bound into /etc included, and takes its place in one step: no process sees a
//! part of it. Once a boot: a machined that is started again leaves what is there.
//! Fails by: every mistake at once; nothing is changed then.
//! Source: docs/decisions/0025; filesystems/overlayfs.rst of the kernel; move_mount(2).

use std::collections::BTreeSet;
use std::ffi::CString;
use std::fs::{self, DirBuilder, OpenOptions, Permissions};
use std::io::Write as _;
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, chown,
};
use std::path::{Component, Path, PathBuf};

use runtime::store::MountStatus;
use rustix::fs::CWD;
use rustix::mount::{
    MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags, mount, mount_bind,
    mount_change, move_mount, open_tree, unmount,
};

use super::image::Image;
use super::plan::Target;

/// What the overlay says it is made from, by which it is known again.
const SOURCE: &str = "etc-files";
const DIRECTORY_MODE: u32 = 0o755;

/// A file that is wanted below /etc. Its content may be a secret: no `Debug`.
pub(crate) struct EtcFile {
    /// Its path from /etc.
    pub(crate) name: String,
    /// Text.
    pub(crate) content: String,
    /// Permission bits.
    pub(crate) mode: u32,
}

/// Where it happens: below the root, but for tests.
struct Places {
    etc: PathBuf,
    /// The tree of the files.
    files: PathBuf,
    /// Where the overlay is made.
    view: PathBuf,
}

impl Places {
    fn below(root: &Path) -> Self {
        Self {
            etc: root.join("etc"),
            files: root.join("system/etc-files"),
            view: root.join("system/etc-view"),
        }
    }
}

/// Shows these files below /etc. `others`: paths that `machine.files` writes; `mounted`: what is mounted, the lower first. Says
/// where each one went.
pub(crate) fn show(
    root: &Path,
    image: &Image,
    wanted: &[EtcFile],
    others: &BTreeSet<PathBuf>,
    mounted: &[MountStatus],
) -> Result<Vec<Target>, Vec<String>> {
    let errors: Vec<String> =
        wanted.iter().filter_map(|file| refusal(file, wanted, image, others).err()).collect();
    if !errors.is_empty() {
        return Err(errors);
    }
    let places = Places::below(root);
    lay(&places, image, wanted, mounted).map_err(|error| vec![error])?;
    let target = |file: &EtcFile| Target {
        written: Path::new("/system/etc-files").join(&file.name),
        shown: Some(Path::new("/etc").join(&file.name)),
        content: file.content.clone().into_bytes(),
        mode: file.mode,
    };
    Ok(wanted.iter().map(target).collect())
}

/// Why a file cannot be shown.
fn refusal(file: &EtcFile, all: &[EtcFile], image: &Image, others: &BTreeSet<PathBuf>) -> Result<(), String> {
    let fail = |why: String| Err(format!("EtcFileConfig {:?}: {why}", file.name));
    let path = Path::new(&file.name);
    if file.name.is_empty() || !path.components().all(|part| matches!(part, Component::Normal(_))) {
        return fail("it is not the path of a file from /etc".into());
    }
    if let Some((_, instead)) = config::NODE_ETC_FILES.iter().find(|(name, _)| Path::new(name) == path) {
        return fail(format!("the node writes this file itself: {instead}"));
    }
    if others.contains(&Path::new("/etc").join(path)) {
        return fail("machine.files writes it, too: name it once".into());
    }
    if all.iter().any(|other| Path::new(&other.name) != path && path.starts_with(&other.name)) {
        return fail("another one is a file where this one needs a directory".into());
    }
    for place in path.ancestors().filter(|place| !place.as_os_str().is_empty()) {
        let found = image
            .status(&Path::new("etc").join(place))
            .map_err(|e| format!("read /etc/{}: {e}", place.display()))?;
        let Some(found) = found else { continue };
        let shown = place.display();
        match (found.file_type(), place == path) {
            (kind, _) if kind.is_symlink() => {
                return fail(format!(
                    "/etc/{shown} is a symbolic link in the image: name the path that it leads to"
                ));
            }
            (kind, true) if kind.is_dir() => {
                return fail(format!("/etc/{shown} is a directory in the image"));
            }
            (kind, true) if !kind.is_file() => {
                return fail(format!("/etc/{shown} is no regular file in the image"));
            }
            (kind, false) if !kind.is_dir() => {
                return fail(format!("/etc/{shown} is no directory in the image"));
            }
            _ => {}
        }
    }
    Ok(())
}

fn lay(places: &Places, image: &Image, wanted: &[EtcFile], mounted: &[MountStatus]) -> Result<(), String> {
    if mounted.iter().any(|mount| Path::new(&mount.target) == places.etc && mount.source == SOURCE) {
        return Ok(());
    }
    // What a machined left that was ended in between.
    let _ = unmount(&places.view, UnmountFlags::DETACH);
    write_tree(places, image, wanted)?;
    let bound: Vec<&Path> =
        mounted.iter().filter_map(|mount| Path::new(&mount.target).strip_prefix(&places.etc).ok()).collect();
    let laid = overlay(places, &bound);
    // /etc has a copy of it now, or nothing may stay of it.
    let ended = unmount(&places.view, UnmountFlags::DETACH);
    laid?;
    ended.map_err(|errno| format!("unmount {}: {errno}", places.view.display()))
}

/// The tree on /system: directories of the image as they are there, the rest of root with 0755.
fn write_tree(places: &Places, image: &Image, wanted: &[EtcFile]) -> Result<(), String> {
    let failed = |path: &Path, e: std::io::Error| format!("write {}: {e}", path.display());
    match fs::remove_dir_all(&places.files) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(failed(&places.files, error));
        }
        _ => {}
    }
    make_directory(&places.files, image, Path::new("etc")).map_err(|e| failed(&places.files, e))?;
    for file in wanted {
        let mut ancestors: Vec<&Path> = Path::new(&file.name).ancestors().skip(1).collect();
        ancestors.reverse();
        for directory in ancestors.into_iter().filter(|directory| !directory.as_os_str().is_empty()) {
            let path = places.files.join(directory);
            if !path.exists() {
                make_directory(&path, image, &Path::new("etc").join(directory))
                    .map_err(|e| failed(&path, e))?;
            }
        }
        let path = places.files.join(&file.name);
        write_file(&path, file).map_err(|e| failed(&path, e))?;
    }
    Ok(())
}

/// In the overlay a directory has the owner and permissions of the uppermost layer that has it.
fn make_directory(path: &Path, image: &Image, original: &Path) -> std::io::Result<()> {
    DirBuilder::new().mode(DIRECTORY_MODE).recursive(true).create(path)?;
    let Some(original) = image.status(original)? else {
        return fs::set_permissions(path, Permissions::from_mode(DIRECTORY_MODE));
    };
    chown(path, Some(original.uid()), Some(original.gid()))?;
    fs::set_permissions(path, Permissions::from_mode(original.mode() & 0o7777))
}

fn write_file(path: &Path, file: &EtcFile) -> std::io::Result<()> {
    let mut new = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    new.write_all(file.content.as_bytes())?;
    new.set_permissions(Permissions::from_mode(file.mode & 0o7777))
}

/// Makes the overlay with everything that is bound into /etc, and has it take the place of /etc.
fn overlay(places: &Places, bound: &[&Path]) -> Result<(), String> {
    let view = &places.view;
    let failed =
        |what: &str, at: &Path, errno: rustix::io::Errno| format!("{what} {}: {errno}", at.display());
    fs::create_dir_all(view).map_err(|e| format!("create {}: {e}", view.display()))?;
    let layers = format!("lowerdir={}:{}", places.files.display(), places.etc.display());
    let layers = CString::new(layers).map_err(|e| format!("layers of /etc: {e}"))?;
    let flags = MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV;
    mount(SOURCE, view, "overlay", flags, layers.as_c_str())
        .map_err(|errno| failed("mount an overlay on", view, errno))?;
    // Of a shared mount the copy would lose what is bound into it when this one is unmounted.
    mount_change(view, MountPropagationFlags::PRIVATE)
        .map_err(|errno| failed("make private", view, errno))?;
    let mut done = BTreeSet::new();
    for name in bound.iter().filter(|name| !name.as_os_str().is_empty()) {
        // Of several over each other the uppermost is what the path leads to.
        if done.insert(*name) {
            let (from, to) = (places.etc.join(name), view.join(name));
            mount_bind(&from, &to).map_err(|errno| failed("bind anew", &from, errno))?;
        }
    }
    let tree =
        OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
    let tree = open_tree(CWD, view, tree).map_err(|errno| failed("clone", view, errno))?;
    move_mount(tree, "", CWD, &places.etc, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
        .map_err(|errno| failed("mount the overlay on", &places.etc, errno))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str, content: &str, mode: u32) -> EtcFile {
        EtcFile { name: name.into(), content: content.into(), mode }
    }

    /// A root with an /etc, on which nothing stays mounted.
    struct Root(tempfile::TempDir);

    impl Root {
        fn new() -> Self {
            let root = Self(tempfile::tempdir().unwrap());
            for directory in ["etc/ssl/certs", "etc/private", "system/etc"] {
                fs::create_dir_all(root.path(directory)).unwrap();
            }
            fs::set_permissions(root.path("etc/private"), Permissions::from_mode(0o700)).unwrap();
            for (path, text) in [
                ("etc/hosts", ""),
                ("etc/kept", "image\n"),
                ("etc/private/old", "image\n"),
                ("system/etc/hosts", "first\n"),
            ] {
                fs::write(root.path(path), text).unwrap();
            }
            std::os::unix::fs::symlink("ssl/certs", root.path("etc/certs")).unwrap();
            root
        }

        fn path(&self, path: &str) -> PathBuf {
            self.0.path().canonicalize().unwrap().join(path)
        }

        fn show(&self, wanted: &[EtcFile], others: &[&str]) -> Result<Vec<Target>, Vec<String>> {
            let others = others.iter().map(PathBuf::from).collect();
            show(
                &self.path(""),
                &Image::of_directory(self.0.path()),
                wanted,
                &others,
                &crate::mounts::table().unwrap(),
            )
        }

        fn read(&self, path: &str) -> String {
            fs::read_to_string(self.path(path)).unwrap()
        }
    }

    impl Drop for Root {
        fn drop(&mut self) {
            for place in ["etc/hosts", "etc", "system/etc-view", "etc/hosts", ""] {
                let _ = unmount(self.path(place), UnmountFlags::DETACH);
            }
        }
    }

    /// Needs the privilege to mount.
    #[test]
    fn new_files_stand_beside_those_of_the_image_and_nothing_can_be_written() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let root = Root::new();
        // As a node's root is, for its containers.
        mount_bind(root.path(""), root.path("")).unwrap();
        mount_change(root.path(""), MountPropagationFlags::SHARED).unwrap();
        mount_bind(root.path("system/etc/hosts"), root.path("etc/hosts")).unwrap();
        let wanted = [
            file("nfsmount.conf", "[NFSMount_Global_Options]\n", 0o644),
            file("a/b/c", "deep\n", 0o600),
            file("private/new", "new\n", 0o640),
            file("kept", "ours\n", 0o444),
        ];
        let targets = root.show(&wanted, &[]).unwrap_or_else(|errors| panic!("{errors:?}"));
        assert_eq!(targets[1].shown.as_deref(), Some(Path::new("/etc/a/b/c")));
        for (path, text, mode) in [
            ("etc/nfsmount.conf", "[NFSMount_Global_Options]\n", 0o644),
            ("etc/a/b/c", "deep\n", 0o600),
            ("etc/private/new", "new\n", 0o640),
            ("etc/private/old", "image\n", 0o644),
            ("etc/kept", "ours\n", 0o444),
            ("etc/hosts", "first\n", 0o644),
        ] {
            assert_eq!(root.read(path), text, "{path}");
            let found = fs::metadata(root.path(path)).unwrap().mode() & 0o7777;
            assert_eq!(found, mode, "{path}");
        }
        let mode = |path| fs::metadata(root.path(path)).unwrap().mode() & 0o7777;
        assert_eq!((mode("etc/private"), mode("etc/a/b")), (0o700, 0o755));
        // What the node writes is seen through the bind as before.
        fs::write(root.path("system/etc/hosts"), "second\n").unwrap();
        assert_eq!(root.read("etc/hosts"), "second\n");
        for path in ["etc/other", "etc/kept", "etc/nfsmount.conf"] {
            let error = fs::write(root.path(path), "x").unwrap_err();
            assert_eq!(error.kind(), std::io::ErrorKind::ReadOnlyFilesystem, "{path}");
        }
        // A machined that was started again.
        root.show(&wanted, &[]).unwrap_or_else(|errors| panic!("{errors:?}"));
        let table = crate::mounts::table().unwrap();
        let on =
            |path: &str| table.iter().filter(|mount| Path::new(&mount.target) == root.path(path)).count();
        assert_eq!((on("etc"), on("system/etc-view")), (1, 0));
        // The image's own files are as they were.
        unmount(root.path("etc"), UnmountFlags::DETACH).unwrap();
        assert_eq!(root.read("etc/kept"), "image\n");
        assert!(!root.path("etc/nfsmount.conf").exists());
    }

    #[test]
    fn every_file_that_cannot_be_shown_is_named_with_its_reason() {
        let root = Root::new();
        let wanted = [
            file("hosts", "", 0o644),
            file("resolv.conf", "", 0o644),
            file("os-release", "", 0o644),
            file("certs/ours.pem", "", 0o644),
            file("ssl/certs", "", 0o644),
            file("kept/below", "", 0o644),
            file("twice", "", 0o644),
            file("tree", "", 0o644),
            file("tree/leaf", "", 0o644),
            file("../passwd", "", 0o644),
            file("fine", "", 0o644),
        ];
        let errors = root.show(&wanted, &["/etc/twice"]).err().unwrap();
        let expected = [
            ("\"hosts\"", "StaticHostConfig"),
            ("\"resolv.conf\"", "ResolverConfig"),
            ("\"os-release\"", "the node writes this file itself"),
            ("\"certs/ours.pem\"", "/etc/certs is a symbolic link in the image"),
            ("\"ssl/certs\"", "/etc/ssl/certs is a directory in the image"),
            ("\"kept/below\"", "/etc/kept is no directory in the image"),
            ("\"twice\"", "machine.files writes it, too"),
            ("\"tree/leaf\"", "needs a directory"),
            ("\"../passwd\"", "not the path of a file"),
        ];
        assert_eq!(errors.len(), expected.len(), "{errors:?}");
        for (error, (name, why)) in errors.iter().zip(expected) {
            assert!(error.contains(name) && error.contains(why), "{error}");
        }
        assert!(!root.path("system/etc-files").exists(), "nothing is written then");
    }
}
