//! What clients do with etcd's members: list, remove, leave, the leader, the state of a member, alarms, snapshots.
//!
//! Owns: that the quorum is counted before a member goes.
//! Order of a leave: the record says that this member is about to leave; the leader passes on; another member removes this one; the
//! record says that it has left; etcd stops; the data goes. Cut off anywhere, the next start goes on or keeps the member: a node
//! never comes back with data of a member that is gone.
//! Source: etcd's documentation, "Runtime reconfiguration" and "Maintenance".

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use etcd_client::{
    AlarmAction, AlarmOptions, AlarmType, Client, CompactionOptions, DowngradeOptions, SnapshotStreaming,
};

use super::client::{self, Access, ENDPOINT, Listed, QUORUM_DEADLINE, refused};
use super::election;
use super::member::{Health, Member, hex};
use super::quorum;
use super::record::{self, Record, Stage};
use super::state::{ID, is_member};
use crate::{Error, KubernetesNode};

/// In a member's errors, while etcd refuses writes.
const NO_SPACE: &str = "NOSPACE";
/// etcd's words where what is to go has gone.
const COMPACTED: &str = "required revision has been compacted";
/// For etcd to end.
const STOP_DEADLINE: Duration = Duration::from_secs(60);
/// Rewriting a database of some gigabytes on a slow disk.
const DEFRAGMENT_DEADLINE: Duration = Duration::from_secs(30 * 60);

/// Why a change of the members is refused.
#[derive(Debug, thiserror::Error)]
pub enum MemberError {
    /// No such member.
    #[error("failed to find {0:?} in list of etcd members; `etcd members` shows all")]
    Unknown(String),
    /// Several have the name.
    #[error("{0} members of etcd are called {1:?}: name one by its id")]
    Ambiguous(usize, String),
    /// The quorum.
    #[error(transparent)]
    Quorum(#[from] quorum::QuorumError),
    /// There is no other member to lead.
    #[error("cannot forfeit leadership, only one member")]
    Alone,
    /// There is another member, but none that could lead.
    #[error("cannot forfeit leadership: none of the {0} other voting members answers")]
    NoSuccessor(usize),
    /// It was asked before.
    #[error("this node leaves etcd's cluster already")]
    UnderWay,
    /// Anything else.
    #[error(transparent)]
    Other(#[from] Error),
}

/// What a member says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberStatus {
    /// Its id.
    pub id: u64,
    /// The version of etcd.
    pub version: String,
    /// Bytes of its database.
    pub size: i64,
    /// Bytes of that which are in use.
    pub in_use: i64,
    /// The leader's id; 0 without one.
    pub leader: u64,
    /// The last entry that it has.
    pub raft_index: u64,
    /// The term of the leader.
    pub raft_term: u64,
    /// The last entry that it applied.
    pub raft_applied_index: u64,
    /// What is wrong with it.
    pub errors: Vec<String>,
    /// Whether it has no vote.
    pub is_learner: bool,
    /// The version of what it keeps; empty before etcd 3.6.
    pub storage_version: String,
}

/// What an alarm is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AlarmKind {
    /// None.
    None,
    /// The database is as large as it may be.
    NoSpace,
    /// Members disagree.
    Corrupt,
}

/// An alarm: while there is one, etcd refuses what would make it worse.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Alarm {
    /// The member.
    pub member: u64,
    /// What it is about.
    pub kind: AlarmKind,
}

impl KubernetesNode {
    /// The members of etcd's cluster, as this node's member lists them, by name.
    ///
    /// # Errors
    /// [`Error::Etcd`], [`Error::File`].
    pub async fn etcd_members(&self) -> Result<Vec<Member>, Error> {
        let mut own = client::connect(&self.runtime.root, Some(QUORUM_DEADLINE)).await?;
        Ok(client::list(&mut own, ENDPOINT).await?.members)
    }

    /// Removes the member of this name, or with this id in 16 hexadecimal digits.
    ///
    /// # Errors
    /// [`MemberError`]; nothing has changed then.
    pub async fn remove_etcd_member(&self, name: &str) -> Result<(), MemberError> {
        let members = self.etcd_members().await?;
        let named: Vec<&Member> = members.iter().filter(|member| member.title() == name).collect();
        match named[..] {
            [member] => self.remove_etcd_member_by_id(member.id).await,
            [] => Err(MemberError::Unknown(name.to_owned())),
            _ => Err(MemberError::Ambiguous(named.len(), name.to_owned())),
        }
    }

    /// Removes a member.
    ///
    /// # Errors
    /// [`MemberError`]; nothing has changed then.
    pub async fn remove_etcd_member_by_id(&self, id: u64) -> Result<(), MemberError> {
        let Asked { access, mut client, place, listed } = self.all_members().await?;
        if listed.members.iter().all(|member| member.id != id) {
            return Err(MemberError::Unknown(hex(id)));
        }
        quorum::removal(&client::health(&access, &listed.members).await, id)?;
        client::remove(&mut client, &place, id).await?;
        self.runtime.journal.say(&format!("etcd: member {} is removed", hex(id)));
        Ok(())
    }

    /// Has this node's member leave the cluster, stops etcd and removes its data. A node that is no member has nothing to leave.
    ///
    /// # Errors
    /// [`MemberError`]; before the cluster has removed the member, nothing has changed.
    pub async fn leave_etcd(&self) -> Result<(), MemberError> {
        // etcd ends with its membership, and would join anew before it is stopped.
        let _leaving = Leaving::begin(&self.leaving)?;
        let root = self.runtime.root.clone();
        let has_left = record::read(&root)?.is_some_and(|record| record.stage == Stage::Left);
        if !has_left {
            if !is_member(&root) {
                return Ok(());
            }
            self.be_removed().await?;
        }
        let ids = [ID.to_owned()];
        self.runtime.services.stop(ID);
        self.runtime.services.wait_down(&ids, STOP_DEADLINE).await.map_err(|_| Error::Stop {
            what: ID,
            reason: format!("it has not ended within {} s", STOP_DEADLINE.as_secs()),
        })?;
        record::remove_with_data(&root)?;
        self.runtime.journal.say("etcd: this node has left the cluster; its data is removed");
        Ok(())
    }

    async fn be_removed(&self) -> Result<(), MemberError> {
        let root = &self.runtime.root;
        let Asked { access, listed, .. } = self.all_members().await?;
        let id = own_id(&access).await?;
        let health = client::health(&access, &listed.members).await;
        quorum::removal(&health, id)?;
        let endpoints = listed.endpoints(id);
        let record = Record { cluster: listed.cluster, member: id, endpoints, stage: Stage::Leaving };
        record::keep(root, &record)?;
        let removed = async {
            // It cannot answer for its own removal once it is removed.
            pass_on(&access, id, &health).await?;
            let (found, mut errors) = client::first(&access, record.endpoints.clone()).await;
            let Some((mut other, place, _)) = found else {
                return Err(errors.pop().unwrap_or_else(|| client::late(ENDPOINT, QUORUM_DEADLINE)).into());
            };
            Ok::<_, MemberError>(client::remove(&mut other, &place, id).await?)
        };
        if let Err(error) = removed.await {
            // Where the answer was lost, the cluster may have done it: the next start asks.
            if let Ok(asked) = self.all_members().await
                && asked.listed.members.iter().any(|member| member.id == id)
            {
                record::keep(root, &Record { stage: Stage::Member, ..record })?;
            }
            return Err(error);
        }
        record::keep(root, &Record { stage: Stage::Left, ..record })?;
        self.runtime.journal.say(&format!("etcd: the cluster has removed this node's member {}", hex(id)));
        Ok(())
    }

    /// Has another member lead, if this one does; answers its name.
    ///
    /// # Errors
    /// [`MemberError`].
    pub async fn forfeit_etcd_leadership(&self) -> Result<Option<String>, MemberError> {
        let Asked { access, listed, .. } = self.all_members().await?;
        if listed.members.len() == 1 {
            return Err(MemberError::Alone);
        }
        let id = own_id(&access).await?;
        let health = client::health(&access, &listed.members).await;
        let successor = pass_on(&access, id, &health).await?;
        if let Some(successor) = &successor {
            self.runtime.journal.say(&format!("etcd: {} leads from now on", successor.title()));
        }
        Ok(successor.map(|member| member.title()))
    }

    /// Has a member lead whose node has no shared address, if this node's member leads: a node that dies with both costs the
    /// address an election of etcd beside its own. Answers which; `None` where this member does not lead or no other fits.
    ///
    /// # Errors
    /// [`MemberError::Other`].
    pub async fn pass_etcd_leadership_on(&self) -> Result<Option<String>, MemberError> {
        let status = self.etcd_status().await?;
        if status.leader != status.id {
            return Ok(None);
        }
        let Asked { access, mut client, listed, .. } = self.all_members().await?;
        let holders = election::holders(&mut client).await?;
        let mut health = client::health(&access, &listed.members).await;
        health.retain(|one| one.member.id == status.id || !holders.contains(&one.member.name));
        match pass_on(&access, status.id, &health).await {
            Ok(successor) => Ok(successor.map(|member| member.title())),
            Err(MemberError::NoSuccessor(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether this node's member could leave now: a node that is no member could.
    ///
    /// # Errors
    /// [`MemberError`].
    pub async fn may_leave_etcd(&self) -> Result<(), MemberError> {
        let root = &self.runtime.root;
        let has_left = record::read(root)?.is_some_and(|record| record.stage == Stage::Left);
        if has_left || !is_member(root) {
            return Ok(());
        }
        let asked = self.all_members().await?;
        let id = own_id(&asked.access).await?;
        Ok(quorum::removal(&client::health(&asked.access, &asked.listed.members).await, id)?)
    }

    /// How all members do.
    pub(super) async fn etcd_health(&self) -> Result<Vec<Health>, Error> {
        let asked = self.all_members().await?;
        Ok(client::health(&asked.access, &asked.listed.members).await)
    }

    /// The members, from this node's or, where that one has no vote, from another.
    async fn all_members(&self) -> Result<Asked, Error> {
        let access = Access::read(&self.runtime.root)?;
        let own = async {
            let mut client = access.connect(ENDPOINT, Some(QUORUM_DEADLINE)).await?;
            let listed = client::list(&mut client, ENDPOINT).await?;
            Ok((client, listed))
        };
        let error = match own.await {
            Ok((client, listed)) => {
                return Ok(Asked { access, client, place: ENDPOINT.to_owned(), listed });
            }
            Err(error) => error,
        };
        let others = record::read(&self.runtime.root)?.map(|record| record.endpoints).unwrap_or_default();
        match client::first(&access, others).await.0 {
            Some((client, place, listed)) => Ok(Asked { access, client, place, listed }),
            None => Err(error),
        }
    }

    /// What this node's member says of itself. It needs no quorum.
    ///
    /// # Errors
    /// [`Error::Etcd`], [`Error::File`].
    pub async fn etcd_status(&self) -> Result<MemberStatus, Error> {
        let mut own = client::connect(&self.runtime.root, Some(QUORUM_DEADLINE)).await?;
        let status = own.status().await.map_err(refused(ENDPOINT))?;
        Ok(MemberStatus {
            id: status.header().map(etcd_client::ResponseHeader::member_id).unwrap_or_default(),
            version: status.version().to_owned(),
            size: status.db_size(),
            in_use: status.raft_used_db_size(),
            leader: status.leader(),
            raft_index: status.raft_index(),
            raft_term: status.raft_term(),
            raft_applied_index: status.raft_applied_index(),
            errors: status.errors().to_vec(),
            is_learner: status.is_learner(),
            storage_version: status.storage_version().to_owned(),
        })
    }

    /// The alarms of the cluster.
    ///
    /// # Errors
    /// [`Error::Etcd`], [`Error::File`].
    pub async fn etcd_alarms(&self) -> Result<Vec<Alarm>, Error> {
        let mut own = client::connect(&self.runtime.root, Some(QUORUM_DEADLINE)).await?;
        alarms(&mut own).await
    }

    /// Ends the alarms; answers which there were. One whose cause is still there comes back.
    ///
    /// # Errors
    /// [`Error::Etcd`], [`Error::File`].
    pub async fn disarm_etcd(&self) -> Result<Vec<Alarm>, Error> {
        let mut own = client::connect(&self.runtime.root, Some(QUORUM_DEADLINE)).await?;
        let all = alarms(&mut own).await?;
        for alarm in &all {
            let kind = match alarm.kind {
                AlarmKind::None => AlarmType::None,
                AlarmKind::NoSpace => AlarmType::Nospace,
                AlarmKind::Corrupt => AlarmType::Corrupt,
            };
            let mut options = AlarmOptions::new();
            options.with_member(alarm.member);
            let asked = own.alarm(AlarmAction::Deactivate, kind, Some(options)).await;
            asked.map_err(refused(ENDPOINT))?;
        }
        Ok(all)
    }

    /// Rewrites the database of this node's member without what is no longer used. The member does not answer meanwhile.
    ///
    /// While there is no space, what objects were before goes first. The API server removes that otherwise, but notes it with a
    /// write, which etcd refuses then, so that the room of removed objects would never be free.
    ///
    /// # Errors
    /// [`Error::Etcd`], [`Error::File`].
    pub async fn defragment_etcd(&self) -> Result<(), Error> {
        let mut own = client::connect(&self.runtime.root, Some(DEFRAGMENT_DEADLINE)).await?;
        // The member itself: alarms are told by a quorum, which there may be none of.
        let status = own.status().await.map_err(refused(ENDPOINT))?;
        if status.errors().iter().any(|error| error.contains(NO_SPACE)) {
            let now = status.header().map(etcd_client::ResponseHeader::revision).unwrap_or_default();
            self.forget_the_past(&mut own, now).await?;
        }
        own.defragment().await.map(drop).map_err(refused(ENDPOINT))
    }

    /// Has etcd keep only what every object is at this revision.
    async fn forget_the_past(&self, own: &mut Client, now: i64) -> Result<(), Error> {
        // Physical: it answers when the room is free in the file.
        match own.compact(now, Some(CompactionOptions::new().with_physical())).await {
            Ok(_) => self
                .runtime
                .journal
                .say(&format!("etcd: no space: what was before revision {now} is removed")),
            // For another member, a moment ago.
            Err(error) if error.to_string().contains(COMPACTED) => {}
            Err(error) => return Err(refused(ENDPOINT)(error)),
        }
        Ok(())
    }

    /// The database of this node's member as a stream: what `etcdctl snapshot save` writes, its digest at the end.
    ///
    /// # Errors
    /// [`Error::Etcd`], [`Error::File`].
    pub async fn etcd_snapshot(&self) -> Result<Snapshot, Error> {
        let mut own = client::connect(&self.runtime.root, None).await?;
        let asked = tokio::time::timeout(QUORUM_DEADLINE, own.snapshot()).await;
        let stream =
            asked.map_err(|_| client::late(ENDPOINT, QUORUM_DEADLINE))?.map_err(refused(ENDPOINT))?;
        Ok(Snapshot { stream })
    }

    /// Asks whether the cluster could be one of an older version, has it become that, or not.
    ///
    /// # Errors
    /// [`Error::Etcd`] with etcd's words where it refuses; [`Error::File`].
    pub async fn downgrade_etcd(&self, action: Downgrade, version: &str) -> Result<String, Error> {
        let own = client::connect(&self.runtime.root, Some(QUORUM_DEADLINE)).await?;
        let version = version.to_owned();
        let options = match action {
            Downgrade::Validate => DowngradeOptions::Validate(version),
            Downgrade::Enable => DowngradeOptions::Enable(version),
            Downgrade::Cancel => DowngradeOptions::Cancel,
        };
        let answer = own.maintenance_client().downgrade(options).await.map_err(refused(ENDPOINT))?;
        Ok(answer.version().to_owned())
    }
}

/// What is asked of a downgrade.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Downgrade {
    /// Whether it could be.
    Validate,
    /// That it begins.
    Enable,
    /// That it does not.
    Cancel,
}

/// A snapshot that arrives.
pub struct Snapshot {
    stream: SnapshotStreaming,
}

impl Snapshot {
    /// Its next part; `None` at the end.
    ///
    /// # Errors
    /// [`Error::Etcd`]; what came until then is no snapshot.
    pub async fn next(&mut self) -> Result<Option<Vec<u8>>, Error> {
        let part = tokio::time::timeout(QUORUM_DEADLINE, self.stream.message()).await;
        let part = part.map_err(|_| client::late(ENDPOINT, QUORUM_DEADLINE))?.map_err(refused(ENDPOINT))?;
        Ok(part.map(|part| part.blob().to_vec()))
    }
}

/// Keeps etcd from joining anew, until it is dropped.
struct Leaving<'a>(&'a AtomicBool);

impl<'a> Leaving<'a> {
    fn begin(leaving: &'a AtomicBool) -> Result<Self, MemberError> {
        if leaving.swap(true, Ordering::SeqCst) { Err(MemberError::UnderWay) } else { Ok(Self(leaving)) }
    }
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

/// Members, and who listed them.
struct Asked {
    access: Access,
    client: Client,
    place: String,
    listed: Listed,
}

async fn own_id(access: &Access) -> Result<u64, Error> {
    let mut own = access.connect(ENDPOINT, Some(QUORUM_DEADLINE)).await?;
    let status = own.status().await.map_err(refused(ENDPOINT))?;
    Ok(status.header().map(etcd_client::ResponseHeader::member_id).unwrap_or_default())
}

async fn alarms(own: &mut Client) -> Result<Vec<Alarm>, Error> {
    let asked = own.alarm(AlarmAction::Get, AlarmType::None, None).await.map_err(refused(ENDPOINT))?;
    let kind = |kind| match kind {
        AlarmType::None => AlarmKind::None,
        AlarmType::Nospace => AlarmKind::NoSpace,
        AlarmType::Corrupt => AlarmKind::Corrupt,
    };
    let one =
        |alarm: &etcd_client::AlarmMember| Alarm { member: alarm.member_id(), kind: kind(alarm.alarm()) };
    Ok(asked.alarms().iter().map(one).collect())
}

/// Has a healthy voter lead, if `id` does; answers which.
async fn pass_on(access: &Access, id: u64, all: &[Health]) -> Result<Option<Member>, MemberError> {
    let mut own = access.connect(ENDPOINT, Some(QUORUM_DEADLINE)).await?;
    let status = own.status().await.map_err(refused(ENDPOINT)).map_err(MemberError::Other)?;
    if status.leader() != id {
        return Ok(None);
    }
    let others = || all.iter().filter(|one| one.member.id != id && !one.member.is_learner);
    let successor = others().find(|one| one.is_healthy);
    let successor = successor.ok_or_else(|| MemberError::NoSuccessor(others().count()))?.member.clone();
    own.move_leader(successor.id).await.map_err(refused(ENDPOINT)).map_err(MemberError::Other)?;
    Ok(Some(successor))
}
