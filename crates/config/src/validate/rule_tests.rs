//! Every rule has a test that pins its message: the rules are the places in the sources that add a problem, and each
//! has to be broken by a row of a table.

use super::{tests::checked, *};
use std::{cell::RefCell, collections::BTreeSet, fs, panic::Location, path::Path};

thread_local! {
    /// File name and line of each rule that this thread's test has broken.
    static BROKEN: RefCell<BTreeSet<(String, u32)>> = const { RefCell::new(BTreeSet::new()) };
}

/// Called where a problem is added, with the rule's place.
pub(super) fn broken(rule: &Location<'_>) {
    let name = rule.file().rsplit('/').next().unwrap_or_default().to_owned();
    BROKEN.with_borrow_mut(|broken| broken.insert((name, rule.line())));
}

/// Errors and warnings of a configuration with one further document.
pub(super) fn checked_document(document: &str, mode: Mode) -> Vec<(String, String)> {
    let text = format!(
        "version: v1alpha1\npersist: true\nmachine: {{token: a.b}}\ncluster: {{controlPlane: {{endpoint: 'https://a:6443'}}}}\n---\napiVersion: v1alpha1\n{document}\n"
    );
    let loaded = crate::load(text.as_bytes()).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let found = match loaded.validate(mode) {
        Ok(warnings) => warnings,
        Err(error) => error.0,
    };
    assert!(found.iter().all(|d| d.document == 2 && d.line >= 6), "{found:?}");
    found.into_iter().map(|d| (d.path, d.message)).collect()
}

/// Additional rules of `machine` with their messages, beside those of `tests`.
const MACHINE: &[(&str, &str, &str)] = &[
    ("pods: [{metadata: {name: a}}]", "machine.pods[0].spec", "missing; write the pod's containers"),
    ("pods: [{kind: Pod, spec: {}}]", "machine.pods[0].metadata.name", "missing; write the pod's name"),
    (
        "pods: [{kind: Node, metadata: {name: a}, spec: {}}]",
        "machine.pods[0].kind",
        "`Node` is no static pod; write `Pod`",
    ),
    (
        "pods: [{metadata: {name: a, namespace: A}, spec: {}}]",
        "machine.pods[0].metadata.namespace",
        "`A` is no name in Kubernetes: lower-case letters, digits, `-` and `.`, at most 253",
    ),
    (
        "acceptedCAs: [{crt: LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0t, key: YQ==}]",
        "machine.acceptedCAs[0].key",
        "without effect: clients are let in by the certificate, and nothing is signed with this key",
    ),
    ("features: {rbac: false}", "machine.features.rbac", "without effect: roles are always checked"),
    (
        "features: {apidCheckExtKeyUsage: false}",
        "machine.features.apidCheckExtKeyUsage",
        "without effect: client certificates are always checked for their purpose",
    ),
    (
        "network: {extraHostEntries: [{ip: 10.0.0.1, aliases: [a_b]}]}",
        "machine.network.extraHostEntries[0].aliases[0]",
        "`a_b` is not a host name",
    ),
    (
        "network: {interfaces: [{interface: eth0, dhcpOptions: {duidv6: 0003g}}]}",
        "machine.network.interfaces[0].dhcpOptions.duidv6",
        "`0003g` is no DUID: 3 to 130 bytes in hexadecimal, 00030001020000000001",
    ),
    (
        "network: {interfaces: [{interface: wg0, wireguard: {privateKey: MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=, peers: [{publicKey: a}]}}]}",
        "machine.network.interfaces[0].wireguard.peers[0].publicKey",
        "the key is not base64 of 32 bytes",
    ),
    (
        "network: {interfaces: [{interface: wg0, wireguard: {peers: [{endpoint: a}]}}]}",
        "machine.network.interfaces[0].wireguard.peers[0].endpoint",
        "`a` is not a host with a port: 10.0.0.1:51820, [fd00::1]:51820 or example.org:51820",
    ),
    (
        "network: {interfaces: [{interface: wg0, wireguard: {peers: [{allowedIPs: [10.0.0.1]}]}}]}",
        "machine.network.interfaces[0].wireguard.peers[0].allowedIPs[0]",
        "`10.0.0.1` is not an address with prefix length: 10.0.0.2/24",
    ),
    (
        "network: {interfaces: [{interface: bond0, bond: {interfaces: [eth0, bond0]}}]}",
        "machine.network.interfaces[0].bond.interfaces[1]",
        "`bond0` cannot be a member of itself",
    ),
    (
        "network: {interfaces: [{interface: bond0, bond: {interfaces: [eth0]}}, {interface: br0, bridge: {interfaces: [eth0]}}]}",
        "machine.network.interfaces[1].bridge.interfaces[0]",
        "`eth0` is a member of bond0 already; a link is in one bond, bridge or VRF",
    ),
    (
        "network: {interfaces: [{interface: bond0, bond: {interfaces: [eth0]}}, {interface: eth0, bridgePort: {master: br0}}]}",
        "machine.network.interfaces[1].bridgePort.master",
        "`eth0` is a member of bond0 already; a link is in one bond, bridge or VRF",
    ),
    (
        "network: {interfaces: [{interface: eth0, vip: {ip: x}}]}",
        "machine.network.interfaces[0].vip.ip",
        "[networking.os.device.vip] failed to parse \"x\" as IP address",
    ),
    (
        "systemDiskEncryption: {state: {provider: luks2, keys: [{tpm: {options: {pcrs: [24]}}}]}}",
        "machine.systemDiskEncryption.state.keys[0].tpm.options.pcrs",
        "24 is no register: 0 to 23",
    ),
];

/// Rules of documents with their messages.
const DOCUMENTS: &[(&str, &str, &str)] = &[
    ("kind: StaticHostConfig\nname: 10.0.0.1\nhostnames: [a_b]", "hostnames[0]", "`a_b` is not a host name"),
    (
        "kind: TimeSyncConfig\nntp: {servers: [a b]}",
        "ntp.servers[0]",
        "`a b` is neither an address nor a name",
    ),
    (
        "kind: EnvironmentConfig\nvariables: {a=b: c}",
        "variables.a=b",
        "`a=b` cannot be the name of a variable: letters, digits and `_`, no digit first",
    ),
    ("kind: LinkConfig\nname: eth0\nmtu: 20", "mtu", "20 is no packet size: 68 to 65535"),
    ("kind: LinkConfig", "name", "name must be specified"),
    (
        "kind: VLANConfig\nname: eth0\nvlanID: 5\nparent: eth0",
        "parent",
        "`eth0` cannot be a VLAN of itself; write another `name`",
    ),
    ("kind: BridgeConfig\nname: br0\nlinks: [br0]", "links[0]", "`br0` cannot be a member of itself"),
    ("kind: HostnameConfig", "hostname", "`hostname`, alone or with `auto: off`, or `auto` is needed"),
    (
        "kind: HostnameConfig\nhostname: a\nauto: stable",
        "hostname",
        "`hostname`, alone or with `auto: off`, or `auto` is needed",
    ),
    (
        "kind: RegistryAuthConfig\nname: r.example\nusername: a\npassword: b\nauth: Yzpk",
        "auth",
        "more than one way to log in: keep `username` and `password`, `auth` or `identityToken`",
    ),
    (
        "kind: RegistryTLSConfig\nname: r.example\nca: rubbish",
        "ca",
        "it has no PEM of a certificate: -----BEGIN CERTIFICATE-----",
    ),
    (
        "kind: RegistryTLSConfig\nname: r.example\nca: |\n  -----BEGIN CERTIFICATE-----\n  rub bish\n  -----END CERTIFICATE-----",
        "ca",
        "certificate 1 is not base64 of a certificate",
    ),
    ("kind: EnvironmentConfig\nvariables: {GOOD: \"a\\0b\"}", "variables.GOOD", "the value holds a byte 0"),
    (
        "kind: EnvironmentConfig\nvariables: {1BAD: c}",
        "variables.1BAD",
        "`1BAD` cannot be the name of a variable: letters, digits and `_`, no digit first",
    ),
    (
        "kind: HostnameConfig\nhostname: a_b",
        "hostname",
        "`a_b` is not a host name: letters, digits and `-` only",
    ),
    (
        "kind: ResolverConfig\nnameservers: [{}]",
        "nameservers[0].address",
        "missing; write the resolver's address",
    ),
    ("kind: StaticHostConfig\nname: 10.0.0.1", "hostnames", "at least one name is needed"),
    ("kind: StaticHostConfig\nname: here\nhostnames: [a]", "name", "the name is the address; `here` is none"),
    (
        "kind: TimeSyncConfig\nntp: {servers: [a]}\nptp: {devices: [/dev/ptp0]}",
        "ptp",
        "`ntp` is given too; keep one of them",
    ),
    (
        "kind: RegistryMirrorConfig\nname: a\nendpoints: [{url: b}]",
        "endpoints[0].url",
        "`b` is not an address: http://host:port or https://host",
    ),
    ("kind: WatchdogTimerConfig\ndevice: watchdog0", "device", "`watchdog0` is not a device: /dev/watchdog0"),
    ("kind: WatchdogTimerConfig\ndevice: /dev/watchdog0\ntimeout: 9s", "timeout", "at least 10s"),
    (
        "kind: NetworkRuleConfig\nname: a\ningress: [{subnet: a}]",
        "ingress[0].subnet",
        "`a` is not an address with prefix length: 10.0.0.2/24",
    ),
    (
        "kind: RoutingRuleConfig\nname: '32500'\ntable: main",
        "name",
        "the name is the priority, a number; 0, 32500, 32766 and 32767 are taken",
    ),
    (
        "kind: RoutingRuleConfig\nname: '100'",
        "table",
        "a rule that looks up needs a table; or write another `action`",
    ),
    (
        "kind: RoutingRuleConfig\nname: '100'\ntable: main\nfwMask: 1",
        "fwMask",
        "fwMask requires fwMark to be set",
    ),
    ("kind: BlackholeRouteConfig\nname: a", "name", "`a` is not an address with prefix length: 10.0.0.2/24"),
    (
        "kind: TCPProbeConfig\nname: a\nendpoint: b",
        "endpoint",
        "`b` is not a host with a port: 10.0.0.1:51820, [fd00::1]:51820 or example.org:51820",
    ),
    (
        "kind: ImageVerificationConfig\nrules: [{skip: true}]",
        "rules[0].image",
        "write registry and path of the images: registry.example.org/*",
    ),
    (
        "kind: ImageVerificationConfig\nrules: [{image: nginx, deny: true}]",
        "rules[0].image",
        "`nginx` names no registry and fits no image: registry.example.org/*",
    ),
    (
        "kind: ImageVerificationConfig\nrules: [{image: '*', deny: true, skip: true}]",
        "rules[0]",
        "exactly one of `skip`, `deny`, `keyless` and `publicKey` is needed",
    ),
    (
        "kind: ImageVerificationConfig\nrules: [{image: '*', deny: true, verify: true}]",
        "rules[0].verify",
        "`true` goes with `keyless` or `publicKey`; to leave images unchecked write `skip: true`",
    ),
    (
        "kind: ImageVerificationConfig\nrules: [{image: '*', publicKey: {certificate: a}}]",
        "rules[0].publicKey.certificate",
        "PEM of a PUBLIC KEY or CERTIFICATE is needed, as `cosign generate-key-pair` writes it",
    ),
    (
        "kind: KmsgLogConfig\nname: a\nurl: b:1",
        "url",
        "`b:1` is no receiver of logs: tcp://10.0.0.1:12345 or udp://10.0.0.1:12345",
    ),
    (
        "kind: EventSinkConfig\nendpoint: b",
        "endpoint",
        "`b` is not a host with a port: 10.0.0.1:51820, [fd00::1]:51820 or example.org:51820",
    ),
    ("kind: ZswapConfig\nmaxPoolPercent: 101", "maxPoolPercent", "0 to 100"),
    (
        "kind: WireguardConfig\nname: wg0\nprivateKey: hunter2",
        "privateKey",
        "the key is not base64 of 32 bytes",
    ),
    (
        "kind: WireguardConfig\nname: wg0\npeers: [{publicKey: YQ==}]",
        "peers[0].publicKey",
        "the key has 1 bytes; it needs 32, in base64",
    ),
    (
        "kind: WireguardConfig\nname: wg0\npeers: [{endpoint: 209.202.254.14.8172}]",
        "peers[0].endpoint",
        "`209.202.254.14.8172` has a dot before the port; write `209.202.254.14:8172`",
    ),
    (
        "kind: LinkConfig\nname: a/b",
        "name",
        "`a/b` is not a link name: 1 to 15 bytes without `/`, blanks and `:`",
    ),
    (
        "kind: BridgeConfig\nname: br0\naddresses: [{address: a}]",
        "addresses[0].address",
        "`a` is not an address with prefix length: 10.0.0.2/24",
    ),
    (
        "kind: DummyLinkConfig\nname: d0\nroutes: [{destination: a}]",
        "routes[0].destination",
        "`a` is not an address with prefix length: 10.0.0.2/24",
    ),
    (
        "kind: VRFConfig\nname: v0\ntable: '5'\nroutes: [{metric: 1}]",
        "routes[0]",
        "a route needs `destination`, `gateway` or both",
    ),
    ("kind: VLANConfig\nname: a.5\nvlanID: 4095\nparent: a", "vlanID", "4095 is no VLAN number: 1 to 4094"),
    (
        "kind: VLANConfig\nname: a.5\nvlanID: 5",
        "parent",
        "`` is not a link name: 1 to 15 bytes without `/`, blanks and `:`",
    ),
    ("kind: BondConfig\nname: bond0", "links", "at least one link is needed"),
    (
        "kind: VolumeConfig\nname: DATA",
        "name",
        "`DATA` is no volume of the system: STATE, EPHEMERAL, IMAGECACHE",
    ),
    (
        "kind: UserVolumeConfig\nname: a_b",
        "name",
        "`a_b` is not a volume name: letters, digits and `-`, at most 34",
    ),
    (
        "kind: RawVolumeConfig\nname: a\nprovisioning: {minSize: 10%}",
        "provisioning.minSize",
        "`10%` is not a size: 10GiB",
    ),
    (
        "kind: SwapVolumeConfig\nname: a\nencryption: {provider: luks2}",
        "encryption.keys",
        "no encryption keys provided for the s-a partition encryption",
    ),
    (
        "kind: UserVolumeConfig\nname: a\nprovisioning: {minSize: 1GiB}",
        "provisioning.diskSelector.match",
        "disk selector is required: which disk it is made on, `disk.transport == \"nvme\"`",
    ),
    (
        "kind: RawVolumeConfig\nname: a\nprovisioning: {diskSelector: {match: 'disk.size > 10'}, minSize: 1GiB}",
        "provisioning.diskSelector.match",
        "disk selector is invalid: character 11, at `> 10`: `>` does not fit a number with `u` and a number without `u`: sizes are numbers with `u`, as in 10u * GiB",
    ),
    (
        "kind: RawVolumeConfig\nname: a\nprovisioning: {diskSelector: {match: '!system_disk'}}",
        "provisioning.minSize",
        "min size or max size is required: 10GiB",
    ),
    (
        "kind: RawVolumeConfig\nname: a\nprovisioning: {diskSelector: {match: '!system_disk'}, minSize: 2GiB, maxSize: 1GiB}",
        "provisioning.minSize",
        "min size is greater than max size",
    ),
    (
        "kind: UserVolumeConfig\nname: a\nvolumeType: disk\nprovisioning: {diskSelector: {match: '!system_disk'}, maxSize: 1GiB}",
        "provisioning.maxSize",
        "it takes the whole disk, whatever its size; leave it out",
    ),
    (
        "kind: UserVolumeConfig\nname: a\nvolumeType: disk\nprovisioning: {diskSelector: {match: '!system_disk'}, grow: true}",
        "provisioning.grow",
        "it takes the whole disk, whatever its size; leave it out",
    ),
    (
        "kind: UserVolumeConfig\nname: a\nvolumeType: directory\nmount: {disableAccessTime: true}",
        "mount.disableAccessTime",
        "a directory has none of its own: it lies on EPHEMERAL; leave it out",
    ),
    (
        "kind: UserVolumeConfig\nname: a\nvolumeType: disk\nprovisioning: {diskSelector: {match: '!system_disk'}}",
        "volumeType",
        "a whole disk as a volume is not built yet, this one is not made: leave volumeType out and take all of the disk by a minSize without \
         maxSize",
    ),
    (
        "kind: UserVolumeConfig\nname: a\nvolumeType: directory",
        "volumeType",
        "a directory as a volume is not built yet, this one is not made: use a directory below /var, or a partition",
    ),
    (
        "kind: RawVolumeConfig\nname: a\nprovisioning: {diskSelector: {match: '!system_disk'}, minSize: 1GiB, grow: true}",
        "provisioning.grow",
        "it takes all the room up to maxSize when it is made; growing later is not built yet",
    ),
    (
        "kind: UserVolumeConfig\nname: a\nprovisioning: {diskSelector: {match: '!system_disk'}, minSize: 1GiB}\nfilesystem: {type: ext4}",
        "filesystem.type",
        "ext4 is not built yet, this volume is not made: leave it out, or write xfs",
    ),
    (
        "kind: UserVolumeConfig\nname: a\nprovisioning: {diskSelector: {match: '!system_disk'}, minSize: 1GiB}\nfilesystem: {projectQuotaSupport: true}",
        "filesystem.projectQuotaSupport",
        "quotas of projects are not built yet; the volume is made without: leave it out",
    ),
    (
        "kind: UserVolumeConfig\nname: a\nprovisioning: {diskSelector: {match: '!system_disk'}, maxSize: 310MiB}\nencryption: {provider: luks2, keys: [{nodeID: {}}]}",
        "provisioning.maxSize",
        "xfs needs 316 MiB here: write 316MiB or more, or make it a RawVolumeConfig",
    ),
    (
        "kind: UserVolumeConfig\nname: a\nfilesystem: {type: ext4, projectQuotaSupport: true}",
        "filesystem.projectQuotaSupport",
        "project quota support is only available for xfs filesystem",
    ),
];

/// Rules of what is missing, of metal mode, and of the document as a whole.
const TEXTS: &[(&str, &str, &str)] = &[
    (
        "debug: true\npersist: true\nmachine: {token: a, install: {disk: /dev/sda}}\ncluster: {controlPlane: {endpoint: 'https://a'}}\n",
        "debug",
        "without effect: services do not log to the console; read them with `billetctl logs`",
    ),
    (
        "machine: {network: {hostname: a}}\n---\napiVersion: v1alpha1\nkind: HostnameConfig\nhostname: b\n",
        "hostname",
        "static hostname is already set in v1alpha1 config; keep one of `machine.network.hostname` and this document",
    ),
    (
        "machine: {network: {hostname: a}}\n---\napiVersion: v1alpha1\nkind: HostnameConfig\nauto: stable\n",
        "auto",
        "static hostname is already set in v1alpha1 config; keep one of `machine.network.hostname` and this document",
    ),
    (
        "machine: {network: {nameservers: [10.0.0.1]}}\n---\napiVersion: v1alpha1\nkind: ResolverConfig\nnameservers: [{address: 10.0.0.2}]\n",
        "nameservers",
        ".machine.network.nameservers is already set in v1alpha1 config; keep one of both",
    ),
    (
        "machine: {network: {kubespan: {enabled: true}}}\n---\napiVersion: v1alpha1\nkind: KubeSpanConfig\nenabled: true\n",
        "enabled",
        "kubespan is already configured in v1alpha1 machine.network.kubespan; keep one of both",
    ),
    (
        "machine: {features: {hostDNS: {enabled: false}}}\n---\napiVersion: v1alpha1\nkind: ResolverConfig\nhostDNS: {enabled: true}\n",
        "kind",
        "ResolverConfig config is incompatible with v1alpha1 config (.machine.features.hostDNS); keep one of both",
    ),
    (
        "machine: {systemDiskEncryption: {state: {provider: luks2, keys: [{nodeID: {}}]}}}\n---\napiVersion: v1alpha1\nkind: VolumeConfig\nname: STATE\nencryption: {provider: luks2, keys: [{nodeID: {}}]}\n",
        "encryption",
        "system disk encryption for \"STATE\" is configured in both v1alpha1.Config and VolumeConfig",
    ),
    (
        "machine: {token: a}\n---\napiVersion: v1alpha1\nkind: UserVolumeConfig\nname: a\nvolumeType: directory\n---\napiVersion: v1alpha1\nkind: ExistingVolumeConfig\nname: a\n",
        "name",
        "a UserVolumeConfig is mounted at /var/mnt/a, too; give one another name",
    ),
    (
        "machine: {disks: [{device: /dev/sdb, partitions: [{mountpoint: /var/mnt/a}]}]}\n---\napiVersion: v1alpha1\nkind: UserVolumeConfig\nname: a\n",
        "name",
        "machine.disks mounts a partition at /var/mnt/a, too; give one another name",
    ),
    (
        "machine: {token: a}\n---\napiVersion: v1alpha1\nkind: ResolverConfig\nnameservers: [{address: 10.0.0.2, protocol: DoT}]\n",
        "machine.features.hostDNS",
        "hostDNS must be enabled when using non-default DNS protocols",
    ),
    (
        "machine: {token: a, pods: [{metadata: {name: a}, spec: {}}, {metadata: {namespace: default, name: a}, spec: {}}]}\n",
        "machine.pods",
        "the node has a static pod default-a already; write another name or namespace",
    ),
    (
        "machine: {token: a}\n---\napiVersion: v1alpha1\nkind: KubeStaticPodConfig\nname: a\npod: {metadata: {namespace: kube, name: scheduler}, spec: {}}\n",
        "machine.pods",
        "the node has a static pod kube-scheduler already; write another name or namespace",
    ),
    (
        "machine: {token: a, network: {interfaces: [{interface: eth0, addresses: [192.0.2.1/24, 10.97.0.5/24]}]}}\n",
        "machine.network.interfaces[0].addresses[1]",
        "`10.97.0.5/24` lies in the Service network 10.96.0.0/12; write an address outside of it, or another network in cluster.network.serviceSubnets",
    ),
    (
        "machine: {token: a, network: {interfaces: [{interface: eth0, vlans: [{vlanId: 5, cidr: fd00::5/64}]}]}}\ncluster: {network: {serviceSubnets: ['10.96.0.0/12', 'fd00::/112']}}\n",
        "machine.network.interfaces[0].vlans[0].cidr",
        "`fd00::5/64` lies in the Service network fd00::/112; write an address outside of it, or another network in cluster.network.serviceSubnets",
    ),
    (
        "machine: {token: a, network: {kubespan: {enabled: true}}}\n",
        "cluster.id",
        "cluster ID (.cluster.id or DiscoveryIdentityConfig) should be set when .machine.network.kubespan is enabled",
    ),
    (
        "machine: {token: a}\n---\napiVersion: v1alpha1\nkind: KubeSpanConfig\nenabled: true\n",
        "cluster.secret",
        "cluster secret (.cluster.secret or DiscoveryIdentityConfig) should be set when .machine.network.kubespan is enabled",
    ),
    ("version: v1alpha1\n", "machine", "machine instructions are required"),
    ("version: v1alpha1\n", "cluster", "cluster instructions are required"),
    ("version: v1alpha1\n", "cluster.controlPlane.endpoint", "cluster controlplane endpoint is required"),
    (
        "version: v1alpha1\nmachine: {type: worker}\n",
        "machine.token",
        "missing; it is the secret that all nodes of a cluster share",
    ),
    (
        "machine: {token: a}\ncluster: {controlPlane: {endpoint: 'https://a:6443'}}\n",
        "machine.install",
        "install instructions are required in \"metal\" mode",
    ),
    (
        "machine: {token: a}\ncluster: {controlPlane: {endpoint: 'https://a:6443'}}\n",
        "machine.install.disk",
        "an install disk is required in \"metal\" mode: either install disk or diskSelector should be defined",
    ),
    (
        "machine: {token: a, install: {disk: sda}}\n",
        "machine.install.disk",
        "`sda` is not a device: /dev/sda",
    ),
    (
        "machine: {token: a}\ncluster: {controlPlane: {endpoint: 'https://a', localAPIServerPort: 0}}\n",
        "cluster.controlPlane.localAPIServerPort",
        "port number must be between 1 and 65535",
    ),
    (
        "machine: {token: a, install: {disk: /dev/sda}}\ncluster: {controlPlane: {endpoint: 'https://a:6443'}}\n",
        "persist",
        "the configuration is fetched again at each boot; .persist should be enabled",
    ),
];

/// Breaks the rules of every table and checks the messages.
fn break_all() {
    for (yaml, path, message) in super::tests::MACHINE.iter().chain(MACHINE) {
        let found = checked(&format!("  {yaml}"), "", Mode::Cloud);
        assert!(found.contains(&((*path).to_owned(), (*message).to_owned())), "{yaml}: {found:#?}");
    }
    for (yaml, path, message) in super::tests::CLUSTER {
        let found = checked("", &format!("  {yaml}"), Mode::Cloud);
        assert_eq!(found, [((*path).to_owned(), (*message).to_owned())], "{yaml}");
    }
    for (document, path, message) in DOCUMENTS.iter().chain(super::document_rule_tests::DOCUMENTS) {
        let found = checked_document(document, Mode::Cloud);
        assert!(found.contains(&((*path).to_owned(), (*message).to_owned())), "{document}: {found:#?}");
    }
    for features in ["{}", "{hostDNS: {enabled: false}}", "{hostDNS: {enabled: true}}"] {
        let found = checked(&format!("  features: {features}"), "", Mode::Container);
        assert!(found.iter().any(|(_, message)| message.ends_with("in container mode")), "{found:#?}");
    }
    for (text, path, message) in TEXTS {
        let loaded = crate::load(text.as_bytes()).unwrap_or_else(|e| panic!("{e}\n{text}"));
        let found = match loaded.validate(Mode::Metal) {
            Ok(warnings) => warnings,
            Err(error) => error.0,
        };
        assert!(found.iter().any(|d| d.path == *path && d.message == *message), "{text}: {found:#?}");
    }
}

/// File name, line and text of each place that adds a problem.
fn rules() -> Vec<(String, u32, String)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/validate");
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).expect("the sources").flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        // The tests, and the methods themselves.
        if name.ends_with("tests.rs") || name == "mod.rs" {
            continue;
        }
        let text = fs::read_to_string(entry.path()).expect("a source");
        let rule = |line: &str| {
            let line = line.trim_start();
            let called = [".add(", ".warn(", ".expect("]
                .iter()
                .any(|call| line.contains(&format!("problems{call}")) || line.starts_with(call));
            called && !line.starts_with("//")
        };
        let lines = text.lines().zip(1_u32..).filter(|(line, _)| rule(line));
        found.extend(lines.map(|(line, number)| (name.clone(), number, line.trim().to_owned())));
    }
    found
}

#[test]
fn each_rule_is_broken_by_a_test_that_pins_its_message() {
    BROKEN.take();
    break_all();
    let broken = BROKEN.take();
    let rules = rules();
    assert!(rules.len() > 80, "only {} rules were found in the sources", rules.len());
    let untested: Vec<_> =
        rules.iter().filter(|(file, line, _)| !broken.contains(&(file.clone(), *line))).collect();
    assert!(untested.is_empty(), "{} rules without a test: {untested:#?}", untested.len());
    let known =
        |place: &(String, u32)| rules.iter().any(|(file, line, _)| (file, line) == (&place.0, &place.1));
    let unknown: Vec<_> = broken.iter().filter(|place| !known(place)).collect();
    assert!(unknown.is_empty(), "rules that the search in the sources does not see: {unknown:?}");
}

#[test]
fn a_fault_of_a_document_is_told_once_where_it_stands() {
    for document in [
        "kind: LinkConfig",
        "kind: LinkConfig\nname: a/b",
        "kind: LinkConfig\nname: eth0\nmtu: 20",
        "kind: LinkConfig\nname: eth0\naddresses: [{address: a}]",
        "kind: HostnameConfig\nhostname: a_b",
        "kind: TimeSyncConfig\nntp: {servers: [a b]}",
        "kind: RegistryMirrorConfig\nname: a\nendpoints: [{url: b}]",
        "kind: StaticHostConfig\nname: 10.0.0.1\nhostnames: [a_b]",
    ] {
        assert_eq!(checked_document(document, Mode::Cloud).len(), 1, "{document}");
    }
}

#[test]
fn equal_values_are_no_conflict() {
    let text = "machine: {token: a, network: {hostname: a, nameservers: [10.0.0.1]}}\ncluster: {controlPlane: {endpoint: 'https://a'}}\n---\napiVersion: v1alpha1\nkind: HostnameConfig\nhostname: a\n---\napiVersion: v1alpha1\nkind: ResolverConfig\nnameservers: [{address: 10.0.0.1}]\n";
    let loaded = crate::load(text.as_bytes()).unwrap_or_else(|e| panic!("{e}"));
    assert!(loaded.validate(Mode::Cloud).is_ok());
}
