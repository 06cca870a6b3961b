//! The node's own resolver: 127.0.0.53 for the node, and an address of its own for pods.
//!
//! | task | reads | writes | ends |
//! |---|---|---|---|
//! | [`follow`] | the config | whether the service runs | with machined |
//! | [`run`] | the config, `ResolverStatuses`, `Members`, questions, answers | answers, `HostDNSConfigs`, `DNSUpstreams` | with the service |
//! | `listen`, one a socket and connection | clients | questions to [`run`] | with its socket |
//! | `exchange`, one a question to a server | a server | what it said, to [`run`] | with its answer, or when it is cancelled |
//!
//! Order: `HostDNSConfigs` says that the resolver is there once it listens; the controller of resolv.conf follows that, so that no
//! program is sent to a port where nothing answers.
//! Owns: who may ask: [`admit`]. Whom to ask and what to keep is the crate `dns`.
//! Fails by: a port that another program has is said once and tried again; resolv.conf names the servers themselves meanwhile.
//! Source: docs/users/dns.md.

mod admit;
mod exchange;
mod listen;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use config::v1alpha1::HostDns;
use dns::{Forwarder, Health, Output};
use network_plan::HOST_DNS_ADDRESS;
use runtime::Runtime;
use runtime::clock::until;
use runtime::services::Definition;
use runtime::store::{
    Addressing, Changes, DNS_RESOLVE_CACHE, DNS_UPSTREAM, DnsUpstream, HOST_DNS_CONFIG, HOSTNAME_STATUS,
    HostDnsConfig, MEMBER, RESOLVER_STATUS, Spec,
};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;

use crate::members;
use listen::{Client, Question};

/// The service's id.
pub(crate) const ID: &str = "dns-resolve-cache";
/// Where the node's own programs ask.
pub(crate) const NODE_ADDRESS: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 53);
const PORT: u16 = 53;
/// Questions that wait for the forwarder; more are dropped by the kernel, and asked again.
const QUEUE: usize = 256;
/// Between two attempts at a port.
const RETRY: Duration = Duration::from_secs(5);

/// What the config says of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Settings {
    is_enabled: bool,
    serves_pods: bool,
    knows_members: bool,
}

impl Settings {
    fn of(runtime: &Runtime) -> Self {
        let config = runtime.config();
        let settings = config.as_ref().and_then(|config| config.machine.features.as_ref()?.host_dns.as_ref());
        Self {
            is_enabled: settings.is_some_and(HostDns::runs),
            serves_pods: settings.is_some_and(HostDns::serves_pods),
            knows_members: settings.is_some_and(|settings| settings.resolve_member_names == Some(true)),
        }
    }

    fn addresses(self) -> Vec<Ipv4Addr> {
        let node = self.is_enabled.then_some(NODE_ADDRESS);
        let pods = self.serves_pods.then_some(HOST_DNS_ADDRESS);
        node.into_iter().chain(pods).collect()
    }
}

/// Has the service run while the config wants it.
pub(crate) async fn follow(runtime: Arc<Runtime>) {
    let mut config = runtime.config.subscribe();
    loop {
        config.mark_unchanged();
        if Settings::of(&runtime).is_enabled {
            runtime.services.define(definition(&runtime));
            runtime.services.start(ID);
        } else {
            publish(&runtime, Settings::default(), &[]);
            if runtime.services.record(ID).is_some() {
                runtime.services.stop(ID);
            }
        }
        if config.changed().await.is_err() {
            return;
        }
    }
}

/// The service.
pub(crate) fn definition(runtime: &Arc<Runtime>) -> Definition {
    let of_service = runtime.clone();
    Definition::internal(ID, move || Box::pin(run(of_service.clone(), PORT)))
}

/// The service, on this port.
async fn run(runtime: Arc<Runtime>, port: u16) -> Result<(), String> {
    let mut changes = runtime.store.follow(&[&RESOLVER_STATUS, &HOSTNAME_STATUS, &MEMBER]);
    let (questions, inbox) = mpsc::channel(QUEUE);
    let mut resolver = Resolver::new(runtime, questions, port);
    let served = resolver.serve(&mut changes, inbox).await;
    resolver.close(|_| true).await;
    publish(&resolver.runtime, Settings::default(), &[]);
    served
}

struct Resolver {
    runtime: Arc<Runtime>,
    port: u16,
    origin: Instant,
    forwarder: Forwarder<Client>,
    questions: mpsc::Sender<Question>,
    /// Sockets by address; they close with their tasks.
    listening: BTreeMap<Ipv4Addr, JoinSet<()>>,
    settings: Settings,
    exchanges: BTreeMap<u64, AbortHandle>,
    said: mpsc::Sender<exchange::Said>,
    /// Of the exchanges.
    answers: mpsc::Receiver<exchange::Said>,
    told: String,
    /// As it was published.
    health: Option<Vec<Health>>,
}

impl Drop for Resolver {
    fn drop(&mut self) {
        self.exchanges.values().for_each(AbortHandle::abort);
    }
}

impl Resolver {
    fn new(runtime: Arc<Runtime>, questions: mpsc::Sender<Question>, port: u16) -> Self {
        let (said, answers) = mpsc::channel(QUEUE);
        Self {
            runtime,
            port,
            origin: Instant::now(),
            forwarder: Forwarder::new(exchange::random),
            questions,
            listening: BTreeMap::new(),
            settings: Settings::default(),
            exchanges: BTreeMap::new(),
            said,
            answers,
            told: String::new(),
            health: None,
        }
    }

    async fn serve(
        &mut self,
        changes: &mut Changes,
        mut inbox: mpsc::Receiver<Question>,
    ) -> Result<(), String> {
        let mut config = self.runtime.config.subscribe();
        loop {
            config.mark_unchanged();
            let is_settled = self.settle().await;
            let retry = Instant::now() + RETRY;
            self.act(Vec::new());
            loop {
                let due = self.forwarder.deadline().map(|due| self.origin + due);
                let outputs = tokio::select! {
                    question = inbox.recv() => match question {
                        Some(question) => self.asked(question),
                        None => return Err("the queue of questions was closed".to_owned()),
                    },
                    said = self.answers.recv() => match said {
                        Some((exchange, Some(bytes))) => self.forwarder.answered(self.origin.elapsed(), exchange, &bytes),
                        Some((exchange, None)) => self.forwarder.failed(self.origin.elapsed(), exchange),
                        None => return Err("the queue of answers was closed".to_owned()),
                    },
                    () = until(due) => self.forwarder.tick(self.origin.elapsed()),
                    () = changes.next() => break,
                    _ = config.changed() => break,
                    () = tokio::time::sleep_until(retry), if !is_settled => break,
                };
                self.act(outputs);
            }
        }
    }

    /// Makes sockets and servers what config and network say. Answers whether all sockets are there.
    async fn settle(&mut self) -> bool {
        self.settings = Settings::of(&self.runtime);
        let wanted = self.settings.addresses();
        self.close(|address| !wanted.contains(&address)).await;
        let mut refusal = String::new();
        for address in wanted {
            if self.listening.contains_key(&address) {
                continue;
            }
            match listen::open((address, self.port).into(), &self.runtime, &self.questions) {
                Ok(tasks) => drop(self.listening.insert(address, tasks)),
                Err(error) => refusal = format!("{ID}: listen on {address}:{}: {error}", self.port),
            }
        }
        if refusal != self.told && !refusal.is_empty() {
            self.runtime.journal.warn(&refusal);
        }
        let is_settled = refusal.is_empty();
        self.told = refusal;
        self.forwarder.set_servers(&servers(&self.runtime));
        let members = if self.settings.knows_members { member_names(&self.runtime) } else { BTreeMap::new() };
        self.forwarder.set_hosts(members);
        let listening: Vec<Ipv4Addr> = self.listening.keys().copied().collect();
        let is_enabled = listening.contains(&NODE_ADDRESS);
        publish(&self.runtime, Settings { is_enabled, ..self.settings }, &listening);
        is_settled
    }

    /// Closes the sockets of addresses. What is published after this is true: nothing listens there.
    async fn close(&mut self, goes: impl Fn(Ipv4Addr) -> bool) {
        let gone = self.listening.extract_if(.., |address, _| goes(*address));
        let gone: Vec<_> = gone.map(|(_, tasks)| tasks).collect();
        for mut tasks in gone {
            tasks.shutdown().await;
        }
    }

    fn asked(&mut self, question: Question) -> Vec<Output<Client>> {
        let Question { client, message, transport } = question;
        self.forwarder.asked(self.origin.elapsed(), client, &message, transport)
    }

    fn act(&mut self, outputs: Vec<Output<Client>>) {
        for output in outputs {
            match output {
                Output::Reply(client, message) => client.reply(&message),
                Output::Ask { exchange, server, message, transport } => {
                    let work = exchange::run(exchange, server, message, transport, self.said.clone());
                    self.exchanges.insert(exchange, tokio::spawn(work).abort_handle());
                }
                Output::Cancel(exchange) => {
                    if let Some(task) = self.exchanges.remove(&exchange) {
                        task.abort();
                    }
                }
            }
        }
        self.exchanges.retain(|_, task| !task.is_finished());
        self.publish_upstreams();
    }

    fn publish_upstreams(&mut self) {
        let health = self.forwarder.health();
        if self.health.as_ref() == Some(&health) {
            return;
        }
        let one = |health: &Health| {
            let addr = health.server.to_string();
            let upstream = DnsUpstream { healthy: health.is_healthy, addr: addr.clone() };
            (addr, Spec::Addressing(Addressing::Upstream(upstream)))
        };
        let all = health.iter().map(one).collect();
        if let Err(error) = self.runtime.store.replace(DNS_UPSTREAM.writer, &DNS_UPSTREAM, all) {
            self.runtime.journal.warn(&format!("{ID}: {error}"));
        }
        self.health = Some(health);
    }
}

/// The servers of the network, but for the node's own addresses.
fn servers(runtime: &Runtime) -> Vec<SocketAddr> {
    let resource = runtime.store.get(&RESOLVER_STATUS, "resolvers");
    let Some(Spec::Addressing(Addressing::Resolvers(status))) = resource.as_ref().map(|it| &it.spec) else {
        return Vec::new();
    };
    let addresses = status.dns_servers.iter().filter_map(|text| text.parse::<IpAddr>().ok());
    addresses.filter(|address| !is_own(*address)).map(|address| (address, PORT).into()).collect()
}

/// Names and addresses of the cluster's nodes. A node chooses its name when it joins: one with a domain counts by its first part, and
/// whole where its domain is this node's own, so that no node answers for a name of another domain.
fn member_names(runtime: &Runtime) -> BTreeMap<String, Vec<IpAddr>> {
    let own = runtime.store.get(&HOSTNAME_STATUS, "hostname");
    let domain = match own.as_ref().map(|own| &own.spec) {
        Some(Spec::HostnameStatus(own)) => own.domainname.to_ascii_lowercase(),
        _ => String::new(),
    };
    let mut names = BTreeMap::new();
    for node in members::all(&runtime.store) {
        let name = node["hostname"].as_str().unwrap_or_default().to_ascii_lowercase();
        let addresses: Vec<IpAddr> = members::addresses(&node).collect();
        let (first, of) = name.split_once('.').unwrap_or((&name, ""));
        let whole = (!of.is_empty() && of == domain).then_some(name.as_str());
        for name in [Some(first), whole].into_iter().flatten().filter(|name| !name.is_empty()) {
            names.entry(name.to_owned()).or_insert_with(|| addresses.clone());
        }
    }
    names
}

/// Whether asking there would be asking this resolver.
pub(crate) fn is_own(address: IpAddr) -> bool {
    [NODE_ADDRESS, HOST_DNS_ADDRESS].map(IpAddr::from).contains(&address)
}

fn publish(runtime: &Runtime, settings: Settings, listening: &[Ipv4Addr]) {
    let serves_pods = settings.serves_pods && listening.contains(&HOST_DNS_ADDRESS);
    let config = HostDnsConfig {
        enabled: settings.is_enabled,
        listen_addresses: listening.iter().map(|address| format!("{address}:{PORT}")).collect(),
        service_host_dns_address: serves_pods.then(|| HOST_DNS_ADDRESS.to_string()),
        resolve_member_names: settings.is_enabled && settings.knows_members,
    };
    let running = |address: &String| {
        ["tcp", "udp"].map(|network| {
            let spec = Addressing::ResolveCache { status: "running" };
            (format!("{network}-{address}"), Spec::Addressing(spec))
        })
    };
    let caches = config.listen_addresses.iter().flat_map(running).collect();
    if let Err(error) = runtime.store.replace(DNS_RESOLVE_CACHE.writer, &DNS_RESOLVE_CACHE, caches) {
        runtime.journal.warn(&format!("{ID}: {error}"));
    }
    let spec = Spec::Addressing(Addressing::HostDns(config));
    if let Err(error) = runtime.store.put(HOST_DNS_CONFIG.writer, &HOST_DNS_CONFIG, "config", spec) {
        runtime.journal.warn(&format!("{ID}: {error}"));
    }
}

#[cfg(test)]
mod tests;
