//! The description of a virtual machine.
//!
//! Owns: defaults and the setters; [`super::arguments`] turns it into QEMU's words.

use std::path::{Path, PathBuf};

use anyhow::Result;

use super::Vm;

/// Memory of a VM unless said otherwise: what the smallest supported node has.
const DEFAULT_MEMORY_MIB: u32 = 1024;

/// What the VM starts from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Boot {
    /// QEMU loads the kernel itself.
    Kernel {
        /// A bzImage.
        kernel: PathBuf,
        /// One cpio file, or `None`.
        initramfs: Option<PathBuf>,
        /// The command line.
        command_line: String,
    },
    /// OVMF, with a fresh copy of its variable store.
    Uefi,
    /// OVMF that knows Secure Boot, in setup mode: it takes the first keys that somebody enrols.
    SetupMode,
    /// SeaBIOS.
    Bios,
    /// A machine with 64-bit ARM processors and the firmware made for it, with a fresh copy of its variable store.
    Arm64,
}

/// Which controller a drive hangs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bus {
    /// virtio-blk: `/dev/vda`.
    Virtio,
    /// A CD in a virtio-scsi drive: `/dev/sr0`.
    Cdrom,
    /// A disk on the board's AHCI controller: `/dev/sda`.
    Sata,
    /// `/dev/nvme0n1`.
    Nvme,
    /// A stick on xHCI: `/dev/sda`.
    Usb,
}

/// One raw image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drive {
    /// The image file.
    pub image: PathBuf,
    /// The controller.
    pub bus: Bus,
    /// Writes go to a temporary file that is gone with the VM; the image may be shared by several VMs.
    pub throw_writes_away: bool,
    /// The firmware tries drives in this order.
    pub boot_index: Option<u32>,
    /// Every write that touches this byte fails.
    pub bad_byte: Option<u64>,
}

impl Drive {
    /// A drive whose image is left as it is.
    pub fn new(image: &Path, bus: Bus) -> Self {
        Self { image: image.to_path_buf(), bus, throw_writes_away: true, boot_index: None, bad_byte: None }
    }

    /// A drive whose image keeps what the guest writes.
    pub fn writable(image: &Path, bus: Bus) -> Self {
        Self { throw_writes_away: false, ..Self::new(image, bus) }
    }

    /// Has every write that touches this byte fail.
    pub fn bad_byte(mut self, at: u64) -> Self {
        self.bad_byte = Some(at);
        self
    }

    /// Sets the place in the firmware's order.
    pub fn boot_index(mut self, index: u32) -> Self {
        self.boot_index = Some(index);
        self
    }
}

/// Where the serial console goes, besides the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Serial {
    /// Nowhere else.
    Log,
    /// The terminal, both ways.
    Terminal,
}

/// A port forward from 127.0.0.1 to the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Forward {
    /// 0: any free port.
    pub(crate) host: u16,
    /// TCP port in the guest.
    pub(crate) guest: u16,
}

/// What a VM is made of.
#[derive(Debug, Clone)]
pub struct VmBuilder {
    pub(super) name: String,
    pub(super) memory_mib: u32,
    pub(super) cpus: u32,
    pub(super) boot: Boot,
    pub(super) drives: Vec<Drive>,
    pub(super) network: bool,
    pub(super) forwards: Vec<Forward>,
    pub(super) tpm: bool,
    pub(super) tpm_state: Option<PathBuf>,
    pub(super) watchdog: bool,
    pub(super) reboot_ends: bool,
    pub(super) serial: Serial,
    pub(super) unlimited: bool,
    pub(super) outlives_us: bool,
    pub(super) log_dir: Option<PathBuf>,
    pub(super) extra: Vec<String>,
}

impl VmBuilder {
    pub(super) fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            memory_mib: DEFAULT_MEMORY_MIB,
            cpus: 2,
            boot: Boot::Bios,
            drives: Vec::new(),
            network: true,
            forwards: Vec::new(),
            tpm: false,
            tpm_state: None,
            watchdog: false,
            reboot_ends: false,
            serial: Serial::Log,
            unlimited: false,
            outlives_us: false,
            log_dir: None,
            extra: Vec::new(),
        }
    }

    /// Memory in MiB.
    pub fn memory_mib(mut self, mib: u32) -> Self {
        self.memory_mib = mib;
        self
    }

    /// Number of processors.
    pub fn cpus(mut self, cpus: u32) -> Self {
        self.cpus = cpus;
        self
    }

    /// Boots a kernel directly.
    pub fn kernel(mut self, kernel: &Path, initramfs: Option<&Path>, command_line: &str) -> Self {
        self.boot = Boot::Kernel {
            kernel: kernel.to_path_buf(),
            initramfs: initramfs.map(Path::to_path_buf),
            command_line: command_line.to_owned(),
        };
        self
    }

    /// Boots through OVMF.
    pub fn uefi(mut self) -> Self {
        self.boot = Boot::Uefi;
        self
    }

    /// Boots through OVMF with Secure Boot, which has no keys yet.
    pub fn setup_mode(mut self) -> Self {
        self.boot = Boot::SetupMode;
        self
    }

    /// Makes it a machine with 64-bit ARM processors, which boots through its UEFI.
    pub fn arm64(mut self) -> Self {
        self.boot = Boot::Arm64;
        self
    }

    /// Adds a drive.
    pub fn drive(mut self, drive: Drive) -> Self {
        self.drives.push(drive);
        self
    }

    /// Forwards a free port on 127.0.0.1 to the guest's TCP port.
    pub fn forward(self, guest: u16) -> Self {
        self.forward_from(0, guest)
    }

    /// Forwards this port on 127.0.0.1 to the guest's TCP port.
    pub fn forward_from(mut self, host: u16, guest: u16) -> Self {
        self.forwards.push(Forward { host, guest });
        self
    }

    /// Leaves the network card out.
    pub fn no_network(mut self) -> Self {
        self.network = false;
        self
    }

    /// Adds a TPM 2.0.
    pub fn tpm(mut self) -> Self {
        self.tpm = true;
        self
    }

    /// Adds a TPM 2.0 that keeps what it is in this directory, from one VM to the next.
    pub fn tpm_in(mut self, state: &Path) -> Self {
        self.tpm_state = Some(state.to_path_buf());
        self.tpm()
    }

    /// Adds an i6300esb watchdog that resets the machine.
    pub fn watchdog(mut self) -> Self {
        self.watchdog = true;
        self
    }

    /// A reboot of the guest ends QEMU.
    pub fn reboot_ends(mut self) -> Self {
        self.reboot_ends = true;
        self
    }

    /// Shows the console on the terminal and sends it what is typed.
    pub fn terminal(mut self) -> Self {
        self.serial = Serial::Terminal;
        self
    }

    /// Does not wait for a slot: for one VM that a person asked for.
    pub fn unlimited(mut self) -> Self {
        self.unlimited = true;
        self
    }

    /// The VM may be released to run on after this program.
    pub fn outlives_us(mut self) -> Self {
        self.outlives_us = true;
        self
    }

    /// Keeps the logs in this directory.
    pub fn log_dir(mut self, dir: &Path) -> Self {
        self.log_dir = Some(dir.to_path_buf());
        self
    }

    /// Adds a card at the other end of a tap of this machine.
    pub fn tap(self, interface: &str, mac: &str) -> Self {
        let netdev = format!("tap,id=lan,ifname={interface},script=no,downscript=no");
        let device = format!("virtio-net-pci,netdev=lan,mac={mac},romfile=");
        self.extra(&["-netdev", &netdev, "-device", &device])
    }

    /// Adds words to QEMU's command line.
    pub fn extra(mut self, words: &[&str]) -> Self {
        self.extra.extend(words.iter().map(|&word| word.to_owned()));
        self
    }

    /// Waits for a slot and starts QEMU.
    pub fn start(self) -> Result<Vm> {
        Vm::start(self)
    }
}
