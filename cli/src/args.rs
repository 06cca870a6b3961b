//! Flags and commands.
//!
//! Owns: the grammar. Names, aliases and defaults are talosctl's; where its generations differ both are accepted.

use crate::{commands, output::Format};
use clap::{Parser, Subcommand};
use std::path::PathBuf;

/// The command line client of a Billet node.
#[derive(Debug, Parser)]
#[command(name = "billetctl", version, disable_version_flag = true, infer_long_args = false)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Flags of every command.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Global {
    /// Client configuration [default: $TALOSCONFIG, else ~/.talos/config]
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) talosconfig: Option<PathBuf>,
    /// Context of the client configuration
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) context: Option<String>,
    /// Nodes that the call is for, as the endpoint sees them [default: those of the context, else the endpoint itself]
    #[arg(short, long, global = true, value_delimiter = ',', value_name = "NODE")]
    pub(crate) nodes: Vec<String>,
    /// Addresses to connect to [default: those of the context]
    #[arg(short, long, global = true, value_delimiter = ',', value_name = "HOST[:PORT]")]
    pub(crate) endpoints: Vec<String>,
    /// Print as table, yaml or json
    #[arg(short, long, global = true, value_enum, default_value_t = Format::Table)]
    pub(crate) output: Format,
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
    /// Files of a folder
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
    Boot,
    /// Restart the node
    Reboot(commands::power::RebootFlags),
    /// Turn the node off
    Shutdown(commands::power::ShutdownFlags),
    /// Host name of the node
    Hostname,
    /// The client configuration
    #[command(subcommand)]
    Config(commands::config::Command),
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
        for line in [
            "version --short",
            "version --client",
            "-n 10.0.0.1,10.0.0.2 services",
            "service apid restart",
            "services -e 127.0.0.1:40000 -o json",
            "logs -f --tail 10 kubelet -k",
            "dmesg --follow --tail",
            "ls -lrH -d 2 -t f,d /var",
            "list",
            "read /proc/version",
            "free -v",
            "mount",
            "ps -s cpu",
            "get services apid -o yaml --namespace runtime -w",
            "events --tail -1 --duration 10m --since c0a1",
            "reboot --wait=false",
            "reboot --wait --timeout 5m -m powercycle",
            "shutdown --force",
            "config contexts",
            "config merge other.yaml",
            "completion bash",
        ] {
            let words = std::iter::once("billetctl").chain(line.split(' '));
            Args::try_parse_from(words).map_err(|e| format!("{line}: {e}")).unwrap();
        }
    }
}
