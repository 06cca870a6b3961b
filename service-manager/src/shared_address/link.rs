//! The way to a link that may have a shared address.

use std::net::IpAddr;
use std::time::Duration;

use tokio::time::sleep;

use super::cluster::Cluster;
use crate::network::shared::Place;

/// After an error.
pub(super) const RETRY: Duration = Duration::from_secs(1);

/// Tries until there is one.
pub(super) async fn place(cluster: &Cluster, link: &str, address: IpAddr) -> Place {
    loop {
        match Place::new(link, address) {
            Ok(place) => return place,
            Err(error) => {
                cluster.runtime.journal.warn(&format!("vip: {error}"));
                sleep(RETRY).await;
            }
        }
    }
}
