//! Addresses that control plane nodes share: one of them has each at a time, and clients reach the cluster by it.
//!
//! | task | reads | writes | ends |
//! |---|---|---|---|
//! | [`run`] | `OperatorSpecs`, the config | one holder an address | with machined |
//! | [`Holder`] | etcd's election, the API server of this node | the link's address | with the address in the config |
//!
//! Owns: when this node may have an address: it leads the election, its etcd is healthy, its API server serves, its kubelet runs.
//! Order: the lease is renewed, then the address in the kernel lives on, for less time than is left of the lease. A machined that
//! hangs or dies loses the address before another node leads. A new leader waits until the kernel of a dead one has let go.
//! Does not: hold an address without etcd.
//! Source: docs/users/shared-address.md.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use kubernetes_node::etcd::election::{Candidate, LEASE, RENEWAL_DEADLINE, Standing};
use kubernetes_node::{KubernetesNode, OwnApiServer, kubelet};
use runtime::services::machine::State;
use runtime::store::OPERATOR_SPEC;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use crate::network::shared::{LIFETIME, Place};
use crate::node::Node;

/// Between two renewals.
const PERIOD: Duration = Duration::from_millis(250);
/// Between two looks at the API server.
const LOOK_PERIOD: Duration = Duration::from_secs(1);
/// How often it may fail before the address goes elsewhere.
const MAX_FAILURES: u32 = 3;
/// After an error.
const RETRY: Duration = Duration::from_secs(1);
/// How often a new holder is announced.
const ANNOUNCEMENTS: u32 = 8;
/// From the first sight of leading to the address: what the kernel of a holder that died may need beyond its lease.
const GUARD: Duration = LIFETIME
    .saturating_sub(LEASE)
    .saturating_add(RENEWAL_DEADLINE)
    .saturating_add(Duration::from_millis(150));

type Shared = (String, IpAddr);

/// Follows the addresses of the config.
pub(crate) async fn run(node: Arc<Node>) {
    let mut holders: BTreeMap<Shared, watch::Sender<()>> = BTreeMap::new();
    let mut changes = node.runtime.store.changes();
    let mut config = node.runtime.config.subscribe();
    loop {
        config.mark_unchanged();
        let wanted = wanted(&node);
        // A holder ends when its sender does.
        holders.retain(|shared, _| wanted.contains(shared));
        for shared in wanted {
            let node = &node;
            holders.entry(shared.clone()).or_insert_with(|| {
                let (sender, ends) = watch::channel(());
                tokio::spawn(hold(node.clone(), shared, ends));
                sender
            });
        }
        loop {
            tokio::select! {
                changed = config.changed() => match changed {
                    Ok(()) => break,
                    Err(_) => return,
                },
                change = changes.recv() => match change {
                    Ok(change) if change.resource.metadata.kind != OPERATOR_SPEC.kind => {}
                    Ok(_) | Err(RecvError::Lagged(_)) => break,
                    Err(RecvError::Closed) => return,
                },
            }
        }
    }
}

/// The addresses of a control plane node.
fn wanted(node: &Node) -> Vec<Shared> {
    let is_control_plane =
        node.runtime.config().is_some_and(|config| config.machine.machine_type.is_control_plane());
    if !is_control_plane {
        return Vec::new();
    }
    let operators = node.runtime.store.list(&OPERATOR_SPEC);
    let shared = operators.iter().filter_map(|resource| resource.spec.shared_address());
    shared.map(|(link, address)| (link.to_owned(), address)).collect()
}

async fn hold(node: Arc<Node>, (link, address): Shared, mut ends: watch::Receiver<()>) {
    let place = loop {
        match Place::new(&link, address) {
            Ok(place) => break place,
            Err(error) => {
                node.runtime.journal.warn(&format!("vip: {error}"));
                sleep(RETRY).await;
            }
        }
    };
    let mut holder = Holder {
        node,
        link,
        address,
        place,
        server: OwnApiServer::default(),
        looked: None,
        failures: 0,
        candidate: None,
        leads_since: None,
        until: None,
        announcements: 0,
        said: String::new(),
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

struct Holder {
    node: Arc<Node>,
    link: String,
    address: IpAddr,
    place: Place,
    server: OwnApiServer,
    /// When the API server was last asked.
    looked: Option<Instant>,
    /// How often in turn it did not serve.
    failures: u32,
    candidate: Option<Candidate>,
    leads_since: Option<Instant>,
    /// This node has the address until then, unless the lease is renewed.
    until: Option<Instant>,
    announcements: u32,
    said: String,
}

impl Holder {
    async fn step(&mut self) -> Result<(), String> {
        let node = self.node.clone();
        let Some(kubernetes) = node.kubernetes.get() else { return Ok(()) };
        if let Err(reason) = self.may_serve(kubernetes).await {
            self.leave(&reason).await;
            return Ok(());
        }
        if self.candidate.is_none() {
            let candidate = kubernetes.stand_for(self.address).await.map_err(|error| error.to_string())?;
            self.candidate = Some(candidate);
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
            Standing::Follows(_) => {
                self.leads_since = None;
                self.let_go("another node leads").await;
                Ok(())
            }
        }
    }

    async fn lead(&mut self, until: Instant) -> Result<(), String> {
        let since = *self.leads_since.get_or_insert_with(Instant::now);
        if since.elapsed() < GUARD {
            return Ok(());
        }
        let is_new = self.until.is_none();
        if is_new {
            self.place.prepare()?;
        }
        self.place.hold().await?;
        self.until = Some(until);
        self.said.clear();
        if is_new {
            self.announcements = ANNOUNCEMENTS;
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
        let kubelet = self.node.runtime.services.record(kubelet::ID);
        if kubelet.is_none_or(|record| record.state != State::Running) {
            return Err("the kubelet does not run".to_owned());
        }
        if self.looked.is_some_and(|looked| looked.elapsed() < LOOK_PERIOD) {
            return if self.failures < MAX_FAILURES {
                Ok(())
            } else {
                Err("the API server does not serve".into())
            };
        }
        let is_first = self.looked.replace(Instant::now()).is_none();
        match self.server.is_ready(kubernetes).await {
            Ok(()) => self.failures = 0,
            // Before it has served once, nothing is expected of it.
            Err(_) if is_first => self.failures = MAX_FAILURES,
            Err(_) => self.failures = self.failures.saturating_add(1),
        }
        if self.failures < MAX_FAILURES { Ok(()) } else { Err("the API server does not serve".into()) }
    }

    /// What failed may pass by while the lease lasts. When to try again.
    async fn failed(&mut self, error: &str) -> Duration {
        if self.said != error {
            self.node.runtime.journal.warn(&format!("vip {}: {error}", self.address));
            error.clone_into(&mut self.said);
        }
        if self.until.is_some_and(|until| Instant::now() < until) {
            return PERIOD;
        }
        // Another attempt begins with a lease of its own; this one's ends by itself.
        self.candidate = None;
        self.leads_since = None;
        self.let_go(error).await;
        RETRY
    }

    /// Is no candidate any more.
    async fn leave(&mut self, reason: &str) {
        self.let_go(reason).await;
        self.leads_since = None;
        if let Some(candidate) = self.candidate.take() {
            // Its lease ends by itself.
            let _ = candidate.resign().await;
        }
    }

    async fn let_go(&mut self, reason: &str) {
        if self.until.take().is_none() {
            return;
        }
        if let Err(error) = self.place.drop_address().await {
            self.say(&format!("{error}; the kernel removes it within {} s", LIFETIME.as_secs()));
        }
        self.say(&format!(
            "removing shared IP {:?} on interface {:?}: {reason}",
            self.address.to_string(),
            self.link
        ));
    }

    fn say(&self, text: &str) {
        self.node.runtime.journal.say(&format!("vip: {text}"));
    }
}
