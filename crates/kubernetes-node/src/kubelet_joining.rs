//! The moment at which the kubelet of a worker starts for the first time: when its cluster lets it ask for a certificate.
//!
//! A worker often starts beside the control plane that it joins. A kubelet that is refused doubles its delays, and then registers
//! up to half a minute after the cluster would have taken it.
//!
//! Owns: the deadline, after which the kubelet starts all the same: static pods of the configuration need no cluster.
//! Does not: ask for the certificate; the kubelet does.
//! Fails by: nothing; the log says once why it waits.
//! Source: Kubernetes, "TLS bootstrapping"; API reference, "SelfSubjectAccessReview".

use std::sync::Arc;
use std::time::Duration;

use config::Config;
use kubernetes::{Cluster, paths};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::{Error, KubernetesNode, api_server, kubelet_credentials};

/// A cluster whose images are on its nodes needs less.
const DEADLINE: Duration = Duration::from_secs(60);
/// Between two questions.
const PERIOD: Duration = Duration::from_millis(250);
/// Where a user asks what it may do.
const REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

impl KubernetesNode {
    /// Waits until the cluster takes requests of a kubelet with the token, or until [`DEADLINE`]. A kubelet that has a certificate,
    /// and one that is to join no cluster, need not wait. The bootstrap kubeconfig is there. `config`: as it was before the
    /// kubelet was prepared; answers whether it still is that.
    pub(crate) async fn wait_for_cluster(&self, config: &mut watch::Receiver<Option<Arc<Config>>>) -> bool {
        tokio::select! {
            biased;
            changed = config.changed() => changed.is_err(),
            // A kubelet that starts too early says by itself what it lacks.
            _ = timeout(DEADLINE, self.until_it_may_ask()) => true,
        }
    }

    async fn until_it_may_ask(&self) {
        let mut is_told = false;
        while self.needs_token() {
            let Err(reason) = self.may_ask().await else { return };
            if !is_told {
                let seconds = DEADLINE.as_secs();
                self.runtime.journal.say(&format!(
                    "kubelet waits up to {seconds} s for its cluster to take requests with cluster.token: {reason}"
                ));
                is_told = true;
            }
            sleep(PERIOD).await;
        }
    }

    fn needs_token(&self) -> bool {
        let Some(config) = self.runtime.config() else { return false };
        let Ok(cluster) = Cluster::new(&config) else { return false };
        cluster.kubelet().skip_node_registration != Some(true)
            && !kubelet_credentials::are_there(&self.runtime.root)
    }

    async fn may_ask(&self) -> Result<(), Error> {
        let client = api_server::client_of_file(&self.runtime.root, paths::BOOTSTRAP_KUBECONFIG).await?;
        let answer = api_server::post(&client, REVIEWS, &review()).await?;
        if is_allowed(&answer) {
            return Ok(());
        }
        let reason = "the token may not ask for certificates yet".to_owned();
        Err(Error::ApiServer { what: "ask", reason })
    }
}

/// Whether this user may ask for certificates.
fn review() -> Value {
    json!({
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": { "resourceAttributes": {
            "group": "certificates.k8s.io", "resource": "certificatesigningrequests", "verb": "create",
        } },
    })
}

fn is_allowed(answer: &Value) -> bool {
    answer["status"]["allowed"] == Value::Bool(true)
}

#[cfg(test)]
mod tests {
    use runtime::services::definition::Work;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;
    use crate::samples;

    #[test]
    fn a_refusal_is_no_permission() {
        assert!(is_allowed(&json!({ "status": { "allowed": true } })));
        for none in [json!({ "status": { "allowed": false } }), json!({ "status": {} }), json!("text")] {
            assert!(!is_allowed(&none), "{none}");
        }
    }

    /// An API server that refuses once, then allows.
    async fn api_server(listener: TcpListener) -> usize {
        for (round, answer) in [
            "HTTP/1.1 401 Unauthorized\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}".to_owned(),
            format!(
                "HTTP/1.1 201 Created\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n{}",
                json!({ "status": { "allowed": true } })
            ),
        ]
        .iter()
        .enumerate()
        {
            let (mut client, _) = listener.accept().await.unwrap();
            let mut asked = Vec::new();
            while !String::from_utf8_lossy(&asked).contains("\"create\"") {
                assert!(client.read_buf(&mut asked).await.unwrap() > 0, "round {round}");
            }
            let asked = String::from_utf8_lossy(&asked).into_owned();
            assert!(asked.starts_with(&format!("POST {REVIEWS} ")), "{asked}");
            assert!(asked.contains("Bearer abcdef.0123456789abcdef"), "{asked}");
            client.write_all(answer.as_bytes()).await.unwrap();
        }
        2
    }

    #[tokio::test]
    async fn a_kubelet_without_a_certificate_waits_until_its_token_is_taken() {
        let root = tempfile::tempdir().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let config = samples::control_plane("v1.34.10", "v3.6.4");
        let runtime = samples::known(root.path(), &config);
        let fetch: containers::service::Fetch = Arc::new(|_, _| Box::pin(async { Ok(()) }));
        let forever = || -> Work { Box::pin(std::future::pending()) };
        runtime.services.define(runtime::services::Definition::internal("kubelet", forever));
        let node = KubernetesNode::new(
            runtime.clone(),
            containers::Client::new(root.path(), "system"),
            fetch,
            false,
        );
        std::fs::create_dir_all(root.path().join("etc/kubernetes")).unwrap();
        let text = format!(
            "apiVersion: v1\nkind: Config\nclusters: [{{name: a, cluster: {{server: 'http://{address}'}}}}]\nusers: [{{name: \
             a, user: {{token: abcdef.0123456789abcdef}}}}]\ncontexts: [{{name: a, context: {{cluster: a, user: a}}}}]\n\
             current-context: a\n"
        );
        std::fs::write(root.path().join(paths::BOOTSTRAP_KUBECONFIG.trim_start_matches('/')), text).unwrap();
        let server = tokio::spawn(api_server(listener));
        let mut config = runtime.config.subscribe();
        assert!(node.wait_for_cluster(&mut config).await);
        assert_eq!(server.await.unwrap(), 2);
        // Nothing listens any more, and another config may have another token or endpoint, also one that came before the wait.
        let mend = async {
            tokio::task::yield_now().await;
            runtime.config.send_modify(|_| ());
        };
        assert!(!tokio::join!(node.wait_for_cluster(&mut config), mend).0);
        runtime.config.send_modify(|_| ());
        assert!(!node.wait_for_cluster(&mut config).await);
        // One that has a certificate asks no one.
        let pki = root.path().join(paths::KUBELET_PKI.trim_start_matches('/'));
        std::fs::create_dir_all(&pki).unwrap();
        std::fs::write(pki.join(kubelet_credentials::CERTIFICATE), "").unwrap();
        node.until_it_may_ask().await;
    }
}
