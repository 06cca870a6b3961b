//! A node without a config: it waits for someone to give it one.
//!
//! Owns: the certificate that such a node shows, and what it says on the console.
//! Does not: decide which calls exist then (`api::roles`, with its maintenance switch).
//! Source: spec/machine-facts.md §4.6, spec/api-wire-facts.md §3.6.

use api::pki::{Authority, CA_LIFETIME, CertificateFacts, Leaf, Lifetime, Usage};

use crate::controllers::reaches_others;
use crate::identity::Material;
use crate::node::Node;

/// Makes what apid serves with: a throw-away authority that signs one certificate.
pub(crate) fn material(names: &[String]) -> Result<Material, String> {
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
        maintenance: true,
    })
}

/// Says once where the node is reached and how it is recognised.
pub(crate) fn announce(node: &Node, material: &Material) {
    let Ok(facts) = CertificateFacts::from_pem("the maintenance certificate", &material.certificate) else {
        return;
    };
    let addresses: Vec<&str> =
        material.names.iter().map(String::as_str).filter(|name| reaches_others(name)).collect();
    let is_locked = crate::volumes::waits_for_somebody(node, installer::volumes::STATE);
    for line in lines(&addresses, &facts.fingerprint, is_locked) {
        node.journal.say(&line);
    }
}

fn lines(addresses: &[&str], fingerprint: &str, is_locked: bool) -> Vec<String> {
    let node = addresses.first().copied().unwrap_or("<address>");
    let what = if is_locked {
        "STATE with the configuration is locked"
    } else {
        "this machine has no configuration"
    };
    let mut lines = vec![format!("maintenance mode: {what}")];
    lines.push("this machine is reachable at:".to_owned());
    lines.extend(addresses.iter().map(|address| format!("\t{address}")));
    lines.push("server certificate fingerprint:".to_owned());
    lines.push(format!("\t{fingerprint}"));
    if is_locked {
        lines.push("unlock STATE with its recovery key, here or with:".to_owned());
        lines.push(format!("\tbilletctl disk recovery-key STATE --insecure --nodes {node}"));
        lines.push(format!("\tbilletctl unlock STATE --insecure --nodes {node}"));
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
        let text = lines(&["10.0.0.5"], "abc=", false).join("\n");
        for part in [
            "reachable at:\n\t10.0.0.5\n",
            "fingerprint:\n\tabc=\n",
            "--nodes 10.0.0.5 --cert-fingerprint 'abc='",
        ] {
            assert!(text.contains(part), "{part:?} in {text}");
        }
        assert!(text.starts_with("maintenance mode: this machine has no configuration\n"), "{text}");
        assert!(lines(&[], "f", false).join("\n").contains("--nodes <address>"));
    }

    #[test]
    fn who_has_the_recovery_key_of_a_locked_state_reads_what_to_do() {
        let text = lines(&["10.0.0.5"], "abc=", true).join("\n");
        for part in [
            "maintenance mode: STATE with the configuration is locked\n",
            "\tbilletctl disk recovery-key STATE --insecure --nodes 10.0.0.5\n",
            "\tbilletctl unlock STATE --insecure --nodes 10.0.0.5\n",
            "apply-config",
        ] {
            assert!(text.contains(part), "{part:?} in {text}");
        }
    }

    #[test]
    fn the_certificate_names_the_node() {
        let material = material(&["10.0.0.5".to_owned(), "127.0.0.1".to_owned()]).unwrap();
        let facts = CertificateFacts::from_pem("it", &material.certificate).unwrap();
        assert!(material.maintenance && facts.server_auth && facts.names.contains(&"10.0.0.5".to_owned()));
    }
}
