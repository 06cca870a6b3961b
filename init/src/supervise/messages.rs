//! Talking to machined.
//!
//! Owns: what is to be sent, derived from the tables instead of queued (so that nothing is allocated and nothing is
//! sent twice to one machined), and what its messages do.
//! Order: start, stored descriptors, unread exits, "replayed"; then requests and exits as they come.
//! Fails by: treating a machined that breaks the protocol like one that died.

use handoff::{ToInit, ToMachined};
use sys::Errno;

use super::{Machined, Supervisor};
use crate::kernel::{Descriptor, Level};
use crate::line::say;

/// Messages read in one turn: the rest waits until the other tasks had theirs.
const MESSAGES_A_TURN: usize = 64;

/// How far the present machined has been told.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    start_sent: bool,
    stored_sent: usize,
    replayed: bool,
    refused: Option<&'static str>,
    /// Its queue is full.
    blocked: bool,
}

impl Outbox {
    pub(super) fn blocked(&self) -> bool {
        self.blocked
    }
}

/// What a sent message changes.
enum Sent {
    Start,
    Stored,
    Exit(u64),
    Lost,
    Replayed,
    Request,
    Refused,
}

impl Supervisor<'_> {
    fn next_message(&self) -> Option<(Sent, Option<ToMachined<'_>>, Option<Descriptor>)> {
        let outbox = &self.outbox;
        if !outbox.start_sent {
            return Some((Sent::Start, None, None));
        }
        if !outbox.replayed
            && let Some((name, descriptor)) = self.store.get(outbox.stored_sent)
        {
            return Some((Sent::Stored, Some(ToMachined::Stored { name }), Some(descriptor)));
        }
        if let Some(exit) = self.exits.unsent() {
            return Some((Sent::Exit(exit.number), Some(ToMachined::Exited(exit)), None));
        }
        if let Some(count) = self.exits.lost() {
            return Some((Sent::Lost, Some(ToMachined::ExitsLost { count }), None));
        }
        if !outbox.replayed {
            return Some((Sent::Replayed, Some(ToMachined::Replayed), None));
        }
        if let Some(request) = self.request.filter(|r| !r.sent) {
            return Some((Sent::Request, Some(ToMachined::Requested(request.action)), None));
        }
        let reason = outbox.refused?;
        Some((Sent::Refused, Some(ToMachined::Refused { reason }), None))
    }

    fn mark(&mut self, sent: &Sent) {
        match sent {
            Sent::Start => self.outbox.start_sent = true,
            Sent::Stored => self.outbox.stored_sent += 1,
            Sent::Exit(number) => self.exits.mark_sent(*number),
            Sent::Lost => self.exits.mark_lost_sent(),
            Sent::Replayed => self.outbox.replayed = true,
            Sent::Request => {
                if let Some(request) = &mut self.request {
                    request.sent = true;
                }
            }
            Sent::Refused => self.outbox.refused = None,
        }
    }

    /// Sends the next message; false when there is none.
    fn send_one(&mut self) -> Result<bool, Errno> {
        let mut frame = core::mem::take(&mut self.frame);
        let Some((sent, message, descriptor)) = self.next_message() else {
            self.frame = frame;
            return Ok(false);
        };
        let message = message.as_ref().unwrap_or(&self.start);
        let encoded = handoff::encode(message, &mut frame).map_err(|_| Errno::MSGSIZE);
        let result = encoded.and_then(|bytes| self.kernel.send(bytes, descriptor));
        if result.is_ok() {
            self.mark(&sent);
        }
        self.frame = frame;
        result.map(|()| true)
    }

    /// Reads what machined sent, a bounded number of messages.
    pub(super) fn drain_messages(&mut self) {
        for _ in 0..MESSAGES_A_TURN {
            if !self.connected || self.outcome.is_some() {
                return;
            }
            let mut frame = core::mem::take(&mut self.frame);
            let more = self.read_one(&mut frame);
            self.frame = frame;
            if !more {
                return;
            }
        }
    }

    fn read_one(&mut self, frame: &mut [u8]) -> bool {
        let packet = match self.kernel.receive(frame) {
            Ok(packet) if packet.len > 0 => packet,
            Ok(_) | Err(Errno::CONNRESET) => {
                self.machined_closed();
                return false;
            }
            Err(Errno::AGAIN) => return false,
            Err(errno) => {
                say!(self.kernel, Level::Warning, "receive from machined: {}", sys::errno::Described(errno));
                return false;
            }
        };
        match handoff::decode::<ToInit<'_>>(&frame[..packet.len]) {
            Ok(message) => self.handle(&message, packet.descriptor),
            Err(error) => {
                packet.descriptor.into_iter().for_each(|d| self.kernel.close(d));
                say!(self.kernel, Level::Warning, "message from machined: {error}");
                self.kill_machined("it does not speak this protocol");
                return false;
            }
        }
        true
    }

    fn handle(&mut self, message: &ToInit<'_>, descriptor: Option<Descriptor>) {
        self.heartbeat_ns = self.kernel.now_ns();
        if let ToInit::Store { name } = message {
            self.keep(name, descriptor);
            return;
        }
        descriptor.into_iter().for_each(|d| self.kernel.close(d));
        match message {
            ToInit::Hello | ToInit::Heartbeat | ToInit::Store { .. } => {}
            ToInit::Ready => self.machined_ready(),
            ToInit::Forget { name } => self.store.take(name).into_iter().for_each(|d| self.kernel.close(d)),
            ToInit::Acknowledge { number } => self.exits.acknowledge(*number),
            ToInit::Finish { action, reason } => self.finish(*action, reason),
        }
    }

    fn machined_ready(&mut self) {
        self.ready_ns = Some(self.kernel.now_ns());
        self.watchdog.feed_again();
        if !self.ever_ready {
            self.ever_ready = true;
            // From here on a corrupt block is an I/O error for whoever reads it, and an event that machined reports.
            self.kernel.ignore_devices();
        }
        let memory = self.kernel.memory();
        say!(
            self.kernel,
            Level::Info,
            "machined is ready; init holds {} bytes after {} allocations",
            memory.in_use_bytes,
            memory.allocations
        );
    }

    fn keep(&mut self, name: &str, descriptor: Option<Descriptor>) {
        let Some(descriptor) = descriptor else {
            self.outbox.refused = Some("a message to store a descriptor carried none");
            return;
        };
        match self.store.put(name, descriptor) {
            Ok(older) => older.into_iter().for_each(|d| self.kernel.close(d)),
            Err(reason) => {
                self.kernel.close(descriptor);
                self.outbox.refused = Some(reason);
                say!(self.kernel, Level::Warning, "descriptor {name} from machined refused: {reason}");
            }
        }
    }
}

/// Sends as much as fits into machined's queue.
pub fn send_messages(supervisor: &mut Supervisor<'_>) {
    supervisor.outbox.blocked = false;
    while supervisor.connected {
        match supervisor.send_one() {
            Ok(true) => {}
            Ok(false) => return,
            Err(Errno::AGAIN) => {
                supervisor.outbox.blocked = true;
                return;
            }
            Err(Errno::PIPE | Errno::CONNRESET) => supervisor.machined_closed(),
            Err(errno) => {
                say!(supervisor.kernel, Level::Warning, "send to machined: {}", sys::errno::Described(errno));
                supervisor.kill_machined("its socket does not take messages");
            }
        }
    }
}

/// Keeps descriptors, acknowledges exits, takes the final action.
pub fn read_messages(supervisor: &mut Supervisor<'_>) {
    if supervisor.ready.message && matches!(supervisor.machined, Machined::Running { .. }) {
        supervisor.drain_messages();
    }
}
