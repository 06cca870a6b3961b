//! Pods on workers, and a client that asks them by the shared address all the time.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use qemu_tests::deadline;

use crate::rig::{self, Running, SERVED, SHARED, STEP_LIMIT};

const PORT: u16 = 30080;
/// One pod on each worker. A node that is gone keeps its pod in the list of a service for as long as the cluster thinks that it
/// is there, so no pod is on a control plane node.
const OBJECTS: &str = r"
apiVersion: apps/v1
kind: Deployment
metadata: {name: shared}
spec:
  replicas: 2
  selector: {matchLabels: {app: shared}}
  template:
    metadata: {labels: {app: shared}}
    spec:
      affinity:
        nodeAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
            nodeSelectorTerms:
            - matchExpressions: [{key: node-role.kubernetes.io/control-plane, operator: DoesNotExist}]
        podAntiAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
          - {topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: {app: shared}}}
      containers:
      - name: web
        image: PROGRAMS
        command: SERVES
---
apiVersion: v1
kind: Service
metadata: {name: shared}
spec: {type: NodePort, selector: {app: shared}, ports: [{port: 80, targetPort: 8001, nodePort: 30080}]}
";
/// Of one question. A connection to a holder that is gone ends with it.
const ANSWER_LIMIT: Duration = Duration::from_secs(1);
/// Between two questions: two cores have other work, too.
const PAUSE: Duration = Duration::from_millis(100);
/// The address is elsewhere 5 s after a death; then a balancer there has to know the pods.
const SILENCE_LIMIT: Duration = Duration::from_secs(10);

struct Answers {
    last: Instant,
    longest: Duration,
    count: usize,
}

impl Answers {
    fn none() -> Self {
        Self { last: Instant::now(), longest: Duration::ZERO, count: 0 }
    }

    /// The longest time without an answer, up to now.
    fn silence(&self) -> Duration {
        self.longest.max(self.last.elapsed())
    }
}

/// Asks until it is dropped.
pub(crate) struct Workload {
    ends: Arc<AtomicBool>,
    answers: Arc<Mutex<Answers>>,
    client: Option<JoinHandle<()>>,
}

impl Drop for Workload {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        if let Some(client) = self.client.take() {
            let ended = client.join();
            // A second panic would hide the first.
            assert!(std::thread::panicking() || ended.is_ok(), "the client failed");
        }
    }
}

impl Workload {
    /// Runs a pod on each worker and waits for their first answer.
    pub(crate) fn start(cluster: &Running) -> Self {
        let objects = cluster.files.path().join("workload.yaml");
        std::fs::write(&objects, rig::objects(OBJECTS)).unwrap();
        cluster.kubectl_until(&["apply", "-f", objects.to_str().unwrap()], "service/shared", STEP_LIMIT);
        let ready = ["get", "deployment", "shared", "-o", "jsonpath={.status.readyReplicas}"];
        cluster.kubectl_until(&ready, "2", 2 * STEP_LIMIT);
        let begin = Instant::now();
        while !answers() {
            assert!(begin.elapsed() < deadline(STEP_LIMIT), "no answer by {SHARED}\n{}", cluster.state());
            std::thread::sleep(PAUSE);
        }
        let (ends, answers) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Answers::none())));
        let client = {
            let (ends, answers) = (ends.clone(), answers.clone());
            std::thread::spawn(move || {
                while !ends.load(Ordering::Relaxed) {
                    if self::answers() {
                        let mut answers = answers.lock().unwrap();
                        answers.longest = answers.silence();
                        answers.last = Instant::now();
                        answers.count += 1;
                    }
                    std::thread::sleep(PAUSE);
                }
            })
        };
        Self { ends, answers, client: Some(client) }
    }

    /// That they answered since the last call, with how long they did not at most.
    pub(crate) fn answered(&self, cluster: &Running) -> String {
        let mut answers = self.answers.lock().unwrap();
        let (count, silence) = (answers.count, answers.silence());
        *answers = Answers::none();
        assert!(
            count > 0 && silence < deadline(SILENCE_LIMIT),
            "{count} answers by {SHARED}, {silence:?} without one\n{}",
            cluster.state()
        );
        format!("pods answered {count} times by the shared address, {silence:.1?} at most without")
    }
}

/// Whether a pod serves its file by the shared address.
fn answers() -> bool {
    serves(&format!("{SHARED}:{PORT}"))
}

/// Whether a pod serves its file by an address with a port.
pub(crate) fn serves(address: &str) -> bool {
    let (path, content) = SERVED;
    let ask = || -> std::io::Result<String> {
        let address: SocketAddr = address.parse().map_err(std::io::Error::other)?;
        let mut stream = TcpStream::connect_timeout(&address, ANSWER_LIMIT)?;
        stream.set_read_timeout(Some(ANSWER_LIMIT))?;
        write!(stream, "GET {path} HTTP/1.0\r\nhost: shared\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    ask().is_ok_and(|answer| answer.contains(content))
}
