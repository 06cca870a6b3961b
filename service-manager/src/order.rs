//! The names of machined's sequences.
//!
//! Owns: what a feature says to start a sequence, and the way to the sequencer. Does not: know what a sequence does;
//! `sequences` has the phases, and only the composition root reads that.

use std::sync::Weak;

use runtime::sequencer::{self, Host, Locked, Start};

/// A sequence of this node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// From machined's start to a config.
    Initialize,
    /// The first installation to a disk.
    Install,
    /// From a config to a running machine.
    Boot,
    /// Another version beside the running one.
    Upgrade,
    /// An upgrade that happens at the next start.
    StageUpgrade,
    /// A config that needs a restart.
    ApplyConfiguration,
    /// A restart.
    Reboot,
    /// The end.
    Shutdown,
    /// Forgetting.
    Reset,
}

impl Order {
    /// All of them, as `cargo xtask plan` prints them.
    pub const ALL: [Self; 9] = [
        Self::Initialize,
        Self::Install,
        Self::Boot,
        Self::Upgrade,
        Self::StageUpgrade,
        Self::ApplyConfiguration,
        Self::Reboot,
        Self::Shutdown,
        Self::Reset,
    ];

    /// The name in events and logs. Clients wait for these names: they must not change.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Initialize => "initialize",
            Self::Install => "install",
            Self::Boot => "boot",
            Self::Upgrade => "upgrade",
            Self::StageUpgrade => "stageUpgrade",
            Self::ApplyConfiguration => "applyConfiguration",
            Self::Reboot => "reboot",
            Self::Shutdown => "shutdown",
            Self::Reset => "reset",
        }
    }

    /// The sequence of that name.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|order| order.name() == name)
    }
}

/// How a feature has a sequence run.
pub(crate) struct Orders {
    start: Box<dyn Fn(Order, Start) -> Result<(), Locked> + Send + Sync>,
    may_start: Box<dyn Fn(Order) -> Result<(), Locked> + Send + Sync>,
    actor_id: Box<dyn Fn(Order) -> String + Send + Sync>,
}

impl Orders {
    /// Of whoever has the sequences. When that is gone the process is at its end, and nothing is started.
    pub(crate) fn of<H: Host<Order = Order>>(host: &Weak<H>) -> Self {
        let [starting, asking, naming] = [(); 3].map(|()| host.clone());
        Self {
            start: Box::new(move |order, how| match starting.upgrade() {
                Some(host) => sequencer::start(&host, order, how),
                None => Ok(()),
            }),
            may_start: Box::new(move |order| match asking.upgrade() {
                Some(host) => sequencer::may_start(&host, order),
                None => Ok(()),
            }),
            actor_id: Box::new(move |order| {
                naming.upgrade().map(|host| host.sequencer().actor_id(order.name())).unwrap_or_default()
            }),
        }
    }

    /// Starts a sequence, if the lock or the table allows it.
    pub(crate) fn start(&self, order: Order, how: Start) -> Result<(), Locked> {
        (self.start)(order, how)
    }

    /// Whether it could start now.
    pub(crate) fn may_start(&self, order: Order) -> Result<(), Locked> {
        (self.may_start)(order)
    }

    /// Who asked for it, while it runs; empty where machined started it by itself.
    pub(crate) fn actor_id(&self, order: Order) -> String {
        (self.actor_id)(order)
    }
}
