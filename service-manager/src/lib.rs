//! machined, apid and trustd: everything of a running node that is not PID 1.
//!
//! | program | process | talks to |
//! |---|---|---|
//! | machined | child of init, root | init (fd 3), apid and trustd (unix sockets), the kernel |
//! | apid | child of machined, uid 50 | clients (TCP 50000, mutual TLS), machined |
//! | trustd | child of machined, uid 51 | nodes (TCP 50001, TLS and a token), machined for its material |
//!
//! machined has floors, and each module names only those below its own:
//!
//! | floor | modules | know |
//! |---|---|---|
//! | root | [`machined`], [`sequences`], [`tasks`], `services`, `long_lived`, `kubernetes` | the [`node`] with all handles, and when each feature does what |
//! | front | [`server`]; apid and trustd in processes of their own | the node, and how a client is answered |
//! | features | [`network`], [`time`], [`volumes`], [`upgrade`], `install`, [`configuration`], [`identity`], `reset`, [`controllers`] and others | the runtime, and the handles that each names: `volumes` < `upgrade` < `install` < `configuration` |
//! | ground | `block`, [`system_disk`], [`meta`], `register`, `boot_medium`, `upgrade_record`, `locked`, `order`, `programs`, `material` and others | the runtime |
//! | runtime | the crate [`runtime`] | no feature |
//!
//! A feature that wants a sequence has `order::Orders` start it, which does not know what a sequence does.
//!
//! Long-lived tasks of machined are started by [`runtime::Runtime::start_task`] in [`machined`], `long_lived` and `kubernetes`,
//! and listed by `get tasks`. What each reads and writes stands in the head of its module. Besides, each service has its own
//! (supervisor, log pump, check: [`runtime::services`]), and a sequence has one while it runs ([`runtime::sequencer`],
//! [`sequences`]).
#![warn(missing_docs)]

pub mod apid;
mod block;
mod boot_medium;
pub mod configuration;
mod connections;
mod container;
pub mod containerd;
pub mod controllers;
mod disk_wipe;
mod facts;
mod files;
pub mod flight_recorder;
mod hardware;
mod host_dns;
pub mod identity;
mod install;
mod kube_prism;
mod kubernetes;
mod late_services;
mod locked;
mod log_sender;
mod long_lived;
pub mod machined;
mod material;
mod members;
pub mod meta;
pub mod modprobe;
mod modules;
pub mod mounts;
pub mod network;
pub mod node;
mod node_identity;
mod order;
mod power_button;
mod probes;
mod programs;
mod readiness;
mod register;
mod reset;
mod secure_boot;
pub mod sequences;
pub mod server;
mod services;
mod shared_address;
pub mod system_disk;
pub mod tasks;
pub mod time;
mod tpm_device;
mod trust_request;
pub mod trustd;
mod udev_rules;
pub mod udevd;
pub mod upgrade;
mod upgrade_record;
pub mod volumes;

pub use sequences::print_plan;

#[cfg(test)]
mod hostile_tests;
