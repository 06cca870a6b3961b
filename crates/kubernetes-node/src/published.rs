//! How the resources of a type become other ones.

use runtime::Runtime;
use runtime::store::{Definition, Spec};

/// Has the resources of this type be these, by their ids. A fault is the node's own, and said.
pub(crate) fn replace(
    runtime: &Runtime,
    kind: &'static Definition,
    wanted: impl IntoIterator<Item = (String, impl Into<Spec>)>,
) {
    let wanted = wanted.into_iter().map(|(id, spec)| (id, spec.into())).collect();
    if let Err(error) = runtime.store.replace(kind.writer, kind, wanted) {
        runtime.journal.warn(&error.to_string());
    }
}
