//! Which crate may depend on which (ARCHITECTURE.md, code map), and where versions are written.

use anyhow::{Context, Result};
use toml::{Table, Value};

use super::sources::{SourceFile, Sources};

/// Directory of a crate and the crates of the workspace that it may use. A crate that is not listed is a fault:
/// new crates only where a boundary is real.
const ALLOWED: [(&str, &[&str]); 39] = [
    ("crates/namespaces", &[]),
    ("crates/rounds", &[]),
    ("crates/sys", &[]),
    ("crates/balancer", &[]),
    ("crates/cluster", &["config", "sys"]),
    ("crates/cni-flannel", &[]),
    ("crates/ondisk", &[]),
    ("crates/oci", &["ondisk"]),
    ("crates/sequence", &[]),
    ("crates/dhcp", &[]),
    ("crates/dhcp6", &[]),
    ("crates/dns", &[]),
    ("crates/handoff", &[]),
    ("crates/hostile", &["api"]),
    ("crates/kms", &[]),
    ("crates/netboot", &["dhcp", "ondisk"]),
    ("crates/netroot", &[]),
    ("crates/recovery", &[]),
    ("crates/tpm", &["sys"]),
    ("crates/unlock", &["ondisk", "sys"]),
    ("crates/vrrp", &["sys"]),
    ("crates/config", &["network-line", "ondisk", "recovery"]),
    ("crates/api", &["config"]),
    ("crates/kubernetes", &["config"]),
    ("crates/network-line", &[]),
    ("crates/nftables", &[]),
    ("crates/network-plan", &["config", "network-line"]),
    ("init", &["handoff", "netroot", "network-line", "ondisk", "sequence", "sys", "tpm", "unlock"]),
    ("installer", &["config", "oci", "ondisk", "sequence", "sys", "tpm", "unlock"]),
    ("crates/runtime", &["api", "config", "handoff", "ondisk", "sequence", "sys"]),
    ("crates/containers", &["oci", "ondisk", "runtime", "sys"]),
    (
        "crates/kubernetes-node",
        &["api", "config", "containers", "kubernetes", "ondisk", "recovery", "runtime"],
    ),
    ("crates/protoc", &[]),
    (
        "service-manager",
        &[
            "api",
            "balancer",
            "cni-flannel",
            "config",
            "containers",
            "dhcp",
            "dhcp6",
            "dns",
            "handoff",
            "installer",
            "kms",
            "kubernetes-node",
            "network-line",
            "network-plan",
            "nftables",
            "oci",
            "ondisk",
            "recovery",
            "runtime",
            "sequence",
            "sys",
            "tpm",
            "unlock",
            "vrrp",
        ],
    ),
    ("cli", &["api", "cluster", "config", "installer", "kubernetes", "netboot", "ondisk", "recovery"]),
    (
        "fuzz",
        &[
            "api",
            "billetctl",
            "config",
            "dhcp",
            "dhcp6",
            "dns",
            "handoff",
            "installer",
            "netboot",
            "netroot",
            "oci",
            "ondisk",
            "service-manager",
            "sys",
            "tpm",
        ],
    ),
    (
        "qemu-tests",
        &[
            "api",
            "cluster",
            "config",
            "hostile",
            "installer",
            "kms",
            "namespaces",
            "netroot",
            "oci",
            "ondisk",
            "sys",
            "tpm",
            "unlock",
        ],
    ),
    ("qemu-tests/agent", &["ondisk", "sys", "unlock"]),
    (
        "xtask",
        &[
            "api",
            "cluster",
            "config",
            "init",
            "installer",
            "kubernetes",
            "oci",
            "ondisk",
            "qemu-tests",
            "sequence",
            "service-manager",
        ],
    ),
];

/// What the crates are called in dependency tables.
const NAMES: [&str; 34] = [
    "api",
    "balancer",
    "billetctl",
    "cluster",
    "cni-flannel",
    "config",
    "containers",
    "fuzz",
    "handoff",
    "hostile",
    "init",
    "installer",
    "kms",
    "kubernetes",
    "kubernetes-node",
    "namespaces",
    "netboot",
    "netroot",
    "oci",
    "ondisk",
    "protoc",
    "qemu-tests",
    "recovery",
    "rounds",
    "runtime",
    "sequence",
    "service-manager",
    "sys",
    "test-agent",
    "tpm",
    "unlock",
    "vrrp",
    "xtask",
    "cli",
];

const TABLES: [&str; 3] = ["dependencies", "dev-dependencies", "build-dependencies"];

pub(super) fn check(sources: &Sources) -> Result<Vec<String>> {
    let mut faults = Vec::new();
    for (directory, file) in sources.manifests() {
        let Some((_, allowed)) = ALLOWED.iter().find(|(known, _)| *known == directory) else {
            faults.push(format!("{}: the crate has no line in xtask's table of directions", file.path));
            continue;
        };
        for (table, name, _) in dependencies(file)? {
            // A crate's tests may use what is above it, its programs may not.
            let own = NAMES.contains(&name.as_str()) && table != "dev-dependencies";
            if own && !allowed.contains(&name.as_str()) {
                faults.push(format!("{}: may not depend on {name}", file.path));
            }
        }
    }
    Ok(faults)
}

/// A version stands in the workspace's manifest and nowhere else.
pub(super) fn versions(sources: &Sources) -> Result<Vec<String>> {
    let mut faults = Vec::new();
    for (_, file) in sources.manifests() {
        for (_, name, value) in dependencies(file)? {
            if value.get("workspace").and_then(Value::as_bool) != Some(true) {
                faults.push(format!("{}: {name} = {{ workspace = true }}", file.path));
            }
        }
    }
    Ok(faults)
}

fn dependencies(file: &SourceFile) -> Result<Vec<(&'static str, String, Value)>> {
    let manifest: Table = toml::from_str(&file.text).with_context(|| format!("parse {}", file.path))?;
    let mut found = Vec::new();
    for table in TABLES {
        let entries = manifest.get(table).and_then(Value::as_table).cloned().unwrap_or_default();
        found.extend(entries.into_iter().map(|(name, value)| (table, name, value)));
    }
    Ok(found)
}
