//! Answers of several nodes.
//!
//! Owns: which node an answer is from, and parting answers from errors. Does not: print.
//! Source: crates/api/proto/common/common.proto (`Metadata`); docs/compatibility.md.

use crate::proto::{billet, cluster, common, inspect, machine, network, resource, storage, time};
use tonic::{Code, Status};

/// An element of an answer, or a message of a stream: it says which node it is from.
pub trait NodeMessage {
    /// What the forwarding node added; `None` if the endpoint answered for itself.
    fn metadata(&self) -> Option<&common::Metadata>;
}

macro_rules! node_messages {
    ($($package:ident: $($message:ident),+;)+) => {
        $($(impl NodeMessage for $package::$message {
            fn metadata(&self) -> Option<&common::Metadata> {
                self.metadata.as_ref()
            }
        })+)+
    };
}

node_messages! {
    machine: ApplyConfiguration, Bootstrap, Container, CpUsFreqStats, CpUsInfo, DiskStats, DiskUsageInfo, EtcdAlarm,
        EtcdAlarmDisarm, EtcdDefragment, EtcdDowngradeCancel, EtcdDowngradeEnable, EtcdDowngradeValidate,
        EtcdForfeitLeadership, EtcdLeaveCluster, EtcdMembers, EtcdRecover, EtcdRemoveMember, EtcdRemoveMemberById, EtcdStatus,
        Event, FileInfo, GenerateClientConfiguration, GenerateConfiguration, Hostname, ImageListResponse, ImagePull, LoadAvg, LogsContainer, Memory, MetaDelete, MetaWrite, Mounts, Netstat,
        NetworkDeviceStats, Process, Reboot, Reset, Restart, Rollback, ServiceList, ServiceRestart, ServiceStart,
        ServiceStop, Shutdown, Stats, SystemStat, Upgrade, Version;
    billet: RecoveryKeys, Unlock, RenewCertificates;
    common: Data;
    cluster: HealthCheckProgress;
    inspect: ControllerRuntimeDependency;
    network: Interfaces, Routes;
    resource: Get, ListResponse, WatchResponse;
    storage: BlockDeviceWipe, Disks;
    time: Time;
}

/// What one node could not do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeError {
    /// The node, as it was asked for.
    pub node: String,
    /// The error's text.
    pub message: String,
    /// Its code; `Unknown` where the node sent a text only.
    pub code: Code,
}

impl std::fmt::Display for NodeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.node, self.message)
    }
}

/// Answers and errors of one call, by node.
#[derive(Debug, Clone, PartialEq)]
pub struct Reply<T> {
    /// Node and what it answered.
    pub answers: Vec<(String, T)>,
    /// Nodes that failed.
    pub errors: Vec<NodeError>,
}

/// Parts the elements of an answer. An element without metadata is from `endpoint`.
pub fn sort<T: NodeMessage>(messages: Vec<T>, endpoint: &str) -> Reply<T> {
    let mut reply = Reply { answers: Vec::new(), errors: Vec::new() };
    for message in messages {
        match node_error(&message, endpoint) {
            Some(error) => reply.errors.push(error),
            None => reply.answers.push((node_name(&message, endpoint), message)),
        }
    }
    reply
}

/// The error that a message stands for, if it does.
pub fn node_error<T: NodeMessage>(message: &T, endpoint: &str) -> Option<NodeError> {
    let metadata = message.metadata().filter(|m| !m.error.is_empty())?;
    let node = node_name(message, endpoint);
    let Some(status) = &metadata.status else {
        return Some(NodeError { node, message: metadata.error.clone(), code: Code::Unknown });
    };
    Some(NodeError { node, message: status.message.clone(), code: Code::from(status.code) })
}

/// The node that a message is from.
pub(super) fn node_name<T: NodeMessage>(message: &T, endpoint: &str) -> String {
    message.metadata().map_or_else(|| endpoint.to_owned(), |m| m.hostname.clone())
}

impl<T> Reply<T> {
    /// The whole as an error if no node answered.
    ///
    /// # Errors
    /// The first node's code with every node's text.
    pub fn or_error(self) -> Result<Self, Status> {
        let Some(first) = self.errors.first().filter(|_| self.answers.is_empty()) else { return Ok(self) };
        let texts: Vec<_> = self.errors.iter().map(ToString::to_string).collect();
        Err(Status::new(first.code, texts.join("\n")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::google::rpc;

    fn hostname(metadata: Option<common::Metadata>) -> machine::Hostname {
        machine::Hostname { metadata, hostname: "h".into() }
    }

    fn from(node: &str, error: &str, status: Option<(i32, &str)>) -> common::Metadata {
        let status = status.map(|(code, m)| rpc::Status { code, message: m.into(), details: vec![] });
        common::Metadata { hostname: node.into(), error: error.into(), status }
    }

    #[test]
    fn answers_and_errors_are_parted_by_node() {
        let reply = sort(
            vec![
                hostname(None),
                hostname(Some(from("n1", "", None))),
                hostname(Some(from("n2", "rpc error: code = X desc = Y", Some((7, "not allowed"))))),
                hostname(Some(from("n3", "text only", None))),
            ],
            "10.0.0.1",
        );
        let nodes: Vec<_> = reply.answers.iter().map(|(n, _)| n.as_str()).collect();
        assert_eq!(nodes, ["10.0.0.1", "n1"]);
        let errors: Vec<_> = reply.errors.iter().map(ToString::to_string).collect();
        assert_eq!(errors, ["n2: not allowed", "n3: text only"]);
        assert_eq!(reply.errors[0].code, Code::PermissionDenied);
        assert!(reply.or_error().is_ok());
    }

    #[test]
    fn errors_alone_are_an_error() {
        let reply = sort(vec![hostname(Some(from("n2", "x", Some((14, "down")))))], "e");
        let status = reply.or_error().unwrap_err();
        assert_eq!((status.code(), status.message()), (Code::Unavailable, "n2: down"));
    }
}
