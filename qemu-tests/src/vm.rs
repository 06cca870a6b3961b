//! One virtual machine: described by a builder, running until dropped.
//!
//! Owns: the QEMU process, its monitor and console, its software TPM, its temporary directory and its slot.
//! Does not: know what the guest is.
//! Fails by: errors that name the VM and its serial log, which stays in `target/qemu-tests/<name>/serial.log`.
//!
//! Ports: QEMU is asked to forward port 0, so the kernel picks a free one while QEMU binds it, and the monitor tells
//! which; nobody else can take it in between.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::accel::deadline;
use crate::console::Console;
use crate::cost;
use crate::process::Owned;
use crate::qmp::Qmp;
use crate::slots::Slot;

mod arguments;
mod builder;

pub use builder::{Boot, Bus, Drive, Serial, VmBuilder};

/// From QEMU's start to its monitor's greeting, on the reference machine.
const MONITOR_LIMIT: Duration = Duration::from_secs(20);

/// From the monitor's `quit` to the end of QEMU.
const QUIT_LIMIT: Duration = Duration::from_secs(10);

/// A VM that runs, or has ended and still keeps its console text.
#[derive(Debug)]
pub struct Vm {
    name: String,
    qemu: Mutex<Owned>,
    qmp: Mutex<Qmp>,
    console: Console,
    ports: BTreeMap<u16, u16>,
    // Dropped after QEMU, in this order.
    tpm: Option<Owned>,
    files: tempfile::TempDir,
    began: Instant,
    _slot: Option<Slot>,
}

impl Vm {
    /// Describes a VM; the name is the directory of its logs.
    pub fn builder(name: &str) -> VmBuilder {
        VmBuilder::new(name)
    }

    /// The name given to the builder.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The serial console.
    pub fn console(&self) -> &Console {
        &self.console
    }

    /// A directory that is gone with the VM, for disk images and the like.
    pub fn files(&self) -> &Path {
        self.files.path()
    }

    /// Where the monitor listens; another program may talk to it once this one let go.
    pub fn qmp_path(&self) -> PathBuf {
        self.files.path().join("qmp")
    }

    /// The port on 127.0.0.1 behind which the guest's TCP port lies.
    pub fn port(&self, guest: u16) -> Result<u16> {
        self.ports
            .get(&guest)
            .copied()
            .with_context(|| format!("{}: port {guest} is not forwarded", self.name))
    }

    /// Waits for a text on the console behind all texts awaited before; returns the whole line.
    pub fn expect(&self, needle: &str, on_reference: Duration) -> Result<String> {
        self.console.expect(needle, deadline(on_reference), || self.over()).with_context(|| self.name.clone())
    }

    /// Waits until a text stands anywhere on the console, whatever was awaited before.
    pub fn wait_for(&self, needle: &str, on_reference: Duration) -> Result<()> {
        self.console
            .wait_for(needle, deadline(on_reference), || self.over())
            .with_context(|| self.name.clone())
    }

    /// Waits until `find` returns a value and how much of the unread console text it used.
    pub fn expect_with<T>(
        &self,
        what: &str,
        on_reference: Duration,
        find: impl FnMut(&str) -> Option<(T, usize)>,
    ) -> Result<T> {
        self.console
            .expect_with(what, deadline(on_reference), || self.over(), find)
            .with_context(|| self.name.clone())
    }

    /// Why nothing more will come from this VM.
    pub fn over(&self) -> Option<String> {
        match self.qemu().ended() {
            Ok(None) => None,
            Ok(Some(status)) => Some(format!("QEMU ended with {status}")),
            Err(error) => Some(format!("{error:#}")),
        }
    }

    /// Waits until QEMU ends by itself: the guest powered off, or rebooted where that ends it.
    pub fn wait_exit(&self, on_reference: Duration) -> Result<ExitStatus> {
        let status = self.qemu().wait(deadline(on_reference));
        status.with_context(|| format!("{}; its log is {}", self.name, self.console.path().display()))
    }

    /// Waits for an event of the monitor: `RESET`, `SHUTDOWN`, `WATCHDOG`.
    pub fn wait_event(&self, name: &str, on_reference: Duration) -> Result<Value> {
        let event = self.qmp().wait_event(name, deadline(on_reference));
        event.with_context(|| format!("{}; its log is {}", self.name, self.console.path().display()))
    }

    /// The monitor.
    pub fn qmp(&self) -> MutexGuard<'_, Qmp> {
        self.qmp.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Presses the power button.
    pub fn press_power(&self) -> Result<()> {
        self.qmp().execute("system_powerdown", json!({})).map(drop)
    }

    /// Plugs in a raw disk image; QEMU reads it in place, its writes are thrown away.
    pub fn plug_in(&self, id: &str, image: &Path) -> Result<()> {
        let image = image.to_str().context("an image path that is not UTF-8")?;
        let file = json!({ "driver": "file", "filename": image, "read-only": true });
        let node = json!({ "driver": "raw", "node-name": id, "read-only": true, "file": file });
        let mut qmp = self.qmp();
        qmp.execute("blockdev-add", node)?;
        let device =
            json!({ "driver": "virtio-blk-pci", "drive": id, "id": format!("dev-{id}"), "bus": "spare" });
        qmp.execute("device_add", device).map(drop)
    }

    /// Puts another image into the CD drive that was added as drive number `drive`, counted from 0.
    pub fn change_medium(&self, drive: usize, image: &Path) -> Result<()> {
        let image = image.to_str().context("an image path that is not UTF-8")?;
        let change =
            json!({ "id": format!("device{drive}"), "filename": image, "format": "raw", "force": true });
        self.qmp().execute("blockdev-change-medium", change).map(drop)
    }

    /// Ends QEMU through its monitor, or kills it if that takes too long.
    pub fn quit(&self) -> Result<()> {
        if self.over().is_none() {
            // The answer may be lost with the process; what counts is its end.
            let _ = self.qmp().execute("quit", json!({}));
            if self.wait_exit(QUIT_LIMIT).is_err() {
                self.qemu().kill();
            }
        }
        Ok(())
    }

    /// Lets the VM run on after this program and returns its process id and its directory, which nobody removes then.
    pub fn release(mut self) -> Result<(u32, PathBuf)> {
        let pid = self.qemu().release().with_context(|| format!("{} has ended already", self.name))?;
        if let Some(tpm) = self.tpm.as_mut() {
            tpm.release();
        }
        self.files.disable_cleanup(true);
        Ok((pid, self.files.path().to_path_buf()))
    }

    /// The process id of QEMU.
    pub fn pid(&self) -> Option<u32> {
        self.qemu().id()
    }

    fn qemu(&self) -> MutexGuard<'_, Owned> {
        self.qemu.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn start(builder: VmBuilder) -> Result<Self> {
        let slot = if builder.unlimited { None } else { Some(crate::slots::take()?) };
        let files =
            tempfile::Builder::new().prefix("billet-vm-").tempdir().context("create a VM's directory")?;
        let logs = match &builder.log_dir {
            Some(dir) => dir.clone(),
            None => crate::paths::vm_dir(&builder.name)?,
        };
        std::fs::create_dir_all(&logs).with_context(|| format!("create {}", logs.display()))?;
        let serial = logs.join("serial.log");
        std::fs::write(&serial, "").with_context(|| format!("empty {}", serial.display()))?;

        let tpm = if builder.tpm { Some(start_tpm(&builder, files.path())?) } else { None };
        let arguments = arguments::of(&builder, files.path(), &serial)?;
        let began = Instant::now();
        let mut qemu = start_qemu(&builder, &arguments, &logs)?;
        let name = builder.name;
        let qmp = Qmp::connect(&files.path().join("qmp"), deadline(MONITOR_LIMIT));
        let mut qmp = qmp.with_context(|| why_not(&name, &mut qemu, &logs))?;
        let ports = if builder.forwards.is_empty() { BTreeMap::new() } else { forwarded(&mut qmp)? };
        Ok(Self {
            name,
            qemu: Mutex::new(qemu),
            qmp: Mutex::new(qmp),
            console: Console::new(&serial),
            ports,
            tpm,
            files,
            began,
            _slot: slot,
        })
    }
}

impl Drop for Vm {
    fn drop(&mut self) {
        let processor = self.qemu().processor_time();
        // A figure for people: no test depends on it.
        let _ = cost::note(&crate::paths::work_dir(), &self.name, self.began.elapsed(), processor);
        if std::thread::panicking() {
            eprintln!("{}: serial log kept in {}", self.name, self.console.path().display());
        }
    }
}

fn start_qemu(builder: &VmBuilder, arguments: &[OsString], logs: &Path) -> Result<Owned> {
    let messages = logs.join("qemu.log");
    let stderr =
        std::fs::File::create(&messages).with_context(|| format!("create {}", messages.display()))?;
    let line = arguments.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
    let program = arguments::program(builder);
    std::fs::write(logs.join("command"), format!("{program} {line}\n")).context("note QEMU's command")?;
    Owned::spawn(&format!("QEMU of {}", builder.name), program, !builder.outlives_us, |command| {
        command.args(arguments).stderr(stderr);
        if builder.serial == Serial::Log {
            command.stdin(Stdio::null()).stdout(Stdio::null());
        }
    })
}

fn why_not(name: &str, qemu: &mut Owned, logs: &Path) -> String {
    // Its messages are complete once it is gone; a QEMU that never opened its monitor may hang.
    let state = match qemu.wait(QUIT_LIMIT) {
        Ok(status) => format!("ended with {status}"),
        Err(_) => "still runs".to_owned(),
    };
    let messages = std::fs::read_to_string(logs.join("qemu.log")).unwrap_or_default();
    format!("start {name}: QEMU {state} and says: {}", messages.trim())
}

/// swtpm daemonises nothing here: it is our child and ends when QEMU lets go of it, or with us.
fn start_tpm(builder: &VmBuilder, dir: &Path) -> Result<Owned> {
    let state = builder.tpm_state.clone().unwrap_or_else(|| dir.join("tpm-state"));
    std::fs::create_dir_all(&state).context("create the TPM's directory")?;
    let tied = !builder.outlives_us;
    let control = dir.join("tpm");
    let mut tpm = Owned::spawn("swtpm", "swtpm", tied, |command| {
        command.args(["socket", "--tpm2", "--terminate", "--flags", "startup-clear"]);
        command.arg("--tpmstate").arg(format!("dir={}", state.display()));
        command.arg("--ctrl").arg(format!("type=unixio,path={}", control.display()));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    })?;
    let end = std::time::Instant::now() + deadline(MONITOR_LIMIT);
    while !control.exists() {
        if let Some(status) = tpm.ended()? {
            bail!("swtpm ended with {status}");
        }
        if std::time::Instant::now() > end {
            bail!("swtpm opened no socket within {MONITOR_LIMIT:?}");
        }
        std::thread::sleep(crate::process::POLL_INTERVAL);
    }
    Ok(tpm)
}

/// Asks QEMU which host ports it bound: guest port -> host port.
fn forwarded(qmp: &mut Qmp) -> Result<BTreeMap<u16, u16>> {
    let table = qmp.human("info usernet")?;
    let ports = parse_usernet(&table);
    if ports.is_empty() {
        bail!("QEMU lists no forwarded port: {table}");
    }
    Ok(ports)
}

/// Lines such as `TCP[HOST_FORWARD]  13  127.0.0.1 41683  10.0.2.15 50000  0 0`.
fn parse_usernet(table: &str) -> BTreeMap<u16, u16> {
    let mut ports = BTreeMap::new();
    for line in table.lines().filter(|line| line.contains("HOST_FORWARD")) {
        let words: Vec<&str> = line.split_whitespace().collect();
        if let [_, _, _, host, _, guest, ..] = words[..]
            && let (Ok(host), Ok(guest)) = (host.parse(), guest.parse())
        {
            ports.insert(guest, host);
        }
    }
    ports
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forwarded_ports_are_read_from_the_monitor() {
        let table = "Hub -1 (net0):\n  Protocol[State]    FD  Source Address  Port   Dest. Address  Port RecvQ SendQ\n  \
                     TCP[HOST_FORWARD]  13       127.0.0.1 41683       10.0.2.15 50000     0     0\n  \
                     TCP[ESTABLISHED]   15       127.0.0.1 41683       127.0.0.1 50998     0     0\n";
        assert_eq!(parse_usernet(table), BTreeMap::from([(50000, 41683)]));
    }
}
