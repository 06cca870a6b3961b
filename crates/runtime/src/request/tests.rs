//! Panics in and out of the scope, and a process of its own for those that end one.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output};
use std::sync::Mutex;

use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Code;

use super::testing::note_panics;
use super::*;

/// Names how the child panics.
const HOW: &str = "BILLET_TEST_PANIC";
/// What the child prints where it went on.
const WENT_ON: &str = "the process went on";

/// A call whose reports are kept.
fn call() -> (Arc<Call>, Arc<Mutex<Vec<String>>>) {
    note_panics();
    let said = Arc::<Mutex<Vec<String>>>::default();
    let keeps = said.clone();
    let report: Report = Arc::new(move |line| keeps.lock().unwrap().push(line.to_owned()));
    (Call::new("/machine.MachineService/Test", &report), said)
}

#[tokio::test]
async fn a_panic_is_reported_once_with_its_place_and_names_the_call() {
    let (call, said) = call();
    let deep = of_call(call, async {
        // Through another thread, and the task that waits for it.
        blocking(|| -> () { panic!("with token=secret in https://u:secret@h/\nand a line") }).await
    });
    let panicked = deep.await.unwrap_err();
    let status = Status::from(panicked);
    assert_eq!(status.code(), Code::Internal);
    assert!(status.message().starts_with("/machine.MachineService/Test ended by a panic"), "{status:?}");
    assert!(!status.message().contains("secret"), "{status:?}");
    let said = said.lock().unwrap();
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].starts_with("/machine.MachineService/Test ended by a panic at "), "{said:?}");
    assert!(said[0].contains("request/tests.rs:") && said[0].contains("\\nand a line"), "{said:?}");
    assert!(!said[0].contains("u:secret"), "{said:?}");
}

#[tokio::test]
async fn a_stream_ends_with_the_panic_of_its_task() {
    let (call, _) = call();
    let (sender, receiver) = tokio::sync::mpsc::channel(1);
    of_call(call, async move {
        feed(sender.clone(), async move {
            sender.send(Ok(1)).await.unwrap();
            panic!("in the task");
        });
    })
    .await
    .unwrap();
    let mut stream = ReceiverStream::new(receiver);
    assert_eq!(stream.next().await.unwrap().unwrap(), 1);
    assert_eq!(stream.next().await.unwrap().unwrap_err().code(), Code::Internal);
    assert!(stream.next().await.is_none());
}

/// What the work holds is given back, also when that panics too, and when the work is dropped.
#[tokio::test]
async fn what_the_work_holds_is_given_back() {
    struct Loud {
        _held: Arc<()>,
    }
    impl Drop for Loud {
        fn drop(&mut self) {
            if !std::thread::panicking() {
                panic!("in drop");
            }
        }
    }
    let (call, said) = call();
    let held = Arc::new(());
    let loud = Loud { _held: held.clone() };
    let panics = of_call(call.clone(), async move {
        let _loud = loud;
        panic!("in the work");
    });
    panics.await.unwrap_err();
    let loud = Loud { _held: held.clone() };
    drop(of_call(call, async move {
        let _loud = loud;
        std::future::pending::<()>().await;
    }));
    assert_eq!(Arc::strong_count(&held), 1);
    assert_eq!(said.lock().unwrap().len(), 2, "the first panic and that of the dropped work");
    assert!(Call::current().is_none());
}

#[tokio::test]
async fn names_and_texts_have_bounds() {
    let (call, said) = call();
    let report = call.report.clone();
    let call = Call::new(&"/é".repeat(1000), &report);
    let panicked = of_call(call, async { panic!("{}", "x".repeat(10_000)) }).await.unwrap_err();
    assert!(panicked.to_string().len() < 300, "{panicked}");
    assert!(said.lock().unwrap()[0].len() < 1000);
}

/// The body of an answer is encoded while it is read: behind the handler, and still its request's.
#[tokio::test]
async fn an_answer_that_panics_while_it_is_read_ends_with_a_status() {
    use bytes::Bytes;
    use http_body::Frame;
    use http_body_util::{BodyExt, StreamBody};
    use tower::{Layer, Service};
    note_panics();
    let said = Arc::<Mutex<Vec<String>>>::default();
    let keeps = said.clone();
    let report: Report = Arc::new(move |line| keeps.lock().unwrap().push(line.to_owned()));
    let inner = tower::service_fn(|request: http::Request<()>| async move {
        assert_ne!(request.uri().path(), "/t/Handler", "a handler that panics");
        let frames = tokio_stream::iter([1, 2]).map(|number| {
            assert!(number < 2, "an encoder that panics");
            Ok::<_, Status>(Frame::data(Bytes::from_static(b"one")))
        });
        Ok::<_, Status>(http::Response::new(tonic::body::Body::new(StreamBody::new(frames))))
    });
    let mut service = Requests(report).layer(inner);
    let ask = |path: &str| http::Request::builder().uri(path).body(()).unwrap();
    let answer = service.call(ask("/t/Handler")).await.unwrap();
    assert_eq!(Status::from_header_map(answer.headers()).unwrap().code(), Code::Internal);
    let mut body = service.call(ask("/t/Body")).await.unwrap().into_body();
    assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "one");
    let trailers = body.frame().await.unwrap().unwrap().into_trailers().unwrap();
    let status = Status::from_header_map(&trailers).unwrap();
    assert_eq!(status.code(), Code::Internal);
    assert!(status.message().starts_with("/t/Body ended by a panic"), "{status:?}");
    assert!(body.frame().await.is_none());
    assert_eq!(said.lock().unwrap().len(), 2);
}

fn child(how: &str) -> Output {
    let program = std::env::current_exe().unwrap();
    let mut command = Command::new(program);
    command.args(["--exact", "request::tests::child_that_panics", "--ignored", "--nocapture"]).env(HOW, how);
    command.output().unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&[output.stdout.clone(), output.stderr.clone()].concat()).into_owned()
}

#[test]
fn a_panic_outside_requests_ends_the_process() {
    for how in ["task", "blocking", "thread", "main", "spawned by a request", "for everybody"] {
        let output = child(how);
        assert_eq!(output.status.signal(), Some(6), "{how}: {}", text(&output));
        let said = text(&output);
        assert!(!said.contains(WENT_ON), "{how}: {said}");
        assert!(
            said.contains("machined: a panic at ") && said.contains("request/tests.rs:"),
            "{how}: {said}"
        );
    }
    let output = child("request");
    assert!(text(&output).contains(WENT_ON), "{}", text(&output));
    assert!(output.status.success(), "{}", text(&output));
}

#[test]
#[ignore = "a_panic_outside_requests_ends_the_process starts it as a process of its own"]
fn child_that_panics() {
    let Ok(how) = std::env::var(HOW) else { return };
    end_on_other_panics("machined");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let report: Report = Arc::new(|line| println!("{line}"));
    let call = Call::new("/machine.MachineService/Test", &report);
    let die = || -> () { panic!("as asked") };
    runtime.block_on(async move {
        match how.as_str() {
            "task" => drop(tokio::spawn(async move { die() }).await),
            "blocking" => drop(tokio::task::spawn_blocking(die).await),
            "thread" => drop(std::thread::spawn(die).join()),
            "main" => die(),
            // As a sequence that a call starts: the node's, not the call's.
            "spawned by a request" => {
                let _ = of_call(call, async move { drop(tokio::spawn(async move { die() }).await) }).await;
            }
            "for everybody" => {
                let change = async move {
                    let _outside = outside();
                    die();
                };
                let _ = of_call(call, change).await;
            }
            "request" => assert!(of_call(call, async move { die() }).await.is_err()),
            other => unreachable!("{other}"),
        }
        println!("{WENT_ON}");
    });
}
