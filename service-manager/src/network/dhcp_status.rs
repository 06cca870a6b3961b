//! What a client of DHCP hears from servers, as a resource of its link.
//!
//! Owns: the `DhcpStatuses` of one client, which goes with it.

use std::sync::Arc;

use runtime::store::{DHCP_STATUS, Spec};
use runtime::{Runtime, clock};
use serde::{Deserialize, Serialize};

/// How far a client is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum State {
    /// It asks, and no server has granted anything yet.
    #[default]
    Asking,
    /// The link has what a server granted.
    Granted,
}

/// What is shown.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Status {
    /// Name of the link.
    pub(crate) link: String,
    /// How far the client is.
    pub(crate) state: State,
    /// RFC 3339: since when it is so far.
    pub(crate) since: String,
    /// Requests since then that no server has answered with a lease.
    pub(crate) requests: u32,
    /// `10.0.0.5/24 from 10.0.0.1`, or why the last lease is over.
    pub(crate) message: String,
}

/// The resource of one client.
pub(super) struct DhcpStatus {
    runtime: Arc<Runtime>,
    id: String,
    shown: Status,
}

impl DhcpStatus {
    /// A client that begins to ask. `protocol`: `dhcp4` or `dhcp6`.
    pub(super) fn new(runtime: &Arc<Runtime>, link: &str, protocol: &str) -> Self {
        let shown = Status { link: link.to_owned(), since: now(), ..Status::default() };
        let status = Self { runtime: runtime.clone(), id: format!("{link}/{protocol}"), shown };
        status.publish();
        status
    }

    /// The link has a carrier again: what was asked before counts no more.
    pub(super) fn begin(&mut self) {
        if self.shown.state == State::Asking {
            (self.shown.since, self.shown.requests) = (now(), 0);
            self.publish();
        }
    }

    /// A request was sent.
    pub(super) fn requested(&mut self) {
        if self.shown.state == State::Asking {
            self.shown.requests = self.shown.requests.saturating_add(1);
            self.publish();
        }
    }

    /// A server granted this.
    pub(super) fn granted(&mut self, message: String) {
        if self.shown.state != State::Granted || self.shown.message != message {
            self.change(State::Granted, message);
        }
    }

    /// The link has no lease any more, or the one of before was refused.
    pub(super) fn lost(&mut self, message: String) {
        self.change(State::Asking, message);
    }

    fn change(&mut self, state: State, message: String) {
        let link = std::mem::take(&mut self.shown.link);
        self.shown = Status { link, state, since: now(), requests: 0, message };
        self.publish();
    }

    fn publish(&self) {
        let put = serde_json::to_value(&self.shown).map_err(|error| error.to_string()).and_then(|fields| {
            let put =
                self.runtime.store.put(DHCP_STATUS.writer, &DHCP_STATUS, &self.id, Spec::Fields(fields));
            put.map_err(|error| error.to_string())
        });
        if let Err(error) = put {
            self.runtime.journal.warn(&format!("networkd: show what DHCP answered on {}: {error}", self.id));
        }
    }
}

impl Drop for DhcpStatus {
    fn drop(&mut self) {
        if let Err(error) = self.runtime.store.remove(DHCP_STATUS.writer, &DHCP_STATUS, &self.id) {
            self.runtime.journal.warn(&format!("networkd: {error}"));
        }
    }
}

fn now() -> String {
    clock::text(clock::now())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_shows_how_far_it_is_and_goes_with_its_link() {
        let directory = tempfile::tempdir().unwrap();
        let runtime = Runtime::detached(directory.path().to_owned());
        let shown = || {
            let resource = runtime.store.get(&DHCP_STATUS, "eth0/dhcp4")?;
            let Spec::Fields(fields) = &resource.spec else { panic!("{resource:?}") };
            Some(serde_json::from_value::<Status>(fields.clone()).unwrap())
        };
        let mut status = DhcpStatus::new(&runtime, "eth0", "dhcp4");
        status.requested();
        status.requested();
        let asking = shown().unwrap();
        assert_eq!((asking.state, asking.requests, asking.link.as_str()), (State::Asking, 2, "eth0"));
        status.begin();
        assert_eq!(shown().unwrap().requests, 0, "a cable that was out");
        status.granted("10.0.0.5/24 from 10.0.0.1".into());
        status.requested();
        status.begin();
        let granted = shown().unwrap();
        assert_eq!((granted.state, granted.requests), (State::Granted, 0), "renewals are no requests");
        assert_eq!(granted.message, "10.0.0.5/24 from 10.0.0.1");
        status.lost("lease of 10.0.0.5 is over".into());
        let lost = shown().unwrap();
        assert_eq!((lost.state, lost.message.as_str()), (State::Asking, "lease of 10.0.0.5 is over"));
        drop(status);
        assert!(shown().is_none());
    }
}
