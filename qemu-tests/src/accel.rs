//! How fast this host runs VMs: KVM or emulation, and by which factor deadlines grow.
//!
//! Owns: the probe, its remembered answer (`target/qemu-tests/accel.json`, valid until the host reboots or QEMU
//! changes), [`deadline`].
//! Does not: trust `/dev/kvm` to exist: on some nested hosts it opens, creates VMs, and runs none.
//! Order: a kernel without a root boots under KVM and must say hello within three seconds, else it boots emulated; the
//! time until it gives up looking for a root, against [`REFERENCE`], is the slowness factor.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use crate::artifacts;
use crate::console::Console;
use crate::emulated::NO_TIMER_CHECK;
use crate::paths;
use crate::process::Owned;

/// The emulator of machines like those that build.
pub const QEMU: &str = "qemu-system-x86_64";

/// The emulator of machines with 64-bit ARM processors.
pub const QEMU_ARM64: &str = "qemu-system-aarch64";

/// The environment variable that names a kernel for the probe where no image was built yet.
pub const KERNEL_VARIABLE: &str = "BILLET_PROBE_KERNEL";

/// A guest under working KVM says hello in a fraction of this, measured on a loaded host too.
const KVM_LIMIT: Duration = Duration::from_secs(3);

/// A guest that started at all ends within this, emulated and on a loaded host.
const BOOT_LIMIT: Duration = Duration::from_secs(90);

/// How long the probe's boot takes under KVM on the reference machine: deadlines in tests are written for it.
const REFERENCE: Duration = Duration::from_millis(1500);

/// The probe sees an idle host, the tests run side by side: each VM may get half of what the probe got.
const SIDE_BY_SIDE: f64 = 2.0;

/// Beyond this a deadline would only hide a hang.
const MOST: f64 = 12.0;

/// Who executes the guest's instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Accelerator {
    /// The processor.
    Kvm,
    /// QEMU's own code generator.
    Tcg,
}

impl Accelerator {
    /// QEMU's arguments.
    pub fn arguments(self) -> [&'static str; 4] {
        match self {
            Self::Kvm => ["-accel", "kvm", "-cpu", "host"],
            // One thread for all processors of a guest. With one each, the kernel died of an oops while the second
            // processor came up, once in some 400 boots; QEMU 7.2 is presumed to run code that the other processor
            // has just patched. It costs no time, since VMs run side by side anyway.
            Self::Tcg => ["-accel", "tcg,thread=single", "-cpu", "max"],
        }
    }
}

/// The probe's answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Host {
    /// What VMs should use.
    pub accelerator: Accelerator,
    /// All deadlines are multiplied by it; at least 1.
    pub slowness: f64,
    /// For which boot of which host and which QEMU this holds.
    key: String,
}

/// The answer for this host, probed at most once a boot of it.
pub fn host() -> Result<&'static Host> {
    static HOST: OnceLock<Host> = OnceLock::new();
    if let Some(host) = HOST.get() {
        return Ok(host);
    }
    let found = remembered_or_probed()?;
    Ok(HOST.get_or_init(|| found))
}

/// Scales a deadline that was written for a machine with KVM.
///
/// Without an answer from the probe (no kernel yet) the factor of a slow host is taken.
pub fn deadline(on_reference: Duration) -> Duration {
    let slowness = host().map_or(MOST, |host| host.slowness);
    on_reference.mul_f64(slowness)
}

fn remembered_or_probed() -> Result<Host> {
    let dir = paths::work_dir();
    std::fs::create_dir_all(&dir).with_context(|| format!("create {}", dir.display()))?;
    let lock = File::create(dir.join("accel.lock")).context("create the lock of the accelerator probe")?;
    lock.lock().context("lock the accelerator probe")?;
    let file = dir.join("accel.json");
    let key = key()?;
    if let Some(host) = remembered(&file, &key) {
        return Ok(host);
    }
    let host = probe(&kernel()?, &dir, key)?;
    let json = serde_json::to_vec_pretty(&host).context("encode the accelerator probe's answer")?;
    std::fs::write(&file, json).with_context(|| format!("write {}", file.display()))?;
    Ok(host)
}

fn remembered(file: &Path, key: &str) -> Option<Host> {
    let host: Host = serde_json::from_slice(&std::fs::read(file).ok()?).ok()?;
    (host.key == key).then_some(host)
}

fn key() -> Result<String> {
    let boot =
        std::fs::read_to_string("/proc/sys/kernel/random/boot_id").context("read the host's boot id")?;
    let output = Command::new(QEMU).arg("--version").output().with_context(|| {
        format!("run {QEMU}; install it with: apt-get install qemu-system-x86 ovmf swtpm xorriso")
    })?;
    let version = String::from_utf8_lossy(&output.stdout);
    Ok(format!("{} {}", boot.trim(), version.lines().next().unwrap_or_default()))
}

/// The kernel that [`KERNEL_VARIABLE`] names, else that of the built image.
pub fn kernel() -> Result<PathBuf> {
    match std::env::var_os(KERNEL_VARIABLE) {
        Some(path) => Ok(PathBuf::from(path)),
        None => Ok(artifacts::read(&paths::repository())?.vmlinuz),
    }
}

fn probe(kernel: &Path, dir: &Path, key: String) -> Result<Host> {
    if File::options().read(true).write(true).open("/dev/kvm").is_ok()
        && let Ok(took) = trial_boot(Accelerator::Kvm, KVM_LIMIT, kernel, dir)
    {
        return Ok(Host { accelerator: Accelerator::Kvm, slowness: factor(took), key });
    }
    let took = trial_boot(Accelerator::Tcg, BOOT_LIMIT, kernel, dir)?;
    Ok(Host { accelerator: Accelerator::Tcg, slowness: factor(took), key })
}

fn factor(took: Duration) -> f64 {
    (took.div_duration_f64(REFERENCE) * SIDE_BY_SIDE).clamp(1.0, MOST)
}

/// Boots a kernel without a root; it panics and reboots, which ends QEMU.
fn trial_boot(accelerator: Accelerator, hello: Duration, kernel: &Path, dir: &Path) -> Result<Duration> {
    let log = dir.join("accel-serial.log");
    // A log of an earlier probe would say hello at once.
    std::fs::write(&log, "").with_context(|| format!("empty {}", log.display()))?;
    // Where `/dev/kvm` runs nothing, QEMU says so with all registers: nobody's business but that of who looks for it.
    let messages = dir.join("accel-qemu.log");
    let stderr = File::create(&messages).with_context(|| format!("create {}", messages.display()))?;
    let start = Instant::now();
    let mut qemu = Owned::spawn("the accelerator probe", QEMU, true, |command| {
        command.args(accelerator.arguments());
        command.args(["-machine", "q35", "-m", "256", "-nodefaults", "-display", "none", "-no-reboot"]);
        command.arg("-serial").arg(format!("file:{}", log.display()));
        command
            .arg("-kernel")
            .arg(kernel)
            .args(["-append", &format!("console=ttyS0 panic=-1 {NO_TIMER_CHECK}")]);
        command.stdin(Stdio::null()).stderr(stderr);
    })?;
    let console = Console::new(&log);
    console.expect("Linux version", hello, || match qemu.ended() {
        Ok(Some(status)) => Some(format!("QEMU ended with {status}")),
        Ok(None) => None,
        Err(error) => Some(error.to_string()),
    })?;
    let status = qemu.wait(BOOT_LIMIT)?;
    if !status.success() {
        let (log, messages) = (log.display(), messages.display());
        bail!("the accelerator probe's QEMU ended with {status}; see {log} and {messages}");
    }
    Ok(start.elapsed())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_factor_is_never_below_one_and_never_endless() {
        assert!((factor(Duration::from_millis(10)) - 1.0).abs() < 1e-9);
        assert!((factor(REFERENCE * 2) - 2.0 * SIDE_BY_SIDE).abs() < 1e-9);
        assert!((factor(Duration::from_secs(3600)) - MOST).abs() < 1e-9);
    }

    #[test]
    fn an_answer_holds_only_for_its_key() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("accel.json");
        let host = Host { accelerator: Accelerator::Tcg, slowness: 4.0, key: "boot 1".into() };
        std::fs::write(&file, serde_json::to_vec(&host).unwrap()).unwrap();
        assert_eq!(remembered(&file, "boot 1"), Some(host));
        assert_eq!(remembered(&file, "boot 2"), None);
        std::fs::write(&file, "{").unwrap();
        assert_eq!(remembered(&file, "boot 1"), None);
    }
}
