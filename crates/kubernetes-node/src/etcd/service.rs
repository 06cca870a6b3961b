//! How etcd runs: a container with the host's network, its data, its keys, and nothing else.
//!
//! Source: docs/users/etcd.md; `etcd --help`; etcd's documentation of environment variables.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use config::v1alpha1::MachineType;
use containers::Unpacked;
use containers::service::{Boxed, Describe, Description, Mount};
use kubernetes::etcd::{self, Membership};
use kubernetes::{Cluster, Owner, images, paths};
use runtime::beneath;
use runtime::services::definition::Answer;
use runtime::services::machine::State;
use runtime::services::{Check, Definition, Step};
use runtime::store::{ETCD_PKI_STATUS, Spec};
use serde_json::json;

use super::join::JoinError;
use super::program::{self, OOM_SCORE};
use super::state::{self, Data, ID, MARK, Recovery, below, data, failed};
use super::{client, recover};
use crate::certificates::{self, Part};
use crate::published::replace;
use crate::{Error, KubernetesNode, facts};

/// Where health is asked, for people.
pub const HEALTH_PLACE: &str = "127.0.0.1:2379";
/// Its place in the tree of control groups.
const GROUP: &str = "podruntime/etcd";
/// Between two lines in the log that say what is waited for.
const REMINDER: Duration = Duration::from_secs(30);
/// Between two looks at the certificates of a running etcd.
const LOOK_PERIOD: Duration = Duration::from_hours(1);
/// Between two attempts to join.
const JOIN_PERIOD: Duration = Duration::from_secs(3);
/// What a learner says where it would need a vote.
const LEARNER: &str = "rpc not supported for learner";

impl KubernetesNode {
    /// The service. It waits for a bootstrap before its first start.
    pub fn etcd(&self) -> Definition {
        let this = self.clone();
        let image = move || -> Step<String> {
            let this = this.clone();
            Box::pin(async move { this.etcd_image().await.map_err(|error| error.to_string()) })
        };
        let this = self.clone();
        let describe: Describe = Arc::new(move |unpacked| {
            let this = this.clone();
            Box::pin(async move { this.describe_etcd(unpacked).await.map_err(|error| error.to_string()) })
        });
        let container = Boxed::new(ID, self.engine.clone(), image, self.fetch.clone(), describe);
        let mut definition = Definition::container(ID, GROUP, container);
        definition.check = Some(self.etcd_check());
        definition.share.oom_score_adj = Some(OOM_SCORE);
        definition
    }

    fn etcd_check(&self) -> Check {
        let this = self.clone();
        let ask = move || -> Answer {
            let this = this.clone();
            Box::pin(async move {
                if let Some(said) = has_no_leader(&this.runtime.root).await {
                    return Err(said);
                }
                match client::quorum(&this.runtime.root).await {
                    Err(Error::Etcd { reason, .. }) if reason.contains(LEARNER) => {
                        return Err("this node's member catches up; it has no vote yet".to_owned());
                    }
                    answer => answer.map_err(|error| error.to_string())?,
                }
                this.end_bootstrap().map_err(|error| error.to_string())
            })
        };
        Check::Call { place: HEALTH_PLACE.to_owned(), ask: Arc::new(ask) }
    }

    /// The member answers: its data says what it is from now on.
    fn end_bootstrap(&self) -> Result<(), Error> {
        recover::remove_snapshot(&self.runtime.root)?;
        state::remove(&self.runtime.root, MARK)
    }

    /// Its image, once it has something to do: a node that waits fetches nothing.
    async fn etcd_image(&self) -> Result<String, JoinError> {
        self.membership().await?;
        let config = self.runtime.config().ok_or(Error::NoConfig)?;
        Ok(images::etcd(&Cluster::new(&config).map_err(Error::from)?))
    }

    async fn describe_etcd(&self, unpacked: Unpacked) -> Result<Description, JoinError> {
        let (config, membership) = loop {
            let membership = match self.membership().await? {
                Start::As(membership) => membership,
                Start::Restore => {
                    self.restore(&unpacked).await?;
                    continue;
                }
            };
            let config = self.runtime.config().ok_or(Error::NoConfig)?;
            // Without data etcd would begin a cluster of its own where its arguments say nothing else.
            if membership != Membership::Known || self.keeps_data(&config).await? {
                break (config, membership);
            }
        };
        let cluster = Cluster::new(&config).map_err(Error::from)?;
        let node = facts::node(&self.runtime, &cluster, self.is_container)?;
        let root = &self.runtime.root;
        let keys = certificates::bring(root, &cluster, &node, Part::Etcd)?;
        self.show_keys(keys.version);
        make_data(root)?;
        let arguments = etcd::arguments(&cluster, &node, &membership).map_err(Error::from)?;
        let path = |path: &str| root.join(path.trim_start_matches('/')).display().to_string();
        let argv = [vec![etcd::PROGRAM.to_owned()], arguments.to_vec()].concat();
        let mounts = vec![
            Mount::bind_at(&path(paths::ETCD_DATA), paths::ETCD_DATA, &["rw"]),
            Mount::bind_at(&path(paths::ETCD_SECRETS), paths::ETCD_SECRETS, &["ro"]),
            Mount::bind("/etc/resolv.conf", &["ro"]),
            Mount::bind("/etc/hosts", &["ro"]),
        ];
        Ok(program::description(argv, mounts, GROUP))
    }

    /// Renews certificates while etcd runs, for as long as this is polled; etcd reads them at each handshake. An address that
    /// came and an authority that changed are in them within the same hour.
    pub async fn keep_etcd_certificates(&self) {
        let mut said = String::new();
        // Of an etcd that an earlier machined started.
        if let Some(version) = certificates::version(&self.runtime.root, Part::Etcd) {
            self.show_keys(version);
        }
        loop {
            tokio::time::sleep(LOOK_PERIOD).await;
            // Those of a member that never ran are made when it starts.
            if !below(&self.runtime.root, paths::ETCD_SECRETS).exists() {
                continue;
            }
            match self.renew_etcd_certificates() {
                Ok(()) => said.clear(),
                Err(error) => {
                    let text = format!("etcd's certificates are not renewed: {error}");
                    if text != said {
                        self.runtime.journal.warn(&text);
                        said = text;
                    }
                }
            }
        }
    }

    /// Shows that etcd's keys and certificates are there, and which.
    fn show_keys(&self, version: u64) {
        let status = Spec::Fields(json!({ "ready": true, "version": version.to_string() }));
        replace(&self.runtime, &ETCD_PKI_STATUS, [(ID.to_owned(), status)]);
    }

    fn renew_etcd_certificates(&self) -> Result<(), Error> {
        let config = self.runtime.config().ok_or(Error::NoConfig)?;
        let cluster = Cluster::new(&config)?;
        let node = facts::node(&self.runtime, &cluster, self.is_container)?;
        let keys = certificates::bring(&self.runtime.root, &cluster, &node, Part::Etcd)?;
        self.show_keys(keys.version);
        Ok(())
    }

    /// How etcd starts; waits until a cluster takes this node or a bootstrap is asked for.
    async fn membership(&self) -> Result<Start, JoinError> {
        let mut said = String::new();
        let mut reminded = Instant::now();
        loop {
            // Before the disk is read: what is asked for in between is heard.
            let asked = self.asked.notified();
            if self.leaving.load(Ordering::SeqCst) {
                return Err(JoinError::Leaves);
            }
            match data(&self.runtime.root)? {
                Data::Member => return Ok(Start::As(Membership::Known)),
                Data::Asked => return Ok(Start::As(Membership::New)),
                Data::Recover(_) => return Ok(Start::Restore),
                Data::None => {}
            }
            tokio::pin!(asked);
            let found = tokio::select! {
                found = self.find_cluster() => found,
                // Nothing has been changed yet, and an address without a machine takes seconds.
                () = asked.as_mut() => continue,
            };
            let text = match found {
                Ok(None) if self.bootstraps_itself() => {
                    self.mark(None)?;
                    continue;
                }
                Ok(None) => String::new(),
                Ok(Some(found)) => match self.join(found).await {
                    Ok(members) => return Ok(Start::As(Membership::Join(members))),
                    Err(error) => format!("etcd does not join the cluster yet: {error}"),
                },
                Err(error) => format!("etcd does not join the cluster yet: {error}"),
            };
            if !text.is_empty() && text != said {
                self.runtime.journal.warn(&text);
            }
            if text.is_empty() && reminded.elapsed() >= REMINDER {
                reminded = Instant::now();
                self.runtime.journal.say(
                    "etcd waits: run `talosctl bootstrap` against one control plane node, if this is a new cluster",
                );
            }
            said = text;
            // Whichever comes first.
            let _ = tokio::time::timeout(JOIN_PERIOD, asked.as_mut()).await;
        }
    }

    /// Whether this node's member answers now.
    pub fn is_etcd_up(&self) -> bool {
        let record = self.runtime.services.record(ID);
        // A stopped service counts as up, since nothing waits for it.
        record.is_some_and(|record| record.state == State::Running) && self.runtime.services.is_up(ID)
    }

    fn bootstraps_itself(&self) -> bool {
        self.runtime.config().is_some_and(|config| config.machine.machine_type == MachineType::Init)
    }

    /// Puts the mark on the disk, and tells who waits for it.
    pub(super) fn mark(&self, recovery: Option<Recovery>) -> Result<(), Error> {
        state::mark(&self.runtime.root, recovery)?;
        self.asked.notify_waiters();
        Ok(())
    }
}

/// How etcd starts.
enum Start {
    /// As such a member.
    As(Membership),
    /// Behind its data being made of a snapshot.
    Restore,
}

fn make_data(root: &Path) -> Result<(), Error> {
    let failed = || failed("make", paths::ETCD_DATA);
    let directory = beneath::make_directory(root, Path::new(paths::ETCD_DATA), 0o700).map_err(failed())?;
    directory.set_mode(0o700).map_err(failed())?;
    directory.set_owner_below(Owner::Etcd.id()).map_err(failed())
}

/// How many members have to answer, where this one has no leader: a read that needs a majority has no answer then, and no reason.
async fn has_no_leader(root: &Path) -> Option<String> {
    let mut own = client::connect(root, Some(client::MEMBER_DEADLINE)).await.ok()?;
    if own.status().await.ok()?.leader() != 0 {
        return None;
    }
    let members = client::list(&mut own, client::ENDPOINT).await.ok()?.members;
    let voters = members.iter().filter(|member| !member.is_learner).count();
    Some(format!("etcd has no leader: of {voters} voting members {} have to answer", voters / 2 + 1))
}
