//! What all tasks of a balancer use.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Semaphore;

use crate::dial::Dialer;
use crate::pool::Pool;
use crate::settings::Settings;

#[derive(Debug)]
pub(crate) struct Shared {
    /// Clients that may still come.
    pub(crate) room: Arc<Semaphore>,
    pub(crate) dialer: Dialer,
    pub(crate) settings: Settings,
    pool: Mutex<Pool>,
}

impl Shared {
    pub(crate) fn new(settings: Settings, own: Vec<SocketAddr>) -> Self {
        Self {
            room: Arc::new(Semaphore::new(settings.connections.min(Semaphore::MAX_PERMITS))),
            dialer: Dialer::new(&settings, own),
            pool: Mutex::new(Pool::new(settings.probe_failures)),
            settings,
        }
    }

    /// Locked for a few comparisons, never over a wait.
    pub(crate) fn pool(&self) -> MutexGuard<'_, Pool> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
