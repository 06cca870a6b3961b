//! All transfers by TFTP: who gets one, and how many there are.
//!
//! | task | input | ends |
//! |---|---|---|
//! | [`Service::serve`] | requests on port 69 | with the socket |
//! | one for each transfer | acknowledgements, on a port of its own | with the file, a deadline, or a newer request that takes its place |
//!
//! Owns: the places ([`LIMITS`]), and what an address that has not shown itself is sent ([`super`] says what one transfer
//! sends). Packets that are no request are not answered: another server's errors would go to and fro for ever.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::net::UdpSocket;

use super::{Client, LIMITS, NOT_FOUND, READ, Request, WRITE, error, opcode, within};
use crate::event::{Event, Machine, Tell};
use crate::files::{self, Files};
use crate::interface::{Network, PACKET_BYTES};
use crate::patience::Patience;
use crate::places::{Full, Place, Places};
use crate::rate::Rate;
use crate::uki;

/// First blocks for those that ask without options.
const FIRST_BLOCKS: Rate = Rate::new(16, Duration::from_millis(125));
/// Lines about addresses that did not show themselves.
const COMPLAINTS: Rate = Rate::new(8, Duration::from_secs(2));
/// An error that is none of those with a number.
const UNDEFINED: u16 = 0;

/// What the transfers share.
#[derive(Debug)]
pub(crate) struct Service {
    network: Network,
    socket: UdpSocket,
    files: Arc<Files>,
    places: Places,
    first_blocks: Mutex<Rate>,
    complaints: Mutex<Rate>,
}

/// A transfer's end.
struct Ended {
    sent: io::Result<u64>,
    is_proven: bool,
}

impl Service {
    pub(crate) fn new(network: Network, socket: UdpSocket, files: Arc<Files>) -> Self {
        Self {
            network,
            socket,
            files,
            places: Places::new(LIMITS),
            first_blocks: Mutex::new(FIRST_BLOCKS),
            complaints: Mutex::new(COMPLAINTS),
        }
    }

    /// Answers requests until the socket fails.
    pub(crate) async fn serve(self: &Arc<Self>, tell: &Tell) -> io::Result<Infallible> {
        let (mut buffer, mut patience) = ([0; PACKET_BYTES], Patience::new("TFTP"));
        loop {
            let heard = self.socket.recv_from(&mut buffer).await;
            let Some((count, from)) = patience.hear(heard, tell).await? else { continue };
            self.hear(buffer.get(..count).unwrap_or_default(), from, tell).await;
        }
    }

    async fn hear(self: &Arc<Self>, packet: &[u8], from: SocketAddr, tell: &Tell) {
        if !matches!(opcode(packet), Some(READ | WRITE)) {
            return;
        }
        match Request::read(packet) {
            Ok(request) => self.begin(request, from, tell).await,
            Err(error) => {
                self.refuse(error.answer(), packet.len(), from).await;
                self.complain(from, "a request".into(), error.reason, tell);
            }
        }
    }

    async fn begin(self: &Arc<Self>, request: Request, from: SocketAddr, tell: &Tell) {
        let (place, given_away) = match self.places.admit(from) {
            Ok(admitted) => admitted,
            // It asked twice and is served once.
            Err(Full::Served) => return,
            Err(Full::Taken) => {
                let why = "too many files at once";
                self.refuse(error(UNDEFINED, why), request.bytes, from).await;
                self.complain(from, request.name, why, tell);
                return;
            }
        };
        let (service, tell) = (self.clone(), tell.clone());
        tokio::spawn(async move {
            tokio::select! {
                ended = service.transfer(&request, from, &place) => service.told(ended, request.name, from, &tell),
                _ = given_away => {}
            }
        });
    }

    async fn transfer(&self, request: &Request, from: SocketAddr, place: &Place) -> (Ended, Instant) {
        let began = Instant::now();
        let sent = match self.files.clone().find_named(request.name.clone()).await {
            Some(Ok(file)) => {
                let trusts = || self.is_near(from) && take(&self.first_blocks);
                let client = Client { us: self.network.address, to: from, place, trusts: &trusts };
                client.send(request, file).await
            }
            other => {
                self.refuse(error(NOT_FOUND, "there is no such file"), request.bytes, from).await;
                let none = || io::Error::new(io::ErrorKind::NotFound, "there is no such file");
                Err(other.and_then(Result::err).unwrap_or_else(none))
            }
        };
        (Ended { sent, is_proven: place.is_proven() }, began)
    }

    /// Who is on another network cannot be a machine that starts here; its address can be anybody's.
    fn is_near(&self, from: SocketAddr) -> bool {
        matches!(from.ip(), std::net::IpAddr::V4(address) if self.network.contains(address))
    }

    fn told(&self, (ended, began): (Ended, Instant), name: String, from: SocketAddr, tell: &Tell) {
        let to = Machine { address: from.ip(), mac: files::owner(&name) };
        match ended.sent {
            Ok(0) => {}
            Ok(bytes) => {
                tell(Event::Sent { to, by: "TFTP", name, bytes, took: began.elapsed() });
                self.files.start_of(to, uki::NAME).into_iter().for_each(|event| tell(event));
            }
            Err(error) if ended.is_proven => {
                tell(Event::Failed { to, by: "TFTP", name, reason: error.to_string() });
            }
            Err(error) => self.complain(from, name, &error.to_string(), tell),
        }
    }

    /// It is told if that is possible; it asks again otherwise.
    async fn refuse(&self, error: Vec<u8>, request_bytes: usize, from: SocketAddr) {
        if let Some(error) = within(error, request_bytes) {
            let _ = self.socket.send_to(&error, from).await;
        }
    }

    /// Of whoever may be made up a person hears a few lines, not one for each packet.
    fn complain(&self, from: SocketAddr, name: String, reason: &str, tell: &Tell) {
        if take(&self.complaints) {
            let to = Machine::from(from.ip());
            tell(Event::Failed { to, by: "TFTP", name, reason: reason.to_owned() });
        }
    }

    #[cfg(test)]
    fn transfers(&self) -> usize {
        self.places.taken()
    }
}

fn take(rate: &Mutex<Rate>) -> bool {
    rate.lock().unwrap_or_else(PoisonError::into_inner).take(Instant::now())
}

#[cfg(test)]
mod tests;
