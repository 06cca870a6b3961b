//! Machine and client configurations of a whole cluster, in talosctl's form and order.
//!
//! Owns: what stands in each file for each generation ([`Contract`]). Does not: write files, apply patches, or judge
//! the result (`config::load` and its `validate` do, after the patches).
//! Source: docs/users/configuration.md.

use super::{Bundle, Contract, GenerateError, document::Document, images};
use crate::{
    pki::{CA_LIFETIME, Identity, Leaf, Lifetime, Usage},
    roles::Role,
    talosconfig::{Context, Talosconfig},
};
use base64::{Engine, engine::general_purpose::STANDARD};
use config::{MachineType, Secret, endpoint_host};
use std::{net::Ipv6Addr, time::Duration};

/// Lifetime of an administrator's certificate where roles exist: a year.
const ADMIN_LIFETIME: Duration = Duration::from_secs(8760 * 3600);

/// What a cluster is asked to be.
#[derive(Debug, Clone)]
pub struct Cluster {
    /// Its name; also the name of the context.
    pub name: String,
    /// Where its Kubernetes API will answer: [`cluster_endpoint`].
    pub endpoint: String,
    /// The generation of the files.
    pub contract: Contract,
    /// Disk to install to.
    pub install_disk: String,
    /// Image of the installer; the node's own where it is not given.
    pub install_image: Option<String>,
    /// Additional names of the Kubernetes API.
    pub additional_sans: Vec<String>,
    /// Domain of the cluster's services.
    pub dns_domain: String,
    /// Version of Kubernetes, without `v`; the node's own where it is not given.
    pub kubernetes_version: Option<String>,
    /// Registry and where its images are fetched instead.
    pub registry_mirrors: Vec<(String, String)>,
    /// Whether nodes keep their configuration.
    pub persist: bool,
    /// Whether nodes find each other by the discovery service.
    pub discovery: bool,
    /// Whether nodes make a network of their own.
    pub kubespan: bool,
}

/// An endpoint that is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClusterError {
    /// Only a host.
    #[error("no scheme and port specified for the cluster endpoint URL\ntry: \"https://{0}:6443\"")]
    NoSchemeAndPort(String),
    /// No scheme.
    #[error("no scheme specified for the cluster endpoint URL\ntry: \"https://{0}\"")]
    NoScheme(String),
    /// Another scheme.
    #[error("the control plane endpoint URL should have scheme https://\ntry: \"https://{0}\"")]
    Scheme(String),
    /// Anything else.
    #[error("error validating the cluster endpoint URL: {0:?} is not https://host:port{1}")]
    Invalid(String, String),
    /// A name that could not be the cluster's.
    #[error("the cluster's name {0:?} is not a DNS name: letters, digits and `-`, as in `my-cluster`")]
    Name(String),
}

/// Checks the endpoint of a cluster.
///
/// # Errors
/// [`ClusterError`] with the form that was probably meant.
pub fn cluster_endpoint(text: &str) -> Result<String, ClusterError> {
    if let Some((scheme, rest)) = text.split_once("://") {
        if scheme != "https" {
            return Err(ClusterError::Scheme(rest.to_owned()));
        }
        let hint = dotted_port(rest).map_or_else(String::new, |right| format!("\ntry: \"https://{right}\""));
        if endpoint_host(text).is_none() || !hint.is_empty() {
            return Err(ClusterError::Invalid(text.to_owned(), hint));
        }
        return Ok(text.to_owned());
    }
    let has_port = endpoint_host(&format!("https://{text}")).is_some()
        && text.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok())
        && text.parse::<Ipv6Addr>().is_err();
    match (has_port, dotted_port(text)) {
        (true, _) => Err(ClusterError::NoScheme(text.to_owned())),
        (false, Some(right)) => Err(ClusterError::NoScheme(right)),
        (false, None) if text.parse::<Ipv6Addr>().is_ok() => {
            Err(ClusterError::NoSchemeAndPort(format!("[{text}]")))
        }
        (false, None) => Err(ClusterError::NoSchemeAndPort(text.to_owned())),
    }
}

/// `10.0.0.1.6443` as it was meant: `10.0.0.1:6443`.
fn dotted_port(host: &str) -> Option<String> {
    let (address, port) = host.trim_end_matches('/').rsplit_once('.')?;
    let is_address = address.parse::<std::net::Ipv4Addr>().is_ok();
    (is_address && port.parse::<u16>().is_ok()).then(|| format!("{address}:{port}"))
}

impl Cluster {
    /// Checks the name.
    ///
    /// # Errors
    /// [`ClusterError::Name`].
    pub fn check_name(&self) -> Result<(), ClusterError> {
        let label = |l: &str| {
            (1..=63).contains(&l.len())
                && l.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
                && !l.starts_with('-')
                && !l.ends_with('-')
        };
        let good = self.name.split('.').all(label);
        if good { Ok(()) } else { Err(ClusterError::Name(self.name.clone())) }
    }

    /// The text of a machine's configuration.
    pub fn machine_config(&self, secrets: &Bundle, machine_type: MachineType) -> Secret {
        let mut doc = Document::new();
        doc.text("version", "v1alpha1");
        doc.flag("debug", false);
        doc.flag("persist", self.persist);
        doc.map("machine", |doc| self.machine(doc, secrets, machine_type));
        doc.map("cluster", |doc| self.cluster(doc, secrets, machine_type));
        doc.finish()
    }

    /// The client configuration of an administrator.
    ///
    /// # Errors
    /// [`GenerateError::Pki`].
    pub fn talosconfig(&self, secrets: &Bundle) -> Result<Talosconfig, GenerateError> {
        let authority = secrets.authority()?;
        let new = self.contract.has_roles();
        let lifetime = Lifetime::from_now(if new { ADMIN_LIFETIME } else { CA_LIFETIME });
        let organizations = new.then(|| Role::Admin.name().to_owned()).into_iter().collect();
        let names = if new { Vec::new() } else { vec!["127.0.0.1".to_owned()] };
        let identity = authority.issue(&Leaf { organizations, names, usage: Usage::Client, lifetime })?;
        let first = self.contract.is_first_generation();
        let endpoints = if first { vec!["127.0.0.1".to_owned()] } else { Vec::new() };
        Ok(self.context(endpoints, authority.certificate(), &identity))
    }

    fn context(&self, endpoints: Vec<String>, authority: &str, identity: &Identity) -> Talosconfig {
        let context = Context {
            endpoints,
            ca: Some(STANDARD.encode(authority)),
            crt: Some(STANDARD.encode(&identity.certificate)),
            key: Some(Secret::new(STANDARD.encode(identity.key.to_pem().expose_secret()))),
            ..Context::default()
        };
        Talosconfig { context: self.name.clone(), contexts: [(self.name.clone(), context)].into() }
    }

    fn machine(&self, doc: &mut Document, secrets: &Bundle, machine_type: MachineType) {
        let control_plane = machine_type.is_control_plane();
        let first = self.contract.is_first_generation();
        doc.text("type", &machine_type.to_string());
        doc.text("token", secrets.trustdinfo.token.expose_secret());
        let os = &secrets.certs.os;
        if control_plane {
            doc.pair("ca", &os.crt, os.key.expose_secret());
        } else if !first {
            doc.pair("ca", &os.crt, "");
        }
        doc.raw("certSANs", "[]");
        self.kubelet(doc);
        match self.kubespan {
            true => doc.map("network", |doc| doc.map("kubespan", |doc| doc.flag("enabled", true))),
            false => doc.raw("network", "{}"),
        }
        self.install(doc);
        if !self.registry_mirrors.is_empty() {
            doc.map("registries", |doc| doc.map("mirrors", |doc| self.mirrors(doc)));
        }
        self.features(doc);
        if control_plane && self.contract.has_balancer_label() {
            doc.map("nodeLabels", |doc| {
                doc.raw("node.kubernetes.io/exclude-from-external-load-balancers", "\"\"");
            });
        }
    }

    fn kubelet(&self, doc: &mut Document) {
        let new = self.contract.has_pod_security();
        if self.kubernetes_version.is_none() && !new {
            return doc.raw("kubelet", "{}");
        }
        doc.map("kubelet", |doc| {
            self.image(doc, images::kubelet(self.contract));
            if new {
                doc.flag("defaultRuntimeSeccompProfileEnabled", true);
                doc.flag("disableManifestsDirectory", true);
            }
        });
    }

    fn install(&self, doc: &mut Document) {
        doc.map("install", |doc| {
            doc.text("disk", &self.install_disk);
            if let Some(image) = &self.install_image {
                doc.text("image", image);
            }
            if self.contract.is_first_generation() {
                doc.flag("bootloader", true);
            }
            doc.flag("wipe", false);
            if self.contract.has_kernel_image_cmdline() {
                doc.flag("grubUseUKICmdline", true);
            }
        });
    }

    fn mirrors(&self, doc: &mut Document) {
        let mut hosts: Vec<&str> = Vec::new();
        for (host, _) in &self.registry_mirrors {
            if !hosts.contains(&host.as_str()) {
                hosts.push(host);
            }
        }
        for host in hosts {
            let of_host = self.registry_mirrors.iter().filter(|(h, _)| h == host);
            let urls: Vec<String> = of_host.map(|(_, url)| url.clone()).collect();
            doc.map(host, |doc| doc.list("endpoints", &urls));
        }
    }

    fn features(&self, doc: &mut Document) {
        if !self.contract.has_disk_quota() {
            return;
        }
        doc.map("features", |doc| {
            doc.flag("diskQuotaSupport", true);
            if self.contract.has_kube_prism() {
                doc.lines("kubePrism:\n    enabled: true\n    port: 7445");
            }
            if self.contract.has_host_dns() {
                doc.lines("hostDNS:\n    enabled: true\n    forwardKubeDNSToHost: true");
            }
        });
    }

    fn cluster(&self, doc: &mut Document, secrets: &Bundle, machine_type: MachineType) {
        let control_plane = machine_type.is_control_plane();
        if !self.contract.is_first_generation() {
            doc.raw("id", &secrets.cluster.id);
            doc.raw("secret", secrets.cluster.secret.expose_secret());
        }
        doc.map("controlPlane", |doc| doc.text("endpoint", &self.endpoint));
        if control_plane || !self.contract.is_first_generation() {
            doc.text("clusterName", &self.name);
        }
        doc.map("network", |doc| self.network(doc));
        doc.text("token", secrets.secrets.bootstraptoken.expose_secret());
        let ca = &secrets.certs.k8s;
        if control_plane {
            self.encryption_secret(doc, secrets);
            doc.pair("ca", &ca.crt, ca.key.expose_secret());
            self.control_plane(doc, secrets);
        } else {
            if self.contract.is_first_generation() {
                doc.raw("aescbcEncryptionSecret", "\"\"");
            }
            doc.pair("ca", &ca.crt, "");
        }
        if self.contract.has_discovery() {
            self.write_discovery(doc);
        }
        if control_plane {
            let etcd = &secrets.certs.etcd;
            doc.map("etcd", |doc| doc.pair("ca", &etcd.crt, etcd.key.expose_secret()));
        }
    }

    fn network(&self, doc: &mut Document) {
        let is_v6 = endpoint_host(&self.endpoint).is_some_and(|h| h.parse::<Ipv6Addr>().is_ok());
        let (pods, services) =
            if is_v6 { ("fc00:db8:10::/56", "fc00:db8:20::/112") } else { ("10.244.0.0/16", "10.96.0.0/12") };
        doc.text("dnsDomain", &self.dns_domain);
        doc.list("podSubnets", &[pods.to_owned()]);
        doc.list("serviceSubnets", &[services.to_owned()]);
    }

    fn encryption_secret(&self, doc: &mut Document, secrets: &Bundle) {
        let secrets = &secrets.secrets;
        // A bundle of an old cluster has only the old kind, whose data must stay readable.
        if self.contract.has_secretbox() && !secrets.secretboxencryptionsecret.is_empty() {
            doc.raw("secretboxEncryptionSecret", secrets.secretboxencryptionsecret.expose_secret());
        } else {
            doc.raw("aescbcEncryptionSecret", secrets.aescbcencryptionsecret.expose_secret());
        }
    }

    fn control_plane(&self, doc: &mut Document, secrets: &Bundle) {
        let aggregator = &secrets.certs.k8saggregator;
        doc.pair("aggregatorCA", &aggregator.crt, aggregator.key.expose_secret());
        doc.map("serviceAccount", |doc| doc.raw("key", secrets.certs.k8sserviceaccount.key.expose_secret()));
        doc.map("apiServer", |doc| {
            self.image(doc, &images::kubernetes(self.contract, "kube-apiserver"));
            let host = endpoint_host(&self.endpoint).map(str::to_owned);
            let sans: Vec<String> = host.into_iter().chain(self.additional_sans.iter().cloned()).collect();
            doc.list("certSANs", &sans);
            if self.contract.has_pod_security() {
                doc.flag("disablePodSecurityPolicy", true);
                doc.lines(include_str!("pod-security.yaml"));
            }
        });
        for (part, program) in [
            ("controllerManager", "kube-controller-manager"),
            ("proxy", "kube-proxy"),
            ("scheduler", "kube-scheduler"),
        ] {
            match self.kubernetes_version {
                Some(_) => doc.map(part, |doc| self.image(doc, &images::kubernetes(self.contract, program))),
                None => doc.raw(part, "{}"),
            }
        }
    }

    fn write_discovery(&self, doc: &mut Document) {
        doc.map("discovery", |doc| {
            doc.flag("enabled", self.discovery);
            if self.discovery {
                doc.lines("registries:\n    kubernetes:\n        disabled: true\n    service: {}");
            }
        });
    }

    fn image(&self, doc: &mut Document, name: &str) {
        if let Some(version) = &self.kubernetes_version {
            doc.text("image", &format!("{name}:v{version}"));
        }
    }
}

#[cfg(test)]
#[path = "cluster_tests.rs"]
mod tests;
