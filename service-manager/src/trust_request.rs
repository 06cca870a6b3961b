//! A worker's certificate, asked of a control plane's trustd.
//!
//! Owns: the request, the one call, the check of what came back.
//! Does not: keep the certificate or decide when to renew it ([`crate::identity`] does).
//! Order: trustd is verified with the CA of the config before the token is sent, and the certificate that comes back after
//! it. The first generation's worker configs hold no CA: no control plane can be verified with these, so none is asked.
//! Fails by: text for the log; the caller tries again.
//! Source: spec/machine-facts.md §2.3, spec/api-wire-facts.md §3.10.

use std::time::Duration;

use api::client::Client;
use api::pki::{Identity, PrivateKey, certificate_request};
use api::proto::securityapi::CertificateRequest;
use api::proto::securityapi::security_service_client::SecurityServiceClient;
use api::tls::{self, Trust};
use config::{Config, endpoint_host};
use tonic::metadata::{Ascii, MetadataValue};

use crate::identity::Material;
use crate::trustd;

/// For the whole exchange (spec/machine-facts.md §2.3).
const DEADLINE: Duration = Duration::from_secs(30);

/// Asks for a certificate that carries `names`.
pub(crate) async fn ask(config: &Config, names: &[String]) -> Result<Material, String> {
    let host = endpoint_host(&config.cluster.control_plane.endpoint)
        .ok_or("cluster.controlPlane.endpoint names no host to ask for a certificate")?;
    let endpoint = if host.contains(':') {
        format!("[{host}]:{}", trustd::PORT)
    } else {
        format!("{host}:{}", trustd::PORT)
    };
    let machine = &config.machine;
    if machine.ca.crt.0.trim().is_empty() {
        return Err("machine.ca.crt is not there, so no control plane can be verified, and the token is sent to none: take it \
                    from machine.ca.crt of a control plane's config"
            .to_owned());
    }
    let all = machine.accepted_cas.iter().map(|accepted| accepted.crt.0.as_str());
    let authority = std::iter::once(machine.ca.crt.0.as_str()).chain(all).collect::<Vec<_>>().join("\n");
    let own = Own { first: machine.ca.crt.0.as_str(), all: &authority };
    let exchange = exchange(&endpoint, own, machine.token.expose_secret(), names);
    tokio::time::timeout(DEADLINE, exchange)
        .await
        .map_err(|_| format!("trustd at {endpoint}: no certificate within {} s", DEADLINE.as_secs()))?
        .map_err(|error| format!("trustd at {endpoint}: {error}"))
}

/// Authorities of the config, PEM.
#[derive(Clone, Copy)]
struct Own<'c> {
    /// `machine.ca`.
    first: &'c str,
    /// It and the further ones.
    all: &'c str,
}

async fn exchange(endpoint: &str, own: Own<'_>, token: &str, names: &[String]) -> Result<Material, String> {
    let key = PrivateKey::generate().map_err(|e| e.to_string())?;
    let csr = certificate_request(&key, names).map_err(|e| e.to_string())?;
    let tls = tls::client(Trust::Authority(own.all), None).map_err(|e| e.to_string())?;
    let client =
        Client::connect_with(tls, &[endpoint.to_owned()], Vec::new()).await.map_err(|e| e.to_string())?;
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

    use api::pki::{Authority, CA_LIFETIME, CertificateFacts, LEAF_LIFETIME, Leaf, Lifetime, Usage};
    use api::tls::Identities;
    use config::Secret;
    use tokio::net::TcpListener;

    use super::*;
    use crate::identity::TrustMaterial;
    use crate::trustd::Trust as Signer;

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
            exchange(&endpoint, only(&ca), "abc.def", &names()).await.unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(material.authority, ca);
        let identity = Identity::from_pem("it", &material.certificate, &material.key).unwrap();
        Identities::new(&identity).unwrap();
        assert!(CertificateFacts::from_pem("it", &material.certificate).unwrap().remaining().is_some());
    }

    #[tokio::test]
    async fn without_an_authority_nothing_is_sent() {
        let text = "version: v1alpha1\nmachine:\n  type: worker\n  token: a.b\ncluster:\n  controlPlane: {endpoint: 'https://127.0.0.1:6443'}\n";
        let config = config::parse(text).unwrap_or_else(|e| panic!("{e}"));
        let error = ask(&config, &names()).await.err().unwrap();
        assert!(error.starts_with("machine.ca.crt is not there"), "{error}");
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
        let error = exchange(&endpoint, only(&ca), "abc.deg", &names()).await.err().unwrap();
        assert!(error.contains("machine.token"), "{error}");
    }

    #[tokio::test]
    async fn the_token_is_not_sent_to_somebody_else() {
        let (_, endpoint) = trustd().await;
        let other = Authority::generate("talos", Lifetime::from_now(CA_LIFETIME)).unwrap();
        let own = only(other.certificate());
        assert!(exchange(&endpoint, own, "abc.def", &names()).await.is_err());
    }
}
