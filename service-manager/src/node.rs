//! The node: the handles that tasks, controllers and the API server share.
//!
//! Owns: nothing of its own; each handle is owned by its module.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use config::Config;
use config::cmdline::NodeParameters;
use handoff::BootReport;
use runtime::checkpoint::Checkpoint;
use runtime::events::Events;
use runtime::init_link::InitLink;
use runtime::journal::Journal;
use runtime::listeners::Listeners;
use runtime::logs::Logs;
use runtime::services::Services;
use runtime::store::{MACHINE_CONFIG, MachineDocument, Spec, Store};
use runtime::timeline::Timeline;
use tokio::sync::watch;

use crate::configuration::Configuration;
use crate::flight_recorder::FlightRecorder;
use crate::identity::Materials;
use crate::meta::Meta;
use crate::reset::Requested;
use crate::sequencer::Sequencer;
use crate::udev_rules::Applied;
use crate::upgrade::Upgrades;

/// Everything that more than one module needs.
pub struct Node {
    /// Root of what the file calls read: `/` on a node, a folder in tests.
    pub root: PathBuf,
    /// The kernel command line's word on us.
    pub parameters: NodeParameters,
    /// How init booted.
    pub boot: BootReport,
    /// Resources.
    pub store: Store,
    /// Events.
    pub events: Events,
    /// Our own lines.
    pub journal: Journal,
    /// Logs of services.
    pub logs: Logs,
    /// What earlier boots left.
    pub flight_recorder: FlightRecorder,
    /// The line to init.
    pub init: InitLink,
    /// What survives machined.
    pub checkpoint: Checkpoint,
    /// Services.
    pub services: Services,
    /// Running sequence.
    pub sequencer: Sequencer,
    /// Where the boot time goes.
    pub timeline: Timeline,
    /// Sockets that outlive machined.
    pub listeners: Listeners,
    /// What apid and trustd serve with.
    pub materials: Materials,
    /// Counts block devices that came or went.
    pub devices: watch::Sender<u64>,
    /// Counts devices of the PCI bus that came, went, or got a driver.
    pub buses: watch::Sender<u64>,
    /// The config's rules for devices.
    pub udev: Applied,
    /// Set when the controllers run.
    pub controllers: OnceLock<()>,
    /// The API socket, once it is open.
    pub api_socket: OnceLock<std::os::unix::net::UnixListener>,
    /// Counts looks for the machine config that found none.
    pub config_misses: watch::Sender<u64>,
    /// What is remembered about the config besides the config.
    pub configuration: Configuration,
    /// Values that outlive upgrades.
    pub meta: Meta,
    /// STATE, EPHEMERAL and the user's.
    pub volumes: crate::volumes::Volumes,
    /// Upgrades of this node.
    pub upgrades: Upgrades,
    /// The reset that was asked for.
    pub(crate) reset: Requested,
    /// The config in force, once there is one.
    pub config: watch::Sender<Option<Arc<Config>>>,
    /// The disk that this machined has installed to.
    pub install_target: watch::Sender<Option<PathBuf>>,
    /// What the API answers about its readiness.
    pub readiness: watch::Sender<Readiness>,
}

/// How far the API is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Readiness {
    /// apid serves with a certificate.
    pub serving: bool,
    /// A certificate names at least one address that others can reach.
    pub addressed: bool,
    /// The wait for an address was given up.
    pub gave_up: bool,
    /// `API ready` was printed.
    pub announced: bool,
}

impl Node {
    /// The config in force.
    pub fn config(&self) -> Option<Arc<Config>> {
        self.config.borrow().clone()
    }

    /// The config in force with the documents beside it; it is stored before [`Node::config`] says so.
    pub fn document(&self) -> Option<Arc<MachineDocument>> {
        match &self.store.get(&MACHINE_CONFIG, "v1alpha1")?.spec {
            Spec::MachineConfig(document) => Some(document.clone()),
            _ => None,
        }
    }

    /// Billet's own version: that of the running system, else of this program (tests, a root without a manifest).
    pub fn version(&self) -> &str {
        if self.boot.version.is_empty() { env!("CARGO_PKG_VERSION") } else { &self.boot.version }
    }

    /// A path below the node's root; the answer never leaves it by an absolute `path`.
    pub fn path(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }
}
