//! OCI manifests and indexes, as far as an image's size needs them.
//!
//! Source: OCI image specification, manifest and index.

use ondisk::Architecture;
use serde::Deserialize;

/// A manifest (config and layers) or an index (manifests).
#[derive(Debug, Default, Deserialize)]
pub(super) struct Manifest {
    #[serde(default)]
    config: Option<Entry>,
    #[serde(default)]
    layers: Vec<Entry>,
    #[serde(default)]
    manifests: Vec<Entry>,
}

#[derive(Debug, Deserialize)]
struct Entry {
    digest: String,
    #[serde(default)]
    size: i64,
    #[serde(default)]
    platform: Option<Platform>,
}

#[derive(Debug, Deserialize)]
struct Platform {
    #[serde(default)]
    os: String,
    #[serde(default)]
    architecture: String,
}

impl Manifest {
    /// Bytes of config and layers.
    pub(super) fn size(&self) -> i64 {
        self.config.iter().chain(&self.layers).fold(0, |sum: i64, entry| sum.saturating_add(entry.size))
    }
}

/// The manifest of an index that is for this node; the first when none says so; nothing for what is no index.
pub(super) fn for_this_platform(index: &Manifest) -> Option<String> {
    let fits = |entry: &&Entry| {
        entry.platform.as_ref().is_some_and(|p| p.os == "linux" && p.architecture == Architecture::OWN.name())
    };
    index.manifests.iter().find(fits).or(index.manifests.first()).map(|entry| entry.digest.clone())
}
