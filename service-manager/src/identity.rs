//! The certificates of this node's API, and who gets them: apid and trustd, each over a unix socket of its own.
//!
//! | task | reads | writes | ends |
//! |---|---|---|---|
//! | [`issue`] | the wanted names, the config, the cluster's nodes, half of the certificate's life | the [`Material`] of both | with machined |
//! | accept loop, one a program | connections | one sender task each | with machined |
//! | sender, one a connection | new material | frames; reads one byte when the program serves with it | with its peer |
//!
//! Owns: when they are issued, and of what.
//! Does not: know how they cross the socket ([`crate::material`] does), or let anyone but the program's own user (or root)
//! read: the socket's peer credentials are checked.

pub(crate) mod certificates;
mod handle;

use std::sync::Arc;
use std::time::Duration;

use api::pki::{Authority, CertificateFacts, LEAF_LIFETIME, Leaf, Lifetime, Usage};
use config::{Config, Secret};
use runtime::listeners::ListenError;
use runtime::store::{API_CERTIFICATE, DHCP_LEASE, MEMBER, Spec, Store};
use tokio::net::{UnixListener, UnixStream};

pub(crate) use handle::{Identity, Parts};

use crate::locked::Maintenance;
use crate::material::{self, ForwardMaterial, Material, TrustMaterial, reaches_others};
use crate::programs::Program;
use crate::{configuration, container, members, trust_request};

/// Without any lease for this long the API is declared ready on loopback alone.
const FIRST_LEASE_DEADLINE: Duration = Duration::from_secs(15);
/// How long a program may take to serve with new material.
const ACKNOWLEDGE_DEADLINE: Duration = Duration::from_secs(10);
/// Between attempts after a failed issue, at first and at most; it doubles. A worker often starts a moment before the control plane
/// node that it asks, and starts nothing of Kubernetes before it has its certificate.
const FIRST_RETRY: Duration = Duration::from_millis(250);
const LAST_RETRY: Duration = Duration::from_secs(10);
/// Between attempts to take a connection.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// Opens a program's socket and serves it.
pub(crate) fn open(identity: &Arc<Identity>, program: Program) -> Result<(), ListenError> {
    let socket = identity.runtime.listeners.unix(program.name(), program.socket(), program.user())?;
    let listen = |e| ListenError::Unix(program.socket().display().to_string(), e);
    socket.set_nonblocking(true).map_err(listen)?;
    let listener = UnixListener::from_std(socket).map_err(listen)?;
    let (name, about) = match program {
        Program::Apid => ("apid-material", "gives apid its certificate and what it trusts"),
        Program::Trustd => ("trustd-material", "gives trustd its certificate and what it trusts"),
    };
    identity.runtime.start_task(name, about, accept(identity.clone(), program, listener));
    Ok(())
}

async fn accept(identity: Arc<Identity>, program: Program, listener: UnixListener) {
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                identity.runtime.journal.warn(&format!("accept on {}: {error}", program.socket().display()));
                tokio::time::sleep(ACCEPT_RETRY).await;
                continue;
            }
        };
        let user = stream.peer_cred().map(|peer| peer.uid());
        match user {
            Ok(user) if user == program.user() || user == 0 => {
                tokio::spawn(send_all(identity.clone(), program, stream));
            }
            Ok(user) => identity
                .runtime
                .journal
                .warn(&format!("refused user {user} on the socket of {}", program.name())),
            Err(error) => {
                identity.runtime.journal.warn(&format!("read the peer of {}: {error}", program.name()))
            }
        }
    }
}

async fn send_all(identity: Arc<Identity>, program: Program, mut stream: UnixStream) {
    let mut news = identity.slot(program).subscribe();
    loop {
        let material = news.borrow_and_update().clone();
        if let Some(material) = material {
            match tokio::time::timeout(ACKNOWLEDGE_DEADLINE, material::send(&mut stream, &material)).await {
                Ok(Ok(())) if program == Program::Apid && material.maintenance != Maintenance::No => {
                    configuration::maintenance::announce(&identity.runtime, &identity.volumes, &material);
                }
                Ok(Ok(())) if program == Program::Apid => note_serving(&identity, &material),
                Ok(Ok(())) => {}
                // The program is gone; its next process asks again.
                Ok(Err(_)) => return,
                Err(_) => {
                    let seconds = ACKNOWLEDGE_DEADLINE.as_secs();
                    let text = format!(
                        "{} does not serve after {seconds} s (deadline new certificate)",
                        program.name()
                    );
                    return identity.runtime.journal.warn(&text);
                }
            }
        }
        if news.changed().await.is_err() {
            return;
        }
    }
}

fn note_serving(identity: &Identity, material: &Material) {
    let addressed = material.names.iter().any(|name| reaches_others(name));
    identity.readiness.send_modify(|readiness| {
        readiness.serving = true;
        readiness.addressed |= addressed;
    });
    announce(identity);
}

/// Says once that the API is ready, when it is.
fn announce(identity: &Identity) {
    let first = identity.readiness.send_if_modified(|readiness| {
        let ready = readiness.serving && (readiness.addressed || readiness.gave_up);
        let first = ready && !readiness.announced;
        readiness.announced |= ready;
        first
    });
    if first {
        identity.runtime.journal.say(&format!("API ready on :{}", Program::Apid.port()));
    }
}

/// Lets the API be ready without an address when no DHCP server answers. A container asks none: its runtime gave addresses.
pub(crate) async fn give_up_without_lease(identity: Arc<Identity>) {
    if container::is_one(&identity.runtime) {
        return;
    }
    tokio::time::sleep(FIRST_LEASE_DEADLINE).await;
    if identity.runtime.store.list(&DHCP_LEASE).is_empty() && !identity.readiness.borrow().addressed {
        let seconds = FIRST_LEASE_DEADLINE.as_secs();
        identity.runtime.journal.warn(&format!(
            "networkd: no DHCP lease within {seconds} s (deadline first lease); still asking"
        ));
        identity.readiness.send_modify(|readiness| readiness.gave_up = true);
        announce(&identity);
    }
}

/// Issues certificates: when the names change, when half of their life is over. Other control planes change what is refused, and
/// no certificate.
pub(crate) async fn issue(identity: Arc<Identity>) {
    let mut changes = identity.runtime.store.changes();
    let mut readiness = identity.readiness.subscribe();
    let mut config = identity.runtime.config.subscribe();
    let mut maintenance = identity.maintenance.clone();
    let (mut said, mut retry) = (String::new(), FIRST_RETRY);
    loop {
        config.mark_unchanged();
        maintenance.mark_unchanged();
        let wait = match try_issue(&identity).await {
            Ok(Some(remaining)) => {
                (said, retry) = (String::new(), FIRST_RETRY);
                remaining / 2
            }
            Ok(None) => Duration::MAX,
            Err(error) => {
                // Once for each reason: it is tried again and again.
                if said != error {
                    identity.runtime.journal.warn(&format!("issue the API's certificate: {error}"));
                    said = error;
                }
                let wait = retry;
                retry = after(retry);
                wait
            }
        };
        let names_changed = async {
            loop {
                match changes.recv().await {
                    Ok(change) if change.resource.metadata.kind == MEMBER.kind => reserve_anew(&identity),
                    Ok(change) if change.resource.metadata.kind != API_CERTIFICATE.kind => {}
                    _ => return,
                }
            }
        };
        tokio::select! {
            () = names_changed => {}
            // Another authority, or the first one.
            _ = config.changed() => retry = FIRST_RETRY,
            _ = maintenance.changed() => {}
            () = identity.wanted.notified() => {}
            _ = readiness.wait_for(|readiness| readiness.gave_up), if !readiness.borrow().gave_up => {}
            () = sleep(wait) => {}
        }
    }
}

/// The wait after a wait that did not help.
fn after(retry: Duration) -> Duration {
    (retry * 2).min(LAST_RETRY)
}

async fn sleep(wait: Duration) {
    if wait == Duration::MAX { std::future::pending().await } else { tokio::time::sleep(wait).await }
}

/// Issues, or has trustd issue, if there is something to issue for. Says how long the certificate lasts.
async fn try_issue(identity: &Identity) -> Result<Option<Duration>, String> {
    let Some(resource) = identity.runtime.store.get(&API_CERTIFICATE, "api") else { return Ok(None) };
    let Spec::ApiCertificate(names) = &resource.spec else { return Ok(None) };
    // A certificate that nobody can use from outside would be made twice.
    if !names.iter().any(|name| reaches_others(name)) && !identity.readiness.borrow().gave_up {
        return Ok(None);
    }
    let Some(config) = identity.runtime.config() else {
        issue_for_maintenance(identity, names)?;
        return Ok(None);
    };
    let material = match config.machine.ca.key() {
        Some(key) => make(&config, key, names)?,
        None => trust_request::ask(&config, names, identity.kubernetes.get()).await?,
    };
    let material = with_accepted(identity, &config, material);
    let facts = CertificateFacts::from_pem("the API's certificate", &material.certificate);
    let remaining = facts.map_err(|e| e.to_string())?.remaining().unwrap_or(LAST_RETRY);
    if let Some(trust) = trust_material(&config, &identity.runtime.store) {
        hand_out(
            identity,
            Program::Trustd,
            Material { trust: Some(trust), forwarding: None, ..material.clone() },
        );
    }
    hand_out(identity, Program::Apid, material);
    Ok(Some(remaining))
}

/// Gives a program what it serves with. Another authority means a new process: what the old one let in must go.
fn hand_out(identity: &Identity, program: Program, material: Material) {
    let slot = identity.slot(program);
    let other = slot.borrow().as_ref().is_some_and(|old| old.authority != material.authority);
    if other {
        // Before the program sees it: one that ends by itself is started again only after a pause.
        identity.runtime.services.restart(program.name());
    }
    slot.send_replace(Some(Arc::new(material)));
}

/// One certificate for the whole of maintenance: its fingerprint stands on the console.
fn issue_for_maintenance(identity: &Identity, names: &[String]) -> Result<(), String> {
    let kind = identity.maintenance.borrow().clone();
    if kind == Maintenance::No {
        return Ok(());
    }
    let slot = identity.slot(Program::Apid);
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
fn with_accepted(identity: &Identity, config: &Config, mut material: Material) -> Material {
    for (index, accepted) in config.machine.accepted_cas.iter().enumerate() {
        let pem = accepted.crt.0.trim();
        match CertificateFacts::from_pem("a further CA", pem) {
            Ok(_) if material.authority.contains(pem) => {}
            Ok(_) => material.authority = format!("{}\n{pem}\n", material.authority.trim_end()),
            Err(error) => {
                identity
                    .runtime
                    .journal
                    .warn(&format!("machine.acceptedCAs[{index}]: {error}; its clients are not let in"));
            }
        }
    }
    material
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
fn reserve_anew(identity: &Identity) {
    let Some(config) = identity.runtime.config() else { return };
    let reserved = reserved(&config, &identity.runtime.store);
    identity.trustd.send_if_modified(|slot| {
        let Some(material) = slot else { return false };
        let Some(trust) = material.trust.as_ref().filter(|trust| trust.reserved != reserved) else {
            return false;
        };
        let trust = Some(TrustMaterial { reserved, ..trust.clone() });
        *slot = Some(Arc::new(Material { trust, ..(**material).clone() }));
        true
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::material::first_certificate;

    #[test]
    fn further_authorities_are_added_once_and_nonsense_is_left_out() {
        use base64::Engine;
        let dir = tempfile::tempdir().unwrap();
        let identity = crate::server::tests_node(dir.path().to_owned()).identity.clone();
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
        let before =
            Material { authority: own.certificate().to_owned(), ..crate::material::tests::material() };
        let after = with_accepted(&identity, &config, before).authority;
        assert_eq!(after.matches("BEGIN CERTIFICATE").count(), 2, "{after}");
        assert!(after.contains(further.certificate().trim()));
        assert_eq!(first_certificate(&after), own.certificate().trim());
        let log = std::fs::read_to_string(dir.path().join("log/machined.log")).unwrap();
        assert!(log.contains("machine.acceptedCAs[1]") && !log.contains("acceptedCAs[0]"), "{log}");
    }

    #[test]
    fn a_refused_request_is_soon_made_again_and_then_less_often() {
        let waits: Vec<Duration> =
            std::iter::successors(Some(FIRST_RETRY), |retry| Some(after(*retry))).take(8).collect();
        // A control plane node that starts beside the worker answers within two seconds.
        assert!(waits[..3].iter().sum::<Duration>() < Duration::from_secs(2), "{waits:?}");
        assert!(waits.is_sorted() && waits[6..] == [LAST_RETRY; 2], "{waits:?}");
    }

    #[tokio::test]
    async fn trustd_learns_of_other_control_planes_and_no_certificate_changes() {
        let dir = tempfile::tempdir().unwrap();
        let node = crate::server::tests_node(dir.path().to_owned());
        let identity = node.identity.clone();
        let config = crate::server::tests_config(config::MachineType::ControlPlane);
        identity.runtime.config.send_replace(Some(Arc::new(config)));
        let store = identity.runtime.store.clone();
        let own = Spec::ApiCertificate(vec!["10.0.0.1".to_owned(), "cp-1".to_owned()]);
        store.put(API_CERTIFICATE.writer, &API_CERTIFICATE, "api", own).unwrap();
        let (mut of_apid, mut of_trustd) = (identity.of_apid(), identity.trustd.subscribe());
        let issuing = tokio::spawn(issue(identity.clone()));
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
}
