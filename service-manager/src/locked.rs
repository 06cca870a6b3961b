//! Who may give a config to a node that has none in force: pure.
//!
//! Owns: the decision, from what a look for STATE found, what META says, and the kernel parameter; what is told to
//! whoever is refused. A machine that nobody ever gave a config is open: whoever reaches it may give it one. One that has
//! a config which it cannot open now is locked: nobody may, from wherever, or a key server that is away for a minute would
//! make the machine its neighbours'.
//! Does not: look (`volumes::look` does), or refuse (`api::roles`, the API server and `loadConfig` do).
//! Source: docs/decisions/0019.

use api::roles::Mode;
use serde::{Deserialize, Serialize};

/// What a look for STATE found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Look {
    /// It is mounted.
    Mounted,
    /// No partition has that name.
    Nothing,
    /// There is one that holds nothing yet.
    Empty,
    /// Several partitions have that name, or several disks are the system's.
    Several(String),
    /// It cannot be opened or mounted.
    Closed(String),
    /// It is mounted, and the config on it cannot be read or used.
    Unusable(String),
}

impl Look {
    /// Whether waiting for another disk can change it.
    pub(crate) fn may_be_late(&self) -> bool {
        matches!(self, Self::Nothing | Self::Empty)
    }

    /// What keeps STATE from being used.
    pub(crate) fn problem(&self) -> Option<&str> {
        match self {
            Self::Mounted | Self::Nothing | Self::Empty => None,
            Self::Several(why) | Self::Closed(why) | Self::Unusable(why) => Some(why),
        }
    }
}

/// What META says of a config.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Memory {
    /// Nobody gave this machine one, or there is no META.
    Nothing,
    /// One was kept on STATE.
    Configured,
    /// It cannot be read.
    Unreadable(String),
}

/// How a node waits for a config.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Maintenance {
    /// It does not: one is in force, or is being looked for.
    #[default]
    No,
    /// Whoever reaches it may give it one.
    Open,
    /// Nobody may; why STATE cannot be used.
    Locked(String),
}

impl Maintenance {
    /// What the node is to its callers.
    pub(crate) fn mode(&self) -> Mode {
        match self {
            Self::No => Mode::Configured,
            Self::Open => Mode::Open,
            Self::Locked(_) => Mode::Locked,
        }
    }

    /// Why nobody may give the node a config.
    pub(crate) fn lock(&self) -> Option<&str> {
        match self {
            Self::Locked(why) => Some(why),
            Self::No | Self::Open => None,
        }
    }
}

/// Decides for a node without a config in force.
pub(crate) fn decide(look: &Look, memory: &Memory, is_open_wanted: bool) -> Maintenance {
    let why = match (look, memory) {
        // Whoever started the machine with it is before it, or made its image.
        _ if is_open_wanted => return Maintenance::Open,
        (Look::Mounted, _) => return Maintenance::Open,
        (Look::Nothing | Look::Empty, Memory::Nothing) => return Maintenance::Open,
        (Look::Several(why) | Look::Closed(why) | Look::Unusable(why), _) => why.clone(),
        (Look::Nothing, Memory::Configured) => {
            "META says that this machine has a configuration, and its partition STATE is not there".to_owned()
        }
        (Look::Empty, Memory::Configured) => {
            "META says that this machine has a configuration, and its partition STATE is empty".to_owned()
        }
        (Look::Nothing | Look::Empty, Memory::Unreadable(why)) => {
            format!("META, which says whether this machine has a configuration, cannot be read: {why}")
        }
    };
    Maintenance::Locked(why)
}

/// How it can be unlocked, a line each.
pub(crate) const WAYS_OUT: [&str; 4] = [
    "bring back what opens STATE, as its key server: the machine goes on by itself",
    "unlock STATE with its recovery key: billetctl unlock STATE --insecure, or at the console",
    "start the machine with the kernel parameter billet.maintenance=open: whoever reaches it may then give it a configuration",
    "give it up: start a medium with billet.experimental.wipe=system, which wipes the system disk",
];

/// What a caller reads whose call a locked node refuses. The first two words are what Talos clients look for.
pub(crate) fn refusal(path: &str, why: &str) -> String {
    let ways = WAYS_OUT.join("; ");
    format!("not authorized: {path} is refused, this machine is locked: {why}. Ways out: {ways}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn looks() -> [Look; 6] {
        let why = || "why".to_owned();
        [
            Look::Mounted,
            Look::Nothing,
            Look::Empty,
            Look::Several(why()),
            Look::Closed(why()),
            Look::Unusable(why()),
        ]
    }

    fn memories() -> [Memory; 3] {
        [Memory::Nothing, Memory::Configured, Memory::Unreadable("bad sector".to_owned())]
    }

    #[test]
    fn every_input_is_decided() {
        // A row for each look, a column for each memory: open or locked.
        let table = [
            (Look::Mounted, "ooo"),
            (Look::Nothing, "oll"),
            (Look::Empty, "oll"),
            (Look::Several("why".into()), "lll"),
            (Look::Closed("why".into()), "lll"),
            (Look::Unusable("why".into()), "lll"),
        ];
        assert_eq!(table.iter().map(|(look, _)| look.clone()).collect::<Vec<_>>(), looks());
        for (look, row) in table {
            for (memory, wanted) in memories().iter().zip(row.chars()) {
                let decided = decide(&look, memory, false);
                assert_eq!(decided.lock().is_some(), wanted == 'l', "{look:?} {memory:?}: {decided:?}");
                assert_ne!(decided, Maintenance::No);
                assert_eq!(decide(&look, memory, true), Maintenance::Open, "{look:?} {memory:?}");
            }
        }
    }

    #[test]
    fn the_reason_is_that_of_the_look_or_of_meta() {
        let reason = |look: &Look, memory: &Memory| match decide(look, memory, false) {
            Maintenance::Locked(why) => why,
            other => panic!("{other:?}"),
        };
        for look in &looks()[3..] {
            assert!(memories().iter().all(|memory| reason(look, memory) == "why"));
        }
        assert!(reason(&Look::Nothing, &Memory::Configured).ends_with("STATE is not there"));
        assert!(reason(&Look::Empty, &Memory::Configured).ends_with("STATE is empty"));
        assert!(reason(&Look::Empty, &memories()[2]).ends_with("cannot be read: bad sector"));
    }

    #[test]
    fn who_is_refused_reads_why_and_every_way_out() {
        let text = refusal("/machine.MachineService/Reset", "no key matched");
        assert!(text.starts_with("not authorized: /machine.MachineService/Reset is refused"), "{text}");
        for part in
            ["locked: no key matched", "key server", "billetctl unlock STATE", "billet.maintenance=open"]
        {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert!(text.contains("billet.experimental.wipe=system"));
    }
}
