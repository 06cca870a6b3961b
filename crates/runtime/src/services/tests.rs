use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command};

use super::*;
use crate::store::{SERVICE, SERVICE_PID};

const SOON: Duration = Duration::from_secs(10);

struct Fixture {
    _dir: tempfile::TempDir,
    services: Services,
    store: Store,
    log_dir: std::path::PathBuf,
}

fn fixture() -> Fixture {
    let dir = tempfile::tempdir().unwrap();
    let log_dir = dir.path().join("log");
    let logs = Logs::new(log_dir.clone());
    let init = InitLink::detached();
    let store = Store::new();
    let services = Services::new(Dependencies {
        journal: Journal::new(None, &logs),
        events: Events::default(),
        store: store.clone(),
        logs,
        init: init.clone(),
        checkpoint: Checkpoint::open(None, &init),
        timeline: None,
        fifos: dir.path().join("fifos"),
        cgroups: None,
        adopted_pipes: BTreeMap::new(),
    });
    Fixture { _dir: dir, services, store, log_dir }
}

fn shell(id: &str, script: &str) -> Definition {
    let mut definition =
        Definition { api_control: true, ..Definition::process(id, &["/bin/sh", "-c", script]) };
    // Both take privilege that the test process may not have.
    (definition.share.oom_score_adj, definition.share.open_files) = (None, None);
    definition
}

async fn reach(services: &Services, id: &str, state: State) {
    let there = || services.record(id).is_some_and(|record| record.state == state);
    assert!(services.wait_until(SOON, there).await, "{id}: {:?}", services.record(id));
}

fn texts(services: &Services, id: &str) -> Vec<String> {
    services.record(id).unwrap().events.iter().map(|e| format!("{}: {}", e.state, e.message)).collect()
}

#[tokio::test]
async fn a_service_runs_logs_and_stops() {
    let f = fixture();
    f.services.define(shell("echo", "echo hello; exec sleep 60"));
    f.services.start("echo");
    reach(&f.services, "echo", State::Running).await;
    assert!(f.store.get(&SERVICE, "echo").is_some());
    let pid = f.services.record("echo").unwrap().pid.unwrap();
    let process = f.store.get(&SERVICE_PID, "echo").unwrap().spec.yaml().unwrap();
    assert!(process.starts_with(&format!("pid: {pid}\nmountNamespace: mnt:[")), "{process}");
    let log = f.log_dir.join("echo.log");
    let deadline = std::time::Instant::now() + SOON;
    while std::fs::read_to_string(&log).unwrap_or_default() != "hello\n" {
        assert!(std::time::Instant::now() < deadline, "the line never arrived");
        tokio::task::yield_now().await;
    }
    f.services.operate("echo", Operation::Stop, SOON).await.unwrap();
    assert!(f.store.get(&SERVICE, "echo").is_none() && f.store.get(&SERVICE_PID, "echo").is_none());
    let texts = texts(&f.services, "echo");
    assert_eq!(texts[0], "Preparing: Running pre state");
    assert_eq!(texts[1], "Preparing: Creating service runner");
    assert!(texts[2].starts_with(
        r#"Running: Process Process(["/bin/sh" "-c" "echo hello; exec sleep 60"]) started with PID "#
    ));
    assert!(texts[3].starts_with("Stopping: Sending SIGTERM to Process("));
    assert_eq!(texts[4], "Finished: Service finished successfully");
}

#[tokio::test]
async fn a_crash_pauses_and_a_one_shot_fails() {
    let f = fixture();
    f.services.define(shell("loop", "exit 7"));
    f.services.define(Definition { restart: machine::Restart::Never, ..shell("once", "exit 7") });
    f.services.start("loop");
    f.services.start("once");
    reach(&f.services, "loop", State::Pausing).await;
    reach(&f.services, "once", State::Failed).await;
    let last = texts(&f.services, "loop").pop().unwrap();
    assert!(
        last.starts_with("Waiting: Error running Process(")
            && last.ends_with("going to restart forever: exit status 7")
    );
    assert_eq!(texts(&f.services, "once").pop().unwrap(), "Failed: Failed running service: exit status 7");
    f.services.operate("loop", Operation::Stop, SOON).await.unwrap();
    assert_eq!(texts(&f.services, "loop").pop().unwrap(), "Finished: Aborting restart sequence");
}

#[tokio::test]
async fn a_dependency_holds_a_service_back_until_it_is_healthy() {
    let f = fixture();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let check = Check::Tcp(listener.local_addr().unwrap());
    f.services.define(Definition { check: Some(check), ..shell("base", "exec sleep 60") });
    f.services.define(Definition { depends_on: vec!["base".into()], ..shell("top", "exec sleep 60") });
    f.services.start("top");
    reach(&f.services, "top", State::Waiting).await;
    f.services.start("base");
    f.services.wait_up(&["base".into(), "top".into()], SOON).await.unwrap();
    assert_eq!(texts(&f.services, "top")[0], "Waiting: Waiting for service \"base\" to be \"up\"");
    assert_eq!(texts(&f.services, "base").pop().unwrap(), "Running: Health check successful");
    assert_eq!(f.services.stop_order(), [vec!["top".to_owned()], vec!["base".to_owned()]]);
    for id in ["top", "base"] {
        f.services.operate(id, Operation::Stop, SOON).await.unwrap();
    }
}

#[tokio::test]
async fn internal_work_is_a_service_too() {
    let f = fixture();
    f.services.define(Definition::internal("inner", || Box::pin(std::future::pending())));
    f.services.start("inner");
    reach(&f.services, "inner", State::Running).await;
    assert_eq!(texts(&f.services, "inner").pop().unwrap(), "Running: Service started as goroutine");
    let refused = f.services.operate("inner", Operation::Stop, SOON).await.unwrap_err();
    assert_eq!(refused.to_string(), "service \"inner\" doesn't support stop operation via API");
    let unknown = f.services.operate("nobody", Operation::Start, SOON).await.unwrap_err();
    assert_eq!(unknown.to_string(), "service \"nobody\" not defined");
    f.services.stop("inner");
    reach(&f.services, "inner", State::Finished).await;
}

#[tokio::test]
async fn a_live_process_is_adopted_with_its_history() {
    let f = fixture();
    f.services.define(shell("kept", "exec sleep 60"));
    f.services.start("kept");
    reach(&f.services, "kept", State::Running).await;
    let saved = f.services.shared.dependencies.checkpoint.memory().services.pop().unwrap();
    assert!(saved.wanted && saved.pid.is_some());

    let next = fixture();
    next.services.define(shell("kept", "exec sleep 60"));
    next.services.adopt(&saved, None);
    reach(&next.services, "kept", State::Running).await;
    let texts = texts(&next.services, "kept");
    assert_eq!(texts.len(), saved.events.len() + 1);
    assert!(texts.last().unwrap().contains("found running by a new machined"), "{texts:?}");
    next.services.operate("kept", Operation::Stop, SOON).await.unwrap();
    reach(&f.services, "kept", State::Pausing).await;
    f.services.operate("kept", Operation::Stop, SOON).await.unwrap();
}

/// An engine of one shell script, whose image comes at the second attempt.
#[derive(Clone)]
struct Shell {
    script: &'static str,
    attempts: Arc<Mutex<u32>>,
    child: Arc<Mutex<Option<Child>>>,
}

impl Container for Shell {
    fn prepare(&self) -> Step<()> {
        let mut attempts = self.attempts.lock().unwrap();
        *attempts += 1;
        let fails = *attempts == 1;
        Box::pin(async move { if fails { Err("the registry does not answer".to_owned()) } else { Ok(()) } })
    }

    fn create(&self, log: PathBuf) -> Step<i32> {
        let engine = self.clone();
        Box::pin(async move {
            let log = std::fs::File::options().write(true).open(log).map_err(|error| error.to_string())?;
            let child = Command::new("/bin/sh").args(["-c", engine.script]).stdout(log).spawn();
            let child = child.map_err(|error| error.to_string())?;
            let pid = i32::try_from(child.id()).map_err(|error| error.to_string())?;
            *engine.child.lock().unwrap() = Some(child);
            Ok(pid)
        })
    }

    fn start(&self) -> Step<()> {
        Box::pin(async { Ok(()) })
    }

    fn ended(&self) -> Step<()> {
        let child = self.child.lock().unwrap().take();
        Box::pin(async move {
            let status = child.unwrap().wait().unwrap();
            if status.success() { Ok(()) } else { Err(status.to_string()) }
        })
    }
}

#[tokio::test]
async fn a_container_is_prepared_again_logs_and_says_how_it_ended() {
    let f = fixture();
    let engine = Shell { script: "echo hello; exit 7", attempts: Arc::default(), child: Arc::default() };
    f.services.define(Definition { api_control: true, ..Definition::container("boxed", "", engine.clone()) });
    f.services.start("boxed");
    reach(&f.services, "boxed", State::Pausing).await;
    let failed = "Waiting: Failed to run pre stage: the registry does not answer";
    assert_eq!(texts(&f.services, "boxed").pop().unwrap(), failed);
    f.services.restart("boxed");
    let ended = || texts(&f.services, "boxed").iter().any(|text| text.contains("exit status: 7"));
    assert!(f.services.wait_until(SOON, ended).await, "{:?}", texts(&f.services, "boxed"));
    let texts = texts(&f.services, "boxed");
    let started = |text: &String| {
        text.starts_with("Running: Started task boxed (PID ") && text.ends_with(") for container boxed")
    };
    assert!(texts.iter().any(started), "{texts:?}");
    let log = f.log_dir.join("boxed.log");
    let deadline = std::time::Instant::now() + SOON;
    while std::fs::read_to_string(&log).unwrap_or_default() != "hello\n" {
        assert!(std::time::Instant::now() < deadline, "the line never arrived");
        tokio::task::yield_now().await;
    }
    f.services.operate("boxed", Operation::Stop, SOON).await.unwrap();
}

#[tokio::test]
async fn a_container_that_stops_is_ended_by_a_signal() {
    let f = fixture();
    let engine = Shell { script: "exec sleep 60", attempts: Arc::new(Mutex::new(1)), child: Arc::default() };
    f.services.define(Definition { api_control: true, ..Definition::container("boxed", "", engine) });
    f.services.start("boxed");
    reach(&f.services, "boxed", State::Running).await;
    f.services.operate("boxed", Operation::Stop, SOON).await.unwrap();
    let texts = texts(&f.services, "boxed");
    assert!(texts.contains(&"Stopping: Sending SIGTERM to Container(\"boxed\")".to_owned()), "{texts:?}");
}

/// An engine whose image never comes.
struct Unreachable;

impl Container for Unreachable {
    fn prepare(&self) -> Step<()> {
        Box::pin(async { Err("the registry does not answer".to_owned()) })
    }

    fn create(&self, _log: PathBuf) -> Step<i32> {
        Box::pin(async { Err("it is not prepared".to_owned()) })
    }

    fn start(&self) -> Step<()> {
        Box::pin(async { Ok(()) })
    }

    fn ended(&self) -> Step<()> {
        Box::pin(async { Ok(()) })
    }
}

#[tokio::test(start_paused = true)]
async fn a_failure_that_repeats_is_an_event_each_time_and_a_line_now_and_then() {
    let f = fixture();
    f.services.define(Definition { api_control: true, ..Definition::container("boxed", "", Unreachable) });
    f.services.start("boxed");
    let failed = "Waiting: Failed to run pre stage: the registry does not answer";
    let attempts = || texts(&f.services, "boxed").iter().filter(|text| *text == failed).count();
    // With pauses of 5 s.
    let twelve = f.services.wait_until(Duration::from_secs(120), || attempts() == 12).await;
    assert!(twelve, "{:?}", texts(&f.services, "boxed"));
    let log = std::fs::read_to_string(f.log_dir.join("machined.log")).unwrap();
    let lines = |part: &str| log.lines().filter(|line| line.contains(part)).count();
    assert_eq!(lines("Failed to run pre stage"), 3, "{log}");
    assert_eq!(lines("Running pre state"), 1, "{log}");
    f.services.operate("boxed", Operation::Stop, SOON).await.unwrap();
}
