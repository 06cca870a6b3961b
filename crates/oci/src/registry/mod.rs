//! A registry's client, for one pull: an image's documents, then its blobs as streams.
//!
//! Owns: which address is asked and when the next one is, how long all of it may take, the comparison of every digest.
//! Does not: push, list, keep anything.
//! Order: the mirrors of the registry in the config's order, then the registry itself unless that is ruled out. What an
//! address refuses for good (not there, not allowed, a certificate that is not trusted) makes the next one's turn; what
//! may pass (no connection, 5xx, 429) is tried again while [`Patience`] lasts.
//! Source: OCI distribution specification 1.1

pub mod auth;
mod blob;
mod endpoint;
mod exchange;
mod expectation;
mod proxy;
mod realm;
mod settings;
#[cfg(test)]
mod signature_tests;
mod signatures;
#[cfg(test)]
mod tests;
mod tls;

use std::sync::Arc;
use std::time::Duration;

use http::header::ACCEPT;
use http::{HeaderMap, HeaderValue};
use ondisk::Digest;
use tokio::time::Instant;

use crate::document::{self, ACCEPTED, Config, Descriptor, Document, Manifest};
use crate::{Error, Reference};
use endpoint::Endpoint;

pub use blob::{Blob, Reader};
pub(crate) use exchange::{Exchange, Fault, MOST_REDIRECTS, Sent, content, next};
pub use proxy::Proxies;
pub(crate) use proxy::basic;
pub use settings::{Auth, Host, Identity, Mirror, Settings, Tls};

/// Between two rounds over all addresses: it doubles up to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// How long a pull may take.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// Without a byte.
    pub stall: Duration,
    /// In all: 20 minutes, as clients of both generations expect.
    pub total: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self { stall: Duration::from_secs(60), total: Duration::from_secs(20 * 60) }
    }
}

/// An image whose documents are here.
#[derive(Debug, Clone)]
pub struct Image {
    /// As it was asked for.
    pub reference: Reference,
    /// Of what the name stands for: an index, or the manifest.
    pub named: Digest,
    /// Of the manifest.
    pub digest: Digest,
    /// The manifest.
    pub manifest: Manifest,
    /// The config.
    pub config: Config,
    /// What was read on the way, as it came: indexes, if the name stands for one, and the manifest last.
    pub documents: Vec<Raw>,
}

/// An index or a manifest as the registry has it.
#[derive(Debug, Clone)]
pub struct Raw {
    /// Its type.
    pub media_type: String,
    /// The bytes that its digest is of.
    pub bytes: Vec<u8>,
}

/// A client for one image.
pub struct Client {
    reference: Reference,
    endpoints: Arc<[Endpoint]>,
    exchange: Arc<Exchange>,
    patience: Patience,
    started: Instant,
}

impl Client {
    /// A client that asks what the settings say for this image.
    pub fn new(reference: Reference, settings: Settings, patience: Patience) -> Result<Self, Error> {
        let endpoints = endpoint::of(&reference, &settings)?.into();
        let exchange = Arc::new(Exchange::new(settings));
        Ok(Self { reference, endpoints, exchange, patience, started: Instant::now() })
    }

    /// The same with its sign-ins for another pull, which may take so long from now on.
    #[must_use]
    pub fn anew(&self, patience: Patience) -> Self {
        let (endpoints, exchange) = (self.endpoints.clone(), self.exchange.clone());
        Self { reference: self.reference.clone(), endpoints, exchange, patience, started: Instant::now() }
    }

    /// The image of this name for machines of this architecture.
    pub async fn image(&self, architecture: &str) -> Result<Image, Error> {
        let name = self.reference.to_string();
        let first = self.document(&self.reference.target(), self.reference.digest).await?;
        let named = Digest::sha256(&[&first]);
        let mut digest = named;
        let mut document = document::parse(&name, &first)?;
        let mut documents = vec![Raw { media_type: document.media_type().to_owned(), bytes: first }];
        // An index may hold indexes; more than two of them is nobody's image.
        for _ in 0..2 {
            let Document::Index(index) = &document else { break };
            let chosen = index.choose(&name, architecture)?.digest;
            digest = chosen;
            let bytes = self.document(&format!("sha256:{chosen}"), Some(chosen)).await?;
            document = document::parse(&name, &bytes)?;
            documents.push(Raw { media_type: document.media_type().to_owned(), bytes });
        }
        let Document::Manifest(manifest) = document else {
            let reason = "an index in an index in an index".to_owned();
            return Err(Error::Document { what: "manifest", image: name, reason });
        };
        let config = Config::parse(&name, &self.small_blob("config", &manifest.config).await?)?;
        config.check(&name, architecture)?;
        Ok(Image { reference: self.reference.clone(), named, digest, manifest, config, documents })
    }

    /// A manifest or index.
    async fn document(&self, target: &str, wanted: Option<Digest>) -> Result<Vec<u8>, Error> {
        let what = format!("the manifest of {}", self.reference);
        let mut headers = HeaderMap::new();
        for kind in ACCEPTED {
            headers.append(ACCEPT, HeaderValue::from_static(kind));
        }
        let path = format!("manifests/{target}");
        let mut rounds = Rounds::new(self, &what);
        loop {
            let (endpoint, headers) = (rounds.endpoint()?, headers.clone());
            let fetched = async {
                let answer = self.exchange.get(endpoint, &path, headers).await?;
                exchange::content(answer.into_body(), document::MAX_BYTES).await
            };
            match fetched.await {
                Ok(bytes) => {
                    let found = Digest::sha256(&[&bytes]);
                    match wanted.filter(|wanted| *wanted != found) {
                        None => return Ok(bytes),
                        // A mirror that has something else is passed over as one that has nothing.
                        Some(wanted) => rounds.note(Fault::Final(
                            Error::Digest { what: what.clone(), wanted, found }.to_string(),
                        )),
                    }
                }
                Err(fault) => rounds.note(fault),
            }
            rounds.pause().await?;
        }
    }

    /// A blob that is small enough to be held.
    async fn small_blob(&self, what: &'static str, descriptor: &Descriptor) -> Result<Vec<u8>, Error> {
        if descriptor.size > document::MAX_BYTES as u64 {
            let reason = format!("longer than {} bytes", document::MAX_BYTES);
            return Err(Error::Document { what, image: self.reference.to_string(), reason });
        }
        let mut content = Vec::new();
        let mut blob = self.blob(descriptor);
        while let Some(chunk) = blob.chunk().await? {
            content.extend_from_slice(&chunk);
        }
        Ok(content)
    }

    /// A blob as a stream.
    #[must_use]
    pub fn blob(&self, descriptor: &Descriptor) -> Blob<'_> {
        Blob::new(self, descriptor)
    }
}

/// The turns of the addresses, and when it is enough.
struct Rounds<'c> {
    client: &'c Client,
    what: String,
    next: usize,
    /// What each address said in this round.
    faults: Vec<String>,
    may_pass: bool,
    pause: Duration,
    /// When something came last.
    progress: Instant,
}

impl<'c> Rounds<'c> {
    fn new(client: &'c Client, what: &str) -> Self {
        let what = what.to_owned();
        let (faults, pause) = (Vec::new(), FIRST_PAUSE);
        Self { client, what, next: 0, faults, may_pass: false, pause, progress: Instant::now() }
    }

    /// Whose turn it is.
    fn endpoint(&self) -> Result<&'c Endpoint, Error> {
        let none = || Error::Fetch { what: self.what.clone(), reasons: "no address to ask".into() };
        self.client.endpoints.get(self.next).ok_or_else(none)
    }

    /// Something came: the patience begins anew.
    fn progressed(&mut self) {
        self.progress = Instant::now();
        self.pause = FIRST_PAUSE;
        self.faults.clear();
    }

    fn note(&mut self, fault: Fault) {
        let address = self.client.endpoints.get(self.next).map_or("", |endpoint| endpoint.shown.as_str());
        let (text, may_pass) = match fault {
            Fault::Passing(text) => (text, true),
            Fault::Final(text) => (text, false),
        };
        self.may_pass |= may_pass;
        self.faults.push(format!("{address}: {text}"));
        self.next += 1;
    }

    /// All of a pull has an end, however slowly bytes drip in.
    fn check_total(&self) -> Result<(), Error> {
        let total = self.client.patience.total;
        if self.client.started.elapsed() < total {
            return Ok(());
        }
        let reasons =
            if self.faults.is_empty() { "it takes too long".into() } else { self.faults.join("; ") };
        let what = self.what.clone();
        Err(Error::Deadline { what, reasons, deadline: "pull", seconds: total.as_secs() })
    }

    /// Goes to the next address, after the last one back to the first and after a pause; or gives up.
    async fn pause(&mut self) -> Result<(), Error> {
        if self.next < self.client.endpoints.len() {
            return Ok(());
        }
        let (what, reasons) = (self.what.clone(), self.faults.join("; "));
        if !self.may_pass {
            return Err(Error::Fetch { what, reasons });
        }
        self.check_total()?;
        let stall = self.client.patience.stall;
        if self.progress.elapsed() >= stall {
            let seconds = stall.as_secs();
            return Err(Error::Deadline { what, reasons, deadline: "stalled pull", seconds });
        }
        tokio::time::sleep(self.pause.min(stall)).await;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        (self.next, self.may_pass) = (0, false);
        self.faults.clear();
        Ok(())
    }
}
