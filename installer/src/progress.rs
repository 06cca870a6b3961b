//! How far a long operation got.

/// A step of an operation, told to whoever prints it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// What is being done: `squash`, `compare`, `hash`, `write`.
    pub step: &'static str,
    /// Bytes done.
    pub done_bytes: u64,
    /// Bytes there are.
    pub total_bytes: u64,
}

/// For callers that print nothing.
pub fn silent(_: Progress) {}
