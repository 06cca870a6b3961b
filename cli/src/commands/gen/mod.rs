//! `gen`: configurations, secrets, keys and certificates, made without a node.

mod config;
mod files;
mod keys;
mod secrets;
mod secureboot;

pub(crate) use config::{Flags as ConfigFlags, run as run_config};

use crate::global::Global;
use anyhow::Result;

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Configurations of a new cluster's machines and of its administrator
    Config(Box<ConfigFlags>),
    /// The secrets of a new cluster, to keep and to make configurations from
    Secrets(secrets::Flags),
    /// A certificate authority: NAME.crt, NAME.key, NAME.sha256
    Ca(keys::CaFlags),
    /// A private key (Ed25519): NAME.key
    Key(keys::KeyFlags),
    /// A key for configs of single machines in one image (Ed25519): NAME.key, NAME.pub
    ConfigKey(keys::KeyFlags),
    /// A request for a certificate, beside its key
    Csr(keys::CsrFlags),
    /// A certificate for a request: NAME.crt
    Crt(keys::CrtFlags),
    /// A key with a certificate that it signed itself: NAME.crt, NAME.key
    Keypair(keys::KeypairFlags),
    /// Keys for Secure Boot, and files signed with them
    #[command(subcommand)]
    Secureboot(secureboot::Command),
}

impl Command {
    /// Whether `--output` names a file or directory here.
    pub(crate) fn writes_output(&self) -> bool {
        matches!(self, Self::Config(_) | Self::Secrets(_) | Self::Secureboot(_))
    }
}

pub(crate) fn run(global: &Global, command: Command) -> Result<()> {
    match command {
        Command::Config(flags) => run_config(global, &flags),
        Command::Secrets(flags) => secrets::run(global, &flags),
        Command::Ca(flags) => keys::ca(&flags),
        Command::Key(flags) => keys::key(&flags),
        Command::ConfigKey(flags) => keys::config_key(&flags),
        Command::Csr(flags) => keys::csr(&flags),
        Command::Crt(flags) => keys::crt(&flags),
        Command::Keypair(flags) => keys::keypair(&flags),
        Command::Secureboot(command) => secureboot::run(global, &command),
    }
}
