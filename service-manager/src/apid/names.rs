//! The names of this node.

use std::sync::{PoisonError, RwLock};

/// What a connection needs to know of the node.
#[derive(Debug, Default)]
pub(crate) struct Names(RwLock<Vec<String>>);

impl Names {
    /// Whether a target means this node.
    pub(crate) fn contains(&self, target: &str) -> bool {
        let names = self.0.read().unwrap_or_else(PoisonError::into_inner);
        target == "localhost" || names.iter().any(|name| name == target)
    }

    /// Other names from now on.
    pub(super) fn replace(&self, names: &[String]) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = names.to_vec();
    }
}
