use std::time::Duration;

use runtime::store::MACHINE_CONFIG;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::net::{TcpListener, TcpStream, UdpSocket};

use super::*;
use crate::node::Node;

const DEADLINE: Duration = Duration::from_secs(30);

fn node() -> (tempfile::TempDir, Arc<Node>) {
    let dir = tempfile::tempdir().unwrap();
    let node = crate::server::tests_node(dir.path().to_owned());
    (dir, node)
}

fn configure(node: &Node, more: &str) {
    let text = format!("version: v1alpha1\nmachine:\n  type: worker\n  token: a.b\n{more}");
    let loaded = config::load(text.as_bytes()).unwrap_or_else(|e| panic!("{e}"));
    let document = MachineDocument::new(zeroize::Zeroizing::new(text), loaded.config, loaded.documents);
    let shared = document.config.clone();
    let spec = Spec::MachineConfig(Arc::new(document));
    node.runtime.store.put(MACHINE_CONFIG.writer, &MACHINE_CONFIG, "v1alpha1", spec).unwrap();
    node.runtime.config.send_replace(Some(shared));
}

fn destinations(endpoint: &str) -> String {
    format!(
        "  logging:\n    destinations:\n      - endpoint: {endpoint}\n        format: json_lines\n        extraTags: {{server: s03}}\n"
    )
}

async fn in_time<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, work).await.expect("in time")
}

/// The next line of a log that is not machined's own.
async fn next_of(lines: &mut Lines<BufReader<TcpStream>>, service: &str) -> Value {
    loop {
        let text = in_time(lines.next_line()).await.unwrap().expect("a line");
        let value: Value = serde_json::from_str(&text).unwrap();
        if value["talos-service"] == service {
            return value;
        }
    }
}

async fn accept(listener: &TcpListener) -> Lines<BufReader<TcpStream>> {
    BufReader::new(in_time(listener.accept()).await.unwrap().0).lines()
}

async fn status(node: &Node, holds: impl Fn(&str) -> bool) -> String {
    in_time(async {
        loop {
            let found = node.runtime.store.list(&LOG_DESTINATION_STATUS);
            if let Some(text) = found.first().map(|status| status.spec.yaml().unwrap())
                && holds(&text)
            {
                return text;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await
}

#[tokio::test]
async fn lines_of_services_arrive_over_tcp_also_of_later_ones() {
    let (_dir, node) = node();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("tcp://{}", listener.local_addr().unwrap());
    let mut early = node.runtime.logs.open("early").unwrap();
    early.append(b"kept from before\n").unwrap();
    configure(&node, &destinations(&endpoint));
    tokio::spawn(run(node.runtime.clone()));
    let mut lines = accept(&listener).await;
    let first = next_of(&mut lines, "early").await;
    assert_eq!((&first["msg"], &first["server"]), (&"kept from before".into(), &"s03".into()));
    let mut late = node.runtime.logs.open("late").unwrap();
    late.append(b"half a ").unwrap();
    late.append(b"line\nand one\n").unwrap();
    assert_eq!(next_of(&mut lines, "late").await["msg"], "half a line");
    assert_eq!(next_of(&mut lines, "late").await["msg"], "and one");
}

#[tokio::test]
async fn a_receiver_that_comes_back_gets_what_it_missed() {
    let (_dir, node) = node();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let mut log = node.runtime.logs.open("svc").unwrap();
    configure(&node, &destinations(&format!("tcp://{address}")));
    tokio::spawn(run(node.runtime.clone()));
    log.append(b"while nobody listens\n").unwrap();
    status(&node, |text| text.contains("state: waiting") && text.contains("connect")).await;
    let listener = TcpListener::bind(address).await.unwrap();
    let mut lines = accept(&listener).await;
    assert_eq!(next_of(&mut lines, "svc").await["msg"], "while nobody listens");
    // It hangs up: the next line waits for the next connection.
    drop(lines);
    tokio::time::timeout(DEADLINE, async {
        log.append(b"after the first\n").unwrap();
        let mut lines = accept(&listener).await;
        assert_eq!(next_of(&mut lines, "svc").await["msg"], "after the first");
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn dropped_lines_are_counted_and_told() {
    let (_dir, node) = node();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    configure(&node, &destinations(&format!("tcp://{address}")));
    tokio::spawn(run(node.runtime.clone()));
    let mut log = node.runtime.logs.open("flood").unwrap();
    let line = format!("{}\n", "x".repeat(1023));
    for _ in 0..1500 {
        log.append(line.as_bytes()).unwrap();
        tokio::task::yield_now().await;
    }
    // Back-off: the resource follows with the next try.
    status(&node, |text| text.contains("state: waiting") && !text.contains("dropped: 0\n")).await;
    let listener = TcpListener::bind(address).await.unwrap();
    let mut lines = accept(&listener).await;
    let told = next_of(&mut lines, "machined").await;
    assert_eq!(told["talos-level"], "warn");
    assert!(told["msg"].as_str().unwrap().ends_with("log lines before this one were dropped"), "{told}");
}

#[tokio::test]
async fn a_packet_is_a_line_and_a_receiver_that_left_the_config_is_forgotten() {
    let (_dir, node) = node();
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    configure(&node, &destinations(&format!("udp://{}", socket.local_addr().unwrap())));
    tokio::spawn(run(node.runtime.clone()));
    let mut log = node.runtime.logs.open("svc").unwrap();
    log.append(b"one\ntwo\n").unwrap();
    let mut seen = Vec::new();
    let mut packet = vec![0; 65536];
    while seen.len() < 2 {
        let length = in_time(socket.recv(&mut packet)).await.unwrap();
        let value: Value = serde_json::from_slice(&packet[..length]).unwrap();
        if value["talos-service"] == "svc" {
            seen.push(value["msg"].clone());
        }
    }
    assert_eq!(seen, ["one", "two"]);
    configure(&node, "");
    in_time(async {
        while !node.runtime.store.list(&LOG_DESTINATION_STATUS).is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
}

#[test]
fn receivers_of_the_kernel_s_log_come_from_documents_and_the_parameter() {
    let (_dir, node) = node();
    configure(
        &node,
        "---\napiVersion: v1alpha1\nkind: KmsgLogConfig\nname: far\nurl: tcp://192.168.3.7:3478/\n",
    );
    let wanted = wanted(node.runtime.document().as_deref(), Some("udp://10.0.0.1:514"));
    publish_kernel(&node.runtime, &wanted);
    let text = node.runtime.store.get(&KMSG_LOG_CONFIG, "kmsg-log").unwrap().spec.yaml().unwrap();
    assert!(text.contains("tcp://192.168.3.7:3478/") && text.contains("udp://10.0.0.1:514"), "{text}");
}

/// The kernel prints its command line into its log.
#[tokio::test]
async fn the_kernels_log_is_sent_without_secrets_of_the_command_line() {
    let (dir, node) = node();
    let kernel = crate::server::tests_kernel_log(dir.path());
    let record = b"6,1,1000000,-;Kernel command line: billet.config.inline=c2VjcmV0 quiet\n";
    rustix::io::write(&kernel, record).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let receiver =
        format!("---\napiVersion: v1alpha1\nkind: KmsgLogConfig\nname: far\nurl: tcp://{address}/\n");
    configure(&node, &receiver);
    tokio::spawn(run(node.runtime.clone()));
    let mut lines = accept(&listener).await;
    let line = in_time(lines.next_line()).await.unwrap().expect("a line");
    let line: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(line["msg"], "Kernel command line: billet.config.inline=<hidden> quiet");
}
