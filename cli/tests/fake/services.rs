//! The smaller services of the node, and the answers that need more than a line.

use super::{Answer, Answers, Node, asked, stream};
use api::event::Payload;
use api::generate::Request as Wanted;
use api::pki::{Authority, Leaf, Lifetime, Usage};
use api::proto::{
    cluster::{self, cluster_service_server as cluster_server},
    common::{Data, Metadata},
    inspect::{self, inspect_service_server as inspect_server},
    machine::{self as m, image_service_server as images},
    network::{self, network_service_server as network_server},
    storage::{self, storage_service_server as storage_server},
    time::{self, time_service_server as time_server},
};
use flate2::{Compression, write::GzEncoder};
use std::{future::Future, pin::Pin, time::Duration};
use tonic::{Request, Response, Status, Streaming, transport::server::Router};

/// All of them.
pub(super) fn add(router: Router, node: &Node) -> Router {
    router
        .add_service(time_server::TimeServiceServer::new(node.clone()))
        .add_service(inspect_server::InspectServiceServer::with_interceptor(node.clone(), super::reached))
        .add_service(storage_server::StorageServiceServer::new(node.clone()))
        .add_service(network_server::NetworkServiceServer::new(node.clone()))
        .add_service(cluster_server::ClusterServiceServer::new(node.clone()))
        .add_service(images::ImageServiceServer::new(node.clone()))
}

type From = Option<Metadata>;

/// A directory, as a node of several says so. In `/acting` are names that mean to act on the terminal.
pub(super) fn files(metadata: &From, root: &str) -> Vec<m::FileInfo> {
    let file = |name: &str, error: &str| m::FileInfo {
        metadata: metadata.clone(),
        name: name.into(),
        relative_name: name.into(),
        mode: api::file_mode::from_st_mode(0o040_755),
        error: error.into(),
        ..Default::default()
    };
    match root {
        "/acting" => vec![file("shown\x1b[2J", ""), file("closed\x1b[2J", "permission denied\x1b[2J")],
        _ => vec![file(".", ""), file("etc", "")],
    }
}

/// A service whose name means to act on the terminal.
pub(super) const ACTING: &str = "acting\x1b[2J";

/// The services. A node that is asked alone has more.
pub(super) fn listed(alone: bool) -> Vec<m::ServiceInfo> {
    let service =
        |id: &str, state: &str| m::ServiceInfo { id: id.into(), state: state.into(), ..Default::default() };
    let mut services = vec![service("apid", "Running")];
    if alone {
        services.extend([service("leaky", "Failed"), service(ACTING, "Running")]);
    }
    services
}

/// The event of a node that has booted.
pub(super) fn running() -> m::Event {
    let status = Some(m::machine_status_event::MachineStatus { ready: true, unmet_conditions: vec![] });
    let stage = m::machine_status_event::MachineStage::Running.into();
    let payload = Payload::MachineStatus(m::MachineStatusEvent { stage, status });
    m::Event { data: Some(payload.pack()), id: "c0a0".into(), ..Default::default() }
}

fn time(metadata: From, server: &str) -> time::Time {
    let at = |seconds| Some(prost_types::Timestamp { seconds, nanos: 0 });
    time::Time { metadata, server: server.into(), localtime: at(60), remotetime: at(61) }
}

/// The name that another client writes into the configuration.
pub(crate) const OTHER_CHANGE: &str = "by-another-client";

impl Node {
    /// Another client changes the configuration between reading and writing, once, if the text asks for it.
    pub(super) fn is_overtaken(&self, text: &str, base_version: &str) -> bool {
        let mut config = self.config.lock().unwrap();
        let is_first = text.contains("overtaken") && base_version == "3" && !config.contains(OTHER_CHANGE);
        if is_first {
            *config = config.replace("machine:\n", &format!("machine:\n  certSANs: [{OTHER_CHANGE}]\n"));
        }
        is_first
    }
}

#[tonic::async_trait]
impl time_server::TimeService for Node {
    served! {
        time(()) -> time::TimeResponse = |metadata, (): &()| time(metadata, "pool.example.org");
        time_check(time::TimeRequest) -> time::TimeResponse = |metadata, r: &time::TimeRequest| time(metadata, &r.server);
    }
}

#[tonic::async_trait]
impl inspect_server::InspectService for Node {
    served! {
        controller_runtime_dependencies(()) -> inspect::ControllerRuntimeDependenciesResponse = |metadata, (): &()| {
            let edges = vec![inspect::ControllerDependencyEdge {
                controller_name: "config.Controller".into(),
                resource_namespace: "config".into(),
                resource_type: "MachineConfigs.config.talos.dev".into(),
                resource_id: "v1alpha1".into(),
                ..Default::default()
            }];
            inspect::ControllerRuntimeDependency { metadata, edges }
        };
    }
}

#[tonic::async_trait]
impl storage_server::StorageService for Node {
    served! {
        disks(()) -> storage::DisksResponse = |metadata, (): &()| {
            let disk = storage::Disk {
                size: 10_000_000_000,
                model: "virtio".into(),
                device_name: "/dev/vda".into(),
                r#type: storage::disk::DiskType::Hdd.into(),
                system_disk: true,
                ..Default::default()
            };
            storage::Disks { metadata, disks: vec![disk] }
        };
        block_device_wipe(storage::BlockDeviceWipeRequest) -> storage::BlockDeviceWipeResponse =
            |metadata, _: &_| storage::BlockDeviceWipe { metadata };
    }
}

#[tonic::async_trait]
impl network_server::NetworkService for Node {
    served! {
        interfaces(()) -> network::InterfacesResponse = |metadata, (): &()| {
            let link = network::Interface {
                index: 2,
                mtu: 1500,
                name: "eth0".into(),
                hardwareaddr: "52:54:00:00:00:01".into(),
                ipaddress: vec!["10.0.2.15/24".into(), "fe80::1/64".into()],
                ..Default::default()
            };
            let bare = network::Interface { name: "dummy0".into(), ..Default::default() };
            network::Interfaces { metadata, interfaces: vec![bare, link] }
        };
        routes(()) -> network::RoutesResponse = |metadata, (): &()| {
            let route = network::Route {
                interface: "eth0".into(),
                destination: "0.0.0.0/0".into(),
                gateway: "10.0.2.2/32".into(),
                metric: 1024,
                ..Default::default()
            };
            network::Routes { metadata, routes: vec![route] }
        };
    }
}

#[tonic::async_trait]
impl cluster_server::ClusterService for Node {
    type HealthCheckStream = Answers<cluster::HealthCheckProgress>;

    async fn health_check(
        &self,
        request: Request<cluster::HealthCheckRequest>,
    ) -> Answer<Self::HealthCheckStream> {
        self.note(&request);
        let progress = |text: &str| cluster::HealthCheckProgress { metadata: None, message: text.into() };
        let lines = ["waiting for etcd to be healthy: ...", "waiting for etcd to be healthy: OK"];
        Ok(stream(lines.map(progress).into()))
    }
}

/// A node that knows only the older calls for images in memory.
fn is_old(containerd: Option<&api::proto::common::ContainerdInstance>) -> bool {
    containerd.is_some_and(|c| c.driver == 0)
}

#[tonic::async_trait]
impl images::ImageService for Node {
    type ListStream = Answers<m::ImageServiceListResponse>;
    type PullStream = Answers<m::ImageServicePullResponse>;

    async fn list(&self, request: Request<m::ImageServiceListRequest>) -> Answer<Self::ListStream> {
        if is_old(request.get_ref().containerd.as_ref()) {
            return Err(Status::unimplemented("unknown service machine.ImageService"));
        }
        let image = m::ImageServiceListResponse {
            name: "registry.example.org/pause:3".into(),
            digest: "sha256:abc".into(),
            size: 300_000,
            created_at: Some(prost_types::Timestamp { seconds: 0, nanos: 0 }),
            ..Default::default()
        };
        Ok(stream(vec![image]))
    }

    async fn pull(&self, request: Request<m::ImageServicePullRequest>) -> Answer<Self::PullStream> {
        self.note(&request);
        if is_old(request.get_ref().containerd.as_ref()) {
            return Err(Status::unimplemented("unknown service machine.ImageService"));
        }
        use m::image_service_pull_response::Response as Part;
        let progress = |status| {
            let progress = m::ImageServicePullLayerProgress { status, ..Default::default() };
            Part::PullProgress(m::ImageServicePullProgress {
                layer_id: "layer".into(),
                progress: Some(progress),
            })
        };
        let parts = [progress(0), progress(0), progress(3), Part::Name(request.get_ref().image_ref.clone())];
        let message = |part| m::ImageServicePullResponse { response: Some(part) };
        Ok(stream(parts.into_iter().map(message).collect()))
    }

    async fn remove(&self, request: Request<m::ImageServiceRemoveRequest>) -> Answer<()> {
        self.note(&request);
        Ok(Response::new(()))
    }

    not_served! {
        import(Streaming<m::ImageServiceImportRequest>) -> m::ImageServiceImportResponse;
        verify(m::ImageServiceVerifyRequest) -> m::ImageServiceVerifyResponse;
    }
}

pub(super) fn containers(metadata: From, request: &m::ContainersRequest) -> m::Container {
    let info = |id: &str, pod: &str, pid| m::ContainerInfo {
        namespace: request.namespace.clone(),
        id: id.into(),
        image: "pause:3".into(),
        pid,
        status: "RUNNING".into(),
        pod_id: pod.into(),
        name: id.rsplit(':').next().unwrap_or_default().into(),
        uid: "5-5".into(),
        internal_id: format!("c{pid}"),
        ..Default::default()
    };
    let containers = match request.driver {
        1 => vec![info("kube-system/a:c", "kube-system/a", 8), info("kube-system/a", "kube-system/a", 7)],
        _ => vec![info("apid", "", 9)],
    };
    m::Container { metadata, containers }
}

pub(super) fn stats(metadata: From, request: &m::StatsRequest) -> m::Stats {
    let stat = m::Stat {
        namespace: request.namespace.clone(),
        id: "apid".into(),
        memory_usage: 10_000_000,
        cpu_usage: 42,
        ..Default::default()
    };
    m::Stats { metadata, stats: vec![stat] }
}

pub(super) fn netstat(metadata: From, _: &m::NetstatRequest) -> m::Netstat {
    let record = m::ConnectRecord {
        l4proto: "tcp".into(),
        localip: "10.0.2.15".into(),
        localport: 50_000,
        remoteip: "10.0.2.2".into(),
        remoteport: 40_000,
        state: m::connect_record::State::Established.into(),
        ..Default::default()
    };
    m::Netstat { metadata, connectrecord: vec![record] }
}

pub(super) fn system_stat(metadata: From, (): &()) -> m::SystemStat {
    let cpu_total = Some(m::CpuStat { user: 10.0, idle: 90.0, ..Default::default() });
    m::SystemStat { metadata, cpu_total, process_running: 2, ..Default::default() }
}

pub(super) fn cpu_info(metadata: From, (): &()) -> m::CpUsInfo {
    m::CpUsInfo {
        metadata,
        cpu_info: vec![m::CpuInfo { model_name: "Test CPU".into(), ..Default::default() }],
    }
}

pub(super) fn network_device_stats(metadata: From, (): &()) -> m::NetworkDeviceStats {
    let eth0 = m::NetDev { name: "eth0".into(), rx_bytes: 1000, tx_bytes: 2000, ..Default::default() };
    m::NetworkDeviceStats { metadata, total: None, devices: vec![eth0] }
}

/// A directory with one file; below `/evil` one that leads away.
/// A small tree of control groups.
const CGROUPS: [(&str, &str); 6] = [
    ("cgroup.controllers", "cpu memory pids\n"),
    ("init/cgroup.procs", "1\n"),
    ("init/pids.current", "1\n"),
    ("kubepods/pod5-5/c8/pids.current", "4\n"),
    ("kubepods/pod5-5/c7/pids.current", "1\n"),
    ("kubepods/pids.max", "max\n"),
];

pub(super) fn archive(path: &str) -> Vec<u8> {
    let mut builder = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    if path == "/sys/fs/cgroup" {
        for (name, content) in CGROUPS {
            let mut header = tar::Header::new_gnu();
            header.set_size(u64::try_from(content.len()).unwrap());
            builder.append_data(&mut header, name, content.as_bytes()).unwrap();
        }
        return builder.into_inner().unwrap().finish().unwrap();
    }
    let mut header = tar::Header::new_gnu();
    header.set_mode(0o644);
    header.set_size(7);
    let name: &[u8] = if path == "/evil" { b"../evil" } else { b"dir/file" };
    header.as_old_mut().name[..name.len()].copy_from_slice(name);
    header.set_cksum();
    builder.append(&header, b"content".as_slice()).unwrap();
    builder.into_inner().unwrap().finish().unwrap()
}

/// One UDP packet over raw IP.
pub(super) fn capture() -> Vec<u8> {
    let packet =
        [0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 2, 15, 10, 0, 2, 3, 0x9c, 0x40, 0, 53, 0, 8, 0, 0];
    let mut out = vec![0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0];
    out.extend([0; 8]);
    out.extend([0, 16, 0, 0, 101, 0, 0, 0]);
    out.extend([0, 0, 0, 0, 0, 0, 0, 0, 28, 0, 0, 0, 28, 0, 0, 0]);
    out.extend(packet);
    out
}

/// A certificate that the node signs.
pub(super) fn client_configuration(
    authority: &Authority,
    request: &m::GenerateClientConfigurationRequest,
) -> m::GenerateClientConfiguration {
    let wanted = Wanted {
        cluster_name: "signed@test".into(),
        endpoint: String::new(),
        cert_sans: vec![],
        hostname: None,
        api_endpoints: vec![],
        api_nodes: vec![],
    };
    let ttl = Duration::try_from(request.crt_ttl.unwrap()).unwrap();
    let lifetime = Lifetime::from_now(ttl);
    let leaf = Leaf { organizations: request.roles.clone(), names: vec![], usage: Usage::Client, lifetime };
    let identity = authority.issue(&leaf).unwrap();
    let config = api::generate::talosconfig(&wanted, authority.certificate(), &identity);
    let talosconfig = config.to_yaml().expose_secret().as_bytes().to_vec();
    m::GenerateClientConfiguration { talosconfig, ..Default::default() }
}

pub(super) fn etcd_members(metadata: Option<Metadata>, _: &m::EtcdMemberListRequest) -> m::EtcdMembers {
    let member = m::EtcdMember {
        id: 0x00c0_ffee,
        hostname: "cp-1".into(),
        peer_urls: vec!["https://10.0.0.1:2380".into()],
        client_urls: vec!["https://10.0.0.1:2379".into()],
        is_learner: false,
    };
    m::EtcdMembers { metadata, legacy_members: vec!["cp-1".into()], members: vec![member] }
}

/// Takes a snapshot and notes the sizes of its messages. The node `taken` refuses at once, the node `full` after a part.
pub(super) async fn recover(
    node: &Node,
    request: Request<Streaming<Data>>,
) -> Answer<m::EtcdRecoverResponse> {
    let name = request.metadata().get("node").cloned();
    let is = |wanted: &str| name.as_ref().is_some_and(|name| name == wanted);
    if is("taken") {
        return Err(Status::failed_precondition("/var/lib/etcd has data already"));
    }
    let mut stream = request.into_inner();
    let mut sizes = Vec::new();
    while let Some(part) = stream.message().await? {
        sizes.push(part.bytes.len());
        node.snapshot.lock().unwrap().extend(part.bytes);
        if is("full") && sizes.len() == 3 {
            return Err(Status::resource_exhausted("/var has no room for the snapshot"));
        }
    }
    node.requests.lock().unwrap().push_str(&format!("EtcdRecover {sizes:?}\n"));
    Ok(Response::new(m::EtcdRecoverResponse { messages: vec![m::EtcdRecover { metadata: None }] }))
}

/// What the node hands out for `kubectl`.
const KUBECONFIG: &str = "\
apiVersion: v1
kind: Config
clusters: [{name: test, cluster: {server: 'https://10.0.0.1:6443', certificate-authority-data: QQ==}}]
users: [{name: admin@test, user: {client-key-data: Qg==}}]
contexts: [{name: admin@test, context: {cluster: test, user: admin@test}}]
current-context: admin@test
";

/// A tar.gz with one file, in pieces.
pub(super) fn kubeconfig() -> Vec<Data> {
    let mut tar = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    let mut header = tar::Header::new_gnu();
    header.set_size(KUBECONFIG.len() as u64);
    tar.append_data(&mut header, "kubeconfig", KUBECONFIG.as_bytes()).unwrap();
    let packed = tar.into_inner().unwrap().finish().unwrap();
    packed.chunks(64).map(|bytes| Data { metadata: None, bytes: bytes.to_vec() }).collect()
}
