//! What a kubelet has of its cluster: the first certificate on a control plane node, and what it may not use any more, because
//! authorities change while it is a node.
//!
//! Owns: removing its kubeconfig where that trusts other authorities than the config, and its certificate where the authority that
//! signs now has not signed it. The kubelet makes the first anew, and on a worker asks for the second with the cluster's token. A
//! control plane node has the authority's key and signs it ([`issue`], docs/decisions/0037).
//! Order: before the kubelet starts. A change of the authorities has it start again.
//! Fails by: [`Error`]; what cannot be read is left to the kubelet.
//! Source: Kubernetes, "TLS bootstrapping"; RFC 5280 §6.

use std::path::Path;
use std::time::SystemTime;

use api::pki::{self, CertificateFacts};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kubernetes::{Cluster, File, Node, Owner, certificates, paths};
use runtime::beneath;
use rustls::pki_types::UnixTime;
use webpki::{ALL_VERIFICATION_ALGS, EndEntityCert, KeyUsage, anchor_from_trusted_cert};

use crate::{Error, certificates as issuing, files};

/// The certificate with which the kubelet is a client, below its PKI's directory.
pub(crate) const CERTIFICATE: &str = "kubelet-client-current.pem";

/// What [`CERTIFICATE`] leads to where this node signed it. Names that the kubelet gives have the time of the signature.
const ISSUED: &str = "kubelet-client-issued.pem";

/// Its certificates below its PKI's directory, by what they are called: as a client, and for its own port, where the cluster signed
/// that or it made it itself.
pub(crate) const CERTIFICATES: [(&str, &str); 3] = [
    ("kubelet-client", CERTIFICATE),
    ("kubelet-server", "kubelet-server-current.pem"),
    ("kubelet-server", "kubelet.crt"),
];

/// Whether a kubelet of the node with this root has a certificate as a client.
pub(crate) fn are_there(root: &Path) -> bool {
    at(root, CERTIFICATE).exists()
}

/// Whether the node with this root signed the certificate itself. A kubelet may have that before there is a cluster.
pub(crate) fn are_of_this_node(root: &Path) -> bool {
    std::fs::read_link(at(root, CERTIFICATE)).is_ok_and(|target| target == Path::new(ISSUED))
}

fn at(root: &Path, name: &str) -> std::path::PathBuf {
    root.join(paths::KUBELET_PKI.trim_start_matches('/')).join(name)
}

/// Signs the certificate of a control plane node's kubelet where there is none. One that this node signed before is signed again
/// when it has ended, and under another name when the node has one: the name may come later than the first start. Answers whether
/// it did.
pub(crate) fn issue(root: &Path, cluster: &Cluster<'_>, node: &Node) -> Result<bool, Error> {
    let profile = certificates::kubelet(cluster, node);
    let is_good = || !are_of_this_node(root) || is_for(root, &profile.common_name);
    if !cluster.is_control_plane() || (are_there(root) && is_good()) {
        return Ok(false);
    }
    let identity = issuing::issue(cluster, &profile)?;
    let text = format!("{}{}", identity.certificate, identity.key.to_pem().expose_secret());
    let path = format!("{}/{ISSUED}", paths::KUBELET_PKI);
    files::write(root, &File { path, owner: Owner::Root, contents: config::Secret::new(text) })?;
    let path = format!("{}/{CERTIFICATE}", paths::KUBELET_PKI);
    // A link whose file is gone.
    remove(root, &path)?;
    let linked = beneath::parent(root, Path::new(&path))
        .and_then(|(directory, name)| directory.link(&name, Path::new(ISSUED)));
    linked.map_err(|source| Error::File { what: "make the link", path: path.into(), source })?;
    Ok(true)
}

/// Whether its certificate has this name and has not ended.
fn is_for(root: &Path, name: &str) -> bool {
    let text = read(root, &format!("{}/{CERTIFICATE}", paths::KUBELET_PKI)).unwrap_or_default();
    let facts = CertificateFacts::from_pem("the kubelet's certificate", &text);
    facts.is_ok_and(|facts| facts.common_name == name && facts.remaining().is_some())
}

/// Removes its certificates, and what names them: it has to start again at once. Answers what they are called.
pub(crate) fn remove_certificates(root: &Path) -> Result<Vec<String>, Error> {
    let mut removed: Vec<String> = Vec::new();
    for (id, name) in CERTIFICATES {
        let path = format!("{}/{name}", paths::KUBELET_PKI);
        if read(root, &path).is_some() {
            remove(root, &path)?;
            removed.push(id.to_owned());
        }
    }
    // It refuses to start with a key alone.
    remove(root, &format!("{}/kubelet.key", paths::KUBELET_PKI))?;
    remove(root, paths::KUBELET_KUBECONFIG)?;
    removed.dedup();
    Ok(removed)
}

/// Removes what is of earlier authorities; what it was, for the log.
pub(crate) fn forget(root: &Path, cluster: &Cluster<'_>) -> Result<Option<&'static str>, Error> {
    let certificate = format!("{}/{CERTIFICATE}", paths::KUBELET_PKI);
    let signs = &cluster.config().cluster.ca.crt.0;
    if read(root, &certificate).is_some_and(|text| is_of_another(&text, signs)) {
        remove(root, &certificate)?;
        remove(root, paths::KUBELET_KUBECONFIG)?;
        return Ok(Some("its certificate is not of the authority that signs now"));
    }
    // The kubelet writes what its first kubeconfig says into its own.
    let trusted = STANDARD.encode(cluster.authorities());
    if read(root, paths::KUBELET_KUBECONFIG).is_some_and(|text| !text.contains(&trusted)) {
        remove(root, paths::KUBELET_KUBECONFIG)?;
        return Ok(Some("its kubeconfig trusts other authorities"));
    }
    Ok(None)
}

fn read(root: &Path, path: &str) -> Option<String> {
    std::fs::read_to_string(root.join(path.trim_start_matches('/'))).ok()
}

fn remove(root: &Path, path: &str) -> Result<(), Error> {
    let failed = |source| Error::File { what: "remove", path: path.into(), source };
    match beneath::parent(root, Path::new(path)) {
        Ok((directory, name)) => directory.remove_all(&name).map_err(failed),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(failed(error)),
    }
}

/// Whether a client's certificate was signed by none of these authorities. One that cannot be read was not.
fn is_of_another(certificate: &str, authorities: &str) -> bool {
    let (Ok(own), Ok(authorities)) = (
        pki::certificates("the kubelet's certificate", certificate),
        pki::certificates("cluster.ca", authorities),
    ) else {
        return false;
    };
    let anchors: Vec<_> = authorities.iter().filter_map(|der| anchor_from_trusted_cert(der).ok()).collect();
    let Some(Ok(own)) = own.first().map(EndEntityCert::try_from) else { return false };
    let Ok(now) = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH) else { return false };
    let now = UnixTime::since_unix_epoch(now);
    let verified =
        own.verify_for_usage(ALL_VERIFICATION_ALGS, &anchors, &[], now, KeyUsage::client_auth(), None, None);
    // A kubelet renews by itself what is only too old.
    let is_only_old = |error: &webpki::Error| {
        matches!(error, webpki::Error::CertExpired { .. } | webpki::Error::CertNotValidYet { .. })
    };
    verified.is_err_and(|error| !is_only_old(&error))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use api::pki::{Algorithm, Authority, Leaf, Lifetime, Usage};
    use config::{CertificateAndKey, EncodedPem, EncodedSecret};
    use kubernetes::kubeconfig;

    use super::*;
    use crate::{kubelet, samples};

    const YEAR: Duration = Duration::from_secs(365 * 86_400);

    fn authority() -> Authority {
        Authority::generate_with(Algorithm::Ecdsa, "kubernetes", Lifetime::from_now(YEAR)).unwrap()
    }

    fn pair(authority: &Authority) -> CertificateAndKey {
        CertificateAndKey {
            crt: EncodedPem(authority.certificate().to_owned()),
            key: EncodedSecret(authority.key()),
        }
    }

    #[test]
    fn all_certificates_go_with_what_names_them() {
        let root = tempfile::tempdir().unwrap();
        assert!(remove_certificates(root.path()).unwrap().is_empty(), "there was none");
        let pki = root.path().join(paths::KUBELET_PKI.trim_start_matches('/'));
        std::fs::create_dir_all(&pki).unwrap();
        std::fs::create_dir_all(root.path().join("etc/kubernetes")).unwrap();
        std::fs::write(root.path().join(paths::KUBELET_KUBECONFIG.trim_start_matches('/')), "it").unwrap();
        for name in ["kubelet-client-2026.pem", "kubelet.crt", "kubelet.key"] {
            std::fs::write(pki.join(name), "it").unwrap();
        }
        std::os::unix::fs::symlink("kubelet-client-2026.pem", pki.join(CERTIFICATE)).unwrap();
        assert_eq!(remove_certificates(root.path()).unwrap(), ["kubelet-client", "kubelet-server"]);
        let left: Vec<_> = std::fs::read_dir(&pki).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["kubelet-client-2026.pem"]);
        assert!(read(root.path(), paths::KUBELET_KUBECONFIG).is_none());
    }

    #[test]
    fn a_control_plane_node_signs_for_its_own_kubelet() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path();
        let mut config = samples::control_plane("v1.34.10", "v3.6.4");
        config.cluster.ca = pair(&authority());
        let node = Node { host_name: "cp-1".into(), ..samples::node() };
        let issue = |config: &config::Config| issue(path, &Cluster::new(config).unwrap(), &node).unwrap();
        config.machine.machine_type = config::MachineType::Worker;
        assert!(!issue(&config) && !are_there(path), "a worker asks its cluster");
        config.machine.machine_type = config::MachineType::ControlPlane;
        assert!(issue(&config) && are_there(path));
        let first = read(path, &format!("{}/{CERTIFICATE}", paths::KUBELET_PKI)).unwrap();
        let facts = CertificateFacts::from_pem("it", &first).unwrap();
        assert_eq!(
            (facts.common_name.as_str(), &facts.organizations[..]),
            ("system:node:cp-1", &["system:nodes".to_owned()][..])
        );
        assert!(!is_of_another(&first, &config.cluster.ca.crt.0) && first.contains("PRIVATE KEY"));
        assert!(!issue(&config), "what is there stays");
        // Its name came later than its first start.
        let named = Node { host_name: "Cp-2".into(), ..node.clone() };
        let issue_to = |node: &Node| super::issue(path, &Cluster::new(&config).unwrap(), node).unwrap();
        assert!(issue_to(&named) && is_for(path, "system:node:cp-2") && !issue_to(&named));
        assert!(issue_to(&node) && is_for(path, "system:node:cp-1"));
        // It is not in a cluster before the node is.
        assert!(!kubelet::has_joined(path));
        std::fs::create_dir_all(path.join("var/lib/etcd/member")).unwrap();
        assert!(kubelet::has_joined(path));
        // Another authority signs.
        config.cluster.ca = pair(&authority());
        assert!(forget(path, &Cluster::new(&config).unwrap()).unwrap().is_some());
        assert!(!are_there(path) && issue(&config));
        // One that the kubelet has asked for.
        let certificate = at(path, CERTIFICATE);
        std::fs::remove_dir_all(path.join("var/lib/etcd")).unwrap();
        std::fs::remove_file(&certificate).unwrap();
        std::fs::write(at(path, "kubelet-client-2026.pem"), "it").unwrap();
        std::os::unix::fs::symlink("kubelet-client-2026.pem", &certificate).unwrap();
        assert!(kubelet::has_joined(path) && !issue(&config));
    }

    #[test]
    fn a_certificate_of_an_authority_that_signs_no_longer_goes_and_what_is_trusted_follows() {
        let root = tempfile::tempdir().unwrap();
        let (old, new) = (authority(), authority());
        // Its signatures are of another kind.
        let other = Authority::generate("kubernetes", Lifetime::from_now(YEAR)).unwrap();
        let leaf = Leaf {
            organizations: vec!["system:nodes".into()],
            names: Vec::new(),
            usage: Usage::Client,
            lifetime: Lifetime::from_now(YEAR),
        };
        let write = |path: &str, text: &str| {
            let path = root.path().join(path.trim_start_matches('/'));
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let mut config = samples::control_plane("v1.34.10", "v3.6.4");
        config.cluster.ca = pair(&old);
        let certificate = format!("{}/{CERTIFICATE}", paths::KUBELET_PKI);
        let join = |config: &config::Config, authority: &Authority| {
            let issued = authority.issue_to("system:node:n1", &leaf).unwrap();
            write(&certificate, &format!("{}{}", issued.certificate, issued.key.to_pem().expose_secret()));
            let cluster = Cluster::new(config).unwrap();
            write(paths::KUBELET_KUBECONFIG, kubeconfig::bootstrap(&cluster).unwrap().expose_secret());
        };
        let forgotten =
            |config: &config::Config| forget(root.path(), &Cluster::new(config).unwrap()).unwrap();
        assert_eq!(forgotten(&config), None, "it has not joined");
        join(&config, &old);
        assert_eq!(forgotten(&config), None);
        // A further authority is trusted: the certificate stays.
        config.cluster.accepted_cas = vec![pair(&new)];
        assert_eq!(forgotten(&config), Some("its kubeconfig trusts other authorities"));
        assert!(read(root.path(), &certificate).is_some());
        join(&config, &old);
        assert_eq!(forgotten(&config), None);
        // It signs.
        config.cluster.ca = pair(&new);
        config.cluster.accepted_cas = vec![pair(&old)];
        assert_eq!(forgotten(&config), Some("its certificate is not of the authority that signs now"));
        assert_eq!(
            (read(root.path(), &certificate), read(root.path(), paths::KUBELET_KUBECONFIG)),
            (None, None)
        );
        join(&config, &new);
        assert_eq!(forgotten(&config), None);
        config.cluster.ca = pair(&other);
        assert_eq!(forgotten(&config), Some("its certificate is not of the authority that signs now"));
        // What cannot be read is the kubelet's to mend.
        write(&certificate, "no certificate");
        assert_eq!(forgotten(&config), None);
    }
}
