//! Published types that the node has, read by the published messages. `server/typed_tests.rs` reads all of them.

use api::proto::talos::resource::definitions::{
    block, cluster, config, enums, hardware, network, runtime, time, v1alpha1,
};

use super::*;
use crate::store::*;

fn read<M: Message + Default>(kind: &'static Definition, spec: &Spec) -> M {
    let bytes = spec.binary(kind.kind).unwrap_or_else(|e| panic!("{e:?}"));
    assert!(!bytes.is_empty(), "{}: nothing for a typed reader", kind.kind);
    M::decode(bytes.as_slice()).unwrap()
}

/// The sample of a type (`store/samples.rs`).
fn read_sample<M: Message + Default>(kind: &'static Definition) -> M {
    let (_, spec) = samples::samples().into_iter().find(|(of, _)| of.kind == kind.kind).unwrap();
    read(kind, &spec)
}

#[test]
fn what_runs_reaches_a_typed_reader() {
    let stage = StageStatus {
        ready: true,
        unmet_conditions: vec![UnmetCondition { name: "time".into(), reason: "silent".into() }],
    };
    let spec = Spec::Runtime(RuntimeSpec::MachineStatus(MachineStatus { stage: "running", status: stage }));
    let found: runtime::MachineStatusSpec = read(&MACHINE_STATUS, &spec);
    assert_eq!(found.stage(), enums::RuntimeMachineStage::Running);
    assert!(found.status.unwrap().ready);

    let spec = Spec::Service(ServiceStatus { running: true, healthy: true, unknown: false });
    let found: v1alpha1::ServiceSpec = read(&SERVICE, &spec);
    assert!(found.running && found.healthy && !found.unknown);

    for (name, number) in [("init", 1), ("controlplane", 2), ("worker", 3)] {
        let found: config::MachineTypeSpec = read(&MACHINE_TYPE, &Spec::MachineType(name));
        assert_eq!(found.machine_type, number);
    }
    let version = Spec::Runtime(RuntimeSpec::Version(Version { name: "Billet", version: "v1".into() }));
    assert_eq!(read::<runtime::VersionSpec>(&VERSION, &version).version, "v1");
    let state = SecurityState { secure_boot: true, booted_with_uki: true, module_signature_enforced: true };
    let found: runtime::SecurityStateSpec =
        read(&SECURITY_STATE, &Spec::Runtime(RuntimeSpec::SecurityState(state)));
    assert!(found.secure_boot && found.booted_with_uki && found.module_signature_enforced);
    let module = KernelModule {
        name: "dummy".into(),
        parameters: vec!["numdummies=2".into()],
        loaded: true,
        error: String::new(),
    };
    let found: runtime::KernelModuleSpecSpec =
        read(&KERNEL_MODULE_SPEC, &Spec::Runtime(RuntimeSpec::KernelModule(module)));
    assert_eq!((found.name.as_str(), found.parameters.len()), ("dummy", 1));
    let receivers = KmsgLog { destinations: vec!["tcp://10.0.2.2:5000/".into()] };
    let found: runtime::KmsgLogConfigSpec =
        read(&KMSG_LOG_CONFIG, &Spec::Runtime(RuntimeSpec::KmsgLog(receivers)));
    assert_eq!(found.destinations[0].full_path, "tcp://10.0.2.2:5000/");
    let value = Spec::Runtime(RuntimeSpec::MetaKey(MetaKey { value: "x".into() }));
    assert_eq!(read::<runtime::MetaKeySpec>(&META_KEY, &value).value, "x");
    let identity = Spec::Runtime(RuntimeSpec::Identity(Identity { node_id: "n".into() }));
    assert_eq!(read::<cluster::IdentitySpec>(&IDENTITY, &identity).node_id, "n");
    let info = Cluster { cluster_id: "c".into(), cluster_name: "name".into() };
    let found: cluster::InfoSpec = read(&CLUSTER_INFO, &Spec::Runtime(RuntimeSpec::Cluster(info)));
    assert_eq!((found.cluster_id.as_str(), found.cluster_name.as_str()), ("c", "name"));
    let clock = TimeStatus { synced: true, epoch: 2, sync_disabled: false };
    let found: time::StatusSpec = read(&TIME_STATUS, &Spec::TimeStatus(clock));
    assert_eq!((found.synced, found.epoch), (true, 2));
    let parameter = KernelParamStatus { current: "1".into(), default: "0".into(), unsupported: false };
    let found: runtime::KernelParamStatusSpec =
        read(&KERNEL_PARAM_STATUS, &Spec::KernelParamStatus(parameter));
    assert_eq!((found.current.as_str(), found.default.as_str()), ("1", "0"));
}

#[test]
fn the_network_reaches_a_typed_reader() {
    let name = HostnameStatus { hostname: "a".into(), domainname: "b.c".into() };
    let found: network::HostnameStatusSpec = read(&HOSTNAME_STATUS, &Spec::HostnameStatus(name));
    assert_eq!((found.hostname.as_str(), found.domainname.as_str()), ("a", "b.c"));
    let address = AddressStatus {
        address: "fe80::1/64".into(),
        link_index: 2,
        link_name: "eth0".into(),
        family: "inet6",
        scope: "link".into(),
    };
    let found: network::AddressStatusSpec = read(&ADDRESS_STATUS, &Spec::AddressStatus(address));
    assert_eq!((found.link_index, found.family, found.scope), (2, 10, 253));
    for (kind, number) in [("ether", 1), ("loopback", 772), ("sit", 776), ("tunnel6", 769), ("4711", 4711)] {
        let link = LinkStatus {
            index: 1,
            kind_of_link: kind.into(),
            kind: String::new(),
            hardware_addr: "52:54:00:12:34:56".into(),
            mtu: 1500,
            operational_state: "up".into(),
            link_state: true,
            ..LinkStatus::default()
        };
        let found: network::LinkStatusSpec = read(&LINK_STATUS, &Spec::LinkStatus(Box::new(link)));
        assert_eq!((found.r#type, found.operational_state, found.hardware_addr.len()), (number, 6, 6));
    }
    let peer = WireguardPeerStatus {
        endpoint: "[fd00::9]:51820".into(),
        persistent_keepalive_interval: "1m5s".into(),
        allowed_ips: vec!["10.1.0.0/16".into()],
        received_bytes: 7,
        ..WireguardPeerStatus::default()
    };
    let tunnel = WireguardStatus { listen_port: 51820, peers: vec![peer], ..WireguardStatus::default() };
    // Numbers that newer kernels added have no word.
    let bond = BondStatus {
        mode: "802.3ad".into(),
        xmit_hash_policy: "5".into(),
        missed_max: 2,
        ..BondStatus::default()
    };
    let link = LinkStatus {
        flags: 0x11043,
        speed_mbit: Some(25_000),
        port: "Fibre",
        duplex: "Full",
        bond_master: Some(Box::new(bond)),
        wireguard: Some(tunnel),
        ..LinkStatus::default()
    };
    let spec = Spec::LinkStatus(Box::new(link));
    let yaml = spec.yaml().unwrap();
    assert!(yaml.contains("flags: UP,BROADCAST,RUNNING,MULTICAST,LOWER_UP\n"), "{yaml}");
    assert!(yaml.contains("receivedBytes: 7\n"), "{yaml}");
    let found: network::LinkStatusSpec = read(&LINK_STATUS, &spec);
    assert_eq!((found.flags, found.speed_megabits, found.port, found.duplex), (0x11043, 25_000, 3, 1));
    let bond = found.bond_master.unwrap();
    assert_eq!((bond.mode, bond.hash_policy, bond.missed_max), (4, 5, 2));
    let tunnel = found.wireguard.unwrap();
    assert_eq!((tunnel.listen_port, tunnel.private_key.as_str()), (51820, ""));
    let peer = &tunnel.peers[0];
    assert_eq!((peer.endpoint.as_str(), peer.preshared_key.as_str()), ("[fd00::9]:51820", ""));
    assert_eq!(peer.persistent_keepalive_interval.unwrap().seconds, 65);
    for (protocol, number) in [("kernel", 2), ("dhcp", 16), ("ra", 9), ("redirect", 1), ("200", 200)] {
        let route = RouteStatus {
            family: "inet4",
            dst: String::new(),
            src: "10.0.2.15".into(),
            gateway: "10.0.2.2".into(),
            out_link_name: "eth0".into(),
            table: "main".into(),
            priority: 1024,
            scope: "global".into(),
            kind: "unicast".into(),
            protocol: protocol.into(),
        };
        let found: network::RouteStatusSpec = read(&ROUTE_STATUS, &Spec::RouteStatus(route));
        assert_eq!((found.protocol, found.table, found.gateway.unwrap().ip.len()), (number, 254, 4));
    }
    let servers = Spec::TimeServerStatus(vec!["a".into()]);
    assert_eq!(read::<network::TimeServerStatusSpec>(&TIME_SERVER_STATUS, &servers).ntp_servers, ["a"]);
    let addresses = NodeAddresses { addresses: vec!["10.0.2.15/24".into()] };
    let found: network::NodeAddressSpec =
        read(&NODE_ADDRESS, &Spec::Addressing(Addressing::Addresses(addresses)));
    assert_eq!(found.addresses[0].prefix_length, 24);
    let hardware = HardwareAddress { name: "eth0".into(), hardware_addr: "52:54:00:12:34:56".into() };
    let found: network::HardwareAddrSpec =
        read(&HARDWARE_ADDRESS, &Spec::Addressing(Addressing::Hardware(hardware)));
    assert_eq!(found.hardware_addr[5], 0x56);
    let resolvers = Resolvers { dns_servers: vec!["10.0.2.3".into()], search_domains: vec!["b.c".into()] };
    let found: network::ResolverStatusSpec =
        read(&RESOLVER_STATUS, &Spec::Addressing(Addressing::Resolvers(resolvers)));
    assert_eq!((found.dns_servers.len(), found.search_domains.len()), (1, 1));
    let status = NetworkStatus {
        address_ready: true,
        connectivity_ready: true,
        hostname_ready: true,
        etc_files_ready: true,
        reasons: Vec::new(),
    };
    let found: network::StatusSpec = read(&NETWORK_STATUS, &Spec::Addressing(Addressing::Status(status)));
    assert!(found.address_ready && found.connectivity_ready && found.hostname_ready && found.etc_files_ready);
}

#[test]
fn disks_and_the_machine_reach_a_typed_reader() {
    let block = |spec| Spec::Block(Box::new(spec));
    let disk = Disk { dev_path: "/dev/vda".into(), size: 5 << 40, rotational: true, ..Disk::default() };
    let found: block::DiskSpec = read(&DISK, &block(Block::Disk(disk)));
    assert_eq!((found.size, found.rotational), (5 << 40, true));
    let system = SystemDisk { disk_id: "vda".into(), dev_path: "/dev/vda".into() };
    let found: block::SystemDiskSpec = read(&SYSTEM_DISK, &block(Block::SystemDisk(system)));
    assert_eq!((found.disk_id.as_str(), found.dev_path.as_str()), ("vda", "/dev/vda"));
    let device = BlockDevice {
        kind: "partition",
        major: 254,
        minor: 1,
        partition_name: "STATE".into(),
        partition_number: 5,
        device_path: "x".into(),
        parent: "vda".into(),
        secondaries: vec![],
    };
    let found: block::DeviceSpec = read(&BLOCK_DEVICE, &block(Block::Device(device)));
    assert_eq!((found.major, found.partition_number), (254, 5));
    let volume = DiscoveredVolume { name: "xfs".into(), error: "unreadable".into(), ..Default::default() };
    let found: block::DiscoveredVolumeSpec = read(&DISCOVERED_VOLUME, &block(Block::Volume(volume)));
    assert_eq!(found.name, "xfs");
    let volume = VolumeStatus {
        phase: "ready",
        kind: "partition",
        filesystem: "xfs",
        encryption_provider: "luks2",
        encryption_slot: Some(1),
        encryption_key: "tpm".into(),
        ..Default::default()
    };
    let found: block::VolumeStatusSpec = read(&VOLUME_STATUS, &block(Block::VolumeStatus(volume)));
    assert_eq!(
        (found.phase(), found.filesystem, found.encryption_provider),
        (enums::BlockVolumePhase::Ready, 1, 1)
    );
    assert_eq!(found.encryption_slot, 1);
    let mount = MountStatus {
        source: "none".into(),
        target: "/proc".into(),
        filesystem_type: "proc".into(),
        options: vec!["rw".into()],
    };
    assert_eq!(read::<runtime::MountStatusSpec>(&MOUNT_STATUS, &Spec::MountStatus(mount)).target, "/proc");

    let found: hardware::ProcessorSpec = read_sample(&PROCESSOR);
    assert_eq!((found.max_speed, found.thread_count), (2000, 4));
    let found: hardware::MemoryModuleSpec = read_sample(&MEMORY_MODULE);
    assert_eq!((found.size, found.speed), (1024, 3200));
    let found: hardware::SystemInformationSpec = read_sample(&SYSTEM_INFORMATION);
    assert_eq!((found.manufacturer.as_str(), found.serial_number.as_str()), ("QEMU", "S-1"));
    let found: hardware::PciDeviceSpec = read_sample(&PCI_DEVICE);
    assert_eq!((found.class_id.as_str(), found.driver.as_str()), ("0x02", "virtio-pci"));
}
