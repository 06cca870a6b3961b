//! Judgement of a configuration that could be read.
//!
//! Owns: every rule on values, each problem with its field path and what to write instead. All problems are
//! reported, not only the first. Does not: look at the machine (disks, links).
//! Source: shared/spec/machine-facts.md §1.2.

use crate::v1alpha1::{Config, Interface, Machine};
use std::{fmt, net::IpAddr};

/// One thing that is wrong with a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Path of the field: `machine.network.hostname`.
    pub field: String,
    /// What is wrong and what to write.
    pub message: String,
}

/// Everything that is wrong with a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValidateError(pub Vec<Problem>);

impl std::error::Error for ValidateError {}

impl fmt::Display for ValidateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<_> = self.0.iter().map(|p| format!("{}: {}", p.field, p.message)).collect();
        f.write_str(&lines.join("\n"))
    }
}

/// Checks every value of `config`.
///
/// # Errors
/// [`ValidateError`] with all problems.
pub fn validate(config: &Config) -> Result<(), ValidateError> {
    let mut problems = Problems(Vec::new());
    machine(&config.machine, &mut problems);
    cluster(config, &mut problems);
    if problems.0.is_empty() { Ok(()) } else { Err(ValidateError(problems.0)) }
}

struct Problems(Vec<Problem>);

impl Problems {
    fn add(&mut self, field: impl Into<String>, message: impl Into<String>) {
        self.0.push(Problem { field: field.into(), message: message.into() });
    }
}

fn machine(machine: &Machine, problems: &mut Problems) {
    if machine.token.is_empty() {
        problems.add("machine.token", "missing; it is the secret that all nodes of a cluster share");
    }
    if machine.machine_type.is_control_plane() {
        if machine.ca.crt.0.is_empty() || machine.ca.key().is_none() {
            problems.add("machine.ca", "a control plane node needs the API's CA with `crt` and `key`");
        }
    } else if machine.ca.key().is_some() {
        problems.add("machine.ca.key", "a worker must not hold the CA's key; leave `key` out");
    }
    for (index, san) in machine.cert_sans.iter().enumerate() {
        if san.parse::<IpAddr>().is_err() && !is_host_name(san.strip_prefix("*.").unwrap_or(san)) {
            problems.add(
                format!("machine.certSANs[{index}]"),
                format!("`{san}` is neither an address nor a name"),
            );
        }
    }
    let hostname = &machine.network.hostname;
    if !hostname.is_empty() && !is_host_name(hostname) {
        problems.add(
            "machine.network.hostname",
            format!("`{hostname}` is not a host name: letters, digits and `-` only"),
        );
    }
    for (index, interface) in machine.network.interfaces.iter().enumerate() {
        check_interface(interface, &format!("machine.network.interfaces[{index}]"), problems);
    }
}

fn check_interface(interface: &Interface, field: &str, problems: &mut Problems) {
    let name = &interface.interface;
    // IFNAMSIZ is 16 with the final NUL.
    if name.is_empty() || name.len() > 15 || name.contains(['/', ' ', ':']) {
        problems.add(
            format!("{field}.interface"),
            format!("`{name}` is not a link name: 1 to 15 bytes without `/`"),
        );
    }
    for address in interface.addresses.iter().chain((!interface.cidr.is_empty()).then_some(&interface.cidr)) {
        if !is_cidr(address) {
            problems.add(
                format!("{field}.addresses"),
                format!("`{address}` is not an address with prefix: 10.0.0.2/24"),
            );
        }
    }
    for route in &interface.routes {
        if !route.network.is_empty() && !is_cidr(&route.network) {
            problems
                .add(format!("{field}.routes"), format!("`{}` is not a network with prefix", route.network));
        }
        if !route.gateway.is_empty() && route.gateway.parse::<IpAddr>().is_err() {
            problems.add(format!("{field}.routes"), format!("gateway `{}` is not an address", route.gateway));
        }
    }
}

fn cluster(config: &Config, problems: &mut Problems) {
    let endpoint = &config.cluster.control_plane.endpoint;
    if endpoint_host(endpoint).is_none() {
        let message = format!("`{endpoint}` is not an address of the Kubernetes API: https://<host>:<port>");
        problems.add("cluster.controlPlane.endpoint", message);
    }
    let name = &config.cluster.cluster_name;
    if !name.is_empty() && name.split('.').any(|label| !is_label(label)) {
        problems.add("cluster.clusterName", format!("`{name}` is not a DNS name"));
    }
}

/// The host of an `https://host:port` endpoint, brackets of an IPv6 address removed; `None` if it is not one.
pub fn endpoint_host(endpoint: &str) -> Option<&str> {
    let authority = endpoint.strip_prefix("https://")?.trim_end_matches('/');
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => rest.split_once(']').map(|(host, port)| (host, port.strip_prefix(':')))?,
        None => authority.split_once(':').map_or((authority, None), |(host, port)| (host, Some(port))),
    };
    let port_is_good = port.is_none_or(|p| p.parse::<u16>().is_ok_and(|p| p != 0));
    let host_is_good = host.parse::<IpAddr>().is_ok() || is_host_name(host);
    (port_is_good && host_is_good).then_some(host)
}

fn is_cidr(text: &str) -> bool {
    let Some((address, prefix)) = text.split_once('/') else { return false };
    let longest = match address.parse::<IpAddr>() {
        Ok(IpAddr::V4(_)) => 32,
        Ok(IpAddr::V6(_)) => 128,
        Err(_) => return false,
    };
    prefix.parse::<u8>().is_ok_and(|p| p <= longest)
}

/// RFC 1123 name: labels of letters, digits and inner hyphens, 253 bytes in all.
fn is_host_name(name: &str) -> bool {
    (1..=253).contains(&name.len()) && name.split('.').all(is_label)
}

fn is_label(label: &str) -> bool {
    (1..=63).contains(&label.len())
        && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
        && !label.starts_with('-')
        && !label.ends_with('-')
}

#[cfg(test)]
mod tests {
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

    #[test]
    fn every_problem_is_reported_at_once() {
        let yaml = "version: v1alpha1
machine:
  type: controlplane
  certSANs: ['a b', '*.example.org', 10.0.0.1]
  network: {hostname: -x, interfaces: [{interface: eth0, cidr: 10.0.0.1/33, routes: [{gateway: up}]}]}
cluster: {clusterName: a_b, controlPlane: {endpoint: http://x}}
";
        assert_eq!(
            problems(yaml),
            [
                "machine.token",
                "machine.ca",
                "machine.certSANs[0]",
                "machine.network.hostname",
                "machine.network.interfaces[0].addresses",
                "machine.network.interfaces[0].routes",
                "cluster.controlPlane.endpoint",
                "cluster.clusterName",
            ]
        );
    }

    #[test]
    fn a_worker_with_the_key_of_the_ca_is_refused() {
        let yaml = "version: v1alpha1\nmachine: {type: worker, token: a.b, ca: {crt: YQ==, key: YQ==}}\ncluster: {controlPlane: {endpoint: 'https://a'}}\n";
        assert_eq!(problems(yaml), ["machine.ca.key"]);
    }

    #[test]
    fn endpoint_hosts() {
        assert_eq!(endpoint_host("https://10.0.0.1:6443"), Some("10.0.0.1"));
        assert_eq!(endpoint_host("https://[fd00::1]:6443"), Some("fd00::1"));
        assert_eq!(endpoint_host("https://k8s.example.org"), Some("k8s.example.org"));
        for wrong in ["", "10.0.0.1:6443", "https://", "https://a:0", "https://a:70000", "https://a b"] {
            assert_eq!(endpoint_host(wrong), None, "{wrong}");
        }
    }
}
