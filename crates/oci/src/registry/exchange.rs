//! Requests to a registry: connection, TLS, sign-in, redirects, and which failures may pass.
//!
//! Owns: one connection a request, through a proxy where there is one. Does not: choose the address.
//! Order: a request without a sign-in first, then with what the registry asked for; a sign-in never follows a redirect
//! to another host, nothing leads from https to http, and a password goes to no host that [`realm`] does not allow.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use super::auth::{self, Challenge};
use super::endpoint::Endpoint;
use super::expectation;
use super::proxy::Proxy;
use super::realm;
use super::tls::Connectors;
use super::{Auth, Settings};

/// For a TCP connection and its TLS, each.
const CONNECT_DEADLINE: Duration = Duration::from_secs(10);
/// Until an answer begins, and between two pieces of it.
pub(super) const ANSWER_DEADLINE: Duration = Duration::from_secs(30);
/// A server that sends us around more often than this goes in circles.
pub(crate) const MOST_REDIRECTS: usize = 5;
/// Longest text of an error or a token that is read.
const MAX_TEXT_BYTES: usize = 64 << 10;
/// Who we say we are.
const AGENT: &str = concat!("billet/", env!("CARGO_PKG_VERSION"));

/// What is sent with a request.
pub(crate) type Sent = UnsyncBoxBody<Bytes, std::io::Error>;

/// Why an address gave nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It may be otherwise in a moment.
    Passing(String),
    /// It will say the same again.
    Final(String),
}

impl Fault {
    fn passing(error: impl ToString) -> Self {
        Self::Passing(error.to_string())
    }
}

/// Connections with their settings, and the sign-ins that were worked out.
pub(crate) struct Exchange {
    settings: Settings,
    connectors: Connectors,
    /// By origin and repository. In memory for one pull.
    signed_in: Mutex<BTreeMap<String, HeaderValue>>,
}

impl Exchange {
    pub(crate) fn new(settings: Settings) -> Self {
        Self { connectors: Connectors::default(), signed_in: Mutex::default(), settings }
    }

    /// GET of something in the repository, signed in where that is asked for. 200 or 206.
    pub(super) async fn get(
        &self,
        endpoint: &Endpoint,
        path: &str,
        headers: HeaderMap,
    ) -> Result<Response<Incoming>, Fault> {
        let uri = endpoint.uri(path).map_err(Fault::Final)?;
        let key = format!("{}{}", endpoint.origin, endpoint.path);
        let known = self.signed_in().get(&key).cloned();
        let answer = self.follow(&uri, headers.clone(), known).await?;
        if answer.status() != StatusCode::UNAUTHORIZED {
            return checked(answer).await;
        }
        let challenge = Challenge::of(answer.headers()).map_err(Fault::Final)?;
        let withheld = challenge.realm().and_then(|realm| self.withheld(endpoint, &realm));
        let signed_in = async {
            let sign_in = self.sign_in(endpoint, &challenge, withheld.is_some()).await?;
            let Some(sign_in) = sign_in else { return checked(answer).await };
            self.signed_in().insert(key, sign_in.clone());
            checked(self.follow(&uri, headers, Some(sign_in)).await?).await
        };
        signed_in.await.map_err(|fault| match (withheld, fault) {
            (Some(host), Fault::Final(text)) => Fault::Final(format!("{text}; {}", realm::sentence(&host))),
            (_, fault) => fault,
        })
    }

    fn who(&self, endpoint: &Endpoint) -> Option<&Auth> {
        self.settings.hosts.get(&endpoint.host).and_then(|host| host.auth.as_ref())
    }

    /// The host that does not get the password that there is.
    fn withheld(&self, endpoint: &Endpoint, realm: &Uri) -> Option<String> {
        self.who(endpoint)?;
        realm::withheld(&self.settings, &endpoint.host, realm)
    }

    fn signed_in(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, HeaderValue>> {
        self.signed_in.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What to send as `Authorization`; `None` where we are nobody to this registry and it wants a password.
    async fn sign_in(
        &self,
        endpoint: &Endpoint,
        challenge: &Challenge,
        as_nobody: bool,
    ) -> Result<Option<HeaderValue>, Fault> {
        let who = self.who(endpoint).filter(|_| !as_nobody);
        match challenge {
            Challenge::Basic => auth::basic(who).map_err(Fault::Final),
            Challenge::Bearer(bearer) => {
                let request =
                    bearer.request(who, &endpoint.origin, &endpoint.repository).map_err(Fault::Final)?;
                let uri: Uri = request
                    .uri
                    .parse()
                    .map_err(|e| Fault::Final(format!("the sign-in address {:?}: {e}", bearer.realm)))?;
                let mut headers = HeaderMap::new();
                if request.form.is_some() {
                    let kind = HeaderValue::from_static("application/x-www-form-urlencoded");
                    headers.insert(header::CONTENT_TYPE, kind);
                }
                let answer = self.send(&uri, headers, request.authorization, request.form).await?;
                let status = answer.status();
                if status != StatusCode::OK {
                    let fault = format!("the sign-in at {} answers {status}", uri.host().unwrap_or_default());
                    return Err(if status.is_server_error() {
                        Fault::Passing(fault)
                    } else {
                        Fault::Final(fault)
                    });
                }
                let text = content(answer.into_body(), MAX_TEXT_BYTES).await?;
                auth::token(&text).map(Some).map_err(Fault::Final)
            }
        }
    }

    async fn follow(
        &self,
        from: &Uri,
        headers: HeaderMap,
        authorization: Option<HeaderValue>,
    ) -> Result<Response<Incoming>, Fault> {
        let mut uri = from.clone();
        for _ in 0..=MOST_REDIRECTS {
            let signed = authorization.clone().filter(|_| uri.authority() == from.authority());
            let answer = self.send(&uri, headers.clone(), signed, None).await?;
            if !answer.status().is_redirection() || answer.status() == StatusCode::NOT_MODIFIED {
                return Ok(answer);
            }
            uri = next(&uri, answer.headers()).map_err(Fault::Final)?;
        }
        Err(Fault::Final(format!("more than {MOST_REDIRECTS} redirects")))
    }

    /// One request, through the proxy of its host.
    pub(crate) async fn send(
        &self,
        uri: &Uri,
        headers: HeaderMap,
        authorization: Option<HeaderValue>,
        form: Option<String>,
    ) -> Result<Response<Incoming>, Fault> {
        self.send_request(uri, request(uri, headers, authorization, form)?, ANSWER_DEADLINE).await
    }

    /// PUT of a body of known length; `deadline`: until the answer to all of it.
    pub(crate) async fn put(
        &self,
        uri: &Uri,
        headers: HeaderMap,
        body: Sent,
        deadline: Duration,
    ) -> Result<Response<Incoming>, Fault> {
        let mut request = request(uri, headers, None, None)?;
        *request.method_mut() = Method::PUT;
        *request.body_mut() = body;
        expectation::expect(&mut request);
        self.send_request(uri, request, deadline).await
    }

    async fn send_request(
        &self,
        uri: &Uri,
        mut request: Request<Sent>,
        deadline: Duration,
    ) -> Result<Response<Incoming>, Fault> {
        let secure = uri.scheme_str() == Some("https");
        // What stands in the address may be a secret.
        let host = uri.host().ok_or_else(|| Fault::Final("the address names no host".to_owned()))?;
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let port = uri.port_u16().unwrap_or(if secure { 443 } else { 80 });
        let Some(proxy) = self.settings.proxies.for_host(secure, bare, port) else {
            let stream = dial(bare, port, "").await?;
            return if secure {
                self.speak_tls(stream, uri, bare, request, deadline).await
            } else {
                speak(stream, request, deadline).await
            };
        };
        let stream = dial(&proxy.host, proxy.port, "proxy ").await?;
        if secure {
            let stream = tunnel(stream, proxy, host, port).await?;
            return self.speak_tls(stream, uri, bare, request, deadline).await;
        }
        // A proxy wants the whole address.
        *request.uri_mut() = uri.clone();
        if let Some(value) = &proxy.authorization {
            request.headers_mut().insert(header::PROXY_AUTHORIZATION, value.clone());
        }
        speak(stream, request, deadline).await
    }

    async fn speak_tls<S>(
        &self,
        stream: S,
        uri: &Uri,
        host: &str,
        request: Request<Sent>,
        deadline: Duration,
    ) -> Result<Response<Incoming>, Fault>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let authority = uri.authority().map_or(host, |authority| authority.as_str());
        let late = |_| Fault::Passing(format!("TLS with {host}: no answer (deadline connect)"));
        let connect = self.connectors.connect(&self.settings, authority, host, stream);
        let stream = tokio::time::timeout(CONNECT_DEADLINE, connect).await.map_err(late)?;
        speak(stream?, request, deadline).await
    }
}

/// A TCP connection; `who` stands before the address in errors.
async fn dial(host: &str, port: u16, who: &str) -> Result<TcpStream, Fault> {
    let failed = |why: &str| Fault::Passing(format!("connect to {who}{host}:{port}: {why}"));
    let connect = tokio::time::timeout(CONNECT_DEADLINE, TcpStream::connect((host, port))).await;
    connect.map_err(|_| failed("no answer (deadline connect)"))?.map_err(|e| failed(&e.to_string()))
}

/// Has a proxy connect us with a host, and leave the rest to us.
async fn tunnel(stream: TcpStream, proxy: &Proxy, host: &str, port: u16) -> Result<TokioIo<Upgraded>, Fault> {
    let to = format!("{host}:{port}");
    let mut request = Request::builder().method(Method::CONNECT).uri(&to).header(header::HOST, &to);
    if let Some(value) = &proxy.authorization {
        request = request.header(header::PROXY_AUTHORIZATION, value);
    }
    let request = request.body(text(String::new())).map_err(|e| Fault::Final(format!("{to}: {e}")))?;
    let answer = speak(stream, request, ANSWER_DEADLINE).await?;
    match answer.status() {
        status if status.is_success() => {}
        StatusCode::PROXY_AUTHENTICATION_REQUIRED => {
            let text = format!("proxy {}: it wants a name and password, or others (407)", proxy.host);
            return Err(Fault::Final(text));
        }
        status => {
            let text = format!("proxy {}: no way to {to}: it answered {status}", proxy.host);
            return Err(if status.is_server_error() { Fault::Passing(text) } else { Fault::Final(text) });
        }
    }
    hyper::upgrade::on(answer).await.map(TokioIo::new).map_err(Fault::passing)
}

fn request(
    uri: &Uri,
    headers: HeaderMap,
    authorization: Option<HeaderValue>,
    form: Option<String>,
) -> Result<Request<Sent>, Fault> {
    let method = if form.is_some() { Method::POST } else { Method::GET };
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let host = uri.authority().map_or("", |authority| authority.as_str());
    let mut request = Request::builder()
        .method(method)
        .uri(path)
        .header(header::HOST, host)
        .header(header::USER_AGENT, AGENT)
        .header(header::ACCEPT_ENCODING, "identity")
        .body(text(form.unwrap_or_default()))
        .map_err(|e| Fault::Final(format!("{uri}: {e}")))?;
    request.headers_mut().extend(headers);
    if let Some(value) = authorization {
        request.headers_mut().insert(header::AUTHORIZATION, value);
    }
    Ok(request)
}

fn text(text: String) -> Sent {
    Full::new(Bytes::from(text)).map_err(|never| match never {}).boxed_unsync()
}

async fn speak<S>(stream: S, request: Request<Sent>, deadline: Duration) -> Result<Response<Incoming>, Fault>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let exchange = async {
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(Fault::passing)?;
        // It ends with the answer's body, or goes on as a tunnel.
        tokio::spawn(connection.with_upgrades());
        sender.send_request(request).await.map_err(Fault::passing)
    };
    let late = |_| Fault::Passing(format!("no answer within {} s (deadline answer)", deadline.as_secs()));
    tokio::time::timeout(deadline, exchange).await.map_err(late)?
}

/// 200 and 206 are answers; everything else is a fault with what the registry says about it.
async fn checked(answer: Response<Incoming>) -> Result<Response<Incoming>, Fault> {
    let status = answer.status();
    if matches!(status, StatusCode::OK | StatusCode::PARTIAL_CONTENT) {
        return Ok(answer);
    }
    let what = match status {
        StatusCode::NOT_FOUND => "not there (404)".to_owned(),
        StatusCode::UNAUTHORIZED => {
            "not signed in, or not with the right name and password (401): see machine.registries.config"
                .to_owned()
        }
        StatusCode::FORBIDDEN => "not allowed for this node's sign-in (403)".to_owned(),
        other => format!("answered {other}"),
    };
    let text = content(answer.into_body(), MAX_TEXT_BYTES).await.unwrap_or_default();
    let what = match auth::message(&text) {
        Some(message) => format!("{what}: {message}"),
        None => what,
    };
    let may_pass = status.is_server_error()
        || matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT);
    Err(if may_pass { Fault::Passing(what) } else { Fault::Final(what) })
}

/// All of a body, up to a limit.
pub(crate) async fn content(body: Incoming, limit: usize) -> Result<Vec<u8>, Fault> {
    let collect = tokio::time::timeout(ANSWER_DEADLINE, Limited::new(body, limit).collect());
    let late = |_| {
        Fault::Passing(format!(
            "its answer did not end within {} s (deadline answer)",
            ANSWER_DEADLINE.as_secs()
        ))
    };
    let collected = collect.await.map_err(late)?;
    let collected =
        collected.map_err(|error| match error.downcast_ref::<http_body_util::LengthLimitError>() {
            Some(_) => Fault::Final(format!("its answer is longer than {limit} bytes")),
            None => Fault::Passing(error.to_string()),
        })?;
    Ok(collected.to_bytes().to_vec())
}

/// Where a redirect leads.
pub(crate) fn next(from: &Uri, headers: &HeaderMap) -> Result<Uri, String> {
    let to = headers.get(header::LOCATION).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let to: Uri = to.parse().map_err(|e| format!("redirect: {e}"))?;
    let mut parts = to.into_parts();
    // A relative address keeps the server.
    parts.scheme = parts.scheme.or_else(|| from.scheme().cloned());
    parts.authority = parts.authority.or_else(|| from.authority().cloned());
    let to = Uri::from_parts(parts).map_err(|e| format!("redirect: {e}"))?;
    match (from.scheme_str(), to.scheme_str()) {
        (_, Some("https")) | (Some("http"), Some("http")) => Ok(to),
        _ => Err(format!("redirect from https to {}, which is not encrypted", to.host().unwrap_or_default())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirects_stay_encrypted() {
        let to = |from: &str, location: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::LOCATION, location.parse().unwrap());
            next(&from.parse().unwrap(), &headers).map(|uri| uri.to_string())
        };
        assert_eq!(to("https://a/b", "/c?d=e").unwrap(), "https://a/c?d=e");
        assert_eq!(to("http://a/b", "https://c/d").unwrap(), "https://c/d");
        assert!(
            to("https://a/b", "http://c/d?secret=1").unwrap_err().ends_with("to c, which is not encrypted")
        );
        assert!(to("http://a/b", "ftp://c/d").is_err());
    }
}
