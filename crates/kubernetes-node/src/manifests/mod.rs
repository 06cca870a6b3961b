//! Bootstrap manifests: what a cluster needs from its first minute, brought into the API server of a control plane node.
//!
//! Does not: change or remove an object. What is there stays; what a user removed comes back only when the manifests of the
//! config change or machined starts anew.
//! Order: etcd, the API server, then the mutex that the control plane nodes share, then namespaces, definitions of kinds, and the
//! rest by the manifests' ids. Without `00-kubelet-bootstrapping-token` no kubelet joins.
//! Fails by: a line of the journal for each manifest or object, said once; the others come, and this one is tried again.

#[cfg(test)]
mod cluster_tests;
mod downloads;
mod objects;
mod resources;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use config::Config;
use kubernetes::Cluster;
use kubernetes::manifests::{self, Manifest};
use runtime::store::SERVICE;
use serde_json::Value;
use tokio::time::Instant;

pub use downloads::{Download, Request};

use crate::etcd::mutex;
use crate::{Error, KubernetesNode, api_server, facts};
use downloads::Downloads;
use objects::{Key, Outcome, Server};

/// Between two looks while etcd is away.
const SHORT_PERIOD: Duration = Duration::from_secs(1);
/// Between two tries of what failed.
const LONG_PERIOD: Duration = Duration::from_secs(10);
/// Between two looks when all is done; a changed configuration is seen at once.
const IDLE_PERIOD: Duration = Duration::from_hours(1);
/// How long the API server, and kinds that a manifest defines, are waited for in silence.
const PATIENCE: Duration = Duration::from_secs(60);
/// The name that clients of both generations know.
const MUTEX: &str = "talos:v1:manifestApplyMutex";
/// The mutex is free again after this, whatever became of its holder.
const MUTEX_LIFE: Duration = Duration::from_secs(600);
/// How long another node may hold it before that is said.
const MUTEX_PATIENCE: Duration = Duration::from_secs(2);
/// All work under the mutex ends before its life does.
const WORK_DEADLINE: Duration = Duration::from_secs(540);

/// What the loop remembers between two looks.
struct Memory {
    /// What the manifests were made from.
    config: Option<Arc<Config>>,
    /// Those that are rendered or lie in the config.
    own: BTreeMap<String, Vec<Value>>,
    /// What is wrong with these.
    faults: Vec<String>,
    /// What of the config lies elsewhere.
    wanted: Vec<manifests::Download>,
    downloads: Downloads,
    /// All that are here, by id.
    all: Arc<Vec<Manifest>>,
    /// Objects that are there, or were when they were looked for.
    there: BTreeSet<Key>,
    /// What the last whole pass could not make: it is not said again because the server was away in between.
    refused: Vec<String>,
    /// What was said last, so that it is said once.
    said: BTreeSet<String>,
    /// Whether the last look found etcd away.
    awaits_etcd: bool,
    /// Since when something is waited for in silence.
    waits_since: Option<Instant>,
    /// Whether it was said that all are there.
    is_whole: bool,
}

/// What one pass over the missing objects came to.
#[derive(Default)]
struct Pass {
    /// By manifest.
    created: BTreeMap<String, usize>,
    faults: Vec<String>,
    /// Objects whose kind another object defines.
    awaited: Vec<String>,
}

impl Memory {
    fn new(download: Download) -> Self {
        Self {
            config: None,
            own: BTreeMap::new(),
            faults: Vec::new(),
            wanted: Vec::new(),
            downloads: Downloads::new(download, LONG_PERIOD),
            all: Arc::default(),
            there: BTreeSet::new(),
            refused: Vec::new(),
            said: BTreeSet::new(),
            awaits_etcd: false,
            waits_since: None,
            is_whole: false,
        }
    }

    /// Renders what the configuration asks for and reads what it holds; other manifests than before are looked for anew.
    fn gather(&mut self, cluster: &Cluster<'_>) {
        let mut own = BTreeMap::<String, Vec<Value>>::new();
        self.faults.clear();
        if cluster.is_control_plane() {
            match manifests::rendered(cluster) {
                Ok(all) => own.extend(all.into_iter().map(|manifest| (manifest.id, manifest.objects))),
                Err(error) => self.faults.push(format!("manifests: {error}")),
            }
            for inline in manifests::inline(cluster) {
                match manifests::objects(inline.text.as_bytes()) {
                    Ok(objects) => own.entry(inline.id).or_default().extend(objects),
                    Err(error) => self.faults.push(format!("manifest {}: {error}", inline.id)),
                }
            }
        }
        if own != self.own {
            self.there.clear();
            self.refused.clear();
            self.waits_since = None;
            self.is_whole = false;
            self.own = own;
        }
    }

    /// Puts together what is here.
    fn join(&mut self) {
        let mut all = self.own.clone();
        for (id, objects) in self.downloads.done() {
            all.entry(id.to_owned()).or_default().extend(objects.iter().cloned());
        }
        self.all = Arc::new(all.into_iter().map(|(id, objects)| Manifest { id, objects }).collect());
    }

    fn is_there(&self, manifest: &Manifest) -> bool {
        manifest.objects.iter().all(|object| self.there.contains(&Key::of(object)))
    }

    /// Ids of the manifests whose objects are all there.
    fn applied(&self) -> Vec<String> {
        self.all
            .iter()
            .filter(|manifest| self.is_there(manifest))
            .map(|manifest| manifest.id.clone())
            .collect()
    }

    /// Whether the patience with what is awaited has ended.
    fn has_waited(&mut self) -> bool {
        self.waits_since.get_or_insert_with(Instant::now).elapsed() >= PATIENCE
    }
}

impl KubernetesNode {
    /// Brings the manifests of the configuration into the cluster, for as long as this is polled. A worker has none.
    pub async fn keep_manifests(&self, download: Download) {
        let mut config = self.runtime.config.subscribe();
        let mut services = self.runtime.store.follow(&[&SERVICE]);
        let mut memory = Memory::new(download);
        loop {
            let (period, faults) = self.look_at_manifests(&mut memory).await;
            faults.difference(&memory.said).for_each(|fault| self.runtime.journal.warn(fault));
            memory.said = faults;
            tokio::select! {
                changed = config.changed() => if changed.is_err() { return },
                () = memory.downloads.next() => {}
                () = services.next(), if memory.awaits_etcd => {}
                () = tokio::time::sleep(period) => {}
            }
        }
    }

    /// Looks once; answers when to look again, and what is wrong now.
    async fn look_at_manifests(&self, memory: &mut Memory) -> (Duration, BTreeSet<String>) {
        let Some(config) = self.runtime.config() else { return (LONG_PERIOD, BTreeSet::new()) };
        let cluster = match Cluster::new(&config) {
            Ok(cluster) => cluster,
            Err(error) => return (LONG_PERIOD, [format!("manifests: {error}")].into()),
        };
        let has_address = self.know(memory, &config, &cluster);
        let mut faults: BTreeSet<String> =
            memory.faults.iter().cloned().chain(memory.downloads.faults()).collect();
        let mut period = if faults.is_empty() && has_address { IDLE_PERIOD } else { LONG_PERIOD };
        if memory.applied().len() < memory.all.len() {
            let next = self.bring_missing(memory, &cluster, &mut faults).await;
            period = next.unwrap_or(period);
        }
        let applied = memory.applied();
        let is_whole = applied.len() == memory.all.len() && faults.is_empty() && memory.downloads.are_done();
        if is_whole && !memory.is_whole && !memory.all.is_empty() {
            let count: usize = memory.all.iter().map(|manifest| manifest.objects.len()).sum();
            self.runtime.journal.say(&format!("manifests: all {count} objects are there"));
        }
        memory.is_whole = is_whole;
        resources::publish_status(&self.runtime, cluster.is_control_plane().then_some(applied));
        (period, faults)
    }

    /// Has the memory hold the manifests of this configuration, as far as they are here; says whether there is a way to the others.
    fn know(&self, memory: &mut Memory, config: &Arc<Config>, cluster: &Cluster<'_>) -> bool {
        let is_new = memory.config.as_ref().is_none_or(|known| !Arc::ptr_eq(known, config));
        if is_new {
            memory.config = Some(config.clone());
            memory.gather(cluster);
            let document = self.runtime.document();
            let documents = document.as_ref().map(|document| document.documents.as_slice());
            memory.wanted = downloads::wanted(cluster, documents.unwrap_or_default());
            resources::publish_extra(&self.runtime, cluster, &memory.wanted);
        }
        let has_address =
            memory.wanted.is_empty() || facts::node(&self.runtime, cluster, self.is_container).is_ok();
        let has_more = has_address && memory.downloads.want(&memory.wanted);
        if is_new || has_more {
            memory.join();
            resources::publish(&self.runtime, &memory.all);
        }
        has_address
    }

    /// Makes what is missing; answers when to look again, unless all is there.
    async fn bring_missing(
        &self,
        memory: &mut Memory,
        cluster: &Cluster<'_>,
        faults: &mut BTreeSet<String>,
    ) -> Option<Duration> {
        memory.awaits_etcd = !self.is_etcd_up();
        if memory.awaits_etcd {
            memory.waits_since = None;
            return Some(SHORT_PERIOD);
        }
        let mut pass = Pass::default();
        let done = self.apply(memory, cluster, &mut pass).await;
        for (id, count) in &pass.created {
            let objects = if *count == 1 { "object" } else { "objects" };
            self.runtime.journal.say(&format!("manifest {id}: created {count} {objects}"));
        }
        if done.is_ok() {
            memory.refused = pass.faults;
        }
        let is_refused = !memory.refused.is_empty();
        faults.extend(memory.refused.iter().cloned());
        let awaited: Vec<String> = done
            .err()
            .map(|error| format!("manifests wait: {error}"))
            .into_iter()
            .chain(pass.awaited)
            .collect();
        if awaited.is_empty() {
            memory.waits_since = None;
            return is_refused.then_some(LONG_PERIOD);
        }
        if memory.has_waited() {
            faults.extend(awaited);
            return Some(LONG_PERIOD);
        }
        Some(api_server::QUICK_PERIOD)
    }

    /// Makes the objects that are missing, alone among the control plane nodes.
    async fn apply(&self, memory: &mut Memory, cluster: &Cluster<'_>, pass: &mut Pass) -> Result<(), Error> {
        let client = api_server::client(cluster).await?;
        api_server::is_ready(&client).await?;
        let owner = facts::node(&self.runtime, cluster, self.is_container)?.host_name;
        let mut taking = std::pin::pin!(mutex::take(&self.runtime.root, MUTEX, &owner, MUTEX_LIFE));
        let held = match tokio::time::timeout(MUTEX_PATIENCE, &mut taking).await {
            Ok(held) => held?,
            Err(_) => {
                self.runtime
                    .journal
                    .say("manifests: waiting for another control plane node that applies them");
                taking.await?
            }
        };
        let work = bring(memory, Server::new(client), pass);
        let late = |_| Error::ApiServer {
            what: "ask",
            reason: format!("objects are missing after {} s (deadline manifests)", WORK_DEADLINE.as_secs()),
        };
        let done = tokio::time::timeout(WORK_DEADLINE, work).await.map_err(late);
        // Where that fails, the mutex is free when its life ends.
        let released = held.release().await;
        done??;
        released
    }
}

async fn bring(memory: &mut Memory, mut server: Server, pass: &mut Pass) -> Result<(), Error> {
    let all = memory.all.clone();
    let defined = manifests::defined(&all);
    for (id, object) in manifests::ordered(&all) {
        let key = Key::of(object);
        if memory.there.contains(&key) {
            continue;
        }
        match server.bring(&key, object).await? {
            Outcome::Exists => {}
            Outcome::Created => *pass.created.entry(id.to_owned()).or_default() += 1,
            Outcome::Refused(words) => {
                pass.faults.push(format!("manifest {id}: {key}: {words}"));
                continue;
            }
            Outcome::UnknownKind => {
                let is_defined = defined.contains(&key.group_kind());
                let list = if is_defined { &mut pass.awaited } else { &mut pass.faults };
                list.push(format!("manifest {id}: {key}: the API server does not know this kind"));
                continue;
            }
        }
        memory.there.insert(key);
    }
    Ok(())
}
