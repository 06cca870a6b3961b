//! Which nodes a request is for.
//!
//! Source: the headers that clients of both generations send.

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

/// Calls of the same kind, of a service that has others too.
const MERGED_CALLS: [&str; 3] = [
    "/billet.MachineService/RecoveryKeys",
    "/billet.MachineService/RenewCertificates",
    "/billet.MachineService/Unlock",
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

/// Calls whose requests are long and go to one node: the body is passed on as it comes. For several it would be kept until it is whole.
const UPLOADS: [&str; 1] = ["/machine.MachineService/EtcdRecover"];

/// Whether a call answers with a stream.
pub(crate) fn is_stream(path: &str) -> bool {
    STREAMS.contains(&path) || path.ends_with("Stream")
}

/// Reads `node`, `nodes` and `proxyfrom`. However many names there are, it looks at one more than it may take.
pub(crate) fn target(path: &str, headers: &HeaderMap) -> Result<Target, Status> {
    if headers.contains_key("proxyfrom") {
        return Ok(Target::Here);
    }
    let node = first_names(headers, "node", 2)?;
    match node.as_slice() {
        [] => {}
        [""] => return Ok(Target::Here),
        [only] => return Ok(Target::Node((*only).to_owned())),
        _ => return Err(Status::invalid_argument("only one \"node\" may be given")),
    }
    if !headers.contains_key("nodes") {
        return Ok(Target::Here);
    }
    if !mergeable(path) {
        return Err(Status::invalid_argument(format!(
            "{path} is answered by one node at a time: use \"node\""
        )));
    }
    let nodes = first_names(headers, "nodes", MOST_NODES.saturating_add(1))?;
    if nodes.len() > MOST_NODES {
        return Err(Status::invalid_argument(format!(
            "the request names more than {MOST_NODES} nodes: send it to some of them at a time"
        )));
    }
    if UPLOADS.contains(&path) {
        return match nodes.as_slice() {
            [only] if !only.is_empty() => Ok(Target::Node((*only).to_owned())),
            _ => Err(Status::invalid_argument(format!("{path} goes to one node at a time"))),
        };
    }
    Ok(Target::Nodes(nodes.into_iter().filter(|node| !node.is_empty()).map(str::to_owned).collect()))
}

/// Up to `most` names of a header's values, each of which may be several with commas between them.
fn first_names<'a>(headers: &'a HeaderMap, name: &str, most: usize) -> Result<Vec<&'a str>, Status> {
    let mut names = Vec::new();
    for value in headers.get_all(name) {
        let left = most.saturating_sub(names.len());
        if left == 0 {
            break;
        }
        for part in value.as_bytes().split(|byte| *byte == b',').take(left) {
            let part = std::str::from_utf8(part)
                .map_err(|_| Status::invalid_argument(format!("the header {name:?} is not text")))?;
            names.push(part.trim());
        }
    }
    Ok(names)
}

fn mergeable(path: &str) -> bool {
    let is_of_service = |(service, _): (&str, &str)| MERGED.contains(&service);
    MERGED_CALLS.contains(&path) || path.trim_start_matches('/').split_once('/').is_some_and(is_of_service)
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
    fn a_snapshot_goes_to_one_node_as_it_comes() {
        let of = |pairs: &[(&'static str, &'static str)]| target(UPLOADS[0], &headers(pairs));
        assert_eq!(of(&[("nodes", "a")]).unwrap(), Target::Node("a".into()));
        assert_eq!(of(&[("node", "a")]).unwrap(), Target::Node("a".into()));
        assert!(of(&[("nodes", "a,b")]).is_err() && of(&[("nodes", "")]).is_err());
    }

    #[test]
    fn a_request_names_so_many_nodes_at_most() {
        let of = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.append("nodes", HeaderValue::from_str(value).unwrap());
            headers.append("nodes", HeaderValue::from_static("last"));
            target(VERSION, &headers)
        };
        assert_eq!(of(&["a"; MOST_NODES - 1].join(",")).unwrap(), {
            let names = [vec!["a"; MOST_NODES - 1], vec!["last"]].concat();
            Target::Nodes(names.into_iter().map(str::to_owned).collect())
        });
        for count in [MOST_NODES, MOST_NODES + 1, 7000] {
            let refused = of(&vec!["a"; count].join(",")).unwrap_err();
            assert!(refused.message().starts_with("the request names more than 256 nodes"), "{refused}");
        }
    }

    #[test]
    fn unmergeable_services_want_one_node() {
        for call in MERGED_CALLS {
            assert_eq!(target(call, &headers(&[("nodes", "a")])).unwrap(), Target::Nodes(vec!["a".into()]));
        }
        let confirm = "/billet.MachineService/ConfirmConfiguration";
        assert!(target(confirm, &headers(&[("nodes", "a")])).is_err(), "its answer has no place for several");
        let state = "/cosi.resource.State/List";
        assert!(target(state, &headers(&[("nodes", "a")])).is_err());
        assert_eq!(target(state, &headers(&[("node", "a")])).unwrap(), Target::Node("a".into()));
        assert!(is_stream("/machine.MachineService/Logs") && !is_stream(VERSION));
    }
}
