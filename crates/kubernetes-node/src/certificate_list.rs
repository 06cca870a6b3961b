//! The certificates of Kubernetes and etcd on this node: which there are, and others in their place when that is asked for.
//!
//! Owns: what each is called and who renews it. Does not: publish them, and know those of the node API.
//! Order, when they are renewed: etcd's and the control plane's, then the kubelet's. Each is replaced or stays as it was.
//! Fails by: [`Error`]; what cannot be read is not listed.

use std::path::Path;
use std::time::Duration;

use api::pki::CertificateFacts;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use config::v1alpha1::Config;
use kube::config::Kubeconfig;
use kubernetes::certificates::{self, Place};
use kubernetes::{Cluster, paths};
use runtime::services::Operation;
use runtime::services::machine::State;

use crate::certificates::{Part, renew};
use crate::{Error, KubernetesNode, admin, api_server, facts, kubelet, kubelet_credentials};

/// For the kubelet to end and to start again.
const RESTART_DEADLINE: Duration = Duration::from_secs(60);

/// Who replaces a certificate before it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Renewal {
    /// The node, at half of its life.
    Node,
    /// The kubelet.
    Kubelet,
    /// People: it is in the machine configuration.
    Config,
}

impl Renewal {
    /// As clients see it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::Kubelet => "kubelet",
            Self::Config => "config",
        }
    }
}

/// A certificate.
#[derive(Debug, Clone)]
pub struct Listed {
    /// Its name on this node.
    pub id: String,
    /// What it says.
    pub facts: CertificateFacts,
    /// Who replaces it.
    pub renewal: Renewal,
    /// Where it lies: a path, or a field of the configuration.
    pub place: String,
}

/// Those that are there, below `root`, by their ids.
pub fn list(root: &Path, config: &Config) -> Vec<Listed> {
    let mut all = authorities(config);
    if let Ok(cluster) = Cluster::new(config) {
        for profile in certificates::all(&cluster, &admin::no_machine()).unwrap_or_default() {
            let (place, text) = match profile.place {
                Place::Files { directory, name, .. } => {
                    let path = format!("{directory}/{name}.crt");
                    let text = read(root, &path);
                    (path, text)
                }
                Place::Kubeconfig { directory, .. } => {
                    let path = format!("{directory}/kubeconfig");
                    let text = read(root, &path).and_then(|text| of_kubeconfig(&text));
                    (path, text)
                }
                Place::Memory => continue,
            };
            all.extend(listed(profile.id, text, Renewal::Node, place));
        }
    }
    for (id, name) in kubelet_credentials::CERTIFICATES {
        let path = format!("{}/{name}", paths::KUBELET_PKI);
        all.extend(listed(id, read(root, &path), Renewal::Kubelet, path));
    }
    all.sort_by(|one, other| one.id.cmp(&other.id));
    // The kubelet's own for its port is one of two files, the one that the cluster signed first.
    all.dedup_by(|one, other| one.id == other.id);
    all
}

/// The authorities in the configuration.
fn authorities(config: &Config) -> Vec<Listed> {
    let cluster = &config.cluster;
    let own = [
        ("ca-machine", "machine.ca", &config.machine.ca),
        ("ca-kubernetes", "cluster.ca", &cluster.ca),
        ("ca-aggregator", "cluster.aggregatorCA", &cluster.aggregator_ca),
        ("ca-etcd", "cluster.etcd.ca", &cluster.etcd.ca),
    ];
    let own = own.into_iter().map(|(id, field, pair)| (id.to_owned(), field.to_owned(), &pair.crt.0));
    let accepted = [
        ("ca-machine", "machine", &config.machine.accepted_cas),
        ("ca-kubernetes", "cluster", &cluster.accepted_cas),
    ];
    let accepted = accepted.into_iter().flat_map(|(id, section, list)| {
        list.iter().enumerate().map(move |(index, pair)| {
            (format!("{id}-accepted-{index}"), format!("{section}.acceptedCAs[{index}]"), &pair.crt.0)
        })
    });
    let all = own.chain(accepted);
    all.filter_map(|(id, field, pem)| listed(&id, Some(pem.clone()), Renewal::Config, field)).collect()
}

fn listed(id: &str, text: Option<String>, renewal: Renewal, place: String) -> Option<Listed> {
    let facts = CertificateFacts::from_pem("it", &text?).ok()?;
    Some(Listed { id: id.to_owned(), facts, renewal, place })
}

fn read(root: &Path, path: &str) -> Option<String> {
    std::fs::read_to_string(root.join(path.trim_start_matches('/'))).ok()
}

/// The client's certificate in a kubeconfig.
fn of_kubeconfig(text: &str) -> Option<String> {
    let kubeconfig = Kubeconfig::from_yaml(text).ok()?;
    let user = kubeconfig.auth_infos.into_iter().next()?.auth_info?;
    String::from_utf8(STANDARD.decode(user.client_certificate_data?).ok()?).ok()
}

/// What became of certificates that a client wanted others for.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Renewed {
    /// Ids of those that are others now.
    pub ids: Vec<String>,
    /// Why others stayed, a sentence each.
    pub failed: Vec<String>,
}

impl KubernetesNode {
    /// Makes all certificates anew that this node or its kubelet made. Programs that read theirs at their start alone start again.
    pub async fn renew_certificates(&self) -> Renewed {
        let mut renewed = Renewed::default();
        for (what, part) in [("etcd", Part::Etcd), ("control plane", Part::ControlPlane)] {
            match self.renew_part(part) {
                Ok(ids) => renewed.ids.extend(ids),
                Err(error) => renewed.failed.push(format!("{what}: {error}")),
            }
        }
        // The loop of static pods writes what starts programs again.
        self.renewed.notify_one();
        match self.renew_kubelet().await {
            Ok(ids) => renewed.ids.extend(ids),
            Err(error) => renewed.failed.push(format!("kubelet: {error}; its certificates stay")),
        }
        renewed
    }

    fn renew_part(&self, part: Part) -> Result<Vec<String>, Error> {
        let config = self.runtime.config().ok_or(Error::NoConfig)?;
        let cluster = Cluster::new(&config)?;
        if !cluster.is_control_plane() {
            return Ok(Vec::new());
        }
        let node = facts::node(&self.runtime, &cluster, self.is_container)?;
        renew(&self.runtime.root, &cluster, &node, part)
    }

    /// The kubelet asks its cluster for a certificate when it starts without one.
    async fn renew_kubelet(&self) -> Result<Vec<String>, Error> {
        let root = &self.runtime.root;
        let runs =
            self.runtime.services.record(kubelet::ID).is_some_and(|record| record.state == State::Running);
        if !runs || !kubelet_credentials::are_there(root) {
            return Ok(Vec::new());
        }
        // Without an answer it would be without any.
        let client = api_server::client_of_file(root, paths::KUBELET_KUBECONFIG).await?;
        api_server::is_ready(&client).await?;
        let ids = kubelet_credentials::remove_certificates(root)?;
        self.runtime.journal.say("kubelet starts again: other certificates are wanted");
        let restarted =
            self.runtime.services.operate(kubelet::ID, Operation::Restart, RESTART_DEADLINE).await;
        restarted.map_err(|error| Error::Restart { service: kubelet::ID, reason: error.to_string() })?;
        Ok(ids)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;

    #[test]
    fn each_that_is_there_has_a_name_its_end_and_who_renews_it() {
        let mut config = samples::control_plane("v1.34.10", "v3.6.4");
        config.cluster.accepted_cas = vec![config.cluster.etcd.ca.clone()];
        let root = tempfile::tempdir().unwrap();
        let ids = || list(root.path(), &config).into_iter().map(|one| one.id).collect::<Vec<_>>();
        let authorities =
            ["ca-aggregator", "ca-etcd", "ca-kubernetes", "ca-kubernetes-accepted-0", "ca-machine"];
        assert_eq!(ids(), authorities);
        let cluster = Cluster::new(&config).unwrap();
        for part in [Part::Etcd, Part::ControlPlane] {
            crate::certificates::bring(root.path(), &cluster, &samples::node(), part).unwrap();
        }
        let pki = root.path().join(paths::KUBELET_PKI.trim_start_matches('/'));
        std::fs::create_dir_all(&pki).unwrap();
        std::fs::write(pki.join("kubelet.crt"), &config.cluster.etcd.ca.crt.0).unwrap();
        std::fs::write(pki.join("kubelet-client-current.pem"), "half a certif").unwrap();
        let own = [
            "apiserver",
            "apiserver-kubelet-client",
            "controller-manager",
            "etcd-admin",
            "etcd-apiserver-client",
            "etcd-peer",
            "etcd-server",
            "front-proxy-client",
            "kubelet-server",
            "scheduler",
        ];
        let mut all = [&authorities[..], &own].concat();
        all.sort_unstable();
        assert_eq!(ids(), all);
        let manager =
            list(root.path(), &config).into_iter().find(|one| one.id == "controller-manager").unwrap();
        assert_eq!(manager.facts.common_name, "system:kube-controller-manager");
        assert_eq!(manager.facts.issuer, cluster_issuer(&config));
        assert_eq!(
            (manager.renewal, manager.place.rsplit_once('/').unwrap().1),
            (Renewal::Node, "kubeconfig")
        );
    }

    fn cluster_issuer(config: &Config) -> String {
        let facts = CertificateFacts::from_pem("it", &config.cluster.ca.crt.0).unwrap();
        if facts.common_name.is_empty() { facts.organizations.join(", ") } else { facts.common_name }
    }
}
