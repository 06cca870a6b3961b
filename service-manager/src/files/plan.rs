//! Which bytes go where, for a list of wanted files. Reads, writes nothing.
//!
//! Source: docs/users/files.md.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Component, Path, PathBuf};

use super::image::{Found, Image, Original};
use super::wanted::{Operation, Wanted};
use runtime::beneath;

/// Permissions of a new file that says none.
const DEFAULT_MODE: u32 = 0o644;
/// What the newer generation's configs create to change containerd's settings; here it is a part of the imports.
const CUSTOMIZATION: (&str, &str) =
    ("/etc/cri/conf.d/20-customization.part", "/var/cri/conf.d/20-customization.toml");

/// A file to be written.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Target {
    /// Where it is written: always below /var.
    pub(crate) written: PathBuf,
    /// Where it is shown, when that is somewhere else.
    pub(crate) shown: Option<PathBuf>,
    /// Its bytes.
    pub(crate) content: Vec<u8>,
    /// Its permission bits.
    pub(crate) mode: u32,
}

/// The result of all operations, one target a file, in the order of their first mention.
pub(super) fn plan(wanted: &[Wanted], image: &Image, root: &Path) -> Result<Vec<Target>, Vec<String>> {
    let mut targets: Vec<Target> = Vec::new();
    let mut places: BTreeMap<PathBuf, usize> = BTreeMap::new();
    let mut errors = Vec::new();
    for file in wanted {
        let place = match locate(&file.path, root) {
            Ok(place) => place,
            Err(error) => {
                errors.push(error);
                continue;
            }
        };
        let before = places.get(&place).map(|&index| {
            let target: &Target = &targets[index];
            Original { content: target.content.clone(), mode: target.mode }
        });
        match apply(file, &place, before, image, root) {
            Ok(target) => match places.get(&place) {
                Some(&index) => targets[index] = target,
                None => {
                    places.insert(place, targets.len());
                    targets.push(target);
                }
            },
            Err(error) => errors.push(error),
        }
    }
    if errors.is_empty() { Ok(targets) } else { Err(errors) }
}

/// The file that a path leads to, links of the root followed, and none below /var but the root's own `/var/run`.
fn locate(path: &str, root: &Path) -> Result<PathBuf, String> {
    let path = if path == CUSTOMIZATION.0 { CUSTOMIZATION.1 } else { path };
    let plain =
        Path::new(path).components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
    if !path.starts_with('/') || !plain || path.len() < 2 || path.ends_with('/') {
        return Err(format!("path of a file must be absolute and without `..`: {path:?}"));
    }
    if let Some(rest) = path.strip_prefix("/var/") {
        let run = rest.strip_prefix("run/").map(|rest| Path::new("/run").join(rest));
        return Ok(run.unwrap_or_else(|| PathBuf::from(path)));
    }
    let inside = root.join(path.trim_start_matches('/'));
    let resolved = inside.canonicalize().ok().and_then(|found| {
        let root = root.canonicalize().ok()?;
        found.strip_prefix(root).ok().map(|rest| Path::new("/").join(rest))
    });
    Ok(resolved.unwrap_or_else(|| PathBuf::from(path)))
}

fn apply(
    file: &Wanted,
    place: &Path,
    before: Option<Original>,
    image: &Image,
    root: &Path,
) -> Result<Target, String> {
    let in_var = place.starts_with("/var");
    if file.operation == Operation::Create && !in_var {
        return Err(format!("create operation not allowed outside of /var: {:?}", file.path));
    }
    let before = match before {
        Some(before) => Some(before),
        None => present(file, place, in_var, image, root)?,
    };
    let mode = file.mode.or(before.as_ref().map(|b| b.mode)).unwrap_or(DEFAULT_MODE) & 0o7777;
    let new = file.content.as_bytes();
    let content = match (file.operation, before) {
        (Operation::Append, Some(before)) => appended(before.content, new, in_var),
        _ => new.to_vec(),
    };
    let (written, shown) = if in_var {
        (place.to_path_buf(), None)
    } else {
        (Path::new("/var").join(place.strip_prefix("/").unwrap_or(place)), Some(place.to_path_buf()))
    };
    Ok(Target { written, shown, content, mode })
}

/// The file as it was before this boot's operations; overwriting and appending need one.
fn present(
    file: &Wanted,
    place: &Path,
    in_var: bool,
    image: &Image,
    root: &Path,
) -> Result<Option<Original>, String> {
    if file.operation == Operation::Create {
        return Ok(None);
    }
    let found = if in_var { live(root, place) } else { image.find(place) };
    match found.map_err(|e| format!("read {:?}: {e}", file.path))? {
        Found::File(original) => Ok(Some(original)),
        Found::Other => Err(format!("invalid mode: {:?}", file.path)),
        Found::Nothing => Err(format!("file must exist: {:?}", file.path)),
    }
}

/// /var is a file system of its own, which the image does not show. Workloads write there: what a link of theirs leads to would
/// be copied to where they read it.
fn live(root: &Path, place: &Path) -> std::io::Result<Found> {
    let opened = beneath::parent(root, place).and_then(|(directory, name)| directory.file(&name));
    let mut file = match opened {
        Ok(Some(file)) => file,
        Ok(None) => return Ok(Found::Nothing),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Found::Nothing),
        Err(error) => return Err(error),
    };
    let mode = file.metadata()?.permissions().mode() & 0o7777;
    let mut content = Vec::new();
    file.read_to_end(&mut content)?;
    Ok(Found::File(Original { content, mode }))
}

/// Old content, a line break, new content. A file that outlives the boot would grow with every boot: what it ends
/// with already is not appended again.
fn appended(mut before: Vec<u8>, new: &[u8], outlives_boot: bool) -> Vec<u8> {
    if outlives_boot && before.ends_with(new) {
        return before;
    }
    before.push(b'\n');
    before.extend_from_slice(new);
    before
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(path: &str, content: &str, operation: Operation) -> Wanted {
        Wanted { path: path.into(), content: content.into(), mode: None, operation }
    }

    /// A root with a certificate store, a link to it, a directory and a file in /var.
    fn root() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let path = |path: &str| dir.path().join(path);
        std::fs::create_dir_all(path("etc/ssl/certs")).unwrap();
        std::fs::write(path("etc/ssl/certs/ca-certificates"), "one\n").unwrap();
        std::os::unix::fs::symlink("ca-certificates", path("etc/ssl/certs/ca-certificates.crt")).unwrap();
        std::fs::create_dir_all(path("var/lib")).unwrap();
        std::fs::write(path("var/lib/kept"), "old").unwrap();
        dir
    }

    fn planned(root: &tempfile::TempDir, wanted: &[Wanted]) -> Result<Vec<Target>, Vec<String>> {
        plan(wanted, &Image::of_directory(root.path()), root.path())
    }

    #[test]
    fn appends_to_one_file_add_up_whatever_it_is_called() {
        let root = root();
        let files = [
            wanted("/etc/ssl/certs/ca-certificates", "two\n", Operation::Append),
            wanted("/etc/ssl/certs/ca-certificates.crt", "three\n", Operation::Append),
        ];
        let targets = planned(&root, &files).ok().unwrap();
        assert_eq!(targets.len(), 1);
        assert_eq!(targets[0].content, b"one\n\ntwo\n\nthree\n");
        assert_eq!(targets[0].written, Path::new("/var/etc/ssl/certs/ca-certificates"));
        assert_eq!(targets[0].shown.as_deref(), Some(Path::new("/etc/ssl/certs/ca-certificates")));
        assert_eq!(targets[0].mode, 0o644);
    }

    #[test]
    fn every_mistake_is_named() {
        let root = root();
        let files = [
            wanted("/etc/new", "", Operation::Create),
            wanted("/etc/none", "", Operation::Append),
            wanted("/etc/ssl", "", Operation::Overwrite),
            wanted("relative", "", Operation::Create),
            wanted("/var/../etc/passwd", "", Operation::Create),
            wanted("/var/good", "", Operation::Create),
        ];
        let errors = planned(&root, &files).err().unwrap();
        assert_eq!(
            errors[..3],
            [
                "create operation not allowed outside of /var: \"/etc/new\"",
                "file must exist: \"/etc/none\"",
                "invalid mode: \"/etc/ssl\"",
            ]
        );
        assert!(
            errors[3..].iter().all(|e| e.contains("must be absolute")) && errors.len() == 5,
            "{errors:?}"
        );
    }

    #[test]
    fn files_below_var_stay_where_they_are() {
        let root = root();
        let file = Wanted { mode: Some(0o600), ..wanted("/var/cri/conf.d/a.toml", "x", Operation::Create) };
        let append = wanted("/var/lib/kept", "new", Operation::Append);
        let targets = planned(&root, &[file, append.clone()]).ok().unwrap();
        assert_eq!((targets[0].shown.clone(), targets[0].mode), (None, 0o600));
        assert_eq!(targets[1].content, b"old\nnew");
        // The next boot finds it there.
        std::fs::write(root.path().join("var/lib/kept"), "old\nnew").unwrap();
        assert_eq!(planned(&root, &[append]).ok().unwrap()[0].content, b"old\nnew");
    }

    #[test]
    fn the_newer_generations_customization_becomes_an_import() {
        let root = root();
        let file = wanted(CUSTOMIZATION.0, "[metrics]", Operation::Create);
        let targets = planned(&root, &[file]).ok().unwrap();
        assert_eq!(targets[0].written, Path::new(CUSTOMIZATION.1));
    }
}
