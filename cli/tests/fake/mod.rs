//! A node that answers from memory: just enough of the API to see what billetctl asks and prints.
//!
//! Owns: fixed answers; the boot that each reboot makes new. Does not: check roles (the API's own tests do).

use api::{
    event::Payload,
    pki::{Authority, Identity, LEAF_LIFETIME, Leaf, Lifetime, Usage},
    proto::{
        billet::{self as own, EarlierDmesgRequest, machine_service_server as billet},
        common::{self, Data, Metadata},
        cosi::resource::state_server,
        machine::{self as m, machine_service_server as machine},
    },
    tls::{self, Identities},
};
use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
};
use tokio::{net::TcpListener, sync::broadcast};
use tokio_stream::{Stream, StreamExt, wrappers::BroadcastStream};
use tonic::{Request, Response, Status, Streaming, transport::Server};

type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;
type Answer<T> = Result<Response<T>, Status>;

/// Emits methods that are not served, in the form that `async_trait` gives the trait's methods.
macro_rules! not_served {
    ($($name:ident($request:ty) -> $response:ty;)+) => {
        $(fn $name<'a, 'b>(&'a self, _: Request<$request>) -> Pin<Box<dyn Future<Output = Answer<$response>> + Send + 'b>>
        where
            'a: 'b,
            Self: 'b,
        {
            Box::pin(async { Err(Status::unimplemented("not in this test")) })
        })+
    };
}

/// Emits unary methods that answer with one element for each node that was asked.
macro_rules! served {
    ($($name:ident($request:ty) -> $response:ty = $element:expr;)+) => {
        $(fn $name<'a, 'b>(&'a self, request: Request<$request>) -> Pin<Box<dyn Future<Output = Answer<$response>> + Send + 'b>>
        where
            'a: 'b,
            Self: 'b,
        {
            self.note(&request);
            let element = $element;
            let mut response = <$response>::default();
            response.messages = asked(&request).into_iter().map(|metadata| element(metadata, request.get_ref())).collect();
            Box::pin(async { Ok(Response::new(response)) })
        })+
    };
}

mod etcd;
mod resources;
pub(crate) mod services;

/// The node.
#[derive(Clone)]
pub(crate) struct Node {
    /// What was asked for, to be read at [`ASKED`].
    requests: Arc<Mutex<String>>,
    config: Arc<Mutex<String>>,
    /// What came for `etcd_recover`, to be read at [`SNAPSHOT`].
    snapshot: Arc<Mutex<Vec<u8>>>,
    /// Who signs the certificates of its clients.
    authority: Arc<Authority>,
    pending: Arc<Mutex<bool>>,
    boots: Arc<AtomicU32>,
    events: broadcast::Sender<m::Event>,
}

/// Serves on loopback with a certificate of `secrets`, with or without asking clients for theirs; answers the endpoint
/// and the certificate.
pub(crate) async fn serve(secrets: &api::generate::Secrets, clients: bool) -> (String, Identity) {
    let leaf = Leaf {
        organizations: vec![],
        names: vec!["127.0.0.1".into()],
        usage: Usage::Server,
        lifetime: Lifetime::from_now(LEAF_LIFETIME),
    };
    let identity = secrets.authority.issue(&leaf).unwrap();
    let identities = Identities::new(&identity).unwrap();
    let config = match clients {
        true => tls::server(secrets.authority.certificate(), identities).unwrap(),
        false => tls::server_without_clients(identities).unwrap(),
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = listener.local_addr().unwrap().to_string();
    let node = Node {
        requests: Arc::default(),
        snapshot: Arc::default(),
        config: Arc::new(Mutex::new(CONFIG.to_owned())),
        authority: Arc::new(
            Authority::from_pem(secrets.authority.certificate(), &secrets.authority.key()).unwrap(),
        ),
        pending: Arc::default(),
        boots: Arc::new(AtomicU32::new(1)),
        events: broadcast::channel(64).0,
    };
    let router = Server::builder()
        .add_service(machine::MachineServiceServer::with_interceptor(node.clone(), reached))
        .add_service(billet::MachineServiceServer::new(node.clone()))
        .add_service(state_server::StateServer::with_interceptor(node.clone(), reached));
    let router = services::add(router, &node);
    tokio::spawn(router.serve_with_incoming(tls::accept(listener, config, |_| {})));
    (endpoint, identity)
}

/// No call for the one node `broken` gets anywhere.
fn reached(request: Request<()>) -> Result<Request<()>, Status> {
    match request.metadata().get("node") {
        Some(node) if node == "broken" => Err(Status::unavailable("no route to broken")),
        _ => Ok(request),
    }
}

/// What a node adds when it is asked by name: every node but `broken` answers.
fn asked<T>(request: &Request<T>) -> Vec<Option<Metadata>> {
    let nodes: Vec<_> = request.metadata().get_all("nodes").iter().filter_map(|n| n.to_str().ok()).collect();
    if nodes.is_empty() {
        return vec![None];
    }
    let metadata = |node: &str| {
        let error = if node == "broken" {
            "rpc error: code = Unavailable desc = no route".to_owned()
        } else {
            String::new()
        };
        Some(Metadata { hostname: node.to_owned(), error, status: None })
    };
    nodes.into_iter().map(metadata).collect()
}

fn stream<T: Send + 'static>(items: Vec<T>) -> Response<Answers<T>> {
    Response::new(Box::pin(tokio_stream::iter(items.into_iter().map(Ok))))
}

fn data<T>(request: &Request<T>, chunks: &[&str]) -> Response<Answers<Data>> {
    let each = |metadata: &Option<Metadata>| {
        let chunk = |c: &&str| Data { metadata: metadata.clone(), bytes: c.as_bytes().to_vec() };
        chunks.iter().map(chunk).collect::<Vec<_>>()
    };
    stream(asked(request).iter().flat_map(each).collect())
}

/// What no bundle may contain.
pub(crate) const SECRET: &str = "s3cret-value";
const SECRET_HALF: &str = "0123456789abcdef";

/// File in which a test reads what it has asked for.
const ASKED: &str = "/asked";
/// File in which a test reads the snapshot that it has sent.
const SNAPSHOT: &str = "/snapshot";

impl Node {
    fn note<T: std::fmt::Debug>(&self, request: &Request<T>) {
        let line = format!("{:?}\n", request.get_ref());
        self.requests.lock().unwrap().push_str(&line);
    }

    fn publish(&self, payload: &Payload) {
        let event = m::Event {
            data: Some(payload.pack()),
            id: "c0a1".into(),
            actor_id: "actor".into(),
            ..Default::default()
        };
        // Without a listener there is nobody to tell.
        let _ = self.events.send(event);
    }
}

#[tonic::async_trait]
impl machine::MachineService for Node {
    type CopyStream = Answers<common::Data>;
    type KubeconfigStream = Answers<common::Data>;
    type DiskUsageStream = Answers<m::DiskUsageInfo>;
    type EtcdSnapshotStream = Answers<common::Data>;
    type PacketCaptureStream = Answers<common::Data>;
    type ImageListStream = Answers<m::ImageListResponse>;
    type LogsStream = Answers<Data>;
    type DmesgStream = Answers<Data>;
    type ReadStream = Answers<Data>;
    type ListStream = Answers<m::FileInfo>;
    type EventsStream = Answers<m::Event>;

    async fn version(&self, request: Request<()>) -> Answer<m::VersionResponse> {
        let info = m::VersionInfo {
            tag: "v9.9.9".into(),
            os: "linux".into(),
            arch: "amd64".into(),
            ..Default::default()
        };
        let one = |metadata| m::Version { metadata, version: Some(info.clone()), ..Default::default() };
        Ok(Response::new(m::VersionResponse { messages: asked(&request).into_iter().map(one).collect() }))
    }

    /// Refuses what names `refused`, and the first change made from what it had when it names `overtaken`; `dry_run` keeps nothing; mode reboot is a new boot.
    async fn apply_configuration(
        &self,
        request: Request<m::ApplyConfigurationRequest>,
    ) -> Answer<m::ApplyConfigurationResponse> {
        let asked = request.get_ref();
        let text = String::from_utf8(asked.data.clone()).unwrap();
        if self.is_overtaken(&text, &asked.base_version) {
            return Err(Status::aborted("the configuration has changed since it was read"));
        }
        if text.contains("refused") {
            return Err(Status::invalid_argument("failed to validate config: hostname is refused"));
        }
        let mode = asked.mode();
        let mode_details = format!(
            "mode {mode:?}, immediate {}, on reboot {}, dry run {}, try {}, confirm {}",
            asked.immediate,
            asked.on_reboot,
            asked.dry_run,
            asked.try_mode_timeout.map_or(0, |d| d.seconds),
            asked.confirm_timeout.map_or(0, |d| d.seconds),
        );
        if !asked.dry_run {
            *self.config.lock().unwrap() = text;
            *self.pending.lock().unwrap() = asked.confirm_timeout.is_some();
            if mode == m::apply_configuration_request::Mode::Reboot {
                self.boots.fetch_add(1, Ordering::SeqCst);
            }
        }
        // A node that means to act on the terminal.
        let warnings = vec!["a warning\x1b[2J".to_owned()];
        let message = m::ApplyConfiguration { metadata: None, warnings, mode: mode.into(), mode_details };
        Ok(Response::new(m::ApplyConfigurationResponse { messages: vec![message] }))
    }

    async fn hostname(&self, request: Request<()>) -> Answer<m::HostnameResponse> {
        let one = |metadata| m::Hostname { metadata, hostname: "billet-1".into() };
        Ok(Response::new(m::HostnameResponse { messages: asked(&request).into_iter().map(one).collect() }))
    }

    async fn service_list(&self, request: Request<()>) -> Answer<m::ServiceListResponse> {
        let services = services::listed(request.metadata().contains_key("node"));
        let one = |metadata| m::ServiceList { metadata, services: services.clone() };
        Ok(Response::new(m::ServiceListResponse { messages: asked(&request).into_iter().map(one).collect() }))
    }

    async fn service_restart(
        &self,
        request: Request<m::ServiceRestartRequest>,
    ) -> Answer<m::ServiceRestartResponse> {
        let resp = format!("Service {:?} restarted", request.get_ref().id);
        let one = |metadata| m::ServiceRestart { metadata, resp: resp.clone() };
        Ok(Response::new(m::ServiceRestartResponse {
            messages: asked(&request).into_iter().map(one).collect(),
        }))
    }

    async fn memory(&self, request: Request<()>) -> Answer<m::MemoryResponse> {
        let meminfo = Some(m::MemInfo { memtotal: 2_048_000, memfree: 1_024_000, ..Default::default() });
        let one = |metadata| m::Memory { metadata, meminfo };
        Ok(Response::new(m::MemoryResponse { messages: asked(&request).into_iter().map(one).collect() }))
    }

    async fn mounts(&self, request: Request<()>) -> Answer<m::MountsResponse> {
        let stat = m::MountStat {
            filesystem: "tmpfs".into(),
            size: 2_000_000_000,
            available: 1_000_000_000,
            mounted_on: "/run".into(),
        };
        let one = |metadata| m::Mounts { metadata, stats: vec![stat.clone()] };
        Ok(Response::new(m::MountsResponse { messages: asked(&request).into_iter().map(one).collect() }))
    }

    async fn processes(&self, request: Request<()>) -> Answer<m::ProcessesResponse> {
        let init = m::ProcessInfo {
            pid: 1,
            state: "S".into(),
            threads: 1,
            command: "init".into(),
            ..Default::default()
        };
        let one = |metadata| m::Process { metadata, processes: vec![init.clone()] };
        Ok(Response::new(m::ProcessesResponse { messages: asked(&request).into_iter().map(one).collect() }))
    }

    async fn logs(&self, request: Request<m::LogsRequest>) -> Answer<Self::LogsStream> {
        if request.get_ref().id == "leaky" {
            return Ok(data(
                &request,
                &["token: ", SECRET, "\njoin abcdef.", SECRET_HALF, "\nkey: ", SECRET, "\n"],
            ));
        }
        if !["apid", services::ACTING].contains(&request.get_ref().id.as_str()) {
            return Err(Status::not_found(format!("service {:?} not defined", request.get_ref().id)));
        }
        Ok(data(&request, &["one\ntw", "o\nunfinished"]))
    }

    async fn dmesg(&self, request: Request<m::DmesgRequest>) -> Answer<Self::DmesgStream> {
        Ok(data(&request, &["kern:    info: [2026-11-21T00:00:00Z]: booted\n"]))
    }

    async fn read(&self, request: Request<m::ReadRequest>) -> Answer<Self::ReadStream> {
        let boot_id = format!("boot-{}\n", self.boots.load(Ordering::SeqCst));
        match request.get_ref().path.as_str() {
            "/proc/sys/kernel/random/boot_id" => Ok(data(&request, &[&boot_id])),
            ASKED => Ok(data(&request, &[&self.requests.lock().unwrap().clone()])),
            SNAPSHOT => {
                let bytes = self.snapshot.lock().unwrap().clone();
                Ok(stream(vec![Data { metadata: None, bytes }]))
            }
            "/proc/version" => Ok(data(&request, &["Linux ", "version\n"])),
            _ => Err(Status::invalid_argument("path must be a regular file")),
        }
    }

    async fn list(&self, request: Request<m::ListRequest>) -> Answer<Self::ListStream> {
        let root = &request.get_ref().root;
        Ok(stream(asked(&request).iter().flat_map(|node| services::files(node, root)).collect()))
    }

    async fn events(&self, request: Request<m::EventsRequest>) -> Answer<Self::EventsStream> {
        let mut first = vec![m::Event::default()];
        if request.get_ref().tail_events != 0 {
            first.push(services::running());
        }
        // "never follow" keeps the test of the plain command finite.
        if request.get_ref().tail_events == 1 {
            return Ok(stream(first));
        }
        let live = BroadcastStream::new(self.events.subscribe()).map_while(Result::ok);
        // A restart ends the stream, as the node's death would.
        let until_restart =
            live.take_while(|e| !e.data.as_ref().is_some_and(|d| d.type_url.ends_with("RestartEvent")));
        Ok(Response::new(Box::pin(tokio_stream::iter(first).chain(until_restart).map(Ok))))
    }

    async fn copy(&self, request: Request<m::CopyRequest>) -> Answer<Self::CopyStream> {
        let path = &request.get_ref().root_path;
        let archive = services::archive(path);
        let piece = |bytes: &[u8]| Data { metadata: None, bytes: bytes.to_vec() };
        let mut pieces: Vec<_> = archive.chunks(1024).map(piece).collect();
        if path.starts_with("/sys") {
            // As of a real node: some files of the kernel can only be written.
            let error = "/sys/fs/cgroup/init/memory.reclaim: Invalid argument".into();
            pieces.push(Data { metadata: Some(Metadata { error, ..Default::default() }), bytes: vec![] });
        }
        Ok(stream(pieces))
    }

    async fn disk_usage(&self, request: Request<m::DiskUsageRequest>) -> Answer<Self::DiskUsageStream> {
        self.note(&request);
        let usage = |metadata: &Option<Metadata>, name: &str, size, error: &str| m::DiskUsageInfo {
            metadata: metadata.clone(),
            name: format!("/var/{name}"),
            size,
            error: error.into(),
            relative_name: name.into(),
        };
        let each = |n: &Option<Metadata>| {
            [usage(n, "log", 4096, ""), usage(n, "secret", 0, "permission denied"), usage(n, ".", 8192, "")]
        };
        Ok(stream(asked(&request).iter().flat_map(each).collect()))
    }

    async fn packet_capture(
        &self,
        request: Request<m::PacketCaptureRequest>,
    ) -> Answer<Self::PacketCaptureStream> {
        self.note(&request);
        let piece = |bytes: &[u8]| Data { metadata: None, bytes: bytes.to_vec() };
        Ok(stream(services::capture().chunks(30).map(piece).collect()))
    }

    async fn image_list(&self, request: Request<m::ImageListRequest>) -> Answer<Self::ImageListStream> {
        self.note(&request);
        Ok(stream(vec![m::ImageListResponse {
            name: "old.example.org/pause:3".into(),
            ..Default::default()
        }]))
    }

    async fn reset(&self, request: Request<m::ResetRequest>) -> Answer<m::ResetResponse> {
        self.note(&request);
        let started = m::SequenceEvent { sequence: "reset".into(), action: 1, error: None };
        self.publish(&Payload::Sequence(started));
        self.publish(&Payload::Task(m::TaskEvent { task: "stopAllServices".into(), action: 1 }));
        let messages = vec![m::Reset { metadata: None, actor_id: "actor".into() }];
        Ok(Response::new(m::ResetResponse { messages }))
    }

    served! {
        containers(m::ContainersRequest) -> m::ContainersResponse = services::containers;
        stats(m::StatsRequest) -> m::StatsResponse = services::stats;
        restart(m::RestartRequest) -> m::RestartResponse = |metadata, _: &_| m::Restart { metadata };
        rollback(m::RollbackRequest) -> m::RollbackResponse = |metadata, _: &_| m::Rollback { metadata };
        upgrade(m::UpgradeRequest) -> m::UpgradeResponse =
            |metadata, _: &_| m::Upgrade { metadata, ack: "Upgrade request received".into(), actor_id: "actor".into() };
        netstat(m::NetstatRequest) -> m::NetstatResponse = services::netstat;
        meta_write(m::MetaWriteRequest) -> m::MetaWriteResponse = |metadata, _: &_| m::MetaWrite { metadata };
        meta_delete(m::MetaDeleteRequest) -> m::MetaDeleteResponse = |metadata, _: &_| m::MetaDelete { metadata };
        image_pull(m::ImagePullRequest) -> m::ImagePullResponse = |metadata, _: &_| m::ImagePull { metadata };
        bootstrap(m::BootstrapRequest) -> m::BootstrapResponse = |metadata, _: &_| m::Bootstrap { metadata };
        etcd_member_list(m::EtcdMemberListRequest) -> m::EtcdMemberListResponse = services::etcd_members;
        etcd_remove_member(m::EtcdRemoveMemberRequest) -> m::EtcdRemoveMemberResponse =
            |metadata, _: &_| m::EtcdRemoveMember { metadata };
        etcd_alarm_list(()) -> m::EtcdAlarmListResponse = etcd::alarms;
        etcd_alarm_disarm(()) -> m::EtcdAlarmDisarmResponse = etcd::disarmed;
        etcd_downgrade_validate(m::EtcdDowngradeValidateRequest) -> m::EtcdDowngradeValidateResponse = etcd::validated;
        etcd_downgrade_enable(m::EtcdDowngradeEnableRequest) -> m::EtcdDowngradeEnableResponse = etcd::enabled;
        etcd_downgrade_cancel(()) -> m::EtcdDowngradeCancelResponse = etcd::cancelled;
        load_avg(()) -> m::LoadAvgResponse =
            |metadata, (): &()| m::LoadAvg { metadata, load1: 0.25, load5: 0.5, load15: 1.0 };
        system_stat(()) -> m::SystemStatResponse = services::system_stat;
        cpu_info(()) -> m::CpuInfoResponse = services::cpu_info;
        network_device_stats(()) -> m::NetworkDeviceStatsResponse = services::network_device_stats;
        disk_stats(()) -> m::DiskStatsResponse = |metadata, (): &()| m::DiskStats { metadata, ..Default::default() };
    }

    async fn generate_client_configuration(
        &self,
        request: Request<m::GenerateClientConfigurationRequest>,
    ) -> Answer<m::GenerateClientConfigurationResponse> {
        self.note(&request);
        let answer = services::client_configuration(&self.authority, request.get_ref());
        Ok(Response::new(m::GenerateClientConfigurationResponse { messages: vec![answer] }))
    }

    async fn etcd_recover(&self, request: Request<Streaming<Data>>) -> Answer<m::EtcdRecoverResponse> {
        services::recover(self, request).await
    }

    async fn kubeconfig(&self, request: Request<()>) -> Answer<Self::KubeconfigStream> {
        self.note(&request);
        Ok(stream(services::kubeconfig()))
    }

    async fn reboot(&self, _: Request<m::RebootRequest>) -> Answer<m::RebootResponse> {
        self.boots.fetch_add(1, Ordering::SeqCst);
        self.publish(&Payload::Sequence(m::SequenceEvent {
            sequence: "reboot".into(),
            action: 1,
            error: None,
        }));
        self.publish(&Payload::Restart(m::RestartEvent { cmd: 1 }));
        let messages = vec![m::Reboot { metadata: None, actor_id: "actor".into() }];
        Ok(Response::new(m::RebootResponse { messages }))
    }

    async fn shutdown(&self, _: Request<m::ShutdownRequest>) -> Answer<m::ShutdownResponse> {
        let error =
            Some(common::Error { message: "sequence failed: disk is busy".into(), ..Default::default() });
        self.publish(&Payload::Sequence(m::SequenceEvent { sequence: "shutdown".into(), action: 0, error }));
        let messages = vec![m::Shutdown { metadata: None, actor_id: "actor".into() }];
        Ok(Response::new(m::ShutdownResponse { messages }))
    }

    not_served! {
        etcd_leave_cluster(m::EtcdLeaveClusterRequest) -> m::EtcdLeaveClusterResponse;
        etcd_forfeit_leadership(m::EtcdForfeitLeadershipRequest) -> m::EtcdForfeitLeadershipResponse;
        generate_configuration(m::GenerateConfigurationRequest) -> m::GenerateConfigurationResponse;
        recover(m::RecoverRequest) -> m::RecoverResponse;
        remove_bootkube_initialized_key(()) -> m::RemoveBootkubeInitializedKeyResponse;
        service_start(m::ServiceStartRequest) -> m::ServiceStartResponse;
        service_stop(m::ServiceStopRequest) -> m::ServiceStopResponse;
        cpu_freq_stats(()) -> m::CpuFreqStatsResponse;
        etcd_remove_member_by_id(m::EtcdRemoveMemberByIdRequest) -> m::EtcdRemoveMemberByIdResponse;
        etcd_snapshot(m::EtcdSnapshotRequest) -> Self::EtcdSnapshotStream;
        etcd_defragment(()) -> m::EtcdDefragmentResponse;
        etcd_status(()) -> m::EtcdStatusResponse;
        logs_containers(()) -> m::LogsContainersResponse;
    }
}

/// The configuration that the node starts with.
pub(crate) const CONFIG: &str = "\
version: v1alpha1
machine:
  type: worker
  token: abcdef.0123456789abcdef # a comment
  network: {hostname: one}
cluster:
  controlPlane: {endpoint: 'https://10.0.0.1:6443'}
";

#[tonic::async_trait]
impl billet::MachineService for Node {
    type EarlierDmesgStream = Answers<common::Data>;

    async fn earlier_dmesg(&self, request: Request<EarlierDmesgRequest>) -> Answer<Self::EarlierDmesgStream> {
        match request.get_ref().back {
            1 => Ok(data(&request, &["kern:    info: [2026-11-20T00:00:00Z]: before\n"])),
            back => Err(Status::not_found(format!("the flight recorder has 1 earlier boots, none -{back}"))),
        }
    }

    async fn confirm_configuration(&self, _: Request<()>) -> Answer<()> {
        match std::mem::take(&mut *self.pending.lock().unwrap()) {
            true => Ok(Response::new(())),
            false => Err(Status::failed_precondition("no configuration waits to be confirmed")),
        }
    }

    async fn recovery_keys(&self, request: Request<()>) -> Answer<own::RecoveryKeysResponse> {
        let key = |volume: &str, slot| own::RecoveryKey {
            volume: volume.into(),
            slot,
            file: format!("age of {volume}").into_bytes(),
            // A node that means to act on the terminal.
            recipients: vec!["age1one".into(), "age1two\x1b[2J".into()],
        };
        let keys = || vec![key("STATE", 3), key("EPHEMERAL", 7)];
        let one = |metadata| own::RecoveryKeys { metadata, keys: keys() };
        Ok(Response::new(own::RecoveryKeysResponse {
            messages: asked(&request).into_iter().map(one).collect(),
        }))
    }

    async fn renew_certificates(&self, request: Request<()>) -> Answer<own::RenewCertificatesResponse> {
        let one = |metadata| own::RenewCertificates {
            metadata,
            renewed: vec!["api".into(), "etcd-peer".into()],
            failed: vec!["kubelet: no answer; its certificates stay".into()],
        };
        let messages = asked(&request).into_iter().map(one).collect();
        Ok(Response::new(own::RenewCertificatesResponse { messages }))
    }

    /// Of STATE; another slot than the recovery key's is not as the config wants it.
    async fn unlock(&self, request: Request<own::UnlockRequest>) -> Answer<own::UnlockResponse> {
        let own::UnlockRequest { volume, key } = request.get_ref();
        if volume != "STATE" {
            return Err(Status::failed_precondition(format!("{volume} has no recovery key")));
        }
        if *key != recovery::RecoveryKey::new(&[7; 32]).unwrap().text().as_str() {
            return Err(Status::failed_precondition(
                "it is another volume's recovery key, or one that was replaced",
            ));
        }
        let unlock = own::Unlock {
            metadata: None,
            slot: 3,
            replaced: vec![0, 1],
            failed: vec!["key slot 2: connection refused".into()],
            next: "the node goes on with its boot".into(),
        };
        let one = |metadata| own::Unlock { metadata, ..unlock.clone() };
        Ok(Response::new(own::UnlockResponse { messages: asked(&request).into_iter().map(one).collect() }))
    }
}
