//! Which API servers a node's balancer passes connections on to, before the cluster tells.

use std::net::IpAddr;

use config::Config;
use kubernetes::Cluster;

/// What the configuration says of the balancer on the node, and of API servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Balanced {
    /// Where the balancer listens, on loopback.
    pub port: u16,
    /// Where API servers listen.
    pub api_port: u16,
    /// The cluster's endpoint: a name or an address, and the port.
    pub endpoint: Option<(String, u16)>,
    /// Whether there is an API server on the node.
    pub has_own: bool,
}

impl Balanced {
    /// `None` where the configuration wants no balancer, or none of a cluster.
    #[must_use]
    pub fn of(config: &Config) -> Option<Self> {
        let cluster = Cluster::new(config).ok()?;
        let host = cluster.endpoint_host().map(|host| host.trim_matches(['[', ']']).to_owned());
        Some(Self {
            port: cluster.kube_prism_port()?,
            api_port: cluster.api_port(),
            endpoint: host.map(|host| (host, cluster.endpoint_port())),
            has_own: cluster.is_control_plane(),
        })
    }

    /// The endpoint, where it is an address.
    #[must_use]
    pub fn endpoint_address(&self) -> Option<IpAddr> {
        self.endpoint.as_ref()?.0.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_balancer_follows_the_configuration() {
        let of = |features: &str, endpoint: &str| {
            let text = format!(
                "version: v1alpha1\nmachine: {{type: worker, token: a.b, features: {features}}}\ncluster: {{controlPlane: \
                 {{endpoint: '{endpoint}'}}}}\n"
            );
            Balanced::of(&config::parse(&text).unwrap_or_else(|error| panic!("{error}")))
        };
        let found = of("{kubePrism: {enabled: true}}", "https://cluster.example").unwrap();
        let wanted = Balanced {
            port: 7445,
            api_port: 6443,
            endpoint: Some(("cluster.example".into(), 443)),
            has_own: false,
        };
        assert_eq!((found.endpoint_address(), found), (None, wanted));
        let found = of("{kubePrism: {enabled: true, port: 7000}}", "https://[fd00::3]:6443").unwrap();
        assert_eq!((found.port, found.endpoint_address()), (7000, "fd00::3".parse().ok()));
        assert_eq!(found.endpoint, Some(("fd00::3".into(), 6443)));
        for features in ["{}", "{kubePrism: {enabled: false}}", "{kubePrism: {port: 7445}}"] {
            assert_eq!(of(features, "https://10.0.0.4:6443"), None, "{features}");
        }
    }
}
