//! Which nodes a request is for.
//!
//! Source: spec/api-wire-facts.md §3.3.

use http::HeaderMap;
use tonic::Status;

/// How a request is answered.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// By this node, unmodified.
    Here,
    /// By one other node, unmodified.
    Node(String),
    /// By these, merged.
    Nodes(Vec<String>),
}

/// Nodes of one request: each costs a connection and an answer.
const MOST_NODES: usize = 256;

/// Services whose answers can be merged.
const MERGED: [&str; 7] = [
    "machine.MachineService",
    "cluster.ClusterService",
    "inspect.InspectService",
    "storage.StorageService",
    "time.TimeService",
    "resource.ResourceService",
    "network.NetworkService",
];

/// Calls that answer with a stream.
const STREAMS: [&str; 14] = [
    "/machine.MachineService/Copy",
    "/machine.MachineService/DiskUsage",
    "/machine.MachineService/Dmesg",
    "/machine.MachineService/Events",
    "/machine.MachineService/Kubeconfig",
    "/machine.MachineService/List",
    "/machine.MachineService/Logs",
    "/machine.MachineService/Read",
    "/machine.MachineService/EtcdSnapshot",
    "/machine.MachineService/ImageList",
    "/machine.MachineService/PacketCapture",
    "/resource.ResourceService/List",
    "/resource.ResourceService/Watch",
    "/cluster.ClusterService/HealthCheck",
];

/// Whether a call answers with a stream.
pub(crate) fn is_stream(path: &str) -> bool {
    STREAMS.contains(&path) || path.ends_with("Stream")
}

/// Reads `node`, `nodes` and `proxyfrom`.
pub(crate) fn target(path: &str, headers: &HeaderMap) -> Result<Target, Status> {
    if headers.contains_key("proxyfrom") {
        return Ok(Target::Here);
    }
    let values = |name: &str| -> Result<Vec<String>, Status> {
        let read = |value: &http::HeaderValue| value.to_str().map(str::to_owned);
        let all: Result<Vec<_>, _> = headers.get_all(name).iter().map(read).collect();
        let all = all.map_err(|_| Status::invalid_argument(format!("the header {name:?} is not text")))?;
        Ok(all.iter().flat_map(|value| value.split(',')).map(|value| value.trim().to_owned()).collect())
    };
    let (node, nodes) = (values("node")?, values("nodes")?);
    match (node.as_slice(), nodes.as_slice()) {
        ([], []) => Ok(Target::Here),
        ([only], _) if only.is_empty() => Ok(Target::Here),
        ([only], _) => Ok(Target::Node(only.clone())),
        ([], _) if !mergeable(path) => {
            Err(Status::invalid_argument(format!("{path} is answered by one node at a time: use \"node\"")))
        }
        ([], _) if nodes.len() > MOST_NODES => Err(Status::invalid_argument(format!(
            "the request names {} nodes: {MOST_NODES} are the most",
            nodes.len()
        ))),
        ([], _) => Ok(Target::Nodes(nodes.into_iter().filter(|node| !node.is_empty()).collect())),
        _ => Err(Status::invalid_argument("only one \"node\" may be given")),
    }
}

fn mergeable(path: &str) -> bool {
    path.trim_start_matches('/').split_once('/').is_some_and(|(service, _)| MERGED.contains(&service))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    const VERSION: &str = "/machine.MachineService/Version";

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in pairs {
            map.append(*name, HeaderValue::from_static(value));
        }
        map
    }

    #[test]
    fn headers_choose_the_target() {
        let of = |pairs: &[(&'static str, &'static str)]| target(VERSION, &headers(pairs));
        assert_eq!(of(&[]).unwrap(), Target::Here);
        assert_eq!(of(&[("node", "")]).unwrap(), Target::Here);
        assert_eq!(of(&[("node", "a")]).unwrap(), Target::Node("a".into()));
        assert!(of(&[("node", "a"), ("node", "b")]).is_err());
        assert_eq!(
            of(&[("nodes", "a"), ("nodes", "b")]).unwrap(),
            Target::Nodes(vec!["a".into(), "b".into()])
        );
        assert_eq!(of(&[("nodes", "a"), ("proxyfrom", "x")]).unwrap(), Target::Here);
    }

    #[test]
    fn unmergeable_services_want_one_node() {
        let state = "/cosi.resource.State/List";
        assert!(target(state, &headers(&[("nodes", "a")])).is_err());
        assert_eq!(target(state, &headers(&[("node", "a")])).unwrap(), Target::Node("a".into()));
        assert!(is_stream("/machine.MachineService/Logs") && !is_stream(VERSION));
    }
}
