//! What a process may give to what it starts: no more than it has itself.
//!
//! A container's host may withhold a capability. What takes it is then lowered to what is allowed, so that services start all
//! the same.
//! Source: capabilities(7), proc_pid_oom_score_adj(5), getrlimit(2).

/// Every capability of Linux 6.12, in the order of their numbers. Source: linux/capability.h.
pub const CAPABILITIES: [&str; 41] = [
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_DAC_READ_SEARCH",
    "CAP_FOWNER",
    "CAP_FSETID",
    "CAP_KILL",
    "CAP_SETGID",
    "CAP_SETUID",
    "CAP_SETPCAP",
    "CAP_LINUX_IMMUTABLE",
    "CAP_NET_BIND_SERVICE",
    "CAP_NET_BROADCAST",
    "CAP_NET_ADMIN",
    "CAP_NET_RAW",
    "CAP_IPC_LOCK",
    "CAP_IPC_OWNER",
    "CAP_SYS_MODULE",
    "CAP_SYS_RAWIO",
    "CAP_SYS_CHROOT",
    "CAP_SYS_PTRACE",
    "CAP_SYS_PACCT",
    "CAP_SYS_ADMIN",
    "CAP_SYS_BOOT",
    "CAP_SYS_NICE",
    "CAP_SYS_RESOURCE",
    "CAP_SYS_TIME",
    "CAP_SYS_TTY_CONFIG",
    "CAP_MKNOD",
    "CAP_LEASE",
    "CAP_AUDIT_WRITE",
    "CAP_AUDIT_CONTROL",
    "CAP_SETFCAP",
    "CAP_MAC_OVERRIDE",
    "CAP_MAC_ADMIN",
    "CAP_SYSLOG",
    "CAP_WAKE_ALARM",
    "CAP_BLOCK_SUSPEND",
    "CAP_AUDIT_READ",
    "CAP_PERFMON",
    "CAP_BPF",
    "CAP_CHECKPOINT_RESTORE",
];

/// What a process may do.
#[derive(Debug, Clone, Copy)]
pub struct OwnRights {
    /// The bounding set of its capabilities, one bit each.
    pub bounding: u64,
    /// Its own `oom_score_adj`.
    pub oom_score_adj: i16,
    /// How many files it may open at most.
    pub open_files: u64,
}

impl OwnRights {
    /// Of this process.
    #[must_use]
    pub fn of_this_process() -> Self {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("CapBnd:"));
        let bounding = line.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok()).unwrap_or(0);
        let own = std::fs::read_to_string("/proc/self/oom_score_adj").unwrap_or_default();
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum;
        let (oom_score_adj, open_files) = (own.trim().parse().unwrap_or(0), limit.unwrap_or(u64::MAX));
        Self { bounding, oom_score_adj, open_files }
    }

    /// Whether the bounding set has the capability of this name, `CAP_SYS_ADMIN`.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        let number = CAPABILITIES.iter().position(|known| *known == name);
        number.is_some_and(|number| self.bounding & (1 << number) != 0)
    }

    /// The limit of open files nearest to `wanted`: raising it takes `CAP_SYS_RESOURCE`.
    #[must_use]
    pub fn open_files(&self, wanted: u64) -> u64 {
        if self.has("CAP_SYS_RESOURCE") { wanted } else { wanted.min(self.open_files) }
    }

    /// The score for the OOM killer nearest to `wanted`: lowering it takes `CAP_SYS_RESOURCE`.
    #[must_use]
    pub fn oom_score_adj(&self, wanted: i16) -> i16 {
        if self.has("CAP_SYS_RESOURCE") { wanted } else { wanted.max(self.oom_score_adj) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_a_missing_capability_is_lowered_to_what_is_allowed() {
        let own = OwnRights { bounding: 1, oom_score_adj: 100, open_files: 1024 };
        assert_eq!((own.open_files(4096), own.open_files(64)), (1024, 64));
        assert_eq!((own.oom_score_adj(-999), own.oom_score_adj(500)), (100, 500));
        let all = OwnRights { bounding: u64::MAX, ..own };
        assert_eq!((all.open_files(4096), all.oom_score_adj(-999)), (4096, -999));
    }
}
