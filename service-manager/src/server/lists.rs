//! Lists that are made as they are read.
//!
//! Order: room in the stream, then this message's [`turn`]. A client that takes nothing costs nothing; of all that are read one
//! message is made at a time, so that calls which are no lists never wait behind hundreds of them.

use runtime::request;
use tokio::sync::{Semaphore, SemaphorePermit};
use tonic::{Response, Status};

use super::answers::{Answers, answers};

/// machined's runtime has two threads: the other one is everybody else's.
static TURNS: Semaphore = Semaphore::const_new(1);

/// The right to make one message, in the order of asking.
pub(super) async fn turn() -> Option<SemaphorePermit<'static>> {
    // It is never closed; without a turn a message would be made all the same.
    TURNS.acquire().await.ok()
}

/// A stream of one message for each item, made when there is room for it; it ends early when the client leaves.
pub(super) fn answer_as_read<I: Send + 'static, T: Send + 'static>(
    items: Vec<I>,
    make: impl Fn(&I) -> Result<T, Status> + Send + 'static,
) -> Response<Answers<T>> {
    let (sender, answer) = answers();
    request::feed(sender.clone(), async move {
        for item in items {
            let Ok(place) = sender.reserve().await else { return };
            let turn = turn().await;
            place.send(make(&item));
            drop(turn);
            tokio::task::yield_now().await;
        }
    });
    answer
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio_stream::StreamExt as _;

    use super::*;
    use crate::server::answers::STREAM_QUEUE;

    #[tokio::test]
    async fn no_more_is_made_than_is_read_and_waits() {
        let made = Arc::new(AtomicUsize::new(0));
        let counted = made.clone();
        let answer = answer_as_read((0..1000).collect(), move |number: &i32| {
            counted.fetch_add(1, Ordering::Relaxed);
            Ok(*number)
        });
        // Other tests have their turns too.
        let end = tokio::time::Instant::now() + std::time::Duration::from_secs(20);
        while made.load(Ordering::Relaxed) < STREAM_QUEUE && tokio::time::Instant::now() < end {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert_eq!(made.load(Ordering::Relaxed), STREAM_QUEUE);
        let all: Vec<_> = answer.into_inner().map(Result::unwrap).collect().await;
        assert_eq!(all, (0..1000).collect::<Vec<_>>());
    }
}
