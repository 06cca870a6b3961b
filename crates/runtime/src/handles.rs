//! The handles of one node's runtime.
//!
//! Owns: in what order they are made, since each takes those before it. Does not: start anything.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use config::Config;
use config::cmdline::NodeParameters;
use handoff::BootReport;
use tokio::sync::watch;

use crate::checkpoint::Checkpoint;
use crate::events::Events;
use crate::init_link::InitLink;
use crate::journal::Journal;
use crate::listeners::Listeners;
use crate::logs::Logs;
use crate::services::{Dependencies, LogPipe, Services};
use crate::store::{IN_FORCE, MACHINE_CONFIG, MachineDocument, Spec, Store};
use crate::timeline::Timeline;

/// What every feature of a node may use. Clones of a handle are the same thing.
pub struct Runtime {
    /// Root of what the node's files are read from: `/` on a node, a directory in tests.
    pub root: PathBuf,
    /// What the kernel command line says to this node.
    pub parameters: NodeParameters,
    /// How init booted.
    pub boot: BootReport,
    /// The config in force, once there is one.
    pub config: watch::Sender<Option<Arc<Config>>>,
    /// Resources.
    pub store: Store,
    /// Events.
    pub events: Events,
    /// Our own lines.
    pub journal: Journal,
    /// Logs of services.
    pub logs: Logs,
    /// The line to init.
    pub init: InitLink,
    /// What survives machined.
    pub checkpoint: Checkpoint,
    /// Services.
    pub services: Services,
    /// Where the boot time goes.
    pub timeline: Timeline,
    /// Sockets that outlive machined.
    pub listeners: Listeners,
}

/// Where a runtime finds and puts things.
#[derive(Debug)]
pub struct Places {
    /// As [`Runtime::root`].
    pub root: PathBuf,
    /// Directory of the log files.
    pub logs: PathBuf,
    /// The kernel log, opened for writing; without it lines go to the log files alone.
    pub kmsg: Option<OwnedFd>,
    /// Directory of the firmware's variables.
    pub efi_variables: PathBuf,
    /// Root of the cgroup tree; without it services get no groups.
    pub cgroups: Option<PathBuf>,
}

/// Below the root: FIFOs by which containers write their logs.
const FIFOS: &str = "run/billet/logs";

impl Runtime {
    /// Makes the handles. `stored` holds the descriptors that an earlier machined left with init; what a handle uses
    /// is taken out of it.
    pub fn new(
        places: Places,
        init: InitLink,
        boot: BootReport,
        parameters: NodeParameters,
        stored: &mut BTreeMap<String, OwnedFd>,
    ) -> Self {
        let logs = Logs::new(places.logs);
        let journal = Journal::new(places.kmsg, &logs);
        let checkpoint = Checkpoint::open(stored.remove("checkpoint"), &init);
        let (store, events) = (Store::new(), Events::default());
        let timeline =
            Timeline::new(&boot, &places.efi_variables, store.clone(), checkpoint.clone(), journal.clone());
        let services = Services::new(Dependencies {
            journal: journal.clone(),
            events: events.clone(),
            store: store.clone(),
            logs: logs.clone(),
            init: init.clone(),
            checkpoint: checkpoint.clone(),
            timeline: Some(timeline.clone()),
            fifos: places.root.join(FIFOS),
            cgroups: places.cgroups,
            adopted_pipes: adopted_pipes(stored),
        });
        let listeners = Listeners::new(stored, init.clone());
        Self {
            root: places.root,
            parameters,
            boot,
            config: watch::channel(None).0,
            store,
            events,
            journal,
            logs,
            init,
            checkpoint,
            services,
            timeline,
            listeners,
        }
    }

    /// A runtime below `root` without init, kernel log and cgroups: version 1.2.3 on the platform `metal`.
    #[cfg(any(test, feature = "testing"))]
    pub fn detached(root: PathBuf) -> Arc<Self> {
        let boot = BootReport { version: "1.2.3".into(), ..Default::default() };
        let places =
            Places { logs: root.join("log"), kmsg: None, efi_variables: root.clone(), cgroups: None, root };
        let parameters = NodeParameters { platform: "metal".into(), ..Default::default() };
        Arc::new(Self::new(places, InitLink::detached(), boot, parameters, &mut BTreeMap::new()))
    }

    /// The config in force.
    pub fn config(&self) -> Option<Arc<Config>> {
        self.config.borrow().clone()
    }

    /// The config in force with the documents beside it; it is stored before [`Runtime::config`] says so.
    pub fn document(&self) -> Option<Arc<MachineDocument>> {
        match &self.store.get(&MACHINE_CONFIG, IN_FORCE)?.spec {
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

/// The log pipes of an earlier machined, by service.
fn adopted_pipes(stored: &mut BTreeMap<String, OwnedFd>) -> BTreeMap<String, LogPipe> {
    let ids: Vec<String> =
        stored.keys().filter_map(|name| name.strip_prefix("log-r/")).map(str::to_owned).collect();
    let mut pipes = BTreeMap::new();
    for id in ids {
        let names = LogPipe::names(&id);
        if let (Some(read), Some(write)) = (stored.remove(&names.0), stored.remove(&names.1)) {
            pipes.insert(id, LogPipe { read, write });
        }
    }
    pipes
}
