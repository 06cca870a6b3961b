//! The same over TLS: servers that are believed, and each reason not to.

use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_ED25519, SignatureAlgorithm};
use rustls::SupportedProtocolVersion;
use rustls::crypto::ring::kx_group::{SECP256R1, X25519};
use rustls::crypto::{CryptoProvider, SupportedKxGroup, ring};
use rustls::version::{TLS12, TLS13};

use super::{LENGTH, Wire, file, run_with, setup, text};
use crate::peer::{Authority, GOOD, Manner, Plan, SECOND, Site, TODAY_S};
use crate::{Error, HANDSHAKE_LIMIT_NS, SECOND_NS, Trust, TrustError, Url, peer};

type Version = &'static SupportedProtocolVersion;
type Group = &'static dyn SupportedKxGroup;

const URL: &str = "https://10.77.0.1/";

fn secure(authority: &Authority, manner: Manner) -> Site {
    Site::new(443, manner).file("/base.layer", file()).secure(authority.server(&["10.77.0.1"], GOOD))
}

fn trust(authority: &Authority) -> Trust {
    Trust::from_pem(authority.pem.as_bytes(), TODAY_S).unwrap()
}

fn fetched(wire: &mut Wire, mirrors: &[&str], trust: &Trust) -> Result<Url, Error> {
    run_with(wire, setup(), mirrors, Some(trust))
}

/// What is said when this is the only server.
fn refusal(site: Site, trust: &Trust) -> String {
    let mut wire = Wire::new(&Plan::with([site]));
    let said = text(fetched(&mut wire, &[URL], trust));
    let start = "layer base: https://10.77.0.1/base.layer: ";
    assert!(wire.peer.requests.is_empty(), "{:?}", wire.peer.requests);
    said.strip_prefix(start).unwrap_or_else(|| panic!("{said}")).to_string()
}

/// A server that knows no other versions and no other way to agree on a key.
fn only(authority: &Authority, version: Version, group: Group) -> Site {
    let provider = CryptoProvider { kx_groups: vec![group], ..ring::default_provider() };
    let site = Site::new(443, Manner::Good).file("/base.layer", file());
    site.secure(authority.server_of(&["10.77.0.1"], GOOD, &[version], provider))
}

#[test]
fn a_file_by_the_version_and_agreement_that_we_know() {
    let authority = Authority::new("Test Root");
    let mut wire = Wire::new(&Plan::with([only(&authority, &TLS13, SECP256R1)]));
    let url = fetched(&mut wire, &[URL], &trust(&authority)).unwrap();
    assert_eq!(url.to_string(), "https://10.77.0.1/base.layer");
    assert_eq!(wire.peer.requests, ["443 /base.layer from 0"]);
    assert_eq!(wire.peer.sent_bytes, LENGTH as u64);
    assert_eq!(wire.peer.errors, Vec::<String>::new());
    let said = refusal(only(&authority, &TLS12, SECP256R1), &trust(&authority));
    assert_eq!(said, "it does not speak TLS 1.3: received fatal alert: ProtocolVersion");
    let said = refusal(only(&authority, &TLS13, X25519), &trust(&authority));
    let wanted =
        "it has no cryptography of ours, which is P-256 and AES-GCM: received fatal alert: HandshakeFailure";
    assert_eq!(said, wanted);
}

#[test]
fn authorities_and_servers_with_keys_of_each_kind() {
    let made = |kind: &'static SignatureAlgorithm| move || KeyPair::generate_for(kind).unwrap();
    let rsa = || KeyPair::from_pem(include_str!("../../testdata/rsa.key")).unwrap();
    let kinds: [&dyn Fn() -> KeyPair; 4] =
        [&made(&PKCS_ECDSA_P256_SHA256), &made(&PKCS_ECDSA_P384_SHA384), &made(&PKCS_ED25519), &rsa];
    for make in kinds {
        let authority = Authority::of("Test Root", make());
        let site = Site::new(443, Manner::Good).file("/base.layer", file());
        let site = site.secure(authority.server_with(&["10.77.0.1"], &make()));
        fetched(&mut Wire::new(&Plan::with([site])), &[URL], &trust(&authority)).unwrap();
    }
}

#[test]
fn by_name_from_one_of_several_authorities() {
    let (one, other) = (Authority::new("One"), Authority::new("Other"));
    let both = Trust::from_pem(format!("# ours\n{}\n{}", one.pem, other.pem).as_bytes(), TODAY_S).unwrap();
    assert_eq!((both.count(), both.passed_over()), (2, 0));
    let site = Site::new(8443, Manner::Good).file("/base.layer", file());
    let mut plan = Plan::with([site.secure(other.server(&["boot.lan"], GOOD))]);
    plan.names = vec![("boot.lan", SECOND)];
    let mut wire = Wire::new(&plan);
    fetched(&mut wire, &["https://boot.lan:8443/"], &both).unwrap();
}

#[test]
fn a_stranger_is_refused_by_name_and_the_next_mirror_asked() {
    let (known, stranger) = (Authority::new("Known"), Authority::new("Stranger\nRoot"));
    let wanted = "its certificate for 10.77.0.1 (issued by \"Stranger?Root\") is not trusted: its authority is not in \
                  this image; put the authority's certificate there with image build --certificate";
    assert_eq!(refusal(secure(&stranger, Manner::Good), &trust(&known)), wanted);
    let good = Site::new(80, Manner::Good).file("/base.layer", file());
    let mut wire = Wire::new(&Plan::with([secure(&stranger, Manner::Good), good]));
    let url = fetched(&mut wire, &[URL, "http://10.77.0.1/"], &trust(&known)).unwrap();
    assert!(!url.secure && wire.said(wanted), "{:?}", wire.lines);
    // It is told why.
    assert_eq!(wire.peer.errors, ["received fatal alert: UnknownCA"]);
}

#[test]
fn an_authority_is_no_server() {
    let site = Site { tls: Some(Authority::alone("Alone")), ..secure(&Authority::new("x"), Manner::Good) };
    assert_eq!(
        refusal(site, &trust(&Authority::new("Known"))),
        "its certificate for 10.77.0.1 (issued by \"Alone\") is not trusted: it is an authority's own, and not a \
         server's; have the server's signed by an authority of this image"
    );
}

#[test]
fn a_redirect_is_believed_no_more_than_an_address() {
    let (known, stranger) = (Authority::new("Known"), Authority::new("Stranger"));
    let to = |place: &str| peer::Answer::Redirect(place.into());
    let plain = Site::new(80, Manner::Good)
        .file("/good/base.layer", to("https://10.77.0.1/base.layer"))
        .file("/bad/base.layer", to("https://10.77.0.1:444/base.layer"));
    let back = Site::new(445, Manner::Good).file("/base.layer", to("http://10.77.0.1/real/base.layer"));
    let back = back.secure(known.server(&["10.77.0.1"], GOOD));
    let bad = Site { port: 444, ..secure(&stranger, Manner::Good) };
    let plan = Plan::with([plain, secure(&known, Manner::Good), bad, back]);
    let mut wire = Wire::new(&plan);
    let mirrors = ["http://10.77.0.1/bad", "https://10.77.0.1:445", "http://10.77.0.1/good"];
    let url = fetched(&mut wire, &mirrors, &trust(&known)).unwrap();
    assert_eq!(url.to_string(), "https://10.77.0.1/base.layer");
    let refused = "layer base from http://10.77.0.1/bad/base.layer: it sends us to https://10.77.0.1:444/base.layer: its \
                   certificate for 10.77.0.1 (issued by \"Stranger\") is not trusted";
    assert!(wire.said(refused), "{:?}", wire.lines);
    assert!(wire.said("it sends us from https to http://10.77.0.1/real/base.layer"), "{:?}", wire.lines);
}

#[test]
fn days_and_names_that_are_wrong() {
    let authority = Authority::new("Test Root");
    let site = |names: &[&str], years| Site {
        tls: Some(authority.server(names, years)),
        ..secure(&authority, Manner::Good)
    };
    let trust = trust(&authority);
    assert_eq!(
        refusal(site(&["10.77.0.1"], (2020, 2025)), &trust),
        "its certificate for 10.77.0.1 (issued by \"Test Root\") was valid until 2025-01-01, and today is 2026-06-01"
    );
    assert_eq!(
        refusal(site(&["10.77.0.1"], (2027, 2028)), &trust),
        "its certificate for 10.77.0.1 (issued by \"Test Root\") is valid from 2027-01-01 on, and today is 2026-06-01; is \
         the clock right?"
    );
    assert_eq!(
        refusal(site(&["boot.lan", "10.77.0.2"], GOOD), &trust),
        "its certificate (issued by \"Test Root\") is not for 10.77.0.1 but for boot.lan, 10.77.0.2"
    );
}

/// Without a battery it is 1970. A certificate of later times is good then, one that ended before the build is not.
#[test]
fn a_clock_that_is_behind_the_build() {
    let authority = Authority::new("Test Root");
    let trust = Trust::from_pem(authority.pem.as_bytes(), 86_400).unwrap();
    assert!(!trust.is_clock_right());
    let site = |years| Site {
        tls: Some(authority.server(&["10.77.0.1"], years)),
        ..secure(&authority, Manner::Good)
    };
    for years in [GOOD, (2030, 2031), (2024, 2026)] {
        fetched(&mut Wire::new(&Plan::with([site(years)])), &[URL], &trust).unwrap();
    }
    let said = refusal(site((2020, 2024)), &trust);
    assert!(said.ends_with("was valid until 2024-01-01, and today is 2025-01-01"), "{said}");
}

#[test]
fn a_connection_cut_in_a_record_goes_on_with_what_was_whole() {
    let authority = Authority::new("Test Root");
    let site = secure(&authority, Manner::Breaks(vec![300_000, 100_000]));
    let mut wire = Wire::new(&Plan::with([site]));
    fetched(&mut wire, &[URL], &trust(&authority)).unwrap();
    let offsets: Vec<usize> =
        wire.peer.requests.iter().map(|line| line.rsplit(' ').next().unwrap().parse().unwrap()).collect();
    assert_eq!(offsets.len(), 3, "{:?}", wire.peer.requests);
    // The records' own bytes and half a record, sixteen kilobytes at most, are what is missing of the cut.
    for (from, cut) in [(0, 300_000), (1, 100_000)] {
        let came = offsets[from + 1] - offsets[from];
        assert!((cut - 20_000..cut).contains(&came), "{offsets:?}");
    }
    assert!(wire.said(&format!("the connection ended after {} of 700000 bytes", offsets[1])));
}

#[test]
fn a_server_that_does_not_shake_hands_or_speaks_no_tls() {
    let authority = Authority::new("Test Root");
    let mut wire = Wire::new(&Plan::with([secure(&authority, Manner::Mute)]));
    let began = wire.now_ns;
    let said = text(fetched(&mut wire, &[URL], &trust(&authority)));
    assert!(
        said.contains("given up after 180 s") && said.ends_with("no TLS handshake within 20 s"),
        "{said}"
    );
    assert!(wire.now_ns - began >= HANDSHAKE_LIMIT_NS + 160 * SECOND_NS);
    // It takes a hello for the beginning of a request, and says nothing.
    let site = Site::new(443, Manner::Good).file("/base.layer", file());
    let said = text(fetched(&mut Wire::new(&Plan::with([site])), &[URL], &trust(&authority)));
    assert!(said.ends_with("no TLS handshake within 20 s"), "{said}");
}

#[test]
fn a_slow_server_is_slow_over_tls_too() {
    let authority = Authority::new("Test Root");
    let mut wire = Wire::new(&Plan::with([secure(&authority, Manner::Slow(100))]));
    let said = text(fetched(&mut wire, &[URL], &trust(&authority)));
    assert!(said.contains("too slow: ") && said.contains(" bytes in 20 s"), "{said}");
}

#[test]
fn files_without_an_authority() {
    assert_eq!(Trust::from_pem(b"", TODAY_S).unwrap_err(), TrustError::Empty);
    assert_eq!(Trust::from_pem(b"no PEM at all\n", TODAY_S).unwrap_err(), TrustError::Empty);
    let broken = "-----BEGIN CERTIFICATE-----\n!!\n-----END CERTIFICATE-----\n";
    assert_eq!(Trust::from_pem(broken.as_bytes(), TODAY_S).unwrap_err(), TrustError::Pem);
    let none = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    assert_eq!(Trust::from_pem(none.as_bytes(), TODAY_S).unwrap_err(), TrustError::Empty);
    let mixed = format!("{none}{}", Authority::new("Test Root").pem);
    let trust = Trust::from_pem(mixed.as_bytes(), TODAY_S).unwrap();
    assert_eq!((trust.count(), trust.passed_over()), (1, 1));
}
