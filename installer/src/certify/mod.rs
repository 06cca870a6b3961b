//! The power-cut certificate: every state that a power cut can leave, checked.
//!
//! Owns: the operations that are certified ([`jobs`]), the judge ([`Judge`]), the enumeration with its verdicts
//! ([`certify`]), the proof that flushes are needed, the report.
//! Does not: print; write files; know the file systems of STATE and EPHEMERAL, which are checked by booting samples.
//! Order: [`Node`] (a disk) → [`Case`] (an operation on it, recorded) → states → [`Judge`] → [`Report`].
//! Fails by: a [`Bad`] state with a number, by which the same job shows it again.
//! Source: docs/power-cuts.md.

mod bios;
mod case;
mod encrypted;
mod host;
mod jobs;
mod later;
mod model;
mod nodes;
mod numbers;
pub mod payload;
mod report;
mod run;
mod verdicts;

pub use case::{Bad, Case, Demand, Rule, areas};
pub use host::{MemoryHost, boot_disk, boot_table, formatted};
pub use jobs::{Job, Scope, jobs};
pub use model::{Judge, Started, System, place, table};
pub use nodes::{Node, Variant};
pub use numbers::Numbers;
pub use report::{Entry, Flush, Report};
pub use run::{Outcome, certify};
pub use verdicts::Verdicts;

/// Why a case could not be made.
pub type Fault = Box<dyn std::error::Error + Send + Sync>;

#[cfg(test)]
mod tests;
