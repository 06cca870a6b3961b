//! Settings that Talos has no document for. They come as `ExtensionServiceConfig` documents whose names begin with `billet-`:
//! clients refuse configs with a kind that they do not know, and would lose it in `edit` and `patch`.
//!
//! | file | name | settings |
//! |---|---|---|
//! | `entries` | | what all of them have in common |
//! | `snapshots` | `billet-etcd-snapshots` | snapshots of etcd that the node takes by itself |
//! | `vrrp` | `billet-vrrp`, `billet-vrrp-…` | an address that machines share without etcd |
//!
//! Each setting is an entry `NAME=value` of `environment`, which clients show to administrators alone.
//!
//! Fails by: [`Problem`] with the entry; it repeats no value of a setting that is a secret.
//! Source: docs/decisions/0032.

mod entries;
mod snapshots;
mod vrrp;

pub(crate) use entries::Problem;
pub use snapshots::{EtcdSnapshots, S3Target, SnapshotTarget};
pub use vrrp::Vrrp;

use crate::documents::{ExtensionServiceConfig, OWN_PREFIX};

/// All that is wrong with a document of ours.
pub(crate) fn problems(document: &ExtensionServiceConfig) -> Vec<Problem> {
    match document.name.as_str() {
        snapshots::NAME => EtcdSnapshots::read(&document.environment).1,
        name if vrrp::is_name(name) => Vrrp::read(&document.environment).1,
        name => vec![Problem::missing(format!(
            "`{name}` is no name of Billet's own settings: {}, {} or {}-…; names of extensions do not begin with `{OWN_PREFIX}`",
            snapshots::NAME,
            vrrp::NAME,
            vrrp::NAME
        ))],
    }
}
