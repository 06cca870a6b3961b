//! How calls are answered: streams, work that blocks, and who asks.

use api::roles::{Role, RoleSet};
use runtime::request;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

/// Messages that a slow reader may be behind before its sender waits.
pub(super) const STREAM_QUEUE: usize = 8;

/// A server stream.
pub(crate) type Answers<T> = ReceiverStream<Result<T, Status>>;
/// The end that feeds it.
pub(super) type Sender<T> = mpsc::Sender<Result<T, Status>>;

/// The caller's roles, as apid passed them on.
pub(super) fn roles<T>(request: &Request<T>) -> RoleSet {
    let values = request.metadata().get_all("talos-role");
    RoleSet::from_names(values.iter().filter_map(|value| value.to_str().ok()))
}

/// Whether an administrator asks.
pub(super) fn is_admin<T>(request: &Request<T>) -> bool {
    roles(request).contains(Role::Admin)
}

/// A stream, and the end that feeds it.
pub(super) fn answers<T>() -> (Sender<T>, Response<Answers<T>>) {
    let (sender, receiver) = mpsc::channel(STREAM_QUEUE);
    (sender, Response::new(ReceiverStream::new(receiver)))
}

/// A stream of what is known already; it ends early when the client leaves.
pub(super) fn answer_with<T: Send + 'static>(messages: Vec<Result<T, Status>>) -> Response<Answers<T>> {
    let (sender, answer) = answers();
    request::feed(sender.clone(), async move {
        for message in messages {
            if sender.send(message).await.is_err() {
                return;
            }
        }
    });
    answer
}

/// Runs file work off the async threads.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Status> + Send + 'static,
) -> Result<T, Status> {
    request::blocking(work).await
}
