//! A config as clients of v1.14 generate it: who the machine is in the v1alpha1 document, all else in documents.

use std::time::Duration;

use api::pki::{Authority, CA_LIFETIME, Lifetime};
use qemu_tests::TestNode;
use qemu_tests::credentials::Credentials;

/// A change that takes effect at once, on the reference machine.
const STEP_LIMIT: Duration = Duration::from_secs(20);

/// A PEM text below a key, indented.
fn indented(pem: &str) -> String {
    pem.lines().map(|line| format!("    {line}\n")).collect()
}

fn config(credentials: &Credentials) -> String {
    let ca = |kind: &str| {
        let authority = Authority::generate(kind, Lifetime::from_now(CA_LIFETIME)).unwrap();
        let (certificate, key) =
            (indented(authority.certificate()), indented(authority.key().expose_secret()));
        format!(
            "---\napiVersion: v1alpha1\nkind: {kind}\nissuingCA:\n  cert: |\n{certificate}  key: |\n{key}"
        )
    };
    format!(
        "version: v1alpha1\npersist: true\nmachine:\n  type: controlplane\n  token: abcdef.0123456789abcdef\n  \
         ca: {}\n  certSANs: [127.0.0.1, localhost]\ncluster:\n  token: ghijkl.0123456789abcdef\n\
         {}{}{}{}{DOCUMENTS}",
        credentials.machine_ca(),
        ca("KubeAPIServerCAConfig"),
        ca("KubeAggregatorCAConfig"),
        service_account(),
        generated(),
    )
}

/// What signs the tokens of service accounts.
fn service_account() -> String {
    let key = Authority::generate("tokens", Lifetime::from_now(CA_LIFETIME)).unwrap();
    format!(
        "---\napiVersion: v1alpha1\nkind: KubeServiceAccountConfig\nissuer:\n  issuerURL: https://10.0.2.15:6443\n  privateKey: |\n{}",
        indented(key.key().expose_secret())
    )
}

/// What a generated config has, with values of this machine.
fn generated() -> String {
    let mut text = [COMMON, CONTROL_PLANE].concat();
    for (theirs, ours) in [
        ("auto: stable\n", "auto: off\nhostname: of-documents\n"),
        ("https://demo.example.org:6443", "https://10.0.2.15:6443"),
        ("/dev/vda", "/dev/none"),
        ("hostDNS:\n", "searchDomains: {domains: [documents.example]}\nhostDNS:\n"),
        ("\"65535\"", "\"4321\""),
    ] {
        assert!(text.contains(theirs), "{theirs}");
        text = text.replace(theirs, ours);
    }
    text
}

const COMMON: &str = include_str!("../../../crates/config/testdata/generated-common.yaml");
const CONTROL_PLANE: &str = include_str!("../../../crates/config/testdata/generated-control-plane.yaml");

/// What people add.
const DOCUMENTS: &str = r#"---
apiVersion: v1alpha1
kind: KernelModuleConfig
name: dummy
parameters: [numdummies=2]
---
apiVersion: v1alpha1
kind: UdevRulesConfig
rules:
  - 'SUBSYSTEM=="mem", KERNEL=="zero", MODE="0640"'
---
apiVersion: v1alpha1
kind: CRICustomizationConfig
name: metrics
content: |
  [metrics]
    address = "127.0.0.1:11234"
---
apiVersion: v1alpha1
kind: EnvironmentConfig
variables:
  BILLET_TEST: of-documents
---
apiVersion: v1alpha1
kind: RegistryMirrorConfig
name: '*'
endpoints:
  - url: http://10.5.0.1:6000
---
apiVersion: v1alpha1
kind: TCPProbeConfig
name: own-api
endpoint: 127.0.0.1:50000
---
apiVersion: v1alpha1
kind: StaticHostConfig
name: 192.0.2.7
hostnames: [far.example]
---
apiVersion: v1alpha1
kind: ImageVerificationConfig
rules: [{image: "registry.example.org/*", skip: true}]
---
apiVersion: v1alpha1
kind: NetworkDefaultActionConfig
ingress: block
---
apiVersion: v1alpha1
kind: NetworkRuleConfig
name: kubelet
portSelector: {ports: [10250], protocol: tcp}
ingress: [{subnet: 192.168.0.0/16, except: 192.168.0.3/32}]
---
apiVersion: v1alpha1
kind: NetworkRuleConfig
name: test-agent
portSelector: {ports: [50099], protocol: tcp}
ingress: [{subnet: 10.0.2.0/24}]
---
apiVersion: v1alpha1
kind: LinkAliasConfig
name: net0
selector:
  match: link.driver == "virtio_net" && glob("0000:00:*", link.bus_path)
---
apiVersion: v1alpha1
kind: VLANConfig
name: net0.vlan
vlanID: 100
parent: net0
"#;

/// A file that the image does not have, in a directory that it does not have, and one of its own.
const IN_ETC: &str = "apiVersion: v1alpha1\nkind: EtcFileConfig\nname: billet-test/new.conf\nmode: 0640\ncontents: new\n---\n\
                      apiVersion: v1alpha1\nkind: EtcFileConfig\nname: nsswitch.conf\ncontents: ours\n";

fn prints(node: &TestNode, words: &[&str], wanted: &[&str]) {
    node.prints(words, wanted, STEP_LIMIT).unwrap();
}

#[test]
fn a_config_of_documents_boots_a_node_and_its_commands_work() {
    let credentials = Credentials::generate().unwrap();
    let text = config(&credentials);
    let node = TestNode::builder("documents").credentials(credentials).config(&text).boot().unwrap();
    node.wait_services().unwrap();
    prints(&node, &["get", "hostname"], &["of-documents"]);
    prints(&node, &["read", "/proc/sys/net/core/somaxconn"], &["4321"]);
    prints(&node, &["get", "kernelmodulespecs"], &["dummy"]);
    prints(&node, &["read", "/proc/modules"], &["dummy "]);
    prints(&node, &["ls", "-l", "/dev"], &["crw-r-----", "zero"]);
    prints(&node, &["read", "/var/cri/conf.d/metrics.toml"], &["127.0.0.1:11234"]);
    prints(&node, &["read", "/var/etc/cri/hosts/_default/hosts.toml"], &["http://10.5.0.1:6000"]);
    // The node's own resolver listens, and knows whom to ask.
    prints(&node, &["read", "/etc/resolv.conf"], &["nameserver 127.0.0.53", "documents.example"]);
    prints(&node, &["read", "/system/resolved/resolv.conf"], &["nameserver 169.254.116.108"]);
    prints(&node, &["get", "dnsupstreams"], &["10.0.2.3:53"]);
    prints(&node, &["services"], &["dns-resolve-cache", "Running"]);
    prints(&node, &["get", "ethtool"], &["eth0"]);
    prints(&node, &["get", "links", "-o", "yaml"], &["driver: virtio_net", "permanentAddr: "]);
    prints(&node, &["get", "probes"], &["own-api", "true"]);
    prints(&node, &["read", "/etc/hosts"], &["192.0.2.7", "far.example"]);
    let processes = node.agent().unwrap().processes().unwrap();
    let containerd = processes.iter().find(|process| process.name == "containerd").unwrap();
    let environment = format!("/proc/{}/environ", containerd.pid);
    prints(&node, &["read", &environment], &["BILLET_TEST=of-documents"]);
    // The kernel took the firewall, and the API still answers.
    prints(&node, &["read", "/proc/modules"], &["nf_tables ", "nft_ct "]);
    let log = node.admin().ok(&["logs", "networkd"]).unwrap();
    assert!(!log.contains("firewall"), "{log}");
    // What has no effect yet is told by name.
    prints(&node, &["logs", "machined"], &["accepted, but without effect", "SecurityProfileConfig"]);
    prints(&node, &["get", "kubeprismconfigs", "-o", "yaml"], &["port: 7445"]);
    prints(&node, &["get", "kubeletconfigs", "-o", "yaml"], &["kubelet:v1.36.3"]);
    // A card has names that stay the same, and the one that the config gives it, by which other documents find it.
    prints(&node, &["get", "linkaliasspecs"], &["eth0", "net0"]);
    prints(&node, &["get", "links", "eth0", "-o", "yaml"], &["alias: net0", "- enp0s", "- enx"]);
    prints(&node, &["get", "links", "net0.vlan", "-o", "yaml"], &["kind: vlan", "vlanID: 100"]);
    prints(&node, &["get", "imageverificationrules"], &["registry.example.org/*"]);

    // A change of a document, by the way that people take.
    let patch = "apiVersion: v1alpha1\nkind: SysctlConfig\nparams: {net.core.somaxconn: '5432'}\n";
    node.admin().ok(&["patch", "mc", "--immediate", "-p", patch]).unwrap();
    prints(&node, &["read", "/proc/sys/net/core/somaxconn"], &["5432"]);
    prints(&node, &["get", "mc", "-o", "yaml"], &["kind: SysctlConfig", "5432", "kind: KubeClusterConfig"]);
    let section = "machine: {sysctls: {net.core.somaxconn: '1'}}";
    let refused = node.admin().refused(&["patch", "mc", "--immediate", "-p", section]).unwrap();
    assert!(refused.contains("SysctlConfig config is incompatible with v1alpha1 config"), "{refused}");
}

#[test]
#[ignore = "long run"]
fn a_new_file_below_etc_stands_beside_those_of_the_image() {
    let node = TestNode::builder("documents-etc").documents(IN_ETC).boot().unwrap();
    node.wait_services().unwrap();
    assert_eq!(node.admin().ok(&["read", "/etc/billet-test/new.conf"]).unwrap(), "new");
    assert_eq!(node.admin().ok(&["read", "/etc/nsswitch.conf"]).unwrap(), "ours");
    prints(&node, &["ls", "-l", "/etc/billet-test"], &["-rw-r-----", "new.conf"]);
    // What the image has is there, and what the node writes itself follows the network as before.
    prints(&node, &["read", "/etc/passwd"], &["root:"]);
    prints(&node, &["read", "/etc/resolv.conf"], &["nameserver 10.0.2.3"]);
    prints(&node, &["read", "/etc/hosts"], &[qemu_tests::credentials::HOSTNAME]);
    let mounts = node.admin().ok(&["get", "mounts"]).unwrap();
    assert!(mounts.contains("etc-files") && !mounts.contains("etc-view"), "{mounts}");
    prints(&node, &["get", "etcfilestatuses"], &["billet-test/new.conf", "hosts"]);
    prints(&node, &["get", "filestatuses"], &["etc/billet-test/new.conf", "0640"]);
}
