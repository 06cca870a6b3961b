//! machined, apid and trustd: everything of a running node that is not PID 1.
//!
//! | program | process | talks to |
//! |---|---|---|
//! | machined | child of init, root | init (fd 3), apid and trustd (unix sockets), the kernel |
//! | apid | child of machined, uid 50 | clients (TCP 50000, mutual TLS), machined |
//! | trustd | child of machined, uid 51 | nodes (TCP 50001, TLS and a token), machined for its material |
//!
//! Long-lived tasks of machined, all spawned in [`machined`]:
//!
//! | task | reads | writes | ends |
//! |---|---|---|---|
//! | init link | the handoff socket | exits, requests for the end | with machined |
//! | supervisors, log pumps ([`runtime::services`], [`runtime::logs`]) | processes, pipes | states, log files | with machined |
//! | controllers ([`controllers`]) | store changes | store, small effects | with machined |
//! | timed ([`time`]) | time servers, the config | the clock, its resources | with the service |
//! | sequencer ([`runtime::sequencer`], [`sequences`]) | requests | events, the journal of sequences | with its sequence |
//! | mounts ([`mounts`]) | /proc/self/mountinfo | store | with machined |
//! | block devices (`block`), hardware (`hardware`) | /sys, news of udevd | store | with machined |
//! | key slots of encrypted volumes ([`volumes`]) | the config | META, LUKS2 headers, store | with machined |
//! | modules (`modules`), device rules (`udev_rules`) | the config | modules, devices, store | with machined |
//! | flight recorder (`flight_recorder`) | /dev/kmsg | the ring in META | with machined |
//! | identity (`node_identity`) | STATE, the firmware | STATE, store | once it is told |
//! | names (`host_dns`) | questions, the config, `ResolverStatuses` | answers, its resources | with the service |
//! | probes (`probes`) | the config, services | its resources | with machined |
//! | logs to others (`log_sender`) | the config, all logs | sockets, store | with machined |
//! | certificates of etcd (`kubernetes`) | the config, names and addresses | /system/secrets/etcd | with machined |
//! | certificates (`identity::certificates`) | the config, files of Kubernetes, apid's material | its resources | with machined |
//! | API server ([`server`]) | `machine.sock` | answers | with machined |
#![warn(missing_docs)]

pub mod apid;
mod block;
pub mod configuration;
mod connections;
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
mod log_sender;
pub mod machined;
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
mod reset;
mod secure_boot;
pub mod sequences;
pub mod server;
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
pub mod volumes;

pub use sequences::print_plan;

#[cfg(test)]
mod hostile_tests;
