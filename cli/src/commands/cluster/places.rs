//! Where clusters are kept, by the flags or in the user's state directory.

use std::path::PathBuf;

use anyhow::Result;

use crate::state_directory;

/// Name of a cluster where none is given.
pub(super) const DEFAULT_NAME: &str = "billet-default";

/// Where clusters are kept.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct StateFlags {
    /// Directory of clusters, not on an overlay file system [default: $XDG_STATE_HOME/billetctl, else ~/.local/state/billetctl]
    #[arg(long, value_name = "DIRECTORY")]
    state: Option<PathBuf>,
}

impl StateFlags {
    pub(super) fn places(&self) -> Result<Places> {
        let base = self.state.clone().map_or_else(state_directory::path, Ok)?;
        Ok(Places { clusters: base.join("clusters"), images: base.join("cluster-images") })
    }
}

/// Directories below that of the state.
#[derive(Debug, Clone)]
pub(super) struct Places {
    /// One directory for each cluster.
    pub(super) clusters: PathBuf,
    /// What nodes run, unpacked, one directory for each cluster.
    images: PathBuf,
}

impl Places {
    pub(super) fn image(&self, cluster: &str) -> PathBuf {
        self.images.join(cluster)
    }
}
