//! Probes: a task for each upstream that connects to it every few seconds, for as long as it is in the list.
//!
//! Owns: the pace. Does not: judge: the pool does.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use crate::dial;
use crate::pool::Id;
use crate::shared::Shared;
use crate::upstream::{Target, Upstream};

/// The tasks, which end when this is dropped.
#[derive(Debug)]
pub(crate) struct Probes {
    shared: Arc<Shared>,
    tasks: BTreeMap<Id, JoinSet<()>>,
}

impl Probes {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, tasks: BTreeMap::new() }
    }

    /// Takes another list: stops the probes of those that left, starts those of new ones.
    pub(crate) fn follow(&mut self, upstreams: &[Upstream]) {
        let mut pool = self.shared.pool();
        let added = pool.replace(upstreams);
        self.tasks.retain(|id, _| pool.contains(*id));
        for (id, target) in added {
            self.tasks.entry(id).or_default().spawn(probe(id, target, self.shared.clone()));
        }
    }
}

async fn probe(id: Id, target: Target, shared: Arc<Shared>) {
    loop {
        let next = Instant::now() + shared.settings.probe_period;
        let outcome = shared.dialer.dial(&target).await;
        let outcome = outcome.map(|dialled| {
            // An orderly end: a reset would be an error in the logs of what is in between.
            dial::finish(&dialled.stream);
            dialled.took
        });
        shared.pool().probed(id, outcome.map_err(|error| error.failure()));
        sleep_until(next).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Settings;

    #[tokio::test]
    async fn who_left_is_not_probed_any_more() {
        let mut probes = Probes::new(Arc::new(Shared::new(Settings::default(), Vec::new())));
        let [a, b] = [1, 2].map(|port| Target::Address(([127, 78, 0, 2], port).into()));
        let upstream = |address: &Target| Upstream { address: address.clone(), priority: 0 };
        probes.follow(&[upstream(&a), upstream(&b)]);
        let ids: Vec<Id> = probes.tasks.keys().copied().collect();
        probes.follow(&[upstream(&b)]);
        assert_eq!((ids.len(), probes.tasks.keys().copied().collect()), (2, vec![ids[1]]));
        assert_eq!(probes.tasks.values().map(JoinSet::len).sum::<usize>(), 1, "not twice");
    }
}
