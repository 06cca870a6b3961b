//! A resource: metadata and a typed spec.
//!
//! Source: crates/api/proto/cosi/resource/state.proto (what the wire carries of it).

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::{Definition, Spec};
use crate::clock;

/// Where a resource is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// In use.
    Running,
    /// Its owner wants it gone and waits for finalizers.
    TearingDown,
}

impl Phase {
    /// The word on the wire.
    pub fn text(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::TearingDown => "tearingDown",
        }
    }
}

/// What every resource carries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Metadata {
    /// Namespace, from the definition.
    pub namespace: &'static str,
    /// Type, `<PluralCamel>.<suffix>`.
    pub kind: &'static str,
    /// Unique within namespace and type.
    pub id: String,
    /// Counts from 1, or from what its writer says; one more an update.
    pub version: u64,
    /// Where it is in its life.
    pub phase: Phase,
    /// The writer of its type.
    pub owner: &'static str,
    /// When it was created.
    pub created: Timestamp,
    /// When it was last changed.
    pub updated: Timestamp,
    /// Who must agree before it goes.
    pub finalizers: Vec<String>,
    /// For selection.
    pub labels: BTreeMap<String, String>,
    /// For people and tools.
    pub annotations: BTreeMap<String, String>,
}

/// Metadata and spec.
#[derive(Debug, Clone, PartialEq)]
pub struct Resource {
    /// What every resource carries.
    pub metadata: Metadata,
    /// What this type carries.
    pub spec: Spec,
}

impl Resource {
    pub(super) fn created(kind: &'static Definition, id: &str, spec: Spec, version: u64) -> Self {
        let now = clock::now();
        Self::at(kind, id.to_owned(), spec, version, now, now)
    }

    /// One that a [`super::Source`] makes of what it keeps.
    #[must_use]
    pub fn at(
        kind: &'static Definition,
        id: String,
        spec: Spec,
        version: u64,
        created: Timestamp,
        updated: Timestamp,
    ) -> Self {
        let metadata = Metadata {
            namespace: kind.namespace,
            kind: kind.kind,
            id,
            version,
            phase: Phase::Running,
            owner: kind.writer,
            created,
            updated,
            finalizers: Vec::new(),
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
        };
        Self { metadata, spec }
    }

    pub(super) fn updated(&self, spec: Spec) -> Self {
        let mut metadata = self.metadata.clone();
        metadata.version += 1;
        metadata.updated = clock::now();
        Self { metadata, spec }
    }
}
