//! Manifests that lie elsewhere: which were asked for, and what came.
//!
//! Owns: when each is downloaded: once, and again after a pause where it failed. What came stays as long as the config names it.
//! Does not: connect: the caller's [`Download`] does, with the node's proxies and authorities.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use config::Document;
use kubernetes::Cluster;
use kubernetes::manifests::{self, Download as Wanted, MAX_TEXT_BYTES};
use serde_json::Value;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// What is downloaded.
#[derive(Clone, PartialEq, Eq)]
pub struct Request {
    /// Where it lies.
    pub url: String,
    /// HTTP headers; they may hold secrets, and are for that server alone.
    pub headers: BTreeMap<String, String>,
    /// Longer answers are refused.
    pub max_bytes: usize,
}

/// Downloads a file within a deadline of its own: why not, for people.
pub type Download =
    Arc<dyn Fn(Request) -> Pin<Box<dyn Future<Output = Result<Vec<u8>, String>> + Send>> + Send + Sync>;

/// Objects, or why there are none.
type Outcome = Result<Vec<Value>, String>;

enum State {
    Running,
    Done(Vec<Value>),
    Failed(String, Instant),
}

/// The manifests of a configuration that are downloaded, each with the headers that are meant for it.
///
/// The configuration holds the headers of all documents together. Those of one are not for the server of another, nor for those
/// that `cluster.extraManifests` names.
pub(super) fn wanted(cluster: &Cluster<'_>, documents: &[Document]) -> Vec<Wanted> {
    let external = || {
        documents.iter().filter_map(|document| match document {
            Document::KubeExternalManifestConfig(external) => Some(external),
            _ => None,
        })
    };
    let mut all = if cluster.is_control_plane() { manifests::downloads(cluster) } else { Vec::new() };
    for one in &mut all {
        match external().find(|external| external.url == one.url) {
            Some(external) => one.headers.clone_from(&external.headers),
            None => one
                .headers
                .retain(|name, value| external().all(|external| external.headers.get(name) != Some(value))),
        }
    }
    all
}

pub(super) struct Downloads {
    download: Download,
    /// Between two tries.
    pause: Duration,
    entries: Vec<(Wanted, State)>,
    running: JoinSet<(Wanted, Outcome)>,
    /// Whether what came or is wanted has changed since [`Downloads::want`] was called.
    has_changed: bool,
}

impl Downloads {
    pub(super) fn new(download: Download, pause: Duration) -> Self {
        Self { download, pause, entries: Vec::new(), running: JoinSet::new(), has_changed: false }
    }

    /// Starts what is wanted and neither here nor under way; forgets what is not wanted. Says whether what is here has changed.
    pub(super) fn want(&mut self, wanted: &[Wanted]) -> bool {
        let count = self.entries.len();
        self.entries.retain(|(entry, _)| wanted.contains(entry));
        self.has_changed |= self.entries.len() < count;
        for one in wanted {
            if !self.entries.iter().any(|(entry, _)| entry == one) {
                self.entries.push((one.clone(), State::Running));
                self.running.spawn(run(self.download.clone(), one.clone()));
            }
        }
        for (entry, state) in &mut self.entries {
            if matches!(state, State::Failed(_, since) if since.elapsed() >= self.pause) {
                *state = State::Running;
                self.running.spawn(run(self.download.clone(), entry.clone()));
            }
        }
        std::mem::take(&mut self.has_changed)
    }

    /// Waits until one has ended; for ever if none is under way.
    pub(super) async fn next(&mut self) {
        let Some(ended) = self.running.join_next().await else { return std::future::pending().await };
        let Ok((wanted, outcome)) = ended else {
            // It panicked, and did not say which it was: all that are under way begin anew.
            return self.entries.retain(|(_, state)| !matches!(state, State::Running));
        };
        let state = match outcome {
            Ok(objects) => {
                self.has_changed = true;
                State::Done(objects)
            }
            Err(reason) => State::Failed(reason, Instant::now()),
        };
        if let Some((_, entry)) = self.entries.iter_mut().find(|(entry, _)| *entry == wanted) {
            *entry = state;
        }
    }

    /// What came, by the ids of the manifests.
    pub(super) fn done(&self) -> impl Iterator<Item = (&str, &Vec<Value>)> {
        self.entries.iter().filter_map(|(wanted, state)| match state {
            State::Done(objects) => Some((wanted.id.as_str(), objects)),
            State::Running | State::Failed(..) => None,
        })
    }

    /// What did not, in words.
    pub(super) fn faults(&self) -> impl Iterator<Item = String> {
        self.entries.iter().filter_map(|(wanted, state)| match state {
            State::Failed(reason, _) => Some(format!("manifest {}: {reason}", wanted.id)),
            State::Running | State::Done(_) => None,
        })
    }

    pub(super) fn are_done(&self) -> bool {
        self.entries.iter().all(|(_, state)| matches!(state, State::Done(_)))
    }
}

async fn run(download: Download, wanted: Wanted) -> (Wanted, Outcome) {
    let request =
        Request { url: wanted.url.clone(), headers: wanted.headers.clone(), max_bytes: MAX_TEXT_BYTES };
    let outcome = match download(request).await {
        Err(reason) => Err(format!("download: {reason}")),
        Ok(text) => read(text).await,
    };
    (wanted, outcome)
}

/// A large one takes a second.
async fn read(text: Vec<u8>) -> Outcome {
    let read =
        tokio::task::spawn_blocking(move || manifests::objects(&text).map_err(|error| error.to_string()));
    read.await.unwrap_or_else(|error| Err(error.to_string()))
}
