//! systemd-networkd of this machine in a namespace, without D-Bus and udev.
//!
//! Owns: the directories that it reads and writes: none of this machine's own.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::namespace::{Namespace, Running};

pub(super) const PROGRAM: &str = "/usr/lib/systemd/systemd-networkd";
const NAME: &str = "billet-bench-systemd";
const ROUTES: u32 = 10_000;
const LIMIT: Duration = Duration::from_secs(180);
/// Between two looks at the kernel's table, which take time of the machine, too.
const LOOK: Duration = Duration::from_millis(500);
/// `$1` is read, `$2` written. With a /sys that cannot be written it takes itself for a guest, and waits for no udev.
const SCRIPT: &str = "\
set -e
mount -o remount,bind,ro /sys
mount -t tmpfs run /run
mkdir -p /run/systemd/network /run/systemd/netif
mount --bind \"$1\" /run/systemd/network
mount --bind \"$2\" /run/systemd/netif
chown -R systemd-network: /run/systemd/netif
exec /usr/lib/systemd/systemd-networkd
";

/// It with this file of a network, in a namespace; `directory` has what it keeps.
pub(super) fn command(namespace: &Namespace, network: &str, directory: &Path) -> Result<Command> {
    ensure!(Path::new(PROGRAM).exists(), "there is no {PROGRAM}");
    let (read, written) = (directory.join("network"), directory.join("netif"));
    for part in [&read, &written] {
        fs::create_dir_all(part).with_context(|| format!("create {}", part.display()))?;
    }
    fs::write(read.join("eth0.network"), network).context("write a file of a network")?;
    let mut command = namespace.inside("unshare");
    command.args(["--mount", "sh", "-c", SCRIPT, "sh"]).arg(read).arg(written);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    Ok(command)
}

/// Processor time in microseconds that it takes for as many routes as networkd gets.
pub(super) fn routes(directory: &Path) -> Result<u64> {
    let namespace = Namespace::new(NAME)?;
    namespace.ip("link add eth0 type veth peer name end0")?;
    namespace.ip("link set end0 up")?;
    let routes: String = (0..ROUTES)
        .map(|number| {
            let destination = std::net::Ipv4Addr::from_bits(0x0b00_0000 + number * 256);
            format!("[Route]\nDestination={destination}/24\nGateway=10.9.0.2\n")
        })
        .collect();
    let network = format!(
        "[Match]\nName=eth0\n[Network]\nAddress=10.9.0.1/24\nLinkLocalAddressing=no\nIPv6AcceptRA=no\n{routes}"
    );
    let command = &mut command(&namespace, &network, directory)?;
    let mut running = Running(command.spawn().context("start systemd-networkd")?);
    let begin = Instant::now();
    let all = usize::try_from(ROUTES).context("a number of routes")?;
    loop {
        std::thread::sleep(LOOK);
        let ended = running.0.try_wait().context("look at systemd-networkd")?;
        ensure!(ended.is_none(), "systemd-networkd ended");
        // It hears of its routes, too.
        let spent = spent_us(running.0.id())?;
        if namespace.ip("route show via 10.9.0.2")?.lines().count() == all {
            std::thread::sleep(LOOK);
            if spent_us(running.0.id())? == spent {
                return Ok(spent);
            }
        }
        ensure!(
            begin.elapsed() < LIMIT,
            "systemd-networkd has no {ROUTES} routes within {} s",
            LIMIT.as_secs()
        );
    }
}

/// Processor time of a process with one thread.
fn spent_us(process: u32) -> Result<u64> {
    let text =
        fs::read_to_string(format!("/proc/{process}/schedstat")).context("look at systemd-networkd")?;
    let first = text.split(' ').next().context("no processor time")?;
    Ok(first.parse::<u64>().context("no processor time")? / 1000)
}
