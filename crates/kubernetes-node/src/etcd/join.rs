//! How a further control plane node becomes a member of its cluster's etcd.
//!
//! Owns: where the other members are looked for: at the cluster's endpoint, where the API server says that control plane
//! nodes are, and in the record of this member; and what becomes of an earlier member with this node's name or address.
//! Order: the cluster takes the member as a learner, which has no vote; the record is on the disk; etcd starts and catches up; the
//! cluster gives it a vote. Cut off anywhere, the next attempt goes on: the cluster knows the member by its address.
//! Does not: begin a cluster (`bootstrap`); leave one (`members`).
//! Source: etcd's documentation, "Runtime reconfiguration" and "Learner".

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use config::Config;
use etcd_client::{Client, MemberAddOptions};
use kubernetes::etcd::url;
use kubernetes::{Cluster, Node, manifests};

use super::bootstrap;
use super::client::{self, Access, ENDPOINT, Listed, MEMBER_DEADLINE, refused};
use super::member::{Member, hex};
use super::quorum::{self, QuorumError};
use super::record::{self, Record, Stage};
use super::state::{Data, data};
use crate::certificates::{self, Part};
use crate::{Error, KubernetesNode, api_server, config_resources, control_planes, facts};

/// Of etcd for clients.
const CLIENT_PORT: u16 = 2379;
/// Of etcd for other members.
const PEER_PORT: u16 = 2380;
/// More than a cluster has control plane nodes.
const MAX_URLS: usize = 64;
/// An attempt removes, adds, and lists what it did.
const MAX_STEPS: usize = 4;
/// For another member to say what it knows, before etcd starts without having asked. The others let a node in that was no member
/// for a while once it has announced itself, and they have looked.
const SEARCH_DEADLINE: Duration = Duration::from_secs(12);
/// While the member has no vote.
const SHORT_PERIOD: Duration = Duration::from_secs(1);
/// Otherwise: members come and go seldom.
const LONG_PERIOD: Duration = Duration::from_secs(10);
/// What the cluster says while it has a learner already.
const TOO_MANY: &str = "too many learner members";
/// What it says while the learner has to catch up.
const NOT_IN_SYNC: &str = "in sync with leader";

/// Why a node does not become, or is no longer, a member.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// Another machine has the name.
    #[error(
        "another machine called {name} is a member of etcd and answers at {place}: two control plane nodes cannot have one name. \
         Give this node another one (machine.network.hostname)"
    )]
    NameTaken {
        /// The name.
        name: String,
        /// Where the other one is.
        place: String,
    },
    /// One at a time.
    #[error("another control plane node joins etcd now; one joins at a time, this one is next")]
    OneAtATime,
    /// An earlier member of this node cannot be removed.
    #[error("an earlier member of this node, {member}, is in the way: {source}")]
    Stale {
        /// Its id.
        member: String,
        /// Why it stays.
        source: QuorumError,
    },
    /// The API server answers, etcd does not.
    #[error("the cluster's control plane is known, but its etcd does not answer: {}", .0.join("; "))]
    NoAnswer(Vec<String>),
    /// The data is of another cluster.
    #[error(
        "/var/lib/etcd has data of another cluster ({own}) than the one of this node's configuration ({theirs}). If that data is of \
         no use any more, wipe it: `talosctl reset --system-labels-to-wipe EPHEMERAL --reboot --graceful=false`; the node joins \
         then"
    )]
    OtherCluster {
        /// The number of the data's cluster.
        own: String,
        /// That of the cluster that answers.
        theirs: String,
    },
    /// Each step found other members than the one before.
    #[error("the members of etcd change while this node joins; it tries again")]
    Changes,
    /// It is leaving the cluster now.
    #[error("this node leaves etcd's cluster now")]
    Leaves,
    /// Anything else.
    #[error(transparent)]
    Other(#[from] Error),
    /// The cluster removed the member.
    #[error(
        "etcd's cluster has removed this node's member {member}: its data is of no use any more. To join anew, wipe it: `talosctl \
         reset --system-labels-to-wipe EPHEMERAL --reboot --graceful=false`"
    )]
    Removed {
        /// Its id.
        member: String,
    },
}

/// What an attempt to join does next.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Plan {
    /// The cluster is asked to take this node.
    Add,
    /// It has: the member has not started yet.
    Start(u64),
    /// An earlier member at this node's address, whose data is gone, goes.
    Replace(Member),
    /// A member elsewhere has this node's name. It goes if it does not answer.
    ReplaceSilent(Member),
}

fn plan(members: &[Member], name: &str, peer_url: &str) -> Plan {
    let here = members.iter().find(|member| member.peer_urls.iter().any(|url| url == peer_url));
    if let Some(member) = here {
        return if member.name.is_empty() { Plan::Start(member.id) } else { Plan::Replace(member.clone()) };
    }
    match members.iter().find(|member| member.name == name) {
        Some(member) => Plan::ReplaceSilent(member.clone()),
        None => Plan::Add,
    }
}

/// The members as etcd's arguments name them. One that has not started has its id for a name.
fn arguments(members: &[Member], own: u64, name: &str) -> Vec<String> {
    let one = |member: &Member| {
        let name = if member.id == own { name.to_owned() } else { member.title() };
        member.peer_urls.iter().map(|url| format!("{name}={url}")).collect::<Vec<_>>()
    };
    members.iter().flat_map(one).collect()
}

impl KubernetesNode {
    /// Looks for the cluster; `None`: none answers.
    pub(super) async fn find_cluster(&self) -> Result<Option<Found>, JoinError> {
        let config = self.runtime.config().ok_or(Error::NoConfig)?;
        let cluster = Cluster::new(&config).map_err(Error::from)?;
        let node = facts::node(&self.runtime, &cluster, self.is_container)?;
        certificates::bring(&self.runtime.root, &cluster, &node, Part::Etcd)?;
        let access = Access::read(&self.runtime.root)?;
        let urls = self.candidates(&cluster, &node).await;
        if urls.is_empty() {
            return Ok(None);
        }
        let is_known = urls.is_of_members;
        let (found, errors) = client::first(&access, urls.all.into_iter().collect()).await;
        match found {
            Some((client, place, listed)) => Ok(Some(Found { node, access, client, place, listed })),
            None if is_known => Err(JoinError::NoAnswer(errors.iter().map(Error::to_string).collect())),
            None => Ok(None),
        }
    }

    /// Has the cluster take this node; answers the members for etcd's arguments.
    pub(super) async fn join(&self, found: Found) -> Result<Vec<String>, JoinError> {
        let Found { node, access, mut client, place, mut listed } = found;
        let address = node.addresses.first().ok_or(Error::NoAddress)?;
        let peer_url = url(*address, PEER_PORT);
        for _ in 0..MAX_STEPS {
            match plan(&listed.members, &node.host_name, &peer_url) {
                Plan::Start(id) => {
                    self.keep_record(&listed, id, Stage::Joining)?;
                    return Ok(arguments(&listed.members, id, &node.host_name));
                }
                Plan::Add => self.add(&mut client, &place, &peer_url).await?,
                Plan::Replace(member) => self.replace(&access, &mut client, &place, &listed, &member).await?,
                Plan::ReplaceSilent(member) => {
                    if client::is_healthy(&access, &member).await {
                        let place = member.client_urls.first().cloned().unwrap_or_default();
                        return Err(JoinError::NameTaken { name: node.host_name, place });
                    }
                    self.replace(&access, &mut client, &place, &listed, &member).await?;
                }
            }
            listed = client::list(&mut client, &place).await?;
        }
        Err(JoinError::Changes)
    }

    async fn add(&self, client: &mut Client, place: &str, peer_url: &str) -> Result<(), JoinError> {
        let options = Some(MemberAddOptions::new().with_is_learner());
        let added = client.member_add([peer_url], options).await;
        let added = added.map_err(|error| match refused(place)(error) {
            Error::Etcd { reason, .. } if reason.contains(TOO_MANY) => JoinError::OneAtATime,
            other => other.into(),
        })?;
        let id = added.member().map(etcd_client::Member::id).map(hex).unwrap_or_default();
        self.runtime.journal.say(&format!("etcd: the cluster takes this node as learner {id}, by {place}"));
        Ok(())
    }

    async fn replace(
        &self,
        access: &Access,
        client: &mut Client,
        place: &str,
        listed: &Listed,
        stale: &Member,
    ) -> Result<(), JoinError> {
        let health = client::health(access, &listed.members).await;
        let id = hex(stale.id);
        quorum::removal(&health, stale.id)
            .map_err(|source| JoinError::Stale { member: id.clone(), source })?;
        client::remove(client, place, stale.id).await?;
        self.runtime.journal.say(&format!("etcd: an earlier member of this node, {id}, is removed"));
        Ok(())
    }

    /// Where members may be.
    async fn candidates(&self, cluster: &Cluster<'_>, node: &Node) -> Candidates {
        let root = &self.runtime.root;
        let mut found = Candidates::default();
        let others = |addresses: &[IpAddr]| -> Vec<String> {
            let others = addresses.iter().filter(|address| !node.addresses.contains(address));
            others.map(|address| url(*address, CLIENT_PORT)).collect()
        };
        // There may be no member at the endpoint: it can be a balancer's.
        let endpoint: Vec<IpAddr> = bootstrap::endpoint(cluster).await.iter().map(SocketAddr::ip).collect();
        let elsewhere = others(&endpoint);
        // Where it leads here alone, there is no API server to ask before etcd runs.
        if !elsewhere.is_empty() {
            let servers = async {
                let client = api_server::client_of_endpoint(cluster).await?;
                api_server::get(&client, manifests::API_SERVERS_PATH).await
            };
            if let Ok(object) = servers.await {
                let addresses = control_planes::addresses(&object);
                found.is_of_members = !addresses.is_empty();
                let others = others(&addresses);
                found.has_api_server = !others.is_empty();
                found.all.extend(others);
            }
        }
        found.all.extend(elsewhere);
        if let Ok(Some(record)) = record::read(root) {
            found.is_of_members = true;
            found.all.extend(record.endpoints);
        }
        found.all = std::mem::take(&mut found.all).into_iter().take(MAX_URLS).collect();
        found
    }

    fn keep_record(&self, listed: &Listed, member: u64, stage: Stage) -> Result<(), Error> {
        let endpoints = listed.endpoints(member);
        record::keep(&self.runtime.root, &Record { cluster: listed.cluster, member, endpoints, stage })
    }

    /// Whether the data of this node's member is still that of a member, before etcd starts with it; data of one that has left is
    /// removed. Where no other member answers, etcd starts: it knows more then.
    pub(super) async fn keeps_data(&self, config: &Config) -> Result<bool, JoinError> {
        let root = &self.runtime.root;
        let Some(record) = record::read(root)? else { return Ok(true) };
        if record.stage == Stage::Left {
            self.forget("a leave that was cut off is done")?;
            return Ok(false);
        }
        let cluster = Cluster::new(config).map_err(Error::from)?;
        let node = facts::node(&self.runtime, &cluster, self.is_container)?;
        certificates::bring(root, &cluster, &node, Part::Etcd)?;
        let access = Access::read(root)?;
        let asked = async {
            loop {
                let urls = self.candidates(&cluster, &node).await;
                let found = client::first(&access, urls.all.into_iter().collect()).await.0;
                // An API server that answers has an etcd.
                if found.is_some() || !urls.has_api_server {
                    return found;
                }
                tokio::time::sleep(SHORT_PERIOD).await;
            }
        };
        let Ok(Some((_, _, listed))) = tokio::time::timeout(SEARCH_DEADLINE, asked).await else {
            return Ok(true);
        };
        if listed.cluster != record.cluster {
            return Err(JoinError::OtherCluster { own: hex(record.cluster), theirs: hex(listed.cluster) });
        }
        if listed.members.iter().any(|member| member.id == record.member) {
            // A leave that was cut off before the cluster heard of it did not happen.
            self.keep_record(&listed, record.member, Stage::Member)?;
            return Ok(true);
        }
        if record.stage == Stage::Leaving {
            self.forget("a leave that was cut off was done by the cluster")?;
            return Ok(false);
        }
        Err(JoinError::Removed { member: hex(record.member) })
    }

    fn forget(&self, why: &str) -> Result<(), Error> {
        record::remove_with_data(&self.runtime.root)?;
        self.runtime.journal.say(&format!("etcd: the data of this node's member is removed: {why}"));
        Ok(())
    }

    /// Has a learner get its vote, and keeps the record true, for as long as this is polled.
    pub async fn keep_etcd_membership(&self) {
        let mut said = String::new();
        loop {
            let (period, text) = match self.look_at_membership().await {
                Ok((period, text)) => (period, text),
                // Its health says so where it matters.
                Err(_) => (SHORT_PERIOD, None),
            };
            if let Some(text) = text.filter(|text| *text != said) {
                self.runtime.journal.say(&format!("etcd: {text}"));
                said = text;
            }
            tokio::time::sleep(period).await;
        }
    }

    /// Looks once: when to look again, and what there is to say.
    async fn look_at_membership(&self) -> Result<(Duration, Option<String>), Error> {
        let root = &self.runtime.root;
        if !matches!(data(root)?, Data::Member | Data::Asked) {
            return Ok((SHORT_PERIOD, None));
        }
        let access = Access::read(root)?;
        let mut own = access.connect(ENDPOINT, Some(MEMBER_DEADLINE)).await?;
        let status = own.status().await.map_err(refused(ENDPOINT))?;
        let header = status.header();
        let id = header.map(etcd_client::ResponseHeader::member_id).unwrap_or_default();
        config_resources::publish_member(&self.runtime, id);
        if !status.is_learner() {
            let listed = client::list(&mut own, ENDPOINT).await?;
            let stage = record::read(root)?.map_or(Stage::Member, |record| record.stage);
            let is_leaving = matches!(stage, Stage::Leaving | Stage::Left);
            if !is_leaving {
                self.keep_record(&listed, id, Stage::Member)?;
            }
            let voters = listed.members.iter().filter(|member| !member.is_learner).count();
            return Ok((LONG_PERIOD, quorum::advice(voters)));
        }
        let text = match self.promote(&access, id).await {
            Ok(()) => "this node's member has caught up and got its vote".to_owned(),
            Err(JoinError::Other(Error::Etcd { reason, .. })) if reason.contains(NOT_IN_SYNC) => {
                "this node's member catches up with the leader".to_owned()
            }
            Err(error) => format!("this node's member has no vote yet: {error}"),
        };
        Ok((SHORT_PERIOD, Some(text)))
    }

    /// Has the members with a vote give one to this learner.
    async fn promote(&self, access: &Access, id: u64) -> Result<(), JoinError> {
        let config = self.runtime.config().ok_or(Error::NoConfig)?;
        let cluster = Cluster::new(&config).map_err(Error::from)?;
        let node = facts::node(&self.runtime, &cluster, self.is_container)?;
        let urls = self.candidates(&cluster, &node).await;
        let (found, errors) = client::first(access, urls.all.into_iter().collect()).await;
        let Some((mut client, place, _)) = found else {
            return Err(JoinError::NoAnswer(errors.iter().map(Error::to_string).collect()));
        };
        Ok(client.member_promote(id).await.map(drop).map_err(refused(&place))?)
    }
}

/// A cluster that answers.
pub(super) struct Found {
    node: Node,
    access: Access,
    client: Client,
    place: String,
    listed: Listed,
}

/// Addresses at which members are looked for.
#[derive(Default)]
struct Candidates {
    all: BTreeSet<String>,
    /// Something knows that there are members: the record, or an API server.
    is_of_members: bool,
    /// Another node's API server answered.
    has_api_server: bool,
}

impl Candidates {
    fn is_empty(&self) -> bool {
        self.all.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(id: u64, name: &str, address: &str) -> Member {
        let urls = |port: u16| vec![format!("https://{address}:{port}")];
        Member {
            id,
            name: name.into(),
            peer_urls: urls(PEER_PORT),
            client_urls: if name.is_empty() { Vec::new() } else { urls(CLIENT_PORT) },
            is_learner: false,
        }
    }

    #[test]
    fn what_comes_next_follows_from_the_members() {
        let of = |members: &[Member]| plan(members, "cp-2", "https://10.0.0.4:2380");
        let first = member(1, "cp-1", "10.0.0.3");
        assert_eq!(of(std::slice::from_ref(&first)), Plan::Add);
        assert_eq!(of(&[first.clone(), member(7, "", "10.0.0.4")]), Plan::Start(7));
        // Of a node that lost its data, and of one that also has another name now.
        for name in ["cp-2", "old"] {
            let stale = member(7, name, "10.0.0.4");
            assert_eq!(of(&[first.clone(), stale.clone()]), Plan::Replace(stale));
        }
        let moved = member(7, "cp-2", "10.0.0.9");
        assert_eq!(of(&[first.clone(), moved.clone()]), Plan::ReplaceSilent(moved.clone()));
        // The address decides: the name may be another machine's.
        assert_eq!(of(&[moved, member(8, "", "10.0.0.4")]), Plan::Start(8));
        assert_eq!(
            of(&[member(1, "", "10.0.0.3")]),
            Plan::Add,
            "one that has not started has no name to share"
        );
    }

    #[test]
    fn etcd_is_told_all_members() {
        let mut learner = member(0xab, "", "10.0.0.5");
        learner.peer_urls.push("https://[fd00::5]:2380".into());
        let all = [member(1, "cp-1", "10.0.0.3"), member(7, "", "10.0.0.4"), learner];
        assert_eq!(
            arguments(&all, 7, "cp-2"),
            [
                "cp-1=https://10.0.0.3:2380",
                "cp-2=https://10.0.0.4:2380",
                "00000000000000ab=https://10.0.0.5:2380",
                "00000000000000ab=https://[fd00::5]:2380",
            ]
        );
    }
}
