//! The proxy: judges a request, and passes it to machined, to another node, or to several.
//!
//! Frames are passed on as they are; only answers to `nodes` are looked into ([`super::gather`]).
//! No loops: a request that another node passed on is always answered here.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};

use api::pki::CertificateFacts;
use api::roles::{Role, RoleSet};
use api::tls;
use http::{HeaderMap, HeaderValue, Request, Response, Uri};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use runtime::request::{self, Call, Report};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;
use tonic::{Code, Status};

use super::backend::{Backend, Body};
use super::bodies::{self, Bounded};
use super::calls::{CallLog, Who};
use super::clients::{Client, Clients};
use super::forward::{Forwarder, Nodes};
use super::frames::{held_until_end, refusal};
use super::gather;
use super::names::Names;
use super::targets::{Target, target};
use crate::connections::Held;
use crate::locked::{self, Maintenance};
use crate::programs::CALLER;

/// What a request that brings much counts as: so many of them may be in machined's memory.
const LARGE_WEIGHT: usize = 64;

/// Where a caller's places are counted, and whose they are.
type Places = (Clients, Client);

/// The one behind a connection.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    peer: Option<SocketAddr>,
    who: Who,
    roles: Arc<RoleSet>,
    ways: Arc<Ways>,
    clients: Clients,
    client: Arc<Client>,
}

/// What the requests of one connection are passed on by. Each connection of a client has its own: streams that one client
/// does not read must not hold up another one's.
#[derive(Debug)]
pub(super) struct Ways {
    backend: Backend,
    nodes: Nodes,
}

impl Caller {
    /// Reads the certificate that the client showed; `own` are the clients of `machine.ca`.
    pub(super) fn of(
        stream: &TlsStream<TcpStream>,
        own: &tls::Clients,
        machined: &Path,
        places: Places,
    ) -> Self {
        let (tcp, tls) = stream.get_ref();
        let certificate = tls.peer_certificates().and_then(|chain| chain.first());
        let roles = certificate.and_then(|der| {
            let facts = CertificateFacts::from_der("the client certificate", der).ok()?;
            Some(RoleSet::of_certificate(&facts, own.include(der)))
        });
        // One that cannot be read has no role at all.
        let roles = roles.unwrap_or_default();
        Self::new(tcp.peer_addr().ok(), roles, machined, places)
    }

    /// A client without a certificate, while the node is in maintenance (docs/users/config-lifecycle.md).
    pub(super) fn unknown(stream: &TlsStream<TcpStream>, machined: &Path, places: Places) -> Self {
        let peer = stream.get_ref().0.peer_addr().ok();
        Self::new(peer, RoleSet::one(Role::Reader), machined, places)
    }

    fn new(peer: Option<SocketAddr>, roles: RoleSet, machined: &Path, (clients, client): Places) -> Self {
        let (roles, client) = (Arc::new(roles), Arc::new(client));
        let who = Who::new(peer, client.clone());
        Self { peer, who, roles, ways: Ways::new(machined), clients, client }
    }

    /// Places for one request, for as long as its answer lasts.
    fn hold(&self, path: &str, target: &Target) -> Result<Held<Client>, Status> {
        let weight = match target {
            Target::Nodes(names) => names.len().max(1),
            _ if bodies::is_large(path) => LARGE_WEIGHT,
            _ => 1,
        };
        let held = self.clients.call(&self.client, weight, self.roles.contains(Role::Impersonator));
        held.ok_or_else(|| {
            Status::resource_exhausted(
                "this client, or all clients together, have as many calls under way as they may: end one first",
            )
        })
    }

    /// The client's network, by which machined counts streams: as a forwarding node says, else the peer's.
    fn address(&self, headers: &HeaderMap) -> Option<HeaderValue> {
        let told = headers.get(CALLER).filter(|_| self.roles.contains(Role::Impersonator));
        let told = told.and_then(|value| value.to_str().ok()?.parse().ok());
        let address: IpAddr = told.or_else(|| Some(self.peer?.ip()))?;
        HeaderValue::from_str(&tls::network(address).to_string()).ok()
    }

    /// The roles of one request: those that a forwarding node vouches for, else the caller's own.
    fn roles(&self, headers: &HeaderMap) -> RoleSet {
        if !self.roles.contains(Role::Impersonator) {
            return (*self.roles).clone();
        }
        RoleSet::from_names(headers.get_all("talos-role").iter().filter_map(|value| value.to_str().ok()))
    }
}

impl Ways {
    fn new(machined: &Path) -> Arc<Self> {
        Arc::new(Self { backend: Backend::new(machined), nodes: Nodes::default() })
    }
}

/// The proxy of one node.
pub(crate) struct Proxy {
    pub(super) names: Arc<Names>,
    pub(super) forwarder: Forwarder,
    /// Without a config in force callers have no certificates, and no other node is reached through this one.
    maintenance: RwLock<Maintenance>,
    report: Report,
    pub(super) log: CallLog,
}

impl fmt::Debug for Proxy {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Proxy").field("names", &self.names).finish_non_exhaustive()
    }
}

/// What goes on with a request besides its body.
#[derive(Debug, Clone)]
pub(super) struct Head {
    pub(super) path: String,
    headers: HeaderMap,
    roles: RoleSet,
    /// The name by which the client called this node.
    authority: String,
    /// The client's address.
    caller: Option<HeaderValue>,
    ways: Arc<Ways>,
}

impl Proxy {
    pub(super) fn new(
        names: Arc<Names>,
        forwarder: Forwarder,
        maintenance: Maintenance,
        report: Report,
    ) -> Self {
        let log = CallLog::new(report.clone());
        Self { names, forwarder, maintenance: RwLock::new(maintenance), report, log }
    }

    pub(super) fn maintenance(&self) -> Maintenance {
        self.maintenance.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Another kind of maintenance, or another reason. Who shows no certificate never gets what needs one.
    pub(super) fn set_maintenance(&self, next: &Maintenance) {
        let mut now = self.maintenance.write().unwrap_or_else(PoisonError::into_inner);
        if *now != Maintenance::No && *next != Maintenance::No {
            next.clone_into(&mut now);
        }
    }

    /// Answers one request; a panic meanwhile is its answer.
    pub(crate) async fn answer(
        self: &Arc<Self>,
        caller: &Caller,
        request: Request<Incoming>,
    ) -> Response<Body> {
        let call = Call::new(request.uri().path(), &self.report);
        let roles = caller.roles(request.headers());
        let record = self.log.begin(&caller.who, &roles, request.uri().path());
        let answered = request::of_call(call, self.answer_in_scope(caller, roles, request)).await;
        record.until_end(answered.unwrap_or_else(|panicked| refusal(&panicked.into())))
    }

    async fn answer_in_scope(
        self: &Arc<Self>,
        caller: &Caller,
        roles: RoleSet,
        request: Request<Incoming>,
    ) -> Response<Body> {
        let path = request.uri().path().to_owned();
        let maintenance = self.maintenance();
        if let Err(denied) = roles.authorize(&path, maintenance.mode()) {
            let text = match maintenance.lock() {
                Some(why) => locked::refusal(&path, why),
                None => denied.to_string(),
            };
            return refusal(&Status::permission_denied(text));
        }
        let target = match target(&path, request.headers()) {
            _ if maintenance != Maintenance::No => Target::Here,
            Ok(target) => target,
            Err(status) => return refusal(&status),
        };
        let held = match caller.hold(&path, &target) {
            Ok(held) => held,
            Err(status) => return refusal(&status),
        };
        let (parts, body) = request.into_parts();
        let authority = parts.uri.authority().map_or_else(|| "unknown".to_owned(), ToString::to_string);
        let address = caller.address(&parts.headers);
        let ways = caller.ways.clone();
        let head = Head { path, headers: parts.headers, roles, authority, caller: address, ways };
        let answered = match target {
            Target::Here => self.ask_one(&head, None, body).await,
            Target::Node(name) => self.ask_one(&head, Some(&name), body).await,
            Target::Nodes(names) => Ok(gather::gather(self.clone(), head, body, names).await),
        };
        match answered {
            Ok(response) => held_until_end(response, held),
            Err(status) => refusal(&status),
        }
    }

    /// Passes a request on as it comes, up to what its call may bring.
    async fn ask_one(
        &self,
        head: &Head,
        target: Option<&str>,
        body: Incoming,
    ) -> Result<Response<Body>, Status> {
        let (body, too_long) = Bounded::new(&head.path, body);
        tokio::select! {
            answered = self.ask(head, target, body.boxed()) => Ok(answered?.map(BodyExt::boxed)),
            Ok(too_long) = too_long => Err(too_long.status(&head.path)),
        }
    }

    /// Asks machined, or the node of this name if it is not this one.
    pub(super) async fn ask(
        &self,
        head: &Head,
        target: Option<&str>,
        body: Body,
    ) -> Result<Response<Incoming>, Status> {
        #[cfg(test)]
        request::testing::fault("proxy", target.unwrap_or_default());
        match target.filter(|name| !self.names.contains(name)) {
            Some(name) => {
                let asked = self.forwarder.call(&head.ways.nodes, name, head.for_node(name, body)).await;
                asked.map_err(|status| head.told(name, status))
            }
            None => {
                let asked = head.ways.backend.call(head.for_machined(body)).await;
                asked.map_err(|e| Status::unavailable(e.to_string()))
            }
        }
    }
}

/// What is passed on of a request's own headers.
const PASSED: [&str; 6] =
    ["content-type", "te", "grpc-timeout", "grpc-encoding", "grpc-accept-encoding", "user-agent"];

impl Head {
    fn for_machined(&self, body: Body) -> Request<Body> {
        self.request("http", "machined", body)
    }

    /// For another node, which must answer itself and take our word for the roles and for who asks.
    fn for_node(&self, target: &str, body: Body) -> Request<Body> {
        // A bare IPv6 address is no authority.
        let authority = if target.contains(':') { format!("[{target}]") } else { target.to_owned() };
        let mut request = self.request("https", &authority, body);
        let from = HeaderValue::from_str(&self.authority);
        let from = from.unwrap_or_else(|_| HeaderValue::from_static("unknown"));
        request.headers_mut().insert("proxyfrom", from);
        request
    }

    /// What a client is told of another node that does not answer: why not says what is at an address that any client may
    /// name, which is an administrator's to know.
    fn told(&self, target: &str, status: Status) -> Status {
        if status.code() != Code::Unavailable || self.roles.contains(Role::Admin) {
            return status;
        }
        Status::unavailable(format!("node {target} is not reachable from this node"))
    }

    /// Only what the receiver needs, with the roles and the address that apid vouches for.
    fn request(&self, scheme: &str, authority: &str, body: Body) -> Request<Body> {
        let mut request = Request::new(body);
        *request.method_mut() = http::Method::POST;
        *request.version_mut() = http::Version::HTTP_2;
        let uri =
            Uri::builder().scheme(scheme).authority(authority).path_and_query(self.path.as_str()).build();
        *request.uri_mut() = uri.unwrap_or_else(|_| Uri::from_static("http://machined/"));
        for name in PASSED {
            if let Some(value) = self.headers.get(name) {
                request.headers_mut().insert(name, value.clone());
            }
        }
        if let Some(caller) = &self.caller {
            request.headers_mut().insert(CALLER, caller.clone());
        }
        for role in self.roles.names() {
            request.headers_mut().append("talos-role", HeaderValue::from_static(role));
        }
        request
    }
}
