//! Containers by their labels, and services beside them.

use runtime::services::Definition;

use super::*;

fn container(labels: &[(&str, &str)]) -> Container {
    let labels = labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    let mut container = Container::default();
    (container.id, container.labels, container.image) = ("abc".into(), labels, "image".into());
    container
}

#[test]
fn containers_of_pods_are_called_by_their_pod() {
    let pod = [("io.kubernetes.pod.namespace", "kube-system"), ("io.kubernetes.pod.name", "proxy-1")];
    let sandbox = container(&[&pod[..], &[("io.cri-containerd.kind", "sandbox")]].concat());
    let inside = container(
        &[&pod[..], &[("io.cri-containerd.kind", "container"), ("io.kubernetes.container.name", "proxy")]]
            .concat(),
    );
    let running = Task { pid: 7, status: TaskStatus::Running.into(), ..Default::default() };
    let info = describe("k8s.io", &sandbox, Some(&running), running.status());
    assert_eq!((info.id.as_str(), info.status.as_str()), ("kube-system/proxy-1", "SANDBOX_READY"));
    let info = describe("k8s.io", &inside, None, TaskStatus::Stopped);
    assert_eq!(
        (info.id.as_str(), info.pod_id.as_str()),
        ("kube-system/proxy-1:proxy", "kube-system/proxy-1")
    );
    assert_eq!((info.status.as_str(), info.name.as_str()), ("CONTAINER_EXITED", "proxy"));
    let info = describe("system", &container(&[]), Some(&running), running.status());
    assert_eq!((info.id.as_str(), info.pod_id.as_str(), info.status.as_str()), ("abc", "abc", "RUNNING"));
}

/// For what takes milliseconds, on a machine that has much else to do.
const SOON: Duration = Duration::from_secs(20);

/// A node with a service that sleeps, under this id.
async fn with_service(root: &Path, id: &str) -> Arc<Node> {
    let node = crate::server::tests_node(root.canonicalize().unwrap());
    let mut definition = Definition::process(id, &["/bin/sh", "-c", "exec sleep 60"]);
    // Both take privilege that the test process may not have.
    (definition.share.oom_score_adj, definition.share.open_files) = (None, None);
    node.runtime.services.define(definition);
    node.runtime.services.define(Definition::internal("udevd", || Box::pin(std::future::pending())));
    for id in [id, "udevd"] {
        node.runtime.services.start(id);
    }
    node.runtime.services.wait_up(&[id.to_owned(), "udevd".to_owned()], SOON).await.unwrap();
    node
}

/// Waits for a process that is not this one.
async fn next_pid(node: &Node, id: &str, before: Option<u32>) -> u32 {
    let changed = async {
        loop {
            let listed = node.runtime.services.processes().into_iter().find(|service| service.id == id);
            match listed.and_then(|service| service.pid) {
                Some(pid) if Some(pid) != before => return pid,
                _ => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        }
    };
    tokio::time::timeout(SOON, changed).await.expect("another process")
}

async fn end(node: &Node, id: &str) {
    node.runtime.services.stop(id);
    node.runtime.services.wait_down(&[id.to_owned()], SOON).await.unwrap();
}

#[tokio::test]
async fn containers_and_stats_list_the_same_services() {
    let dir = tempfile::tempdir().unwrap();
    let node = with_service(dir.path(), "trustd").await;
    let group = dir.path().join("sys/fs/cgroup/system/trustd");
    fs::create_dir_all(&group).unwrap();
    fs::write(group.join("memory.current"), "4096\n").unwrap();
    fs::write(group.join("cpu.stat"), "usage_usec 5\nuser_usec 4\n").unwrap();
    let answer = list(&node, &proto::ContainersRequest::default()).await.unwrap();
    let [listed] = &answer.messages[0].containers[..] else { panic!("{answer:?}") };
    let pid = next_pid(&node, "trustd", None).await;
    assert_eq!((listed.id.as_str(), listed.namespace.as_str(), listed.pid), ("trustd", "system", pid));
    assert_eq!((listed.image.as_str(), listed.status.as_str()), ("/bin/sh", "RUNNING"));
    // Clients indent rows whose pod is another.
    assert_eq!(listed.pod_id, listed.id);
    let answer = stats(&node, &proto::StatsRequest::default()).await.unwrap();
    let [measured] = &answer.messages[0].stats[..] else { panic!("{answer:?}") };
    assert_eq!((measured.id.as_str(), measured.memory_usage, measured.cpu_usage), ("trustd", 4096, 5000));
    end(&node, "trustd").await;
    let answer = list(&node, &proto::ContainersRequest::default()).await.unwrap();
    assert_eq!(
        (answer.messages[0].containers[0].status.as_str(), answer.messages[0].containers[0].pid),
        ("STOPPED", 0)
    );
    let answer = stats(&node, &proto::StatsRequest::default()).await.unwrap();
    assert!(answer.messages[0].stats.is_empty(), "{answer:?}");
}

#[tokio::test]
async fn a_restart_gives_a_service_a_new_process() {
    for id in ["trustd", "apid"] {
        let dir = tempfile::tempdir().unwrap();
        let node = with_service(dir.path(), id).await;
        let before = next_pid(&node, id, None).await;
        let request = |id: &str| proto::RestartRequest { id: id.into(), ..Default::default() };
        restart(&node, &request(id)).await.unwrap();
        let after = next_pid(&node, id, Some(before)).await;
        assert_ne!(before, after, "{id}");
        // Tasks of machined are no containers.
        for unknown in ["udevd", "nothing"] {
            let error = restart(&node, &request(unknown)).await.unwrap_err();
            assert_eq!(error.code(), tonic::Code::NotFound, "{unknown}: {error}");
        }
        let elsewhere = proto::RestartRequest { namespace: "k8s.io".into(), driver: 1, ..request(id) };
        let error = restart(&node, &elsewhere).await.unwrap_err();
        assert_eq!(error.code(), tonic::Code::FailedPrecondition, "{error}");
        end(&node, id).await;
        let error = restart(&node, &request(id)).await.unwrap_err();
        assert!(error.message().starts_with(&format!("service {id:?} has no process now")), "{error}");
    }
}

/// The answer passes through apid.
#[tokio::test]
async fn apid_ends_after_it_has_passed_on_the_answer() {
    let dir = tempfile::tempdir().unwrap();
    let node = with_service(dir.path(), APID).await;
    let before = next_pid(&node, APID, None).await;
    let began = std::time::Instant::now();
    restart(&node, &proto::RestartRequest { id: APID.into(), ..Default::default() }).await.unwrap();
    next_pid(&node, APID, Some(before)).await;
    assert!(began.elapsed() >= ANSWER_PASSES);
    end(&node, APID).await;
}

#[tokio::test]
async fn what_names_no_containerd_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let node = crate::server::tests_node(dir.path().canonicalize().unwrap());
    let kubernetes = proto::ContainersRequest { namespace: "k8s.io".into(), driver: 1 };
    let error = list(&node, &kubernetes).await.unwrap_err();
    assert_eq!(error.code(), tonic::Code::FailedPrecondition);
    assert!(error.message().starts_with("containerd does not run"), "{error}");
    for (namespace, driver) in [("else", 0), ("system", 7)] {
        let request = proto::ContainersRequest { namespace: namespace.into(), driver };
        assert_eq!(list(&node, &request).await.unwrap_err().code(), tonic::Code::InvalidArgument);
    }
}
