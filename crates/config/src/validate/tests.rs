//! Each rule with its message.

use super::*;
use crate::parse;

fn problems(yaml: &str) -> Vec<String> {
    let config = parse(yaml).map_err(|e| e.to_string()).expect("readable");
    validate(&config).err().map_or(Vec::new(), |e| e.0.into_iter().map(|p| p.field).collect())
}

#[test]
fn a_small_worker_is_fine() {
    let yaml = "version: v1alpha1\nmachine: {type: join, token: a.b}\ncluster: {controlPlane: {endpoint: 'https://[::1]:6443'}}\n";
    assert_eq!(problems(yaml), Vec::<String>::new());
}

/// Errors and warnings of a configuration in one mode: path and message.
pub(super) fn checked(machine: &str, cluster: &str, mode: Mode) -> Vec<(String, String)> {
    let text = format!(
        "version: v1alpha1\npersist: true\nmachine:\n  token: a.b\n{machine}\ncluster:\n  controlPlane: {{endpoint: 'https://a:6443'}}\n{cluster}\n"
    );
    let loaded = crate::load(text.as_bytes()).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let found = match loaded.validate(mode) {
        Ok(warnings) => warnings,
        Err(error) => error.0,
    };
    assert!(found.iter().all(|d| d.line > 1 && d.column > 0), "{found:?}");
    found.into_iter().map(|d| (d.path, d.message)).collect()
}

/// Each rule of `machine` with its message, outside metal mode.
pub(super) const MACHINE: &[(&str, &str, &str)] = &[
    ("type: controlplane", "machine.ca", "a control plane node needs the API's CA with `crt` and `key`"),
    (
        "ca: {crt: YQ==, key: YQ==}",
        "machine.ca.key",
        "issuing Talos API CA key is not allowed on non-controlplane nodes (.machine.ca); leave `key` out",
    ),
    ("certSANs: ['a b']", "machine.certSANs[0]", "`a b` is neither an address nor a name"),
    (
        "acceptedCAs: [{crt: YQ==}]",
        "machine.acceptedCAs[0].crt",
        "not a certificate; write base64 of its PEM text",
    ),
    (
        "logging: {destinations: [{endpoint: 'http://a:1', format: json_lines}]}",
        "machine.logging.destinations[0].endpoint",
        "`http://a:1` is no receiver of logs: tcp://10.0.0.1:12345 or udp://10.0.0.1:12345",
    ),
    (
        "logging: {destinations: [{endpoint: 'udp://a:1', format: syslog}]}",
        "machine.logging.destinations[0].format",
        "write `json_lines`, the only format there is",
    ),
    (
        "kubelet: {extraArgs: {config: x}}",
        "machine.kubelet.extraArgs.config",
        "extra arg \"config\" is not allowed",
    ),
    (
        "install: {grubUseUKICmdline: true, extraKernelArgs: [a]}",
        "machine.install.extraKernelArgs",
        "install.extraKernelArgs and install.grubUseUKICmdline can't be used together",
    ),
    (
        "install: {extensions: [{image: a}]}",
        "machine.install.extensions",
        "deprecated and without effect; put extensions into the image",
    ),
    (
        "files: [{path: /etc/a, content: b}]",
        "machine.files[0].path",
        "create operation not allowed outside of /var: \"/etc/a\"",
    ),
    (
        "files: [{path: /var/../a, content: b}]",
        "machine.files[0].path",
        "`/var/../a` is not the full path of a file",
    ),
    (
        "registries: {mirrors: {a: {endpoints: [b]}}}",
        "machine.registries.mirrors.a.endpoints[0]",
        "`b` is not an address: http://host:port or https://host",
    ),
    (
        "registries: {mirrors: {a: {endpoints: ['http://b:1/']}}, config: {'b:1': {tls: {}}}}",
        "machine.registries.config.b:1.tls",
        "TLS config specified for non-HTTPS registry: \"b:1\"",
    ),
    (
        "registries: {config: {a: {auth: {auth: YQ==}}}}",
        "machine.registries.config.a.auth.auth",
        "invalid decoded auth for \"a\": base64 of `name:password` is needed",
    ),
    (
        "registries: {config: {a: {auth: {password: b}}}}",
        "machine.registries.config.a.auth",
        "invalid auth config for \"a\": a password without a username",
    ),
    ("time: {servers: ['a b']}", "machine.time.servers[0]", "`a b` is neither an address nor a name"),
    ("sysctls: {../a: '1'}", "machine.sysctls.../a", "`../a` is not a name like net.ipv4.ip_forward"),
    (
        "env: {a=b: c}",
        "machine.env.a=b",
        "`a=b` cannot be the name of a variable: letters, digits and `_`, no digit first",
    ),
    (
        "kernel: {modules: [{name: a/b}]}",
        "machine.kernel.modules[0].name",
        "`a/b` is not the name of a module",
    ),
    (
        "network: {hostname: -x}",
        "machine.network.hostname",
        "`-x` is not a host name: letters, digits and `-` only",
    ),
    (
        "network: {extraHostEntries: [{aliases: [a]}]}",
        "machine.network.extraHostEntries[0].ip",
        "missing; write the address of these names",
    ),
    (
        "network: {interfaces: [{dhcp: true}]}",
        "machine.network.interfaces[0].interface",
        "[networking.os.device.interface]: required config section",
    ),
    (
        "network: {interfaces: [{interface: a, deviceSelector: {driver: x}}]}",
        "machine.network.interfaces[0].deviceSelector",
        "`interface` is given too; keep one of them",
    ),
    (
        "network: {interfaces: [{interface: abcdefghijklmnop}]}",
        "machine.network.interfaces[0].interface",
        "`abcdefghijklmnop` is not a link name: 1 to 15 bytes without `/`, blanks and `:`",
    ),
    (
        "network: {interfaces: [{interface: eth0, cidr: 10.0.0.1/33}]}",
        "machine.network.interfaces[0].cidr",
        "[networking.os.device.CIDR] \"eth0\": `10.0.0.1/33` is not an address with prefix length: 10.0.0.2/24",
    ),
    (
        "network: {interfaces: [{interface: eth0, addresses: [10.0.0]}]}",
        "machine.network.interfaces[0].addresses[0]",
        "`10.0.0` is not an address with prefix length: 10.0.0.2/24",
    ),
    (
        "network: {interfaces: [{interface: eth0, addresses: ['fd00::1']}]}",
        "machine.network.interfaces[0].addresses[0]",
        "read as fd00::1/128: no neighbour on the link is reached without a route",
    ),
    (
        "network: {interfaces: [{interface: eth0, vlans: [{vlanId: 5, cidr: 10.0.0.1}]}]}",
        "machine.network.interfaces[0].vlans[0].cidr",
        "read as 10.0.0.1/32: no neighbour on the link is reached without a route",
    ),
    (
        "network: {interfaces: [{interface: eth0, dhcp: true, cidr: 10.0.0.1/8}]}",
        "machine.network.interfaces[0].dhcp",
        "[networking.os.device] \"eth0\": invalid network device addressing method: dhcp and cidr exclude each other",
    ),
    (
        "network: {interfaces: [{interface: eth0, routes: [{network: x, gateway: 10.0.0.1}]}]}",
        "machine.network.interfaces[0].routes[0].network",
        "`x` is not an address with prefix length: 10.0.0.2/24",
    ),
    (
        "network: {interfaces: [{interface: eth0, routes: [{gateway: up}]}]}",
        "machine.network.interfaces[0].routes[0].gateway",
        "`up` is not an IP address",
    ),
    (
        "network: {interfaces: [{interface: eth0, routes: [{metric: 1}]}]}",
        "machine.network.interfaces[0].routes[0]",
        "a route needs `network`, `gateway` or both",
    ),
    (
        "network: {interfaces: [{interface: eth0, mtu: 20}]}",
        "machine.network.interfaces[0].mtu",
        "20 is no packet size: 68 to 65535",
    ),
    (
        "network: {interfaces: [{interface: eth0, vlans: [{vlanId: 5}, {vlanId: 5}]}]}",
        "machine.network.interfaces[0].vlans[1].vlanId",
        "duplicate VLAN id  5 given",
    ),
    (
        "network: {interfaces: [{interface: eth0, vlans: [{vlanId: 4095}]}]}",
        "machine.network.interfaces[0].vlans[0].vlanId",
        "4095 is no VLAN number: 1 to 4094",
    ),
    (
        "network: {interfaces: [{interface: b0, bond: {}}]}",
        "machine.network.interfaces[0].bond.interfaces",
        "invalid bond configuration for b0: must supply sub interfaces for bonded interface",
    ),
    (
        "network: {interfaces: [{interface: b0, bond: {interfaces: [a], lacpRate: fast}}]}",
        "machine.network.interfaces[0].bond.lacpRate",
        "bond.lacpRate is only available in 802.3ad mode",
    ),
    (
        "network: {interfaces: [{interface: b0, bond: {interfaces: [a], updelay: 1}}]}",
        "machine.network.interfaces[0].bond.updelay",
        "bond.updelay needs miimon",
    ),
    (
        "network: {interfaces: [{interface: b0, bond: {interfaces: [a], miimon: 100, downdelay: 150}}]}",
        "machine.network.interfaces[0].bond.downdelay",
        "bond.downdelay should be a multiple of miimon, 100",
    ),
    (
        "network: {interfaces: [{interface: b0, bond: {interfaces: [a], miimon: 100, arpInterval: 1}}]}",
        "machine.network.interfaces[0].bond.arpInterval",
        "bond.arpInterval and bond.miimon exclude each other",
    ),
    (
        "network: {interfaces: [{interface: wg0, wireguard: {privateKey: hunter2}}]}",
        "machine.network.interfaces[0].wireguard.privateKey",
        "the key is not base64 of 32 bytes",
    ),
    (
        "network: {interfaces: [{interface: eth0, vip: {ip: 10.0.0.1}}]}",
        "machine.network.interfaces[0].vip",
        "virtual (shared) IP is not allowed on non-controlplane nodes",
    ),
    (
        "disks: [{device: /dev/sdb, partitions: [{mountpoint: /var/a}, {size: 1GB, mountpoint: /var/b}]}]",
        "machine.disks[0].partitions[0].size",
        "partition for disk \"/dev/sdb\" is set to occupy full disk, but it's not the last partition in the list",
    ),
    ("disks: [{device: sdb}]", "machine.disks[0].device", "`sdb` is not a device: /dev/sdb"),
    (
        "disks: [{device: /dev/sdb, partitions: [{mountpoint: /mnt}]}]",
        "machine.disks[0].partitions[0].mountpoint",
        "`/mnt` is not below /var",
    ),
    (
        "systemDiskEncryption: {ephemeral: {provider: luks2}}",
        "machine.systemDiskEncryption.ephemeral.keys",
        "no encryption keys provided for the ephemeral partition encryption",
    ),
    (
        "systemDiskEncryption: {state: {provider: luks2, keys: [{nodeID: {}, slot: 1}, {nodeID: {}, slot: 1}]}}",
        "machine.systemDiskEncryption.state.keys[1].slot",
        "encryption key slot 1 is already in use",
    ),
    (
        "systemDiskEncryption: {state: {provider: luks2, keys: [{slot: 1}]}}",
        "machine.systemDiskEncryption.state.keys[0]",
        "encryption key at slot 1 doesn't have any settings",
    ),
    (
        "systemDiskEncryption: {state: {provider: luks2, keys: [{slot: 1, nodeID: {}, tpm: {}}]}}",
        "machine.systemDiskEncryption.state.keys[0]",
        "encryption key at slot 1 has more than one of static, nodeID, kms, tpm, recovery",
    ),
    (
        "systemDiskEncryption: {state: {provider: luks2, keys: [{slot: 3, recovery: {recipients: [age1e7cahvd0e6rexnshazk8n02yrz04k74l8ugxwwfvvfnz72aufspqf4h8cd]}}]}}",
        "machine.systemDiskEncryption.state.keys",
        "a recovery key alone would leave it locked at every boot; add a nodeID, static, kms or tpm key",
    ),
    (
        "systemDiskEncryption: {state: {provider: luks2, keys: [{nodeID: {}}, {slot: 3, recovery: {}}]}}",
        "machine.systemDiskEncryption.state.keys[1].recovery.recipients",
        "nobody could decrypt the key; name the public key that age-keygen prints",
    ),
    (
        "systemDiskEncryption: {state: {provider: luks2, keys: [{nodeID: {}}, {slot: 3, recovery: {recipients: [age1e7cahbd0e6rexnshazk8n02yrz04k74l8ugxwwfvvfnz72aufspqf4h8cd]}}]}}",
        "machine.systemDiskEncryption.state.keys[1].recovery.recipients[0]",
        "no public key of age: character 10 is none of bech32",
    ),
    (
        "systemDiskEncryption: {state: {provider: luks2, keys: [{nodeID: {}}, {slot: 3, recovery: {recipients: [age1e7cahvd0e6rexnshazk8n02yrz04k74l8ugxwwfvvfnz72aufspqf4h8cd, age1e7cahvd0e6rexnshazk8n02yrz04k74l8ugxwwfvvfnz72aufspqf4h8cd, age1e7cahvd0e6rexnshazk8n02yrz04k74l8ugxwwfvvfnz72aufspqf4h8cd, age1e7cahvd0e6rexnshazk8n02yrz04k74l8ugxwwfvvfnz72aufspqf4h8cd, age1e7cahvd0e6rexnshazk8n02yrz04k74l8ugxwwfvvfnz72aufspqf4h8cd, age1e7cahvd0e6rexnshazk8n02yrz04k74l8ugxwwfvvfnz72aufspqf4h8cd, age1e7cahvd0e6rexnshazk8n02yrz04k74l8ugxwwfvvfnz72aufspqf4h8cd, age1e7cahvd0e6rexnshazk8n02yrz04k74l8ugxwwfvvfnz72aufspqf4h8cd, age1e7cahvd0e6rexnshazk8n02yrz04k74l8ugxwwfvvfnz72aufspqf4h8cd]}}]}}",
        "machine.systemDiskEncryption.state.keys[1].recovery.recipients",
        "9 are too many: 8 at most",
    ),
    (
        "systemDiskEncryption: {state: {provider: luks2, keys: [{nodeID: {}}, {slot: 3, recovery: {recipients: [ssh-ed25519]}}]}}",
        "machine.systemDiskEncryption.state.keys[1].recovery.recipients[0]",
        "recipients are X25519 keys of age: age1…, as age-keygen prints them",
    ),
    (
        "systemDiskEncryption: {ephemeral: {provider: luks2, keys: [{nodeID: {}}, {slot: 3, lockToState: true, recovery: {recipients: [age1e7cahvd0e6rexnshazk8n02yrz04k74l8ugxwwfvvfnz72aufspqf4h8cd]}}]}}",
        "machine.systemDiskEncryption.ephemeral.keys[1].lockToState",
        "a recovery key opens the volume alone, whatever became of STATE; leave it out",
    ),
    (
        "systemDiskEncryption: {state: {provider: luks2, keys: [{slot: 32, nodeID: {}}]}}",
        "machine.systemDiskEncryption.state.keys[0].slot",
        "32 is no key slot: LUKS2 has 0 to 31",
    ),
    (
        "systemDiskEncryption: {ephemeral: {provider: luks2, keys: [{static: {}}]}}",
        "machine.systemDiskEncryption.ephemeral.keys[0].static.passphrase",
        "an empty passphrase protects nothing",
    ),
    (
        "systemDiskEncryption: {ephemeral: {provider: luks2, keys: [{kms: {}}]}}",
        "machine.systemDiskEncryption.ephemeral.keys[0].kms.endpoint",
        "missing; write where the key server answers",
    ),
    (
        "systemDiskEncryption: {ephemeral: {provider: luks2, keys: [{kms: {endpoint: 'http://kms'}}]}}",
        "machine.systemDiskEncryption.ephemeral.keys[0].kms.endpoint",
        "`http://kms` is neither https://HOST:PORT nor grpc://HOST:PORT",
    ),
    (
        "systemDiskEncryption: {ephemeral: {provider: luks2, keys: [{kms: {endpoint: 'kms:4050'}}]}}",
        "machine.systemDiskEncryption.ephemeral.keys[0].kms.endpoint",
        "`kms:4050` is taken as grpc://kms:4050, which is not encrypted: who listens has the key; write https:// or grpc:// before it",
    ),
    (
        "systemDiskEncryption: {state: {provider: luks2, keys: [{nodeID: {}, lockToState: true}]}}",
        "machine.systemDiskEncryption.state.keys[0].lockToState",
        "a key of STATE cannot be locked to STATE; leave it out",
    ),
    (
        "systemDiskEncryption: {state: {provider: luks2, keys: [{static: {passphrase: a}}]}}",
        "machine.systemDiskEncryption.state.keys",
        "a static key of STATE is stored unencrypted in META; use it for EPHEMERAL only",
    ),
    (
        "systemDiskEncryption: {state: {provider: luks2, keys: [{tpm: {options: {pcrs: [4]}}}]}}",
        "machine.systemDiskEncryption.state.keys[0].tpm.options.pcrs",
        "an upgrade changes register 4, and the key opens no more: keep another key",
    ),
];

/// Each rule of `cluster` with its message.
pub(super) const CLUSTER: &[(&str, &str, &str)] = &[
    (
        "acceptedCAs: [{crt: YQ==}]",
        "cluster.acceptedCAs[0].crt",
        "not a certificate; write base64 of its PEM text",
    ),
    ("clusterName: a_b", "cluster.clusterName", "`a_b` is not a DNS name"),
    (
        "network: {cni: {name: calico}}",
        "cluster.network.cni.name",
        "cni name should be one of [custom,flannel,none]",
    ),
    (
        "network: {cni: {name: custom}}",
        "cluster.network.cni.urls",
        "at least one url should be specified if using \"custom\" option for CNI",
    ),
    ("network: {dnsDomain: a..b}", "cluster.network.dnsDomain", "\"a..b\" is not a valid DNS name"),
    (
        "network: {podSubnets: [a]}",
        "cluster.network.podSubnets[0]",
        "`a` is not an address with prefix length: 10.0.0.2/24",
    ),
    ("etcd: {extraArgs: {name: x}}", "cluster.etcd.extraArgs.name", "extra arg \"name\" is not allowed"),
    (
        "aescbcEncryptionSecret: YQ==",
        "cluster.aescbcEncryptionSecret",
        "the key has 1 bytes; it needs 32, in base64",
    ),
    (
        "inlineManifests: [{name: a}, {name: a}]",
        "cluster.inlineManifests[1].name",
        "inline manifest name \"a\" is used twice",
    ),
    (
        "inlineManifests: [{contents: a}]",
        "cluster.inlineManifests[0].name",
        "missing; each manifest needs a name",
    ),
    (
        "extraManifests: [a]",
        "cluster.extraManifests[0]",
        "`a` is not an address: http://host:port or https://host",
    ),
];

#[test]
fn each_rule_has_its_message() {
    for (yaml, path, message) in MACHINE {
        let found = checked(&format!("  {yaml}"), "", Mode::Cloud);
        assert_eq!(found, [((*path).to_owned(), (*message).to_owned())], "{yaml}");
    }
    for (yaml, path, message) in CLUSTER {
        let found = checked("", &format!("  {yaml}"), Mode::Cloud);
        assert_eq!(found, [((*path).to_owned(), (*message).to_owned())], "{yaml}");
    }
}

#[test]
fn a_shared_address_must_be_one() {
    let machine = "  type: controlplane\n  ca: {crt: YQ==, key: YQ==}\n  network: {interfaces: [{interface: eth0, vip: {ip: x}}]}";
    let message = "[networking.os.device.vip] failed to parse \"x\" as IP address".to_owned();
    assert_eq!(
        checked(machine, "", Mode::Cloud),
        [("machine.network.interfaces[0].vip.ip".to_owned(), message)]
    );
}

#[test]
fn only_metal_needs_an_install_disk() {
    assert_eq!(checked("", "", Mode::Cloud), []);
    let with_resolver = "  features: {hostDNS: {enabled: true, forwardKubeDNSToHost: true}}";
    let warnings = checked(with_resolver, "", Mode::Container);
    assert!(warnings.iter().all(|(path, _)| path == "machine.features.hostDNS"), "{warnings:?}");
    let messages: Vec<_> = checked("", "", Mode::Metal).into_iter().map(|(_, message)| message).collect();
    assert_eq!(
        messages,
        [
            "install instructions are required in \"metal\" mode",
            "an install disk is required in \"metal\" mode: either install disk or diskSelector should be defined",
        ]
    );
    assert_eq!(checked("  install: {disk: /dev/sda}", "", Mode::Metal), []);
    assert_eq!(checked("  install: {diskSelector: {type: ssd}}", "", Mode::Metal), []);
    let wrong = checked("  install: {disk: sda}", "", Mode::Metal);
    assert_eq!(wrong, [("machine.install.disk".to_owned(), "`sda` is not a device: /dev/sda".to_owned())]);
}

#[test]
fn container_mode_needs_the_resolver_of_the_host() {
    let of_first_generation = checked("", "", Mode::Container);
    assert!(of_first_generation.iter().all(|(_, said)| !said.contains("container mode")));
    let field = "machine.features.hostDNS";
    for (features, message) in [
        ("{}", "hostDNS config is required in container mode"),
        ("{hostDNS: {enabled: false}}", "hostDNS must be enabled in container mode"),
        ("{hostDNS: {enabled: true}}", "forwardKubeDNSToHost must be enabled in container mode"),
    ] {
        let features = format!("  features: {features}");
        let wrong = checked(&features, "", Mode::Container);
        assert!(wrong.contains(&(field.to_owned(), message.to_owned())), "{features}: {wrong:?}");
        let other = checked(&features, "", Mode::Cloud);
        assert!(other.iter().all(|(_, said)| said != message), "{features}: {other:?}");
    }
    let document = "version: v1alpha1\nmachine: {token: a.b}\ncluster: {controlPlane: {endpoint: 'https://a:6443'}}\n---\n\
                    apiVersion: v1alpha1\nkind: ResolverConfig\nhostDNS: {enabled: true, forwardKubeDNSToHost: true}\n";
    let loaded = crate::load(document.as_bytes()).unwrap_or_else(|e| panic!("{e}"));
    assert!(loaded.validate(Mode::Container).is_ok());
}

#[test]
fn a_worker_without_a_ca_is_told_and_is_no_fault_of_a_config_that_is_there() {
    let load = |machine: &str| {
        let text = format!(
            "version: v1alpha1\nmachine: {{token: a.b, {machine}}}\n\
             cluster: {{controlPlane: {{endpoint: 'https://a:6443'}}}}\n"
        );
        crate::load(text.as_bytes()).unwrap_or_else(|e| panic!("{e}"))
    };
    for machine in ["type: worker", "type: join, ca: {crt: '', key: ''}", "acceptedCAs: []"] {
        let loaded = load(machine);
        let found = loaded.lacks_authority().unwrap_or_else(|| panic!("{machine}"));
        assert_eq!((found.severity, found.path.as_str(), found.line), (Severity::Error, "machine.ca", 2));
        assert!(found.message.starts_with("a worker needs the certificate of the API's CA"));
        assert!(loaded.validate(Mode::Cloud).is_ok(), "{machine}");
    }
    let text = "version: v1alpha1\nmachine: {token: a.b, type: worker}\n\
                cluster: {ca: {crt: YQ==}, controlPlane: {endpoint: 'https://a:6443'}}\n";
    let found = crate::load(text.as_bytes()).ok().unwrap().lacks_authority().unwrap();
    assert_eq!(found.severity, Severity::Warning);
    assert!(found.message.contains("until its kubelet has joined the cluster"), "{}", found.message);
    for machine in
        ["type: controlplane", "type: worker, ca: {crt: YQ==}", "type: worker, acceptedCAs: [{crt: YQ==}]"]
    {
        assert_eq!(load(machine).lacks_authority(), None, "{machine}");
    }
}

#[test]
fn missing_parts_are_all_told() {
    let loaded = crate::load(b"version: v1alpha1\n").ok().unwrap();
    let messages: Vec<_> =
        loaded.validate(Mode::Cloud).err().unwrap().0.into_iter().map(|d| d.message).collect();
    for message in [
        "machine instructions are required",
        "cluster instructions are required",
        "cluster controlplane endpoint is required",
    ] {
        assert!(messages.iter().any(|m| m == message), "{messages:?}");
    }
    let kept =
        crate::load(b"machine: {token: a}\ncluster: {controlPlane: {endpoint: 'https://a'}}\n").ok().unwrap();
    assert!(kept.validate(Mode::Cloud).unwrap()[0].message.contains(".persist should be enabled"));
}

#[test]
fn rules_of_documents_name_the_document_and_the_line() {
    let text = "machine: {token: a}\ncluster: {controlPlane: {endpoint: 'https://a'}}\n---\napiVersion: v1alpha1\nkind: VLANConfig\nname: a.5\nvlanID: 0\nparent: a\n---\napiVersion: v1alpha1\nkind: HostnameConfig\n";
    let found = crate::load(text.as_bytes()).ok().unwrap().validate(Mode::Cloud).err().unwrap().0;
    let found: Vec<_> = found.iter().map(|d| (d.document, d.line, d.message.as_str())).collect();
    assert_eq!(
        found,
        [
            (2, 7, "0 is no VLAN number: 1 to 4094"),
            (3, 10, "`hostname`, alone or with `auto: off`, or `auto` is needed")
        ]
    );
}

/// Documents as the current generation of clients writes them.
#[test]
fn documents_that_the_current_clients_write_are_taken() {
    let main = "version: v1alpha1\nmachine: {type: worker, token: a.b}\n\
        cluster: {controlPlane: {endpoint: 'https://10.0.0.1:6443'}}\n";
    for document in include_str!("../../testdata/current-clients.yaml").split("---\n") {
        let text = format!("{main}---\napiVersion: v1alpha1\n{document}\n");
        let loaded = crate::load(text.as_bytes()).unwrap_or_else(|e| panic!("{document}: {e}"));
        loaded.validate(Mode::Cloud).unwrap_or_else(|e| panic!("{document}: {e}"));
    }
}

#[test]
fn values_that_current_clients_leave_empty_are_not_set() {
    let text = "version: v1alpha1\nmachine: {type: worker, token: a.b, network: {interfaces: [{interface: bond0, bond: \
        {mode: '', lacpRate: '', interfaces: [eth0]}}]}, systemDiskEncryption: {state: {provider: '', keys: [{nodeID: \
        {}}]}}}\ncluster: {controlPlane: {endpoint: 'https://10.0.0.1:6443'}}\n";
    let loaded = crate::load(text.as_bytes()).unwrap_or_else(|e| panic!("{e}"));
    loaded.validate(Mode::Cloud).unwrap_or_else(|e| panic!("{e}"));
    let bond = loaded.config.machine.network.interfaces[0].bond.as_ref().unwrap();
    assert!(bond.mode.is_none() && bond.lacp_rate.is_none());
    let wrong = text.replace("mode: ''", "mode: ' '");
    assert!(crate::load(wrong.as_bytes()).is_err());
}
