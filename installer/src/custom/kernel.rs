//! What a customisation does to kernel and modules.
//!
//! Owns: the choice between three cases: nothing of it is touched; modules are added for the kernel that there is; modules
//! and kernel are others from now on.
//! Does not: place other files.
//! Order: entries below /lib/modules leave the additions where the kernel layer is made anew: it lies above all others.
//! Source: docs/users/kernels.md.

use std::collections::BTreeMap;

use ondisk::Architecture;
use ondisk::kernel as kernel_image;
use ondisk::kmod::Texts;
use ondisk::manifest::Layer;

use super::additions::Sourced;
use super::firmware;
use super::index;
use super::lower::Lower;
use crate::kernel::{self, Files, Kernel, Modules};
use crate::source::Source;
use crate::system::{self, BootParts, names};
use crate::tree::{Entry, Node, Tree};
use crate::{Error, grub, initramfs};

/// Where modules lie, with links followed.
pub(super) const MODULES: &str = "usr/lib/modules";
/// Name of the layer.
const LAYER: &str = "kernel";

/// What a customisation did.
pub(super) struct Changed {
    /// `None`: the kernel layer stays as it is.
    pub(super) swapped: Option<Swapped>,
    /// What nobody could tell of the kernel, and what it does nothing with.
    pub(super) warning: Vec<String>,
}

/// The kernel layer that takes the place of the one that there is.
pub(super) struct Swapped {
    pub(super) tree: Tree,
    pub(super) release: Option<String>,
}

/// Modules among what is added, by release.
type ByRelease = BTreeMap<String, Files>;

/// Whether a layer is the kernel's.
pub(super) fn is_kernel(layer: &Layer) -> bool {
    layer.kernel_release.is_some() || layer.name == LAYER
}

/// Changes boot parts and additions. `gone`: what is removed, links followed.
pub(super) fn change(
    lower: &Lower,
    source: &Source,
    gone: &[String],
    given: Option<Kernel>,
    additions: &mut Sourced,
    boot: &mut BootParts,
) -> Result<Changed, Error> {
    let running = source.system.manifest.kernel().and_then(|layer| layer.kernel_release.clone());
    let added = modules(additions);
    let own = running.as_ref().map(|release| format!("{MODULES}/{release}"));
    let are_gone = gone.iter().any(|path| path == MODULES || own.as_ref() == Some(path));
    let foreign = added.keys().any(|release| Some(release) != running.as_ref());
    let has_modules = !added.is_empty() || given.as_ref().is_some_and(|kernel| kernel.modules.is_some());
    let mut warning = firmware::microcode(additions);
    if let Some(kernel) = &given {
        warning.extend(kernel.check(has_modules || !are_gone, boot.architecture())?);
    }
    let (image, release, brought) = match given {
        Some(kernel) => (Some(kernel.image), Some(kernel.release), kernel.modules),
        None => (None, None, None),
    };
    if are_gone || foreign || brought.is_some() {
        let modules = one_release(added, brought, release.as_ref(), boot.architecture())?;
        additions.retain(|place, _| !is_below(place));
        let swapped = Some(swap(lower, image, release, modules, boot)?);
        return Ok(Changed { swapped, warning });
    }
    if let Some(image) = image {
        if release != running {
            let [kernel, modules] = [release, running].map(Option::unwrap_or_default);
            let reason = format!(
                "it comes without modules, and the image's are for {modules}: name the directory with its modules, or remove \
                 /lib/modules where everything is built in"
            );
            return Err(Error::Kernel { kernel, reason });
        }
        // A node makes its UKI of the parts in its layers.
        let entry = Entry::new(0o644, Node::Bytes(image.clone()));
        additions.insert(format!("{}/{}", system::DIRECTORY, names::KERNEL), (entry, "kernel".into()));
        boot.kernel = image;
    }
    if let (Some(release), Some(files)) = (&running, running.as_ref().and_then(|release| added.get(release)))
    {
        extend(lower, release, files, additions, boot)?;
    }
    Ok(Changed { swapped: None, warning })
}

/// The check of a kernel that was copied behind the last `FROM` of a Dockerfile, whose configuration the stage may have brought.
/// The image's own was built with it.
pub(super) fn check_copied(source: &Source) -> Result<Option<String>, Error> {
    let boot = &source.system.boot;
    let lower = Lower::read(&source.system.manifest.layers, &source.layers)?;
    if lower.content(&format!("{}/{}", system::DIRECTORY, names::KERNEL))?.as_ref() == Some(&boot.kernel) {
        return Ok(None);
    }
    let release = kernel_image::release(&boot.kernel).unwrap_or_default();
    let mut beside = Vec::new();
    for path in [format!("boot/config-{release}"), format!("{MODULES}/{release}/config")] {
        beside.extend(lower.content(&lower.resolve(&path))?);
    }
    let has_modules = source.system.manifest.kernel().is_some();
    kernel::check_copied(&boot.kernel, &beside, has_modules, boot.architecture())
}

/// Whether a path is that of the modules, or lies there.
fn is_below(place: &str) -> bool {
    place.strip_prefix(MODULES).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// What is added below the directories of releases, by its path there.
fn modules(additions: &Sourced) -> ByRelease {
    let mut found = ByRelease::new();
    for (place, (entry, _)) in additions.iter().filter(|(_, (entry, _))| entry.node != Node::Dir) {
        let below = place.strip_prefix(MODULES).and_then(|path| path.strip_prefix('/')?.split_once('/'));
        if let Some((release, path)) = below {
            found.entry(release.to_owned()).or_default().insert(path.to_owned(), entry.clone());
        }
    }
    found
}

/// The modules that there are from now on; `None`: the kernel has everything built in.
fn one_release(
    added: ByRelease,
    brought: Option<Modules>,
    kernel: Option<&String>,
    architecture: Architecture,
) -> Result<Option<Modules>, Error> {
    let mut releases: Vec<&String> =
        added.keys().chain(brought.iter().map(|modules| &modules.release)).collect();
    releases.dedup();
    if let [_, _, ..] = releases.as_slice() {
        let names = releases.iter().map(|release| release.as_str()).collect::<Vec<_>>().join(", ");
        let kernel = kernel.cloned().unwrap_or_else(|| names.clone());
        let reason = format!("modules are given for several kernels ({names}), and an image has one");
        return Err(Error::Kernel { kernel, reason });
    }
    let files = added.into_iter().next();
    let modules = match (brought, files) {
        (Some(mut brought), Some((release, files))) => {
            brought.texts = index::with(&brought.texts, &release, &files, architecture)?;
            brought.files.extend(files);
            put_index(&mut brought.files, &brought.texts);
            Some(brought)
        }
        (None, Some((release, files))) => Some(Modules::new(release, files, architecture)?),
        (brought, None) => brought,
    };
    match (&modules, kernel) {
        (Some(modules), Some(kernel)) if modules.release != *kernel => {
            Err(Error::KernelMismatch { kernel: kernel.clone(), modules: modules.release.clone() })
        }
        _ => Ok(modules),
    }
}

fn put_index(files: &mut Files, texts: &Texts) {
    for (name, text) in kernel::index_files(texts) {
        files.insert(name.to_owned(), Entry::new(0o644, Node::Bytes(text.as_bytes().to_vec())));
    }
}

fn swap(
    lower: &Lower,
    image: Option<Vec<u8>>,
    release: Option<String>,
    modules: Option<Modules>,
    boot: &mut BootParts,
) -> Result<Swapped, Error> {
    let none = Texts::default();
    let texts = modules.as_ref().map_or(&none, |modules| &modules.texts);
    let release = modules.as_ref().map(|modules| modules.release.clone()).or(release);
    let content = |path: &str| match modules.as_ref().and_then(|modules| modules.files.get(path)) {
        Some(entry) => entry.content(),
        None => Err(not_there(path, release.as_deref())),
    };
    let with_modules = modules.as_ref().map(|modules| modules.release.as_str());
    remake(boot, with_modules, texts, &content)?;
    boot.kernel = match image {
        Some(image) => image,
        // The image's own serves its own modules; for others one comes later, or is missed then.
        None if release.is_some() && kernel_image::release(&boot.kernel) == release.as_deref() => {
            std::mem::take(&mut boot.kernel)
        }
        None => Vec::new(),
    };
    let mut more = Vec::new();
    for name in [grub::BOOT_NAME, grub::CORE_NAME] {
        if let Some(bytes) = lower.content(&format!("{}/{name}", system::DIRECTORY))? {
            more.push((name, bytes));
        }
    }
    let tree = kernel::layer(boot, &more, modules.as_ref())?;
    Ok(Swapped { tree, release: with_modules.map(str::to_owned) })
}

/// Both segments with modules, never one alone: the index of the second takes the place of the other's, and names files of both.
fn remake(
    boot: &mut BootParts,
    release: Option<&str>,
    texts: &Texts,
    content: &dyn Fn(&str) -> Result<Vec<u8>, Error>,
) -> Result<(), Error> {
    let architecture = boot.architecture();
    let pack = |tree: Tree| initramfs::compressed_segment(&tree, initramfs::ZSTD_LEVEL);
    boot.modules = pack(kernel::initramfs(architecture, release, texts, content)?)?;
    // A kernel without drivers of network cards: an image for network boot says that it misses them.
    let network = match release {
        Some(release) => kernel::network(architecture, release, texts, content)?,
        None => None,
    };
    boot.network = network.map(pack).transpose()?.unwrap_or_default();
    Ok(())
}

/// A module that the initramfs should have.
fn not_there(path: &str, release: Option<&str>) -> Error {
    Error::Kernel {
        kernel: release.unwrap_or_default().to_owned(),
        reason: format!("modules.dep names {path}, which is not there: run depmod for the modules that are"),
    }
}

/// More modules for the kernel that there is: its index gets them, and the initramfs where they belong there.
fn extend(
    lower: &Lower,
    release: &str,
    files: &Files,
    additions: &mut Sourced,
    boot: &mut BootParts,
) -> Result<(), Error> {
    // Somebody's own index without a module is a file like any other.
    if !files.keys().any(|path| kernel::is_module(path)) {
        return Ok(());
    }
    let directory = format!("{MODULES}/{release}");
    let mut all = Files::new();
    for (name, _) in kernel::index_files(&Texts::default()) {
        let content = lower.content(&format!("{directory}/{name}"))?.unwrap_or_default();
        all.insert(name.to_owned(), Entry::new(0o644, Node::Bytes(content)));
    }
    let texts = index::with(&kernel::given(&all)?, release, files, boot.architecture())?;
    for (name, text) in kernel::index_files(&texts) {
        let entry = Entry::new(0o644, Node::Bytes(text.as_bytes().to_vec()));
        additions.insert(format!("{directory}/{name}"), (entry, "index of modules".into()));
    }
    let index = texts.index();
    let mut sets = kernel::ModuleSet::initramfs(boot.architecture())?;
    sets.add(&kernel::ModuleSet::network(boot.architecture())?);
    if !sets.resolve(&index).paths.iter().any(|path| files.contains_key(*path)) {
        return Ok(());
    }
    let content = |path: &str| match files.get(path) {
        Some(entry) => entry.content(),
        None => lower.content(&format!("{directory}/{path}"))?.ok_or_else(|| not_there(path, Some(release))),
    };
    remake(boot, Some(release), &texts, &content)?;
    let entry = Entry::new(0o644, Node::Bytes(boot.modules.clone()));
    additions.insert(format!("{}/{}", system::DIRECTORY, names::MODULES), (entry, "initramfs".into()));
    Ok(())
}
