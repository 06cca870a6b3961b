//! No text or bytes that a user, a file or a peer hands over makes the readers panic.

use api::{
    client::Endpoint,
    event::Payload,
    file_mode,
    pki::{
        Authority, CA_LIFETIME, CertificateFacts, LEAF_LIFETIME, Leaf, Lifetime, PrivateKey, Usage, blocks,
    },
    roles::{Mode, allowed},
    talosconfig::Talosconfig,
};
use proptest::prelude::*;
use std::sync::LazyLock;

static AUTHORITY: LazyLock<Authority> =
    LazyLock::new(|| Authority::generate("talos", Lifetime::from_now(CA_LIFETIME)).expect("a CA"));

fn pem_like() -> impl Strategy<Value = String> {
    let label = prop_oneof![
        "EC PRIVATE KEY",
        "RSA PRIVATE KEY",
        "ED25519 PRIVATE KEY",
        "CERTIFICATE",
        "CERTIFICATE REQUEST"
    ];
    let body = prop_oneof!["[A-Za-z0-9+/]{0,200}={0,2}", "\\PC{0,60}"];
    (label, body)
        .prop_map(|(label, body)| format!("-----BEGIN {label}-----\n{body}\n-----END {label}-----\n"))
}

proptest! {
    #[test]
    fn keys_and_certificates(text in prop_oneof![pem_like(), "\\PC{0,200}".prop_map(String::from)]) {
        let _ = blocks(&text);
        let _ = PrivateKey::from_pem("it", &text);
        let _ = CertificateFacts::from_pem("it", &text);
        let leaf = Leaf { organizations: vec![], names: vec![], usage: Usage::Server, lifetime: Lifetime::from_now(LEAF_LIFETIME) };
        prop_assert!(AUTHORITY.sign_request(&text, &leaf).is_err());
    }

    #[test]
    fn certificates_with_changed_bytes(at in 0_usize..400, value in any::<u8>()) {
        let mut der = blocks(AUTHORITY.certificate()).expect("PEM").remove(0).der.to_vec();
        let at = at % der.len();
        der[at] = value;
        let _ = CertificateFacts::from_der("it", &der);
    }

    #[test]
    fn names_and_addresses(text in "\\PC{0,60}") {
        let _ = text.parse::<Endpoint>();
        let _ = Talosconfig::parse(&text);
        prop_assert!(!allowed(&text, Mode::Configured).is_empty());
    }

    #[test]
    fn events(url in "(talos/runtime/machine\\.)?[A-Za-z]{0,20}", value in prop::collection::vec(any::<u8>(), 0..60)) {
        let _ = Payload::unpack(&prost_types::Any { type_url: url, value });
    }

    #[test]
    fn every_mode_has_a_text_of_at_least_ten_letters(mode in any::<u32>()) {
        prop_assert!(file_mode::text(mode).len() >= 10);
        let _ = file_mode::from_st_mode(mode);
        prop_assert_eq!(file_mode::to_st_mode(mode) & 0o777, mode & 0o777);
    }
}
