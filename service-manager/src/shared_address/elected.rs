//! An address that etcd's election gives to one control plane node.
//!
//! Owns: when this node may have it: it leads the election, its etcd is healthy, and it serves.
//! Order: the lease is renewed, then the address in the kernel lives on, for less time than is left of the lease. A machined that
//! hangs or dies loses the address before another node leads. A new leader waits until the kernel of a dead one has let go, and
//! does not wait for one that said in etcd that it has.
//! Does not: hold an address without etcd.
//! Source: docs/users/shared-address.md.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use kubernetes_node::KubernetesNode;
use kubernetes_node::etcd::election::{Candidate, LEASE, RENEWAL_DEADLINE, Standing};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use super::cluster::Cluster;
use super::leadership;
use super::link::{RETRY, place};
use super::serving::Serving;
use crate::network::Owned;
use crate::network::shared::{LIFETIME, Place};

/// Between two renewals.
const PERIOD: Duration = Duration::from_millis(250);
/// How often a new holder is announced.
const ANNOUNCEMENTS: u32 = 8;
/// From the first sight of leading to the address: what the kernel of a holder that died may need beyond its lease.
const GUARD: Duration = LIFETIME
    .saturating_sub(LEASE)
    .saturating_add(RENEWAL_DEADLINE)
    .saturating_add(Duration::from_millis(150));

/// Stands for the address, and has it while this node leads, until `ends` says otherwise.
pub(super) async fn hold(
    cluster: Arc<Cluster>,
    link: String,
    address: IpAddr,
    mut ends: watch::Receiver<()>,
) {
    let place = place(&cluster, &link, address).await;
    let mut holder = Holder {
        cluster,
        link,
        address,
        place,
        serving: Serving::default(),
        candidate: None,
        leader: String::new(),
        free_at: None,
        until: None,
        announcements: 0,
        said: String::new(),
        leadership: None,
    };
    loop {
        let period = match holder.step().await {
            Ok(()) => PERIOD,
            Err(error) => holder.failed(&error).await,
        };
        tokio::select! {
            // Nothing is ever sent.
            _ = ends.changed() => return holder.leave("it is in the configuration no longer").await,
            () = sleep(period) => {}
        }
    }
}

/// How long a new leader waits behind `leader`, the one that it saw before: not at all where that one is the last that let go.
fn guard(leader: &str, released: &str) -> Duration {
    if !leader.is_empty() && leader == released { Duration::ZERO } else { GUARD }
}

struct Holder {
    cluster: Arc<Cluster>,
    link: String,
    address: IpAddr,
    place: Place,
    serving: Serving,
    candidate: Option<Candidate>,
    /// The candidate that led when this one looked last.
    leader: String,
    /// Since it leads: from when on it may have the address.
    free_at: Option<Instant>,
    /// This node has the address until then, unless the lease is renewed.
    until: Option<Instant>,
    announcements: u32,
    said: String,
    /// Runs while this node has the address.
    leadership: Option<Owned>,
}

impl Holder {
    async fn step(&mut self) -> Result<(), String> {
        let cluster = self.cluster.clone();
        let Some(kubernetes) = cluster.kubernetes.get() else { return Ok(()) };
        if let Err(reason) = self.may_serve(kubernetes).await {
            self.leave(&reason).await;
            return Ok(());
        }
        if self.candidate.is_none() {
            let candidate = kubernetes.stand_for(self.address).await.map_err(|error| error.to_string())?;
            self.candidate = Some(candidate);
            // Who led while this node was no candidate is not known.
            self.leader.clear();
        }
        let Some(candidate) = &mut self.candidate else { return Ok(()) };
        match candidate.renew().await.map_err(|error| error.to_string())? {
            Standing::Leads(until) => self.lead(until).await,
            Standing::Late(took) => {
                let text = format!("etcd took {} ms to renew the lease", took.as_millis());
                if self.said.is_empty() {
                    self.say(&text);
                    self.said = text;
                }
                Ok(())
            }
            Standing::Follows(leader) => {
                self.leader = leader;
                self.free_at = None;
                self.let_go("another node leads").await;
                Ok(())
            }
        }
    }

    async fn lead(&mut self, until: Instant) -> Result<(), String> {
        let free_at = match (self.free_at, &mut self.candidate) {
            (Some(free_at), _) => free_at,
            (None, Some(candidate)) => {
                let released = candidate.last_released().await.map_err(|error| error.to_string())?;
                Instant::now() + guard(&self.leader, &released)
            }
            (None, None) => return Ok(()),
        };
        self.free_at = Some(free_at);
        if Instant::now() < free_at {
            return Ok(());
        }
        let is_new = self.until.is_none();
        self.place.hold().await?;
        self.until = Some(until);
        self.said.clear();
        if is_new {
            self.announcements = ANNOUNCEMENTS;
            self.leadership =
                Some(Owned(tokio::spawn(leadership::pass_on(self.cluster.clone())).abort_handle()));
            self.say(&format!(
                "enabled shared IP {:?} on interface {:?}",
                self.address.to_string(),
                self.link
            ));
        }
        if self.announcements > 0 {
            self.announcements -= 1;
            self.place.announce().await?;
        }
        Ok(())
    }

    /// Whether clients would find a control plane here.
    async fn may_serve(&mut self, kubernetes: &KubernetesNode) -> Result<(), String> {
        if !kubernetes.is_etcd_up() {
            return Err("etcd is not healthy".to_owned());
        }
        self.serving.look(&self.cluster, kubernetes).await
    }

    /// What failed may pass by while the lease lasts. When to try again.
    async fn failed(&mut self, error: &str) -> Duration {
        if self.said != error {
            self.cluster.runtime.journal.warn(&format!("vip {}: {error}", self.address));
            error.clone_into(&mut self.said);
        }
        if self.until.is_some_and(|until| Instant::now() < until) {
            return PERIOD;
        }
        // Another attempt begins with a lease of its own; this one's ends by itself.
        self.candidate = None;
        self.free_at = None;
        self.let_go(error).await;
        RETRY
    }

    /// Is no candidate any more.
    async fn leave(&mut self, reason: &str) {
        let has_let_go = self.let_go(reason).await;
        self.free_at = None;
        if let Some(candidate) = self.candidate.take() {
            // Its lease ends by itself.
            let _ = candidate.resign(has_let_go).await;
        }
    }

    /// Answers whether this node had the address, and its kernel has it no longer.
    async fn let_go(&mut self, reason: &str) -> bool {
        if self.until.take().is_none() {
            return false;
        }
        self.leadership = None;
        let dropped = self.place.drop_address().await;
        if let Err(error) = &dropped {
            self.say(&format!("{error}; the kernel removes it within {} s", LIFETIME.as_secs()));
        }
        self.say(&format!(
            "removing shared IP {:?} on interface {:?}: {reason}",
            self.address.to_string(),
            self.link
        ));
        dropped.is_ok()
    }

    fn say(&self, text: &str) {
        self.cluster.runtime.journal.say(&format!("vip: {text}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leader_waits_for_every_kernel_but_one_that_has_let_go() {
        assert_eq!(guard("a/1", "a/1"), Duration::ZERO);
        // One that died; one of which this node has not heard; none that ever let go.
        for (leader, released) in [("a/2", "a/1"), ("", "a/1"), ("", ""), ("a/1", "")] {
            assert_eq!(guard(leader, released), GUARD, "{leader} {released}");
        }
    }
}
