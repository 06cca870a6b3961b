//! Clients that write and read one object through the API servers of several nodes, while a test does its worst.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use qemu_tests::history::{self, Operation, What};
use serde_json::{Value, json};

use crate::rig::{Running, STEP_LIMIT};

/// The object that all clients share.
const PATH: &str = "/api/v1/namespaces/default/configmaps/register";
/// An API server that is gone is noticed within this time.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);
/// Between two operations of a client: two cores have other work, too.
const PAUSE: Duration = Duration::from_millis(50);

/// `kubectl proxy` before one API server. It ends with this.
struct Proxy {
    child: Child,
    port: u16,
}

impl Proxy {
    fn start(cluster: &Running, address: &str) -> Self {
        let server = format!("https://{address}:6443");
        let mut child = cluster
            .kubectl_command(&["--server", &server, "proxy", "--port=0"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let port = line.trim().rsplit(':').next().and_then(|port| port.parse().ok());
        Self { child, port: port.unwrap_or_else(|| panic!("kubectl proxy says {line:?}")) }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What an API server answers with success.
fn ask(port: u16, method: &str, path: &str, body: &str) -> Option<Value> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut stream = TcpStream::connect_timeout(&address, ANSWER_LIMIT).ok()?;
    stream.set_read_timeout(Some(ANSWER_LIMIT)).ok()?;
    // The answer's end is the connection's.
    let request = format!(
        "{method} {path} HTTP/1.0\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status: u16 = head.split(' ').nth(1)?.parse().ok()?;
    (200..300).contains(&status).then(|| serde_json::from_str(body).ok())?
}

fn object(value: u64) -> String {
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "register" }, "data": { "value": value.to_string() },
    });
    object.to_string()
}

fn value_and_revision(object: &Value) -> Option<(u64, u64)> {
    let value = object["data"]["value"].as_str()?.parse().ok()?;
    Some((value, object["metadata"]["resourceVersion"].as_str()?.parse().ok()?))
}

/// Clients that run until [`Load::end`].
pub(crate) struct Load {
    ends: Arc<AtomicBool>,
    history: Arc<Mutex<Vec<Operation>>>,
    clients: Vec<JoinHandle<()>>,
    _proxies: Vec<Proxy>,
}

impl Load {
    /// One that writes and one that reads at each of these API servers.
    pub(crate) fn start(cluster: &Running, addresses: &[&str]) -> Self {
        let proxies: Vec<Proxy> = addresses.iter().map(|address| Proxy::start(cluster, address)).collect();
        let made = Instant::now();
        while ask(proxies[0].port, "POST", PATH.rsplit_once('/').unwrap().0, &object(0)).is_none() {
            assert!(
                made.elapsed() < qemu_tests::deadline(STEP_LIMIT),
                "the object is not made\n{}",
                cluster.state()
            );
            std::thread::sleep(PAUSE);
        }
        let (ends, history) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
        let (begin, next) = (Instant::now(), Arc::new(AtomicU64::new(1)));
        let mut clients = Vec::new();
        for port in proxies.iter().map(|proxy| proxy.port) {
            for writes in [true, false] {
                let (ends, history, next) = (ends.clone(), history.clone(), next.clone());
                clients.push(std::thread::spawn(move || {
                    while !ends.load(Ordering::Relaxed) {
                        let operation = if writes { write(port, &next, begin) } else { read(port, begin) };
                        history.lock().unwrap().extend(operation);
                        std::thread::sleep(PAUSE);
                    }
                }));
            }
        }
        Self { ends, history, clients, _proxies: proxies }
    }

    /// Operations that were acknowledged until now.
    pub(crate) fn acknowledged(&self) -> usize {
        let history = self.history.lock().unwrap();
        history.iter().filter(|one| !matches!(one.what, What::Write(None))).count()
    }

    /// Ends the clients. What they saw could have happened one after the other, and nothing that was acknowledged is lost.
    pub(crate) fn end(self) -> usize {
        self.ends.store(true, Ordering::Relaxed);
        for client in self.clients {
            client.join().unwrap();
        }
        let history = std::mem::take(&mut *self.history.lock().unwrap());
        history::check(0, &history).unwrap_or_else(|fault| panic!("{fault}"));
        history.len()
    }
}

fn write(port: u16, next: &AtomicU64, begin: Instant) -> Option<Operation> {
    let value = next.fetch_add(1, Ordering::Relaxed);
    let start = begin.elapsed();
    let answer = ask(port, "PUT", PATH, &object(value));
    let revision = answer.as_ref().and_then(value_and_revision).map(|(_, revision)| revision);
    Some(Operation { start, end: begin.elapsed(), value, what: What::Write(revision) })
}

/// A read that fails says nothing.
fn read(port: u16, begin: Instant) -> Option<Operation> {
    let start = begin.elapsed();
    let (value, revision) = ask(port, "GET", PATH, "").as_ref().and_then(value_and_revision)?;
    Some(Operation { start, end: begin.elapsed(), value, what: What::Read(revision) })
}
