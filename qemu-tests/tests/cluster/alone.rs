//! A whole cluster in one virtual machine.

use std::time::Duration;

use crate::machine::{CONTROL_PLANE, LIMIT, Machine};
use crate::rig::{self, Endpoint, Running};
use crate::{inside, nothing_is_left, teller};

use config::rewrite::Form;

/// The newest release whose control plane an emulated machine carries: later ones leave etcd no time, and its leader is elected
/// again and again (measured with 1.34).
const RELEASE: &str = "1.20.";
/// From the bootstrap to the first ready pod.
const START_LIMIT: Duration = LIMIT.saturating_mul(2);
/// A server, and a client that finds it by its name. It asks until it has an answer.
const OBJECTS: &str = r"
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - {name: web, image: 'PROGRAMS', command: SERVES}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80, targetPort: 8001}]}
---
apiVersion: v1
kind: Pod
metadata: {name: asks}
spec:
  restartPolicy: OnFailure
  containers:
  - {name: asks, image: 'PROGRAMS', command: [kubectl, get, --raw, PATH, '--server=http://web.default.svc.cluster.local']}
";

#[test]
#[ignore = "long run"]
fn one_machine_is_a_whole_cluster() {
    if !inside("alone::one_machine_is_a_whole_cluster") {
        return;
    }
    let tell = teller();
    if !rig::version().starts_with(RELEASE) {
        return tell(&format!("an emulated machine does not carry Kubernetes {}", rig::version()));
    }
    let cluster = Running::start_as(&[], "v0.9", Form::V1alpha1, Endpoint::Machine);
    let machine = Machine::alone(&cluster);
    cluster.until(&["version"], &["Server"], LIMIT);
    tell("the API answers");
    cluster.begin();
    cluster.kubectl_until(&["get", "--raw", "/readyz"], "ok", START_LIMIT);
    tell("the API server is ready");
    cluster.kubectl_until(&["get", "node", CONTROL_PLANE], " Ready ", START_LIMIT);
    tell("the node is ready");
    let objects = cluster.files.path().join("objects.yaml");
    let (path, content) = rig::SERVED;
    std::fs::write(&objects, rig::objects(OBJECTS).replace("PATH", path)).unwrap();
    cluster.kubectl_until(&["apply", "-f", objects.to_str().unwrap()], "pod/asks", LIMIT);
    // Not by exec: what runs in a pod's container for a client takes minutes here.
    let phase = ["get", "pod", "asks", "-o", "jsonpath={.status.phase}"];
    cluster.kubectl_until(&phase, "Succeeded", START_LIMIT);
    cluster.kubectl_until(&["logs", "asks"], content, LIMIT);
    tell("a pod finds a service by its name");
    drop(machine);
    drop(cluster);
    nothing_is_left();
}
