//! How much a request may bring along.
//!
//! Owns: which calls bring much; the limit of all others. A machined keeps what a client sends until it is whole, so what
//! clients send without end would be machined's memory.
//! Does not: look into a body. Fails by: [`TooLong`], told beside the body, which then says nothing more.

use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::body::{Bytes, Frame, Incoming, SizeHint};
use tokio::sync::oneshot;
use tonic::Status;

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

/// A request's body that ends before it is too long.
#[derive(Debug)]
pub(super) struct Bounded {
    body: Incoming,
    left: usize,
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
        let left = if is_large(path) { usize::MAX } else { MOST_BYTES };
        (Self { body, left, too_long: Some(sender) }, receiver)
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
        let size = match &next {
            Some(Ok(frame)) => frame.data_ref().map_or(0, Bytes::len),
            _ => 0,
        };
        match self.left.checked_sub(size) {
            Some(left) => {
                self.left = left;
                Poll::Ready(next)
            }
            None => {
                if let Some(sender) = self.too_long.take() {
                    // The call may be gone.
                    let _ = sender.send(TooLong);
                }
                Poll::Pending
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
