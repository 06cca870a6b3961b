//! Fresh machine configurations.
//!
//! Owns: the text of a new configuration. Does not: make keys or tokens; the caller gives them (`api::generate`).

use crate::{
    CertificateAndKey, Document, EncodedPem, EncodedSecret, MachineType, Secret,
    v1alpha1::{Cluster, Config, ControlPlane, Install, Machine, Network, VERSION},
    validate::{ValidateError, validate},
};

/// What a new configuration is made of.
pub struct Input {
    /// The cluster's name.
    pub cluster_name: String,
    /// Where the Kubernetes API will answer: `https://host:port`.
    pub endpoint: String,
    /// Role of the machine.
    pub machine_type: MachineType,
    /// PEM of the node API's CA certificate.
    pub ca_certificate: String,
    /// PEM of its key: for control plane nodes.
    pub ca_key: Option<Secret>,
    /// Shared secrets.
    pub tokens: Tokens,
    /// Additional names and addresses of the API's server certificate.
    pub cert_sans: Vec<String>,
    /// Host name, if it is fixed.
    pub hostname: Option<String>,
    /// Disk to install to, if any.
    pub install_disk: Option<String>,
}

/// Secrets that all nodes of a cluster share.
#[derive(Clone)]
pub struct Tokens {
    /// For trustd: `[a-z0-9]{6}.[a-z0-9]{16}`.
    pub machine: Secret,
    /// For joining kubelets, of the same form.
    pub bootstrap: Secret,
}

/// Why no configuration could be written.
#[derive(Debug, thiserror::Error)]
pub enum GenerateError {
    /// What was given would make a configuration that is refused.
    #[error("the configuration would not be accepted: {0}")]
    Invalid(#[from] ValidateError),
    /// The YAML writer failed.
    #[error("write the configuration as YAML: {0}")]
    Write(String),
}

/// Writes a configuration that [`crate::parse`] and [`crate::validate`] accept.
///
/// # Errors
/// [`GenerateError::Invalid`] names the field whose input is wrong.
pub fn generate(input: Input) -> Result<String, GenerateError> {
    let config = config(input);
    validate(&config)?;
    write(&config, &[])
}

/// Writes a configuration as [`crate::load`] reads it. It holds its secrets.
///
/// # Errors
/// [`GenerateError::Write`] if the YAML writer fails.
pub fn write(config: &Config, documents: &[Document]) -> Result<String, GenerateError> {
    let mut text = yaml(config)?;
    for document in documents {
        text.push_str("---\n");
        text.push_str(&yaml(document)?);
    }
    Ok(text)
}

fn yaml<T: serde::Serialize>(value: &T) -> Result<String, GenerateError> {
    // Block scalars would fold long base64 over a line; both client generations read either, people prefer one.
    let options = serde_saphyr::ser_options! { prefer_block_scalars: false };
    serde_saphyr::to_string_with_options(value, options).map_err(|e| GenerateError::Write(e.to_string()))
}

fn config(input: Input) -> Config {
    let machine = Machine {
        machine_type: input.machine_type,
        token: input.tokens.machine,
        ca: CertificateAndKey {
            crt: EncodedPem(input.ca_certificate),
            key: input.ca_key.map_or_else(EncodedSecret::default, EncodedSecret),
        },
        cert_sans: input.cert_sans,
        network: Network { hostname: input.hostname.unwrap_or_default(), ..Network::default() },
        install: Install { disk: input.install_disk.unwrap_or_default(), ..Install::default() },
        ..Machine::default()
    };
    let cluster = Cluster {
        cluster_name: input.cluster_name,
        control_plane: ControlPlane { endpoint: input.endpoint, ..ControlPlane::default() },
        token: Some(input.tokens.bootstrap),
        ..Cluster::default()
    };
    Config { version: VERSION.to_owned(), debug: false, persist: true, machine, cluster }
}
