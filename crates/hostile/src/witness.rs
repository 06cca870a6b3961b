//! Another client, whose calls are timed while an attack runs.
//!
//! Owns: one connection that is kept, where the port keeps connections, and a fresh one for each second call.
//! Does not: attack.

use std::time::Duration;

use http::HeaderMap;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};

use crate::client::{Client, empty};
use crate::{Fault, Port, Target};

/// Between two calls.
const PAUSE: Duration = Duration::from_millis(50);
/// A call that takes longer than this has failed.
const DEADLINE: Duration = Duration::from_secs(30);
/// Calls of the baseline.
const BASELINE: u32 = 20;

/// What a witness saw.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Seen {
    pub(crate) calls: u64,
    pub(crate) longest: Duration,
}

/// The other client.
#[derive(Debug, Clone)]
pub struct Witness {
    target: Target,
    /// Whether it makes new connections while an attack runs.
    fresh: bool,
}

impl Witness {
    /// A client of this server, by the target's certificate and sources. `fresh` where the attack comes from other
    /// addresses: else the limits of an address are the witness's too.
    #[must_use]
    pub fn new(target: Target, fresh: bool) -> Self {
        Self { target, fresh }
    }

    /// The longest of some calls while nothing else happens.
    pub(crate) async fn baseline(&self) -> Result<Duration, String> {
        let mut kept = self.settled().await?;
        let mut longest = Duration::ZERO;
        for number in 0..BASELINE {
            longest = longest.max(self.call(&mut kept, number % 2 == 0).await?);
        }
        Ok(longest)
    }

    /// Calls again and again until it is told to stop, and once more then.
    pub(crate) async fn watch(self, mut stop: oneshot::Receiver<()>) -> Result<Seen, String> {
        // Before the attack begins: a connection that is there.
        let mut kept = self.settled().await?;
        let mut seen = Seen::default();
        loop {
            let last = stop.try_recv() != Err(oneshot::error::TryRecvError::Empty);
            let waited = self.call(&mut kept, self.fresh && seen.calls % 2 == 0).await?;
            seen = Seen { calls: seen.calls.saturating_add(1), longest: seen.longest.max(waited) };
            if last {
                return Ok(seen);
            }
            tokio::select! {
                () = sleep(PAUSE) => {}
                _ = &mut stop => {}
            }
        }
    }

    /// A connection that was used once. An attack before this one may still have its address's places.
    async fn settled(&self) -> Result<Option<Client>, String> {
        let begin = Instant::now();
        loop {
            let mut kept = None;
            match self.call(&mut kept, false).await {
                Ok(_) => return Ok(kept),
                Err(error) if begin.elapsed() > DEADLINE => return Err(error),
                Err(_) => sleep(PAUSE).await,
            }
        }
    }

    /// One call, and how long it took with what its connection took.
    async fn call(&self, kept: &mut Option<Client>, fresh: bool) -> Result<Duration, String> {
        let begin = Instant::now();
        let path = self.target.port.path();
        // trustd ends its connections by itself.
        if fresh || self.target.port == Port::Trust {
            let client = self.open().await?;
            client.call(path, &HeaderMap::new(), empty(), DEADLINE).await?;
            return Ok(begin.elapsed());
        }
        let client = match kept.take() {
            Some(client) => client,
            None => self.open().await?,
        };
        client.call(path, &HeaderMap::new(), empty(), DEADLINE).await?;
        *kept = Some(client);
        Ok(begin.elapsed())
    }

    async fn open(&self) -> Result<Client, String> {
        Client::open(&self.target).await.map_err(|error: Fault| error.to_string())
    }
}
