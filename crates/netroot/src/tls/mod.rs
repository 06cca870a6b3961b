//! TLS over a [`Stream`], by rustls with ring.
//!
//! Owns: the turns between records and the connection; what its errors are called.
//! Does not: decide whom to trust ([`trust`]), retry, or hold more than a window of records that are not whole.
//! Order: [`Session::shake_hands`], then [`Session::send`] and [`Session::receive`].
//! Source: RFC 8446 (TLS 1.3); rustls' `unbuffered` module.

mod names;
mod provider;
mod trust;

use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;

use rustls::client::UnbufferedClientConnection;
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncodeTlsData, EncryptError, UnbufferedStatus, WriteTraffic,
};
use rustls::{AlertDescription, Error, PeerIncompatible};

use crate::station::{Received, Station, Stream};
use crate::{Broken, HANDSHAKE_LIMIT_NS, Link, SECOND_NS};
use trust::Verifier;

pub use trust::{EARLIEST_S, Trust, TrustError};

/// A server that was, or will be, believed to be who its certificate says.
pub(crate) struct Session {
    connection: UnbufferedClientConnection,
    verifier: Arc<Verifier>,
    /// Records that are not whole yet.
    incoming: Vec<u8>,
    /// To be encrypted as soon as that is possible.
    queued: Vec<u8>,
}

/// How a handshake ended that did not succeed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// This server will not do.
    Never(String),
    /// Another time, perhaps.
    Later(String),
}

/// Where a connection stands when it has done what could be done.
enum Standing {
    /// More records are needed.
    Shaking,
    /// Both sides may send.
    Open,
    /// The server has no more.
    Closed,
}

/// Why a turn ended early.
enum Fault {
    Broken(Broken),
    Tls(Error),
}

impl Session {
    /// A connection to be, with a server of this name.
    pub(crate) fn new(trust: &Trust, host: &str) -> Result<Self, String> {
        let (connection, verifier) = trust.connect(host)?;
        Ok(Self { connection, verifier, incoming: Vec::new(), queued: Vec::new() })
    }

    /// Has the server prove who it is.
    pub(crate) fn shake_hands(
        &mut self,
        station: &mut Station,
        link: &mut dyn Link,
        stream: &Stream,
    ) -> Result<Result<(), Refusal>, Broken> {
        let deadline = link.now_ns() + HANDSHAKE_LIMIT_NS;
        // Nobody sends data before the request.
        let mut ignore = |_: &[u8]| Ok(());
        loop {
            match self.turn(station, stream, &mut ignore) {
                Ok(Standing::Open) => return Ok(Ok(())),
                Ok(Standing::Shaking) => {}
                Ok(Standing::Closed) => return Ok(Err(Refusal::Later("it ends the TLS handshake".into()))),
                Err(Fault::Broken(broken)) => return Err(broken),
                Err(Fault::Tls(error)) => return Ok(Err(Refusal::Never(self.describe(&error)))),
            }
            let incoming = &mut self.incoming;
            let keep = |bytes: &[u8]| {
                incoming.extend_from_slice(bytes);
                Ok(())
            };
            match station.receive(link, stream, deadline, keep)? {
                Received::Bytes => {}
                Received::End => {
                    return Ok(Err(Refusal::Later("the connection ended in the TLS handshake".into())));
                }
                Received::Nothing => {
                    let seconds = HANDSHAKE_LIMIT_NS / SECOND_NS;
                    return Ok(Err(Refusal::Later(format!("no TLS handshake within {seconds} s"))));
                }
            }
        }
    }

    /// Queues bytes of a request, encrypted; they fit.
    pub(crate) fn send(&mut self, station: &mut Station, stream: &Stream, bytes: &[u8]) -> bool {
        self.queued.extend_from_slice(bytes);
        let mut outgoing = Vec::new();
        let turned = self.advance(&mut outgoing, &mut |_| Ok(()));
        turned.is_ok() && self.queued.is_empty() && station.send(stream, &outgoing)
    }

    /// Waits for bytes and hands them over, until then at most. The inner error is the connection's fault.
    pub(crate) fn receive(
        &mut self,
        station: &mut Station,
        link: &mut dyn Link,
        stream: &Stream,
        until_ns: u64,
        take: &mut dyn FnMut(&[u8]) -> Result<(), Broken>,
    ) -> Result<Result<Received, String>, Broken> {
        loop {
            let incoming = &mut self.incoming;
            let keep = |bytes: &[u8]| {
                incoming.extend_from_slice(bytes);
                Ok(())
            };
            let received = station.receive(link, stream, until_ns, keep)?;
            let mut came = false;
            let mut hand_over = |bytes: &[u8]| {
                came = true;
                take(bytes)
            };
            let standing = match self.turn(station, stream, &mut hand_over) {
                Ok(standing) => standing,
                Err(Fault::Broken(broken)) => return Err(broken),
                Err(Fault::Tls(error)) => return Ok(Err(self.describe(&error))),
            };
            if came {
                return Ok(Ok(Received::Bytes));
            }
            match (received, standing) {
                (_, Standing::Closed) => return Ok(Ok(Received::End)),
                (Received::Bytes, _) => {}
                (other, _) => return Ok(Ok(other)),
            }
        }
    }

    /// Does what can be done, and queues what came of it.
    fn turn(
        &mut self,
        station: &mut Station,
        stream: &Stream,
        take: &mut dyn FnMut(&[u8]) -> Result<(), Broken>,
    ) -> Result<Standing, Fault> {
        let mut outgoing = Vec::new();
        let standing = self.advance(&mut outgoing, take);
        // An alert that finds no room is no loss; nothing else is so long.
        if !outgoing.is_empty() && !station.send(stream, &outgoing) {
            return standing.and(Err(Fault::Tls(Error::General("a flight does not fit".into()))));
        }
        standing
    }

    /// Records into bytes, and bytes into records, until more have to come. After an error: the alert that tells the server.
    fn advance(
        &mut self,
        outgoing: &mut Vec<u8>,
        take: &mut dyn FnMut(&[u8]) -> Result<(), Broken>,
    ) -> Result<Standing, Fault> {
        let mut used = 0;
        let mut failed = None;
        let standing = loop {
            let rest = self.incoming.get_mut(used..).unwrap_or_default();
            let UnbufferedStatus { discard, state } = self.connection.process_tls_records(rest);
            let mut next = None;
            match state {
                Ok(ConnectionState::EncodeTlsData(data)) => encode(data, outgoing),
                Ok(ConnectionState::TransmitTlsData(data)) => data.done(),
                Ok(ConnectionState::ReadTraffic(mut data)) => {
                    while let Some(record) = data.next_record() {
                        let record = record.map_err(Fault::Tls)?;
                        used += record.discard;
                        take(record.payload).map_err(Fault::Broken)?;
                    }
                }
                Ok(ConnectionState::WriteTraffic(traffic)) if !self.queued.is_empty() => {
                    encrypt(traffic, &self.queued, outgoing);
                    self.queued.clear();
                }
                Ok(ConnectionState::WriteTraffic(_)) => next = Some(Standing::Open),
                Ok(ConnectionState::BlockedHandshake) => next = Some(Standing::Shaking),
                Ok(_) => next = Some(Standing::Closed),
                Err(error) if failed.is_none() => failed = Some(error),
                Err(_) => next = Some(Standing::Closed),
            }
            used += discard;
            if let Some(standing) = next {
                break standing;
            }
        };
        self.incoming.drain(..used.min(self.incoming.len()));
        failed.map_or(Ok(standing), |error| Err(Fault::Tls(error)))
    }

    /// One clause on what the server did wrong.
    fn describe(&self, error: &Error) -> String {
        if let Some(reason) = self.verifier.refusal() {
            return reason.to_string();
        }
        match error {
            Error::InvalidMessage(_) => format!("it does not speak TLS: {error}"),
            Error::AlertReceived(AlertDescription::ProtocolVersion)
            | Error::PeerIncompatible(PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig) => {
                format!("it does not speak TLS 1.3: {error}")
            }
            Error::AlertReceived(AlertDescription::HandshakeFailure) => {
                format!("it has no cryptography of ours, which is P-256 and AES-GCM: {error}")
            }
            error => format!("TLS: {error}"),
        }
    }
}

fn encode<Data>(mut data: EncodeTlsData<'_, Data>, outgoing: &mut Vec<u8>) {
    let at = outgoing.len();
    let Err(EncodeError::InsufficientSize(needed)) = data.encode(&mut []) else { return };
    outgoing.resize(at + needed.required_size, 0);
    // It has the room that it asked for.
    let _ = data.encode(outgoing.get_mut(at..).unwrap_or_default());
}

fn encrypt<Data>(mut traffic: WriteTraffic<'_, Data>, plain: &[u8], outgoing: &mut Vec<u8>) {
    let at = outgoing.len();
    let Err(EncryptError::InsufficientSize(needed)) = traffic.encrypt(plain, &mut []) else { return };
    outgoing.resize(at + needed.required_size, 0);
    // As above.
    let _ = traffic.encrypt(plain, outgoing.get_mut(at..).unwrap_or_default());
}

/// How bytes come from a server.
pub(crate) enum Channel {
    /// As they are.
    Plain(Stream),
    /// In records.
    Secure(Stream, Box<Session>),
}

impl Channel {
    /// Queues bytes of a request; `false`: they are too many.
    pub(crate) fn send(&mut self, station: &mut Station, bytes: &[u8]) -> bool {
        match self {
            Self::Plain(stream) => station.send(stream, bytes),
            Self::Secure(stream, session) => session.send(station, stream, bytes),
        }
    }

    /// As [`Station::receive`]. The inner error is the connection's fault.
    pub(crate) fn receive(
        &mut self,
        station: &mut Station,
        link: &mut dyn Link,
        until_ns: u64,
        mut take: impl FnMut(&[u8]) -> Result<(), Broken>,
    ) -> Result<Result<Received, String>, Broken> {
        match self {
            Self::Plain(stream) => station.receive(link, stream, until_ns, take).map(Ok),
            Self::Secure(stream, session) => session.receive(station, link, stream, until_ns, &mut take),
        }
    }

    /// Ends the connection.
    pub(crate) fn close(self, station: &mut Station, link: &mut dyn Link) -> Result<(), Broken> {
        let (Self::Plain(stream) | Self::Secure(stream, _)) = self;
        station.close(link, stream)
    }
}
