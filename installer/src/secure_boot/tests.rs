//! Signatures as the reference tools see them.

use std::path::Path;
use std::process::Command;

use super::*;

fn run(directory: &Path, program: &str, words: &str) -> String {
    let ran = Command::new(program).current_dir(directory).args(words.split(' ')).output();
    let ran = ran.unwrap_or_else(|error| panic!("{program}: {error}"));
    let said = format!("{}{}", String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success(), "{program} {words}: {said}");
    said
}

/// A key and its certificate, made as the page says.
fn signer(directory: &Path, name: &str) -> Signer {
    let words = format!(
        "req -new -x509 -newkey rsa:2048 -nodes -subj /CN={name} -days 1 -keyout {name}.key -out {name}.pem"
    );
    run(directory, "openssl", &words);
    let read = |end: &str| std::fs::read_to_string(directory.join(format!("{name}.{end}"))).unwrap();
    Signer::from_pem(&read("key"), &read("pem")).unwrap()
}

/// A small PE file with one section, as linkers make it.
fn stub() -> Vec<u8> {
    let mut file = vec![0; 0x400];
    let mut put = |at: usize, bytes: &[u8]| file[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, b"MZ");
    put(60, &0x80_u32.to_le_bytes());
    put(0x80, b"PE\0\0");
    // x86-64, one section, optional header of 240 bytes, executable.
    put(0x84, &0x8664_u16.to_le_bytes());
    put(0x86, &1_u16.to_le_bytes());
    put(0x94, &240_u16.to_le_bytes());
    put(0x96, &0x0022_u16.to_le_bytes());
    let optional = 0x98;
    put(optional, &0x020b_u16.to_le_bytes());
    put(optional + 4, &0x200_u32.to_le_bytes());
    put(optional + 16, &0x1000_u32.to_le_bytes());
    put(optional + 20, &0x1000_u32.to_le_bytes());
    put(optional + 32, &0x1000_u32.to_le_bytes());
    put(optional + 36, &0x200_u32.to_le_bytes());
    put(optional + 56, &0x2000_u32.to_le_bytes());
    put(optional + 60, &0x200_u32.to_le_bytes());
    put(optional + 68, &10_u16.to_le_bytes());
    put(optional + 108, &16_u32.to_le_bytes());
    let section = optional + 240;
    put(section, b".text");
    put(section + 8, &0x123_u32.to_le_bytes());
    put(section + 12, &0x1000_u32.to_le_bytes());
    put(section + 16, &0x200_u32.to_le_bytes());
    put(section + 20, &0x200_u32.to_le_bytes());
    put(section + 36, &0x6000_0020_u32.to_le_bytes());
    put(0x200, &[0xc3; 0x123]);
    file
}

#[test]
fn sbverify_takes_what_we_sign_and_nothing_else() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let (ours, other) = (signer(at, "ours"), signer(at, "other"));
    // Of odd length too: a signature begins at a whole step.
    for more in [0, 3] {
        let mut file = stub();
        file.extend(vec![7; more]);
        let signed = sign(&file, &ours).unwrap();
        std::fs::write(at.join("signed.efi"), &signed).unwrap();
        run(at, "sbverify", "--cert ours.pem signed.efi");
        let listed = run(at, "sbverify", "--list signed.efi");
        assert!(listed.contains("CN = ours") || listed.contains("CN=ours"), "{listed}");
        let refuses = |bytes: &[u8], certificate: &str| {
            std::fs::write(at.join("bad.efi"), bytes).unwrap();
            let words = ["--cert", certificate, "bad.efi"];
            !Command::new("sbverify").current_dir(at).args(words).output().unwrap().status.success()
        };
        assert!(refuses(&signed, "other.pem"));
        let mut changed = signed.clone();
        changed[0x210] ^= 1;
        assert!(refuses(&changed, "ours.pem"));
        // A second signature stands beside the first.
        let both = sign(&signed, &other).unwrap();
        std::fs::write(at.join("both.efi"), &both).unwrap();
        run(at, "sbverify", "--cert ours.pem both.efi");
        run(at, "sbverify", "--cert other.pem both.efi");
        let image = Image::parse(&both).unwrap();
        assert_eq!(image.signatures().unwrap().len(), 2);
        assert_eq!(image.digest().unwrap(), Image::parse(&file).unwrap().digest().unwrap());
        assert!(image.checksum_is_right());
        let bare = image.without_signatures().unwrap();
        assert!(!Image::parse(&bare).unwrap().is_signed());
        assert_eq!(bare[..0xd8], file[..0xd8]);
    }
}

#[test]
fn sbsign_s_signatures_have_our_digest() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    signer(at, "ours");
    std::fs::write(at.join("plain.efi"), stub()).unwrap();
    run(at, "sbsign", "--key ours.key --cert ours.pem --output theirs.efi plain.efi");
    let theirs = std::fs::read(at.join("theirs.efi")).unwrap();
    let image = Image::parse(&theirs).unwrap();
    let digest = Image::parse(&stub()).unwrap().digest().unwrap();
    assert_eq!(image.digest().unwrap(), digest);
    let [message] = image.signatures().unwrap()[..] else { panic!("one signature") };
    assert!(message.windows(32).any(|window| window == digest.0), "their message names another digest");
}

#[test]
fn a_key_signs_a_file_once() {
    let directory = tempfile::tempdir().unwrap();
    let (ours, other) = (signer(directory.path(), "ours"), signer(directory.path(), "other"));
    let both = sign(&sign(&stub(), &ours).unwrap(), &other).unwrap();
    for signer in [&ours, &other] {
        assert_eq!(sign(&both, signer).unwrap(), both);
    }
}

#[test]
fn files_of_keys_are_named_with_what_to_do() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    signer(at, "one");
    run(at, "openssl", "pkey -in one.key -aes256 -passout pass:x -out encrypted.key");
    run(at, "openssl", "rsa -in one.key -traditional -aes256 -passout pass:x -out traditional.key");
    run(at, "openssl", "x509 -in one.pem -outform der -out one.der");
    run(at, "openssl", "pkey -in one.key -outform der -out key.der");
    std::fs::write(at.join("text"), "text").unwrap();
    let refused = |key: &str, certificate: &str| match Signer::read(&at.join(key), &at.join(certificate)) {
        Ok(_) => panic!("taken"),
        Err(error) => error.to_string(),
    };
    for key in ["encrypted.key", "traditional.key"] {
        let error = refused(key, "one.pem");
        let path = at.join(key);
        let wanted = format!("openssl pkey -in {} -out decrypted.pem", path.display());
        assert!(error.contains("is encrypted with a passphrase") && error.contains(&wanted), "{error}");
    }
    let error = refused("one.key", "one.der");
    let wanted = format!("openssl x509 -inform der -in {}", at.join("one.der").display());
    assert!(error.contains("is in DER form") && error.contains(&wanted), "{error}");
    assert!(refused("key.der", "one.pem").contains("openssl pkey -inform der -in "));
    let error = refused("one.key", "text");
    assert!(error.contains("/text: no PEM block CERTIFICATE is in it"), "{error}");
    assert!(refused("text", "one.pem").contains("/text: no PEM block PRIVATE KEY is in it"));
    assert!(refused("none", "one.pem").ends_with("/none"));
    assert!(Signer::read(&at.join("one.key"), &at.join("one.pem")).is_ok());
}

#[test]
fn files_to_enrol_must_have_the_signers_certificate() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let (ours, other) = (signer(at, "ours"), signer(at, "other"));
    let time = Time { year: 2026, month: 11, day: 21, hour: 1, minute: 2, second: 3 };
    let made = Enrolment::new(&ours, [9; 16], time).unwrap();
    for ((_, content), name) in made.files().into_iter().zip(["PK.auth", "KEK.auth", "db.auth"]) {
        std::fs::write(at.join(name), content).unwrap();
    }
    assert_eq!(Enrolment::read(at, &ours).unwrap(), made);
    let error = Enrolment::read(at, &other).unwrap_err().to_string();
    assert!(error.contains("db.auth: the certificate of --sign-certificate is not in it"), "{error}");
    std::fs::remove_file(at.join("KEK.auth")).unwrap();
    assert!(Enrolment::read(at, &ours).unwrap_err().to_string().ends_with("KEK.auth"));
}

#[test]
fn the_same_file_and_key_give_the_same_bytes() {
    let directory = tempfile::tempdir().unwrap();
    let ours = signer(directory.path(), "ours");
    assert_eq!(sign(&stub(), &ours).unwrap(), sign(&stub(), &ours).unwrap());
}

#[test]
fn keys_that_firmware_does_not_know_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    signer(at, "one");
    signer(at, "two");
    let read = |name: &str| std::fs::read_to_string(at.join(name)).unwrap();
    let refused = |key: &str, certificate: &str| match Signer::from_pem(key, certificate) {
        Ok(_) => panic!("taken"),
        Err(error) => error.to_string(),
    };
    assert!(refused(&read("one.key"), &read("two.pem")).contains("belongs to another key"));
    assert!(refused("nothing", &read("one.pem")).contains("no PEM block PRIVATE KEY"));
    assert!(refused(&read("one.key"), "nothing").contains("no PEM block CERTIFICATE"));
    run(at, "openssl", "genpkey -algorithm ed25519 -out ed.key");
    assert!(refused(&read("ed.key"), &read("one.pem")).contains("no RSA key"));
}

#[test]
fn the_variables_signatures_are_those_of_their_content() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let ours = signer(at, "ours");
    let time = Time { year: 2026, month: 11, day: 21, hour: 1, minute: 2, second: 3 };
    let made = Enrolment::new(&ours, [9; 16], time).unwrap();
    for (name, file) in [("PK", &made.pk), ("KEK", &made.kek), ("db", &made.db)] {
        // Time, length of the signature's part, its head, the message, the list.
        assert_eq!(file[..7], [0xea, 0x07, 11, 21, 1, 2, 3]);
        let length = usize::try_from(u32::from_le_bytes(file[16..20].try_into().unwrap())).unwrap();
        let (message, list) = (&file[40..16 + length], &file[16 + length..]);
        assert_eq!(list[28..44], [9; 16]);
        assert_eq!(&list[44..], ours.certificate());
        assert_eq!(u32::from_le_bytes(list[16..20].try_into().unwrap()) as usize, list.len());
        let vendor = if name == "db" { super::enrolment::SECURITY } else { super::enrolment::GLOBAL };
        let wide: Vec<u8> = name.encode_utf16().flat_map(u16::to_le_bytes).collect();
        let said = [wide.as_slice(), &vendor, &0x27_u32.to_le_bytes(), &file[..16], list].concat();
        std::fs::write(at.join("said"), said).unwrap();
        // openssl wants the wrapping that firmware does without.
        let whole = super::der::element(
            super::der::SEQUENCE,
            &[
                &super::der::identifier(&[1, 2, 840, 113_549, 1, 7, 2]),
                &super::der::element(super::der::numbered(0), &[message]),
            ],
        );
        std::fs::write(at.join("message"), whole).unwrap();
        run(
            at,
            "openssl",
            "smime -verify -inform DER -in message -content said -CAfile ours.pem -purpose any -out out",
        );
    }
}
