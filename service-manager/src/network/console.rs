//! What the console says when the network is not there.
//!
//! | task | reads | writes | ends |
//! |---|---|---|---|
//! | [`follow`] | `NetworkStatuses` | lines on the console | with the service |
//!
//! Order: a start is given time first. What is said is said again only when it has changed.

use std::sync::Arc;
use std::time::Duration;

use runtime::Runtime;
use runtime::store::{Addressing, NETWORK_STATUS, Spec};
use tokio::time::Instant;

/// A network that is there within this time needs no words.
const PATIENCE: Duration = Duration::from_secs(15);

/// Says what is missing for as long as it is polled.
pub(super) async fn follow(runtime: Arc<Runtime>) {
    let mut changes = runtime.store.follow(&[&NETWORK_STATUS]);
    let mut console = Console::new(Instant::now());
    loop {
        let reasons = reasons(&runtime);
        for line in console.lines(&reasons, Instant::now()) {
            runtime.journal.warn(&line);
        }
        tokio::select! {
            () = runtime::clock::until(console.due) => {}
            () = changes.next() => {}
        }
    }
}

fn reasons(runtime: &Runtime) -> Vec<String> {
    match runtime.store.get(&NETWORK_STATUS, "status").map(|resource| resource.spec.clone()) {
        Some(Spec::Addressing(Addressing::Status(status))) => status.reasons,
        _ => Vec::new(),
    }
}

/// What was said, and when the next lines may be.
struct Console {
    said: Vec<String>,
    /// When reasons that differ from these may be said.
    due: Option<Instant>,
    quiet_until: Instant,
}

impl Console {
    fn new(now: Instant) -> Self {
        Self { said: Vec::new(), due: None, quiet_until: now + PATIENCE }
    }

    /// The lines to say now. Reasons that stand for a moment only are never said.
    fn lines(&mut self, reasons: &[String], now: Instant) -> Vec<String> {
        if reasons == self.said {
            self.due = None;
            return Vec::new();
        }
        if reasons.is_empty() {
            self.due = None;
            self.said.clear();
            self.quiet_until = now + PATIENCE;
            return vec!["network: there is an address and a gateway that answers".to_owned()];
        }
        let due = *self.due.get_or_insert(self.quiet_until.max(now));
        if now < due {
            return Vec::new();
        }
        self.said = reasons.to_vec();
        self.due = None;
        self.quiet_until = now + PATIENCE;
        reasons.iter().map(|reason| format!("network: {reason}")).collect()
    }
}

#[cfg(test)]
mod tests {
    use runtime::store::NetworkStatus;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_node_without_a_network_says_why_after_its_start() {
        let directory = tempfile::tempdir().unwrap();
        let runtime = Runtime::detached(directory.path().to_owned());
        let log = || std::fs::read_to_string(directory.path().join("log/machined.log")).unwrap_or_default();
        let put = |reasons: &[&str]| {
            let reasons = reasons.iter().map(|reason| (*reason).to_owned()).collect();
            let status = NetworkStatus { reasons, ..NetworkStatus::default() };
            let spec = Spec::Addressing(Addressing::Status(status));
            runtime.store.put(NETWORK_STATUS.writer, &NETWORK_STATUS, "status", spec).unwrap();
        };
        let _follow = crate::network::Owned(tokio::spawn(follow(runtime.clone())).abort_handle());
        tokio::time::sleep(Duration::from_secs(1)).await;
        put(&["eth0: no carrier"]);
        tokio::time::sleep(PATIENCE - Duration::from_secs(2)).await;
        assert!(!log().contains("network: "), "{}", log());
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert!(log().contains(" network: eth0: no carrier\n"), "{}", log());
        put(&[]);
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(log().contains(" network: there is an address"), "{}", log());
    }

    #[test]
    fn what_stays_away_is_said_once_and_again_when_it_changes() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let [none, carrier, address] =
            [vec![], vec!["eth0: no carrier".to_owned()], vec!["eth0: no address".to_owned()]];
        let mut console = Console::new(begin);
        assert!(console.lines(&carrier, at(1)).is_empty(), "a start has time");
        assert_eq!(console.due, Some(at(15)));
        assert_eq!(console.lines(&carrier, at(15)), ["network: eth0: no carrier"]);
        assert!(console.lines(&carrier, at(40)).is_empty(), "it was said");
        assert_eq!(console.lines(&address, at(41)), ["network: eth0: no address"]);
        assert!(console.lines(&carrier, at(42)).is_empty(), "not more often than each 15 s");
        assert_eq!(console.lines(&carrier, at(56)), ["network: eth0: no carrier"]);
        assert_eq!(console.lines(&none, at(60)).len(), 1, "that it is well again");
        assert!(console.lines(&none, at(61)).is_empty());
        assert!(console.lines(&carrier, at(62)).is_empty(), "a moment");
        assert!(console.lines(&none, at(63)).is_empty(), "nothing was said of it");
    }
}
