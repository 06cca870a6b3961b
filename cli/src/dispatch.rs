//! Which module serves which command, and with what kind of connection.

use crate::{
    args::{Args, Command},
    commands::{
        apply_config, boot, bootstrap, certs, cgroups, cluster, completion, config, containers, copy,
        dashboard, disks, dmesg, edit, etcd, events, flash, r#gen, get, health, hostname, image, inspect,
        kubeconfig, list, logs, machineconfig, memory, meta, mounts, netboot, netstat, network, patch, pcap,
        power, processes, read, recovery, reset, service, support, time, upgrade, usage, validate, version,
    },
    session::Session,
};
use anyhow::Result;
use clap::CommandFactory;

/// Runs one command.
pub(crate) async fn run(args: Args) -> Result<()> {
    let global = args.global;
    match args.command {
        Command::Cluster(command) => cluster::run(&global, command).await,
        Command::Config(command) => config::run(&global, command).await,
        Command::Gen(command) => r#gen::run(&global, command),
        Command::Machineconfig(command) => machineconfig::run(&global, command),
        Command::Validate(flags) => validate::run(&flags),
        Command::Flash(flags) => flash::run(&flags, global.output),
        Command::ApplyConfig(flags) => apply_config::run(&global, *flags).await,
        Command::ConfirmConfig => apply_config::confirm(&Session::open(&global).await?).await,
        Command::Patch(flags) => patch::run(&Session::open(&global).await?, flags).await,
        Command::Edit(flags) => edit::run(&Session::open(&global).await?, flags).await,
        Command::Netboot(command) => netboot::run(command).await,
        Command::Completion(flags) => completion::run(&flags, &mut Args::command()),
        Command::Containers(flags) => containers::containers(&Session::open(&global).await?, &flags).await,
        Command::Stats(flags) => containers::stats(&Session::open(&global).await?, &flags).await,
        Command::Restart(flags) => containers::restart(&Session::open(&global).await?, flags).await,
        Command::Cgroups(flags) => cgroups::run(&Session::open(&global).await?, &flags).await,
        Command::Copy(flags) => copy::run(&Session::open(&global).await?, flags).await,
        Command::Usage(flags) => usage::run(&Session::open(&global).await?, flags).await,
        Command::Disks(flags) => {
            disks::run(&Session::open_maybe_insecure(&global, &flags.maintenance).await?).await
        }
        Command::Disk(recovery::DiskCommand::RecoveryKey(flags)) => {
            recovery::keys(&Session::open_maybe_insecure(&global, &flags.maintenance).await?, &flags).await
        }
        Command::Unlock(flags) => {
            // Asked for before anything is sent: a mistyped key is the person's to mend.
            let key = recovery::ask(&flags.volume)?;
            recovery::unlock(&Session::open_maybe_insecure(&global, &flags.maintenance).await?, flags, key)
                .await
        }
        Command::Wipe(disks::WipeCommand::Disk(flags)) => {
            disks::wipe(&Session::open_maybe_insecure(&global, &flags.maintenance).await?, flags).await
        }
        Command::Time(flags) => time::run(&Session::open(&global).await?, flags).await,
        Command::Interfaces => network::interfaces(&Session::open(&global).await?).await,
        Command::Routes => network::routes(&Session::open(&global).await?).await,
        Command::Netstat(flags) => netstat::run(&Session::open(&global).await?, flags).await,
        Command::Pcap(flags) => pcap::run(&Session::open(&global).await?, flags).await,
        Command::Image(flags) => match flags.local() {
            Some(local) => local.run(&global),
            None => image::run(&Session::open(&global).await?, flags).await,
        },
        Command::Meta(flags) => {
            meta::run(&Session::open_maybe_insecure(&global, &flags.maintenance()).await?, flags).await
        }
        Command::Inspect(command) => inspect::run(&Session::open(&global).await?, command).await,
        Command::Health(flags) => health::run(Session::open(&global).await?, flags).await,
        Command::Reset(flags) => {
            reset::run(Session::open_maybe_insecure(&global, &flags.maintenance).await?, flags).await
        }
        Command::Upgrade(flags) => {
            upgrade::run(Session::open_maybe_insecure(&global, &flags.maintenance()).await?, flags).await
        }
        Command::Bootstrap(flags) => bootstrap::run(&Session::open(&global).await?, flags).await,
        Command::Kubeconfig(flags) => kubeconfig::run(&Session::open(&global).await?, flags).await,
        Command::Certs(flags) => certs::run(Session::open(&global).await?, flags).await,
        Command::Etcd(command) => etcd::run(&Session::open(&global).await?, command).await,
        Command::Rollback => power::rollback(&Session::open(&global).await?).await,
        Command::Dashboard(flags) => dashboard::run(Session::open(&global).await?, &flags).await,
        Command::Support(flags) => support::run(Session::open(&global).await?, flags).await,
        Command::Version(flags) => version::run(&global, &flags).await,
        Command::Service(flags) => service::run(&Session::open(&global).await?, flags).await,
        Command::Logs(flags) => logs::run(&Session::open(&global).await?, flags).await,
        Command::Dmesg(flags) => dmesg::run(&Session::open(&global).await?, &flags).await,
        Command::List(flags) => list::run(&Session::open(&global).await?, flags).await,
        Command::Read(flags) => read::run(&Session::open(&global).await?, flags).await,
        Command::Memory(flags) => memory::run(&Session::open(&global).await?, &flags).await,
        Command::Mounts => mounts::run(&Session::open(&global).await?).await,
        Command::Processes(flags) => processes::run(&Session::open(&global).await?, &flags).await,
        Command::Get(flags) => {
            get::run(Session::open_maybe_insecure(&global, &flags.maintenance).await?, flags).await
        }
        Command::Events(flags) => events::run(&Session::open(&global).await?, flags).await,
        Command::Boot(flags) => boot::run(&Session::open(&global).await?, &flags).await,
        Command::Reboot(flags) => power::reboot(Session::open(&global).await?, flags).await,
        Command::Shutdown(flags) => power::shutdown(Session::open(&global).await?, flags).await,
        Command::Hostname => hostname::run(&Session::open(&global).await?).await,
    }
}
