//! The virtual machines that the tests and `cargo xtask run` start, and the fixture of a whole node on top.
//!
//! Owns: QEMU's command line, its life and death, what it prints, the ports it forwards; the [`TestNode`].
//! Does not: build images (`cargo xtask build` does, [`artifacts`] reads its answer); need root.
//! Order: [`accel`] decides how fast the host is, [`slots`] waits for a free core, [`vm`] starts QEMU, [`qmp`] and
//! [`console`] talk to it; [`node`] adds PKI, config volume, API client ([`cli`]) and fault injector ([`agent`]).
//! Fails by: panics in tests, with the path of the serial log; `anyhow` errors that name the VM elsewhere.

pub mod accel;
pub mod agent;
pub mod artifacts;
pub mod buildah;
pub mod cli;
pub mod config_volume;
pub mod console;
mod cost;
pub mod credentials;
pub mod emulated;
pub mod encrypted_state;
mod failure;
pub mod grub;
pub mod history;
pub mod installer_image;
pub mod lan;
pub mod loader;
pub mod namespaces;
pub mod node;
pub mod page;
pub mod paths;
pub mod process;
pub mod qmp;
pub mod root;
pub mod rpc;
pub mod settings;
pub mod shell;
pub mod slots;
pub mod state_volume;
pub mod vm;
pub mod web;
pub mod wire;
pub mod write_log;

pub use accel::deadline;
pub use node::{TestNode, Transport};
pub use vm::{Bus, Drive, Vm, VmBuilder};
