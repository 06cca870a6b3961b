//! docs/users/encryption.md, recovery keys: the key server lost its own key. STATE is unlocked over the API, EPHEMERAL at
//! the console; the node goes on with its boot, and its slots are sealed by what the server has now.

use std::fs::File;
use std::io::{Read as _, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use kms::{Client, Endpoint, Trust};
use ondisk::luks2::{self, Id};
use qemu_tests::TestNode;
use qemu_tests::artifacts::build;
use qemu_tests::node::{API_PORT, BOOT_LIMIT};
use qemu_tests::settings::rounds;

use crate::encryption::{BOOT, HEADER_BYTES, MACHINE, on, opens, section, words_on};
use crate::key_server::KeyServer;
use crate::volumes::{BOOTED, Disk, GIB, shut_down};

/// Between two looks for a config, and the attempts to open that come before the next one.
const LOOK: Duration = Duration::from_secs(60);

/// A pair of age's: the secret half in the file, the public one is returned.
fn pair(file: &Path) -> String {
    assert!(Command::new("age-keygen").arg("-o").arg(file).stderr(Stdio::null()).status().unwrap().success());
    let public = Command::new("age-keygen").arg("-y").arg(file).output().unwrap().stdout;
    String::from_utf8(public).unwrap().trim().to_owned()
}

fn decrypted(identity: &Path, file: &str) -> String {
    let mut age = Command::new("age");
    age.arg("-d").arg("-i").arg(identity).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = age.spawn().unwrap();
    child.stdin.take().unwrap().write_all(file.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "age -d of {file}");
    String::from_utf8(output.stdout).unwrap()
}

/// `billetctl unlock`, with the key on its standard input.
fn unlock_state(node: &TestNode, address: &str, key: &str) -> String {
    let file = node.files().join("key");
    std::fs::write(&file, key).unwrap();
    let mut command = Command::new(&build().billetctl);
    command.args(["unlock", "STATE", "--insecure", "--nodes", address]);
    let output = command.stdin(File::open(&file).unwrap()).output().unwrap();
    let (stdout, stderr) =
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{stdout}{stderr}");
    stdout
}

/// What a server that was sealed to gives for a slot of an image, as the slot's passphrase.
fn unsealed(disk: &Disk, partition: &str, slot: u8, port: u16) -> String {
    let bytes = disk.bytes(disk.offset(partition).unwrap(), HEADER_BYTES);
    let header = luks2::read(&mut &bytes[..]).unwrap().header;
    let sealed = header.metadata.tokens[&Id(slot)].fields["UserData"]["sealedData"].as_str().unwrap();
    let sealed = base64(&["-d"], sealed.as_bytes());
    let endpoint = Endpoint::parse(&format!("grpc://127.0.0.1:{port}")).unwrap();
    let client = Client::new(endpoint, MACHINE, Trust::Authorities(String::new()));
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let key = runtime.block_on(client.unseal(&sealed)).unwrap();
    String::from_utf8(base64(&["-w0"], &bound(&key, partition))).unwrap()
}

/// The rule of docs/formats/luks2.md for a key that is bound to its volume, by openssl.
fn bound(key: &[u8], volume: &str) -> Vec<u8> {
    let hex: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
    let key = format!("hexkey:{hex}");
    let text = format!("billet: passphrase of a volume\0{volume}");
    let options = ["dgst", "-sha256", "-mac", "HMAC", "-macopt", &key, "-binary"];
    filtered("openssl", &options, text.as_bytes())
}

fn base64(options: &[&str], input: &[u8]) -> Vec<u8> {
    filtered("base64", options, input)
}

/// What a program makes of its input.
fn filtered(program: &str, options: &[&str], input: &[u8]) -> Vec<u8> {
    let mut command = Command::new(program);
    let mut child = command.args(options).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    let mut output = Vec::new();
    child.stdout.take().unwrap().read_to_end(&mut output).unwrap();
    assert!(child.wait().unwrap().success());
    output
}

#[test]
fn a_person_unlocks_what_the_server_lost() {
    let disk = Disk::new(4 * GIB);
    let identity = disk.dir.path().join("identity");
    let recovery = format!("{{recovery: {{recipients: [{}]}}, slot: 3}}", pair(&identity));
    let server = KeyServer::start(0);
    let port = server.port;
    let of_state = format!("{}, {recovery}", server.key(0));
    // Not locked to STATE, so that the server's word alone shows at the end what opens it.
    let unlocked = server.key(0).replace("slot: 0", "slot: 0, lockToState: false");
    let of_ephemeral = format!("{unlocked}, {recovery}");
    let section = section(&of_state, &of_ephemeral);
    let node = on(&disk, "recovery-first", MACHINE).machine_section(&section).start().unwrap();
    node.wait_api(BOOT).unwrap();
    node.vm()
        .wait_for("STATE: a new recovery key is in slot 3; keep it: billetctl disk recovery-key STATE", BOOT)
        .unwrap();
    node.vm().wait_for("EPHEMERAL: a new recovery key is in slot 3", BOOT).unwrap();
    node.vm().wait_for(BOOTED, BOOT).unwrap();
    let kept = node.admin().ok(&["disk", "recovery-key", "EPHEMERAL"]).unwrap();
    let key_of_ephemeral = decrypted(&identity, &kept);
    shut_down(&node);
    drop((node, server));

    // The server is there, and has another key than it had.
    let server = KeyServer::with_key(port, 0x11);
    let node = on(&disk, "recovery-lost", MACHINE).source("").no_config().start().unwrap();
    node.vm().wait_for("it was not sealed here for this node", BOOT).unwrap();
    node.wait_locked().unwrap();
    let address = format!("127.0.0.1:{}", node.vm().port(API_PORT).unwrap());
    let offered = ["disk", "recovery-key", "STATE", "--insecure", "--nodes", &address];
    let file = node.admin().ok(&offered).unwrap();
    let key_of_state = decrypted(&identity, &file);
    assert!(key_of_state != key_of_ephemeral);
    let told = unlock_state(&node, &address, &key_of_state);
    assert!(told.contains("STATE is unlocked by the recovery key in slot 3; new keys in slots: 0"), "{told}");
    assert!(told.ends_with("the node goes on with its boot\n"), "{told}");
    node.vm().wait_for("machine config: taken from STATE", BOOT).unwrap();

    // The other one at the console, where it is not shown.
    node.vm().wait_for("EPHEMERAL is locked. Its recovery key (it is not shown):", LOOK).unwrap();
    let mut console = UnixStream::connect(node.vm().files().join("serial")).unwrap();
    // Whoever is connected has to read, or the machine waits for that with all that it prints.
    let mut shown = console.try_clone().unwrap();
    std::thread::spawn(move || std::io::copy(&mut shown, &mut std::io::sink()));
    console.write_all(format!("{}\r", key_of_ephemeral.trim()).as_bytes()).unwrap();
    node.vm()
        .wait_for("EPHEMERAL was unlocked by the recovery key in slot 3; new in slots: 0", LOOK)
        .unwrap();
    node.vm().wait_for(BOOTED, BOOT).unwrap();
    node.answers(BOOT_LIMIT).unwrap();
    let status = node.admin().ok(&["get", "volumestatus", "-o", "yaml"]).unwrap();
    assert_eq!(status.matches("encryptionKey: recovery").count(), 2, "{status}");
    let log = node.admin().ok(&["dmesg"]).unwrap();
    shut_down(&node);
    let console_log = std::fs::read_to_string(node.vm().console().path()).unwrap();
    drop(node);

    // Neither key is on the disk, in a log, or on the console; the server opens both from now on.
    for key in [&key_of_state, &key_of_ephemeral] {
        let (key, plain) = (key.trim(), key.trim().replace('-', ""));
        assert_eq!(words_on(&disk, &[key, &plain]), "");
        assert!(!log.contains(key) && !console_log.contains(key));
    }
    for partition in ["STATE", "EPHEMERAL"] {
        let key = unsealed(&disk, partition, 0, port);
        assert!(opens(&disk, partition, 0, &key), "{partition}");
    }
    if rounds(0, 1) == 1 {
        let node = on(&disk, "recovery-again", MACHINE).source("").no_config().start().unwrap();
        node.vm().wait_for("STATE is encrypted, opened by the kms key in slot 0", BOOT).unwrap();
        node.vm().wait_for("EPHEMERAL is encrypted, opened by the kms key in slot 0", BOOT).unwrap();
        node.vm().wait_for(BOOTED, BOOT).unwrap();
        shut_down(&node);
    }
    drop(server);
}
