//! Errors of a socket that serves everybody: which of them pass, and which end it.
//!
//! Owns: the classes, the pause, that a lasting failure is reported once.
//! Source: accept(2), "Error handling": errors of the network that is behind a connection come out of accept.

use std::io;
use std::time::Duration;

use rustix::io::Errno;
use tokio::time::Instant;

use crate::event::{Event, Tell};

/// Until the system may have something to give again: who waits for an answer notices little of it.
const PAUSE: Duration = Duration::from_millis(200);

/// Without a failure for so long, it is over, and reported again when it comes back: at its limit a host takes one
/// machine, refuses the next one, and so on many times a second.
const OVER: Duration = Duration::from_secs(10);

/// Whom an error concerns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    /// One machine, or the way to it: the next one may do better at once.
    OneMachine,
    /// This host has no file descriptors or no memory left, for now.
    Resources,
    /// The socket: there is nothing to wait for.
    Socket,
}

fn class(error: &io::Error) -> Class {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(
            Errno::CONNABORTED
            | Errno::CONNREFUSED
            | Errno::CONNRESET
            | Errno::HOSTDOWN
            | Errno::HOSTUNREACH
            | Errno::INTR
            | Errno::NETDOWN
            | Errno::NETUNREACH
            | Errno::NONET
            | Errno::NOPROTOOPT
            | Errno::OPNOTSUPP
            | Errno::PERM
            | Errno::PROTO
            | Errno::TIMEDOUT,
        ) => Class::OneMachine,
        Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => Class::Resources,
        _ => Class::Socket,
    }
}

/// What a loop over one socket bears.
#[derive(Debug)]
pub(crate) struct Patience {
    by: &'static str,
    /// When the failure that was reported happened last.
    failed_at: Option<Instant>,
}

impl Patience {
    /// For a socket of this protocol.
    pub(crate) fn new(by: &'static str) -> Self {
        Self { by, failed_at: None }
    }

    /// What came of asking the socket. `None`: something that passes, which was told; ask again.
    ///
    /// # Errors
    /// What ends the socket for everybody.
    pub(crate) async fn hear<T>(&mut self, heard: io::Result<T>, tell: &Tell) -> io::Result<Option<T>> {
        let error = match heard {
            Ok(heard) => return Ok(Some(heard)),
            Err(error) => error,
        };
        let class = class(&error);
        if class == Class::Socket {
            return Err(error);
        }
        let said =
            Event::Unheard { by: self.by, reason: error.to_string(), lasts: class == Class::Resources };
        match class {
            Class::Resources => {
                // It is tried five times a second, and said once.
                let before = self.failed_at.replace(Instant::now());
                if before.is_none_or(|before| before.elapsed() >= OVER) {
                    tell(said);
                }
            }
            Class::OneMachine | Class::Socket => tell(said),
        }
        if class == Class::Resources {
            tokio::time::sleep(PAUSE).await;
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    fn error(errno: Errno) -> io::Result<()> {
        Err(io::Error::from_raw_os_error(errno.raw_os_error()))
    }

    #[tokio::test(start_paused = true)]
    async fn what_passes_is_told_and_what_does_not_ends_the_socket() {
        let told: Arc<Mutex<Vec<String>>> = Arc::default();
        let hears = told.clone();
        let tell: Tell = Arc::new(move |event| hears.lock().unwrap().push(event.to_string()));
        let mut patience = Patience::new("HTTP");
        let began = Instant::now();
        assert_eq!(patience.hear(error(Errno::CONNABORTED), &tell).await.unwrap(), None);
        assert_eq!(began.elapsed(), Duration::ZERO, "the others wait for nobody");
        for _ in 0..3 {
            for errno in [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM] {
                assert_eq!(patience.hear(error(errno), &tell).await.unwrap(), None);
            }
        }
        assert!(began.elapsed() >= PAUSE * 12, "no processor is kept busy with it");
        // A host at its limit hears one now and then.
        for _ in 0..100 {
            assert_eq!(patience.hear(Ok(()), &tell).await.unwrap(), Some(()));
            assert_eq!(patience.hear(error(Errno::MFILE), &tell).await.unwrap(), None);
        }
        assert_eq!(told.lock().unwrap().len(), 2, "{told:?}");
        assert_eq!(patience.hear(Ok(()), &tell).await.unwrap(), Some(()));
        tokio::time::sleep(OVER).await;
        assert_eq!(patience.hear(error(Errno::MFILE), &tell).await.unwrap(), None);
        let told = told.lock().unwrap().clone();
        let [aborted, full, again] = &told[..] else { panic!("{told:?}") };
        assert!(aborted.starts_with("HTTP: one machine was not heard: "), "{aborted}");
        for said in [full, again] {
            let wanted = "HTTP: machines wait, this host has no room for another one just now: Too many open";
            assert!(said.starts_with(wanted), "{said}");
        }
        for errno in [Errno::BADF, Errno::INVAL, Errno::NOTSOCK] {
            let ended = patience.hear(error(errno), &tell).await.unwrap_err();
            assert_eq!(ended.raw_os_error(), Some(errno.raw_os_error()));
        }
        patience.hear::<()>(Err(io::ErrorKind::Other.into()), &tell).await.unwrap_err();
    }
}
