//! One resource of every published type that this node writes, every field filled: for tests that read them all.

use std::sync::Arc;

use super::*;

type Sample = (&'static Definition, Spec);

/// All of them.
pub fn samples() -> Vec<Sample> {
    [machine(), network(), block(), hardware(), facts(), specs(), samples_kubernetes::all()].concat()
}

fn text() -> String {
    "x".to_owned()
}

/// The config of a control plane with keys.
fn document() -> Arc<MachineDocument> {
    let text = "version: v1alpha1\nmachine:\n  type: controlplane\n  token: aaaaaa.bbbbbbbbbbbbbbbb\n  \
                ca: {crt: YQo=, key: Ygo=}\n  certSANs: [10.0.0.9, n1.example]\n";
    let loaded = config::load(text.as_bytes()).unwrap_or_else(|e| panic!("{e}"));
    Arc::new(MachineDocument::new(zeroize::Zeroizing::new(text.to_owned()), loaded.config, loaded.documents))
}

fn kubernetes_root() -> KubernetesRoot {
    let api_addresses = vec!["10.96.0.1".parse().expect("an address")];
    KubernetesRoot { document: document(), local_endpoint: text(), api_addresses }
}

fn machine() -> Vec<Sample> {
    let unmet_conditions = vec![UnmetCondition { name: "time".into(), reason: "silent".into() }];
    let status = StageStatus { ready: true, unmet_conditions };
    let state = SecurityState { secure_boot: true, booted_with_uki: true, module_signature_enforced: true };
    let module = KernelModule { name: text(), parameters: vec![text()], loaded: true, error: text() };
    let runtime = |kind, spec| (kind, Spec::Runtime(spec));
    vec![
        runtime(&MACHINE_STATUS, RuntimeSpec::MachineStatus(MachineStatus { stage: "running", status })),
        runtime(&VERSION, RuntimeSpec::Version(Version { name: "Billet", version: "v1".into() })),
        runtime(&SECURITY_STATE, RuntimeSpec::SecurityState(state)),
        runtime(&KERNEL_MODULE_SPEC, RuntimeSpec::KernelModule(module)),
        runtime(
            &KMSG_LOG_CONFIG,
            RuntimeSpec::KmsgLog(KmsgLog { destinations: vec!["tcp://10.0.0.1:5/".into()] }),
        ),
        runtime(&META_KEY, RuntimeSpec::MetaKey(MetaKey { value: text() })),
        runtime(&IDENTITY, RuntimeSpec::Identity(Identity { node_id: text() })),
        runtime(&CLUSTER_INFO, RuntimeSpec::Cluster(Cluster { cluster_id: text(), cluster_name: text() })),
        (&SERVICE, Spec::Service(ServiceStatus { running: true, healthy: true, unknown: true })),
        (&MACHINE_TYPE, Spec::MachineType("controlplane")),
        (&MACHINE_CONFIG, Spec::MachineConfig(document())),
        (&TIME_STATUS, Spec::TimeStatus(TimeStatus { synced: true, epoch: 2, sync_disabled: true })),
        (
            &KERNEL_PARAM_STATUS,
            Spec::KernelParamStatus(KernelParamStatus {
                current: "1".into(),
                default: "0".into(),
                unsupported: true,
            }),
        ),
        (
            &MOUNT_STATUS,
            Spec::MountStatus(MountStatus {
                source: "none".into(),
                target: "/proc".into(),
                filesystem_type: "proc".into(),
                options: vec!["rw".into()],
            }),
        ),
    ]
}

fn bond() -> BondStatus {
    BondStatus {
        mode: "802.3ad".into(),
        xmit_hash_policy: "layer3+4".into(),
        lacp_rate: "fast".into(),
        arp_validate: "filter_backup".into(),
        arp_all_targets: "all".into(),
        primary: 2,
        primary_reselect: "failure".into(),
        fail_over_mac: "follow".into(),
        ad_select: "bandwidth".into(),
        miimon: 100,
        updelay: 200,
        downdelay: 300,
        arp_interval: 400,
        resend_igmp: 1,
        min_links: 2,
        lp_interval: 3,
        packets_per_slave: 4,
        num_peer_notif: 5,
        tlb_dynamic_lb: 1,
        all_slaves_active: 1,
        use_carrier: true,
        ad_actor_sys_prio: 65535,
        ad_user_port_key: 6,
        peer_notify_delay: 500,
        arp_ip_targets: vec!["10.0.2.2".into()],
        ns_ip6_targets: vec!["fd00::2".into()],
        ad_lacp_active: "on".into(),
        missed_max: 7,
    }
}

fn wireguard() -> WireguardStatus {
    let peer = WireguardPeerStatus {
        public_key: text(),
        endpoint: "10.0.2.2:51820".into(),
        persistent_keepalive_interval: "25s".into(),
        allowed_ips: vec!["10.92.0.0/24".into()],
        last_handshake: "2026-01-02T03:04:05Z".into(),
        received_bytes: 8,
        transmitted_bytes: 9,
    };
    WireguardStatus { public_key: text(), listen_port: 51820, firewall_mark: 7, peers: vec![peer] }
}

fn network() -> Vec<Sample> {
    let address = AddressStatus {
        address: "10.0.2.15/24".into(),
        link_index: 2,
        link_name: "eth0".into(),
        family: "inet4",
        scope: "link".into(),
    };
    let link = LinkStatus {
        index: 2,
        kind_of_link: "ether".into(),
        flags: 0x1_1043,
        kind: "vlan".into(),
        hardware_addr: "52:54:00:12:34:56".into(),
        mtu: 1500,
        operational_state: "up".into(),
        link_state: true,
        link_index: 1,
        permanent_addr: "52:54:00:12:34:57".into(),
        broadcast_addr: "ff:ff:ff:ff:ff:ff".into(),
        queue_disc: "fq_codel".into(),
        master_index: Some(3),
        slave_kind: "bond".into(),
        bus_path: "0000:00:03.0".into(),
        pci_id: "1AF4:1000".into(),
        driver: "virtio_net".into(),
        driver_version: "1.0.0".into(),
        firmware_version: text(),
        product_id: "0x1000".into(),
        vendor_id: "0x1af4".into(),
        product: text(),
        vendor: text(),
        speed_mbit: Some(1000),
        port: "Fibre",
        duplex: "Full",
        bond_master: Some(Box::new(bond())),
        wireguard: Some(wireguard()),
        alias: text(),
        alt_names: vec!["enp0s3".into()],
        vlan: Some(VlanStatus { id: 5, protocol: "802.1ad" }),
        bridge_master: Some(BridgeStatus {
            stp: Enabled { enabled: true },
            vlan: Filtering { filtering_enabled: true },
        }),
        vrf_master: Some(VrfStatus { table: "main".into() }),
    };
    let route = RouteStatus {
        family: "inet4",
        dst: "10.9.0.0/16".into(),
        src: "10.0.2.15".into(),
        gateway: "10.0.2.2".into(),
        out_link_name: "eth0".into(),
        table: "main".into(),
        priority: 1024,
        scope: "link".into(),
        kind: "unicast".into(),
        protocol: "dhcp".into(),
    };
    let status = NetworkStatus {
        address_ready: true,
        connectivity_ready: true,
        hostname_ready: true,
        etc_files_ready: true,
        reasons: Vec::new(),
    };
    let rule = RoutingRule {
        family: "inet6",
        src: "2001:db8::/32".into(),
        dst: "fd00::7/128".into(),
        table: "main".into(),
        priority: 32766,
        action: "unicast".into(),
        iif_name: "eth0".into(),
        oif_name: "eth1".into(),
        fw_mark: 7,
        fw_mask: 255,
    };
    let resolver = HostDnsConfig {
        enabled: true,
        listen_addresses: vec!["127.0.0.53:53".into()],
        service_host_dns_address: Some("169.254.116.108".into()),
        resolve_member_names: true,
    };
    let upstream = DnsUpstream { healthy: true, addr: "10.0.2.3:53".into() };
    let hardware = HardwareAddress { name: "eth0".into(), hardware_addr: "52:54:00:12:34:56".into() };
    let resolvers = Resolvers { dns_servers: vec!["10.0.2.3".into()], search_domains: vec!["b.c".into()] };
    let addresses = NodeAddresses { addresses: vec!["10.0.2.15/24".into()] };
    let addressing = |kind, spec| (kind, Spec::Addressing(spec));
    vec![
        (&HOSTNAME_STATUS, Spec::HostnameStatus(HostnameStatus { hostname: text(), domainname: text() })),
        (&ADDRESS_STATUS, Spec::AddressStatus(address)),
        (&LINK_STATUS, Spec::LinkStatus(Box::new(link))),
        (&ROUTE_STATUS, Spec::RouteStatus(route)),
        (&TIME_SERVER_STATUS, Spec::TimeServerStatus(vec!["a".into()])),
        addressing(&NODE_ADDRESS, Addressing::Addresses(addresses)),
        addressing(&HARDWARE_ADDRESS, Addressing::Hardware(hardware)),
        addressing(&RESOLVER_STATUS, Addressing::Resolvers(resolvers)),
        addressing(&NETWORK_STATUS, Addressing::Status(status)),
        addressing(&ROUTING_RULE_STATUS, Addressing::Rule(rule.clone())),
        addressing(&HOST_DNS_CONFIG, Addressing::HostDns(resolver)),
        addressing(&DNS_UPSTREAM, Addressing::Upstream(upstream)),
        (&NF_TABLES_CHAIN, Spec::Fields(nf_tables_chain())),
        (&LINK_ALIAS_SPEC, Spec::Fields(serde_json::json!({ "alias": "x" }))),
        addressing(&DNS_RESOLVE_CACHE, Addressing::ResolveCache { status: "running" }),
        addressing(&ROUTING_RULE_SPEC, Addressing::RuleSpec { rule: rule.clone(), layer: "configuration" }),
    ]
}

/// Every field of the chain itself, and of a rule what the firewall has.
fn nf_tables_chain() -> serde_json::Value {
    serde_json::json!({
        "type": "filter", "hook": "input", "priority": "security", "policy": "accept",
        "rules": [{
            "matchIIfName": { "operator": "equal", "interfaceName": ["lo"] },
            "matchConntrackState": { "states": ["established", "related"] },
            "matchSourceAddress": { "includeSubnets": ["10.0.0.0/8"] },
            "matchLayer4": {
                "protocol": "tcp",
                "matchDestinationPort": { "ranges": [{ "lo": 1, "hi": 2 }] },
            },
            "anonymousCounter": true, "verdict": "accept",
        }],
    })
}

fn block() -> Vec<Sample> {
    let disk = Disk {
        dev_path: "/dev/vda".into(),
        size: 5 << 40,
        pretty_size: "5 TB".into(),
        io_size: 512,
        sector_size: 512,
        readonly: true,
        cdrom: true,
        model: text(),
        serial: text(),
        modalias: text(),
        wwid: text(),
        uuid: text(),
        bus_path: text(),
        sub_system: text(),
        transport: text(),
        rotational: true,
        secondary_disks: vec![text()],
        symlinks: vec![text()],
    };
    let device = BlockDevice {
        kind: "partition",
        major: 254,
        minor: 1,
        partition_name: "STATE".into(),
        partition_number: 5,
        device_path: text(),
        parent: "vda".into(),
        secondaries: vec![text()],
    };
    let volume = DiscoveredVolume {
        dev_path: "/dev/vda1".into(),
        kind: "partition",
        size: 4096,
        pretty_size: "4 kB".into(),
        sector_size: 512,
        io_size: 512,
        name: "xfs".into(),
        uuid: text(),
        label: text(),
        partition_uuid: text(),
        partition_type: text(),
        partition_label: text(),
        partition_index: 1,
        parent: text(),
        parent_dev_path: text(),
        error: text(),
    };
    let status = VolumeStatus {
        phase: "ready",
        kind: "disk",
        location: text(),
        mount_location: text(),
        partition_uuid: text(),
        partition_index: 6,
        parent_location: text(),
        size: 4096,
        pretty_size: "4 kB".into(),
        filesystem: "xfs",
        encryption_provider: "luks2",
        encryption_slot: Some(1),
        encryption_key: "tpm".into(),
        configured_encryption_keys: vec![text()],
        encryption_failed_syncs: vec![text()],
        error_message: text(),
    };
    let system = SystemDisk { disk_id: "vda".into(), dev_path: "/dev/vda".into() };
    let block = |kind, spec| (kind, Spec::Block(Box::new(spec)));
    vec![
        block(&DISK, Block::Disk(disk)),
        block(&SYSTEM_DISK, Block::SystemDisk(system)),
        block(&BLOCK_DEVICE, Block::Device(device)),
        block(&DISCOVERED_VOLUME, Block::Volume(volume)),
        block(&VOLUME_STATUS, Block::VolumeStatus(status)),
    ]
}

fn hardware() -> Vec<Sample> {
    let processor = Processor {
        socket: "CPU-0".into(),
        manufacturer: text(),
        product_name: text(),
        max_speed_mhz: 2000,
        boot_speed_mhz: 2000,
        status: 65,
        serial_number: text(),
        asset_tag: text(),
        part_number: text(),
        core_count: 2,
        core_enabled: 2,
        thread_count: 4,
    };
    let module = MemoryModule {
        size_mib: 1024,
        device_locator: "DIMM-0".into(),
        bank_locator: text(),
        speed: 3200,
        manufacturer: text(),
        product_name: text(),
        serial_number: text(),
        asset_tag: text(),
    };
    let system = SystemInformation {
        manufacturer: "QEMU".into(),
        product_name: text(),
        version: text(),
        serial_number: "S-1".into(),
        uuid: text(),
        wake_up_type: "Power Switch",
        sku_number: text(),
    };
    let device = PciDevice {
        class: text(),
        subclass: text(),
        vendor: text(),
        product: text(),
        class_id: "0x02".into(),
        subclass_id: text(),
        vendor_id: text(),
        product_id: text(),
        driver: "virtio-pci".into(),
    };
    let hardware = |kind, spec| (kind, Spec::Hardware(Box::new(spec)));
    vec![
        hardware(&PROCESSOR, Hardware::Processor(processor)),
        hardware(&MEMORY_MODULE, Hardware::MemoryModule(module)),
        hardware(&SYSTEM_INFORMATION, Hardware::SystemInformation(system)),
        hardware(&PCI_DEVICE, Hardware::PciDevice(device)),
    ]
}

fn facts() -> Vec<Sample> {
    let module = LoadedModule {
        size: 4096,
        reference_count: 1,
        dependencies: vec![text()],
        state: "live".into(),
        address: "0x0".into(),
    };
    let core = CpuCore {
        socket: "0".into(),
        core_id: "1".into(),
        logical_cpus: vec![0, 2],
        vendor_id: text(),
        cpu_family: text(),
        model: text(),
        model_name: text(),
        stepping: text(),
        microcode: text(),
        cache_size: text(),
        cores_per_socket: 2,
        threads_per_socket: 4,
        flags: vec![text()],
        bugs: vec![text()],
        bogo_mips: 2.5,
        address_sizes: text(),
    };
    let item = SbomItem { name: text(), version: text(), license: text(), purls: vec![text()] };
    let mount = VolumeMount {
        volume_id: text(),
        requester: text(),
        target: text(),
        read_only: true,
        detached: true,
        disable_access_time: true,
        secure: true,
        no_exec: true,
    };
    let partition = VolumePartition {
        label: text(),
        min_size: 1,
        max_size: 2,
        relative_max_size: 3,
        negative_max_size: true,
        grow: true,
    };
    let volume = VolumeConfig {
        kind: "disk",
        provisioning: VolumeProvisioning {
            partition_spec: partition,
            filesystem_spec: Some(VolumeFilesystem { kind: "xfs" }),
        },
        mount: Some(VolumeTarget { target_path: text() }),
        encryption: Some(VolumeEncryption {
            provider: "luks2",
            keys: vec![VolumeKey { slot: 1, kind: "tpm".into() }],
        }),
    };
    let sans = CertSans { ips: vec!["10.0.0.9".into()], dns_names: vec![text()], fqdn: text() };
    let file = EtcFile { contents: "YQo=".into(), mode: 0o644, selinux_label: "x" };
    let status =
        ModuleStatus { kind: "dynamic", module: LoadedModule { state: "loading".into(), ..module.clone() } };
    let extension =
        Extension { image: text(), metadata: ExtensionMetadata { name: text(), version: text() } };
    let param = KernelParam { value: "1".into(), ignore_errors: true };
    let fact = |kind, fact| (kind, Spec::Fact(Box::new(fact)));
    vec![
        fact(&KERNEL_CMDLINE, Fact::Cmdline { cmdline: text() }),
        fact(&BOOT_ID, Fact::BootId { boot_id: text() }),
        fact(&BOOTED_ENTRY, Fact::BootedEntry { booted_entry: text() }),
        fact(&ENVIRONMENT, Fact::Environment { variables: vec![text()] }),
        fact(&LOADED_KERNEL_MODULE, Fact::LoadedModule(module)),
        fact(&KERNEL_MODULE_STATUS, Fact::ModuleStatus(status)),
        fact(&PLATFORM_METADATA, Fact::Platform(PlatformMetadata { platform: text(), hostname: text() })),
        fact(&DIAGNOSTIC, Fact::Diagnostic(Diagnostic { message: text(), details: vec![text()] })),
        fact(&SBOM_ITEM, Fact::SbomItem(item)),
        fact(&CPU_CORE, Fact::CpuCore(Box::new(core))),
        fact(&VOLUME_CONFIG, Fact::VolumeConfig(Box::new(volume))),
        fact(&VOLUME_MOUNT_STATUS, Fact::VolumeMount(mount)),
        fact(&ETC_FILE_SPEC, Fact::EtcFile(file)),
        fact(&ETC_FILE_STATUS, Fact::EtcFileStatus { spec_version: "1".into() }),
        fact(&OS_ROOT_SECRET, Fact::OsRoot(OsRoot(document()))),
        fact(&KUBERNETES_ROOT_SECRET, Fact::KubernetesRoot(kubernetes_root())),
        fact(&CERT_SAN, Fact::CertSans(sans)),
        fact(&EXTENSION_STATUS, Fact::Extension(extension)),
        fact(&DEVICES_STATUS, Fact::Devices { ready: true }),
        fact(&KERNEL_PARAM_SPEC, Fact::KernelParam(param.clone())),
        fact(&KERNEL_PARAM_DEFAULT_SPEC, Fact::KernelParam(param)),
        fact(&SERVICE_PID, Fact::ServicePid(ServicePid { pid: 7, mount_namespace: text() })),
        fact(&ADJTIME_STATUS, Fact::Adjtime(Box::new(adjtime()))),
    ]
}

fn adjtime() -> Adjtime {
    Adjtime {
        offset: "-1.5ms".into(),
        frequency_adjustment_ratio: 1.00002,
        max_error: "16s".into(),
        est_error: "1.25µs".into(),
        status: "STA_PLL | STA_NANO".into(),
        constant: 7,
        sync_status: true,
        state: "TIME_OK",
    }
}

fn specs() -> Vec<Sample> {
    let address = AddressSpec {
        address: "10.0.0.7/24".into(),
        link_name: "eth0".into(),
        family: "inet4",
        scope: "link",
        flags: "permanent",
        layer: "configuration",
    };
    let link = LinkSpec {
        name: "eth0".into(),
        logical: true,
        up: true,
        mtu: 1400,
        kind: "x",
        kind_of_link: "ether",
        layer: "configuration",
    };
    let route = RouteSpec {
        family: "inet4",
        dst: "10.9.0.0/16".into(),
        src: "10.0.0.7".into(),
        gateway: "10.0.0.1".into(),
        out_link_name: "eth0".into(),
        table: "main",
        priority: 10,
        scope: "link",
        kind: "unicast",
        flags: "notify",
        protocol: "static",
        layer: "operator",
    };
    let name = HostnameSpec { hostname: text(), domainname: text(), layer: "cmdline" };
    let resolver = ResolverSpec {
        dns_servers: vec!["10.0.0.2".into()],
        layer: "operator",
        search_domains: vec![text()],
    };
    let probe = ProbeSpec {
        interval: "1s".into(),
        failure_threshold: 3,
        tcp: Some(TcpProbe { endpoint: "proxy:3128".into(), timeout: "10s".into() }),
        http: Some(HttpProbe { url: "https://a.example/".into(), timeout: "10s".into() }),
        layer: "configuration",
    };
    let found = ProbeStatus { success: true, last_error: text() };
    let numbers = |names: &[&str]| names.iter().map(|name| ((*name).to_owned(), 4.into())).collect();
    let ethernet = EthernetSpec {
        rings: numbers(&["rx", "rx-mini", "rx-jumbo", "tx", "rx-buf-len", "cqe-size", "tx-push-buf-len"]),
        features: [("tx-gso".to_owned(), true)].into(),
        channels: numbers(&["rx", "tx", "other", "combined"]),
        wake_on_lan: vec!["magic".into()],
    };
    let card = EthernetStatus {
        link_state: Some(true),
        speed_mbit: Some(1000),
        port: "DirectAttach",
        duplex: "Full",
        our_modes: vec!["1000baseT/Full".into()],
        peer_modes: vec!["1000baseT/Full".into()],
        rings: numbers(&["rx-max", "rx", "tx-max", "tx"]),
        features: vec![EthernetFeature { name: "tx-gso".into(), status: "on".into() }],
        channels: numbers(&["combined-max", "combined"]),
        wake_on_lan: vec!["magic".into()],
    };
    let operator = OperatorSpec {
        operator: "dhcp4",
        link_name: "eth0".into(),
        require_up: true,
        dhcp4: Some(Dhcp4 { route_metric: 1024 }),
        dhcp6: Some(Dhcp6 { route_metric: 1024 }),
        vip: Some(Vip { ip: "10.0.0.100".into(), gratuitous_arp: true }),
        layer: "configuration",
    };
    let spec = |kind, spec| (kind, Spec::Network(Box::new(spec)));
    vec![
        spec(&ADDRESS_SPEC, NetworkSpec::Address(address)),
        spec(&LINK_SPEC, NetworkSpec::Link(link)),
        spec(&ROUTE_SPEC, NetworkSpec::Route(route)),
        spec(&HOSTNAME_SPEC, NetworkSpec::Hostname(name)),
        spec(&RESOLVER_SPEC, NetworkSpec::Resolver(resolver)),
        spec(&OPERATOR_SPEC, NetworkSpec::Operator(operator)),
        spec(
            &TIME_SERVER_SPEC,
            NetworkSpec::TimeServers(TimeServerSpec {
                time_servers: vec![text()],
                layer: "operator",
                use_nts: true,
            }),
        ),
        spec(&PROBE_SPEC, NetworkSpec::Probe(probe)),
        spec(&PROBE_STATUS, NetworkSpec::ProbeStatus(found)),
        spec(&ETHERNET_SPEC, NetworkSpec::Ethernet(ethernet)),
        spec(&ETHERNET_STATUS, NetworkSpec::EthernetStatus(Box::new(card))),
        spec(&STATIC_HOST, NetworkSpec::StaticHost { addresses: vec!["10.0.0.9".into()] }),
    ]
}
