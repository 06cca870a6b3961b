//! Which versions of Kubernetes images are made of, and what goes with each.
//!
//! Owns: an entry for each release. Its modules are pinned by `go.mod` and `go.sum` in xtask/kubernetes/MINOR, those of CoreDNS
//! and flannel, which several releases share, in directories of their names.
//! Source: the module proxy has k8s.io/kubernetes whole, with all its staging modules, for these versions only among the
//! recent ones; each release's go.mod says which Go it needs, and which etcd it was tested with.

use anyhow::{Context, Result};

use crate::inputs::Archive;

/// A version of Kubernetes, and of what a cluster runs beside it.
#[derive(Debug)]
pub(crate) struct Release {
    /// Without `v` before it.
    pub(crate) kubernetes: &'static str,
    pub(crate) go: Go,
    pub(crate) etcd: &'static str,
    pub(crate) core_dns: &'static str,
    pub(crate) flannel: &'static str,
}

/// A version of Go in Debian's archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Go {
    /// As in the names of its packages: `1.24`.
    pub(crate) version: &'static str,
    pub(crate) archive: Archive,
}

/// The first is the default.
pub(crate) const RELEASES: [Release; 2] = [
    Release {
        kubernetes: "1.34.10",
        go: Go { version: "1.24", archive: Archive::Release },
        etcd: "3.6.4",
        core_dns: "1.12.4",
        flannel: "0.26.7",
    },
    // No test starts a cluster of it yet.
    Release {
        kubernetes: "1.37.2",
        go: Go { version: "1.26", archive: Archive::Backports },
        etcd: "3.7.0",
        core_dns: "1.12.4",
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
                known.join(" or ")
            )
        })
    }

    /// Major and minor version, as Kubernetes' own version says them.
    pub(crate) fn major_minor(&self) -> (&'static str, &'static str) {
        let mut parts = self.kubernetes.split('.');
        (parts.next().unwrap_or_default(), parts.next().unwrap_or_default())
    }

    /// `1.34`.
    pub(crate) fn minor(&self) -> &'static str {
        self.kubernetes.rsplit_once('.').map_or(self.kubernetes, |(minor, _)| minor)
    }
}
