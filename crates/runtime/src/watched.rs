//! Descriptors that the runtime watches.

use std::io;
use std::os::fd::OwnedFd;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Watches a descriptor for something to read.
///
/// tokio's constructor is deprecated because a type may close its descriptor behind the runtime's back; an `OwnedFd`
/// cannot, and the replacement is `unsafe`, which this crate does without.
#[allow(deprecated)]
pub fn readable(descriptor: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(descriptor, Interest::READABLE)
}

/// Watches a descriptor of a file of the kernel that announces changes as exceptional conditions.
#[allow(deprecated, reason = "as above")]
pub fn exceptional(descriptor: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(descriptor, Interest::PRIORITY)
}
