//! How much a request may bring along.
//!
//! Owns: which calls bring much; the limit of all others. machined keeps what a client sends until it is whole, and makes room
//! for a message as soon as its length is there: so both what is sent and what is announced would be machined's memory.
//! Does not: look into a message. Fails by: [`TooLong`], told beside the body, which then says nothing more.
//! Source: gRPC over HTTP/2 (length-prefixed messages).

use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::body::{Bytes, Frame, Incoming, SizeHint};
use tokio::sync::oneshot;
use tonic::Status;

use super::frames::PREFIX_BYTES;

/// Bytes of a request, by its call.
pub(super) const MOST_BYTES: usize = 64 << 10;

/// Calls whose requests have no limit here: a config, a snapshot, an image, a value.
const LARGE: [&str; 9] = [
    "/machine.MachineService/ApplyConfiguration",
    "/machine.MachineService/EtcdRecover",
    "/machine.MachineService/MetaWrite",
    "/machine.ImageService/Import",
    "/machine.LifecycleService/Install",
    "/machine.LifecycleService/Upgrade",
    "/machine.DebugService/ContainerRun",
    "/cosi.resource.State/Create",
    "/cosi.resource.State/Update",
];

/// Whether a call may bring as much as a message may have.
pub(super) fn is_large(path: &str) -> bool {
    LARGE.contains(&path)
}

/// Where a body is in its messages.
#[derive(Debug, Default)]
struct Position {
    prefix: [u8; PREFIX_BYTES],
    /// Bytes of the prefix that were there.
    known: usize,
    /// Bytes of the message that are to come.
    rest: usize,
}

impl Position {
    /// Goes on over these bytes. False where a message is announced that is longer than `most`.
    fn advance(&mut self, mut bytes: &[u8], most: usize) -> bool {
        loop {
            let skipped = self.rest.min(bytes.len());
            self.rest = self.rest.saturating_sub(skipped);
            bytes = bytes.get(skipped..).unwrap_or_default();
            let Some((first, after)) = bytes.split_first() else { return true };
            if let Some(place) = self.prefix.get_mut(self.known) {
                *place = *first;
            }
            self.known = self.known.saturating_add(1);
            bytes = after;
            if self.known == PREFIX_BYTES {
                let [_, length @ ..] = self.prefix;
                self.known = 0;
                self.rest = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
                if self.rest > most {
                    return false;
                }
            }
        }
    }
}

/// A request's body that ends before it is too long, or before a message that will be.
#[derive(Debug)]
pub(super) struct Bounded {
    body: Incoming,
    /// Bytes that it may still bring; `None` for a call that brings much.
    left: Option<usize>,
    position: Position,
    too_long: Option<oneshot::Sender<TooLong>>,
}

/// A request has more than its call may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TooLong;

impl TooLong {
    pub(super) fn status(self, path: &str) -> Status {
        Status::resource_exhausted(format!("{path}: the request has more than {MOST_BYTES} bytes"))
    }
}

impl Bounded {
    /// The body of this call, and what tells that it is too long.
    pub(super) fn new(path: &str, body: Incoming) -> (Self, oneshot::Receiver<TooLong>) {
        let (sender, receiver) = oneshot::channel();
        let left = (!is_large(path)).then_some(MOST_BYTES);
        (Self { body, left, position: Position::default(), too_long: Some(sender) }, receiver)
    }

    /// Whether these bytes may be passed on.
    fn may_pass(&mut self, bytes: &[u8]) -> bool {
        let Some(left) = &mut self.left else { return true };
        let Some(rest) = left.checked_sub(bytes.len()) else { return false };
        *left = rest;
        self.position.advance(bytes, MOST_BYTES)
    }
}

impl hyper::body::Body for Bounded {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        if self.too_long.is_none() {
            return Poll::Pending;
        }
        let next = std::task::ready!(Pin::new(&mut self.body).poll_frame(cx));
        let bytes = match &next {
            Some(Ok(frame)) => frame.data_ref().cloned().unwrap_or_default(),
            _ => Bytes::new(),
        };
        if self.may_pass(&bytes) {
            return Poll::Ready(next);
        }
        if let Some(sender) = self.too_long.take() {
            // The call may be gone.
            let _ = sender.send(TooLong);
        }
        Poll::Pending
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::Position;

    fn announced(lengths: &[u32]) -> Vec<u8> {
        let message = |length: &u32| {
            let mut bytes = [&[0][..], &length.to_be_bytes()].concat();
            bytes.resize(bytes.len() + usize::try_from(*length).unwrap().min(40), 7);
            bytes
        };
        lengths.iter().flat_map(message).collect()
    }

    #[test]
    fn a_message_that_is_announced_too_long_is_found_however_the_body_is_cut() {
        let passes = |body: &[u8], step: usize| {
            let mut position = Position::default();
            body.chunks(step).all(|part| position.advance(part, 40))
        };
        for step in 1..60 {
            assert!(passes(&announced(&[]), step));
            assert!(passes(&announced(&[0, 0, 40, 1, 39]), step), "{step}");
            assert!(passes(&announced(&[3, 40])[..12], step), "half a message");
            for long in [41, 31 << 20, u32::MAX] {
                assert!(!passes(&announced(&[long]), step), "{long} in steps of {step}");
                assert!(!passes(&announced(&[0, 12, long]), step), "{long} behind others in steps of {step}");
            }
        }
    }
}
