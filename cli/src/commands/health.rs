//! `health`: whether node and cluster are well.
//!
//! Owns: the flags of both generations, the lines of progress; with `--server=false` the checks that need nothing but
//! the node API. Does not: ask Kubernetes; the node does that (`--server`, the default).
//! Order: conditions are waited for one after the other, each until it holds or the time is over.
//! Source: docs/users/commands.md; crates/api/src/event.rs (boot events).

use super::events::duration;
use crate::{output, session::Session};
use anyhow::{Result, bail};
use api::{
    client,
    event::Payload,
    proto::{
        cluster::{ClusterInfo, HealthCheckRequest, cluster_service_client::ClusterServiceClient},
        machine::{Event, EventsRequest, ServiceHealth, ServiceInfo, ServiceList, sequence_event::Action},
    },
};
use clap::ArgAction;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// Between two looks at a condition.
const PERIOD: Duration = Duration::from_secs(1);
/// The remembered events have been sent when nothing comes for this long.
const SILENCE: Duration = Duration::from_millis(500);
/// One question to a node.
const ANSWER: Duration = Duration::from_secs(10);

#[derive(Debug, clap::Args)]
pub(crate) struct Flags {
    /// The first control plane node, as older versions had it
    #[arg(long, value_name = "NODE")]
    init_node: Option<String>,
    /// Control plane nodes [default: those that the node knows]
    #[arg(long, value_delimiter = ',', value_name = "NODE")]
    control_plane_nodes: Vec<String>,
    /// Worker nodes [default: those that the node knows]
    #[arg(long, value_delimiter = ',', value_name = "NODE")]
    worker_nodes: Vec<String>,
    /// How long to wait
    #[arg(long, default_value = "20m", value_parser = duration, value_name = "TIME")]
    wait_timeout: Duration,
    /// Use this Kubernetes endpoint
    #[arg(long, value_name = "URL")]
    k8s_endpoint: Option<String>,
    /// Let the node check; `--server=false` asks what the node API alone can tell
    #[arg(long, default_value_t = true, num_args = 0..=1, default_missing_value = "true", require_equals = true, action = ArgAction::Set)]
    server: bool,
}

impl Flags {
    /// The node checks everything that it knows, and that these are in the cluster, as long as this.
    pub(crate) fn of(
        control_plane_nodes: Vec<String>,
        worker_nodes: Vec<String>,
        wait_timeout: Duration,
    ) -> Self {
        Self {
            init_node: None,
            control_plane_nodes,
            worker_nodes,
            wait_timeout,
            k8s_endpoint: None,
            server: true,
        }
    }
}

pub(crate) async fn run(session: Session, mut flags: Flags) -> Result<()> {
    let first = flags.init_node.take();
    flags.control_plane_nodes.splice(0..0, first);
    if flags.server { by_node(&session, flags).await } else { by_us(&session, flags).await }
}

async fn by_node(session: &Session, flags: Flags) -> Result<()> {
    let node = session.single_node("health")?;
    let wait = prost_types::Duration::try_from(flags.wait_timeout)?;
    let request = HealthCheckRequest {
        wait_timeout: Some(wait),
        cluster_info: Some(ClusterInfo {
            control_plane_nodes: flags.control_plane_nodes,
            worker_nodes: flags.worker_nodes,
            force_endpoint: flags.k8s_endpoint.unwrap_or_default(),
        }),
    };
    let mut cluster = ClusterServiceClient::new(session.client.channel());
    let stream = cluster.health_check(client::to_nodes(request, node.as_slice())).await;
    session
        .each(stream, |_, progress| {
            output::note(&progress.message);
            Ok(())
        })
        .await
}

/// What is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Condition {
    Answering,
    Booted,
    Service(&'static str),
    Services,
}

const CONDITIONS: [Condition; 6] = [
    Condition::Answering,
    Condition::Booted,
    Condition::Service("apid"),
    Condition::Service("etcd"),
    Condition::Service("kubelet"),
    Condition::Services,
];

impl Condition {
    fn text(self) -> String {
        match self {
            Self::Answering => "all nodes to answer".to_owned(),
            Self::Booted => "all nodes to finish boot sequence".to_owned(),
            Self::Service("apid") => "apid to be ready".to_owned(),
            Self::Service(id) => format!("{id} to be healthy"),
            Self::Services => "all services to be healthy".to_owned(),
        }
    }
}

async fn by_us(session: &Session, flags: Flags) -> Result<()> {
    let deadline = Instant::now() + flags.wait_timeout;
    let given: Vec<_> = flags.control_plane_nodes.into_iter().chain(flags.worker_nodes).map(Some).collect();
    let nodes = if given.is_empty() { session.each_node() } else { given };
    let names: Vec<_> = nodes.iter().map(|n| session.name_of(n.as_deref())).collect();
    eprintln!("nodes: [{}]", names.join(" "));
    for condition in CONDITIONS {
        wait_for(session, &nodes, condition, deadline).await?;
    }
    eprintln!("not checked without the node's help: Kubernetes; leave --server=false out for that");
    Ok(())
}

async fn wait_for(
    session: &Session,
    nodes: &[Option<String>],
    condition: Condition,
    deadline: Instant,
) -> Result<()> {
    let text = condition.text();
    eprintln!("waiting for {text}: ...");
    let mut last = String::new();
    loop {
        let Some(failure) = first_failure(session, nodes, condition).await else {
            eprintln!("waiting for {text}: OK");
            return Ok(());
        };
        if failure != last {
            output::note(&format!("waiting for {text}: {failure}"));
        }
        if Instant::now() >= deadline {
            bail!("{text}: {failure}; waited as long as --wait-timeout says");
        }
        last = failure;
        sleep(PERIOD.min(deadline.saturating_duration_since(Instant::now()))).await;
    }
}

/// What keeps the condition from holding, on the first node where it does not.
async fn first_failure(session: &Session, nodes: &[Option<String>], condition: Condition) -> Option<String> {
    for node in nodes {
        let checking = check(session, node.as_deref(), condition);
        let result = timeout(ANSWER, checking).await.unwrap_or_else(|_| Err("no answer".to_owned()));
        if let Err(text) = result {
            return Some(format!("{}: {text}", session.name_of(node.as_deref())));
        }
    }
    None
}

async fn check(session: &Session, node: Option<&str>, condition: Condition) -> Result<(), String> {
    let mut machine = session.client.machine();
    let error = |status: tonic::Status| session.error(&status).to_string();
    match condition {
        Condition::Answering => machine.version(client::to_node((), node)).await.map(drop).map_err(error),
        Condition::Booted => {
            let request = EventsRequest { tail_events: -1, ..EventsRequest::default() };
            let stream = machine.events(client::to_node(request, node)).await.map_err(error)?;
            let mut stream = stream.into_inner();
            let mut events = Vec::new();
            while let Ok(Ok(Some(event))) = timeout(SILENCE, stream.message()).await {
                events.push(event);
            }
            booted(&events)
        }
        Condition::Service(_) | Condition::Services => {
            let response = machine.service_list(client::to_node((), node)).await.map_err(error)?;
            let list = response.into_inner().messages.into_iter().next().unwrap_or_default();
            healthy(&list, condition)
        }
    }
}

/// A boot that the node remembers to have begun must have ended.
fn booted(events: &[Event]) -> Result<(), String> {
    let mut running = false;
    for event in events {
        let Some(Ok(Some(Payload::Sequence(e)))) = event.data.as_ref().map(Payload::unpack) else { continue };
        if e.sequence == "boot" {
            running = match Action::try_from(e.action) {
                Ok(Action::Start) => true,
                Ok(Action::Stop) => false,
                _ => running,
            };
        }
    }
    if running { Err("boot sequence is running".to_owned()) } else { Ok(()) }
}

/// A service that the node does not have needs no health.
fn healthy(list: &ServiceList, condition: Condition) -> Result<(), String> {
    let wanted = |service: &&ServiceInfo| match condition {
        Condition::Service(id) => service.id == id,
        _ => true,
    };
    let bad: Vec<_> = list.services.iter().filter(wanted).filter_map(complaint).collect();
    if bad.is_empty() { Ok(()) } else { Err(bad.join(", ")) }
}

fn complaint(service: &ServiceInfo) -> Option<String> {
    let unknown = ServiceHealth { unknown: true, ..ServiceHealth::default() };
    let health = service.health.clone().unwrap_or(unknown);
    match service.state.as_str() {
        "Finished" | "Skipped" => None,
        "Running" if health.unknown && health.last_message.is_empty() => None,
        "Running" if health.healthy => None,
        "Running" => Some(format!("service {} is not healthy: {}", service.id, health.last_message)),
        state => Some(format!("service {} is {state}", service.id)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::proto::machine::SequenceEvent;

    fn service(id: &str, state: &str, health: ServiceHealth) -> ServiceInfo {
        ServiceInfo { id: id.into(), state: state.into(), events: None, health: Some(health) }
    }

    #[test]
    fn services() {
        let good = ServiceHealth { healthy: true, ..Default::default() };
        let without = ServiceHealth { unknown: true, ..Default::default() };
        let bad = ServiceHealth { last_message: "dial failed".into(), ..Default::default() };
        let list = |services| ServiceList { metadata: None, services };
        let fine = list(vec![
            service("apid", "Running", good),
            service("machined", "Running", without),
            service("once", "Finished", ServiceHealth::default()),
        ]);
        assert_eq!(healthy(&fine, Condition::Services), Ok(()));
        assert_eq!(healthy(&fine, Condition::Service("etcd")), Ok(()));
        let sick = list(vec![
            service("etcd", "Running", bad),
            service("kubelet", "Waiting", ServiceHealth::default()),
        ]);
        assert_eq!(
            healthy(&sick, Condition::Services),
            Err("service etcd is not healthy: dial failed, service kubelet is Waiting".to_owned())
        );
        assert_eq!(healthy(&sick, Condition::Service("apid")), Ok(()));
    }

    #[test]
    fn a_boot_has_to_end() {
        let event = |sequence: &str, action: Action| Event {
            data: Some(
                Payload::Sequence(SequenceEvent {
                    sequence: sequence.into(),
                    action: action.into(),
                    error: None,
                })
                .pack(),
            ),
            ..Default::default()
        };
        assert_eq!(booted(&[Event::default()]), Ok(()));
        let begun = [event("boot", Action::Start), event("install", Action::Stop)];
        assert!(booted(&begun).is_err());
        assert_eq!(booted(&[begun[0].clone(), event("boot", Action::Stop)]), Ok(()));
    }
}
