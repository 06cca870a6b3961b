//! Pushing an image from its archive to a registry on this machine.
//!
//! Owns: the requests of a push, over plain HTTP to a loopback address.
//! Does not: sign in, speak TLS, go through a proxy: that registry is one of a test.
//! Order: a layer that the registry has is left out, one that another repository of this run has is mounted, the rest is
//! sent; then the config, then the manifest.
//! Fails by: naming address, request and answer.
//! Source: OCI distribution specification 1.1, "Push".

use std::collections::BTreeMap;
use std::io::{self, BufRead as _, BufReader, Read, Write as _};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs as _};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use oci::archive::Archive;
use oci::document::{self, Descriptor};

/// For a connection.
const CONNECT_DEADLINE: Duration = Duration::from_secs(5);
/// Between two pieces of an answer, and for taking a piece: a registry reads what it got once more before it answers.
const ANSWER_DEADLINE: Duration = Duration::from_secs(120);
/// Most of a refusal that is read.
const MAX_TEXT_BYTES: u64 = 4096;
/// The machines that the images are for.
const ARCHITECTURE: &str = "amd64";

/// A registry on this machine.
pub(crate) struct Registry {
    name: String,
    address: SocketAddr,
    /// Which repository of this run has a blob.
    known: BTreeMap<String, String>,
}

/// What a push did.
pub(crate) struct Pushed {
    /// `sha256:…` of the manifest.
    pub(crate) digest: String,
    /// Bytes that the registry did not have.
    pub(crate) sent: u64,
}

/// An answer without its body.
struct Answer {
    status: u16,
    location: Option<String>,
    /// The beginning of what a refusal says.
    text: String,
}

/// What is sent.
enum Body<'b> {
    Nothing,
    Text(&'static str, &'b [u8]),
    Stream(&'b mut dyn Read, u64),
}

impl Registry {
    /// Finds the address of `HOST:PORT`, which must be this machine's.
    pub(crate) fn new(name: &str) -> Result<Self> {
        let addresses = name.to_socket_addrs().with_context(|| {
            format!("{name:?} is no address of a registry: write host and port, as in 127.0.0.1:5000")
        })?;
        let loopback = addresses.into_iter().find(|address| address.ip().is_loopback());
        let address = loopback.with_context(|| {
            format!(
                "{name} is not on this machine: images are pushed without TLS, to 127.0.0.1 or localhost only"
            )
        })?;
        Ok(Self { name: name.to_owned(), address, known: BTreeMap::new() })
    }

    /// Pushes the image of an archive as `repository:tag`.
    pub(crate) fn push(&mut self, archive: &Path, repository: &str, tag: &str) -> Result<Pushed> {
        self.try_push(archive, repository, tag)
            .with_context(|| format!("push {repository}:{tag} to the registry {}", self.name))
    }

    fn try_push(&mut self, archive: &Path, repository: &str, tag: &str) -> Result<Pushed> {
        let archive = Archive::open(archive)?;
        let (manifest, _) = archive.image(ARCHITECTURE)?;
        let mut sent = 0;
        for blob in manifest.layers.iter().chain([&manifest.config]) {
            sent += self.blob(&archive, repository, blob)?;
        }
        // As it is in the archive: this is how it was written there.
        let text = serde_json::to_vec(&manifest).context("write the manifest")?;
        let path = format!("/v2/{repository}/manifests/{tag}");
        self.expect("PUT", &path, Body::Text(document::MANIFEST, &text), &[201])?;
        let digest = format!("sha256:{}", ondisk::Digest::sha256(&[&text]));
        Ok(Pushed { digest, sent: sent + text.len() as u64 })
    }

    /// Bytes that had to be sent.
    fn blob(&mut self, archive: &Archive, repository: &str, blob: &Descriptor) -> Result<u64> {
        let digest = format!("sha256:{}", blob.digest);
        let present = self.ask("HEAD", &format!("/v2/{repository}/blobs/{digest}"), Body::Nothing)?;
        if present.status == 200 {
            self.known.insert(digest, repository.to_owned());
            return Ok(0);
        }
        let mut begin = format!("/v2/{repository}/blobs/uploads/");
        if let Some(other) = self.known.get(&digest) {
            begin += &format!("?mount={digest}&from={other}");
        }
        let begun = self.expect("POST", &begin, Body::Nothing, &[201, 202])?;
        if begun.status == 201 {
            return Ok(0);
        }
        let place =
            begun.location.context("the registry does not say where a layer is to go (no Location)")?;
        let place = path_of(&place);
        let sign = if place.contains('?') { '&' } else { '?' };
        let mut content = archive.blob(blob)?;
        let body = Body::Stream(&mut content, blob.size);
        self.expect("PUT", &format!("{place}{sign}digest={digest}"), body, &[201])?;
        self.known.insert(digest, repository.to_owned());
        Ok(blob.size)
    }

    fn expect(&self, method: &str, path: &str, body: Body<'_>, wanted: &[u16]) -> Result<Answer> {
        let answer = self.ask(method, path, body)?;
        if !wanted.contains(&answer.status) {
            bail!(
                "{method} http://{}{path}: the answer is {} {}",
                self.name,
                answer.status,
                answer.text.trim()
            );
        }
        Ok(answer)
    }

    fn ask(&self, method: &str, path: &str, body: Body<'_>) -> Result<Answer> {
        self.exchange(method, path, body).with_context(|| format!("{method} http://{}{path}", self.name))
    }

    /// One connection a request.
    fn exchange(&self, method: &str, path: &str, body: Body<'_>) -> Result<Answer> {
        let mut stream = TcpStream::connect_timeout(&self.address, CONNECT_DEADLINE)
            .context("connect: no registry listens there")?;
        stream.set_read_timeout(Some(ANSWER_DEADLINE))?;
        stream.set_write_timeout(Some(ANSWER_DEADLINE))?;
        let (kind, length) = match &body {
            Body::Nothing => ("application/octet-stream", 0),
            Body::Text(kind, text) => (*kind, text.len() as u64),
            Body::Stream(_, length) => ("application/octet-stream", *length),
        };
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Type: {kind}\r\n\
             Content-Length: {length}\r\n\r\n",
            self.name
        );
        stream.write_all(head.as_bytes()).context("send the request")?;
        match body {
            Body::Nothing => {}
            Body::Text(_, text) => stream.write_all(text).context("send the document")?,
            Body::Stream(content, length) => {
                let copied = io::copy(content, &mut stream).context("send the layer")?;
                ensure!(copied == length, "the layer has {copied} bytes and not {length}");
            }
        }
        answer(&stream)
    }
}

/// Status, `Location`, and the beginning of a refusal's text.
fn answer(stream: &TcpStream) -> Result<Answer> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).context("read the answer")?;
    let status = line.split(' ').nth(1).and_then(|status| status.parse().ok());
    let status = status.with_context(|| format!("no HTTP answer: {:?}", line.trim()))?;
    let mut location = None;
    loop {
        line.clear();
        reader.read_line(&mut line).context("read the answer's headers")?;
        let Some((name, value)) = line.trim().split_once(':') else { break };
        if name.eq_ignore_ascii_case("location") {
            location = Some(value.trim().to_owned());
        }
    }
    let mut text = Vec::new();
    if status >= 400 {
        // What cannot be read of a refusal is left out.
        let _ = reader.take(MAX_TEXT_BYTES).read_to_end(&mut text);
    }
    Ok(Answer { status, location, text: String::from_utf8_lossy(&text).into_owned() })
}

/// A location without scheme and host: they are the registry's own.
fn path_of(location: &str) -> &str {
    let Some((_, rest)) = location.split_once("://") else { return location };
    rest.find('/').and_then(|at| rest.get(at..)).unwrap_or("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locations_are_whole_or_paths() {
        assert_eq!(
            path_of("http://127.0.0.1:5000/v2/a/blobs/uploads/1?_state=x"),
            "/v2/a/blobs/uploads/1?_state=x"
        );
        assert_eq!(path_of("/v2/a"), "/v2/a");
        assert_eq!(path_of("http://host"), "/");
    }

    #[test]
    fn only_this_machine_is_pushed_to() {
        let refused = |name: &str| Registry::new(name).err().unwrap().to_string();
        assert!(refused("192.0.2.1:5000").contains("not on this machine"));
        assert!(refused("127.0.0.1").contains("write host and port"));
        assert!(Registry::new("127.0.0.1:5000").is_ok() && Registry::new("localhost:5000").is_ok());
    }

    #[test]
    fn a_refusal_and_silence_are_told_with_the_request() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let name = listener.local_addr().unwrap().to_string();
        let served = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut head = [0; 1024];
            let _ = stream.read(&mut head).unwrap();
            stream.write_all(b"HTTP/1.1 405 Method Not Allowed\r\nServer: x\r\n\r\nread-only").unwrap();
        });
        let registry = Registry::new(&name).unwrap();
        let error = registry.expect("POST", "/v2/a/blobs/uploads/", Body::Nothing, &[201]).err().unwrap();
        assert_eq!(
            error.to_string(),
            format!("POST http://{name}/v2/a/blobs/uploads/: the answer is 405 read-only")
        );
        served.join().unwrap();
        let error = registry.ask("HEAD", "/v2/", Body::Nothing).err().unwrap();
        assert!(format!("{error:#}").starts_with(&format!("HEAD http://{name}/v2/: connect: no registry")));
    }
}
