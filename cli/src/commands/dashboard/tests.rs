//! The screen on a terminal in memory, by keys.

use super::{
    app::{Answer, App},
    snapshot::Snapshot,
    view,
};
use api::proto::machine::{
    CpuStat, MemInfo, NetDev, ProcessInfo, ServiceEvent, ServiceEvents, ServiceHealth, ServiceInfo,
    SystemStat,
};
use api::proto::talos::resource::definitions::{
    enums::RuntimeMachineStage,
    runtime::{MachineStatusSpec, MachineStatusStatus, UnmetCondition},
};
use ratatui::{
    Terminal,
    backend::TestBackend,
    crossterm::event::{KeyCode, KeyEvent, KeyModifiers},
};

fn snapshot(seconds: f64) -> Snapshot {
    let service = |id: &str, healthy| ServiceInfo {
        id: id.into(),
        state: "Running".into(),
        events: Some(ServiceEvents {
            events: vec![ServiceEvent { msg: format!("{id} is up"), ..Default::default() }],
        }),
        health: Some(ServiceHealth { healthy, ..Default::default() }),
    };
    let cpu_total = CpuStat { user: seconds * 0.25, idle: seconds * 0.75, ..Default::default() };
    Snapshot {
        hostname: "billet-1".into(),
        version: "v1.0.0".into(),
        processor: "2 × Test CPU".into(),
        status: Some(status(true, "")),
        load: [0.25, 0.5, 1.0],
        memory: MemInfo { memtotal: 1_000_000, memavailable: 250_000, ..Default::default() },
        stat: SystemStat { cpu_total: Some(cpu_total), process_running: 3, ..Default::default() },
        services: vec![service("apid", true), service("trustd", false)],
        devices: vec![NetDev {
            name: "eth0".into(),
            rx_bytes: if seconds > 1.0 { 5000 } else { 1000 },
            ..Default::default()
        }],
        processes: vec![ProcessInfo {
            pid: 42,
            command: "machined".into(),
            resident_memory: 4096,
            ..Default::default()
        }],
        log: (0..50).map(|n| format!("line {n}")).collect(),
    }
}

fn status(ready: bool, reason: &str) -> MachineStatusSpec {
    let unmet = UnmetCondition { name: "time".into(), reason: reason.into() };
    let unmet_conditions = if ready { Vec::new() } else { vec![unmet] };
    let stage = RuntimeMachineStage::ShuttingDown.into();
    MachineStatusSpec { stage, status: Some(MachineStatusStatus { ready, unmet_conditions }) }
}

fn app() -> App {
    let mut app = App::new(vec!["10.0.0.1".into(), "10.0.0.2".into()]);
    app.update(0, Ok(snapshot(1.0)));
    app.update(0, Ok(snapshot(101.0)));
    app
}

fn screen(app: &App, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| view::draw(frame, app)).unwrap();
    let buffer = terminal.backend().buffer().clone();
    let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
    (0..height).map(line).collect::<Vec<_>>().join("\n")
}

fn press(app: &mut App, code: KeyCode) -> Answer {
    app.press(KeyEvent::from(code))
}

fn shows(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "`{part}` is not on the screen:\n{text}");
    }
}

#[test]
fn every_page_is_drawn() {
    let mut app = app();
    let services = screen(&app, 90, 24);
    shows(&services, &["10.0.0.1", "10.0.0.2", "billet-1 v1.0.0 2 × Test CPU", "25%", "768 MB of 1.0 GB"]);
    shows(&services, &["LOAD 0.25 0.50 1.00", "running 3", "apid", "OK", "trustd", "Fail", "trustd is up"]);
    press(&mut app, KeyCode::Char('2'));
    let log = screen(&app, 90, 24);
    shows(&log, &["line 49", "apid"]);
    assert!(!log.contains("line 1 "), "the beginning has no room:\n{log}");
    press(&mut app, KeyCode::Tab);
    shows(&screen(&app, 90, 24), &["eth0", "5.0 kB", "4.0 kB"]);
    press(&mut app, KeyCode::Tab);
    shows(&screen(&app, 90, 24), &["machined", "42", "4.1 kB"]);
    press(&mut app, KeyCode::Tab);
    shows(&screen(&app, 90, 24), &["LAST EVENT"]);
}

#[test]
fn arrow_keys_choose_node_and_service() {
    let mut app = app();
    assert_eq!(app.service().as_deref(), Some("apid"));
    press(&mut app, KeyCode::Down);
    press(&mut app, KeyCode::Down);
    assert_eq!(app.service().as_deref(), Some("trustd"));
    press(&mut app, KeyCode::Enter);
    assert_eq!(app.page, 1);
    press(&mut app, KeyCode::Right);
    assert_eq!((app.node, app.service()), (1, None));
    shows(&screen(&app, 90, 24), &["waiting for the node"]);
    app.update(1, Err("connection refused".into()));
    shows(&screen(&app, 90, 24), &["connection refused"]);
    press(&mut app, KeyCode::Right);
    assert_eq!(app.node, 0);
    press(&mut app, KeyCode::Left);
    assert_eq!(app.node, 1);
}

#[test]
fn a_node_that_fails_keeps_its_last_picture() {
    let mut app = app();
    app.update(0, Err("no answer within 10 s".into()));
    shows(&screen(&app, 90, 24), &["no answer within 10 s", "apid"]);
    app.update(7, Err("a node that is not there".into()));
}

#[test]
fn the_stage_is_shown_with_what_is_unmet() {
    let mut app = app();
    shows(&screen(&app, 90, 24), &["STAGE shutting down  READY yes"]);
    app.update(0, Ok(Snapshot { status: Some(status(false, "not synchronised")), ..snapshot(1.0) }));
    shows(&screen(&app, 90, 24), &["READY no  time: not synchronised"]);
    app.update(0, Ok(Snapshot { status: None, ..snapshot(1.0) }));
    shows(&screen(&app, 90, 24), &["STAGE ?"]);
}

#[test]
fn keys_leave() {
    let mut app = app();
    assert_eq!(press(&mut app, KeyCode::Char('x')), Answer::Stay);
    assert_eq!(press(&mut app, KeyCode::Char('c')), Answer::Stay);
    assert_eq!(app.press(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)), Answer::Leave);
    assert_eq!(press(&mut app, KeyCode::Esc), Answer::Leave);
    assert_eq!(press(&mut app, KeyCode::Char('q')), Answer::Leave);
}

#[test]
fn any_size_of_terminal_is_drawn() {
    let app = app();
    for (width, height) in [(1, 1), (10, 3), (20, 8), (300, 100)] {
        screen(&app, width, height);
    }
}

/// On every page, wherever the words stand.
#[test]
fn what_a_node_says_does_not_act_on_the_terminal() {
    let bad = |word: &str| format!("{word}\x1b[2J\u{9b}31m\u{202e}");
    let mut hostile = snapshot(1.0);
    (hostile.hostname, hostile.version, hostile.processor) = (bad("h"), bad("v"), bad("p"));
    let service = &mut hostile.services[0];
    (service.id, service.state) = (bad("i"), bad("s"));
    service.events.as_mut().unwrap().events[0].msg = bad("m");
    hostile.devices[0].name = bad("d");
    hostile.status = Some(status(false, &bad("u")));
    (hostile.processes[0].state, hostile.processes[0].command) = (bad("t"), bad("c"));
    hostile.log = vec![bad("l")];
    let mut app = App::new(vec![bad("n")]);
    app.update(0, Err(bad("e")));
    let refused = screen(&app, 400, 30);
    app.update(0, Ok(hostile));
    app.update(0, Err(bad("f")));
    let pages = ["1", "2", "3", "4"].map(|key| {
        app.press(KeyEvent::new(KeyCode::Char(key.chars().next().unwrap()), KeyModifiers::NONE));
        screen(&app, 400, 30)
    });
    let shown =
        [(&refused, "ne"), (&pages[0], "nhvpfmu"), (&pages[1], "il"), (&pages[2], ""), (&pages[3], "c")];
    for (page, words) in shown {
        assert!(!page.chars().any(|sign| sign == '\u{202e}' || sign != '\n' && sign.is_control()), "{page}");
        for word in words.chars() {
            assert!(page.contains(&format!("{word}\\x1b[2J\\x9b31m\\u{{202e}}")), "{word}: {page}");
        }
    }
    // A narrow column shows the beginning.
    for (page, beginning) in [(0, "i\\x1b[2J"), (0, "s\\x1b[2J"), (2, "d\\x1b[2J\\x9b31m"), (3, "t\\x1b[")] {
        assert!(pages[page].contains(beginning), "{}", pages[page]);
    }
}
