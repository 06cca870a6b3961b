//! The entries of a cluster in the files of its clients: the talosconfig and the kubeconfig of this user.
//!
//! Owns: which files and which entries, noted in the cluster's directory, so that they go with the cluster.
//! Does not: touch entries of other clusters: the authority says which cluster an entry is of.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};
use api::talosconfig::{Talosconfig, TalosconfigError};
use cluster::Cluster;
use config::Secret;
use serde::{Deserialize, Serialize};

use crate::{commands::kubeconfig, private_file};

/// The note in the cluster's directory.
const NOTE: &str = "clients.json";

/// Where a cluster's entries are. It holds the cluster's clients, hence no `Debug`.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct Clients {
    /// A talosconfig and the cluster's own text.
    talosconfig: Option<(PathBuf, Secret)>,
    /// A kubeconfig and the cluster's own text.
    kubeconfig: Option<(PathBuf, Secret)>,
}

impl Clients {
    /// Those of a cluster; none where none were noted.
    pub(super) fn of(cluster: &Cluster) -> Self {
        let text = fs::read_to_string(cluster.directory().join(NOTE)).unwrap_or_default();
        serde_json::from_str(&text).unwrap_or_default()
    }

    /// Adds the cluster to a talosconfig. Answers the name of its context there.
    pub(super) fn add_talosconfig(
        &mut self,
        cluster: &Cluster,
        path: &Path,
        own: Talosconfig,
    ) -> Result<String> {
        self.talosconfig = Some((path.to_owned(), own.to_yaml()));
        self.note(cluster)?;
        let mut all = match Talosconfig::load(path) {
            Err(TalosconfigError::Missing(_)) => Talosconfig::default(),
            other => other?,
        };
        all.merge(own);
        all.save(path)?;
        Ok(all.context)
    }

    /// Notes a kubeconfig to which the cluster is going to be added.
    pub(super) fn add_kubeconfig(&mut self, cluster: &Cluster, path: &Path, own: Secret) -> Result<()> {
        self.kubeconfig = Some((path.to_owned(), own));
        self.note(cluster)
    }

    fn note(&self, cluster: &Cluster) -> Result<()> {
        private_file::write(&cluster.directory().join(NOTE), &serde_json::to_string(self)?)
    }

    /// Removes the entries; a file that is gone has none.
    pub(super) fn remove(&self) -> Result<()> {
        if let Some((path, own)) = &self.talosconfig {
            remove_contexts(path, own)
                .with_context(|| format!("remove the cluster from {}", path.display()))?;
        }
        if let Some((path, own)) = &self.kubeconfig {
            kubeconfig::remove(path, own)
                .with_context(|| format!("remove the cluster from {}", path.display()))?;
        }
        Ok(())
    }
}

fn remove_contexts(path: &Path, own: &Secret) -> Result<()> {
    let mut all = match Talosconfig::load(path) {
        Err(TalosconfigError::Missing(_)) => return Ok(()),
        other => other?,
    };
    let own = Talosconfig::parse(own.expose_secret()).map_err(io::Error::other)?;
    let before = all.contexts.len();
    all.contexts.retain(|_, context| own.contexts.values().all(|own| own.ca != context.ca));
    if all.contexts.len() == before {
        return Ok(());
    }
    if !all.contexts.contains_key(&all.context) {
        // The only one that is left is the one that is meant from now on.
        all.context = match all.contexts.len() {
            1 => all.contexts.keys().next().cloned().unwrap_or_default(),
            _ => String::new(),
        };
    }
    Ok(all.save(path)?)
}

#[cfg(test)]
mod tests {
    use api::talosconfig::Context;

    use super::*;

    fn config(name: &str, authority: &str) -> Talosconfig {
        let context = Context { ca: Some(authority.into()), ..Context::default() };
        Talosconfig { context: name.into(), contexts: [(name.to_owned(), context)].into() }
    }

    #[test]
    fn a_cluster_s_contexts_go_and_others_of_its_name_stay() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config");
        let mut all = config("demo", "b3RoZXI=");
        all.merge(config("demo", "b3du"));
        assert_eq!(all.context, "demo-1");
        all.save(&path).unwrap();
        remove_contexts(&path, &config("demo", "b3du").to_yaml()).unwrap();
        let left = Talosconfig::load(&path).ok().unwrap();
        assert_eq!(left.contexts.keys().collect::<Vec<_>>(), ["demo"]);
        assert_eq!(left.context, "demo");
        assert_eq!(left.contexts["demo"].ca.as_deref(), Some("b3RoZXI="));
        remove_contexts(&directory.path().join("none"), &config("demo", "b3du").to_yaml()).unwrap();
    }
}
