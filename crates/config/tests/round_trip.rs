//! What the generator writes, the parser reads back unchanged, whatever the strings in it look like.

use config::{Input, MachineType, Secret, Tokens, generate, parse};
use proptest::prelude::*;

fn input(name: String, sans: Vec<String>, pem: String, token: String, hostname: Option<String>) -> Input {
    Input {
        cluster_name: name,
        endpoint: "https://10.0.2.15:6443".to_owned(),
        machine_type: MachineType::ControlPlane,
        ca_certificate: pem.clone(),
        ca_key: Some(Secret::new(pem)),
        tokens: Tokens { machine: Secret::new(token.clone()), bootstrap: Secret::new(token) },
        cert_sans: sans,
        hostname,
        install_disk: None,
    }
}

proptest! {
    #[test]
    fn generated_text_is_read_back(
        name in "[a-z0-9]{1,12}(\\.[a-z]{1,3})?",
        // Words that YAML would take for booleans, numbers and nulls are in the mix on purpose.
        sans in prop::collection::vec(prop_oneof!["[a-z0-9]{1,10}", Just("no".to_owned()), Just("0123".to_owned()), Just("null".to_owned()), Just("1e3".to_owned())], 0..5),
        pem in "[ -~\\n]{1,400}",
        token in "[ -~]{1,40}",
        hostname in prop::option::of(prop_oneof!["[a-z][a-z0-9]{0,20}", Just("off".to_owned())]),
    ) {
        let text = generate(input(name.clone(), sans.clone(), pem.clone(), token.clone(), hostname.clone())).unwrap();
        let config = parse(&text).map_err(|e| TestCaseError::fail(format!("{e}\n{text}")))?;
        prop_assert_eq!(&config.cluster.cluster_name, &name);
        prop_assert_eq!(&config.machine.cert_sans, &sans);
        prop_assert_eq!(&config.machine.ca.crt.0, &pem);
        prop_assert_eq!(config.machine.ca.key().unwrap().expose_secret(), pem.as_str());
        prop_assert_eq!(config.machine.token.expose_secret(), token.as_str());
        prop_assert_eq!(config.machine.network.hostname, hostname.unwrap_or_default());
        prop_assert!(config.persist && config.machine.machine_type.is_control_plane());
    }

    #[test]
    fn no_text_makes_the_parser_panic(text in "\\PC{0,200}") {
        let _ = parse(&text);
    }
}

#[test]
fn input_that_would_be_refused_is_not_written() {
    let mut wrong = input("a".into(), vec![], "pem".into(), "t".into(), None);
    wrong.endpoint = "10.0.2.15".into();
    let error = generate(wrong).expect_err("refused").to_string();
    assert!(error.contains("cluster.controlPlane.endpoint"), "{error}");
}
