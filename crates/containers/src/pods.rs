//! Pods of Kubernetes: which run, and how they end.
//!
//! Owns: the order in which pods end. Those with a network of their own come first: what programs the network of the node runs
//! in pods of the host's network, and their network is taken back by plugins that may ask it.
//! Does not: remove pods, run what a pod wants run before its end (`preStop`, which is the kubelet's), or keep the kubelet from
//! starting them again; the caller stops that first.
//! Fails by: [`Stopped::result`] of a pod; the others are stopped all the same.
//! Source: k8s.io/cri-api, runtime.v1; the kubelet's annotations of containers.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use tonic::Status;

use super::Client;
use super::pods_wire as wire;

/// States and kinds of [`wire`].
const READY: i32 = 0;
const RUNNING: i32 = 1;
const EXITED: i32 = 2;
const NETWORK_OF_HOST: i32 = 2;
/// Seconds that a pod wants between SIGTERM and SIGKILL.
const GRACE: &str = "io.kubernetes.pod.terminationGracePeriod";
/// Where it says nothing, as Kubernetes has it.
const USUAL_GRACE: Duration = Duration::from_secs(30);

/// A pod that runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pod {
    id: String,
    /// `namespace/name`.
    pub name: String,
    /// Whether it is in the network of the host.
    pub in_host_network: bool,
    /// Its running containers, with the grace that each one has.
    containers: Vec<(String, Duration)>,
}

/// How a pod ended.
#[derive(Debug)]
pub struct Stopped {
    /// `namespace/name`.
    pub name: String,
    /// How long that took.
    pub took: Duration,
    /// Why it did not.
    pub result: Result<(), Status>,
}

impl Client {
    /// The pods that run.
    ///
    /// # Errors
    /// The status of the first call that fails.
    pub async fn pods(&self) -> Result<Vec<Pod>, Status> {
        let all = wire::ListRequest {};
        let sandboxes: wire::ListPodSandboxResponse =
            self.unary("/runtime.v1.RuntimeService/ListPodSandbox", all).await?;
        let containers: wire::ListContainersResponse =
            self.unary("/runtime.v1.RuntimeService/ListContainers", wire::ListRequest {}).await?;
        let mut pods = Vec::new();
        for sandbox in sandboxes.items.into_iter().filter(|sandbox| sandbox.state == READY) {
            let metadata = sandbox.metadata.unwrap_or_default();
            let own = containers
                .containers
                .iter()
                .filter(|container| container.pod_sandbox_id == sandbox.id && container.state == RUNNING);
            pods.push(Pod {
                name: format!("{}/{}", metadata.namespace, metadata.name),
                in_host_network: self.is_in_host_network(&sandbox.id).await?,
                containers: own.map(|container| (container.id.clone(), grace(container))).collect(),
                id: sandbox.id,
            });
        }
        Ok(pods)
    }

    /// Ids of the containers of pods that have ended and are kept: containerd has no task of them any more.
    ///
    /// # Errors
    /// The call's status.
    pub async fn exited(&self) -> Result<HashSet<String>, Status> {
        let all = wire::ListRequest {};
        let listed: wire::ListContainersResponse =
            self.unary("/runtime.v1.RuntimeService/ListContainers", all).await?;
        let exited = listed.containers.into_iter().filter(|container| container.state == EXITED);
        Ok(exited.map(|container| container.id).collect())
    }

    async fn is_in_host_network(&self, sandbox: &str) -> Result<bool, Status> {
        let request = wire::PodSandboxStatusRequest { pod_sandbox_id: sandbox.to_owned() };
        let answer = self.unary("/runtime.v1.RuntimeService/PodSandboxStatus", request).await;
        let answer: wire::PodSandboxStatusResponse = match answer {
            // It went meanwhile.
            Err(status) if status.code() == tonic::Code::NotFound => return Ok(false),
            other => other?,
        };
        let namespaces = answer.status.and_then(|status| status.linux).and_then(|linux| linux.namespaces);
        let options = namespaces.and_then(|namespaces| namespaces.options);
        Ok(options.is_some_and(|options| options.network == NETWORK_OF_HOST))
    }

    /// Stops these pods: all of one kind of network at once, each container with its own grace, but at most `longest`.
    pub async fn stop_pods(&self, pods: &[Pod], longest: Duration) -> Vec<Stopped> {
        let mut all = Vec::new();
        for in_host_network in [false, true] {
            let wave = pods.iter().filter(|pod| pod.in_host_network == in_host_network);
            let stopped = join_all(wave.map(|pod| async move {
                let began = Instant::now();
                let result = self.stop_pod(pod, longest).await;
                Stopped { name: pod.name.clone(), took: began.elapsed(), result }
            }));
            all.extend(stopped.await);
        }
        all
    }

    async fn stop_pod(&self, pod: &Pod, longest: Duration) -> Result<(), Status> {
        let containers = join_all(pod.containers.iter().map(|(id, grace)| {
            let timeout = i64::try_from((*grace).min(longest).as_secs()).unwrap_or(i64::MAX);
            let request = wire::StopContainerRequest { container_id: id.clone(), timeout };
            self.unary::<_, wire::Nothing>("/runtime.v1.RuntimeService/StopContainer", request)
        }));
        let containers: Result<Vec<_>, _> = containers.await.into_iter().collect();
        // What is left of the pod ends with it, and without a grace.
        let request = wire::StopPodSandboxRequest { pod_sandbox_id: pod.id.clone() };
        let pod = self.unary::<_, wire::Nothing>("/runtime.v1.RuntimeService/StopPodSandbox", request).await;
        containers.and(pod).map(drop)
    }
}

fn grace(container: &wire::Container) -> Duration {
    let said = container.annotations.get(GRACE).and_then(|text| text.parse().ok());
    said.map_or(USUAL_GRACE, Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_has_the_grace_of_its_pod() {
        let container = |text: &str| wire::Container {
            annotations: [(GRACE.to_owned(), text.to_owned())].into(),
            ..wire::Container::default()
        };
        assert_eq!(grace(&container("1")), Duration::from_secs(1));
        assert_eq!(grace(&container("-1")), USUAL_GRACE);
        assert_eq!(grace(&wire::Container::default()), USUAL_GRACE);
    }
}
