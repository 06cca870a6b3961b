//! Flags of every command.
//!
//! Owns: whom a call goes to, how its answer is printed, and whether all of it could be had.

use crate::output::{self, Format};
use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

/// Flags of every command.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Global {
    /// Client configuration [default: $TALOSCONFIG, else ~/.talos/config]
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) talosconfig: Option<PathBuf>,
    /// Context of the client configuration
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) context: Option<String>,
    /// Nodes that the call is for, as the endpoint sees them [default: those of the context, else the endpoint itself]
    #[arg(short, long, global = true, value_delimiter = ',', value_name = "NODE")]
    pub(crate) nodes: Vec<String>,
    /// Addresses to connect to [default: those of the context]
    #[arg(short, long, global = true, value_delimiter = ',', value_name = "HOST[:PORT]")]
    pub(crate) endpoints: Vec<String>,
    /// Print as table, yaml or json [default: table]; for `get` also jsonpath={...}, for commands that write files the
    /// file or directory
    #[arg(short = 'o', long = "output", global = true, value_name = "FORMAT")]
    pub(crate) output_word: Option<String>,
    /// What `output_word` means; set when the command is known
    #[arg(skip)]
    pub(crate) output: Format,
    /// Shared by everything that one command does
    #[arg(skip)]
    pub(crate) part_failed: PartFailed,
}

/// Whether a node failed while others answered: the command then prints what it has and ends with status 1.
#[derive(Debug, Clone, Default)]
pub(crate) struct PartFailed(Arc<AtomicBool>);

impl PartFailed {
    /// Tells the node's error.
    pub(crate) fn warn(&self, error: impl std::fmt::Display) {
        self.0.store(true, Ordering::Relaxed);
        eprintln!("WARNING: {}", output::shown(&error.to_string()));
    }

    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
