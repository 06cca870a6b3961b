//! The targets: what is called with an input, and what must hold whatever the input is.
//!
//! Owns: the list, which the bounded run and the endless one both take; a property that is broken is a panic.

mod bundle;
mod command_line;
mod config;
mod dhcp;
mod dhcp6;
mod handoff;
mod luks2;
mod meta;
mod names;
mod netboot_tftp;
mod oci;
mod patch;
mod requests;
mod root_http;
mod talosconfig;
mod tar;
mod tpm;

use crate::repository;
pub use crate::target::{Outcome, Target};
use std::{fs, path::PathBuf};

/// Every target.
pub const TARGETS: &[Target] = &[
    config::TARGET,
    patch::TARGET,
    command_line::TARGET,
    talosconfig::TARGET,
    luks2::HEADER,
    luks2::JSON,
    bundle::TARGET,
    tpm::TARGET,
    handoff::TARGET,
    meta::TARGET,
    oci::TARGET,
    tar::LAYER,
    tar::ADD,
    root_http::TARGET,
    netboot_tftp::TARGET,
    dhcp::TARGET,
    dhcp::CLIENT,
    dhcp6::TARGET,
    names::TARGET,
    requests::TARGET,
];

/// The target of this name.
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}

/// Files below the repository's `directory`, sorted by name; none if it is not there.
fn files(directory: &str) -> Vec<Vec<u8>> {
    let entries = fs::read_dir(repository().join(directory)).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(|path| path.is_file()).collect();
    paths.sort();
    paths.iter().filter_map(|path| fs::read(path).ok()).collect()
}

/// Inputs that once broke the target, kept so that they never do again.
pub fn regressions(target: &Target) -> Vec<Vec<u8>> {
    files(&format!("fuzz/regressions/{}", target.name))
}
