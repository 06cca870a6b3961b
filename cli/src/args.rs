//! Flags and commands.
//!
//! Owns: the grammar. Names, aliases and defaults are talosctl's; where its generations differ both are accepted. The flags
//! of a command stand in its module, those of all commands in `global`.

use crate::{commands, global::Global, output::Format};
use clap::{Parser, Subcommand, ValueEnum};

/// The command line client of a Billet node.
#[derive(Debug, Parser)]
#[command(name = "billetctl", version, disable_version_flag = true, infer_long_args = false)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Args {
    /// Reads what depends on the command: the word behind `--output`.
    pub(crate) fn understood(mut self) -> Result<Self, String> {
        let Some(word) = self.global.output_word.as_deref() else { return Ok(self) };
        match Format::from_str(word, true) {
            Ok(format) => self.global.output = format,
            Err(_) if self.command.takes_output() => {}
            Err(_) => return Err(format!("`--output {word}` is not known; it is table, yaml or json")),
        }
        Ok(self)
    }
}

impl Command {
    /// Whether the command itself knows words behind `--output` that are no formats.
    fn takes_output(&self) -> bool {
        match self {
            Self::Gen(command) => command.writes_output(),
            Self::Image(flags) => flags.writes_output(),
            Self::Get(_) | Self::Pcap(_) | Self::Support(_) | Self::Machineconfig(_) => true,
            _ => false,
        }
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Versions of client and nodes
    Version(commands::version::Flags),
    /// Services of the node; start, stop or restart one
    #[command(alias = "services")]
    Service(commands::service::Flags),
    /// Log of a service
    #[command(alias = "log")]
    Logs(commands::logs::Flags),
    /// Kernel log
    Dmesg(commands::dmesg::Flags),
    /// Files of a directory
    #[command(alias = "ls")]
    List(commands::list::Flags),
    /// Content of a file
    Read(commands::read::Flags),
    /// Memory of the node
    #[command(aliases = ["m", "free"])]
    Memory(commands::memory::Flags),
    /// Mounted file systems
    #[command(alias = "mount")]
    Mounts,
    /// Processes of the node
    #[command(aliases = ["p", "ps"])]
    Processes(commands::processes::Flags),
    /// Resources: all of a type, or one
    #[command(alias = "g")]
    Get(commands::get::Flags),
    /// Events of the node
    Events(commands::events::Flags),
    /// Where the boot time went
    Boot(commands::boot::Flags),
    /// Containers that run
    #[command(alias = "c")]
    Containers(commands::containers::Flags),
    /// Memory and processor time of containers
    Stats(commands::containers::Flags),
    /// Restart a container
    Restart(commands::containers::RestartFlags),
    /// Control groups: what each may use and uses
    #[command(alias = "cg")]
    Cgroups(commands::cgroups::Flags),
    /// Fetch a directory or file with all that is in it
    #[command(alias = "cp")]
    Copy(commands::copy::Flags),
    /// What directories take on disk
    #[command(alias = "du")]
    Usage(commands::usage::Flags),
    /// Block devices
    Disks(commands::disks::Flags),
    /// Encrypted volumes
    #[command(subcommand)]
    Disk(commands::recovery::DiskCommand),
    /// Unlock an encrypted volume with its recovery key, and seal its other keys anew
    Unlock(commands::recovery::UnlockFlags),
    /// Wipe what no volume uses
    #[command(subcommand)]
    Wipe(commands::disks::WipeCommand),
    /// The node's clock beside a time server's
    Time(commands::time::Flags),
    /// Network interfaces with their addresses
    Interfaces,
    /// Routes of the network
    #[command(alias = "route")]
    Routes,
    /// Sockets
    #[command(alias = "ss")]
    Netstat(commands::netstat::Flags),
    /// Packets of a network interface
    #[command(alias = "tcpdump")]
    Pcap(commands::pcap::Flags),
    /// Images of containers
    #[command(alias = "images")]
    Image(commands::image::Flags),
    /// Keys of the META partition
    Meta(commands::meta::Flags),
    /// How the node works inside
    #[command(subcommand)]
    Inspect(commands::inspect::Command),
    /// Whether node and cluster are well
    Health(commands::health::Flags),
    /// Begin the Kubernetes cluster on this control plane node; once for a cluster
    Bootstrap(commands::bootstrap::Flags),
    /// Kubeconfig of the cluster's administrator
    Kubeconfig(commands::kubeconfig::Flags),
    /// The node's certificates: until when they are valid, and who renews them
    Certs(commands::certs::Flags),
    /// etcd of the cluster
    #[command(subcommand)]
    Etcd(commands::etcd::Command),
    /// Start machines from the network
    #[command(subcommand)]
    Netboot(commands::netboot::NetbootCommand),
    /// Wipe the node's state and turn it off or restart it
    Reset(commands::reset::Flags),
    /// Install another version beside the running one and start it
    Upgrade(commands::upgrade::Flags),
    /// Go back to the version before the last upgrade
    Rollback,
    /// Services, resources, network and logs of the nodes on one screen
    Dashboard(commands::dashboard::Flags),
    /// A zip file with logs and resources of the nodes, without secrets
    Support(commands::support::Flags),
    /// Restart the node
    Reboot(commands::power::RebootFlags),
    /// Turn the node off
    Shutdown(commands::power::ShutdownFlags),
    /// Host name of the node
    Hostname,
    /// Send a configuration to nodes
    #[command(alias = "apply")]
    ApplyConfig(Box<commands::apply_config::Flags>),
    /// Keep a change that was applied with --confirm
    ConfirmConfig,
    /// Change the configuration of nodes by patches
    Patch(commands::patch::Flags),
    /// Change the configuration of nodes in an editor
    Edit(commands::edit::Flags),
    /// Whether a configuration would be taken
    Validate(commands::validate::Flags),
    /// Make configurations, secrets, keys and certificates
    #[command(subcommand)]
    Gen(commands::r#gen::Command),
    /// Clusters on this machine, whose nodes are containers
    #[command(subcommand)]
    Cluster(commands::cluster::Command),
    /// Configurations as files
    #[command(subcommand, alias = "mc")]
    Machineconfig(commands::machineconfig::Command),
    /// The client configuration
    #[command(subcommand)]
    Config(commands::config::Command),
    /// Write an image to a disk and prove that it is there
    Flash(commands::flash::Flags),
    /// Completions for a shell
    Completion(commands::completion::Flags),
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_grammar_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn habits_of_talosctl_users() {
        for line in include_str!("../testdata/habits.txt").lines() {
            let words = std::iter::once("billetctl").chain(line.split(' '));
            Args::try_parse_from(words).map_err(|e| format!("{line}: {e}")).unwrap();
        }
    }
}
