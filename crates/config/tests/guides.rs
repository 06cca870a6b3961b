//! The guides' snippets, as they are printed, and documents with every field of either generation.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use config::{Diagnostic, Loaded, Mode, load};
use std::{fs, path::Path};

fn text(name: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(name)).unwrap()
}

fn loaded(text: &str) -> Loaded {
    load(text.as_bytes()).unwrap_or_else(|e| panic!("{e}"))
}

/// The remarks that are about this snippet's form: neither dots, nor the missing head, nor what is not built.
fn remarks(loaded: &Loaded) -> Vec<String> {
    let said = |d: &&Diagnostic| {
        !["a line of dots", "`version` is missing", "is not built yet"].iter().any(|t| d.message.contains(t))
    };
    loaded
        .warnings
        .iter()
        .filter(said)
        .map(|d| format!("{}:{} {}: {}", d.line, d.column, d.path, d.message))
        .collect()
}

fn guide(name: &str) -> (Loaded, Vec<String>) {
    let loaded = loaded(&text(&format!("guides/{name}.yaml")));
    let found = remarks(&loaded);
    (loaded, found)
}

#[test]
fn static_addresses_bonds_and_vlans() {
    let (one, found) = guide("01-static-addressing");
    assert!(found.is_empty(), "{found:?}");
    let interface = &one.config.machine.network.interfaces[0];
    assert_eq!((interface.cidr.as_str(), interface.mtu, interface.routes.len()), ("10.0.0.201/8", 8765, 1));
    assert!(one.config.machine.network.interfaces[1].ignore);
    let (bond, found) = guide("01-bonding");
    assert!(found.is_empty(), "{found:?}");
    let bond = bond.config.machine.network.interfaces[0].bond.as_ref().unwrap();
    assert_eq!((bond.mode.unwrap().as_str(), bond.interfaces.len(), bond.updelay), ("802.3ad", 2, 200));
    let (vlan, found) = guide("01-vlans");
    assert!(found.is_empty(), "{found:?}");
    assert_eq!(vlan.config.machine.network.interfaces[0].vlans[0].vlan_id, 100);
}

#[test]
fn entries_for_one_link_are_joined_and_lo0_is_lo() {
    let (both, found) = guide("01-additional-addresses");
    assert_eq!(
        found,
        [
            "4:20 machine.network.interfaces[0].interface: `lo0` is taken as `lo`, the loopback link of Linux",
            "6:9 machine.network.interfaces[1]: a second entry for the same link is joined with that on line 4",
            "6:20 machine.network.interfaces[1].interface: `lo0` is taken as `lo`, the loopback link of Linux",
        ]
    );
    let interfaces = &both.config.machine.network.interfaces;
    let addresses: Vec<_> = interfaces[0].static_addresses().collect();
    assert_eq!((interfaces.len(), interfaces[0].interface.as_str()), (1, "lo"));
    assert_eq!(addresses, ["192.168.0.21/24", "10.2.2.2/24"]);
}

#[test]
fn a_mirror_beside_an_empty_mirrors_is_taken_and_slashes_do_not_count() {
    let (gap, found) = guide("02-air-gapped");
    assert_eq!(found, ["5:7 machine.registries.*: `*` is taken as an entry of `mirrors`; indent it below"]);
    let mirror = &gap.config.machine.registries.mirrors["*"];
    assert_eq!(mirror.normal_endpoints().collect::<Vec<_>>(), ["http://10.5.0.1:6000"]);
    let bare = loaded("machine: {registries: {mirrors: {'*': {endpoints: ['http://10.5.0.1:6000']}}}}");
    assert!(bare.config.machine.registries.mirrors["*"].normal_endpoints().eq(mirror.normal_endpoints()));
}

#[test]
fn files_keep_the_dots_of_their_content() {
    for name in ["03-certificate-authority", "05-proxy-authority"] {
        let (ca, found) = guide(name);
        assert!(found.is_empty(), "{found:?}");
        let file = &ca.config.machine.files[0];
        assert!(
            file.content.starts_with("-----BEGIN CERTIFICATE-----\n...\n-----END CERTIFICATE-----"),
            "{}",
            file.content
        );
        assert_eq!((file.permissions.unwrap().0, file.op.unwrap().as_str()), (0o644, "append"));
    }
    let (metrics, found) = guide("04-containerd-metrics");
    assert!(found.is_empty(), "{found:?}");
    assert!(metrics.config.machine.files[0].content.starts_with("[metrics]\n  address = \"0.0.0.0:11234\""));
}

#[test]
fn proxies_and_the_endpoint() {
    let (proxy, found) = guide("05-proxy");
    assert!(found.is_empty() && proxy.config.machine.env["no_proxy"] == "<no proxy>", "{found:?}");
    assert_eq!(
        guide("08-endpoint").0.config.cluster.control_plane.endpoint,
        "https://endpoint.example.local:6443"
    );
}

#[test]
fn what_stands_for_an_address_in_a_guide_is_told_with_its_place() {
    let errors = load(text("guides/05-proxy-servers.yaml").as_bytes()).err().unwrap().0;
    let found: Vec<_> = errors.iter().map(|e| (e.line, e.path.as_str())).collect();
    assert_eq!(
        found,
        [
            (12, "machine.network.nameservers[0]"),
            (13, "machine.network.nameservers[1]"),
            (14, "machine.network.nameservers[2]"),
        ]
    );
    let filled = text("guides/05-proxy-servers.yaml")
        .replace("<ip 1>", "10.0.0.1")
        .replace("<ip ...>", "10.0.0.2")
        .replace("<ip n>", "10.0.0.3");
    assert_eq!(loaded(&filled).config.machine.time.servers[1], "<server ...>");
}

#[test]
fn wireguard_peers_as_one_mapping_and_the_dot_before_the_port() {
    // The guide shows the section `network` only, which belongs below `machine`.
    let indented: String = text("guides/09-wireguard.yaml").lines().map(|l| format!("  {l}\n")).collect();
    let tunnel = loaded(&format!("version: v1alpha1\nmachine:\n{indented}"));
    assert_eq!(
        remarks(&tunnel),
        [
            "17:13 machine.network.interfaces[0].wireguard.peers: one mapping is taken as a list of one peer; write `- ` before it"
        ]
    );
    let errors = tunnel.validate(Mode::Cloud).err().unwrap().0;
    let dot = errors.iter().find(|e| e.path.ends_with("endpoint") && e.path.starts_with("machine")).unwrap();
    assert_eq!(dot.message, "`209.202.254.14.8172` has a dot before the port; write `209.202.254.14:8172`");
    assert_eq!((dot.line, dot.snippet.trim()), (19, "endpoint: 209.202.254.14.8172"));
    let key = errors.iter().find(|e| e.path.ends_with("privateKey")).unwrap();
    assert!(!format!("{key:?}").contains("privatekey file"), "{key:?}");
}

#[test]
fn encryption_without_provider_with_key_slot_and_at_the_wrong_place() {
    let (plain, found) = guide("13-encryption");
    assert_eq!(
        found,
        [
            "4:5 machine.systemDiskEncryption.ephemeral: `provider` is missing; `provider: luks2` is taken",
            "8:5 machine.systemDiskEncryption.state: `provider` is missing; `provider: luks2` is taken",
        ]
        .map(|line| line.replace("4:5", "5:7").replace("8:5", "9:7"))
    );
    assert!(plain.config.machine.system_disk_encryption.state.is_some());
    let (moved, found) = guide("13-encryption-keys");
    assert_eq!(
        found.iter().filter(|l| l.contains("is taken as `systemDiskEncryption.")).count(),
        2,
        "{found:?}"
    );
    let state = moved.config.machine.system_disk_encryption.state.unwrap();
    assert!(state.keys[0].slot == 1 && state.keys[0].node_id.is_some());
    let (rotated, found) = guide("13-rotation-add");
    assert_eq!(found.iter().filter(|l| l.contains("`keySlot` is taken as `slot`")).count(), 2, "{found:?}");
    assert_eq!(rotated.config.machine.system_disk_encryption.ephemeral.unwrap().keys[1].slot, 1);
    assert_eq!(
        guide("13-rotation-remove").0.config.machine.system_disk_encryption.ephemeral.unwrap().keys.len(),
        1
    );
}

#[test]
fn the_shared_address() {
    let (shared, found) = guide("21-shared-ip");
    assert!(found.is_empty(), "{found:?}");
    assert_eq!(shared.config.machine.network.interfaces[0].vip.as_ref().unwrap().ip, "192.168.0.15");
}

/// Each form is a file that the schema makes: `BILLET_BLESS=1` writes it anew.
#[test]
fn every_field_of_either_generation_is_accepted() {
    for (name, older) in [("all-fields-v0.9.yaml", true), ("all-fields-v1.13.yaml", false)] {
        let made = common::Maker::new(older, None).stream();
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(name);
        if std::env::var_os("BILLET_BLESS").is_some() {
            fs::write(&path, &made).unwrap();
        }
        assert!(
            fs::read_to_string(&path).unwrap_or_default() == made,
            "{name} is not what the schema makes; run with BILLET_BLESS=1"
        );
        loaded(&made);
    }
}
