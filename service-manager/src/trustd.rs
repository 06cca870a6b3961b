//! trustd: signs the certificates of joining nodes. TCP 50001, server-only TLS, a shared token.
//!
//! Owns: the rule of what is signed: a server certificate for 24 hours with the names of the request, without any
//! Organization, whatever the request asks for.
//! Does not: serve files, as its forerunner did.
//! Fails by: `Unauthenticated` for a wrong token, with one line that names the peer.
//! Source: spec/api-wire-facts.md §3.10.

use std::net::SocketAddr;
use std::sync::{Arc, RwLock};

use api::pki::{Authority, Identity, LEAF_LIFETIME, Leaf, Lifetime, Usage};
use api::proto::securityapi::security_service_server::{SecurityService, SecurityServiceServer};
use api::proto::securityapi::{CertificateRequest, CertificateResponse};
use api::tls::{self, Identities};
use tokio::net::TcpListener;
use tonic::{Request, Response, Status};

use crate::identity::{Material, Role, Source, TrustMaterial, first_certificate};

/// trustd's port.
pub const PORT: u16 = 50001;
/// trustd's user and group.
pub const USER: u32 = 51;

struct Signer {
    authority: Authority,
    /// PEM of it and of the further CAs that nodes accept.
    accepted: String,
    trust: TrustMaterial,
}

/// The service; the signer changes with the config.
#[derive(Clone)]
pub(crate) struct Trust {
    signer: Arc<RwLock<Signer>>,
}

impl Trust {
    /// A service that signs with this material.
    pub(crate) fn new(material: &Material) -> Result<Self, String> {
        Ok(Self { signer: Arc::new(RwLock::new(signer(material)?)) })
    }

    fn replace(&self, material: &Material) -> Result<(), String> {
        *self.signer.write().unwrap_or_else(std::sync::PoisonError::into_inner) = signer(material)?;
        Ok(())
    }

    fn sign(&self, token: &str, request: &str) -> Result<CertificateResponse, Status> {
        let signer = self.signer.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        if token.is_empty() || !signer.trust.token.matches(token) {
            return Err(Status::unauthenticated("Unauthenticated"));
        }
        let lifetime = Lifetime::from_now(LEAF_LIFETIME);
        let leaf = Leaf { organizations: vec![], names: Vec::new(), usage: Usage::Server, lifetime };
        let signed = signer.authority.sign_request(request, &leaf);
        let crt = signed.map_err(|e| Status::invalid_argument(e.to_string()))?;
        Ok(CertificateResponse { ca: signer.accepted.as_bytes().to_vec(), crt: crt.into_bytes() })
    }
}

fn signer(material: &Material) -> Result<Signer, String> {
    let trust = material.trust.clone().ok_or("the material has no signing key")?;
    let own = first_certificate(&material.authority);
    let authority = Authority::from_pem(own, &trust.authority_key).map_err(|e| e.to_string())?;
    Ok(Signer { authority, accepted: material.authority.clone(), trust })
}

#[tonic::async_trait]
impl SecurityService for Trust {
    async fn certificate(
        &self,
        request: Request<CertificateRequest>,
    ) -> Result<Response<CertificateResponse>, Status> {
        let peer = request.remote_addr();
        let token = request
            .metadata()
            .get("token")
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
            .to_owned();
        let text = String::from_utf8(request.into_inner().csr)
            .map_err(|_| Status::invalid_argument("csr is not PEM"))?;
        self.sign(&token, &text).map(Response::new).inspect_err(|status| note_refusal(peer, status))
    }

    async fn read_file(
        &self,
        _request: Request<api::proto::securityapi::ReadFileRequest>,
    ) -> Result<Response<api::proto::securityapi::ReadFileResponse>, Status> {
        Err(Status::unimplemented("files are not served by trustd"))
    }

    async fn write_file(
        &self,
        _request: Request<api::proto::securityapi::WriteFileRequest>,
    ) -> Result<Response<api::proto::securityapi::WriteFileResponse>, Status> {
        Err(Status::unimplemented("files are not served by trustd"))
    }
}

fn note_refusal(peer: Option<SocketAddr>, status: &Status) {
    let peer = peer.map_or_else(|| "an unknown peer".to_owned(), |peer| peer.to_string());
    eprintln!("trustd: refused {peer}: {}", status.message());
}

/// Runs trustd.
pub async fn run() -> Result<(), String> {
    let socket = sys::process::inherited(crate::apid::LISTENER_FD)
        .map_err(|e| format!("take the listening socket: {e}"))?;
    let mut source = Source::connect(Role::Trustd.socket()).await;
    let material = source.next().await.map_err(|e| format!("receive the certificate: {e}"))?;
    let identity = |material: &Material| {
        Identity::from_pem("trustd's certificate", &material.certificate, &material.key)
            .map_err(|e| e.to_string())
    };
    let identities = Identities::new(&identity(&material)?).map_err(|e| e.to_string())?;
    let trust = Trust::new(&material)?;
    let listener = std::net::TcpListener::from(socket);
    listener.set_nonblocking(true).map_err(|e| format!("listen: {e}"))?;
    let listener = TcpListener::from_std(listener).map_err(|e| format!("listen: {e}"))?;
    let serving = tokio::spawn(serve(listener, identities.clone(), trust.clone()));
    let renewing = async {
        loop {
            // Errors mean that machined is gone for a moment: it is asked again below.
            let _ = source.acknowledge().await;
            match source.next().await {
                Ok(material) => {
                    identities.replace(&identity(&material)?).map_err(|e| e.to_string())?;
                    trust.replace(&material)?;
                }
                Err(_) => {
                    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                    source = Source::connect(Role::Trustd.socket()).await;
                    if let Ok(material) = source.next().await {
                        identities.replace(&identity(&material)?).map_err(|e| e.to_string())?;
                        trust.replace(&material)?;
                    }
                }
            }
        }
    };
    tokio::select! {
        result = renewing => result,
        ended = serving => ended.map_err(|e| e.to_string())?,
    }
}

/// Serves a listener.
pub(crate) async fn serve(
    listener: TcpListener,
    identities: Arc<Identities>,
    trust: Trust,
) -> Result<(), String> {
    let config = tls::server_without_clients(identities).map_err(|e| e.to_string())?;
    let incoming = tls::accept(listener, config, |refusal| eprintln!("trustd: {refusal}"));
    tonic::transport::Server::builder()
        .add_service(SecurityServiceServer::new(trust))
        .serve_with_incoming(incoming)
        .await
        .map_err(|e| format!("serve: {e}"))
}

#[cfg(test)]
mod tests {
    use api::pki::{CA_LIFETIME, CertificateFacts, PrivateKey, certificate_request};
    use config::Secret;

    use super::*;

    fn material() -> Material {
        let authority = Authority::generate("talos", Lifetime::from_now(CA_LIFETIME)).unwrap();
        let leaf = Leaf {
            organizations: vec![],
            names: vec!["127.0.0.1".into()],
            usage: Usage::Server,
            lifetime: Lifetime::from_now(LEAF_LIFETIME),
        };
        let identity = authority.issue(&leaf).unwrap();
        Material {
            maintenance: false,
            authority: authority.certificate().to_owned(),
            certificate: identity.certificate.clone(),
            key: identity.key.to_pem(),
            names: vec![],
            forwarding: None,
            trust: Some(TrustMaterial { authority_key: authority.key(), token: Secret::new("abc.def") }),
        }
    }

    #[test]
    fn a_request_is_signed_without_its_organization() {
        let trust = Trust::new(&material()).unwrap();
        let key = PrivateKey::generate().unwrap();
        let request = certificate_request(&key, &["10.0.0.7".into(), "n7".into()]).unwrap();
        let answer = trust.sign("abc.def", &request).unwrap();
        let facts = CertificateFacts::from_pem("it", std::str::from_utf8(&answer.crt).unwrap()).unwrap();
        assert!(facts.organizations.is_empty() && !facts.is_ca);
    }

    #[test]
    fn a_wrong_token_signs_nothing() {
        let trust = Trust::new(&material()).unwrap();
        let request = certificate_request(&PrivateKey::generate().unwrap(), &["n7".into()]).unwrap();
        for token in ["", "abc", "abc.deg"] {
            assert_eq!(trust.sign(token, &request).unwrap_err().message(), "Unauthenticated");
        }
        assert_eq!(trust.sign("abc.def", "garbage").unwrap_err().code(), tonic::Code::InvalidArgument);
    }
}
