//! The way of hardware into the store.

use runtime::Runtime;
use runtime::store::{Definition, Spec};

/// Has the resources of a type be these.
pub(super) fn put(runtime: &Runtime, kind: &'static Definition, wanted: Vec<(String, Spec)>) {
    if let Err(error) = runtime.store.replace(kind.writer, kind, wanted) {
        runtime.journal.warn(&error.to_string());
    }
}
