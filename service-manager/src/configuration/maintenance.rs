//! A node without a config in force: it waits for one, or for the one that it has to open.
//!
//! Owns: the certificate that such a node shows, and what it says on the console.
//! Does not: decide which calls exist then (`api::roles`), or which kind of maintenance it is (`locked`).
//! Source: docs/users/config-lifecycle.md.

use api::pki::{Authority, CA_LIFETIME, CertificateFacts, Leaf, Lifetime, Usage};

use runtime::Runtime;

use crate::locked::{Maintenance, WAYS_OUT};
use crate::material::{Material, reaches_others};
use crate::volumes::{self, Volumes};

/// Makes what apid serves with: a throw-away authority that signs one certificate.
pub(crate) fn material(names: &[String], maintenance: Maintenance) -> Result<Material, String> {
    let lifetime = Lifetime::from_now(CA_LIFETIME);
    let authority = Authority::generate("talos", lifetime).map_err(|e| e.to_string())?;
    let leaf = Leaf { organizations: vec![], names: names.to_vec(), usage: Usage::Server, lifetime };
    let identity = authority.issue(&leaf).map_err(|e| e.to_string())?;
    Ok(Material {
        authority: authority.certificate().to_owned(),
        certificate: identity.certificate.clone(),
        key: identity.key.to_pem(),
        names: names.to_vec(),
        trust: None,
        forwarding: None,
        maintenance,
    })
}

/// Says where the node is reached, how it is recognised, and what it waits for.
pub(crate) fn announce(runtime: &Runtime, volumes: &Volumes, material: &Material) {
    let Ok(facts) = CertificateFacts::from_pem("the maintenance certificate", &material.certificate) else {
        return;
    };
    let addresses: Vec<&str> =
        material.names.iter().map(String::as_str).filter(|name| reaches_others(name)).collect();
    let has_recovery_key = volumes::waits_for_an_operator(volumes, installer::volumes::STATE);
    for line in lines(&addresses, &facts.fingerprint, &material.maintenance, has_recovery_key) {
        runtime.journal.say(&line);
    }
}

fn lines(addresses: &[&str], fingerprint: &str, kind: &Maintenance, has_recovery_key: bool) -> Vec<String> {
    let node = addresses.first().copied().unwrap_or("<address>");
    let mut lines = match kind {
        Maintenance::Locked(why) => {
            vec![
                "maintenance mode: this machine is locked and takes no configuration".to_owned(),
                format!("\t{why}"),
            ]
        }
        Maintenance::Open | Maintenance::No => {
            vec!["maintenance mode: this machine has no configuration".to_owned()]
        }
    };
    lines.push("this machine is reachable at:".to_owned());
    lines.extend(addresses.iter().map(|address| format!("\t{address}")));
    lines.push("server certificate fingerprint:".to_owned());
    lines.push(format!("\t{fingerprint}"));
    if has_recovery_key {
        lines.push("unlock STATE with its recovery key, here or with:".to_owned());
        lines.push(format!("\tbilletctl disk recovery-key STATE --insecure --nodes {node}"));
        lines.push(format!("\tbilletctl unlock STATE --insecure --nodes {node}"));
    }
    if kind.lock().is_some() {
        lines.push("ways out:".to_owned());
        lines.extend(WAYS_OUT.iter().map(|way| format!("\t{way}")));
        return lines;
    }
    lines.push("upload a configuration with:".to_owned());
    lines.push(format!(
        "\tbilletctl apply-config --insecure --nodes {node} --file <controlplane.yaml|worker.yaml>"
    ));
    lines.push("or, optionally, check the node's fingerprint as well:".to_owned());
    lines.push(format!(
        "\tbilletctl apply-config --insecure --nodes {node} --cert-fingerprint '{fingerprint}' --file <config.yaml>"
    ));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_console_names_address_and_fingerprint() {
        let text = lines(&["10.0.0.5"], "abc=", &Maintenance::Open, false).join("\n");
        for part in [
            "reachable at:\n\t10.0.0.5\n",
            "fingerprint:\n\tabc=\n",
            "--nodes 10.0.0.5 --cert-fingerprint 'abc='",
        ] {
            assert!(text.contains(part), "{part:?} in {text}");
        }
        assert!(text.starts_with("maintenance mode: this machine has no configuration\n"), "{text}");
        assert!(lines(&[], "f", &Maintenance::Open, false).join("\n").contains("--nodes <address>"));
    }

    #[test]
    fn a_locked_machine_says_why_and_how_to_go_on_and_asks_for_no_config() {
        let locked = Maintenance::Locked("no key matched".to_owned());
        let text = lines(&["10.0.0.5"], "abc=", &locked, true).join("\n");
        for part in [
            "maintenance mode: this machine is locked and takes no configuration\n\tno key matched\n",
            "fingerprint:\n\tabc=\n",
            "\tbilletctl disk recovery-key STATE --insecure --nodes 10.0.0.5\n",
            "\tbilletctl unlock STATE --insecure --nodes 10.0.0.5\n",
            "billet.maintenance=open",
        ] {
            assert!(text.contains(part), "{part:?} in {text}");
        }
        assert!(!text.contains("apply-config"), "{text}");
        assert!(!lines(&[], "f", &locked, false).join("\n").contains("recovery-key STATE"));
    }

    #[test]
    fn the_certificate_names_the_node() {
        let material = material(&["10.0.0.5".to_owned(), "127.0.0.1".to_owned()], Maintenance::Open).unwrap();
        let facts = CertificateFacts::from_pem("it", &material.certificate).unwrap();
        assert_eq!(material.maintenance, Maintenance::Open);
        assert!(facts.server_auth && facts.names.contains(&"10.0.0.5".to_owned()));
    }
}
