//! The administrator's kubeconfig.

use api::pki::Identity;
use config::Secret;
use kubernetes::certificates;
use kubernetes::kubeconfig::{self, Credentials};
use kubernetes::{Cluster, Node};

use crate::{Error, KubernetesNode, certificates as issuing};

/// The administrator's profile among those of a node.
const ADMIN: &str = "admin";

impl KubernetesNode {
    /// A kubeconfig with a new certificate of the group `system:masters`. It works as soon as the cluster does: no part of the
    /// cluster is asked.
    ///
    /// # Errors
    /// [`Error::NoConfig`], [`Error::Authority`]; [`Error::Config`] on a worker, which has no key to sign with.
    pub fn admin_kubeconfig(&self) -> Result<Secret, Error> {
        let config = self.runtime.config().ok_or(Error::NoConfig)?;
        render(&Cluster::new(&config)?)
    }
}

fn render(cluster: &Cluster<'_>) -> Result<Secret, Error> {
    let identity = identity(cluster)?;
    let key = identity.key.to_pem();
    let credentials = Credentials::Certificate { certificate: &identity.certificate, key: &key };
    Ok(kubeconfig::admin(cluster, &credentials)?)
}

/// For profiles of which nothing is needed that the machine says.
pub(crate) fn no_machine() -> Node {
    Node {
        host_name: String::new(),
        domain: String::new(),
        addresses: Vec::new(),
        shared: Vec::new(),
        is_container: false,
        has_cgroup_v1: false,
        resolv_conf: String::new(),
    }
}

/// The administrator's certificate, made anew.
pub(crate) fn identity(cluster: &Cluster<'_>) -> Result<Identity, Error> {
    let profile = certificates::all(cluster, &no_machine())?.into_iter().find(|profile| profile.id == ADMIN);
    let missing = kubernetes::Error::Missing {
        field: "cluster.ca.key",
        hint: "a worker cannot sign; ask a control plane node for the kubeconfig",
    };
    issuing::issue(cluster, &profile.ok_or(missing)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;

    #[test]
    fn a_control_plane_signs_and_a_worker_says_who_does() {
        let config = samples::control_plane("v1.34.10", "v3.6.4");
        let text = render(&Cluster::new(&config).unwrap()).unwrap();
        for part in ["current-context: admin@demo", "server: https://10.0.0.3:6443", "client-key-data:"] {
            assert!(text.expose_secret().contains(part), "{part}");
        }
        let mut worker = config;
        worker.machine.machine_type = config::v1alpha1::MachineType::Worker;
        let error = render(&Cluster::new(&worker).unwrap()).err().map(|error| error.to_string());
        assert_eq!(
            error.as_deref(),
            Some(
                "cluster.ca.key is missing; a worker cannot sign; ask a control plane node for the kubeconfig"
            )
        );
    }
}
