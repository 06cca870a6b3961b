//! Every sequence of machined, as data.
//!
//! Owns: the order. A task never calls another task.
//! Does not: run anything ([`crate::sequencer`] does, the tasks of a phase side by side).
//! Source: the names of sequences, phases and tasks are those of Talos, as far as they exist here: clients wait for some of them by
//! name. xtask/testdata/plan.txt shows them all.

mod container;
mod parts;

use std::fmt;

use runtime::Runtime;
use runtime::sequencer::{Follower, Host, Sequencer, TakeOver, When};
use sequence::{Phase, Sequence};

use crate::node::Node;
use crate::order::Order;
use crate::{install, services, tasks, upgrade};
use parts::{CLEAN_UP, DRAIN, LEAVE, STOP, TURN_OFF, TaskFn, named};

/// From machined's start to a config.
pub const INITIALIZE: Sequence<TaskFn> = Sequence {
    name: Order::Initialize.name(),
    about: "Makes the system a place where services can run, brings up the network, finds the machine config.",
    phases: &[
        Phase {
            name: "systemDirectories",
            tasks: &[named(
                "setupSystemDirectory",
                "mounts /system and makes its directories",
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
    name: Order::Boot.name(),
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
                named(
                    "setupVarDirectory",
                    "mounts /var and makes its directories",
                    tasks::setup_var_directory,
                ),
                named(
                    "restoreGracePeriods",
                    "has the kernel stop hurrying, which init asked of it",
                    tasks::restore_grace_periods,
                ),
            ],
        },
        Phase {
            name: "overlay",
            tasks: &[named(
                "mountOverlayFilesystems",
                "makes the directories of Kubernetes writable, on /var",
                tasks::mount_overlay_filesystems,
            )],
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
                    "loads the modules that containers need and those that the config names",
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
    name: Order::Install.name(),
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
const RESTART: &[Phase<TaskFn>] = &[CLEAN_UP, STOP, RESTART_MACHINE];

const RESTART_MACHINE: Phase<TaskFn> =
    Phase { name: "reboot", tasks: &[named("reboot", "asks init to restart the machine", tasks::reboot)] };

/// A new config that takes a restart. It lies on STATE before this begins.
pub const APPLY_CONFIGURATION: Sequence<TaskFn> = Sequence {
    name: Order::ApplyConfiguration.name(),
    about: "Stops every service and restarts the machine with the config that was saved.",
    phases: RESTART,
};

/// The end, to begin again.
pub const REBOOT: Sequence<TaskFn> =
    Sequence { name: "reboot", about: "Stops every service and restarts the machine.", phases: RESTART };

/// The end.
pub const SHUTDOWN: Sequence<TaskFn> = Sequence {
    name: Order::Shutdown.name(),
    about: "Stops every service and turns the machine off.",
    phases: &[DRAIN, CLEAN_UP, STOP, TURN_OFF],
};

/// Another version beside the running one, then a restart into it.
pub const UPGRADE: Sequence<TaskFn> = Sequence {
    name: Order::Upgrade.name(),
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
        DRAIN,
        CLEAN_UP,
        STOP,
        RESTART_MACHINE,
    ],
};

/// An upgrade that META keeps: it happens on the next start, before the services of the machine config do.
pub const STAGE_UPGRADE: Sequence<TaskFn> = Sequence {
    name: Order::StageUpgrade.name(),
    about: "Restarts the machine, which then upgrades before it starts its services.",
    phases: RESTART,
};

/// Forgetting. The intent lies in META before this begins, or once the node has left its cluster.
pub const RESET: Sequence<TaskFn> = Sequence {
    name: Order::Reset.name(),
    about: "Stops every service, wipes what was asked for, and restarts the machine or turns it off.",
    phases: &[
        DRAIN,
        LEAVE,
        CLEAN_UP,
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

impl Host for Node {
    type Order = Order;

    // As in Talos, whose clients rely on it.
    const TAKE_OVERS: &'static [TakeOver<Order>] = &[
        TakeOver {
            new: &[Order::Reboot, Order::Shutdown],
            running: &[Order::Initialize, Order::Boot, Order::Reboot, Order::Reset],
        },
        // A machine whose boot hangs on its config must be able to get another one.
        TakeOver { new: &[Order::Upgrade, Order::ApplyConfiguration], running: &[Order::Boot] },
        // From any state: what waits for a config in maintenance gives way, too.
        TakeOver { new: &[Order::Reset], running: &[Order::Initialize, Order::Boot] },
    ];

    const FOLLOWERS: &'static [Follower<Self>] = &[
        // A staged upgrade that fails leaves a machine that is to boot as it is.
        Follower {
            after: Order::Upgrade,
            failed: true,
            when: Some(When { about: "the machine has not booted yet", holds: has_not_booted }),
            next: Order::Boot,
        },
        Follower {
            after: Order::Initialize,
            failed: false,
            when: Some(When {
                about: "the config names a disk and the machine is not installed",
                holds: installs_itself,
            }),
            next: Order::Install,
        },
        Follower {
            after: Order::Initialize,
            failed: false,
            when: Some(When { about: "META keeps a staged upgrade", holds: is_staged }),
            next: Order::Upgrade,
        },
        Follower { after: Order::Initialize, failed: false, when: None, next: Order::Boot },
    ];

    fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    fn sequencer(&self) -> &Sequencer {
        &self.sequencer
    }

    fn sequence(order: Order) -> &'static Sequence<TaskFn> {
        match order {
            Order::Initialize => &INITIALIZE,
            Order::Install => &INSTALL,
            Order::Boot => &BOOT,
            Order::Upgrade => &UPGRADE,
            Order::StageUpgrade => &STAGE_UPGRADE,
            Order::ApplyConfiguration => &APPLY_CONFIGURATION,
            Order::Reboot => &REBOOT,
            Order::Shutdown => &SHUTDOWN,
            Order::Reset => &RESET,
        }
    }

    fn sequence_here(&self, order: Order) -> &'static Sequence<TaskFn> {
        match order {
            Order::Initialize if self.is_container() => &container::INITIALIZE,
            Order::Boot if self.is_container() => &container::BOOT,
            Order::Reset if self.is_container() => &container::RESET,
            _ => Self::sequence(order),
        }
    }
}

fn installs_itself(node: &Node) -> bool {
    install::is_due_now(&node.install)
}

fn is_staged(node: &Node) -> bool {
    upgrade::is_staged(&node.meta)
}

fn has_not_booted(node: &Node) -> bool {
    !node.runtime.checkpoint.memory().done.iter().any(|name| name == Order::Boot.name())
}

/// Writes every sequence, what follows by itself, and what may end what, for `cargo xtask plan`.
pub fn print_plan(out: &mut dyn fmt::Write) -> fmt::Result {
    for order in Order::ALL {
        writeln!(out, "{}", Node::sequence(order))?;
    }
    for sequence in [&container::INITIALIZE, &container::BOOT, &container::RESET] {
        writeln!(out, "{sequence}")?;
    }
    writeln!(out, "what follows, the first line that fits:")?;
    for row in Node::FOLLOWERS {
        let failed = if row.failed { " that failed" } else { "" };
        let when = row.when.as_ref().map(|when| format!(", if {}", when.about)).unwrap_or_default();
        writeln!(out, "  after {}{failed}{when}: {}", row.after.name(), row.next.name())?;
    }
    writeln!(out, "\nwhat may end what and run in its place:")?;
    let names = |orders: &[Order]| orders.iter().map(|order| order.name()).collect::<Vec<_>>().join(", ");
    for row in Node::TAKE_OVERS {
        writeln!(out, "  {}: {}", names(row.new), names(row.running))?;
    }
    writeln!(out)?;
    services::print(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plan_names_every_task_once_a_sequence() {
        let mut plan = String::new();
        print_plan(&mut plan).unwrap();
        for order in Order::ALL {
            let sequence = Node::sequence(order);
            assert_eq!(sequence.name, order.name());
            assert_eq!(Order::by_name(sequence.name), Some(order));
            let mut names: Vec<_> = sequence.tasks().map(|(_, task)| task.name).collect();
            let count = names.len();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), count, "{}", sequence.name);
            assert!(names.iter().all(|name| plan.contains(name)));
        }
        assert_eq!(Order::by_name("noop"), None);
    }

    #[test]
    fn clients_find_the_names_they_wait_for() {
        for end in [&INSTALL, &UPGRADE, &STAGE_UPGRADE, &APPLY_CONFIGURATION, &REBOOT, &SHUTDOWN, &RESET] {
            assert!(
                end.tasks().any(|(phase, task)| (phase, task.name) == ("stopEverything", "stopAllServices"))
            );
        }
    }

    #[tokio::test]
    async fn a_machine_boots_after_initialize_and_after_a_staged_upgrade_that_failed() {
        let directory = tempfile::tempdir().unwrap();
        let node = crate::server::tests_node(directory.path().to_owned());
        let next = |after, failed| runtime::sequencer::next(&*node, after, failed);
        for failed in [false, true] {
            assert_eq!(next(Order::Initialize, failed), Some(Order::Boot));
            assert_eq!(next(Order::Install, failed), None);
            assert_eq!(next(Order::Reboot, failed), None);
            assert_eq!(next(Order::Boot, failed), None);
        }
        assert_eq!((next(Order::Upgrade, true), next(Order::Upgrade, false)), (Some(Order::Boot), None));
        node.runtime.checkpoint.update(|memory| memory.done.push("boot".to_owned()));
        assert_eq!(next(Order::Upgrade, true), None);
    }
}
