//! The tasks of the boot sequence, one module a phase.
//!
//! Does not: call one task from another; the order is in `sequences` alone.

pub mod find;
pub mod initialize;
pub mod machined;
pub mod mapping;
pub mod modules;
pub mod mounts;
pub mod network;
pub mod recorder;
pub mod switch;
pub mod unlock;
pub mod watchdog;

pub(crate) mod disk;
mod efi;
mod medium;
