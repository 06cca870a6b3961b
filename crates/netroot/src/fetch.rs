//! One file from several mirrors.
//!
//! Owns: the order in which mirrors are tried, going on where a connection broke, redirects, pauses between attempts,
//! the lines that people see meanwhile.
//! Does not: know what the bytes should be. A mirror whose bytes the [`Sink`] refuses is asked no more, nor one whose
//! certificate is not believed.
//! Order: one attempt a mirror, in turn, with a pause before a mirror is asked again; one without the file drops out. It ends with the file, when no
//! mirror is left, or when all together brought next to nothing new for [`PATIENCE_NS`].

use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::http::{self, MOST_HEAD_BYTES, Verdict};
use crate::station::{Received, Station};
use crate::tls::{Channel, Refusal, Session, Trust};
use crate::url::Url;
use crate::{
    Broken, Error, FIRST_PAUSE_NS, LEAST_BYTES, LONGEST_PAUSE_NS, Link, PATIENCE_NS, PROGRESS_NS, SECOND_NS,
    STALL_LIMIT_NS, Sink, Tone,
};

/// Redirects in a row.
const MOST_REDIRECTS: usize = 5;

/// Wrong contents that were put together from several mirrors: each time one of them may be the good one.
const MOST_MIXED: usize = 3;

/// What to fetch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Item<'a> {
    /// What it is to people.
    pub name: &'a str,
    /// The file's name in a mirror's directory.
    pub file: &'a str,
    /// Its length.
    pub bytes: u64,
}

/// Where to fetch from.
#[derive(Debug, Clone, Copy)]
pub struct Mirrors<'a> {
    /// Directories with the file.
    pub urls: &'a [Url],
    /// Whom to believe behind `https://`; `None`: nobody.
    pub trust: Option<&'a Trust>,
}

/// Fetches a file into the sink, which finds it right. Returns the address it came from at last.
pub fn fetch(
    station: &mut Station,
    link: &mut dyn Link,
    mirrors: Mirrors<'_>,
    item: Item<'_>,
    sink: &mut dyn Sink,
) -> Result<Url, Error> {
    let began_ns = link.now_ns();
    let mut download = Download {
        item,
        trust: mirrors.trust,
        sink,
        offset: 0,
        sources: Vec::new(),
        moved: 0,
        furthest: 0,
        began_ns,
        told_ns: began_ns,
    };
    let mut mirrors: Vec<Mirror> =
        mirrors.urls.iter().map(|url| Mirror { url: url.file(item.file), last: None, out: false }).collect();
    download.sink.restart()?;
    let mut pause_ns = FIRST_PAUSE_NS;
    let (mut mark, mut mark_ns) = (0, began_ns);
    let mut mixed = 0;
    for turn in 0.. {
        let count = mirrors.len().max(1);
        if mirrors.iter().all(|mirror| mirror.out) {
            return Err(given_up(item, &mirrors, ""));
        }
        let Some(mirror) = mirrors.get_mut(turn % count).filter(|mirror| !mirror.out) else { continue };
        if mirror.last.is_some() {
            let until_ns = link.now_ns() + pause_ns;
            station.pause(link, until_ns)?;
            pause_ns = (pause_ns * 2).min(LONGEST_PAUSE_NS);
        }
        let outcome = download.attempt(station, link, &mirror.url)?;
        // What came before is no progress: a server without ranges that breaks each time would be asked for ever.
        let is_progress = download.furthest - mark >= LEAST_BYTES;
        if is_progress {
            (mark, mark_ns) = (download.furthest, link.now_ns());
            pause_ns = FIRST_PAUSE_NS;
        }
        let reason = match outcome {
            Outcome::Done => match download.sink.judge()? {
                None => return Ok(download.finished(link, mirror)),
                Some(wrong) => {
                    mixed += usize::from(download.is_mixed());
                    mirror.out = !download.is_mixed() || mixed >= MOST_MIXED;
                    download.restart()?;
                    // Those bytes were none of the file. It comes to this a few times at most.
                    (download.furthest, mark, mark_ns) = (0, 0, link.now_ns());
                    wrong
                }
            },
            Outcome::Refused(reason) => {
                mirror.out = true;
                reason
            }
            Outcome::Later(reason) => reason,
        };
        link.say(Tone::Warning, format_args!("layer {} from {}: {reason}", item.name, mirror.url));
        mirror.last = Some(reason);
        if !is_progress && link.now_ns() - mark_ns >= PATIENCE_NS {
            let seconds = PATIENCE_NS / SECOND_NS;
            return Err(given_up(item, &mirrors, &format!("given up after {seconds} s: ")));
        }
    }
    Err(given_up(item, &mirrors, ""))
}

fn given_up(item: Item<'_>, mirrors: &[Mirror], why: &str) -> Error {
    let said = mirrors.iter().filter_map(|m| m.last.as_ref().map(|last| format!("{}: {last}", m.url)));
    let reasons = format!("{why}{}", said.collect::<Vec<_>>().join("; "));
    Error::NoMirror { name: item.name.to_string(), reasons }
}

struct Mirror {
    url: Url,
    /// Why the last attempt failed.
    last: Option<String>,
    /// It is asked no more.
    out: bool,
}

/// How an attempt ended.
enum Outcome {
    /// All bytes are there.
    Done,
    /// This mirror will never do.
    Refused(String),
    /// It may do at another time, or it broke in the middle.
    Later(String),
}

impl Outcome {
    /// The same, of the server at this address.
    fn of(self, url: &Url) -> Self {
        let server = |reason: String| format!("it sends us to {}: {reason}", shown(url));
        match self {
            Self::Done => Self::Done,
            Self::Refused(reason) => Self::Refused(server(reason)),
            Self::Later(reason) => Self::Later(server(reason)),
        }
    }
}

/// A file under way.
struct Download<'a> {
    item: Item<'a>,
    trust: Option<&'a Trust>,
    sink: &'a mut dyn Sink,
    /// Bytes in the sink.
    offset: u64,
    /// Where they came from.
    sources: Vec<Url>,
    /// All bytes that came, those that did not count included.
    moved: u64,
    /// How far into the file it ever came.
    furthest: u64,
    began_ns: u64,
    told_ns: u64,
}

impl Download<'_> {
    /// Asks one mirror for what is missing.
    fn attempt(
        &mut self,
        station: &mut Station,
        link: &mut dyn Link,
        first: &Url,
    ) -> Result<Outcome, Broken> {
        let mut url = first.clone();
        for _ in 0..=MOST_REDIRECTS {
            let mut channel = match self.open(station, link, &url)? {
                Ok(channel) => channel,
                // A server that another one sends to has to be named.
                Err(outcome) if url == *first => return Ok(outcome),
                Err(outcome) => return Ok(outcome.of(&url)),
            };
            let answered = self.exchange(station, link, &mut channel, &url);
            channel.close(station, link)?;
            let to = match answered? {
                Answered::Outcome(outcome) => return Ok(outcome),
                Answered::Elsewhere(to) => to,
            };
            url = match url.redirected(&to) {
                Ok(next) if url.secure && !next.secure => {
                    return Ok(Outcome::Refused(format!("it sends us from https to {}", shown(&next))));
                }
                Ok(next) => next,
                Err(error) => {
                    return Ok(Outcome::Refused(format!(
                        "it sends us to {}, which {error}",
                        http::shown(&to)
                    )));
                }
            };
        }
        Ok(Outcome::Refused(format!("more than {MOST_REDIRECTS} redirects")))
    }

    /// A connection, which has a server behind it that is believed, if the address asks for that.
    fn open(
        &self,
        station: &mut Station,
        link: &mut dyn Link,
        url: &Url,
    ) -> Result<Result<Channel, Outcome>, Broken> {
        let mut session = None;
        if url.secure {
            let Some(trust) = self.trust else {
                let reason = "https needs an authority to trust, and this image has none; make it with image build \
                              --certificate";
                return Ok(Err(Outcome::Refused(reason.to_string())));
            };
            session = match Session::new(trust, &url.host) {
                Ok(session) => Some(session),
                Err(reason) => return Ok(Err(Outcome::Refused(reason))),
            };
        }
        let address = match station.resolve(link, &url.host)? {
            Ok(address) => address,
            Err(reason) => return Ok(Err(Outcome::Later(reason))),
        };
        let stream = match station.connect(link, (address, url.port))? {
            Ok(stream) => stream,
            Err(reason) => return Ok(Err(Outcome::Later(reason))),
        };
        let Some(mut session) = session else { return Ok(Ok(Channel::Plain(stream))) };
        let Err(refusal) = session.shake_hands(station, link, &stream)? else {
            return Ok(Ok(Channel::Secure(stream, Box::new(session))));
        };
        // The server's log shall say why.
        station.leave(link, stream)?;
        Ok(Err(match refusal {
            Refusal::Never(reason) => Outcome::Refused(reason),
            Refusal::Later(reason) => Outcome::Later(reason),
        }))
    }

    /// One request, and its answer's head and bytes.
    fn exchange(
        &mut self,
        station: &mut Station,
        link: &mut dyn Link,
        channel: &mut Channel,
        url: &Url,
    ) -> Result<Answered, Broken> {
        let request = http::request(url, self.offset);
        if !channel.send(station, request.as_bytes()) {
            return Ok(Answered::refused("its address is too long"));
        }
        let mut head = Vec::new();
        let mut limit_ns = link.now_ns() + STALL_LIMIT_NS;
        let end = loop {
            let take = |bytes: &[u8]| {
                head.extend_from_slice(bytes);
                Ok(())
            };
            let received = match channel.receive(station, link, limit_ns, take)? {
                Ok(received) => received,
                Err(reason) => return Ok(Answered::later(&reason)),
            };
            if let Some(end) = http::end_of_head(&head) {
                break end;
            }
            match received {
                Received::Bytes if head.len() <= MOST_HEAD_BYTES => {}
                Received::Bytes => return Ok(Answered::refused("its answer has too long a head")),
                Received::End => return Ok(Answered::later("the connection ended before an answer")),
                Received::Nothing => {
                    let seconds = STALL_LIMIT_NS / SECOND_NS;
                    return Ok(Answered::later(&format!("no answer within {seconds} s")));
                }
            }
        };
        let (head, rest) = head.split_at(end);
        match http::judge(head, self.offset, self.item.bytes) {
            Verdict::Bytes(offset) if offset == self.offset => {}
            Verdict::Bytes(_) => self.restart()?,
            Verdict::Elsewhere(to) => return Ok(Answered::Elsewhere(to)),
            Verdict::Refused(reason) => return Ok(Answered::refused(&reason)),
            Verdict::Later(reason) => return Ok(Answered::later(&reason)),
        }
        if !self.sources.contains(url) {
            self.sources.push(url.clone());
        }
        self.take(rest)?;
        // The head was no progress.
        let mut mark = self.offset;
        limit_ns = link.now_ns() + STALL_LIMIT_NS;
        while self.offset < self.item.bytes {
            let received = match channel.receive(station, link, limit_ns, |bytes| self.take(bytes))? {
                Ok(received) => received,
                Err(reason) => return Ok(Answered::later(&reason)),
            };
            self.tell(link, url);
            if received == Received::End {
                let (offset, bytes) = (self.offset, self.item.bytes);
                return Ok(Answered::later(&format!("the connection ended after {offset} of {bytes} bytes")));
            }
            if link.now_ns() >= limit_ns {
                let (came, seconds) = (self.offset - mark, STALL_LIMIT_NS / SECOND_NS);
                if came < LEAST_BYTES && self.offset < self.item.bytes {
                    return Ok(Answered::later(&format!("too slow: {came} bytes in {seconds} s")));
                }
                mark = self.offset;
                limit_ns = link.now_ns() + STALL_LIMIT_NS;
            }
        }
        Ok(Answered::Outcome(Outcome::Done))
    }

    /// Bytes of the file; a server may send more than it promised.
    fn take(&mut self, bytes: &[u8]) -> Result<(), Broken> {
        let missing = usize::try_from(self.item.bytes - self.offset).unwrap_or(usize::MAX);
        let bytes = bytes.get(..bytes.len().min(missing)).unwrap_or_default();
        if bytes.is_empty() {
            return Ok(());
        }
        self.sink.write(bytes)?;
        let count = bytes.len() as u64;
        self.offset += count;
        self.moved += count;
        self.furthest = self.furthest.max(self.offset);
        Ok(())
    }

    fn restart(&mut self) -> Result<(), Broken> {
        self.offset = 0;
        self.sources.clear();
        self.sink.restart()
    }

    fn is_mixed(&self) -> bool {
        self.sources.len() > 1
    }

    /// A line every few seconds.
    fn tell(&mut self, link: &mut dyn Link, url: &Url) {
        let now_ns = link.now_ns();
        if now_ns - self.told_ns < PROGRESS_NS {
            return;
        }
        self.told_ns = now_ns;
        let (at, all) = (Megabytes(self.offset), Megabytes(self.item.bytes));
        let rate = rate(self.moved, now_ns - self.began_ns);
        link.say(
            Tone::Note,
            format_args!("layer {}: {at} of {all} MB, {rate} MB/s from {}", self.item.name, url.authority()),
        );
    }

    fn finished(&self, link: &mut dyn Link, mirror: &Mirror) -> Url {
        let url = self.sources.last().unwrap_or(&mirror.url).clone();
        let ns = link.now_ns() - self.began_ns;
        let (all, rate) = (Megabytes(self.item.bytes), rate(self.moved, ns));
        let from = shown(&url);
        link.say(Tone::Note, format_args!("layer {}: {all} MB from {from}, {rate} MB/s", self.item.name));
        url
    }
}

/// An address that a server may have given.
fn shown(url: &Url) -> String {
    http::shown(&url.to_string())
}

enum Answered {
    Outcome(Outcome),
    Elsewhere(String),
}

impl Answered {
    fn refused(reason: &str) -> Self {
        Self::Outcome(Outcome::Refused(reason.to_string()))
    }

    fn later(reason: &str) -> Self {
        Self::Outcome(Outcome::Later(reason.to_string()))
    }
}

/// Bytes as millions with one digit behind the point.
struct Megabytes(u64);

impl core::fmt::Display for Megabytes {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let tenths = self.0 / 100_000;
        write!(f, "{}.{}", tenths / 10, tenths % 10)
    }
}

/// In a second.
fn rate(bytes: u64, ns: u64) -> Megabytes {
    Megabytes(bytes.saturating_mul(1000) / (ns / 1_000_000).max(1))
}
