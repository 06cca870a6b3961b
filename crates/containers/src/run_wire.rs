//! The messages of containerd's API by which containers are made, run and removed.
//!
//! Field numbers are those of containerd's published protobuf files (containerd.services.{containers,diff,images,snapshots,
//! tasks}.v1, containerd.types.Mount). Fields that nothing here reads or sets are left out.

use std::collections::HashMap;

use super::wire::{Container, Descriptor, Image, Task};

/// `containerd.types.Mount`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Mount {
    #[prost(string, tag = "1")]
    pub(super) kind: String,
    #[prost(string, tag = "2")]
    pub(super) source: String,
    #[prost(string, tag = "3")]
    pub(super) target: String,
    #[prost(string, repeated, tag = "4")]
    pub(super) options: Vec<String>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct GetImageRequest {
    #[prost(string, tag = "1")]
    pub(super) name: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct GetImageResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) image: Option<Image>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct PrepareSnapshotRequest {
    #[prost(string, tag = "1")]
    pub(super) snapshotter: String,
    #[prost(string, tag = "2")]
    pub(super) key: String,
    #[prost(string, tag = "3")]
    pub(super) parent: String,
    #[prost(map = "string, string", tag = "4")]
    pub(super) labels: HashMap<String, String>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct MountsResponse {
    #[prost(message, repeated, tag = "1")]
    pub(super) mounts: Vec<Mount>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct CommitSnapshotRequest {
    #[prost(string, tag = "1")]
    pub(super) snapshotter: String,
    #[prost(string, tag = "2")]
    pub(super) name: String,
    #[prost(string, tag = "3")]
    pub(super) key: String,
    #[prost(map = "string, string", tag = "4")]
    pub(super) labels: HashMap<String, String>,
}

/// `StatSnapshotRequest`, and `RemoveSnapshotRequest`, which has the same fields.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct SnapshotRequest {
    #[prost(string, tag = "1")]
    pub(super) snapshotter: String,
    #[prost(string, tag = "2")]
    pub(super) key: String,
}

/// `containerd.services.diff.v1.ApplyRequest`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ApplyDiffRequest {
    #[prost(message, optional, tag = "1")]
    pub(super) diff: Option<Descriptor>,
    #[prost(message, repeated, tag = "2")]
    pub(super) mounts: Vec<Mount>,
}

/// `CreateContainerRequest`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct CreateContainerRequest {
    #[prost(message, optional, tag = "1")]
    pub(super) container: Option<Container>,
}

/// Requests that name a container alone: its removal, and what is asked of its task.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ContainerRequest {
    #[prost(string, tag = "1")]
    pub(super) id: String,
}

/// `containerd.services.tasks.v1.CreateTaskRequest`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct CreateTaskRequest {
    #[prost(string, tag = "1")]
    pub(super) container_id: String,
    #[prost(message, repeated, tag = "3")]
    pub(super) rootfs: Vec<Mount>,
    #[prost(string, tag = "5")]
    pub(super) stdout: String,
    #[prost(string, tag = "6")]
    pub(super) stderr: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct CreateTaskResponse {
    #[prost(uint32, tag = "2")]
    pub(super) pid: u32,
}

/// `WaitResponse`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct WaitResponse {
    #[prost(uint32, tag = "1")]
    pub(super) exit_status: u32,
}

/// `containerd.services.tasks.v1.GetResponse`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct GetTaskResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) process: Option<Task>,
}
