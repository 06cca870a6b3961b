//! The base layer: the node's own programs, the packages' files that base.toml names, their libraries, the overlay.
//!
//! Does not: hold anything that depends on a kernel; that is the kernel layer.
//! Order: folders and links, packages, authorities, overlay, own programs, bill of materials, libraries, check.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use super::files::Files;
use super::list::{FileList, PackageFiles, arrow, matching};
use super::{check, libraries};

/// The file with all authorities; the usual names are links to it.
const AUTHORITIES: &str = "etc/ssl/certs/ca-certificates";

/// Where the bill of materials lies in the layer.
pub(crate) const SBOM: &str = "usr/share/billet/sbom.spdx.json";

/// Everything that a base layer is made of.
pub(crate) struct BaseParts<'a> {
    pub(crate) list: &'a FileList,
    /// Unpacked packages by name.
    pub(crate) packages: &'a BTreeMap<String, PathBuf>,
    /// The folder rootfs-overlay.
    pub(crate) overlay: &'a Path,
    pub(crate) machined: &'a Path,
    pub(crate) sbom: &'a str,
    pub(crate) version: &'a str,
}

pub(crate) fn assemble(parts: &BaseParts<'_>) -> Result<Files> {
    let mut files = Files::default();
    skeleton(&mut files, parts.list)?;
    for package in &parts.list.packages {
        let folder = parts.packages.get(&package.name);
        let folder = folder.with_context(|| format!("{} was not fetched", package.name))?;
        take(&mut files, package, folder).with_context(|| format!("package {}", package.name))?;
    }
    overlay(&mut files, parts.overlay, parts.version)?;
    files.file("usr/bin/machined", parts.machined)?;
    files.bytes(SBOM, parts.sbom)?;
    let providers = parts.list.packages.iter().filter(|package| package.libraries);
    let folders: Vec<PathBuf> =
        providers.filter_map(|package| parts.packages.get(&package.name).cloned()).collect();
    libraries::add(&mut files, &folders)?;
    check::check(&files, &parts.list.forbidden)?;
    Ok(files)
}

fn skeleton(files: &mut Files, list: &FileList) -> Result<()> {
    list.folders.iter().try_for_each(|path| files.folder(path))?;
    list.empty_files.iter().try_for_each(|path| files.bytes(path, ""))?;
    list.links.iter().map(|entry| arrow(entry)).try_for_each(|(path, target)| files.link(path, target))
}

fn take(files: &mut Files, package: &PackageFiles, folder: &Path) -> Result<()> {
    for entry in &package.files {
        let (from, to) = arrow(entry);
        for (path, file) in matching(folder, from)? {
            let path = match (to == from, to.strip_suffix('/')) {
                (true, _) => path,
                (false, Some(folder)) => format!("{folder}/{}", path.rsplit('/').next().unwrap_or(&path)),
                (false, None) => to.to_owned(),
            };
            if file.is_symlink() {
                let target = fs::read_link(&file).with_context(|| format!("read link {}", file.display()))?;
                files.link(&path, &target.to_string_lossy())?;
            } else {
                files.file(&path, &file)?;
            }
        }
    }
    package.authorities.as_ref().map_or(Ok(()), |pattern| join_authorities(files, folder, pattern))
}

/// One file with every certificate, in the order of their file names.
fn join_authorities(files: &mut Files, folder: &Path, pattern: &str) -> Result<()> {
    let mut bundle = String::new();
    for (path, file) in matching(folder, pattern)? {
        let text = fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))?;
        ensure!(text.starts_with("-----BEGIN CERTIFICATE-----"), "{path} is no certificate");
        bundle.push_str(text.trim_end());
        bundle.push('\n');
    }
    files.bytes(AUTHORITIES, bundle)
}

fn overlay(files: &mut Files, folder: &Path, version: &str) -> Result<()> {
    let mut overlay = Files::default();
    overlay.tree("", folder)?;
    let release = "usr/lib/os-release";
    for (path, node) in overlay.iter() {
        match node {
            super::files::Node::Folder => files.folder(path)?,
            super::files::Node::Link(target) => files.link(path, target)?,
            super::files::Node::File { from, .. } if path == release => {
                let text = fs::read_to_string(from).with_context(|| format!("read {}", from.display()))?;
                files.bytes(path, text.replace("@VERSION@", version))?;
            }
            super::files::Node::File { from, .. } => files.file(path, from)?,
            super::files::Node::Bytes(bytes) => files.bytes(path, bytes.clone())?,
        }
    }
    Ok(())
}
