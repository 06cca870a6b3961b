//! Work for a request: futures, tasks, blocking work and threads that carry its scope along.
//!
//! Owns: entering the scope for each poll and for the end, which may run code too. Without a current call all of these are
//! what the runtime has: work of the node's own.
//! Fails by: [`Panicked`], once, where the work is waited for.

use std::future::Future;
use std::panic::resume_unwind;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tonic::Status;

use super::{Call, Panicked, contain};

/// A future in the scope of a call.
pub struct Contained<F> {
    call: Option<Arc<Call>>,
    work: Option<Pin<Box<F>>>,
}

impl<F> Contained<F> {
    /// Drops what the work holds, which may panic as well; only the first panic is told.
    fn end(&mut self) {
        let work = self.work.take();
        let _ = contain(self.call.as_ref(), move || drop(work));
    }
}

impl<F: Future> Future for Contained<F> {
    type Output = Result<F::Output, Panicked>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        // Polled after its end: it has nothing to say any more.
        let Some(work) = this.work.as_mut() else { return Poll::Pending };
        let polled = contain(this.call.as_ref(), || work.as_mut().poll(context));
        let ended = match polled {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(value)) => Ok(value),
            Err(panicked) => Err(panicked),
        };
        this.end();
        Poll::Ready(ended)
    }
}

impl<F> Drop for Contained<F> {
    fn drop(&mut self) {
        self.end();
    }
}

/// Work that answers this call.
pub fn of_call<F: Future>(call: Arc<Call>, work: F) -> Contained<F> {
    Contained { call: Some(call), work: Some(Box::pin(work)) }
}

/// Work for the call that is being answered.
pub fn inherit<F: Future>(work: F) -> Contained<F> {
    Contained { call: Call::current(), work: Some(Box::pin(work)) }
}

/// A task for the call that is being answered. `after` says what a panic means for whoever waits.
pub fn spawn<F, A>(work: F, after: impl FnOnce(Panicked) -> A + Send + 'static) -> JoinHandle<()>
where
    F: Future<Output = ()> + Send + 'static,
    A: Future<Output = ()> + Send,
{
    let work = inherit(work);
    tokio::spawn(async move {
        if let Err(panicked) = work.await {
            after(panicked).await;
        }
    })
}

/// A task that feeds a stream: a panic is the stream's last message.
pub fn feed<T: Send + 'static>(
    sender: mpsc::Sender<Result<T, Status>>,
    work: impl Future<Output = ()> + Send + 'static,
) -> JoinHandle<()> {
    spawn(work, move |panicked| async move {
        // The client may be gone.
        let _ = sender.send(Err(panicked.into())).await;
    })
}

/// A closure for another thread that works for the call that is being answered.
pub fn carried<T>(work: impl FnOnce() -> T) -> impl FnOnce() -> Result<T, Panicked> {
    let call = Call::current();
    move || contain(call.as_ref(), work)
}

/// Work off the async threads. Its panic goes on where it is waited for.
pub async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(carried(work)).await {
        Ok(Ok(value)) => value,
        Ok(Err(panicked)) => resume_unwind(Box::new(panicked)),
        Err(error) => match error.try_into_panic() {
            Ok(payload) => resume_unwind(payload),
            // The runtime ends, and this task with it.
            Err(_) => std::future::pending().await,
        },
    }
}
