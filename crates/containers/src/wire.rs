//! The messages of containerd's API that this node uses.
//!
//! Field numbers are those of containerd's published protobuf files (containerd.services.*.v1, containerd.types.*) and of
//! grpc.health.v1. Fields that nobody here reads are left out.

use std::collections::HashMap;

/// `grpc.health.v1.HealthCheckRequest`; an empty service means the whole server.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct HealthCheckRequest {
    #[prost(string, tag = "1")]
    pub(super) service: String,
}

/// `grpc.health.v1.HealthCheckResponse`; 1 is SERVING.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct HealthCheckResponse {
    #[prost(int32, tag = "1")]
    pub(super) status: i32,
}

/// Lists of containers, images and ingests take filters.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct FilterRequest {
    #[prost(string, repeated, tag = "1")]
    pub(super) filters: Vec<String>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ListContainersResponse {
    #[prost(message, repeated, tag = "1")]
    pub(super) containers: Vec<Container>,
}

/// `containerd.services.containers.v1.Container`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Container {
    /// Unique in its namespace.
    #[prost(string, tag = "1")]
    pub id: String,
    /// Labels, the CRI plugin's among them.
    #[prost(map = "string, string", tag = "2")]
    pub labels: HashMap<String, String>,
    /// Reference of its image.
    #[prost(string, tag = "3")]
    pub image: String,
    /// What runs it.
    #[prost(message, optional, tag = "4")]
    pub(crate) runtime: Option<ContainerRuntime>,
    /// Its OCI description.
    #[prost(message, optional, tag = "5")]
    pub(crate) spec: Option<prost_types::Any>,
    /// What its root is made with.
    #[prost(string, tag = "6")]
    pub(crate) snapshotter: String,
    /// Its root.
    #[prost(string, tag = "7")]
    pub(crate) snapshot_key: String,
}

/// `containerd.services.containers.v1.Container.Runtime`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ContainerRuntime {
    #[prost(string, tag = "1")]
    pub(super) name: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ListTasksRequest {
    #[prost(string, tag = "1")]
    pub(super) filter: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ListTasksResponse {
    #[prost(message, repeated, tag = "1")]
    pub(super) tasks: Vec<Task>,
}

/// `containerd.v1.types.Process`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Task {
    /// The container, when the next field is empty.
    #[prost(string, tag = "1")]
    pub container_id: String,
    /// The task; the container's id.
    #[prost(string, tag = "2")]
    pub id: String,
    /// Process id on the node.
    #[prost(uint32, tag = "3")]
    pub pid: u32,
    /// State.
    #[prost(enumeration = "TaskStatus", tag = "4")]
    pub status: i32,
    /// With which it ended, when it has.
    #[prost(uint32, tag = "9")]
    pub exit_status: u32,
}

/// `containerd.v1.types.Status`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
#[repr(i32)]
pub enum TaskStatus {
    /// Not known.
    Unknown = 0,
    /// Made, not started.
    Created = 1,
    /// Runs.
    Running = 2,
    /// Has ended.
    Stopped = 3,
    /// Frozen.
    Paused = 4,
    /// Being frozen.
    Pausing = 5,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct KillRequest {
    #[prost(string, tag = "1")]
    pub(super) container_id: String,
    #[prost(uint32, tag = "3")]
    pub(super) signal: u32,
    #[prost(bool, tag = "4")]
    pub(super) all: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ListImagesResponse {
    #[prost(message, repeated, tag = "1")]
    pub(super) images: Vec<Image>,
}

/// `containerd.services.images.v1.Image`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Image {
    /// Its reference.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Labels.
    #[prost(map = "string, string", tag = "2")]
    pub labels: HashMap<String, String>,
    /// Its manifest or index.
    #[prost(message, optional, tag = "3")]
    pub target: Option<Descriptor>,
    /// When the reference was made.
    #[prost(message, optional, tag = "7")]
    pub created_at: Option<prost_types::Timestamp>,
}

/// `containerd.types.Descriptor`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Descriptor {
    /// What it describes.
    #[prost(string, tag = "1")]
    pub media_type: String,
    /// `sha256:…`.
    #[prost(string, tag = "2")]
    pub digest: String,
    /// Bytes.
    #[prost(int64, tag = "3")]
    pub size: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct DeleteImageRequest {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    /// Wait until its content is gone.
    #[prost(bool, tag = "2")]
    pub(super) sync: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ReadContentRequest {
    #[prost(string, tag = "1")]
    pub(super) digest: String,
    #[prost(int64, tag = "2")]
    pub(super) offset: i64,
    #[prost(int64, tag = "3")]
    pub(super) size: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ReadContentResponse {
    #[prost(bytes = "vec", tag = "2")]
    pub(super) data: Vec<u8>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ListStatusesResponse {
    #[prost(message, repeated, tag = "1")]
    pub(super) statuses: Vec<Ingest>,
}

/// `containerd.services.content.v1.Status`: something that is being fetched.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Ingest {
    /// `<kind>-sha256:…`.
    #[prost(string, tag = "3")]
    pub reference: String,
    /// Bytes that are here.
    #[prost(int64, tag = "4")]
    pub offset: i64,
    /// Bytes in all, 0 when not known.
    #[prost(int64, tag = "5")]
    pub total: i64,
}

/// `containerd.services.content.v1.WriteContentRequest`: each is answered.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct WriteContentRequest {
    #[prost(enumeration = "WriteAction", tag = "1")]
    pub(super) action: i32,
    /// What is being fetched: an [`Ingest`] of this reference.
    #[prost(string, tag = "2")]
    pub(super) reference: String,
    #[prost(int64, tag = "3")]
    pub(super) total: i64,
    /// Its digest.
    #[prost(string, tag = "4")]
    pub(super) expected: String,
    #[prost(int64, tag = "5")]
    pub(super) offset: i64,
    #[prost(bytes = "vec", tag = "6")]
    pub(super) data: Vec<u8>,
    #[prost(map = "string, string", tag = "7")]
    pub(super) labels: HashMap<String, String>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct WriteContentResponse {
    #[prost(int64, tag = "4")]
    pub(super) offset: i64,
}

/// `containerd.services.content.v1.WriteAction`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
#[repr(i32)]
pub(super) enum WriteAction {
    /// Say how much is here.
    Stat = 0,
    /// Take this piece.
    Write = 1,
    /// That was all.
    Commit = 2,
}

/// `containerd.services.content.v1.AbortRequest`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct AbortRequest {
    #[prost(string, tag = "1")]
    pub(super) reference: String,
}

/// `containerd.services.content.v1.UpdateRequest`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct UpdateContentRequest {
    #[prost(message, optional, tag = "1")]
    pub(super) info: Option<ContentInfo>,
    /// `labels.<name>`
    #[prost(message, optional, tag = "2")]
    pub(super) update_mask: Option<FieldMask>,
}

/// `containerd.services.content.v1.Info`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ContentInfo {
    #[prost(string, tag = "1")]
    pub(super) digest: String,
    #[prost(map = "string, string", tag = "5")]
    pub(super) labels: HashMap<String, String>,
}

/// `google.protobuf.FieldMask`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct FieldMask {
    #[prost(string, repeated, tag = "1")]
    pub(super) paths: Vec<String>,
}

/// `containerd.services.leases.v1.CreateRequest`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct CreateLeaseRequest {
    #[prost(map = "string, string", tag = "3")]
    pub(super) labels: HashMap<String, String>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct CreateLeaseResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) lease: Option<Lease>,
}

/// `containerd.services.leases.v1.Lease`: what is written under it stays while it is there.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Lease {
    #[prost(string, tag = "1")]
    pub(super) id: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct DeleteLeaseRequest {
    #[prost(string, tag = "1")]
    pub(super) id: String,
    /// Wait until what nothing else keeps is gone.
    #[prost(bool, tag = "2")]
    pub(super) sync: bool,
}

/// `containerd.services.images.v1.CreateImageRequest`, and `UpdateImageRequest` of all fields.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct PutImageRequest {
    #[prost(message, optional, tag = "1")]
    pub(super) image: Option<Image>,
}

/// `runtime.v1.PullImageRequest`: of Kubernetes' container runtime interface.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct PullImageRequest {
    #[prost(message, optional, tag = "1")]
    pub(super) image: Option<ImageSpec>,
}

/// `runtime.v1.ImageSpec`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ImageSpec {
    #[prost(string, tag = "1")]
    pub(super) image: String,
}

/// `runtime.v1.PullImageResponse`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct PullImageResponse {
    #[prost(string, tag = "1")]
    pub(super) image_ref: String,
}
