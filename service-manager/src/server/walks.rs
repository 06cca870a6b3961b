//! Threads that read files for a client: one a stream, none of the runtime's.
//!
//! Owns: how many of these one client and all clients may have, and how long a client may take nothing. A client that does
//! not read holds up its own streams.
//! Does not: know which files. Fails by: `ResourceExhausted` before the first message, `DeadlineExceeded` behind the last.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use runtime::request;
use tokio::runtime::Handle;
use tokio::time::timeout;
use tonic::{Request, Status};

use super::answers::Sender;
use crate::programs::CALLER;

/// Streams of one client.
const MOST_OF_CALLER: usize = 8;
/// Streams of all clients.
const MOST: usize = 32;
/// How long a client may take no message.
const IDLE: Duration = Duration::from_secs(60);

/// The streams that are under way.
#[derive(Debug, Clone)]
pub(super) struct Walks {
    counts: Arc<Mutex<BTreeMap<String, usize>>>,
    idle: Duration,
}

impl Default for Walks {
    fn default() -> Self {
        Self { counts: Arc::default(), idle: IDLE }
    }
}

/// The right to one stream.
#[derive(Debug)]
pub(super) struct Walk {
    walks: Walks,
    caller: String,
}

impl Walks {
    /// Counts a stream of whoever sent the request.
    pub(super) fn begin<T>(&self, request: &Request<T>) -> Result<Walk, Status> {
        let caller = request.metadata().get(CALLER).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let mut counts = self.counts();
        let all: usize = counts.values().sum();
        let of_caller = counts.get(caller).copied().unwrap_or_default();
        if of_caller >= MOST_OF_CALLER {
            return Err(Status::resource_exhausted(format!(
                "{caller} reads {MOST_OF_CALLER} lists, copies or files at once: end one of them first"
            )));
        }
        if all >= MOST {
            return Err(Status::resource_exhausted(format!(
                "clients read {MOST} lists, copies or files at once: try again later"
            )));
        }
        counts.insert(caller.to_owned(), of_caller.saturating_add(1));
        Ok(Walk { walks: self.clone(), caller: caller.to_owned() })
    }

    /// Each change of a count is one call, so a panic elsewhere leaves them right.
    fn counts(&self) -> MutexGuard<'_, BTreeMap<String, usize>> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Walk {
    fn drop(&mut self) {
        let mut counts = self.walks.counts();
        let left = counts.get(&self.caller).copied().unwrap_or_default().saturating_sub(1);
        if left == 0 {
            counts.remove(&self.caller);
        } else {
            counts.insert(std::mem::take(&mut self.caller), left);
        }
    }
}

impl Walk {
    /// Runs the work in a thread of its own, which ends with it.
    pub(super) fn run<T: Send + 'static>(
        self,
        sender: Sender<T>,
        work: impl FnOnce(&Reader<T>) + Send + 'static,
    ) -> Result<(), Status> {
        let reader = Reader { sender, runtime: Handle::current(), idle: self.walks.idle };
        let last = reader.clone();
        let work = request::carried(move || work(&reader));
        let thread = std::thread::Builder::new().name("walk".to_owned()).spawn(move || {
            if let Err(panicked) = work() {
                // The client may be gone.
                let _ = last.send(Err(panicked.into()));
            }
            drop(self);
        });
        thread.map(drop).map_err(|e| Status::resource_exhausted(format!("start a thread: {e}")))
    }
}

/// The client's end of a stream, for a thread.
#[derive(Debug)]
pub(super) struct Reader<T> {
    sender: Sender<T>,
    runtime: Handle,
    idle: Duration,
}

impl<T> Clone for Reader<T> {
    fn clone(&self) -> Self {
        Self { sender: self.sender.clone(), runtime: self.runtime.clone(), idle: self.idle }
    }
}

/// The client is gone, or takes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Gone;

impl<T: Send + 'static> Reader<T> {
    /// Sends a message; waits while the client is behind.
    pub(super) fn send(&self, message: Result<T, Status>) -> Result<(), Gone> {
        let sent = self.runtime.block_on(async { timeout(self.idle, self.sender.send(message)).await });
        match sent {
            Ok(sent) => sent.map_err(|_| Gone),
            Err(_) => {
                self.end_late();
                Err(Gone)
            }
        }
    }

    /// Whether the client hung up: asked where nothing is sent for long.
    pub(super) fn is_gone(&self) -> bool {
        self.sender.is_closed()
    }

    /// A client that reads on after all must not take what it has for the whole: the error waits behind it, without a thread.
    fn end_late(&self) {
        let (sender, seconds) = (self.sender.clone(), self.idle.as_secs());
        let status = Status::deadline_exceeded(format!("the client took nothing for {seconds} s"));
        self.runtime.spawn(async move {
            // The client may be gone.
            let _ = sender.send(Err(status)).await;
        });
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;
    use tonic::Code;

    use super::*;

    fn of(caller: &str) -> Request<()> {
        let mut request = Request::new(());
        request.metadata_mut().insert(CALLER, caller.parse().unwrap());
        request
    }

    #[test]
    fn one_client_has_its_share_and_all_have_theirs() {
        let walks = Walks::default();
        let mut held = Vec::new();
        for caller in ["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"] {
            held.extend((0..MOST_OF_CALLER).map(|_| walks.begin(&of(caller)).unwrap()));
            let status = walks.begin(&of(caller)).unwrap_err();
            assert_eq!(status.code(), Code::ResourceExhausted);
            assert!(status.message().starts_with(caller), "{status}");
        }
        assert_eq!(held.len(), MOST);
        let status = walks.begin(&of("10.0.0.5")).unwrap_err();
        assert!(status.message().starts_with("clients read 32"), "{status}");
        held.pop();
        let _next = walks.begin(&of("10.0.0.5")).unwrap();
        held.clear();
        assert_eq!(walks.counts().len(), 1);
    }

    #[tokio::test]
    async fn who_takes_nothing_is_told_and_its_thread_ends() {
        let walks = Walks { idle: Duration::from_millis(50), ..Walks::default() };
        let (sender, mut receiver) = mpsc::channel(1);
        let walk = walks.begin(&of("10.0.0.1")).unwrap();
        walk.run(sender, |reader| while reader.send(Ok(1)).is_ok() {}).unwrap();
        while !walks.counts().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(receiver.recv().await.unwrap().unwrap(), 1);
        assert_eq!(receiver.recv().await.unwrap().unwrap_err().code(), Code::DeadlineExceeded);
        assert!(receiver.recv().await.is_none());
    }
}
