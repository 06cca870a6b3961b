//! Panics of each kind of a request's work, in a server with real clients.

use std::time::Duration;

use api::proto::machine as proto;
use tokio::time::timeout;
use tonic::{Code, Status};

use super::tests::{Fixture, fixture, next};

const SOON: Duration = Duration::from_secs(10);

async fn unary(f: &Fixture) -> Status {
    let request = proto::ServiceStopRequest { id: "panic-in-unary".into() };
    f.machine().service_stop(request).await.unwrap_err()
}

async fn blocking(f: &Fixture) -> Status {
    f.machine().read(proto::ReadRequest { path: "/panic-in-blocking".into() }).await.unwrap_err()
}

async fn task(f: &Fixture) -> Status {
    let request = proto::LogsRequest { id: "panic-in-stream".into(), tail_lines: -1, ..Default::default() };
    let mut stream = f.machine().logs(request).await.unwrap().into_inner();
    timeout(SOON, stream.message()).await.unwrap().unwrap_err()
}

async fn thread(f: &Fixture) -> Status {
    let request = proto::ListRequest { root: "/panic-in-thread".into(), ..Default::default() };
    let mut stream = f.machine().list(request).await.unwrap().into_inner();
    timeout(SOON, stream.message()).await.unwrap().unwrap_err()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_in_a_request_is_its_answer_and_nothing_else() {
    let f = fixture().await;
    let mut log = f.node.runtime.logs.open("panic-in-stream").unwrap();
    log.append(b"a line\n").unwrap();
    let mut live = f.machine().events(proto::EventsRequest::default()).await.unwrap().into_inner();
    assert_eq!(next(&mut live).await, proto::Event::default());
    // More often than there are places for streams: each comes back.
    for round in 0..40 {
        for (what, status) in [
            ("ServiceStop", unary(&f).await),
            ("Read", blocking(&f).await),
            ("Logs", task(&f).await),
            ("List", thread(&f).await),
        ] {
            assert_eq!(status.code(), Code::Internal, "{round} {what}: {status:?}");
            let name = format!("/machine.MachineService/{what} ended by a panic");
            assert!(status.message().starts_with(&name), "{round} {what}: {status:?}");
        }
    }
    // The same connection, with a stream that was there before.
    f.machine().version(()).await.unwrap();
    let event = api::event::Payload::Task(proto::TaskEvent { task: "after".into(), action: 0 });
    f.node.runtime.events.publish("actor", &event);
    assert_eq!(next(&mut live).await.actor_id, "actor");
    let text = std::fs::read_to_string(f.dir.path().join("log/machined.log")).unwrap();
    for place in ["server/control.rs:", "server/files.rs:", "server/streams.rs:"] {
        assert!(text.contains("ended by a panic at ") && text.contains(place), "{place}: {text}");
    }
}
