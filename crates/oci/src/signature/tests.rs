//! Rules, keys and payloads; the signatures are openssl's.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ondisk::Digest;

use super::*;
use crate::Reference;
use crate::document::Descriptor;

fn reference(text: &str) -> Reference {
    text.parse().unwrap()
}

fn rule(images: &str, action: Action) -> Rule {
    Rule { images: images.into(), action }
}

/// What somebody on the command line does.
fn openssl(directory: &Path, arguments: &str) {
    let ran = Command::new("openssl").current_dir(directory).args(arguments.split(' ')).output().unwrap();
    assert!(ran.status.success(), "openssl {arguments}: {}", String::from_utf8_lossy(&ran.stderr));
}

/// What cosign writes about a digest.
pub(crate) fn payload(digest: &Digest) -> Vec<u8> {
    let identity = r#"{"docker-reference":"registry.invalid/demo/app"}"#;
    let image = format!(r#"{{"docker-manifest-digest":"sha256:{digest}"}}"#);
    let kind = r#""cosign container image signature""#;
    format!(r#"{{"critical":{{"identity":{identity},"image":{image},"type":{kind}}},"optional":null}}"#)
        .into_bytes()
}

pub(crate) fn layer(payload: &[u8], signature: &[u8]) -> Descriptor {
    let annotation = ("dev.cosignproject.cosign/signature".to_owned(), STANDARD.encode(signature));
    Descriptor {
        media_type: "application/vnd.dev.cosign.simplesigning.v1+json".into(),
        digest: Digest::sha256(&[payload]),
        size: payload.len() as u64,
        platform: None,
        annotations: BTreeMap::from([annotation]),
    }
}

/// Makes a key with openssl, signs, and gives the public half as PEM with the signature.
pub(crate) fn signed(directory: &Path, algorithm: &str, message: &[u8]) -> (String, Vec<u8>) {
    std::fs::write(directory.join("message"), message).unwrap();
    openssl(directory, &format!("genpkey {algorithm} -out key.pem"));
    openssl(directory, "pkey -in key.pem -pubout -out public.pem");
    if algorithm.contains("ed25519") {
        openssl(directory, "pkeyutl -sign -rawin -inkey key.pem -in message -out signature");
    } else {
        openssl(directory, "dgst -sha256 -sign key.pem -out signature message");
    }
    let public = std::fs::read_to_string(directory.join("public.pem")).unwrap();
    (public, std::fs::read(directory.join("signature")).unwrap())
}

#[test]
fn a_signature_counts_for_its_key_and_its_digest() {
    let (one, two) = (Digest::sha256(&[b"one"]), Digest::sha256(&[b"two"]));
    let kinds = [
        "-algorithm EC -pkeyopt ec_paramgen_curve:P-256",
        "-algorithm EC -pkeyopt ec_paramgen_curve:P-384",
        "-algorithm RSA -pkeyopt rsa_keygen_bits:2048",
        "-algorithm ed25519",
    ];
    for kind in kinds {
        let directory = tempfile::tempdir().unwrap();
        let bytes = payload(&one);
        let (public, made) = signed(directory.path(), kind, &bytes);
        let key = Key::from_pem(&public).unwrap();
        let good = Signature::of(&layer(&bytes, &made), bytes.clone()).unwrap();
        assert_eq!(good.check(&key, &one), Ok(()), "{kind}");
        let other = good.check(&key, &two).unwrap_err();
        assert_eq!(other, format!("it is of the image sha256:{one}"), "{kind}");
        let changed = Signature::of(&layer(&payload(&two), &made), payload(&two)).unwrap();
        assert_eq!(changed.check(&key, &two).unwrap_err(), "it is of another key", "{kind}");
        let (stranger, _) = signed(directory.path(), kind, &bytes);
        let stranger = Key::from_pem(&stranger).unwrap();
        assert_eq!(good.check(&stranger, &one).unwrap_err(), "it is of another key", "{kind}");
    }
}

#[test]
fn a_certificate_stands_for_its_key() {
    let directory = tempfile::tempdir().unwrap();
    let bytes = payload(&Digest::sha256(&[b"one"]));
    let (_, made) = signed(directory.path(), "-algorithm EC -pkeyopt ec_paramgen_curve:P-256", &bytes);
    openssl(directory.path(), "req -x509 -key key.pem -subj /CN=signer -days 1 -out certificate.pem");
    let text = std::fs::read_to_string(directory.path().join("certificate.pem")).unwrap();
    assert!(Key::from_pem(&text).unwrap().made(&made, &bytes));
}

#[test]
fn what_is_no_key_is_refused() {
    assert_eq!(Key::from_pem("nothing").unwrap_err(), KeyError::Form);
    let text = "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n";
    assert!(matches!(Key::from_pem(text).unwrap_err(), KeyError::Content(_)));
    let directory = tempfile::tempdir().unwrap();
    openssl(directory.path(), "genpkey -algorithm ed25519 -out key.pem");
    let private = std::fs::read_to_string(directory.path().join("key.pem")).unwrap();
    assert_eq!(Key::from_pem(&private).unwrap_err(), KeyError::Form);
}

#[test]
fn a_payload_of_another_kind_is_none() {
    let directory = tempfile::tempdir().unwrap();
    let digest = Digest::sha256(&[b"one"]);
    let text = String::from_utf8(payload(&digest)).unwrap().replace("cosign container image", "a menu's");
    let (public, made) = signed(directory.path(), "-algorithm ed25519", text.as_bytes());
    let key = Key::from_pem(&public).unwrap();
    let found = Signature::of(&layer(text.as_bytes(), &made), text.clone().into_bytes()).unwrap();
    assert_eq!(found.check(&key, &digest).unwrap_err(), "it is a \"a menu's signature\"");
    let (public, made) = signed(directory.path(), "-algorithm ed25519", b"no JSON");
    let key = Key::from_pem(&public).unwrap();
    let found = Signature::of(&layer(b"no JSON", &made), b"no JSON".to_vec()).unwrap();
    assert!(found.check(&key, &digest).unwrap_err().starts_with("its payload: "));
}

#[test]
fn the_first_rule_that_fits_counts() {
    let rules = vec![
        rule("registry.example.org/billet/installer", Action::Skip),
        rule("registry.example.org/*", Action::Deny),
        rule("*/mid/*/end", Action::Skip),
    ];
    let policy = Policy { rules };
    let found = |name: &str| policy.rule_for(&reference(name)).map(|rule| rule.images.as_str());
    assert_eq!(
        found("registry.example.org/billet/installer:1"),
        Some("registry.example.org/billet/installer")
    );
    assert_eq!(found("registry.example.org/billet/installer/more:1"), Some("registry.example.org/*"));
    assert_eq!(found("registry.example.org.evil.invalid/x:1"), None);
    assert_eq!(found("other.invalid:5000/mid/a/b/end:1"), Some("*/mid/*/end"));
    assert_eq!(found("other.invalid:5000/mid/end:1"), None);
    assert_eq!(Policy::default().rule_for(&reference("a.invalid/b:1")), None);
}
