//! One receiver: connect, hand over line by line, begin anew with growing pauses.

use std::sync::Arc;
use std::time::{Duration, Instant};

use runtime::store::{LOG_DESTINATION_STATUS, LogDestination, RuntimeSpec, Spec};

use super::destination::{Destination, Log};
use super::endpoint::Endpoint;
use super::line;
use super::queue::Queue;
use runtime::Runtime;

const FIRST_BACK_OFF: Duration = Duration::from_secs(1);
const LONGEST_BACK_OFF: Duration = Duration::from_secs(60);
/// Between two looks at the counters while nothing else changes.
const PUBLISH_PERIOD: Duration = Duration::from_secs(10);

struct Sender {
    runtime: Arc<Runtime>,
    queue: Arc<Queue>,
    destination: Destination,
    sent: u64,
    published: Option<Instant>,
    said: String,
}

/// Sends for as long as the receiver stands in the config.
pub(super) async fn send(runtime: Arc<Runtime>, queue: Arc<Queue>, destination: Destination) {
    let mut sender = Sender { runtime, queue, sent: 0, published: None, said: String::new(), destination };
    let endpoint = match Endpoint::parse(&sender.destination.endpoint) {
        Ok(endpoint) => endpoint,
        // The config is checked before; the kernel parameter is not.
        Err(error) => return sender.report_failure(&error),
    };
    let mut back_off = FIRST_BACK_OFF;
    loop {
        let before = sender.sent;
        let error = sender.session(&endpoint).await;
        if sender.sent > before {
            back_off = FIRST_BACK_OFF;
        }
        sender.report_failure(&error);
        tokio::time::sleep(back_off).await;
        back_off = (back_off * 2).min(LONGEST_BACK_OFF);
    }
}

impl Sender {
    /// One connection, until it fails; says why.
    async fn session(&mut self, endpoint: &Endpoint) -> String {
        let mut connection = match endpoint.connect().await {
            Ok(connection) => connection,
            Err(error) => return error,
        };
        self.publish("sending", "");
        loop {
            let oldest = match tokio::time::timeout(PUBLISH_PERIOD, self.queue.oldest()).await {
                Ok(oldest) => oldest,
                Err(_) => {
                    self.publish_at_times();
                    continue;
                }
            };
            let lost = self.queue.untold();
            if lost > 0 {
                let service = match self.destination.log {
                    Log::Services => "machined",
                    Log::Kernel => "kernel",
                };
                let told = line::of_loss(service, lost, &self.destination.tags);
                if let Err(error) = connection.write(&told).await {
                    return format!("send: {error}");
                }
                self.queue.told(lost);
                self.runtime
                    .journal
                    .warn(&format!("logs to {}: {lost} lines were dropped", self.destination.endpoint));
            }
            if let Err(error) = connection.write(&oldest).await {
                return format!("send: {error}");
            }
            self.queue.done(&oldest);
            self.sent += 1;
            if !self.said.is_empty() {
                self.said.clear();
                self.runtime.journal.say(&format!("logs to {}: sending again", self.destination.endpoint));
            }
            self.publish_at_times();
        }
    }

    /// Logs once for each reason what keeps it from sending.
    fn report_failure(&mut self, error: &str) {
        if self.said != error {
            self.runtime
                .journal
                .warn(&format!("logs to {}: {error}; trying again", self.destination.endpoint));
            self.said = error.to_owned();
        }
        self.publish("waiting", error);
    }

    fn publish_at_times(&mut self) {
        if self.published.is_none_or(|last| last.elapsed() >= PUBLISH_PERIOD) {
            self.publish("sending", "");
        }
    }

    fn publish(&mut self, state: &'static str, error: &str) {
        self.published = Some(Instant::now());
        let status = LogDestination {
            endpoint: self.destination.endpoint.clone(),
            log: self.destination.log.name(),
            state,
            sent: self.sent,
            dropped: self.queue.dropped(),
            error: error.to_owned(),
            extra_tags: self.destination.tags.clone(),
        };
        let (kind, spec) = (&LOG_DESTINATION_STATUS, Spec::Runtime(RuntimeSpec::LogDestination(status)));
        if let Err(error) = self.runtime.store.put(kind.writer, kind, &self.destination.id(), spec) {
            self.runtime.journal.warn(&error.to_string());
        }
    }
}
