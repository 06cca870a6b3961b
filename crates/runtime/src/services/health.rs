//! Health checks: what is asked, and the memory of the answer.
//!
//! Source: the periods of Talos (first after 1 s, every 5 s, time-out 0.5 s; we wait longer for what was healthy);
//! crates/api/proto/machine/machine.proto (ServiceHealth).

use std::time::Duration;

use api::proto::machine as proto;
use jiff::Timestamp;
use tokio::net::{TcpStream, UnixStream};

use super::Services;
use super::definition::Check;
use crate::clock;
use crate::store::{Spec, Store, TIME_STATUS};

/// Before the first check of a fresh process.
const FIRST_AFTER: Duration = Duration::from_secs(1);
/// Between checks.
const PERIOD: Duration = Duration::from_secs(5);
/// For one check of what was not healthy before it.
const TIME_OUT: Duration = Duration::from_millis(500);
/// For one check of what was. On a busy machine a service may be half a second late, and one that is up and down again by
/// turns would keep an upgrade from being kept.
const PATIENCE: Duration = PERIOD;

/// The last health check of a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Health {
    /// None has run yet, or there is none.
    pub unknown: bool,
    /// It passed.
    pub healthy: bool,
    /// Why not.
    pub last_message: String,
    /// When the result last changed.
    pub last_change: Option<Timestamp>,
}

impl Default for Health {
    fn default() -> Self {
        Self { unknown: true, healthy: false, last_message: String::new(), last_change: None }
    }
}

impl Health {
    pub(super) fn would_flip(&self, healthy: bool) -> bool {
        self.unknown || self.healthy != healthy
    }

    pub(super) fn set(&mut self, healthy: bool, message: &str) {
        if self.would_flip(healthy) {
            self.last_change = Some(clock::now());
        }
        self.unknown = false;
        self.healthy = healthy;
        self.last_message = if healthy { String::new() } else { message.to_owned() };
    }

    pub(super) fn to_proto(&self) -> proto::ServiceHealth {
        proto::ServiceHealth {
            unknown: self.unknown,
            healthy: self.healthy,
            last_message: self.last_message.clone(),
            last_change: Some(self.last_change.map_or_else(Default::default, clock::proto)),
        }
    }
}

/// Checks a service until it is told to stop (the task is aborted).
pub(super) async fn watch(services: Services, id: String, check: Check, first_now: bool) {
    if !first_now {
        tokio::time::sleep(FIRST_AFTER).await;
    }
    let mut ticks = tokio::time::interval(PERIOD);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut was_healthy = false;
    loop {
        ticks.tick().await;
        let asked = ask(&services.shared.dependencies.store, &check);
        let detail = match in_time(asked, was_healthy).await {
            Ok(answer) => answer.err(),
            Err(limit) => Some(format!("no answer from {check} within {} ms", limit.as_millis())),
        };
        was_healthy = detail.is_none();
        services.report_health(&id, was_healthy, &detail.unwrap_or_default());
    }
}

/// The answer, or how long it was waited for.
async fn in_time<T>(answer: impl Future<Output = T>, was_healthy: bool) -> Result<T, Duration> {
    let limit = if was_healthy { PATIENCE } else { TIME_OUT };
    tokio::time::timeout(limit, answer).await.map_err(|_| limit)
}

async fn ask(store: &Store, check: &Check) -> Result<(), String> {
    match check {
        Check::Tcp(address) => {
            TcpStream::connect(address).await.map(drop).map_err(|e| format!("dial tcp {address}: {e}"))
        }
        Check::Unix(path) => UnixStream::connect(path)
            .await
            .map(drop)
            .map_err(|e| format!("dial unix {}: {e}", path.display())),
        Check::Call { ask, .. } => ask().await,
        Check::Clock => match store.get(&TIME_STATUS, "node").map(|resource| resource.spec.clone()) {
            Some(Spec::TimeStatus(status)) if status.synced => Ok(()),
            _ => Err("the clock is not synchronised yet".to_owned()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_was_healthy_may_be_late_and_what_was_not_may_not() {
        let after = |millis| tokio::time::sleep(Duration::from_millis(millis));
        assert_eq!(in_time(after(4900), true).await, Ok(()));
        assert_eq!(in_time(after(5100), true).await, Err(PATIENCE));
        assert_eq!(in_time(after(400), false).await, Ok(()));
        assert_eq!(in_time(after(600), false).await, Err(TIME_OUT));
    }

    #[test]
    fn the_first_result_is_a_change_and_a_repeat_is_not() {
        let mut health = Health::default();
        assert!(health.would_flip(false));
        health.set(false, "refused");
        assert!(!health.would_flip(false) && health.would_flip(true));
        let since = health.last_change;
        health.set(false, "still refused");
        assert_eq!((health.last_change, health.last_message.as_str()), (since, "still refused"));
        health.set(true, "ignored");
        assert!(health.last_message.is_empty());
    }

    #[tokio::test]
    async fn sockets_answer_or_say_why_not() {
        let store = Store::new();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        assert_eq!(ask(&store, &Check::Tcp(address)).await, Ok(()));
        drop(listener);
        assert!(ask(&store, &Check::Tcp(address)).await.unwrap_err().starts_with("dial tcp 127.0.0.1:"));
        assert!(ask(&store, &Check::Unix("/nonexistent/socket".into())).await.is_err());
    }

    #[tokio::test]
    async fn the_clock_is_healthy_when_its_status_says_so() {
        let store = Store::new();
        assert!(ask(&store, &Check::Clock).await.is_err());
        let status = crate::store::TimeStatus { synced: true, epoch: 0, sync_disabled: false };
        store.put(TIME_STATUS.writer, &TIME_STATUS, "node", Spec::TimeStatus(status)).unwrap();
        assert_eq!(ask(&store, &Check::Clock).await, Ok(()));
    }
}
