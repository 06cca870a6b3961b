//! The way to a link that may have a shared address.

use std::net::IpAddr;
use std::time::Duration;

use tokio::time::sleep;

use crate::network::shared::Place;
use crate::node::Node;

/// After an error.
pub(super) const RETRY: Duration = Duration::from_secs(1);

/// Tries until there is one.
pub(super) async fn place(node: &Node, link: &str, address: IpAddr) -> Place {
    loop {
        match Place::new(link, address) {
            Ok(place) => return place,
            Err(error) => {
                node.runtime.journal.warn(&format!("vip: {error}"));
                sleep(RETRY).await;
            }
        }
    }
}
