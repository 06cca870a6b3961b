//! Systems that openssl's keys and sbsign's signatures make, on a node whose firmware the test writes.

use std::fs;
use std::process::Command;
use std::sync::Arc;

use installer::system::BootParts;
use ondisk::manifest::{FORMAT, RootManifest};
use ondisk::pe::Image;

use super::*;

const STUB: &[u8] = include_bytes!("../../../crates/ondisk/testdata/stub.efi");
/// EFI_CERT_X509_GUID as it lies in memory.
const X509: [u8; 16] =
    [0xa1, 0x59, 0xc0, 0xa5, 0xe4, 0x94, 0xa7, 0x4a, 0x87, 0xb5, 0xab, 0x15, 0x5c, 0x2b, 0xf0, 0x72];

fn run(directory: &Path, program: &str, words: &str) {
    let ran = Command::new(program).current_dir(directory).args(words.split(' ')).output();
    let ran = ran.unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(ran.status.success(), "{program} {words}: {}", String::from_utf8_lossy(&ran.stderr));
}

fn key(directory: &Path, name: &str) {
    let words = format!(
        "req -new -x509 -newkey rsa:2048 -nodes -subj /CN=owner -days 1 -keyout {name}.key -out {name}.pem"
    );
    run(directory, "openssl", &words);
    run(directory, "openssl", &format!("x509 -in {name}.pem -outform der -out {name}.der"));
}

fn signed(directory: &Path, name: &str, file: &[u8]) -> Vec<u8> {
    fs::write(directory.join("plain.efi"), file).unwrap();
    run(directory, "sbsign", &format!("--key {name}.key --cert {name}.pem --output signed.efi plain.efi"));
    fs::read(directory.join("signed.efi")).unwrap()
}

fn system() -> System {
    let mut kernel = vec![0; 6000];
    kernel[0x202..0x206].copy_from_slice(b"HdrS");
    kernel[0x20e] = 0x10;
    kernel[0x210..0x216].copy_from_slice(b"6.12.1");
    let boot = BootParts {
        kernel,
        stub: STUB.to_vec(),
        loader: STUB.to_vec(),
        init: b"init".to_vec(),
        command_line: "console=ttyS0 gpt".into(),
        boot_entry: "ID=billet\n".into(),
        ..BootParts::default()
    };
    System { manifest: RootManifest { format: FORMAT, version: "0.1.0".into(), layers: Vec::new() }, boot }
}

/// A system whose maker signed it with this key.
fn signed_system(directory: &Path, name: &str) -> System {
    let mut system = system();
    system.boot.signed_uki = signed(directory, name, &system.uki(&[]).unwrap());
    system.boot.loader = signed(directory, name, &system.boot.loader);
    system
}

fn write_variable(root: &Path, name: &str, vendor: &str, value: &[u8]) {
    let directory = root.join(VARIABLES);
    fs::create_dir_all(&directory).unwrap();
    fs::write(directory.join(format!("{name}-{vendor}")), efi::variable_file(6, value)).unwrap();
}

/// Firmware that checks, and knows this certificate.
fn turn_on(root: &Path, certificate: &[u8]) {
    write_variable(root, "SecureBoot", efi::GLOBAL, &[1]);
    let entry_bytes = u32::try_from(16 + certificate.len()).unwrap();
    let lengths = [28 + entry_bytes, 0, entry_bytes].map(u32::to_le_bytes).concat();
    write_variable(root, "db", efi::SECURITY, &[&X509[..], &lengths, &[7; 16], certificate].concat());
}

/// A node, a directory with the keys `ours` and `other`, and the place of its files.
fn with_keys() -> (Arc<Runtime>, tempfile::TempDir, tempfile::TempDir) {
    let (root, keys) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    key(keys.path(), "ours");
    key(keys.path(), "other");
    (Runtime::detached(root.path().to_owned()), keys, root)
}

#[tokio::test]
async fn without_secure_boot_the_uki_is_put_together_here() {
    let (runtime, keys, root) = with_keys();
    let system = signed_system(keys.path(), "ours");
    for off in [None, Some(&[0][..])] {
        off.into_iter().for_each(|value| write_variable(root.path(), "SecureBoot", efi::GLOBAL, value));
        assert!(!is_on(root.path()));
        let own = ["billet.generation=2".to_owned()];
        let uki = uki(&runtime, "the image", &system, &["quiet".to_owned()], &own).unwrap();
        let image = Image::parse(&uki).unwrap();
        assert_eq!(image.section(".cmdline"), Some(&b"console=ttyS0 gpt quiet billet.generation=2"[..]));
        assert!(!image.is_signed());
    }
}

#[tokio::test]
async fn with_secure_boot_the_signed_uki_is_written_as_it_is() {
    let (runtime, keys, root) = with_keys();
    turn_on(root.path(), &fs::read(keys.path().join("ours.der")).unwrap());
    let system = signed_system(keys.path(), "ours");
    let own = ["billet.generation=2".to_owned()];
    assert!(uki(&runtime, "the image", &system, &[], &own).unwrap() == system.boot.signed_uki);
}

#[tokio::test]
async fn what_would_not_start_is_refused_with_the_command() {
    let (runtime, keys, root) = with_keys();
    turn_on(root.path(), &fs::read(keys.path().join("ours.der")).unwrap());
    let good = signed_system(keys.path(), "ours");
    let refused = |change: &dyn Fn(&mut System), wanted: &str| {
        let mut system = good.clone();
        change(&mut system);
        let error = uki(&runtime, "r.example/i:1", &system, &[], &[]).unwrap_err();
        assert!(
            error.starts_with("this machine starts with Secure Boot and would not start r.example/i:1"),
            "{error}"
        );
        assert!(error.contains(wanted) && error.contains(SIGN_COMMAND), "{error}");
    };
    refused(&|system| system.boot.signed_uki.clear(), "it has no signed UKI");
    refused(&|system| system.boot.kernel.push(1), "is of other parts than it has now");
    refused(&|system| system.boot.loader = STUB.to_vec(), "its boot loader is not signed");
    let others = signed(keys.path(), "other", &good.uki(&[]).unwrap());
    refused(&|system| system.boot.signed_uki.clone_from(&others), "its UKI is signed with a key that is not");
}

#[tokio::test]
async fn arguments_of_the_config_are_refused_where_the_line_is_signed() {
    let (runtime, keys, root) = with_keys();
    let system = signed_system(keys.path(), "ours");
    let arguments = ["quiet".to_owned(), "panic=0".to_owned()];
    assert_eq!(check_arguments(root.path(), &arguments), Ok(()));
    turn_on(root.path(), &fs::read(keys.path().join("ours.der")).unwrap());
    let error = uki(&runtime, "the image", &system, &arguments, &[]).unwrap_err();
    assert!(
        error.starts_with(
            "machine.install.extraKernelArgs has quiet panic=0, and with Secure Boot the command line"
        ) && error.contains("--extra-kernel-arg"),
        "{error}"
    );
    assert_eq!(check_arguments(root.path(), &arguments), Err(error));
    assert_eq!(check_arguments(root.path(), &[]), Ok(()));
}

#[tokio::test]
async fn only_what_the_firmware_would_start_is_approved() {
    let (_node, keys, root) = with_keys();
    let uki = system().uki(&[]).unwrap();
    let [ours, others] = ["ours", "other"].map(|name| signed(keys.path(), name, &uki));
    assert_eq!(check_approved(root.path(), &uki), Ok(()), "without Secure Boot nothing is asked");
    write_variable(root.path(), "SecureBoot", efi::GLOBAL, &[1]);
    let error = check_approved(root.path(), &ours).unwrap_err();
    assert!(error.contains("does not tell which keys it trusts (db)"), "{error}");
    turn_on(root.path(), &fs::read(keys.path().join("ours.der")).unwrap());
    assert_eq!(check_approved(root.path(), &ours), Ok(()));
    let mut broken = ours.clone();
    let end = broken.len() - 20;
    broken[end] ^= 1;
    for (file, why) in [
        (&uki, "its UKI is not signed"),
        (&others, "key that is not in this machine's db"),
        (&broken, "does not verify"),
    ] {
        let error = check_approved(root.path(), file).unwrap_err();
        assert!(
            error.contains("the TPM keys of the volumes are not given") && error.contains(why),
            "{error}"
        );
    }
}
