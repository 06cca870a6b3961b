//! The end of pods, before the node ends.
//!
//! Order: the kubelet stops first, since it starts pods again; then pods with a network of their own, then those of the host's.
//! Does not: ask the API server to move pods elsewhere.
//! Fails by: a line in the log; what did not stop ends with the machine.

use std::time::{Duration, Instant};

use containers::{Pod, Stopped};
use runtime::services::Operation;
use tonic::Code;

use crate::{KubernetesNode, kubelet};

/// What a container has between SIGTERM and SIGKILL at most: who ends a node waits for it.
const LONGEST_GRACE: Duration = Duration::from_secs(30);
const WORTH_SAYING: Duration = Duration::from_secs(5);
const KUBELET_DEADLINE: Duration = Duration::from_secs(30);
const LIST_DEADLINE: Duration = Duration::from_secs(10);
/// Containers may use up their grace twice, one kind of network after the other; containerd needs a moment for each.
const DEADLINE: Duration = Duration::from_secs(90);

impl KubernetesNode {
    /// Stops the kubelet and every pod.
    pub async fn stop_pods(&self) {
        if self.runtime.services.record(kubelet::ID).is_none() {
            return;
        }
        if let Err(error) =
            self.runtime.services.operate(kubelet::ID, Operation::Stop, KUBELET_DEADLINE).await
        {
            self.runtime.journal.warn(&format!("stop the kubelet before its pods: {error}"));
        }
        let journal = &self.runtime.journal;
        let pods = match tokio::time::timeout(LIST_DEADLINE, self.engine.pods()).await {
            Ok(Ok(pods)) if pods.is_empty() => return,
            Ok(Ok(pods)) => pods,
            // Where containerd does not run, nothing does in it.
            Ok(Err(status)) if status.code() == Code::Unavailable => return,
            Ok(Err(status)) => {
                return journal.warn(&format!("list the pods to stop: {}", status.message()));
            }
            Err(_) => {
                let seconds = LIST_DEADLINE.as_secs();
                return journal.warn(&format!("list the pods to stop: no answer within {seconds} s"));
            }
        };
        journal.say(&format!("pods: stopping {}", counted(&pods)));
        let began = Instant::now();
        match tokio::time::timeout(DEADLINE, self.engine.stop_pods(&pods, LONGEST_GRACE)).await {
            Ok(all) => {
                for pod in &all {
                    if let Err(status) = &pod.result {
                        journal.warn(&format!("stop pod {}: {}", pod.name, status.message()));
                    }
                }
                let stopped = all.iter().filter(|pod| pod.result.is_ok()).count();
                let seconds = began.elapsed().as_secs_f64();
                journal.say(&format!("pods: stopped {stopped} in {seconds:.1} s{}", slowest(&all)));
            }
            Err(_) => journal.warn(&format!("pods: not all stopped within {} s", DEADLINE.as_secs())),
        }
    }
}

/// The pod that took longest, where that is a while: who waits for the node wants to know.
fn slowest(all: &[Stopped]) -> String {
    let slowest = all.iter().max_by_key(|pod| pod.took).filter(|pod| pod.took >= WORTH_SAYING);
    slowest.map_or(String::new(), |pod| format!(", {} took {:.1} s", pod.name, pod.took.as_secs_f64()))
}

fn counted(pods: &[Pod]) -> String {
    let host = pods.iter().filter(|pod| pod.in_host_network).count();
    format!("{}, {host} of them in the network of the node", pods.len())
}
