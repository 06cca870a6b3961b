//! Containers and what they use, from containerd and the cgroup tree.
//!
//! Owns: which namespace a request means, and the ids that the CRI's containers are shown under. One containerd has all of
//! them, so it does not matter which driver a request names. In the system's namespace the services that are processes are
//! listed too: clients expect apid and trustd there, which are containers elsewhere.
//! Source: crates/api/proto/common/common.proto (drivers and namespaces).

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use api::proto::common::{ContainerDriver, ContainerdInstance, ContainerdNamespace};
use api::proto::machine as proto;
use runtime::services::Listed;
use tonic::Status;

use super::query;
use crate::node::Node;
use ::containers::{Client, Container, Task, TaskStatus};

/// Of containerd.
const SOCKET: &str = "/run/containerd/containerd.sock";
const CGROUPS: &str = "/sys/fs/cgroup";
/// The system's containerd namespace, in which services are listed.
const SYSTEM: &str = "system";
const APID: &str = "apid";
/// apid carries the answer to the call that restarts it, so it ends this much later.
const ANSWER_PASSES: Duration = Duration::from_millis(500);
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
    ContainerDriver::try_from(driver)
        .map_err(|_| Status::invalid_argument(format!("container driver {driver} does not exist")))?;
    client(node, namespace)
}

/// The one that a request names by number.
pub(super) fn by_number(node: &Node, namespace: i32) -> Result<Client, Status> {
    match ContainerdNamespace::try_from(namespace) {
        Ok(ContainerdNamespace::NsCri) => client(node, "k8s.io"),
        Ok(ContainerdNamespace::NsSystem) => client(node, "system"),
        _ => Err(Status::invalid_argument("name a containerd namespace: 1 is system, 2 is cri")),
    }
}

/// The one that the image service's requests name.
pub(super) fn by_instance(node: &Node, instance: Option<ContainerdInstance>) -> Result<Client, Status> {
    match instance.map(|instance| instance.namespace()) {
        Some(ContainerdNamespace::NsCri) => client(node, "k8s.io"),
        _ => client(node, "system"),
    }
}

fn client(node: &Node, namespace: &'static str) -> Result<Client, Status> {
    let socket = node.runtime.path(SOCKET);
    if !socket.exists() {
        let text = format!("containerd does not run: {SOCKET} is not there; `service cri` says why");
        return Err(Status::failed_precondition(text));
    }
    Ok(Client::new(&socket, namespace))
}

/// `Containers`.
pub(super) async fn list(
    node: &Node,
    request: &proto::ContainersRequest,
) -> Result<proto::ContainersResponse, Status> {
    let mut containers: Vec<_> = services(node, &request.namespace).iter().map(describe_service).collect();
    if let Some(client) = beside_services(node, &request.namespace, request.driver)? {
        let namespace = if request.namespace.is_empty() { SYSTEM } else { &request.namespace };
        let tasks = tasks(&client).await?;
        let of_client = client.containers().await?;
        let exited = if client.is_of_kubernetes() { client.exited().await? } else { HashSet::new() };
        let state = |container: &Container| match tasks.get(&container.id) {
            Some(task) => task.status(),
            None if exited.contains(&container.id) => TaskStatus::Stopped,
            None => TaskStatus::Unknown,
        };
        let shown = |c| describe(namespace, c, tasks.get(&c.id), state(c));
        containers.extend(of_client.iter().map(shown));
    }
    containers.sort_by(|a, b| a.id.cmp(&b.id));
    Ok(proto::ContainersResponse { messages: vec![proto::Container { metadata: None, containers }] })
}

/// The services that a namespace shows.
fn services(node: &Node, namespace: &str) -> Vec<Listed> {
    if is_system(namespace) { node.runtime.services.processes() } else { Vec::new() }
}

fn is_system(namespace: &str) -> bool {
    namespace.is_empty() || namespace == SYSTEM
}

/// The containerd of a request. Services are there without one that runs.
fn beside_services(node: &Node, namespace: &str, driver: i32) -> Result<Option<Client>, Status> {
    match by_name(node, namespace, driver) {
        Err(status) if is_system(namespace) && status.code() == tonic::Code::FailedPrecondition => Ok(None),
        found => found.map(Some),
    }
}

fn describe_service(service: &Listed) -> proto::ContainerInfo {
    proto::ContainerInfo {
        namespace: SYSTEM.to_owned(),
        id: service.id.clone(),
        image: service.program.clone(),
        pid: service.pid.unwrap_or_default(),
        status: status(
            Kind::Plain,
            if service.pid.is_some() { TaskStatus::Running } else { TaskStatus::Stopped },
        ),
        pod_id: service.id.clone(),
        name: service.id.clone(),
        network_namespace: String::new(),
        internal_id: service.id.clone(),
        uid: String::new(),
    }
}

async fn tasks(client: &Client) -> Result<HashMap<String, Task>, Status> {
    let named = |task: Task| {
        let id = if task.container_id.is_empty() { task.id.clone() } else { task.container_id.clone() };
        (id, task)
    };
    Ok(client.tasks().await?.into_iter().map(named).collect())
}

fn describe(
    namespace: &str,
    container: &Container,
    task: Option<&Task>,
    state: TaskStatus,
) -> proto::ContainerInfo {
    let names = Names::of(container);
    proto::ContainerInfo {
        namespace: namespace.to_owned(),
        id: names.id,
        image: container.image.clone(),
        pid: task.map_or(0, |task| task.pid),
        status: status(names.kind, state),
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
    node: &Arc<Node>,
    request: &proto::RestartRequest,
) -> Result<proto::RestartResponse, Status> {
    let done = proto::RestartResponse { messages: vec![proto::Restart::default()] };
    let services = services(node, &request.namespace);
    if let Some(service) = services.into_iter().find(|service| service.id == request.id) {
        return restart_service(node, service).map(|()| done);
    }
    let unknown = || Status::not_found(format!("container {} does not exist", query::quoted(&request.id)));
    let client = beside_services(node, &request.namespace, request.driver)?.ok_or_else(unknown)?;
    let all = client.containers().await?;
    let named = all.iter().find(|c| c.id == request.id || Names::of(c).id == request.id);
    client.terminate(&named.ok_or_else(unknown)?.id).await?;
    Ok(done)
}

fn restart_service(node: &Arc<Node>, service: Listed) -> Result<(), Status> {
    let id = service.id;
    if service.pid.is_none() {
        let text = format!("service {id:?} has no process now: `service {id}` says why");
        return Err(Status::failed_precondition(text));
    }
    node.runtime.journal.say(&format!("restart of {id} via API received"));
    if id == APID {
        node.runtime.services.restart_after(&id, ANSWER_PASSES);
    } else {
        node.runtime.services.restart(&id);
    }
    Ok(())
}

/// `Stats`: memory and time of what `Containers` lists, as far as it runs.
pub(super) async fn stats(
    node: &Node,
    request: &proto::StatsRequest,
) -> Result<proto::StatsResponse, Status> {
    let listed = services(node, &request.namespace);
    let mut stats: Vec<_> = listed.into_iter().filter_map(|service| of_service(node, service)).collect();
    if let Some(client) = beside_services(node, &request.namespace, request.driver)? {
        stats.extend(of_containers(node, request, &client).await?);
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

fn of_service(node: &Node, service: Listed) -> Option<proto::Stat> {
    service.pid?;
    let (memory_usage, cpu_usage) = usage(&node.runtime.path(CGROUPS).join(service.group));
    let (pod_id, name) = (service.id.clone(), service.id.clone());
    Some(proto::Stat { namespace: SYSTEM.to_owned(), id: service.id, memory_usage, cpu_usage, pod_id, name })
}

/// The group of a process in the one tree of cgroup2.
fn group_of(node: &Node, pid: u32) -> Option<PathBuf> {
    let text = fs::read_to_string(node.runtime.path(&format!("/proc/{pid}/cgroup"))).ok()?;
    let path = text.lines().find_map(|line| line.strip_prefix("0::"))?;
    Some(node.runtime.path(CGROUPS).join(path.trim_start_matches('/')))
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
mod tests;
