//! What apid and trustd must know, and how they get it: a unix socket of their own.
//!
//! | task | reads | writes | ends |
//! |---|---|---|---|
//! | [`issue`] | the wanted names, the config, the cluster's nodes, half of the certificate's life | the [`Material`] of both | with machined |
//! | accept loop, one a program | connections | one sender task each | with machined |
//! | sender, one a connection | new material | frames; reads one byte when the program serves with it | with its peer |
//!
//! Owns: the certificates of this node's API.
//! Does not: let anyone but the program's own user (or root) read: the socket's peer credentials are checked.
//! Frame: length (u32, little endian), then JSON. Answer: the byte `k`.

pub(crate) mod certificates;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use api::pki::{Authority, CertificateFacts, LEAF_LIFETIME, Leaf, Lifetime, Usage};
use config::{Config, Secret};
use runtime::listeners::ListenError;
use runtime::store::{API_CERTIFICATE, DHCP_LEASE, MEMBER, Spec, Store};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Notify, watch};
use zeroize::Zeroizing;

use crate::configuration::locked::Maintenance;
use crate::controllers::reaches_others;
use crate::node::Node;
use crate::{apid, configuration, members, trust_request, trustd};

/// Without any lease for this long the API is declared ready on loopback alone.
const FIRST_LEASE_DEADLINE: Duration = Duration::from_secs(15);
/// Longest material: a few certificates.
const MAX_FRAME_BYTES: u32 = 256 * 1024;
/// How long a program may take to serve with new material.
const ACKNOWLEDGE_DEADLINE: Duration = Duration::from_secs(10);
/// Between attempts after a failed issue.
const ISSUE_RETRY: Duration = Duration::from_secs(10);
/// Between attempts of a program to reach machined.
const CONNECT_RETRY: Duration = Duration::from_millis(100);

/// Who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The API's front end.
    Apid,
    /// The signer of node certificates.
    Trustd,
}

impl Role {
    fn name(self) -> &'static str {
        match self {
            Self::Apid => "apid",
            Self::Trustd => "trustd",
        }
    }

    fn user(self) -> u32 {
        match self {
            Self::Apid => apid::USER,
            Self::Trustd => trustd::USER,
        }
    }

    /// The socket of this program.
    pub fn socket(self) -> &'static Path {
        Path::new(match self {
            Self::Apid => "/system/run/machined/apid.sock",
            Self::Trustd => "/system/run/machined/trustd.sock",
        })
    }
}

/// Everything a program serves with.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct Material {
    /// PEM of the CA whose clients are let in.
    pub authority: String,
    /// PEM of the server certificate.
    pub certificate: String,
    /// PEM of its key.
    pub key: Secret,
    /// Addresses and names of this node.
    pub names: Vec<String>,
    /// With which apid asks other nodes; only a node with the CA's key has it.
    #[serde(default)]
    pub forwarding: Option<ForwardMaterial>,
    /// For trustd only.
    pub trust: Option<TrustMaterial>,
    /// The node has no config in force: everybody may connect, and almost nothing is allowed.
    #[serde(default)]
    pub maintenance: Maintenance,
}

/// A client certificate whose role says that apid speaks for the clients it names.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct ForwardMaterial {
    /// PEM of the certificate.
    pub certificate: String,
    /// PEM of its key.
    pub key: Secret,
}

/// What trustd needs besides.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct TrustMaterial {
    /// PEM of the CA's key.
    pub authority_key: Secret,
    /// The secret that nodes show.
    pub token: Secret,
    /// Addresses that control planes share, and addresses and names of each one that the cluster has: no certificate that is
    /// asked for has them.
    pub reserved: Vec<String>,
}

type Slot = watch::Sender<Option<Arc<Material>>>;

/// The material of both programs, once there is any.
pub struct Materials {
    apid: Slot,
    trustd: Slot,
    /// Told when others are wanted at once.
    wanted: Notify,
}

impl Default for Materials {
    fn default() -> Self {
        Self { apid: watch::channel(None).0, trustd: watch::channel(None).0, wanted: Notify::new() }
    }
}

impl Materials {
    fn slot(&self, role: Role) -> &Slot {
        match role {
            Role::Apid => &self.apid,
            Role::Trustd => &self.trustd,
        }
    }

    /// What apid serves with, now and later.
    pub(crate) fn of_apid(&self) -> watch::Receiver<Option<Arc<Material>>> {
        self.apid.subscribe()
    }

    /// Has certificates be issued at once, whatever is left of the life of the present ones.
    pub(crate) fn want_others(&self) {
        self.wanted.notify_one();
    }
}

/// Opens a program's socket and serves it.
pub fn open(node: &Arc<Node>, role: Role) -> Result<(), ListenError> {
    let socket = node.runtime.listeners.unix(role.name(), role.socket(), role.user())?;
    let listen = |e| ListenError::Unix(role.socket().display().to_string(), e);
    socket.set_nonblocking(true).map_err(listen)?;
    let listener = UnixListener::from_std(socket).map_err(listen)?;
    let (name, about) = match role {
        Role::Apid => ("apid-material", "gives apid its certificate and what it trusts"),
        Role::Trustd => ("trustd-material", "gives trustd its certificate and what it trusts"),
    };
    node.runtime.start_task(name, about, accept(node.clone(), role, listener));
    Ok(())
}

async fn accept(node: Arc<Node>, role: Role, listener: UnixListener) {
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                node.runtime.journal.warn(&format!("accept on {}: {error}", role.socket().display()));
                tokio::time::sleep(CONNECT_RETRY).await;
                continue;
            }
        };
        let user = stream.peer_cred().map(|peer| peer.uid());
        match user {
            Ok(user) if user == role.user() || user == 0 => {
                tokio::spawn(send_all(node.clone(), role, stream));
            }
            Ok(user) => {
                node.runtime.journal.warn(&format!("refused user {user} on the socket of {}", role.name()))
            }
            Err(error) => node.runtime.journal.warn(&format!("read the peer of {}: {error}", role.name())),
        }
    }
}

async fn send_all(node: Arc<Node>, role: Role, mut stream: UnixStream) {
    let mut news = node.materials.slot(role).subscribe();
    loop {
        let material = news.borrow_and_update().clone();
        if let Some(material) = material {
            match tokio::time::timeout(ACKNOWLEDGE_DEADLINE, send(&mut stream, &material)).await {
                Ok(Ok(())) if role == Role::Apid && material.maintenance != Maintenance::No => {
                    configuration::maintenance::announce(&node, &material);
                }
                Ok(Ok(())) if role == Role::Apid => note_serving(&node, &material),
                Ok(Ok(())) => {}
                // The program is gone; its next process asks again.
                Ok(Err(_)) => return,
                Err(_) => {
                    let seconds = ACKNOWLEDGE_DEADLINE.as_secs();
                    let text = format!(
                        "{} does not serve after {seconds} s (deadline new certificate)",
                        role.name()
                    );
                    return node.runtime.journal.warn(&text);
                }
            }
        }
        if news.changed().await.is_err() {
            return;
        }
    }
}

async fn send(stream: &mut UnixStream, material: &Material) -> std::io::Result<()> {
    let body = Zeroizing::new(serde_json::to_vec(material)?);
    let length = u32::try_from(body.len()).map_err(std::io::Error::other)?;
    stream.write_all(&length.to_le_bytes()).await?;
    stream.write_all(&body).await?;
    stream.read_u8().await.map(drop)
}

fn note_serving(node: &Node, material: &Material) {
    let addressed = material.names.iter().any(|name| reaches_others(name));
    node.readiness.send_modify(|readiness| {
        readiness.serving = true;
        readiness.addressed |= addressed;
    });
    announce(node);
}

/// Says once that the API is ready, when it is.
pub fn announce(node: &Node) {
    let first = node.readiness.send_if_modified(|readiness| {
        let ready = readiness.serving && (readiness.addressed || readiness.gave_up);
        let first = ready && !readiness.announced;
        readiness.announced |= ready;
        first
    });
    if first {
        node.runtime.journal.say(&format!("API ready on :{}", apid::PORT));
    }
}

/// Lets the API be ready without an address when no DHCP server answers. A container asks none: its runtime gave addresses.
pub(crate) async fn give_up_without_lease(node: Arc<Node>) {
    if node.is_container() {
        return;
    }
    tokio::time::sleep(FIRST_LEASE_DEADLINE).await;
    if node.runtime.store.list(&DHCP_LEASE).is_empty() && !node.readiness.borrow().addressed {
        let seconds = FIRST_LEASE_DEADLINE.as_secs();
        node.runtime.journal.warn(&format!(
            "networkd: no DHCP lease within {seconds} s (deadline first lease); still asking"
        ));
        node.readiness.send_modify(|readiness| readiness.gave_up = true);
        announce(&node);
    }
}

/// Issues certificates: when the names change, when half of their life is over. Other control planes change what is refused, and
/// no certificate.
pub async fn issue(node: Arc<Node>) {
    let mut changes = node.runtime.store.changes();
    let mut readiness = node.readiness.subscribe();
    let mut config = node.runtime.config.subscribe();
    let mut maintenance = node.configuration.maintenance.subscribe();
    let mut said = String::new();
    loop {
        config.mark_unchanged();
        maintenance.mark_unchanged();
        let wait = match try_issue(&node).await {
            Ok(Some(remaining)) => {
                said.clear();
                remaining / 2
            }
            Ok(None) => Duration::MAX,
            Err(error) => {
                // Once for each reason: it is tried again and again.
                if said != error {
                    node.runtime.journal.warn(&format!("issue the API's certificate: {error}"));
                    said = error;
                }
                ISSUE_RETRY
            }
        };
        let names_changed = async {
            loop {
                match changes.recv().await {
                    Ok(change) if change.resource.metadata.kind == MEMBER.kind => reserve_anew(&node),
                    Ok(change) if change.resource.metadata.kind != API_CERTIFICATE.kind => {}
                    _ => return,
                }
            }
        };
        tokio::select! {
            () = names_changed => {}
            // Another authority, or the first one.
            _ = config.changed() => {}
            _ = maintenance.changed() => {}
            () = node.materials.wanted.notified() => {}
            _ = readiness.wait_for(|readiness| readiness.gave_up), if !readiness.borrow().gave_up => {}
            () = sleep(wait) => {}
        }
    }
}

async fn sleep(wait: Duration) {
    if wait == Duration::MAX { std::future::pending().await } else { tokio::time::sleep(wait).await }
}

/// Issues, or has trustd issue, if there is something to issue for. Says how long the certificate lasts.
async fn try_issue(node: &Node) -> Result<Option<Duration>, String> {
    let Some(resource) = node.runtime.store.get(&API_CERTIFICATE, "api") else { return Ok(None) };
    let Spec::ApiCertificate(names) = &resource.spec else { return Ok(None) };
    // A certificate that nobody can use from outside would be made twice.
    if !names.iter().any(|name| reaches_others(name)) && !node.readiness.borrow().gave_up {
        return Ok(None);
    }
    let Some(config) = node.runtime.config() else {
        issue_for_maintenance(node, names)?;
        return Ok(None);
    };
    let material = match config.machine.ca.key() {
        Some(key) => make(&config, key, names)?,
        None => trust_request::ask(&config, names, node.kubernetes.get()).await?,
    };
    let material = with_accepted(node, &config, material);
    let facts = CertificateFacts::from_pem("the API's certificate", &material.certificate);
    let remaining = facts.map_err(|e| e.to_string())?.remaining().unwrap_or(ISSUE_RETRY);
    if let Some(trust) = trust_material(&config, &node.runtime.store) {
        hand_out(node, Role::Trustd, Material { trust: Some(trust), forwarding: None, ..material.clone() });
    }
    hand_out(node, Role::Apid, material);
    Ok(Some(remaining))
}

/// Gives a program what it serves with. Another authority means a new process: what the old one let in must go.
fn hand_out(node: &Node, role: Role, material: Material) {
    let slot = node.materials.slot(role);
    let other = slot.borrow().as_ref().is_some_and(|old| old.authority != material.authority);
    if other {
        // Before the program sees it: one that ends by itself is started again only after a pause.
        node.runtime.services.restart(role.name());
    }
    slot.send_replace(Some(Arc::new(material)));
}

/// One certificate for the whole of maintenance: its fingerprint stands on the console.
fn issue_for_maintenance(node: &Node, names: &[String]) -> Result<(), String> {
    let kind = node.configuration.maintenance.borrow().clone();
    if kind == Maintenance::No {
        return Ok(());
    }
    let slot = node.materials.slot(Role::Apid);
    let before = slot.borrow().clone();
    let material = match before {
        Some(before) if before.maintenance == kind => return Ok(()),
        Some(before) if before.maintenance != Maintenance::No => {
            Material { maintenance: kind, ..(*before).clone() }
        }
        // Never in place of what a config gave.
        Some(_) => return Ok(()),
        None => configuration::maintenance::material(names, kind)?,
    };
    slot.send_replace(Some(Arc::new(material)));
    Ok(())
}

fn make(config: &Config, key: &Secret, names: &[String]) -> Result<Material, String> {
    let authority = Authority::from_pem(&config.machine.ca.crt.0, key).map_err(|e| e.to_string())?;
    let leaf = Leaf {
        organizations: vec![],
        names: names.to_vec(),
        usage: Usage::Server,
        lifetime: Lifetime::from_now(LEAF_LIFETIME),
    };
    let identity = authority.issue(&leaf).map_err(|e| e.to_string())?;
    let speaker = Leaf {
        organizations: vec![api::roles::Role::Impersonator.name().to_owned()],
        usage: Usage::Client,
        ..leaf
    };
    let speaker = authority.issue(&speaker).map_err(|e| e.to_string())?;
    let forwarding = ForwardMaterial { certificate: speaker.certificate.clone(), key: speaker.key.to_pem() };
    Ok(Material {
        authority: authority.certificate().to_owned(),
        certificate: identity.certificate.clone(),
        key: identity.key.to_pem(),
        names: names.to_vec(),
        forwarding: Some(forwarding),
        trust: None,
        maintenance: Maintenance::No,
    })
}

/// Clients of the further CAs of the config are let in too. One that is no certificate would keep out everybody:
/// it is left out, and said.
fn with_accepted(node: &Node, config: &Config, mut material: Material) -> Material {
    for (index, accepted) in config.machine.accepted_cas.iter().enumerate() {
        let pem = accepted.crt.0.trim();
        match CertificateFacts::from_pem("a further CA", pem) {
            Ok(_) if material.authority.contains(pem) => {}
            Ok(_) => material.authority = format!("{}\n{pem}\n", material.authority.trim_end()),
            Err(error) => {
                node.runtime
                    .journal
                    .warn(&format!("machine.acceptedCAs[{index}]: {error}; its clients are not let in"));
            }
        }
    }
    material
}

/// The first certificate of a bundle: the CA that signs.
pub(crate) fn first_certificate(bundle: &str) -> &str {
    const END: &str = "-----END CERTIFICATE-----";
    bundle.find(END).map_or(bundle, |at| &bundle[..at + END.len()])
}

fn trust_material(config: &Config, store: &Store) -> Option<TrustMaterial> {
    let authority_key = config.machine.ca.key()?.clone();
    Some(TrustMaterial {
        authority_key,
        token: config.machine.token.clone(),
        reserved: reserved(config, store),
    })
}

/// What trustd signs for no node. Control planes sign their own certificates: none of them asks.
fn reserved(config: &Config, store: &Store) -> Vec<String> {
    let interfaces = config.machine.network.interfaces.iter();
    let vips = interfaces.flat_map(|one| one.vip.iter().chain(one.vlans.iter().flat_map(|vlan| &vlan.vip)));
    vips.map(|vip| vip.ip.clone()).chain(members::control_plane_names(store)).collect()
}

/// Has trustd refuse the names of the control planes that there are now. It goes on with its certificate and its key.
fn reserve_anew(node: &Node) {
    let Some(config) = node.runtime.config() else { return };
    let reserved = reserved(&config, &node.runtime.store);
    node.materials.trustd.send_if_modified(|slot| {
        let Some(material) = slot else { return false };
        let Some(trust) = material.trust.as_ref().filter(|trust| trust.reserved != reserved) else {
            return false;
        };
        let trust = Some(TrustMaterial { reserved, ..trust.clone() });
        *slot = Some(Arc::new(Material { trust, ..(**material).clone() }));
        true
    });
}

/// The program's end of the socket.
pub struct Source {
    stream: UnixStream,
}

impl Source {
    /// Connects; tries until machined listens.
    pub async fn connect(path: &Path) -> Self {
        loop {
            if let Ok(stream) = UnixStream::connect(path).await {
                return Self { stream };
            }
            tokio::time::sleep(CONNECT_RETRY).await;
        }
    }

    /// The next material.
    pub async fn next(&mut self) -> std::io::Result<Material> {
        let length = self.stream.read_u32_le().await?;
        if length > MAX_FRAME_BYTES {
            return Err(std::io::Error::other(format!("frame of {length} bytes")));
        }
        let mut body = Zeroizing::new(vec![0; usize::try_from(length).map_err(std::io::Error::other)?]);
        self.stream.read_exact(&mut body).await?;
        Ok(serde_json::from_slice(&body)?)
    }

    /// Says that the program serves with the last material.
    pub async fn acknowledge(&mut self) -> std::io::Result<()> {
        self.stream.write_all(b"k").await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn material() -> Material {
        Material {
            authority: "ca".into(),
            certificate: "crt".into(),
            key: Secret::new("key"),
            names: vec!["10.0.0.5".into()],
            forwarding: None,
            trust: Some(TrustMaterial {
                authority_key: Secret::new("cakey"),
                token: Secret::new("token"),
                reserved: vec![],
            }),
            maintenance: Maintenance::No,
        }
    }

    #[tokio::test]
    async fn material_crosses_the_socket_and_is_acknowledged() {
        let (here, there) = UnixStream::pair().unwrap();
        let sending = tokio::spawn(async move {
            let mut here = here;
            send(&mut here, &material()).await
        });
        let mut source = Source { stream: there };
        assert!(source.next().await.unwrap() == material());
        source.acknowledge().await.unwrap();
        tokio::time::timeout(Duration::from_secs(5), sending).await.unwrap().unwrap().unwrap();
    }

    #[test]
    fn further_authorities_are_added_once_and_nonsense_is_left_out() {
        use base64::Engine;
        let dir = tempfile::tempdir().unwrap();
        let node = crate::server::tests_node(dir.path().to_owned());
        let make = || Authority::generate("talos", Lifetime::from_now(LEAF_LIFETIME)).unwrap();
        let (own, further) = (make(), make());
        let encoded = |pem: &str| base64::engine::general_purpose::STANDARD.encode(pem);
        let broken = "-----BEGIN CERTIFICATE-----\nYWJj\n-----END CERTIFICATE-----\n";
        let accepted: String = [further.certificate(), broken, further.certificate(), own.certificate()]
            .map(|pem| format!("    - {{crt: {}}}\n", encoded(pem)))
            .concat();
        let text =
            format!("version: v1alpha1\nmachine:\n  type: worker\n  token: a.b\n  acceptedCAs:\n{accepted}");
        let config = config::parse(&text).unwrap_or_else(|e| panic!("{e}"));
        let before = Material { authority: own.certificate().to_owned(), ..material() };
        let after = with_accepted(&node, &config, before).authority;
        assert_eq!(after.matches("BEGIN CERTIFICATE").count(), 2, "{after}");
        assert!(after.contains(further.certificate().trim()));
        assert_eq!(first_certificate(&after), own.certificate().trim());
        let log = std::fs::read_to_string(dir.path().join("log/machined.log")).unwrap();
        assert!(log.contains("machine.acceptedCAs[1]") && !log.contains("acceptedCAs[0]"), "{log}");
    }

    #[tokio::test]
    async fn trustd_learns_of_other_control_planes_and_no_certificate_changes() {
        let dir = tempfile::tempdir().unwrap();
        let node = crate::server::tests_node(dir.path().to_owned());
        let config = crate::server::tests_config(config::MachineType::ControlPlane);
        node.runtime.config.send_replace(Some(Arc::new(config)));
        let store = node.runtime.store.clone();
        let own = Spec::ApiCertificate(vec!["10.0.0.1".to_owned(), "cp-1".to_owned()]);
        store.put(API_CERTIFICATE.writer, &API_CERTIFICATE, "api", own).unwrap();
        let (mut of_apid, mut of_trustd) = (node.materials.of_apid(), node.materials.trustd.subscribe());
        let issuing = tokio::spawn(issue(node.clone()));
        let mut next = async |is_it: &dyn Fn(&Material) -> bool| {
            let found = of_trustd.wait_for(|material| material.as_deref().is_some_and(is_it));
            let found = tokio::time::timeout(Duration::from_secs(30), found).await.unwrap().unwrap();
            found.clone().unwrap()
        };
        let reserves = |material: &Material, name: &str| {
            material.trust.as_ref().unwrap().reserved.iter().any(|reserved| reserved == name)
        };
        let first = next(&|_| true).await;
        of_apid.mark_unchanged();

        let (one, two) = (["10.0.0.1", "fd00::1"], ["10.0.0.2", "fd00::2"]);
        let worker = ("w-1", "worker", ["10.0.0.7", "fd00::7"]);
        members::put(&store, &[("cp-1", "controlplane", one), ("cp-2", "controlplane", two), worker]);
        let second = next(&|material| reserves(material, "cp-2")).await;
        assert!(["10.0.0.2", "fd00::2"].iter().all(|name| reserves(&second, name)));
        assert!(!["w-1", "10.0.0.7", "fd00::7"].iter().any(|name| reserves(&second, name)));
        assert_eq!(second.certificate, first.certificate);
        let key = |material: &Material| material.trust.as_ref().unwrap().authority_key.clone();
        assert!(key(&second) == key(&first));

        // One that has left the cluster is a control plane no longer.
        members::put(&store, &[("cp-1", "controlplane", one), worker]);
        let third = next(&|material| !reserves(material, "cp-2")).await;
        assert_eq!(third.certificate, first.certificate);
        assert!(!of_apid.has_changed().unwrap(), "apid was given another certificate");
        issuing.abort();
    }

    #[tokio::test]
    async fn a_frame_without_end_is_refused() {
        let (mut here, there) = UnixStream::pair().unwrap();
        here.write_all(&u32::MAX.to_le_bytes()).await.unwrap();
        assert!(Source { stream: there }.next().await.is_err());
    }
}
