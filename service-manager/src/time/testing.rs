//! A small NTP server on loopback, for tests.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use runtime::clock;
use tokio::net::UdpSocket;

use super::packet::{PACKET_BYTES, Stamp};

/// Answers until it is dropped.
pub(super) struct Responder {
    port: u16,
    refuses: Arc<AtomicBool>,
    forges: Arc<AtomicBool>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Responder {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Responder {
    /// A server of stratum 2 whose clock is so much ahead.
    pub(super) async fn start(ahead: Duration) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let port = socket.local_addr().unwrap().port();
        let (refuses, forges) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let ahead_ns = i64::try_from(ahead.as_nanos()).unwrap();
        let task = tokio::spawn(serve(socket, ahead_ns, refuses.clone(), forges.clone()));
        Self { port, refuses, forges, task }
    }

    pub(super) fn name(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// From now on it answers `RATE`.
    pub(super) fn refuse(&self) {
        self.refuses.store(true, Ordering::Relaxed);
    }

    /// A wrong answer of somebody else goes before each right one.
    pub(super) fn forge_first(&self) {
        self.forges.store(true, Ordering::Relaxed);
    }
}

async fn serve(socket: UdpSocket, ahead_ns: i64, refuses: Arc<AtomicBool>, forges: Arc<AtomicBool>) {
    let mut request = [0; PACKET_BYTES];
    while let Ok((PACKET_BYTES, from)) = socket.recv_from(&mut request).await {
        let now = Stamp::from_unix_ns(clock::unix_ns() + ahead_ns).0.to_be_bytes();
        let mut reply = [0; PACKET_BYTES];
        reply[0] = 0x24;
        reply[1] = if refuses.load(Ordering::Relaxed) { 0 } else { 2 };
        reply[12..16].copy_from_slice(b"RATE");
        reply[32..40].copy_from_slice(&now);
        reply[40..48].copy_from_slice(&now);
        if forges.load(Ordering::Relaxed) {
            reply[24..32].copy_from_slice(&[9; 8]);
            let _ = socket.send_to(&reply, from).await;
        }
        reply[24..32].copy_from_slice(&request[40..48]);
        let _ = socket.send_to(&reply, from).await;
    }
}
