//! The commands, one module each.
//!
//! Owns: which module serves which command.

pub(crate) mod boot;
pub(crate) mod completion;
pub(crate) mod config;
pub(crate) mod dmesg;
pub(crate) mod events;
pub(crate) mod get;
pub(crate) mod hostname;
pub(crate) mod list;
pub(crate) mod logs;
pub(crate) mod memory;
pub(crate) mod mounts;
pub(crate) mod power;
pub(crate) mod processes;
pub(crate) mod read;
pub(crate) mod service;
mod track;
pub(crate) mod version;

use crate::{
    args::{Args, Command},
    session::Session,
};
use anyhow::Result;

/// Runs one command.
pub(crate) async fn run(args: Args) -> Result<()> {
    let global = args.global;
    match args.command {
        Command::Config(command) => config::run(&global, command),
        Command::Completion(flags) => completion::run(&flags),
        Command::Version(flags) => version::run(&global, &flags).await,
        Command::Service(flags) => service::run(&Session::open(&global).await?, flags).await,
        Command::Logs(flags) => logs::run(&Session::open(&global).await?, flags).await,
        Command::Dmesg(flags) => dmesg::run(&Session::open(&global).await?, &flags).await,
        Command::List(flags) => list::run(&Session::open(&global).await?, flags).await,
        Command::Read(flags) => read::run(&Session::open(&global).await?, flags).await,
        Command::Memory(flags) => memory::run(&Session::open(&global).await?, &flags).await,
        Command::Mounts => mounts::run(&Session::open(&global).await?).await,
        Command::Processes(flags) => processes::run(&Session::open(&global).await?, &flags).await,
        Command::Get(flags) => get::run(Session::open(&global).await?, flags).await,
        Command::Events(flags) => events::run(&Session::open(&global).await?, flags).await,
        Command::Boot => boot::run(&Session::open(&global).await?).await,
        Command::Reboot(flags) => power::reboot(Session::open(&global).await?, flags).await,
        Command::Shutdown(flags) => power::shutdown(Session::open(&global).await?, flags).await,
        Command::Hostname => hostname::run(&Session::open(&global).await?).await,
    }
}
