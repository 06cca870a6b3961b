//! Another authority of Kubernetes, while the cluster runs: trusted first, then the one that signs, then the only one.
//!
//! The steps are those of `rotate-ca` of current clients.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use api::pki::{Algorithm, Authority, CertificateFacts, Lifetime};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use config::MachineType;
use config::rewrite::Form;
use qemu_tests::deadline;

use crate::rig::{Endpoint, Running, STEP_LIMIT, objects};
use crate::{inside, nothing_is_left, teller};

const NODES: [(&str, MachineType); 2] =
    [("cp-1", MachineType::ControlPlane), ("worker-1", MachineType::Worker)];
const ADDRESSES: [&str; 2] = ["10.5.0.2", "10.5.0.3"];
const YEAR: Duration = Duration::from_secs(365 * 86_400);

/// Has both nodes sign with `signs`, where they sign, and trust these beside it.
fn patch(cluster: &Running, signs: &Pair, trusted: &[&Pair]) {
    let accepted: Vec<_> =
        trusted.iter().map(|pair| format!("{{\"crt\": \"{}\"}}", pair.certificate)).collect();
    let accepted = format!(
        "{{\"op\": \"add\", \"path\": \"/cluster/acceptedCAs\", \"value\": [{}]}}",
        accepted.join(", ")
    );
    for (address, (_, machine_type)) in ADDRESSES.iter().zip(NODES) {
        let key = if machine_type.is_control_plane() {
            format!(", \"key\": \"{}\"", signs.key)
        } else {
            String::new()
        };
        let own = format!(
            "{{\"op\": \"replace\", \"path\": \"/cluster/ca\", \"value\": {{\"crt\": \"{}\"{key}}}}}",
            signs.certificate
        );
        cluster.patch(address, &format!("[{own}, {accepted}]"));
    }
}

/// An authority as configs have it.
struct Pair {
    certificate: String,
    key: String,
}

impl Pair {
    fn new(authority: &Authority) -> Self {
        Self {
            certificate: STANDARD.encode(authority.certificate()),
            key: STANDARD.encode(authority.key().expose_secret()),
        }
    }
}

/// The client certificate of a node's kubelet with its key; `None` while there is none.
fn kubelet_certificate(cluster: &Running, node: &str) -> Option<String> {
    let directory = cluster.cluster.as_ref().unwrap().node_directory(node).join("var/lib/kubelet/pki");
    // A link from the node's root.
    let link = std::fs::read_link(directory.join("kubelet-client-current.pem")).ok()?;
    let text = std::fs::read_to_string(directory.join(link.file_name()?)).ok()?;
    CertificateFacts::from_pem("the kubelet's certificate", &text).ok()?;
    Some(text)
}

fn is_signed_by(cluster: &Running, certificate: &str, authority: &Authority) -> bool {
    let [own, ca] = ["kubelet.crt", "authority.crt"].map(|name| cluster.files.path().join(name));
    std::fs::write(&own, certificate).unwrap();
    std::fs::write(&ca, authority.certificate()).unwrap();
    let verified = Command::new("openssl").arg("verify").arg("-CAfile").arg(&ca).arg(&own).output().unwrap();
    verified.status.success()
}

/// An administrator's kubeconfig of now, beside the one that the cluster began with.
fn kubeconfig(cluster: &Running, name: &str) -> PathBuf {
    let file = cluster.files.path().join(name);
    cluster.until(&["kubeconfig", file.to_str().unwrap()], &[], STEP_LIMIT);
    file
}

fn asked_with(cluster: &Running, kubeconfig: &Path) -> Result<String, String> {
    let words = ["--kubeconfig", kubeconfig.to_str().unwrap(), "get", "nodes"];
    cluster.kubectl(&words)
}

fn until(cluster: &Running, what: &str, mut holds: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < deadline(2 * STEP_LIMIT), "{what}\n{}", cluster.state());
        std::thread::sleep(Duration::from_millis(250));
    }
}

fn is_ready(answer: &Result<String, String>) -> bool {
    answer.as_ref().is_ok_and(|nodes| nodes.matches(" Ready ").count() == NODES.len())
}

/// Those of the node API, of etcd, of the control plane and of both kubelets, while etcd runs on.
fn certificates_are_made_anew(cluster: &Running, admin: &Path) {
    let listed = cluster.until(&["certs"], &["etcd-peer", "kubelet-client", "kubelet-server"], STEP_LIMIT);
    for (id, renewed_by) in
        [("ca-kubernetes", "config"), ("apiserver", "node"), ("kubelet-client", "kubelet")]
    {
        let line = listed.lines().find(|line| line.split_whitespace().any(|word| word == id)).unwrap();
        assert!(line.split_whitespace().any(|word| word == renewed_by), "{line}");
    }
    let etcd = cluster.processes("cp-1", "etcd");
    for (address, (node, _)) in ADDRESSES.iter().zip(NODES) {
        let before = kubelet_certificate(cluster, node).unwrap();
        let ids: &[&str] = match node {
            "cp-1" => &["api-client", "apiserver", "etcd-peer", "front-proxy-client", "kubelet-client"],
            _ => &["api", "kubelet-client", "kubelet-server"],
        };
        let wanted: Vec<String> = ids.iter().map(|id| format!("{id} is another one")).collect();
        let wanted: Vec<&str> = wanted.iter().map(String::as_str).collect();
        cluster.until(&["-n", address, "certs", "renew"], &wanted, STEP_LIMIT);
        until(cluster, &format!("the kubelet of {node} has another certificate"), || {
            kubelet_certificate(cluster, node).is_some_and(|now| now != before)
        });
        until(cluster, "the nodes are ready with other certificates", || {
            is_ready(&asked_with(cluster, admin))
        });
    }
    assert_eq!(cluster.processes("cp-1", "etcd"), etcd, "etcd reads its certificates at each handshake");
}

#[test]
#[ignore = "long run"]
fn another_authority_of_kubernetes_signs_and_the_old_one_goes() {
    if !inside("rotation::another_authority_of_kubernetes_signs_and_the_old_one_goes") {
        return;
    }
    let tell = teller();
    let cluster = Running::start_as(&NODES, "v1.13", Form::V1alpha1, Endpoint::Node);
    cluster.begin();
    let old_admin = cluster.kubeconfig();
    until(&cluster, "two nodes are ready", || is_ready(&asked_with(&cluster, &old_admin)));
    let secrets = cluster.until(
        &["get", "kubernetesrootsecrets", "-o", "yaml"],
        &["issuingCA:", "bootstrapTokenSecret:", "https://localhost:6443"],
        STEP_LIMIT,
    );
    let (_, rest) = secrets.split_once("issuingCA:").unwrap();
    let value = |name: &str| {
        // A long text stands on the line behind its name.
        let (_, rest) = rest.split_once(&format!("{name}: ")).unwrap();
        rest.lines().nth(1).unwrap().trim().to_owned()
    };
    let old = Pair { certificate: value("crt"), key: value("key") };
    let authority =
        Authority::generate_with(Algorithm::Ecdsa, "kubernetes", Lifetime::from_now(YEAR)).unwrap();
    let new = Pair::new(&authority);
    tell("two nodes are ready");
    certificates_are_made_anew(&cluster, &old_admin);
    tell("all certificates were made anew");
    let before: Vec<_> = NODES.map(|(name, _)| kubelet_certificate(&cluster, name).unwrap()).into();

    patch(&cluster, &old, &[&new]);
    let has_both = |text: &str| text.matches("BEGIN CERTIFICATE").count() == 2;
    let root = ["get", "configmap", "kube-root-ca.crt", "-o", "jsonpath={.data}"];
    until(&cluster, "pods trust the new authority", || {
        cluster.kubectl(&root).is_ok_and(|text| has_both(&text))
    });
    until(&cluster, "the nodes stay ready", || is_ready(&asked_with(&cluster, &old_admin)));
    for ((name, _), before) in NODES.iter().zip(&before) {
        assert_eq!(
            kubelet_certificate(&cluster, name).as_ref(),
            Some(before),
            "{name} keeps its certificate"
        );
    }
    tell("the new authority is trusted");

    patch(&cluster, &new, &[&old]);
    for ((name, _), before) in NODES.iter().zip(&before) {
        until(&cluster, &format!("{name} has another certificate"), || {
            kubelet_certificate(&cluster, name).is_some_and(|now| now != *before)
        });
    }
    let new_admin = kubeconfig(&cluster, "new-admin");
    until(&cluster, "the nodes are ready with the new authority", || {
        is_ready(&asked_with(&cluster, &new_admin))
    });
    until(&cluster, "the old client does not know the server's authority", || {
        asked_with(&cluster, &old_admin).is_err_and(|error| error.contains("unknown authority"))
    });
    tell("the new authority signs");

    patch(&cluster, &new, &[]);
    let new_admin = kubeconfig(&cluster, "newest-admin");
    until(&cluster, "the nodes are ready without the old authority", || {
        is_ready(&asked_with(&cluster, &new_admin))
    });
    until(&cluster, "the old administrator is refused", || {
        let words =
            ["--kubeconfig", old_admin.to_str().unwrap(), "--insecure-skip-tls-verify", "get", "nodes"];
        cluster
            .kubectl(&words)
            .is_err_and(|error| error.contains("Unauthorized") || error.contains("must be logged in"))
    });
    // A certificate that the old one signed while it still could is gone by now, too.
    for (name, _) in NODES {
        until(&cluster, &format!("{name} has a certificate of the new authority"), || {
            kubelet_certificate(&cluster, name).is_some_and(|text| is_signed_by(&cluster, &text, &authority))
        });
    }
    let pods = ["--kubeconfig", new_admin.to_str().unwrap(), "run", "after", "--restart=Never", "--image"];
    let image = objects("PROGRAMS");
    let words = [&pods[..], &[&image, "--command", "--", "kubectl", "version", "--client"]].concat();
    cluster.kubectl(&words).unwrap();
    until(&cluster, "a new pod runs to its end", || {
        let words = ["--kubeconfig", new_admin.to_str().unwrap(), "get", "pod", "after"];
        cluster.kubectl(&words).is_ok_and(|text| text.contains("Completed"))
    });
    tell("the old authority is gone, and pods run");
    drop(cluster);
    nothing_is_left();
}
