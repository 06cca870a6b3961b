//! Every sequence of machined, as data.
//!
//! Owns: the order. A task never calls another task.
//! Does not: run anything ([`crate::sequencer`] does, the tasks of a phase side by side).
//! Source: spec/machine-facts.md §4.4 for the names of sequences, phases and tasks, as far as they exist here;
//! clients wait for some of them by name.

use std::fmt;

use sequence::{Phase, Sequence, Task};

use crate::sequencer::TaskFn;
use crate::tasks;

/// A task under the name that events carry.
const fn named(name: &'static str, about: &'static str, run: TaskFn) -> Task<TaskFn> {
    Task { name, about, run }
}

/// From machined's start to a config.
pub const INITIALIZE: Sequence<TaskFn> = Sequence {
    name: "initialize",
    about: "Makes the system a place where services can run, brings up the network, finds the machine config.",
    phases: &[
        Phase {
            name: "systemDirectories",
            tasks: &[named(
                "setupSystemDirectory",
                "mounts /system and makes its folders",
                tasks::setup_system_directory,
            )],
        },
        Phase {
            name: "systemRequirements",
            tasks: &[
                named(
                    "mountCgroups",
                    "mounts the cgroup2 tree and makes machined's own group",
                    tasks::mount_cgroups,
                ),
                named(
                    "mountPseudoFilesystems",
                    "mounts pts, shm, securityfs, efivarfs, /tmp",
                    tasks::mount_pseudo_filesystems,
                ),
                named("mountBPFFS", "mounts bpf", tasks::mount_bpffs),
                named("setRLimit", "raises the limit of open files", tasks::set_rlimit),
                named(
                    "writeRequiredSysctls",
                    "writes the sysctls that the node needs",
                    tasks::write_required_sysctls,
                ),
            ],
        },
        Phase {
            name: "etc",
            tasks: &[
                named(
                    "createEtcNetworkFiles",
                    "writes hosts and resolv.conf and binds them",
                    tasks::create_etc_network_files,
                ),
                named("createOSReleaseFile", "writes os-release and binds it", tasks::create_os_release_file),
                named(
                    "startControllers",
                    "starts everything that follows from resources",
                    tasks::start_controllers,
                ),
            ],
        },
        Phase {
            name: "earlyServices",
            tasks: &[
                named("startMachined", "opens machined's API socket", tasks::start_machined),
                named("startNetworkd", "starts loopback and DHCP", tasks::start_networkd),
                named(
                    "startApid",
                    "starts the API's front end, which waits for its certificate",
                    tasks::start_apid,
                ),
                named("startTimed", "starts asking time servers", tasks::start_timed),
                named("startUdevd", "starts module loading for devices", tasks::start_udevd),
                named("reloadMeta", "reads META of the disk that the root came from", tasks::reload_meta),
            ],
        },
        Phase {
            name: "wipeDisks",
            tasks: &[named(
                "resumeReset",
                "goes on with a reset that was cut off, and does what the command line wants wiped",
                tasks::resume_reset,
            )],
        },
        Phase {
            name: "mountSystem",
            tasks: &[named(
                "mountStatePartition",
                "opens and mounts STATE of that disk; one that is missing is made with the first config",
                tasks::mount_state_partition,
            )],
        },
        Phase {
            name: "config",
            tasks: &[named("loadConfig", "finds, reads and checks the machine config", tasks::load_config)],
        },
    ],
};

/// From a config to a running machine.
pub const BOOT: Sequence<TaskFn> = Sequence {
    name: "boot",
    about: "Applies the machine config and starts every service.",
    phases: &[
        Phase {
            name: "api",
            tasks: &[named("waitForAPI", "waits for the API to answer", tasks::wait_for_api)],
        },
        Phase {
            name: "ephemeral",
            tasks: &[named(
                "mountEphemeralPartition",
                "makes EPHEMERAL on the system disk if it is missing, and mounts it at /var",
                tasks::mount_ephemeral_partition,
            )],
        },
        Phase {
            name: "var",
            tasks: &[
                named("setupVarDirectory", "mounts /var and makes its folders", tasks::setup_var_directory),
                named(
                    "restoreGracePeriods",
                    "has the kernel stop hurrying, which init asked of it",
                    tasks::restore_grace_periods,
                ),
            ],
        },
        Phase {
            name: "userDisks",
            tasks: &[named(
                "mountUserDisks",
                "makes the config's further disks while they are empty, and mounts them",
                tasks::mount_user_disks,
            )],
        },
        Phase {
            name: "userVolumes",
            tasks: &[named(
                "mountUserVolumes",
                "makes, opens and mounts the volumes of the config's documents",
                tasks::mount_user_volumes,
            )],
        },
        Phase {
            name: "userSetup",
            tasks: &[
                named(
                    "writeUserFiles",
                    "writes the config's files and the registries' settings",
                    tasks::write_user_files,
                ),
                named(
                    "loadKernelModules",
                    "loads the modules that the config names",
                    tasks::load_kernel_modules,
                ),
            ],
        },
        Phase {
            name: "startEverything",
            tasks: &[named(
                "startAllServices",
                "starts all services and waits for them",
                tasks::start_all_services,
            )],
        },
    ],
};

/// From a config to a machine that starts from its own disk. Instead of [`BOOT`] on one that runs from a medium, the
/// network or an initramfs.
pub const INSTALL: Sequence<TaskFn> = Sequence {
    name: "install",
    about: "Installs the running system to the disk that the machine config names, and restarts from it.",
    phases: &[
        Phase {
            name: "install",
            tasks: &[named(
                "install",
                "chooses the disk, prints the plan, writes exactly that",
                tasks::install,
            )],
        },
        Phase {
            name: "saveConfig",
            tasks: &[named(
                "saveConfig",
                "makes STATE and keeps the machine config on it",
                tasks::save_config,
            )],
        },
        STOP,
        RESTART_MACHINE,
    ],
};

/// How every sequence that restarts the machine ends.
const RESTART: &[Phase<TaskFn>] = &[STOP, RESTART_MACHINE];

const STOP: Phase<TaskFn> = Phase {
    name: "stopEverything",
    tasks: &[named("stopAllServices", "stops all services, dependants first", tasks::stop_all_services)],
};

const RESTART_MACHINE: Phase<TaskFn> =
    Phase { name: "reboot", tasks: &[named("reboot", "asks init to restart the machine", tasks::reboot)] };

/// A new config that takes a restart. It lies on STATE before this begins.
pub const APPLY_CONFIGURATION: Sequence<TaskFn> = Sequence {
    name: "applyConfiguration",
    about: "Stops every service and restarts the machine with the config that was saved.",
    phases: RESTART,
};

/// The end, to begin again.
pub const REBOOT: Sequence<TaskFn> =
    Sequence { name: "reboot", about: "Stops every service and restarts the machine.", phases: RESTART };

/// The end.
pub const SHUTDOWN: Sequence<TaskFn> = Sequence {
    name: "shutdown",
    about: "Stops every service and turns the machine off.",
    phases: &[
        STOP,
        Phase {
            name: "shutdown",
            tasks: &[named("shutdown", "asks init to cut the power", tasks::shutdown)],
        },
    ],
};

/// Another version beside the running one, then a restart into it.
pub const UPGRADE: Sequence<TaskFn> = Sequence {
    name: "upgrade",
    about: "Installs another version into the slot that does not run and restarts the machine through the firmware.",
    phases: &[
        Phase {
            name: "upgrade",
            tasks: &[named(
                "upgrade",
                "pulls the image, writes the slot, reads it back, has the loader try it",
                tasks::upgrade,
            )],
        },
        STOP,
        RESTART_MACHINE,
    ],
};

/// An upgrade that META keeps: it happens on the next start, before the services of the machine config do.
pub const STAGE_UPGRADE: Sequence<TaskFn> = Sequence {
    name: "stageUpgrade",
    about: "Restarts the machine, which then upgrades before it starts its services.",
    phases: RESTART,
};

/// Forgetting. The intent lies in META before this begins. A node with etcd leaves it before its services stop.
pub const RESET: Sequence<TaskFn> = Sequence {
    name: "reset",
    about: "Stops every service, wipes what was asked for, and restarts the machine or turns it off.",
    phases: &[
        STOP,
        Phase {
            name: "unmountSystem",
            tasks: &[named(
                "unmountSystemDisk",
                "takes STATE and EPHEMERAL out of use",
                tasks::unmount_system_disk,
            )],
        },
        Phase {
            name: "resetUserDisks",
            tasks: &[named(
                "resetUserDisks",
                "wipes the other disks that were named",
                tasks::reset_user_disks,
            )],
        },
        Phase {
            name: "reset",
            tasks: &[named(
                "resetSystemDisk",
                "wipes the system disk or its named partitions, and proves it",
                tasks::reset_system_disk,
            )],
        },
        Phase {
            name: "reboot",
            tasks: &[named(
                "rebootOrShutdown",
                "asks init to restart the machine or to cut the power",
                tasks::reboot_or_shutdown,
            )],
        },
    ],
};

/// All sequences.
pub const ALL: [&Sequence<TaskFn>; 9] = [
    &INITIALIZE,
    &INSTALL,
    &BOOT,
    &UPGRADE,
    &STAGE_UPGRADE,
    &APPLY_CONFIGURATION,
    &REBOOT,
    &SHUTDOWN,
    &RESET,
];

/// The sequence of that name.
pub fn by_name(name: &str) -> Option<&'static Sequence<TaskFn>> {
    ALL.into_iter().find(|sequence| sequence.name == name)
}

/// What a machine does once it has a config.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// It starts its services.
    Boot,
    /// It is to be installed first.
    Install,
    /// An upgrade waits for this start.
    Upgrade,
}

/// What runs by itself after a sequence.
pub fn follower(name: &str, due: Due) -> Option<&'static Sequence<TaskFn>> {
    (name == INITIALIZE.name).then_some(match due {
        Due::Boot => &BOOT,
        Due::Install => &INSTALL,
        Due::Upgrade => &UPGRADE,
    })
}

/// What runs by itself after a sequence that failed; `booted`: the machine was up before it.
pub fn fallback(name: &str, booted: bool) -> Option<&'static Sequence<TaskFn>> {
    // A staged upgrade that fails leaves a machine that is to boot as it is.
    (name == UPGRADE.name && !booted).then_some(&BOOT)
}

/// Writes every sequence, for `cargo xtask plan`.
pub fn print_plan(out: &mut dyn fmt::Write) -> fmt::Result {
    for sequence in ALL {
        writeln!(out, "{sequence}")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plan_names_every_task_once_a_sequence() {
        let mut plan = String::new();
        print_plan(&mut plan).unwrap();
        for sequence in ALL {
            let mut names: Vec<_> = sequence.tasks().map(|(_, task)| task.name).collect();
            let count = names.len();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), count, "{}", sequence.name);
            assert!(names.iter().all(|name| plan.contains(name)));
        }
    }

    #[test]
    fn clients_find_the_names_they_wait_for() {
        for end in [&INSTALL, &UPGRADE, &STAGE_UPGRADE, &APPLY_CONFIGURATION, &REBOOT, &SHUTDOWN, &RESET] {
            assert!(
                end.tasks().any(|(phase, task)| (phase, task.name) == ("stopEverything", "stopAllServices"))
            );
        }
        assert_eq!(follower("initialize", Due::Boot).map(|s| s.name), Some("boot"));
        assert_eq!(follower("initialize", Due::Install).map(|s| s.name), Some("install"));
        assert_eq!(follower("initialize", Due::Upgrade).map(|s| s.name), Some("upgrade"));
        assert!(
            follower("install", Due::Install).is_none()
                && follower("reboot", Due::Boot).is_none()
                && by_name("noop").is_none()
        );
        assert_eq!(fallback("upgrade", false).map(|s| s.name), Some("boot"));
        assert!(fallback("upgrade", true).is_none() && fallback("boot", false).is_none());
    }
}
