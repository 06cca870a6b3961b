//! The modules of one kernel: the content of a `/lib/modules/RELEASE`, its index, and the initramfs segment of it.
//!
//! Owns: the index, as depmod left it or made of what the modules say.
//! Does not: unpack modules for an image: init and the kernel do.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
use ondisk::Architecture;
use ondisk::kmod::{Builder, Texts};

use super::machine::check_machines;
use super::sets::ModuleSet;
use crate::Error;
use crate::tree::{Entry, Node, Tree};

/// The index files that a node reads.
const INDEX: [&str; 4] = ["modules.dep", "modules.alias", "modules.softdep", "modules.builtin"];

/// Links to the directories in which modules were built.
const LINKS: [&str; 2] = ["build", "source"];

/// Largest module, in bytes: a limit for broken files, far above any real module.
const MOST_MODULE_BYTES: u64 = 256 << 20;

/// Names of modules that init loads without being asked by a device.
const LOAD_LIST: &str = "etc/billet/modules.load";

/// Files by their paths below the directory of the release.
pub(crate) type Files = BTreeMap<String, Entry>;

/// The modules of one release.
#[derive(Debug, Clone)]
pub(crate) struct Modules {
    pub(crate) release: String,
    pub(crate) files: Files,
    pub(crate) texts: Texts,
}

impl Modules {
    /// Reads a directory of the user's: that of a release, `lib/modules`, or what has one of these in it.
    pub(super) fn read(
        directory: &Path,
        wanted: Option<&str>,
        architecture: Architecture,
    ) -> Result<Self, Error> {
        let place = place(directory, wanted)?;
        let release = place.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        let mut tree = Tree::new();
        tree.load("", &place)?;
        let files = tree.iter().map(|(path, entry)| (path.to_owned(), entry.clone())).collect();
        Self::new(release, files, architecture)
    }

    /// These files, with an index where they have none. Modules for other processors are refused.
    pub(crate) fn new(release: String, mut files: Files, architecture: Architecture) -> Result<Self, Error> {
        check_machines(&release, &files, architecture)?;
        files.retain(|path, entry| {
            !(LINKS.contains(&path.as_str()) && matches!(entry.node, Node::Symlink(_)))
        });
        let texts = if files.contains_key(INDEX[0]) {
            given(&files)?
        } else {
            made(&release, &files, &Texts { builtin: text(&files, INDEX[3])?, ..Texts::default() })?
        };
        for (name, text) in INDEX.iter().zip([&texts.dep, &texts.alias, &texts.softdep, &texts.builtin]) {
            let entry = || Entry::new(0o644, Node::Bytes(text.clone().into_bytes()));
            files.entry((*name).to_owned()).or_insert_with(entry);
        }
        Ok(Self { release, files, texts })
    }
}

/// The directory of one release.
fn place(directory: &Path, wanted: Option<&str>) -> Result<PathBuf, Error> {
    // A kernel with everything built in has no modules, and a list of what is built in all the same.
    let is_release = |path: &Path| {
        path.join("kernel").is_dir() || [INDEX[0], INDEX[3]].iter().any(|name| path.join(name).is_file())
    };
    if is_release(directory) {
        return Ok(directory.to_owned());
    }
    let kernel = directory.display().to_string();
    let inner = ["lib/modules", "usr/lib/modules"].map(|name| directory.join(name));
    let above = inner.into_iter().find(|path| path.is_dir()).unwrap_or_else(|| directory.to_owned());
    let mut found = Vec::new();
    for item in fs::read_dir(&above).map_err(Error::list(&above))? {
        found.push(item.map_err(Error::list(&above))?.path());
    }
    found.retain(|path| is_release(path));
    found.sort();
    let named = |path: &&PathBuf| wanted.is_some_and(|wanted| path.ends_with(wanted));
    match (found.iter().find(named), found.as_slice()) {
        (Some(path), _) | (None, [path]) => Ok(path.clone()),
        (None, []) => Err(Error::Kernel {
            kernel,
            reason: "no modules are there: name the directory lib/modules/RELEASE".into(),
        }),
        (None, several) => {
            let names = several.iter().filter_map(|path| path.file_name()?.to_str()).collect::<Vec<_>>();
            let reason =
                format!("modules of several kernels ({}): name the directory of one", names.join(", "));
            Err(Error::Kernel { kernel, reason })
        }
    }
}

fn text(files: &Files, name: &str) -> Result<String, Error> {
    let content = files.get(name).map(Entry::content).transpose()?.unwrap_or_default();
    Ok(String::from_utf8_lossy(&content).into_owned())
}

/// The index that came with the files.
pub(crate) fn given(files: &Files) -> Result<Texts, Error> {
    let [dep, alias, softdep, builtin] = INDEX.map(|name| text(files, name));
    Ok(Texts { dep: dep?, alias: alias?, softdep: softdep?, builtin: builtin? })
}

/// An index with these modules in it.
fn made(release: &str, files: &Files, before: &Texts) -> Result<Texts, Error> {
    joined(release, files, &Texts::default(), before)
}

/// An index with these modules in it, and others that are known by their own index alone.
pub(crate) fn joined(release: &str, files: &Files, told: &Texts, before: &Texts) -> Result<Texts, Error> {
    let mut builder = Builder::default();
    builder.add_index(told);
    for (path, entry) in files.iter().filter(|(path, _)| is_module(path)) {
        let wrong = |reason: &str| Error::Kernel {
            kernel: release.to_owned(),
            reason: format!("{path} {reason}: run depmod for the modules, and give what it writes with them"),
        };
        let stored = entry.content()?;
        let limit = MOST_MODULE_BYTES;
        let mut module = Vec::new();
        let read = match path.rsplit('.').next() {
            Some("zst") => {
                zstd::Decoder::new(&stored[..]).and_then(|from| from.take(limit).read_to_end(&mut module))
            }
            Some("gz") => GzDecoder::new(&stored[..]).take(limit).read_to_end(&mut module),
            Some("xz") => return Err(wrong("is packed by xz, and there is no modules.dep")),
            _ => {
                module = stored;
                Ok(0)
            }
        };
        read.map_err(|_| wrong("cannot be unpacked"))?;
        if !builder.add(path, &module) {
            return Err(wrong("is no kernel module"));
        }
    }
    Ok(builder.finish(before))
}

/// Whether a path is that of a module.
pub(crate) fn is_module(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    [".ko", ".ko.xz", ".ko.zst", ".ko.gz"].iter().any(|end| name.ends_with(end))
}

/// The index files' names with their texts.
pub(crate) fn index_files(texts: &Texts) -> [(&'static str, &str); 4] {
    let [dep, alias, softdep, builtin] = INDEX;
    [(dep, &texts.dep), (alias, &texts.alias), (softdep, &texts.softdep), (builtin, &texts.builtin)]
}

/// The initramfs's first segment: mount points, the set's modules with their index. `content` reads a module.
pub(crate) fn initramfs(
    architecture: Architecture,
    release: Option<&str>,
    texts: &Texts,
    content: &dyn Fn(&str) -> Result<Vec<u8>, Error>,
) -> Result<Tree, Error> {
    let set = ModuleSet::initramfs(architecture)?;
    let index = texts.index();
    let resolved = set.resolve(&index);
    let mut tree = Tree::new();
    for mount_point in ["dev", "proc", "run", "sys", "sysroot"] {
        tree.dir(mount_point, 0o755)?;
    }
    tree.bytes(LOAD_LIST, 0o644, set.load_list_of_present(&index))?;
    let Some(release) = release else { return Ok(tree) };
    if !resolved.needed.is_empty() {
        let reason = format!(
            "it has neither as modules nor built in what every root needs: {}; what is built in stands in modules.builtin",
            resolved.needed.join(" ")
        );
        return Err(Error::Kernel { kernel: release.to_owned(), reason });
    }
    let paths: Vec<&str> = resolved.paths.iter().copied().collect();
    let directory = format!("lib/modules/{release}");
    for path in &paths {
        tree.bytes(&format!("{directory}/{path}"), 0o644, content(path)?)?;
    }
    for (name, text) in index_files(&texts.only(&paths)) {
        tree.bytes(&format!("{directory}/{name}"), 0o644, text)?;
    }
    Ok(tree)
}

/// The segment that an initramfs has for a root on the network: the modules that [`initramfs`] has not, and an index of
/// all, which replaces the other one. `None`: a kernel without any of them, as modules or built in.
pub(crate) fn network(
    architecture: Architecture,
    release: &str,
    texts: &Texts,
    content: &dyn Fn(&str) -> Result<Vec<u8>, Error>,
) -> Result<Option<Tree>, Error> {
    let index = texts.index();
    let base = ModuleSet::initramfs(architecture)?.resolve(&index).paths;
    let cards = ModuleSet::network(architecture)?;
    if !cards.names().any(|name| index.find(name).is_some() || index.is_builtin(name)) {
        return Ok(None);
    }
    let more = cards.resolve(&index).paths;
    let mut tree = Tree::new();
    let directory = format!("lib/modules/{release}");
    for path in more.difference(&base) {
        tree.bytes(&format!("{directory}/{path}"), 0o644, content(path)?)?;
    }
    let all: Vec<&str> = base.union(&more).copied().collect();
    for (name, text) in index_files(&texts.only(&all)) {
        tree.bytes(&format!("{directory}/{name}"), 0o644, text)?;
    }
    Ok(Some(tree))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory(files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (name, content) in files {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        dir
    }

    const BUILTIN: &str =
        "kernel/a/loop.ko\nkernel/squashfs.ko\nkernel/overlay.ko\nkernel/dm-mod.ko\nkernel/dm-verity.ko\n";

    #[test]
    fn modules_are_found_wherever_the_directory_begins() {
        let dir = directory(&[
            ("lib/modules/6.1/modules.dep", "kernel/vfat.ko:\n"),
            ("lib/modules/6.1/modules.builtin", BUILTIN),
            ("lib/modules/6.1/kernel/vfat.ko", "module"),
        ]);
        std::os::unix::fs::symlink("/usr/src/linux", dir.path().join("lib/modules/6.1/build")).unwrap();
        for place in ["", "lib/modules", "lib/modules/6.1"] {
            let modules = Modules::read(&dir.path().join(place), None, Architecture::Amd64).unwrap();
            assert_eq!((modules.release.as_str(), modules.texts.dep.as_str()), ("6.1", "kernel/vfat.ko:\n"));
            assert!(!modules.files.contains_key("build") && modules.files.contains_key("modules.alias"));
        }
        let modules = Modules::read(dir.path(), None, Architecture::Amd64).unwrap();
        let content = |path: &str| modules.files[path].content();
        let tree = initramfs(Architecture::Amd64, Some("6.1"), &modules.texts, &content).unwrap();
        assert_eq!(tree.get("lib/modules/6.1/kernel/vfat.ko").unwrap().content().unwrap(), b"module");
        let list = String::from_utf8(tree.get(LOAD_LIST).unwrap().content().unwrap()).unwrap();
        assert!(!list.contains("\nsquashfs"), "{list}");
        fs::create_dir_all(dir.path().join("lib/modules/6.2/kernel")).unwrap();
        let error = Modules::read(dir.path(), None, Architecture::Amd64).unwrap_err().to_string();
        assert!(error.contains("several kernels (6.1, 6.2): name the directory of one"), "{error}");
        assert_eq!(Modules::read(dir.path(), Some("6.2"), Architecture::Amd64).unwrap().release, "6.2");
    }

    #[test]
    fn a_root_on_the_network_takes_the_cards_drivers_besides() {
        let dir = directory(&[
            (
                "6.1/modules.dep",
                "kernel/vfat.ko:\nkernel/igb.ko: kernel/dca.ko\nkernel/dca.ko:\nkernel/sound.ko:\n",
            ),
            ("6.1/modules.builtin", BUILTIN),
        ]);
        let modules = Modules::read(dir.path(), None, Architecture::Amd64).unwrap();
        let made = |texts: &Texts| {
            network(Architecture::Amd64, "6.1", texts, &|path| Ok(path.as_bytes().to_vec())).unwrap()
        };
        let tree = made(&modules.texts).unwrap();
        let text = |path: &str| String::from_utf8(tree.get(path).unwrap().content().unwrap()).unwrap();
        assert_eq!(text("lib/modules/6.1/kernel/dca.ko"), "kernel/dca.ko");
        let dep = text("lib/modules/6.1/modules.dep");
        assert!(dep.contains("igb.ko") && dep.contains("vfat.ko") && !dep.contains("sound"), "{dep}");
        assert!(tree.get("lib/modules/6.1/kernel/vfat.ko").is_none(), "the other segment has it");
        let without = Texts { dep: "kernel/vfat.ko:\n".into(), ..modules.texts.clone() };
        assert!(made(&without).is_none());
    }

    #[test]
    fn what_cannot_be_indexed_or_mounts_no_root_is_said() {
        let error = |files: &[(&str, &str)]| {
            let dir = directory(files);
            let modules = Modules::read(dir.path(), None, Architecture::Amd64);
            let made = modules.and_then(|modules| {
                initramfs(Architecture::Amd64, Some("6.1"), &modules.texts, &|_| Ok(Vec::new()))
            });
            made.unwrap_err().to_string()
        };
        assert!(error(&[]).contains("no modules are there"));
        assert!(
            error(&[("6.1/kernel/a.ko", "text")]).contains("kernel 6.1: kernel/a.ko is no kernel module")
        );
        assert!(error(&[("6.1/kernel/a.ko.xz", "text")]).contains("is packed by xz"));
        let few = error(&[("6.1/modules.dep", ""), ("6.1/modules.builtin", "kernel/loop.ko\n")]);
        assert!(few.contains("what every root needs: squashfs overlay dm_mod dm_verity"), "{few}");
    }
}
