//! The log of calls: one line a call, when its answer has ended. Who, with which roles, which method, which code, how long.
//!
//! Owns: the line, and how many there are. Does not: show anything of a request or an answer but the method's name and the
//! code: those hold configs, tokens and keys.
//! Order: a stream is logged when its last frame was passed on, or when its client went away (`Canceled`).
//! Fails by: leaving lines out, and saying how many ([`Lines`]).

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use api::pki::CertificateFacts;
use api::roles::RoleSet;
use http::Response;
use http_body_util::BodyExt;
use hyper::body::{Bytes, Frame, SizeHint};
use runtime::request::Report;
use tonic::Code;

use super::backend::Body;
use super::clients::Client;
use super::frames::{go_code, status_of};
use crate::connections::{Lines, Rate, Rates};

/// A dashboard asks ten times in some seconds. With all clients at it, the log's 2 MiB hold a quarter of an hour.
const RATES: Rates =
    Rates { of_one: Rate { burst: 64, per_second: 8 }, of_all: Rate { burst: 256, per_second: 32 } };
/// Characters of a common name (X.520, ub-common-name).
const MOST_NAME_CHARACTERS: usize = 64;
/// Characters of a method's name; longer ones are not ours.
const MOST_METHOD_CHARACTERS: usize = 128;

/// Where apid's lines about its clients go; clones share it.
#[derive(Debug, Clone)]
pub(super) struct CallLog {
    lines: Lines<Client>,
}

/// Whom a line is about.
#[derive(Debug, Clone)]
pub(super) struct Who {
    peer: Option<SocketAddr>,
    name: Arc<str>,
    client: Arc<Client>,
}

impl CallLog {
    pub(super) fn new(report: Report) -> Self {
        Self { lines: Lines::new(RATES, report) }
    }

    /// A connection that gets no further than this sentence.
    pub(super) fn refused(&self, client: &Client, sentence: impl FnOnce() -> String) {
        self.lines.tell(client, || described(client, &named(client)), sentence);
    }

    /// A call that begins; the line is written when the value is dropped.
    pub(super) fn begin(&self, who: &Who, roles: &RoleSet, method: &str) -> Record {
        let method = shortened(method, MOST_METHOD_CHARACTERS);
        let roles = roles.names().collect::<Vec<_>>().join(",");
        Record {
            log: self.clone(),
            who: who.clone(),
            what: format!("({roles}) {method}"),
            began: Instant::now(),
            code: None,
        }
    }
}

impl Who {
    pub(super) fn new(peer: Option<SocketAddr>, client: Arc<Client>) -> Self {
        let peer = peer.map(|peer| SocketAddr::new(peer.ip().to_canonical(), peer.port()));
        Self { peer, name: named(&client).into(), client }
    }
}

/// A call under way.
#[derive(Debug)]
pub(super) struct Record {
    log: CallLog,
    who: Who,
    /// Roles and method.
    what: String,
    began: Instant,
    /// None until the answer has said it.
    code: Option<Code>,
}

impl Record {
    /// Notes the code that this answer ends with, and when.
    pub(super) fn until_end(mut self, response: Response<Body>) -> Response<Body> {
        self.code = status_of(response.headers()).map(|status| status.code());
        response.map(|body| Recorded { body, record: self }.boxed())
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        // An answer that was not taken to its end has no code.
        let code = go_code(self.code.unwrap_or(Code::Cancelled));
        let took = rounded(self.began.elapsed());
        let (Who { peer, name, client }, what) = (&self.who, &self.what);
        self.log.lines.tell(
            client,
            || described(client, name),
            || {
                let peer = peer.map_or_else(|| "an unknown peer".to_owned(), |peer| peer.to_string());
                format!("{peer} {name} {what}: {code}, {took:?}")
            },
        );
    }
}

/// To whole microseconds.
fn rounded(took: Duration) -> Duration {
    Duration::from_micros(u64::try_from(took.as_micros()).unwrap_or(u64::MAX))
}

/// An answer's body that notes how the call ended.
struct Recorded {
    body: Body,
    record: Record,
}

impl hyper::body::Body for Recorded {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let next = ready!(Pin::new(&mut self.body).poll_frame(cx));
        let code = match &next {
            Some(Ok(frame)) => frame.trailers_ref().and_then(status_of).map(|status| status.code()),
            Some(Err(_)) => Some(Code::Unavailable),
            // It ended without a status, as no server of gRPC does.
            None => self.record.code.is_none().then_some(Code::Unknown),
        };
        self.record.code = code.or(self.record.code);
        Poll::Ready(next)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Who a client is, by what cannot be chosen freely: the name in a certificate that one of our authorities signed.
fn named(client: &Client) -> String {
    let Client::Certificate(der) = client else { return "without a certificate".to_owned() };
    match CertificateFacts::from_der("the client certificate", der) {
        Ok(facts) if !facts.common_name.is_empty() => {
            format!("CN={:?}", shortened(&facts.common_name, MOST_NAME_CHARACTERS))
        }
        Ok(facts) => format!("fingerprint {}", facts.fingerprint),
        Err(_) => "with a certificate that cannot be read".to_owned(),
    }
}

/// The same where no address stands before it.
fn described(client: &Client, name: &str) -> String {
    match client {
        Client::Certificate(_) => name.to_owned(),
        Client::Address(address) => address.to_string(),
    }
}

fn shortened(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests;
