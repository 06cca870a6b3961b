//! Rules of the documents that v1.14 has beside v1.13's: a document, the field, the message.

/// Documents of the host and of Kubernetes that are refused.
pub(super) const DOCUMENTS: &[(&str, &str, &str)] = &[
    (
        "kind: ExtensionServiceConfig\nname: billet-etcd-snapshots\nenvironment: [KEEP=0]",
        "environment[0]",
        "KEEP: `0` is no number from 1 to 1000",
    ),
    (
        "kind: ExtensionServiceConfig\nname: billet-etcd-snapshots\nenvironment: ['TARGET=http://a/']",
        "environment[0]",
        "TARGET: http is not encrypted: whoever is on the way reads the cluster's secrets",
    ),
    (
        "kind: ExtensionServiceConfig\nname: billet-vrrp\nconfigFiles: [{content: a, mountPath: /b}]",
        "configFiles",
        "no file is read here; write settings as NAME=value into `environment`",
    ),
    (
        "kind: ExtensionServiceConfig\nname: billet-snapshots",
        "name",
        "`billet-snapshots` is no name of Billet's own settings: billet-etcd-snapshots, billet-vrrp or billet-vrrp-…; names of \
         extensions do not begin with `billet-`",
    ),
    ("kind: SysctlConfig\nparams: {a b: c}", "params.a b", "`a b` is not a name like net.ipv4.ip_forward"),
    ("kind: SysfsConfig\nparams: {../b: c}", "params.../b", "`../b` is not a name like net.ipv4.ip_forward"),
    ("kind: KernelModuleConfig\nname: a/b", "name", "`a/b` is not the name of a module"),
    (
        "kind: NetworkRuleConfig\nname: a\nportSelector: {protocol: udp}\ningress: []",
        "portSelector.ports",
        "missing; write the ports: [10250, 8000-9000]",
    ),
    (
        "kind: NetworkRuleConfig\nname: a\nportSelector: {ports: [9000-8000]}\ningress: []",
        "portSelector.ports[0]",
        "`9000-8000` is no port and no range: 1 to 65535, 8000-9000",
    ),
    (
        "kind: NetworkRuleConfig\nname: a\nportSelector: {protocol: icmp}\ningress: [{subnet: 10.0.0.0/8, except: x}]",
        "ingress[0].except",
        "`x` is not an address with prefix length: 10.0.0.2/24",
    ),
    (
        "kind: DHCPv4Config\nname: eth0\nclientIdentifier: duid",
        "duidRaw",
        "`clientIdentifier: duid` needs the DUID in hexadecimal, 00:01:ab",
    ),
    (
        "kind: DHCPv6Config\nname: eth0\nduidRaw: '00:1:ab'",
        "duidRaw",
        "`00:1:ab` is no DUID: 3 to 130 bytes in hexadecimal, 00:01:ab",
    ),
    ("kind: VethConfig\nname: a", "peer.name", "missing; write the name of the other link of the pair"),
    (
        "kind: VethConfig\nname: a\npeer: {name: a}",
        "peer.name",
        "`a` cannot be a pair with itself; write another name",
    ),
    (
        "kind: VethConfig\nname: a\npeer: {name: b, addresses: [{address: c}]}",
        "peer.addresses[0].address",
        "`c` is not an address with prefix length: 10.0.0.2/24",
    ),
    (
        "kind: DummyLinkConfig\nname: d0\nhardwareAddr: card",
        "hardwareAddr",
        "`card` is not a hardware address: 02:00:00:00:00:01",
    ),
    (
        "kind: LinkAliasConfig\nname: a/b\nselector: {match: 'true'}",
        "name",
        "`a/b` is not a link name: 1 to 15 bytes without `/`, blanks and `:`",
    ),
    ("kind: LinkAliasConfig\nname: net0", "selector.match", "at its end: a value is missing"),
    ("kind: VRFConfig\nname: v0", "table", "`` is no routing table: a number, default, main or local"),
    (
        "kind: KubeSpanConfig\nfilters: {excludeAdvertisedNetworks: [a]}",
        "filters.excludeAdvertisedNetworks[0]",
        "`a` is not an address with prefix length: 10.0.0.2/24",
    ),
    (
        "kind: BGPInstanceConfig\nname: a",
        "localASN",
        "missing; write the number of the autonomous system: 65001",
    ),
    (
        "kind: BGPInstanceConfig\nname: a\nlocalASN: 1\nimportRoutes: [{prefixes: [10.0.0.0/8]}]",
        "importRoutes[0].bgpInstance",
        "missing; write the name of the other instance",
    ),
    (
        "kind: BGPInstanceConfig\nname: a\nlocalASN: 1\nimportRoutes: [{bgpInstance: b}]",
        "importRoutes[0].prefixes",
        "missing; write the networks: [10.0.0.0/8]",
    ),
    ("kind: SideroLinkConfig\napiUrl: 'http://a'", "apiUrl", "it begins with neither https:// nor grpc://"),
    (
        "kind: PCIDriverRebindConfig\nname: '0000:04:00.00'",
        "targetDriver",
        "missing; write the driver's name: vfio-pci",
    ),
    (
        "kind: CRICustomizationConfig\nname: customization",
        "name",
        "name \"customization\" is reserved; choose another one",
    ),
    ("kind: CRICustomizationConfig\nname: a/b", "name", "`a/b` is not a name: letters, digits, `-` and `_`"),
    (
        "kind: EtcFileConfig\nname: hosts",
        "name",
        "the node writes /etc/hosts itself: add names with StaticHostConfig or machine.network.extraHostEntries",
    ),
    ("kind: EtcFileConfig\nname: ../b", "name", "`../b` is not the path of a file from /etc: nfsmount.conf"),
    (
        "kind: UnattendedInstallConfig\nprovisioning: {wipe: true}",
        "provisioning.diskSelector.match",
        "provisioning.diskSelector.match is required: `disk.dev_path == \"/dev/sda\"`",
    ),
    (
        "kind: UnattendedInstallConfig\nprovisioning: {diskSelector: {match: disk.dev_path}}",
        "provisioning.diskSelector.match",
        "disk selector is invalid: character 1, at `disk.dev_path`: the expression must be true or false, this is a text",
    ),
    (
        "kind: HTTPProbeConfig\nname: a\nurl: b",
        "url",
        "`b` is not an address: http://host:port or https://host",
    ),
    ("kind: KubeletConfig", "image", "missing; write the image: registry.example.org/kubelet:v1.36.3"),
    ("kind: KubeStaticPodConfig\nname: a", "pod", "missing; write what this KubeStaticPodConfig is about"),
    (
        "kind: KubeStaticPodConfig\nname: a\npod: {spec: {}}",
        "pod.metadata.name",
        "missing; write the pod's name",
    ),
    ("kind: KubeClusterConfig\nendpoint: 'http://a'", "clusterName", "missing; write the cluster's name"),
    (
        "kind: KubeClusterConfig\nclusterName: a\nendpoint: 'http://a'",
        "endpoint",
        "invalid controlplane endpoint: `http://a` does not begin with https://; write `https://a`",
    ),
    (
        "kind: KubeClusterConfig\nclusterName: a\nendpoint: 'https://b:6443'",
        "kind",
        "KubeClusterConfig config is incompatible with v1alpha1 config (.cluster.controlPlane.endpoint); keep one of both",
    ),
    ("kind: KubePrismConfig", "port", "missing; write a port from 1 to 65535: 7445"),
    ("kind: KubeAuthorizerConfig\nname: a", "type", "missing; one of Node, RBAC and Webhook"),
    (
        "kind: KubeExternalManifestConfig\nname: a\nurl: b",
        "url",
        "`b` is not an address: http://host:port or https://host",
    ),
    ("kind: KubeInlineManifestConfig\nname: a", "manifest", "missing; write the manifest as text"),
    ("kind: KubeAPIServerCAConfig", "acceptedCAs", "missing; write the PEM of the cluster's CA"),
    (
        "kind: KubeAPIServerCAConfig\nacceptedCAs: [a]",
        "acceptedCAs[0]",
        "it has no PEM of a certificate: -----BEGIN CERTIFICATE-----",
    ),
    (
        "kind: KubeAggregatorCAConfig\nissuingCA: {cert: a, key: '-----BEGIN EC PRIVATE KEY-----'}",
        "issuingCA.cert",
        "it has no PEM of a certificate: -----BEGIN CERTIFICATE-----",
    ),
    (
        "kind: KubeAggregatorCAConfig\nissuingCA: {cert: a, key: b}",
        "issuingCA.key",
        "not PEM of a private key; leave `issuingCA` out on a worker",
    ),
    ("kind: DiscoveryIdentityConfig\nclusterID: a", "clusterID", "clusterID and clusterSecret are needed"),
    (
        "kind: DiscoveryServiceConfig\nname: a\nendpoint: b",
        "endpoint",
        "`b` begins with none of https://, http:// and grpc://",
    ),
    (
        "kind: KubeNetworkConfig\nserviceSubnets: [10.0.0.0/8]",
        "podSubnets",
        "missing; at least one network is needed: [10.244.0.0/16]",
    ),
    (
        "kind: KubeNetworkConfig\npodSubnets: [10.0.0.0/8]\nserviceSubnets: [a]",
        "serviceSubnets[0]",
        "`a` is not an address with prefix length: 10.0.0.2/24",
    ),
    (
        "kind: KubeNetworkConfig\nnodeCIDRMaskSizeIPv4: 33",
        "nodeCIDRMaskSizeIPv4",
        "33 is no length of a prefix: 1 to 32",
    ),
    (
        "kind: KubeServiceAccountConfig",
        "issuer",
        "missing; write the key that signs tokens, and the issuer's URL",
    ),
    (
        "kind: KubeServiceAccountConfig\nissuer: {privateKey: a, issuerURL: 'https://a'}",
        "issuer.privateKey",
        "not PEM of a private key",
    ),
    (
        "kind: KubeServiceAccountConfig\nissuer: {issuerURL: b}",
        "issuer.issuerURL",
        "`b` is not an address: http://host:port or https://host",
    ),
    (
        "kind: KubeServiceAccountConfig\nissuer: {issuerURL: 'https://a'}\naccepted: {issuers: [b]}",
        "accepted.issuers[0]",
        "`b` is not an address: http://host:port or https://host",
    ),
];

/// A v1alpha1 document, a document that says the same, and the section that both have.
const CONFLICTS: &[(&str, &str, &str)] = &[
    ("machine: {sysctls: {a: '1'}}", "SysctlConfig\nparams: {a: '2'}", "machine.sysctls"),
    ("machine: {sysfs: {a: '1'}}", "SysfsConfig\nparams: {a: '2'}", "machine.sysfs"),
    (
        "machine: {kernel: {modules: [{name: a}]}}",
        "KernelModuleConfig\nname: a\nparameters: [b=c]",
        "machine.kernel.modules",
    ),
    (
        "machine: {files: [{path: /var/cri/conf.d/a.toml, content: b}]}",
        "CRICustomizationConfig\nname: a",
        "machine.files",
    ),
    (
        "machine: {baseRuntimeSpecOverrides: {a: b}}",
        "CRIBaseRuntimeSpecConfig\noverrides: {c: d}",
        "machine.baseRuntimeSpecOverrides",
    ),
    (
        "machine: {install: {disk: /dev/sda}}",
        "UnattendedInstallConfig\nprovisioning: {diskSelector: {match: disk.cdrom}}",
        "machine.install",
    ),
    (
        "machine: {features: {imageCache: {localEnabled: true}}}",
        "ImageCacheConfig",
        "machine.features.imageCache",
    ),
    (
        "machine: {features: {kubePrism: {enabled: false}}}",
        "KubePrismConfig\nport: 1",
        "machine.features.kubePrism",
    ),
    (
        "machine: {features: {kubernetesTalosAPIAccess: {enabled: false}}}",
        "KubeTalosAPIAccessConfig",
        "machine.features.kubernetesTalosAPIAccess",
    ),
    (
        "machine: {kubelet: {credentialProviderConfig: {a: b}}}",
        "KubeCredentialProviderConfig\nconfiguration: {a: b}",
        "machine.kubelet.credentialProviderConfig",
    ),
    ("machine: {kubelet: {image: a}}", "KubeletConfig\nimage: b", "machine.kubelet"),
    ("machine: {kubelet: {registerWithFQDN: true}}", "KubeNodeConfig", "machine.kubelet.registerWithFQDN"),
    ("machine: {nodeLabels: {a: b}}", "KubeNodeConfig", "machine.nodeLabels"),
    (
        "cluster: {allowSchedulingOnControlPlanes: true}",
        "KubeNodeConfig",
        "cluster.allowSchedulingOnControlPlanes",
    ),
    (
        "cluster: {controlPlane: {endpoint: 'https://a'}}",
        "KubeClusterConfig\nclusterName: a\nendpoint: 'https://b'",
        "cluster.controlPlane.endpoint",
    ),
    ("cluster: {network: {dnsDomain: a.b}}", "KubeNetworkConfig", "cluster.network"),
    ("cluster: {network: {cni: {name: none}}}", "KubeFlannelCNIConfig", "cluster.network.cni"),
    ("cluster: {coreDNS: {disabled: true}}", "KubeCoreDNSConfig", "cluster.coreDNS"),
    ("cluster: {ca: {crt: YQ==}}", "KubeAPIServerCAConfig", "cluster.ca"),
    ("cluster: {aggregatorCA: {crt: YQ==}}", "KubeAggregatorCAConfig", "cluster.aggregatorCA"),
    ("cluster: {serviceAccount: {key: YQ==}}", "KubeServiceAccountConfig", "cluster.serviceAccount"),
    (
        "cluster: {aescbcEncryptionSecret: YQ==}",
        "KubeEtcdEncryptionConfig\nconfig: {a: b}",
        "cluster.secretboxEncryptionSecret",
    ),
    (
        "machine: {controlPlane: {controllerManager: {disabled: true}}}",
        "KubeControllerManagerConfig\nimage: a",
        "cluster.controllerManager",
    ),
    ("cluster: {scheduler: {image: a}}", "KubeSchedulerConfig\nimage: a", "cluster.scheduler"),
    ("cluster: {proxy: {disabled: true}}", "KubeProxyConfig\nimage: a", "cluster.proxy"),
    ("cluster: {id: a}", "DiscoveryIdentityConfig", "cluster.id"),
    ("cluster: {discovery: {enabled: false}}", "DiscoveryServiceConfig\nname: a", "cluster.discovery"),
    (
        "cluster: {inlineManifests: [{name: a, contents: b}]}",
        "KubeInlineManifestConfig\nname: a\nmanifest: c",
        "cluster.inlineManifests",
    ),
    ("cluster: {apiServer: {image: a}}", "KubeAPIServerConfig\nimage: a", "cluster.apiServer"),
    (
        "cluster: {controlPlane: {localAPIServerPort: 1}}",
        "KubeAPIServerConfig\nimage: a",
        "cluster.apiServer",
    ),
    (
        "cluster: {apiServer: {admissionControl: [{name: a}]}}",
        "KubeAdmissionControlConfig\nname: a\nconfiguration: {a: b}",
        "cluster.apiServer.admissionControl",
    ),
    (
        "cluster: {apiServer: {auditPolicy: {a: b}}}",
        "KubeAuditPolicyConfig\nconfiguration: {a: b}",
        "cluster.apiServer.auditPolicy",
    ),
    (
        "cluster: {apiServer: {authorizationConfig: [{name: a, type: Node}]}}",
        "KubeAuthorizerConfig\nname: a\ntype: Node",
        "cluster.apiServer.authorizationConfig",
    ),
];

#[test]
fn a_document_and_the_section_that_says_the_same_are_refused_together() {
    for (section, document, path) in CONFLICTS {
        let text = format!("version: v1alpha1\n{section}\n---\napiVersion: v1alpha1\nkind: {document}\n");
        let loaded = crate::load(text.as_bytes()).unwrap_or_else(|error| panic!("{error}\n{text}"));
        let refused = loaded.validate(crate::Mode::Cloud).unwrap_err();
        let kind = document.lines().next().unwrap_or_default();
        let message =
            format!("{kind} config is incompatible with v1alpha1 config (.{path}); keep one of both");
        assert!(
            refused.0.iter().any(|fault| fault.message == message && fault.document == 2),
            "{refused}\n{text}"
        );
    }
}

#[test]
fn parameters_and_modules_of_both_are_put_together() {
    let text = "version: v1alpha1\npersist: true\nmachine: {token: a, sysctls: {a: '1'}, kernel: {modules: [{name: m}]}}\n\
                cluster: {controlPlane: {endpoint: 'https://a'}}\n\
                ---\napiVersion: v1alpha1\nkind: SysctlConfig\nparams: {a: '1', b: '2'}\n\
                ---\napiVersion: v1alpha1\nkind: KernelModuleConfig\nname: n\n";
    let loaded = crate::load(text.as_bytes()).unwrap_or_else(|error| panic!("{error}"));
    loaded.validate(crate::Mode::Cloud).unwrap_or_else(|error| panic!("{error}"));
    let machine = &loaded.config.machine;
    assert_eq!(machine.sysctls.keys().collect::<Vec<_>>(), ["a", "b"]);
    let modules = machine.kernel.iter().flat_map(|kernel| &kernel.modules);
    assert_eq!(modules.map(|module| module.name.as_str()).collect::<Vec<_>>(), ["m", "n"]);
}
