//! What the authority signs, read back by the X.509 parser.

use super::*;
use crate::pki::requested_organizations;

fn authority() -> Authority {
    Authority::generate("talos", Lifetime::from_now(CA_LIFETIME)).unwrap()
}

fn leaf(usage: Usage, names: &[&str]) -> Leaf {
    Leaf {
        organizations: vec![],
        names: names.iter().map(ToString::to_string).collect(),
        usage,
        lifetime: Lifetime::from_now(LEAF_LIFETIME),
    }
}

fn facts(pem: &str) -> CertificateFacts {
    CertificateFacts::from_pem("a certificate", pem).unwrap()
}

#[test]
fn the_ca_has_the_profile_of_the_spec() {
    let ca = facts(authority().certificate());
    assert!(ca.is_ca);
    assert_eq!(ca.organizations, ["talos"]);
    let years = ca.not_after.duration_since(SystemTime::now()).unwrap().as_secs() / (365 * 86_400);
    assert_eq!(years, 10 - 1, "87600 hours less a moment");
}

#[test]
fn a_ca_survives_its_pem() {
    let ca = authority();
    let again = Authority::from_pem(ca.certificate(), &ca.key()).unwrap();
    assert_eq!(again.certificate(), ca.certificate());
    let issued = again.issue(&leaf(Usage::Both, &["10.0.0.1", "::1", "node-1.example.org"])).unwrap();
    assert_eq!(facts(&issued.certificate).names, ["10.0.0.1", "::1", "node-1.example.org"]);
}

#[test]
fn pairs_that_are_none_are_refused() {
    let (a, b) = (authority(), authority());
    assert!(matches!(Authority::from_pem(a.certificate(), &b.key()), Err(PkiError::Mismatch { .. })));
    let issued = a.issue(&leaf(Usage::Both, &[])).unwrap();
    assert!(matches!(
        Authority::from_pem(&issued.certificate, &issued.key.to_pem()),
        Err(PkiError::Unusable { .. })
    ));
}

#[test]
fn a_request_decides_nothing_but_key_and_names() {
    let ca = authority();
    let key = PrivateKey::generate().unwrap();
    // A request that wants to be a CA with the role of an administrator.
    let mut greedy = CertificateParams::new(vec!["node-1".to_owned()]).unwrap();
    greedy.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    greedy.distinguished_name.push(DnType::OrganizationName, "os:admin");
    greedy.extended_key_usages = usages(Usage::Both);
    let request = greedy.serialize_request(&*key.signer("key").unwrap()).unwrap().pem().unwrap();
    let signed = facts(&ca.sign_request(&request, &leaf(Usage::Server, &[])).unwrap());
    assert_eq!(signed.names, ["node-1"]);
    assert!(!signed.is_ca && signed.organizations.is_empty() && !signed.client_auth && signed.server_auth);
    assert_eq!(signed.public_key, key.public_key("key").unwrap());
}

#[test]
fn our_own_request_is_signed_with_its_names() {
    let key = PrivateKey::generate().unwrap();
    let request = certificate_request(&key, &["10.0.2.15".to_owned(), "node".to_owned()]).unwrap();
    let signed = authority().sign_request(&request, &leaf(Usage::Server, &[])).unwrap();
    assert_eq!(facts(&signed).names, ["10.0.2.15", "node"]);
}

#[test]
fn a_request_with_a_wrong_signature_is_refused() {
    let key = PrivateKey::generate().unwrap();
    let request = certificate_request(&key, &["node".to_owned()]).unwrap();
    let mut der = pem::blocks(&request).unwrap().remove(0).der;
    let last = der.len() - 1;
    der[last] ^= 1;
    let forged = pem::encode("CERTIFICATE REQUEST", &der);
    assert!(matches!(
        authority().sign_request(&forged, &leaf(Usage::Server, &[])),
        Err(PkiError::Unusable { what: "the certificate request", .. })
    ));
}

#[test]
fn names_that_are_none_are_refused() {
    for wrong in ["", "a b", "a/24", "ü"] {
        assert!(
            matches!(authority().issue(&leaf(Usage::Server, &[wrong])), Err(PkiError::Name(n)) if n == wrong)
        );
    }
}

#[test]
fn several_roles_are_several_values_of_one_subject() {
    let ca = authority();
    let roles = ["os:admin", "os:reader", "os:etcd:backup"].map(str::to_owned).to_vec();
    let identity = ca.issue(&Leaf { organizations: roles.clone(), ..leaf(Usage::Client, &[]) }).unwrap();
    let sorted = |mut roles: Vec<String>| {
        roles.sort();
        roles
    };
    assert_eq!(sorted(facts(&identity.certificate).organizations), sorted(roles.clone()));
    let key = PrivateKey::generate_with(Algorithm::Ecdsa).unwrap();
    let request = request_for(&key, &roles, &["n1".to_owned()]).unwrap();
    let asked = requested_organizations(&request).unwrap();
    assert_eq!(sorted(asked.clone()), sorted(roles.clone()));
    // The request's signature is checked before anything is signed.
    let signed =
        ca.sign_request(&request, &Leaf { organizations: asked, ..leaf(Usage::Client, &[]) }).unwrap();
    assert_eq!(sorted(facts(&signed).organizations), sorted(roles));
    assert_eq!(facts(&signed).names, ["n1"]);
    for certificate in [&identity.certificate, &signed] {
        assert!(openssl_verifies(ca.certificate(), certificate));
    }
}

/// By another implementation.
fn openssl_verifies(ca: &str, certificate: &str) -> bool {
    let dir = tempfile::tempdir().unwrap();
    let (root, leaf) = (dir.path().join("ca"), dir.path().join("leaf"));
    std::fs::write(&root, ca).unwrap();
    std::fs::write(&leaf, certificate).unwrap();
    let mut command = std::process::Command::new("openssl");
    command.args(["verify", "-purpose", "sslclient", "-CAfile"]).arg(root).arg(leaf);
    command.output().unwrap().status.success()
}

#[test]
fn a_common_name_stands_beside_any_number_of_organizations() {
    let ca =
        Authority::generate_with(Algorithm::Ecdsa, "kubernetes", Lifetime::from_now(CA_LIFETIME)).unwrap();
    for count in 0..3 {
        let organizations: Vec<String> =
            ["system:masters", "b"].iter().take(count).map(|o| (*o).to_owned()).collect();
        let leaf = Leaf { organizations: organizations.clone(), ..leaf(Usage::Client, &[]) };
        let identity = ca.issue_to("admin", &leaf).unwrap();
        let facts = CertificateFacts::from_pem("it", &identity.certificate).unwrap();
        let mut found = facts.organizations.clone();
        found.sort();
        let mut wanted = organizations;
        wanted.sort();
        assert_eq!((facts.common_name.as_str(), found), ("admin", wanted));
    }
}
