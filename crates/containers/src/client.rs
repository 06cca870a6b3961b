//! The connection, and the calls that look: what is here, what runs.
//!
//! Fails by: a gRPC status; a socket that nothing serves is `Unavailable` after [`CONNECT_DEADLINE`].

use std::path::{Path, PathBuf};
use std::time::Duration;

use http::uri::PathAndQuery;
use hyper_util::rt::TokioIo;
use prost::Message;
use tokio::net::UnixStream;
use tonic::client::Grpc;
use tonic::metadata::MetadataValue;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;

use super::wire::{Container, Descriptor, Image, Ingest, Task};
use super::{size, wire};

/// How long containerd may take to accept a connection.
const CONNECT_DEADLINE: Duration = Duration::from_secs(5);
/// Largest answer: a list of some thousand images.
const MAX_MESSAGE_BYTES: usize = 32 << 20;
/// Largest manifest or index that is read.
const MAX_MANIFEST_BYTES: usize = 4 << 20;
/// The namespace of Kubernetes' interface.
const KUBERNETES: &str = "k8s.io";
/// `grpc.health.v1` SERVING.
const SERVING: i32 = 1;
/// SIGTERM.
const TERMINATE: u32 = 15;

/// containerd, seen from one of its namespaces.
#[derive(Debug, Clone)]
pub struct Client {
    pub(super) grpc: Grpc<Channel>,
    namespace: &'static str,
}

impl Client {
    /// A client; the connection is made by the first call.
    pub fn new(socket: &Path, namespace: &'static str) -> Self {
        let socket: PathBuf = socket.to_owned();
        let connector = tower::service_fn(move |_| {
            let socket = socket.clone();
            async move { UnixStream::connect(socket).await.map(TokioIo::new) }
        });
        let endpoint = Endpoint::from_static("http://containerd").connect_timeout(CONNECT_DEADLINE);
        let grpc = Grpc::new(endpoint.connect_with_connector_lazy(connector));
        Self { grpc: grpc.max_decoding_message_size(MAX_MESSAGE_BYTES), namespace }
    }

    pub(super) fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        let namespace = MetadataValue::from_static(self.namespace);
        request.metadata_mut().insert("containerd-namespace", namespace);
        request
    }

    pub(super) async fn unary<Q, A>(&self, path: &'static str, message: Q) -> Result<A, Status>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        self.unary_of(path, message, None).await
    }

    /// A call whose results a lease keeps.
    pub(super) async fn unary_of<Q, A>(
        &self,
        path: &'static str,
        message: Q,
        lease: Option<&str>,
    ) -> Result<A, Status>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let mut request = self.request(message);
        if let Some(lease) = lease {
            let lease = MetadataValue::try_from(lease);
            let lease = lease.map_err(|error| Status::internal(format!("lease: {error}")))?;
            request.metadata_mut().insert("containerd-lease", lease);
        }
        let mut grpc = self.grpc.clone();
        grpc.ready().await.map_err(|e| Status::unavailable(format!("reach containerd: {e}")))?;
        let codec = ProstCodec::<Q, A>::default();
        let path = PathAndQuery::from_static(path);
        grpc.unary(request, path, codec).await.map(Response::into_inner)
    }

    /// Whether it serves, by its own word.
    pub async fn health(&self) -> Result<(), Status> {
        let request = wire::HealthCheckRequest::default();
        let answer: wire::HealthCheckResponse = self.unary("/grpc.health.v1.Health/Check", request).await?;
        if answer.status == SERVING {
            return Ok(());
        }
        Err(Status::unavailable(format!("containerd says that it does not serve (status {})", answer.status)))
    }

    /// The containers, sorted by id.
    pub async fn containers(&self) -> Result<Vec<Container>, Status> {
        let path = "/containerd.services.containers.v1.Containers/List";
        let answer: wire::ListContainersResponse = self.unary(path, wire::FilterRequest::default()).await?;
        let mut containers = answer.containers;
        containers.sort_by(|a, b| a.id.cmp(&b.id));
        Ok(containers)
    }

    /// The tasks: what runs of the containers.
    pub async fn tasks(&self) -> Result<Vec<Task>, Status> {
        let path = "/containerd.services.tasks.v1.Tasks/List";
        let answer: wire::ListTasksResponse = self.unary(path, wire::ListTasksRequest::default()).await?;
        Ok(answer.tasks)
    }

    /// Asks every process of a container to end.
    pub async fn terminate(&self, container: &str) -> Result<(), Status> {
        let request = wire::KillRequest { container_id: container.to_owned(), signal: TERMINATE, all: true };
        self.unary("/containerd.services.tasks.v1.Tasks/Kill", request).await
    }

    /// The images, sorted by name.
    pub async fn images(&self) -> Result<Vec<Image>, Status> {
        let path = "/containerd.services.images.v1.Images/List";
        let answer: wire::ListImagesResponse = self.unary(path, wire::FilterRequest::default()).await?;
        let mut images = answer.images;
        images.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(images)
    }

    /// Removes an image and waits until its content is gone.
    pub async fn remove_image(&self, name: &str) -> Result<(), Status> {
        let request = wire::DeleteImageRequest { name: name.to_owned(), sync: true };
        self.unary("/containerd.services.images.v1.Images/Delete", request).await
    }

    /// Whether its images are Kubernetes'.
    pub fn is_of_kubernetes(&self) -> bool {
        self.namespace == KUBERNETES
    }

    /// Has Kubernetes' interface pull an image for this node's platform into the image store under its reference.
    ///
    /// That one knows the registries of the machine config (mirrors, certificates, sign-ins) and the proxies, and unpacks.
    /// Images of other namespaces are [fetched](Self::fetch): containerd 1.7's transfer service knows none of these.
    pub async fn pull(&self, reference: &str) -> Result<(), Status> {
        let image = Some(wire::ImageSpec { image: reference.to_owned() });
        let request = wire::PullImageRequest { image };
        let path = "/runtime.v1.ImageService/PullImage";
        self.unary::<_, wire::PullImageResponse>(path, request).await.map(drop)
    }

    /// What is being fetched now.
    pub async fn ingests(&self) -> Result<Vec<Ingest>, Status> {
        let path = "/containerd.services.content.v1.Content/ListStatuses";
        let answer: wire::ListStatusesResponse = self.unary(path, wire::FilterRequest::default()).await?;
        Ok(answer.statuses)
    }

    /// Bytes of an image's config and layers for this platform.
    pub async fn image_size(&self, target: &Descriptor) -> Result<i64, Status> {
        let first = self.manifest(&target.digest).await?;
        let manifest = match size::for_this_platform(&first) {
            Some(digest) => self.manifest(&digest).await?,
            None => first,
        };
        Ok(manifest.size())
    }

    pub(super) async fn manifest(&self, digest: &str) -> Result<size::Manifest, Status> {
        let bytes = self.content(digest).await?;
        serde_json::from_slice(&bytes).map_err(|e| Status::data_loss(format!("manifest {digest}: {e}")))
    }

    /// Bytes of a document of the store, which is small: a manifest.
    pub async fn content(&self, digest: &str) -> Result<Vec<u8>, Status> {
        let mut grpc = self.grpc.clone();
        grpc.ready().await.map_err(|e| Status::unavailable(format!("reach containerd: {e}")))?;
        let request = wire::ReadContentRequest { digest: digest.to_owned(), offset: 0, size: 0 };
        let path = PathAndQuery::from_static("/containerd.services.content.v1.Content/Read");
        let codec = ProstCodec::<wire::ReadContentRequest, wire::ReadContentResponse>::default();
        let mut stream = grpc.server_streaming(self.request(request), path, codec).await?.into_inner();
        let mut bytes = Vec::new();
        while let Some(part) = stream.message().await? {
            bytes.extend(part.data);
            if bytes.len() > MAX_MANIFEST_BYTES {
                return Err(Status::resource_exhausted(format!(
                    "manifest {digest} is larger than {MAX_MANIFEST_BYTES} bytes"
                )));
            }
        }
        Ok(bytes)
    }
}
