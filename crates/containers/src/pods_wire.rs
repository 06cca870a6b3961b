//! The messages of Kubernetes' interface of containerd (CRI) by which pods are found and stopped.
//!
//! Field numbers are those of Kubernetes' published protobuf file (`runtime.v1`, k8s.io/cri-api). Fields that nothing here
//! reads or sets are left out.

use std::collections::HashMap;

/// `ListPodSandboxRequest`, `ListContainersRequest`: without a filter, which means all.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ListRequest {}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ListPodSandboxResponse {
    #[prost(message, repeated, tag = "1")]
    pub(super) items: Vec<PodSandbox>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct PodSandbox {
    #[prost(string, tag = "1")]
    pub(super) id: String,
    #[prost(message, optional, tag = "2")]
    pub(super) metadata: Option<PodSandboxMetadata>,
    /// 0 ready, 1 not.
    #[prost(int32, tag = "3")]
    pub(super) state: i32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct PodSandboxMetadata {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, tag = "3")]
    pub(super) namespace: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct PodSandboxStatusRequest {
    #[prost(string, tag = "1")]
    pub(super) pod_sandbox_id: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct PodSandboxStatusResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) status: Option<PodSandboxStatus>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct PodSandboxStatus {
    #[prost(message, optional, tag = "6")]
    pub(super) linux: Option<LinuxPodSandboxStatus>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct LinuxPodSandboxStatus {
    #[prost(message, optional, tag = "1")]
    pub(super) namespaces: Option<Namespaces>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Namespaces {
    #[prost(message, optional, tag = "2")]
    pub(super) options: Option<NamespaceOption>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct NamespaceOption {
    /// 0 the pod's own, 2 the host's.
    #[prost(int32, tag = "1")]
    pub(super) network: i32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ListContainersResponse {
    #[prost(message, repeated, tag = "1")]
    pub(super) containers: Vec<Container>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Container {
    #[prost(string, tag = "1")]
    pub(super) id: String,
    #[prost(string, tag = "2")]
    pub(super) pod_sandbox_id: String,
    /// 0 created, 1 running, 2 exited.
    #[prost(int32, tag = "6")]
    pub(super) state: i32,
    #[prost(map = "string, string", tag = "9")]
    pub(super) annotations: HashMap<String, String>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct StopContainerRequest {
    #[prost(string, tag = "1")]
    pub(super) container_id: String,
    /// Seconds between SIGTERM and SIGKILL.
    #[prost(int64, tag = "2")]
    pub(super) timeout: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct StopPodSandboxRequest {
    #[prost(string, tag = "1")]
    pub(super) pod_sandbox_id: String,
}

/// `StopContainerResponse`, `StopPodSandboxResponse`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Nothing {}
