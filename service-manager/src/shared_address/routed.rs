//! An address that VRRP gives to one machine of a link.
//!
//! Owns: that a machine which would serve no client has no part in it.
//! Does not: speak VRRP; the crate `vrrp` does.
//! Source: docs/users/shared-address.md, "Without etcd".

use std::convert::Infallible;
use std::num::NonZeroU8;
use std::sync::Arc;

use config::own::Vrrp;
use tokio::sync::watch;
use tokio::time::sleep;
use vrrp::router::{self, State};
use vrrp::{Address, Driver, Interval, Status};

use super::cluster::Cluster;
use super::link::{RETRY, place};
use super::serving::Serving;
use crate::network::shared::Place;

/// Takes part in the virtual router, until `ends` says otherwise.
pub(super) async fn hold(cluster: Arc<Cluster>, router: Vrrp, mut ends: watch::Receiver<()>) {
    let driver = match driver(&router) {
        Ok(driver) => driver,
        // The config's own rules are stricter.
        Err(error) => return cluster.runtime.journal.warn(&format!("vrrp {}: {error}", router.address)),
    };
    let mut held = Held { place: place(&cluster, &router.link, router.address).await };
    let (fits, fit) = watch::channel(false);
    let status = driver.status();
    let say = |text: &str| cluster.runtime.journal.say(&format!("vrrp {}: {text}", router.address));
    // Nothing is ever sent.
    let ended = async move { drop(ends.changed().await) };
    tokio::select! {
        () = driver.run(&mut held, fit, ended, &say) => {}
        never = look(&cluster, &fits, &say) => match never {},
        () = tell(status, &router, &say) => {}
    }
}

fn driver(wanted: &Vrrp) -> Result<Driver, String> {
    let number = |number| NonZeroU8::new(number).ok_or("0 is no number of a router and no priority");
    let settings = vrrp::Settings {
        link: wanted.link.clone(),
        vrid: number(wanted.router_id)?,
        addresses: vec![wanted.address],
        router: router::Settings {
            priority: number(wanted.priority)?,
            interval: Interval::from_duration(wanted.interval).ok_or("its interval is none")?,
            preempts: wanted.is_preempting,
            accepts: true,
        },
    };
    Driver::new(settings).map_err(|error| error.to_string())
}

/// Has the router know whether this node serves.
async fn look(cluster: &Cluster, fits: &watch::Sender<bool>, say: &impl Fn(&str)) -> Infallible {
    let mut serving = Serving::default();
    let mut said = String::new();
    loop {
        let found = match cluster.kubernetes.get() {
            Some(kubernetes) => serving.look(cluster, kubernetes).await,
            None => Err("Kubernetes has not started".to_owned()),
        };
        fits.send_replace(found.is_ok());
        let reason = found.err().unwrap_or_default();
        if reason != said && !reason.is_empty() {
            say(&format!("leaves it to others: {reason}"));
        }
        said = reason;
        sleep(RETRY).await;
    }
}

/// Says when the address comes and goes.
async fn tell(mut status: watch::Receiver<Status>, router: &Vrrp, say: &impl Fn(&str)) {
    let mut was_active = false;
    while status.changed().await.is_ok() {
        let is_active = status.borrow_and_update().state == State::Active;
        if is_active != was_active {
            let what = if is_active { "enabled shared IP" } else { "removing shared IP" };
            say(&format!("{what} on interface {:?}", router.link));
        }
        was_active = is_active;
    }
    // The driver ends in a moment, and with it this node's part.
    std::future::pending().await
}

/// The address on the link.
struct Held {
    place: Place,
}

impl Address for Held {
    async fn hold(&mut self) -> Result<(), String> {
        self.place.hold().await
    }

    async fn announce(&mut self) -> Result<(), String> {
        self.place.announce().await
    }

    async fn drop_address(&mut self) -> Result<(), String> {
        self.place.drop_address().await
    }
}
