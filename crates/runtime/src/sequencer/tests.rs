//! Sequences of a host that is not a node.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::watch;

use super::*;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    Wait,
    Fail,
    Stop,
    After,
}

/// A host whose `wait` ends when it is told to.
struct Kitchen {
    directory: tempfile::TempDir,
    runtime: Arc<Runtime>,
    sequencer: Sequencer,
    released: watch::Sender<bool>,
    is_closed: AtomicBool,
}

const fn of_one(name: &'static str, phases: &'static [Phase<TaskFn<Kitchen>>]) -> Sequence<TaskFn<Kitchen>> {
    Sequence { name, about: "", phases }
}

const fn task(name: &'static str, run: TaskFn<Kitchen>) -> Task<TaskFn<Kitchen>> {
    Task { name, about: "", run }
}

const WAIT: Sequence<TaskFn<Kitchen>> = of_one(
    "wait",
    &[
        Phase { name: "first", tasks: &[task("pass", pass)] },
        Phase { name: "second", tasks: &[task("waitForRelease", wait)] },
    ],
);
const FAIL: Sequence<TaskFn<Kitchen>> = of_one(
    "fail",
    &[
        Phase { name: "first", tasks: &[task("pass", pass), task("break", fail)] },
        Phase { name: "second", tasks: &[task("never", wait)] },
    ],
);
const STOP: Sequence<TaskFn<Kitchen>> =
    of_one("stop", &[Phase { name: "only", tasks: &[task("pass", pass)] }]);
const AFTER: Sequence<TaskFn<Kitchen>> =
    of_one("after", &[Phase { name: "only", tasks: &[task("pass", pass)] }]);

fn pass(_: Arc<Kitchen>) -> TaskFuture {
    Box::pin(async { Ok(()) })
}

fn wait(kitchen: Arc<Kitchen>) -> TaskFuture {
    Box::pin(async move {
        let mut released = kitchen.released.subscribe();
        released.wait_for(|released| *released).await.map(drop).map_err(|e| TaskError(e.to_string()))
    })
}

fn fail(_: Arc<Kitchen>) -> TaskFuture {
    Box::pin(async { Err(TaskError("the pan is hot".to_owned())) })
}

impl Host for Kitchen {
    type Order = Order;

    const TAKE_OVERS: &'static [TakeOver<Order>] =
        &[TakeOver { new: &[Order::Stop], running: &[Order::Wait] }];
    const FOLLOWERS: &'static [Follower<Self>] = &[Follower {
        after: Order::Fail,
        failed: true,
        when: Some(When {
            about: "the kitchen is open",
            holds: |kitchen| !kitchen.is_closed.load(Ordering::SeqCst),
        }),
        next: Order::After,
    }];

    fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    fn sequencer(&self) -> &Sequencer {
        &self.sequencer
    }

    fn sequence(order: Order) -> &'static Sequence<TaskFn<Self>> {
        match order {
            Order::Wait => &WAIT,
            Order::Fail => &FAIL,
            Order::Stop => &STOP,
            Order::After => &AFTER,
        }
    }
}

fn kitchen() -> Arc<Kitchen> {
    let directory = tempfile::tempdir().unwrap();
    let runtime = Runtime::detached(directory.path().to_owned());
    let released = watch::channel(false).0;
    let sequencer = Sequencer::default();
    Arc::new(Kitchen { directory, runtime, sequencer, released, is_closed: AtomicBool::new(false) })
}

/// Waits until the runtime remembers that these sequences have ended, in this order, and nothing runs.
async fn ended(kitchen: &Arc<Kitchen>, names: &[&str]) {
    let all = async {
        while kitchen.runtime.checkpoint.memory().done != names || !kitchen.sequencer.is_idle() {
            tokio::task::yield_now().await;
        }
    };
    let done = tokio::time::timeout(Duration::from_secs(20), all).await;
    let found = kitchen.runtime.checkpoint.memory().done;
    done.unwrap_or_else(|_| panic!("ended: {found:?}, not {names:?}"));
}

fn lines(kitchen: &Kitchen) -> String {
    std::fs::read_to_string(kitchen.directory.path().join("log/machined.log")).unwrap()
}

#[tokio::test]
async fn a_sequence_runs_alone_unless_the_table_says_otherwise() {
    let kitchen = kitchen();
    start(&kitchen, Order::Wait, Start { actor_id: "cook".to_owned(), ..Start::default() }).unwrap();
    assert_eq!(kitchen.sequencer.actor_id("wait"), "cook");
    let locked = Locked { running: "wait" };
    assert_eq!(may_start(&kitchen, Order::After), Err(locked.clone()));
    assert_eq!(start(&kitchen, Order::After, Start::default()), Err(locked));
    may_start(&kitchen, Order::Stop).unwrap();
    start(&kitchen, Order::Stop, Start::default()).unwrap();
    // The one that gave way has not ended well: it is not among those that did.
    ended(&kitchen, &["stop"]).await;
    start(&kitchen, Order::Wait, Start::default()).unwrap();
    start(&kitchen, Order::After, Start { force: true, ..Start::default() }).unwrap();
    ended(&kitchen, &["stop", "after"]).await;
}

#[tokio::test]
async fn a_failed_task_ends_its_sequence_with_its_place_and_the_table_goes_on() {
    let kitchen = kitchen();
    start(&kitchen, Order::Fail, Start::default()).unwrap();
    ended(&kitchen, &["fail", "after"]).await;
    let lines = lines(&kitchen);
    assert!(lines.contains("error running phase 1 in fail: task break: the pan is hot"), "{lines}");
    assert!(!lines.contains("phase second (2/2): 1"), "{lines}");
    kitchen.is_closed.store(true, Ordering::SeqCst);
    start(&kitchen, Order::Fail, Start::default()).unwrap();
    ended(&kitchen, &["fail", "after", "fail"]).await;
    assert_eq!(next(&*kitchen, Order::Fail, true), None);
}

#[tokio::test]
async fn the_phase_that_runs_is_remembered_and_can_be_gone_on_with() {
    let kitchen = kitchen();
    start(&kitchen, Order::Wait, Start { phase: 1, ..Start::default() }).unwrap();
    let saved = async {
        while kitchen.runtime.checkpoint.memory().sequence.is_none() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), saved).await.unwrap();
    let saved = kitchen.runtime.checkpoint.memory().sequence.unwrap();
    assert_eq!((saved.name.as_str(), saved.phase), ("wait", 1));
    kitchen.released.send_replace(true);
    ended(&kitchen, &["wait"]).await;
    assert_eq!(kitchen.runtime.checkpoint.memory().sequence, None);
    let lines = lines(&kitchen);
    assert!(!lines.contains("phase first") && lines.contains("phase second (2/2)"), "{lines}");
}
