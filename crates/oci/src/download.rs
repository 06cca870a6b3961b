//! A file that belongs to no image: one GET through the node's proxies, verified by the node's authorities.
//!
//! Owns: who gets the caller's headers and the password in the address: the server that the address names, and no other.
//! Does not: try again, or know mirrors and sign-ins of registries.
//! Fails by: a sentence; it holds no password and no header.

use std::collections::BTreeMap;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, header};

use crate::registry::{Exchange, Fault, MOST_REDIRECTS, Settings, basic, content, next};

/// For all of it, redirects included.
const DEADLINE: Duration = Duration::from_secs(60);

/// Downloads what lies at an http or https address, up to `max_bytes`.
///
/// # Errors
/// In words why not.
pub async fn download(
    settings: Settings,
    address: &str,
    headers: &BTreeMap<String, String>,
    max_bytes: usize,
) -> Result<Vec<u8>, String> {
    let late = |_| format!("it did not come within {} s (deadline download)", DEADLINE.as_secs());
    tokio::time::timeout(DEADLINE, follow(settings, address, headers, max_bytes)).await.map_err(late)?
}

/// Asks whether a server answers at an http or https address with success; what it answers is not read. Redirects are not
/// followed: they are no failure either. The caller sets a deadline.
///
/// # Errors
/// In words why not.
pub async fn answers(settings: Settings, address: &str) -> Result<(), String> {
    let (uri, password) = parse(address)?;
    let answer = Exchange::new(settings).send(&uri, HeaderMap::new(), password, None).await.map_err(words)?;
    match answer.status() {
        status if status.is_success() || status.is_redirection() => Ok(()),
        status => Err(format!("{} answered {status}", uri.host().unwrap_or_default())),
    }
}

async fn follow(
    settings: Settings,
    address: &str,
    headers: &BTreeMap<String, String>,
    max_bytes: usize,
) -> Result<Vec<u8>, String> {
    let exchange = Exchange::new(settings);
    let (first, password) = parse(address)?;
    let headers = sent(headers)?;
    let mut uri = first.clone();
    for _ in 0..=MOST_REDIRECTS {
        let is_first = (uri.scheme(), uri.authority()) == (first.scheme(), first.authority());
        let (headers, password) =
            if is_first { (headers.clone(), password.clone()) } else { (HeaderMap::new(), None) };
        let answer = exchange.send(&uri, headers, password, None).await.map_err(words)?;
        let status = answer.status();
        if status == StatusCode::OK {
            return content(answer.into_body(), max_bytes).await.map_err(words);
        }
        if !status.is_redirection() {
            return Err(format!("{} answered {status}", uri.host().unwrap_or_default()));
        }
        (uri, _) = split(next(&uri, answer.headers())?)?;
    }
    Err(format!("more than {MOST_REDIRECTS} redirects"))
}

pub(crate) fn words(fault: Fault) -> String {
    match fault {
        Fault::Passing(text) | Fault::Final(text) => text,
    }
}

pub(crate) fn parse(address: &str) -> Result<(Uri, Option<HeaderValue>), String> {
    let uri: Uri = address.parse().map_err(|error| format!("it is no address: {error}"))?;
    match uri.scheme_str() {
        Some("http" | "https") => split(uri),
        scheme => Err(format!("{} is not http or https", scheme.unwrap_or("its scheme"))),
    }
}

/// An address without its user and password, and these as a header.
fn split(uri: Uri) -> Result<(Uri, Option<HeaderValue>), String> {
    let Some((who, host)) = uri.authority().and_then(|authority| authority.as_str().rsplit_once('@')) else {
        return Ok((uri, None));
    };
    let (value, host) = (basic(who)?, host.parse().map_err(|_| "its host is none")?);
    let mut parts = uri.into_parts();
    parts.authority = Some(host);
    let uri = Uri::from_parts(parts).map_err(|error| format!("it is no address: {error}"))?;
    Ok((uri, Some(value)))
}

pub(crate) fn sent(headers: &BTreeMap<String, String>) -> Result<HeaderMap, String> {
    let mut sent = HeaderMap::new();
    for (name, value) in headers {
        let wrong = || format!("the header {name:?} cannot be sent");
        let key = HeaderName::from_bytes(name.as_bytes()).map_err(|_| wrong())?;
        let mut value = HeaderValue::from_str(value).map_err(|_| wrong())?;
        value.set_sensitive(true);
        if matches!(key, header::CONTENT_LENGTH | header::TRANSFER_ENCODING | header::CONNECTION) {
            return Err(wrong());
        }
        sent.insert(key, value);
    }
    Ok(sent)
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;
    use crate::registry::Proxies;

    /// A server that gives one answer after the other, and the requests it got.
    async fn server(answers: Vec<String>) -> (String, tokio::task::JoinHandle<Vec<String>>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let serving = tokio::spawn(async move {
            let mut requests = Vec::new();
            for answer in answers {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut request = vec![0; 4096];
                let length = stream.read(&mut request).await.unwrap();
                requests.push(String::from_utf8_lossy(&request[..length]).to_ascii_lowercase());
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
            requests
        });
        (address, serving)
    }

    fn ok(body: &str) -> String {
        format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len())
    }

    fn moved(to: &str) -> String {
        format!("HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n")
    }

    async fn get(address: &str, limit: usize) -> Result<Vec<u8>, String> {
        let headers = [("X-Key".to_owned(), "hunter2".to_owned())].into();
        download(Settings::default(), address, &headers, limit).await
    }

    #[tokio::test]
    async fn headers_and_passwords_go_to_the_named_server_alone() {
        let (other, others) = server(vec![ok("apiVersion: v1\n")]).await;
        let (address, serving) = server(vec![moved("/b"), moved(&format!("http://{other}/c"))]).await;
        let text = get(&format!("http://me:secret@{address}/a?x=1"), 100).await.unwrap();
        assert_eq!(text, b"apiVersion: v1\n");
        let requests = serving.await.unwrap();
        assert!(requests[0].starts_with("get /a?x=1 http/1.1\r\n") && requests[1].starts_with("get /b "));
        for request in &requests {
            assert!(
                request.contains("x-key: hunter2") && request.contains("authorization: basic bwu6"),
                "{request}"
            );
            assert!(request.contains(&format!("host: {address}\r\n")), "{request}");
        }
        let foreign = others.await.unwrap().remove(0);
        assert!(!foreign.contains("x-key") && !foreign.contains("authorization"), "{foreign}");
    }

    #[tokio::test]
    async fn a_server_answers_or_not() {
        for (answer, wanted) in [
            ("204 No Content", Ok(())),
            ("302 Found", Ok(())),
            ("503 Service Unavailable", Err("127.0.0.1 answered 503 Service Unavailable".to_owned())),
        ] {
            let text = format!("HTTP/1.1 {answer}\r\nContent-Length: 0\r\n\r\n");
            let (address, _) = server(vec![text]).await;
            assert_eq!(answers(Settings::default(), &format!("http://{address}/a")).await, wanted);
        }
        let gone = answers(Settings::default(), "http://127.0.0.1:1/").await.unwrap_err();
        assert!(gone.starts_with("connect to 127.0.0.1:1: "), "{gone}");
    }

    #[tokio::test]
    async fn a_refusal_a_long_answer_and_circles_are_said() {
        let (address, _) = server(vec!["HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".into()]).await;
        assert_eq!(
            get(&format!("http://{address}/a"), 9).await.unwrap_err(),
            "127.0.0.1 answered 404 Not Found"
        );
        let (address, _) = server(vec![ok("0123456789")]).await;
        let long = get(&format!("http://{address}/a"), 9).await.unwrap_err();
        assert_eq!(long, "its answer is longer than 9 bytes");
        let (address, _) = server(vec![moved("/a"); 9]).await;
        assert_eq!(get(&format!("http://{address}/a"), 9).await.unwrap_err(), "more than 5 redirects");
        let gone = get("http://127.0.0.1:1/a", 9).await.unwrap_err();
        assert!(gone.starts_with("connect to 127.0.0.1:1: "), "{gone}");
        for address in ["ftp://h/x", "no address", "/x"] {
            assert!(get(address, 9).await.unwrap_err().contains(" is n"), "{address}");
        }
        let headers = [("X-Key".to_owned(), "a\nb".to_owned())].into();
        let wrong = download(Settings::default(), "http://127.0.0.1/", &headers, 9).await.unwrap_err();
        assert_eq!(wrong, "the header \"X-Key\" cannot be sent");
    }

    #[tokio::test]
    async fn a_proxy_is_on_the_way() {
        let (proxy, serving) = server(vec![ok("a: b\n")]).await;
        let value = format!("http://{proxy}");
        let proxies = Proxies::of_environment(|name| (name == "HTTP_PROXY").then(|| value.clone()));
        let settings = Settings { proxies: proxies.ok().unwrap(), ..Settings::default() };
        let text = download(settings, "http://example.invalid/a.yaml", &BTreeMap::new(), 9).await.unwrap();
        assert_eq!(text, b"a: b\n");
        assert!(serving.await.unwrap()[0].starts_with("get http://example.invalid/a.yaml http/1.1\r\n"));
    }
}
