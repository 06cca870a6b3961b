//! Services that the config has the node look for: `TCPProbeConfig` and `HTTPProbeConfig`.
//!
//! | task | reads | writes | ends |
//! |---|---|---|---|
//! | [`follow`] | the config | `ProbeSpecs` | with machined |
//! | [`look`], one a probe | a service | its `ProbeStatuses` | when the config changes it |
//!
//! Does not: act on what is found: `NetworkStatuses` tells it.
//! Fails by: a status with the reason. A reason that is new is in the log, once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use config::documents::Document;
use config::schema::GoDuration;
use runtime::store::{
    HttpProbe, NetworkSpec, PROBE_SPEC, PROBE_STATUS, ProbeSpec, ProbeStatus, Spec, TcpProbe,
};
use tokio::net::TcpStream;
use tokio::task::AbortHandle;

use oci::registry::Settings;
use runtime::Runtime;

/// How a request leaves the node: by its proxies, and with its authorities.
pub(crate) type Ways = Arc<dyn Fn() -> Result<Settings, String> + Send + Sync>;

const INTERVAL: Duration = Duration::from_secs(1);
/// More often than this is no look but a load.
const SHORTEST: Duration = Duration::from_millis(100);
const TIMEOUT: Duration = Duration::from_secs(10);

/// What is looked for.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Probe {
    target: Target,
    interval: Duration,
    timeout: Duration,
    /// Failures in a row that do not count.
    threshold: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Target {
    /// Host and port.
    Tcp(String),
    Http(String),
}

impl Probe {
    fn new(
        target: Target,
        interval: Option<GoDuration>,
        timeout: Option<GoDuration>,
        threshold: u32,
    ) -> Self {
        let given = |time: Option<GoDuration>| time.map(|time| time.0).filter(|time| !time.is_zero());
        let interval = given(interval).unwrap_or(INTERVAL).max(SHORTEST);
        Self { target, interval, timeout: given(timeout).unwrap_or(TIMEOUT), threshold }
    }

    fn spec(&self) -> Spec {
        let timeout = GoDuration(self.timeout).to_string();
        let (tcp, http) = match &self.target {
            Target::Tcp(endpoint) => (Some(TcpProbe { endpoint: endpoint.clone(), timeout }), None),
            Target::Http(url) => (None, Some(HttpProbe { url: url.clone(), timeout })),
        };
        Spec::Network(Box::new(NetworkSpec::Probe(ProbeSpec {
            interval: GoDuration(self.interval).to_string(),
            failure_threshold: self.threshold,
            tcp,
            http,
            layer: "configuration",
        })))
    }
}

/// Probes of a config by name.
fn of_documents(documents: &[Document]) -> BTreeMap<String, Probe> {
    let one = |document: &Document| match document {
        Document::TCPProbeConfig(d) => {
            let target = Target::Tcp(d.endpoint.clone());
            Some((d.name.clone(), Probe::new(target, d.interval, d.timeout, d.failure_threshold)))
        }
        Document::HTTPProbeConfig(d) => {
            let target = Target::Http(d.url.clone());
            Some((d.name.clone(), Probe::new(target, d.interval, d.timeout, d.failure_threshold)))
        }
        _ => None,
    };
    documents.iter().filter_map(one).collect()
}

/// Has every probe of the config looked for.
pub(crate) async fn follow(runtime: Arc<Runtime>, ways: Ways) {
    let mut config = runtime.config.subscribe();
    let mut running: BTreeMap<String, (Probe, AbortHandle)> = BTreeMap::new();
    loop {
        config.mark_unchanged();
        let document = runtime.document();
        let documents = document.as_deref().map(|document| document.documents.as_slice()).unwrap_or_default();
        let wanted = of_documents(documents);
        running.retain(|name, (probe, task)| {
            let stays = wanted.get(name) == Some(probe);
            if !stays {
                task.abort();
            }
            stays
        });
        let specs = wanted.iter().map(|(name, probe)| (name.clone(), probe.spec())).collect();
        tell(&runtime, runtime.store.replace(PROBE_SPEC.writer, &PROBE_SPEC, specs));
        for found in runtime.store.list(&PROBE_STATUS) {
            let id = &found.metadata.id;
            if !running.contains_key(id) {
                tell(&runtime, runtime.store.remove(PROBE_STATUS.writer, &PROBE_STATUS, id).map(drop));
            }
        }
        for (name, probe) in wanted {
            let task = || {
                tokio::spawn(look(runtime.clone(), ways.clone(), name.clone(), probe.clone())).abort_handle()
            };
            running.entry(name.clone()).or_insert_with(|| (probe.clone(), task()));
        }
        if config.changed().await.is_err() {
            return;
        }
    }
}

fn tell(runtime: &Runtime, result: Result<(), runtime::store::StoreError>) {
    if let Err(error) = result {
        runtime.journal.warn(&format!("probes: {error}"));
    }
}

/// Looks for one service, again and again.
async fn look(runtime: Arc<Runtime>, ways: Ways, name: String, probe: Probe) {
    let (mut failures, mut said) = (0_u32, None);
    loop {
        let found = tokio::time::timeout(probe.timeout, reach(&ways, &probe.target)).await;
        let late = |_| Err(format!("no answer within {} (deadline probe)", GoDuration(probe.timeout)));
        let error = found.unwrap_or_else(late).err();
        failures = if error.is_some() { failures.saturating_add(1) } else { 0 };
        if error.is_none() || failures > probe.threshold {
            if said.as_ref() != Some(&error) {
                let text = error.as_deref().unwrap_or("it answers");
                runtime.journal.say(&format!("probe {name}: {text}"));
            }
            let status =
                ProbeStatus { success: error.is_none(), last_error: error.clone().unwrap_or_default() };
            let spec = Spec::Network(Box::new(NetworkSpec::ProbeStatus(status)));
            tell(&runtime, runtime.store.put(PROBE_STATUS.writer, &PROBE_STATUS, &name, spec).map(drop));
            said = Some(error);
        }
        tokio::time::sleep(probe.interval).await;
    }
}

async fn reach(ways: &Ways, target: &Target) -> Result<(), String> {
    match target {
        Target::Tcp(endpoint) => TcpStream::connect(endpoint.as_str())
            .await
            .map(drop)
            .map_err(|error| format!("connect to {endpoint}: {error}")),
        Target::Http(url) => oci::answers(ways()?, url).await,
    }
}

#[cfg(test)]
mod tests {
    use runtime::store::{MACHINE_CONFIG, MachineDocument};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    fn configure(runtime: &Runtime, documents: &str) {
        let text = format!("version: v1alpha1\nmachine:\n  type: worker\n  token: a.b\n{documents}");
        let loaded = config::load(text.as_bytes()).unwrap_or_else(|error| panic!("{error}"));
        let document = MachineDocument::new(zeroize::Zeroizing::new(text), loaded.config, loaded.documents);
        let config = document.config.clone();
        let spec = Spec::MachineConfig(Arc::new(document));
        runtime.store.put(MACHINE_CONFIG.writer, &MACHINE_CONFIG, "v1alpha1", spec).unwrap();
        runtime.config.send_replace(Some(config));
    }

    async fn until(runtime: &Runtime, id: &str, wanted: &str) {
        let mut changes = runtime.store.changes();
        let status = || {
            let found = runtime.store.get(&PROBE_STATUS, id);
            found.map_or_else(|| "none".to_owned(), |found| found.spec.yaml().unwrap())
        };
        let reached = tokio::time::timeout(Duration::from_secs(30), async {
            while !status().contains(wanted) {
                let _ = changes.recv().await;
            }
        });
        assert!(reached.await.is_ok(), "{wanted} is not in: {}", status());
    }

    #[tokio::test]
    async fn services_are_found_missed_and_forgotten() {
        let directory = tempfile::tempdir().unwrap();
        let runtime = Runtime::detached(directory.path().to_owned());
        let plain = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let web = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (endpoint, url) = (plain.local_addr().unwrap(), format!("http://{}/", web.local_addr().unwrap()));
        let serving = tokio::spawn(async move {
            loop {
                let (mut stream, _) = web.accept().await.unwrap();
                let mut request = [0; 4096];
                let _ = stream.read(&mut request).await;
                let _ = stream.write_all(b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n").await;
            }
        });
        let of = |kind: &str, target: &str| {
            format!(
                "---\napiVersion: v1alpha1\nkind: {kind}\nname: {}\ninterval: 100ms\ntimeout: 20s\nfailureThreshold: 1\n{target}\n",
                &kind[..4]
            )
        };
        let both = of("TCPProbeConfig", &format!("endpoint: {endpoint}"))
            + &of("HTTPProbeConfig", &format!("url: {url}"));
        configure(&runtime, &both);
        let following = tokio::spawn(follow(runtime.clone(), Arc::new(|| Ok(Settings::default()))));
        until(&runtime, "TCPP", "success: true").await;
        until(&runtime, "HTTP", "127.0.0.1 answered 503").await;
        let spec = runtime.store.get(&PROBE_SPEC, "TCPP").unwrap().spec.yaml().unwrap();
        assert!(spec.contains("interval: 100ms\n") && spec.contains("failureThreshold: 1\n"), "{spec}");
        drop(plain);
        until(&runtime, "TCPP", &format!("connect to {endpoint}: ")).await;
        configure(&runtime, "");
        until(&runtime, "TCPP", "none").await;
        assert!(runtime.store.list(&PROBE_SPEC).is_empty());
        following.abort();
        serving.abort();
    }

    #[test]
    fn what_is_not_said_has_a_default_and_no_probe_is_a_load() {
        let probe = |interval, timeout| {
            let time = |milliseconds| GoDuration(Duration::from_millis(milliseconds));
            Probe::new(Target::Tcp("a:1".into()), Some(time(interval)), Some(time(timeout)), 0)
        };
        assert_eq!((probe(0, 0).interval, probe(0, 0).timeout), (INTERVAL, TIMEOUT));
        assert_eq!(probe(1, 5).interval, SHORTEST);
        assert_eq!(Probe::new(Target::Tcp("a:1".into()), None, None, 2).interval, INTERVAL);
    }
}
