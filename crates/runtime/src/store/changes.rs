//! Waiting for changes of some types.

use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

use super::{Change, Definition};

/// A receiver of changes that looks at some types only.
#[derive(Debug)]
pub struct Changes {
    receiver: Receiver<Change>,
    kinds: Vec<&'static str>,
}

impl Changes {
    pub(super) fn new(receiver: Receiver<Change>, kinds: &[&'static Definition]) -> Self {
        Self { receiver, kinds: kinds.iter().map(|kind| kind.kind).collect() }
    }

    /// Waits until a resource of one of the types has changed. The caller reads them anew: after a lag some changes are lost,
    /// and this returns too. It may be dropped and called again; no change is missed between.
    pub async fn next(&mut self) {
        loop {
            match self.receiver.recv().await {
                Ok(change) if !self.kinds.contains(&change.resource.metadata.kind) => {}
                Ok(_) | Err(RecvError::Lagged(_)) => return,
                // The process ends.
                Err(RecvError::Closed) => std::future::pending().await,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::{HOSTNAME_STATUS, HostnameStatus, Spec, Store, TIME_SERVER_STATUS};
    use super::Changes;

    async fn is_woken(changes: &mut Changes) -> bool {
        tokio::time::timeout(Duration::ZERO, changes.next()).await.is_ok()
    }

    #[tokio::test]
    async fn only_the_types_that_are_followed_wake() {
        let store = Store::new();
        let mut changes = store.follow(&[&HOSTNAME_STATUS]);
        let servers = Spec::TimeServerStatus(Vec::new());
        store.put(TIME_SERVER_STATUS.writer, &TIME_SERVER_STATUS, "x", servers).unwrap();
        assert!(!is_woken(&mut changes).await);
        let name = HostnameStatus { hostname: "n".into(), domainname: String::new() };
        store.put(HOSTNAME_STATUS.writer, &HOSTNAME_STATUS, "hostname", Spec::HostnameStatus(name)).unwrap();
        assert!(is_woken(&mut changes).await);
        assert!(!is_woken(&mut changes).await);
    }
}
