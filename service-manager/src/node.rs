//! The node: the handles that tasks, controllers and the API server share.
//!
//! Owns: nothing of its own; each handle is owned by its module.

use runtime::Runtime;
use runtime::sequencer::Sequencer;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::watch;

use crate::configuration::Configuration;
use crate::flight_recorder::FlightRecorder;
use crate::identity::Materials;
use crate::meta::Meta;
use crate::reset::Requested;
use crate::udev_rules::Applied;
use crate::upgrade::Upgrades;

/// Everything that more than one module needs.
pub struct Node {
    /// What knows no feature.
    pub runtime: Arc<Runtime>,
    /// What earlier boots left.
    pub flight_recorder: FlightRecorder,
    /// Running sequence.
    pub sequencer: Sequencer,
    /// What apid and trustd serve with.
    pub materials: Materials,
    /// Counts block devices that came or went.
    pub devices: watch::Sender<u64>,
    /// Counts devices of the PCI bus that came, went, or got a driver.
    pub buses: watch::Sender<u64>,
    /// The config's rules for devices.
    pub udev: Arc<Applied>,
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
    /// The request that began the running sequence has pods go elsewhere first.
    pub(crate) drains: AtomicBool,
    /// The disk that this machined has installed to.
    pub install_target: watch::Sender<Option<PathBuf>>,
    /// etcd and what follows from it; made when it is first asked for.
    pub(crate) kubernetes: OnceLock<kubernetes_node::KubernetesNode>,
    /// What the API answers about its readiness.
    pub readiness: watch::Sender<Readiness>,
}

impl Node {
    /// Whether it is a container: disks, drivers, the clock and the network are made by its runtime.
    pub(crate) fn is_container(&self) -> bool {
        self.runtime.parameters.platform == CONTAINER
    }
}

/// The platform of a node that is a container.
pub(crate) const CONTAINER: &str = "container";
/// What such a node answers where only its runtime can do what is asked.
pub(crate) const NOT_IN_A_CONTAINER: &str = "method is not supported in container mode";

/// How long the API may take to answer once there is a config.
pub(crate) const API_READY_DEADLINE: Duration = Duration::from_secs(60);

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
