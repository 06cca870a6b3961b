//! The node's object in its cluster, when the node goes for good.
//!
//! Source: Kubernetes API reference, "Node".

use std::net::IpAddr;
use std::time::Duration;

use http::Request;
use kubernetes::Cluster;

use crate::{Error, KubernetesNode, api_server, control_planes, facts};

const DEADLINE: Duration = Duration::from_secs(10);

impl KubernetesNode {
    /// The addresses of the cluster's API servers other than this node's: asked before this one's etcd is gone.
    pub async fn other_api_servers(&self) -> Vec<IpAddr> {
        let asked = async {
            let config = self.runtime.config().ok_or(Error::NoConfig)?;
            let cluster = Cluster::new(&config)?;
            let node = facts::node(&self.runtime, &cluster, self.is_container)?;
            let client = api_server::client(&cluster).await?;
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
