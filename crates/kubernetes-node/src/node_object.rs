//! The node's object in its cluster: read, changed, and removed when the node goes for good.
//!
//! Source: Kubernetes API reference, "Node".

use std::net::IpAddr;
use std::time::Duration;

use http::Request;
use kube::Client;
use kubernetes::{Cluster, paths};
use serde_json::Value;

use crate::{Error, KubernetesNode, api_server, control_planes, facts};

const DEADLINE: Duration = Duration::from_secs(10);

/// A node's object; `None` where it is not there.
pub(crate) async fn get(client: &Client, name: &str) -> Result<Option<Value>, Error> {
    let request = Request::get(format!("/api/v1/nodes/{name}")).body(Vec::new());
    match client.request(request.map_err(|error| failed(&error))?).await {
        Ok(node) => Ok(Some(node)),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(error) => Err(failed(&error)),
    }
}

/// Lays a merge patch over a node's object.
pub(crate) async fn patch(client: &Client, name: &str, patch: &Value) -> Result<(), Error> {
    let request = Request::patch(format!("/api/v1/nodes/{name}"))
        .header(http::header::CONTENT_TYPE, "application/merge-patch+json")
        .body(patch.to_string().into_bytes())
        .map_err(|error| failed(&error))?;
    client.request::<Value>(request).await.map(drop).map_err(|error| failed(&error))
}

fn failed(error: &dyn std::error::Error) -> Error {
    Error::ApiServer { what: "ask", reason: runtime::errors::chain(error) }
}

impl KubernetesNode {
    /// A client that may change this node's object, and the object's name. A worker acts as its kubelet; that of a control plane node
    /// may not set the labels of its role.
    pub(crate) async fn own_object(&self, cluster: &Cluster<'_>) -> Result<(Client, String), Error> {
        let name = cluster.node_name(&facts::node(&self.runtime, cluster, self.is_container)?);
        let client = match cluster.is_control_plane() {
            true => api_server::client(cluster).await?,
            false => api_server::client_of_file(&self.runtime.root, paths::KUBELET_KUBECONFIG).await?,
        };
        Ok((client, name))
    }

    /// The addresses of the cluster's API servers other than this node's: asked before this one's etcd is gone.
    pub async fn other_api_servers(&self) -> Vec<IpAddr> {
        let asked = async {
            let config = self.runtime.config().ok_or(Error::NoConfig)?;
            let cluster = Cluster::new(&config)?;
            let node = facts::node(&self.runtime, &cluster, self.is_container)?;
            let client = api_server::first_ready(api_server::client(&cluster).await?, &cluster).await?;
            let object = api_server::get(&client, kubernetes::manifests::API_SERVERS_PATH).await?;
            let mut all = control_planes::addresses(&object);
            all.retain(|address| !node.addresses.contains(address));
            Ok::<_, Error>(all)
        };
        asked.await.unwrap_or_default()
    }

    /// Removes the node's object, by the first of these API servers that does it. A worker has no right to.
    ///
    /// # Errors
    /// [`Error::ApiServer`]; [`Error::Config`] on a worker.
    pub async fn remove_node_object(&self, servers: &[IpAddr]) -> Result<(), Error> {
        let config = self.runtime.config().ok_or(Error::NoConfig)?;
        let cluster = Cluster::new(&config)?;
        let node = facts::node(&self.runtime, &cluster, self.is_container)?;
        let path = format!("/api/v1/nodes/{}", cluster.node_name(&node));
        let failed = |reason: String| Error::ApiServer { what: "ask", reason };
        let mut last = failed("no other API server is known".to_owned());
        for server in servers {
            let client = api_server::client_at(&cluster, *server).await?;
            let request =
                Request::delete(&path).body(Vec::new()).map_err(|error| failed(error.to_string()))?;
            match tokio::time::timeout(DEADLINE, client.request_text(request)).await {
                Ok(Ok(_)) => return Ok(()),
                Ok(Err(kube::Error::Api(status))) if status.code == 404 => return Ok(()),
                Ok(Err(error)) => last = failed(runtime::errors::chain(&error)),
                Err(_) => last = failed(format!("no answer within {} s", DEADLINE.as_secs())),
            }
        }
        Err(last)
    }
}
