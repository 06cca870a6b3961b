//! Everything that is rendered, at each version, against golden files; each argument against what the programs accept.
//!
//! `BILLET_BLESS=1 cargo test -p kubernetes --test rendered` writes the golden files anew.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use config::Secret;
use kubernetes::etcd::Membership;
use kubernetes::kubeconfig::{self, Credentials};
use kubernetes::pod::Rendered;
use kubernetes::{
    Cluster, File, Node, api_server, certificates, controller_manager, etcd, images, kubelet, manifests,
    scheduler, yaml,
};

/// Each version of Kubernetes with the etcd beside it, and the form of its configuration.
const VERSIONS: [(&str, &str, &str); 7] = [
    ("v1.20.6", "v3.4.15", "first-generation"),
    ("v1.20.15", "v3.4.15", "current"),
    ("v1.29.0", "v3.5.16", "current"),
    ("v1.34.10", "v3.6.4", "current"),
    ("v1.35.8", "v3.6.4", "current"),
    ("v1.36.4", "v3.6.12", "current"),
    ("v1.37.2", "v3.7.2", "current"),
];

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(name)
}

fn configuration(form: &str, version: &str, etcd: &str) -> config::Config {
    let text = std::fs::read_to_string(data(&format!("{form}.yaml"))).unwrap();
    config::parse(&text.replace("VERSION", version).replace("ETCD", etcd)).unwrap()
}

fn node() -> Node {
    Node {
        host_name: "cp-1".into(),
        domain: "example.org".into(),
        addresses: ["10.0.0.3", "192.168.5.3", "fd00::3"].map(|text| text.parse().unwrap()).to_vec(),
        is_container: false,
        has_cgroup_v1: false,
        resolv_conf: "/etc/resolv.conf".into(),
    }
}

fn rendered() -> Rendered {
    Rendered { secrets: "1".into(), config: "2".into(), files: "3".into() }
}

/// Everything, as one text.
fn everything(cluster: &Cluster<'_>) -> String {
    let mut text = String::new();
    let mut part =
        |name: &str, content: &str| writeln!(text, "#### {name}\n{}\n", content.trim_end()).unwrap();
    let node = node();
    let lines = |words: Vec<String>| words.join("\n");
    part("images", &lines(images::all(cluster)));
    part("kubelet", &lines(kubelet::arguments(cluster, &node).unwrap().to_vec()));
    for membership in
        [Membership::New, Membership::Join(vec!["a=https://10.0.0.4:2380".into()]), Membership::Known]
    {
        let arguments = etcd::arguments(cluster, &node, &membership).unwrap();
        part(&format!("etcd, {membership:?}"), &lines(arguments.to_vec()));
    }
    let pods = [
        api_server::pod(cluster, &node, &rendered()).unwrap(),
        controller_manager::pod(cluster, &rendered()).unwrap(),
        scheduler::pod(cluster, &rendered()).unwrap(),
    ];
    for (name, pod) in pods {
        part(&name, &yaml("a pod", &pod).unwrap());
    }
    let files: Vec<File> =
        [api_server::files(cluster), scheduler::files(cluster), kubelet::files(cluster, &node)]
            .into_iter()
            .flat_map(Result::unwrap)
            .collect();
    for file in files {
        part(&format!("{} of {:?}", file.path, file.owner), file.contents.expose_secret());
    }
    for profile in certificates::all(cluster, &node).unwrap() {
        part(&format!("certificate {}", profile.id), &format!("{profile:#?}"));
    }
    let key = Secret::new("KEY");
    let credentials = || Credentials::Certificate { certificate: "CERTIFICATE", key: &key };
    part("kubeconfig of admin", kubeconfig::admin(cluster, &credentials()).unwrap().expose_secret());
    part("kubeconfig of bootstrap", kubeconfig::bootstrap(cluster).unwrap().expose_secret());
    let own = kubeconfig::of_control_plane(cluster, "scheduler", &credentials()).unwrap();
    part("kubeconfig of scheduler", own.expose_secret());
    for manifest in manifests::rendered(cluster).unwrap() {
        let objects: Vec<_> =
            manifest.objects.iter().map(|object| yaml("an object", object).unwrap()).collect();
        part(&format!("manifest {}", manifest.id), &objects.join("---\n"));
    }
    for download in manifests::downloads(cluster) {
        part(&format!("manifest {}", download.id), &format!("{} {:?}", download.url, download.headers));
    }
    for inline in manifests::inline(cluster) {
        part(&format!("manifest {}", inline.id), &inline.text);
    }
    text
}

#[test]
fn every_version_is_as_its_golden_file() {
    for (version, etcd, form) in VERSIONS {
        let config = configuration(form, version, etcd);
        let text = everything(&Cluster::new(&config).unwrap());
        let path = data(&format!("rendered/{form}-{version}.txt"));
        if std::env::var_os("BILLET_BLESS").is_some() {
            std::fs::write(&path, &text).unwrap();
        }
        let golden = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(text == golden, "{} differs; BILLET_BLESS=1 writes it anew", path.display());
    }
}

/// Files are YAML that says what was rendered: nothing is lost in writing.
#[test]
fn what_is_written_is_read_back() {
    let config = configuration("current", "v1.34.10", "v3.6.4");
    let cluster = Cluster::new(&config).unwrap();
    let objects = manifests::rendered(&cluster).unwrap().into_iter().flat_map(|manifest| manifest.objects);
    let pod = api_server::pod(&cluster, &node(), &rendered()).unwrap().1;
    for object in objects.chain([pod]) {
        let text = yaml("an object", &object).unwrap();
        let read: serde_json::Value = serde_saphyr::from_str(&text).unwrap();
        assert_eq!(read, object, "{text}");
    }
}

/// Names of arguments that a program of this version accepts, from its own help.
fn accepted(program: &str, version: &str) -> Option<BTreeSet<String>> {
    let text = std::fs::read_to_string(data(&format!("flags/{program}-{version}.txt"))).ok()?;
    Some(text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect())
}

#[test]
fn programs_accept_every_argument() {
    let mut compared = 0;
    for (version, etcd, form) in VERSIONS {
        let config = configuration(form, version, etcd);
        let cluster = Cluster::new(&config).unwrap();
        let all = [
            ("kube-apiserver", api_server::arguments(&cluster, &node()).unwrap()),
            ("kube-controller-manager", controller_manager::arguments(&cluster).unwrap()),
            ("kube-scheduler", scheduler::arguments(&cluster).unwrap()),
            ("kubelet", kubelet::arguments(&cluster, &node()).unwrap()),
            ("kube-proxy", manifests::proxy_arguments(&cluster).unwrap()),
        ];
        for (program, arguments) in all {
            let Some(accepted) = accepted(program, version) else { continue };
            let foreign: Vec<_> = arguments.names().filter(|name| !accepted.contains(*name)).collect();
            assert!(foreign.is_empty(), "{program} {version} does not accept {foreign:?}");
            compared += 1;
        }
    }
    assert!(compared > 0, "no list of arguments in testdata/flags");
}

#[test]
fn containerd_takes_the_pause_image_that_images_lists() {
    let settings = include_str!("../../../rootfs-overlay/etc/cri/containerd.toml");
    let line = format!("sandbox_image = \"{}\"", kubernetes::images::pause());
    assert!(settings.lines().any(|found| found.trim() == line), "no line {line}");
}
