//! Signed UKIs as a node judges them, by what openssl and sbsign made.

use std::process::Command;

use super::signed::Message;
use super::tests::boot_parts;
use super::*;
use crate::certify::System as Made;
use crate::secure_boot::{Signer, sign};
use ondisk::pe::Image;

fn run(directory: &Path, program: &str, words: &str) {
    let ran = Command::new(program).current_dir(directory).args(words.split(' ')).output();
    let ran = ran.unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(ran.status.success(), "{program} {words}: {}", String::from_utf8_lossy(&ran.stderr));
}

/// A key `NAME.key` with a certificate `NAME.pem` and `NAME.der` of this subject.
fn key(directory: &Path, name: &str, subject: &str, more: &str) {
    let words = format!(
        "req -new -x509 -newkey rsa:2048 -nodes -subj /CN={subject} -days 1 -keyout {name}.key -out {name}.pem{more}"
    );
    run(directory, "openssl", &words);
    run(directory, "openssl", &format!("x509 -in {name}.pem -outform der -out {name}.der"));
}

fn signed(directory: &Path, name: &str, file: &[u8]) -> Vec<u8> {
    let [key, certificate] = ["key", "pem"].map(|end| directory.join(format!("{name}.{end}")));
    sign(file, &Signer::read(&key, &certificate).unwrap()).unwrap()
}

/// The value of `db` with these entries of one kind.
fn db(kind: [u8; 16], entries: &[&[u8]]) -> Vec<u8> {
    let list = |entry: &&[u8]| {
        let entry_bytes = u32::try_from(16 + entry.len()).unwrap();
        let lengths = [28 + entry_bytes, 0, entry_bytes].map(u32::to_le_bytes).concat();
        [&kind[..], &lengths, &[7; 16], entry].concat()
    };
    entries.iter().flat_map(list).collect()
}

const X509: [u8; 16] =
    [0xa1, 0x59, 0xc0, 0xa5, 0xe4, 0x94, 0xa7, 0x4a, 0x87, 0xb5, 0xab, 0x15, 0x5c, 0x2b, 0xf0, 0x72];
const SHA256: [u8; 16] =
    [0x26, 0x16, 0xc4, 0xc1, 0x4c, 0x50, 0x92, 0x40, 0xac, 0xa9, 0x41, 0xf9, 0x36, 0x93, 0x43, 0x28];

fn trusting(directory: &Path, name: &str) -> Trusted {
    Trusted::parse(&db(
        X509,
        &[b"of another vendor", &fs::read(directory.join(format!("{name}.der"))).unwrap()],
    ))
}

fn system() -> System {
    System { manifest: Made::new("0.1.0", 40_000).manifest, boot: boot_parts() }
}

fn distrust<T: std::fmt::Debug>(result: Result<T, Error>) -> Distrust {
    match result.unwrap_err() {
        Error::Distrust(distrust) => distrust,
        other => panic!("{other}"),
    }
}

#[test]
fn a_signed_uki_counts_as_long_as_it_is_of_the_parts() {
    let directory = tempfile::tempdir().unwrap();
    key(directory.path(), "ours", "ours", "");
    let mut system = system();
    assert_eq!(system.signed_uki().unwrap(), None);
    let uki = signed(directory.path(), "ours", &system.uki(&[]).unwrap());
    system.boot.signed_uki = uki.clone();
    assert_eq!(system.signed_uki().unwrap(), Some(uki.as_slice()));
    // What is not in a UKI may change.
    system.boot.authorities = b"PEM".to_vec();
    system.boot.network = b"netw".to_vec();
    assert!(system.signed_uki().is_ok());
    let changes: [fn(&mut System); 6] = [
        |system| system.boot.command_line.push_str(" quiet"),
        |system| system.boot.kernel.push(1),
        |system| system.boot.init.push(1),
        |system| system.boot.modules.push(1),
        |system| system.boot.config_key = Some([5; KEY_BYTES]),
        |system| system.manifest.version = "0.2.0".into(),
    ];
    for (number, change) in changes.iter().enumerate() {
        let mut other = system.clone();
        change(&mut other);
        assert_eq!(distrust(other.signed_uki()), Distrust::OtherParts, "change {number}");
    }
}

#[test]
fn files_are_trusted_by_their_key_or_digest() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    key(at, "ours", "owner", "");
    // Made with the very same words on another day.
    key(at, "other", "owner", "");
    let plain = system().uki(&[]).unwrap();
    let file = signed(at, "ours", &plain);
    trusting(at, "ours").check("UKI", &file).unwrap();
    assert_eq!(distrust(trusting(at, "other").check("UKI", &file)), Distrust::UnknownKey("UKI"));
    assert_eq!(distrust(Trusted::default().check("UKI", &file)), Distrust::UnknownKey("UKI"));
    assert_eq!(distrust(trusting(at, "ours").check("UKI", &plain)), Distrust::Unsigned("UKI"));
    let both = signed(at, "other", &file);
    trusting(at, "other").check("UKI", &both).unwrap();
    let mut altered = file.clone();
    let line = Image::parse(&file)
        .unwrap()
        .sections()
        .iter()
        .find(|one| one.name == ".cmdline")
        .unwrap()
        .file_offset;
    altered[usize::try_from(line).unwrap()] ^= 1;
    assert_eq!(distrust(trusting(at, "ours").check("UKI", &altered)), Distrust::Altered("UKI"));
    let digest = Image::parse(&plain).unwrap().digest().unwrap();
    Trusted::parse(&db(SHA256, &[&digest.0])).check("UKI", &plain).unwrap();
    // Others' signatures are read too.
    fs::write(at.join("plain.efi"), &plain).unwrap();
    run(at, "sbsign", "--key ours.key --cert ours.pem --output theirs.efi plain.efi");
    trusting(at, "ours").check("UKI", &fs::read(at.join("theirs.efi")).unwrap()).unwrap();
}

#[test]
fn a_certificate_of_a_known_authority_is_trusted() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    key(at, "authority", "authority", "");
    key(at, "leaf", "leaf", " -CA authority.pem -CAkey authority.key");
    let file = signed(at, "leaf", &system().uki(&[]).unwrap());
    trusting(at, "authority").check("UKI", &file).unwrap();
    trusting(at, "leaf").check("UKI", &file).unwrap();
    key(at, "stranger", "stranger", "");
    assert_eq!(distrust(trusting(at, "stranger").check("UKI", &file)), Distrust::UnknownKey("UKI"));
}

#[test]
fn broken_messages_are_nobodys() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    key(at, "ours", "ours", "");
    let plain = system().uki(&[]).unwrap();
    let file = signed(at, "ours", &plain);
    let message = Image::parse(&file).unwrap().signatures().unwrap()[0].to_vec();
    let trusted = trusting(at, "ours");
    for length in (0..message.len()).step_by(7) {
        let cut = Image::parse(&plain).unwrap().with_signature(&message[..length]).unwrap();
        assert!(trusted.check("UKI", &cut).is_err(), "{length}");
    }
    // Lengths that say more than there is.
    for at in 0..64.min(message.len()) {
        let mut broken = message.clone();
        broken[at] = 0xff;
        let file = Image::parse(&plain).unwrap().with_signature(&broken).unwrap();
        let _ = trusted.check("UKI", &file);
    }
}

/// What names the right certificate, but was not made by its key: firmware would not start it, and a TPM must not approve it.
#[test]
fn a_signature_that_does_not_verify_is_no_signature() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    key(at, "ours", "owner", "");
    let plain = system().uki(&[]).unwrap();
    let file = signed(at, "ours", &plain);
    let trusted = trusting(at, "ours");
    trusted.check("UKI", &file).unwrap();
    let message = Image::parse(&file).unwrap().signatures().unwrap()[0].to_vec();
    let digest = |file: &[u8]| Image::parse(file).unwrap().digest().unwrap().0;
    let place = |wanted: &[u8]| message.windows(wanted.len()).position(|window| window == wanted).unwrap();
    let check = |plain: &[u8], message: &[u8]| {
        trusted.check("UKI", &Image::parse(plain).unwrap().with_signature(message).unwrap())
    };
    // Of another file, whose digest somebody put in.
    let mut other = plain.clone();
    let last = other.len() - 1;
    other[last] ^= 1;
    let mut moved = message.clone();
    let start = place(&digest(&plain));
    moved[start..start + 32].copy_from_slice(&digest(&other));
    assert_eq!(distrust(check(&other, &moved)), Distrust::Forged("UKI"));
    // With the digest of the content put in as well.
    let content = Message::read(&message).unwrap().content.to_vec();
    let said = place(&ondisk::Digest::sha256(&[&content]).0);
    let changed = Message::read(&moved).unwrap().content.to_vec();
    moved[said..said + 32].copy_from_slice(&ondisk::Digest::sha256(&[&changed]).0);
    assert_eq!(distrust(check(&other, &moved)), Distrust::Forged("UKI"));
    // A bit of the signature.
    let mut broken = message.clone();
    let signature = Message::read(&message).unwrap().signers[0].signature.to_vec();
    broken[place(&signature)] ^= 1;
    assert_eq!(distrust(check(&plain, &broken)), Distrust::Forged("UKI"));
    check(&plain, &message).unwrap();
}

/// The name of an authority is no proof: anybody can make a certificate that says who issued it.
#[test]
fn a_certificate_that_only_names_a_known_authority_is_nobodys() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    key(at, "authority", "authority", "");
    key(at, "impostor", "authority", "");
    key(at, "leaf", "leaf", " -CA impostor.pem -CAkey impostor.key");
    let file = signed(at, "leaf", &system().uki(&[]).unwrap());
    trusting(at, "impostor").check("UKI", &file).unwrap();
    assert_eq!(distrust(trusting(at, "authority").check("UKI", &file)), Distrust::UnknownKey("UKI"));
}
