//! Tests of manifests.
