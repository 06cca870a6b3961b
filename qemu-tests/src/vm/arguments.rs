//! QEMU's command line for a described VM.
//!
//! Owns: every word QEMU is given. Does not: start anything, except for copying OVMF's variable store.
//! Source: qemu-system(1).

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::builder::{Boot, Bus, Drive, Serial, VmBuilder};
use crate::accel::{self, Accelerator, QEMU, QEMU_ARM64};
use crate::emulated;

/// OVMF without Secure Boot, as Debian's `ovmf` package installs it.
const OVMF_CODE: &str = "/usr/share/OVMF/OVMF_CODE_4M.fd";

/// The same with Secure Boot; its variables can only be written in system management mode.
const OVMF_SECURE_CODE: &str = "/usr/share/OVMF/OVMF_CODE_4M.secboot.fd";

/// The empty variable store that belongs to both.
const OVMF_VARS: &str = "/usr/share/OVMF/OVMF_VARS_4M.fd";

/// The firmware of machines with 64-bit ARM processors, as Debian's `qemu-efi-aarch64` package installs it.
const AAVMF_CODE: &str = "/usr/share/AAVMF/AAVMF_CODE.fd";

/// Its empty variable store.
const AAVMF_VARS: &str = "/usr/share/AAVMF/AAVMF_VARS.fd";

/// Collects words.
#[derive(Default)]
struct Words(Vec<OsString>);

impl Words {
    fn add<const N: usize>(&mut self, words: [&str; N]) {
        self.0.extend(words.iter().map(OsString::from));
    }

    fn option(&mut self, name: &str, value: impl Into<OsString>) {
        self.0.push(name.into());
        self.0.push(value.into());
    }
}

/// All words after the program's name.
pub(super) fn of(vm: &VmBuilder, dir: &Path, serial_log: &Path) -> Result<Vec<OsString>> {
    let mut words = Words::default();
    machine(&mut words, vm)?;
    boot(&mut words, vm, dir, accel::host()?.accelerator)?;
    monitor_and_serial(&mut words, vm.serial, dir, serial_log)?;
    devices(&mut words, vm, dir)?;
    network(&mut words, vm);
    for (number, drive) in vm.drives.iter().enumerate() {
        add_drive(&mut words, number, drive)?;
    }
    if vm.reboot_ends {
        words.add(["-action", "reboot=shutdown"]);
    }
    words.0.extend(vm.extra.iter().map(OsString::from));
    Ok(words.0)
}

/// The program that emulates the machine's processors.
pub(super) fn program(vm: &VmBuilder) -> &'static str {
    if vm.boot == Boot::Arm64 { QEMU_ARM64 } else { QEMU }
}

fn machine(words: &mut Words, vm: &VmBuilder) -> Result<()> {
    let machine = match vm.boot {
        Boot::Arm64 => {
            words.add(["-accel", "tcg,thread=single", "-cpu", "cortex-a72"]);
            "virt"
        }
        _ => {
            words.add(accel::host()?.accelerator.arguments());
            if vm.boot == Boot::SetupMode { "q35,smm=on" } else { "q35" }
        }
    };
    words.add(["-machine", machine, "-nodefaults", "-no-user-config", "-display", "none"]);
    words.option("-m", vm.memory_mib.to_string());
    words.option("-smp", vm.cpus.to_string());
    Ok(())
}

fn boot(words: &mut Words, vm: &VmBuilder, dir: &Path, accelerator: Accelerator) -> Result<()> {
    let emulated = accelerator == Accelerator::Tcg;
    match &vm.boot {
        Boot::Kernel { kernel, initramfs, command_line } => {
            // Beside an unpacked kernel QEMU 7.2 puts the initramfs where the firmware has the ACPI tables of a machine
            // with a TPM, whose log makes them longer: the kernel then finds neither.
            if emulated && !vm.tpm {
                words.option("-kernel", emulated::kernel(kernel)?);
            } else {
                words.option("-kernel", kernel);
            }
            let more: &[&str] = if emulated { &emulated::WORDS } else { &[] };
            words.option("-append", [&[command_line.as_str()], more].concat().join(" "));
            if let Some(initramfs) = initramfs {
                words.option("-initrd", initramfs);
            }
        }
        Boot::SetupMode => {
            words.add(["-global", "driver=cfi.pflash01,property=secure,value=on"]);
            firmware(words, OVMF_SECURE_CODE, OVMF_VARS, dir)?;
        }
        Boot::Uefi => {
            firmware(words, OVMF_CODE, OVMF_VARS, dir)?;
            if emulated {
                // systemd's stub adds this to the command line of the UKI.
                let words_of_stub = emulated::WORDS.join(" ").replace(',', ",,");
                let line = format!("type=11,value=io.systemd.stub.kernel-cmdline-extra={words_of_stub}");
                words.option("-smbios", line);
            }
        }
        Boot::Arm64 => firmware(words, AAVMF_CODE, AAVMF_VARS, dir)?,
        Boot::Bios => {}
    }
    Ok(())
}

fn firmware(words: &mut Words, code: &str, variables: &str, dir: &Path) -> Result<()> {
    let variables = fresh_variables(variables, dir)?;
    words.option("-drive", format!("if=pflash,format=raw,readonly=on,file={code}"));
    words.option("-drive", format!("if=pflash,format=raw,file={}", plain(&variables)?));
    Ok(())
}

fn fresh_variables(store: &str, dir: &Path) -> Result<PathBuf> {
    let copy = dir.join("firmware-variables");
    let told = "copy the firmware's variable store; install it with: apt-get install ovmf qemu-efi-aarch64";
    std::fs::copy(store, &copy).context(told)?;
    Ok(copy)
}

fn monitor_and_serial(words: &mut Words, serial: Serial, dir: &Path, log: &Path) -> Result<()> {
    words.option("-qmp", format!("unix:{},server=on,wait=off", plain(&dir.join("qmp"))?));
    let log = plain(log)?;
    let backend = match serial {
        // A socket nobody need connect to: a test that must type may.
        Serial::Log => format!("socket,path={},server=on,wait=off", plain(&dir.join("serial"))?),
        Serial::Terminal => "stdio,signal=on".to_owned(),
    };
    words.option("-chardev", format!("{backend},id=serial,logfile={log},logappend=on"));
    words.add(["-serial", "chardev:serial"]);
    Ok(())
}

fn devices(words: &mut Words, vm: &VmBuilder, dir: &Path) -> Result<()> {
    words.add(["-device", "virtio-rng-pci"]);
    // q35 plugs into root ports only; one is kept free for `Vm::plug_in`.
    words.add(["-device", "pcie-root-port,id=spare,chassis=1"]);
    if vm.watchdog {
        words.add(["-device", "i6300esb", "-action", "watchdog=reset"]);
    }
    if vm.tpm {
        words.option("-chardev", format!("socket,id=tpm,path={}", plain(&dir.join("tpm"))?));
        words.add(["-tpmdev", "emulator,id=tpm0,chardev=tpm", "-device", "tpm-crb,tpmdev=tpm0"]);
    }
    if vm.drives.iter().any(|drive| drive.bus == Bus::Cdrom) {
        words.add(["-device", "virtio-scsi-pci,id=scsi"]);
    }
    if vm.drives.iter().any(|drive| drive.bus == Bus::Usb) {
        words.add(["-device", "qemu-xhci,id=xhci"]);
    }
    Ok(())
}

fn network(words: &mut Words, vm: &VmBuilder) {
    if !vm.network {
        words.add(["-nic", "none"]);
        return;
    }
    let mut user = "user,id=net0".to_owned();
    for forward in &vm.forwards {
        user.push_str(&format!(",hostfwd=tcp:127.0.0.1:{}-:{}", forward.host, forward.guest));
    }
    words.option("-netdev", user);
    // The empty ROM file saves the time of the firmware's network boot.
    words.add(["-device", "virtio-net-pci,netdev=net0,romfile="]);
}

fn add_drive(words: &mut Words, number: usize, drive: &Drive) -> Result<()> {
    let read_only = drive.bus == Bus::Cdrom;
    let snapshot = if drive.throw_writes_away && !read_only { ",snapshot=on" } else { "" };
    let read_only = if read_only { ",readonly=on" } else { "" };
    let image = plain(&drive.image)?;
    let file = match drive.bad_byte {
        None => format!("format=raw,file={image}"),
        Some(at) => format!("driver=raw,{}", bad_byte(image, at)),
    };
    words.option("-drive", format!("if=none,id=drive{number},{file}{snapshot}{read_only}"));
    let device = match drive.bus {
        Bus::Virtio => format!("virtio-blk-pci,drive=drive{number}"),
        Bus::Cdrom => format!("scsi-cd,bus=scsi.0,drive=drive{number}"),
        Bus::Sata => format!("ide-hd,bus=ide.{number},drive=drive{number}"),
        Bus::Nvme => format!("nvme,serial=billet{number},drive=drive{number}"),
        Bus::Usb => format!("usb-storage,bus=xhci.0,drive=drive{number}"),
    };
    let index = drive.boot_index.map(|index| format!(",bootindex={index}")).unwrap_or_default();
    words.option("-device", format!("{device},id=device{number}{index}"));
    Ok(())
}

/// The image behind QEMU's layer of faults. Source: QEMU's docs/devel/blkdebug.rst.
fn bad_byte(image: &str, at: u64) -> String {
    let rule = [("event", "write_aio"), ("iotype", "write"), ("errno", "5"), ("once", "off")];
    let rule = rule.map(|(name, value)| format!("file.inject-error.0.{name}={value}")).join(",");
    let sector = at / 512;
    format!(
        "file.driver=blkdebug,file.image.driver=file,file.image.filename={image},{rule},\
         file.inject-error.0.sector={sector}"
    )
}

/// A path that QEMU's option syntax takes as it is.
fn plain(path: &Path) -> Result<&str> {
    match path.to_str() {
        Some(text) if !text.contains(',') => Ok(text),
        _ => bail!("{} cannot be given to QEMU: it holds a comma or is not UTF-8", path.display()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words_of(add: impl FnOnce(&mut Words)) -> String {
        let mut words = Words::default();
        add(&mut words);
        words.0.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn shared_images_are_never_written() {
        let image = Path::new("a.img");
        let shared = words_of(|words| add_drive(words, 0, &Drive::new(image, Bus::Virtio)).unwrap());
        assert!(shared.contains("file=a.img,snapshot=on"), "{shared}");
        let own = words_of(|words| add_drive(words, 1, &Drive::writable(image, Bus::Nvme)).unwrap());
        assert!(!own.contains("snapshot"), "{own}");
        let cd = words_of(|words| add_drive(words, 2, &Drive::new(image, Bus::Cdrom).boot_index(1)).unwrap());
        assert!(cd.contains("readonly=on") && cd.contains("bootindex=1"), "{cd}");
    }

    #[test]
    fn only_an_emulated_kernel_is_told_that_the_timer_works() {
        let file = tempfile::NamedTempFile::new().expect("a file that is no bzImage");
        let vm = VmBuilder::new("x").kernel(file.path(), None, "panic=1");
        let words = |accelerator| {
            words_of(|words| boot(words, &vm, Path::new("."), accelerator).expect("the words of a kernel"))
        };
        assert!(words(Accelerator::Tcg).contains("-append panic=1 no_timer_check"));
        assert!(!words(Accelerator::Kvm).contains("no_timer_check"));
    }

    #[test]
    fn ports_are_asked_for_not_guessed() {
        let vm = VmBuilder::new("x").forward(50000).forward_from(8443, 443);
        let line = words_of(|words| network(words, &vm));
        assert!(line.contains("hostfwd=tcp:127.0.0.1:0-:50000,hostfwd=tcp:127.0.0.1:8443-:443"), "{line}");
    }

    #[test]
    fn a_path_with_a_comma_is_refused() {
        assert!(plain(Path::new("a,b")).is_err());
    }
}
