//! A cluster's secrets for one test: the CA, who holds which certificate, the machine config.
//!
//! Owns: certificates that are right and ones that must be refused; the talosconfig files that carry them.
//! Does not: keep anything; a node and its clients get fresh ones each time.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use api::pki::{Authority, CA_LIFETIME, Identity, Leaf, Lifetime, Usage};
use config::{Input, MachineType, Secret, Tokens};

/// The role that may do everything.
pub const ADMIN: &str = "os:admin";

/// The role that may look.
pub const READER: &str = "os:reader";

/// A machine's name in tests.
pub const HOSTNAME: &str = "billet-test";

/// The kubelet's image in tests that have no cluster: nothing serves it, and nothing outside is asked for it.
const KUBELET: &str = "127.0.0.1:1/kubelet:v1.34.10";

/// The CA of a test cluster.
#[derive(Clone)]
pub struct Credentials {
    authority: Arc<Authority>,
}

impl Credentials {
    /// A fresh CA.
    pub fn generate() -> Result<Self> {
        let authority = Authority::generate("talos", Lifetime::from_now(CA_LIFETIME)).context("make a CA")?;
        Ok(Self { authority: Arc::new(authority) })
    }

    /// PEM of the CA's certificate.
    pub fn authority(&self) -> &str {
        self.authority.certificate()
    }

    /// The CA with its key, as the value of `machine.ca`.
    pub fn machine_ca(&self) -> String {
        let key = self.authority.key();
        format!("{{crt: {}, key: {}}}", base64(self.authority.certificate()), base64(key.expose_secret()))
    }

    /// The config of a control plane node that belongs to this CA.
    pub fn machine_config(&self) -> Result<String> {
        let input = Input {
            cluster_name: "test".into(),
            endpoint: "https://10.0.2.15:6443".into(),
            machine_type: MachineType::ControlPlane,
            ca_certificate: self.authority.certificate().to_owned(),
            ca_key: Some(self.authority.key()),
            tokens: Tokens {
                machine: Secret::new("abcdef.0123456789abcdef"),
                bootstrap: Secret::new("ghijkl.0123456789abcdef"),
            },
            cert_sans: vec!["127.0.0.1".into(), "localhost".into()],
            hostname: Some(HOSTNAME.into()),
            install_disk: Some("/dev/sda".to_owned()),
        };
        let text = config::generate(input).context("generate a machine config")?;
        let mut config = config::parse(&text).context("read the generated machine config")?;
        config.machine.kubelet.image = KUBELET.to_owned();
        config::write(&config, &[]).context("write the machine config")
    }

    /// A client certificate of that role (`None`: without a role), valid now.
    pub fn client(&self, role: Option<&str>) -> Result<Identity> {
        self.issue(role, Lifetime::from_now(Duration::from_secs(24 * 3600)))
    }

    /// An admin's certificate that ended an hour ago.
    pub fn expired(&self) -> Result<Identity> {
        let hour = Duration::from_secs(3600);
        let now = SystemTime::now();
        self.issue(Some(ADMIN), Lifetime { not_before: now - 48 * hour, not_after: now - hour })
    }

    /// Certificates that a node must not let in.
    pub fn strangers(&self) -> Result<Vec<hostile::Stranger>> {
        hostile::strangers(&self.authority).context("make certificates that are refused")
    }

    /// Writes a talosconfig for a node behind a port on 127.0.0.1. Without an identity it holds none.
    ///
    /// The CA it names is always the node's: what is tried is whether the node refuses, not the client.
    pub fn talosconfig(&self, path: &Path, port: u16, identity: Option<&Identity>) -> Result<PathBuf> {
        let mut text = format!(
            "context: test\ncontexts:\n  test:\n    endpoints:\n      - 127.0.0.1:{port}\n    ca: {}\n",
            base64(self.authority.certificate())
        );
        if let Some(identity) = identity {
            let key = identity.key.to_pem();
            text.push_str(&format!(
                "    crt: {}\n    key: {}\n",
                base64(&identity.certificate),
                base64(key.expose_secret())
            ));
        }
        std::fs::write(path, text).with_context(|| format!("write {}", path.display()))?;
        Ok(path.to_path_buf())
    }

    fn issue(&self, role: Option<&str>, lifetime: Lifetime) -> Result<Identity> {
        let organizations = role.map(str::to_owned).into_iter().collect();
        let leaf = Leaf { organizations, names: Vec::new(), usage: Usage::Client, lifetime };
        self.authority.issue(&leaf).context("make a client certificate")
    }
}

fn base64(text: &str) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(text)
}
