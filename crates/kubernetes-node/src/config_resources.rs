//! What clients see of what this node runs of Kubernetes, and with what: resources of the configuration and of the programs.
//!
//! | task | reads | writes | ends |
//! |---|---|---|---|
//! | [`KubernetesNode::keep_config_resources`] | the config, the node's name and addresses | kubelet's, etcd's and the node's own types, policies, `BootstrapManifestsConfigs`, `KubernetesRootSecrets` | with machined |
//!
//! Owns: the ids. [`publish_programs`] is for the loop of static pods, whose pods carry the versions of these resources.
//! Order: what the configuration says is there before what needs the node's name and addresses.
//! Fails by: a line in the log where a configuration cannot be rendered; its resources are gone then.

use std::collections::BTreeMap;
use std::time::Duration;

use kubernetes::resources::{self, Programs};
use kubernetes::{Cluster, kubelet};
use runtime::Runtime;
use runtime::store::{
    ADMISSION_CONTROL_CONFIG, API_SERVER_CONFIG, AUDIT_POLICY_CONFIG, AUTHORIZATION_CONFIG,
    BOOTSTRAP_MANIFESTS_CONFIG, BOOTSTRAP_STATUS, CONFIG_STATUS, CONTROL_PLANE_CONFIG,
    CONTROLLER_MANAGER_CONFIG, Definition, ETCD_CONFIG, ETCD_MEMBER, ETCD_SPEC, Fact, HOSTNAME_STATUS,
    KUBELET_CONFIG, KUBELET_SPEC, KUBERNETES_ROOT_SECRET, KubernetesRoot, NODE_ADDRESS, NODE_ANNOTATION_SPEC,
    NODE_IP, NODE_IP_CONFIG, NODE_LABEL_SPEC, NODE_STATUS, NODE_TAINT_SPEC, NODENAME, SCHEDULER_CONFIG,
    SECRETS_STATUS, Spec,
};
use serde_json::{Value, json};

use crate::published::replace;
use crate::{Error, KubernetesNode, facts};

/// The only resource of a type about the static pods.
const STATIC_PODS: &str = "static-pods";
/// Changes of name and addresses come in bursts.
const BURST: Duration = Duration::from_millis(200);

type Fields = (String, Value);

impl KubernetesNode {
    /// Has the resources be as configuration, name and addresses are, for as long as this is polled.
    pub async fn keep_config_resources(&self) {
        let mut config = self.runtime.config.subscribe();
        let mut changes = self.runtime.store.follow(&[&HOSTNAME_STATUS, &NODE_ADDRESS]);
        let mut said = String::new();
        loop {
            let fault = self.publish_config().err().map(|error| error.to_string()).unwrap_or_default();
            if fault != said && !fault.is_empty() {
                self.runtime.journal.warn(&format!("resources of Kubernetes: {fault}"));
            }
            said = fault;
            tokio::select! {
                changed = config.changed() => if changed.is_err() { return },
                () = changes.next() => tokio::time::sleep(BURST).await,
            }
        }
    }

    fn publish_config(&self) -> Result<(), Error> {
        let Some(config) = self.runtime.config() else { return Ok(()) };
        let cluster = Cluster::new(&config)?;
        let machine = &config.machine;
        let is_control_plane = cluster.is_control_plane();
        let of_control_plane = |id: &str, fields: Value| is_control_plane.then(|| (id.to_owned(), fields));
        self.show(&KUBELET_CONFIG, [("kubelet".to_owned(), resources::kubelet_config(&cluster)?)]);
        self.show(&NODE_IP_CONFIG, [("kubelet".to_owned(), resources::node_ip_config(&cluster))]);
        self.show(&NODE_LABEL_SPEC, resources::pairs(&kubelet::labels(&cluster)?));
        self.show(&NODE_ANNOTATION_SPEC, resources::pairs(&machine.node_annotations));
        self.show(&NODE_TAINT_SPEC, resources::taints(&cluster)?);
        let status = json!({ "selfHostedControlPlane": false });
        self.show(&BOOTSTRAP_STATUS, of_control_plane("control-plane", status));
        self.show(&ETCD_CONFIG, of_control_plane("etcd", resources::etcd_config(&cluster)));
        self.show_root_secrets(&cluster)?;
        if is_control_plane {
            let manifests = resources::manifests(&cluster)?;
            self.show(&BOOTSTRAP_MANIFESTS_CONFIG, of_control_plane("manifests", manifests));
            let kinds = [&ADMISSION_CONTROL_CONFIG, &AUDIT_POLICY_CONFIG, &AUTHORIZATION_CONFIG];
            for (kind, (id, fields)) in kinds.into_iter().zip(resources::policies(&cluster)?) {
                self.show(kind, of_control_plane(id, fields));
            }
        }
        // Before it has them, nothing is said.
        let Ok(node) = facts::node(&self.runtime, &cluster, self.is_container) else { return Ok(()) };
        self.show(&KUBELET_SPEC, [("kubelet".to_owned(), resources::kubelet_spec(&cluster, &node)?)]);
        let addresses: Vec<String> =
            kubelet::addresses(&cluster, &node).iter().map(ToString::to_string).collect();
        self.show(&NODE_IP, [("kubelet".to_owned(), json!({ "addresses": addresses }))]);
        let name = json!({
            "nodename": cluster.node_name(&node),
            "hostnameVersion": self.version_of_host_name(),
            "skipNodeRegistration": cluster.kubelet().skip_node_registration == Some(true),
        });
        self.show(&NODENAME, [("nodename".to_owned(), name)]);
        self.show(&ETCD_SPEC, of_control_plane("etcd", resources::etcd_spec(&cluster, &node)));
        Ok(())
    }

    /// The administrator alone sees them, who may read the config.
    fn show_root_secrets(&self, cluster: &Cluster<'_>) -> Result<(), Error> {
        let mut wanted = Vec::new();
        if let Some(document) = self.runtime.document().filter(|_| cluster.is_control_plane()) {
            let local_endpoint = format!("https://localhost:{}", cluster.api_port());
            let root = KubernetesRoot { document, local_endpoint, api_addresses: cluster.api_addresses()? };
            wanted.push(("k8s".to_owned(), Spec::Fact(Box::new(Fact::KubernetesRoot(root)))));
        }
        let kind = &KUBERNETES_ROOT_SECRET;
        if let Err(error) = self.runtime.store.replace(kind.writer, kind, wanted) {
            self.runtime.journal.warn(&error.to_string());
        }
        Ok(())
    }

    fn version_of_host_name(&self) -> String {
        let name = self.runtime.store.get(&HOSTNAME_STATUS, "hostname");
        name.map(|name| name.metadata.version.to_string()).unwrap_or_default()
    }

    fn show(&self, kind: &'static Definition, wanted: impl IntoIterator<Item = Fields>) {
        show(&self.runtime, kind, wanted);
    }
}

fn show(runtime: &Runtime, kind: &'static Definition, wanted: impl IntoIterator<Item = Fields>) {
    replace(runtime, kind, wanted.into_iter().map(|(id, fields)| (id, Spec::Fields(fields))));
}

/// Has the resources of the control plane's programs be these. A program that an earlier machined knew at a version has that
/// version, or what `first_version` makes of it. Answers the versions by the names of the programs.
pub(crate) fn publish_programs(
    runtime: &Runtime,
    programs: &Programs,
    first_version: impl Fn(&str) -> u64,
) -> BTreeMap<&'static str, u64> {
    let kinds = [&API_SERVER_CONFIG, &CONTROLLER_MANAGER_CONFIG, &SCHEDULER_CONFIG];
    let mut versions = BTreeMap::new();
    let all =
        kinds.into_iter().zip(programs.by_name()).map(|(kind, (name, fields))| (kind, name, fields.clone()));
    let older = programs.first_generation().into_iter();
    for (kind, name, fields) in all.chain(older.map(|(name, fields)| (&CONTROL_PLANE_CONFIG, name, fields))) {
        let spec = Spec::Fields(fields);
        // Looked for where it counts alone: it reads and renders a pod.
        let first = if runtime.store.get(kind, name).is_none() { first_version(name) } else { 1 };
        if let Err(error) = runtime.store.put_from(kind.writer, kind, name, spec, first) {
            runtime.journal.warn(&error.to_string());
        }
        let version = runtime.store.get(kind, name).map_or(0, |resource| resource.metadata.version);
        versions.entry(name).or_insert(version);
    }
    versions
}

/// Says that the node runs no control plane.
pub(crate) fn remove_programs(runtime: &Runtime) {
    for kind in [
        &API_SERVER_CONFIG,
        &CONTROLLER_MANAGER_CONFIG,
        &SCHEDULER_CONFIG,
        &CONTROL_PLANE_CONFIG,
        &CONFIG_STATUS,
        &SECRETS_STATUS,
    ] {
        show(runtime, kind, []);
    }
}

/// Says that keys and files of the static pods are there, and which.
pub(crate) fn publish_files(runtime: &Runtime, secrets: &str, files: &str) {
    for (kind, version) in [(&SECRETS_STATUS, secrets), (&CONFIG_STATUS, files)] {
        show(runtime, kind, [(STATIC_PODS.to_owned(), json!({ "ready": true, "version": version }))]);
    }
}

/// Shows the node's own member of etcd.
pub(crate) fn publish_member(runtime: &Runtime, id: u64) {
    show(runtime, &ETCD_MEMBER, [("local".to_owned(), json!({ "memberID": format!("{id:016x}") }))]);
}

/// Shows the node as the cluster has it: its object there. Says whether it is ready.
pub(crate) fn publish_node(runtime: &Runtime, name: &str, node: &Value) -> bool {
    let conditions = node["status"]["conditions"].as_array().map_or(&[][..], Vec::as_slice);
    let is_ready = |condition: &Value| condition["type"] == "Ready" && condition["status"] == "True";
    let is_ready = conditions.iter().any(is_ready);
    let map = |value: &Value| if value.is_object() { value.clone() } else { json!({}) };
    let pods = &node["spec"]["podCIDRs"];
    let status = json!({
        "nodename": name,
        "nodeReady": is_ready,
        "unschedulable": node["spec"]["unschedulable"] == true,
        "labels": map(&node["metadata"]["labels"]),
        "annotations": map(&node["metadata"]["annotations"]),
        "podCIDRs": if pods.is_array() { pods.clone() } else { json!([]) },
    });
    show(runtime, &NODE_STATUS, [("nodename".to_owned(), status)]);
    is_ready
}

#[cfg(test)]
mod tests {
    use runtime::store::ALL;

    use super::*;
    use crate::samples;

    /// Both forms of every resource of these types.
    fn shown(runtime: &Runtime, kind: &'static Definition) -> Vec<(String, Value)> {
        let of = |resource: &std::sync::Arc<runtime::store::Resource>| {
            resource.spec.binary(kind.kind).unwrap_or_else(|error| panic!("{}: {error:?}", kind.kind));
            let Spec::Fields(fields) = &resource.spec else { panic!() };
            (resource.metadata.id.clone(), fields.clone())
        };
        runtime.store.list(kind).iter().map(of).collect()
    }

    fn node_of(config: &config::Config, root: &std::path::Path) -> (std::sync::Arc<Runtime>, KubernetesNode) {
        let runtime = samples::known(root, config);
        let fetch: containers::service::Fetch = std::sync::Arc::new(|_, _| Box::pin(async { Ok(()) }));
        let engine = containers::Client::new(root, "system");
        (runtime.clone(), KubernetesNode::new(runtime, engine, fetch, false))
    }

    #[tokio::test]
    async fn a_control_plane_node_shows_what_it_runs() {
        let root = tempfile::tempdir().unwrap();
        let mut config = samples::control_plane("v1.34.10", "v3.6.4");
        config.machine.node_labels = [("zone".to_owned(), "a".to_owned())].into();
        let (runtime, node) = node_of(&config, root.path());
        node.publish_config().unwrap();
        let one = |kind| shown(&runtime, kind).pop().unwrap_or_else(|| panic!("no {kind:?}"));
        let (id, manifests) = one(&BOOTSTRAP_MANIFESTS_CONFIG);
        assert_eq!((id.as_str(), &manifests["dnsServiceIP"]), ("manifests", &json!("10.96.0.10")));
        assert_eq!(one(&NODE_LABEL_SPEC), ("zone".into(), json!({ "key": "zone", "value": "a" })));
        let role = "node-role.kubernetes.io/control-plane";
        assert_eq!(shown(&runtime, &NODE_LABEL_SPEC)[0], (role.into(), json!({ "key": role, "value": "" })));
        assert_eq!(one(&NODE_TAINT_SPEC).0, role);
        assert_eq!(one(&NODENAME).1["nodename"], "cp-1");
        assert_eq!(one(&NODE_IP).1, json!({ "addresses": ["10.0.0.3"] }));
        assert_eq!(one(&ETCD_SPEC).1["advertisedAddresses"], json!(["10.0.0.3"]));
        assert_eq!(
            one(&BOOTSTRAP_STATUS),
            ("control-plane".into(), json!({ "selfHostedControlPlane": false }))
        );
        // Each of them has a binary form, which typed clients read.
        let filled = ALL.iter().filter(|kind| !shown_if_ours(&runtime, kind).is_empty());
        assert!(filled.count() >= 14);
    }

    fn shown_if_ours(runtime: &Runtime, kind: &'static Definition) -> Vec<(String, Value)> {
        let is_ours =
            |resource: &std::sync::Arc<runtime::store::Resource>| matches!(resource.spec, Spec::Fields(_));
        if runtime.store.list(kind).iter().all(is_ours) { shown(runtime, kind) } else { Vec::new() }
    }

    #[tokio::test]
    async fn a_program_keeps_the_version_that_its_pod_has() {
        let root = tempfile::tempdir().unwrap();
        let config = samples::control_plane("v1.34.10", "v3.6.4");
        let (runtime, _) = node_of(&config, root.path());
        let publish = |config: &config::Config| {
            let programs = resources::programs(&Cluster::new(config).unwrap(), &samples::node()).unwrap();
            publish_programs(&runtime, &programs, |name| if name == "kube-apiserver" { 7 } else { 1 })
        };
        assert_eq!(publish(&config)["kube-apiserver"], 7);
        assert_eq!(publish(&config)["kube-apiserver"], 7);
        let mut changed = config.clone();
        changed.cluster.api_server.get_or_insert_default().image = "registry.example.org/a:v1.34.11".into();
        let versions = publish(&changed);
        assert_eq!((versions["kube-apiserver"], versions["kube-scheduler"]), (8, 1));
        // Of another section, but among the program's arguments.
        changed.cluster.service_account.issuer = "https://issuer.example.org".into();
        assert_eq!(publish(&changed)["kube-apiserver"], 9);
        let older = shown(&runtime, &CONTROL_PLANE_CONFIG);
        let (_, server) = older.iter().find(|(id, _)| id == "kube-apiserver").unwrap();
        assert_eq!(
            (&server["image"], &server["serviceCIDR"]),
            (&json!("registry.example.org/a:v1.34.11"), &json!("10.96.0.0/12"))
        );
        remove_programs(&runtime);
        assert!(shown(&runtime, &API_SERVER_CONFIG).is_empty());
    }

    #[tokio::test]
    async fn a_node_is_shown_as_its_object_says() {
        let root = tempfile::tempdir().unwrap();
        let (runtime, _) = node_of(&samples::control_plane("v1.34.10", "v3.6.4"), root.path());
        let object = json!({
            "metadata": { "labels": { "zone": "a" } },
            "spec": { "unschedulable": true, "podCIDRs": ["10.244.1.0/24"] },
            "status": { "conditions": [{ "type": "Ready", "status": "True" }] },
        });
        assert!(publish_node(&runtime, "cp-1", &object));
        let (id, status) = shown(&runtime, &NODE_STATUS).pop().unwrap();
        assert_eq!(
            (id.as_str(), &status["nodeReady"], &status["unschedulable"]),
            ("nodename", &json!(true), &json!(true))
        );
        assert!(!publish_node(&runtime, "cp-1", &json!({})));
        assert_eq!(shown(&runtime, &NODE_STATUS)[0].1["nodeReady"], false);
    }
}
