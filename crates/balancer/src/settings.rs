//! Limits and times.

use std::time::Duration;

/// Limits and times of a balancer; the defaults suit a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Clients at a time, over all listeners; one more is reset at once. 4096: what a node's pods and kubelet need is far
    /// less, and each takes two descriptors and 16 KiB.
    pub connections: usize,
    /// One dial of one upstream, the look-up of its name included; also a probe's. 3 s: a SYN that was lost is repeated
    /// after one second, and three upstreams fit into the 10 s that clients in Go wait for TLS.
    pub deadline: Duration,
    /// From the beginning of one probe to that of the next, unless the first takes longer. 5 s: one connection each from
    /// every node is little for an API server.
    pub probe_period: Duration,
    /// Probes in a row that fail before the open connections of an upstream are ended. 3: a restart of the API server in
    /// between is not taken for a dead host.
    pub probe_failures: u32,
    /// Addresses of one host name that are tried in a dial; they share its deadline.
    pub addresses: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            connections: 4096,
            deadline: Duration::from_secs(3),
            probe_period: Duration::from_secs(5),
            probe_failures: 3,
            addresses: 4,
        }
    }
}
