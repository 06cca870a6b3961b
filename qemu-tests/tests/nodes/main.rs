//! Tests whose nodes are their own, in one program: the test harness then always has a next VM to start, however long
//! the one beside it takes. Tests that share a node are in the files beside this directory.
//!
//! One subject: `cargo test -p qemu-tests --test nodes upgrade::`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod arm64;
mod bios;
mod boot;
mod boot_faults;
mod config;
mod crypt;
mod customised;
mod disk_faults;
mod documents;
mod encryption;
mod faults_node;
mod faults_root;
mod first_node;
mod foreign_data;
mod hostile;
mod images;
mod install;
mod kernels;
mod key_server;
mod links;
mod loader;
mod neighbour;
mod netboot;
mod network_root;
mod old_tokens;
mod per_device;
mod power_cut;
mod reader;
mod recorder;
mod recovery_key;
mod restarts;
mod roles;
mod secure_boot;
mod shutdown;
mod tpm;
mod upgrade;
mod user_volumes;
mod volumes;
