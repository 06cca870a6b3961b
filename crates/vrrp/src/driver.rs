//! A virtual router as the caller starts and ends it.
//!
//! Owns: what ends it, and what it waits for between two turns of [`crate::running`].
//! Fails by: refusing settings; once it runs, it says what fails and goes on.

use std::future::Future;
use std::pin::pin;

use tokio::sync::watch;

use crate::addresses::Addresses;
use crate::caller::Address;
use crate::running::Running;
use crate::settings::{Settings, SettingsError, Status};

/// A virtual router that can be run.
#[derive(Debug)]
pub struct Driver {
    settings: Settings,
    addresses: Addresses,
    status: watch::Sender<Status>,
}

impl Driver {
    /// Nothing happens until [`Self::run`] is polled.
    ///
    /// # Errors
    /// When the addresses are not those of a virtual router.
    pub fn new(settings: Settings) -> Result<Self, SettingsError> {
        let addresses = settings.checked_addresses()?;
        Ok(Self { settings, addresses, status: watch::Sender::new(Status::new()) })
    }

    /// What is known of the virtual router. The driver sends when something changed; the channel closes when
    /// [`Self::run`] is done or dropped.
    #[must_use]
    pub fn status(&self) -> watch::Receiver<Status> {
        self.status.subscribe()
    }

    /// Runs until `stop`; then others are told to take over at once, and the addresses are gone when this returns. Dropped
    /// instead, it tells no one: the addresses stay as long as the kernel leaves them, and others take over when they miss
    /// this router.
    ///
    /// `fit` is whether this machine may have the addresses. The caller sends; when it drops the sender the last value
    /// remains. `say` gets each cause of a failure once.
    ///
    /// # Panics
    /// Outside of a tokio runtime with I/O and time.
    pub async fn run<A: Address>(
        self,
        address: &mut A,
        mut fit: watch::Receiver<bool>,
        stop: impl Future<Output = ()> + Send,
        say: impl Fn(&str) + Send + Sync,
    ) {
        let mut running = Running::new(self.settings, self.addresses, self.status, address, say);
        let mut stop = pin!(stop);
        let mut is_sent = true;
        loop {
            let is_fit = *fit.borrow_and_update();
            running.turn(is_fit).await;
            tokio::select! {
                () = &mut stop => break,
                () = running.next_turn() => {}
                changed = fit.changed(), if is_sent => is_sent = changed.is_ok(),
            }
        }
        running.end().await;
    }
}
