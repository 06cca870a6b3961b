//! The state of a boot.
//!
//! Owns: what one task of the boot sequence leaves for the next.
//! Does not: order the tasks (`sequences`) or act (`tasks`).

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use handoff::BootReport;
use netroot::{Station, Trust};
use ondisk::manifest::RootManifest;

use crate::card::Card;
use crate::cmdline::Parameters;
use crate::corruption::Corruption;
use crate::failure::Failure;
use crate::kernel::{Kernel, Level};
use crate::modules::Modules;
use crate::recorder::Recorder;
use crate::source::Source;
use crate::watchdog::Watchdog;

/// What the function of a task looks like.
pub type BootTask = fn(&mut Boot<'_>) -> Result<(), Failure>;

/// An encrypted volume that is to be opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Locked {
    /// META of the same disk, with the record of how.
    pub meta: String,
    /// Its partition: `/dev/vda5`.
    pub device: String,
    /// What it is encrypted with, as the record has it: empty for the usual.
    pub cipher: String,
}

/// What is under way to a root from the network.
#[derive(Default)]
pub struct Network {
    /// Cards that were brought up, to be brought down again.
    pub(crate) cards: Vec<Card>,
    /// The card that has an address, as a number in `cards`, and what speaks through it.
    pub(crate) station: Option<(usize, Station)>,
    /// Whom to believe behind `https://`.
    pub(crate) trust: Option<Trust>,
}

/// A boot under way.
pub struct Boot<'k> {
    /// The kernel.
    pub kernel: &'k mut dyn Kernel,
    /// From the command line.
    pub parameters: Parameters,
    /// The expected layers; after `read_root_manifest`.
    pub manifest: RootManifest,
    /// The module index; after `read_module_index`.
    pub modules: Modules,
    /// Where the layers are; after `find_layers`.
    pub source: Option<Source>,
    /// STATE, if it is to be opened; after `read_encryption`, until `open_state`.
    pub locked: Option<Locked>,
    /// From `read_authorities` to `release_cards`.
    pub network: Network,
    /// The first corrupt block that was met.
    pub corruption: Option<Corruption>,
    /// The flight recorder; after `begin_record`, if this boot has one.
    pub recorder: Recorder,
    /// The hardware watchdog; off until `read_command_line`.
    pub watchdog: Watchdog,
    /// For machined.
    pub report: BootReport,
}

impl<'k> Boot<'k> {
    /// A boot before its first task.
    pub fn new(kernel: &'k mut dyn Kernel) -> Self {
        Self {
            kernel,
            parameters: Parameters::default(),
            manifest: RootManifest { format: 0, version: String::new(), layers: Vec::new() },
            modules: Modules::default(),
            source: None,
            locked: None,
            network: Network::default(),
            corruption: None,
            recorder: Recorder::default(),
            watchdog: Watchdog::default(),
            report: BootReport::default(),
        }
    }

    /// Notes something that a person should know; the boot goes on.
    pub fn warn(&mut self, text: &str) {
        self.kernel.log(Level::Warning, text);
        self.report.warnings.push(text.to_string());
    }
}
