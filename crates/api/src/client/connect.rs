//! A connection to the first endpoint that answers.
//!
//! Order: endpoints are tried as they are written; the first with which TCP and TLS succeed is kept.
//! Fails by: [`ConnectError`] with the reason for each endpoint; a broken call is explained by [`Client::explain`].

use super::{
    endpoint::{Endpoint, EndpointError},
    watched::{LastWords, Watched},
};
use crate::{
    pki::CertificateFacts,
    proto::{
        billet::machine_service_client::MachineServiceClient as OwnClient,
        cosi::resource::state_client::StateClient, machine::machine_service_client::MachineServiceClient,
        resource::resource_service_client::ResourceServiceClient,
    },
    talosconfig::{Context, TalosconfigError},
    tls::{self, TlsError, Trust},
};
use hyper_util::rt::TokioIo;
use rustls::{ClientConfig, pki_types::ServerName};
use std::{io, sync::Arc, time::Duration};
use tokio::{net::TcpStream, time::timeout};
use tokio_rustls::{TlsConnector, client::TlsStream};
use tonic::{
    Code, Status,
    transport::{Channel, Uri},
};

/// How long one endpoint may take to answer.
pub const CONNECT_DEADLINE: Duration = Duration::from_secs(10);
/// Largest answer that is read, as the current client generation has it.
const MESSAGE_LIMIT_BYTES: usize = 32 << 20;
/// Ping period while a call is open, so that a dead node is noticed.
const KEEP_ALIVE: Duration = Duration::from_secs(10);
/// How long a ping may take.
const KEEP_ALIVE_DEADLINE: Duration = Duration::from_secs(5);

/// How to connect.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Instead of the context's endpoints.
    pub endpoints: Vec<String>,
    /// Instead of the context's nodes.
    pub nodes: Vec<String>,
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// Neither flags nor context name an endpoint.
    #[error("no endpoint is known; give -e/--endpoints or set `endpoints` in the context")]
    NoEndpoint,
    /// Text that is no endpoint.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    /// The context is no good.
    #[error(transparent)]
    Context(#[from] TalosconfigError),
    /// TLS can not be set up.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The own certificate is of no use any more.
    #[error(
        "the client certificate of the context has expired; make a new talosconfig with the cluster's CA"
    )]
    Expired,
    /// No endpoint answered.
    #[error("can not connect to the node API\n{}", .0.join("\n"))]
    Unreachable(Vec<String>),
}

/// A connection to one endpoint.
#[derive(Clone)]
pub struct Client {
    channel: Channel,
    endpoint: Endpoint,
    nodes: Vec<String>,
    words: LastWords,
}

impl Client {
    /// Connects with the CA and certificate of `context`.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub async fn connect(context: &Context, options: &Options) -> Result<Self, ConnectError> {
        let identity = context.identity()?;
        if let Some(identity) = &identity {
            let facts = CertificateFacts::from_pem("the client certificate", &identity.certificate);
            if facts.is_ok_and(|f| f.remaining().is_none()) {
                return Err(ConnectError::Expired);
            }
        }
        let Some(authority) = context.authority()? else {
            return Err(TalosconfigError::Field { field: "ca", reason: "missing" }.into());
        };
        let config = tls::client(Trust::Authority(&authority), identity.as_ref())?;
        let endpoints = if options.endpoints.is_empty() { &context.endpoints } else { &options.endpoints };
        let nodes = if options.nodes.is_empty() { context.nodes.clone() } else { options.nodes.clone() };
        Self::connect_with(config, endpoints, nodes).await
    }

    /// Connects with a TLS configuration of the caller's: maintenance mode, fingerprints, tests.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub async fn connect_with(
        config: Arc<ClientConfig>,
        endpoints: &[String],
        nodes: Vec<String>,
    ) -> Result<Self, ConnectError> {
        if endpoints.is_empty() {
            return Err(ConnectError::NoEndpoint);
        }
        let parsed = endpoints.iter().map(|e| e.parse::<Endpoint>()).collect::<Result<Vec<_>, _>>()?;
        let mut reasons = Vec::new();
        for endpoint in parsed {
            let words = LastWords::default();
            match open(&endpoint, &config, &words).await {
                Ok(channel) => return Ok(Self { channel, endpoint, nodes, words }),
                Err(reason) => reasons.push(format!("  {endpoint}: {reason}")),
            }
        }
        Err(ConnectError::Unreachable(reasons))
    }

    /// The endpoint that answered.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// The nodes that calls are for; empty for the endpoint itself.
    pub fn nodes(&self) -> &[String] {
        &self.nodes
    }

    /// What the node API has beyond talosctl's.
    pub fn own(&self) -> OwnClient<Channel> {
        OwnClient::new(self.channel.clone())
    }

    /// The node API.
    pub fn machine(&self) -> MachineServiceClient<Channel> {
        MachineServiceClient::new(self.channel.clone()).max_decoding_message_size(MESSAGE_LIMIT_BYTES)
    }

    /// Resources.
    pub fn state(&self) -> StateClient<Channel> {
        StateClient::new(self.channel.clone()).max_decoding_message_size(MESSAGE_LIMIT_BYTES)
    }

    /// Resources as the first client generation asks for them.
    pub fn resources(&self) -> ResourceServiceClient<Channel> {
        ResourceServiceClient::new(self.channel.clone()).max_decoding_message_size(MESSAGE_LIMIT_BYTES)
    }

    /// The channel, for services without a method here.
    pub fn channel(&self) -> Channel {
        self.channel.clone()
    }

    /// A failed call in words: what, where, what to do.
    pub fn explain(&self, status: &Status) -> String {
        let is_transport =
            matches!(status.code(), Code::Unavailable | Code::Unknown | Code::Internal | Code::Cancelled);
        let broken = self.words.get().filter(|_| is_transport);
        let text = match (broken, status.code()) {
            (Some(reason), _) => format!("the connection to {} broke: {reason}", self.endpoint),
            (None, Code::Ok) => "no answer".to_owned(),
            (None, code) => format!("{code:?}: {}", status.message()),
        };
        match hint(status.code(), &text) {
            Some(hint) => format!("{text}\n{hint}"),
            None => text,
        }
    }
}

fn hint(code: Code, text: &str) -> Option<&'static str> {
    if text.contains("client certificate") || text.contains("our certificate") {
        return Some(
            "the talosconfig does not fit this node: choose its context with --context, or make a new one",
        );
    }
    match code {
        Code::Unimplemented => Some("the node does not know this call; compare `billetctl version`"),
        Code::PermissionDenied => {
            Some("the certificate's role does not allow this call; use an os:admin talosconfig")
        }
        Code::Unavailable => Some("is the node up? `-e` chooses another endpoint"),
        _ => None,
    }
}

async fn open(endpoint: &Endpoint, config: &Arc<ClientConfig>, words: &LastWords) -> Result<Channel, String> {
    // The first connection is made here, so that its reason for failing is not wrapped by tonic; it is then handed
    // to tonic, which asks again only after a break.
    let first =
        Arc::new(std::sync::Mutex::new(Some(secure(endpoint, config).await.map_err(|e| tls::reason(&e))?)));
    let uri: Uri = format!("http://{endpoint}").parse().map_err(|_| "not an address".to_owned())?;
    let origin: Uri = format!("https://{endpoint}").parse().map_err(|_| "not an address".to_owned())?;
    let (endpoint, config, words) = (endpoint.clone(), Arc::clone(config), words.clone());
    let connector = tower::service_fn(move |_: Uri| {
        let ready = first.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
        let (endpoint, config, words) = (endpoint.clone(), Arc::clone(&config), words.clone());
        async move {
            let stream = match ready {
                Some(stream) => stream,
                None => secure(&endpoint, &config).await?,
            };
            Ok::<_, io::Error>(TokioIo::new(Watched::new(stream, words)))
        }
    });
    tonic::transport::Endpoint::from(uri)
        .origin(origin)
        .http2_keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE_DEADLINE)
        .connect_with_connector(connector)
        .await
        .map_err(|e| e.to_string())
}

async fn secure(endpoint: &Endpoint, config: &Arc<ClientConfig>) -> io::Result<TlsStream<TcpStream>> {
    let late = |what| {
        io::Error::new(io::ErrorKind::TimedOut, format!("no {what} within {} s", CONNECT_DEADLINE.as_secs()))
    };
    let name =
        ServerName::try_from(endpoint.host.clone()).map_err(|_| io::Error::other("not a name for TLS"))?;
    let tcp = timeout(CONNECT_DEADLINE, TcpStream::connect((endpoint.host.as_str(), endpoint.port)));
    let tcp = tcp.await.map_err(|_| late("TCP connection"))??;
    tcp.set_nodelay(true)?;
    let stream = timeout(CONNECT_DEADLINE, TlsConnector::from(Arc::clone(config)).connect(name, tcp));
    stream.await.map_err(|_| late("TLS handshake"))?
}
