//! From a carrier to an address: clients of DHCP beside dnsmasq, each in a namespace of its own.
//!
//! Order of a round: the other end of the wire is down, and the client waits (one that does not follow the carrier is started when it
//! comes, as a program that does would start it); the other end goes up; the kernel tells of the carrier, then of the address. Its
//! own messages are the clock, by the one process that reads them. Then the client is killed, so that it gives nothing back, and its
//! address is taken away.
//! A kept lease is that of a client that was started anew, with what it had kept.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::namespace::{MODULE, Namespace, Running};
use super::systemd;

const ROUNDS: usize = 11;
/// Until a client that was started waits for the carrier.
const SETTLE: Duration = Duration::from_secs(1);
const LIMIT: Duration = Duration::from_secs(30);
const NODE: &str = "billet-bench-node";
const SERVER: &str = "billet-bench-server";
const NETWORK: &str = "[Match]\nName=eth0\n[Network]\nDHCP=ipv4\nLinkLocalAddressing=no\nIPv6AcceptRA=no\n";
/// What both clients without a way of their own do with an address.
const SCRIPT: &str = "\
#!/bin/sh
case \"${reason:-$1}\" in
bound|renew) exec ip address replace \"$ip/$mask\" dev \"$interface\";;
BOUND|RENEW|REBIND|REBOOT) exec ip address replace \"$new_ip_address/24\" dev \"$interface\";;
esac
";

/// A program that asks for an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Client {
    Billet,
    Udhcpc,
    Dhclient,
    Systemd,
}

impl Client {
    pub(super) const ALL: [Self; 4] = [Self::Billet, Self::Udhcpc, Self::Dhclient, Self::Systemd];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Billet => "Billet",
            Self::Udhcpc => "udhcpc",
            Self::Dhclient => "dhclient",
            Self::Systemd => "systemd-networkd",
        }
    }

    /// Whether it waits for the carrier by itself.
    fn follows_carrier(self) -> bool {
        matches!(self, Self::Billet | Self::Systemd)
    }

    fn command(self, node: &Namespace, harness: &Path, kept: &Path, before: Option<&str>) -> Result<Command> {
        let script = kept.join("script");
        let mut command = match self {
            Self::Billet => {
                let test = format!("{MODULE}::a_client_of_dhcp");
                let mut command = node.inside(harness);
                command.args(["--exact", &test, "--ignored", "--nocapture"]).env("BILLET_BENCH", kept);
                command
            }
            Self::Udhcpc => {
                let mut command = node.inside("busybox");
                command.args(["udhcpc", "-f", "-i", "eth0", "-s"]).arg(script);
                command.args(before.map(|address| ["-r", address]).into_iter().flatten());
                command
            }
            Self::Dhclient => {
                let mut command = node.inside("dhclient");
                command.args(["-4", "-d", "-sf"]).arg(script).arg("-lf").arg(kept.join("leases"));
                command.arg("-pf").arg(kept.join("pid")).arg("eth0");
                command
            }
            Self::Systemd => systemd::command(node, NETWORK, kept)?,
        };
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(command)
    }
}

/// Two namespaces and a wire.
struct Wire {
    node: Namespace,
    server: Namespace,
}

impl Wire {
    fn new() -> Result<Self> {
        let (node, server) = (Namespace::new(NODE)?, Namespace::new(SERVER)?);
        node.ip(&format!(
            "link add eth0 address 52:54:00:01:02:03 type veth peer name srv0 netns {}",
            server.name()
        ))?;
        // The kernel's own addresses of IPv6 are none of this.
        node.ip("link set eth0 addrgenmode none up")?;
        server.ip("address add 10.9.0.1/24 dev srv0")?;
        Ok(Self { node, server })
    }

    /// dnsmasq, with its default of a ping before an address is given away, or without.
    fn serve(&self, directory: &Path, has_ping: bool) -> Result<Running> {
        let mut command = self.server.inside("dnsmasq");
        command.args([
            "--no-daemon",
            "--conf-file=/dev/null",
            "--port=0",
            "--interface=srv0",
            "--dhcp-authoritative",
        ]);
        command.arg("--dhcp-range=10.9.0.10,10.9.0.200,255.255.255.0,1h");
        command.arg(format!("--dhcp-leasefile={}", directory.join("dnsmasq.leases").display()));
        command.args((!has_ping).then_some("--no-ping"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Running(command.spawn().context("start dnsmasq")?))
    }
}

/// Milliseconds of each round.
pub(super) fn measure(client: Client, is_kept: bool, harness: &Path, directory: &Path) -> Result<Vec<f64>> {
    let wire = Wire::new()?;
    let work = tempfile::tempdir_in(directory).context("create a directory for leases")?;
    let _dnsmasq = wire.serve(work.path(), is_kept)?;
    let mut monitor = Monitor::start(&wire.node)?;
    let mut rounds = Vec::new();
    let (mut kept, mut before) = (None, None);
    // The first one is for what is kept, and warms caches up.
    for number in 0..=ROUNDS {
        if kept.is_none() || !is_kept {
            let directory = work.path().join(number.to_string());
            make(&directory)?;
            (kept, before) = (Some(directory), None);
        }
        let kept = kept.as_deref().context("a directory of the client")?;
        let command = client.command(&wire.node, harness, kept, before.as_deref())?;
        let (took, address) = round(&wire, &mut monitor, command, client.follows_carrier())
            .with_context(|| format!("round {number}"))?;
        before = Some(address);
        if number > 0 {
            rounds.push(took);
        }
    }
    Ok(rounds)
}

fn make(directory: &Path) -> Result<()> {
    let script = directory.join("script");
    fs::create_dir_all(directory)
        .and_then(|()| fs::write(&script, SCRIPT))
        .and_then(|()| fs::set_permissions(&script, fs::Permissions::from_mode(0o755)))
        .and_then(|()| fs::write(directory.join("leases"), ""))
        .with_context(|| format!("write into {}", directory.display()))
}

/// Milliseconds, and the address.
fn round(wire: &Wire, monitor: &mut Monitor, mut command: Command, follows: bool) -> Result<(f64, String)> {
    let start =
        |command: &mut Command| Ok::<_, anyhow::Error>(Running(command.spawn().context("start a client")?));
    let waiting = if follows { Some(start(&mut command)?) } else { None };
    std::thread::sleep(SETTLE);
    monitor.forget();
    wire.server.ip("link set srv0 up")?;
    let carrier = monitor.next("a carrier", |line| line.contains("LOWER_UP") && line.contains(" eth0"))?;
    let running = match waiting {
        Some(running) => running,
        None => start(&mut command)?,
    };
    let address = monitor.next("an address", |line| line.contains(" eth0 ") && line.contains(" inet "))?;
    drop(running);
    wire.server.ip("link set srv0 down")?;
    wire.node.ip("address flush dev eth0")?;
    wire.node.ip("link set eth0 up")?;
    let text = address.text.split(" inet ").nth(1).and_then(|rest| rest.split('/').next());
    let text = text.map(|text| text.trim().to_owned()).context("no address in the kernel's message")?;
    Ok(((address.seconds - carrier.seconds) * 1000.0, text))
}

/// What ip(8) tells of the kernel's messages.
struct Monitor {
    _process: Running,
    lines: Receiver<String>,
}

/// A line, and when the message came: a second of the day.
struct Line {
    seconds: f64,
    text: String,
}

impl Monitor {
    fn start(node: &Namespace) -> Result<Self> {
        let mut command = node.inside("ip");
        command.args(["-oneline", "-tshort", "monitor", "link", "address"]).stdout(Stdio::piped());
        let mut process = Running(command.spawn().context("start ip monitor")?);
        let output = process.0.stdout.take().context("the output of ip monitor")?;
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            let lines = BufReader::new(output).lines().map_while(Result::ok);
            lines.map(|line| sender.send(line)).find(Result::is_err)
        });
        Ok(Self { _process: process, lines })
    }

    fn forget(&self) {
        while self.lines.try_recv().is_ok() {}
    }

    fn next(&mut self, what: &str, is_it: impl Fn(&str) -> bool) -> Result<Line> {
        let end = Instant::now() + LIMIT;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let Ok(text) = self.lines.recv_timeout(left) else {
                bail!("{what} does not come within {} s", LIMIT.as_secs());
            };
            if is_it(&text) && !text.contains("Deleted") {
                let seconds = second_of_day(&text).with_context(|| format!("no time in {text:?}"))?;
                return Ok(Line { seconds, text });
            }
        }
    }
}

/// `[2026-11-30T04:02:34.123456] 5: eth0 …`
fn second_of_day(line: &str) -> Option<f64> {
    let time = line.strip_prefix('[')?.split(']').next()?.split('T').nth(1)?;
    time.split(':').try_fold(0.0, |sum, part| Some(sum * 60.0 + part.parse::<f64>().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_messages_have_their_time() {
        let line = "[2026-11-30T04:02:34.123456] 5: eth0    inet 10.9.0.12/24 scope global eth0";
        assert!((second_of_day(line).unwrap() - 14_554.123_456).abs() < 1e-6);
        assert_eq!(second_of_day("5: eth0 inet 10.9.0.12/24"), None);
    }
}
