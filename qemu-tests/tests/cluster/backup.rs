//! Snapshots that nodes take by themselves: on the node, at a server that takes files, and as what a lost cluster begins with.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use qemu_tests::deadline;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};

use crate::rig::{Running, STEP_LIMIT};

const PORT: u16 = 5099;
const PASSWORD: &str = "Bearer of-the-target";
/// More than any snapshot of these clusters.
const MOST_BYTES: usize = 256 << 20;

/// What was put, by its path.
pub(crate) type Files = Arc<Mutex<BTreeMap<String, Vec<u8>>>>;

/// A server that takes files of whoever has the password, on every address of the namespace.
pub(crate) fn target(runtime: &tokio::runtime::Runtime) -> Files {
    let files = Files::default();
    let listener = runtime.block_on(TcpListener::bind(("0.0.0.0", PORT))).unwrap();
    let taken = files.clone();
    runtime.spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let taken = taken.clone();
            tokio::spawn(async move { take(stream, &taken).await });
        }
    });
    files
}

/// One request of a connection; a broken one leaves nothing.
async fn take(stream: TcpStream, files: &Files) -> Option<()> {
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    stream.read_line(&mut line).await.ok()?;
    let path = line.strip_prefix("PUT ")?.split(' ').next()?.to_owned();
    let (mut length, mut is_allowed) = (0, false);
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await.ok()?;
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.parse().ok().filter(|length| *length <= MOST_BYTES)?,
            "authorization" => is_allowed = value == PASSWORD,
            _ => {}
        }
    }
    let mut content = vec![0; length];
    stream.read_exact(&mut content).await.ok()?;
    let answer = if is_allowed { "201 Created" } else { "401 Unauthorized" };
    if is_allowed {
        files.lock().unwrap().insert(path, content);
    }
    let answer = format!("HTTP/1.1 {answer}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
    stream.write_all(answer.as_bytes()).await.ok()
}

/// Who may read the nodes' configs.
pub(crate) struct Reader {
    identity: PathBuf,
    recipient: String,
}

impl Reader {
    pub(crate) fn new(cluster: &Running) -> Self {
        let identity = cluster.files.path().join("age");
        let made = Command::new("age-keygen").arg("-o").arg(&identity).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let public = Command::new("age-keygen").arg("-y").arg(&identity).output().unwrap();
        Self { identity, recipient: String::from_utf8(public.stdout).unwrap().trim().to_owned() }
    }

    fn read(&self, cluster: &Running, sealed: &[u8]) -> String {
        let file = cluster.files.path().join("config.age");
        std::fs::write(&file, sealed).unwrap();
        let opened = Command::new("age").arg("-d").arg("-i").arg(&self.identity).arg(&file).output().unwrap();
        assert!(opened.status.success(), "{}", String::from_utf8_lossy(&opened.stderr));
        String::from_utf8(opened.stdout).unwrap()
    }
}

/// Has the node with this address take snapshots often, and put them to the target.
pub(crate) fn ask_for_snapshots(cluster: &Running, node: &str, reader: &Reader) {
    let document = format!(
        "apiVersion: v1alpha1\nkind: ExtensionServiceConfig\nname: billet-etcd-snapshots\nenvironment:\n- INTERVAL=30s\n- KEEP=2\n\
             - TARGET=http://10.5.0.1:{PORT}/etcd\n- AUTHORIZATION={PASSWORD}\n- AGE_RECIPIENTS={}\n",
        reader.recipient
    );
    cluster.patch(node, &document);
}

/// A snapshot of this node that began later than now, as the target has it.
pub(crate) fn next_snapshot(cluster: &Running, node: &str, files: &Files, reader: &Reader) -> Vec<u8> {
    let is_of_node = |path: &String| path.starts_with(&format!("/etcd/{node}/")) && path.ends_with(".db");
    let known = |files: &Files| {
        files.lock().unwrap().keys().filter(|path| is_of_node(path)).cloned().collect::<Vec<_>>()
    };
    // One may be on its way that began before.
    let (begin, before) = (Instant::now(), known(files).len());
    let path = loop {
        match known(files) {
            paths if paths.len() > before + 1 => break paths.last().unwrap().clone(),
            paths => assert!(
                begin.elapsed() < deadline(STEP_LIMIT),
                "{paths:?}: no snapshot comes\n{}",
                cluster.state()
            ),
        }
        std::thread::sleep(std::time::Duration::from_millis(250));
    };
    let config = path.replace(".db", ".config.yaml.age");
    let sealed = loop {
        if let Some(sealed) = files.lock().unwrap().get(&config).cloned() {
            break sealed;
        }
        assert!(begin.elapsed() < deadline(STEP_LIMIT), "{config} does not come");
        std::thread::sleep(std::time::Duration::from_millis(250));
    };
    let text = reader.read(cluster, &sealed);
    assert!(text.contains("billet-etcd-snapshots") && text.contains("secretboxEncryptionSecret"), "{text}");
    files.lock().unwrap()[&path].clone()
}

/// The node with this name and address shows its last snapshot and keeps two.
pub(crate) fn status_is_shown(cluster: &Running, node: &str, address: &str) {
    let words = ["-n", address, "get", "etcdsnapshotstatuses", "-o", "yaml"];
    let shown =
        cluster.until(&words, &["target: http://10.5.0.1:5099/etcd", "kept: 2", "error: \"\""], STEP_LIMIT);
    assert!(!shown.contains(PASSWORD), "{shown}");
    let directory = cluster.cluster.as_ref().unwrap().node_directory(node).join("var/lib/etcd.snapshots");
    let names =
        std::fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let names: Vec<String> = names.filter(|name| name.ends_with(".db")).collect();
    assert!((1..=3).contains(&names.len()), "{names:?}");
    cluster.until(&["-n", address, "ls", "/var/lib/etcd.snapshots"], &["status.json"], STEP_LIMIT);
}
