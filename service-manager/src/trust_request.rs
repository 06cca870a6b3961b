//! A worker's certificate, asked of a control plane's trustd.
//!
//! Owns: the request, the one call, the check of what came back.
//! Does not: keep the certificate or decide when to renew it ([`crate::identity`] does).
//! Order: trustd is verified before the token is sent, and the certificate that comes back after it, with the CA of the
//! config. The first generation's worker configs hold none: theirs is the one that the cluster's API server tells, which the
//! kubelet verified with `cluster.ca` when it joined.
//! Fails by: text for the log; the caller tries again.
//! Source: docs/users/pki.md.

use std::net::IpAddr;
use std::time::Duration;

use api::client::Client;
use api::pki::{CertificateFacts, Identity, PrivateKey, certificate_request};
use api::proto::securityapi::CertificateRequest;
use api::proto::securityapi::security_service_client::SecurityServiceClient;
use api::tls::{self, Trust};
use config::{Config, endpoint_host};
use kubernetes_node::KubernetesNode;
use tonic::metadata::{Ascii, MetadataValue};

use crate::material::Material;
use crate::programs::Program;

/// For the whole exchange (docs/users/pki.md).
const DEADLINE: Duration = Duration::from_secs(30);

/// Asks for a certificate that carries `names`: a control plane node that the cluster knows, or the host of its endpoint.
pub(crate) async fn ask(
    config: &Config,
    names: &[String],
    kubernetes: Option<&KubernetesNode>,
) -> Result<Material, String> {
    let first = authority(config, kubernetes).await?;
    let machine = &config.machine;
    let further = machine.accepted_cas.iter().map(|accepted| accepted.crt.0.as_str());
    let all = std::iter::once(first.as_str()).chain(further).collect::<Vec<_>>().join("\n");
    let own = Own { first: &first, all: &all };
    let known = match kubernetes {
        Some(kubernetes) => kubernetes.control_planes().await,
        None => Ok(Vec::new()),
    };
    let (known, fault) = match known {
        Ok(known) => (known, String::new()),
        Err(error) => (Vec::new(), format!("; the cluster did not tell its control plane nodes: {error}")),
    };
    let places = places(&known, &config.cluster.control_plane.endpoint)?;
    let place = places.join(", ");
    let exchange = exchange(&places, own, machine.token.expose_secret(), names);
    tokio::time::timeout(DEADLINE, exchange)
        .await
        .map_err(|_| format!("trustd at {place}: no certificate within {} s{fault}", DEADLINE.as_secs()))?
        .map_err(|error| format!("trustd at {place}: {error}{fault}"))
}

/// Where a trustd may be, in the order in which they are asked: a cluster's endpoint may lead to its API servers alone.
fn places(known: &[IpAddr], endpoint: &str) -> Result<Vec<String>, String> {
    let host = endpoint_host(endpoint)
        .ok_or("cluster.controlPlane.endpoint names no host to ask for a certificate")?;
    let place = |host: &str| match host.contains(':') {
        true => format!("[{host}]:{}", Program::Trustd.port()),
        false => format!("{host}:{}", Program::Trustd.port()),
    };
    let mut places: Vec<String> = known.iter().map(|address| place(&address.to_string())).collect();
    let last = place(host);
    if !places.contains(&last) {
        places.push(last);
    }
    Ok(places)
}

/// The authority of the node API, PEM: that of the config, else the cluster's.
async fn authority(config: &Config, kubernetes: Option<&KubernetesNode>) -> Result<String, String> {
    let own = config.machine.ca.crt.0.as_str();
    if !own.trim().is_empty() {
        return Ok(own.to_owned());
    }
    const MISSING: &str = "machine.ca.crt is not there";
    let known = match kubernetes {
        Some(kubernetes) => kubernetes.machine_authority().await.map_err(|error| {
            format!("{MISSING}, and the cluster did not tell which authority its node API has: {error}")
        })?,
        None => None,
    };
    let known = known.ok_or_else(|| {
        format!("{MISSING}: the authority of the node API is known when the kubelet has joined the cluster")
    })?;
    let told = "the cluster's authority of the node API";
    CertificateFacts::from_pem(told, &known).map_err(|error| format!("{MISSING}, and {error}"))?;
    Ok(known)
}

/// Authorities of the config, PEM.
#[derive(Clone, Copy)]
struct Own<'c> {
    /// `machine.ca`, or what stands for it.
    first: &'c str,
    /// It and the further ones.
    all: &'c str,
}

async fn exchange(
    places: &[String],
    own: Own<'_>,
    token: &str,
    names: &[String],
) -> Result<Material, String> {
    let key = PrivateKey::generate().map_err(|e| e.to_string())?;
    let csr = certificate_request(&key, names).map_err(|e| e.to_string())?;
    let tls = tls::client(Trust::Authority(own.all), None).map_err(|e| e.to_string())?;
    let client = Client::connect_with(tls, places, Vec::new()).await.map_err(|e| e.to_string())?;
    let mut token: MetadataValue<Ascii> =
        token.parse().map_err(|_| "machine.token has characters that no header can carry")?;
    token.set_sensitive(true);
    let mut request = tonic::Request::new(CertificateRequest { csr: csr.into_bytes() });
    request.metadata_mut().insert("token", token);
    let answer = SecurityServiceClient::new(client.channel())
        .certificate(request)
        .await
        .map_err(|status| refused(status.message()))?
        .into_inner();
    accept(own, answer.crt, &key, names)
}

fn refused(message: &str) -> String {
    if message == "Unauthenticated" {
        return "it does not know our token; machine.token must be that of the control plane".to_owned();
    }
    message.to_owned()
}

/// What came back must be a certificate of our key with our names, by an authority of the config. The authorities that came
/// with it are left aside: clients are let in by what the config says.
fn accept(own: Own<'_>, crt: Vec<u8>, key: &PrivateKey, names: &[String]) -> Result<Material, String> {
    let certificate = String::from_utf8(crt).map_err(|_| "the answer is not PEM".to_owned())?;
    let key = key.to_pem();
    Identity::from_pem("the signed certificate", &certificate, &key).map_err(|e| e.to_string())?;
    tls::check_server(own.all, &certificate, names).map_err(|e| format!("the signed certificate: {e}"))?;
    let authority = own.first.to_owned();
    Ok(Material {
        authority,
        certificate,
        key,
        names: names.to_vec(),
        forwarding: None,
        trust: None,
        maintenance: Default::default(),
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use api::pki::{Authority, CA_LIFETIME, LEAF_LIFETIME, Leaf, Lifetime, Usage};
    use api::tls::Identities;
    use config::Secret;
    use tokio::net::TcpListener;

    use super::*;
    use crate::material::TrustMaterial;
    use crate::trustd::{self, Trust as Signer};

    /// A real trustd on loopback; its CA and where it listens.
    async fn trustd() -> (String, String) {
        let authority = Authority::generate("talos", Lifetime::from_now(CA_LIFETIME)).unwrap();
        let leaf = Leaf {
            organizations: vec![],
            names: vec!["127.0.0.1".into()],
            usage: Usage::Server,
            lifetime: Lifetime::from_now(LEAF_LIFETIME),
        };
        let identity = authority.issue(&leaf).unwrap();
        let material = Material {
            authority: authority.certificate().to_owned(),
            certificate: identity.certificate.clone(),
            key: identity.key.to_pem(),
            names: vec!["127.0.0.1".into(), "control-1".into()],
            forwarding: None,
            trust: Some(TrustMaterial {
                authority_key: authority.key(),
                token: Secret::new("abc.def"),
                reserved: vec![],
            }),
            maintenance: Default::default(),
        };
        let identities: Arc<Identities> = Identities::new(&identity).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = listener.local_addr().unwrap().to_string();
        tokio::spawn(trustd::serve(listener, identities, Signer::new(&material).unwrap()));
        (authority.certificate().to_owned(), endpoint)
    }

    fn only(authority: &str) -> Own<'_> {
        Own { first: authority, all: authority }
    }

    fn names() -> Vec<String> {
        vec!["10.0.0.7".to_owned(), "127.0.0.1".to_owned(), "worker-7".to_owned()]
    }

    #[tokio::test]
    async fn a_worker_gets_a_certificate_it_can_serve_with() {
        let (ca, endpoint) = trustd().await;
        let material =
            exchange(&[endpoint], only(&ca), "abc.def", &names()).await.unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(material.authority, ca);
        let identity = Identity::from_pem("it", &material.certificate, &material.key).unwrap();
        Identities::new(&identity).unwrap();
        assert!(CertificateFacts::from_pem("it", &material.certificate).unwrap().remaining().is_some());
    }

    #[tokio::test]
    async fn without_an_authority_nothing_is_sent() {
        let text = "version: v1alpha1\nmachine:\n  type: worker\n  token: a.b\ncluster:\n  controlPlane: {endpoint: 'https://127.0.0.1:6443'}\n";
        let config = config::parse(text).unwrap_or_else(|e| panic!("{e}"));
        let error = ask(&config, &names(), None).await.err().unwrap();
        assert!(error.starts_with("machine.ca.crt is not there"), "{error}");
    }

    #[test]
    fn control_plane_nodes_come_before_the_endpoint_and_none_twice() {
        let known = ["10.0.0.3".parse().unwrap(), "fd00::3".parse().unwrap()];
        let of = |endpoint| places(&known, endpoint).unwrap();
        let nodes = ["10.0.0.3:50001", "[fd00::3]:50001"];
        assert_eq!(of("https://10.0.0.3:6443"), nodes);
        assert_eq!(of("https://k8s.example.org:6443"), [&nodes[..], &["k8s.example.org:50001"]].concat());
        assert_eq!(places(&[], "https://[fd00::9]:6443").unwrap(), ["[fd00::9]:50001"]);
        assert!(places(&known, "nothing").is_err());
    }

    /// Behind an address without a trustd another one answers.
    #[tokio::test]
    async fn another_place_is_asked_where_none_answers() {
        let (ca, endpoint) = trustd().await;
        let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        let places = [closed.to_string(), endpoint];
        assert!(exchange(&places, only(&ca), "abc.def", &names()).await.is_ok());
    }

    /// A control plane that was taken over sends another authority along: its clients would be let in.
    #[test]
    fn only_authorities_of_the_config_count() {
        let make = || Authority::generate("talos", Lifetime::from_now(CA_LIFETIME)).unwrap();
        let (own, other, further) = (make(), make(), make());
        let key = PrivateKey::generate().unwrap();
        let sign = |authority: &Authority, names: &[String]| {
            let request = certificate_request(&key, names).unwrap();
            let lifetime = Lifetime::from_now(LEAF_LIFETIME);
            let leaf = Leaf { organizations: vec![], names: vec![], usage: Usage::Server, lifetime };
            authority.sign_request(&request, &leaf).unwrap().into_bytes()
        };
        let all = format!("{}\n{}", own.certificate(), further.certificate());
        let config = Own { first: own.certificate(), all: &all };
        for authority in [&own, &further] {
            let material = accept(config, sign(authority, &names()), &key, &names()).unwrap();
            assert_eq!(material.authority, own.certificate());
        }
        let error = accept(config, sign(&other, &names()), &key, &names()).err().unwrap();
        assert!(error.contains("the signed certificate: "), "{error}");
        let error = accept(config, sign(&own, &names()[..2]), &key, &names()).err().unwrap();
        assert!(error.contains("for worker-7: "), "{error}");
    }

    #[tokio::test]
    async fn a_wrong_token_is_explained() {
        let (ca, endpoint) = trustd().await;
        let error = exchange(&[endpoint], only(&ca), "abc.deg", &names()).await.err().unwrap();
        assert!(error.contains("machine.token"), "{error}");
    }

    #[tokio::test]
    async fn the_token_is_not_sent_to_somebody_else() {
        let (_, endpoint) = trustd().await;
        let other = Authority::generate("talos", Lifetime::from_now(CA_LIFETIME)).unwrap();
        let own = only(other.certificate());
        assert!(exchange(&[endpoint], own, "abc.def", &names()).await.is_err());
    }
}
