//! Manifests in a real API server over a real etcd, both plain processes in a network namespace of the test's own.
//!
//! `BILLET_KUBERNETES` names a program that is every program of Kubernetes by the name that it is started by.

use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use config::v1alpha1::InlineManifest;
use containers::Client;
use containers::service::Fetch;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service};
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use kubernetes::etcd::Membership;
use kubernetes::{api_server as rendering, paths};
use runtime::Runtime;
use runtime::services::Definition;
use runtime::store::{KubernetesSpec, MANIFEST_STATUS, Spec};

use super::*;
use crate::certificates::{self, Part};
use crate::samples::in_a_namespace;
use crate::{etcd, files, samples};

/// For what takes seconds, on a machine that has much else to do.
const SOON: Duration = Duration::from_secs(180);
const PROGRAM: &str = "BILLET_KUBERNETES";

/// What a node runs, as processes of this test.
struct Processes(Vec<(Child, PathBuf)>);

impl Drop for Processes {
    fn drop(&mut self) {
        for (child, log) in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
            if std::thread::panicking() {
                let text = std::fs::read_to_string(&*log).unwrap_or_default();
                let last: Vec<&str> = text.lines().rev().take(15).collect();
                eprintln!("--- {}\n{}", log.display(), last.into_iter().rev().collect::<Vec<_>>().join("\n"));
            }
        }
    }
}

impl Processes {
    /// Starts a program with its paths below `root`.
    fn start(&mut self, root: &Path, mut command: Command, arguments: &[String]) {
        let below = root.display().to_string();
        let arguments = arguments.iter().map(|argument| {
            let argument = argument.replace("=/", &format!("={below}/"));
            argument.replace("$(POD_IP)", "10.0.0.3")
        });
        let log = root.join(format!("process-{}.log", self.0.len()));
        let out = std::fs::File::create(&log).unwrap();
        let error = out.try_clone().unwrap();
        let child = command.args(arguments).stdin(Stdio::null()).stdout(out).stderr(error).spawn().unwrap();
        self.0.push((child, log));
    }
}

fn control_plane(root: &Path, config: &Config, program: &Path) -> Processes {
    let (cluster, node) = (Cluster::new(config).unwrap(), samples::node());
    for part in [Part::Etcd, Part::ControlPlane] {
        certificates::bring(root, &cluster, &node, part).unwrap();
    }
    for file in rendering::files(&cluster).unwrap() {
        files::write(root, &file).unwrap();
    }
    std::fs::create_dir_all(root.join(paths::AUDIT_LOG.trim_start_matches('/'))).unwrap();
    let mut processes = Processes(Vec::new());
    let arguments = kubernetes::etcd::arguments(&cluster, &node, &Membership::New).unwrap();
    processes.start(root, Command::new("/usr/bin/etcd"), &arguments.to_vec());
    let mut command = Command::new(program);
    command.arg0("kube-apiserver");
    processes.start(root, command, &rendering::arguments(&cluster, &node).unwrap().to_vec());
    processes
}

/// A machined that keeps the manifests, until it is dropped.
struct Machined {
    root: PathBuf,
    runtime: Arc<Runtime>,
    work: tokio::task::JoinHandle<()>,
}

impl Drop for Machined {
    fn drop(&mut self) {
        self.work.abort();
    }
}

impl Machined {
    async fn start(root: &Path, config: &Config) -> Self {
        let runtime = samples::known(root, config);
        let fetch: Fetch = Arc::new(|_, _| Box::pin(async { Ok(()) }));
        let node = KubernetesNode::new(runtime.clone(), Client::new(root, "system"), fetch, false);
        let forever = || -> runtime::services::definition::Work { Box::pin(std::future::pending()) };
        runtime.services.define(Definition::internal(etcd::ID, forever));
        runtime.services.start(etcd::ID);
        runtime.services.wait_up(&[etcd::ID.to_owned()], SOON).await.unwrap();
        let download: Download = Arc::new(|request: Request| {
            Box::pin(async move {
                match request.url.as_str() {
                    "https://example.org/extra.yaml" => Ok(config_map("extra", "default").into_bytes()),
                    _ => Err("not there (404)".to_owned()),
                }
            })
        });
        let work = tokio::spawn(async move { node.keep_manifests(download).await });
        Self { root: root.to_owned(), runtime, work }
    }

    fn applied(&self) -> Vec<String> {
        let status = self.runtime.store.get(&MANIFEST_STATUS, "manifests");
        match status.as_ref().map(|status| &status.spec) {
            Some(Spec::Kubernetes(KubernetesSpec::ManifestStatus { manifests_applied })) => {
                manifests_applied.clone()
            }
            _ => Vec::new(),
        }
    }

    async fn has_applied(&self, ids: &[&str]) {
        let begin = Instant::now();
        while !ids.iter().all(|id| self.applied().iter().any(|applied| applied == id)) {
            assert!(begin.elapsed() < SOON, "not there: {ids:?}; only {:?}; {}", self.applied(), self.said());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    fn said(&self) -> String {
        std::fs::read_to_string(self.root.join("log/machined.log")).unwrap_or_default()
    }

    fn count(&self, words: &str) -> usize {
        self.said().lines().filter(|line| line.contains(words)).count()
    }
}

fn config_map(name: &str, namespace: &str) -> String {
    format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}, namespace: {namespace}}}\ndata: {{a: b}}\n"
    )
}

/// An object of a kind that the same text defines behind it, in a namespace that comes last.
const OWN_KIND: &str = "
apiVersion: example.org/v1
kind: Thing
metadata: {name: first, namespace: things}
spec: {size: 3}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.example.org}
spec:
  group: example.org
  scope: Namespaced
  names: {kind: Thing, plural: things, singular: thing, listKind: ThingList}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
---
apiVersion: v1
kind: Namespace
metadata: {name: things}
";

fn inline(name: &str, contents: &str) -> InlineManifest {
    InlineManifest { name: name.into(), contents: contents.into() }
}

fn config() -> Config {
    let mut config = samples::control_plane("v1.34.10", "v3.4.23");
    config.cluster.inline_manifests = vec![
        inline("broken", "apiVersion: v1\nkind: {\n"),
        inline("no-namespace", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: bare}\n"),
        inline("own-kind", OWN_KIND),
        inline("refused", &config_map("UPPER", "default")),
        inline(
            "refused-secret",
            "apiVersion: v1\nkind: Secret\nmetadata: {name: s, namespace: default}\ndata: {a: \"no base64: hunter2\"}\n",
        ),
        inline("unknown", "apiVersion: example.com/v1\nkind: Nothing\nmetadata: {name: a}\n"),
    ];
    config.cluster.extra_manifests =
        vec!["https://example.org/extra.yaml".to_owned(), "https://example.org/lost.yaml".to_owned()];
    config
}

/// Ids of the manifests of [`config`] that come to be.
fn good(config: &Config) -> Vec<String> {
    let rendered = manifests::rendered(&Cluster::new(config).unwrap()).unwrap();
    let ids = rendered.into_iter().map(|manifest| manifest.id);
    ids.chain(["99-no-namespace", "99-own-kind", "99-https://example.org/extra.yaml"].map(str::to_owned))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "starts etcd and the API server that BILLET_KUBERNETES names"]
async fn manifests_come_into_a_cluster_and_leave_what_is_there() {
    let Some(program) = std::env::var_os(PROGRAM) else {
        // Not by `eprintln`: the test passes, and its output would not be shown.
        let text = format!(
            "\nNOT RUN: {PROGRAM} names no program with kube-apiserver: manifests are not tested\n\n"
        );
        std::io::stderr().write_all(text.as_bytes()).unwrap();
        return;
    };
    if !in_a_namespace("manifests::cluster_tests::manifests_come_into_a_cluster_and_leave_what_is_there") {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let mut config = config();
    let first = Machined::start(root.path(), &config).await;
    let _processes = control_plane(root.path(), &config, Path::new(&program));
    let ids = good(&config);
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    first.has_applied(&ids).await;
    assert_eq!(first.applied().len(), ids.len(), "{:?}", first.applied());

    let client = api_server::client(&Cluster::new(&config).unwrap()).await.unwrap();
    let system = "kube-system";
    let token = config.cluster.token.as_ref().unwrap().expose_secret().to_owned();
    let (id, secret) = token.split_once('.').unwrap();
    let secrets: Api<Secret> = Api::namespaced(client.clone(), system);
    let found = secrets.get(&format!("bootstrap-token-{id}")).await.unwrap();
    assert_eq!(found.type_.as_deref(), Some("bootstrap.kubernetes.io/token"));
    assert_eq!(found.data.unwrap()["token-secret"].0, secret.as_bytes());
    Api::<DaemonSet>::namespaced(client.clone(), system).get("kube-proxy").await.unwrap();
    Api::<Deployment>::namespaced(client.clone(), system).get("coredns").await.unwrap();
    let dns = Api::<Service>::namespaced(client.clone(), system).get("kube-dns").await.unwrap();
    assert_eq!(dns.spec.unwrap().cluster_ip.as_deref(), Some("10.96.0.10"));
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    maps.get("bare").await.unwrap();
    let by = maps.get("extra").await.unwrap().metadata.managed_fields.unwrap();
    assert_eq!(by[0].manager.as_deref(), Some("talos"));
    everything_exists(&client, &config).await;

    // Each cause once, without secrets; what came of each manifest.
    for words in [
        "manifest 99-broken: line ",
        "manifest 99-refused: v1/ConfigMap default/UPPER: ",
        "manifest 99-refused-secret: v1/Secret default/s: ",
        "manifest 99-unknown: example.com/v1/Nothing a: the API server does not know this kind",
        "manifest 99-https://example.org/lost.yaml: download: not there (404)",
        "manifest 00-kubelet-bootstrapping-token: created 1 object",
        "manifest 11-core-dns: created ",
    ] {
        assert_eq!(first.count(words), 1, "{words}: {}", first.said());
    }
    let said = first.said();
    assert!(!said.contains(secret) && !said.contains("hunter2"), "{said}");
    drop(first);

    // Another machined makes nothing, and leaves what somebody changed.
    let patch = Patch::Merge(serde_json::json!({ "data": { "Corefile": "changed" } }));
    let system_maps: Api<ConfigMap> = Api::namespaced(client.clone(), system);
    system_maps.patch("coredns", &PatchParams::default(), &patch).await.unwrap();
    let created = said.matches(": created ").count();
    // Its predecessor was killed while it held the mutex.
    drop(mutex::take(root.path(), MUTEX, "cp-1", MUTEX_LIFE).await.unwrap());
    let second = Machined::start(root.path(), &config).await;
    second.has_applied(&ids).await;
    assert_eq!(second.count(": created "), created, "{}", second.said());
    assert_eq!(system_maps.get("coredns").await.unwrap().data.unwrap()["Corefile"], "changed");

    // A further manifest waits for the other control plane nodes, and comes; what was removed is made anew with it.
    maps.delete("bare", &DeleteParams::default()).await.unwrap();
    let held = mutex::take(root.path(), MUTEX, "cp-2", MUTEX_LIFE).await.unwrap();
    config.cluster.inline_manifests.push(inline("further", &config_map("further", "default")));
    second.runtime.config.send_replace(Some(Arc::new(config.clone())));
    let begin = Instant::now();
    while second.count("waiting for another control plane node") == 0 {
        assert!(begin.elapsed() < SOON, "{}", second.said());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(maps.get_opt("further").await.unwrap().is_none());
    held.release().await.unwrap();
    second.has_applied(&["99-further", "99-no-namespace"]).await;
    maps.get("bare").await.unwrap();
    assert_eq!(second.count(": created "), created + 2, "{}", second.said());
    assert_eq!(system_maps.get("coredns").await.unwrap().data.unwrap()["Corefile"], "changed");
}

/// Every object of the rendered manifests, and those of an own kind.
async fn everything_exists(client: &kube::Client, config: &Config) {
    let mut all = manifests::rendered(&Cluster::new(config).unwrap()).unwrap();
    let own = manifests::objects(OWN_KIND.as_bytes()).unwrap();
    all.push(Manifest { id: "own".into(), objects: own });
    let mut server = Server::new(client.clone());
    let objects = manifests::ordered(&all);
    assert!(objects.len() > 20, "{}", objects.len());
    for (id, object) in objects {
        let key = Key::of(object);
        assert_eq!(server.bring(&key, object).await.unwrap(), Outcome::Exists, "{id} {key}");
    }
}
