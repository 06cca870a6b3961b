//! Manifests of a node whose etcd is a task of the test's own. The API server itself runs in the tests of a whole cluster.

use std::sync::Arc;
use std::time::Duration;

use config::Config;
use containers::Client;
use containers::service::Fetch;
use runtime::Runtime;
use runtime::services::{Definition, Operation};

use super::*;
use crate::{etcd, samples};

struct Fixture {
    root: tempfile::TempDir,
    runtime: Arc<Runtime>,
    node: KubernetesNode,
    memory: Memory,
}

impl Fixture {
    fn new(config: &Config) -> Self {
        let root = tempfile::tempdir().unwrap();
        let runtime = samples::known(root.path(), config);
        let fetch: Fetch = Arc::new(|_, _| Box::pin(async { Ok(()) }));
        let node = KubernetesNode::new(runtime.clone(), Client::new(root.path(), "system"), fetch, false);
        Self { root, runtime, node, memory: Memory::default() }
    }

    async fn with_etcd(config: &Config) -> Self {
        let fixture = Self::new(config);
        let forever = || -> runtime::services::definition::Work { Box::pin(std::future::pending()) };
        let mut etcd = Definition::internal(etcd::ID, forever);
        etcd.api_control = true;
        fixture.runtime.services.define(etcd);
        fixture.runtime.services.start(etcd::ID);
        let id = [etcd::ID.to_owned()];
        fixture.runtime.services.wait_up(&id, Duration::from_secs(60)).await.unwrap();
        fixture
    }

    async fn look(&mut self) -> Duration {
        self.node.look_at_static_pods(&mut self.memory).await.unwrap()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join("etc/kubernetes/manifests").join(name)
    }

    fn names(&self) -> Vec<String> {
        let Ok(listed) = std::fs::read_dir(self.path("")) else { return Vec::new() };
        let mut names: Vec<_> =
            listed.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn annotation(&self, name: &str) -> String {
        let text = std::fs::read_to_string(self.path("talos-kube-apiserver.yaml")).unwrap();
        let line = text.lines().find(|line| line.trim_start().starts_with(name));
        line.unwrap_or_else(|| panic!("no {name} in {text}")).trim().to_owned()
    }
}

fn config() -> Config {
    samples::control_plane("v1.34.10", "v3.6.4")
}

#[tokio::test]
async fn the_api_server_comes_with_etcd_and_its_clients_after_it() {
    let mut f = Fixture::with_etcd(&config()).await;
    assert!(f.look().await < SHORT_PERIOD, "it is waited for");
    assert_eq!(f.names(), ["talos-kube-apiserver.yaml"]);
    let key = f.root.path().join("system/secrets/kubernetes/kube-apiserver/apiserver.key");
    assert!(key.exists() && f.root.path().join("var/log/audit/kube").is_dir());
    f.memory.has_answered = true;
    assert_eq!(f.look().await, LONG_PERIOD);
    let all =
        ["talos-kube-apiserver.yaml", "talos-kube-controller-manager.yaml", "talos-kube-scheduler.yaml"];
    assert_eq!(f.names(), all);
    // A machined that knows nothing of it leaves them.
    f.memory = Memory::default();
    f.look().await;
    assert_eq!(f.names(), all);
}

#[tokio::test]
async fn what_another_hand_changed_is_as_before() {
    let mut f = Fixture::with_etcd(&config()).await;
    f.look().await;
    let (ours, theirs, stale) =
        (f.path("talos-kube-apiserver.yaml"), f.path("theirs.yaml"), f.path("talos-old.yaml"));
    let good = std::fs::read(&ours).unwrap();
    for path in [&ours, &theirs, &stale] {
        std::fs::write(path, "kind: Pod\n").unwrap();
    }
    f.look().await;
    assert_eq!(std::fs::read(&ours).unwrap(), good);
    assert_eq!(f.names(), ["talos-kube-apiserver.yaml", "theirs.yaml"]);
    std::fs::remove_file(&ours).unwrap();
    f.look().await;
    assert_eq!(std::fs::read(&ours).unwrap(), good);
}

#[tokio::test]
async fn the_pods_go_when_etcd_stays_away() {
    let mut f = Fixture::with_etcd(&config()).await;
    f.look().await;
    let deadline = Duration::from_secs(60);
    f.runtime.services.operate(etcd::ID, Operation::Stop, deadline).await.unwrap();
    f.look().await;
    assert_eq!(f.names(), ["talos-kube-apiserver.yaml"], "it may be back at once");
    f.memory.away_since = Instant::now().checked_sub(ETCD_DEADLINE + Duration::from_secs(1));
    f.look().await;
    assert!(f.names().is_empty());
}

#[tokio::test]
async fn a_pod_says_what_it_was_rendered_from() {
    let mut given = config();
    let mut f = Fixture::with_etcd(&given).await;
    f.look().await;
    let version = |f: &Fixture, of| f.annotation(&format!("talos.dev/{of}-version"));
    let first = ["config", "secrets", "config-file"].map(|of| version(&f, of));
    f.look().await;
    assert_eq!(["config", "secrets", "config-file"].map(|of| version(&f, of)), first);
    // Another argument.
    given.cluster.api_server.get_or_insert_default().extra_args =
        [("v".to_owned(), config::schema::Arguments(vec!["4".to_owned()]))].into();
    f.runtime.config.send_replace(Some(Arc::new(given.clone())));
    f.look().await;
    let second = ["config", "secrets", "config-file"].map(|of| version(&f, of));
    assert!(second[0] != first[0] && second[1..] == first[1..], "{second:?} {first:?}");
    // Another key of service accounts: the same arguments name another file content.
    let other = config();
    given.cluster.service_account = other.cluster.service_account;
    f.runtime.config.send_replace(Some(Arc::new(given)));
    f.look().await;
    assert_ne!(version(&f, "secrets"), second[1]);
}

#[tokio::test]
async fn programs_start_again_with_data_of_a_snapshot() {
    let mut f = Fixture::with_etcd(&config()).await;
    f.look().await;
    let version = |f: &Fixture| f.annotation("talos.dev/config-file-version");
    let first = version(&f);
    let restored = f.root.path().join("var/lib/etcd.restored");
    std::fs::create_dir_all(restored.parent().unwrap()).unwrap();
    std::fs::write(restored, "recovered-1").unwrap();
    f.look().await;
    let second = version(&f);
    assert_ne!(second, first);
    f.look().await;
    assert_eq!(version(&f), second, "once");
}

#[tokio::test]
async fn a_worker_has_none_and_loses_those_that_it_had() {
    let mut f = Fixture::with_etcd(&config()).await;
    f.look().await;
    let mut worker = config();
    worker.machine.machine_type = config::v1alpha1::MachineType::Worker;
    f.runtime.config.send_replace(Some(Arc::new(worker)));
    f.look().await;
    assert!(f.names().is_empty());
}

fn with_pods(config: &mut Config, pods: &str) {
    let patches = config::patch::load_patches(&format!("machine: {{pods: {pods}}}")).unwrap();
    let text = config::patch::apply("version: v1alpha1\n", &patches).unwrap();
    config.machine.pods = config::parse(&text).unwrap().machine.pods;
}

#[tokio::test]
async fn pods_of_the_configuration_run_on_each_node_and_need_no_etcd() {
    let mut worker = config();
    worker.machine.machine_type = config::v1alpha1::MachineType::Worker;
    let web = "{kind: pod, metadata: {name: web, namespace: shop}, spec: {containers: []}}";
    with_pods(&mut worker, &format!("[{web}, {{metadata: {{name: a}}, spec: {{}}}}]"));
    let mut f = Fixture::new(&worker);
    f.look().await;
    assert_eq!(f.names(), ["talos-default-a.yaml", "talos-shop-web.yaml"]);
    let text = std::fs::read_to_string(f.path("talos-shop-web.yaml")).unwrap();
    assert!(text.contains("kind: Pod\n") && text.contains("apiVersion: v1\n"), "{text}");
    with_pods(&mut worker, &format!("[{web}]"));
    f.runtime.config.send_replace(Some(Arc::new(worker)));
    f.look().await;
    assert_eq!(f.names(), ["talos-shop-web.yaml"]);
    // On a control plane node they are there before anything else is.
    let mut control_plane = config();
    with_pods(&mut control_plane, &format!("[{web}]"));
    let mut f = Fixture::new(&control_plane);
    f.look().await;
    assert_eq!(f.names(), ["talos-shop-web.yaml"]);
}

#[tokio::test]
async fn the_nodes_own_files_have_copies_and_a_resource_each() {
    let mut given = config();
    with_pods(&mut given, "[{metadata: {name: a}, spec: {}}]");
    let mut f = Fixture::with_etcd(&given).await;
    f.look().await;
    let copies = f.root.path().join("system/config/kubernetes/manifests");
    std::fs::write(f.path("theirs.yaml"), "kind: Pod\n").unwrap();
    std::fs::write(copies.join("talos-kube-apiserver.yaml"), "kind: Pod\n").unwrap();
    f.look().await;
    // The kubelet may see these: a change of them is said, too.
    let log = std::fs::read_to_string(f.root.path().join("log/machined.log")).unwrap_or_default();
    let said = "static pod talos-kube-apiserver.yaml: something else changed or removed it in /system/config";
    assert!(log.contains(said), "{log}");
    let names = ["talos-default-a.yaml", "talos-kube-apiserver.yaml"];
    for name in names {
        assert_eq!(std::fs::read(f.path(name)).unwrap(), std::fs::read(copies.join(name)).unwrap());
    }
    assert_eq!(std::fs::read_dir(&copies).unwrap().count(), names.len());
    let listed = f.runtime.store.list(&runtime::store::STATIC_POD);
    let ids: Vec<_> = listed.iter().map(|resource| resource.metadata.id.as_str()).collect();
    assert_eq!(ids, ["default-a", "kube-apiserver"]);
    remove_static_pods(f.root.path()).unwrap();
    assert!(f.names() == ["theirs.yaml"] && std::fs::read_dir(&copies).unwrap().next().is_none());
}
