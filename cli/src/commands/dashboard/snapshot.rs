//! What one look at a node finds.

use crate::session::Session;
use anyhow::{Context, Result};
use api::{
    client,
    proto::{
        cosi::resource::GetRequest,
        machine::{CpuStat, LogsRequest, MemInfo, NetDev, ProcessInfo, ServiceInfo, SystemStat},
        talos::resource::definitions::runtime::MachineStatusSpec,
    },
};
use prost::Message;
use tonic::{Response, Status};

/// Type, namespace and id of the resource that says how far the node is.
const STATUS: (&str, &str, &str) = ("MachineStatuses.runtime.talos.dev", "runtime", "machine");
/// Lines of a log that are fetched.
const LOG_LINES: i32 = 200;

/// A node at one moment. What it could not tell is empty.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Snapshot {
    pub(super) hostname: String,
    pub(super) version: String,
    pub(super) processor: String,
    /// Its stage, and what keeps it from being ready.
    pub(super) status: Option<MachineStatusSpec>,
    pub(super) load: [f64; 3],
    pub(super) memory: MemInfo,
    pub(super) stat: SystemStat,
    pub(super) services: Vec<ServiceInfo>,
    pub(super) devices: Vec<NetDev>,
    pub(super) processes: Vec<ProcessInfo>,
    pub(super) log: Vec<String>,
}

impl Snapshot {
    /// Asks everything at once. The service list must come; the rest may be missing on an older node.
    pub(super) async fn fetch(session: &Session, node: Option<&str>, service: &str) -> Result<Self> {
        let request = || client::to_node((), node);
        let of = |_: ()| session.client.machine();
        let (mut a, mut b, mut c, mut d, mut e) = (of(()), of(()), of(()), of(()), of(()));
        let (mut f, mut g, mut h, mut i) = (of(()), of(()), of(()), of(()));
        let (services, hostname, version, load, memory, stat, processors, network, processes, log, status) = tokio::join!(
            a.service_list(request()),
            b.hostname(request()),
            c.version(request()),
            d.load_avg(request()),
            e.memory(request()),
            f.system_stat(request()),
            g.cpu_info(request()),
            h.network_device_stats(request()),
            i.processes(request()),
            log(session, node, service),
            status(session, node),
        );
        let services = services.map_err(|s| session.error(&s))?.into_inner();
        let services = services.messages.into_iter().next().context("the answer is empty")?.services;
        let load = one(load, |r| r.messages).unwrap_or_default();
        let processors = one(processors, |r| r.messages).unwrap_or_default().cpu_info;
        Ok(Self {
            hostname: one(hostname, |r| r.messages).unwrap_or_default().hostname,
            version: one(version, |r| r.messages).and_then(|v| v.version).unwrap_or_default().tag,
            processor: processors
                .first()
                .map_or_else(String::new, |p| format!("{} × {}", processors.len(), p.model_name)),
            status,
            load: [load.load1, load.load5, load.load15],
            memory: one(memory, |r| r.messages).and_then(|m| m.meminfo).unwrap_or_default(),
            stat: one(stat, |r| r.messages).unwrap_or_default(),
            services,
            devices: one(network, |r| r.messages).unwrap_or_default().devices,
            processes: one(processes, |r| r.messages).unwrap_or_default().processes,
            log: log.unwrap_or_default(),
        })
    }

    /// Part of the processors' time between `earlier` and now that was work, 0 to 1.
    pub(super) fn busy_since(&self, earlier: &Self) -> f64 {
        let times = |s: &Self| {
            let t: CpuStat = s.stat.cpu_total.unwrap_or_default();
            let idle = t.idle + t.iowait;
            (idle, idle + t.user + t.nice + t.system + t.irq + t.soft_irq + t.steal)
        };
        let ((idle, all), (idle_before, all_before)) = (times(self), times(earlier));
        let passed = all - all_before;
        if passed > 0.0 { (1.0 - (idle - idle_before) / passed).clamp(0.0, 1.0) } else { 0.0 }
    }
}

fn one<R, T>(answer: Result<Response<R>, Status>, of: impl FnOnce(R) -> Vec<T>) -> Option<T> {
    of(answer.ok()?.into_inner()).into_iter().next()
}

/// In the binary form, which names numbers, not words.
async fn status(session: &Session, node: Option<&str>) -> Option<MachineStatusSpec> {
    let (kind, namespace, id) = STATUS;
    let request =
        GetRequest { namespace: namespace.into(), r#type: kind.into(), id: id.into(), options: None };
    let answer = session.client.state().get(client::to_node(request, node)).await.ok()?.into_inner();
    MachineStatusSpec::decode(answer.resource?.spec?.proto_spec.as_slice()).ok()
}

async fn log(session: &Session, node: Option<&str>, service: &str) -> Option<Vec<String>> {
    if service.is_empty() {
        return None;
    }
    let request = LogsRequest {
        namespace: "system".to_owned(),
        id: service.to_owned(),
        tail_lines: LOG_LINES,
        ..LogsRequest::default()
    };
    let mut stream = session.client.machine().logs(client::to_node(request, node)).await.ok()?.into_inner();
    let mut bytes = Vec::new();
    while let Ok(Some(data)) = stream.message().await {
        bytes.extend(data.bytes);
    }
    let text = String::from_utf8_lossy(&bytes);
    Some(text.lines().map(str::to_owned).collect())
}
