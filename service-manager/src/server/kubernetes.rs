//! Calls about Kubernetes: the bootstrap of a cluster, its kubeconfig.
//!
//! Owns: the codes of the answers. Source: docs/users/kubernetes.md.

use std::io;
use std::time::Duration;

use api::proto::common;
use api::proto::machine as proto;
use flate2::Compression;
use flate2::write::GzEncoder;
use kubernetes_node::etcd::BootstrapError;
use kubernetes_node::{Error, KubernetesNode};
use tonic::{Status, Streaming};

use crate::node::Node;

/// For the next part of a snapshot.
const PART_DEADLINE: Duration = Duration::from_secs(60);
/// The only file of the answer, as clients look for it.
const FILE: &str = "kubeconfig";

pub(super) fn of(node: &Node) -> Result<&KubernetesNode, Status> {
    node.kubernetes
        .get()
        .ok_or_else(|| Status::unavailable("machined has not started far enough yet; try again"))
}

/// `Bootstrap`: answers when the request is on the disk.
pub(super) async fn bootstrap(
    node: &Node,
    request: proto::BootstrapRequest,
) -> Result<proto::BootstrapResponse, Status> {
    let kubernetes = of(node)?;
    let begun = match request.recover_etcd {
        true => kubernetes.recover(request.recover_skip_hash_check).await,
        false => kubernetes.bootstrap().await,
    };
    begun.map_err(|error| refused(&error))?;
    Ok(proto::BootstrapResponse { messages: vec![proto::Bootstrap::default()] })
}

/// `EtcdRecover`: the snapshot is on the disk when it answers. A bootstrap makes use of it.
pub(super) async fn receive_snapshot(
    node: &Node,
    mut parts: Streaming<common::Data>,
) -> Result<proto::EtcdRecoverResponse, Status> {
    let mut upload = of(node)?.receive_snapshot().await.map_err(|error| refused(&error))?;
    loop {
        let part = tokio::time::timeout(PART_DEADLINE, parts.message()).await;
        let late = |_| {
            let seconds = PART_DEADLINE.as_secs();
            Status::deadline_exceeded(format!(
                "nothing more of the snapshot came within {seconds} s; send it again"
            ))
        };
        match part.map_err(late)?? {
            Some(part) => upload.push(&part.bytes).await.map_err(|error| refused(&error))?,
            None => break,
        }
    }
    upload.finish().await.map_err(|error| failed(&error))?;
    Ok(proto::EtcdRecoverResponse { messages: vec![proto::EtcdRecover::default()] })
}

fn refused(error: &BootstrapError) -> Status {
    let text = error.to_string();
    match error {
        BootstrapError::HasData | BootstrapError::UnderWay | BootstrapError::Joins => {
            Status::already_exists(text)
        }
        BootstrapError::Worker
        | BootstrapError::NotYet(_)
        | BootstrapError::NoTime
        | BootstrapError::NoSnapshot
        | BootstrapError::Answers { .. } => Status::failed_precondition(text),
        BootstrapError::Snapshot(_) | BootstrapError::TooLong(_) => Status::invalid_argument(text),
        BootstrapError::Other(error) => failed(error),
    }
}

pub(super) fn failed(error: &Error) -> Status {
    let text = error.to_string();
    match error {
        Error::File { .. } | Error::Certificate { .. } => Status::internal(text),
        Error::Etcd { .. } => Status::unavailable(text),
        _ => Status::failed_precondition(text),
    }
}

/// `Kubeconfig`: a tar.gz with one file.
pub(super) fn kubeconfig(node: &Node) -> Result<common::Data, Status> {
    let text = of(node)?.admin_kubeconfig().map_err(|error| failed(&error))?;
    let packed = packed(text.expose_secret().as_bytes());
    let bytes = packed.map_err(|error| Status::internal(format!("pack the kubeconfig: {error}")))?;
    Ok(common::Data { metadata: None, bytes })
}

fn packed(content: &[u8]) -> io::Result<Vec<u8>> {
    let mut tar = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    let mut header = tar::Header::new_gnu();
    header.set_size(content.len() as u64);
    header.set_mode(0o600);
    header.set_entry_type(tar::EntryType::Regular);
    tar.append_data(&mut header, FILE, content)?;
    tar.into_inner()?.finish()
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::sync::Arc;

    use config::v1alpha1::MachineType;
    use tonic::Code;

    use super::*;
    use crate::server::tests::{cluster_config as config, fixture};

    #[tokio::test]
    async fn a_kubeconfig_is_given_before_there_is_a_cluster() {
        let f = fixture().await;
        f.node.runtime.config.send_replace(Some(Arc::new(config(MachineType::ControlPlane))));
        let mut stream = f.machine().kubeconfig(()).await.unwrap().into_inner();
        let mut bytes = Vec::new();
        while let Some(part) = stream.message().await.unwrap() {
            bytes.extend(part.bytes);
        }
        let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(&bytes[..]));
        let mut entry = archive.entries().unwrap().next().unwrap().unwrap();
        assert_eq!(
            (entry.path().unwrap().to_str(), entry.header().mode().unwrap()),
            (Some("kubeconfig"), 0o600)
        );
        let mut text = String::new();
        entry.read_to_string(&mut text).unwrap();
        assert!(
            text.contains("current-context: admin@demo") && text.contains("https://10.0.0.3:6443"),
            "{text}"
        );
    }

    #[tokio::test]
    async fn a_snapshot_is_refused_where_a_bootstrap_is() {
        let f = fixture().await;
        let send = async || {
            let parts = [b"one".to_vec(), b"two".to_vec()];
            let parts = parts.map(|bytes| common::Data { metadata: None, bytes });
            f.machine().etcd_recover(tokio_stream::iter(parts)).await.unwrap_err()
        };
        assert_eq!(send().await.message(), "the node has no machine configuration yet");
        f.node.runtime.config.send_replace(Some(Arc::new(config(MachineType::Worker))));
        assert_eq!(send().await.message(), "bootstrap can only be performed on a control plane node");
        f.node.runtime.config.send_replace(Some(Arc::new(config(MachineType::ControlPlane))));
        // What /var is has to be known before anything is written there.
        assert!(send().await.message().starts_with("bootstrap is not available yet: "));
        assert!(!f.node.runtime.path("/var/lib/etcd.snapshot.part").exists());
    }

    #[tokio::test]
    async fn a_bootstrap_that_cannot_be_says_why() {
        let f = fixture().await;
        let ask = async |recover_etcd| {
            let request = proto::BootstrapRequest { recover_etcd, ..Default::default() };
            f.machine().bootstrap(request).await.unwrap_err()
        };
        for recover in [true, false] {
            assert_eq!(ask(recover).await.message(), "the node has no machine configuration yet");
        }
        f.node.runtime.config.send_replace(Some(Arc::new(config(MachineType::Worker))));
        let status = ask(false).await;
        assert_eq!(status.code(), Code::FailedPrecondition);
        assert_eq!(status.message(), "bootstrap can only be performed on a control plane node");
        f.node.runtime.config.send_replace(Some(Arc::new(config(MachineType::ControlPlane))));
        assert!(ask(false).await.message().starts_with("bootstrap is not available yet: "));
        let directory = f.node.runtime.path("/var/lib/etcd/member");
        std::fs::create_dir_all(directory).unwrap();
        let status = ask(false).await;
        assert_eq!(status.code(), Code::AlreadyExists);
        assert!(status.message().starts_with("etcd data directory is not empty"), "{status}");
        let status = f.machine().etcd_member_list(proto::EtcdMemberListRequest::default()).await.unwrap_err();
        assert!(status.message().starts_with("etcd has not started on this node yet"), "{status}");
    }
}
