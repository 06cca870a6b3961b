//! Clients of etcd's members: of this node's, and of the others.
//!
//! Owns: how long an answer may take. Each member is verified by the name or address that it is asked at.

use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use etcd_client::{Certificate, Client, ConnectOptions, GetOptions, Identity, TlsOptions};
use kubernetes::paths;
use tokio::task::JoinSet;

use super::member::{Health, Member};
use crate::Error;

/// Where the member on this node answers.
pub(super) const ENDPOINT: &str = "https://127.0.0.1:2379";
const CONNECT_DEADLINE: Duration = Duration::from_secs(5);
/// For an answer that a majority of the members agrees to.
pub(super) const QUORUM_DEADLINE: Duration = Duration::from_secs(15);
/// For an answer of a member that may not be there.
pub(super) const MEMBER_DEADLINE: Duration = Duration::from_secs(3);
/// Read to hear whether there is a majority; it need not be there.
const HEALTH_KEY: &str = "health";

pub(super) fn refused(place: &str) -> impl Fn(etcd_client::Error) -> Error {
    let place = place.to_owned();
    move |error| Error::Etcd { place: place.clone(), reason: reason(&error) }
}

/// etcd's own words, where it said something.
fn reason(error: &etcd_client::Error) -> String {
    match error {
        etcd_client::Error::GRpcStatus(status) if !status.message().is_empty() => status.message().to_owned(),
        other => other.to_string(),
    }
}

/// The administrator's certificate, which lies below the root.
#[derive(Clone)]
pub(super) struct Access {
    authority: Certificate,
    identity: Identity,
}

impl Access {
    pub(super) fn read(root: &Path) -> Result<Self, Error> {
        let read = |name: &str| {
            let path = format!("{}/{name}", paths::ETCD_SECRETS);
            let text = std::fs::read(root.join(path.trim_start_matches('/')));
            text.map_err(|source| match source.kind() {
                ErrorKind::NotFound => Error::NoEtcd,
                _ => Error::File { what: "read", path: path.into(), source },
            })
        };
        Ok(Self {
            authority: Certificate::from_pem(read("ca.crt")?),
            identity: Identity::from_pem(read("admin.crt")?, read("admin.key")?),
        })
    }

    /// A client of the member at this address; `deadline` is that of each answer.
    pub(super) async fn connect(&self, url: &str, deadline: Option<Duration>) -> Result<Client, Error> {
        let tls = TlsOptions::new()
            .ca_certificate(self.authority.clone())
            .identity(self.identity.clone())
            .domain_name(host(url));
        let mut options = ConnectOptions::new().with_tls(tls).with_connect_timeout(CONNECT_DEADLINE);
        if let Some(deadline) = deadline {
            options = options.with_timeout(deadline);
        }
        Client::connect([url], Some(options)).await.map_err(refused(url))
    }
}

/// What a certificate is verified for: the host of a URL, without the brackets of IPv6.
pub(super) fn host(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split('/').next().unwrap_or_default();
    let host = authority.rsplit_once(':').map_or(authority, |(host, _)| host);
    host.trim_matches(['[', ']'])
}

/// Connects to this node's member; `deadline` is that of each answer.
pub(super) async fn connect(root: &Path, deadline: Option<Duration>) -> Result<Client, Error> {
    Access::read(root)?.connect(ENDPOINT, deadline).await
}

/// Whether a majority of the members agrees that this one answers.
pub(super) async fn quorum(root: &Path) -> Result<(), Error> {
    let mut client = connect(root, Some(QUORUM_DEADLINE)).await?;
    match client.get(HEALTH_KEY, Some(GetOptions::new().with_limit(1))).await {
        Ok(_) => Ok(()),
        // Who is refused was answered by a majority.
        Err(etcd_client::Error::GRpcStatus(status)) if status.code() == tonic::Code::PermissionDenied => {
            Ok(())
        }
        Err(error) => Err(refused(ENDPOINT)(error)),
    }
}

/// Members as one of them lists them, with the number of their cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Listed {
    pub(super) cluster: u64,
    /// By name.
    pub(super) members: Vec<Member>,
}

impl Listed {
    /// Where clients reach the members other than this one.
    pub(super) fn endpoints(&self, own: u64) -> Vec<String> {
        let others = self.members.iter().filter(|member| member.id != own);
        others.flat_map(|member| member.client_urls.iter().cloned()).collect()
    }
}

/// Asks a member for all, as a majority knows them.
pub(super) async fn list(client: &mut Client, place: &str) -> Result<Listed, Error> {
    // A client's own deadline does not count while it connects, and an etcd without a leader takes connections that it does not
    // serve.
    let listed = tokio::time::timeout(QUORUM_DEADLINE, client.member_list()).await;
    let listed = listed.map_err(|_| late(place, QUORUM_DEADLINE))?.map_err(refused(place))?;
    let cluster = listed.header().map(etcd_client::ResponseHeader::cluster_id).unwrap_or_default();
    let mut members: Vec<Member> = listed.members().iter().map(Member::from).collect();
    members.sort_by(|a, b| a.name.cmp(&b.name).then(a.id.cmp(&b.id)));
    Ok(Listed { cluster, members })
}

/// The first of these that lists the members, and what each of the others said until then.
pub(super) async fn first(
    access: &Access,
    urls: Vec<String>,
) -> (Option<(Client, String, Listed)>, Vec<Error>) {
    let mut asked = JoinSet::new();
    for url in urls {
        let access = access.clone();
        asked.spawn(async move {
            let ask = async {
                let mut client = access.connect(&url, Some(QUORUM_DEADLINE)).await?;
                let listed = list(&mut client, &url).await?;
                Ok((client, url.clone(), listed))
            };
            tokio::time::timeout(QUORUM_DEADLINE, ask)
                .await
                .unwrap_or_else(|_| Err(late(&url, QUORUM_DEADLINE)))
        });
    }
    let mut errors = Vec::new();
    while let Some(answer) = asked.join_next().await {
        match answer {
            Ok(Ok(found)) => return (Some(found), errors),
            Ok(Err(error)) => errors.push(error),
            // It is cancelled with the set, which is here.
            Err(_) => {}
        }
    }
    (None, errors)
}

/// What etcd says to a change of its members while it has not been connected to all of them for some seconds.
const UNHEALTHY: &str = "unhealthy cluster";
/// For that to pass.
const UNHEALTHY_DEADLINE: Duration = Duration::from_secs(20);
const UNHEALTHY_PERIOD: Duration = Duration::from_secs(1);

/// Removes a member; where others have just started, as soon as etcd takes them for healthy.
pub(super) async fn remove(client: &mut Client, place: &str, id: u64) -> Result<(), Error> {
    let begin = tokio::time::Instant::now();
    loop {
        match client.member_remove(id).await.map(drop).map_err(refused(place)) {
            Err(Error::Etcd { reason, .. })
                if reason.contains(UNHEALTHY) && begin.elapsed() < UNHEALTHY_DEADLINE => {}
            answer => return answer,
        }
        tokio::time::sleep(UNHEALTHY_PERIOD).await;
    }
}

pub(super) fn late(place: &str, deadline: Duration) -> Error {
    Error::Etcd { place: place.to_owned(), reason: format!("no answer within {} s", deadline.as_secs()) }
}

/// Whether the member with this id answers at one of its addresses, and follows a leader.
pub(super) async fn is_healthy(access: &Access, member: &Member) -> bool {
    for url in &member.client_urls {
        let ask = async {
            let mut client = access.connect(url, Some(MEMBER_DEADLINE)).await.ok()?;
            let status = client.status().await.ok()?;
            let id = status.header().map(etcd_client::ResponseHeader::member_id)?;
            (id == member.id && status.leader() != 0).then_some(())
        };
        if tokio::time::timeout(MEMBER_DEADLINE, ask).await.is_ok_and(|answer| answer.is_some()) {
            return true;
        }
    }
    false
}

/// How all of these do, asked at once.
pub(super) async fn health(access: &Access, members: &[Member]) -> Vec<Health> {
    let asked: Vec<_> = members
        .iter()
        .cloned()
        .map(|member| {
            let access = access.clone();
            tokio::spawn(async move { Health { is_healthy: is_healthy(&access, &member).await, member } })
        })
        .collect();
    let mut all = Vec::new();
    for (asked, member) in asked.into_iter().zip(members) {
        all.push(asked.await.unwrap_or_else(|_| Health { member: member.clone(), is_healthy: false }));
    }
    all
}

#[cfg(test)]
mod tests {
    use kubernetes::Cluster;

    use super::*;
    use crate::certificates::{self, Part};
    use crate::samples;

    /// etcd that has no leader yet takes connections, and does not serve them.
    #[tokio::test(start_paused = true)]
    async fn a_member_that_takes_a_connection_and_is_silent_is_given_up() {
        let root = tempfile::tempdir().unwrap();
        let config = samples::control_plane("v1.34.1", "v3.6.4");
        let cluster = Cluster::new(&config).unwrap();
        certificates::bring(root.path(), &cluster, &samples::node(), Part::Etcd).unwrap();
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("https://{}", silent.local_addr().unwrap());
        let access = Access::read(root.path()).unwrap();
        let mut client = access.connect(&url, Some(MEMBER_DEADLINE)).await.unwrap();
        let refused = list(&mut client, &url).await.unwrap_err().to_string();
        assert!(refused.contains("no answer within 15 s"), "{refused}");
    }

    #[test]
    fn the_host_of_a_url_has_no_brackets() {
        for (url, wanted) in [
            ("https://10.0.0.3:2379", "10.0.0.3"),
            ("https://[fd00::3]:2379/", "fd00::3"),
            ("https://etcd.example.org:2379", "etcd.example.org"),
            ("https://etcd.example.org", "etcd.example.org"),
        ] {
            assert_eq!(host(url), wanted);
        }
    }
}
