//! The machine of `run`: its devices, its keys and its configuration volume. Runs in the helper process.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use qemu_tests::{Bus, Drive, Vm, VmBuilder, config_volume};

use super::state::{State, start_time};
use crate::build::Artefacts;
use crate::place;
use crate::target::{self, Architecture};

const API_PORT: u16 = 50000;

/// QEMU's user network gives the first guest this address.
const GUEST: &str = "10.0.2.15";

#[derive(Debug, Clone, clap::Args)]
// `run` has options of its own around these; clap names groups after the type.
#[group(skip)]
pub(crate) struct Options {
    /// Memory in MiB.
    #[arg(long, default_value_t = 2048)]
    memory: u32,
    /// Processors.
    #[arg(long, default_value_t = 2)]
    cpus: u32,
    /// The machine's processors: `amd64` or `arm64`, which starts as with `--uefi`.
    #[arg(long, value_name = "NAME", default_value = "amd64", value_parser = target::parse,
          conflicts_with_all = ["disk", "kernel", "append"])]
    arch: Architecture,
    /// Boot from ROOT-A of a disk, the kernel still started by QEMU.
    #[arg(long, conflicts_with = "uefi")]
    disk: bool,
    /// Boot from a disk through firmware, boot loader and UKI.
    #[arg(long)]
    uefi: bool,
    /// `debian`, `source` (hardened, compiled from Debian's source), or a kernel of your own (a bzImage); without
    /// `--modules` its release must be that of the kernel layer.
    #[arg(long, value_name = "KIND|FILE", conflicts_with = "uefi")]
    kernel: Option<PathBuf>,
    /// Words to add to the kernel's command line.
    #[arg(long, conflicts_with = "uefi", allow_hyphen_values = true)]
    append: Option<String>,
    /// Port on 127.0.0.1 for the API; any free one by default.
    #[arg(long, default_value_t = 0)]
    port: u16,
}

/// What the helper is told.
#[derive(Debug, clap::Args)]
pub(crate) struct Start {
    #[command(flatten)]
    machine: Options,
    /// The directory that was built.
    #[arg(long)]
    images: PathBuf,
    /// billetctl, for whoever asks the node.
    #[arg(long)]
    client: PathBuf,
}

impl Options {
    pub(super) fn architecture(&self) -> Architecture {
        self.arch
    }

    /// The kernel that is started instead of the image's.
    pub(super) fn kernel(&self) -> Option<&Path> {
        self.kernel.as_deref()
    }

    /// Starts what is in the image.
    pub(super) fn use_image_s_kernel(&mut self) {
        self.kernel = None;
    }

    /// The same options as words, for the helper.
    pub(super) fn arguments(&self) -> Vec<String> {
        let mut words: Vec<String> = vec![
            format!("--arch={}", self.arch.name()),
            format!("--memory={}", self.memory),
            format!("--cpus={}", self.cpus),
            format!("--port={}", self.port),
        ];
        let flags = [(self.disk, "--disk"), (self.uefi, "--uefi")];
        words.extend(flags.iter().filter(|(on, _)| *on).map(|(_, flag)| (*flag).to_owned()));
        words.extend(self.kernel.iter().map(|path| format!("--kernel={}", path.display())));
        words.extend(self.append.iter().map(|text| format!("--append={text}")));
        words
    }
}

/// Starts the machine, notes how to reach it and leaves it running.
pub(crate) fn start(Start { machine: options, images, client }: &Start) -> Result<()> {
    let artefacts = Artefacts::read_from(images)?;
    let directory = place::run_directory();
    std::fs::create_dir_all(&directory).with_context(|| format!("create {}", directory.display()))?;
    let secrets = api::generate::Secrets::generate().context("make keys")?;
    let config = secrets.machine_config(&request(0), config::MachineType::ControlPlane)?;
    let volume = config_volume::write(&directory.join("config.img"), config.expose_secret())?;
    let vm = boot(Vm::builder("run"), options, &artefacts)
        .memory_mib(options.memory)
        .cpus(options.cpus)
        .forward_from(options.port, API_PORT)
        .drive(Drive::new(&volume, Bus::Virtio))
        .watchdog()
        .unlimited()
        .outlives_us()
        .log_dir(&directory)
        .start()?;
    let port = vm.port(API_PORT)?;
    let talosconfig = directory.join("talosconfig");
    let lifetime = api::pki::Lifetime::from_now(api::pki::CA_LIFETIME);
    secrets.talosconfig(&request(port), Some(api::roles::Role::Admin), lifetime)?.save(&talosconfig)?;
    leave(vm, talosconfig, port, client)
}

fn boot(vm: VmBuilder, options: &Options, artefacts: &Artefacts) -> VmBuilder {
    let root = place::repository();
    let image = &artefacts.production;
    let vm = if options.arch == Architecture::Arm64 { vm.arm64() } else { vm };
    if options.uefi || options.arch == Architecture::Arm64 {
        return vm.uefi().drive(Drive::new(&root.join(&image.disk), Bus::Virtio).boot_index(0));
    }
    let kernel = options.kernel.clone().unwrap_or_else(|| root.join(&artefacts.vmlinuz));
    let line = match &options.append {
        Some(words) => format!("{} {words}", artefacts.memory_cmdline()),
        None => artefacts.memory_cmdline(),
    };
    let direct = |vm: VmBuilder, initramfs: &Path| vm.kernel(&kernel, Some(&root.join(initramfs)), &line);
    if options.disk {
        let disk = Drive::new(&root.join(&image.disk), Bus::Virtio);
        return direct(vm, &image.initramfs).drive(disk);
    }
    direct(vm, &image.initramfs_full)
}

fn leave(vm: Vm, talosconfig: PathBuf, api_port: u16, client: &Path) -> Result<()> {
    let console = vm.console().path().to_owned();
    let (pid, directory) = vm.release()?;
    let pid = i32::try_from(pid).context("QEMU's process id")?;
    let started = start_time(pid).context("QEMU ended at once")?;
    State { pid, started, directory, console, talosconfig, api_port, client: client.to_owned() }.write()
}

fn request(port: u16) -> api::generate::Request {
    api::generate::Request {
        cluster_name: "billet".into(),
        endpoint: format!("https://{GUEST}:6443"),
        cert_sans: vec!["127.0.0.1".into(), "localhost".into()],
        hostname: Some("billet".into()),
        api_endpoints: vec![format!("127.0.0.1:{port}")],
        api_nodes: Vec::new(),
    }
}
