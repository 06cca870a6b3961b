//! Manifests without a cluster. `cluster_tests` has a real one.

use std::collections::BTreeSet;

use config::v1alpha1::{InlineManifest, MachineType};
use containers::Client;
use containers::service::Fetch;
use runtime::Runtime;
use runtime::store::{EXTRA_MANIFESTS_CONFIG, MANIFEST, MANIFEST_STATUS};

use super::*;
use crate::samples;

fn inline(name: &str, contents: &str) -> InlineManifest {
    InlineManifest { name: name.into(), contents: contents.into() }
}

fn namespace(name: &str) -> String {
    format!("apiVersion: v1\nkind: Namespace\nmetadata: {{name: {name}}}\n")
}

/// Answers with a namespace that has the name of the file, unless that is `lost`.
fn download() -> Download {
    Arc::new(|request: Request| {
        Box::pin(async move {
            let name = request.url.rsplit('/').next().unwrap_or_default();
            let has_header = request.headers.contains_key("X-Key");
            match name {
                "lost" => Err("not there (404)".to_owned()),
                "headed" if !has_header => Err("a header is missing".to_owned()),
                "large" => Ok(vec![b'#'; request.max_bytes + 1]),
                name => Ok(namespace(name).into_bytes()),
            }
        })
    })
}

struct Fixture {
    _root: tempfile::TempDir,
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
        Self { _root: root, runtime, node, memory: Memory::new(download()) }
    }

    async fn look(&mut self) -> (Duration, BTreeSet<String>) {
        self.node.look_at_manifests(&mut self.memory).await
    }

    fn ids(&self) -> Vec<String> {
        self.runtime.store.list(&MANIFEST).iter().map(|resource| resource.metadata.id.clone()).collect()
    }
}

fn config() -> Config {
    samples::control_plane("v1.34.10", "v3.6.4")
}

#[tokio::test]
async fn what_the_config_asks_for_is_shown_and_what_is_broken_is_said() {
    let mut config = config();
    config.cluster.inline_manifests =
        vec![inline("good", &namespace("a")), inline("bad", "kind: [\n"), inline("none", "# nothing yet\n")];
    config.cluster.extra_manifests =
        ["headed", "lost", "large"].map(|name| format!("https://example.org/{name}")).to_vec();
    config.cluster.extra_manifest_headers = [("X-Key".to_owned(), "1".to_owned())].into();
    let mut f = Fixture::new(&config);
    let (period, faults) = f.look().await;
    assert_eq!(period, SHORT_PERIOD, "etcd is waited for");
    assert_eq!(faults.len(), 1, "{faults:?}");
    assert!(faults.first().unwrap().starts_with("manifest 99-bad: line 1, column 7: "), "{faults:?}");
    for id in ["00-kubelet-bootstrapping-token", "05-flannel", "10-kube-proxy", "11-core-dns", "99-good"] {
        assert!(f.ids().iter().any(|found| found == id), "{id}: {:?}", f.ids());
    }
    assert_eq!(f.runtime.store.list(&EXTRA_MANIFESTS_CONFIG).len(), 1);
    for _ in 0..3 {
        f.memory.downloads.next().await;
    }
    let (_, faults) = f.look().await;
    let found: Vec<_> = faults.iter().map(String::as_str).skip(1).collect();
    assert_eq!(
        found,
        [
            "manifest 99-https://example.org/large: it is longer than 8 MiB",
            "manifest 99-https://example.org/lost: download: not there (404)",
        ]
    );
    assert!(f.ids().contains(&"99-https://example.org/headed".to_owned()), "{:?}", f.ids());
    let status = f.runtime.store.get(&MANIFEST_STATUS, "manifests").unwrap();
    assert_eq!(status.spec.yaml().unwrap().trim(), "manifestsApplied:\n- 99-none", "nothing is there");
}

#[tokio::test]
async fn a_broken_setting_keeps_no_other_manifest_back() {
    let mut config = config();
    config.cluster.token = None;
    config.cluster.inline_manifests = vec![inline("good", &namespace("a"))];
    let mut f = Fixture::new(&config);
    let (_, faults) = f.look().await;
    assert_eq!(f.ids(), ["99-good"]);
    assert!(faults.first().unwrap().starts_with("manifests: cluster.token is missing"), "{faults:?}");
}

#[tokio::test(start_paused = true)]
async fn what_failed_is_downloaded_again_and_what_came_is_not() {
    let wanted = |name: &str| manifests::Download {
        id: format!("99-{name}"),
        url: format!("https://example.org/{name}"),
        headers: BTreeMap::new(),
    };
    let mut downloads = Downloads::new(download(), LONG_PERIOD);
    assert!(!downloads.want(&[wanted("lost"), wanted("a")]));
    downloads.next().await;
    downloads.next().await;
    assert_eq!(downloads.faults().count(), 1);
    assert_eq!(downloads.done().map(|(id, _)| id.to_owned()).collect::<Vec<_>>(), ["99-a"]);
    assert!(downloads.want(&[wanted("lost"), wanted("a")]), "one has come");
    assert!(tokio::time::timeout(LONG_PERIOD, downloads.next()).await.is_err(), "nothing is under way");
    assert!(!downloads.want(&[wanted("lost"), wanted("a")]));
    assert_eq!(downloads.faults().count(), 0, "it is tried again");
    downloads.next().await;
    assert_eq!(downloads.faults().count(), 1);
    assert!(downloads.want(&[wanted("lost")]), "one has gone");
    assert!(!downloads.are_done());
}

#[tokio::test]
async fn a_worker_has_none() {
    let mut f = Fixture::new(&config());
    f.look().await;
    assert!(!f.ids().is_empty());
    let mut worker = config();
    worker.machine.machine_type = MachineType::Worker;
    worker.cluster.extra_manifests = vec!["https://example.org/a".to_owned()];
    f.runtime.config.send_replace(Some(Arc::new(worker)));
    assert_eq!(f.look().await, (IDLE_PERIOD, BTreeSet::new()));
    assert!(f.ids().is_empty() && f.runtime.store.list(&MANIFEST_STATUS).is_empty());
    assert!(f.runtime.store.list(&EXTRA_MANIFESTS_CONFIG).is_empty());
}

#[test]
fn headers_of_a_manifest_are_not_for_the_server_of_another() {
    let document = |name: &str, headers: &str| {
        format!(
            "---\napiVersion: v1alpha1\nkind: KubeExternalManifestConfig\nname: {name}\nurl: https://{name}.example.org/x\nheaders: {headers}\n"
        )
    };
    let text = format!(
        "version: v1alpha1\nmachine: {{type: controlplane}}\ncluster:\n  controlPlane: {{endpoint: https://10.0.0.3:6443}}\n  \
         extraManifests: [https://s.example.org/x]\n  extraManifestHeaders: {{S: s, A: s}}\n{}{}",
        document("a", "{B: a}"),
        document("b", "{}"),
    );
    let loaded = config::load(text.as_bytes()).unwrap_or_else(|error| panic!("{error}"));
    let wanted = downloads::wanted(&Cluster::new(&loaded.config).unwrap(), &loaded.documents);
    let found: Vec<(&str, Vec<&str>)> = wanted
        .iter()
        .map(|one| {
            (one.url.as_str(), one.headers.iter().flat_map(|(name, value)| [name.as_str(), value]).collect())
        })
        .collect();
    assert_eq!(
        found,
        [
            ("https://s.example.org/x", vec!["A", "s", "S", "s"]),
            ("https://a.example.org/x", vec!["B", "a"]),
            ("https://b.example.org/x", vec![]),
        ]
    );
}
