//! Snapshots of etcd that a control plane node takes by itself.
//!
//! | task | reads | writes | ends |
//! |---|---|---|---|
//! | [`KubernetesNode::keep_snapshots`] | the config, etcd of this node | /var/lib/etcd.snapshots, the target, `EtcdSnapshotStatuses` | with machined |
//!
//! | file | what |
//! |---|---|
//! | `kept` | the snapshots on the disk |
//! | `target` | where each is put beside, and how |
//! | `record` | the last one, over restarts, as the resource shows it |
//!
//! Owns: when one is due, and that a failure is said once and tried again.
//! Order: a snapshot has its name when its digest is right and it is on the disk; then older ones go; then it is put to the target.
//! Does not: remove anything at the target.
//! Source: docs/users/backup.md.

mod kept;
mod record;
mod target;

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use config::own::{EtcdSnapshots, SnapshotTarget};
use jiff::Timestamp;
use recovery::{Recipient, seal};
use runtime::store::{ETCD_SNAPSHOT_STATUS, Spec};

pub use target::{Put, What};

use super::client;
use crate::published::replace;
use crate::{Error, KubernetesNode};
use kept::{Kept, Made};
use record::{PutRecord, Record};

/// Puts something to an address within a deadline of its own: why not, for people.
pub type Upload = Arc<dyn Fn(Put) -> Pin<Box<dyn Future<Output = Result<(), String>> + Send>> + Send + Sync>;

/// The only resource of its type.
const ID: &str = "local";
/// From a start of etcd to the first snapshot of all: an empty cluster is of no use.
const FIRST: Duration = Duration::from_secs(5 * 60);
/// After a failure, where the interval is not shorter.
const RETRY: Duration = Duration::from_secs(5 * 60);
/// Until etcd runs, and between two looks at the clock, which may step.
const LOOK: Duration = Duration::from_secs(10);

/// What the loop knows, beside what is on the disk.
struct Schedule {
    record: Record,
    /// When etcd was first seen running.
    up_since: Option<Timestamp>,
    /// No attempt of this kind before.
    next_take: Option<Timestamp>,
    next_put: Option<Timestamp>,
    said: String,
}

impl KubernetesNode {
    /// Takes snapshots as the config wants them, for as long as this is polled.
    pub async fn keep_snapshots(&self, upload: Upload) {
        let mut config = self.runtime.config.subscribe();
        let mut schedule: Option<Schedule> = None;
        loop {
            config.mark_unchanged();
            if self.is_control_plane() && self.is_etcd_up() {
                let schedule =
                    schedule.get_or_insert_with(|| Schedule::new(Record::load(&self.runtime.root)));
                self.keep_schedule(schedule, &upload).await;
            } else if !self.is_control_plane() {
                replace(&self.runtime, &ETCD_SNAPSHOT_STATUS, Vec::<(String, Spec)>::new());
            }
            tokio::select! {
                changed = config.changed() => if changed.is_err() { return },
                () = tokio::time::sleep(LOOK) => {}
            }
        }
    }

    fn is_control_plane(&self) -> bool {
        self.runtime.config().is_some_and(|config| config.machine.machine_type.is_control_plane())
    }

    async fn keep_schedule(&self, schedule: &mut Schedule, upload: &Upload) {
        let Some(document) = self.runtime.document() else { return };
        let settings = EtcdSnapshots::of(&document.documents);
        let due = schedule.due(&settings, Timestamp::now());
        if due.is_some_and(|due| due <= Timestamp::now()) {
            let taken = self.take_snapshot(&settings).await;
            schedule.took(taken, &settings);
            self.say_of(schedule);
            schedule.record.store(&self.runtime.root, &self.runtime.journal);
        }
        if let Some(target) = schedule.put_due(&settings, Timestamp::now()).cloned()
            && let Some(made) = schedule.record.made.clone()
        {
            let put = self.put_snapshot(&made, &target, &settings.recipients, &document.text, upload).await;
            schedule.put(put, &made, &target);
            self.say_of(schedule);
            schedule.record.store(&self.runtime.root, &self.runtime.journal);
        }
        self.publish_snapshots(schedule, &settings);
    }

    async fn take_snapshot(&self, settings: &EtcdSnapshots) -> Result<Made, Error> {
        let status = client::connect(&self.runtime.root, Some(client::QUORUM_DEADLINE)).await?;
        let size =
            status.maintenance_client().status().await.map_err(client::refused(client::ENDPOINT))?.db_size();
        let kept = Kept::open(&self.runtime.root)?;
        kept.make_room(u64::try_from(size).unwrap_or_default())?;
        let mut arriving = kept.begin(Timestamp::now())?;
        let mut stream = self.etcd_snapshot().await?;
        while let Some(part) = stream.next().await? {
            arriving.take(&part).await?;
        }
        let made = arriving.finish().await?;
        kept.keep(usize::from(settings.keep))?;
        Ok(made)
    }

    async fn put_snapshot(
        &self,
        made: &Made,
        target: &SnapshotTarget,
        recipients: &[Recipient],
        config: &str,
        upload: &Upload,
    ) -> Result<(), String> {
        let name = self.node_name_of_snapshots()?;
        let kept = Kept::open(&self.runtime.root).map_err(|error| error.to_string())?;
        let file = kept.file(&made.file).map_err(|error| error.to_string())?;
        upload(target::put(target, &name, &made.file, What::File(file, made.bytes))?).await?;
        if !recipients.is_empty() {
            let sealed = seal(config.as_bytes(), recipients).map_err(|error| error.to_string())?;
            let file = made.file.replace(kept::SUFFIX, ".config.yaml.age");
            upload(target::put(target, &name, &file, What::Bytes(sealed))?).await?;
        }
        Ok(())
    }

    /// Of the directory at the target.
    fn node_name_of_snapshots(&self) -> Result<String, String> {
        let config = self.runtime.config().ok_or("there is no config")?;
        let cluster = kubernetes::Cluster::new(&config).map_err(|error| error.to_string())?;
        let node = crate::facts::node(&self.runtime, &cluster, self.is_container)
            .map_err(|error| error.to_string())?;
        Ok(cluster.node_name(&node))
    }

    fn say_of(&self, schedule: &mut Schedule) {
        let text = schedule.record.error.clone().unwrap_or_default();
        if text != schedule.said && !text.is_empty() {
            self.runtime.journal.warn(&format!("snapshot of etcd: {text}"));
        }
        schedule.said = text;
    }

    fn publish_snapshots(&self, schedule: &mut Schedule, settings: &EtcdSnapshots) {
        let kept = Kept::open(&self.runtime.root).and_then(|kept| kept.names()).map(|names| names.len());
        let next = schedule.due(settings, Timestamp::now());
        let fields = schedule.record.fields(kept.unwrap_or_default(), next, settings.target.as_ref());
        let resource = (ID.to_owned(), Spec::Fields(fields));
        replace(&self.runtime, &ETCD_SNAPSHOT_STATUS, [resource]);
    }
}

impl Schedule {
    fn new(record: Record) -> Self {
        Self { record, up_since: None, next_take: None, next_put: None, said: String::new() }
    }

    /// When the next one is to be taken; `None`: never.
    fn due(&mut self, settings: &EtcdSnapshots, now: Timestamp) -> Option<Timestamp> {
        let up_since = *self.up_since.get_or_insert(now);
        let interval = settings.interval?;
        let regular = match &self.record.made {
            // A clock that was ahead does not keep the next one back.
            Some(made) if made.taken > now => now,
            Some(made) => later(made.taken, interval),
            None => later(up_since, interval.min(FIRST)),
        };
        // After a failure.
        Some(self.next_take.map_or(regular, |retry| retry.max(regular)))
    }

    fn took(&mut self, taken: Result<Made, Error>, settings: &EtcdSnapshots) {
        match taken {
            Ok(made) => {
                self.record.made = Some(made);
                self.record.error = None;
                (self.next_take, self.next_put) = (None, None);
            }
            Err(error) => {
                self.record.error = Some(error.to_string());
                let pause = settings.interval.unwrap_or(RETRY).min(RETRY);
                self.next_take = Some(later(Timestamp::now(), pause));
            }
        }
    }

    /// The target that does not have the last one yet.
    fn put_due<'a>(&self, settings: &'a EtcdSnapshots, now: Timestamp) -> Option<&'a SnapshotTarget> {
        let target = settings.target.as_ref()?;
        let made = self.record.made.as_ref()?;
        let is_there =
            self.record.put.as_ref().is_some_and(|put| put.file == made.file && put.target == target.shown());
        let is_early = self.next_put.is_some_and(|retry| now < retry);
        (!is_there && !is_early).then_some(target)
    }

    fn put(&mut self, put: Result<(), String>, made: &Made, target: &SnapshotTarget) {
        let target = target.shown();
        match put {
            Ok(()) => {
                self.record.put = Some(PutRecord { file: made.file.clone(), target, at: Timestamp::now() });
                self.record.error = None;
                self.next_put = None;
            }
            Err(error) => {
                self.record.error = Some(format!("put {} to {target}: {error}", made.file));
                self.next_put = Some(later(Timestamp::now(), RETRY));
            }
        }
    }
}

/// Times that far ahead are never reached.
fn later(time: Timestamp, by: Duration) -> Timestamp {
    time.checked_add(by).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn made(taken: Timestamp) -> Made {
        Made { file: kept::name(taken), taken, bytes: 9, sha256: String::new() }
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    #[test]
    fn a_snapshot_is_due_an_interval_after_the_last_one() {
        let settings = EtcdSnapshots::default();
        let mut schedule = Schedule::new(Record::default());
        assert_eq!(schedule.due(&settings, at(1000)), Some(at(1300)));
        assert_eq!(schedule.due(&settings, at(1200)), Some(at(1300)), "from when etcd was first seen");
        schedule.took(Ok(made(at(1300))), &settings);
        assert_eq!(schedule.due(&settings, at(1400)), Some(at(4900)));
        // A machine that was off, and one whose clock was ahead.
        assert_eq!(schedule.due(&settings, at(90_000)), Some(at(4900)));
        assert_eq!(schedule.due(&settings, at(200)), Some(at(200)));
        let off = EtcdSnapshots { interval: None, ..EtcdSnapshots::default() };
        assert_eq!(schedule.due(&off, at(9000)), None);
    }

    #[test]
    fn a_failure_is_tried_again_after_a_pause() {
        let settings = EtcdSnapshots { interval: Some(HOUR), ..EtcdSnapshots::default() };
        let mut schedule = Schedule::new(Record::default());
        let begin = Timestamp::now();
        schedule.took(Err(Error::NoEtcd), &settings);
        assert!(schedule.record.error.is_some());
        let due = schedule.due(&settings, begin).unwrap();
        assert!(due >= later(begin, RETRY) && due < later(begin, RETRY * 2), "{due}");
        schedule.took(Ok(made(begin)), &settings);
        assert_eq!((schedule.record.error.clone(), schedule.next_take), (None, None));
    }

    #[test]
    fn each_snapshot_is_put_once_and_again_to_another_target() {
        let target = |host: &str| SnapshotTarget::Http {
            url: config::Secret::new(format!("https://me:secret@{host}/etcd")),
            authorization: None,
        };
        let mut settings = EtcdSnapshots { target: Some(target("a")), ..EtcdSnapshots::default() };
        let mut schedule = Schedule::new(Record::default());
        assert!(schedule.put_due(&settings, at(9)).is_none(), "there is none");
        let first = made(at(1300));
        schedule.took(Ok(first.clone()), &settings);
        assert!(schedule.put_due(&settings, Timestamp::now()).is_some());
        schedule.put(Err("no answer".into()), &first, &target("a"));
        assert_eq!(
            schedule.record.error.as_deref(),
            Some("put 1970-01-01T00-21-40Z.db to https://a/etcd: no answer")
        );
        assert!(schedule.put_due(&settings, Timestamp::now()).is_none(), "too early");
        assert!(schedule.put_due(&settings, later(Timestamp::now(), RETRY * 2)).is_some());
        schedule.put(Ok(()), &first, &target("a"));
        assert!(schedule.put_due(&settings, later(Timestamp::now(), RETRY * 2)).is_none());
        settings.target = Some(target("b"));
        assert!(schedule.put_due(&settings, Timestamp::now()).is_some());
    }
}
