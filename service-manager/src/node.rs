//! The node: the handles of its features, made once.
//!
//! Owns: nothing of its own; each handle is owned by its module.
//! Does not: reach a feature: each takes the runtime and the handles that it names. Only the sequences with their tasks,
//! the services, the API server and `machined` know the node.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use runtime::Runtime;
use runtime::sequencer::Sequencer;
use tokio::sync::watch;

use crate::configuration::{self, Configuration};
use crate::container;
use crate::flight_recorder::FlightRecorder;
use crate::identity::{self, Identity};
use crate::install::Installation;
use crate::locked::Maintenance;
use crate::meta::Meta;
use crate::order::Orders;
use crate::readiness::Readiness;
use crate::register::Register;
use crate::reset::Resets;
use crate::udev_rules::Applied;
use crate::upgrade::{self, Upgrades};
use crate::volumes::Volumes;

/// Everything that more than one module needs.
pub struct Node {
    /// What knows no feature.
    pub runtime: Arc<Runtime>,
    /// What earlier boots left.
    pub flight_recorder: FlightRecorder,
    /// Running sequence.
    pub sequencer: Sequencer,
    /// How features have a sequence run.
    pub(crate) orders: Arc<Orders>,
    /// What apid and trustd serve with.
    pub(crate) identity: Arc<Identity>,
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
    /// What is remembered about the config besides the config.
    pub(crate) configuration: Arc<Configuration>,
    /// What keys of the TPM depend on.
    pub(crate) register: Arc<Register>,
    /// Values that outlive upgrades.
    pub meta: Meta,
    /// STATE, EPHEMERAL and the user's.
    pub volumes: Arc<Volumes>,
    /// Upgrades of this node.
    pub(crate) upgrades: Arc<Upgrades>,
    /// Resets of this node.
    pub(crate) reset: Arc<Resets>,
    /// The request that began the running sequence has pods go elsewhere first.
    pub(crate) drains: AtomicBool,
    /// Installing this node.
    pub(crate) install: Arc<Installation>,
    /// etcd and what follows from it; made when it is first asked for.
    pub(crate) kubernetes: Arc<OnceLock<kubernetes_node::KubernetesNode>>,
    /// What the API answers about its readiness.
    pub readiness: watch::Sender<Readiness>,
}

impl Node {
    /// A node on this runtime, of which nothing runs yet.
    pub(crate) fn new(runtime: Arc<Runtime>) -> Arc<Self> {
        let meta = Meta::new(runtime.store.clone(), runtime.journal.clone());
        let register = Arc::new(Register::new(runtime.clone()));
        let volumes = Arc::new(Volumes::new(runtime.clone(), meta.clone(), register.clone()));
        let reset = Arc::new(Resets::new(runtime.clone(), meta.clone(), volumes.clone()));
        let flight_recorder = FlightRecorder::default();
        let devices = watch::channel(0).0;
        let readiness = watch::channel(Readiness::default()).0;
        let maintenance = watch::channel(Maintenance::No).0;
        let kubernetes = Arc::new(OnceLock::new());
        Arc::new_cyclic(|node| {
            let orders = Arc::new(Orders::of(node));
            let upgrades = Arc::new(Upgrades::new(upgrade::Parts {
                runtime: runtime.clone(),
                meta: meta.clone(),
                volumes: volumes.clone(),
                flight_recorder: flight_recorder.clone(),
                orders: orders.clone(),
                readiness: readiness.subscribe(),
                maintenance: maintenance.subscribe(),
            }));
            let install = Arc::new(Installation::new(
                runtime.clone(),
                volumes.clone(),
                upgrades.clone(),
                orders.clone(),
                devices.clone(),
            ));
            let identity = Identity::new(identity::Parts {
                runtime: runtime.clone(),
                volumes: volumes.clone(),
                readiness: readiness.clone(),
                maintenance: maintenance.subscribe(),
                kubernetes: kubernetes.clone(),
            });
            let configuration = Configuration::new(configuration::Parts {
                runtime: runtime.clone(),
                meta: meta.clone(),
                register: register.clone(),
                volumes: volumes.clone(),
                install: install.clone(),
                orders: orders.clone(),
                readiness: readiness.subscribe(),
                maintenance,
            });
            Self {
                runtime,
                flight_recorder,
                sequencer: Sequencer::default(),
                orders,
                identity: Arc::new(identity),
                devices,
                buses: watch::channel(0).0,
                udev: Arc::default(),
                controllers: OnceLock::new(),
                api_socket: OnceLock::new(),
                configuration: Arc::new(configuration),
                register,
                meta,
                volumes,
                upgrades,
                install,
                reset,
                drains: AtomicBool::default(),
                kubernetes,
                readiness,
            }
        })
    }

    /// Whether it is a container.
    pub(crate) fn is_container(&self) -> bool {
        container::is_one(&self.runtime)
    }
}
