//! The settings of Kubernetes' containerd (service `cri`) that follow from the machine config.
//!
//! Owns: registries as containerd reads them: a directory for each registry that has mirrors or certificates, and the
//! sign-ins as a part that is appended to `/etc/cri/containerd.toml`.
//! Does not: write anything; the result is a list of files for [`crate::files`]. What users put in
//! `/var/cri/conf.d/*.toml` is imported by containerd itself.
//! Source: docs/users/containerd.md; the documentation of containerd 1.7 (hosts, registries of CRI).

#[cfg(test)]
mod mirror_tests;
mod registries;

pub(crate) use registries::{CONFIG, files};
