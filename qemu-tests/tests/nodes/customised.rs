//! docs/users/customising.md from end to end: a medium that brings its own config installs a blank machine by itself, the
//! machine has what the profile says, and takes an image with one layer more.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use api::pki::{Authority, CA_LIFETIME, Lifetime};
use qemu_tests::artifacts::build;
use qemu_tests::credentials::Credentials;
use qemu_tests::node::{BOOT_LIMIT, Transport};
use qemu_tests::{Bus, Drive, TestNode};

use crate::images::flashed;
use crate::install::{INSTALL_LIMIT, installing, with_blank};
use crate::upgrade::{expect_kept, upgrade};

/// Every kind of change that needs no kernel and no extension.
const PROFILE: &str = "remove = '/usr/share/billet/sbom-kernel.spdx.json'\nkernel-arguments = ['billet.custom=profile']\n\
    certificates = ['authority.pem']\nfirmware = ['firmware']\nconfig = 'machine.yaml'\n\n[[add]]\ndirectory = 'overlay'\n\n\
    [[add]]\ntar = 'tools.tar'\nto = '/usr/local'\n";

/// Runs billetctl, which must succeed.
fn billetctl(words: &[&str]) {
    let output = Command::new(&build().billetctl).args(words).output().unwrap();
    assert!(
        output.status.success(),
        "billetctl {}: {}",
        words.join(" "),
        String::from_utf8_lossy(&output.stderr)
    );
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn write(directory: &Path, name: &str, content: &str) -> PathBuf {
    let path = directory.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, content).unwrap();
    path
}

/// The profile's directory; returns the profile and a line of the certificate that tells it from others.
fn profile(directory: &Path, config: &str) -> (PathBuf, String) {
    let authority = Authority::generate("customised", Lifetime::from_now(CA_LIFETIME)).unwrap();
    let line = authority.certificate().lines().nth(1).unwrap().to_owned();
    write(directory, "authority.pem", authority.certificate());
    write(directory, "machine.yaml", config);
    write(directory, "firmware/card.bin", "firmware of a card");
    write(directory, "overlay/usr/share/site/words", "of a directory");
    let tools = write(directory, "tools/share/tool", "of a tar file");
    let (of, tar) = (tools.ancestors().nth(2).unwrap(), directory.join("tools.tar"));
    let packed = Command::new("tar").args(["-C", text(of), "-cf", text(&tar), "share"]).status().unwrap();
    assert!(packed.success());
    (write(directory, "profile.toml", PROFILE), line)
}

/// Long form: an ISO on a stick, whose config names the disk; nobody touches the machine.
#[test]
#[ignore = "long run"]
fn an_iso_with_its_config_installs_and_an_added_layer_upgrades() {
    let directory = tempfile::tempdir().unwrap();
    let (inputs, out) = (directory.path().join("inputs"), directory.path().join("out"));
    let credentials = Credentials::generate().unwrap();
    let selector = ["diskSelector:", "  model: QEMU HARDDISK", "  size: '>= 3GiB'"];
    let config = installing(&credentials.machine_config().unwrap(), &selector);
    let (profile, certificate) = profile(&inputs, &config);
    let image = ["image", "build", "--kind", "iso,installer", "--from", text(&build().test.installer)];
    billetctl(&[&image[..], &["--profile", text(&profile), "--output", text(&out)]].concat());

    let stick = flashed(&out.join("metal-amd64.iso"), 512 << 20);
    let node = TestNode::builder("customised-iso")
        .transport(Transport::Network)
        .no_config()
        .credentials(credentials)
        .machine(move |vm, dir| {
            // No order: a blank disk is passed by, and what is installed has an entry of the firmware's.
            Ok(with_blank(vm.drive(Drive::new(&stick, Bus::Usb)).uefi(), dir))
        })
        .start()
        .unwrap();
    let own = "machine config: taken from the image (/usr/local/etc/billet/config.yaml)";
    for line in [own, "install plan: holds: nothing", "installed Billet ", "(ROOT-A)"] {
        node.vm().expect(line, INSTALL_LIMIT).unwrap();
    }
    // Of the two only the disk has STATE.
    node.vm().expect("machine config: taken from STATE", BOOT_LIMIT).unwrap();
    node.wait_api(BOOT_LIMIT).unwrap();
    node.expect("billet: boot sequence: done").unwrap();
    let read = |path: &str| node.admin().ok(&["read", path]).unwrap();
    assert_eq!(read("/usr/share/site/words"), "of a directory");
    assert_eq!(read("/usr/local/share/tool"), "of a tar file");
    assert_eq!(read("/usr/lib/firmware/card.bin"), "firmware of a card");
    assert!(read("/etc/ssl/certs/ca-certificates.crt").contains(&certificate));
    assert!(read("/proc/cmdline").contains("billet.custom=profile"));
    node.admin().refused(&["read", "/usr/share/billet/sbom-kernel.spdx.json"]).unwrap();

    let more = write(&inputs, "more/usr/share/site/more", "of one layer more");
    let (of, layered) = (more.ancestors().nth(4).unwrap(), out.join("layered.tar"));
    let installer = out.join("installer-amd64.tar");
    billetctl(&["image", "add-layer", text(&installer), "--add", text(of), "--output", text(&layered)]);
    upgrade(&node, text(&layered), &[]);
    expect_kept(&node, &build().version, "billet-000002.efi");
    let read = |path: &str| node.admin().ok(&["read", path]).unwrap();
    assert_eq!(read("/usr/share/site/more"), "of one layer more");
    assert_eq!(read("/usr/share/site/words"), "of a directory");
}
