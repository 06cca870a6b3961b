//! What clients see of the parts that a node runs: the fields of the published resources, as their YAML form has them.
//!
//! Owns: which settings of the configuration a resource shows; a program's version in [`Rendered`](crate::pod::Rendered) is
//! that of its resource. Its arguments are among the fields, so what other sections add to them counts, too.
//! Does not: hold keys. What a user writes into an environment or a webhook is theirs; such types are for administrators.
//! Source: crates/api/proto/definitions/k8s.proto and etcd.proto; docs/users/kubernetes.md for those of the first generation.

use std::collections::BTreeMap;

use config::schema::Arguments as Given;
use config::v1alpha1::{ExtraVolume, Resources};
use serde_json::{Map, Value, json};

use crate::cluster::Network;
use crate::file::mapping;
use crate::{
    Cluster, Error, Node, api_server, controller_manager, images, kubelet, manifests, pod, scheduler,
};

/// Where the API server finds etcd.
const ETCD: &str = "https://127.0.0.1:2379";

/// The resources of a control plane's programs.
#[derive(Debug, Clone, PartialEq)]
pub struct Programs {
    /// `APIServerConfigs`.
    pub api_server: Value,
    /// `ControllerManagerConfigs`.
    pub controller_manager: Value,
    /// `SchedulerConfigs`.
    pub scheduler: Value,
}

/// What the programs of the control plane run with.
///
/// # Errors
/// [`Error::Version`], [`Error::Denied`], [`Error::NotAMapping`].
pub fn programs(cluster: &Cluster<'_>, node: &Node) -> Result<Programs, Error> {
    let settings = cluster.api_server();
    let api_server = json!({
        "image": images::api_server(cluster),
        "cloudProvider": cloud_provider(cluster),
        "controlPlaneEndpoint": cluster.endpoint(),
        "etcdServers": [ETCD],
        "localPort": cluster.api_port(),
        "serviceCIDR": texts(cluster.service_networks()),
        "extraArgs": arguments(&settings.extra_args),
        "extraVolumes": volumes(&settings.extra_volumes),
        "environmentVariables": settings.env,
        "advertisedAddress": "$(POD_IP)",
        "resources": resources(settings.resources.as_ref()),
        "startupProbesEnabled": settings.startup_probes == Some(true),
        "useAuthenticationConfig": settings.authentication.is_some(),
        "args": api_server::arguments(cluster, node)?.to_vec(),
    });
    let settings = cluster.controller_manager();
    let sizes = cluster.config().cluster.network.as_ref();
    let sizes = sizes.map_or((None, None), |n| (n.node_cidr_mask_size_ipv4, n.node_cidr_mask_size_ipv6));
    let controller_manager = json!({
        "enabled": controller_manager::is_wanted(cluster),
        "image": images::controller_manager(cluster),
        "cloudProvider": cloud_provider(cluster),
        "podCIDRs": texts(cluster.pod_networks()),
        "serviceCIDRs": texts(cluster.service_networks()),
        "extraArgs": arguments(&settings.extra_args),
        "extraVolumes": volumes(&settings.extra_volumes),
        "environmentVariables": settings.env,
        "resources": resources(settings.resources.as_ref()),
        "nodeCIDRMaskSizeIPv4": sizes.0.unwrap_or_default(),
        "nodeCIDRMaskSizeIPv6": sizes.1.unwrap_or_default(),
        "args": controller_manager::arguments(cluster)?.to_vec(),
    });
    let settings = cluster.scheduler();
    let own = settings.config.as_ref().map(|config| mapping("cluster.scheduler.config", config));
    let scheduler = json!({
        "enabled": scheduler::is_wanted(cluster),
        "image": images::scheduler(cluster),
        "extraArgs": arguments(&settings.extra_args),
        "extraVolumes": volumes(&settings.extra_volumes),
        "environmentVariables": settings.env,
        "resources": resources(settings.resources.as_ref()),
        "config": own.transpose()?.unwrap_or_default(),
        "args": scheduler::arguments(cluster)?.to_vec(),
    });
    Ok(Programs { api_server, controller_manager, scheduler })
}

impl Programs {
    /// Those that run, with the names of their pods.
    pub fn by_name(&self) -> [(&'static str, &Value); 3] {
        [
            (api_server::NAME, &self.api_server),
            (controller_manager::NAME, &self.controller_manager),
            (scheduler::NAME, &self.scheduler),
        ]
    }

    /// The same as clients of the first generation read it: one network where there are several is a text with commas.
    pub fn first_generation(&self) -> Vec<(&'static str, Value)> {
        let one = |(name, spec): (&'static str, &Value)| {
            let mut spec = spec.clone();
            for (list, text) in
                [("serviceCIDR", "serviceCIDR"), ("serviceCIDRs", "serviceCIDR"), ("podCIDRs", "podCIDR")]
            {
                let Some(fields) = spec.as_object_mut() else { continue };
                if let Some(Value::Array(networks)) = fields.get(list) {
                    let joined: Vec<&str> = networks.iter().filter_map(Value::as_str).collect();
                    let joined = json!(joined.join(","));
                    fields.remove(list);
                    fields.insert(text.to_owned(), joined);
                }
            }
            (name, spec)
        };
        self.by_name().map(one).into()
    }
}

/// `BootstrapManifestsConfigs`.
///
/// # Errors
/// [`Error::Version`], [`Error::Denied`], [`Error::NetworkTooSmall`].
pub fn manifests(cluster: &Cluster<'_>) -> Result<Value, Error> {
    let dns = cluster.config().cluster.core_dns.as_ref();
    let addresses = cluster.dns_addresses()?;
    let address = |is_wanted: fn(&std::net::IpAddr) -> bool| {
        addresses.iter().find(|address| is_wanted(address)).map(ToString::to_string).unwrap_or_default()
    };
    let has_proxy = !cluster.proxy().disabled;
    let proxy_arguments = if has_proxy { manifests::proxy_arguments(cluster)?.to_vec() } else { Vec::new() };
    Ok(json!({
        "string": cluster.endpoint(),
        "clusterDomain": cluster.dns_domain(),
        "podCIDRs": texts(cluster.pod_networks()),
        "proxyEnabled": has_proxy,
        "proxyImage": images::proxy(cluster),
        "proxyArgs": proxy_arguments,
        "coreDNSEnabled": dns.is_none_or(|dns| dns.disabled != Some(true)),
        "coreDNSImage": images::core_dns(cluster),
        "dnsServiceIP": address(std::net::IpAddr::is_ipv4),
        "dnsServiceIPv6": address(std::net::IpAddr::is_ipv6),
        "flannelEnabled": cluster.cni() == "flannel",
        "flannelImage": images::flannel(),
        "flannelExtraArgs": cluster.flannel().extra_args,
        "cniName": cluster.cni(),
    }))
}

/// `AdmissionControlConfigs`, `AuditPolicyConfigs`, `AuthorizationConfigs`, by the ids of their only resources.
///
/// # Errors
/// [`Error::Version`], [`Error::NotAMapping`].
pub fn policies(cluster: &Cluster<'_>) -> Result<[(&'static str, Value); 3], Error> {
    let settings = cluster.api_server();
    let plugin = |plugin: &config::v1alpha1::AdmissionPlugin| json!({ "name": plugin.name, "configuration": plugin.configuration });
    let plugins: Vec<Value> = settings.admission_control.iter().map(plugin).collect();
    let version = images::api_server_version(cluster)?;
    let mut authorizers = api_server::authorizers(cluster, version)["authorizers"].take();
    // Where it is not there, a typed client reads an empty one.
    for authorizer in authorizers.as_array_mut().into_iter().flatten() {
        if let Some(fields) = authorizer.as_object_mut() {
            fields.entry("webhook").or_insert_with(|| json!({}));
        }
    }
    Ok([
        ("admission-control", json!({ "config": plugins })),
        ("audit-policy", json!({ "config": api_server::audit_policy(cluster)? })),
        ("authorization", json!({ "image": images::api_server(cluster), "config": authorizers })),
    ])
}

/// `KubeletConfigs`: what the configuration says.
///
/// # Errors
/// [`Error::NetworkTooSmall`], [`Error::NotAMapping`].
pub fn kubelet_config(cluster: &Cluster<'_>) -> Result<Value, Error> {
    let settings = cluster.kubelet();
    let dns =
        if settings.cluster_dns.is_empty() { cluster.dns_addresses()? } else { settings.cluster_dns.clone() };
    let mut fields = Map::from_iter([
        ("image".to_owned(), json!(images::kubelet(cluster))),
        ("clusterDNS".to_owned(), json!(dns)),
        ("clusterDomain".to_owned(), json!(cluster.dns_domain())),
        ("extraArgs".to_owned(), arguments(&settings.extra_args)),
        ("cloudProviderExternal".to_owned(), json!(cluster.has_cloud_provider())),
        (
            "defaultRuntimeSeccompEnabled".to_owned(),
            json!(settings.default_runtime_seccomp_profile_enabled == Some(true)),
        ),
        ("skipNodeRegistration".to_owned(), json!(settings.skip_node_registration == Some(true))),
        ("staticPodListURL".to_owned(), json!("")),
        ("disableManifestsDirectory".to_owned(), json!(cluster.has_own_manifests_only())),
        ("enableFSQuotaMonitoring".to_owned(), json!(false)),
        (
            "allowSchedulingOnControlPlane".to_owned(),
            json!(cluster.config().cluster.schedules_on_control_planes()),
        ),
    ]);
    let mounts: Vec<Value> = settings.extra_mounts.iter().map(mount).collect();
    if !mounts.is_empty() {
        fields.insert("extraMounts".to_owned(), json!(mounts));
    }
    let given = [
        ("extraConfig", "machine.kubelet.extraConfig", &settings.extra_config),
        (
            "credentialProviderConfig",
            "machine.kubelet.credentialProviderConfig",
            &settings.credential_provider_config,
        ),
    ];
    for (key, field, given) in given {
        if let Some(given) = given {
            fields.insert(key.to_owned(), Value::Object(mapping(field, given)?));
        }
    }
    Ok(Value::Object(fields))
}

/// `KubeletSpecs`: what the kubelet runs with on this node.
///
/// # Errors
/// [`Error::Version`], [`Error::Denied`], [`Error::NotAMapping`].
pub fn kubelet_spec(cluster: &Cluster<'_>, node: &Node) -> Result<Value, Error> {
    let mounts: Vec<Value> = cluster.kubelet().extra_mounts.iter().map(mount).collect();
    let mut fields = Map::from_iter([
        ("image".to_owned(), json!(images::kubelet(cluster))),
        ("args".to_owned(), json!(kubelet::arguments(cluster, node)?.to_vec())),
        ("expectedNodename".to_owned(), json!(cluster.node_name(node))),
        ("config".to_owned(), kubelet::configuration(cluster, node)?),
    ]);
    if !mounts.is_empty() {
        fields.insert("extraMounts".to_owned(), json!(mounts));
    }
    Ok(Value::Object(fields))
}

/// `NodeIPConfigs`: networks that the node's address is of, and those that it is not.
#[must_use]
pub fn node_ip_config(cluster: &Cluster<'_>) -> Value {
    let subnets = cluster.kubelet().node_ip.as_ref().map(|ip| ip.valid_subnets.clone()).unwrap_or_default();
    let (excluded, valid): (Vec<String>, Vec<String>) =
        subnets.into_iter().partition(|text| text.starts_with('!'));
    let excluded = excluded.iter().map(|text| text.trim_start_matches('!').to_owned());
    let own = [cluster.pod_networks(), cluster.service_networks()].concat();
    let excluded: Vec<String> = excluded.chain(own.iter().map(|network| network.text().to_owned())).collect();
    let mut fields = Map::from_iter([("excludeSubnets".to_owned(), json!(excluded))]);
    if !valid.is_empty() {
        fields.insert("validSubnets".to_owned(), json!(valid));
    }
    Value::Object(fields)
}

/// `NodeTaintSpecs`, by their keys.
///
/// # Errors
/// [`Error::Version`].
pub fn taints(cluster: &Cluster<'_>) -> Result<Vec<(String, Value)>, Error> {
    let taints = kubelet::taints(cluster, images::kubelet_version(cluster)?);
    let one = |(key, value, effect): kubelet::Taint| {
        let spec = json!({ "key": key, "effect": effect, "value": value });
        (key, spec)
    };
    Ok(taints.into_iter().map(one).collect())
}

/// `NodeLabelSpecs` or `NodeAnnotationSpecs`, by their keys.
#[must_use]
pub fn pairs(given: &BTreeMap<String, String>) -> Vec<(String, Value)> {
    given.iter().map(|(key, value)| (key.clone(), json!({ "key": key, "value": value }))).collect()
}

/// `EtcdConfigs`.
#[must_use]
pub fn etcd_config(cluster: &Cluster<'_>) -> Value {
    json!({
        "advertiseExcludeSubnets": [],
        "image": images::etcd(cluster),
        "listenExcludeSubnets": [],
        "extraArgs": arguments(&cluster.config().cluster.etcd.extra_args),
    })
}

/// `EtcdSpecs`.
#[must_use]
pub fn etcd_spec(cluster: &Cluster<'_>, node: &Node) -> Value {
    let every = if node.addresses.iter().any(std::net::IpAddr::is_ipv6) { "::" } else { "0.0.0.0" };
    json!({
        "name": node.host_name,
        "advertisedAddresses": node.addresses.first().map(ToString::to_string).into_iter().collect::<Vec<_>>(),
        "image": images::etcd(cluster),
        "listenPeerAddresses": [every],
        "listenClientAddresses": [every],
        "extraArgs": arguments(&cluster.config().cluster.etcd.extra_args),
    })
}

fn cloud_provider(cluster: &Cluster<'_>) -> &'static str {
    if cluster.has_cloud_provider() { "external" } else { "" }
}

fn texts(networks: &[Network]) -> Vec<&str> {
    networks.iter().map(Network::text).collect()
}

fn arguments(given: &BTreeMap<String, Given>) -> Value {
    Value::Object(given.iter().map(|(name, values)| (name.clone(), json!(values.0))).collect())
}

fn volumes(given: &[ExtraVolume]) -> Vec<Value> {
    let one = |volume: &ExtraVolume| {
        json!({
            "name": pod::volume_name(volume),
            "hostPath": volume.host_path,
            "mountPath": volume.mount_path,
            "readonly": volume.readonly,
        })
    };
    given.iter().map(one).collect()
}

fn resources(given: Option<&Resources>) -> Value {
    let none = Resources::default();
    let given = given.unwrap_or(&none);
    json!({ "requests": given.requests, "limits": given.limits })
}

fn mount(mount: &config::v1alpha1::Mount) -> Value {
    json!({
        "destination": mount.destination,
        "type": mount.kind,
        "source": mount.source,
        "options": mount.options,
    })
}
