//! `Netstat`: the sockets of this node and of its network namespaces, from /proc/net.
//!
//! Owns: the tables' format. Does not: enter a namespace: it reads /proc/<pid>/net of a process that is in it.
//! Source: crates/api/proto/machine/machine.proto; Documentation/networking/proc_net_tcp.rst.

use std::collections::HashMap;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use api::proto::machine as proto;
use api::proto::machine::connect_record::{Process, State};
use api::proto::machine::netstat_request::{Filter, L4proto, NetNs};
use tonic::Status;

use crate::node::Node;

/// Where named network namespaces are bound.
const NAMESPACES: &str = "/run/netns";
/// Sockets in a datagram table that are not connected have this state there.
const CLOSE: i32 = State::Close as i32;

pub(super) fn netstat(
    node: &Node,
    request: &proto::NetstatRequest,
) -> Result<proto::NetstatResponse, Status> {
    let protocols = protocols(request.l4proto.as_ref());
    let mut records = Vec::new();
    for (name, directory) in directories(node, request.netns.as_ref())? {
        for protocol in &protocols {
            let Ok(text) = fs::read_to_string(directory.join(protocol)) else { continue };
            let parsed = text.lines().skip(1).filter_map(|line| record(protocol, line));
            let wanted = parsed.filter(|record| passes(request.filter(), record));
            records.extend(wanted.map(|record| proto::ConnectRecord { netns: name.clone(), ..record }));
        }
    }
    if request.feature.is_some_and(|feature| feature.pid) {
        let owners = owners(node);
        for record in &mut records {
            record.process = owners.get(&record.inode).cloned();
        }
    }
    Ok(proto::NetstatResponse { messages: vec![proto::Netstat { metadata: None, connectrecord: records }] })
}

/// The names of the tables; all of them when none is asked for.
fn protocols(wanted: Option<&L4proto>) -> Vec<&'static str> {
    let w = wanted.copied().unwrap_or_default();
    let all = [
        ("tcp", w.tcp),
        ("tcp6", w.tcp6),
        ("udp", w.udp),
        ("udp6", w.udp6),
        ("udplite", w.udplite),
        ("udplite6", w.udplite6),
        ("raw", w.raw),
        ("raw6", w.raw6),
    ];
    let none = all.iter().all(|(_, wanted)| !wanted);
    all.into_iter().filter(|(_, wanted)| *wanted || none).map(|(name, _)| name).collect()
}

/// The directories with the tables, by name of the namespace; the host's has no name.
fn directories(node: &Node, wanted: Option<&NetNs>) -> Result<Vec<(String, PathBuf)>, Status> {
    let Some(wanted) = wanted else { return Ok(vec![(String::new(), node.runtime.path("/proc/net"))]) };
    let mut names = wanted.netns.clone();
    if wanted.allnetns {
        let entries = fs::read_dir(node.runtime.path(NAMESPACES)).into_iter().flatten().flatten();
        names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
    }
    let mut found = Vec::new();
    if wanted.hostnetwork || wanted.allnetns || names.is_empty() {
        found.push((String::new(), node.runtime.path("/proc/net")));
    }
    for name in names {
        match inside(node, &name) {
            Some(directory) => found.push((name, directory)),
            // A namespace that nobody lives in has no sockets.
            None if !name.contains('/') && node.runtime.path(NAMESPACES).join(&name).exists() => {}
            None => {
                return Err(Status::not_found(format!("network namespace {name:?} is not in {NAMESPACES}")));
            }
        }
    }
    Ok(found)
}

/// /proc/<pid>/net of a process in a named namespace.
fn inside(node: &Node, name: &str) -> Option<PathBuf> {
    if name.contains('/') || name.starts_with('.') {
        return None;
    }
    let wanted = fs::metadata(node.runtime.path(NAMESPACES).join(name)).ok()?;
    processes(node).into_iter().map(|(_, directory)| directory).find_map(|directory| {
        let own = fs::metadata(directory.join("ns/net")).ok()?;
        (own.ino() == wanted.ino() && own.dev() == wanted.dev()).then(|| directory.join("net"))
    })
}

fn processes(node: &Node) -> Vec<(u32, PathBuf)> {
    let entries = fs::read_dir(node.runtime.path("/proc")).into_iter().flatten().flatten();
    entries.filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path()))).collect()
}

/// The process of each socket, by inode. Where several share one, the youngest serves it: init and machined keep sockets of
/// services for the time after them.
fn owners(node: &Node) -> HashMap<u64, Process> {
    let mut owners = HashMap::new();
    let mut processes = processes(node);
    // Each is asked once: a process that ends between two comparisons would have two places, and the sort would panic.
    processes.sort_by_cached_key(|(pid, directory)| std::cmp::Reverse((started(directory), *pid)));
    for (pid, directory) in processes {
        let name = fs::read_to_string(directory.join("comm")).unwrap_or_default().trim_end().to_owned();
        let descriptors = fs::read_dir(directory.join("fd")).into_iter().flatten().flatten();
        for target in descriptors.filter_map(|entry| fs::read_link(entry.path()).ok()) {
            let target = target.to_string_lossy();
            let inode = target.strip_prefix("socket:[").and_then(|rest| rest.strip_suffix(']')?.parse().ok());
            if let Some(inode) = inode {
                owners.entry(inode).or_insert_with(|| Process { pid, name: name.clone() });
            }
        }
    }
    owners
}

/// When a process began, in ticks since the boot: field 22 of its `stat` (proc(5)), of which the second may hold blanks.
fn started(directory: &Path) -> u64 {
    let stat = fs::read_to_string(directory.join("stat")).unwrap_or_default();
    let behind_name = stat.rsplit_once(')').map(|(_, rest)| rest);
    behind_name.and_then(|rest| rest.split_whitespace().nth(19)?.parse().ok()).unwrap_or_default()
}

fn passes(filter: Filter, record: &proto::ConnectRecord) -> bool {
    let stream = record.l4proto.starts_with("tcp");
    let listening = if stream { record.state == i32::from(State::Listen) } else { record.state == CLOSE };
    match filter {
        Filter::All => true,
        Filter::Listening => listening,
        Filter::Connected => !listening,
    }
}

/// One line: slot, local, remote, state, queues, timer, retransmits, uid, timeout, inode, references, pointer.
fn record(protocol: &str, line: &str) -> Option<proto::ConnectRecord> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let word = |index: usize| words.get(index).copied();
    let pair = |index: usize| word(index)?.split_once(':');
    let hex = |text: &str| u64::from_str_radix(text, 16).ok();
    let (localip, localport) = address(word(1)?)?;
    let (remoteip, remoteport) = address(word(2)?)?;
    let ((txqueue, rxqueue), (tr, timerwhen)) = (pair(4)?, pair(5)?);
    Some(proto::ConnectRecord {
        l4proto: protocol.to_owned(),
        localip: localip.to_string(),
        localport,
        remoteip: remoteip.to_string(),
        remoteport,
        state: i32::from_str_radix(word(3)?, 16).ok()?,
        txqueue: hex(txqueue)?,
        rxqueue: hex(rxqueue)?,
        tr: i32::from_str_radix(tr, 16).ok()?,
        timerwhen: hex(timerwhen)?,
        retrnsmt: hex(word(6)?)?,
        uid: word(7)?.parse().ok()?,
        timeout: word(8)?.parse().ok()?,
        inode: word(9)?.parse().ok()?,
        r#ref: word(10)?.parse().ok()?,
        pointer: hex(word(11)?)?,
        process: None,
        netns: String::new(),
    })
}

/// An address in the kernel's hex: 32-bit words in the machine's byte order, then the port.
fn address(text: &str) -> Option<(IpAddr, u32)> {
    let (address, port) = text.split_once(':')?;
    let mut bytes = Vec::new();
    for at in (0..address.len()).step_by(8) {
        let word = u32::from_str_radix(address.get(at..at.checked_add(8)?)?, 16).ok()?;
        bytes.extend(word.to_ne_bytes());
    }
    let port = u32::from_str_radix(port, 16).ok()?;
    let address = match <[u8; 4]>::try_from(bytes.as_slice()) {
        Ok(four) => IpAddr::V4(Ipv4Addr::from(four)),
        Err(_) => IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?)),
    };
    Some((address, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn everything() -> proto::NetstatRequest {
        let feature = proto::netstat_request::Feature { pid: true };
        proto::NetstatRequest { feature: Some(feature), ..Default::default() }
    }

    #[test]
    fn our_own_listener_is_seen_with_its_process() {
        let node = crate::server::tests_node(PathBuf::from("/"));
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let port = u32::from(listener.local_addr().unwrap().port());
        let records = netstat(&node, &everything()).unwrap().messages.remove(0).connectrecord;
        let own = records.iter().find(|r| r.localport == port && r.state() == State::Listen).unwrap();
        assert_eq!(
            (own.localip.as_str(), own.l4proto.as_str(), own.netns.as_str()),
            ("127.0.0.1", "tcp", "")
        );
        assert_eq!(own.process.as_ref().unwrap().pid, std::process::id());
        let connected = proto::NetstatRequest { filter: Filter::Connected.into(), ..everything() };
        let records = netstat(&node, &connected).unwrap().messages.remove(0).connectrecord;
        let from = u32::from(client.local_addr().unwrap().port());
        assert!(records.iter().any(|r| r.localport == from && r.state() == State::Established));
        assert!(!records.iter().any(|r| r.l4proto == "tcp" && r.state() == State::Listen));
        let only = L4proto { udp: true, ..Default::default() };
        let request = proto::NetstatRequest { l4proto: Some(only), ..everything() };
        let records = netstat(&node, &request).unwrap().messages.remove(0).connectrecord;
        assert!(records.iter().all(|r| r.l4proto == "udp"));
    }

    #[test]
    fn lines_of_both_families_are_read() {
        let line = "   1: 0100007F:C350 0200000A:01BB 01 00000005:00000006 02:000000FF 00000003 50 2 77 3 ffff888 20";
        let four = record("tcp", line).unwrap();
        assert_eq!(
            (four.localip.as_str(), four.localport, four.remoteip.as_str()),
            ("127.0.0.1", 50000, "10.0.0.2")
        );
        assert_eq!((four.txqueue, four.rxqueue, four.timerwhen, four.retrnsmt), (5, 6, 255, 3));
        assert_eq!((four.uid, four.timeout, four.inode, four.r#ref), (50, 2, 77, 3));
        let line = "0: 00000000000000000000000001000000:0050 00000000000000000000000000000000:0000 0A 0:0 0:0 0 0 0 9 1 0";
        let six = record("tcp6", line).unwrap();
        assert_eq!((six.localip.as_str(), six.state()), ("::1", State::Listen));
        assert!(record("tcp", "nonsense").is_none());
    }

    #[test]
    fn a_socket_is_that_of_the_process_that_serves_it() {
        let dir = tempfile::tempdir().unwrap();
        let process = |pid: u32, name: &str, started: u64| {
            let directory = dir.path().join(format!("proc/{pid}"));
            fs::create_dir_all(directory.join("fd")).unwrap();
            fs::write(directory.join("comm"), format!("{name}\n")).unwrap();
            let fields = "0 ".repeat(18);
            fs::write(directory.join("stat"), format!("{pid} ({name}) S) S {fields}{started} 0 0")).unwrap();
            std::os::unix::fs::symlink("socket:[77]", directory.join("fd/3")).unwrap();
        };
        process(1, "init", 2);
        // A number below machined's: they start anew at the end.
        process(310, "apid", 900);
        process(400, "machined", 50);
        let node = crate::server::tests_node(dir.path().canonicalize().unwrap());
        assert_eq!(owners(&node)[&77], Process { pid: 310, name: "apid".into() });
    }

    #[test]
    fn a_namespace_that_does_not_exist_is_an_error() {
        let node = crate::server::tests_node(PathBuf::from("/"));
        for name in ["no-such-namespace", "../../etc"] {
            let netns = NetNs { netns: vec![name.into()], ..Default::default() };
            let request = proto::NetstatRequest { netns: Some(netns), ..Default::default() };
            let error = netstat(&node, &request).unwrap_err();
            assert_eq!(error.code(), tonic::Code::NotFound, "{}", error.message());
        }
    }
}
