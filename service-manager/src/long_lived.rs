//! The long-lived tasks of the features of a node, beside those that `machined` and `kubernetes` start.
//!
//! Owns: that they run, and under which name `get tasks` lists each. What each reads and writes stands in the head of its
//! module.

use std::sync::Arc;

use crate::node::Node;
use crate::{
    block, controllers, facts, hardware, host_dns, log_sender, modules, mounts, node_identity, probes,
    system_disk, udev_rules, upgrade, volumes,
};

/// Starts the controllers and these tasks, once.
pub(crate) fn start(node: &Arc<Node>) {
    if node.controllers.set(()).is_err() {
        return;
    }
    let runtime = &node.runtime;
    controllers::start(runtime);
    runtime.start_task("mounts", "shows what is mounted", mounts::watch(runtime.clone()));
    let (devices, buses) = (|| node.devices.subscribe(), || node.buses.subscribe());
    let settled = || node.configuration.settled.subscribe();
    runtime.start_task(
        "block-devices",
        "shows disks, and links them below /dev/disk",
        block::watch(runtime.clone(), devices(), settled(), system_disk::twins),
    );
    runtime.start_task(
        "hardware",
        "shows what firmware, TPM and PCI say",
        hardware::watch(runtime.clone(), buses(), settled()),
    );
    runtime.start_task(
        "facts",
        "shows facts of the running system",
        facts::watch(runtime.clone(), buses(), settled()),
    );
    runtime.start_task(
        "devices",
        "says when the first devices have their drivers",
        facts::follow_devices(runtime.clone(), settled()),
    );
    // A container's are its host's.
    if !node.is_container() {
        runtime.start_task("modules", "loads the config's modules", modules::follow(runtime.clone()));
    }
    runtime.start_task(
        "volume-keys",
        "has encrypted volumes have the config's keys",
        volumes::follow(node.volumes.clone()),
    );
    runtime.start_task(
        "user-volumes",
        "makes and mounts the config's volumes",
        volumes::follow_user_volumes(node.volumes.clone(), devices()),
    );
    runtime.start_task(
        "volume-configs",
        "shows what volumes the config wants",
        volumes::follow_configs(node.volumes.clone()),
    );
    runtime.start_task(
        "console",
        "takes passphrases from the console",
        volumes::watch_console(node.volumes.clone()),
    );
    runtime.start_task("log-sender", "sends logs where the config says", log_sender::run(runtime.clone()));
    let of_requests = runtime.clone();
    let ways = Arc::new(move || upgrade::download_settings(&of_requests));
    runtime.start_task("probes", "asks the config's probes", probes::follow(runtime.clone(), ways));
    runtime.start_task(
        "host-dns",
        "has the resolver be as the config says",
        host_dns::follow(runtime.clone()),
    );
    runtime.start_task(
        "udev-rules",
        "applies the config's device rules",
        udev_rules::follow(runtime.clone(), node.udev.clone()),
    );
    runtime.start_task(
        "identity",
        "shows the node's identity",
        node_identity::publish(runtime.clone(), node.volumes.states()),
    );
}
