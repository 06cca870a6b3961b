//! What went wrong, in one line.
//!
//! Owns: [`Failure`] (operation, object, cause) and the sentence it becomes in the kernel log.
//! Does not: decide what follows; `runner` and `supervise` do.

use alloc::string::{String, ToString};
use core::fmt;

use sys::Errno;
use sys::errno::Described;

/// An operation that failed on an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// What was attempted, as a verb phrase: `mount`, `read root manifest`.
    pub operation: &'static str,
    /// On what: a path, a device, a parameter.
    pub object: String,
    /// Why it failed.
    pub cause: Cause,
}

/// Why an operation failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cause {
    /// The kernel said no.
    Errno(Errno),
    /// We did: one clause.
    Reason(String),
    /// It did not come within so many seconds.
    NotThere(u64),
}

impl Failure {
    /// A failed system call.
    pub fn errno(operation: &'static str, object: &str, errno: Errno) -> Self {
        Self { operation, object: object.to_string(), cause: Cause::Errno(errno) }
    }

    /// Something that is not as it must be.
    pub fn reason(operation: &'static str, object: &str, reason: impl Into<String>) -> Self {
        Self { operation, object: object.to_string(), cause: Cause::Reason(reason.into()) }
    }

    /// For `map_err`: the failure of one operation on one object.
    pub fn at(operation: &'static str, object: &str) -> impl FnOnce(Errno) -> Self {
        move |errno| Self::errno(operation, object, errno)
    }

    /// What was seen in its place, if anything was, as the reason of something that did not come. Another failure stays as it
    /// is.
    #[must_use]
    pub fn explained(self, seen: &[String]) -> Self {
        match self.cause {
            Cause::NotThere(_) if !seen.is_empty() => Self { cause: Cause::Reason(seen.join("; ")), ..self },
            _ => self,
        }
    }

    /// Whether the kernel reported an input/output error: a corrupt block may be behind it.
    pub fn is_io(&self) -> bool {
        self.cause == Cause::Errno(Errno::IO)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: ", self.operation, self.object)?;
        match &self.cause {
            Cause::Errno(errno) => write!(f, "{}", Described(*errno)),
            Cause::Reason(reason) => f.write_str(reason),
            Cause::NotThere(seconds) => write!(f, "not there after {seconds} s"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_names_operation_object_and_cause() {
        let failure = Failure::errno("mount", "squashfs on /sysroot", Errno::NODEV);
        assert_eq!(
            failure.to_string(),
            "mount squashfs on /sysroot: ENODEV (no such device or file system type)"
        );
        let failure = Failure::reason("read parameter", "billet.slot", "C is neither A nor B");
        assert_eq!(failure.to_string(), "read parameter billet.slot: C is neither A nor B");
    }
}
