//! The API server on a unix socket of its own, with a directory as the node's root.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Duration;

use api::proto::common::Data;
use api::proto::cosi::resource as cosi;
use api::proto::cosi::resource::state_client::StateClient;
use api::proto::machine as proto;
use api::proto::machine::machine_service_client::MachineServiceClient;
use api::proto::resource as old;
use api::proto::resource::resource_service_client::ResourceServiceClient;
use api::proto::storage::storage_service_client::StorageServiceClient;
use api::proto::storage::{BlockDeviceWipeDescriptor, BlockDeviceWipeRequest};
use hyper_util::rt::TokioIo;
use prost::Message;
use runtime::Runtime;
use runtime::services::Definition;
use runtime::store::{SERVICE, ServiceStatus, Spec};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Streaming};

use super::*;

const SOON: Duration = Duration::from_secs(10);

/// A node whose root is a directory and whose init is nobody.
pub(crate) fn node(root: PathBuf) -> Arc<Node> {
    node_of(root, |_| {})
}

/// The same, of a runtime that is changed before.
pub(crate) fn node_of(root: PathBuf, change: impl FnOnce(&mut Runtime)) -> Arc<Node> {
    let mut runtime = Runtime::detached(root);
    change(Arc::get_mut(&mut runtime).unwrap());
    Node::new(runtime)
}

/// The kernel log of a node with this root: a FIFO that gives one record a read. Reading takes them away.
pub(crate) fn kernel_log(root: &Path) -> OwnedFd {
    use rustix::fs::{CWD, FileType, Mode, OFlags, fcntl_setfl, mknodat, open};
    let path = root.join("dev/kmsg");
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    mknodat(CWD, &path, FileType::Fifo, Mode::from(0o600), 0).unwrap();
    let fifo = open(&path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).unwrap();
    // Packet mode, pipe(2): what one write wrote is one read.
    fcntl_setfl(&fifo, OFlags::RDWR | OFlags::DIRECT).unwrap();
    fifo
}

pub(super) struct Fixture {
    pub(super) dir: tempfile::TempDir,
    pub(super) node: Arc<Node>,
    pub(super) channel: Channel,
}

pub(super) async fn fixture() -> Fixture {
    let dir = tempfile::tempdir().unwrap();
    let node = node(dir.path().canonicalize().unwrap());
    crate::kubernetes::join(&node);
    let socket = dir.path().join("machine.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    tokio::spawn(serve_on(node.clone(), listener));
    let connector = tower::service_fn(move |_| {
        let socket = socket.clone();
        async move { tokio::net::UnixStream::connect(socket).await.map(TokioIo::new) }
    });
    let channel = Endpoint::from_static("http://machined").connect_with_connector(connector).await.unwrap();
    Fixture { dir, node, channel }
}

impl Fixture {
    pub(super) fn machine(&self) -> MachineServiceClient<Channel> {
        MachineServiceClient::new(self.channel.clone())
    }

    pub(super) fn kernel_log(&self) -> OwnedFd {
        kernel_log(self.dir.path())
    }

    pub(super) fn write(&self, path: &str, text: &str) {
        let path = self.dir.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
}

pub(super) async fn next<T>(stream: &mut Streaming<T>) -> T {
    tokio::time::timeout(SOON, stream.message()).await.unwrap().unwrap().unwrap()
}

async fn bytes(mut stream: Streaming<Data>) -> Vec<u8> {
    let mut all = Vec::new();
    while let Some(part) = tokio::time::timeout(SOON, stream.message()).await.unwrap().unwrap() {
        all.extend(part.bytes);
    }
    all
}

#[tokio::test]
async fn unary_answers_hold_one_element() {
    let f = fixture().await;
    f.write("proc/meminfo", "MemTotal: 2048 kB\n");
    f.write("proc/mounts", "tmpfs / tmpfs rw 0 0\n");
    let version = f.machine().version(()).await.unwrap().into_inner();
    assert_eq!(version.messages.len(), 1);
    assert_eq!(version.messages[0].version.as_ref().unwrap().tag, "v1.13.9+billet.1.2.3");
    assert!(version.messages[0].features.as_ref().unwrap().rbac);
    let memory = f.machine().memory(()).await.unwrap().into_inner();
    assert_eq!(memory.messages[0].meminfo.as_ref().unwrap().memtotal, 2048);
    let mounts = f.machine().mounts(()).await.unwrap().into_inner();
    assert_eq!(mounts.messages[0].stats[0].mounted_on, "/");
    assert_eq!(f.machine().hostname(()).await.unwrap().into_inner().messages.len(), 1);
}

#[tokio::test]
async fn calls_that_cannot_be_served_say_so() {
    let f = fixture().await;
    let error = f.machine().remove_bootkube_initialized_key(()).await.unwrap_err();
    assert_eq!(error.code(), Code::Unimplemented);
    assert!(error.message().starts_with("no cluster of Billet was made by bootkube"), "{error}");
}

#[tokio::test]
async fn services_are_listed_and_refuse_what_they_must() {
    let f = fixture().await;
    f.node.runtime.services.define(Definition::internal("udevd", || Box::pin(std::future::pending())));
    let list = f.machine().service_list(()).await.unwrap().into_inner();
    let service = &list.messages[0].services[0];
    assert_eq!((service.id.as_str(), service.state.as_str()), ("udevd", "Initialized"));
    assert!(service.events.is_some() && service.health.is_some());
    let request = proto::ServiceStopRequest { id: "udevd".into() };
    let error = f.machine().service_stop(request).await.unwrap_err();
    assert_eq!(error.message(), "service \"udevd\" doesn't support stop operation via API");
}

#[tokio::test]
async fn files_are_listed_in_order_and_read_whole() {
    let f = fixture().await;
    f.write("data/b/deep.txt", "deep");
    f.write("data/a.txt", &"x".repeat(100_000));
    std::os::unix::fs::symlink("a.txt", f.dir.path().join("data/link")).unwrap();
    let list = async |recurse, types: Vec<i32>| {
        let request = proto::ListRequest { root: "/data".into(), recurse, types, ..Default::default() };
        let mut stream = f.machine().list(request).await.unwrap().into_inner();
        let mut names = Vec::new();
        while let Some(info) = stream.message().await.unwrap() {
            names.push(info.relative_name);
        }
        names
    };
    assert_eq!(list(false, vec![]).await, [".", "a.txt", "b", "link"]);
    assert_eq!(list(true, vec![]).await, [".", "a.txt", "b", "b/deep.txt", "link"]);
    assert_eq!(list(true, vec![proto::list_request::Type::Regular.into()]).await, ["a.txt", "b/deep.txt"]);
    let read = |path: &str| proto::ReadRequest { path: path.into() };
    let stream = f.machine().read(read("/data/a.txt")).await.unwrap().into_inner();
    assert_eq!(bytes(stream).await.len(), 100_000);
    let error = f.machine().read(read("/data")).await.unwrap_err();
    assert_eq!(error.message(), "path must be a regular file");
    assert_eq!(f.machine().read(read("/nothing")).await.unwrap_err().code(), Code::NotFound);
}

#[tokio::test]
async fn logs_are_read_and_followed() {
    let f = fixture().await;
    let mut log = f.node.runtime.logs.open("svc").unwrap();
    log.append(b"one\ntwo\n").unwrap();
    let request = |follow, tail_lines| proto::LogsRequest {
        namespace: "system".into(),
        id: "svc".into(),
        follow,
        tail_lines,
        ..Default::default()
    };
    let all = f.machine().logs(request(false, -1)).await.unwrap().into_inner();
    assert_eq!(bytes(all).await, b"one\ntwo\n");
    let mut live = f.machine().logs(request(true, 1)).await.unwrap().into_inner();
    assert_eq!(next(&mut live).await.bytes, b"two\n");
    log.append(b"three\n").unwrap();
    assert_eq!(next(&mut live).await.bytes, b"three\n");
    let unknown = proto::LogsRequest { id: "nobody".into(), ..request(false, -1) };
    let error = f.machine().logs(unknown).await.unwrap_err();
    assert_eq!(
        (error.code(), error.message()),
        (
            Code::NotFound,
            "log \"nobody\" was not registered; there are controller-runtime, kernel, machined, networkd, svc, timed, \
             udevd"
        )
    );
    let long = proto::LogsRequest { id: "x".repeat(100_000), ..request(false, -1) };
    let error = f.machine().logs(long).await.unwrap_err();
    assert!(error.code() == Code::NotFound && error.message().len() < 500, "{error}");
}

/// Clients ask for the logs of components by name, `kernel` among them.
#[tokio::test]
async fn components_and_the_kernel_have_logs() {
    let f = fixture().await;
    let kernel = f.kernel_log();
    let tell = |text: &str| rustix::io::write(&kernel, text.as_bytes()).unwrap();
    tell("6,1,1000000,-;one\n");
    tell("4,2,2000000,-;two\n");
    f.node.runtime.journal.say("networkd: eth0 is up");
    let request = |id: &str, follow, tail_lines| proto::LogsRequest {
        namespace: "system".into(),
        id: id.into(),
        follow,
        tail_lines,
        ..Default::default()
    };
    let all = f.machine().logs(request("kernel", false, -1)).await.unwrap().into_inner();
    let all = String::from_utf8(bytes(all).await).unwrap();
    let lines: Vec<_> = all.lines().collect();
    assert!(lines[0].starts_with("kern:    info: [") && lines[0].ends_with("]: one"), "{all}");
    assert!(lines.len() == 2 && lines[1].starts_with("kern: warning: ["), "{all}");
    for text in ["6,3,3000000,-;three\n", "6,4,4000000,-;four\n"] {
        tell(text);
    }
    let mut live = f.machine().logs(request("kernel", true, 1)).await.unwrap().into_inner();
    assert!(next(&mut live).await.bytes.ends_with(b"]: four\n"));
    tell("6,5,5000000,-;five\n");
    assert!(next(&mut live).await.bytes.ends_with(b"]: five\n"));
    let log = f.machine().logs(request("networkd", false, -1)).await.unwrap().into_inner();
    assert!(String::from_utf8(bytes(log).await).unwrap().ends_with(" networkd: eth0 is up\n"));
    for quiet in ["timed", "udevd"] {
        let log = f.machine().logs(request(quiet, false, -1)).await.unwrap().into_inner();
        assert_eq!(bytes(log).await, b"", "{quiet}");
    }
}

/// The kernel prints its command line into its log.
#[tokio::test]
async fn the_kernels_log_is_answered_without_secrets_of_the_command_line() {
    let f = fixture().await;
    let kernel = f.kernel_log();
    let record = b"6,1,1000000,-;Kernel command line: billet.config.inline=c2VjcmV0 quiet\n";
    rustix::io::write(&kernel, record).unwrap();
    let stream = f.machine().dmesg(proto::DmesgRequest::default()).await.unwrap().into_inner();
    let text = String::from_utf8(bytes(stream).await).unwrap();
    assert!(text.ends_with("]: Kernel command line: billet.config.inline=<hidden> quiet\n"), "{text}");
}

#[tokio::test]
async fn the_first_event_is_empty_and_the_rest_is_live() {
    let f = fixture().await;
    let task = |name: &str| api::event::Payload::Task(proto::TaskEvent { task: name.into(), action: 0 });
    f.node.runtime.events.publish("", &task("past"));
    let request = proto::EventsRequest { tail_events: -1, ..Default::default() };
    let mut stream = f.machine().events(request).await.unwrap().into_inner();
    assert_eq!(next(&mut stream).await, proto::Event::default());
    assert!(!next(&mut stream).await.id.is_empty());
    f.node.runtime.events.publish("actor", &task("live"));
    assert_eq!(next(&mut stream).await.actor_id, "actor");
}

#[tokio::test]
async fn the_old_resource_api_brings_the_definition_along() {
    let f = fixture().await;
    put(&f.node, "apid", true);
    let mut client = ResourceServiceClient::new(f.channel.clone());
    let request = old::GetRequest { namespace: String::new(), r#type: "svc".into(), id: "apid".into() };
    let answer = client.get(request).await.unwrap().into_inner().messages.remove(0);
    assert_eq!(answer.definition.unwrap().metadata.unwrap().id, "services.v1alpha1.talos.dev");
    assert!(
        String::from_utf8(answer.resource.unwrap().spec.unwrap().yaml).unwrap().contains("running: true")
    );
    let watch = old::WatchRequest { namespace: String::new(), r#type: "services".into(), id: String::new() };
    let mut stream = client.watch(watch).await.unwrap().into_inner();
    assert!(next(&mut stream).await.definition.is_some());
    assert_eq!(next(&mut stream).await.event_type(), old::EventType::Created);
    put(&f.node, "apid", false);
    let update = next(&mut stream).await;
    assert_eq!(
        (update.event_type(), update.resource.unwrap().metadata.unwrap().version),
        (old::EventType::Updated, "2".into())
    );
    let unknown = old::ListRequest { namespace: String::new(), r#type: "teapots".into() };
    assert_eq!(client.list(unknown).await.unwrap_err().message(), "resource \"teapots\" is not registered");
}

#[tokio::test]
async fn the_new_resource_api_bootstraps_a_watch() {
    let f = fixture().await;
    put(&f.node, "apid", true);
    let mut client = StateClient::new(f.channel.clone());
    let kind = "ResourceDefinitions.meta.cosi.dev";
    let list = cosi::ListRequest { namespace: "meta".into(), r#type: kind.into(), options: None };
    let mut definitions = client.list(list).await.unwrap().into_inner();
    let mut found = Vec::new();
    while let Some(message) = definitions.message().await.unwrap() {
        let spec = message.resource.unwrap().spec.unwrap();
        let decoded = cosi::meta::ResourceDefinitionSpec::decode(spec.proto_spec.as_slice()).unwrap();
        assert!(!spec.yaml_spec.is_empty());
        found.push(decoded.resource_type);
    }
    assert!(found.contains(&SERVICE.kind.to_owned()));

    let options = cosi::WatchOptions { bootstrap_contents: true, ..Default::default() };
    let watch = cosi::WatchRequest {
        namespace: "runtime".into(),
        r#type: SERVICE.kind.into(),
        id: None,
        options: Some(options),
        api_version: 1,
    };
    let mut stream = client.watch(watch.clone()).await.unwrap().into_inner();
    assert!(next(&mut stream).await.event.is_empty());
    let created = next(&mut stream).await.event.remove(0);
    assert_eq!(created.event_type(), cosi::EventType::Created);
    let bootstrapped = next(&mut stream).await.event.remove(0);
    assert_eq!(bootstrapped.event_type(), cosi::EventType::Bootstrapped);
    let resource = bootstrapped.resource.unwrap();
    assert!(resource.metadata.is_some() && resource.spec.is_some());
    f.node.runtime.store.remove(SERVICE.writer, &SERVICE, "apid").unwrap();
    let destroyed = next(&mut stream).await.event.remove(0);
    assert_eq!(destroyed.event_type(), cosi::EventType::Destroyed);
    assert!(!destroyed.resource.unwrap().spec.unwrap().yaml_spec.is_empty());

    let one = cosi::WatchRequest { id: Some("gone".into()), ..watch };
    let mut stream = client.watch(one).await.unwrap().into_inner();
    assert!(next(&mut stream).await.event.is_empty());
    assert_eq!(next(&mut stream).await.event[0].event_type(), cosi::EventType::Destroyed);
}

/// A config of a newer generation, or rubbish: the message of a status travels in a header, which has a limit.
#[tokio::test]
async fn a_long_refusal_arrives_and_counts_what_it_leaves_out() {
    let f = fixture().await;
    let kinds: String = (0..1000)
        .map(|n| format!("---\napiVersion: v1alpha1\nkind: Newer{n}{}\n", "x".repeat(1000)))
        .collect();
    let fields: String = (0..1000).map(|n| format!("  field{n}{}: 1\n", "y".repeat(1000))).collect();
    let main = "version: v1alpha1\nmachine:\n  type: worker\n  token: a.b\n";
    for text in [format!("{main}{kinds}"), format!("{main}{fields}"), format!("{main}{fields}{kinds}")] {
        let request = proto::ApplyConfigurationRequest { data: text.into_bytes(), ..Default::default() };
        let status = f.machine().apply_configuration(request).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
        let message = status.message();
        assert!(message.contains(" more") && message.len() < 5000, "{}: {message}", message.len());
        assert!(message.matches("known: ").count() <= 2, "{message}");
        f.machine().version(()).await.unwrap();
    }
}

#[tokio::test]
async fn wiping_an_unknown_device_is_not_found() {
    let f = fixture().await;
    let device = BlockDeviceWipeDescriptor { device: "sdzz".into(), ..Default::default() };
    let request = BlockDeviceWipeRequest { devices: vec![device] };
    let status = StorageServiceClient::new(f.channel.clone()).block_device_wipe(request).await.unwrap_err();
    assert_eq!(status.code(), Code::NotFound);
    assert!(status.message().contains("sdzz"), "{status:?}");
}

#[tokio::test]
async fn events_since_a_wrong_id_are_refused() {
    let f = fixture().await;
    let request = proto::EventsRequest { tail_id: "yesterday".into(), ..Default::default() };
    let status = f.machine().events(request).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert!(status.message().starts_with("tail_id is no id of an event"), "{status:?}");
}

#[tokio::test]
async fn meta_keys_have_the_short_name_meta() {
    let f = fixture().await;
    let mut client = ResourceServiceClient::new(f.channel.clone());
    let mut list = Request::new(old::ListRequest { namespace: String::new(), r#type: "meta".into() });
    list.metadata_mut().insert("talos-role", "os:admin".parse().unwrap());
    let mut stream = client.list(list).await.unwrap().into_inner();
    let definition = next(&mut stream).await.definition.unwrap();
    assert_eq!(definition.metadata.unwrap().id, "metakeys.runtime.talos.dev");
}

#[tokio::test]
async fn sensitive_types_want_the_admin_role() {
    let f = fixture().await;
    let mut client = StateClient::new(f.channel.clone());
    let request = |role: Option<&'static str>| {
        let list = cosi::ListRequest {
            namespace: "config".into(),
            r#type: "MachineConfigs.config.talos.dev".into(),
            options: None,
        };
        let mut request = Request::new(list);
        if let Some(role) = role {
            request.metadata_mut().insert("talos-role", role.parse().unwrap());
        }
        request
    };
    assert_eq!(client.list(request(None)).await.unwrap_err().code(), Code::PermissionDenied);
    assert_eq!(client.list(request(Some("os:reader"))).await.unwrap_err().code(), Code::PermissionDenied);
    assert!(client.list(request(Some("os:admin"))).await.is_ok());
}

#[tokio::test]
async fn a_shutdown_answers_at_once_and_is_an_action_to_wait_for() {
    let f = fixture().await;
    let request = proto::EventsRequest { tail_events: 0, ..Default::default() };
    let mut events = f.machine().events(request).await.unwrap().into_inner();
    assert_eq!(next(&mut events).await, proto::Event::default());
    let answer = f.machine().shutdown(proto::ShutdownRequest::default()).await.unwrap().into_inner();
    let actor = answer.messages[0].actor_id.clone();
    assert!(!actor.is_empty());
    loop {
        let event = next(&mut events).await;
        let data = event.data.unwrap();
        if let Some(api::event::Payload::Task(task)) = api::event::Payload::unpack(&data).unwrap() {
            assert_eq!((task.task.as_str(), event.actor_id.as_str()), ("cordonAndDrainNode", actor.as_str()));
            return;
        }
    }
}

/// The config of a node of a cluster, as it is generated.
pub(crate) fn cluster_config(machine_type: config::v1alpha1::MachineType) -> config::Config {
    let cluster = api::generate::Cluster {
        name: "demo".into(),
        endpoint: "https://10.0.0.3:6443".into(),
        contract: api::generate::Contract::NEWEST,
        install_disk: "/dev/vda".into(),
        install_image: None,
        additional_sans: Vec::new(),
        dns_domain: "cluster.local".into(),
        kubernetes_version: Some("1.34.10".into()),
        registry_mirrors: Vec::new(),
        persist: true,
        discovery: false,
        kubespan: false,
    };
    let text = cluster.machine_config(&api::generate::Bundle::generate().unwrap(), machine_type);
    config::parse(text.expose_secret()).unwrap_or_else(|error| panic!("{error}"))
}

pub(super) fn put(node: &Node, id: &str, running: bool) {
    let status = ServiceStatus { running, healthy: false, unknown: true };
    node.runtime.store.put(SERVICE.writer, &SERVICE, id, Spec::Service(status)).unwrap();
}

/// Work that a handler spawned otherwise would end machined with its panic.
#[test]
fn the_servers_spawn_through_the_scope_alone() {
    let source = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let (mut files, mut directories) = (Vec::new(), vec![source.join("server")]);
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory).unwrap().flatten() {
            let list = if entry.file_type().unwrap().is_dir() { &mut directories } else { &mut files };
            list.push(entry.path());
        }
    }
    assert!(files.len() > 30, "{}", files.len());
    files.retain(|file| !file.to_string_lossy().ends_with("tests.rs"));
    for path in files.into_iter().chain(["gather.rs", "proxy.rs"].map(|name| source.join("apid").join(name)))
    {
        let text = std::fs::read_to_string(&path).unwrap();
        let work = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
        for word in ["tokio::spawn(", "spawn_blocking(", "thread::spawn("] {
            assert!(!work.contains(word), "{}: {word}", path.display());
        }
        let threads = work.matches("thread::Builder").count();
        assert_eq!(threads, usize::from(path.ends_with("server/walks.rs")), "{}", path.display());
    }
}
