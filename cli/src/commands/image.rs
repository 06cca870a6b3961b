//! `image`: the images that containerd has; making images of the system.
//!
//! Does not: ask a node when it makes an image ([`build`]).
//! Order: the current service is asked first; a node that does not know it is asked in the older way.
//! Source: docs/users/containerd.md (`image list/pull`).

use crate::{
    global::Global,
    output::{self, Cell, Table, bytes_si},
    session::Session,
};
use anyhow::{Context as _, Result, anyhow};
use api::{
    client,
    proto::{
        common::{ContainerDriver, ContainerdInstance, ContainerdNamespace, Data},
        machine::{
            ImageListRequest, ImagePullRequest, ImageServiceImportRequest, ImageServiceListRequest,
            ImageServicePullProgress, ImageServicePullRequest, ImageServiceRemoveRequest,
            image_service_client::ImageServiceClient, image_service_import_request::Request as Import,
            image_service_pull_layer_progress::Status as LayerStatus, image_service_pull_response::Response,
        },
    },
};
use clap::ValueEnum;
use jiff::Timestamp;
use std::{
    collections::{BTreeMap, HashMap},
    fs::File,
    io::Read as _,
    path::Path,
};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status, transport::Channel};

/// How much of a file is sent at once, and how many of these wait for the network.
const CHUNK_BYTES: usize = 1 << 20;
const CHUNKS: usize = 4;

pub(crate) mod build;
mod configs;
mod container;
mod convert;
mod customise;
mod form;
mod signing;
mod work;

#[derive(Debug, clap::Args)]
pub(crate) struct Flags {
    #[command(subcommand)]
    action: Action,
    /// Whose images: of Kubernetes, of the node's own services, or of the one in memory
    #[arg(long, value_enum, default_value_t = Namespace::Cri, global = true)]
    namespace: Namespace,
}

/// What is done without a node.
pub(crate) enum Local<'f> {
    Build(&'f build::Flags),
    AddLayer(&'f build::AddLayer),
    AddConfig(&'f configs::Add),
    ListConfig(&'f configs::List),
    TakeIn,
}

impl Local<'_> {
    pub(crate) fn run(&self, global: &Global) -> Result<()> {
        match self {
            Self::Build(flags) => build::run(flags, global),
            Self::AddLayer(flags) => build::add_layer(flags, global),
            Self::AddConfig(flags) => configs::add(flags),
            Self::ListConfig(flags) => configs::list(flags, global),
            Self::TakeIn => container::take_in(),
        }
    }
}

impl Flags {
    /// Whether `--output` names a file or directory here.
    pub(crate) fn writes_output(&self) -> bool {
        matches!(self.action, Action::Build(_) | Action::AddLayer(_))
    }

    /// What is done without a node, if it is that.
    pub(crate) fn local(&self) -> Option<Local<'_>> {
        match &self.action {
            Action::Build(flags) => Some(Local::Build(flags)),
            Action::AddLayer(flags) => Some(Local::AddLayer(flags)),
            Action::AddConfig(flags) => Some(Local::AddConfig(flags)),
            Action::ListConfig(flags) => Some(Local::ListConfig(flags)),
            Action::TakeIn => Some(Local::TakeIn),
            _ => None,
        }
    }
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Make images of the system: disk, ISO, UKI, network boot, installer
    Build(Box<build::Flags>),
    /// Put another layer on an installer image
    AddLayer(Box<build::AddLayer>),
    /// Put the config of one machine into a disk or ISO image, or on a disk or stick with one
    AddConfig(configs::Add),
    /// Configs of machines in a disk or ISO image
    ListConfig(configs::List),
    /// Take the stage `customization` into the parts: what the triggers of the installer image run
    #[command(hide = true)]
    TakeIn,
    /// All images
    #[command(alias = "ls")]
    List,
    /// Fetch an image
    Pull {
        /// Name of the image
        image: String,
    },
    /// Remove an image
    #[command(alias = "rm")]
    Remove {
        /// Name of the image
        image: String,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Namespace {
    Cri,
    System,
    Inmem,
}

impl Namespace {
    fn instance(self) -> ContainerdInstance {
        let (driver, namespace) = match self {
            Self::Cri => (ContainerDriver::Cri, ContainerdNamespace::NsCri),
            Self::System => (ContainerDriver::Cri, ContainerdNamespace::NsSystem),
            Self::Inmem => (ContainerDriver::Containerd, ContainerdNamespace::NsSystem),
        };
        ContainerdInstance { driver: driver.into(), namespace: namespace.into() }
    }
}

/// One image of the list.
#[derive(Debug, Default, PartialEq)]
struct Image {
    name: String,
    digest: String,
    size: i64,
    created_at: Option<prost_types::Timestamp>,
    labels: HashMap<String, String>,
}

pub(crate) async fn run(session: &Session, flags: Flags) -> Result<()> {
    let instance = flags.namespace.instance();
    let mut failed = Vec::new();
    let mut images = Vec::new();
    for node in session.each_node() {
        let name = session.name_of(node.as_deref()).to_owned();
        let done = match &flags.action {
            Action::List => list(session, node.as_deref(), instance).await.map(|found| {
                images.extend(found.into_iter().map(|image| (name.clone(), image)));
            }),
            Action::Pull { image } => pull(session, node.as_deref(), instance, image).await,
            Action::Remove { image } => remove(session, node.as_deref(), instance, image).await,
            // Made without a node, before there is a session.
            Action::Build(_)
            | Action::AddLayer(_)
            | Action::AddConfig(_)
            | Action::ListConfig(_)
            | Action::TakeIn => Ok(()),
        };
        if let Err(status) = done {
            failed.push(format!("{name}: {}", session.error(&status)));
        }
    }
    if matches!(flags.action, Action::List) && (failed.is_empty() || !images.is_empty()) {
        output::print_table(&table(images), session.global.output)?;
    }
    if failed.is_empty() { Ok(()) } else { Err(anyhow!("{}", failed.join("\n"))) }
}

fn service(session: &Session) -> ImageServiceClient<Channel> {
    ImageServiceClient::new(session.client.channel())
}

async fn list(
    session: &Session,
    node: Option<&str>,
    instance: ContainerdInstance,
) -> Result<Vec<Image>, Status> {
    let request = ImageServiceListRequest { containerd: Some(instance) };
    let found = async {
        let mut stream = service(session).list(client::to_node(request, node)).await?.into_inner();
        let mut images = Vec::new();
        while let Some(i) = stream.message().await? {
            images.push(Image {
                name: i.name,
                digest: i.digest,
                size: i.size,
                created_at: i.created_at,
                labels: i.labels,
            });
        }
        Ok(images)
    };
    match found.await {
        Err(status) if is_older(&status) => list_of_older(session, node, instance).await,
        other => other,
    }
}

async fn list_of_older(
    session: &Session,
    node: Option<&str>,
    instance: ContainerdInstance,
) -> Result<Vec<Image>, Status> {
    let request = ImageListRequest { namespace: instance.namespace };
    let mut machine = session.client.machine();
    let mut stream = machine.image_list(client::to_node(request, node)).await?.into_inner();
    let mut images = Vec::new();
    while let Some(i) = stream.message().await? {
        if let Some(error) = client::node_error(&i, session.name_of(node)) {
            return Err(Status::new(error.code, error.message));
        }
        images.push(Image {
            name: i.name,
            digest: i.digest,
            size: i.size,
            created_at: i.created_at,
            labels: HashMap::new(),
        });
    }
    Ok(images)
}

async fn pull(
    session: &Session,
    node: Option<&str>,
    instance: ContainerdInstance,
    image: &str,
) -> Result<(), Status> {
    let request = ImageServicePullRequest { containerd: Some(instance), image_ref: image.to_owned() };
    let name = session.name_of(node).to_owned();
    let pulled = async {
        let mut stream = service(session).pull(client::to_node(request, node)).await?.into_inner();
        let mut layers = BTreeMap::new();
        while let Some(message) = stream.message().await? {
            match message.response {
                Some(Response::Name(image)) => output::note(&format!("{name}: pulled {image}")),
                Some(Response::PullProgress(progress)) => told(&name, &progress, &mut layers),
                None => {}
            }
        }
        Ok(())
    };
    match pulled.await {
        Err(status) if is_older(&status) => {
            let request = ImagePullRequest { namespace: instance.namespace, reference: image.to_owned() };
            session.client.machine().image_pull(client::to_node(request, node)).await.map(drop)
        }
        other => other,
    }
}

/// Says what a layer does, once for each thing it does.
fn told(node: &str, message: &ImageServicePullProgress, layers: &mut BTreeMap<String, i32>) {
    let Some(progress) = &message.progress else { return };
    if layers.insert(message.layer_id.clone(), progress.status) == Some(progress.status) {
        return;
    }
    let status = LayerStatus::try_from(progress.status).map_or("?", |s| s.as_str_name());
    let status = status.to_lowercase().replace('_', " ");
    output::note(&format!("{node}: {}: {status}", message.layer_id));
}

async fn remove(
    session: &Session,
    node: Option<&str>,
    instance: ContainerdInstance,
    image: &str,
) -> Result<(), Status> {
    let request = ImageServiceRemoveRequest { containerd: Some(instance), image_ref: image.to_owned() };
    service(session).remove(client::to_node(request, node)).await.map(drop)
}

/// Sends an archive to every node; returns the name that they have it under.
pub(super) async fn import(session: &Session, path: &Path) -> Result<String> {
    let mut name = String::new();
    for node in session.each_node() {
        let shown = session.name_of(node.as_deref()).to_owned();
        eprintln!("{shown}: sending {}", path.display());
        let file = File::open(path).with_context(|| format!("open {}", path.display()))?;
        let (sender, receiver) = mpsc::channel(CHUNKS);
        let reading = tokio::task::spawn_blocking(move || send_file(file, &sender));
        let request = client::to_node(ReceiverStream::new(receiver), node.as_deref());
        let imported = service(session).import(request).await;
        // What the node says counts more than that nobody took the rest.
        let read = reading.await?;
        let imported = imported.map_err(|status| anyhow!("{shown}: {}", session.error(&status)))?;
        read.with_context(|| format!("read {}", path.display()))?;
        name = imported.into_inner().name;
    }
    Ok(name)
}

fn send_file(mut file: File, sender: &mpsc::Sender<ImageServiceImportRequest>) -> std::io::Result<()> {
    let message = |request| ImageServiceImportRequest { request: Some(request) };
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut next = message(Import::Containerd(Namespace::System.instance()));
    loop {
        if sender.blocking_send(next).is_err() {
            // The node gave up, and says why.
            return Ok(());
        }
        let count = file.read(&mut chunk)?;
        if count == 0 {
            return Ok(());
        }
        let bytes = chunk.get(..count).unwrap_or(&[]).to_vec();
        next = message(Import::ImageChunk(Data { metadata: None, bytes }));
    }
}

fn is_older(status: &Status) -> bool {
    status.code() == Code::Unimplemented
}

fn table(images: Vec<(String, Image)>) -> Table {
    let with_labels = images.iter().any(|(_, i)| !i.labels.is_empty());
    let mut columns = vec![
        ("NODE", "node"),
        ("IMAGE", "image"),
        ("DIGEST", "digest"),
        ("SIZE", "size"),
        ("LABELS", "labels"),
        ("CREATED", "created"),
    ];
    columns.retain(|(heading, _)| with_labels || *heading != "LABELS");
    let mut table = Table::new(&columns);
    for (node, image) in images {
        let size = u64::try_from(image.size).unwrap_or(0);
        let created = image.created_at.and_then(|t| Timestamp::new(t.seconds, t.nanos).ok());
        let created = created.map_or_else(String::new, |t| t.strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
        let mut row =
            vec![node.into(), image.name.into(), image.digest.into(), Cell::new(bytes_si(size), size)];
        if with_labels {
            let pairs: BTreeMap<_, _> = image.labels.iter().collect();
            row.push(pairs.iter().map(|(k, v)| format!("{k}={v}")).collect::<Vec<_>>().join(",").into());
        }
        row.push(created.into());
        table.push(row);
    }
    table
}
