//! Containers of the node's own, run by the image's containerd and runc.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use oci::archive::{Bytes, Content, NewImage};
use oci::registry::{self, Mirror, Patience, Settings};
use oci::server::{Behaviour, Server};
use ondisk::Architecture;
use runtime::Runtime;
use runtime::services::machine::State;
use runtime::services::{Definition, Operation};

use super::*;
use crate::testing::{Daemon, PLAIN};

/// For what takes a second, on a machine that has much else to do.
const SOON: Duration = Duration::from_secs(60);

/// Says who it is, then does as its argument says.
const PROGRAM: &str = r#"
fn main() {
    let words: Vec<String> = std::env::args().collect();
    println!("pid {}, {} {}", std::process::id(), words[1], std::env::var("WORD").unwrap_or_default());
    println!("sees {}", std::fs::read_to_string("/given/file").unwrap_or_default());
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    println!("{}", status.lines().find(|line| line.starts_with("CapEff:")).unwrap());
    println!("writes {}", std::fs::write("/own", "x").is_ok());
    match words[1].as_str() {
        "exit" => std::process::exit(7),
        _ => std::thread::sleep(std::time::Duration::from_secs(600)),
    }
}
"#;

/// A static program for the image.
fn compiled(dir: &Path) -> std::path::PathBuf {
    let (source, program) = (dir.join("program.rs"), dir.join("program"));
    std::fs::write(&source, PROGRAM).unwrap();
    let mut rustc = Command::new("rustc");
    rustc.args(["--edition", "2024", "-C", "target-feature=+crt-static", "-C", "opt-level=s", "-o"]);
    let compiled = rustc.arg(&program).arg(&source).output().unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    program
}

/// A registry with the program in an image of two layers.
async fn served(dir: &Path) -> (Server, String) {
    let file = |path: &str, bytes| Content { path: path.to_owned(), bytes };
    let image = NewImage {
        architecture: Architecture::OWN.name().to_owned(),
        tag: "test".into(),
        labels: BTreeMap::new(),
        layers: vec![
            vec![file("bin/program", Bytes::Program(compiled(dir)))],
            vec![file("etc/word", Bytes::Here(b"hello".to_vec()))],
        ],
    };
    let archive = dir.join("image.tar");
    oci::archive::write(&mut std::fs::File::create(&archive).unwrap(), &image).unwrap();
    let server = Server::start(None, Behaviour::default()).await.unwrap();
    server.serve(&archive, "test/program", "1").unwrap();
    let name = format!("{}/test/program:1", server.address());
    (server, name)
}

struct Fixture {
    daemon: Daemon,
    _server: Server,
    image: String,
    dir: tempfile::TempDir,
    fetches: Arc<AtomicUsize>,
    /// runc knows containers of one namespace by their ids, whichever containerd asks.
    id: &'static str,
}

impl Fixture {
    async fn start(id: &'static str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (server, image) = served(dir.path()).await;
        std::fs::write(dir.path().join("file"), "given").unwrap();
        let daemon = Daemon::start(tempfile::tempdir().unwrap(), PLAIN, "").await;
        Self { daemon, _server: server, image, dir, fetches: Arc::default(), id }
    }

    /// The service as a machined would define it; each machined has a runtime of its own.
    fn machined(&self, does: &'static str) -> (Arc<Runtime>, tempfile::TempDir) {
        let root = tempfile::tempdir().unwrap();
        let runtime = Runtime::detached(root.path().to_owned());
        let mut definition = Definition::container(self.id, "", self.container(does));
        definition.api_control = true;
        runtime.services.define(definition);
        (runtime, root)
    }

    fn container(&self, does: &'static str) -> Boxed {
        let (image, fetches) = (self.image.clone(), self.fetches.clone());
        let fetch: Fetch = Arc::new(move |client, name| {
            fetches.fetch_add(1, Ordering::SeqCst);
            Box::pin(async move { pull(&client, &name).await })
        });
        let given = self.dir.path().display().to_string();
        // runc ends everything in the group of a container that it removes.
        let group = format!("billet-test-{}/{}", std::process::id(), self.id);
        let describe: Describe = Arc::new(move |_| {
            let description = Description {
                argv: vec!["/bin/program".into(), does.into()],
                env: vec!["WORD=hello".into()],
                user: (0, 0),
                mounts: vec![Mount::bind_at(&given, "/given", &["ro"])],
                rights: Rights::Capabilities(&[]),
                host_pid: false,
                group: group.clone(),
                oom_score_adj: 0,
                open_files: 64,
            };
            Box::pin(async move { Ok(description) })
        });
        let image = move || -> Step<String> {
            let image = image.clone();
            Box::pin(async move { Ok(image) })
        };
        Boxed::new(self.id, self.daemon.client("system"), image, fetch, describe)
    }
}

async fn pull(client: &Client, name: &str) -> Result<(), String> {
    // The registry of the test speaks without TLS.
    let host = name.split('/').next().unwrap_or_default();
    let mirror =
        Mirror { endpoints: vec![format!("http://{host}")], override_path: false, skip_fallback: true };
    let settings = Settings { mirrors: [(host.to_owned(), mirror)].into(), ..Settings::default() };
    let patience = Patience { stall: Duration::from_secs(5), total: Duration::from_secs(60) };
    let reference = name.parse().map_err(|error| format!("{error:?}"))?;
    let registry = registry::Client::new(reference, settings, patience).map_err(|error| error.to_string())?;
    client.fetch(name, &registry).await.map_err(|error| runtime::errors::chain(&error))
}

async fn reach(runtime: &Runtime, id: &str, state: State) {
    let begin = std::time::Instant::now();
    while runtime.services.record(id).is_none_or(|record| record.state != state) {
        assert!(begin.elapsed() < SOON, "no {state:?}: {:#?}", runtime.services.record(id));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn log(root: &Path, line: &str) -> String {
    let begin = std::time::Instant::now();
    loop {
        let text = std::fs::read_to_string(root.join("log/boxed.log")).unwrap_or_default();
        if text.contains(line) {
            return text;
        }
        assert!(begin.elapsed() < SOON, "no {line:?} in {text:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn pid(runtime: &Runtime) -> i32 {
    runtime.services.record("boxed").unwrap().pid.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "starts the image's containerd: `cargo xtask test` runs it after the build"]
async fn a_container_of_the_node_runs_is_adopted_stopped_and_removed_by_containerd() {
    let fixture = Fixture::start("boxed").await;
    let client = fixture.daemon.client("system");
    // The first machined has threads of its own, so that it can end while its container runs.
    let threads = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let entered = threads.enter();
    let (first, root) = fixture.machined("sleep");
    drop(entered);
    first.services.start("boxed");
    reach(&first, "boxed", State::Running).await;
    let text = log(root.path(), "writes ").await;
    for line in ["pid 1, sleep hello\n", "sees given\n", "CapEff:\t0000000000000000\n", "writes false\n"] {
        assert!(text.contains(line), "{line:?} in {text}");
    }
    let running = pid(&first);

    // A next machined that knows nothing of it: the container stays.
    drop(first);
    threads.shutdown_background();
    let (second, _second_root) = fixture.machined("sleep");
    second.services.start("boxed");
    reach(&second, "boxed", State::Running).await;
    assert_eq!(pid(&second), running);
    assert_eq!(fixture.fetches.load(Ordering::SeqCst), 1, "an image that is here is not fetched");

    // Killed from outside: it comes back, and nothing of the first is left.
    rustix::process::kill_process(
        rustix::process::Pid::from_raw(running).unwrap(),
        rustix::process::Signal::KILL,
    )
    .unwrap();
    reach(&second, "boxed", State::Pausing).await;
    let record = second.services.record("boxed").unwrap();
    let last = &record.events.back().unwrap().message;
    assert_eq!(last, "Error running Container(\"boxed\"), going to restart forever: signal 9");
    reach(&second, "boxed", State::Running).await;
    assert_ne!(pid(&second), running);
    assert_eq!(client.containers().await.unwrap().len(), 1);

    let _ = second.services.operate("boxed", Operation::Stop, SOON).await;
    reach(&second, "boxed", State::Finished).await;
    client.remove("boxed").await.unwrap();
    assert!(client.containers().await.unwrap().is_empty() && client.tasks().await.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "starts the image's containerd: `cargo xtask test` runs it after the build"]
async fn a_program_s_exit_status_is_told_by_containerd() {
    let fixture = Fixture::start("brief").await;
    let (machined, _root) = fixture.machined("exit");
    machined.services.start("brief");
    reach(&machined, "brief", State::Pausing).await;
    let record = machined.services.record("brief").unwrap();
    let last = &record.events.back().unwrap().message;
    assert_eq!(last, "Error running Container(\"brief\"), going to restart forever: exit status 7");
    let client = fixture.daemon.client("system");
    assert!(client.containers().await.unwrap().is_empty(), "what ended is removed");
    let _ = machined.services.operate("brief", Operation::Stop, SOON).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "starts the image's containerd: `cargo xtask test` runs it after the build"]
async fn a_program_runs_once_and_its_output_is_here_by_containerd() {
    let fixture = Fixture::start("once").await;
    let client = fixture.daemon.client("system");
    pull(&client, &fixture.image).await.unwrap();
    let image = client.image(&fixture.image).await.unwrap().unwrap();
    let unpacked = client.unpack(&image).await.unwrap();
    let mut description = Description {
        argv: vec!["/bin/program".into(), "exit".into()],
        env: Vec::new(),
        user: (0, 0),
        mounts: Vec::new(),
        rights: Rights::Capabilities(&[]),
        host_pid: false,
        group: format!("billet-test-{}/once", std::process::id()),
        oom_score_adj: 0,
        open_files: 64,
    };
    let log = fixture.dir.path().join("once.fifo");
    for _ in 0..2 {
        let once = Once {
            id: "once",
            image: &fixture.image,
            unpacked: &unpacked,
            description: &description,
            log: &log,
            deadline: SOON,
        };
        let ended = client.run_once(&once).await.unwrap();
        assert_eq!(ended.status, 7, "{ended:?}");
        assert!(
            ended.output.starts_with("pid 1, exit") && ended.output.contains("writes false"),
            "{ended:?}"
        );
    }
    description.argv[1] = "sleep".into();
    let late = Once {
        id: "once",
        image: &fixture.image,
        unpacked: &unpacked,
        description: &description,
        log: &log,
        deadline: Duration::from_secs(2),
    };
    let error = client.run_once(&late).await.unwrap_err().to_string();
    assert_eq!(error, "container once has not ended within 2 s and was ended");
    assert!(client.containers().await.unwrap().is_empty() && !log.exists());
}
