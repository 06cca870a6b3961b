//! Which nodes reach etcd's ports: the firewall lets in these, and no other sender.
//!
//! | task | reads | writes | ends |
//! |---|---|---|---|
//! | [`KubernetesNode::keep_etcd_peers`] | etcd's members, the announcements | `EtcdPeers`, this node's announcement | with machined |
//!
//! Owns: the ConfigMap kube-system/billet-etcd-peers, where each control plane node announces its addresses, as the administrator, who
//! alone writes there; and /var/lib/etcd.peers, so that a node which starts lets the others in before any of them answers.
//! Order: a node announces itself before it joins, so that the members let it in; they look every [`PERIOD`]. An announcement
//! counts for [`FRESH`], and for as long as the member of that name is one. What etcd lists as a member always counts; until this
//! node's etcd answers, so do the members that it was told of when it joined ([`record`]).
//! Does not: filter packets; networkd does.
//! Fails by: nothing; what was known last stays.
//! Source: Kubernetes API concepts, "Server-Side Apply": each node owns one key of the map; docs/decisions/0034.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use config::Config;
use http::Request;
use kube::Client;
use kubernetes::Cluster;
use runtime::beneath;
use runtime::store::{ETCD_PEER, Spec};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::client::{self, Access, ENDPOINT, MEMBER_DEADLINE, host};
use super::member::Member;
use super::record;
use super::state::{Data, data, failed};
use crate::published::replace;
use crate::{Error, KubernetesNode, api_server, facts};

/// Between two looks: a node that joins waits for it.
const PERIOD: Duration = Duration::from_secs(3);
/// How long an announcement counts of a node that is no member.
const FRESH: Duration = Duration::from_secs(600);
/// A node that is no member yet announces itself again after this.
const RENEW: Duration = Duration::from_secs(120);
/// For one answer of the API server.
const DEADLINE: Duration = Duration::from_secs(10);
/// Where announcements are.
const CONFIG_MAP: &str = "/api/v1/namespaces/kube-system/configmaps/billet-etcd-peers";
const CONFIG_MAP_NAME: &str = "billet-etcd-peers";
/// Beside the data.
const KEPT: &str = "/var/lib/etcd.peers";
/// More announcements than there are control plane nodes, and more addresses than one has.
const MOST: usize = 64;

/// What a node says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Announcement {
    /// From which it may send.
    addresses: Vec<IpAddr>,
    /// Seconds since 1970, of the sender's clock: it makes one announcement differ from the last.
    time: u64,
}

/// What is known from one look to the next.
#[derive(Default)]
struct Known {
    /// Of the API server, for as long as the config is the same and it answers.
    api: Option<(Arc<Config>, Client)>,
    /// Of this node's etcd, for as long as it answers.
    etcd: Option<etcd_client::Client>,
    /// Announcements, and since when each is as it is, by this node's clock.
    announced: BTreeMap<String, (Announcement, Instant)>,
    /// When this machined announced the node last.
    told: Option<Instant>,
    peers: BTreeSet<IpAddr>,
    /// The last ones were read from the disk.
    is_read: bool,
}

impl KubernetesNode {
    /// Keeps the list of the nodes that may reach etcd, for as long as this is polled.
    pub async fn keep_etcd_peers(&self) {
        let mut known = Known::default();
        loop {
            let config = self.runtime.config();
            match config.filter(|config| config.machine.machine_type.is_control_plane()) {
                Some(config) => {
                    if self.look_at_peers(&mut known, &config).await.is_err() {
                        known.api = None;
                    }
                }
                None => replace(&self.runtime, &ETCD_PEER, Vec::<(String, Spec)>::new()),
            }
            tokio::time::sleep(PERIOD).await;
        }
    }

    async fn look_at_peers(&self, known: &mut Known, config: &Arc<Config>) -> Result<(), Error> {
        let root = &self.runtime.root;
        if !known.is_read {
            known.peers = read(root)?;
            known.is_read = true;
            self.publish_peers(&known.peers);
        }
        let members = self.members_now(known).await;
        let told = self.hear(known, config, members.is_some()).await;
        // While this node's etcd has caught up with nothing it cannot name the others, and they must reach it.
        let asked = record::read(root)?.map(|record| record.endpoints).unwrap_or_default();
        let asked = asked.iter().filter_map(|url| host(url).parse().ok());
        let last = known.peers.iter().copied().chain(asked).collect();
        let found = peers(members.as_deref(), &last, &known.announced);
        if found != known.peers {
            known.peers = found;
            self.publish_peers(&known.peers);
            keep(root, &known.peers)?;
        }
        told
    }

    fn publish_peers(&self, peers: &BTreeSet<IpAddr>) {
        replace(
            &self.runtime,
            &ETCD_PEER,
            [("local".to_owned(), Spec::Fields(json!({ "addresses": peers })))],
        );
    }

    /// The members as this node's etcd lists them; `None`: it does not answer, or has no vote.
    async fn members_now(&self, known: &mut Known) -> Option<Vec<Member>> {
        let root = &self.runtime.root;
        if !matches!(data(root), Ok(Data::Member)) {
            known.etcd = None;
            return None;
        }
        if known.etcd.is_none() {
            known.etcd = Access::read(root).ok()?.connect(ENDPOINT, Some(MEMBER_DEADLINE)).await.ok();
        }
        // One that waits for its leader does not answer, and the leader waits for what this finds.
        let listed = client::list(known.etcd.as_mut()?, ENDPOINT);
        let listed = tokio::time::timeout(MEMBER_DEADLINE, listed).await.ok().and_then(Result::ok);
        if listed.is_none() {
            known.etcd = None;
        }
        listed.map(|listed| listed.members)
    }

    /// Reads what the others announce, and announces this node where that is due.
    async fn hear(&self, known: &mut Known, config: &Arc<Config>, is_member: bool) -> Result<(), Error> {
        let cluster = Cluster::new(config)?;
        let node = facts::node(&self.runtime, &cluster, self.is_container)?;
        let api = match &known.api {
            Some((of, api)) if Arc::ptr_eq(of, config) => api.clone(),
            _ => {
                let own = api_server::client(&cluster).await?;
                let api = api_server::first_ready(own, &cluster).await?;
                known.api.insert((config.clone(), api)).1.clone()
            }
        };
        hear(&mut known.announced, &request(&api, "GET", CONFIG_MAP, None).await?);
        let own = known.announced.get(&node.host_name);
        let is_another = own.is_none_or(|(told, _)| told.addresses != node.addresses);
        let is_old = known.told.is_none_or(|told| told.elapsed() > RENEW);
        if is_another || !is_member && is_old {
            let time = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
            let announcement = Announcement { addresses: node.addresses.clone(), time };
            announce(&api, &node.host_name, &announcement).await?;
            known.told = Some(Instant::now());
        }
        Ok(())
    }
}

/// Who may reach etcd: the members, as etcd lists them or as they were known last, and who announces itself.
fn peers(
    members: Option<&[Member]>,
    last: &BTreeSet<IpAddr>,
    announced: &BTreeMap<String, (Announcement, Instant)>,
) -> BTreeSet<IpAddr> {
    let is_member = |name: &str| members.is_some_and(|members| members.iter().any(|one| one.name == name));
    let counts = |name: &str, since: &Instant| is_member(name) || since.elapsed() < FRESH;
    let told = announced.iter().filter(|(name, (_, since))| counts(name, since));
    let mut found: BTreeSet<IpAddr> =
        told.flat_map(|(_, (told, _))| told.addresses.iter().take(MOST).copied()).collect();
    match members {
        Some(members) => {
            let urls = members.iter().flat_map(|member| &member.peer_urls);
            found.extend(urls.filter_map(|url| host(url).parse::<IpAddr>().ok()));
        }
        None => found.extend(last),
    }
    found
}

/// Takes over what the map says. Who says the same as before is as old as before.
fn hear(announced: &mut BTreeMap<String, (Announcement, Instant)>, map: &Value) {
    let entries = map["data"].as_object().into_iter().flatten();
    let parsed = entries.filter_map(|(name, text)| {
        let announcement: Announcement = serde_json::from_str(text.as_str()?).ok()?;
        Some((name.clone(), announcement))
    });
    let now = Instant::now();
    let heard = parsed.take(MOST).map(|(name, announcement)| {
        let before = announced.get(&name).filter(|(before, _)| *before == announcement);
        let since = before.map_or(now, |(_, since)| *since);
        (name, (announcement, since))
    });
    *announced = heard.collect();
}

async fn announce(api: &Client, name: &str, announcement: &Announcement) -> Result<(), Error> {
    let text = serde_json::to_string(announcement).map_err(|error| refused(&error))?;
    let map = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": { "name": CONFIG_MAP_NAME },
        "data": { name: text },
    });
    let path = format!("{CONFIG_MAP}?fieldManager=billet-{name}&force=true");
    request(api, "PATCH", &path, Some(&map)).await.map(drop)
}

/// The answer; an empty one where there is no such object.
async fn request(api: &Client, method: &str, path: &str, body: Option<&Value>) -> Result<Value, Error> {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(http::header::CONTENT_TYPE, "application/apply-patch+yaml")
        .body(body.map(|body| body.to_string().into_bytes()).unwrap_or_default())
        .map_err(|error| refused(&error))?;
    match tokio::time::timeout(DEADLINE, api.request(request)).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(kube::Error::Api(status))) if status.code == 404 => Ok(Value::Null),
        Ok(Err(error)) => Err(refused(&error)),
        Err(late) => Err(refused(&late)),
    }
}

fn refused(error: &dyn std::error::Error) -> Error {
    Error::ApiServer { what: "ask", reason: runtime::errors::chain(error) }
}

fn read(root: &Path) -> Result<BTreeSet<IpAddr>, Error> {
    match beneath::read(root, Path::new(KEPT)) {
        Ok(text) => serde_json::from_slice(&text).map_err(|error| failed("read", KEPT)(error.into())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(BTreeSet::new()),
        Err(error) => Err(failed("read", KEPT)(error)),
    }
}

fn keep(root: &Path, peers: &BTreeSet<IpAddr>) -> Result<(), Error> {
    let text = serde_json::to_vec(peers).map_err(|error| failed("write", KEPT)(error.into()))?;
    let (directory, name) = beneath::make_parent(root, Path::new(KEPT)).map_err(failed("write", KEPT))?;
    directory.replace(&name, &text, 0o600).map_err(failed("write", KEPT))?;
    directory.sync().map_err(failed("write", KEPT))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(text: &[&str]) -> Vec<IpAddr> {
        text.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn member(name: &str, peer_url: &str) -> Member {
        Member {
            id: 1,
            name: name.to_owned(),
            peer_urls: vec![peer_url.to_owned()],
            client_urls: Vec::new(),
            is_learner: false,
        }
    }

    fn announced(entries: &[(&str, &[&str], u64)]) -> BTreeMap<String, (Announcement, Instant)> {
        let one = |(name, text, minutes): &(&str, &[&str], u64)| {
            let since = Instant::now().checked_sub(Duration::from_secs(minutes * 60)).unwrap();
            ((*name).to_owned(), (Announcement { addresses: addresses(text), time: 1 }, since))
        };
        entries.iter().map(one).collect()
    }

    #[test]
    fn members_and_those_who_are_about_to_join_reach_etcd() {
        let last = addresses(&["10.0.0.9"]).into_iter().collect();
        let members = [member("a", "https://10.0.0.1:2380"), member("", "https://[fd00::2]:2380")];
        let told = announced(&[
            ("a", &["10.0.0.1", "192.168.0.1"], 60),
            ("new", &["10.0.0.3"], 1),
            ("gone", &["10.0.0.4"], 11),
        ]);
        let found = |members: Option<&[Member]>| peers(members, &last, &told).into_iter().collect::<Vec<_>>();
        // What was known before a member was removed does not count.
        assert_eq!(found(Some(&members)), addresses(&["10.0.0.1", "10.0.0.3", "192.168.0.1", "fd00::2"]));
        // Without an answer of etcd nothing that was known is taken away.
        assert_eq!(found(None), addresses(&["10.0.0.3", "10.0.0.9"]));
    }

    #[test]
    fn an_announcement_that_does_not_change_grows_old() {
        let mut known = announced(&[("a", &["10.0.0.1"], 60), ("b", &["10.0.0.2"], 60), ("left", &[], 1)]);
        let same = r#"{"addresses":["10.0.0.1"],"time":1}"#;
        let renewed = r#"{"addresses":["10.0.0.2"],"time":2}"#;
        hear(&mut known, &json!({ "data": { "a": same, "b": renewed, "wrong": "{}", "c": 5 } }));
        assert_eq!(known.keys().collect::<Vec<_>>(), ["a", "b"]);
        assert!(known["a"].1.elapsed() > FRESH && known["b"].1.elapsed() < FRESH);
        hear(&mut known, &Value::Null);
        assert!(known.is_empty());
    }

    #[test]
    fn what_was_known_outlives_a_restart() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(read(root.path()).unwrap(), BTreeSet::new());
        let peers = addresses(&["10.0.0.1", "fd00::2"]).into_iter().collect();
        keep(root.path(), &peers).unwrap();
        assert_eq!(read(root.path()).unwrap(), peers);
        std::fs::write(root.path().join("var/lib/etcd.peers"), "{").unwrap();
        assert!(read(root.path()).unwrap_err().to_string().contains("/var/lib/etcd.peers"));
    }
}
