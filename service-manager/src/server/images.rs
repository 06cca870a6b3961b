//! Images of containerd: the older calls of `MachineService` and the `machine.ImageService`.
//!
//! Owns: progress of a pull, from what containerd has fetched so far; imports, which are installer images.
//! Does not: unpack. Kubernetes' containerd fetches its images, the node those of the system. Judge signatures: `upgrade` does, by the config's rules.
//! Source: crates/api/proto/machine/machine.proto; docs/users/commands.md.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::proto::common::ContainerdNamespace;
use api::proto::machine as proto;
use api::proto::machine::image_service_import_request::Request as ImportRequest;
use api::proto::machine::image_service_pull_layer_progress::Status as LayerStatus;
use api::proto::machine::image_service_pull_response::Response as PullResponse;
use api::proto::machine::image_service_server::ImageService;
use runtime::request;
use tokio::time::Instant;
use tonic::{Request, Response, Status, Streaming};

use super::answers::{Answers, Sender, answer_with, answers};
use super::{containers, query};
use crate::node::Node;
use crate::upgrade::import::Import;
use ::containers::{Client, FetchError, Image};

/// Between two looks at what was fetched.
const PROGRESS_PERIOD: Duration = Duration::from_millis(250);
/// How long a pull may take (an upgrade waits as long for its image).
const PULL_DEADLINE: Duration = Duration::from_secs(20 * 60);

/// `MachineService.ImageList`.
pub(super) fn legacy_list(
    node: &Node,
    namespace: i32,
) -> Result<Response<Answers<proto::ImageListResponse>>, Status> {
    let client = containers::by_number(node, namespace)?;
    let (sender, answer) = answers();
    request::feed(sender.clone(), async move {
        let _ = send_images(&client, &sender, |image, size| {
            let digest = image.target.map(|target| target.digest).unwrap_or_default();
            let (name, created_at) = (image.name, image.created_at);
            proto::ImageListResponse { metadata: None, name, digest, size, created_at }
        })
        .await;
    });
    Ok(answer)
}

/// Sends one message an image. An image whose manifest cannot be read is listed with size 0.
async fn send_images<T>(
    client: &Client,
    sender: &Sender<T>,
    message: impl Fn(Image, i64) -> T,
) -> Result<(), ()> {
    let images = match client.images().await {
        Ok(images) => images,
        Err(status) => return sender.send(Err(status)).await.map_err(drop),
    };
    for image in images {
        let size = match &image.target {
            Some(target) => client.image_size(target).await.unwrap_or(0),
            None => 0,
        };
        sender.send(Ok(message(image, size))).await.map_err(drop)?;
    }
    Ok(())
}

/// `MachineService.ImagePull`.
pub(super) async fn legacy_pull(
    node: &Node,
    request: &proto::ImagePullRequest,
) -> Result<proto::ImagePullResponse, Status> {
    let reference = reference(&request.reference)?;
    let client = containers::by_number(node, request.namespace)?;
    let name = crate::upgrade::admit(&node.runtime, reference).await?;
    pull(node, &client, &name).await?;
    Ok(proto::ImagePullResponse { messages: vec![proto::ImagePull::default()] })
}

async fn pull(node: &Node, client: &Client, reference: &str) -> Result<(), Status> {
    let pulling = async {
        if client.is_of_kubernetes() {
            return client.pull(reference).await;
        }
        let registry = crate::upgrade::registry_of(&node.runtime, reference)?;
        client.fetch(reference, &registry).await.map_err(not_fetched)
    };
    match tokio::time::timeout(PULL_DEADLINE, pulling).await {
        Ok(pulled) => pulled,
        Err(_) => {
            let minutes = PULL_DEADLINE.as_secs() / 60;
            let text = format!("pull {reference}: not done within {minutes} min (deadline pull)");
            Err(Status::deadline_exceeded(text))
        }
    }
}

fn not_fetched(error: FetchError) -> Status {
    match error {
        FetchError::Registry(error) => crate::upgrade::Failure::from(error).into(),
        FetchError::Store { what, status } => {
            Status::new(status.code(), format!("store {what}: {}", status.message()))
        }
    }
}

/// A reference as containerd wants it: with a registry and a tag or digest.
pub(super) fn reference(text: &str) -> Result<&str, Status> {
    let fail =
        |why: &str| Err(Status::invalid_argument(format!("image reference {}: {why}", query::quoted(text))));
    if text.contains(char::is_whitespace) || text.is_empty() || text.ends_with('/') {
        return fail("use host/path:tag or host/path@sha256:…");
    }
    let names_registry = |(host, _): (&str, &str)| host.contains(['.', ':']) || host == "localhost";
    let Some((_, path)) = text.split_once('/').filter(|parts| names_registry(*parts)) else {
        return fail(&format!(
            "it names no registry, and this node has none by default: write {}",
            with_registry(&query::shortened(text))
        ));
    };
    if !path.contains([':', '@']) {
        return fail("name a tag or digest: host/path:tag");
    }
    Ok(text)
}

/// What a client meant by a short name: other systems complete it in this way for their default registry.
fn with_registry(short: &str) -> String {
    let library = if short.contains('/') { "" } else { "library/" };
    let last = short.rsplit('/').next().unwrap_or(short);
    let tag = if last.contains([':', '@']) { "" } else { ":latest" };
    format!("HOST/{library}{short}{tag}, with the host of your registry for HOST")
}

/// The service.
pub(crate) struct Images {
    pub(crate) node: Arc<Node>,
}

#[tonic::async_trait]
impl ImageService for Images {
    type ListStream = Answers<proto::ImageServiceListResponse>;
    type PullStream = Answers<proto::ImageServicePullResponse>;

    async fn list(
        &self,
        request: Request<proto::ImageServiceListRequest>,
    ) -> Result<Response<Self::ListStream>, Status> {
        let client = containers::by_instance(&self.node, request.into_inner().containerd)?;
        let (sender, answer) = answers();
        request::feed(sender.clone(), async move {
            let _ = send_images(&client, &sender, |image, size| proto::ImageServiceListResponse {
                digest: image.target.map(|target| target.digest).unwrap_or_default(),
                name: image.name,
                size,
                created_at: image.created_at,
                labels: image.labels,
            })
            .await;
        });
        Ok(answer)
    }

    async fn pull(
        &self,
        request: Request<proto::ImageServicePullRequest>,
    ) -> Result<Response<Self::PullStream>, Status> {
        let request = request.into_inner();
        let name = crate::upgrade::admit(&self.node.runtime, reference(&request.image_ref)?).await?;
        let for_system = request.containerd.is_none_or(|i| i.namespace() != ContainerdNamespace::NsCri);
        if for_system && crate::upgrade::is_installer_image(&self.node.runtime, &name).await {
            // Its blobs are read where they are installed; containerd would keep a copy that nobody needs.
            let done = proto::ImageServicePullResponse { response: Some(PullResponse::Name(name)) };
            return Ok(answer_with(vec![Ok(done)]));
        }
        let client = containers::by_instance(&self.node, request.containerd)?;
        let node = self.node.clone();
        let (sender, answer) = answers();
        request::feed(sender.clone(), async move {
            let last = match pull_with_progress(&node, &client, &name, &sender).await {
                Ok(()) => Ok(proto::ImageServicePullResponse { response: Some(PullResponse::Name(name)) }),
                Err(status) => Err(status),
            };
            let _ = sender.send(last).await;
        });
        Ok(answer)
    }

    async fn import(
        &self,
        request: Request<Streaming<proto::ImageServiceImportRequest>>,
    ) -> Result<Response<proto::ImageServiceImportResponse>, Status> {
        let mut stream = request.into_inner();
        let mut import = Import::begin(&self.node.upgrades).await?;
        while let Some(message) = stream.message().await? {
            match message.request {
                Some(ImportRequest::Containerd(instance))
                    if instance.namespace() == ContainerdNamespace::NsCri =>
                {
                    return Err(Status::unimplemented(
                        "import: Billet's installer images only, for the namespace system; Kubernetes' images are \
                         pulled",
                    ));
                }
                Some(ImportRequest::ImageChunk(chunk)) => import.push(chunk.bytes).await?,
                Some(ImportRequest::Containerd(_)) | None => {}
            }
        }
        let name = import.finish().await?;
        Ok(Response::new(proto::ImageServiceImportResponse { name }))
    }

    async fn remove(
        &self,
        request: Request<proto::ImageServiceRemoveRequest>,
    ) -> Result<Response<()>, Status> {
        let request = request.into_inner();
        let client = containers::by_instance(&self.node, request.containerd)?;
        client.remove_image(&request.image_ref).await.map(Response::new)
    }

    async fn verify(
        &self,
        request: Request<proto::ImageServiceVerifyRequest>,
    ) -> Result<Response<proto::ImageServiceVerifyResponse>, Status> {
        let found = crate::upgrade::verify(&self.node.runtime, &request.get_ref().image_ref).await?;
        let answer = proto::ImageServiceVerifyResponse {
            verified: found.is_signed,
            message: found.message,
            digested_image_ref: found.digested,
        };
        Ok(Response::new(answer))
    }
}

/// Pulls, and says meanwhile how much of each layer is here. A client that leaves ends the pull.
async fn pull_with_progress(
    node: &Node,
    client: &Client,
    name: &str,
    sender: &Sender<proto::ImageServicePullResponse>,
) -> Result<(), Status> {
    let pulling = pull(node, client, name);
    tokio::pin!(pulling);
    let mut ticks = tokio::time::interval(PROGRESS_PERIOD);
    let begin = Instant::now();
    let mut layers: BTreeMap<String, (i64, i64)> = BTreeMap::new();
    let gone = || Status::cancelled("the client is gone");
    loop {
        tokio::select! {
            pulled = &mut pulling => {
                for (layer, (_, total)) in layers {
                    let done = progress(&layer, LayerStatus::DownloadComplete, begin, total, total);
                    sender.send(Ok(done)).await.map_err(|_| gone())?;
                }
                return pulled;
            }
            () = sender.closed() => return Err(gone()),
            _ = ticks.tick() => {
                // Progress is a courtesy: the pull itself says what went wrong.
                for ingest in client.ingests().await.unwrap_or_default() {
                    let Some((_, digest)) = ingest.reference.split_once("layer-") else { continue };
                    let now = (ingest.offset, ingest.total);
                    if layers.insert(digest.to_owned(), now) != Some(now) {
                        let message = progress(digest, LayerStatus::Downloading, begin, now.0, now.1);
                        sender.send(Ok(message)).await.map_err(|_| gone())?;
                    }
                }
            }
        }
    }
}

fn progress(
    layer: &str,
    status: LayerStatus,
    begin: Instant,
    offset: i64,
    total: i64,
) -> proto::ImageServicePullResponse {
    let elapsed = prost_types::Duration::try_from(begin.elapsed()).ok();
    let progress = proto::ImageServicePullLayerProgress { status: status.into(), elapsed, offset, total };
    let progress = proto::ImageServicePullProgress { layer_id: layer.to_owned(), progress: Some(progress) };
    proto::ImageServicePullResponse { response: Some(PullResponse::PullProgress(progress)) }
}

#[cfg(test)]
mod tests {
    use api::proto::common::{ContainerdInstance, Data};
    use api::proto::machine::image_service_client::ImageServiceClient;

    use super::*;

    #[tokio::test]
    async fn an_archive_comes_in_by_chunks() {
        let f = crate::server::tests::fixture().await;
        let bytes = crate::upgrade::import::tests::archive("0.2.0");
        let chunk = |bytes: &[u8]| proto::ImageServiceImportRequest {
            request: Some(ImportRequest::ImageChunk(Data { metadata: None, bytes: bytes.to_vec() })),
        };
        let of = |namespace: ContainerdNamespace| proto::ImageServiceImportRequest {
            request: Some(ImportRequest::Containerd(ContainerdInstance {
                driver: 0,
                namespace: namespace.into(),
            })),
        };
        let mut client = ImageServiceClient::new(f.channel.clone());
        let mut messages = vec![of(ContainerdNamespace::NsSystem)];
        messages.extend(bytes.chunks(700).map(chunk));
        let name = client.import(tokio_stream::iter(messages.clone())).await.unwrap().into_inner().name;
        assert!(name.starts_with("imported.invalid/installer:0.2.0@sha256:"), "{name}");
        messages.pop();
        let cut = client.import(tokio_stream::iter(messages)).await.unwrap_err();
        assert_eq!(cut.code(), tonic::Code::Unavailable, "{cut:?}");
        let other = client.import(tokio_stream::iter([of(ContainerdNamespace::NsCri)])).await.unwrap_err();
        assert_eq!(other.code(), tonic::Code::Unimplemented);
        // It is refused like any other image on a node without a disk, and is there no more for an upgrade by name.
        let request = proto::UpgradeRequest { image: name, stage: true, ..Default::default() };
        let staged = f.machine().upgrade(request).await.unwrap_err();
        assert!(staged.message().contains("name an image in a registry"), "{staged:?}");
    }

    #[tokio::test]
    async fn without_a_rule_nothing_counts_as_verified() {
        let f = crate::server::tests::fixture().await;
        let mut client = ImageServiceClient::new(f.channel.clone());
        let request = |image_ref: &str| proto::ImageServiceVerifyRequest {
            image_ref: image_ref.to_owned(),
            credentials: None,
        };
        let wrong = client.verify(request("installer")).await.unwrap_err();
        assert_eq!(wrong.code(), tonic::Code::InvalidArgument);
        let digest = "0".repeat(64);
        let name = format!("r.example/installer@sha256:{digest}");
        let answer = client.verify(request(&name)).await.unwrap().into_inner();
        assert!(!answer.verified && answer.message.contains("were not looked at"), "{answer:?}");
        assert_eq!(answer.digested_image_ref, name);
    }

    #[test]
    fn image_pull_alpine_says_what_to_write() {
        for good in ["registry.example.org/pause:3.10", "localhost/a:b", "10.0.0.1:5000/x/y@sha256:0"] {
            assert_eq!(reference(good).unwrap(), good);
        }
        for (bad, why) in [
            (
                "alpine",
                "names no registry, and this node has none by default: write HOST/library/alpine:latest,",
            ),
            ("alpine:3", "write HOST/library/alpine:3,"),
            ("library/pause:1", "write HOST/library/pause:1,"),
            ("some/thing", "write HOST/some/thing:latest,"),
            ("registry.example.org/", "host/path:tag"),
            ("registry.example.org/pause", "name a tag"),
            ("registry.example.org/a b:1", "host/path:tag"),
        ] {
            let error = reference(bad).unwrap_err();
            assert!(error.message().contains(why), "{bad}: {}", error.message());
        }
    }
}
