//! Tasks that end with what they belong to.

use tokio::task::AbortHandle;

/// Ends a task with the value that owns it.
pub(crate) struct Owned(pub(crate) AbortHandle);

impl Drop for Owned {
    fn drop(&mut self) {
        self.0.abort();
    }
}
