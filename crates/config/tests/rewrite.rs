//! Configurations in their other form: every kind of document that a section says too goes there and comes back.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use base64::{Engine, engine::general_purpose::STANDARD};
use config::{
    Document, Loaded, Mode, load,
    rewrite::{Form, Kept, RewriteError, rewrite},
};
use std::{collections::BTreeSet, fs};

const PEM: &str = "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n";
const KEY: &str = "-----BEGIN EC PRIVATE KEY-----\nMAA=\n-----END EC PRIVATE KEY-----\n";
/// A base64 of 32 bytes.
const KEY_32: &str = "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LXNlY3I=";

/// One document of each kind that a section says too, with nothing that only a document says.
const SAMPLES: &[(&str, &str)] = &[
    (
        "UnattendedInstallConfig",
        "installer: {image: 'registry.example.org/installer:1'}\nprovisioning: {diskSelector: {match: 'disk.dev_path == \"/dev/vda\"'}, wipe: true}",
    ),
    ("HostnameConfig", "hostname: one"),
    (
        "ResolverConfig",
        "nameservers: [{address: 10.0.0.3}]\nsearchDomains: {domains: [a.example], disableDefault: true}\nhostDNS: {enabled: true}",
    ),
    ("StaticHostConfig", "name: 10.0.0.9\nhostnames: [nine, neuf]"),
    (
        "LinkConfig",
        "name: eth0\nmtu: 9000\naddresses: [{address: 10.0.0.2/8}]\nroutes: [{destination: 10.9.0.0/16, gateway: 10.0.0.3, metric: 7}]",
    ),
    ("KubeSpanConfig", "enabled: false\nmtu: 1400\nfilters: {endpoints: [0.0.0.0/0]}"),
    ("TimeSyncConfig", "enabled: false\nbootTimeout: 1m0s\nntp: {servers: [time.example.org]}"),
    ("EnvironmentConfig", "variables: {NAME: value}"),
    (
        "RegistryMirrorConfig",
        "name: r.example\nendpoints: [{url: 'https://m.example', overridePath: true}]\nskipFallback: true",
    ),
    ("RegistryAuthConfig", "name: m.example\nusername: me\npassword: hidden-word"),
    (
        "RegistryTLSConfig",
        "name: m.example\nclientIdentity: {cert: PEM, key: KEY}\nca: PEM\ninsecureSkipVerify: true",
    ),
    ("VolumeConfig", "name: STATE\nencryption: {provider: luks2, keys: [{slot: 1, nodeID: {}}]}"),
    ("SysctlConfig", "params: {a.b: '1'}"),
    ("SysfsConfig", "params: {c.d: '2'}"),
    ("KernelModuleConfig", "name: m\nparameters: [p=1]"),
    ("UdevRulesConfig", "rules: ['KERNEL==\"a\"']"),
    ("CRICustomizationConfig", "name: metrics\ncontent: '[metrics]'"),
    ("CRIBaseRuntimeSpecConfig", "overrides: {process: {rlimits: [1, '2', no]}}"),
    ("ImageCacheConfig", "local: {enabled: true}"),
    (
        "KubeNodeConfig",
        "registerWithFQDN: true\nlabels: {zone: a}\ntaints: {node-role.kubernetes.io/control-plane: ':NoSchedule', a: 'b:NoSchedule'}",
    ),
    ("KubeClusterConfig", "clusterName: demo\nendpoint: https://demo.example.org:6443"),
    ("KubeFlannelCNIConfig", "extraArgs: [--iface=eth0]\nkubeNetworkPoliciesEnabled: true"),
    (
        "KubeNetworkConfig",
        "dnsDomain: cluster.local\npodSubnets: [10.1.0.0/16]\nserviceSubnets: [10.64.0.0/12]",
    ),
    (
        "KubeletConfig",
        "image: registry.example.org/kubelet:v1.36.3\nconfig: {serverTLSBootstrap: true}\nextraArgs: {v: ['1', '2']}\nclusterDNS: [10.2.0.10]\ndefaultRuntimeSeccompProfileEnabled: true",
    ),
    ("KubeCredentialProviderConfig", "configuration: {providers: [{name: a}]}"),
    ("KubeStaticPodConfig", "name: nginx\npod: {kind: Pod, metadata: {name: nginx}, spec: {containers: []}}"),
    ("KubePrismConfig", "port: 7445"),
    ("KubeTalosAPIAccessConfig", "allowedRoles: ['os:reader']\nallowedKubernetesNamespaces: [kube-system]"),
    ("KubeAPIServerCAConfig", "issuingCA: {cert: PEM, key: KEY}\nacceptedCAs: [PEM]"),
    ("KubeAggregatorCAConfig", "issuingCA: {cert: PEM, key: KEY}"),
    ("KubeServiceAccountConfig", "issuer: {privateKey: KEY, issuerURL: 'https://demo.example.org:6443'}"),
    (
        "KubeAPIServerConfig",
        "image: registry.example.org/kube-apiserver:v1.36.3\nextraArgs: {v: '2'}\nenv: {A: b}\nresources: {limits: {cpu: 1m}}\napiPort: 6444\ncertExtraSANs: [demo.example.org]",
    ),
    ("KubeAdmissionControlConfig", "name: PodSecurity\nconfiguration: {kind: PodSecurityConfiguration}"),
    ("KubeAuditPolicyConfig", "configuration: {rules: [{level: Metadata}]}"),
    ("KubeAuthorizerConfig", "name: webhook\ntype: Webhook\nwebhook: {timeout: 3s}"),
    (
        "KubeControllerManagerConfig",
        "enabled: false\nimage: registry.example.org/kube-controller-manager:v1.36.3\nextraArgs: {v: '2'}\nenv: {A: b}",
    ),
    (
        "KubeSchedulerConfig",
        "image: registry.example.org/kube-scheduler:v1.36.3\nconfig: {profiles: []}\nresources: {requests: {cpu: 1m}}",
    ),
    ("KubeProxyConfig", "enabled: false\nimage: registry.example.org/kube-proxy:v1.36.3\nmode: nftables"),
    ("KubeCoreDNSConfig", "enabled: false\nimage: registry.example.org/coredns:v1.14.6"),
    ("KubeInlineManifestConfig", "name: ns\nmanifest: 'kind: Namespace'"),
    (
        "KubeExternalManifestConfig",
        "name: manifest-1\nurl: https://example.org/extra.yaml\nheaders: {Accept: text/yaml}",
    ),
    ("DiscoveryIdentityConfig", "clusterID: KEY_32\nclusterSecret: KEY_32"),
    ("DiscoveryServiceConfig", "name: default\nendpoint: https://discovery.example.org/"),
];

/// What a document says that no section does: it stays, and the remark names the field.
const BEYOND: &[(&str, &str, &str)] = &[
    (
        "ResolverConfig",
        "nameservers: [{address: 10.0.0.3, protocol: DoT}]\nhostDNS: {enabled: true}",
        "nameservers.protocol",
    ),
    (
        "ResolverConfig",
        "nameservers: [{address: 10.0.0.3, tlsServerName: a.example}]",
        "nameservers.tlsServerName",
    ),
    ("LinkConfig", "name: eth0\nup: false", "up"),
    ("LinkConfig", "name: eth0\nmulticast: true", "multicast"),
    (
        "LinkConfig",
        "name: eth0\naddresses: [{address: 10.0.0.2/8, routePriority: 1}]",
        "addresses.routePriority",
    ),
    ("LinkConfig", "name: eth0\nroutes: [{gateway: 10.0.0.3, table: main}]", "routes.table"),
    ("LinkConfig", "name: eth0\nroutes: [{gateway: 10.0.0.3, type: blackhole}]", "routes.type"),
    ("TimeSyncConfig", "ptp: {devices: [/dev/ptp0]}", "ptp"),
    ("TimeSyncConfig", "ntp: {servers: [a.example], useNTS: true}", "ntp.useNTS"),
    (
        "RegistryMirrorConfig",
        "name: r.example\nendpoints: [{url: 'https://a.example', overridePath: true}, {url: 'https://b.example'}]",
        "endpoints.overridePath of some",
    ),
    (
        "UnattendedInstallConfig",
        "reboot: false\nprovisioning: {diskSelector: {match: 'disk.dev_path == \"/dev/vda\"'}}",
        "reboot",
    ),
    (
        "UnattendedInstallConfig",
        "provisioning: {diskSelector: {match: disk.rotational}}",
        "provisioning.diskSelector",
    ),
    (
        "KubeNetworkConfig",
        "podSubnets: [10.1.0.0/16]\nserviceSubnets: [10.64.0.0/12]\nnodeCIDRMaskSizeIPv4: 25",
        "nodeCIDRMaskSizeIPv4",
    ),
    (
        "KubeNetworkConfig",
        "podSubnets: [10.1.0.0/16]\nserviceSubnets: [10.64.0.0/12]\nnodeCIDRMaskSizeIPv6: 80",
        "nodeCIDRMaskSizeIPv6",
    ),
    ("KubeFlannelCNIConfig", "backendType: vxlan", "backendType"),
    ("KubeFlannelCNIConfig", "backendPort: 4789", "backendPort"),
    ("KubeFlannelCNIConfig", "backendMTU: 1400", "backendMTU"),
    ("KubeFlannelCNIConfig", "backendExtraConfig: {DirectRouting: true}", "backendExtraConfig"),
    ("KubeFlannelCNIConfig", "resources: {limits: {cpu: 1m}}", "resources"),
    ("KubeNodeConfig", "taints: {node-role.kubernetes.io/control-plane: ':NoExecute'}", "taints"),
    ("KubePrismConfig", "port: 7445\ntlsServerName: a.example", "tlsServerName"),
    ("KubeAggregatorCAConfig", "issuingCA: {cert: PEM, key: KEY}\nacceptedCAs: [PEM]", "acceptedCAs"),
    (
        "KubeServiceAccountConfig",
        "issuer: {privateKey: KEY, issuerURL: 'https://other.example.org'}",
        "issuer.issuerURL",
    ),
    (
        "KubeServiceAccountConfig",
        "issuer: {privateKey: KEY, issuerURL: 'https://demo.example.org:6443'}\naccepted: {audiences: [a]}",
        "accepted",
    ),
    ("KubeEtcdEncryptionConfig", "config: {resources: []}", "config"),
    ("KubeAuthenticationConfig", "configuration: {jwt: []}", "configuration"),
    ("KubeAPIServerConfig", "image: i\nstartupProbes: true", "startupProbes"),
    ("KubeProxyConfig", "image: i\nconfig: {a: b}", "config"),
    ("KubeProxyConfig", "image: i\nresources: {limits: {cpu: 1m}}", "resources"),
];

fn filled(body: &str) -> String {
    let quoted = |pem: &str| format!("{pem:?}");
    body.replace("KEY_32", KEY_32)
        .replace("PEM", &quoted(PEM))
        .replace("KEY}", &format!("{}}}", quoted(KEY)))
        .replace("privateKey: KEY", &format!("privateKey: {}", quoted(KEY)))
}

/// The v1alpha1 document of a control plane node that documents describe.
fn base() -> String {
    let (pem, key) = (STANDARD.encode(PEM), STANDARD.encode(KEY));
    format!(
        "version: v1alpha1\npersist: true\nmachine: {{type: controlplane, token: a.b, ca: {{crt: {pem}, key: {key}}}}}\ncluster: {{token: c.d}}\n"
    )
}

/// A document of `kind` beside what makes any configuration valid.
fn stream(kind: &str, body: &str) -> String {
    let cluster = "clusterName: demo\nendpoint: https://demo.example.org:6443";
    let mut text = base();
    for (kind, body) in
        [("KubeClusterConfig", cluster), (kind, body)].iter().skip(usize::from(kind == "KubeClusterConfig"))
    {
        text.push_str(&format!("---\napiVersion: v1alpha1\nkind: {kind}\n{}\n", filled(body)));
    }
    text
}

fn read(text: &str) -> Loaded {
    let loaded = load(text.as_bytes()).unwrap_or_else(|error| panic!("{error}\n{text}"));
    loaded.validate(Mode::Cloud).unwrap_or_else(|error| panic!("{error}\n{text}"));
    loaded
}

fn rewritten(text: &str, form: Form) -> (String, Vec<Kept>) {
    let result = rewrite(text.as_bytes(), form).unwrap_or_else(|error| panic!("{error}\n{text}"));
    (result.text.expose_secret().to_owned(), result.kept)
}

fn of_kind(loaded: &Loaded, kind: &str) -> Vec<Document> {
    loaded.documents.iter().filter(|document| document.kind() == kind).cloned().collect()
}

/// The kinds that change what the v1alpha1 document says, found with every field of each.
fn folding() -> BTreeSet<&'static str> {
    let all = common::Maker::new(false, None).stream();
    let first = "version: v1alpha1\nmachine: {type: controlplane}\n";
    let plain = load(first.as_bytes()).unwrap().config;
    let changes = |kind: &str| {
        let document = all.split("---\n").find(|part| part.contains(&format!("kind: {kind}\n"))).unwrap();
        load(format!("{first}---\n{document}").as_bytes()).unwrap().config != plain
    };
    // The example of a volume is none of the two that have a section.
    let kinds = Document::KINDS.iter().map(|(kind, _)| *kind);
    kinds.filter(|kind| *kind == "VolumeConfig" || changes(kind)).collect()
}

#[test]
fn every_document_that_folds_can_be_rewritten_or_says_why_not() {
    let with_sample: BTreeSet<_> = SAMPLES.iter().map(|(kind, _)| *kind).collect();
    let with_reason: BTreeSet<_> = BEYOND.iter().map(|(kind, ..)| *kind).collect();
    let folding = folding();
    assert!(folding.len() > 40, "{folding:?}");
    let missing: Vec<_> =
        folding.iter().filter(|kind| !with_sample.contains(*kind) && !with_reason.contains(*kind)).collect();
    assert!(
        missing.is_empty(),
        "write the other direction in documents/unfold.rs, and a sample here: {missing:?}"
    );
    let idle: Vec<_> = with_sample.difference(&folding).collect();
    assert!(idle.is_empty(), "{idle:?} do not fold");
}

#[test]
fn each_kind_becomes_a_section_and_comes_back() {
    for (kind, body) in SAMPLES {
        let text = stream(kind, body);
        let first = read(&text);
        let (section, kept) = rewritten(&text, Form::V1alpha1);
        assert!(kept.is_empty(), "{kind}: {kept:?}");
        let middle = read(&section);
        assert!(middle.documents.is_empty(), "{kind} stayed:\n{section}");
        let (back, _) = rewritten(&section, Form::Documents);
        let last = read(&back);
        assert!(of_kind(&first, kind) == of_kind(&last, kind), "{kind}:\n{text}\n{section}\n{back}");
    }
}

#[test]
fn all_kinds_together_go_and_come_back() {
    let mut text = base();
    for (kind, body) in SAMPLES {
        text.push_str(&format!("---\napiVersion: v1alpha1\nkind: {kind}\n{}\n", filled(body)));
    }
    let first = read(&text);
    let (section, kept) = rewritten(&text, Form::V1alpha1);
    assert!(kept.is_empty() && read(&section).documents.is_empty(), "{kept:?}");
    let (back, kept) = rewritten(&section, Form::Documents);
    assert!(kept.is_empty(), "{kept:?}");
    let last = read(&back);
    assert!(first.documents.len() == last.documents.len() && first.config == last.config, "{back}");
    for (kind, _) in SAMPLES {
        assert!(of_kind(&first, kind) == of_kind(&last, kind), "{kind}");
    }
}

#[test]
fn what_only_a_document_says_stays_and_is_named() {
    for (kind, body, field) in BEYOND {
        let text = stream(kind, body);
        let (section, kept) = rewritten(&text, Form::V1alpha1);
        let [one] = kept.as_slice() else { panic!("{kind}: {kept:?}") };
        assert!(one.what.starts_with(kind) && one.reason == format!("no section says {field}"), "{one}");
        assert!(of_kind(&read(&section), kind) == of_kind(&read(&text), kind), "{section}");
    }
}

#[test]
fn documents_that_share_a_field_stay_where_they_differ() {
    let two = "name: a\nurl: https://a.example/\nheaders: {A: b}\n---\napiVersion: v1alpha1\nkind: KubeExternalManifestConfig\nname: b\nurl: https://b.example/";
    let (_, kept) = rewritten(&stream("KubeExternalManifestConfig", two), Form::V1alpha1);
    assert_eq!(kept.len(), 2, "{kept:?}");
    assert!(kept.iter().all(|one| one.reason.contains("headers of its own")), "{kept:?}");
    let two = "name: a\nendpoint: https://a.example/\n---\napiVersion: v1alpha1\nkind: DiscoveryServiceConfig\nname: b\nendpoint: https://b.example/";
    let (_, kept) = rewritten(&stream("DiscoveryServiceConfig", two), Form::V1alpha1);
    assert!(kept.len() == 2 && kept.iter().all(|one| one.reason.contains("a second server")), "{kept:?}");
}

#[test]
fn a_volume_is_parted_between_section_and_document() {
    let body =
        "name: STATE\nencryption: {provider: luks2, keys: [{slot: 1, nodeID: {}}]}\nmount: {secure: true}";
    let (section, kept) = rewritten(&stream("VolumeConfig", body), Form::V1alpha1);
    assert_eq!(kept.iter().map(|one| one.what.as_str()).collect::<Vec<_>>(), ["VolumeConfig STATE"]);
    let loaded = read(&section);
    assert!(section.contains("systemDiskEncryption") && loaded.documents.len() == 1, "{section}");
    let (back, _) = rewritten(&section, Form::Documents);
    assert_eq!(back.matches("kind: VolumeConfig").count(), 1, "{back}");
    assert!(back.contains("encryption:") && back.contains("secure: true"), "{back}");
}

#[test]
fn documents_without_a_section_stay_as_they_were_written() {
    let text = stream("EtcFileConfig", "name: nfsmount.conf\nmode: 0600\ncontents: 'a'");
    let (section, kept) = rewritten(&text, Form::V1alpha1);
    let said: Vec<_> = kept.iter().map(ToString::to_string).collect();
    assert_eq!(said, ["EtcFileConfig nfsmount.conf stays: no section says this"]);
    assert!(section.contains("mode: 0600"), "{section}");
}

/// A v1alpha1 document with what no document says.
const LEFT: &str = "\
machine:
    type: worker
    token: a.b
    ca: {crt: PEM64}
    kubelet:
        image: i
        disableManifestsDirectory: true
        extraMounts: [{destination: /a, type: bind, source: /a}]
    network:
        interfaces:
            - interface: eth1
              dhcp: true
            - interface: eth0
              cidr: 10.0.0.1/8
    install:
        disk: /dev/disk/by-id/a
        extraKernelArgs: [a=b]
    files:
        - path: /var/a
          permissions: 0600
          content: hidden-word
cluster:
    clusterName: demo
    controlPlane: {endpoint: 'https://demo.example.org:6443'}
    secretboxEncryptionSecret: KEY_32
version: v1alpha1
";

#[test]
fn what_only_a_section_says_stays_with_its_order_and_spelling() {
    let text = LEFT.replace("PEM64", &STANDARD.encode(PEM)).replace("KEY_32", KEY_32);
    let (documents, kept) = rewritten(&text, Form::Documents);
    let what: Vec<_> = kept.iter().map(|one| one.what.as_str()).collect();
    assert_eq!(
        what,
        [
            "machine.kubelet.extraMounts",
            "machine.network.interfaces",
            "machine.install.disk",
            "machine.install.extraKernelArgs",
            "machine.files",
            "cluster.secretboxEncryptionSecret",
        ]
    );
    assert!(kept.iter().all(|one| one.reason != "no document has it"), "{kept:?}");
    let loaded = read(&documents);
    let kinds: Vec<_> = loaded.documents.iter().map(Document::kind).collect();
    assert_eq!(kinds, ["LinkConfig", "KubeClusterConfig", "KubeletConfig"]);
    assert!(documents.contains("permissions: 0600\n"), "{documents}");
    let order = ["machine:", "cluster:", "version:"].map(|key| documents.find(key).unwrap());
    assert!(order.is_sorted(), "{documents}");
}

#[test]
fn a_field_that_no_document_has_is_named_with_its_reason() {
    for (field, reason) in [
        ("machine: {disks: [{device: /dev/sdb}]}", "machine.disks"),
        ("machine: {install: {diskSelector: {model: a}}}", "machine.install.diskSelector"),
        ("machine: {install: {image: a}}", "machine.install.image"),
        ("machine: {install: {wipe: true}}", "machine.install.wipe"),
        ("machine: {features: {rbac: true}}", "machine.features.rbac"),
        ("machine: {features: {apidCheckExtKeyUsage: true}}", "machine.features.apidCheckExtKeyUsage"),
        ("machine: {kubelet: {extraArgs: {v: '1'}}}", "machine.kubelet.extraArgs"),
        ("machine: {controlPlane: {scheduler: {disabled: true}}}", "machine.controlPlane"),
        ("cluster: {network: {cni: {name: custom, urls: ['https://a.example']}}}", "cluster.network.cni"),
        ("cluster: {aescbcEncryptionSecret: KEY_32}", "cluster.aescbcEncryptionSecret"),
        ("cluster: {serviceAccount: {key: KEY64}}", ""),
        (
            "cluster: {apiServer: {image: i, extraVolumes: [{hostPath: /a, mountPath: /a}]}}",
            "cluster.apiServer.extraVolumes",
        ),
        (
            "cluster: {apiServer: {image: i, disablePodSecurityPolicy: true}}",
            "cluster.apiServer.disablePodSecurityPolicy",
        ),
        (
            "cluster: {apiServer: {image: i, authorizationConfig: [{type: AlwaysAllow, name: a}]}}",
            "cluster.apiServer.authorizationConfig",
        ),
        ("cluster: {apiServer: {certSANs: [a]}}", "cluster.apiServer.certSANs"),
        ("cluster: {controllerManager: {extraArgs: {v: '1'}}}", "cluster.controllerManager"),
        ("cluster: {scheduler: {extraArgs: {v: '1'}}}", "cluster.scheduler"),
        ("cluster: {proxy: {mode: ipvs}}", "cluster.proxy"),
        ("cluster: {discovery: {enabled: true, registries: {service: {}}}}", "cluster.discovery"),
        ("cluster: {podCheckpointer: {image: a}}", "cluster.podCheckpointer"),
        ("cluster: {extraManifestHeaders: {A: b}}", "cluster.extraManifestHeaders"),
        ("cluster: {id: KEY_32}", "cluster.id"),
        ("machine: {network: {hostname: a}, features: {stableHostname: true}}", ""),
        ("cluster: {discovery: {enabled: false}}", ""),
        ("cluster: {etcd: {subnet: 10.0.0.0/8}}", ""),
        ("machine: {logging: {destinations: [{endpoint: 'tcp://1.2.3.4:1', format: json_lines}]}}", ""),
    ] {
        let (pem, key) = (STANDARD.encode(PEM), STANDARD.encode(KEY));
        let base = format!(
            "version: v1alpha1\nmachine: {{type: controlplane, token: a.b, ca: {{crt: {pem}, key: {key}}}}}\ncluster: {{clusterName: demo, controlPlane: {{endpoint: 'https://demo.example.org:6443'}}}}\n"
        );
        let field = field.replace("KEY_32", KEY_32).replace("KEY64", &key);
        let text = config::patch::apply(&base, &config::patch::load_patches(&field).unwrap()).unwrap();
        let (_, kept) = rewritten(&text, Form::Documents);
        assert!(kept.iter().all(|one| one.reason != "no document has it"), "{field}: {kept:?}");
        match reason {
            "" => assert!(kept.is_empty(), "{field}: {kept:?}"),
            path => assert!(kept.iter().any(|one| one.what == path), "{field}: {kept:?}"),
        }
    }
}

#[test]
fn secrets_are_kept_and_in_no_message() {
    let words = ["hidden-word", "a.b", "c.d", KEY_32];
    let mut text = base();
    for (kind, body) in SAMPLES {
        text.push_str(&format!("---\napiVersion: v1alpha1\nkind: {kind}\n{}\n", filled(body)));
    }
    for form in [Form::V1alpha1, Form::Documents] {
        let (result, kept) = rewritten(&text, form);
        assert!(words.iter().all(|word| result.contains(word)), "{form:?}");
        let key = STANDARD.encode(KEY);
        assert!(result.contains(&key), "the key of machine.ca is lost");
        let said: String = kept.iter().map(ToString::to_string).collect();
        assert!(!words.iter().chain([&key.as_str()]).any(|word| said.contains(*word)), "{said}");
    }
    let refused = text.replace("username: me\n", "");
    let Err(error) = rewrite(refused.as_bytes(), Form::V1alpha1) else { panic!("it is refused") };
    assert!(matches!(error, RewriteError::Refused(_)));
    assert!(!words.iter().any(|word| error.to_string().contains(word)), "{error}");
}

#[test]
fn a_config_in_its_form_stays_in_it() {
    for form in [Form::V1alpha1, Form::Documents] {
        let mut text = base();
        for (kind, body) in SAMPLES {
            text.push_str(&format!("---\napiVersion: v1alpha1\nkind: {kind}\n{}\n", filled(body)));
        }
        let (once, _) = rewritten(&text, form);
        let (twice, _) = rewritten(&once, form);
        assert!(once == twice, "{form:?}:\n{once}\n{twice}");
    }
}

/// What the guides configure, laid over a configuration that a node takes.
#[test]
fn the_guides_mean_the_same_in_either_form() {
    let (pem, key) = (STANDARD.encode(PEM), STANDARD.encode(KEY));
    let base = format!(
        "version: v1alpha1\nmachine: {{type: controlplane, token: a.b, ca: {{crt: {pem}, key: {key}}}}}\ncluster: {{clusterName: demo, controlPlane: {{endpoint: 'https://demo.example.org:6443'}}}}\n"
    );
    let mut done = Vec::new();
    for entry in fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/guides")).unwrap() {
        let path = entry.unwrap().path();
        let Ok(patches) = config::patch::load_patches(&fs::read_to_string(&path).unwrap()) else { continue };
        let Ok(text) = config::patch::apply(&base, &patches) else { continue };
        let accepted = load(text.as_bytes()).is_ok_and(|loaded| loaded.validate(Mode::Cloud).is_ok());
        if !accepted {
            continue;
        }
        // Each result is compared with its input inside; what it says of itself is compared here.
        let (documents, kept) = rewritten(&text, Form::Documents);
        assert!(kept.iter().all(|one| one.reason != "no document has it"), "{}: {kept:?}", path.display());
        let (section, kept) = rewritten(&documents, Form::V1alpha1);
        assert!(kept.is_empty() && read(&section).documents.is_empty(), "{}: {kept:?}", path.display());
        done.push(path);
    }
    assert!(done.len() > 5, "{done:?}");
}
