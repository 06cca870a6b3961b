//! A fresh cluster: keys, tokens, machine configurations and client configuration, in one call.
//!
//! Owns: which secrets a cluster starts with. [`fresh`] and [`Secrets`] make the small node of `xtask run` and of the
//! tests; [`Bundle`] and [`Cluster`] make what `billetctl gen` writes, in the form of talosctl's two generations.
//! Does not: write files. Source: docs/users/pki.md, docs/users/configuration.md.

mod bundle;
mod cluster;
mod contract;
mod document;
mod images;

pub use bundle::{Bundle, BundleError, KubernetesPki};
pub use cluster::{Cluster, ClusterError, cluster_endpoint};
pub use contract::{Contract, ContractError};

use crate::{
    pki::{Authority, CA_LIFETIME, Identity, Leaf, Lifetime, PkiError, Usage},
    roles::Role,
    talosconfig::{Context, Talosconfig},
};
use base64::{Engine, engine::general_purpose::STANDARD};
use config::{GenerateError as ConfigError, Input, MachineType, Secret, Tokens};

/// Subject O of the API's CA, as both client generations expect it.
const CA_ORGANIZATION: &str = "talos";

/// What the secrets of one cluster are.
pub struct Secrets {
    /// The CA of the node API.
    pub authority: Authority,
    /// Shared secrets.
    pub tokens: Tokens,
}

/// What a fresh cluster is asked to be.
#[derive(Debug, Clone)]
pub struct Request {
    /// Its name; also the name of the context.
    pub cluster_name: String,
    /// Where its Kubernetes API will answer: `https://host:port`.
    pub endpoint: String,
    /// Additional names and addresses of the node API's certificate.
    pub cert_sans: Vec<String>,
    /// Host name, if it is fixed.
    pub hostname: Option<String>,
    /// Addresses that the client connects to: `127.0.0.1:43210`.
    pub api_endpoints: Vec<String>,
    /// Nodes that the client's calls are for; empty for the endpoint itself.
    pub api_nodes: Vec<String>,
}

/// A fresh cluster of one node.
pub struct Fresh {
    /// Machine configuration of a control plane node.
    pub control_plane: Secret,
    /// Client configuration of an administrator.
    pub talosconfig: Secret,
    /// The secrets behind both, to make more of either.
    pub secrets: Secrets,
}

/// Why nothing was made.
#[derive(Debug, thiserror::Error)]
pub enum GenerateError {
    /// A key or certificate.
    #[error(transparent)]
    Pki(#[from] PkiError),
    /// The machine configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The secrets that were given.
    #[error(transparent)]
    Bundle(#[from] BundleError),
}

/// Makes a fresh cluster.
///
/// # Errors
/// [`GenerateError`] names the value that is wrong.
pub fn fresh(request: &Request) -> Result<Fresh, GenerateError> {
    let secrets = Secrets::generate()?;
    let control_plane = secrets.machine_config(request, MachineType::ControlPlane)?;
    let talosconfig =
        secrets.talosconfig(request, Some(Role::Admin), Lifetime::from_now(CA_LIFETIME))?.to_yaml();
    Ok(Fresh { control_plane, talosconfig, secrets })
}

impl Secrets {
    /// Fresh ones.
    ///
    /// # Errors
    /// [`PkiError::Make`].
    pub fn generate() -> Result<Self, PkiError> {
        let authority = Authority::generate(CA_ORGANIZATION, Lifetime::from_now(CA_LIFETIME))?;
        Ok(Self { authority, tokens: Tokens { machine: token()?, bootstrap: token()? } })
    }

    /// The text of a machine configuration; a worker gets the CA's certificate only.
    ///
    /// # Errors
    /// [`GenerateError::Config`] names the field that is wrong.
    pub fn machine_config(
        &self,
        request: &Request,
        machine_type: MachineType,
    ) -> Result<Secret, GenerateError> {
        let text = config::generate(Input {
            cluster_name: request.cluster_name.clone(),
            endpoint: request.endpoint.clone(),
            machine_type,
            ca_certificate: self.authority.certificate().to_owned(),
            ca_key: machine_type.is_control_plane().then(|| self.authority.key()),
            tokens: self.tokens.clone(),
            cert_sans: request.cert_sans.clone(),
            hostname: request.hostname.clone(),
            install_disk: Some("/dev/sda".to_owned()),
        })?;
        Ok(Secret::new(text))
    }

    /// A client configuration with a fresh certificate of `role`, or without any role.
    ///
    /// # Errors
    /// [`PkiError`].
    pub fn talosconfig(
        &self,
        request: &Request,
        role: Option<Role>,
        lifetime: Lifetime,
    ) -> Result<Talosconfig, PkiError> {
        let organizations = role.map(|r| r.name().to_owned()).into_iter().collect();
        let leaf = Leaf { organizations, names: Vec::new(), usage: Usage::Client, lifetime };
        Ok(talosconfig(request, self.authority.certificate(), &self.authority.issue(&leaf)?))
    }
}

/// A client configuration of one context, current at once.
pub fn talosconfig(request: &Request, authority: &str, identity: &Identity) -> Talosconfig {
    let context = Context {
        endpoints: request.api_endpoints.clone(),
        nodes: request.api_nodes.clone(),
        ca: Some(STANDARD.encode(authority)),
        crt: Some(STANDARD.encode(&identity.certificate)),
        key: Some(Secret::new(STANDARD.encode(identity.key.to_pem().expose_secret()))),
        ..Context::default()
    };
    Talosconfig {
        context: request.cluster_name.clone(),
        contexts: [(request.cluster_name.clone(), context)].into(),
    }
}

/// base64 of 32 random bytes: keys that encrypt, and identifiers.
fn random_key() -> Result<Secret, PkiError> {
    let mut bytes = zeroize::Zeroizing::new([0_u8; 32]);
    rustls::crypto::ring::default_provider()
        .secure_random
        .fill(bytes.as_mut())
        .map_err(|_| PkiError::Make { what: "a random key", reason: "no random bytes".to_owned() })?;
    Ok(Secret::new(STANDARD.encode(bytes.as_ref())))
}

/// A shared secret of the form `[a-z0-9]{6}.[a-z0-9]{16}`.
fn token() -> Result<Secret, PkiError> {
    const ALPHABET: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";
    let mut text = zeroize::Zeroizing::new(String::with_capacity(23));
    while text.len() < 23 {
        let mut bytes = zeroize::Zeroizing::new([0_u8; 64]);
        rustls::crypto::ring::default_provider()
            .secure_random
            .fill(bytes.as_mut())
            .map_err(|_| PkiError::Make { what: "a token", reason: "no random bytes".to_owned() })?;
        // 252 is the largest multiple of 36 in a byte: above it the letters would not be equally likely.
        for byte in bytes.iter().filter(|b| **b < 252) {
            match text.len() {
                6 => text.push('.'),
                23 => break,
                _ => text.push(char::from(ALPHABET[usize::from(*byte) % ALPHABET.len()])),
            }
        }
    }
    Ok(Secret::new(text.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pki::CertificateFacts;

    fn request() -> Request {
        Request {
            cluster_name: "billet".into(),
            endpoint: "https://10.0.2.15:6443".into(),
            cert_sans: vec!["127.0.0.1".into(), "localhost".into()],
            hostname: None,
            api_endpoints: vec!["127.0.0.1:50000".into()],
            api_nodes: vec![],
        }
    }

    #[test]
    fn everything_that_is_made_belongs_together() {
        let fresh = fresh(&request()).unwrap();
        let node = config::parse(fresh.control_plane.expose_secret()).map_err(|e| e.to_string()).unwrap();
        config::validate(&node).unwrap();
        let authority = Authority::from_pem(&node.machine.ca.crt.0, node.machine.ca.key().unwrap()).unwrap();
        let client = Talosconfig::parse(fresh.talosconfig.expose_secret()).unwrap();
        let (name, context) = client.choose(None).unwrap();
        assert_eq!(name, "billet");
        assert_eq!(context.authority().unwrap().as_deref(), Some(authority.certificate()));
        let identity = context.identity().unwrap().unwrap();
        let facts = CertificateFacts::from_pem("it", &identity.certificate).unwrap();
        assert_eq!(
            (facts.organizations.as_slice(), facts.server_auth),
            (["os:admin".to_owned()].as_slice(), false)
        );
    }

    #[test]
    fn a_worker_holds_no_key_of_the_ca() {
        let secrets = Secrets::generate().unwrap();
        let text = secrets.machine_config(&request(), MachineType::Worker).unwrap();
        let node = config::parse(text.expose_secret()).map_err(|e| e.to_string()).unwrap();
        assert!(node.machine.ca.key().is_none() && !node.machine.ca.crt.0.is_empty());
    }

    #[test]
    fn tokens_have_the_form_and_differ() {
        let (a, b) = (token().unwrap(), token().unwrap());
        assert!(!a.matches(b.expose_secret()));
        let (id, secret) = a.expose_secret().split_once('.').unwrap();
        assert_eq!((id.len(), secret.len()), (6, 16));
        assert!(format!("{id}{secret}").bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit()));
    }
}
