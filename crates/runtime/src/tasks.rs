//! Tasks that live as long as machined. Each has a name, and `get tasks` shows all of them.
//!
//! Does not: watch over a task. A panic ends machined (docs/decisions/0021-a-panic-ends-its-request.md), which init
//! starts again.

use serde_json::json;

use crate::Runtime;
use crate::store::{Spec, TASK};

impl Runtime {
    /// Starts a task of this name, which no other has; `about` says what it does. It ends with machined, or before where its work
    /// is done.
    pub fn start_task(
        &self,
        name: &'static str,
        about: &'static str,
        work: impl Future<Output = ()> + Send + 'static,
    ) {
        let (store, journal) = (self.store.clone(), self.journal.clone());
        let show = move |state: &str| {
            let spec = Spec::Fields(json!({ "state": state, "about": about }));
            if let Err(error) = store.put(TASK.writer, &TASK, name, spec) {
                journal.warn(&error.to_string());
            }
        };
        show("running");
        tokio::spawn(async move {
            work.await;
            show("ended");
        });
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    #[tokio::test]
    async fn a_task_is_shown_while_it_runs_and_when_it_has_ended() {
        let dir = tempfile::tempdir().unwrap();
        let runtime = Runtime::detached(dir.path().to_owned());
        let (end, ends) = tokio::sync::oneshot::channel::<()>();
        runtime.start_task("short", "waits for the test", async { ends.await.unwrap() });
        runtime.start_task("long", "waits for ever", pending());
        let yaml = |name| runtime.store.get(&TASK, name).unwrap().spec.yaml().unwrap();
        assert_eq!(yaml("short"), "about: waits for the test\nstate: running\n");
        let mut changes = runtime.store.changes();
        end.send(()).unwrap();
        while !yaml("short").contains("ended") {
            changes.recv().await.unwrap();
        }
        assert!(yaml("long").contains("running"));
    }
}
