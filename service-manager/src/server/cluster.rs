//! `cluster.ClusterService`: waits until the cluster is healthy, one line a condition.
//!
//! Owns: the order and the words of the conditions. Without Kubernetes: every node's API answers, this node has booted, its
//! services are up; etcd's and kubelet's are asked as soon as the node has these services. A control plane node whose etcd
//! has begun also asks the members of etcd (`kubernetes_node::etcd`) and its API server (`kubernetes_node::health`).
//! Does not: choose the nodes (`cluster_nodes`). Of a connection only whether it came about is told.
//! Fails by: `DeadlineExceeded`, which names the condition that was not met and why.
//! Source: docs/users/kubernetes.md, "Whether the cluster is well".

use std::sync::Arc;
use std::time::Duration;

use api::proto::cluster as proto;
use api::proto::cluster::cluster_service_server::ClusterService;
use kubernetes_node::KubernetesNode;
use kubernetes_node::health::{self, Health, Holds};
use runtime::request;
use runtime::services::Record;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};
use tonic::{Request, Response, Status};

use super::answers::{Answers, Sender, answers, is_admin};
use super::cluster_nodes::{Nodes, host};
use crate::identity::certificates;
use crate::node::Node;
use crate::programs::Program;

/// How long the client waits when it does not say (the CLI's default).
const WAIT: Duration = Duration::from_secs(20 * 60);
/// Between two looks at a condition.
const PERIOD: Duration = Duration::from_millis(500);
/// What the API server is asked, in talosctl's words and order.
const OF_KUBERNETES: [(health::Condition, &str); 6] = [
    (health::Condition::Reported, "all k8s nodes to report"),
    (health::Condition::Ready, "all k8s nodes to report ready"),
    (health::Condition::ControlPlane, "all control plane components to be ready"),
    (health::Condition::Proxy, "kube-proxy to report ready"),
    (health::Condition::Dns, "coredns to report ready"),
    (health::Condition::Schedulable, "all k8s nodes to report schedulable"),
];
/// For one connection to another node.
const DIAL: Duration = Duration::from_secs(3);
const PORT: u16 = Program::Apid.port();

/// The service.
pub(crate) struct Cluster {
    pub(crate) node: Arc<Node>,
}

#[tonic::async_trait]
impl ClusterService for Cluster {
    type HealthCheckStream = Answers<proto::HealthCheckProgress>;

    async fn health_check(
        &self,
        request: Request<proto::HealthCheckRequest>,
    ) -> Result<Response<Self::HealthCheckStream>, Status> {
        let is_admin = is_admin(&request);
        let request = request.into_inner();
        let (wait, deadline) = wait_of(request.wait_timeout)?;
        let nodes = Nodes::new(&self.node, request.cluster_info, is_admin)?;
        let kubernetes = self.node.kubernetes.get().and_then(KubernetesNode::health);
        let check = Check { node: self.node.clone(), kubernetes, nodes, deadline, wait };
        let (sender, answer) = answers();
        request::feed(sender.clone(), async move {
            if let Err(Some(status)) = check.run(&sender).await {
                let _ = sender.send(Err(status)).await;
            }
        });
        Ok(answer)
    }
}

/// How long the client wants to wait, and when that ends.
fn wait_of(asked: Option<prost_types::Duration>) -> Result<(Duration, Instant), Status> {
    let wait = match asked {
        // Not by TryFrom, which negates the least number of seconds.
        Some(prost_types::Duration { seconds, nanos }) => {
            let parts = u64::try_from(seconds).ok().zip(u32::try_from(nanos).ok());
            let parts = parts.filter(|(_, nanos)| *nanos < 1_000_000_000);
            let (seconds, nanos) = parts
                .ok_or_else(|| Status::invalid_argument("wait_timeout is negative or not a duration"))?;
            Duration::new(seconds, nanos)
        }
        None => WAIT,
    };
    let wait = if wait.is_zero() { WAIT } else { wait };
    let deadline = Instant::now().checked_add(wait);
    let deadline = deadline.ok_or_else(|| {
        Status::invalid_argument(format!(
            "wait_timeout of {} s is longer than the clock counts",
            wait.as_secs()
        ))
    })?;
    Ok((wait, deadline))
}

/// Something to wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Condition {
    Api,
    Boot,
    Services,
    Service(&'static str),
    /// The members of etcd agree.
    Members,
    /// The members of etcd are the control plane nodes.
    ControlPlane,
    Kubernetes(health::Condition, &'static str),
}

impl Condition {
    fn text(self) -> String {
        match self {
            Self::Api => "apid to be ready".to_owned(),
            Self::Boot => "all nodes to finish boot sequence".to_owned(),
            Self::Services => "all services to be up".to_owned(),
            Self::Service(id) => format!("{id} to be healthy"),
            Self::Members => "etcd members to be consistent across nodes".to_owned(),
            Self::ControlPlane => "etcd members to be control plane nodes".to_owned(),
            Self::Kubernetes(_, text) => text.to_owned(),
        }
    }
}

struct Check {
    node: Arc<Node>,
    kubernetes: Option<Health>,
    nodes: Nodes,
    deadline: Instant,
    wait: Duration,
}

/// The client is gone (`None`), or an error for it.
type Ended = Option<Status>;

impl Check {
    async fn run(&self, sender: &Sender<proto::HealthCheckProgress>) -> Result<(), Ended> {
        let list = |names: &[String]| format!("{names:?}");
        let (control_plane, workers) = (list(&self.nodes.control_plane), list(&self.nodes.workers));
        say(sender, format!("discovered nodes: control plane: {control_plane}, worker: {workers}")).await?;
        // Not a condition: a node whose certificates end soon is well until they do.
        for warning in certificates::warnings(&self.node.identity) {
            say(sender, format!("warning: {warning}")).await?;
        }
        let known = self.node.runtime.services.ids();
        let own = ["etcd", "kubelet"].into_iter().filter(|id| known.iter().any(|known| known == id));
        let mut conditions = Vec::new();
        for id in own {
            conditions.push(Condition::Service(id));
            // In talosctl's order.
            if id == kubernetes_node::etcd::ID && self.kubernetes.is_some() {
                conditions.extend([Condition::Members, Condition::ControlPlane]);
            }
        }
        conditions.extend([Condition::Api, Condition::Boot, Condition::Services]);
        if self.kubernetes.is_some() {
            conditions.extend(OF_KUBERNETES.map(|(condition, text)| Condition::Kubernetes(condition, text)));
        }
        for condition in conditions {
            self.wait_for(condition, sender).await?;
        }
        Ok(())
    }

    async fn wait_for(
        &self,
        condition: Condition,
        sender: &Sender<proto::HealthCheckProgress>,
    ) -> Result<(), Ended> {
        let mut said = String::new();
        let mut last = "...".to_owned();
        loop {
            let line = format!("waiting for {}: {last}", condition.text());
            if line != said {
                say(sender, line.clone()).await?;
                said = line;
            }
            match self.met(condition).await {
                Ok(holds) => {
                    let word = if holds == Holds::Skipped { "SKIP" } else { "OK" };
                    return say(sender, format!("waiting for {}: {word}", condition.text())).await;
                }
                Err(why) => last = why,
            }
            if Instant::now() >= self.deadline {
                let seconds = self.wait.as_secs();
                return Err(Some(Status::deadline_exceeded(format!(
                    "not healthy within {seconds} s: {}: {last}",
                    condition.text()
                ))));
            }
            tokio::select! {
                () = sleep(PERIOD) => {}
                () = sender.closed() => return Err(None),
            }
        }
    }

    async fn met(&self, condition: Condition) -> Result<Holds, String> {
        let holds = match condition {
            Condition::Kubernetes(condition, _) => {
                let Some(kubernetes) = &self.kubernetes else { return Ok(Holds::Skipped) };
                let expected: Vec<String> = self.nodes.all().cloned().collect();
                return kubernetes.holds(condition, &expected).await;
            }
            Condition::Members | Condition::ControlPlane => {
                let Some(kubernetes) = self.node.kubernetes.get() else { return Ok(Holds::Skipped) };
                if condition == Condition::Members {
                    kubernetes.etcd_is_consistent().await
                } else {
                    let nodes = self.nodes.control_plane_addresses(&self.node)?;
                    let Some(nodes) = nodes else { return Ok(Holds::Skipped) };
                    kubernetes.etcd_is_control_plane(&nodes).await
                }
            }
            Condition::Api => self.every_api_answers().await,
            Condition::Boot => {
                let done = self.node.runtime.checkpoint.memory().done.iter().any(|name| name == "boot");
                if done { Ok(()) } else { Err("this node has not finished it".to_owned()) }
            }
            Condition::Services => {
                let late = self
                    .node
                    .runtime
                    .services
                    .wait_up(&self.node.runtime.services.ids(), Duration::ZERO)
                    .await
                    .err();
                late.map_or(Ok(()), |late| Err(format!("not up: {}", late.join(", "))))
            }
            Condition::Service(id) => {
                let late = self.node.runtime.services.wait_up(&[id.to_owned()], Duration::ZERO).await;
                late.map_err(|_| {
                    match self.node.runtime.services.record(id).and_then(|record| cause(&record)) {
                        Some(cause) => format!("service {id:?} is not up: {cause}"),
                        None => format!("service {id:?} is not up"),
                    }
                })
            }
        };
        holds.map(|()| Holds::Yes)
    }

    /// Why a node cannot be reached is for who looks at that network, not for who asks from outside.
    async fn every_api_answers(&self) -> Result<(), String> {
        for name in self.nodes.all() {
            match timeout(DIAL, TcpStream::connect((host(name), PORT))).await {
                Ok(Ok(_)) => {}
                Ok(Err(_)) => return Err(format!("{name}:{PORT}: not reachable")),
                Err(_) => return Err(format!("{name}:{PORT}: no answer within {} s", DIAL.as_secs())),
            }
        }
        Ok(())
    }
}

async fn say(sender: &Sender<proto::HealthCheckProgress>, message: String) -> Result<(), Ended> {
    sender.send(Ok(proto::HealthCheckProgress { metadata: None, message })).await.map_err(|_| None)
}

/// What a service that is not up said last: of its health, else of itself.
fn cause(record: &Record) -> Option<String> {
    let health = Some(&record.health.last_message).filter(|message| !message.is_empty());
    health.or_else(|| record.events.back().map(|event| &event.message)).cloned()
}

#[cfg(test)]
mod tests {
    use futures_util::StreamExt;

    use super::*;

    #[test]
    fn a_service_that_is_not_up_says_what_it_said_last() {
        let mut record = Record::default();
        assert_eq!(cause(&record), None);
        let (state, time) = ("Preparing", runtime::clock::now());
        let message = "Failed to run pre stage: pull: 503".to_owned();
        record.events.push_back(runtime::services::EventEntry { state, message: message.clone(), time });
        assert_eq!(cause(&record), Some(message));
        record.health.last_message = "etcd has no leader".to_owned();
        assert_eq!(cause(&record).as_deref(), Some("etcd has no leader"));
    }

    #[tokio::test]
    async fn lines_say_what_is_waited_for_and_the_end_says_why_not() {
        let dir = tempfile::tempdir().unwrap();
        let node = crate::server::tests_node(dir.path().canonicalize().unwrap());
        let request = proto::HealthCheckRequest {
            wait_timeout: Some(prost_types::Duration { seconds: 0, nanos: 1_000_000 }),
            cluster_info: Some(proto::ClusterInfo {
                // Nobody serves on a port of this address.
                control_plane_nodes: vec!["127.255.255.254".into()],
                ..Default::default()
            }),
        };
        let cluster = Cluster { node };
        let status = cluster.health_check(Request::new(request.clone())).await.err().unwrap();
        assert_eq!(status.code(), tonic::Code::InvalidArgument, "the role of nobody: {status}");
        let mut request = Request::new(request);
        request.metadata_mut().insert("talos-role", "os:admin".parse().unwrap());
        let mut stream = cluster.health_check(request).await.unwrap().into_inner();
        let mut lines = Vec::new();
        let status = loop {
            match stream.next().await.unwrap() {
                Ok(progress) => lines.push(progress.message),
                Err(status) => break status,
            }
        };
        assert_eq!(lines[0], "discovered nodes: control plane: [\"127.255.255.254\"], worker: []");
        assert_eq!(lines[1], "waiting for apid to be ready: ...");
        assert_eq!(status.code(), tonic::Code::DeadlineExceeded);
        let text = "apid to be ready: 127.255.255.254:50000: not reachable";
        assert!(status.message().ends_with(text), "{status}");
    }

    #[tokio::test]
    async fn a_wait_that_no_clock_counts_is_an_argument_to_mend() {
        let dir = tempfile::tempdir().unwrap();
        let cluster = Cluster { node: crate::server::tests_node(dir.path().canonicalize().unwrap()) };
        for (seconds, nanos) in
            [(i64::MAX, 999_999_999), (i64::MAX, 0), (i64::MIN, i32::MIN), (-1, 0), (0, -1), (0, i32::MAX)]
        {
            let wait_timeout = Some(prost_types::Duration { seconds, nanos });
            let request = proto::HealthCheckRequest { wait_timeout, cluster_info: None };
            let status = cluster.health_check(Request::new(request)).await.err();
            let status = status.unwrap_or_else(|| panic!("{seconds} s was accepted"));
            assert_eq!(status.code(), tonic::Code::InvalidArgument, "{status}");
            assert!(status.message().contains("wait_timeout"), "{status}");
        }
    }

    #[tokio::test]
    async fn a_node_that_has_booted_is_healthy() {
        let dir = tempfile::tempdir().unwrap();
        let node = crate::server::tests_node(dir.path().canonicalize().unwrap());
        let check = Check {
            kubernetes: None,
            nodes: Nodes::new(&node, None, false).unwrap(),
            deadline: Instant::now(),
            wait: Duration::ZERO,
            node: node.clone(),
        };
        assert!(check.met(Condition::Boot).await.is_err());
        node.runtime.checkpoint.update(|memory| memory.done.push("boot".to_owned()));
        assert_eq!(check.met(Condition::Boot).await, Ok(Holds::Yes));
        assert_eq!(check.met(Condition::Services).await, Ok(Holds::Yes));
        assert!(check.met(Condition::Service("kubelet")).await.is_err());
    }
}
