//! Names of images in a generated configuration, where a version of Kubernetes is asked for.
//!
//! Owns: the registries of each generation. They are part of the user's configuration; nothing is fetched here.

use super::Contract;

/// Image of the kubelet, without its tag.
pub(super) fn kubelet(contract: Contract) -> &'static str {
    if contract.is_first_generation() {
        "ghcr.io/talos-systems/kubelet"
    } else {
        "ghcr.io/siderolabs/kubelet"
    }
}

/// Image of a control plane program, without its tag.
pub(super) fn kubernetes(contract: Contract, program: &str) -> String {
    let registry = if contract >= Contract::at(1, 3) { "registry.k8s.io" } else { "k8s.gcr.io" };
    format!("{registry}/{program}")
}
