//! A virtual machine in which time is the number of executed instructions.
//!
//! Owns: QEMU's words for it, its life, and the two ways to boot in it: plainly, for the figure that counts, and with
//! the scheduler's trace, for where it went.
//! Does not: depend on the host's speed. One instruction takes one nanosecond of guest time; a processor that waits
//! jumps to its next timer, so waiting counts as guest time too.
//! Fails by: what did not appear on the console, with its last lines; the log stays in `target/bench/`.
//! Source: qemu-system(1), `-icount`.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use qemu_tests::accel::QEMU;
use qemu_tests::console::Console;
use qemu_tests::process::Owned;
use qemu_tests::qmp::Qmp;
use serde_json::json;

use super::klog;
use super::schedule::{self, Schedule};

/// A busy host needs a minute for the slowest guest.
const LIMIT: Duration = Duration::from_secs(400);

/// Memory: the slowest guest's file system of 100 MB is twice in it while the kernel unpacks it.
const MEMORY: &str = "1024";

/// The kernel prints this when it starts init: the clock starts.
pub(crate) const START: &str = "Run /init as init process";

/// What the kernel prints around the trace.
const DUMP_START: &str = "Dumping ftrace buffer:";
const DUMP_RULE: &str = "---------------------------------";

/// A system to be measured.
pub(crate) struct Guest {
    /// Names its logs.
    pub(crate) name: String,
    pub(crate) kernel: PathBuf,
    pub(crate) initramfs: PathBuf,
    pub(crate) command_line: String,
    /// Read-only raw images.
    pub(crate) drives: Vec<PathBuf>,
    /// Ends the measurement when the kernel log shows it.
    pub(crate) ready: &'static str,
}

/// A guest that has said that it is ready.
pub(crate) struct Booted {
    /// Guest time at which the kernel started init, in nanoseconds.
    pub(crate) start_ns: u64,
    /// Guest time of the ready line.
    pub(crate) ready_ns: u64,
    qemu: Owned,
    qmp: Qmp,
    console: Console,
    /// A port on 127.0.0.1 that leads to the guest's.
    port: Option<u16>,
    // Dropped after QEMU.
    _files: tempfile::TempDir,
}

impl Guest {
    /// Boots without looking.
    pub(crate) fn boot(&self, directory: &Path, forward: Option<u16>) -> Result<Booted> {
        self.start(&self.command_line, &directory.join(format!("{}.log", self.name)), forward)
    }

    /// Boots with the scheduler's trace.
    pub(crate) fn boot_traced(&self, directory: &Path) -> Result<Schedule> {
        let line = format!("{} {}", self.command_line, schedule::PARAMETERS);
        let mut booted = self.start(&line, &directory.join(format!("{}-trace.log", self.name)), None)?;
        let dump = booted.dump_trace().with_context(|| format!("trace {}", self.name))?;
        Schedule::parse(&dump).with_context(|| format!("trace {}", self.name))
    }

    fn start(&self, command_line: &str, log: &Path, forward: Option<u16>) -> Result<Booted> {
        let files =
            tempfile::Builder::new().prefix("billet-bench-").tempdir().context("create a directory")?;
        std::fs::write(log, "").with_context(|| format!("empty {}", log.display()))?;
        let socket = files.path().join("qmp");
        let words = self.words(command_line, log, &socket, forward);
        let what = format!("QEMU of {}", self.name);
        let messages = log.with_extension("qemu");
        let stderr =
            std::fs::File::create(&messages).with_context(|| format!("create {}", messages.display()))?;
        let qemu = Owned::spawn(&what, QEMU, true, |command| {
            command.args(&words).stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr);
        })?;
        let mut qmp = Qmp::connect(&socket, Duration::from_secs(30))
            .with_context(|| format!("{what} did not start; its messages are in {}", messages.display()))?;
        let port = forward.map(|guest| host_port(&mut qmp, guest)).transpose()?;
        let console = Console::new(log);
        let mut booted = Booted { start_ns: 0, ready_ns: 0, qemu, qmp, console, port, _files: files };
        booted.start_ns = booted.wait(START).with_context(|| self.name.clone())?;
        booted.ready_ns = booted.wait(self.ready).with_context(|| self.name.clone())?;
        Ok(booted)
    }

    fn words(&self, command_line: &str, log: &Path, qmp: &Path, forward: Option<u16>) -> Vec<String> {
        // Certificates that the host shall accept need the host's date; for the figures every run has the same.
        let rtc = if forward.is_some() { "base=utc,clock=vm" } else { "base=2025-01-01,clock=vm" };
        let mut words: Vec<String> = [
            "-accel",
            "tcg",
            "-smp",
            "1",
            "-cpu",
            "max",
            "-icount",
            "shift=0,sleep=off",
            "-seed",
            "1",
            "-rtc",
            rtc,
            "-machine",
            "q35",
            "-nodefaults",
            "-no-user-config",
            "-display",
            "none",
            "-no-reboot",
            "-m",
            MEMORY,
            "-serial",
            "chardev:serial",
            "-device",
            "virtio-net-pci,netdev=net0,romfile=",
        ]
        .map(str::to_owned)
        .into();
        let forward = forward.map(|port| format!(",hostfwd=tcp:127.0.0.1:0-:{port}")).unwrap_or_default();
        let mut option = |name: &str, value: String| words.extend([name.to_owned(), value]);
        option("-netdev", format!("user,id=net0{forward}"));
        option("-chardev", format!("file,id=serial,path={}", log.display()));
        option("-qmp", format!("unix:{},server=on,wait=off", qmp.display()));
        option("-kernel", self.kernel.display().to_string());
        option("-initrd", self.initramfs.display().to_string());
        option("-append", command_line.to_owned());
        for (number, drive) in self.drives.iter().enumerate() {
            let drive = drive.display();
            option("-drive", format!("if=none,id=drive{number},format=raw,readonly=on,file={drive}"));
            option("-device", format!("virtio-blk-pci,drive=drive{number}"));
        }
        words
    }
}

impl Booted {
    /// The forwarded port.
    pub(crate) fn port(&self) -> Result<u16> {
        self.port.context("no port is forwarded")
    }

    /// Everything on the console.
    pub(crate) fn text(&self) -> String {
        self.console.text()
    }

    /// Waits for a line of the kernel log and returns its time.
    fn wait(&mut self, needle: &str) -> Result<u64> {
        let line = self.line(needle)?;
        klog::time_of(&line, needle).with_context(|| format!("no time stamp in {line:?}"))
    }

    fn line(&mut self, needle: &str) -> Result<String> {
        let qemu = &mut self.qemu;
        let over = || match qemu.ended() {
            Ok(None) => None,
            Ok(Some(status)) => Some(format!("QEMU ended with {status}")),
            Err(error) => Some(format!("{error:#}")),
        };
        self.console.expect(needle, LIMIT, over)
    }

    /// Presses the keys that make the kernel print its trace. The lines are whole: the kernel prints them alone.
    fn dump_trace(&mut self) -> Result<String> {
        self.qmp.execute("human-monitor-command", json!({ "command-line": "sendkey alt-sysrq-z" }))?;
        self.line(DUMP_START)?;
        self.line(DUMP_RULE)?;
        self.line(DUMP_RULE)?;
        let text = self.text();
        match text.split_once(DUMP_START) {
            Some((_, dump)) => Ok(dump.to_owned()),
            None => bail!("the kernel's trace is gone from the log"),
        }
    }
}

/// Asks QEMU which port it bound. Lines: `TCP[HOST_FORWARD]  13  127.0.0.1 41683  10.0.2.15 50000  0 0`.
fn host_port(qmp: &mut Qmp, guest: u16) -> Result<u16> {
    let table = qmp.human("info usernet")?;
    let lines = table.lines().filter(|line| line.contains("HOST_FORWARD"));
    let mut ports = lines.filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        (words.get(5)?.parse() == Ok(guest)).then(|| words.get(3)?.parse().ok())?
    });
    ports.next_back().with_context(|| format!("QEMU forwards no port to {guest}: {table}"))
}
