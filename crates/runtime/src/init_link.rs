//! The line to init: boot report, descriptor store, exits, heartbeat, the end.
//!
//! Owns: machined's end of the handoff socket.
//! Does not: decide what to store or when to end.
//! Order: [`connect`] reads everything up to `Replayed` and says `Hello` before anything else of machined runs;
//! then [`listen`] reads for as long as machined lives and [`InitLink`] is the way to speak.
//! Fails by: [`LinkError`]. A line that breaks later is reported once; machined goes on, since init restarts it if
//! it thinks otherwise.

use std::collections::BTreeMap;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use handoff::{Action, Exit, MAX_FRAME_BYTES, Start, ToInit, ToMachined};
use sys::{Errno, seqpacket};
use tokio::sync::{mpsc, watch};

use crate::watched;

/// How long init may take to read before a message is given up.
const SEND_DEADLINE: Duration = Duration::from_secs(2);

/// A broken line to init.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// A packet could not be received.
    #[error("receive from init: {0}")]
    Receive(Errno),
    /// A packet could not be sent.
    #[error("send to init: {0}")]
    Send(Errno),
    /// init closed the line.
    #[error("init closed the line")]
    Closed,
    /// A packet makes no sense.
    #[error("message from init: {0}")]
    Message(handoff::Error),
    /// The first packet is something else.
    #[error("init's first message is not Start")]
    NoStart,
    /// The socket cannot be watched.
    #[error("watch the line to init")]
    Watch(#[source] std::io::Error),
}

/// What init said before `Replayed`.
#[derive(Debug)]
pub struct Replay {
    /// The boot report and whether machined ran before.
    pub start: Start,
    /// Descriptors that an earlier machined deposited.
    pub stored: BTreeMap<String, OwnedFd>,
}

/// Something that init tells while machined runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InitRequest {
    /// A key or signal asks for the end.
    Requested(Action),
}

/// A handle to the line; clones share it.
#[derive(Debug, Clone)]
pub struct InitLink {
    socket: Option<Arc<OwnedFd>>,
    exits: Arc<Exits>,
}

/// Exits of processes that are not machined's children, by pid.
#[derive(Debug)]
struct Exits {
    statuses: Mutex<BTreeMap<i32, Exit>>,
    grown: watch::Sender<u64>,
}

impl Default for Exits {
    fn default() -> Self {
        Self { statuses: Mutex::default(), grown: watch::channel(0).0 }
    }
}

/// Reads init's opening words and answers them.
pub fn connect(socket: OwnedFd) -> Result<(InitLink, Replay), LinkError> {
    let link = InitLink { socket: Some(Arc::new(socket)), exits: Arc::default() };
    let replay = link.read_replay()?;
    link.send(&ToInit::Hello, None)?;
    Ok((link, replay))
}

impl InitLink {
    /// A line to nobody, for machined outside a node (tests).
    pub fn detached() -> Self {
        Self { socket: None, exits: Arc::default() }
    }

    fn read_replay(&self) -> Result<Replay, LinkError> {
        let Some(socket) = &self.socket else { return Err(LinkError::Closed) };
        let mut buffer = vec![0; MAX_FRAME_BYTES];
        let mut start = None;
        let mut stored = BTreeMap::new();
        loop {
            let packet = seqpacket::receive(socket, &mut buffer).map_err(LinkError::Receive)?;
            if packet.len == 0 {
                return Err(LinkError::Closed);
            }
            match (handoff::decode(&buffer[..packet.len]).map_err(LinkError::Message)?, packet.descriptor) {
                (ToMachined::Start(first), _) => start = Some(first),
                (ToMachined::Stored { name }, Some(descriptor)) => {
                    stored.insert(name.to_owned(), descriptor);
                }
                (ToMachined::Replayed, _) => {
                    return Ok(Replay { start: start.ok_or(LinkError::NoStart)?, stored });
                }
                (other, _) => drop(self.hear(&other)),
            }
        }
    }

    /// Reads for as long as machined lives; what concerns others goes into the channel.
    pub async fn listen(
        self,
        told: mpsc::UnboundedSender<Result<InitRequest, String>>,
    ) -> Result<(), LinkError> {
        let Some(socket) = &self.socket else { return Ok(()) };
        seqpacket::set_nonblocking(socket).map_err(LinkError::Receive)?;
        let socket = socket.try_clone().and_then(watched::readable).map_err(LinkError::Watch)?;
        let mut buffer = vec![0; 4096];
        loop {
            let mut ready = socket.readable().await.map_err(LinkError::Watch)?;
            match seqpacket::receive(socket.get_ref(), &mut buffer) {
                Err(Errno::AGAIN) => ready.clear_ready(),
                Err(Errno::CONNRESET) => return Err(LinkError::Closed),
                Err(errno) => return Err(LinkError::Receive(errno)),
                Ok(packet) if packet.len == 0 => return Err(LinkError::Closed),
                Ok(packet) => {
                    let message = handoff::decode(&buffer[..packet.len]).map_err(LinkError::Message)?;
                    if let Some(news) = self.hear(&message) {
                        let _ = told.send(news);
                    }
                }
            }
        }
    }

    /// Takes note of a message; returns what others must know.
    fn hear(&self, message: &ToMachined<'_>) -> Option<Result<InitRequest, String>> {
        match message {
            ToMachined::Exited(exit) => {
                self.note_exit(*exit);
                None
            }
            ToMachined::ExitsLost { count } => {
                Some(Err(format!("init lost {count} exit(s): the status of those processes is unknown")))
            }
            ToMachined::Requested(action) => Some(Ok(InitRequest::Requested(*action))),
            ToMachined::Refused { reason } => Some(Err(format!("init refused: {reason}"))),
            ToMachined::Start(_) | ToMachined::Stored { .. } | ToMachined::Replayed => None,
        }
    }

    fn note_exit(&self, exit: Exit) {
        let mut statuses = self.exits.statuses.lock().unwrap_or_else(PoisonError::into_inner);
        // Orphans that no service knows end all the time: keep the newest few.
        if statuses.len() >= handoff::MAX_EXITS {
            let oldest = statuses.values().min_by_key(|e| e.number).map(|e| e.pid);
            oldest.and_then(|pid| statuses.remove(&pid));
        }
        statuses.insert(exit.pid, exit);
        drop(statuses);
        self.exits.grown.send_modify(|count| *count += 1);
        let _ = self.send(&ToInit::Acknowledge { number: exit.number }, None);
    }

    /// The wait status of a process that init reaps, named by pid and start time. Waits until init has told, at most
    /// `deadline`.
    pub async fn exit_status(&self, pid: i32, start_ticks: u64, deadline: Duration) -> Option<i32> {
        let mut grown = self.exits.grown.subscribe();
        let found = async {
            loop {
                grown.mark_unchanged();
                let known = self.exits.statuses.lock().unwrap_or_else(PoisonError::into_inner).remove(&pid);
                // Another process may have had this pid before. Init says 0 when it could not read the time.
                if let Some(exit) = known.filter(|exit| [0, start_ticks].contains(&exit.start_ticks)) {
                    return Some(exit.status);
                }
                if grown.changed().await.is_err() {
                    return None;
                }
            }
        };
        tokio::time::timeout(deadline, found).await.ok().flatten()
    }

    /// Sends one message; waits for init at most [`SEND_DEADLINE`].
    pub fn send(&self, message: &ToInit<'_>, descriptor: Option<BorrowedFd<'_>>) -> Result<(), LinkError> {
        let Some(socket) = &self.socket else { return Ok(()) };
        let mut buffer = [0; 1024];
        let frame = handoff::encode(message, &mut buffer).map_err(LinkError::Message)?;
        match seqpacket::send(socket, frame, descriptor) {
            Err(Errno::AGAIN) => {
                wait_writable(socket)?;
                seqpacket::send(socket, frame, descriptor).map_err(LinkError::Send)
            }
            other => other.map_err(LinkError::Send),
        }
    }

    /// Deposits a descriptor under a name.
    pub fn store(&self, name: &str, descriptor: BorrowedFd<'_>) -> Result<(), LinkError> {
        self.send(&ToInit::Store { name }, Some(descriptor))
    }

    /// Takes a descriptor back out of the store.
    pub fn forget(&self, name: &str) -> Result<(), LinkError> {
        self.send(&ToInit::Forget { name }, None)
    }

    /// Sends heartbeats for as long as machined's runtime turns.
    pub async fn beat(self) -> Result<(), LinkError> {
        let mut ticks = tokio::time::interval(Duration::from_millis(handoff::HEARTBEAT_INTERVAL_MS));
        loop {
            ticks.tick().await;
            self.send(&ToInit::Heartbeat, None)?;
        }
    }
}

fn wait_writable(socket: &OwnedFd) -> Result<(), LinkError> {
    use rustix::event::{PollFd, PollFlags, poll};
    let deadline = sys::system::timespec(u64::try_from(SEND_DEADLINE.as_nanos()).unwrap_or(u64::MAX));
    let mut fds = [PollFd::new(socket, PollFlags::OUT)];
    match poll(&mut fds, Some(&deadline)) {
        Ok(0) => Err(LinkError::Send(Errno::TIMEDOUT)),
        Ok(_) => Ok(()),
        Err(errno) => Err(LinkError::Send(errno)),
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;
    use handoff::BootReport;

    fn say(to: &OwnedFd, message: &ToMachined<'_>, descriptor: Option<BorrowedFd<'_>>) {
        let mut buffer = vec![0; MAX_FRAME_BYTES];
        let frame = handoff::encode(message, &mut buffer).unwrap();
        seqpacket::send(to, frame, descriptor).unwrap();
    }

    fn hear(from: &OwnedFd) -> String {
        let mut buffer = vec![0; 4096];
        let packet = seqpacket::receive(from, &mut buffer).unwrap();
        format!("{:?}", handoff::decode::<ToInit<'_>>(&buffer[..packet.len]).unwrap())
    }

    fn connected() -> (OwnedFd, InitLink, Replay) {
        let (init, machined) = seqpacket::pair().unwrap();
        let report = BootReport { version: "1".into(), ..BootReport::default() };
        say(
            &init,
            &ToMachined::Start(Start {
                report,
                restarts: 2,
                previous_status: Some(9),
                init_memory: Default::default(),
            }),
            None,
        );
        let (gift, _keep) = seqpacket::pair().unwrap();
        say(&init, &ToMachined::Stored { name: "log/apid" }, Some(gift.as_fd()));
        say(&init, &ToMachined::Exited(Exit { number: 5, pid: 77, start_ticks: 1, status: 256 }), None);
        say(&init, &ToMachined::Replayed, None);
        let (link, replay) = connect(machined).unwrap();
        assert_eq!(hear(&init), "Acknowledge { number: 5 }");
        assert_eq!(hear(&init), "Hello");
        (init, link, replay)
    }

    #[tokio::test]
    async fn the_replay_brings_report_descriptors_and_exits() {
        let (_init, link, replay) = connected();
        assert_eq!((replay.start.restarts, replay.start.report.version.as_str()), (2, "1"));
        assert!(replay.stored.contains_key("log/apid"));
        assert_eq!(link.exit_status(77, 1, Duration::from_secs(1)).await, Some(256));
        assert_eq!(link.exit_status(78, 1, Duration::from_millis(10)).await, None);
    }

    #[tokio::test]
    async fn later_messages_are_heard_and_a_closed_line_is_an_error() {
        let (init, link, _) = connected();
        let (tell, mut told) = mpsc::unbounded_channel();
        let listening = tokio::spawn(link.clone().listen(tell));
        say(&init, &ToMachined::Requested(Action::PowerOff), None);
        assert_eq!(told.recv().await, Some(Ok(InitRequest::Requested(Action::PowerOff))));
        say(&init, &ToMachined::Refused { reason: "store is full" }, None);
        assert_eq!(told.recv().await, Some(Err("init refused: store is full".into())));
        say(&init, &ToMachined::Exited(Exit { number: 6, pid: 80, start_ticks: 1, status: 9 }), None);
        assert_eq!(link.exit_status(80, 1, Duration::from_secs(5)).await, Some(9));
        drop(init);
        assert!(matches!(listening.await.unwrap(), Err(LinkError::Closed)));
    }

    #[test]
    fn another_first_message_is_refused() {
        let (init, machined) = seqpacket::pair().unwrap();
        say(&init, &ToMachined::Replayed, None);
        assert!(matches!(connect(machined), Err(LinkError::NoStart)));
    }
}
