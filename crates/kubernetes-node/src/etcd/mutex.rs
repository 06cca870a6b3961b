//! A mutex that the control plane nodes of a cluster share.
//!
//! Owns: its lease, which ends the hold of a node that died. A new machined of the same node ends the hold of the one before
//! it: the lease has the same number.
//! Does not: renew the lease of a held mutex. Who holds it is done before the lease ends.
//! Source: etcd's lock service, whose keys clients of both generations use.

use std::path::Path;
use std::time::Duration;

use etcd_client::{Client, LeaseGrantOptions, LockOptions};
use ondisk::Digest;

use super::client::{self, ENDPOINT, QUORUM_DEADLINE, refused};
use crate::Error;

/// A held mutex.
pub(crate) struct Held {
    client: Client,
    lease: i64,
}

/// Takes the mutex `name` for the node `owner`, for no longer than `life`; waits until it is free.
///
/// # Errors
/// [`Error::Etcd`], [`Error::File`].
pub(crate) async fn take(root: &Path, name: &str, owner: &str, life: Duration) -> Result<Held, Error> {
    // Another node may hold it for long: the last request alone has another deadline.
    let mut client = client::connect(root, None).await?;
    let lease = lease(name, owner);
    let revoked = within(QUORUM_DEADLINE, client.lease_revoke(lease)).await;
    match revoked {
        Ok(_) => {}
        Err(etcd_client::Error::GRpcStatus(status)) if status.code() == tonic::Code::NotFound => {}
        Err(error) => return Err(refused(ENDPOINT)(error)),
    }
    let seconds = i64::try_from(life.as_secs()).unwrap_or(i64::MAX);
    let options = Some(LeaseGrantOptions::new().with_id(lease));
    within(QUORUM_DEADLINE, client.lease_grant(seconds, options)).await.map_err(refused(ENDPOINT))?;
    // Whoever is before us has a lease that ends too.
    let options = Some(LockOptions::new().with_lease(lease));
    within(life, client.lock(name, options)).await.map_err(refused(ENDPOINT))?;
    // The wait took a part of its life.
    let renew = async {
        let (mut keeper, _answers) = client.lease_keep_alive(lease).await?;
        keeper.keep_alive().await
    };
    within(QUORUM_DEADLINE, renew).await.map_err(refused(ENDPOINT))?;
    Ok(Held { client, lease })
}

async fn within<T>(
    deadline: Duration,
    answer: impl Future<Output = Result<T, etcd_client::Error>>,
) -> Result<T, etcd_client::Error> {
    let late = |_| {
        let text = format!("no answer within {} s", deadline.as_secs());
        etcd_client::Error::GRpcStatus(tonic::Status::deadline_exceeded(text))
    };
    tokio::time::timeout(deadline, answer).await.map_err(late)?
}

impl Held {
    /// Lets the next one have it.
    ///
    /// # Errors
    /// [`Error::Etcd`]; the mutex is free when the lease ends.
    pub(crate) async fn release(mut self) -> Result<(), Error> {
        within(QUORUM_DEADLINE, self.client.lease_revoke(self.lease))
            .await
            .map(drop)
            .map_err(refused(ENDPOINT))
    }
}

/// The number of a node's lease for a mutex: positive, and no other node's.
fn lease(name: &str, owner: &str) -> i64 {
    let digest = Digest::sha256(&[name.as_bytes(), b"\0", owner.as_bytes()]);
    let mut first = [0; 8];
    first.iter_mut().zip(digest.as_bytes()).for_each(|(to, from)| *to = *from);
    (i64::from_be_bytes(first) & i64::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_has_one_lease_and_no_other_s() {
        assert_eq!(lease("m", "cp-1"), lease("m", "cp-1"));
        assert_ne!(lease("m", "cp-1"), lease("m", "cp-2"));
        assert_ne!(lease("n", "cp-1"), lease("m", "cp-1"));
        assert!(lease("m", "cp-1") > 0);
    }
}
