//! The names of machined's sequences.
//!
//! Owns: what a feature says to start a sequence. Does not: know what a sequence does; `sequences` has the phases, and
//! only the composition root reads that.

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
