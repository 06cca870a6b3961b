//! Clients of an API server: of the one on this node as the administrator, of the cluster's as the kubelet. And of the kubelet.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use config::Config;
use http::Request;
use kube::Client;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kubernetes::kubeconfig::{self, Credentials, Names};
use kubernetes::{Cluster, Node};
use runtime::beneath;
use tokio::time::Instant;

use crate::{Error, KubernetesNode, admin};

/// For one answer.
const DEADLINE: Duration = Duration::from_secs(10);
/// Between two looks whether it answers while it starts.
pub(crate) const QUICK_PERIOD: Duration = Duration::from_millis(250);
/// The same for one that has not answered within [`START_TIME`].
const SLOW_PERIOD: Duration = Duration::from_secs(1);
/// How long a start takes on a slow machine.
const START_TIME: Duration = Duration::from_secs(60);
/// The kubelet of this node.
const KUBELET: &str = "https://127.0.0.1:10250";
/// What it shows to clients where it made that itself.
const KUBELET_CERTIFICATE: &str = "/var/lib/kubelet/pki/kubelet.crt";
/// The administrator's name.
const USER: &str = "admin";

/// A client of the API server on this node with a certificate of its own.
///
/// # Errors
/// [`Error::Authority`]; [`Error::Config`] on a worker; [`Error::ApiServer`].
pub(crate) async fn client(cluster: &Cluster<'_>) -> Result<Client, Error> {
    administrator(cluster, &format!("https://localhost:{}", cluster.api_port())).await
}

/// The same at the cluster's endpoint: of the API server of another node, before this one has any.
///
/// # Errors
/// As [`client`].
pub(crate) async fn client_of_endpoint(cluster: &Cluster<'_>) -> Result<Client, Error> {
    administrator(cluster, cluster.endpoint()).await
}

/// The same at this address.
///
/// # Errors
/// As [`client`].
pub(crate) async fn client_at(cluster: &Cluster<'_>, address: IpAddr) -> Result<Client, Error> {
    administrator(cluster, &format!("https://{}", SocketAddr::new(address, cluster.api_port()))).await
}

/// The first that serves: this client of the node's own API server, or one at the cluster's endpoint.
///
/// # Errors
/// [`Error::ApiServer`] with why the own one does not, where neither does.
pub(crate) async fn first_ready(own: Client, cluster: &Cluster<'_>) -> Result<Client, Error> {
    let Err(error) = is_ready(&own).await else { return Ok(own) };
    let other = client_of_endpoint(cluster).await?;
    if is_ready(&other).await.is_ok() { Ok(other) } else { Err(error) }
}

async fn administrator(cluster: &Cluster<'_>, server: &str) -> Result<Client, Error> {
    let identity = admin::identity(cluster)?;
    let key = identity.key.to_pem();
    let credentials = Credentials::Certificate { certificate: &identity.certificate, key: &key };
    let names = Names { cluster: "local", user: USER, context: "local" };
    let text = kubeconfig::render(names, server, &cluster.authorities(), &credentials)?;
    connect(Kubeconfig::from_yaml(text.expose_secret()).map_err(|error| failed(&error))?).await
}

/// A client as a kubeconfig on this node says. Keys that it names by their paths are read each time.
///
/// # Errors
/// [`Error::File`], [`Error::ApiServer`].
pub(crate) async fn client_of_file(root: &Path, path: &str) -> Result<Client, Error> {
    let path = root.join(path.trim_start_matches('/'));
    let text = std::fs::read_to_string(&path);
    let text = text.map_err(|source| Error::File { what: "read", path: path.clone(), source })?;
    connect(Kubeconfig::from_yaml(&text).map_err(|error| failed(&error))?).await
}

/// A client of this node's kubelet as the administrator. Its certificate is one that it made itself, or the cluster's.
///
/// # Errors
/// [`Error::Authority`]; [`Error::Config`] on a worker; [`Error::File`] before the kubelet has a certificate;
/// [`Error::ApiServer`].
pub(crate) async fn client_of_kubelet(
    root: &Path,
    cluster: &Cluster<'_>,
    node: &Node,
) -> Result<Client, Error> {
    let identity = admin::identity(cluster)?;
    let key = identity.key.to_pem();
    let credentials = Credentials::Certificate { certificate: &identity.certificate, key: &key };
    let path = Path::new(KUBELET_CERTIFICATE);
    let own = beneath::read(root, path);
    let own = own.and_then(|text| String::from_utf8(text).map_err(std::io::Error::other));
    let own = own.map_err(|source| Error::File { what: "read", path: path.to_owned(), source })?;
    let authorities = format!("{}\n{own}", cluster.authorities());
    let names = Names { cluster: "local", user: USER, context: "local" };
    let text = kubeconfig::render(names, KUBELET, &authorities, &credentials)?;
    let mut read = Kubeconfig::from_yaml(text.expose_secret()).map_err(|error| failed(&error))?;
    for server in read.clusters.iter_mut().filter_map(|named| named.cluster.as_mut()) {
        server.tls_server_name = Some(cluster.node_name(node));
    }
    connect(read).await
}

fn failed(error: &dyn std::error::Error) -> Error {
    Error::ApiServer { what: "connect to", reason: runtime::errors::chain(error) }
}

async fn connect(read: Kubeconfig) -> Result<Client, Error> {
    let options = KubeConfigOptions::default();
    let mut config =
        kube::Config::from_custom_kubeconfig(read, &options).await.map_err(|error| failed(&error))?;
    config.connect_timeout = Some(DEADLINE);
    config.read_timeout = Some(DEADLINE);
    // Nodes reach their cluster without one.
    config.proxy_url = None;
    // A 429 is the answer to an eviction that a budget forbids, and its reason is told. Who asks asks again, too.
    config.default_retry = false;
    Client::try_from(config).map_err(|error| failed(&error))
}

/// What it has at a path, within a deadline.
///
/// # Errors
/// [`Error::ApiServer`] with its words.
pub(crate) async fn get(client: &Client, path: &str) -> Result<serde_json::Value, Error> {
    ask(client, Request::get(path).body(Vec::new())).await
}

/// What it answers to an object, within a deadline.
///
/// # Errors
/// [`Error::ApiServer`] with its words.
pub(crate) async fn post(
    client: &Client,
    path: &str,
    object: &serde_json::Value,
) -> Result<serde_json::Value, Error> {
    let request = Request::post(path).header("content-type", "application/json");
    ask(client, request.body(object.to_string().into_bytes())).await
}

async fn ask(
    client: &Client,
    request: Result<Request<Vec<u8>>, http::Error>,
) -> Result<serde_json::Value, Error> {
    let failed = |reason: String| Error::ApiServer { what: "ask", reason };
    let request = request.map_err(|error| failed(error.to_string()))?;
    let asked = tokio::time::timeout(DEADLINE, client.request(request));
    let answer = asked.await.map_err(|_| failed(format!("no answer within {} s", DEADLINE.as_secs())))?;
    answer.map_err(|error| failed(runtime::errors::chain(&error)))
}

/// A wait for the API server of this node, which begins with the first look.
#[derive(Default)]
pub(crate) struct Start(Option<Instant>);

impl Start {
    /// Until the next look.
    pub(crate) fn period(&mut self) -> Duration {
        let since = *self.0.get_or_insert_with(Instant::now);
        if since.elapsed() < START_TIME { QUICK_PERIOD } else { SLOW_PERIOD }
    }
}

/// The API server on this node, asked again and again.
#[derive(Default)]
pub struct OwnApiServer {
    client: Option<(Arc<Config>, Client)>,
}

impl OwnApiServer {
    /// Whether it serves.
    ///
    /// # Errors
    /// [`Error::NoConfig`], [`Error::Config`] on a worker, [`Error::Authority`]; [`Error::ApiServer`] with its words, where it does
    /// not.
    pub async fn is_ready(&mut self, node: &KubernetesNode) -> Result<(), Error> {
        let config = node.runtime.config().ok_or(Error::NoConfig)?;
        let client = match &self.client {
            Some((of, client)) if Arc::ptr_eq(of, &config) => client.clone(),
            _ => {
                let client = client(&Cluster::new(&config)?).await?;
                self.client.insert((config, client)).1.clone()
            }
        };
        is_ready(&client).await
    }
}

/// Whether it serves.
///
/// # Errors
/// [`Error::ApiServer`] with its words, where it does not.
pub(crate) async fn is_ready(client: &Client) -> Result<(), Error> {
    let failed = |reason: String| Error::ApiServer { what: "ask", reason };
    let request = Request::get("/readyz").body(Vec::new()).map_err(|error| failed(error.to_string()))?;
    let asked = tokio::time::timeout(DEADLINE, client.request_text(request));
    let answer = asked.await.map_err(|_| failed(format!("no answer within {} s", DEADLINE.as_secs())))?;
    answer.map(drop).map_err(|error| failed(runtime::errors::chain(&error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn one_that_does_not_start_is_asked_less_often() {
        let mut start = Start::default();
        assert_eq!(start.period(), QUICK_PERIOD);
        tokio::time::advance(START_TIME - Duration::from_millis(1)).await;
        assert_eq!(start.period(), QUICK_PERIOD);
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(start.period(), SLOW_PERIOD);
    }
}
