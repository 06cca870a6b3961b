//! A configuration with its defaults, and what rendering needs of the machine.
//!
//! Owns: networks and the addresses of services in them; the endpoint; the node's names.
//! Source: docs/users/configuration.md; the 1st address of a service network is the API server's, the 10th the cluster
//! DNS's, by kubeadm's convention that clients rely on.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use config::Config;
use config::v1alpha1::{ApiServer, ControllerManager, Flannel, Kubelet, Proxy, Scheduler};

use crate::Error;

/// Networks of pods where a configuration has none.
const POD_NETWORK: &str = "10.244.0.0/16";
/// Networks of services where a configuration has none.
const SERVICE_NETWORK: &str = "10.96.0.0/12";
/// Port of the API server where a configuration has none.
const API_PORT: u16 = 6443;
/// Which address of each service network the API server has.
const API_ADDRESS: u32 = 1;
/// Which address of each service network the cluster DNS has.
const DNS_ADDRESS: u32 = 10;

/// What rendering needs of the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Host name, and the node's name in Kubernetes unless it registers with its full one.
    pub host_name: String,
    /// Domain behind the host name; empty without one.
    pub domain: String,
    /// The addresses by which others reach it, without loopback and link-local ones. The first is the node's.
    pub addresses: Vec<IpAddr>,
    /// Addresses that control plane nodes share: none of them is the node's, whoever has it.
    pub shared: Vec<IpAddr>,
    /// Whether it is a set of namespaces on a machine whose kernel settings are not its own.
    pub is_container: bool,
    /// Whether its kernel has control groups of version 1.
    pub has_cgroup_v1: bool,
    /// `resolv.conf` for pods.
    pub resolv_conf: String,
}

/// Of an endpoint that names none.
const HTTPS_PORT: u16 = 443;
/// Of the balancer, where the configuration names none.
const KUBE_PRISM_PORT: u16 = 7445;

impl Node {
    /// The full name, where there is a domain.
    #[must_use]
    pub fn full_name(&self) -> String {
        match self.domain.as_str() {
            "" => self.host_name.clone(),
            domain => format!("{}.{domain}", self.host_name),
        }
    }

    /// Whether it has an IPv6 address and no IPv4 one.
    #[must_use]
    pub fn is_ipv6_only(&self) -> bool {
        !self.addresses.is_empty() && self.addresses.iter().all(IpAddr::is_ipv6)
    }
}

/// A network: address and prefix length.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Network {
    text: String,
    address: IpAddr,
    prefix: u32,
}

/// Reads `address/length`.
pub(crate) fn network(text: &str) -> Option<Network> {
    let (address, prefix) = text.split_once('/')?;
    let (address, prefix): (IpAddr, u32) = (address.parse().ok()?, prefix.parse().ok()?);
    (prefix <= bits(address)).then(|| Network { text: text.to_owned(), address, prefix })
}

impl Network {
    fn parse(field: &'static str, text: &str) -> Result<Self, Error> {
        network(text).ok_or_else(|| Error::Network { field, text: text.to_owned() })
    }

    /// As it is written.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether its addresses are of IPv6.
    #[must_use]
    pub fn is_ipv6(&self) -> bool {
        self.address.is_ipv6()
    }

    /// Whether an address lies in it.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        let shift = bits(self.address).saturating_sub(self.prefix);
        let high = |bits: u128| bits.checked_shr(shift).unwrap_or_default();
        address.is_ipv6() == self.is_ipv6() && high(number(address)) == high(number(self.address))
    }

    /// The address with this number, counted from the network's own, if it lies in the network.
    #[must_use]
    pub fn address(&self, offset: u32) -> Option<IpAddr> {
        let shift = bits(self.address).saturating_sub(self.prefix);
        let base =
            number(self.address).checked_shr(shift).and_then(|high| high.checked_shl(shift)).unwrap_or(0);
        let counted = base.checked_add(offset.into())?;
        let address = match self.address {
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::from(u32::try_from(counted).ok()?)),
            IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::from(counted)),
        };
        self.contains(address).then_some(address)
    }
}

/// PEM of certificates, each once, in their order.
fn together<'p>(certificates: impl Iterator<Item = &'p str>) -> String {
    let mut all: Vec<&str> = Vec::new();
    for pem in certificates.map(str::trim) {
        if !pem.is_empty() && !all.contains(&pem) {
            all.push(pem);
        }
    }
    all.iter().map(|pem| format!("{pem}\n")).collect()
}

fn bits(address: IpAddr) -> u32 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u32::from(address).into(),
        IpAddr::V6(address) => address.into(),
    }
}

/// A configuration as rendering sees it.
pub struct Cluster<'a> {
    config: &'a Config,
    pods: Vec<Network>,
    services: Vec<Network>,
}

impl<'a> Cluster<'a> {
    /// Reads the networks of a configuration.
    ///
    /// # Errors
    /// [`Error::Network`], [`Error::NetworkTooSmall`], [`Error::Missing`] without an endpoint.
    pub fn new(config: &'a Config) -> Result<Self, Error> {
        let network = config.cluster.network.as_ref();
        let of = |field, given: Option<&Vec<String>>, default: &str| {
            let texts = match given {
                Some(texts) if !texts.is_empty() => texts.clone(),
                _ => vec![default.to_owned()],
            };
            texts.iter().map(|text| Network::parse(field, text)).collect::<Result<Vec<_>, _>>()
        };
        if config.cluster.control_plane.endpoint.is_empty() {
            let hint = "write where the Kubernetes API answers: https://demo.example.org:6443";
            return Err(Error::Missing { field: "cluster.controlPlane.endpoint", hint });
        }
        let cluster = Self {
            config,
            pods: of("cluster.network.podSubnets", network.map(|n| &n.pod_subnets), POD_NETWORK)?,
            services: of(
                "cluster.network.serviceSubnets",
                network.map(|n| &n.service_subnets),
                SERVICE_NETWORK,
            )?,
        };
        cluster.dns_addresses()?;
        Ok(cluster)
    }

    /// The configuration itself.
    #[must_use]
    pub fn config(&self) -> &'a Config {
        self.config
    }

    /// Whether this node runs the control plane.
    #[must_use]
    pub fn is_control_plane(&self) -> bool {
        self.config.machine.machine_type.is_control_plane()
    }

    /// The cluster's name, which kubeconfigs show.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.config.cluster.cluster_name
    }

    /// PEM of every authority of Kubernetes that is trusted: the one that signs, then those of `cluster.acceptedCAs`.
    #[must_use]
    pub fn authorities(&self) -> String {
        let config = &self.config.cluster;
        together(std::iter::once(&config.ca).chain(&config.accepted_cas).map(|pair| pair.crt.0.as_str()))
    }

    /// PEM of every authority of the aggregation layer that is trusted: the one that signs, then those of
    /// `KubeAggregatorCAConfig.acceptedCAs`.
    #[must_use]
    pub fn aggregator_authorities(&self) -> String {
        let config = &self.config.cluster;
        let own = std::iter::once(&config.aggregator_ca.crt.0);
        together(own.chain(&config.accepted_aggregator_cas).map(String::as_str))
    }

    /// `https://host:port` of the Kubernetes API, from every node.
    #[must_use]
    pub fn endpoint(&self) -> &str {
        &self.config.cluster.control_plane.endpoint
    }

    /// Host of the endpoint: an address or a name.
    #[must_use]
    pub fn endpoint_host(&self) -> Option<&str> {
        config::endpoint_host(self.endpoint())
    }

    /// The endpoint's port.
    #[must_use]
    pub fn endpoint_port(&self) -> u16 {
        let rest = self.endpoint().split_once("://").map_or(self.endpoint(), |(_, rest)| rest);
        let authority = rest.split('/').next().unwrap_or_default();
        authority.rsplit_once(':').and_then(|(_, port)| port.parse().ok()).unwrap_or(HTTPS_PORT)
    }

    /// The port of the balancer on this node's loopback interface; `None` without it.
    #[must_use]
    pub fn kube_prism_port(&self) -> Option<u16> {
        let features = self.config.machine.features.as_ref();
        let prism = features.and_then(|features| features.kube_prism.as_ref());
        prism.filter(|prism| prism.enabled == Some(true)).map(|prism| prism.port.unwrap_or(KUBE_PRISM_PORT))
    }

    /// Where the node's own clients reach the Kubernetes API: by the balancer on the node, or at the endpoint.
    #[must_use]
    pub fn server(&self) -> String {
        self.kube_prism_port()
            .map_or_else(|| self.endpoint().to_owned(), |port| format!("https://127.0.0.1:{port}"))
    }

    /// The name in the API server's certificate that clients by the balancer verify, where it is another than its address.
    #[must_use]
    pub fn server_name(&self) -> Option<&str> {
        self.kube_prism_port()?;
        let features = self.config.machine.features.as_ref();
        let name = features.and_then(|features| features.kube_prism.as_ref())?.tls_server_name.as_str();
        (!name.is_empty()).then_some(name)
    }

    /// Port of the API server on each control plane node.
    #[must_use]
    pub fn api_port(&self) -> u16 {
        self.config.cluster.control_plane.local_api_server_port.unwrap_or(API_PORT)
    }

    /// Domain of services.
    #[must_use]
    pub fn dns_domain(&self) -> &str {
        self.config.cluster.dns_domain()
    }

    /// Networks of pods.
    #[must_use]
    pub fn pod_networks(&self) -> &[Network] {
        &self.pods
    }

    /// Networks of services.
    #[must_use]
    pub fn service_networks(&self) -> &[Network] {
        &self.services
    }

    /// Address of the API server in each service network.
    ///
    /// # Errors
    /// [`Error::NetworkTooSmall`].
    pub fn api_addresses(&self) -> Result<Vec<IpAddr>, Error> {
        self.service_addresses(API_ADDRESS)
    }

    /// Address of the cluster DNS in each service network.
    ///
    /// # Errors
    /// [`Error::NetworkTooSmall`].
    pub fn dns_addresses(&self) -> Result<Vec<IpAddr>, Error> {
        self.service_addresses(DNS_ADDRESS)
    }

    fn service_addresses(&self, number: u32) -> Result<Vec<IpAddr>, Error> {
        let of = |network: &Network| {
            let text = network.text.clone();
            let field = "cluster.network.serviceSubnets";
            network.address(number).ok_or(Error::NetworkTooSmall { field, text, number })
        };
        self.services.iter().map(of).collect()
    }

    /// The node's name in Kubernetes.
    #[must_use]
    pub fn node_name(&self, node: &Node) -> String {
        let name = if self.kubelet().register_with_fqdn { node.full_name() } else { node.host_name.clone() };
        name.to_lowercase()
    }

    /// Whether the kubelet runs the node's own static pods and no other file's.
    #[must_use]
    pub fn has_own_manifests_only(&self) -> bool {
        self.kubelet().disable_manifests_directory == Some(true)
    }

    /// Settings of the API server.
    #[must_use]
    pub fn api_server(&self) -> ApiServer {
        self.config.cluster.api_server.clone().unwrap_or_default()
    }

    /// Settings of the controller manager.
    #[must_use]
    pub fn controller_manager(&self) -> ControllerManager {
        self.config.cluster.controller_manager.clone().unwrap_or_default()
    }

    /// Settings of the scheduler.
    #[must_use]
    pub fn scheduler(&self) -> Scheduler {
        self.config.cluster.scheduler.clone().unwrap_or_default()
    }

    /// Settings of kube-proxy.
    #[must_use]
    pub fn proxy(&self) -> Proxy {
        self.config.cluster.proxy.clone().unwrap_or_default()
    }

    /// Settings of the kubelet.
    #[must_use]
    pub fn kubelet(&self) -> &Kubelet {
        &self.config.machine.kubelet
    }

    /// What connects pods: `flannel`, `custom` or `none`.
    #[must_use]
    pub fn cni(&self) -> &str {
        let cni = self.config.cluster.network.as_ref().and_then(|network| network.cni.as_ref());
        cni.map(|cni| cni.name.as_str()).filter(|name| !name.is_empty()).unwrap_or("flannel")
    }

    /// Settings of flannel.
    #[must_use]
    pub fn flannel(&self) -> Flannel {
        let cni = self.config.cluster.network.as_ref().and_then(|network| network.cni.as_ref());
        cni.and_then(|cni| cni.flannel.clone()).unwrap_or_default()
    }

    /// Whether a controller manager of a cloud initialises nodes.
    #[must_use]
    pub fn has_cloud_provider(&self) -> bool {
        let provider = self.config.cluster.external_cloud_provider.as_ref();
        provider.is_some_and(|provider| provider.enabled == Some(true))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(text: &str) -> Network {
        Network::parse("cluster.network.serviceSubnets", text).unwrap()
    }

    #[test]
    fn addresses_are_counted_inside_a_network() {
        let at = |text: &str, offset| network(text).address(offset).map(|address| address.to_string());
        assert_eq!(at("10.96.0.0/12", 1).as_deref(), Some("10.96.0.1"));
        assert_eq!(at("10.96.0.0/12", 10).as_deref(), Some("10.96.0.10"));
        assert_eq!(at("10.96.5.7/12", 10).as_deref(), Some("10.96.0.10"));
        assert_eq!(at("fd00:10:96::/112", 10).as_deref(), Some("fd00:10:96::a"));
        assert_eq!(at("10.0.0.0/29", 10), None);
        assert_eq!(at("255.255.255.248/29", 10), None);
        assert_eq!(at("0.0.0.0/0", 1).as_deref(), Some("0.0.0.1"));
    }

    #[test]
    fn a_network_knows_its_addresses() {
        let services = network("10.96.0.0/12");
        assert!(services.contains("10.111.255.255".parse().unwrap()));
        assert!(!services.contains("10.112.0.0".parse().unwrap()));
        assert!(!services.contains("fd00::1".parse().unwrap()));
        assert!(network("::/0").contains("fd00::1".parse().unwrap()));
    }

    #[test]
    fn what_is_no_network_is_refused_with_its_field() {
        for text in ["10.96.0.0", "10.96.0.0/33", "services/12", "fd00::/129", "10.96.0.0/x"] {
            let refused = Network::parse("cluster.network.podSubnets", text).unwrap_err().to_string();
            assert!(
                refused.starts_with("cluster.network.podSubnets: ") && refused.contains(text),
                "{refused}"
            );
        }
    }

    #[test]
    fn a_service_network_needs_room_for_the_cluster_dns() {
        let text = "version: v1alpha1\nmachine: {type: controlplane}\ncluster:\n  controlPlane: \
                    {endpoint: \"https://10.0.0.1:6443\"}\n  network: {serviceSubnets: [10.96.0.0/29]}\n";
        let config = config::parse(text).unwrap();
        let refused = Cluster::new(&config).err().unwrap().to_string();
        assert_eq!(
            refused,
            "cluster.network.serviceSubnets: 10.96.0.0/29 has no 10th address; use a larger network"
        );
    }
}
