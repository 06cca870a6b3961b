//! Images that this node fetches itself into containerd's store, from the machine config's registries.
//!
//! Owns: what is written in which order, and what keeps it: a lease meanwhile, then each document's labels.
//! Does not: unpack.
//! Order: layers, config, manifest, indexes, the image's name: a name never stands for something that is not there.
//! Fails by: [`FetchError`]; what came so far is dropped when the lease ends.
//! Source: containerd's published API; its documentation of garbage collection for the labels.

use std::collections::HashMap;

use http::uri::PathAndQuery;
use jiff::SignedDuration;
use oci::document::Descriptor as Blob;
use oci::registry;
use ondisk::{Architecture, Digest};
use runtime::clock;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::metadata::MetadataValue;
use tonic::{Code, Status, Streaming};
use tonic_prost::ProstCodec;

use super::client::Client;
use super::wire::{self, WriteAction};
use super::wire::{Descriptor, Image};

/// Longer than any pull: what a machined that died in one left behind goes after it.
const LEASE_LIFETIME: SignedDuration = SignedDuration::from_hours(1);
const LEASE_END: &str = "containerd.io/gc.expire";
/// What a document keeps.
const KEEPS: &str = "containerd.io/gc.ref.content";

/// Why an image is not here.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The registry, its mirrors, or what they have.
    #[error(transparent)]
    Registry(#[from] oci::Error),
    /// containerd.
    #[error("store {what}")]
    Store {
        /// What was written.
        what: String,
        /// What it says.
        #[source]
        status: Status,
    },
}

/// Something to be stored.
struct Content<'c> {
    /// `layer`, `config`, `manifest`, `index`.
    kind: &'static str,
    descriptor: Descriptor,
    /// Labels, which name what it keeps.
    labels: HashMap<String, String>,
    source: Source<'c>,
}

impl Content<'_> {
    /// What containerd calls it while it is being written.
    fn reference(&self) -> String {
        format!("{}-{}", self.kind, self.descriptor.digest)
    }

    fn first(&self) -> wire::WriteContentRequest {
        let (total, expected) = (self.descriptor.size, self.descriptor.digest.clone());
        wire::WriteContentRequest { total, expected, ..self.request(WriteAction::Stat) }
    }

    fn request(&self, action: WriteAction) -> wire::WriteContentRequest {
        let reference = self.reference();
        wire::WriteContentRequest { action: action.into(), reference, ..Default::default() }
    }
}

/// Why content is not stored.
enum Failure {
    /// It was there already, perhaps from a pull at the same time.
    IsHere,
    Registry(oci::Error),
    Containerd(Status),
}

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        if status.code() == Code::AlreadyExists { Self::IsHere } else { Self::Containerd(status) }
    }
}

enum Source<'c> {
    Here(&'c [u8]),
    Registry(Box<registry::Blob<'c>>),
}

impl Source<'_> {
    /// The next piece, not empty; `None` behind the last one.
    async fn piece(&mut self) -> Result<Option<Vec<u8>>, oci::Error> {
        match self {
            Self::Here(bytes) => Ok(Some(std::mem::take(bytes).to_vec()).filter(|piece| !piece.is_empty())),
            Self::Registry(blob) => Ok(blob.chunk().await?.map(|piece| piece.to_vec())),
        }
    }
}

impl Client {
    /// Fetches an image for this node's platform and keeps it under this name.
    pub async fn fetch(&self, name: &str, from: &registry::Client) -> Result<(), FetchError> {
        let image = from.image(Architecture::OWN.name()).await?;
        let lease = self.lease().await.map_err(|status| store("a lease", status))?;
        let fetched = self.fetch_under(name, from, &image, &lease).await;
        self.end_lease(lease).await;
        fetched
    }

    pub(super) async fn end_lease(&self, id: String) {
        let request = wire::DeleteLeaseRequest { id, sync: true };
        let ended = self.unary::<_, ()>("/containerd.services.leases.v1.Leases/Delete", request).await;
        // It ends by itself, too.
        drop(ended);
    }

    pub(super) async fn lease(&self) -> Result<String, Status> {
        let end = clock::now().checked_add(LEASE_LIFETIME).map_err(|e| Status::internal(e.to_string()))?;
        let labels = HashMap::from([(LEASE_END.to_owned(), end.to_string())]);
        let path = "/containerd.services.leases.v1.Leases/Create";
        let answer: wire::CreateLeaseResponse = self.unary(path, wire::CreateLeaseRequest { labels }).await?;
        answer.lease.map(|lease| lease.id).ok_or_else(|| Status::internal("containerd names no lease"))
    }

    async fn fetch_under(
        &self,
        name: &str,
        from: &registry::Client,
        image: &registry::Image,
        lease: &str,
    ) -> Result<(), FetchError> {
        let blobs = image.manifest.layers.iter().map(|layer| ("layer", layer));
        for (kind, blob) in blobs.chain([("config", &image.manifest.config)]) {
            let source = Source::Registry(Box::new(from.blob(blob)));
            let content = Content { kind, descriptor: descriptor(blob), labels: HashMap::new(), source };
            self.store(content, lease).await?;
        }
        // The manifest is the last document; each one before it names the next.
        let (mut kind, mut labels) = ("manifest", manifest_labels(image));
        let mut target = None;
        for raw in image.documents.iter().rev() {
            let digest = format!("sha256:{}", Digest::sha256(&[&raw.bytes]));
            let size = i64::try_from(raw.bytes.len()).unwrap_or(i64::MAX);
            let descriptor = Descriptor { media_type: raw.media_type.clone(), digest: digest.clone(), size };
            target = Some(descriptor.clone());
            self.store(Content { kind, descriptor, labels, source: Source::Here(&raw.bytes) }, lease).await?;
            (kind, labels) = ("index", HashMap::from([(format!("{KEEPS}.m.0"), digest)]));
        }
        self.name(name, target).await.map_err(|status| store(name, status))
    }

    /// Stores content, unless it is here already: then it gets the labels alone.
    async fn store(&self, mut content: Content<'_>, lease: &str) -> Result<(), FetchError> {
        let what = format!("{} {}", content.kind, content.descriptor.digest);
        let stored = match self.begin(content.first(), lease).await {
            Ok((writing, here)) => {
                let written = write(writing, here, &mut content).await;
                if matches!(&written, Err(Failure::Registry(_) | Failure::Containerd(_))) {
                    // All of it with a wrong digest would be taken for all of it the next time.
                    let reference = content.reference();
                    let path = "/containerd.services.content.v1.Content/Abort";
                    let _: Result<(), Status> = self.unary(path, wire::AbortRequest { reference }).await;
                }
                written
            }
            Err(status) => Err(status.into()),
        };
        match stored {
            Ok(()) => Ok(()),
            Err(Failure::IsHere) => {
                let labelled = self.label(&content.descriptor.digest, &content.labels).await;
                labelled.map_err(|status| store(&what, status))
            }
            Err(Failure::Registry(error)) => Err(error.into()),
            Err(Failure::Containerd(status)) => Err(store(&what, status)),
        }
    }

    /// Begins to write, or goes on: with how much is here.
    async fn begin(&self, first: wire::WriteContentRequest, lease: &str) -> Result<(Writing, i64), Status> {
        let mut grpc = self.grpc.clone();
        grpc.ready().await.map_err(|e| Status::unavailable(format!("reach containerd: {e}")))?;
        let (requests, queue) = mpsc::channel(1);
        // containerd answers nothing, its headers neither, before the first message.
        requests.send(first).await.map_err(|_| Status::internal("the queue is closed"))?;
        let codec = ProstCodec::<wire::WriteContentRequest, wire::WriteContentResponse>::default();
        let path = PathAndQuery::from_static("/containerd.services.content.v1.Content/Write");
        let mut request = self.request(ReceiverStream::new(queue));
        let lease =
            MetadataValue::try_from(lease).map_err(|e| Status::internal(format!("lease {lease:?}: {e}")))?;
        request.metadata_mut().insert("containerd-lease", lease);
        let answers = grpc.streaming(request, path, codec).await?.into_inner();
        let mut writing = Writing { requests, answers };
        let here = writing.answer().await?;
        Ok((writing, here))
    }

    pub(super) async fn label(&self, digest: &str, labels: &HashMap<String, String>) -> Result<(), Status> {
        if labels.is_empty() {
            return Ok(());
        }
        let paths = labels.keys().map(|label| format!("labels.{label}")).collect();
        let info = wire::ContentInfo { digest: digest.to_owned(), labels: labels.clone() };
        let update_mask = Some(wire::FieldMask { paths });
        let request = wire::UpdateContentRequest { info: Some(info), update_mask };
        self.unary("/containerd.services.content.v1.Content/Update", request).await
    }

    /// Has the name stand for this document, whatever it stood for.
    async fn name(&self, name: &str, target: Option<Descriptor>) -> Result<(), Status> {
        let created_at = Some(clock::proto(clock::now()));
        let image = Image { name: name.to_owned(), labels: HashMap::new(), target, created_at };
        let request = wire::PutImageRequest { image: Some(image) };
        let path = "/containerd.services.images.v1.Images/Create";
        match self.unary(path, request.clone()).await {
            Err(status) if status.code() == Code::AlreadyExists => {
                self.unary("/containerd.services.images.v1.Images/Update", request).await
            }
            done => done,
        }
    }
}

/// Writes what is not here yet. What an earlier pull left of it is written over.
async fn write(mut writing: Writing, here: i64, content: &mut Content<'_>) -> Result<(), Failure> {
    let size = content.descriptor.size;
    let mut offset = if here == size { size } else { 0 };
    while offset < size || here != size {
        // Behind its last piece a registry's blob compares its digest.
        let Some(data) = content.source.piece().await.map_err(Failure::Registry)? else { break };
        let start = offset;
        offset += i64::try_from(data.len()).unwrap_or(i64::MAX);
        let request = content.request(WriteAction::Write);
        writing.send(wire::WriteContentRequest { offset: start, data, ..request }).await?;
    }
    let last = wire::WriteContentRequest {
        offset,
        labels: content.labels.clone(),
        action: WriteAction::Commit.into(),
        ..content.first()
    };
    writing.send(last).await?;
    Ok(())
}

fn store(what: &str, status: Status) -> FetchError {
    FetchError::Store { what: what.to_owned(), status }
}

fn descriptor(blob: &Blob) -> Descriptor {
    Descriptor {
        media_type: blob.media_type.clone(),
        digest: format!("sha256:{}", blob.digest),
        size: i64::try_from(blob.size).unwrap_or(i64::MAX),
    }
}

/// A manifest keeps its config and layers.
fn manifest_labels(image: &registry::Image) -> HashMap<String, String> {
    let layers = image.manifest.layers.iter().enumerate();
    let layers = layers.map(|(index, layer)| (format!("{KEEPS}.l.{index}"), layer.digest));
    let all = layers.chain([(format!("{KEEPS}.config"), image.manifest.config.digest)]);
    all.map(|(label, digest)| (label, format!("sha256:{digest}"))).collect()
}

/// Content that is being written: each message has its answer.
struct Writing {
    requests: mpsc::Sender<wire::WriteContentRequest>,
    answers: Streaming<wire::WriteContentResponse>,
}

impl Writing {
    async fn send(&mut self, request: wire::WriteContentRequest) -> Result<i64, Status> {
        // Where the stream has ended, the answer says why.
        let _ = self.requests.send(request).await;
        self.answer().await
    }

    /// How much is here.
    async fn answer(&mut self) -> Result<i64, Status> {
        let answer = self.answers.message().await?;
        let ended = || Status::data_loss("containerd ended the write");
        answer.map(|answer| answer.offset).ok_or_else(ended)
    }
}
