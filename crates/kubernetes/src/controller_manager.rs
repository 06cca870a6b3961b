//! The static pod of the controller manager.
//!
//! Source: `kube-controller-manager --help` of each minor (testdata/flags); docs/users/configuration.md.

use serde_json::Value;

use crate::arguments::{Arguments, Flag, fixed, flag};
use crate::file::Owner;
use crate::pod::{Probe, Rendered, StaticPod};
use crate::version::until;
use crate::{Cluster, Error, images, paths};

/// Name of the pod and its program.
pub const NAME: &str = "kube-controller-manager";
/// Its port on loopback.
const PORT: u16 = 10257;

/// Whether this node runs it.
#[must_use]
pub fn is_wanted(cluster: &Cluster<'_>) -> bool {
    let parts = cluster.config().machine.control_plane.as_ref();
    let switch = parts.and_then(|parts| parts.controller_manager.as_ref());
    !switch.is_some_and(|switch| switch.disabled)
}

/// Name of the pod's file and the pod.
///
/// # Errors
/// [`Error::Version`], [`Error::Denied`].
pub fn pod(cluster: &Cluster<'_>, rendered: &Rendered) -> Result<(String, Value), Error> {
    let settings = cluster.controller_manager();
    let probe = Probe::Https { path: "/healthz", port: PORT };
    let pod = StaticPod {
        name: NAME,
        image: images::controller_manager(cluster),
        command: [vec![NAME.to_owned()], arguments(cluster)?.to_vec()].concat(),
        owner: Owner::ControllerManager,
        env: settings.env.clone(),
        directories: &[("secrets", paths::CONTROLLER_MANAGER_SECRETS)],
        writes: None,
        extra_volumes: &settings.extra_volumes,
        resources: settings.resources.as_ref(),
        requests: ("50m", "256Mi"),
        startup: Some(probe),
        readiness: None,
        liveness: Some(probe),
        rendered,
    };
    Ok((pod.name.to_owned(), pod.to_value()))
}

/// Arguments of the program.
///
/// # Errors
/// [`Error::Version`], [`Error::Denied`].
pub fn arguments(cluster: &Cluster<'_>) -> Result<Arguments, Error> {
    let version = images::controller_manager_version(cluster)?;
    let flags = serving().into_iter().chain(networks(cluster)).chain(keys());
    let cloud = flag("cloud-provider", "external").when(cluster.has_cloud_provider());
    let built_in = Arguments::built_in(version, flags.chain([cloud]));
    built_in.with("cluster.controllerManager.extraArgs", &cluster.controller_manager().extra_args)
}

fn secret(name: &str) -> String {
    format!("{}/{name}", paths::CONTROLLER_MANAGER_SECRETS)
}

fn serving() -> Vec<Flag> {
    vec![
        flag("bind-address", "127.0.0.1"),
        // Ended with 1.24; before, it served figures to everybody.
        flag("port", "0").only(until(23)),
        flag("controllers", "*,tokencleaner"),
        // Its own limits, 20 and 30, have each of its controllers wait: they ask for their accounts before they begin, and that
        // takes five seconds of a cluster's start.
        flag("kube-api-burst", "200"),
        flag("kube-api-qps", "100"),
        flag("leader-elect", "true"),
        flag("profiling", "false"),
        flag("tls-min-version", "VersionTLS13"),
        flag("use-service-account-credentials", "true"),
    ]
}

fn networks(cluster: &Cluster<'_>) -> Vec<Flag> {
    let texts = |networks: &[crate::cluster::Network]| {
        networks.iter().map(crate::cluster::Network::text).collect::<Vec<_>>().join(",")
    };
    let network = cluster.config().cluster.network.as_ref();
    let sizes = network.map_or((None, None), |n| (n.node_cidr_mask_size_ipv4, n.node_cidr_mask_size_ipv6));
    let size = |name, size: Option<u8>| flag(name, size.unwrap_or_default().to_string()).when(size.is_some());
    vec![
        flag("allocate-node-cidrs", "true"),
        flag("cluster-cidr", texts(cluster.pod_networks())),
        flag("configure-cloud-routes", "false"),
        flag("service-cluster-ip-range", texts(cluster.service_networks())),
        size("node-cidr-mask-size-ipv4", sizes.0),
        size("node-cidr-mask-size-ipv6", sizes.1),
    ]
}

fn keys() -> Vec<Flag> {
    vec![
        fixed("authentication-kubeconfig", secret("kubeconfig")),
        fixed("authorization-kubeconfig", secret("kubeconfig")),
        fixed("kubeconfig", secret("kubeconfig")),
        fixed("cluster-signing-cert-file", secret("ca.crt")),
        fixed("cluster-signing-key-file", secret("ca.key")),
        fixed("root-ca-file", secret("root-ca.crt")),
        fixed("service-account-private-key-file", secret("service-account.key")),
    ]
}
