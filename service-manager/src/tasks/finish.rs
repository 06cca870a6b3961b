//! The end of a machine: services stop, then init takes over.

use runtime::sequencer::{TaskError, TaskFuture};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use handoff::{Action, ToInit};

use super::status::{Stage, publish_stage};
use crate::host_dns;
use crate::node::Node;

/// How long the services of one wave may take to stop; SIGKILL comes after 10 s of it.
const WAVE_DEADLINE: Duration = Duration::from_secs(30);
/// How long networkd may take to stop.
const NETWORK_DEADLINE: Duration = Duration::from_secs(2);
/// Internal services that must outlive the processes, which need them to the end.
const LAST: [&str; 5] = [host_dns::ID, "machined", "networkd", "timed", "udevd"];

/// Has pods go elsewhere, where the request that began the sequence wants that.
pub fn drain(node: Arc<Node>) -> TaskFuture {
    Box::pin(async move {
        let kubernetes = node.kubernetes.get().filter(|_| node.drains.swap(false, Ordering::SeqCst));
        if let Some(kubernetes) = kubernetes {
            kubernetes.drain().await;
        }
        Ok(())
    })
}

/// Stops the kubelet and every pod; a node without Kubernetes has none.
pub fn stop_all_pods(node: Arc<Node>) -> TaskFuture {
    Box::pin(async move {
        if let Some(kubernetes) = node.kubernetes.get() {
            kubernetes.stop_pods().await;
        }
        Ok(())
    })
}

/// Stops all processes, dependants first. What does not stop is named and left to init.
pub fn stop_all_services(node: Arc<Node>) -> TaskFuture {
    Box::pin(async move {
        // apid stays to the end, so that a client may watch: init ends it with everything that is left.
        let stays = |id: &String| LAST.contains(&id.as_str()) || id == "apid";
        for mut wave in node.runtime.services.stop_order() {
            wave.retain(|id| !stays(id));
            for id in &wave {
                node.runtime.services.stop(id);
            }
            if let Err(late) = node.runtime.services.wait_down(&wave, WAVE_DEADLINE).await {
                let seconds = WAVE_DEADLINE.as_secs();
                let text =
                    format!("not stopped within {seconds} s (deadline stopAllServices): {}", late.join(", "));
                node.runtime.journal.warn(&text);
            }
        }
        Ok(())
    })
}

/// Asks init to restart the machine.
pub fn reboot(node: Arc<Node>) -> TaskFuture {
    Box::pin(async move {
        publish_stage(&node, "", &Stage::Rebooting);
        finish(&node, Action::Reboot, "reboot sequence").await
    })
}

/// Asks init to cut the power, or to halt where the command line says so.
pub fn shutdown(node: Arc<Node>) -> TaskFuture {
    Box::pin(async move {
        publish_stage(&node, "", &Stage::ShuttingDown);
        // It gives its addresses back to their servers: this machine may not return.
        node.runtime.services.stop("networkd");
        let networkd = ["networkd".to_owned()];
        if node.runtime.services.wait_down(&networkd, NETWORK_DEADLINE).await.is_err() {
            let seconds = NETWORK_DEADLINE.as_secs();
            node.runtime
                .journal
                .warn(&format!("networkd: not stopped within {seconds} s (deadline network down)"));
        }
        let action = if node.runtime.parameters.halt_on_shutdown { Action::Halt } else { Action::PowerOff };
        finish(&node, action, "shutdown sequence").await
    })
}

/// How long answers and events may take to leave the machine before init ends everything.
const LAST_WORDS: Duration = Duration::from_millis(200);

pub(super) async fn finish(node: &Node, action: Action, reason: &str) -> Result<(), TaskError> {
    tokio::time::sleep(LAST_WORDS).await;
    node.runtime.journal.say(&format!("{reason}: handing over to init for {action:?}"));
    node.runtime
        .init
        .send(&ToInit::Finish { action, reason }, None)
        .map_err(|e| TaskError(format!("ask init to finish: {e}")))
}
