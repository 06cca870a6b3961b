//! Time servers, layer by layer: the default one, the kernel parameters', those of each lease, the config's.
//!
//! Owns: `TimeServerSpecs`, one resource a layer and link, and which of them are asked: the config's, where it names none those
//! of all leases, else those of the kernel's parameters, else the default one.

use runtime::Runtime;
use runtime::store::{DHCP_LEASE, NetworkSpec, Spec, TimeServerSpec};

/// Asked when nothing names one (docs/users/time.md).
pub const DEFAULT_SERVER: &str = "pool.ntp.org";

/// What names time servers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Layers {
    /// Of the config.
    given: Vec<String>,
    /// Of `ip=`.
    of_line: Vec<String>,
    /// Link and what its DHCP server names.
    leased: Vec<(String, Vec<String>)>,
}

impl Layers {
    pub(super) fn of(runtime: &Runtime) -> Self {
        let given = runtime.config().map(|config| config.machine.time.servers.clone()).unwrap_or_default();
        let leases = runtime.store.list(&DHCP_LEASE);
        let leased = leases.iter().filter_map(|resource| match &resource.spec {
            Spec::DhcpLease(lease) if !lease.time_servers.is_empty() => {
                Some((resource.metadata.id.clone(), lease.time_servers.clone()))
            }
            _ => None,
        });
        let of_line = runtime.parameters.network.statics().flat_map(|address| &address.time_servers);
        Self { given, of_line: of_line.map(ToString::to_string).collect(), leased: leased.collect() }
    }

    /// Those that are asked, each once.
    pub(super) fn asked(&self) -> Vec<String> {
        if !self.given.is_empty() {
            return self.given.clone();
        }
        let mut servers: Vec<String> = self.leased.iter().flat_map(|(_, servers)| servers).cloned().collect();
        servers.sort();
        servers.dedup();
        if servers.is_empty() {
            servers.clone_from(&self.of_line);
        }
        if servers.is_empty() {
            servers.push(DEFAULT_SERVER.to_owned());
        }
        servers
    }

    /// The resources by their ids.
    pub(super) fn specs(&self) -> Vec<(String, Spec)> {
        let spec = |id: String, servers: &[String], layer| {
            let spec = TimeServerSpec { time_servers: servers.to_vec(), layer, use_nts: false };
            (id, Spec::Network(Box::new(NetworkSpec::TimeServers(spec))))
        };
        let mut found = vec![spec("default/timeservers".to_owned(), &[DEFAULT_SERVER.to_owned()], "default")];
        if !self.of_line.is_empty() {
            found.push(spec("cmdline/timeservers".to_owned(), &self.of_line, "cmdline"));
        }
        let leased = self.leased.iter();
        found.extend(
            leased.map(|(link, servers)| spec(format!("operator/{link}/timeservers"), servers, "operator")),
        );
        if !self.given.is_empty() {
            found.push(spec("configuration/timeservers".to_owned(), &self.given, "configuration"));
        }
        found
    }
}

#[cfg(test)]
pub(super) mod tests {
    use runtime::store::DhcpLease;

    use super::*;

    /// A lease with these time servers.
    pub(in crate::time) fn lease(servers: [&str; 2]) -> Spec {
        Spec::DhcpLease(DhcpLease {
            address: "10.0.0.2/24".into(),
            server: "10.0.0.1".into(),
            gateway: None,
            resolvers: vec![],
            time_servers: servers.map(str::to_owned).to_vec(),
            hostname: None,
            domain: None,
            search_domains: Vec::new(),
            lease_seconds: 60,
        })
    }

    #[test]
    fn every_layer_is_a_spec_and_the_highest_one_is_asked() {
        let dir = tempfile::tempdir().unwrap();
        let runtime = Runtime::detached(dir.path().to_path_buf());
        assert_eq!(Layers::of(&runtime).asked(), [DEFAULT_SERVER]);
        for (link, servers) in [("eth0", ["10.0.0.4", "10.0.0.5"]), ("eth1", ["10.0.0.5", "10.0.0.6"])] {
            runtime.store.put(DHCP_LEASE.writer, &DHCP_LEASE, link, lease(servers)).unwrap();
        }
        assert_eq!(Layers::of(&runtime).asked(), ["10.0.0.4", "10.0.0.5", "10.0.0.6"]);
        let text =
            "version: v1alpha1\nmachine:\n  type: worker\n  token: a.b\n  time: {servers: [ours.example]}\n";
        let config = config::parse(text).unwrap_or_else(|e| panic!("{e}"));
        runtime.config.send_replace(Some(std::sync::Arc::new(config)));
        let layers = Layers::of(&runtime);
        assert_eq!(layers.asked(), ["ours.example"]);
        let specs = layers.specs();
        let ids: Vec<_> = specs.iter().map(|(id, _)| id.as_str()).collect();
        let expected = [
            "default/timeservers",
            "operator/eth0/timeservers",
            "operator/eth1/timeservers",
            "configuration/timeservers",
        ];
        assert_eq!(ids, expected);
        let text = specs[1].1.yaml().unwrap();
        assert_eq!(text, "timeServers:\n- \"10.0.0.4\"\n- \"10.0.0.5\"\nlayer: operator\nuseNTS: false\n");
    }
}
