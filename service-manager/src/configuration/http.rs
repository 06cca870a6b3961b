//! A file over http or https.
//!
//! Owns: one GET with redirects, a limit of size and a deadline for all of it.
//! Does not: try again (the caller does), or send anything about this node that is not in the address.
//! Fails by: the sentences that clients of both generations know (docs/users/kernel-parameters.md).

use std::sync::Arc;
use std::time::Duration;

use http::{Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::{Bytes, Incoming};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use rustls::pki_types::pem::PemObject;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use zeroize::Zeroizing;

/// For one attempt, redirects included.
const DEADLINE: Duration = Duration::from_secs(60);
/// A server that sends us around more often than this goes in circles.
const MOST_REDIRECTS: usize = 5;
/// The authorities that the image and the config name.
const AUTHORITIES: &str = "/etc/ssl/certs/ca-certificates";

/// Fetches a text.
pub(super) async fn get(address: &str) -> Result<Zeroizing<String>, String> {
    match tokio::time::timeout(DEADLINE, follow(address)).await {
        Ok(result) => result,
        Err(_) => {
            let seconds = DEADLINE.as_secs();
            Err(format!(
                "failed to download config from {address:?}: nothing within {seconds} s (deadline download)"
            ))
        }
    }
}

async fn follow(address: &str) -> Result<Zeroizing<String>, String> {
    let failed = |reason: String| format!("failed to download config from {address:?}: {reason}");
    let mut uri: Uri = address.parse().map_err(|e| failed(format!("not an address: {e}")))?;
    for _ in 0..=MOST_REDIRECTS {
        let response = request(&uri).await.map_err(failed)?;
        let status = response.status();
        if status.is_redirection() {
            uri = next(&uri, response.headers()).map_err(failed)?;
            continue;
        }
        if status != StatusCode::OK {
            return Err(format!("failed to download config, received {}", status.as_u16()));
        }
        return text(response).await.map_err(failed);
    }
    Err(failed(format!("more than {MOST_REDIRECTS} redirects")))
}

fn next(from: &Uri, headers: &http::HeaderMap) -> Result<Uri, String> {
    let to = headers.get(header::LOCATION).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let to: Uri = to.parse().map_err(|e| format!("redirect to {to:?}: {e}"))?;
    let mut parts = to.into_parts();
    // A relative address keeps the server.
    parts.scheme = parts.scheme.or_else(|| from.scheme().cloned());
    parts.authority = parts.authority.or_else(|| from.authority().cloned());
    let to = Uri::from_parts(parts).map_err(|e| format!("redirect: {e}"))?;
    if from.scheme_str() == Some("https") && to.scheme_str() != Some("https") {
        return Err(format!("redirect from https to {to}, which is not encrypted"));
    }
    Ok(to)
}

async fn request(uri: &Uri) -> Result<http::Response<Incoming>, String> {
    let host = uri.host().ok_or("no host in the address")?;
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let secure = match uri.scheme_str() {
        Some("http") => false,
        Some("https") => true,
        other => return Err(format!("{} is not http or https", other.unwrap_or("nothing"))),
    };
    let port = uri.port_u16().unwrap_or(if secure { 443 } else { 80 });
    let stream =
        TcpStream::connect((bare, port)).await.map_err(|e| format!("connect to {host}:{port}: {e}"))?;
    if !secure {
        return send(stream, uri).await;
    }
    let name = ServerName::try_from(bare.to_owned()).map_err(|e| format!("{bare}: {e}"))?;
    let connector = tokio_rustls::TlsConnector::from(tls()?);
    send(connector.connect(name, stream).await.map_err(|e| format!("TLS with {host}: {e}"))?, uri).await
}

async fn send<S>(stream: S, uri: &Uri) -> Result<http::Response<Incoming>, String>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|e| e.to_string())?;
    // It ends with the answer's body.
    tokio::spawn(connection);
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let host = uri.authority().map_or("", |authority| authority.as_str());
    let request = Request::get(path)
        .header(header::HOST, host)
        .header(header::USER_AGENT, concat!("billet/", env!("CARGO_PKG_VERSION")))
        .header(header::ACCEPT_ENCODING, "identity")
        .body(Empty::<Bytes>::new())
        .map_err(|e| e.to_string())?;
    sender.send_request(request).await.map_err(|e| e.to_string())
}

async fn text(response: http::Response<Incoming>) -> Result<Zeroizing<String>, String> {
    let limit = usize::try_from(super::MAX_BYTES).unwrap_or(usize::MAX);
    let body = Limited::new(response.into_body(), limit).collect().await.map_err(|e| e.to_string())?;
    let bytes = Zeroizing::new(body.to_bytes().to_vec());
    super::found::text_of(&bytes)
}

/// Trusts the authorities of the image and of the config. Read anew each time: both may change.
fn tls() -> Result<Arc<rustls::ClientConfig>, String> {
    let mut roots = rustls::RootCertStore::empty();
    let found = rustls::pki_types::CertificateDer::pem_file_iter(AUTHORITIES)
        .map_err(|e| format!("read {AUTHORITIES}: {e}"))?;
    roots.add_parsable_certificates(found.flatten());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| e.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    /// A server that gives one answer after the other, and the requests it got.
    async fn server(answers: Vec<String>) -> (String, tokio::task::JoinHandle<Vec<String>>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let serving = tokio::spawn(async move {
            let mut requests = Vec::new();
            for answer in answers {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut request = vec![0; 4096];
                let length = stream.read(&mut request).await.unwrap();
                requests.push(String::from_utf8_lossy(&request[..length]).into_owned());
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
            requests
        });
        (address, serving)
    }

    fn ok(body: &str) -> String {
        format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len())
    }

    #[tokio::test]
    async fn a_config_is_fetched_past_a_redirect() {
        let moved = "HTTP/1.1 302 Found\r\nLocation: /there?x=1\r\nContent-Length: 0\r\n\r\n".to_owned();
        let (address, serving) = server(vec![moved, ok("version: v1alpha1\n")]).await;
        let text = get(&format!("{address}/here")).await.unwrap();
        assert_eq!(text.as_str(), "version: v1alpha1\n");
        let requests = serving.await.unwrap();
        assert!(
            requests[0].starts_with("GET /here HTTP/1.1\r\n") && requests[1].starts_with("GET /there?x=1 ")
        );
    }

    #[tokio::test]
    async fn refusals_and_dead_servers_are_said() {
        let (address, _) = server(vec!["HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".into()]).await;
        assert_eq!(get(&address).await.unwrap_err(), "failed to download config, received 404");
        let error = get(&address).await.unwrap_err();
        assert!(
            error.starts_with(&format!("failed to download config from \"{address}\": connect to")),
            "{error}"
        );
        assert!(get("ftp://h/x").await.unwrap_err().contains("ftp is not http or https"));
    }

    #[tokio::test]
    async fn an_empty_answer_and_circles_are_refused() {
        let (address, _) = server(vec![ok(" \n")]).await;
        assert!(get(&address).await.unwrap_err().contains("is empty"));
        let moved = "HTTP/1.1 302 Found\r\nLocation: /\r\nContent-Length: 0\r\n\r\n".to_owned();
        let (address, _) = server(vec![moved; 9]).await;
        assert!(get(&address).await.unwrap_err().contains("more than 5 redirects"));
    }

    #[test]
    fn nothing_leads_out_of_https() {
        let mut headers = http::HeaderMap::new();
        headers.insert(header::LOCATION, "http://other/x".parse().unwrap());
        assert!(next(&"https://h/".parse().unwrap(), &headers).unwrap_err().contains("not encrypted"));
        assert_eq!(next(&"http://h/".parse().unwrap(), &headers).unwrap().to_string(), "http://other/x");
    }
}
