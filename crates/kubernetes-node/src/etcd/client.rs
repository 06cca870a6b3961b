//! A client of this node's member.

use std::path::Path;
use std::time::Duration;

use etcd_client::{Client, ConnectOptions, GetOptions, TlsOptions};
use kubernetes::paths;
use tonic::transport::{Certificate, Identity};

use crate::Error;

/// Where the member on this node answers.
pub(super) const ENDPOINT: &str = "https://127.0.0.1:2379";
const CONNECT_DEADLINE: Duration = Duration::from_secs(5);
/// For an answer that a majority of the members agrees to.
pub(super) const QUORUM_DEADLINE: Duration = Duration::from_secs(15);
/// Read to hear whether there is a majority; it need not be there.
const HEALTH_KEY: &str = "health";

/// A member as it lists itself and the others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Its id.
    pub id: u64,
    /// Its name; empty until it has started once.
    pub name: String,
    /// Where other members reach it.
    pub peer_urls: Vec<String>,
    /// Where clients reach it.
    pub client_urls: Vec<String>,
    /// Whether it has no vote.
    pub is_learner: bool,
}

pub(super) fn refused(place: &str) -> impl Fn(etcd_client::Error) -> Error {
    let place = place.to_owned();
    move |error| Error::Etcd { place: place.clone(), reason: error.to_string() }
}

/// Connects with the administrator's certificate, which lies below `root`; `deadline` is that of each answer.
pub(super) async fn connect(root: &Path, deadline: Option<Duration>) -> Result<Client, Error> {
    let read = |name: &str| {
        let path = format!("{}/{name}", paths::ETCD_SECRETS);
        let text = std::fs::read(root.join(path.trim_start_matches('/')));
        text.map_err(|source| Error::File { what: "read", path: path.into(), source })
    };
    let tls = TlsOptions::new()
        .ca_certificate(Certificate::from_pem(read("ca.crt")?))
        .identity(Identity::from_pem(read("admin.crt")?, read("admin.key")?))
        .domain_name("localhost");
    let mut options = ConnectOptions::new().with_tls(tls).with_connect_timeout(CONNECT_DEADLINE);
    if let Some(deadline) = deadline {
        options = options.with_timeout(deadline);
    }
    Client::connect([ENDPOINT], Some(options)).await.map_err(refused(ENDPOINT))
}

/// Whether a majority of the members agrees that this one answers; its id, where it says that.
pub(super) async fn quorum(root: &Path) -> Result<Option<u64>, Error> {
    let mut client = connect(root, Some(QUORUM_DEADLINE)).await?;
    match client.get(HEALTH_KEY, Some(GetOptions::new().with_limit(1))).await {
        Ok(found) => Ok(found.header().map(etcd_client::ResponseHeader::member_id)),
        // Who is refused was answered by a majority.
        Err(etcd_client::Error::GRpcStatus(status)) if status.code() == tonic::Code::PermissionDenied => {
            Ok(None)
        }
        Err(error) => Err(refused(ENDPOINT)(error)),
    }
}

/// The members, by name.
pub(super) async fn members(root: &Path) -> Result<Vec<Member>, Error> {
    let mut client = connect(root, Some(QUORUM_DEADLINE)).await?;
    let listed = client.member_list().await.map_err(refused(ENDPOINT))?;
    let member = |member: &etcd_client::Member| Member {
        id: member.id(),
        name: member.name().to_owned(),
        peer_urls: member.peer_urls().to_vec(),
        client_urls: member.client_urls().to_vec(),
        is_learner: member.is_learner(),
    };
    let mut members: Vec<Member> = listed.members().iter().map(member).collect();
    members.sort_by(|a, b| a.name.cmp(&b.name).then(a.id.cmp(&b.id)));
    Ok(members)
}
