//! `get`: resources of a type, or one, once or as they change.
//!
//! Owns: finding the type that the user means, asking each node, printing in three forms.
//! Source: crates/api/proto/cosi/resource (calls), docs/users/commands.md (output).

mod definition;
mod document;
mod json_path;
mod rows;

pub(crate) use definition::Definition;

use crate::{
    global::Global,
    output::{self, Format},
    session::{Maintenance, Session},
};
use anyhow::{Result, anyhow, bail};
use api::{
    client,
    proto::cosi::resource::{
        EventType, GetRequest, ListRequest, Resource, WatchOptions, WatchRequest, WatchResponse,
    },
};
use document::Change;
use rows::Rows;
use std::sync::Arc;
use tokio::sync::mpsc;
use tonic::{Status, Streaming};

/// Version of the watch protocol that sends errors and the end of the existing contents.
const WATCH_API_VERSION: i32 = 1;

#[derive(Debug, clap::Args)]
pub(crate) struct Flags {
    /// Type of resource: a name or an alias; `rd` lists them
    #[arg(value_name = "TYPE")]
    kind: String,
    /// One resource; all of the type if left out
    id: Option<String>,
    /// Namespace [default: the type's]
    #[arg(long)]
    namespace: Option<String>,
    /// Go on with what changes
    #[arg(short, long)]
    watch: bool,
    #[command(flatten)]
    pub(crate) maintenance: Maintenance,
}

impl Flags {
    /// All of a type, once.
    pub(crate) fn all(kind: &str) -> Self {
        Self {
            kind: kind.to_owned(),
            id: None,
            namespace: None,
            watch: false,
            maintenance: Maintenance::default(),
        }
    }
}

/// What is asked for, once the type is known.
struct Query {
    definition: Definition,
    namespace: String,
    id: Option<String>,
    form: Form,
}

/// How resources are printed.
enum Form {
    Table,
    Document(Format),
    /// A JSONPath template over each document.
    Path(json_path::Template),
}

impl Form {
    fn of(global: &Global) -> Result<Self> {
        let Some(path) = global.output_word.as_deref().and_then(|w| w.strip_prefix("jsonpath=")) else {
            return match (global.output, global.output_word.as_deref()) {
                (Format::Table, None | Some("table")) => Ok(Self::Table),
                (Format::Table, Some(word)) => {
                    bail!("`--output {word}` is not known; it is table, yaml, json or jsonpath={{...}}")
                }
                (format, _) => Ok(Self::Document(format)),
            };
        };
        json_path::Template::parse(path)
            .map(Self::Path)
            .ok_or_else(|| anyhow!("`{path}` is no JSONPath template; write {{.spec.running}}"))
    }

    /// Prints one resource unless it waits for its table.
    fn print(&self, node: &str, change: Option<Change>, resource: &Resource) -> Result<()> {
        match self {
            Self::Table => Ok(()),
            Self::Document(format) => document::print(&document::document(node, change, resource)?, *format),
            Self::Path(template) => {
                let value = document::document(node, change, resource)?.value();
                Ok(output::print(template.text(&value) + "\n")?)
            }
        }
    }
}

pub(crate) async fn run(session: Session, flags: Flags) -> Result<()> {
    let session = Arc::new(session);
    let form = Form::of(&session.global)?;
    let nodes = session.each_node();
    let definition = Definition::find(&session, nodes[0].as_deref(), &flags.kind).await?;
    let namespace = flags.namespace.unwrap_or_else(|| definition.default_namespace.clone());
    let query = Arc::new(Query { definition, namespace, id: flags.id, form });
    if flags.watch { watch(session, nodes, query).await } else { once(&session, nodes, &query).await }
}

async fn once(session: &Session, nodes: Vec<Option<String>>, query: &Query) -> Result<()> {
    let mut rows = Rows::new(&query.definition, false);
    let (mut failed, mut found) = (Vec::new(), 0_usize);
    for node in nodes {
        let name = session.name_of(node.as_deref()).to_owned();
        let resources = match ask(session, node.as_deref(), query).await {
            Ok(resources) => resources,
            Err(error) => {
                failed.push(format!("{name}: {error:#}"));
                continue;
            }
        };
        found += resources.len();
        for resource in &resources {
            match &query.form {
                Form::Table => rows.add(&name, None, resource)?,
                form => form.print(&name, None, resource)?,
            }
        }
    }
    if matches!(query.form, Form::Table) && (found > 0 || failed.is_empty()) {
        output::print(rows.finish())?;
    }
    if failed.is_empty() { Ok(()) } else { Err(anyhow!("{}", failed.join("\n"))) }
}

async fn ask(session: &Session, node: Option<&str>, query: &Query) -> Result<Vec<Resource>> {
    let (namespace, kind) = (query.namespace.clone(), query.definition.kind.clone());
    let Some(id) = query.id.clone() else {
        return list(session, node, namespace, kind).await.map_err(|s| session.error(&s));
    };
    let request = client::to_node(GetRequest { namespace, r#type: kind, id, options: None }, node);
    let response = session.client.state().get(request).await.map_err(|s| session.error(&s))?;
    Ok(response.into_inner().resource.into_iter().collect())
}

/// All resources of this type in a namespace, without asking the node about the type first.
pub(crate) async fn list(
    session: &Session,
    node: Option<&str>,
    namespace: String,
    kind: String,
) -> Result<Vec<Resource>, Status> {
    let request = client::to_node(ListRequest { namespace, r#type: kind, options: None }, node);
    let mut stream = session.client.state().list(request).await?.into_inner();
    let mut resources = Vec::new();
    while let Some(item) = stream.message().await? {
        resources.extend(item.resource);
    }
    Ok(resources)
}

/// The resources of one type on the first node, for commands that read them themselves.
pub(crate) async fn fetch(
    session: &Session,
    node: Option<&str>,
    kind: &str,
    id: &str,
) -> Result<Vec<Resource>> {
    let definition = Definition::find(session, node, kind).await?;
    let namespace = definition.default_namespace.clone();
    ask(session, node, &Query { definition, namespace, id: Some(id.to_owned()), form: Form::Table }).await
}

/// All resources of one type, as [`fetch`] reads one.
pub(crate) async fn fetch_all(session: &Session, node: Option<&str>, kind: &str) -> Result<Vec<Resource>> {
    let definition = Definition::find(session, node, kind).await?;
    let namespace = definition.default_namespace.clone();
    ask(session, node, &Query { definition, namespace, id: None, form: Form::Table }).await
}

/// One resource as a YAML document.
pub(crate) fn yaml(node: &str, resource: &Resource) -> Result<String> {
    document::document(node, None, resource)?.yaml()
}

/// What one node told its watcher.
enum WatchEvent {
    /// A resource changed.
    Change(Change, Box<Resource>),
    /// All that existed at the start was told.
    Bootstrapped,
    /// The watch ended with an error.
    Failed(String),
}

async fn watch(session: Arc<Session>, nodes: Vec<Option<String>>, query: Arc<Query>) -> Result<()> {
    let (sender, mut receiver) = mpsc::channel(64);
    for node in nodes {
        tokio::spawn(watch_node(Arc::clone(&session), node, Arc::clone(&query), sender.clone()));
    }
    // The tasks hold the other senders: the loop ends when all of them have ended.
    drop(sender);
    let mut rows = Rows::new(&query.definition, true);
    let mut failed = Vec::new();
    while let Some((node, told)) = receiver.recv().await {
        match told {
            WatchEvent::Failed(reason) => failed.push(format!("{node}: {reason}")),
            WatchEvent::Bootstrapped if !matches!(query.form, Form::Table) => {}
            WatchEvent::Bootstrapped => output::print(rows.flush())?,
            WatchEvent::Change(change, resource) if matches!(query.form, Form::Table) => {
                rows.add(&node, Some(change), &resource)?;
                // Live rows are printed at once; those before the bootstrap wait for their column widths.
                if rows.is_live() || query.id.is_some() {
                    output::print(rows.flush())?;
                }
            }
            WatchEvent::Change(change, resource) => query.form.print(&node, Some(change), &resource)?,
        }
    }
    if failed.is_empty() { Ok(()) } else { Err(anyhow!("{}", failed.join("\n"))) }
}

type Teller = mpsc::Sender<(String, WatchEvent)>;

async fn watch_node(session: Arc<Session>, node: Option<String>, query: Arc<Query>, sender: Teller) {
    let name = session.name_of(node.as_deref()).to_owned();
    if let Err(error) = follow(&session, node.as_deref(), &query, &name, &sender).await {
        // Without a receiver nobody waits for the reason.
        let _ = sender.send((name, WatchEvent::Failed(format!("{error:#}")))).await;
    }
}

async fn follow(
    session: &Session,
    node: Option<&str>,
    query: &Query,
    name: &str,
    sender: &Teller,
) -> Result<()> {
    let options = WatchOptions { bootstrap_contents: query.id.is_none(), ..WatchOptions::default() };
    let request = WatchRequest {
        namespace: query.namespace.clone(),
        r#type: query.definition.kind.clone(),
        id: query.id.clone(),
        options: Some(options),
        api_version: WATCH_API_VERSION,
    };
    let response = session.client.state().watch(client::to_node(request, node)).await;
    let mut stream: Streaming<WatchResponse> = response.map_err(|s| session.error(&s))?.into_inner();
    while let Some(response) = stream.message().await.map_err(|s| session.error(&s))? {
        for event in response.event {
            let told = match EventType::try_from(event.event_type).unwrap_or(EventType::Noop) {
                EventType::Created => {
                    event.resource.map(|r| WatchEvent::Change(Change::Created, Box::new(r)))
                }
                EventType::Updated => {
                    event.resource.map(|r| WatchEvent::Change(Change::Updated, Box::new(r)))
                }
                EventType::Destroyed => {
                    event.resource.map(|r| WatchEvent::Change(Change::Destroyed, Box::new(r)))
                }
                EventType::Bootstrapped => Some(WatchEvent::Bootstrapped),
                EventType::Errored => return Err(anyhow!("{}", event.error.unwrap_or_default())),
                EventType::Noop => None,
            };
            let Some(told) = told else { continue };
            if sender.send((name.to_owned(), told)).await.is_err() {
                return Ok(());
            }
        }
    }
    Ok(())
}
