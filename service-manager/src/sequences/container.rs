//! The sequences of a node that is a container.
//!
//! Its runtime has made the root, devices, the network and the places that keep something: /system/state, /var. Disks, drivers
//! and the clock are the host's.
//! Source: docs/users/local-clusters.md.

use sequence::{Phase, Sequence};

use super::parts::{CLEAN_UP, DRAIN, LEAVE, STOP, TURN_OFF, TaskFn, named};
use crate::order::Order;
use crate::tasks;

/// Instead of [`super::INITIALIZE`].
pub(super) const INITIALIZE: Sequence<TaskFn> = Sequence {
    name: Order::Initialize.name(),
    about: "In a container: makes places where services can run, finds the machine config.",
    phases: &[
        Phase {
            name: "systemDirectories",
            tasks: &[named(
                "setupSystemDirectory",
                "mounts /system, unless the runtime did, and makes its directories",
                tasks::setup_system_directory,
            )],
        },
        Phase {
            name: "systemRequirements",
            tasks: &[
                named(
                    "mountCgroups",
                    "makes machined's own group, where the container has a cgroup2 tree",
                    tasks::use_given_cgroups,
                ),
                named(
                    "writeRequiredSysctlsForContainer",
                    "writes the sysctls of the container's own network",
                    tasks::write_network_sysctls,
                ),
                named("trustHostClock", "says that the host's clock is right", tasks::trust_host_clock),
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
                named("startNetworkd", "follows the network that the runtime made", tasks::start_networkd),
                named(
                    "startApid",
                    "starts the API's front end, which waits for its certificate",
                    tasks::start_apid,
                ),
                named(
                    "mountStatePartition",
                    "takes /system/state, if the runtime mounted it",
                    tasks::mount_state_partition,
                ),
            ],
        },
        Phase {
            name: "config",
            tasks: &[named("loadConfig", "finds, reads and checks the machine config", tasks::load_config)],
        },
    ],
};

/// Instead of [`super::BOOT`].
pub(super) const BOOT: Sequence<TaskFn> = Sequence {
    name: Order::Boot.name(),
    about: "In a container: applies the machine config and starts every service.",
    phases: &[
        Phase {
            name: "api",
            tasks: &[named("waitForAPI", "waits for the API to answer", tasks::wait_for_api)],
        },
        Phase {
            name: "sharedFilesystems",
            tasks: &[named(
                "setupSharedFilesystems",
                "lets mounts of pods be seen in the whole container",
                tasks::share_file_systems,
            )],
        },
        Phase {
            name: "var",
            tasks: &[named("setupVarDirectory", "makes the directories of /var", tasks::setup_var_directory)],
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
            name: "userSetup",
            tasks: &[named(
                "writeUserFiles",
                "writes the config's files and the registries' settings",
                tasks::write_user_files,
            )],
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

/// Instead of [`super::RESET`]: what the runtime gave, it takes away.
pub(super) const RESET: Sequence<TaskFn> = Sequence {
    name: Order::Reset.name(),
    about: "In a container: stops every service and ends it; its files are the runtime's to remove.",
    phases: &[DRAIN, LEAVE, CLEAN_UP, STOP, TURN_OFF],
};
