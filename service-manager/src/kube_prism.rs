//! KubePrism: a balancer on the node's loopback interface before the cluster's API servers.
//!
//! | task | reads | writes | ends |
//! |---|---|---|---|
//! | [`run`] | the config, the API servers that the cluster tells of | the balancer's upstreams, its resources | with machined |
//!
//! Owns: which API servers there are: the one on this node, the others as the cluster's API tells, and the endpoint, which leads to
//! them before any of them is known.
//! Does not: pass bytes on; `balancer` does.
//! Fails by: a line in the log; the next look tries again.
//! Source: docs/users/kubernetes.md.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use balancer::{Balancer, Settings, Target, Upstream, UpstreamHealth};
use kubernetes_node::{Balanced, KubernetesNode};
use runtime::Runtime;
use runtime::store::{
    Definition, ENDPOINT as API_SERVERS, KUBE_PRISM_CONFIG, KUBE_PRISM_ENDPOINTS, KUBE_PRISM_STATUS, Spec,
};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Between two questions which API servers there are, while none is known, and later.
const SHORT_PERIOD: Duration = Duration::from_secs(2);
const LONG_PERIOD: Duration = Duration::from_secs(15);
/// Two descriptors each: far below what machined may have.
const MAX_CONNECTIONS: usize = 512;
/// The API server on this node, the others, and whatever the endpoint leads to.
const OWN: u8 = 0;
const OTHERS: u8 = 1;
const ENDPOINT: u8 = 2;

/// Ids of the resources, as clients know them.
const API_SERVERS_ID: &str = "kube-apiserver";
const CONFIG_ID: &str = "k8s-loadbalancer-config";
const ENDPOINTS_ID: &str = "k8s-cluster";
const STATUS_ID: &str = "k8s-loadbalancer";

/// A balancer that runs, and what it is told.
struct Running {
    wanted: Balanced,
    upstreams: watch::Sender<Vec<Upstream>>,
    task: JoinHandle<()>,
}

/// Keeps the balancer as the config wants it.
pub(crate) async fn run(runtime: Arc<Runtime>, kubernetes: Arc<OnceLock<KubernetesNode>>) {
    let mut config = runtime.config.subscribe();
    let mut running: Option<Running> = None;
    let mut said = String::new();
    loop {
        let now = config.borrow_and_update().as_ref().and_then(|config| Balanced::of(config));
        if running.as_ref().map(|running| &running.wanted) != now.as_ref() {
            if let Some(old) = running.take() {
                old.task.abort();
                // Its port is free when it has ended.
                let _ = old.task.await;
                for kind in [&KUBE_PRISM_CONFIG, &KUBE_PRISM_ENDPOINTS, &KUBE_PRISM_STATUS] {
                    show(&runtime, kind, None);
                }
            }
            running = now.and_then(|wanted| start(&runtime, wanted, &mut said));
        }
        let period = match &running {
            Some(running) => look(&runtime, &kubernetes, running).await,
            None => LONG_PERIOD,
        };
        if let Ok(Err(_)) = timeout(period, config.changed()).await {
            return;
        }
    }
}

fn start(runtime: &Arc<Runtime>, wanted: Balanced, said: &mut String) -> Option<Running> {
    let address = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), wanted.port);
    let settings = Settings { connections: MAX_CONNECTIONS, ..Settings::default() };
    let balancer = match Balancer::bind(&[address], settings) {
        Ok(balancer) => balancer,
        Err(error) => {
            let text = format!("KubePrism: {error}");
            if *said != text {
                runtime.journal.warn(&text);
                *said = text;
            }
            return None;
        }
    };
    said.clear();
    runtime.journal.say(&format!("KubePrism: listening on {address}"));
    let first = upstreams(&wanted, &[]);
    publish(runtime, &wanted, &first);
    // It ends with the balancer.
    tokio::spawn(tell(runtime.clone(), address, balancer.health()));
    let (upstreams, told) = watch::channel(first);
    let task = tokio::spawn(async move {
        balancer.run(told).await;
    });
    Some(Running { wanted, upstreams, task })
}

/// Says when no API server answers, and when one does again.
async fn tell(runtime: Arc<Runtime>, address: SocketAddr, mut health: watch::Receiver<Vec<UpstreamHealth>>) {
    let mut is_silent = false;
    loop {
        let is_healthy = health.borrow().iter().any(|one| one.is_healthy);
        let status = json!({ "host": address.to_string(), "healthy": is_healthy });
        show(&runtime, &KUBE_PRISM_STATUS, Some((STATUS_ID, status)));
        // The reasons change while the addresses are tried again: the first ones are enough.
        match silence(&health.borrow_and_update()) {
            Some(text) if !is_silent => {
                is_silent = true;
                runtime.journal.warn(&format!("KubePrism: no API server answers: {text}"));
            }
            None if is_silent => {
                is_silent = false;
                runtime.journal.say("KubePrism: an API server answers");
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
async fn look(runtime: &Runtime, kubernetes: &OnceLock<KubernetesNode>, running: &Running) -> Duration {
    let Some(kubernetes) = kubernetes.get() else { return SHORT_PERIOD };
    let known = match kubernetes.control_planes().await {
        Ok(known) if !known.is_empty() => known,
        // Before the kubelet has joined, and while no API server answers, those that are known stay.
        _ => return SHORT_PERIOD,
    };
    let addresses: Vec<String> = known.iter().map(IpAddr::to_string).collect();
    let endpoint = json!({ "addresses": addresses, "hosts": [] });
    show(runtime, &API_SERVERS, Some((API_SERVERS_ID, endpoint)));
    let now = upstreams(&running.wanted, &known);
    publish(runtime, &running.wanted, &now);
    running.upstreams.send_if_modified(|before| {
        let is_new = *before != now;
        *before = now;
        is_new
    });
    LONG_PERIOD
}

/// Shows the balancer and what it passes connections on to.
fn publish(runtime: &Runtime, wanted: &Balanced, upstreams: &[Upstream]) {
    let endpoint = |upstream: &Upstream| match &upstream.address {
        Target::Host { name, port } => json!({ "host": name, "port": port }),
        Target::Address(address) => json!({ "host": address.ip().to_string(), "port": address.port() }),
    };
    let endpoints: Vec<Value> = upstreams.iter().map(endpoint).collect();
    let host = Ipv4Addr::LOCALHOST.to_string();
    let config = json!({ "host": host, "port": wanted.port, "endpoints": endpoints });
    show(runtime, &KUBE_PRISM_CONFIG, Some((CONFIG_ID, config)));
    show(runtime, &KUBE_PRISM_ENDPOINTS, Some((ENDPOINTS_ID, json!({ "endpoints": endpoints }))));
}

/// Has the one resource of a type be this.
fn show(runtime: &Runtime, kind: &'static Definition, fields: Option<(&str, Value)>) {
    let spec = |(id, fields): (&str, Value)| (id.to_owned(), Spec::Fields(fields));
    if let Err(error) = runtime.store.replace(kind.writer, kind, fields.map(spec).into_iter().collect()) {
        runtime.journal.warn(&error.to_string());
    }
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
    fn the_balancer_and_what_is_behind_it_are_shown() {
        let dir = tempfile::tempdir().unwrap();
        let runtime = Runtime::detached(dir.path().to_path_buf());
        let wanted =
            Balanced { port: 7445, api_port: 6443, endpoint: Some(("c.example".into(), 443)), has_own: true };
        publish(&runtime, &wanted, &upstreams(&wanted, &["10.0.0.3".parse().unwrap()]));
        let text = |kind, id| runtime.store.get(kind, id).unwrap().spec.yaml().unwrap();
        let config = text(&KUBE_PRISM_CONFIG, CONFIG_ID);
        for line in ["host: '127.0.0.1'", "port: 7445", "host: '10.0.0.3'", "host: c.example", "port: 443"] {
            assert!(config.replace('"', "'").contains(line), "{line}: {config}");
        }
        assert_eq!(text(&KUBE_PRISM_ENDPOINTS, ENDPOINTS_ID).matches("host:").count(), 3);
        show(&runtime, &KUBE_PRISM_CONFIG, None);
        assert!(runtime.store.get(&KUBE_PRISM_CONFIG, CONFIG_ID).is_none());
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
