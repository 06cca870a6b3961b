//! System extensions: files that a manifest describes, each a layer of its own under its own name.
//!
//! Owns: what an extension must be, and the sentences with which one is refused.
//! Does not: run anything of it; `extraInfo` and authors are for people.
//! Order: manifest, version of what it is for, paths, modes, kernel release of its modules; then all extensions against each
//! other and the image's.
//! Fails by: [`Error::Extension`], naming the extension; [`Error::Conflicts`] with every path that two of them want.
//! Source: docs/users/customising.md.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use oci::installer::Version;
use ondisk::Architecture;
use ondisk::kmod::Texts;
use ondisk::manifest::{Layer, is_own_layer};
use serde::Deserialize;

use super::additions::{self, Additions};
use super::firmware;
use super::index;
use super::kernel::MODULES;
use super::lower::Lower;
use crate::Error;
use crate::kernel::{self, Files};
use crate::tree::{Entry, Node};

/// The only form of manifest.
const FORMAT: &str = "v1alpha1";
const MANIFEST: &str = "manifest.yaml";
const ROOT: &str = "rootfs";
/// Whose extensions are taken besides ours, for machines of this version: the newest whose interface we serve
/// (docs/compatibility.md, `api::version`).
pub const INTERFACE: &str = "1.13.9";

/// Where an extension may have files; an entry that does not end in `/` is the beginning of a name.
const ALLOWED: [&str; 18] = [
    "etc/cri/conf.d/",
    "etc/ld.so.",
    "etc/vulkan/",
    "lib/firmware/",
    "lib/modules/",
    "lib64/ld-linux",
    "usr/bin/nvidia-",
    "usr/bin/nvme",
    "usr/lib/firmware/",
    "usr/lib/ld-linux",
    "usr/lib/modules/",
    "usr/lib/udev/rules.d/",
    "usr/lib64/ld-linux",
    "usr/local/",
    "usr/sbin/nvme",
    "usr/share/egl/",
    "usr/share/glvnd/",
    "usr/share/vulkan/",
];

/// Where services of extensions are described.
const SERVICES: &str = "usr/local/etc/containers/";

/// An extension that may be put in an image.
pub(super) struct Extension {
    pub(super) name: String,
    pub(super) version: String,
    pub(super) entries: BTreeMap<String, Entry>,
    /// The kernel's release.
    release: String,
    /// What depmod left for the modules, by name: no files of the image, which has an index of all.
    index: Files,
}

impl Extension {
    /// What its modules' own index says, where the image has one; nothing where it has no modules.
    pub(super) fn index(&self) -> impl Iterator<Item = (String, Entry)> {
        let has_modules = self.entries.keys().any(|path| kernel::is_module(path));
        let names = kernel::index_files(&Texts::default()).map(|(name, _)| name);
        let files = names.into_iter().filter_map(|name| self.index.get(name).map(|entry| (name, entry)));
        let placed =
            |(name, entry): (&str, &Entry)| (format!("{MODULES}/{}/{name}", self.release), entry.clone());
        files.filter(move |_| has_modules).map(placed)
    }

    /// What of it a node does nothing with.
    pub(super) fn warnings(&self) -> Vec<String> {
        let is_service = |path: &str, entry: &Entry| {
            entry.node != Node::Dir && path.starts_with(SERVICES) && path.ends_with(".yaml")
        };
        let services = self.entries.iter().filter(|(path, entry)| is_service(path, entry));
        let services: Vec<String> = services.map(|(path, _)| format!("/{path}")).collect();
        let mut warnings = Vec::new();
        if !services.is_empty() {
            let files = services.join(", ");
            warnings.push(format!(
                "extension {}: nodes do not run the services that {files} describes; its files are there",
                self.name
            ));
        }
        if self.entries.iter().any(|(path, entry)| firmware::is_microcode(path, entry)) {
            warnings.push(firmware::no_microcode(&format!("extension {}", self.name)));
        }
        warnings
    }
}

/// Refuses extensions that the image has already, or that want the same place to be different, or one of those in the image.
pub(super) fn check(extensions: &[Extension], lower: &Lower, layers: &[Layer]) -> Result<(), Error> {
    let mut all = Additions::to(lower);
    let mut conflicts = Vec::new();
    for extension in extensions {
        let name = &extension.name;
        if let Some(layer) = layers.iter().find(|layer| layer.name == *name) {
            let reason = format!(
                "the image has an extension of this name, version {}: begin with the image as it was before that was added, or leave \
                 this one out",
                layer.version
            );
            return Err(Error::Extension { name: name.clone(), reason });
        }
        for (path, entry) in &extension.entries {
            all.put(&format!("extension {name}"), path, entry.clone())?;
            conflicts.extend(conflict(name, path, entry, lower, layers)?);
        }
    }
    let list = [all.into_conflicts(), conflicts].concat();
    if list.is_empty() { Ok(()) } else { Err(Error::Conflicts { list }) }
}

/// What to say where an extension's file is another one than that of an extension in the image.
fn conflict(
    name: &str,
    path: &str,
    entry: &Entry,
    lower: &Lower,
    layers: &[Layer],
) -> Result<Option<String>, Error> {
    let place = lower.resolve_for(path, entry);
    let Some(file) = lower.layer(&place).filter(|_| entry.node != Node::Dir) else { return Ok(None) };
    let layer = layers.iter().find(|layer| file.ends_with(layer.file_name()));
    let Some(layer) = layer.filter(|layer| !is_own_layer(&layer.name)) else { return Ok(None) };
    let (there, spelled) = (&layer.name, additions::spelled(path, &place));
    let line =
        format!("/{place} is in extension {there} of the image and, different, in extension {name}{spelled}");
    Ok((!lower.is_same(&place, entry)?).then_some(line))
}

#[derive(Deserialize)]
struct Manifest {
    version: String,
    metadata: Metadata,
}

#[derive(Deserialize)]
struct Metadata {
    name: String,
    version: String,
    #[serde(default)]
    compatibility: BTreeMap<String, Constraint>,
}

#[derive(Deserialize)]
struct Constraint {
    version: String,
}

/// Reads the extensions for an image of this version and architecture, whose kernel has this release.
pub(super) fn read(
    paths: &[PathBuf],
    version: &str,
    release: Option<&str>,
    architecture: Architecture,
) -> Result<Vec<Extension>, Error> {
    let mut found = Vec::new();
    for path in paths {
        let files = additions::of_any(path, architecture)?;
        let extension = one(path, files, version, release)?;
        if found.iter().any(|other: &Extension| other.name == extension.name) {
            let reason = format!("it is named twice, the second time by {}: leave one out", path.display());
            return Err(Error::Extension { name: extension.name, reason });
        }
        found.push(extension);
    }
    Ok(found)
}

fn one(
    path: &Path,
    files: BTreeMap<String, Entry>,
    version: &str,
    release: Option<&str>,
) -> Result<Extension, Error> {
    let mut name = path.display().to_string();
    let refused = |name: &str, reason: String| Error::Extension { name: name.to_owned(), reason };
    let manifest = files.get(MANIFEST).map(Entry::content).transpose()?;
    let Some(manifest) = manifest else {
        return Err(refused(
            &name,
            format!("it has no {MANIFEST}: a system extension has that and a directory {ROOT}"),
        ));
    };
    let text = String::from_utf8_lossy(&manifest);
    let manifest: Manifest =
        serde_saphyr::from_str(&text).map_err(|error| refused(&name, format!("{MANIFEST}: {error}")))?;
    name.clone_from(&manifest.metadata.name);
    let refuse = |reason: String| refused(&name, reason);
    if manifest.version != FORMAT {
        return Err(refuse(format!(
            "unsupported manifest version: {:?}; this is {FORMAT}",
            manifest.version
        )));
    }
    let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if name.is_empty() || name.len() > 64 || !name.chars().all(is_name) {
        return Err(refuse("its name is not of the letters a-z, digits and -, which a layer's is".into()));
    }
    if is_own_layer(&name) {
        return Err(refuse("layers of every image are called so: give it another name".into()));
    }
    for (key, Constraint { version: range }) in &manifest.metadata.compatibility {
        let (system, own) = match key.as_str() {
            "billet" => ("Billet", version),
            "talos" => ("Talos", INTERFACE),
            _ => {
                return Err(refuse(format!(
                    "{MANIFEST} says for which version of {key:?} it is, and an image is checked for billet and talos only: \
                     correct the key"
                )));
            }
        };
        let fits =
            fits(range, own).ok_or_else(|| refuse(format!("its range of versions {range:?} is none")))?;
        if !fits {
            let what = if system == "Talos" { "serves the interface of Talos" } else { "is version" };
            return Err(refuse(format!(
                "version constraint {range} can't be satisfied with {system} version {own}: it is an extension for another \
                 version, and this image {what} {own}; use a release of it for that"
            )));
        }
    }
    let (mut entries, mut index) = (BTreeMap::new(), Files::new());
    for (path, entry) in files {
        if path == MANIFEST || path == ROOT {
            continue;
        }
        let Some(path) = path.strip_prefix("rootfs/").map(str::to_owned) else {
            return Err(refuse(format!("unexpected file {path:?} beside {MANIFEST} and {ROOT}/")));
        };
        check_file(&path, &entry, release).map_err(&refuse)?;
        match index::name(&path, &entry) {
            Some(name) => index.insert(name.to_owned(), entry),
            None => entries.insert(path, entry),
        };
    }
    if entries.is_empty() {
        return Err(refuse("extension rootfs is missing, or empty".into()));
    }
    let release = release.unwrap_or_default().to_owned();
    Ok(Extension { version: manifest.metadata.version, entries, name, release, index })
}

fn check_file(path: &str, entry: &Entry, release: Option<&str>) -> Result<(), String> {
    let below = format!("{path}/");
    let is_above = entry.node == Node::Dir && ALLOWED.iter().any(|allowed| allowed.starts_with(&below));
    if !is_above && !ALLOWED.iter().any(|allowed| below.starts_with(allowed)) {
        return Err(format!("path \"/{path}\" is not allowed in extensions"));
    }
    if !matches!(entry.node, Node::Symlink(_)) && entry.mode & 0o002 != 0 {
        return Err(format!("/{path} can be written by everybody (mode {:04o})", entry.mode));
    }
    let modules = path.strip_prefix("usr/").unwrap_or(path).strip_prefix("lib/modules/");
    match (modules.and_then(|rest| rest.split('/').next()), release) {
        (Some(built), running) if Some(built) != running => Err(format!(
            "it has modules for kernel {built}, and the image's is {}: it is an extension for another version",
            running.unwrap_or("one without modules")
        )),
        _ => Ok(()),
    }
}

/// Whether a version lies in a range: `>=1.0.0 <2.0.0 || 3.1.0`; `None`: the range is none.
fn fits(range: &str, version: &str) -> Option<bool> {
    let version = Version::parse(version)?;
    let mut any = false;
    for part in range.split("||") {
        // A blank may stand behind the sign.
        let mut words = part.split_whitespace();
        let (mut all, mut count) = (true, 0);
        while let Some(word) = words.next() {
            let at = word.find(|c: char| !"<>=!".contains(c)).unwrap_or(word.len());
            let (sign, text) = word.split_at(at);
            let wanted = Version::parse(if text.is_empty() { words.next()? } else { text })?;
            all &= match sign {
                "" | "=" | "==" => version == wanted,
                "!" | "!=" => version != wanted,
                ">" => version > wanted,
                ">=" => version >= wanted,
                "<" => version < wanted,
                "<=" => version <= wanted,
                _ => return None,
            };
            count += 1;
        }
        if count == 0 {
            return None;
        }
        any |= all;
    }
    Some(any)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn manifest(name: &str, more: &str) -> String {
        format!("version: v1alpha1\nmetadata:\n  name: {name}\n  version: 1.0-v1.2\n  author: me\n{more}")
    }

    fn directory(files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (name, content) in files {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        dir
    }

    fn refusal(files: &[(&str, &str)]) -> String {
        let dir = directory(files);
        let read = read(&[dir.path().to_owned()], "0.1.0", Some("6.12"), Architecture::Amd64);
        read.err().map(|error| error.to_string()).unwrap_or_default()
    }

    #[test]
    fn an_extension_is_read() {
        let fits = "  compatibility:\n    talos:\n      version: \">= v1.5.0\"\n    billet:\n      version: \"<1.0.0\"\n";
        let text = manifest("tools", fits);
        let files = [
            ("manifest.yaml", text.as_str()),
            ("rootfs/usr/local/bin/tool", "#!"),
            ("rootfs/usr/lib/modules/6.12/extra/a.ko", "a"),
        ];
        assert_eq!(refusal(&files), "");
        let dir = directory(&files);
        let found = read(&[dir.path().to_owned()], "0.1.0", Some("6.12"), Architecture::Amd64).unwrap();
        assert_eq!((found[0].name.as_str(), found[0].version.as_str()), ("tools", "1.0-v1.2"));
        assert!(found[0].entries.contains_key("usr/local/bin/tool"));
    }

    #[test]
    fn what_is_no_extension_for_this_image_is_refused() {
        let good = manifest("tools", "");
        let tool = ("rootfs/usr/local/tool", "x");
        let other = "  compatibility:\n    billet:\n      version: \">=2.0.0 <3.0.0\"\n";
        let talos = "  compatibility:\n    talos:\n      version: \"< v1.5.0\"\n";
        for (text, file, wanted) in [
            (
                manifest("tools", other),
                tool,
                "can't be satisfied with Billet version 0.1.0: it is an extension for another version",
            ),
            (
                manifest("tools", talos),
                tool,
                "version constraint < v1.5.0 can't be satisfied with Talos version 1.13.9",
            ),
            (
                manifest("tools", "  compatibility: {taols: {version: \">= 1.0.0\"}}\n"),
                tool,
                "for which version of \"taols\" it is, and an image is checked for billet and talos only",
            ),
            (manifest("kernel", ""), tool, "layers of every image are called so"),
            (manifest("custom-2", ""), tool, "layers of every image are called so"),
            (
                manifest("tools", "  compatibility: {billet: {version: new}}\n"),
                tool,
                "its range of versions \"new\" is none",
            ),
            (good.replace("v1alpha1", "v2"), tool, "unsupported manifest version: \"v2\""),
            (manifest("Tools_1", ""), tool, "letters a-z"),
            ("version: v1alpha1\n".into(), tool, "metadata"),
            (good.clone(), ("readme", "x"), "unexpected file \"readme\""),
            (good.clone(), ("other/tool", "x"), "unexpected file \"other"),
            (good.clone(), ("rootfs/usr/bin/tool", "x"), "path \"/usr/bin"),
            (
                good.clone(),
                ("rootfs/usr/lib/modules/6.1/a.ko", "x"),
                "modules for kernel 6.1, and the image's is 6.12",
            ),
        ] {
            let said = refusal(&[("manifest.yaml", text.as_str()), file]);
            assert!(said.contains(wanted), "{wanted:?} is not in {said}");
        }
        assert!(refusal(&[tool]).contains("it has no manifest.yaml"));
        assert!(refusal(&[("manifest.yaml", good.as_str())]).contains("extension rootfs is missing"));
        let dir = directory(&[("manifest.yaml", good.as_str()), tool]);
        fs::set_permissions(dir.path().join(tool.0), fs::Permissions::from_mode(0o666)).unwrap();
        let error =
            read(&[dir.path().to_owned()], "0.1.0", None, Architecture::Amd64).err().unwrap().to_string();
        assert!(error.contains("/usr/local/tool can be written by everybody (mode 0666)"), "{error}");
    }

    #[test]
    fn extensions_that_want_the_same_path_are_listed() {
        let with = |name: &str, content: &str| {
            directory(&[
                ("manifest.yaml", &manifest(name, "")),
                ("rootfs/usr/local/a", content),
                ("rootfs/usr/local/b", "same"),
            ])
        };
        let (one, two) = (with("one", "1"), with("two", "2"));
        let paths = [one.path().to_owned(), two.path().to_owned()];
        let found = read(&paths, "0.1.0", None, Architecture::Amd64).unwrap();
        let error = check(&found, &Lower::default(), &[]).unwrap_err().to_string();
        assert!(
            error.contains("/usr/local/a is in extension one and, different, in extension two"),
            "{error}"
        );
        assert!(!error.contains("/usr/local/b"), "{error}");
    }

    #[test]
    fn ranges_are_understood() {
        for (range, version, wanted) in [
            (">= v1.5.0", "1.5.0", Some(true)),
            (">=1.0.0 <2.0.0 || 3.1.0", "3.1.0", Some(true)),
            (">=1.0.0 <2.0.0 || 3.1.0", "2.0.0", Some(false)),
            ("!=1.0.0", "1.0.1", Some(true)),
            (">1.0.0-beta.1", "1.0.0", Some(true)),
            ("", "1.0.0", None),
            ("1.x", "1.0.0", None),
            ("~1.0.0", "1.0.0", None),
        ] {
            assert_eq!(fits(range, version), wanted, "{range} {version}");
        }
    }
}
