//! A file that the config wants.

/// How a file is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    /// A new file, below /var only; it may replace an older one there.
    Create,
    /// Instead of what the file holds.
    Overwrite,
    /// Behind what the file holds, on a new line.
    Append,
}

/// One file that is wanted. Its content may be a secret: no `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// Absolute path.
    pub(crate) path: String,
    /// Text.
    pub(crate) content: String,
    /// Permission bits, when given.
    pub(crate) mode: Option<u32>,
    /// How it is written.
    pub(crate) operation: Operation,
}
