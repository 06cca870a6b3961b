//! The order of everything that PID 1 does.
//!
//! Owns: the sequences as data; `cargo xtask plan` prints them, a golden file holds them still.
//! Does not: act. Tasks know nothing of each other; an order is changed here and nowhere else.

use core::fmt;

use sequence::{Phase, Sequence, task};

use crate::boot::BootTask;
use crate::finish::{self, FinishTask};
use crate::supervise::{self, TurnTask};
use crate::tasks::{
    find, initialize, machined, mapping, modules, mounts, network, recorder, switch, unlock, watchdog,
};

/// From the first instruction to a verified root. The first failing task ends it: one line, a wait, a restart.
pub const BOOT: Sequence<BootTask> = Sequence {
    name: "boot",
    about: "finds and verifies the root and switches to it",
    phases: &[
        Phase {
            name: "mounts",
            tasks: &[
                task!(mounts::mount_devices, "mounts /dev, and with it the kernel log"),
                task!(mounts::mount_processes, "mounts /proc"),
                task!(mounts::mount_system, "mounts /sys"),
                task!(mounts::mount_run, "mounts /run"),
            ],
        },
        Phase {
            name: "parameters",
            tasks: &[
                task!(
                    initialize::read_command_line,
                    "reads panic= first, then ours; unknown ones are warnings"
                ),
                task!(
                    initialize::shorten_grace_periods,
                    "has the kernel end RCU grace periods at once until the boot is over"
                ),
                task!(
                    initialize::read_root_manifest,
                    "reads which layers make the root, with their root hashes"
                ),
                task!(initialize::keep_root_manifest, "copies it to /run/billet/root.json for machined"),
                task!(
                    initialize::keep_config_key,
                    "copies the key of configs on the boot medium to /run/billet/config.key, if there is one"
                ),
                task!(
                    initialize::check_kernel_release,
                    "refuses a kernel that the kernel layer was not built for"
                ),
            ],
        },
        Phase {
            name: "modules",
            tasks: &[
                task!(modules::read_module_index, "reads modules.dep and its companions"),
                task!(modules::load_profile_modules, "loads what the profile lists, in its order"),
            ],
        },
        Phase {
            name: "devices",
            tasks: &[
                task!(modules::watch_devices, "listens for device events, before looking for devices"),
                task!(find::look_in_initramfs, "takes the layers from the initramfs if they are there"),
                task!(modules::plug_devices, "loads drivers for devices, unless the root needs none"),
                task!(
                    watchdog::arm_watchdog,
                    "arms the hardware watchdog if its driver is there, before anything waits for a disk"
                ),
            ],
        },
        // Nothing of it is done unless a parameter names a server.
        Phase {
            name: "network",
            tasks: &[
                task!(
                    network::check_memory,
                    "refuses a root from the network that does not fit into the memory, before it is fetched"
                ),
                task!(
                    network::read_authorities,
                    "reads whose certificates are believed behind https, before any server is asked"
                ),
                task!(network::raise_cards, "brings network cards up and waits until one has a carrier"),
                task!(network::take_address, "asks DHCP for an address, or takes that of ip="),
                task!(
                    network::fetch_layers,
                    "fetches the layers by HTTP or HTTPS into memory, each compared with its root hash"
                ),
                task!(network::release_cards, "brings the cards down again and as they were"),
            ],
        },
        Phase {
            name: "root",
            tasks: &[
                task!(find::find_layers, "waits for the disk slot or labelled medium that has the layers"),
                task!(
                    recorder::begin_record,
                    "opens the flight recorder on the root's disk and notes that a boot began"
                ),
                task!(find::check_layer_sizes, "refuses truncated layers before anything is mapped"),
                task!(mapping::map_layers, "makes a dm-verity device over each layer"),
                task!(mapping::mount_layers, "mounts each layer's squashfs"),
                task!(mapping::stack_layers, "stacks several layers with a read-only overlay"),
            ],
        },
        Phase {
            name: "unlock",
            tasks: &[
                task!(
                    unlock::read_encryption,
                    "reads in META of the root's disk whether STATE is encrypted, and whether it is whole"
                ),
                task!(unlock::load_ciphers, "loads dm-crypt and its ciphers, if it is"),
                task!(
                    unlock::open_state,
                    "opens it with the keys that the machine has by itself: in a child, 120 s at most"
                ),
            ],
        },
        Phase {
            name: "switch",
            tasks: &[
                task!(switch::move_mounts, "moves /dev, /proc, /sys and /run into the root"),
                task!(switch::switch_root, "makes it the root"),
                task!(switch::free_initramfs, "gives the initramfs's memory back"),
                task!(machined::check_machined, "makes sure that the root holds machined"),
            ],
        },
    ],
};

/// Instead of [`BOOT`] in a container: the root, its mounts and its devices are there, and the kernel is the host's.
pub const CONTAINER_BOOT: Sequence<BootTask> = Sequence {
    name: "container boot",
    about: "reads what the root is, in a container that has it",
    phases: &[Phase {
        name: "root",
        tasks: &[
            task!(initialize::read_root_manifest, "reads which layers make the root, with their root hashes"),
            task!(initialize::keep_root_manifest, "copies it to /run/billet/root.json for machined"),
            task!(
                initialize::read_kernel_release,
                "notes which kernel runs: no layer is bound to the host's"
            ),
            task!(machined::check_machined, "makes sure that the root holds machined"),
        ],
    }],
};

/// One turn of the supervision loop, repeated until a final action is known.
pub const SUPERVISION: Sequence<TurnTask> = Sequence {
    name: "supervision",
    about: "keeps machined running; one turn of the loop, repeated until a final action is known",
    phases: &[Phase {
        name: "turn",
        tasks: &[
            task!(
                supervise::reap_children,
                "takes exits into the table; machined's own end starts the back-off"
            ),
            task!(supervise::start_machined, "starts machined when its time has come"),
            task!(
                supervise::send_messages,
                "sends start, stored descriptors, exits, requests; as much as fits"
            ),
            task!(
                supervise::check_deadlines,
                "acts on a missing heartbeat, a missing ready, an unanswered request"
            ),
            task!(supervise::feed_watchdog, "feeds the hardware watchdog while heartbeats come"),
            task!(
                supervise::wait_for_events,
                "waits for a signal, a message, a device event or the next deadline"
            ),
            task!(supervise::read_signals, "turns Ctrl-Alt-Del and SIGTERM into requests"),
            task!(supervise::read_messages, "keeps descriptors, acknowledges exits, takes the final action"),
            task!(supervise::read_device_events, "until machined is ready: a corrupt block ends the boot"),
        ],
    }],
};

/// The end of the system. A failing task is a line in the log and nothing more: the end must come.
pub const SHUTDOWN: Sequence<FinishTask> = Sequence {
    name: "shutdown",
    about: "stops everything, saves what was written, then acts",
    phases: &[
        Phase {
            name: "processes",
            tasks: &[
                task!(
                    finish::terminate_processes,
                    "sends SIGTERM to all and waits until they are gone, 10 s at most"
                ),
                task!(finish::kill_processes, "sends SIGKILL to the rest and waits, 5 s at most"),
            ],
        },
        Phase {
            name: "file-systems",
            tasks: &[
                task!(
                    finish::record_log,
                    "adds the kernel's last lines to the flight recorder, before what is written is synced"
                ),
                task!(
                    finish::close_descriptors,
                    "closes machined's descriptors, which keep file systems busy"
                ),
                task!(
                    finish::unmount_file_systems,
                    "unmounts, unmaps, remounts read-only, syncs: in a child, 30 s at most"
                ),
                task!(finish::remount_rest, "if that child hung: asks the kernel for an emergency remount"),
            ],
        },
        Phase {
            name: "act",
            tasks: &[
                task!(finish::record_end, "notes in the flight recorder how this boot ends"),
                task!(finish::release_watchdog, "disarms the watchdog before a halt or power off"),
                task!(finish::act, "reboots, powers off, halts or starts the loaded kernel"),
            ],
        },
    ],
};

/// Instead of [`SHUTDOWN`] in a container: mounts go with its namespace, and a file system that is read-only would be the host's.
pub const CONTAINER_SHUTDOWN: Sequence<FinishTask> = Sequence {
    name: "container shutdown",
    about: "stops everything in the container, then ends it",
    phases: &[
        Phase {
            name: "processes",
            tasks: &[
                task!(
                    finish::terminate_processes,
                    "sends SIGTERM to all and waits until they are gone, 10 s at most"
                ),
                task!(finish::kill_processes, "sends SIGKILL to the rest and waits, 5 s at most"),
            ],
        },
        Phase { name: "act", tasks: &[task!(finish::act, "ends the PID namespace: its runtime sees how")] },
    ],
};

/// Writes all sequences.
pub fn print_plan(to: &mut dyn fmt::Write) -> fmt::Result {
    writeln!(to, "{BOOT}\n{CONTAINER_BOOT}\n{SUPERVISION}\n{SHUTDOWN}\n{CONTAINER_SHUTDOWN}")
}
