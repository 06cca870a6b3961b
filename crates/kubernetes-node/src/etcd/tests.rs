//! Debian's etcd as a container of the image's containerd, in a network namespace of the test's own.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use config::Config;
use containers::Client;
use containers::service::Fetch;
use containers::testing::{Daemon, PLAIN};
use oci::archive::{Bytes, Content, NewImage};
use oci::registry::{self, Mirror, Patience, Settings};
use oci::server::{Behaviour, Server};
use ondisk::Architecture;
use runtime::Runtime;
use runtime::services::Operation;
use runtime::services::machine::State;
use runtime::store::{Spec, TIME_STATUS, TimeStatus};

use kubernetes::paths;

use super::record::{self, Record, Stage};
use super::state::{MARK, below};
use super::*;
use crate::samples::in_a_namespace;
use crate::{Error, KubernetesNode, samples};

/// For what takes seconds, on a machine that has much else to do.
const SOON: Duration = Duration::from_secs(120);

/// A registry with this machine's etcd, and the libraries that it is linked with.
async fn served(dir: &std::path::Path) -> (Server, String) {
    let program = PathBuf::from("/usr/bin/etcd");
    let linked = Command::new("ldd").arg(&program).output().unwrap();
    let text = String::from_utf8(linked.stdout).unwrap();
    let libraries = text.split_whitespace().filter(|word| word.starts_with('/'));
    let file = |path: &str, from: PathBuf| Content { path: path.to_owned(), bytes: Bytes::Program(from) };
    let mut layer = vec![file(kubernetes::etcd::PROGRAM.trim_start_matches('/'), program)];
    layer.extend(libraries.map(|path| file(path.trim_start_matches('/'), path.into())));
    let image = NewImage {
        architecture: Architecture::OWN.name().to_owned(),
        tag: "test".into(),
        labels: BTreeMap::new(),
        layers: vec![layer],
    };
    let archive = dir.join("image.tar");
    oci::archive::write(&mut std::fs::File::create(&archive).unwrap(), &image).unwrap();
    let server = Server::start(None, Behaviour::default()).await.unwrap();
    let version = Command::new("/usr/bin/etcd").arg("--version").output().unwrap();
    let version = String::from_utf8(version.stdout).unwrap();
    let version = version.lines().next().unwrap().rsplit(' ').next().unwrap();
    server.serve(&archive, "test/etcd", &format!("v{version}")).unwrap();
    let name = format!("{}/test/etcd:v{version}", server.address());
    (server, name)
}

async fn pull(client: &Client, name: &str) -> Result<(), String> {
    let host = name.split('/').next().unwrap_or_default();
    let mirror =
        Mirror { endpoints: vec![format!("http://{host}")], override_path: false, skip_fallback: true };
    let settings = Settings { mirrors: [(host.to_owned(), mirror)].into(), ..Settings::default() };
    let patience = Patience { stall: Duration::from_secs(5), total: Duration::from_secs(60) };
    let reference = name.parse().map_err(|error| format!("{error:?}"))?;
    let registry = registry::Client::new(reference, settings, patience).map_err(|error| error.to_string())?;
    client.fetch(name, &registry).await.map_err(|error| runtime::errors::chain(&error))
}

/// A machined on this root.
fn machined(root: &std::path::Path, config: &Config, daemon: &Daemon) -> (Arc<Runtime>, KubernetesNode) {
    let runtime = samples::known(root, config);
    let fetch: Fetch = Arc::new(|client, name| Box::pin(async move { pull(&client, &name).await }));
    let node = KubernetesNode::new(runtime.clone(), daemon.client("system"), fetch, false);
    runtime.services.define(node.etcd());
    (runtime, node)
}

/// Has what this makes run its tasks there: they end with that runtime, as when a machined is killed.
fn within<T>(tasks: &tokio::runtime::Runtime, make: impl FnOnce() -> T) -> T {
    let _entered = tasks.enter();
    make()
}

fn has_time(runtime: &Runtime) {
    let status = TimeStatus { synced: true, epoch: 1, sync_disabled: false };
    runtime.store.put(TIME_STATUS.writer, &TIME_STATUS, "node", Spec::TimeStatus(status)).unwrap();
}

async fn until(runtime: &Runtime, what: &str, holds: impl Fn(&Runtime) -> bool) {
    let begin = Instant::now();
    while !holds(runtime) {
        assert!(begin.elapsed() < SOON, "not {what}: {:#?}", runtime.services.record(ID));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn is_preparing(runtime: &Runtime) -> bool {
    runtime.services.record(ID).is_some_and(|record| record.state == State::Preparing)
}

fn pid(runtime: &Runtime) -> Option<i32> {
    runtime.services.record(ID)?.pid
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "starts the image's containerd: `cargo xtask test` runs it after the build"]
async fn a_cluster_begins_once_and_its_member_stays_by_containerd() {
    if !in_a_namespace("etcd::tests::a_cluster_begins_once_and_its_member_stays_by_containerd") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (_server, image) = served(dir.path()).await;
    let daemon = Daemon::start(tempfile::tempdir().unwrap(), PLAIN, "").await;
    let root = tempfile::tempdir().unwrap();
    let mut config = samples::control_plane("v1.34.10", "v3.6.4");
    config.cluster.etcd.image = image;

    let tasks = tokio::runtime::Runtime::new().unwrap();
    let (first, node) = within(&tasks, || machined(root.path(), &config, &daemon));
    first.services.start(ID);
    until(&first, "preparing", is_preparing).await;
    assert!(matches!(node.bootstrap().await, Err(BootstrapError::NoTime)));
    has_time(&first);
    node.bootstrap().await.unwrap();
    assert!(matches!(node.bootstrap().await, Err(BootstrapError::UnderWay | BootstrapError::HasData)));
    until(&first, "healthy", |runtime| runtime.services.is_up(ID)).await;
    let members = node.etcd_members().await.unwrap();
    assert_eq!((members.len(), members[0].name.as_str()), (1, "cp-1"));
    assert_eq!(members[0].peer_urls, ["https://10.0.0.3:2380"]);
    assert!(!below(root.path(), MARK).exists(), "the mark goes when the member answers");
    let running = pid(&first).unwrap();

    // The next machined, which knows nothing of it, finds the member as it is, and no way to a second cluster.
    tokio::task::spawn_blocking(|| drop(tasks)).await.unwrap();
    let (second, node) = machined(root.path(), &config, &daemon);
    has_time(&second);
    second.services.start(ID);
    until(&second, "healthy", |runtime| runtime.services.is_up(ID)).await;
    assert_eq!(pid(&second), Some(running));
    let error = node.bootstrap().await.unwrap_err();
    assert!(error.to_string().starts_with("etcd data directory is not empty"), "{error}");

    // Killed, it comes back as the same member.
    rustix::process::kill_process(
        rustix::process::Pid::from_raw(running).unwrap(),
        rustix::process::Signal::KILL,
    )
    .unwrap();
    until(&second, "back", |runtime| {
        pid(runtime).is_some_and(|pid| pid != running) && runtime.services.is_up(ID)
    })
    .await;
    assert_eq!(node.etcd_members().await.unwrap(), members);

    // Another node of this cluster sees it at the endpoint; one of another cluster does not care.
    let (empty, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (third, node) = machined(empty.path(), &config, &daemon);
    has_time(&third);
    third.services.start(ID);
    until(&third, "preparing", is_preparing).await;
    let error = node.bootstrap().await.unwrap_err().to_string();
    assert!(error.starts_with("etcd of this cluster answers at 10.0.0.3:2379"), "{error}");
    let (fourth, node) = machined(other.path(), &samples::control_plane("v1.34.10", "v3.6.4"), &daemon);
    has_time(&fourth);
    fourth.services.start(ID);
    until(&fourth, "preparing", is_preparing).await;
    node.bootstrap().await.unwrap();
    assert!(below(other.path(), MARK).exists());

    for runtime in [&second, &third, &fourth] {
        let _ = runtime.services.operate(ID, Operation::Stop, SOON).await;
    }
    daemon.client("system").remove(ID).await.unwrap();
}

#[tokio::test]
async fn a_worker_and_a_node_that_has_not_booted_are_refused() {
    let root = tempfile::tempdir().unwrap();
    let runtime = Runtime::detached(root.path().to_owned());
    let fetch: Fetch = Arc::new(|_, _| Box::pin(async { Ok(()) }));
    let node = KubernetesNode::new(runtime.clone(), Client::new(root.path(), "system"), fetch, false);
    assert!(matches!(node.bootstrap().await, Err(BootstrapError::Other(Error::NoConfig))));
    let mut config = samples::control_plane("v1.34.10", "v3.6.4");
    runtime.config.send_replace(Some(Arc::new(config.clone())));
    let error = node.bootstrap().await.unwrap_err().to_string();
    assert!(error.starts_with("bootstrap is not available yet: "), "{error}");
    config.machine.machine_type = config::v1alpha1::MachineType::Worker;
    runtime.config.send_replace(Some(Arc::new(config)));
    let error = node.bootstrap().await.unwrap_err().to_string();
    assert_eq!(error, "bootstrap can only be performed on a control plane node");
}

#[tokio::test(start_paused = true)]
async fn certificates_of_a_running_etcd_are_renewed() {
    let root = tempfile::tempdir().unwrap();
    let config = samples::control_plane("v1.34.10", "v3.6.4");
    let fetch: Fetch = Arc::new(|_, _| Box::pin(async { Ok(()) }));
    let runtime = samples::known(root.path(), &config);
    let node = KubernetesNode::new(runtime, Client::new(root.path(), "system"), fetch, false);
    let hours = |hours| tokio::time::timeout(Duration::from_hours(hours), node.keep_etcd_certificates());
    assert!(hours(3).await.is_err());
    let directory = below(root.path(), paths::ETCD_SECRETS);
    assert!(!directory.exists(), "nothing is made for an etcd that does not run");
    std::fs::create_dir_all(&directory).unwrap();
    assert!(hours(2).await.is_err());
    let server = || std::fs::read_to_string(directory.join("server.crt")).unwrap();
    let first = server();
    assert!(hours(2).await.is_err());
    assert_eq!(server(), first, "a good one stays");
    std::fs::remove_file(directory.join("server.key")).unwrap();
    assert!(hours(2).await.is_err());
    assert_ne!(server(), first);
}

#[tokio::test]
async fn data_of_a_member_that_has_left_is_not_started_again() {
    let root = tempfile::tempdir().unwrap();
    let config = samples::control_plane("v1.34.10", "v3.6.4");
    let fetch: Fetch = Arc::new(|_, _| Box::pin(async { Ok(()) }));
    let runtime = samples::known(root.path(), &config);
    let node = KubernetesNode::new(runtime, Client::new(root.path(), "system"), fetch, false);
    let data = below(root.path(), paths::ETCD_DATA);
    let with = |stage| {
        std::fs::create_dir_all(data.join("member")).unwrap();
        let endpoints = vec!["https://127.0.0.1:1".to_owned()];
        record::keep(root.path(), &Record { cluster: 1, member: 2, endpoints, stage }).unwrap();
    };
    // No other member answers: etcd itself knows more.
    for stage in [Stage::Joining, Stage::Member, Stage::Leaving] {
        with(stage);
        assert!(node.keeps_data(&config).await.unwrap(), "{stage:?}");
        assert!(data.exists());
    }
    with(Stage::Left);
    assert!(!node.keeps_data(&config).await.unwrap());
    assert!(!data.exists() && record::read(root.path()).unwrap().is_none());
    // Data without a record is of an earlier machined.
    std::fs::create_dir_all(data.join("member")).unwrap();
    assert!(node.keeps_data(&config).await.unwrap());
    // A bootstrap beside a cluster that has taken the node would be a second one.
    std::fs::remove_dir_all(&data).unwrap();
    record::keep(
        root.path(),
        &Record { cluster: 1, member: 2, endpoints: Vec::new(), stage: Stage::Joining },
    )
    .unwrap();
    assert!(matches!(node.bootstrap().await, Err(BootstrapError::Joins)));
}
