//! KubePrism: a balancer on the node's loopback interface before the cluster's API servers.
//!
//! | task | reads | writes | ends |
//! |---|---|---|---|
//! | [`run`] | the config, the API servers that the cluster tells of | the balancer's upstreams | with machined |
//!
//! Owns: which API servers there are: the one on this node, the others as the cluster's API tells, and the endpoint, which leads to
//! them before any of them is known.
//! Does not: pass bytes on; `balancer` does.
//! Fails by: a line in the log; the next look tries again.
//! Source: docs/users/kubernetes.md.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use balancer::{Balancer, Settings, Target, Upstream, UpstreamHealth};
use kubernetes_node::Balanced;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::node::Node;

/// Between two questions which API servers there are, while none is known, and later.
const SHORT_PERIOD: Duration = Duration::from_secs(2);
const LONG_PERIOD: Duration = Duration::from_secs(15);
/// Two descriptors each: far below what machined may have.
const MAX_CONNECTIONS: usize = 512;
/// The API server on this node, the others, and whatever the endpoint leads to.
const OWN: u8 = 0;
const OTHERS: u8 = 1;
const ENDPOINT: u8 = 2;
/// A balancer that runs, and what it is told.
struct Running {
    wanted: Balanced,
    upstreams: watch::Sender<Vec<Upstream>>,
    task: JoinHandle<()>,
}

/// Keeps the balancer as the config wants it.
pub(crate) async fn run(node: Arc<Node>) {
    let mut config = node.runtime.config.subscribe();
    let mut running: Option<Running> = None;
    let mut said = String::new();
    loop {
        let now = config.borrow_and_update().as_ref().and_then(|config| Balanced::of(config));
        if running.as_ref().map(|running| &running.wanted) != now.as_ref() {
            if let Some(old) = running.take() {
                old.task.abort();
                // Its port is free when it has ended.
                let _ = old.task.await;
            }
            running = now.and_then(|wanted| start(&node, wanted, &mut said));
        }
        let period = match &running {
            Some(running) => look(&node, running).await,
            None => LONG_PERIOD,
        };
        if let Ok(Err(_)) = timeout(period, config.changed()).await {
            return;
        }
    }
}

fn start(node: &Arc<Node>, wanted: Balanced, said: &mut String) -> Option<Running> {
    let address = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), wanted.port);
    let settings = Settings { connections: MAX_CONNECTIONS, ..Settings::default() };
    let balancer = match Balancer::bind(&[address], settings) {
        Ok(balancer) => balancer,
        Err(error) => {
            let text = format!("KubePrism: {error}");
            if *said != text {
                node.runtime.journal.warn(&text);
                *said = text;
            }
            return None;
        }
    };
    said.clear();
    node.runtime.journal.say(&format!("KubePrism: listening on {address}"));
    // It ends with the balancer.
    tokio::spawn(tell(node.clone(), balancer.health()));
    let (upstreams, told) = watch::channel(upstreams(&wanted, &[]));
    let task = tokio::spawn(async move {
        balancer.run(told).await;
    });
    Some(Running { wanted, upstreams, task })
}

/// Says when no API server answers, and when one does again.
async fn tell(node: Arc<Node>, mut health: watch::Receiver<Vec<UpstreamHealth>>) {
    let mut is_silent = false;
    loop {
        // The reasons change while the addresses are tried again: the first ones are enough.
        match silence(&health.borrow_and_update()) {
            Some(text) if !is_silent => {
                is_silent = true;
                node.runtime.journal.warn(&format!("KubePrism: no API server answers: {text}"));
            }
            None if is_silent => {
                is_silent = false;
                node.runtime.journal.say("KubePrism: an API server answers");
            }
            _ => {}
        }
        if health.changed().await.is_err() {
            return;
        }
    }
}

/// Why none of them answers, once each has been tried.
fn silence(all: &[UpstreamHealth]) -> Option<String> {
    let reason = |one: &UpstreamHealth| Some(format!("{}: {}", one.address, one.error.as_ref()?));
    let reasons: Option<Vec<String>> = all.iter().map(reason).collect();
    reasons.filter(|reasons| !reasons.is_empty()).map(|reasons| reasons.join("; "))
}

/// Asks which API servers there are; when to ask again.
async fn look(node: &Node, running: &Running) -> Duration {
    let Some(kubernetes) = node.kubernetes.get() else { return SHORT_PERIOD };
    let known = match kubernetes.control_planes().await {
        Ok(known) if !known.is_empty() => known,
        // Before the kubelet has joined, and while no API server answers, those that are known stay.
        _ => return SHORT_PERIOD,
    };
    let now = upstreams(&running.wanted, &known);
    running.upstreams.send_if_modified(|before| {
        let is_new = *before != now;
        *before = now;
        is_new
    });
    LONG_PERIOD
}

fn upstreams(wanted: &Balanced, known: &[IpAddr]) -> Vec<Upstream> {
    let mut all = Vec::new();
    let mut seen = BTreeSet::new();
    let mut add = |address: Target, priority: u8| {
        if seen.insert(address.clone()) {
            all.push(Upstream { address, priority });
        }
    };
    if wanted.has_own {
        add(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), wanted.api_port).into(), OWN);
    }
    for address in known {
        add(SocketAddr::new(*address, wanted.api_port).into(), OTHERS);
    }
    if let Some((name, port)) = &wanted.endpoint {
        let target = match wanted.endpoint_address() {
            Some(address) => SocketAddr::new(address, *port).into(),
            None => Target::Host { name: name.clone(), port: *port },
        };
        add(target, ENDPOINT);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn api_servers_come_in_their_order() {
        let known: Vec<IpAddr> = ["10.0.0.3", "10.0.0.4"].iter().map(|text| text.parse().unwrap()).collect();
        let list = |name: &str, port: u16, has_own: bool| -> Vec<String> {
            let wanted =
                Balanced { port: 7445, api_port: 6443, endpoint: Some((name.into(), port)), has_own };
            let all = upstreams(&wanted, &known);
            all.iter().map(|one| format!("{} {}", one.address, one.priority)).collect()
        };
        let others = ["10.0.0.3:6443 1", "10.0.0.4:6443 1"];
        assert_eq!(list("cluster.example", 443, false), [&others[..], &["cluster.example:443 2"]].concat());
        assert_eq!(
            list("fd00::9", 443, true),
            [&["127.0.0.1:6443 0"], &others[..], &["[fd00::9]:443 2"]].concat()
        );
        // An endpoint that is one of them is there once.
        assert_eq!(list("10.0.0.4", 6443, false), others);
    }

    #[test]
    fn silence_is_told_once_each_has_failed() {
        let one = |address: &str, error: Option<&str>| UpstreamHealth {
            address: address.parse::<SocketAddr>().unwrap().into(),
            is_healthy: error.is_none(),
            error: error.map(str::to_owned),
            connect_time: None,
        };
        assert_eq!(silence(&[]), None);
        assert_eq!(silence(&[one("10.0.0.3:6443", Some("refused")), one("10.0.0.4:6443", None)]), None);
        assert_eq!(
            silence(&[one("10.0.0.3:6443", Some("refused")), one("10.0.0.4:6443", Some("no answer"))])
                .unwrap(),
            "10.0.0.3:6443: refused; 10.0.0.4:6443: no answer"
        );
    }
}
