//! What the clients of both kinds of DHCP begin with: sockets, and a number that differs from machine to machine.

use std::io;
use std::time::Duration;

use runtime::Runtime;
use tokio::time::sleep;

use super::link::Link;

/// Between two attempts.
const RETRY: Duration = Duration::from_secs(5);

/// The sockets of a link, as soon as the kernel gives them. Why it does not is said once; `what` is for people.
pub(super) async fn opened<T>(
    runtime: &Runtime,
    link: &Link,
    what: &str,
    open: impl Fn(&Link) -> io::Result<T>,
) -> T {
    let mut said = String::new();
    loop {
        match open(link) {
            Ok(sockets) => return sockets,
            Err(error) => {
                let text = format!("networkd: open a {what} socket on {}: {error}", link.name);
                if text != said {
                    runtime.journal.warn(&text);
                    said = text;
                }
                sleep(RETRY).await;
            }
        }
    }
}

pub(super) fn random() -> u64 {
    let mut bytes = [0; 8];
    // Without randomness machines that start together ask together, and no more.
    let _ = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    u64::from_ne_bytes(bytes)
}
