//! The base layer: the node's own programs, the packages' files that base.toml names, their libraries, the overlay.
//!
//! Does not: hold anything that depends on a kernel; that is the kernel layer.
//! Order: directories and links, packages, authorities, overlay, own programs, bill of materials, libraries, check.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use installer::system::{self, BootParts};
use installer::tree::Tree;

use super::list::{FileList, PackageFiles, arrow, matching};
use super::paths::add_file;
use super::{check, libraries, os_release};
use crate::target;

/// The file with all authorities; the usual names are links to it.
const AUTHORITIES: &str = "etc/ssl/certs/ca-certificates";

/// Where the bill of materials lies in the layer.
pub(crate) const SBOM: &str = "usr/share/billet/sbom.spdx.json";

/// Everything that a base layer is made of.
pub(crate) struct BaseParts<'a> {
    pub(crate) list: &'a FileList,
    /// Unpacked packages by name.
    pub(crate) packages: &'a BTreeMap<String, PathBuf>,
    /// The directory rootfs-overlay.
    pub(crate) overlay: &'a Path,
    pub(crate) machined: &'a Path,
    pub(crate) sbom: &'a str,
    pub(crate) boot: &'a BootParts,
    pub(crate) version: &'a str,
}

pub(crate) fn assemble(parts: &BaseParts<'_>) -> Result<Tree> {
    let mut files = of_packages(parts.list, parts.packages)?;
    files.load("", parts.overlay)?;
    files.bytes("usr/lib/os-release", 0o644, os_release(parts.version))?;
    files.file("usr/bin/machined", 0o755, parts.machined)?;
    files.bytes(SBOM, 0o644, parts.sbom)?;
    for (name, content) in parts.boot.of_base() {
        files.bytes(&format!("{}/{name}", system::DIRECTORY), 0o644, content)?;
    }
    let libraries = target::libraries(parts.boot.architecture());
    add_libraries(&mut files, parts.list, parts.packages, libraries)?;
    check::check(&files, &parts.list.forbidden, libraries)?;
    Ok(files)
}

/// What a list names by itself: directories, links, and files of unpacked packages.
pub(crate) fn of_packages(list: &FileList, packages: &BTreeMap<String, PathBuf>) -> Result<Tree> {
    let mut files = Tree::new();
    skeleton(&mut files, list)?;
    for package in &list.packages {
        let directory = packages.get(&package.name);
        let directory = directory.with_context(|| format!("{} was not fetched", package.name))?;
        take(&mut files, package, directory).with_context(|| format!("package {}", package.name))?;
    }
    Ok(files)
}

/// Adds the shared libraries that files of the tree need, out of the list's packages that may give some.
pub(crate) fn add_libraries(
    files: &mut Tree,
    list: &FileList,
    packages: &BTreeMap<String, PathBuf>,
    libraries: &str,
) -> Result<()> {
    let providers = list.packages.iter().filter(|package| package.libraries);
    let directories: Vec<PathBuf> =
        providers.filter_map(|package| packages.get(&package.name).cloned()).collect();
    libraries::add(files, &directories, libraries)
}

fn skeleton(files: &mut Tree, list: &FileList) -> Result<()> {
    list.directories.iter().try_for_each(|path| files.dir(path, 0o755))?;
    list.private_directories.iter().try_for_each(|path| files.dir(path, 0o700))?;
    list.empty_files.iter().try_for_each(|path| files.bytes(path, 0o644, ""))?;
    let mut links = list.links.iter().map(|entry| arrow(entry));
    Ok(links.try_for_each(|(path, target)| files.symlink(path, target))?)
}

fn take(files: &mut Tree, package: &PackageFiles, directory: &Path) -> Result<()> {
    for entry in &package.files {
        let (from, to) = arrow(entry);
        for (path, file) in matching(directory, from)? {
            let path = match (to == from, to.strip_suffix('/')) {
                (true, _) => path,
                (false, Some(directory)) => {
                    format!("{directory}/{}", path.rsplit('/').next().unwrap_or(&path))
                }
                (false, None) => to.to_owned(),
            };
            if file.is_symlink() {
                let target = fs::read_link(&file).with_context(|| format!("read link {}", file.display()))?;
                files.symlink(&path, target.to_string_lossy())?;
            } else {
                add_file(files, &path, &file)?;
            }
        }
    }
    package.authorities.as_ref().map_or(Ok(()), |pattern| join_authorities(files, directory, pattern))
}

/// One file with every certificate, in the order of their file names.
fn join_authorities(files: &mut Tree, directory: &Path, pattern: &str) -> Result<()> {
    let mut bundle = String::new();
    for (path, file) in matching(directory, pattern)? {
        let text = fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))?;
        ensure!(text.starts_with("-----BEGIN CERTIFICATE-----"), "{path} is no certificate");
        bundle.push_str(text.trim_end());
        bundle.push('\n');
    }
    Ok(files.bytes(AUTHORITIES, 0o644, bundle)?)
}
