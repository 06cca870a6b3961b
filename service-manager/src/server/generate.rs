//! Making a machine config on the node: what the first generation's interactive installer asks for.
//!
//! Owns: the way from that request to the generator of `api::generate` and a patch for what it does not ask.
//! Does not: apply anything: the client sends the config back with ApplyConfiguration.
//! Order: a node without a config makes a new cluster; a control plane node makes another node of its own cluster.
//! Source: crates/api/proto/machine/machine.proto (GenerateConfiguration).

use api::generate::{Bundle, Cluster, Contract, cluster_endpoint};
use api::proto::machine as proto;
use api::proto::machine::machine_config::MachineType as WireType;
use config::MachineType;
use serde_json::{Map, Value, json};
use tonic::Status;

use super::query;
use crate::configuration::text_in_force;
use crate::node::Node;

/// The only version of machine configs.
const VERSION: &str = "v1alpha1";
/// Where a cluster's services have their names unless the request says otherwise.
const DNS_DOMAIN: &str = "cluster.local";

/// Makes the config and the client configuration that goes with it.
pub(super) fn generate(
    node: &Node,
    request: &proto::GenerateConfigurationRequest,
) -> Result<proto::GenerateConfigurationResponse, Status> {
    let (machine, cluster) = parts(request)?;
    let secrets = secrets(node, machine)?;
    let wanted = wanted(machine, cluster)?;
    let text = wanted.machine_config(&secrets, machine_type(machine)?);
    let text = patched(text.expose_secret(), &patch(machine, cluster))?;
    let mut talosconfig = wanted.talosconfig(&secrets).map_err(|e| Status::internal(e.to_string()))?;
    if let Some(context) = talosconfig.contexts.get_mut(&wanted.name) {
        // The host of the cluster's address.
        context.endpoints = config::endpoint_host(&wanted.endpoint).map(str::to_owned).into_iter().collect();
    }
    let answer = proto::GenerateConfiguration {
        metadata: None,
        data: vec![text.into_bytes()],
        talosconfig: talosconfig.to_yaml().expose_secret().as_bytes().to_vec(),
    };
    Ok(proto::GenerateConfigurationResponse { messages: vec![answer] })
}

/// The two parts of a request, which both have to be there.
fn parts(
    request: &proto::GenerateConfigurationRequest,
) -> Result<(&proto::MachineConfig, &proto::ClusterConfig), Status> {
    if request.config_version != VERSION {
        let text = format!("unsupported config version {}", query::shortened(&request.config_version));
        return Err(Status::invalid_argument(text));
    }
    let parts = request.machine_config.as_ref().zip(request.cluster_config.as_ref());
    parts.ok_or_else(|| Status::invalid_argument("invalid generate request"))
}

/// What of a request needs no node: everything but the secrets.
pub(super) fn check(request: &proto::GenerateConfigurationRequest) -> Result<(), Status> {
    let (machine, cluster) = parts(request)?;
    machine_type(machine)?;
    wanted(machine, cluster)?;
    patched("version: v1alpha1\nmachine: {}\n", &patch(machine, cluster)).map(drop)
}

fn machine_type(machine: &proto::MachineConfig) -> Result<MachineType, Status> {
    match machine.r#type() {
        WireType::TypeInit => Ok(MachineType::Init),
        WireType::TypeControlPlane => Ok(MachineType::ControlPlane),
        WireType::TypeWorker => Ok(MachineType::Worker),
        WireType::TypeUnknown => Err(Status::invalid_argument("invalid generate request: no machine type")),
    }
}

/// The running cluster's secrets, or fresh ones.
fn secrets(node: &Node, machine: &proto::MachineConfig) -> Result<Bundle, Status> {
    let Some(text) = text_in_force(&node.runtime) else {
        if machine.r#type() == WireType::TypeWorker {
            return Err(Status::invalid_argument("join config cannot be generated in the maintenance mode"));
        }
        return Bundle::generate().map_err(|e| Status::internal(e.to_string()));
    };
    if !node.runtime.config().is_some_and(|config| config.machine.machine_type.is_control_plane()) {
        return Err(Status::failed_precondition("a worker has no secrets to generate configurations from"));
    }
    Bundle::from_control_plane(&text).map_err(|e| Status::failed_precondition(e.to_string()))
}

fn wanted(machine: &proto::MachineConfig, cluster: &proto::ClusterConfig) -> Result<Cluster, Status> {
    let invalid =
        |e: String| Status::invalid_argument(format!("invalid generate request: {}", query::shortened(&e)));
    let endpoint = cluster.control_plane.as_ref().map(|plane| plane.endpoint.as_str()).unwrap_or_default();
    let given = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    let install = machine.install_config.as_ref();
    let domain = cluster.cluster_network.as_ref().and_then(|network| given(&network.dns_domain));
    let version = given(machine.kubernetes_version.trim_start_matches('v'));
    let wanted = Cluster {
        name: cluster.name.clone(),
        endpoint: cluster_endpoint(endpoint).map_err(|e| invalid(e.to_string()))?,
        // Only clients of that generation call this.
        contract: "v0.9".parse::<Contract>().map_err(|e| invalid(e.to_string()))?,
        install_disk: install.map(|install| install.install_disk.clone()).unwrap_or_default(),
        install_image: install.and_then(|install| given(&install.install_image)),
        additional_sans: Vec::new(),
        dns_domain: domain.unwrap_or_else(|| DNS_DOMAIN.to_owned()),
        kubernetes_version: version,
        registry_mirrors: Vec::new(),
        persist: true,
        discovery: false,
        kubespan: false,
    };
    wanted.check_name().map_err(|e| invalid(e.to_string()))?;
    Ok(wanted)
}

/// What the generator does not ask: network, CNI, scheduling.
fn patch(machine: &proto::MachineConfig, cluster: &proto::ClusterConfig) -> Value {
    let mut network = Map::new();
    if let Some(wanted) = &machine.network_config {
        if !wanted.hostname.is_empty() {
            network.insert("hostname".into(), json!(wanted.hostname));
        }
        if !wanted.interfaces.is_empty() {
            network.insert("interfaces".into(), wanted.interfaces.iter().map(interface).collect());
        }
    }
    let mut section = Map::new();
    if cluster.allow_scheduling_on_control_planes {
        section.insert("allowSchedulingOnMasters".into(), json!(true));
    }
    let cni = cluster.cluster_network.as_ref().and_then(|network| network.cni_config.as_ref());
    if let Some(cni) = cni.filter(|cni| !cni.name.is_empty()) {
        let mut value = json!({ "name": cni.name });
        if !cni.urls.is_empty() {
            value["urls"] = json!(cni.urls);
        }
        section.insert("network".into(), json!({ "cni": value }));
    }
    let mut patch = Map::new();
    if !network.is_empty() {
        patch.insert("machine".into(), json!({ "network": network }));
    }
    if !section.is_empty() {
        patch.insert("cluster".into(), Value::Object(section));
    }
    Value::Object(patch)
}

fn interface(wanted: &proto::NetworkDeviceConfig) -> Value {
    let mut value = Map::new();
    let mut put = |name: &str, given: bool, content: Value| {
        if given {
            value.insert(name.to_owned(), content);
        }
    };
    put("interface", true, json!(wanted.interface));
    put("cidr", !wanted.cidr.is_empty(), json!(wanted.cidr));
    put("mtu", wanted.mtu > 0, json!(wanted.mtu));
    put("dhcp", wanted.dhcp, json!(true));
    put("ignore", wanted.ignore, json!(true));
    if let Some(options) = &wanted.dhcp_options {
        put("dhcpOptions", true, json!({ "routeMetric": options.route_metric }));
    }
    let route = |route: &proto::RouteConfig| {
        let mut value = json!({ "network": route.network, "gateway": route.gateway });
        if route.metric != 0 {
            value["metric"] = json!(route.metric);
        }
        value
    };
    put("routes", !wanted.routes.is_empty(), wanted.routes.iter().map(route).collect());
    Value::Object(value)
}

fn patched(text: &str, patch: &Value) -> Result<String, Status> {
    if patch.as_object().is_none_or(Map::is_empty) {
        return Ok(text.to_owned());
    }
    // A strategic merge patch in JSON is one in YAML too.
    let failed = |e: config::patch::PatchError| Status::internal(query::shortened(&e.to_string()));
    let patches = config::patch::load_patches(&patch.to_string()).map_err(failed)?;
    config::patch::apply(text, &patches).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(kind: WireType) -> proto::GenerateConfigurationRequest {
        let network = proto::NetworkConfig {
            hostname: "made-here".into(),
            interfaces: vec![proto::NetworkDeviceConfig {
                interface: "eth0".into(),
                cidr: "10.0.0.5/24".into(),
                routes: vec![proto::RouteConfig {
                    network: "0.0.0.0/0".into(),
                    gateway: "10.0.0.1".into(),
                    metric: 0,
                }],
                ..Default::default()
            }],
        };
        proto::GenerateConfigurationRequest {
            config_version: VERSION.into(),
            machine_config: Some(proto::MachineConfig {
                r#type: kind.into(),
                install_config: Some(proto::InstallConfig {
                    install_disk: "/dev/vda".into(),
                    ..Default::default()
                }),
                network_config: Some(network),
                ..Default::default()
            }),
            cluster_config: Some(proto::ClusterConfig {
                name: "demo".into(),
                control_plane: Some(proto::ControlPlaneConfig { endpoint: "https://10.0.0.5:6443".into() }),
                ..Default::default()
            }),
            override_time: None,
        }
    }

    fn on_blank_node(
        request: &proto::GenerateConfigurationRequest,
    ) -> Result<proto::GenerateConfiguration, Status> {
        let dir = tempfile::tempdir().unwrap();
        let node = crate::server::tests::node(dir.path().to_path_buf());
        generate(&node, request).map(|mut answer| answer.messages.remove(0))
    }

    #[tokio::test]
    async fn a_blank_node_makes_a_cluster_that_it_would_accept() {
        let answer = on_blank_node(&request(WireType::TypeControlPlane)).unwrap();
        let loaded = config::load(&answer.data[0]).unwrap();
        assert!(loaded.validate(config::Mode::Metal).is_ok());
        assert_eq!(loaded.config.machine.network.hostname, "made-here");
        let text = String::from_utf8(answer.data[0].clone()).unwrap();
        for part in ["10.0.0.5/24", "10.0.0.1", "/dev/vda", "https://10.0.0.5:6443"] {
            assert!(text.contains(part), "{part}");
        }
        let talosconfig = std::str::from_utf8(&answer.talosconfig).unwrap();
        let talosconfig = api::talosconfig::Talosconfig::parse(talosconfig).unwrap();
        assert_eq!(talosconfig.contexts["demo"].endpoints, ["10.0.0.5"]);
    }

    #[tokio::test]
    async fn requests_that_cannot_be_met_are_refused_in_the_known_words() {
        let join = on_blank_node(&request(WireType::TypeWorker)).unwrap_err();
        assert_eq!(join.message(), "join config cannot be generated in the maintenance mode");
        let version = proto::GenerateConfigurationRequest {
            config_version: "v2".into(),
            ..request(WireType::TypeInit)
        };
        assert_eq!(on_blank_node(&version).unwrap_err().message(), "unsupported config version v2");
        let empty =
            proto::GenerateConfigurationRequest { machine_config: None, ..request(WireType::TypeInit) };
        assert_eq!(on_blank_node(&empty).unwrap_err().message(), "invalid generate request");
        let mut nowhere = request(WireType::TypeInit);
        nowhere.cluster_config.as_mut().unwrap().control_plane = None;
        assert!(on_blank_node(&nowhere).unwrap_err().message().starts_with("invalid generate request: "));
    }
}
