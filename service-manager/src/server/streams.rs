//! Streams of text and events: logs, dmesg, events.
//!
//! Each runs as a task of its own that ends when its reader goes.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use api::proto::common::{ContainerDriver, Data};
use api::proto::machine as proto;
use runtime::events::Past;
use runtime::kmsg;
use runtime::logs::{Follower, Tail};
use runtime::request;
use tokio::sync::broadcast::error::RecvError;
use tonic::{Response, Status};

use super::answers::{Answers, Sender, answers};
use super::pod_logs::PodLog;
use super::query;
use crate::flight_recorder;
use crate::node::Node;

fn data(bytes: Vec<u8>) -> Data {
    Data { metadata: None, bytes }
}

/// The log whose lines are the kernel's, as `Dmesg` answers them.
const KERNEL: &str = "kernel";

/// What `Logs` can be asked for, sorted.
pub(super) fn log_ids(node: &Node) -> Vec<String> {
    let mut ids = node.runtime.logs.ids();
    ids.push(KERNEL.to_owned());
    ids.sort();
    ids
}

pub(super) fn logs(node: &Node, request: &proto::LogsRequest) -> Result<Response<Answers<Data>>, Status> {
    let system = request.namespace == "system" || request.namespace.is_empty() || request.id == "kubelet";
    let tail = usize::try_from(request.tail_lines).map_or(Tail::All, Tail::Lines);
    if !system && request.driver() == ContainerDriver::Cri {
        let log = PodLog::open(&node.runtime.root, &request.id, tail)?;
        return Ok(send(Log::Pod(log), request));
    }
    if request.id == KERNEL {
        return kernel_log(node, tail, request.follow);
    }
    let follower = node.runtime.logs.follow(&request.id, tail).ok_or_else(|| {
        let (id, known) = (query::quoted(&request.id), log_ids(node).join(", "));
        Status::not_found(format!("log {id} was not registered; there are {known}"))
    })?;
    Ok(send(Log::Own(follower), request))
}

fn send(log: Log, request: &proto::LogsRequest) -> Response<Answers<Data>> {
    let (sender, answer) = answers();
    let follow = request.follow;
    #[cfg(test)]
    let id = request.id.clone();
    request::feed(sender.clone(), async move {
        #[cfg(test)]
        request::testing::fault("stream", &id);
        send_log(log, follow, sender).await;
    });
    answer
}

/// A log that is read to its end, and on from there.
enum Log {
    /// One of the node's own.
    Own(Follower),
    /// One of a container in a pod.
    Pod(PodLog),
}

impl Log {
    fn read_available(&mut self) -> std::io::Result<Vec<u8>> {
        match self {
            Self::Own(log) => log.read_available(),
            Self::Pod(log) => log.read_available(),
        }
    }

    async fn grown(&mut self) {
        match self {
            Self::Own(log) => log.grown().await,
            Self::Pod(log) => log.grown().await,
        }
    }
}

async fn send_log(mut log: Log, follow: bool, sender: Sender<Data>) {
    loop {
        match log.read_available() {
            Ok(bytes) if bytes.is_empty() => {
                if !follow {
                    return;
                }
                tokio::select! {
                    () = log.grown() => {}
                    () = sender.closed() => return,
                }
            }
            Ok(bytes) => {
                if sender.send(Ok(data(bytes))).await.is_err() {
                    return;
                }
            }
            Err(error) => {
                let _ = sender.send(Err(Status::internal(format!("read the log: {error}")))).await;
                return;
            }
        }
    }
}

pub(super) fn dmesg(node: &Node, request: proto::DmesgRequest) -> Result<Response<Answers<Data>>, Status> {
    let tail = if request.tail { Tail::Lines(0) } else { Tail::All };
    kernel_log(node, tail, request.follow)
}

fn kernel_log(node: &Node, tail: Tail, follow: bool) -> Result<Response<Answers<Data>>, Status> {
    let reader = kmsg::Reader::open(&node.runtime.path("/dev/kmsg"), matches!(tail, Tail::Lines(0)))
        .map_err(|e| Status::internal(format!("open /dev/kmsg: {e}")))?;
    let (sender, answer) = answers();
    request::feed(sender.clone(), async move {
        let sending = async {
            if let Tail::Lines(count @ 1..) = tail {
                for line in last_lines(&reader, count)? {
                    if sender.send(Ok(data(line.into_bytes()))).await.is_err() {
                        return Ok(());
                    }
                }
            }
            send_kernel_log(&reader, follow, &sender).await
        };
        if let Err(error) = sending.await {
            let _ = sender.send(Err(Status::internal(format!("read /dev/kmsg: {error}")))).await;
        }
    });
    Ok(answer)
}

/// The last ones of those that are there now. The kernel's ring bounds how many that can be.
fn last_lines(reader: &kmsg::Reader, count: usize) -> std::io::Result<VecDeque<String>> {
    let mut lines = VecDeque::new();
    while let Some(line) = reader.next_now()? {
        lines.push_back(line);
        if lines.len() > count {
            lines.pop_front();
        }
    }
    Ok(lines)
}

pub(super) async fn earlier_dmesg(node: &Node, back: u32) -> Result<Response<Answers<Data>>, Status> {
    let boots = node.flight_recorder.earlier().await.map_err(Status::failed_precondition)?;
    let index = usize::try_from(back).ok().and_then(|back| back.checked_sub(1));
    let index =
        index.ok_or_else(|| Status::invalid_argument("back is counted from 1, the boot before this one"))?;
    if boots.len() <= index {
        let left = boots.len();
        return Err(Status::not_found(format!("the flight recorder has {left} earlier boots, none -{back}")));
    }
    let (sender, answer) = answers();
    request::feed(sender.clone(), async move {
        let Some(boot) = boots.get(index) else { return };
        for line in flight_recorder::lines(boot) {
            if sender.send(Ok(data(line.into_bytes()))).await.is_err() {
                return;
            }
        }
    });
    Ok(answer)
}

async fn send_kernel_log(reader: &kmsg::Reader, follow: bool, sender: &Sender<Data>) -> std::io::Result<()> {
    loop {
        while let Some(line) = reader.next_now()? {
            if sender.send(Ok(data(line.into_bytes()))).await.is_err() {
                return Ok(());
            }
        }
        if !follow {
            return Ok(());
        }
        tokio::select! {
            waited = reader.wait() => waited?,
            () = sender.closed() => return Ok(()),
        }
    }
}

pub(super) fn events(
    node: &Arc<Node>,
    request: proto::EventsRequest,
) -> Result<Response<Answers<proto::Event>>, Status> {
    let past = past(&request)?;
    let (replay, mut live) = node.runtime.events.subscribe(&past);
    let (sender, answer) = answers();
    let wanted = move |actor_id: &str| request.with_actor_id.is_empty() || request.with_actor_id == actor_id;
    request::feed(sender.clone(), async move {
        // The current client throws the first message away unread.
        if sender.send(Ok(proto::Event::default())).await.is_err() {
            return;
        }
        for event in replay.iter().filter(|event| wanted(&event.actor_id)) {
            if sender.send(Ok(event.to_proto())).await.is_err() {
                return;
            }
        }
        loop {
            let event = tokio::select! {
                event = live.recv() => event,
                () = sender.closed() => return,
            };
            match event {
                Ok(event) if !wanted(&event.actor_id) => {}
                Ok(event) => {
                    if sender.send(Ok(event.to_proto())).await.is_err() {
                        return;
                    }
                }
                // A reader this far behind is cut off with a normal end (crates/api/src/event.rs).
                Err(RecvError::Lagged(_) | RecvError::Closed) => return,
            }
        }
    });
    Ok(answer)
}

fn past(request: &proto::EventsRequest) -> Result<Past, Status> {
    let given = [request.tail_events != 0, !request.tail_id.is_empty(), request.tail_seconds != 0];
    if given.iter().filter(|given| **given).count() > 1 {
        return Err(Status::invalid_argument("give one of tail_events, tail_id and tail_seconds"));
    }
    if !request.tail_id.is_empty() {
        if !runtime::events::is_id(&request.tail_id) {
            return Err(Status::invalid_argument(
                "tail_id is no id of an event: 20 characters of 0-9 and a-v, as `events` shows them",
            ));
        }
        return Ok(Past::After(request.tail_id.clone()));
    }
    if let Ok(seconds @ 1..) = u64::try_from(request.tail_seconds) {
        return Ok(Past::Younger(Duration::from_secs(seconds)));
    }
    Ok(match usize::try_from(request.tail_events) {
        Ok(0) => Past::None,
        Ok(count) => Past::Last(count),
        Err(_) => Past::All,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tail_of_events_is_asked_for_in_one_way() {
        let request = |events, id: &str, seconds| proto::EventsRequest {
            tail_events: events,
            tail_id: id.into(),
            tail_seconds: seconds,
            with_actor_id: String::new(),
        };
        assert_eq!(past(&request(0, "", 0)).unwrap(), Past::None);
        assert_eq!(past(&request(-1, "", 0)).unwrap(), Past::All);
        assert_eq!(past(&request(5, "", 0)).unwrap(), Past::Last(5));
        let id = "d4k7h9s1v0ag00fj0001";
        assert_eq!(past(&request(0, id, 0)).unwrap(), Past::After(id.into()));
        for wrong in ["x", "D4K7H9S1V0AG00FJ0001", "w4k7h9s1v0ag00fj0001"] {
            let refused = past(&request(0, wrong, 0)).unwrap_err();
            assert_eq!(refused.code(), tonic::Code::InvalidArgument, "{wrong}");
        }
        assert_eq!(past(&request(0, "", 9)).unwrap(), Past::Younger(Duration::from_secs(9)));
        assert!(past(&request(1, "x", 0)).is_err());
    }
}
