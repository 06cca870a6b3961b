//! Workers that cannot join, where they say why, and that the config mends them.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use api::pki::{Authority, CA_LIFETIME, Leaf, Lifetime, Usage};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use config::MachineType;
use qemu_tests::deadline;

use crate::rig::{NODES, Running, STEP_LIMIT};
use crate::{inside, nothing_is_left, teller};

const WORKER: &str = "10.5.0.3";
const DAY: Duration = Duration::from_secs(24 * 3600);

fn kubelet_says(cluster: &Running, needles: &[&str]) {
    cluster.until(&["-n", WORKER, "logs", "kubelet", "--tail", "200"], needles, 2 * STEP_LIMIT);
}

/// The file of the certificate with which the worker's kubelet is a client. Each certificate has a file of its own.
fn client_certificate(cluster: &Running) -> PathBuf {
    let directory = cluster.cluster.as_ref().unwrap().node_directory(NODES[1].0).join("var/lib/kubelet/pki");
    // A link to where the node sees the file.
    let link = std::fs::read_link(directory.join("kubelet-client-current.pem")).unwrap();
    directory.join(link.file_name().unwrap())
}

/// A certificate of the worker that ended a day ago, and its key.
fn expired(cluster: &Running) -> String {
    let config = cluster.configuration(MachineType::ControlPlane, "machine: {}");
    let config = config::parse(config.expose_secret()).unwrap_or_else(|error| panic!("{error}"));
    let pair = &config.cluster.ca;
    let authority = Authority::from_pem(&pair.crt.0, pair.key().unwrap()).unwrap();
    let now = SystemTime::now();
    let leaf = Leaf {
        organizations: vec!["system:nodes".into()],
        names: Vec::new(),
        usage: Usage::Client,
        lifetime: Lifetime { not_before: now - 2 * DAY, not_after: now - DAY },
    };
    let identity = authority.issue_to(&format!("system:node:{}", NODES[1].0), &leaf).unwrap();
    format!("{}{}", identity.certificate, identity.key.to_pem().expose_secret())
}

#[test]
#[ignore = "long run"]
fn a_worker_that_cannot_join_says_why_and_is_mended_by_its_config() {
    if !inside("joining::a_worker_that_cannot_join_says_why_and_is_mended_by_its_config") {
        return;
    }
    let tell = teller();
    let cluster = Running::start(&NODES);
    // Its API needs no Kubernetes, so it can be asked and mended before there is any.
    cluster.until(&["-n", WORKER, "version"], &["Server"], STEP_LIMIT);
    let good = cluster.configuration(MachineType::Worker, "machine: {}");
    let good = config::parse(good.expose_secret()).unwrap_or_else(|error| panic!("{error}")).cluster;

    cluster.patch(WORKER, "cluster: {token: 'abcdef.0123456789abcdef'}");
    cluster.begin();
    cluster.kubectl_until(&["get", "node", "cp-1"], " Ready ", STEP_LIMIT);
    kubelet_says(&cluster, &["Unauthorized"]);
    tell("with a token of another cluster the kubelet is told that it is unauthorized");

    let endpoint = |endpoint: &str| format!("cluster: {{controlPlane: {{endpoint: '{endpoint}'}}}}");
    cluster.patch(WORKER, &endpoint("https://10.5.0.77:6443"));
    // The kubelet asks the balancer on its node, which knows the endpoint.
    kubelet_says(&cluster, &["127.0.0.1:7445"]);
    cluster.until(
        &["-n", WORKER, "logs", "machined", "--tail", "200"],
        &["KubePrism: no API server answers: 10.5.0.77:6443"],
        2 * STEP_LIMIT,
    );
    tell("of an endpoint where no machine is the log says the address");
    cluster.patch(WORKER, &endpoint(&good.control_plane.endpoint));

    let authority = |pem: &str| format!("cluster: {{ca: {{crt: {}}}}}", STANDARD.encode(pem));
    let other = Authority::generate("kubernetes", Lifetime::from_now(CA_LIFETIME)).unwrap();
    cluster.patch(WORKER, &authority(other.certificate()));
    kubelet_says(&cluster, &["certificate signed by unknown authority"]);
    tell("with another authority the kubelet says that it does not know the server's");
    cluster.patch(WORKER, &authority(&good.ca.crt.0));

    cluster.patch(WORKER, &format!("cluster: {{token: '{}'}}", good.token.as_ref().unwrap().expose_secret()));
    cluster.kubectl_until(&["get", "node", "worker-1"], " Ready ", STEP_LIMIT);
    tell("with what its cluster has the worker joins");

    // A machine that was off for longer than its certificate lives.
    let (running, path) = (cluster.cluster.as_ref().unwrap(), client_certificate(&cluster));
    running.stop("worker-1").unwrap();
    std::fs::write(&path, expired(&cluster)).unwrap();
    running.start("worker-1").unwrap();
    let begin = std::time::Instant::now();
    while client_certificate(&cluster) == path {
        assert!(
            begin.elapsed() < deadline(STEP_LIMIT),
            "the certificate is not renewed\n{}",
            cluster.state()
        );
        std::thread::sleep(Duration::from_millis(250));
    }
    cluster.kubectl_until(&["get", "pod", "fixed-worker-1"], "Running", STEP_LIMIT);
    cluster.kubectl_until(&["get", "node", "worker-1"], " Ready ", STEP_LIMIT);
    tell("with an expired certificate the worker joins again");
    drop(cluster);
    nothing_is_left();
}
