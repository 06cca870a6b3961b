//! Whether this node may be upgraded now: etcd has to bear that the node's member is away for a while.
//!
//! Owns: the sentences that clients of both generations know.
//! Order: under a mutex that the control plane nodes share, so that two of them are not found well by each other.
//! Source: etcd's documentation, "FAQ: What is failure tolerance?"; docs/users/upgrading.md.

use std::time::Duration;

use super::member::{Health, hex};
use super::mutex;
use super::state::is_member;
use crate::{Error, KubernetesNode, facts};

/// Of the mutex; clients of both generations know it.
const MUTEX: &str = "talos:v1:etcdUpgradeMutex";
/// The mutex is held while the members are asked.
const HOLD: Duration = Duration::from_secs(60);
/// For another node that asks now.
const PATIENCE: Duration = Duration::from_secs(15);
/// The members without one that is away have no majority.
const PAIR: usize = 2;

/// Why not.
#[derive(Debug, thiserror::Error)]
pub enum UpgradeError {
    /// Without one the other has no majority.
    #[error(
        "etcd member count(2) is insufficient to maintain quorum if upgrade commences: add a third control plane node first, or \
         upgrade with --force and be without the API server meanwhile"
    )]
    Pair,
    /// One has not started.
    #[error("etcd member {0} is not started, all members must be running to perform an upgrade")]
    NotStarted(String),
    /// One does not answer.
    #[error(
        "etcd member {id} is not healthy; all members must be healthy to perform an upgrade: {name} does not answer, {healthy} of \
         {members} do. Mend or remove it first; --force upgrades all the same"
    )]
    NotHealthy {
        /// Its id.
        id: String,
        /// Its name.
        name: String,
        /// Members that answer.
        healthy: usize,
        /// All members.
        members: usize,
    },
    /// Another node asks.
    #[error("another control plane node is about to be upgraded; try again in a minute")]
    Busy,
    /// Anything else.
    #[error("{0}; --force upgrades without asking etcd")]
    Other(#[from] Error),
}

/// Whether the cluster bears that one of these is away.
///
/// # Errors
/// [`UpgradeError`].
fn upgrade(all: &[Health]) -> Result<(), UpgradeError> {
    if let Some(one) = all.iter().find(|one| one.member.name.is_empty()) {
        return Err(UpgradeError::NotStarted(hex(one.member.id)));
    }
    if let Some(one) = all.iter().find(|one| !one.is_healthy) {
        let healthy = all.iter().filter(|one| one.is_healthy).count();
        let (id, name) = (hex(one.member.id), one.member.name.clone());
        return Err(UpgradeError::NotHealthy { id, name, healthy, members: all.len() });
    }
    if all.len() == PAIR { Err(UpgradeError::Pair) } else { Ok(()) }
}

impl KubernetesNode {
    /// Whether etcd bears an upgrade of this node. A node that is no member has none to ask.
    ///
    /// # Errors
    /// [`UpgradeError`].
    pub async fn may_upgrade(&self) -> Result<(), UpgradeError> {
        if !is_member(&self.runtime.root) {
            return Ok(());
        }
        let (name, _) = facts::names(&self.runtime).ok_or(Error::NoName)?;
        let taken = tokio::time::timeout(PATIENCE, mutex::take(&self.runtime.root, MUTEX, &name, HOLD)).await;
        let held = taken.map_err(|_| UpgradeError::Busy)??;
        let asked = self.etcd_health().await.map_err(UpgradeError::from).and_then(|all| upgrade(&all));
        // One that is not given back ends by itself.
        let released = held.release().await;
        asked?;
        Ok(released?)
    }
}

#[cfg(test)]
mod tests {
    use super::super::member::Member;
    use super::*;

    fn health(id: u64, name: &str, is_healthy: bool) -> Health {
        let member = Member {
            id,
            name: name.to_owned(),
            peer_urls: Vec::new(),
            client_urls: Vec::new(),
            is_learner: false,
        };
        Health { member, is_healthy }
    }

    #[test]
    fn refusals_say_what_is_missing() {
        let named =
            |count: u64| (1..=count).map(|id| health(id, &format!("cp-{id}"), true)).collect::<Vec<_>>();
        for count in [1, 3, 4, 5, 6, 7] {
            assert!(upgrade(&named(count)).is_ok(), "{count}");
        }
        let said = |all: &[Health]| upgrade(all).unwrap_err().to_string();
        assert_eq!(
            said(&named(2)),
            "etcd member count(2) is insufficient to maintain quorum if upgrade commences: add a third control plane node \
             first, or upgrade with --force and be without the API server meanwhile"
        );
        let mut all = named(3);
        all[1].is_healthy = false;
        assert_eq!(
            said(&all),
            "etcd member 0000000000000002 is not healthy; all members must be healthy to perform an upgrade: cp-2 does not \
             answer, 2 of 3 do. Mend or remove it first; --force upgrades all the same"
        );
        all.push(health(0xab, "", false));
        assert_eq!(
            said(&all),
            "etcd member 00000000000000ab is not started, all members must be running to perform an upgrade"
        );
    }
}
