//! Containers and what they use, from containerd and the cgroup tree.
//!
//! Owns: which containerd a request means, and the ids that the CRI's containers are shown under.
//! Source: spec/api-wire-facts.md §2.1 (drivers and namespaces), §3.5 (ids, status words).

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use api::proto::common::{ContainerDriver, ContainerdInstance, ContainerdNamespace};
use api::proto::machine as proto;
use tonic::Status;

use crate::containerd_api::{Client, Container, Task, TaskStatus};
use crate::node::Node;

/// The system's containerd.
const SYSTEM_SOCKET: &str = "/system/run/containerd/containerd.sock";
/// Kubernetes' containerd, once there is one.
const CRI_SOCKET: &str = "/run/containerd/containerd.sock";
const CGROUPS: &str = "/sys/fs/cgroup";
/// Cgroups of this node's own services (service definitions' `share.group`).
const SERVICES: [&str; 2] = ["system", "system/extensions"];
const NANOSECONDS_PER_MICROSECOND: u64 = 1000;

/// The containerd and namespace that a request names by word.
pub(super) fn by_name(node: &Node, namespace: &str, driver: i32) -> Result<Client, Status> {
    let namespace = match namespace {
        "" | "system" => "system",
        "k8s.io" => "k8s.io",
        other => {
            let text = format!("namespace {other:?} does not exist: use \"system\" or \"k8s.io\"");
            return Err(Status::invalid_argument(text));
        }
    };
    let driver = ContainerDriver::try_from(driver)
        .map_err(|_| Status::invalid_argument(format!("container driver {driver} does not exist")))?;
    client(node, namespace, driver)
}

/// The one that a request names by number.
pub(super) fn by_number(node: &Node, namespace: i32) -> Result<Client, Status> {
    match ContainerdNamespace::try_from(namespace) {
        Ok(ContainerdNamespace::NsCri) => client(node, "k8s.io", ContainerDriver::Cri),
        Ok(ContainerdNamespace::NsSystem) => client(node, "system", ContainerDriver::Cri),
        _ => Err(Status::invalid_argument("name a containerd namespace: 1 is system, 2 is cri")),
    }
}

/// The one that the image service's requests name.
pub(super) fn by_instance(node: &Node, instance: Option<ContainerdInstance>) -> Result<Client, Status> {
    let instance = instance.unwrap_or(ContainerdInstance {
        driver: ContainerDriver::Containerd.into(),
        namespace: ContainerdNamespace::NsSystem.into(),
    });
    match (instance.namespace(), instance.driver()) {
        (ContainerdNamespace::NsCri, driver) => client(node, "k8s.io", driver),
        (_, driver) => client(node, "system", driver),
    }
}

fn client(node: &Node, namespace: &'static str, driver: ContainerDriver) -> Result<Client, Status> {
    let (system, cri) = (node.path(SYSTEM_SOCKET), node.path(CRI_SOCKET));
    let socket = match driver {
        ContainerDriver::Cri if cri.exists() => cri,
        ContainerDriver::Cri if namespace == "k8s.io" => {
            let text = format!("Kubernetes' containerd does not run: {CRI_SOCKET} is not there");
            return Err(Status::failed_precondition(text));
        }
        // Without Kubernetes there is one containerd, and both drivers mean it.
        _ => system,
    };
    if !socket.exists() {
        return Err(Status::failed_precondition(format!(
            "containerd does not run: {SYSTEM_SOCKET} is not there"
        )));
    }
    Ok(Client::new(&socket, namespace))
}

/// `Containers`.
pub(super) async fn list(
    node: &Node,
    request: &proto::ContainersRequest,
) -> Result<proto::ContainersResponse, Status> {
    let client = by_name(node, &request.namespace, request.driver)?;
    let namespace = if request.namespace.is_empty() { "system" } else { &request.namespace };
    let tasks = tasks(&client).await?;
    let mut containers: Vec<_> = client
        .containers()
        .await?
        .into_iter()
        .map(|container| {
            let task = tasks.get(&container.id);
            describe(namespace, &container, task)
        })
        .collect();
    containers.sort_by(|a, b| a.id.cmp(&b.id));
    Ok(proto::ContainersResponse { messages: vec![proto::Container { metadata: None, containers }] })
}

async fn tasks(client: &Client) -> Result<HashMap<String, Task>, Status> {
    let named = |task: Task| {
        let id = if task.container_id.is_empty() { task.id.clone() } else { task.container_id.clone() };
        (id, task)
    };
    Ok(client.tasks().await?.into_iter().map(named).collect())
}

fn describe(namespace: &str, container: &Container, task: Option<&Task>) -> proto::ContainerInfo {
    let names = Names::of(container);
    proto::ContainerInfo {
        namespace: namespace.to_owned(),
        id: names.id,
        image: container.image.clone(),
        pid: task.map_or(0, |task| task.pid),
        status: status(names.kind, task.map_or(TaskStatus::Unknown, Task::status)),
        pod_id: names.pod_id,
        name: names.name,
        network_namespace: String::new(),
        internal_id: container.id.clone(),
        uid: container.labels.get("io.kubernetes.pod.uid").cloned().unwrap_or_default(),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Plain,
    Sandbox,
    InPod,
}

/// How a container is called.
#[derive(Debug)]
struct Names {
    kind: Kind,
    id: String,
    pod_id: String,
    name: String,
}

impl Names {
    /// By the labels that containerd's CRI plugin puts on its containers.
    fn of(container: &Container) -> Self {
        let label = |name: &str| container.labels.get(name).map_or("", String::as_str);
        let (namespace, pod) = (label("io.kubernetes.pod.namespace"), label("io.kubernetes.pod.name"));
        if pod.is_empty() {
            let id = container.id.clone();
            return Self { kind: Kind::Plain, pod_id: id.clone(), name: id.clone(), id };
        }
        let pod_id = format!("{namespace}/{pod}");
        if label("io.cri-containerd.kind") == "sandbox" {
            return Self { kind: Kind::Sandbox, id: pod_id.clone(), pod_id, name: pod.to_owned() };
        }
        let name = label("io.kubernetes.container.name").to_owned();
        Self { kind: Kind::InPod, id: format!("{pod_id}:{name}"), pod_id, name }
    }
}

fn status(kind: Kind, status: TaskStatus) -> String {
    let text = match (kind, status) {
        (Kind::Sandbox, TaskStatus::Running) => "SANDBOX_READY",
        (Kind::Sandbox, _) => "SANDBOX_NOTREADY",
        (Kind::InPod, TaskStatus::Running) => "CONTAINER_RUNNING",
        (Kind::InPod, TaskStatus::Created) => "CONTAINER_CREATED",
        (Kind::InPod, TaskStatus::Stopped) => "CONTAINER_EXITED",
        (Kind::InPod, _) => "CONTAINER_UNKNOWN",
        (Kind::Plain, TaskStatus::Created) => "CREATED",
        (Kind::Plain, TaskStatus::Running) => "RUNNING",
        (Kind::Plain, TaskStatus::Stopped) => "STOPPED",
        (Kind::Plain, TaskStatus::Paused | TaskStatus::Pausing) => "PAUSED",
        (Kind::Plain, TaskStatus::Unknown) => "UNKNOWN",
    };
    text.to_owned()
}

/// `Restart`: ends a container; whoever made it starts it again.
pub(super) async fn restart(
    node: &Node,
    request: &proto::RestartRequest,
) -> Result<proto::RestartResponse, Status> {
    let client = by_name(node, &request.namespace, request.driver)?;
    let all = client.containers().await?;
    let named = all.iter().find(|c| c.id == request.id || Names::of(c).id == request.id);
    let container =
        named.ok_or_else(|| Status::not_found(format!("container {:?} does not exist", request.id)))?;
    client.terminate(&container.id).await?;
    Ok(proto::RestartResponse { messages: vec![proto::Restart::default()] })
}

/// `Stats`: memory and time of containers; for the system's namespace, of its services too.
pub(super) async fn stats(
    node: &Node,
    request: &proto::StatsRequest,
) -> Result<proto::StatsResponse, Status> {
    let system = request.namespace.is_empty() || request.namespace == "system";
    let mut stats = if system { services(node) } else { Vec::new() };
    match by_name(node, &request.namespace, request.driver) {
        Ok(client) => stats.extend(of_containers(node, request, &client).await?),
        // The services are there without it.
        Err(status) if system && status.code() == tonic::Code::FailedPrecondition => {}
        Err(status) => return Err(status),
    }
    stats.sort_by(|a, b| a.id.cmp(&b.id));
    Ok(proto::StatsResponse { messages: vec![proto::Stats { metadata: None, stats }] })
}

async fn of_containers(
    node: &Node,
    request: &proto::StatsRequest,
    client: &Client,
) -> Result<Vec<proto::Stat>, Status> {
    let tasks = tasks(client).await?;
    let containers = client.containers().await?;
    let stats = containers.iter().filter_map(|container| {
        let group = group_of(node, tasks.get(&container.id)?.pid)?;
        let names = Names::of(container);
        let (memory_usage, cpu_usage) = usage(&group);
        Some(proto::Stat {
            namespace: if request.namespace.is_empty() { "system" } else { &request.namespace }.to_owned(),
            id: names.id,
            memory_usage,
            cpu_usage,
            pod_id: names.pod_id,
            name: names.name,
        })
    });
    Ok(stats.collect())
}

fn services(node: &Node) -> Vec<proto::Stat> {
    let root = node.path(CGROUPS);
    let folders = SERVICES.iter().flat_map(|folder| fs::read_dir(root.join(folder)).into_iter().flatten());
    let groups = folders.flatten().map(|entry| entry.path());
    // A group that only holds others has no process of its own.
    let own =
        groups.filter(|group| fs::read_to_string(group.join("cgroup.procs")).is_ok_and(|p| !p.is_empty()));
    own.filter_map(|group| {
        let id = group.file_name()?.to_string_lossy().into_owned();
        let (memory_usage, cpu_usage) = usage(&group);
        let (pod_id, name) = (id.clone(), id.clone());
        Some(proto::Stat { namespace: "system".to_owned(), id, memory_usage, cpu_usage, pod_id, name })
    })
    .collect()
}

/// The group of a process in the one tree of cgroup2.
fn group_of(node: &Node, pid: u32) -> Option<PathBuf> {
    let text = fs::read_to_string(node.path(&format!("/proc/{pid}/cgroup"))).ok()?;
    let path = text.lines().find_map(|line| line.strip_prefix("0::"))?;
    Some(node.path(CGROUPS).join(path.trim_start_matches('/')))
}

/// Bytes of memory and nanoseconds of processor time.
fn usage(group: &Path) -> (u64, u64) {
    let read = |file: &str| fs::read_to_string(group.join(file)).unwrap_or_default();
    let memory = read("memory.current").trim().parse().unwrap_or(0);
    let stat = read("cpu.stat");
    let time = stat.lines().find_map(|line| line.strip_prefix("usage_usec ")?.trim().parse::<u64>().ok());
    (memory, time.unwrap_or(0).saturating_mul(NANOSECONDS_PER_MICROSECOND))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn container(labels: &[(&str, &str)]) -> Container {
        let labels = labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        Container { id: "abc".into(), labels, image: "image".into() }
    }

    #[test]
    fn containers_of_pods_are_called_by_their_pod() {
        let pod = [("io.kubernetes.pod.namespace", "kube-system"), ("io.kubernetes.pod.name", "proxy-1")];
        let sandbox = container(&[&pod[..], &[("io.cri-containerd.kind", "sandbox")]].concat());
        let inside = container(
            &[
                &pod[..],
                &[("io.cri-containerd.kind", "container"), ("io.kubernetes.container.name", "proxy")],
            ]
            .concat(),
        );
        let running = Task { pid: 7, status: TaskStatus::Running.into(), ..Default::default() };
        let info = describe("k8s.io", &sandbox, Some(&running));
        assert_eq!((info.id.as_str(), info.status.as_str()), ("kube-system/proxy-1", "SANDBOX_READY"));
        let info = describe("k8s.io", &inside, None);
        assert_eq!(
            (info.id.as_str(), info.pod_id.as_str()),
            ("kube-system/proxy-1:proxy", "kube-system/proxy-1")
        );
        assert_eq!((info.status.as_str(), info.name.as_str()), ("CONTAINER_UNKNOWN", "proxy"));
        let info = describe("system", &container(&[]), Some(&running));
        assert_eq!((info.id.as_str(), info.pod_id.as_str(), info.status.as_str()), ("abc", "abc", "RUNNING"));
    }

    #[tokio::test]
    async fn services_are_measured_without_any_containerd() {
        let dir = tempfile::tempdir().unwrap();
        let node = crate::server::tests_node(dir.path().canonicalize().unwrap());
        let group = dir.path().join("sys/fs/cgroup/system/apid");
        fs::create_dir_all(dir.path().join("sys/fs/cgroup/system/extensions")).unwrap();
        fs::create_dir_all(&group).unwrap();
        fs::write(group.join("cgroup.procs"), "12\n").unwrap();
        fs::write(group.join("memory.current"), "4096\n").unwrap();
        fs::write(group.join("cpu.stat"), "usage_usec 5\nuser_usec 4\n").unwrap();
        let answer = stats(&node, &proto::StatsRequest::default()).await.unwrap();
        let stats = &answer.messages[0].stats;
        assert_eq!(stats.len(), 1);
        assert_eq!((stats[0].id.as_str(), stats[0].memory_usage, stats[0].cpu_usage), ("apid", 4096, 5000));
        let kubernetes = proto::ContainersRequest { namespace: "k8s.io".into(), driver: 1 };
        let error = list(&node, &kubernetes).await.unwrap_err();
        assert_eq!(error.code(), tonic::Code::FailedPrecondition);
        assert!(error.message().starts_with("Kubernetes' containerd does not run"), "{error}");
        for (namespace, driver) in [("else", 0), ("system", 7)] {
            let request = proto::ContainersRequest { namespace: namespace.into(), driver };
            assert_eq!(list(&node, &request).await.unwrap_err().code(), tonic::Code::InvalidArgument);
        }
    }
}
