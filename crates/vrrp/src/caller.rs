//! What the caller brings: its way of giving addresses to its link.
//!
//! Owns: how often it is asked, and how long it may take.
//! Fails by: text, which is told as it is.

use std::future::Future;
use std::time::Duration;

use tokio::time::timeout;

/// Between two calls of [`Address::hold`]. The kernel's lifetime of an address is a second or two.
pub const HOLD_PERIOD: Duration = Duration::from_millis(250);
/// Of one call of [`Address`].
pub const CALL_DEADLINE: Duration = Duration::from_secs(1);

/// The virtual addresses on the caller's link. A call that takes longer than [`CALL_DEADLINE`] is given up: its future is
/// dropped, and it counts as failed. With the priority [`crate::router::OWNER`] the addresses are the link's own, and only
/// [`Self::announce`] has something to do.
pub trait Address: Send {
    /// Gives the link the addresses, or lengthens their life in the kernel: called each [`HOLD_PERIOD`]. The kernel should
    /// take them away soon after the last call, so that a process that hangs does not keep them.
    fn hold(&mut self) -> impl Future<Output = Result<(), String>> + Send;

    /// Tells the neighbours that the addresses are at the interface's own hardware address: by gratuitous ARP, or by
    /// unsolicited neighbour advertisements.
    fn announce(&mut self) -> impl Future<Output = Result<(), String>> + Send;

    /// Takes the addresses away. It may be that they are not there.
    fn drop_address(&mut self) -> impl Future<Output = Result<(), String>> + Send;
}

/// A call's answer, or that there is none.
pub(crate) async fn within_deadline(call: impl Future<Output = Result<(), String>>) -> Result<(), String> {
    match timeout(CALL_DEADLINE, call).await {
        Ok(result) => result,
        Err(_) => Err(format!("no answer within {} ms", CALL_DEADLINE.as_millis())),
    }
}
