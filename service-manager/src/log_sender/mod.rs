//! Sending logs to other machines: the services' to `machine.logging.destinations`, the kernel's to `KmsgLogConfig`
//! and to the parameter `logging.kernel`.
//!
//! | task | reads | writes | ends |
//! |---|---|---|---|
//! | [`run`] | the config | starts and ends the others, `KmsgLogConfigs` | with machined |
//! | [`source::services`], [`source::kernel`], one a receiver | the logs | the receiver's [`queue::Queue`] | with the receiver |
//! | [`link::send`], one a receiver | the queue | the socket, `LogDestinationStatuses` | with the receiver |
//!
//! Order: a source never waits for a receiver, so it never falls behind a log that is turned over.
//! Does not: keep lines on disk, or know what a receiver did with them: TCP and UDP do not say. After a restart of
//! machined what is kept of the logs is sent again: better twice than not at all.
//! Fails by: dropping the oldest line of a full queue. Each such line is counted in the resource, and the next line
//! that arrives is preceded by one that says how many are missing.
//! Source: docs/users/logs.md; the fields of a line are those of the public documents of v1.13.

mod destination;
mod endpoint;
mod line;
mod link;
mod queue;
mod source;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use config::Document;
use tokio::task::AbortHandle;

use destination::{Destination, Log};
use queue::Queue;
use runtime::Runtime;
use runtime::store::{KMSG_LOG_CONFIG, KmsgLog, LOG_DESTINATION_STATUS, MachineDocument, RuntimeSpec, Spec};

/// The tasks of a receiver; they end with it.
struct Running(Vec<AbortHandle>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.iter().for_each(AbortHandle::abort);
    }
}

/// Keeps one sender a receiver of the config.
pub(crate) async fn run(runtime: Arc<Runtime>) {
    let mut config = runtime.config.subscribe();
    let mut running: BTreeMap<Destination, Running> = BTreeMap::new();
    loop {
        config.mark_unchanged();
        let wanted = wanted(runtime.document().as_deref(), runtime.parameters.logging_kernel.as_deref());
        publish_kernel(&runtime, &wanted);
        running.retain(|destination, _| {
            let stays = wanted.contains(destination);
            if !stays && !wanted.iter().any(|other| other.id() == destination.id()) {
                forget(&runtime, destination);
            }
            stays
        });
        for destination in wanted {
            running.entry(destination).or_insert_with_key(|destination| start(&runtime, destination.clone()));
        }
        if config.changed().await.is_err() {
            return;
        }
    }
}

fn wanted(document: Option<&MachineDocument>, parameter: Option<&str>) -> BTreeSet<Destination> {
    let kernel = |endpoint: &str| Destination {
        log: Log::Kernel,
        endpoint: endpoint.to_owned(),
        tags: BTreeMap::new(),
    };
    let mut wanted: BTreeSet<Destination> = parameter.into_iter().map(kernel).collect();
    let Some(document) = document else { return wanted };
    for other in &document.documents {
        if let Document::KmsgLogConfig(receiver) = other {
            wanted.insert(kernel(&receiver.url));
        }
    }
    for receiver in document.config.machine.logging.iter().flat_map(|logging| &logging.destinations) {
        wanted.insert(Destination {
            log: Log::Services,
            endpoint: receiver.endpoint.clone(),
            tags: receiver.extra_tags.clone(),
        });
    }
    wanted
}

fn start(runtime: &Arc<Runtime>, destination: Destination) -> Running {
    let queue = Arc::new(Queue::default());
    let reading = match destination.log {
        Log::Services => {
            tokio::spawn(source::services(runtime.clone(), queue.clone(), destination.tags.clone()))
        }
        Log::Kernel => tokio::spawn(source::kernel(runtime.clone(), queue.clone(), destination.tags.clone())),
    };
    let sending = tokio::spawn(link::send(runtime.clone(), queue, destination));
    Running(vec![reading.abort_handle(), sending.abort_handle()])
}

fn forget(runtime: &Runtime, destination: &Destination) {
    let kind = &LOG_DESTINATION_STATUS;
    if let Err(error) = runtime.store.remove(kind.writer, kind, &destination.id()) {
        runtime.journal.warn(&error.to_string());
    }
}

fn publish_kernel(runtime: &Runtime, wanted: &BTreeSet<Destination>) {
    let kernel = wanted.iter().filter(|destination| destination.log == Log::Kernel);
    let destinations: Vec<String> = kernel.map(|destination| destination.endpoint.clone()).collect();
    let spec =
        (!destinations.is_empty()).then_some(Spec::Runtime(RuntimeSpec::KmsgLog(KmsgLog { destinations })));
    let wanted = spec.map(|spec| ("kmsg-log".to_owned(), spec)).into_iter().collect();
    if let Err(error) = runtime.store.replace(KMSG_LOG_CONFIG.writer, &KMSG_LOG_CONFIG, wanted) {
        runtime.journal.warn(&error.to_string());
    }
}
