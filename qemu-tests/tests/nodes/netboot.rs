//! docs/users/netboot.md: machines without any system start from `billetctl netboot serve`.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use netroot::peer::Plan;
use qemu_tests::artifacts::build;
use qemu_tests::credentials::{Credentials, HOSTNAME};
use qemu_tests::emulated::NO_TIMER_CHECK;
use qemu_tests::lan::{FIRST, INTERFACE, Lan, MAC};
use qemu_tests::node::BOOT_LIMIT;
use qemu_tests::process::{Owned, POLL_INTERVAL};
use qemu_tests::web::{HOST, Web};
use qemu_tests::{TestNode, Transport, VmBuilder, deadline, paths};

use crate::neighbour::Neighbour;

/// An emulated card fetches a hundred megabytes.
pub(crate) const FETCH_LIMIT: Duration = Duration::from_secs(120);

/// Layers and boot files written and read back, by an emulated processor, and the disk's first start.
const INSTALL_LIMIT: Duration = Duration::from_secs(180);

/// Everything that an installed disk has, and a little of EPHEMERAL; nearly all of it is a hole.
const DISK_BYTES: u64 = 4 << 30;

/// The directory that `image build --kind pxe` makes.
pub(crate) const BUNDLE: &str = "metal-amd64-pxe";

/// What may be on the wire for a root: headers, acknowledgements and DHCP take a few hundredths.
pub(crate) const MOST_MOVED: f64 = 1.1;

/// OVMF tries PXE before HTTP, and is told by these words not to.
const NO_PXE: [&str; 4] = [
    "-fw_cfg",
    "name=opt/org.tianocore/IPv4PXESupport,string=n",
    "-fw_cfg",
    "name=opt/org.tianocore/IPv6PXESupport,string=n",
];

/// What another DHCP server gives, and who that is.
const ADDRESS_OF_THE_OTHER: &str =
    "address 10.77.0.100/24, gateway 10.77.0.1, from the DHCP server 10.77.0.1";

/// A bundle of the built image in this directory.
pub(crate) fn make_bundle(directory: &Path) {
    let mut make = Command::new(&build().billetctl);
    make.args(["image", "build", "--kind", "pxe", "--output"]).arg(directory);
    let made = make.arg("--from").arg(&build().test.installer).output().unwrap();
    assert!(made.status.success(), "image build: {}", String::from_utf8_lossy(&made.stderr));
    // Emulated timers miss the kernel's check of them now and then.
    let path = directory.join(BUNDLE).join("boot.ipxe");
    let script = std::fs::read_to_string(&path).unwrap();
    let words = format!("initrd=initramfs {NO_TIMER_CHECK} ");
    std::fs::write(&path, script.replace("initrd=initramfs ", &words)).unwrap();
}

/// A bundle of the built image, and a directory of configs.
pub(crate) struct Rig {
    directory: tempfile::TempDir,
    pub(crate) lan: Lan,
    server: Option<Owned>,
    pub(crate) neighbour: Option<Neighbour>,
}

impl Rig {
    pub(crate) fn new(address: &str) -> Self {
        Self::on(Lan::new(address).unwrap())
    }

    /// With somebody else on the same network.
    pub(crate) fn beside(address: &str, plan: impl FnOnce(&Self) -> Plan) -> Self {
        let (lan, seat) = Lan::with_seat(address).unwrap();
        let mut rig = Self::on(lan);
        rig.neighbour = Some(Neighbour::start(&plan(&rig), seat));
        rig
    }

    fn on(lan: Lan) -> Self {
        let directory = paths::temporary_dir().unwrap();
        std::fs::create_dir(directory.path().join("configs")).unwrap();
        make_bundle(directory.path());
        Self { directory, lan, server: None, neighbour: None }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Serves; what it prints is in a file.
    pub(crate) fn serve(&mut self, more: &[&str]) {
        let (bundle, configs) = (self.path(BUNDLE), self.path("configs"));
        let log = File::create(self.path("log")).unwrap();
        let errors = log.try_clone().unwrap();
        let server = self.lan.spawn(build().billetctl.to_str().unwrap(), |command| {
            command.args(["netboot", "serve", "--interface", INTERFACE]).arg("--configs").arg(configs);
            command.args(more).arg(bundle).stdout(log).stderr(errors);
        });
        self.server = Some(server.unwrap());
        self.wait_for("serving on tap0", BOOT_LIMIT);
    }

    /// The server goes away without a word.
    pub(crate) fn stop(&mut self) {
        self.server = None;
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.path("log")).unwrap()
    }

    pub(crate) fn wait_for(&self, line: &str, on_reference: Duration) {
        let end = Instant::now() + deadline(on_reference);
        while !self.log().contains(line) {
            assert!(Instant::now() < end, "the server did not print {line:?}:\n{}", self.log());
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    fn keep_config(&self, name: &str, text: &str) {
        std::fs::write(self.path("configs").join(name), text).unwrap();
    }

    /// A machine without any disk.
    fn machine(
        &self,
        name: &str,
        card: [String; 4],
        firmware: fn(VmBuilder) -> VmBuilder,
        credentials: Option<Credentials>,
    ) -> TestNode {
        self.machine_with(name, &card, firmware, credentials)
    }

    /// A machine with these words of QEMU's more.
    fn machine_with(
        &self,
        name: &str,
        words: &[String],
        firmware: fn(VmBuilder) -> VmBuilder,
        credentials: Option<Credentials>,
    ) -> TestNode {
        let words = words.to_vec();
        let mut node = TestNode::builder(name).transport(Transport::Network).no_config();
        if let Some(credentials) = credentials {
            node = node.credentials(credentials);
        }
        let words = move |vm: VmBuilder| vm.extra(&words.iter().map(String::as_str).collect::<Vec<_>>());
        node.machine(move |vm, _| Ok(firmware(words(vm)))).start().unwrap()
    }
}

#[test]
fn a_machine_without_a_disk_starts_and_takes_its_own_config() {
    let mut rig = Rig::new("10.77.0.1/24");
    rig.serve(&["--dhcp-range", "10.77.0.100-10.77.0.110/24"]);
    let credentials = Credentials::generate().unwrap();
    let own = format!("{}.yaml", MAC.replace(':', "-"));
    rig.keep_config("default.yaml", "not this one");
    rig.keep_config(&own, &credentials.machine_config().unwrap());
    let node = rig.machine("netboot-bios", rig.lan.card(), |vm| vm, Some(credentials));
    rig.wait_for("/bundle/initramfs by HTTP, ", FETCH_LIMIT);
    // The server has written the initramfs then, some megabytes of it into the kernel's buffers: the wire has it all once
    // the machine runs its kernel.
    node.vm().expect("Linux version", FETCH_LIMIT).unwrap();
    let before = rig.lan.sent_bytes().unwrap();
    node.vm().expect("root from http://10.77.0.1:8080/bundle/layers/", FETCH_LIMIT).unwrap();
    let moved = rig.lan.sent_bytes().unwrap() - before;
    let files = build().test.layers.iter().map(|layer| std::fs::metadata(&layer.file).unwrap().len());
    let root: u64 = files.sum();
    println!("{moved} bytes moved for a root of {root}: {:.4}", moved as f64 / root as f64);
    assert!(moved as f64 <= root as f64 * MOST_MOVED, "{moved} bytes for a root of {root}");
    node.wait_api(BOOT_LIMIT).unwrap();
    assert!(node.admin().ok(&["get", "hostname"]).unwrap().contains(HOSTNAME));
    for line in [
        format!("{MAC} (iPXE): loads http://10.77.0.1:8080/boot.ipxe?mac="),
        format!("{MAC}: has the address 10.77.0.1"),
        format!("{MAC}, 10.77.0.100: starts boot.ipxe with the config {own}"),
        format!("{MAC}, 10.77.0.100: /bundle/layers/"),
        format!("{MAC}, 10.77.0.100: took the config {own}"),
    ] {
        rig.wait_for(&line, BOOT_LIMIT);
    }
    // Once each: no connection broke.
    assert_eq!(rig.log().matches(".layer by HTTP, ").count(), build().test.layers.len(), "{}", rig.log());
}

/// Without a machine: interfaces at which no machine would find the server. The kernel's route for a broadcast would lead to
/// the address of another interface.
#[test]
fn interfaces_that_cannot_serve_are_refused() {
    let rig = Rig::new("10.77.0.1/24");
    let run = |program: &str, words: &[&str]| {
        let log = File::create(rig.path("said")).unwrap();
        let spawned = rig.lan.spawn(program, |command| {
            command.args(words).stderr(log);
        });
        let ended = spawned.unwrap().wait(deadline(BOOT_LIMIT)).unwrap();
        (ended.success(), std::fs::read_to_string(rig.path("said")).unwrap())
    };
    let added = run("ip", &["tuntap", "add", "dev", "tap1", "mode", "tap"]);
    assert_eq!(added, (true, String::new()));
    let bundle = rig.path(BUNDLE);
    for (interface, said) in [
        ("nope", "there is no interface nope: this machine has lo, tap0, tap1"),
        ("lo", "the interface lo has only 127.0.0.1, which leads nowhere else; name the one to the machines"),
        (
            "tap1",
            "the interface tap1 has no IPv4 address; give it one first: ip address add 192.168.7.1/24 dev tap1",
        ),
    ] {
        let words = ["netboot", "serve", "--interface", interface, bundle.to_str().unwrap()];
        let ended = run(build().billetctl.to_str().unwrap(), &words);
        assert_eq!(ended, (false, format!("error: {said}\n")));
    }
}

/// A network that has its own DHCP server, which knows of no boot files: addresses are that one's, all else is ours, up to
/// the root.
fn beside_another_dhcp_server(
    name: &str,
    card: fn(&Lan) -> [String; 4],
    firmware: fn(VmBuilder) -> VmBuilder,
    loads: &str,
) {
    let plan = Plan { no_next_server: true, ..Plan::with([]) };
    let mut rig = Rig::beside("10.77.0.77/24", |_| plan);
    rig.keep_config("default.yaml", "not this one");
    rig.serve(&[]);
    rig.wait_for("default.yaml: no node takes it: line 1", BOOT_LIMIT);
    let node = rig.machine(name, card(&rig.lan), firmware, None);
    rig.wait_for(&format!("{MAC} {loads}"), FETCH_LIMIT);
    node.vm().expect(ADDRESS_OF_THE_OTHER, FETCH_LIMIT).unwrap();
    node.vm().expect("root from http://10.77.0.77:8080/bundle/layers/", FETCH_LIMIT).unwrap();
    rig.wait_for(
        &format!("{MAC}, 10.77.0.100: took the config default.yaml, which no node takes: "),
        BOOT_LIMIT,
    );
    // init hears who offers it an address: from here nobody did.
    let console = node.vm().console().text();
    assert!(!console.contains("another DHCP server is on this network"), "{console}");
}

#[test]
#[ignore = "long run"]
fn beside_another_dhcp_server_ipxe_starts_from_here() {
    let loads = "(iPXE): loads http://10.77.0.77:8080/boot.ipxe";
    beside_another_dhcp_server("netboot-beside-bios", Lan::card, |vm| vm, loads);
}

#[test]
#[ignore = "long run"]
fn beside_another_dhcp_server_uefi_firmware_starts_from_here() {
    let loads = "(UEFI x86-64): loads 52-54-00-77-00-01/billet.efi";
    beside_another_dhcp_server("netboot-beside-uefi", Lan::bare_card, VmBuilder::uefi, loads);
}

/// A machine whose firmware knows no iPXE: it loads a UKI that is made for it, and the rest is as with iPXE.
fn firmware_loads_the_uki(
    name: &str,
    firmware: fn(VmBuilder) -> VmBuilder,
    kind: &str,
    place: &str,
    by: &str,
) {
    let mut rig = Rig::new("10.77.0.1/24");
    rig.serve(&["--dhcp-range", "10.77.0.100-10.77.0.110/24"]);
    rig.wait_for("firmware (UEFI x86-64) loads billet.efi, made for each machine", BOOT_LIMIT);
    let credentials = Credentials::generate().unwrap();
    let mac = MAC.replace(':', "-");
    rig.keep_config(&format!("{mac}.yaml"), &credentials.machine_config().unwrap());
    let node = rig.machine(name, rig.lan.bare_card(), firmware, Some(credentials));
    rig.wait_for(&format!("{MAC} ({kind}): loads {place}{mac}/billet.efi"), BOOT_LIMIT);
    rig.wait_for(&format!("{mac}/billet.efi by {by}, "), FETCH_LIMIT);
    rig.wait_for(&format!(": starts billet.efi with the config {mac}.yaml"), FETCH_LIMIT);
    node.vm().expect("root from http://10.77.0.1:8080/bundle/layers/", FETCH_LIMIT).unwrap();
    node.wait_api(BOOT_LIMIT).unwrap();
    assert!(node.admin().ok(&["get", "hostname"]).unwrap().contains(HOSTNAME));
    rig.wait_for(&format!("took the config {mac}.yaml"), BOOT_LIMIT);
}

#[test]
#[ignore = "long run"]
fn uefi_firmware_loads_the_uki_by_tftp() {
    firmware_loads_the_uki("netboot-pxe", VmBuilder::uefi, "UEFI x86-64", "", "TFTP");
}

#[test]
#[ignore = "long run"]
fn uefi_firmware_loads_the_uki_by_http() {
    let firmware = |vm: VmBuilder| vm.uefi().extra(&NO_PXE);
    let place = "http://10.77.0.1:8080/bundle/";
    firmware_loads_the_uki("netboot-http", firmware, "UEFI x86-64 by HTTP", place, "HTTP");
}

/// A blank disk, before which the firmware finds nothing: the machine starts from the network, takes its config, installs
/// itself, and starts from the disk from then on.
fn a_blank_machine_installs_itself(
    name: &str,
    card: fn(&Lan) -> [String; 4],
    firmware: fn(VmBuilder) -> VmBuilder,
    root: &str,
) {
    let mut rig = Rig::new("10.77.0.1/24");
    rig.serve(&["--dhcp-range", "10.77.0.100-10.77.0.110/24"]);
    let disk = rig.path("disk.img");
    File::create(&disk).unwrap().set_len(DISK_BYTES).unwrap();
    let credentials = Credentials::generate().unwrap();
    let config = credentials.machine_config().unwrap();
    assert!(config.contains("disk: /dev/sda"), "{config}");
    let own = format!("{}.yaml", MAC.replace(':', "-"));
    rig.keep_config(&own, &config.replace("disk: /dev/sda", "disk: /dev/vda"));
    let drive = format!("if=none,id=blank,format=raw,file={}", disk.display());
    let device = format!("virtio-blk-pci,drive=blank,{FIRST}");
    let words = ["-drive".into(), drive, "-device".into(), device];
    let words = [&words[..], &card(&rig.lan)[..]].concat();
    let node = rig.machine_with(name, &words, firmware, Some(credentials));
    node.vm().expect("root from http://10.77.0.1:8080/bundle/layers/", FETCH_LIMIT).unwrap();
    for line in [
        "install plan: disk /dev/vda: ",
        "installed Billet ",
        "the machine config is kept on STATE of /dev/vda",
        &format!("root from {root} (ROOT-A)"),
        "machine config: taken from STATE",
    ] {
        node.vm().expect(line, INSTALL_LIMIT).unwrap();
    }
    node.wait_api(BOOT_LIMIT).unwrap();
    assert!(node.admin().ok(&["get", "hostname"]).unwrap().contains(HOSTNAME));
    // The disk was started and not the network once more.
    assert_eq!(rig.log().matches(&format!("took the config {own}")).count(), 1, "{}", rig.log());
}

#[test]
#[ignore = "long run"]
fn a_blank_machine_with_older_firmware_installs_itself() {
    a_blank_machine_installs_itself("netboot-install-bios", Lan::card, |vm| vm, "/dev/vda3");
}

#[test]
#[ignore = "long run"]
fn a_blank_machine_with_uefi_installs_itself() {
    a_blank_machine_installs_itself("netboot-install-uefi", Lan::bare_card, VmBuilder::uefi, "/dev/vda2");
}

/// How a machine on a network of its own sees the host; [`HOST`] is on the one that every machine has.
const HOST_OF_THE_CARD: &str = "10.0.3.2";

/// A bundle on somebody's web server, from which iPXE fetches by relative names, and the root from beside them. An iPXE that
/// knows `cwduri` finds the layers by it, an older one (QEMU's of 2019 for instance) is told where they are, as the manual
/// says.
#[test]
#[ignore = "long run"]
fn a_bundle_on_any_web_server() {
    let directory = paths::temporary_dir().unwrap();
    make_bundle(directory.path());
    let (bundle, web) = (directory.path().join(BUNDLE), Web::start().unwrap());
    let layers = build().test.layers.iter().map(|layer| layer.file.file_name().unwrap().to_str().unwrap());
    let layers: Vec<String> = layers.map(|name| format!("layers/{name}")).collect();
    let files = ["boot.ipxe", "vmlinuz", "initramfs"].map(str::to_owned);
    let files = [&files[..], &layers].concat();
    for name in &files {
        web.serve_file(&format!("/some/directory/{name}"), &bundle.join(name));
    }
    let address = web.address().replace(HOST, HOST_OF_THE_CARD);
    let start = format!(
        "#!ipxe\nisset ${{cwduri}} || set billet-root {address}/some/directory/layers\nchain some/directory/boot.ipxe\n"
    );
    web.serve("/start.ipxe", &start);
    let net = format!("user,id=card,net=10.0.3.0/24,host={HOST_OF_THE_CARD},bootfile={address}/start.ipxe");
    let card = format!("e1000,netdev=card,mac={MAC},bootindex=1");
    let node = TestNode::builder("netboot-web")
        .transport(Transport::Network)
        .no_config()
        .machine(move |vm, _| Ok(vm.extra(&["-netdev", &net, "-device", &card])))
        .start()
        .unwrap();
    node.vm().expect(&format!("root from {address}/some/directory/layers/"), FETCH_LIMIT).unwrap();
    let asked = files.iter().map(|name| format!("/some/directory/{name}"));
    assert_eq!(web.asked(), Vec::from_iter(["/start.ipxe".to_owned()].into_iter().chain(asked)));
    node.wait_maintenance().unwrap();
}
