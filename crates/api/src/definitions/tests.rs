//! Each form read back by the generated types, which read the same numbers by other code.

use prost::Message;
use serde_json::{Value, json};

use super::schema::Schema;
use super::{Fault, decode, encode, published, shown};
use crate::proto::talos::resource::definitions::{block, enums, hardware, k8s, network, runtime};

fn read<M: Message + Default>(message: &str, value: &Value) -> M {
    M::decode(encode(message, value).unwrap().as_slice()).unwrap()
}

fn fault(message: &str, value: &Value) -> (String, Fault) {
    let problem = encode(message, value).unwrap_err();
    (problem.path, problem.fault)
}

#[test]
fn every_published_type_has_its_message() {
    assert!(published().len() > 190, "{}", published().len());
    for kind in published() {
        if let Some(message) = kind.message {
            let name = format!(".talos.resource.definitions.{message}");
            assert!(Schema::get().messages.contains_key(&name), "{}: {message}", kind.kind);
        }
    }
    let links = published().iter().find(|kind| kind.kind == "LinkStatuses.net.talos.dev").unwrap();
    assert_eq!((links.namespace, links.sensitive), ("network", false));
    assert_eq!(links.aliases, ["link", "links"]);
    assert_eq!(
        (links.display, links.columns[1].name, links.columns[1].path),
        ("LinkStatus", "Type", "{.type}")
    );
    let singular =
        |kind: &str| published().iter().find(|known| known.kind.starts_with(kind)).unwrap().display;
    let plurals = ["NodeAddresses", "BootedEntries", "LinkRefreshes", "DNSResolveCaches", "Diagnostics"];
    let singulars = ["NodeAddress", "BootedEntry", "LinkRefresh", "DNSResolveCache", "Diagnostic"];
    assert_eq!(plurals.map(singular), singulars);
}

#[test]
fn every_field_names_a_type_that_is_there() {
    let schema = Schema::get();
    for (name, message) in &schema.messages {
        for field in &message.field {
            let of = field.type_name();
            let there = of.is_empty()
                || of.starts_with(".google.protobuf.")
                || schema.messages.contains_key(of)
                || schema.enums.contains_key(of);
            assert!(there, "{name}.{}: {of}", field.name());
        }
    }
}

#[test]
fn numbers_words_addresses_and_flags_reach_a_typed_reader() {
    let value = json!({"index": 2, "type": "ether", "flags": "UP,BROADCAST,RUNNING,MULTICAST,LOWER_UP",
        "hardwareAddr": "02:00:00:00:00:07", "mtu": 1500, "operationalState": "lowerLayerDown", "kind": "vlan",
        "speedMbit": -1, "port": "TwistedPair", "duplex": "Full", "linkState": true, "altNames": ["a", ""],
        "vlan": {"vlanID": 7, "vlanProtocol": "802.1ad"}, "bondMaster": {"mode": "802.3ad", "arpIpTargets":
        ["10.0.0.1", "fe80::1"], "xmitHashPolicy": "layer3+4"}, "wireguard": {"publicKey": "", "listenPort": 0,
        "peers": [{"publicKey": "k", "persistentKeepaliveInterval": "1m30.5s", "allowedIPs": ["10.0.0.0/8"]}]}});
    let link: network::LinkStatusSpec = read("network.LinkStatusSpec", &value);
    assert_eq!((link.index, link.mtu, link.flags, link.speed_megabits), (2, 1500, 0x1_1043, -1));
    assert_eq!(link.r#type(), enums::NethelpersLinkType::Ether);
    assert_eq!(link.operational_state(), enums::NethelpersOperationalState::LowerLayerDown);
    assert_eq!(link.duplex(), enums::NethelpersDuplex::Full);
    assert_eq!(link.hardware_addr, [2, 0, 0, 0, 0, 7]);
    assert_eq!(link.alt_names, ["a", ""]);
    let vlan = link.vlan.unwrap();
    assert_eq!((vlan.vid, vlan.protocol), (7, 34984));
    let bond = link.bond_master.unwrap();
    assert_eq!((bond.mode, bond.hash_policy), (4, 1));
    assert_eq!(bond.arpip_targets[0].ip, [10, 0, 0, 1]);
    assert_eq!(bond.arpip_targets[1].ip.len(), 16);
    let peer = &link.wireguard.unwrap().peers[0];
    let interval = peer.persistent_keepalive_interval.unwrap();
    assert_eq!((interval.seconds, interval.nanos), (90, 500_000_000));
    assert_eq!((peer.allowed_ips[0].ip.len(), peer.allowed_ips[0].prefix_length), (4, 8));
}

#[test]
fn flags_of_interfaces_are_words_and_bits() {
    for (bits, words) in [
        (0, ""),
        (1, "UP"),
        (0x1_1043, "UP,BROADCAST,RUNNING,MULTICAST,LOWER_UP"),
        (1 << 18 | 1 << 31, "ECHO"),
    ] {
        assert_eq!(super::interface_flags(bits), words);
        let link: network::LinkStatusSpec = read("network.LinkStatusSpec", &json!({"flags": words}));
        assert_eq!(link.flags, bits & !(1 << 31));
    }
}

#[test]
fn flags_of_addresses_and_routes_are_bits() {
    let value = json!({"address": "fe80::1/64", "local": "", "flags": "permanent,noprefixroute", "family": "inet6",
        "scope": "link"});
    let address: network::AddressStatusSpec = read("network.AddressStatusSpec", &value);
    assert_eq!((address.flags, address.family, address.scope), (128 | 512, 10, 253));
    assert_eq!((address.address.unwrap().prefix_length, address.local), (64, None));
    let value = json!({"family": "inet4", "dst": "", "table": "main", "type": "unicast", "protocol": "boot",
        "gateway": "10.0.2.2", "priority": 1024});
    let route: network::RouteStatusSpec = read("network.RouteStatusSpec", &value);
    assert_eq!((route.table, route.r#type, route.protocol, route.priority), (254, 1, 3, 1024));
    assert!(route.destination.is_none());
}

#[test]
fn maps_packed_numbers_and_messages_inside() {
    let value = json!({"features": {"tx-checksum": true, "rx": false}, "wakeOnLan": [32, "phy"]});
    let spec: network::EthernetSpecSpec = read("network.EthernetSpecSpec", &value);
    assert_eq!((spec.features["tx-checksum"], spec.features["rx"]), (true, false));
    assert_eq!(spec.wake_on_lan, [32, 1]);
    let value = json!({"stage": "shutting down", "status": {"ready": true, "unmetConditions":
        [{"name": "time", "reason": "not synced"}]}});
    let status: runtime::MachineStatusSpec = read("runtime.MachineStatusSpec", &value);
    assert_eq!(status.stage(), enums::RuntimeMachineStage::ShuttingDown);
    assert_eq!(status.status.unwrap().unmet_conditions[0].name, "time");
    let value = json!({"size": u64::MAX, "pretty_size": "18 EB", "dev_path": "/dev/vda", "symlinks": []});
    let disk: block::DiskSpec = read("block.DiskSpec", &value);
    assert_eq!((disk.size, disk.dev_path.as_str()), (u64::MAX, "/dev/vda"));
    let value = json!({"logicalCPUs": [0, 300], "bogoMips": 2.5});
    let core: hardware::CpuCoreSpec = read("hardware.CPUCoreSpec", &value);
    assert_eq!((core.logical_cp_us, core.bogo_mips), (vec![0, 300], 2.5));
}

#[test]
fn what_was_written_is_read_by_the_definitions_alone() {
    let value = json!({"index": 2, "type": "ether", "mtu": 1500, "speedMbit": -1, "linkState": true,
        "altNames": ["a", ""], "hardwareAddr": "02:00:00:00:00:07", "vlan": {"vlanID": 7}});
    let tree = decode("network.LinkStatusSpec", &encode("network.LinkStatusSpec", &value).unwrap()).unwrap();
    let expected = json!({"index": 2, "type": 1, "mtu": 1500, "speedMbit": -1, "linkState": true,
        "altNames": ["a", ""], "hardwareAddr": [2, 0, 0, 0, 0, 7], "vlan": {"vlanID": 7}});
    assert_eq!(tree, expected);
    let value = json!({"logicalCPUs": [0, 300], "bogoMips": 2.5});
    let bytes = encode("hardware.CPUCoreSpec", &value).unwrap();
    assert_eq!(decode("hardware.CPUCoreSpec", &bytes).unwrap(), value);
    let value = json!({"features": {"rx": true}});
    let bytes = encode("network.EthernetSpecSpec", &value).unwrap();
    assert_eq!(decode("network.EthernetSpecSpec", &bytes).unwrap(), value);
    for end in 1..bytes.len() {
        assert!(decode("network.EthernetSpecSpec", &bytes[..end]).is_err(), "{end}");
    }
    assert!(decode("runtime.BootIDSpec", &[0x3a, 0]).unwrap_err().to_string().contains("field 7"));
}

/// A link as YAML shows it: words, flags, addresses, zeros, a map and messages inside.
fn link() -> Value {
    json!({"index": 2, "type": "ether", "flags": "UP,BROADCAST", "hardwareAddr": "02:00:00:00:00:07", "mtu": 0,
        "operationalState": "lowerLayerDown", "duplex": "Full", "linkState": false, "altNames": ["a", ""],
        "vlan": {"vlanID": 7, "vlanProtocol": "802.1ad"},
        "bondMaster": {"mode": "802.3ad", "arpIpTargets": ["10.0.0.1"]},
        "wireguard": {"peers": [{"publicKey": "k", "persistentKeepaliveInterval": "1m30.5s"}]}})
}

#[test]
fn what_a_typed_client_sees_is_spelled_as_the_yaml_form() {
    let yaml = link();
    let bytes = encode("network.LinkStatusSpec", &yaml).unwrap();
    assert_eq!(shown("network.LinkStatusSpec", &bytes, &yaml).unwrap(), yaml);
    let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(&shown("network.LinkStatusSpec", &bytes, &yaml).unwrap()), keys(&yaml));
    let bytes = encode("config.MachineTypeSpec", &json!({"machineType": "controlplane"})).unwrap();
    assert_eq!(shown("config.MachineTypeSpec", &bytes, &json!("controlplane")).unwrap(), "controlplane");
    // What only YAML has is shown from there.
    let both = shown("v1alpha1.ServiceSpec", &[], &json!({"running": false, "ours": "x"})).unwrap();
    assert_eq!(both, json!({"running": false, "ours": "x"}));
}

#[test]
fn objects_of_a_manifest_stand_bare_in_the_yaml_form() {
    let yaml =
        json!([{"kind": "Namespace", "metadata": {"name": "a", "labels": {"x": "y"}}}, {"replicas": 2}]);
    let bytes = encode("k8s.ManifestSpec", &json!({ "items": yaml })).unwrap();
    let found = k8s::ManifestSpec::decode(bytes.as_slice()).unwrap();
    let kind = found.items[0].object.as_ref().unwrap().fields["kind"].kind.clone();
    assert_eq!(kind, Some(prost_types::value::Kind::StringValue("Namespace".to_owned())));
    assert_eq!(shown("k8s.ManifestSpec", &bytes, &yaml).unwrap(), yaml);
}

#[test]
fn a_static_pod_stands_bare_in_the_yaml_form() {
    let yaml = json!({"kind": "Pod", "metadata": {"name": "a"}, "spec": {"containers": [{"name": "b"}]}});
    let bytes = encode("k8s.StaticPodSpec", &json!({ "pod": yaml })).unwrap();
    assert_eq!(shown("k8s.StaticPodSpec", &bytes, &yaml).unwrap(), yaml);
    let other = encode("k8s.StaticPodSpec", &json!({ "pod": {"kind": "Pod"} })).unwrap();
    assert_ne!(shown("k8s.StaticPodSpec", &other, &yaml).unwrap(), yaml);
}

#[test]
fn where_both_forms_differ_the_binary_one_is_shown() {
    let mut yaml = link();
    let bytes = encode("network.LinkStatusSpec", &yaml).unwrap();
    yaml["type"] = "loopback".into();
    yaml["index"] = 3.into();
    yaml["linkState"] = true.into();
    yaml["vlan"]["vlanID"] = 8.into();
    yaml["wireguard"]["peers"][0]["publicKey"] = "other".into();
    yaml["altNames"] = json!(["b"]);
    let seen = shown("network.LinkStatusSpec", &bytes, &yaml).unwrap();
    assert_eq!(
        (&seen["type"], &seen["index"], &seen["linkState"]),
        (&json!("ether"), &json!(2), &json!(false))
    );
    assert_eq!(seen["vlan"], json!({"vlanID": 7, "vlanProtocol": "802.1ad"}));
    let peer = &seen["wireguard"]["peers"][0];
    assert_eq!((&peer["publicKey"], &peer["persistentKeepaliveInterval"]), (&json!("k"), &json!("1m30.5s")));
    assert_eq!(seen["altNames"], json!(["a", ""]));
    // A value that YAML leaves out.
    let seen = shown("network.LinkStatusSpec", &bytes, &json!({})).unwrap();
    assert_eq!((&seen["index"], &seen["type"]), (&json!(2), &json!("ether")));
}

#[test]
fn a_type_without_its_binary_form_is_shown_as_typed_clients_see_it() {
    let seen = shown("network.LinkStatusSpec", &[], &link()).unwrap();
    assert_eq!(
        (&seen["index"], &seen["linkState"], &seen["hardwareAddr"]),
        (&json!(0), &json!(false), &json!(""))
    );
    assert_eq!((&seen["altNames"], &seen["vlan"]), (&json!([]), &Value::Null));
}

#[test]
fn fields_of_a_newer_node_are_passed_over_and_broken_bytes_are_not() {
    let mut bytes = encode("v1alpha1.ServiceSpec", &json!({"running": true})).unwrap();
    // Numbers 200 to 203, one of each wire type.
    bytes.extend([
        0xc0, 0x0c, 1, 0xca, 0x0c, 1, b'x', 0xd5, 0x0c, 0, 0, 0, 0, 0xd9, 0x0c, 0, 0, 0, 0, 0, 0, 0, 0,
    ]);
    let yaml = json!({"running": true, "healthy": false});
    assert_eq!(shown("v1alpha1.ServiceSpec", &bytes, &yaml).unwrap(), yaml);
    let problem = shown("v1alpha1.ServiceSpec", &bytes[..bytes.len() - 1], &yaml).unwrap_err();
    assert_eq!(problem.path, "v1alpha1.ServiceSpec");
    assert!(shown("network.TeapotSpec", &[], &yaml).is_err());
}

#[test]
fn what_does_not_fit_is_named_with_its_path() {
    let (path, fault_) = fault("network.LinkStatusSpec", &json!({"vlan": {"colour": 1}}));
    assert_eq!((path.as_str(), fault_), ("network.LinkStatusSpec.vlan.colour", Fault::UnknownKey));
    let (path, fault_) = fault("network.LinkStatusSpec", &json!({"type": "teapot"}));
    assert_eq!(path, "network.LinkStatusSpec.type");
    assert_eq!(fault_, Fault::UnknownWord("teapot".into(), "NethelpersLinkType".into()));
    for wrong in [json!({"mtu": "many"}), json!({"mtu": 1.5}), json!({"altNames": "a"}), json!({"vlan": 7})] {
        assert!(matches!(fault("network.LinkStatusSpec", &wrong).1, Fault::Shape { .. }), "{wrong}");
    }
    for wrong in ["10.0.0.1", "10.0.0.1/x", "300.0.0.1/8"] {
        let value = json!({"address": wrong});
        assert!(matches!(fault("network.AddressStatusSpec", &value).1, Fault::Shape { .. }), "{wrong}");
    }
    for wrong in ["", "s", "1", "1x", "1..2s", "9999999999999s"] {
        assert!(super::text::duration(wrong).is_err(), "{wrong}");
    }
    assert_eq!(super::text::duration("-1m0.5s"), Ok(-60_500_000_000));
    assert!(matches!(fault("network.TeapotSpec", &json!({})).1, Fault::Undefined(_)));
}
