//! Debian packages as build inputs: resolve, fetch, verify, unpack.
//!
//! Owns: which archive is asked, how old its index may be, and the versions that a build uses.
//! Does not: touch the host's package sources or run maintainer scripts; files are taken out of packages, nothing
//! is installed.
//! Order: mirrors of the host -> own apt root -> signed index -> versions -> files by hash -> what is in a `.deb`.
//! Fails by: naming the package, the host package to install, or the variable to set.

mod apt_root;
mod control;
mod copyright;
mod mirror;
mod sources;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

pub(crate) use control::{Package, Upstream};
pub(crate) use copyright::licences;

use crate::cache::{Cache, Key};
use crate::command::Cmd;
use crate::step::step;
use crate::target::Architecture;
use apt_root::AptRoot;

pub(crate) const DEBIAN_SUITE: &str = "trixie";
/// The release before it.
const EARLIER_SUITE: &str = "bookworm";
/// The file of [`Upstream`] in its cache entry, whatever compressed it.
const UPSTREAM: &str = "upstream.tar";

/// How far apart the archive's state and a build may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Freshness {
    /// An index of the last day will do, an older one too when no mirror answers.
    Day,
    /// Ask the mirror now (`--update`).
    Now,
    /// The index that there is, however old (`--as-fetched`): two builds are to be of the same packages.
    AsFetched,
}

/// Which part of the archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Archive {
    /// The release with its updates.
    Release,
    /// Newer versions of some packages too, under names of their own: an index that only few builds need.
    Backports,
    /// The release before, with its updates and its source packages.
    Earlier,
}

impl Archive {
    fn suite(self) -> &'static str {
        match self {
            Self::Release | Self::Backports => DEBIAN_SUITE,
            Self::Earlier => EARLIER_SUITE,
        }
    }
}

/// The archive as one build sees it.
pub(crate) struct Inputs<'a> {
    cache: &'a Cache,
    apt: AptRoot,
    architecture: Architecture,
    suite: &'static str,
}

impl<'a> Inputs<'a> {
    /// The archive for machines like those that build.
    pub(crate) fn open(cache: &'a Cache, freshness: Freshness) -> Result<Self> {
        Self::open_for(cache, freshness, Architecture::Amd64)
    }

    /// The archive for these machines.
    pub(crate) fn open_for(
        cache: &'a Cache,
        freshness: Freshness,
        architecture: Architecture,
    ) -> Result<Self> {
        Self::open_any(cache, freshness, architecture, Archive::Release)
    }

    /// A part of the archive, for machines like those that build.
    pub(crate) fn open_part(cache: &'a Cache, freshness: Freshness, archive: Archive) -> Result<Self> {
        Self::open_any(cache, freshness, Architecture::Amd64, archive)
    }

    fn open_any(
        cache: &'a Cache,
        freshness: Freshness,
        architecture: Architecture,
        archive: Archive,
    ) -> Result<Self> {
        let apt = AptRoot::open(cache, freshness, architecture, archive)?;
        Ok(Self { cache, apt, architecture, suite: archive.suite() })
    }

    pub(crate) fn architecture(&self) -> Architecture {
        self.architecture
    }

    /// The versions of these packages that the archive offers, in the given order.
    pub(crate) fn resolve(&mut self, names: &[&str]) -> Result<Vec<Package>> {
        let (architecture, suite) = (self.architecture, self.suite);
        let known = self.apt.resolve(names)?;
        names
            .iter()
            .map(|name| known.get(*name).cloned().with_context(|| no_package(suite, name, architecture)))
            .collect()
    }

    /// What the archive has of a source package; only [`Archive::Earlier`] has an index of those.
    pub(crate) fn resolve_source(&mut self, name: &str) -> Result<Upstream> {
        self.apt.resolve_source(name)
    }

    /// The file of a source package: a tar archive, compressed.
    pub(crate) fn upstream(&mut self, source: &Upstream) -> Result<PathBuf> {
        let apt = &self.apt;
        let make = |entry: &Path| apt.fetch_source(source, &entry.join(UPSTREAM));
        let entry = self.cache.entry("source", &Key::from_sha256(&source.sha256), make)?;
        Ok(entry.join(UPSTREAM))
    }

    /// The packages' files, each in a directory of its own.
    pub(crate) fn unpack(&mut self, packages: &[Package]) -> Result<BTreeMap<String, PathBuf>> {
        let wanted: Vec<&Package> =
            packages.iter().filter(|package| !self.cache.has("unpacked", &unpack_key(package))).collect();
        let missing: Vec<&Package> =
            wanted.into_iter().filter(|package| !self.cache.has("deb", &deb_key(package))).collect();
        self.fetch(&missing)?;
        packages.iter().map(|package| Ok((package.name.clone(), self.unpacked(package)?))).collect()
    }

    fn fetch(&mut self, missing: &[&Package]) -> Result<()> {
        if missing.is_empty() {
            return Ok(());
        }
        let scratch = self.cache.scratch()?;
        let mib = missing.iter().map(|package| package.bytes).sum::<u64>() >> 20;
        step(&format!("fetch {} packages, {mib} MiB", missing.len()), || {
            self.apt.download(missing, scratch.path())?;
            missing.iter().try_for_each(|package| self.keep(package, scratch.path()))
        })
    }

    fn keep(&self, package: &Package, directory: &Path) -> Result<()> {
        self.cache
            .entry("deb", &deb_key(package), |entry| apt_root::take(package, directory, entry))
            .map(drop)
    }

    fn unpacked(&mut self, package: &Package) -> Result<PathBuf> {
        let (cache, apt) = (self.cache, &mut self.apt);
        cache.entry("unpacked", &unpack_key(package), |entry| {
            // Fetched above, unless the file in the cache has just been found damaged.
            let deb = cache.entry("deb", &deb_key(package), |directory| apt.fetch_one(package, directory))?;
            step(&format!("unpack {} {}", package.name, package.version), || {
                Cmd::new("dpkg-deb").arg("-x").arg(deb.join("package.deb")).arg(entry).run()
            })
        })
    }
}

fn deb_key(package: &Package) -> Key {
    Key::from_sha256(&package.sha256)
}

/// Another kind, the same key: a package's files depend on the package alone.
fn unpack_key(package: &Package) -> Key {
    Key::from_sha256(&package.sha256)
}

fn no_package(suite: &str, name: &str, architecture: Architecture) -> String {
    format!("the archive ({suite}, {}) has no package {name}", architecture.name())
}
