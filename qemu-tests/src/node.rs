//! A whole node in a VM: image, config volume, PKI, API client, fault injector.
//!
//! Owns: the way from a build to an API that answers, for every transport of the root.
//! Order: spoil the root, make the volumes in the VM's directory, start, then wait for what the test wants to see.
//! Fails by: panics are left to the tests; errors name the node and its serial log.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::agent::{self, Agent};
use crate::artifacts::build;
use crate::cli::{Billetctl, Output};
use crate::credentials::{ADMIN, Credentials};
use crate::process::POLL_INTERVAL;
use crate::root::Root;
use crate::vm::{Bus, Drive, Vm, VmBuilder};
use crate::{config_volume, deadline, paths, state_volume};

/// The API's port in the guest.
pub const API_PORT: u16 = 50000;

/// From power-on to the API on the reference machine; the firmware's share is in it.
pub const BOOT_LIMIT: Duration = Duration::from_secs(20);

/// The line that machined prints when its API listens.
pub const READY_LINE: &str = "billet: machined: API ready on :50000";

/// How the root reaches init.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// Layers in the initramfs.
    Initramfs,
    /// ROOT-A of a disk; QEMU loads kernel and initramfs.
    Slot,
    /// A CD with the label `BILLET`; QEMU loads kernel and initramfs.
    Medium,
    /// OVMF, systemd-boot, UKI and ROOT-A: nothing from outside the disk.
    Firmware,
    /// SeaBIOS, GRUB, UKI and ROOT-A of a disk that was installed to; the test names it.
    Bios,
    /// A stick labelled `BILLET` that OVMF starts by itself: the UKI, and the layers as files.
    Stick,
    /// OVMF with Secure Boot in setup mode, and from then on as [`Transport::Firmware`], from the disk that the test names.
    SetupMode,
    /// What the test brings itself: a medium that firmware starts, or a server for the firmware's network boot.
    Network,
}

/// The machine config's way into the node.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Volume {
    /// A config that belongs to the test's PKI.
    Good,
    /// A volume with this text as config.yaml.
    Text(String),
    /// The same in a CD drive.
    CdText(String),
    /// No volume.
    Absent,
}

type Spoiler = Box<dyn FnOnce(&mut Root) -> Result<()>>;
type Changer = Box<dyn FnOnce(VmBuilder, &Path) -> Result<VmBuilder>>;

/// A node to be.
pub struct NodeBuilder {
    name: String,
    transport: Transport,
    volume: Volume,
    additions: String,
    documents: String,
    command_line: String,
    installs: bool,
    source: Option<String>,
    credentials: Option<Credentials>,
    spoiler: Option<Spoiler>,
    disk: Option<PathBuf>,
    bad_byte: Option<u64>,
    changers: Vec<Changer>,
}

/// A node in a VM.
pub struct TestNode {
    vm: Vm,
    files: tempfile::TempDir,
    credentials: Credentials,
    admin: Billetctl,
}

impl NodeBuilder {
    /// Chooses the transport.
    pub fn transport(mut self, transport: Transport) -> Self {
        self.transport = transport;
        self
    }

    /// Adds words to the kernel command line; a UKI's cannot be changed.
    pub fn command_line(mut self, words: &str) -> Self {
        self.command_line.push_str(&format!(" {words}"));
        self
    }

    /// Lets the machine install itself when its config names a disk, as every one in tests does.
    pub fn installs(mut self) -> Self {
        self.installs = true;
        self
    }

    /// Names another source of the machine config than the build does; empty names none. Not for a UKI.
    pub fn source(mut self, source: &str) -> Self {
        self.source = Some(source.to_owned());
        self
    }

    /// Puts this text on the config volume.
    pub fn config(mut self, text: &str) -> Self {
        self.volume = Volume::Text(text.to_owned());
        self
    }

    /// Belongs to an existing PKI instead of one of its own.
    pub fn credentials(mut self, credentials: Credentials) -> Self {
        self.credentials = Some(credentials);
        self
    }

    /// Adds lines to the `machine` section of the config, which is otherwise the usual one.
    pub fn machine_section(mut self, lines: &str) -> Self {
        self.additions.push_str(lines);
        self
    }

    /// Adds documents behind the config, which is otherwise the usual one.
    pub fn documents(mut self, text: &str) -> Self {
        self.documents.push_str(&format!("---\n{text}"));
        self
    }

    /// Puts a CD with this text into the first drive.
    pub fn config_cd(mut self, text: &str) -> Self {
        self.volume = Volume::CdText(text.to_owned());
        self
    }

    /// Leaves the config volume out.
    pub fn no_config(mut self) -> Self {
        self.volume = Volume::Absent;
        self
    }

    /// Changes the root before any transport is made of it.
    pub fn spoil(mut self, spoiler: impl FnOnce(&mut Root) -> Result<()> + 'static) -> Self {
        self.spoiler = Some(Box::new(spoiler));
        self
    }

    /// Boots from this disk image, which keeps what the node writes, instead of the build's. For a slot or firmware.
    pub fn disk(mut self, image: &Path) -> Self {
        self.disk = Some(image.to_path_buf());
        self
    }

    /// Has every write to its disk that touches this byte fail. For a slot or firmware.
    pub fn bad_byte(mut self, at: u64) -> Self {
        self.bad_byte = Some(at);
        self
    }

    /// Changes the VM; files that it needs may be put into the given directory.
    pub fn machine(mut self, changer: impl FnOnce(VmBuilder, &Path) -> Result<VmBuilder> + 'static) -> Self {
        self.changers.push(Box::new(changer));
        self
    }

    /// Adds a virtio disk with an empty STATE.
    pub fn state_disk(self) -> Self {
        self.state_disk_on(Bus::Virtio)
    }

    /// Adds a disk with an empty STATE.
    pub fn state_disk_on(self, bus: Bus) -> Self {
        self.machine(move |vm, dir| {
            let image = dir.join("state.img");
            state_volume::write(&image)?;
            Ok(vm.drive(Drive::writable(&image, bus)))
        })
    }

    /// Adds a disk with two empty STATEs.
    pub fn disk_with_two_states(self) -> Self {
        self.machine(|vm, dir| {
            let image = dir.join("states.img");
            state_volume::write_several(&image, 2)?;
            Ok(vm.drive(Drive::writable(&image, Bus::Virtio)))
        })
    }

    /// Starts the VM and waits for the API.
    pub fn boot(self) -> Result<TestNode> {
        let node = self.start()?;
        node.wait_api(BOOT_LIMIT)?;
        Ok(node)
    }

    /// Starts the VM and waits for nothing.
    pub fn start(mut self) -> Result<TestNode> {
        let files = paths::temporary_dir()?;
        let credentials = self.credentials.take().map_or_else(Credentials::generate, Ok)?;
        let mut vm = Vm::builder(&self.name).forward(API_PORT).forward(agent::PORT);
        vm = self.root_of(vm, files.path())?;
        vm = self.config_of(vm, &credentials, files.path())?;
        for change in std::mem::take(&mut self.changers) {
            vm = change(vm, files.path())?;
        }
        let vm = vm.start()?;
        let identity = credentials.client(Some(ADMIN))?;
        let talosconfig = files.path().join("talosconfig");
        credentials.talosconfig(&talosconfig, vm.port(API_PORT)?, Some(&identity))?;
        Ok(TestNode { vm, files, credentials, admin: Billetctl::new(&talosconfig) })
    }

    fn config_of(&self, vm: VmBuilder, credentials: &Credentials, dir: &Path) -> Result<VmBuilder> {
        let image = dir.join("config.img");
        Ok(match &self.volume {
            Volume::Good => {
                let text = credentials.machine_config()?;
                let text = text.replacen("machine:\n", &format!("machine:\n{}", self.additions), 1);
                let image = config_volume::write(&image, &(text + &self.documents))?;
                vm.drive(Drive::new(&image, Bus::Virtio))
            }
            Volume::Text(text) => vm.drive(Drive::new(&config_volume::write(&image, text)?, Bus::Virtio)),
            Volume::CdText(text) => vm.drive(Drive::new(&config_volume::write_cd(&image, text)?, Bus::Cdrom)),
            Volume::Absent => vm,
        })
    }

    /// The build's command line, with the source that the test names.
    fn build_line(&self) -> String {
        let Some(source) = &self.source else { return build().cmdline.clone() };
        let kept = build().cmdline.split(' ').filter(|word| !word.starts_with("billet.config="));
        let mut line = kept.collect::<Vec<_>>().join(" ");
        if !source.is_empty() {
            line.push_str(&format!(" billet.config={source}"));
        }
        line
    }

    fn root_of(&mut self, vm: VmBuilder, dir: &Path) -> Result<VmBuilder> {
        let spoiled = match self.spoiler.take() {
            Some(spoil) => {
                let mut root = Root::of_build()?;
                spoil(&mut root)?;
                Some(root)
            }
            None => None,
        };
        let stays = if self.installs { "" } else { " billet.install=no" };
        let line = format!("{}{stays}{}", self.build_line(), self.command_line);
        let direct = |vm: VmBuilder, initramfs: &Path| vm.kernel(&build().vmlinuz, Some(initramfs), &line);
        let part = |make: &dyn Fn(&Root) -> Result<std::path::PathBuf>| match &spoiled {
            Some(root) => make(root),
            None => make(&Root::of_build()?),
        };
        match (self.transport, &spoiled) {
            (Transport::Initramfs, None) => Ok(direct(vm, &build().test.initramfs_full)),
            (Transport::Initramfs, Some(root)) => Ok(direct(vm, &root.initramfs(dir, true)?)),
            (Transport::Medium, _) => {
                let image = part(&|root| root.medium(dir))?;
                let vm = direct(vm, &part(&|root| root.initramfs(dir, false))?);
                Ok(vm.drive(Drive::new(&image, Bus::Cdrom)))
            }
            (Transport::Stick, _) => {
                let image = part(&|root| root.stick(dir))?;
                Ok(vm.drive(Drive::new(&image, Bus::Virtio)).uefi())
            }
            (Transport::Network, _) => Ok(vm),
            (Transport::SetupMode, _) => {
                let image = self.disk.as_deref().context("a disk with signed files is not named")?;
                Ok(vm.drive(Drive::writable(image, Bus::Virtio).boot_index(0)).setup_mode())
            }
            (Transport::Bios, _) => {
                let image = self.disk.as_deref().context("a disk that was installed to is not named")?;
                Ok(vm.drive(Drive::writable(image, Bus::Sata).boot_index(0)))
            }
            (Transport::Slot | Transport::Firmware, _) => {
                let mut drive = match (&self.disk, &spoiled) {
                    (Some(image), _) => Drive::writable(image, Bus::Virtio),
                    (None, Some(root)) => Drive::new(&root.disk(dir)?, Bus::Virtio),
                    (None, None) => Drive::new(&build().test.disk, Bus::Virtio),
                };
                drive.bad_byte = self.bad_byte;
                if self.transport == Transport::Firmware {
                    return Ok(vm.drive(drive.boot_index(0)).uefi());
                }
                Ok(direct(vm.drive(drive), &part(&|root| root.initramfs(dir, false))?))
            }
        }
    }
}

impl TestNode {
    /// Describes a node; the name is the directory of its logs.
    pub fn builder(name: &str) -> NodeBuilder {
        NodeBuilder {
            name: name.to_owned(),
            transport: Transport::Initramfs,
            volume: Volume::Good,
            additions: String::new(),
            documents: String::new(),
            command_line: String::new(),
            installs: false,
            source: None,
            credentials: None,
            spoiler: None,
            disk: None,
            bad_byte: None,
            changers: Vec::new(),
        }
    }

    /// The test image from the initramfs, up to its API.
    pub fn boot(name: &str) -> Result<Self> {
        Self::builder(name).boot()
    }

    /// The machine.
    pub fn vm(&self) -> &Vm {
        &self.vm
    }

    /// billetctl with an admin's certificate.
    pub fn admin(&self) -> &Billetctl {
        &self.admin
    }

    /// The fault injector; waits until it answers.
    pub fn agent(&self) -> Result<Agent> {
        let agent = Agent::new(self.vm.port(agent::PORT)?);
        agent.wait(BOOT_LIMIT).with_context(|| self.where_to_look())?;
        Ok(agent)
    }

    /// The node's PKI.
    pub fn credentials(&self) -> &Credentials {
        &self.credentials
    }

    /// A directory that is gone with the node.
    pub fn files(&self) -> &Path {
        self.files.path()
    }

    /// billetctl with the talosconfig that `identity` makes.
    pub fn client(&self, name: &str, identity: Option<&api::pki::Identity>) -> Result<Billetctl> {
        let dir = self.files.path().join(name);
        std::fs::create_dir_all(&dir).with_context(|| format!("create {}", dir.display()))?;
        let path = dir.join("talosconfig");
        self.credentials.talosconfig(&path, self.vm.port(API_PORT)?, identity)?;
        Ok(Billetctl::new(&path))
    }

    /// Waits until the node asks for a config.
    pub fn wait_maintenance(&self) -> Result<()> {
        self.vm.expect("upload a configuration with", BOOT_LIMIT).map(drop)
    }

    /// Waits until the node says that it has a config which it cannot open, and takes none.
    pub fn wait_locked(&self) -> Result<()> {
        self.vm.expect("this machine is locked and takes no configuration", BOOT_LIMIT)?;
        // The last line of what it says: apid serves.
        self.vm.expect("billet.experimental.wipe=system", BOOT_LIMIT).map(drop)
    }

    /// Gives a config to a node in maintenance mode; what the client was told.
    pub fn apply_in_maintenance(&self, config: &str) -> Result<Output> {
        let file = self.files.path().join("applied.yaml");
        std::fs::write(&file, config).with_context(|| format!("write {}", file.display()))?;
        let (file, address) = (file.display().to_string(), format!("127.0.0.1:{}", self.vm.port(API_PORT)?));
        self.admin.run(&["apply-config", "--insecure", "--nodes", &address, "--file", &file])
    }

    /// Waits for the next time machined says that its API listens, and until it answers.
    pub fn wait_api(&self, on_reference: Duration) -> Result<()> {
        self.vm.expect(READY_LINE, on_reference)?;
        self.answers(on_reference)
    }

    /// Waits until the API answers a call.
    pub fn answers(&self, on_reference: Duration) -> Result<()> {
        let limit = deadline(on_reference);
        let end = Instant::now() + limit;
        loop {
            match self.admin.ok(&["version"]) {
                Ok(_) => return Ok(()),
                Err(error) if Instant::now() > end || self.vm.over().is_some() => {
                    let what = format!("the API did not answer within {limit:?}; {}", self.where_to_look());
                    return Err(error).context(what);
                }
                Err(_) => std::thread::sleep(POLL_INTERVAL),
            }
        }
    }

    /// Runs a command of the client until it prints these words.
    pub fn prints(&self, words: &[&str], wanted: &[&str], on_reference: Duration) -> Result<()> {
        let limit = deadline(on_reference);
        let end = Instant::now() + limit;
        loop {
            let said = self.admin.ok(words).unwrap_or_else(|error| format!("{error:#}"));
            if wanted.iter().all(|word| said.contains(word)) {
                return Ok(());
            }
            ensure!(
                Instant::now() < end,
                "{words:?}: no {wanted:?} within {limit:?} in\n{said}\n{}",
                self.where_to_look()
            );
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// Waits until the boot sequence ends: every service of the node runs. The API answers before.
    pub fn wait_services(&self) -> Result<()> {
        self.vm.wait_for("billet: boot sequence: done", BOOT_LIMIT)
    }

    /// Waits for a console line of this boot.
    pub fn expect(&self, needle: &str) -> Result<String> {
        self.vm.expect(needle, BOOT_LIMIT)
    }

    fn where_to_look(&self) -> String {
        format!("{}: the log is {}", self.vm.name(), self.vm.console().path().display())
    }
}
