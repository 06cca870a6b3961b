//! All secrets of a cluster, in one file that `gen secrets` writes and `gen config --with-secrets` reads.
//!
//! Owns: making them and the file's form, which is talosctl's. Does not: encrypt it; the file is for a safe.
//! Source: docs/users/pki.md.

use super::{GenerateError, random_key, token};
use crate::pki::{Algorithm, Authority, CA_LIFETIME, Lifetime, PkiError, PrivateKey};
use base64::{Engine, engine::general_purpose::STANDARD};
use config::{Secret, decode_base64};
use serde::{Deserialize, Serialize};

/// All secrets of a cluster. No `Debug`.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bundle {
    pub(super) cluster: Identifiers,
    pub(super) secrets: Shared,
    pub(super) trustdinfo: Trustd,
    pub(super) certs: Certificates,
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Identifiers {
    #[serde(default)]
    pub(super) id: String,
    #[serde(default = "none")]
    pub(super) secret: Secret,
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Shared {
    pub(super) bootstraptoken: Secret,
    #[serde(default = "none", skip_serializing_if = "Secret::is_empty")]
    pub(super) secretboxencryptionsecret: Secret,
    #[serde(default = "none", skip_serializing_if = "Secret::is_empty")]
    pub(super) aescbcencryptionsecret: Secret,
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Trustd {
    pub(super) token: Secret,
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Certificates {
    pub(super) etcd: Pair,
    pub(super) k8s: Pair,
    pub(super) k8saggregator: Pair,
    pub(super) k8sserviceaccount: Key,
    pub(super) os: Pair,
}

/// base64 of both PEM texts.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Pair {
    pub(super) crt: String,
    pub(super) key: Secret,
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Key {
    pub(super) key: Secret,
}

fn none() -> Secret {
    Secret::new("")
}

/// Why a file holds no secrets of a cluster.
#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    /// Not the right form.
    #[error("these are no secrets of a cluster: line {line}, column {column}: {reason}")]
    Syntax {
        /// Line, counted from 1; 0 if unknown.
        line: u64,
        /// Column, counted from 1; 0 if unknown.
        column: u64,
        /// What is missing or too much, without any value.
        reason: &'static str,
    },
    /// One of the fields is not base64 of PEM.
    #[error("field `{field}`: {reason}")]
    Field {
        /// `certs.os.key`.
        field: &'static str,
        /// Why.
        reason: &'static str,
    },
    /// A pair that is none.
    #[error("field `{field}`")]
    Pki {
        /// `certs.os`.
        field: &'static str,
        /// Why.
        source: PkiError,
    },
}

impl Bundle {
    /// Fresh secrets.
    ///
    /// # Errors
    /// [`PkiError::Make`].
    pub fn generate() -> Result<Self, PkiError> {
        let authority = |algorithm, organization| {
            Authority::generate_with(algorithm, organization, Lifetime::from_now(CA_LIFETIME))
                .map(|a| Pair::of(&a))
        };
        Ok(Self {
            cluster: Identifiers { id: random_key()?.expose_secret().to_owned(), secret: random_key()? },
            secrets: Shared {
                bootstraptoken: token()?,
                secretboxencryptionsecret: random_key()?,
                aescbcencryptionsecret: random_key()?,
            },
            trustdinfo: Trustd { token: token()? },
            certs: Certificates {
                etcd: authority(Algorithm::Ecdsa, "etcd")?,
                k8s: authority(Algorithm::Ecdsa, "kubernetes")?,
                k8saggregator: authority(Algorithm::Ecdsa, "front-proxy")?,
                k8sserviceaccount: Key {
                    key: encoded(&PrivateKey::generate_with(Algorithm::Ecdsa)?.to_pem()),
                },
                os: authority(Algorithm::Ed25519, super::CA_ORGANIZATION)?,
            },
        })
    }

    /// Reads the file's text and checks that its pairs are some.
    ///
    /// # Errors
    /// [`BundleError`], without any secret.
    pub fn parse(text: &str) -> Result<Self, BundleError> {
        Self::read::<Self>(text)?.checked()
    }

    /// Takes the secrets out of a control plane node's configuration of either generation.
    ///
    /// # Errors
    /// [`BundleError`], without any secret.
    pub fn from_control_plane(text: &str) -> Result<Self, BundleError> {
        let NodeConfig { machine, cluster } = Self::read(text)?;
        Self {
            cluster: Identifiers { id: cluster.id, secret: cluster.secret },
            secrets: Shared {
                bootstraptoken: cluster.token,
                secretboxencryptionsecret: cluster.secretbox,
                aescbcencryptionsecret: cluster.aescbc,
            },
            trustdinfo: Trustd { token: machine.token },
            certs: Certificates {
                etcd: cluster.etcd.ca,
                k8s: cluster.ca,
                k8saggregator: cluster.aggregator_ca,
                k8sserviceaccount: cluster.service_account,
                os: machine.ca,
            },
        }
        .checked()
    }

    /// Takes over the authorities and the service account key of a Kubernetes cluster that exists already.
    ///
    /// # Errors
    /// [`BundleError::Pki`] for a pair that is none.
    pub fn with_kubernetes(mut self, pki: &KubernetesPki) -> Result<Self, BundleError> {
        let pair = |(certificate, key): &(String, Secret)| Pair {
            crt: STANDARD.encode(certificate),
            key: encoded(key),
        };
        self.certs.k8s = pair(&pki.authority);
        self.certs.k8saggregator = pair(&pki.aggregator);
        self.certs.etcd = pair(&pki.etcd);
        self.certs.k8sserviceaccount = Key { key: encoded(&pki.service_account) };
        if let Some(token) = &pki.bootstrap_token {
            self.secrets.bootstraptoken = token.clone();
        }
        self.checked()
    }

    fn read<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, BundleError> {
        let options = serde_saphyr::options! { with_snippet: false };
        serde_saphyr::from_str_with_options(text, options).map_err(|e| {
            let (line, column) = e.location().map_or((0, 0), |l| (l.line(), l.column()));
            let reason = "a field is missing, not known, or of a wrong kind; `billetctl gen secrets` writes such a file";
            BundleError::Syntax { line, column, reason }
        })
    }

    fn checked(self) -> Result<Self, BundleError> {
        for (field, pair) in [
            ("certs.etcd", &self.certs.etcd),
            ("certs.k8s", &self.certs.k8s),
            ("certs.k8saggregator", &self.certs.k8saggregator),
            ("certs.os", &self.certs.os),
        ] {
            pair.authority(field)?;
        }
        let key = decode("certs.k8sserviceaccount.key", self.certs.k8sserviceaccount.key.expose_secret())?;
        PrivateKey::from_pem("the service account key", key.expose_secret())
            .map_err(|source| BundleError::Pki { field: "certs.k8sserviceaccount.key", source })?;
        Ok(self)
    }

    /// The text of the file.
    pub fn to_yaml(&self) -> Secret {
        let options = serde_saphyr::ser_options! { indent_step: 4, prefer_block_scalars: false };
        // Maps with string keys and strings: nothing here can fail to be written.
        Secret::new(serde_saphyr::to_string_with_options(self, options).unwrap_or_default())
    }

    /// The CA of the node API.
    ///
    /// # Errors
    /// As [`Bundle::parse`]; not for a bundle that was checked.
    pub fn authority(&self) -> Result<Authority, GenerateError> {
        Ok(self.certs.os.authority("certs.os")?)
    }
}

/// Keys of a Kubernetes cluster that another tool made. No `Debug`. Certificates and keys are PEM.
pub struct KubernetesPki {
    /// Of the cluster: `ca.crt`, `ca.key`.
    pub authority: (String, Secret),
    /// Of the aggregation layer: `front-proxy-ca.crt`, `front-proxy-ca.key`.
    pub aggregator: (String, Secret),
    /// Of etcd: `etcd/ca.crt`, `etcd/ca.key`.
    pub etcd: (String, Secret),
    /// Signs service account tokens: `sa.key`.
    pub service_account: Secret,
    /// Of joining nodes; fresh if there is none.
    pub bootstrap_token: Option<Secret>,
}

impl Pair {
    fn of(authority: &Authority) -> Self {
        Self { crt: STANDARD.encode(authority.certificate()), key: encoded(&authority.key()) }
    }

    fn authority(&self, field: &'static str) -> Result<Authority, BundleError> {
        let certificate = decode(field, &self.crt)?;
        let key = decode(field, self.key.expose_secret())?;
        Authority::from_pem(certificate.expose_secret(), &key)
            .map_err(|source| BundleError::Pki { field, source })
    }
}

fn encoded(pem: &Secret) -> Secret {
    Secret::new(STANDARD.encode(pem.expose_secret()))
}

fn decode(field: &'static str, text: &str) -> Result<Secret, BundleError> {
    decode_base64(text)
        .map(|pem| Secret::new(pem.as_str()))
        .map_err(|reason| BundleError::Field { field, reason })
}

/// The part of a node's configuration that holds secrets; everything else is skipped.
#[derive(Deserialize)]
struct NodeConfig {
    machine: NodeMachine,
    cluster: NodeCluster,
}

#[derive(Deserialize)]
struct NodeMachine {
    token: Secret,
    ca: Pair,
}

#[derive(Deserialize)]
struct NodeCluster {
    #[serde(default)]
    id: String,
    #[serde(default = "none")]
    secret: Secret,
    token: Secret,
    #[serde(default = "none", rename = "secretboxEncryptionSecret")]
    secretbox: Secret,
    #[serde(default = "none", rename = "aescbcEncryptionSecret")]
    aescbc: Secret,
    ca: Pair,
    #[serde(rename = "aggregatorCA")]
    aggregator_ca: Pair,
    #[serde(rename = "serviceAccount")]
    service_account: Key,
    etcd: NodeEtcd,
}

#[derive(Deserialize)]
struct NodeEtcd {
    ca: Pair,
}
