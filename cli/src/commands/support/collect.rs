//! What one node gives.

use crate::{
    commands::{containers, events, get, inspect, mounts, processes},
    session::Session,
};
use anyhow::{Context, Result, bail};
use api::{
    client,
    proto::{
        common::{ContainerDriver, Data},
        cosi::resource::{ListRequest, Resource},
        inspect::inspect_service_client::InspectServiceClient,
        machine::{ContainersRequest, DmesgRequest, EventsRequest, LogsRequest, ServiceList},
    },
};
use std::{fmt::Write, sync::Arc, time::Duration};
use tokio::time::timeout;
use tonic::{Response, Status, Streaming};

/// How long one part may take.
const PART: Duration = Duration::from_secs(60);
/// The remembered events have been sent when nothing comes for this long.
const SILENCE: Duration = Duration::from_secs(1);
/// The file that names what a node did not give.
pub(super) const ERRORS: &str = "errors.txt";
/// Logs that are no service's.
const FURTHER_LOGS: [&str; 2] = ["machined", "controller-runtime"];

/// One file of the bundle.
pub(super) struct Part {
    pub(super) name: String,
    pub(super) content: Vec<u8>,
}

struct Asking {
    session: Arc<Session>,
    node: Option<String>,
    directory: String,
    parts: Vec<Part>,
    errors: String,
}

/// Everything of one node; what it can not give is in `errors.txt`.
pub(super) async fn node(session: Arc<Session>, node: Option<String>) -> Vec<Part> {
    // The name becomes a directory: nothing in it may lead elsewhere.
    let directory = session.name_of(node.as_deref()).replace(['/', '\\', ':'], "_").replace("..", "_");
    let mut asking = Asking { session, node, directory, parts: Vec::new(), errors: String::new() };
    let a = &asking;
    let (version, dmesg, services) = tokio::join!(part(a.version()), part(a.dmesg()), part(a.services()));
    let (mounts, processes, containers) =
        tokio::join!(part(a.mounts()), part(a.processes()), part(a.containers()));
    let (events, graph) = tokio::join!(part(a.events()), part(a.graph()));
    let ids: Vec<_> = match &services {
        Ok(list) => list.services.iter().map(|s| s.id.clone()).collect(),
        Err(_) => Vec::new(),
    };
    asking.keep("version.txt", version);
    asking.keep("dmesg.log", dmesg);
    asking.keep("services.txt", services.map(|list| format!("{list:#?}\n")));
    asking.keep("mounts.txt", mounts);
    asking.keep("processes.txt", processes);
    asking.keep("containers.txt", containers);
    asking.keep("events.txt", events);
    asking.keep("dependencies.dot", graph);
    asking.logs(ids).await;
    asking.resources().await;
    if !asking.errors.is_empty() {
        let content = std::mem::take(&mut asking.errors);
        asking.keep(ERRORS, Ok(content));
    }
    asking.parts
}

/// One part within its time.
async fn part<T>(asked: impl Future<Output = Result<T>>) -> Result<T> {
    timeout(PART, asked).await.unwrap_or_else(|_| bail!("not within {} s", PART.as_secs()))
}

impl Asking {
    fn keep(&mut self, name: &str, content: Result<impl Into<Vec<u8>>>) {
        match content {
            Ok(content) => {
                let name = format!("{}/{name}", self.directory);
                self.parts.push(Part { name, content: content.into() });
            }
            Err(error) => drop(writeln!(self.errors, "{name}: {error:#}")),
        }
    }

    fn error(&self, status: &Status) -> anyhow::Error {
        self.session.error(status)
    }

    /// The one element of a unary answer.
    fn one<R, T>(&self, answer: Result<Response<R>, Status>, of: impl FnOnce(R) -> Vec<T>) -> Result<T> {
        let answer = answer.map_err(|s| self.error(&s))?;
        of(answer.into_inner()).into_iter().next().context("the answer is empty")
    }

    async fn bytes(&self, stream: Result<Response<Streaming<Data>>, Status>) -> Result<Vec<u8>> {
        let mut stream = stream.map_err(|s| self.error(&s))?.into_inner();
        let mut bytes = Vec::new();
        while let Some(data) = stream.message().await.map_err(|s| self.error(&s))? {
            bytes.extend(data.bytes);
        }
        Ok(bytes)
    }

    async fn version(&self) -> Result<String> {
        let request = client::to_node((), self.node.as_deref());
        let version = self.one(self.session.client.machine().version(request).await, |r| r.messages)?;
        Ok(format!("{version:#?}\n"))
    }

    async fn dmesg(&self) -> Result<Vec<u8>> {
        let request = client::to_node(DmesgRequest { follow: false, tail: false }, self.node.as_deref());
        self.bytes(self.session.client.machine().dmesg(request).await).await
    }

    async fn services(&self) -> Result<ServiceList> {
        let request = client::to_node((), self.node.as_deref());
        self.one(self.session.client.machine().service_list(request).await, |r| r.messages)
    }

    async fn mounts(&self) -> Result<String> {
        let request = client::to_node((), self.node.as_deref());
        let answer = self.one(self.session.client.machine().mounts(request).await, |r| r.messages)?;
        Ok(mounts::table(&[(self.directory.clone(), answer)]).to_string())
    }

    async fn processes(&self) -> Result<String> {
        let request = client::to_node((), self.node.as_deref());
        let answer = self.one(self.session.client.machine().processes(request).await, |r| r.messages)?;
        Ok(processes::table(vec![(self.directory.clone(), answer)], processes::Sort::Rss).to_string())
    }

    async fn containers(&self) -> Result<String> {
        let mut text = String::new();
        for (namespace, driver) in [("system", ContainerDriver::Containerd), ("k8s.io", ContainerDriver::Cri)]
        {
            let request = ContainersRequest { namespace: namespace.to_owned(), driver: driver.into() };
            let request = client::to_node(request, self.node.as_deref());
            let answer = self.session.client.machine().containers(request).await;
            let answer = self.one(answer, |r| r.messages).with_context(|| namespace)?;
            text.push_str(&containers::container_table(vec![(self.directory.clone(), answer)]).to_string());
        }
        Ok(text)
    }

    async fn events(&self) -> Result<String> {
        let request = EventsRequest { tail_events: -1, ..EventsRequest::default() };
        let request = client::to_node(request, self.node.as_deref());
        let stream = self.session.client.machine().events(request).await;
        let mut stream = stream.map_err(|s| self.error(&s))?.into_inner();
        let mut text = String::new();
        while let Ok(Ok(Some(event))) = timeout(SILENCE, stream.message()).await {
            if let Some(line) = events::described(&event)? {
                let _ = writeln!(text, "{} {} {} {}", event.id, line.kind, line.source, line.message);
            }
        }
        Ok(text)
    }

    async fn graph(&self) -> Result<String> {
        let mut inspecting = InspectServiceClient::new(self.session.client.channel());
        let request = client::to_node((), self.node.as_deref());
        let answer = inspecting.controller_runtime_dependencies(request).await;
        Ok(inspect::graph(&self.one(answer, |r| r.messages)?.edges, true))
    }

    async fn logs(&mut self, mut ids: Vec<String>) {
        ids.extend(FURTHER_LOGS.map(str::to_owned));
        ids.sort();
        ids.dedup();
        for id in ids {
            let request = LogsRequest {
                namespace: "system".to_owned(),
                id: id.clone(),
                driver: ContainerDriver::Containerd.into(),
                follow: false,
                tail_lines: -1,
            };
            let request = client::to_node(request, self.node.as_deref());
            let log =
                part(async { self.bytes(self.session.client.machine().logs(request).await).await }).await;
            self.keep(&format!("logs/{id}.log"), log);
        }
    }

    /// Every resource of every type that is not marked sensitive.
    async fn resources(&mut self) {
        let node = self.node.clone();
        let definitions = match part(get::Definition::all(&self.session, node.as_deref())).await {
            Ok(definitions) => definitions,
            Err(error) => return self.keep("resources", Err::<Vec<u8>, _>(error)),
        };
        for definition in definitions.iter().filter(|d| !d.sensitive) {
            let text = part(self.resources_of(&definition.kind, &definition.default_namespace)).await;
            self.keep(&format!("resources/{}.yaml", definition.kind.to_lowercase()), text);
        }
    }

    async fn resources_of(&self, kind: &str, namespace: &str) -> Result<String> {
        let request = ListRequest { namespace: namespace.to_owned(), r#type: kind.to_owned(), options: None };
        let request = client::to_node(request, self.node.as_deref());
        let mut stream =
            self.session.client.state().list(request).await.map_err(|s| self.error(&s))?.into_inner();
        let mut text = String::new();
        while let Some(item) = stream.message().await.map_err(|s| self.error(&s))? {
            let Some(resource): Option<Resource> = item.resource else { continue };
            text.push_str(&get::yaml(&self.directory, &resource)?);
        }
        Ok(text)
    }
}
