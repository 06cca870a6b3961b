//! A network of the test's own: a server in a namespace, a VM's card, and the wire between them.
//!
//! Owns: a network namespace that needs no root and ends with this value; in it a tap; a QEMU without a machine, which is
//! the wire from the tap to the sockets of the VM. On request there is a seat for somebody else at the wire.
//! Does not: reach any other network.

use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::process::{Owned, POLL_INTERVAL};
use crate::wire::{self, MOST_FRAME_BYTES, SEND_LIMIT};
use crate::{deadline, paths};

/// The tap in the namespace.
pub const INTERFACE: &str = "tap0";
/// QEMU's word for a disk that the firmware tries before the card.
pub const FIRST: &str = "bootindex=0";
/// The card's address.
pub const MAC: &str = "52:54:00:77:00:01";
/// A full segment of TCP with its headers.
const FRAME_BYTES: u64 = 1514;
/// A namespace comes at once.
const NAMESPACE_LIMIT: Duration = Duration::from_secs(10);

/// A network.
#[derive(Debug)]
pub struct Lan {
    namespace: u32,
    /// Ends after the wire does.
    _holder: Owned,
    wire: Option<Owned>,
    directory: tempfile::TempDir,
}

/// A place at the wire: every frame passes it, and what is sent goes to all others.
#[derive(Debug)]
pub struct Seat {
    socket: UnixDatagram,
    wire: PathBuf,
}

impl Seat {
    /// The next frame, if one comes in so long. Zero waits for none.
    pub fn receive(&self, limit: Duration) -> Option<Vec<u8>> {
        // A limit of zero means none to the kernel.
        self.socket.set_nonblocking(limit.is_zero()).ok()?;
        if !limit.is_zero() {
            self.socket.set_read_timeout(Some(limit)).ok()?;
        }
        let mut frame = vec![0; MOST_FRAME_BYTES];
        let count = self.socket.recv(&mut frame).ok()?;
        frame.truncate(count);
        Some(frame)
    }

    /// Sends a frame; one that nobody takes is lost, as on any wire.
    pub fn send(&self, frame: &[u8]) {
        let _ = self.socket.set_nonblocking(false);
        let _ = self.socket.send_to(frame, &self.wire);
    }
}

impl Lan {
    /// A network in which the namespace has this address, `10.77.0.1/24`.
    pub fn new(address: &str) -> Result<Self> {
        Ok(Self::start(address, false)?.0)
    }

    /// The same, with a seat for somebody else.
    pub fn with_seat(address: &str) -> Result<(Self, Seat)> {
        let (lan, seat) = Self::start(address, true)?;
        Ok((lan, seat.context("there is no seat at the wire")?))
    }

    fn start(address: &str, shared: bool) -> Result<(Self, Option<Seat>)> {
        let holder = Owned::spawn("a network namespace", "unshare", true, |command| {
            command.args(["--map-root-user", "--net", "sleep", "infinity"]);
        })?;
        let namespace = holder.id().context("the network namespace ended")?;
        wait_for(namespace)?;
        let directory = paths::temporary_dir()?;
        let mut lan = Self { namespace, _holder: holder, wire: None, directory };
        for words in [
            "link set lo up".to_owned(),
            format!("tuntap add dev {INTERFACE} mode tap"),
            format!("address add {address} dev {INTERFACE}"),
            format!("link set {INTERFACE} up"),
        ] {
            lan.ip(&words)?;
        }
        // Before the wire: it sends to nobody who is not there.
        let seat = if shared { Some(lan.seat()?) } else { None };
        lan.wire = Some(lan.wire(shared)?);
        Ok((lan, seat))
    }

    /// QEMU's words for a card at the other end of the wire, from which the firmware starts unless an own disk of the machine
    /// comes before it ([`FIRST`]). iPXE is in its ROM.
    ///
    /// No virtio card: QEMU 7.2 leaves out the memory barriers of a guest that one thread runs, iPXE then misses now and then
    /// that it has to say that there is room, and nothing arrives any more. This card is told by a register.
    pub fn card(&self) -> [String; 4] {
        self.card_of("e1000")
    }

    /// A virtio card without a ROM: UEFI firmware and kernels drive it themselves, other firmware does not.
    pub fn bare_card(&self) -> [String; 4] {
        self.card_of("virtio-net-pci,romfile=")
    }

    fn card_of(&self, model: &str) -> [String; 4] {
        let (here, there) = (self.socket("vm"), self.socket("wire"));
        [
            "-netdev".into(),
            wire::datagrams("lan", &here, &there),
            "-device".into(),
            format!("{model},netdev=lan,mac={MAC},bootindex=1"),
        ]
    }

    /// Starts a program in the namespace.
    pub fn spawn(&self, program: &str, set_up: impl FnOnce(&mut Command)) -> Result<Owned> {
        Owned::spawn(program, "nsenter", true, |command| {
            command.args(self.entering()).arg(program);
            set_up(command);
        })
    }

    /// Bytes that went from the namespace to the machine so far, without those that TCP sent once more: the wire loses frames
    /// when the host leaves the machine no time.
    pub fn sent_bytes(&self) -> Result<u64> {
        let told = self.ip(&format!("-json -s link show dev {INTERFACE}"))?;
        let told: serde_json::Value = serde_json::from_str(&told).context("parse what ip tells")?;
        let sent = told[0]["stats64"]["tx"]["bytes"].as_u64();
        let sent = sent.with_context(|| format!("ip tells of no bytes: {told}"))?;
        Ok(sent.saturating_sub(self.resent_segments()? * FRAME_BYTES))
    }

    fn resent_segments(&self) -> Result<u64> {
        let words = [&self.entering()[..], &["cat".into(), "/proc/net/snmp".into()]].concat();
        let output = Command::new("nsenter").args(words).output().context("run nsenter and cat")?;
        let text = String::from_utf8_lossy(&output.stdout);
        tcp_count(&text, "RetransSegs")
            .with_context(|| format!("the kernel does not count segments:\n{text}"))
    }

    fn entering(&self) -> [String; 5] {
        let target = self.namespace.to_string();
        ["--target".into(), target, "--user".into(), "--net".into(), "--preserve-credentials".into()]
    }

    fn socket(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn ip(&self, words: &str) -> Result<String> {
        let output = Command::new("nsenter").args(self.entering()).arg("ip").args(words.split(' ')).output();
        let output =
            output.context("run nsenter and ip; install them with: apt-get install util-linux iproute2")?;
        ensure!(output.status.success(), "ip {words}: {}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn seat(&self) -> Result<Seat> {
        let socket = UnixDatagram::bind(self.socket("seat")).context("bind the seat at the wire")?;
        socket.set_write_timeout(Some(SEND_LIMIT)).context("limit what the seat waits for")?;
        Ok(Seat { socket, wire: self.socket("wire-seat") })
    }

    fn wire(&self, shared: bool) -> Result<Owned> {
        let dgram = |id: &str, here: &str| wire::datagrams(id, &self.socket(here), &self.socket(id));
        let mut ends =
            vec![format!("tap,id=tap,ifname={INTERFACE},script=no,downscript=no"), dgram("vm", "wire")];
        if shared {
            ends.push(dgram("seat", "wire-seat"));
        }
        self.spawn("qemu-system-x86_64", |command| {
            command.args(["-machine", "none", "-nodefaults", "-no-user-config", "-display", "none"]);
            for (number, end) in ends.iter().enumerate() {
                let id = end.split([',', '=']).nth(2).unwrap_or_default();
                let port = format!("hubport,id=port{number},hubid=0,netdev={id}");
                command.args(["-netdev", end, "-netdev", &port]);
            }
        })
    }
}

/// A number of the two lines `Tcp:`, names and numbers. Source: RFC 4022 for the names.
fn tcp_count(snmp: &str, name: &str) -> Option<u64> {
    let mut lines = snmp.lines().filter_map(|line| line.strip_prefix("Tcp: "));
    let (names, numbers) = (lines.next()?, lines.next()?);
    let at = names.split(' ').position(|one| one == name)?;
    numbers.split(' ').nth(at)?.parse().ok()
}

/// Waits until the process has a network of its own, and has become what holds it.
fn wait_for(process: u32) -> Result<()> {
    let network = |process: &str| Some(std::fs::metadata(format!("/proc/{process}/ns/net")).ok()?.ino());
    let name = || std::fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
    let end = Instant::now() + deadline(NAMESPACE_LIMIT);
    while name().trim() != "sleep" || network(&process.to_string()) == network("self") {
        if Instant::now() > end {
            bail!(
                "there is no network namespace within {NAMESPACE_LIMIT:?}: are user namespaces allowed here?"
            );
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::tcp_count;

    #[test]
    fn numbers_stand_below_their_names() {
        let text = "Ip: Forwarding DefaultTTL\nIp: 1 64\nTcp: RtoMin OutSegs RetransSegs InErrs\nTcp: 200 4711 12 0\n";
        assert_eq!(tcp_count(text, "RetransSegs"), Some(12));
        assert_eq!(tcp_count(text, "Nothing"), None);
        assert_eq!(tcp_count("", "RetransSegs"), None);
    }
}
