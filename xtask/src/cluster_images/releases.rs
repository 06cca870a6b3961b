//! Which versions of Kubernetes images are made of, and what goes with each.
//!
//! Owns: an entry for each release. Its modules are pinned by `go.mod` and `go.sum` in xtask/kubernetes/MINOR, those of CoreDNS
//! and flannel, which several releases share, in directories of their names.
//! Source: the module proxy has k8s.io/kubernetes whole, with all its staging modules, for these versions only among the
//! recent ones; each release's go.mod says which Go it needs, and which etcd it was tested with. Debian bookworm has the
//! source of 1.20.2, with all that it imports, as the package `kubernetes` 1.20.5+really1.20.2.

use anyhow::{Context, Result};

use crate::inputs::Archive;

/// A version of Kubernetes, and of what a cluster runs beside it.
#[derive(Debug)]
pub(crate) struct Release {
    /// Without `v` before it.
    pub(crate) kubernetes: &'static str,
    /// Compiles what is made of modules.
    pub(crate) go: Go,
    pub(crate) origin: Origin,
    pub(crate) etcd: &'static str,
    /// What nodes ask for: the default of crates/kubernetes, in minor versions the same.
    pub(crate) etcd_tag: &'static str,
    pub(crate) core_dns: &'static str,
    pub(crate) flannel: &'static str,
}

/// Where Kubernetes and etcd come from; the rest is made of modules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Modules of Go, which name each other.
    Modules,
    /// Debian's archive: the source package `kubernetes`, which this Go compiles, and beside it etcd as binary packages.
    Packages(Go),
}

/// A version of Go in Debian's archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Go {
    /// As in the names of its packages: `1.24`.
    pub(crate) version: &'static str,
    pub(crate) archive: Archive,
}

/// The first is the default.
pub(crate) const RELEASES: [Release; 3] = [
    Release {
        kubernetes: "1.34.10",
        go: Go { version: "1.24", archive: Archive::Release },
        origin: Origin::Modules,
        etcd: "3.6.4",
        etcd_tag: "3.6.4-0",
        core_dns: "1.12.4",
        flannel: "0.26.7",
    },
    Release {
        kubernetes: "1.37.2",
        go: Go { version: "1.26", archive: Archive::Backports },
        origin: Origin::Modules,
        etcd: "3.7.0",
        etcd_tag: "3.7.0-0",
        core_dns: "1.12.4",
        flannel: "0.26.7",
    },
    // The oldest that configurations of the first generation name, within a few patches.
    Release {
        kubernetes: "1.20.2",
        go: Go { version: "1.24", archive: Archive::Release },
        origin: Origin::Packages(Go { version: "1.19", archive: Archive::Earlier }),
        etcd: "3.4.23",
        etcd_tag: "3.4.13-0",
        core_dns: "1.8.0",
        flannel: "0.26.7",
    },
];

impl Release {
    /// The release of this version of Kubernetes.
    pub(crate) fn find(kubernetes: &str) -> Result<&'static Self> {
        let wanted = kubernetes.strip_prefix('v').unwrap_or(kubernetes);
        let found = RELEASES.iter().find(|release| release.kubernetes == wanted);
        found.with_context(|| {
            let known: Vec<&str> = RELEASES.iter().map(|release| release.kubernetes).collect();
            format!(
                "no images are made of Kubernetes {kubernetes:?}: use {}, or add a line to RELEASES in \
                 xtask/src/cluster_images/releases.rs and its modules to xtask/kubernetes",
                known.join(", ")
            )
        })
    }

    /// Major and minor version, as Kubernetes' own version says them.
    fn major_minor(&self) -> (&'static str, &'static str) {
        let mut parts = self.kubernetes.split('.');
        (parts.next().unwrap_or_default(), parts.next().unwrap_or_default())
    }

    /// `1.34`.
    pub(crate) fn minor(&self) -> &'static str {
        minor(self.kubernetes)
    }

    /// What Go's linker sets for Kubernetes to say its version; `before` stands before the names of packages.
    pub(crate) fn variables(&self, before: &str) -> Vec<String> {
        let (major, minor) = self.major_minor();
        let facts = [("gitVersion", format!("v{}", self.kubernetes)), ("gitMajor", major.to_owned())];
        let facts = facts.into_iter().chain([("gitMinor", minor.to_owned())]);
        // Programs say the one, clients the other.
        let of = |(name, value): (&str, String)| {
            ["k8s.io/component-base/version", "k8s.io/client-go/pkg/version"]
                .map(|package| format!("{before}{package}.{name}={value}"))
        };
        facts.flat_map(of).collect()
    }
}

/// A version without its last part.
pub(super) fn minor(version: &str) -> &str {
    version.rsplit_once('.').map_or(version, |(minor, _)| minor)
}
