//! The election of the control plane node that has a shared address.
//!
//! Owns: the lease, and how long its holder may act on the last renewal. Candidates are keys below the address's prefix, each with a
//! lease of its own; the oldest one leads. A candidate whose lease ends is gone, and the next one leads. A holder that has let go of
//! the address says so in a key of its own: the next one need not wait for its kernel.
//! Does not: have the address; `shared_address` of machined does.
//! Source: etcd's election service, whose keys clients of both generations use.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use etcd_client::{Client, GetOptions, PutOptions, SortOrder, SortTarget};
use tokio::time::Instant;

use super::client::{self, ENDPOINT, refused};
use crate::{Error, KubernetesNode};

/// The shortest lease that etcd gives with its default heartbeats.
pub const LEASE: Duration = Duration::from_secs(2);
/// A renewal that took longer is not acted on: too much of the lease has gone by.
pub const RENEWAL_DEADLINE: Duration = Duration::from_millis(400);
const DEADLINE: Duration = Duration::from_secs(2);
/// Below it, one prefix an address.
const PREFIX: &str = "talos:v1:vip:election:";
/// Below it, one key an address: the candidate that let go of it last. Clients of Talos do not read it.
const RELEASED: &str = "billet:v1:vip:released:";

/// How a candidate stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// It leads. The lease ends no earlier than at this time.
    Leads(Instant),
    /// Another candidate does, which has this key.
    Follows(String),
    /// The answer took so long that it is not acted on.
    Late(Duration),
}

/// A node that would have the address.
pub struct Candidate {
    client: Client,
    lease: i64,
    prefix: String,
    key: String,
    released: String,
}

impl KubernetesNode {
    /// Becomes a candidate for the address.
    ///
    /// # Errors
    /// [`Error::Etcd`], [`Error::File`], [`Error::NoName`].
    pub async fn stand_for(&self, address: IpAddr) -> Result<Candidate, Error> {
        let (name, _) = crate::facts::names(&self.runtime).ok_or(Error::NoName)?;
        let mut client = client::connect(&self.runtime.root, Some(DEADLINE)).await?;
        let seconds = i64::try_from(LEASE.as_secs()).unwrap_or(i64::MAX);
        let granted = client.lease_grant(seconds, None).await.map_err(refused(ENDPOINT))?;
        let lease = granted.id();
        let prefix = format!("{PREFIX}{address}/");
        let key = format!("{prefix}{lease:x}");
        let options = Some(PutOptions::new().with_lease(lease));
        client.put(key.as_str(), name, options).await.map_err(refused(ENDPOINT))?;
        let released = format!("{RELEASED}{address}");
        Ok(Candidate { client, lease, prefix, key, released })
    }
}

/// The names of the members whose nodes lead the election of an address.
pub(super) async fn holders(client: &mut Client) -> Result<BTreeSet<String>, Error> {
    let options = GetOptions::new().with_prefix().with_sort(SortTarget::Create, SortOrder::Ascend);
    let found = client.get(PREFIX, Some(options)).await.map_err(refused(ENDPOINT))?;
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    Ok(leaders(found.kvs().iter().map(|found| (text(found.key()), text(found.value())))))
}

/// Of candidates in the order of their keys' creation: the value of the first one of each address.
fn leaders(candidates: impl IntoIterator<Item = (String, String)>) -> BTreeSet<String> {
    let mut addresses = BTreeSet::new();
    let firsts = candidates.into_iter().filter(|(key, _)| {
        let address = key.rsplit_once('/').map_or(key.as_str(), |(address, _)| address);
        addresses.insert(address.to_owned())
    });
    firsts.map(|(_, name)| name).collect()
}

impl Candidate {
    /// Renews the lease; how it stands then.
    ///
    /// # Errors
    /// [`Error::Etcd`]: whether it still leads is not known, or it is a candidate no longer.
    pub async fn renew(&mut self) -> Result<Standing, Error> {
        let begin = Instant::now();
        let renewed = async {
            let (mut keeper, mut answers) = self.client.lease_keep_alive(self.lease).await?;
            keeper.keep_alive().await?;
            answers.message().await
        };
        let renewed = tokio::time::timeout(DEADLINE, renewed).await;
        let renewed = renewed.map_err(|_| client::late(ENDPOINT, DEADLINE))?.map_err(refused(ENDPOINT))?;
        let is_alive = renewed.is_some_and(|answer| answer.ttl() > 0);
        let failed = |reason: &str| Error::Etcd { place: ENDPOINT.to_owned(), reason: reason.to_owned() };
        if !is_alive {
            return Err(failed("the lease has ended"));
        }
        // An old answer names an older leader, whose lease cannot be this one's.
        let options = GetOptions::new()
            .with_prefix()
            .with_serializable()
            .with_sort(SortTarget::Create, SortOrder::Ascend)
            .with_limit(1);
        let found = self.client.get(self.prefix.as_str(), Some(options)).await.map_err(refused(ENDPOINT))?;
        let leader = found.kvs().first().ok_or_else(|| failed("the election has no candidates"))?;
        if leader.key() != self.key.as_bytes() {
            return Ok(Standing::Follows(String::from_utf8_lossy(leader.key()).into_owned()));
        }
        let took = begin.elapsed();
        Ok(if took > RENEWAL_DEADLINE { Standing::Late(took) } else { Standing::Leads(begin + LEASE) })
    }

    /// The key of the candidate that let go of the address last; empty where none has.
    ///
    /// # Errors
    /// [`Error::Etcd`].
    pub async fn last_released(&mut self) -> Result<String, Error> {
        let found = self.client.get(self.released.as_str(), None).await.map_err(refused(ENDPOINT))?;
        let value = found.kvs().first().map(|found| String::from_utf8_lossy(found.value()).into_owned());
        Ok(value.unwrap_or_default())
    }

    /// Is a candidate no longer: the next one leads at once. `has_let_go`: this one had the address, and its kernel has it no longer.
    ///
    /// # Errors
    /// [`Error::Etcd`]; the lease ends by itself then.
    pub async fn resign(mut self, has_let_go: bool) -> Result<(), Error> {
        let resigned = async {
            if has_let_go {
                self.client.put(self.released.as_str(), self.key.as_str(), None).await?;
            }
            self.client.lease_revoke(self.lease).await.map(drop)
        };
        let resigned = tokio::time::timeout(DEADLINE, resigned).await;
        resigned.map_err(|_| client::late(ENDPOINT, DEADLINE))?.map_err(refused(ENDPOINT))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_candidate_of_each_address_has_it() {
        let candidate =
            |address: &str, lease: &str, name: &str| (format!("{PREFIX}{address}/{lease}"), name.to_owned());
        let candidates = [
            candidate("10.0.0.9", "a", "node-2"),
            candidate("fd00::9", "b", "node-1"),
            candidate("10.0.0.9", "c", "node-1"),
            candidate("10.0.0.9", "d", "node-3"),
        ];
        assert_eq!(leaders(candidates), ["node-1".to_owned(), "node-2".to_owned()].into());
        assert!(leaders([]).is_empty());
    }
}
