//! The node's side.
//!
//! Owns: one question and its answer; trying again while the server cannot be reached, since at boot it is the network
//! that is late; the deadline for all of it.
//! Fails by: [`Error`]: a server that cannot be reached, and one that says no.

use std::error::Error as _;
use std::path::PathBuf;
use std::time::Duration;

use tonic::Code;
use tonic::transport::{Certificate, Channel, ClientTlsConfig};
use zeroize::Zeroizing;

use crate::Endpoint;
use crate::proto::Request;
use crate::proto::kms_service_client::KmsServiceClient;

/// For one question, with every attempt: as long as a network may take to come up.
const DEADLINE: Duration = Duration::from_secs(30);
/// For one attempt.
const ATTEMPT: Duration = Duration::from_secs(10);
/// For one connection, of the attempt's time.
const CONNECT: Duration = Duration::from_secs(5);
/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(500);
/// No key or sealed key is as long.
const MOST_BYTES: usize = 4096;

/// Whom the client believes to be the server it wants, with `https`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trust {
    /// Whom the authorities in this file (PEM) signed.
    File(PathBuf),
    /// Whom these authorities (PEM) signed.
    Authorities(String),
}

/// A server, as one node sees it.
#[derive(Debug, Clone)]
pub struct Client {
    endpoint: Endpoint,
    node: String,
    trust: Trust,
    deadline: Duration,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It cannot be reached.
    #[error("{endpoint}: {reason}; not reached within {seconds} s (deadline kms)")]
    Unreachable {
        /// The server.
        endpoint: Endpoint,
        /// The last attempt's reason.
        reason: String,
        /// How long it was tried.
        seconds: u64,
    },
    /// It says no.
    #[error("{endpoint} refuses: {reason}")]
    Refused {
        /// The server.
        endpoint: Endpoint,
        /// Its words.
        reason: String,
    },
    /// Its answer cannot be what was asked for.
    #[error("{endpoint} answers with {bytes} bytes, which is no key")]
    Answer {
        /// The server.
        endpoint: Endpoint,
        /// How many.
        bytes: usize,
    },
    /// Nobody can be believed.
    #[error("read the authorities in {}: {reason}", path.display())]
    Authorities {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
}

/// What one attempt came to.
enum Failure {
    /// The next may do better.
    Again(String),
    Final(Error),
}

#[derive(Clone, Copy)]
enum Call {
    Seal,
    Unseal,
}

impl Client {
    /// A server and the node's UUID.
    #[must_use]
    pub fn new(endpoint: Endpoint, node: &str, trust: Trust) -> Self {
        Self { endpoint, node: node.to_owned(), trust, deadline: DEADLINE }
    }

    /// With another deadline for one question.
    #[must_use]
    pub fn within(self, deadline: Duration) -> Self {
        Self { deadline, ..self }
    }

    /// Has a key sealed.
    pub async fn seal(&self, key: &[u8]) -> Result<Vec<u8>, Error> {
        self.ask(Call::Seal, key).await.map(|sealed| sealed.to_vec())
    }

    /// Has a sealed key unsealed.
    pub async fn unseal(&self, sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>, Error> {
        self.ask(Call::Unseal, sealed).await
    }

    async fn ask(&self, call: Call, data: &[u8]) -> Result<Zeroizing<Vec<u8>>, Error> {
        let mut reason = "no answer".to_owned();
        let attempts = async {
            loop {
                let again = match tokio::time::timeout(ATTEMPT, self.attempt(call, data)).await {
                    Ok(Ok(answer)) => return Ok(answer),
                    Ok(Err(Failure::Final(error))) => return Err(error),
                    Ok(Err(Failure::Again(again))) => again,
                    Err(_) => format!("no answer within {} s", ATTEMPT.as_secs()),
                };
                reason = again;
                tokio::time::sleep(PAUSE).await;
            }
        };
        let ended = tokio::time::timeout(self.deadline, attempts).await;
        let seconds = self.deadline.as_secs();
        let answer = ended.unwrap_or_else(|_| {
            Err(Error::Unreachable { endpoint: self.endpoint.clone(), reason, seconds })
        })?;
        match answer.len() {
            1..=MOST_BYTES => Ok(answer),
            bytes => Err(Error::Answer { endpoint: self.endpoint.clone(), bytes }),
        }
    }

    async fn attempt(&self, call: Call, data: &[u8]) -> Result<Zeroizing<Vec<u8>>, Failure> {
        let mut client = KmsServiceClient::new(self.connect().await?).max_decoding_message_size(1 << 20);
        let request = Request { node_uuid: self.node.clone(), data: data.to_vec() };
        let answer = match call {
            Call::Seal => client.seal(request).await,
            Call::Unseal => client.unseal(request).await,
        };
        match answer {
            Ok(answer) => Ok(Zeroizing::new(answer.into_inner().data)),
            Err(status) if matches!(status.code(), Code::Unavailable | Code::DeadlineExceeded) => {
                Err(Failure::Again(status.message().to_owned()))
            }
            Err(status) => {
                let reason = format!("{} ({:?})", status.message(), status.code());
                Err(Failure::Final(Error::Refused { endpoint: self.endpoint.clone(), reason }))
            }
        }
    }

    async fn connect(&self) -> Result<Channel, Failure> {
        let again = |error: tonic::transport::Error| Failure::Again(chain(&error));
        let endpoint = Channel::from_shared(self.endpoint.uri())
            .map_err(|error| Failure::Again(error.to_string()))?
            .connect_timeout(CONNECT);
        let endpoint = match self.endpoint.is_secure() {
            true => endpoint.tls_config(self.tls()?).map_err(again)?,
            false => endpoint,
        };
        endpoint.connect().await.map_err(again)
    }

    /// Read anew each time: the file may change.
    fn tls(&self) -> Result<ClientTlsConfig, Failure> {
        let authorities = match &self.trust {
            Trust::Authorities(pem) => pem.clone(),
            Trust::File(path) => std::fs::read_to_string(path).map_err(|error| {
                Failure::Final(Error::Authorities { path: path.clone(), reason: error.to_string() })
            })?,
        };
        Ok(ClientTlsConfig::new().ca_certificate(Certificate::from_pem(authorities)))
    }
}

/// The innermost reason: what is around it says no more than that something failed.
fn chain(error: &tonic::transport::Error) -> String {
    let mut text = error.to_string();
    let mut below = error.source();
    while let Some(error) = below {
        text = error.to_string();
        below = error.source();
    }
    text
}
