//! The node's certificates: which there are, until when they are valid, and others in their place when a client asks.
//!
//! | function | reads | writes | ends |
//! |---|---|---|---|
//! | [`follow`] | the config, apid's material, files of `kubernetes_node` | `CertificateStatuses` | with machined |
//!
//! Does not: make any; [`identity`](crate::identity) makes those of the node API, `kubernetes_node` the others.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use api::pki::CertificateFacts;
use jiff::Timestamp;
use kubernetes_node::certificate_list::{self, Listed, Renewal, Renewed};
use runtime::clock;
use runtime::store::{CERTIFICATE_STATUS, Spec};
use serde_json::json;

use super::handle::Identity;

/// Between two looks at files that a kubelet changes.
const LOOK: Duration = Duration::from_secs(60);
/// For the node API's own: a worker asks a control plane node for it.
const ISSUE_DEADLINE: Duration = Duration::from_secs(20);
/// The node API's, as its clients see it.
const API: &str = "api";
/// With which apid asks other nodes.
const API_CLIENT: &str = "api-client";

/// Shows them, for as long as this is polled.
pub(crate) async fn follow(identity: Arc<Identity>) {
    let mut config = identity.runtime.config.subscribe();
    let mut material = identity.of_apid();
    loop {
        config.mark_unchanged();
        material.mark_unchanged();
        publish(&identity);
        tokio::select! {
            changed = config.changed() => if changed.is_err() { return },
            changed = material.changed() => if changed.is_err() { return },
            () = tokio::time::sleep(LOOK) => {}
        }
    }
}

fn publish(identity: &Identity) {
    let now = SystemTime::now();
    let wanted = all(identity).into_iter().map(|listed| (listed.id.clone(), spec(&listed, now))).collect();
    let kind = &CERTIFICATE_STATUS;
    if let Err(error) = identity.runtime.store.replace(kind.writer, kind, wanted) {
        identity.runtime.journal.warn(&error.to_string());
    }
}

fn all(identity: &Identity) -> Vec<Listed> {
    let Some(config) = identity.runtime.config() else { return Vec::new() };
    let mut all = certificate_list::list(&identity.runtime.root, &config);
    let material = identity.of_apid().borrow().clone();
    let Some(material) = material else { return all };
    let client = material.forwarding.as_ref().map(|forwarding| forwarding.certificate.as_str());
    for (id, pem) in [(API, Some(material.certificate.as_str())), (API_CLIENT, client)] {
        let facts = pem.and_then(|pem| CertificateFacts::from_pem("it", pem).ok());
        let place = "memory".to_owned();
        all.extend(facts.map(|facts| Listed { id: id.to_owned(), facts, renewal: Renewal::Node, place }));
    }
    all
}

fn spec(listed: &Listed, now: SystemTime) -> Spec {
    let Listed { facts, renewal, place, .. } = listed;
    Spec::Fields(json!({
        "subject": facts.common_name,
        "organizations": facts.organizations,
        "issuer": facts.issuer,
        "names": facts.names,
        "notBefore": time(facts.not_before),
        "notAfter": time(facts.not_after),
        "renewedBy": renewal.name(),
        "endsSoon": facts.ends_soon(now),
        "place": place,
    }))
}

/// RFC 3339, in seconds. Empty where no calendar has it.
fn time(at: SystemTime) -> String {
    Timestamp::try_from(at).map(clock::text).unwrap_or_default()
}

/// What to say of certificates that end soon, or have ended.
pub(crate) fn warnings(identity: &Identity) -> Vec<String> {
    let now = SystemTime::now();
    all(identity).iter().filter_map(|listed| warning(listed, now)).collect()
}

fn warning(listed: &Listed, now: SystemTime) -> Option<String> {
    let Listed { id, facts, renewal, place } = listed;
    if !facts.ends_soon(now) {
        return None;
    }
    let ends = if facts.not_after < now { "ended" } else { "ends" };
    let what_to_do = match renewal {
        Renewal::Node | Renewal::Kubelet => "`billetctl certs renew` makes another one",
        Renewal::Config => "docs/users/certificates.md says how to replace it",
    };
    Some(format!("certificate {id} ({place}) {ends} at {}; {what_to_do}", time(facts.not_after)))
}

/// Makes those anew that this node or its kubelet made.
pub(crate) async fn renew(identity: &Identity) -> Renewed {
    let mut renewed = match identity.kubernetes.get() {
        Some(kubernetes) => kubernetes.renew_certificates().await,
        None => Renewed::default(),
    };
    match renew_api(identity).await {
        Ok(ids) => renewed.ids.extend(ids.iter().map(|id| (*id).to_owned())),
        Err(reason) => renewed.failed.push(reason),
    }
    renewed.ids.sort_unstable();
    publish(identity);
    renewed
}

/// Open connections stay: apid shows the new one to the next ones.
async fn renew_api(identity: &Identity) -> Result<Vec<&'static str>, String> {
    let mut material = identity.of_apid();
    let certificate = |material: &Option<Arc<crate::material::Material>>| {
        material.as_ref().map(|material| material.certificate.clone())
    };
    let before = certificate(&material.borrow_and_update());
    identity.want_others();
    let other = material.wait_for(|material| certificate(material) != before);
    match tokio::time::timeout(ISSUE_DEADLINE, other).await {
        Ok(Ok(material)) => {
            let has_client = material.as_ref().is_some_and(|material| material.forwarding.is_some());
            Ok(if has_client { vec![API, API_CLIENT] } else { vec![API] })
        }
        Ok(Err(_)) => Err("api: machined ends".to_owned()),
        Err(_) => Err(format!(
            "api: no other certificate within {} s; the kernel log says why, and it is tried again",
            ISSUE_DEADLINE.as_secs()
        )),
    }
}

#[cfg(test)]
mod tests {
    use api::pki::{Authority, Leaf, Lifetime, Usage};
    use config::MachineType;
    use runtime::store::API_CERTIFICATE;

    use super::*;

    fn listed(days_since: u64, days_left: i64, renewal: Renewal) -> Listed {
        let now = SystemTime::now();
        let day = |days: u64| Duration::from_secs(days * 86_400);
        let authority = Authority::generate("demo", Lifetime::from_now(day(3650))).unwrap();
        let left = match u64::try_from(days_left) {
            Ok(left) => now + day(left),
            Err(_) => now - day(days_left.unsigned_abs()),
        };
        let leaf = Leaf {
            organizations: Vec::new(),
            names: Vec::new(),
            usage: Usage::Client,
            lifetime: Lifetime { not_before: now - day(days_since), not_after: left },
        };
        let pem = authority.issue(&leaf).unwrap().certificate;
        let facts = CertificateFacts::from_pem("it", &pem).unwrap();
        Listed { id: "etcd-peer".into(), facts, renewal, place: "/a/b.crt".into() }
    }

    #[test]
    fn what_ends_soon_is_told_with_what_to_do() {
        let now = SystemTime::now();
        assert_eq!(warning(&listed(100, 265, Renewal::Node), now), None);
        let soon = warning(&listed(340, 25, Renewal::Node), now).unwrap();
        assert!(soon.starts_with("certificate etcd-peer (/a/b.crt) ends at 20"), "{soon}");
        assert!(soon.contains("billetctl certs renew"), "{soon}");
        let over = warning(&listed(365, -1, Renewal::Config), now).unwrap();
        assert!(over.contains(" ended at ") && over.contains("docs/users/certificates.md"), "{over}");
    }

    #[tokio::test]
    async fn the_node_s_own_is_listed_and_made_anew_on_demand() {
        let dir = tempfile::tempdir().unwrap();
        let node = crate::server::tests_node(dir.path().canonicalize().unwrap());
        let identity = node.identity.clone();
        assert!(all(&identity).is_empty(), "without a config there is none to list");
        let config = crate::server::tests_config(MachineType::ControlPlane);
        identity.runtime.config.send_replace(Some(Arc::new(config)));
        let names = Spec::ApiCertificate(vec!["10.0.0.3".into()]);
        identity.runtime.store.put(API_CERTIFICATE.writer, &API_CERTIFICATE, "api", names).unwrap();
        tokio::spawn(crate::identity::issue(identity.clone()));
        tokio::spawn(follow(identity.clone()));
        let mut material = identity.of_apid();
        material.wait_for(Option::is_some).await.unwrap();
        let certificate = || identity.of_apid().borrow().as_ref().unwrap().certificate.clone();
        let before = certificate();
        assert_eq!(
            renew(&identity).await,
            Renewed { ids: vec![API.into(), API_CLIENT.into()], failed: vec![] }
        );
        assert_ne!(certificate(), before);
        let listed = identity.runtime.store.list(&CERTIFICATE_STATUS);
        let ids: Vec<&str> = listed.iter().map(|resource| resource.metadata.id.as_str()).collect();
        assert_eq!(ids, [API, API_CLIENT, "ca-aggregator", "ca-etcd", "ca-kubernetes", "ca-machine"]);
        assert!(warnings(&identity).is_empty());
    }
}
