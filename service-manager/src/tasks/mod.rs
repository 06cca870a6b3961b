//! The tasks of the sequences, grouped by what they touch.
//!
//! Each task may run again: a machined that takes over a sequence starts at the phase that was cut off.

mod config;
mod etc;
mod finish;
mod install;
mod overlays;
mod reset;
mod services;
mod status;
mod system;
mod upgrade;
mod user;
mod volumes;

pub use config::{load_config, restore_config};
pub use etc::{create_etc_network_files, create_os_release_file};
pub use finish::{drain, reboot, shutdown, stop_all_pods, stop_all_services};
pub use install::{install, save_config};
pub use overlays::mount_overlay_filesystems;
pub use reset::{
    leave_cluster, reboot_or_shutdown, reset_system_disk, reset_user_disks, resume_reset, unmount_system_disk,
};
pub use services::{
    start_all_services, start_apid, start_controllers, start_machined, start_networkd, start_timed,
    start_udevd, wait_for_api,
};
pub use status::{Stage, publish_stage};
pub use system::{
    has_cgroup2, mount_bpffs, mount_cgroups, mount_pseudo_filesystems, restore_grace_periods, set_rlimit,
    setup_system_directory, setup_var_directory, share_file_systems, trust_host_clock, use_given_cgroups,
    write_network_sysctls, write_required_sysctls,
};
pub use upgrade::upgrade;
pub use user::{load_kernel_modules, write_user_files};
pub use volumes::{
    mount_ephemeral_partition, mount_state_partition, mount_user_disks, mount_user_volumes, reload_meta,
};
