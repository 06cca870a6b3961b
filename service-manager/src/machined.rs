//! machined: from init's first word to a running node.
//!
//! Order: the line to init before anything else, since it brings what an earlier machined left; the checkpoint before
//! the services, since it says which of them run; the services are taken over before any sequence starts.

use runtime::sequencer::{self, Start};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;

use config::cmdline::CommandLine;
use handoff::{Action, BootReport, Start as InitStart};
use runtime::Places;
use runtime::checkpoint::{Keep, Memory};
use runtime::init_link::{self, InitLink, InitRequest, Replay};
use runtime::services::pidfd_name;
use runtime::store::{INIT_STATUS, InitStatus, ROOT_LAYER, RootLayer, RuntimeSpec, Spec, VERSION, Version};
use tokio::sync::mpsc;

use crate::node::Node;
use crate::order::Order;
use crate::tasks::{self, Stage};
use crate::{configuration, container, flight_recorder, identity, kubernetes, long_lived, services, upgrade};

const LOG_FOLDER: &str = "/run/log";
const CGROUPS: &str = "/sys/fs/cgroup";
const EFI_VARIABLES: &str = "/sys/firmware/efi/efivars";

/// Runs machined.
pub async fn run() -> Result<(), String> {
    let socket = sys::process::inherited(handoff::MACHINED_FD).map_err(|e| {
        format!(
            "take the line to init (descriptor {}): {e}; machined is started by init",
            handoff::MACHINED_FD
        )
    })?;
    let (link, mut replay) = init_link::connect(socket).map_err(|e| e.to_string())?;
    let node = make_node(link, &mut replay);
    kubernetes::join(&node);
    log_start(&node, &replay.start);
    publish_report(&node, &replay.start);
    flight_recorder::start(&node.runtime, &node.flight_recorder);
    node.runtime.start_task(
        "api-certificate",
        "issues the node API's certificate",
        identity::issue(node.identity.clone()),
    );
    node.runtime.start_task(
        "certificates",
        "shows all certificates",
        identity::certificates::follow(node.identity.clone()),
    );
    let told = listen(&node);
    take_over(&node, &mut replay);
    node.runtime.start_task(
        "upgrade-trial",
        "judges a system on trial",
        upgrade::trial::watch(node.upgrades.clone()),
    );
    handle_requests(node, told).await;
    Err("init closed the line".to_owned())
}

fn make_node(link: InitLink, replay: &mut Replay) -> Arc<Node> {
    let report = replay.start.report.clone();
    let is_container = sys::process::is_in_container();
    // In a container command line and kernel log are the host's, its runtime gave the name, and control groups may be of version 1.
    let line = if is_container {
        format!("talos.platform={}", container::PLATFORM)
    } else {
        std::fs::read_to_string("/proc/cmdline").unwrap_or_default()
    };
    let mut parameters = CommandLine::parse(&line).node();
    if is_container {
        parameters.hostname = Some(rustix::system::uname().nodename().to_string_lossy().into_owned());
    }
    let kmsg = if is_container {
        std::io::stderr().as_fd().try_clone_to_owned().ok()
    } else {
        sys::console::open_kmsg().ok()
    };
    let places = Places {
        root: PathBuf::from("/"),
        logs: PathBuf::from(LOG_FOLDER),
        kmsg,
        efi_variables: PathBuf::from(EFI_VARIABLES),
        cgroups: (!is_container || tasks::has_cgroup2()).then(|| PathBuf::from(CGROUPS)),
    };
    let runtime = Arc::new(runtime::Runtime::new(places, link, report, parameters, &mut replay.stored));
    Node::new(runtime)
}

fn log_start(node: &Node, start: &InitStart) {
    match start.restarts {
        0 => node
            .runtime
            .journal
            .say(&format!("version {} on kernel {}", start.report.version, start.report.kernel_release)),
        count => {
            let status =
                start.previous_status.map_or_else(|| "unknown".to_owned(), |status| status.to_string());
            node.runtime
                .journal
                .warn(&format!("started again (restart {count}); wait status of the previous one: {status}"));
        }
    }
}

fn publish_report(node: &Node, start: &InitStart) {
    let BootReport { layers, warnings, .. } = &node.runtime.boot;
    for (index, layer) in layers.iter().enumerate() {
        let spec = Spec::RootLayer(RootLayer {
            index,
            name: layer.name.clone(),
            version: layer.version.clone(),
            root_hash: layer.root_hash.clone(),
            device: layer.device.clone(),
        });
        publish(node, &ROOT_LAYER, &layer.name, spec);
    }
    let spec = Spec::InitStatus(InitStatus {
        restarts: start.restarts,
        previous_status: start.previous_status,
        memory_in_use_bytes: start.init_memory.in_use_bytes,
        allocations: start.init_memory.allocations,
        warnings: warnings.clone(),
    });
    publish(node, &INIT_STATUS, "init", spec);
    let version =
        RuntimeSpec::Version(Version { name: "Billet", version: api::version::tag(node.runtime.version()) });
    publish(node, &VERSION, "version", Spec::Runtime(version));
    if start.restarts == 0 {
        for warning in warnings {
            node.runtime.journal.warn(&format!("from init: {warning}"));
        }
    }
}

fn publish(node: &Node, kind: &'static runtime::store::Definition, id: &str, spec: Spec) {
    if let Err(error) = node.runtime.store.put(kind.writer, kind, id, spec) {
        node.runtime.journal.warn(&error.to_string());
    }
}

fn listen(node: &Arc<Node>) -> mpsc::UnboundedReceiver<Result<InitRequest, String>> {
    let (tell, told) = mpsc::unbounded_channel();
    let (link, journal) = (node.runtime.init.clone(), node.runtime.journal.clone());
    node.runtime.start_task("init-link", "hears init", async move {
        if let Err(error) = link.listen(tell).await {
            journal.warn(&format!("the line to init broke: {error}"));
        }
    });
    let (link, journal) = (node.runtime.init.clone(), node.runtime.journal.clone());
    node.runtime.start_task("heartbeat", "tells init that machined lives", async move {
        if let Err(error) = link.beat().await {
            journal.warn(&format!("heartbeat: {error}"));
        }
    });
    told
}

/// Goes on where an earlier machined stopped, or begins.
fn take_over(node: &Arc<Node>, replay: &mut Replay) {
    let memory = node.runtime.checkpoint.memory();
    if let Some(text) = replay.stored.get(Keep::CONFIG).and_then(Keep::read)
        && !tasks::restore_config(node, text)
    {
        node.runtime.journal.warn("the kept machine config cannot be read any more");
    }
    if let Some(text) = replay.stored.get(Keep::RETURN).and_then(Keep::read) {
        configuration::pending::resume(&node.configuration, &text);
    }
    let (sequence, phase, actor_id) = match &memory.sequence {
        Some(saved) => {
            (Order::by_name(&saved.name).unwrap_or(Order::Initialize), saved.phase, saved.actor_id.clone())
        }
        None if memory.done.iter().any(|name| name == "boot") => {
            return resume_services(node, &memory, replay);
        }
        None if memory.done.iter().any(|name| name == "initialize") => {
            let next = sequencer::next(&**node, Order::Initialize, false);
            (next.unwrap_or(Order::Initialize), 0, String::new())
        }
        None => (Order::Initialize, 0, String::new()),
    };
    if !memory.services.is_empty() {
        resume_services(node, &memory, replay);
    }
    if memory.sequence.is_some() {
        node.runtime.journal.warn(&format!(
            "{} sequence: cut off in phase {}; going on there",
            sequence.name(),
            phase + 1
        ));
    } else if memory.done.is_empty() {
        tasks::publish_stage(node, "", &Stage::Booting);
    }
    if let Err(locked) = sequencer::start(node, sequence, Start { actor_id, phase, force: false }) {
        node.runtime.journal.warn(&locked.to_string());
    }
}

/// Defines again what was defined, and takes over what runs.
fn resume_services(node: &Arc<Node>, memory: &Memory, replay: &mut Replay) {
    long_lived::start(node);
    let known: Vec<&str> = memory.services.iter().map(|service| service.id.as_str()).collect();
    for error in services::define_again(node, &known) {
        node.runtime.journal.warn(&error.to_string());
    }
    for saved in &memory.services {
        let pidfd = replay.stored.remove(&pidfd_name(&saved.id));
        node.runtime.services.adopt(saved, pidfd);
    }
    if memory.done.iter().any(|name| name == "boot") && memory.sequence.is_none() {
        tasks::publish_stage(node, "", &Stage::Running(Vec::new()));
        node.runtime.timeline.close();
    }
}

/// Follows init's word for as long as there is any.
async fn handle_requests(node: Arc<Node>, mut told: mpsc::UnboundedReceiver<Result<InitRequest, String>>) {
    while let Some(news) = told.recv().await {
        match news {
            Ok(InitRequest::Requested(action)) => {
                node.runtime.journal.say(&format!("init asks for {action:?}"));
                let sequence = match action {
                    Action::Reboot | Action::Kexec => Order::Reboot,
                    Action::PowerOff | Action::Halt => Order::Shutdown,
                };
                let start = Start { force: true, ..Start::default() };
                if let Err(locked) = sequencer::start(&node, sequence, start) {
                    node.runtime.journal.warn(&locked.to_string());
                }
            }
            Err(text) => node.runtime.journal.warn(&text),
        }
    }
}
