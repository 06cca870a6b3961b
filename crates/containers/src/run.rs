//! Containers: made from a snapshot and an OCI description, run, ended, removed.
//!
//! Owns: the order of these calls, and that what an earlier run left is removed first.
//! Does not: decide what runs; the description comes from [`crate::service`].
//! Order: task, container, root are removed in this order, since each holds the next.
//! Fails by: a gRPC status.
//! Source: containerd's published API (tasks, containers), its shim's documentation for the streams.

use std::path::Path;
use std::time::{Duration, Instant};

use tonic::{Code, Status};

use super::client::Client;
use super::run_wire::{
    ContainerRequest, CreateContainerRequest, CreateTaskRequest, CreateTaskResponse, GetTaskResponse,
    WaitResponse,
};
use super::unpack::SNAPSHOTTER;
use super::unpack::Unpacked;
use super::wire::{Container, ContainerRuntime, KillRequest, Task};

/// What runs containers.
const RUNTIME: &str = "io.containerd.runc.v2";
/// Type of an OCI description in containerd's store.
const SPEC_TYPE: &str = "types.containerd.io/opencontainers/runtime-spec/1/Spec";
/// SIGKILL.
const KILL: u32 = 9;
/// For containerd to clean up after a shim, and between two looks.
const CLEANED_UP: Duration = Duration::from_secs(10);
const LOOK_PERIOD: Duration = Duration::from_millis(50);

/// A container to be made.
#[derive(Debug, Clone)]
pub struct NewContainer<'a> {
    /// Unique in its namespace.
    pub id: &'a str,
    /// Reference of its image.
    pub image: &'a str,
    /// Its layers.
    pub unpacked: &'a Unpacked,
    /// Its OCI description, as JSON.
    pub spec: &'a serde_json::Value,
    /// A FIFO that takes both of its streams.
    pub log: &'a Path,
}

impl Client {
    /// Makes a container and its task; its process exists and waits. Answers the process id.
    pub async fn create(&self, new: &NewContainer<'_>) -> Result<u32, Status> {
        let spec =
            prost_types::Any { type_url: SPEC_TYPE.to_owned(), value: new.spec.to_string().into_bytes() };
        let container = Container {
            id: new.id.to_owned(),
            image: new.image.to_owned(),
            runtime: Some(ContainerRuntime { name: RUNTIME.to_owned() }),
            spec: Some(spec),
            snapshotter: SNAPSHOTTER.to_owned(),
            snapshot_key: new.id.to_owned(),
            ..Container::default()
        };
        // The container keeps its root once it is there; before, only a lease would.
        let path = "/containerd.services.containers.v1.Containers/Create";
        self.unary::<_, ()>(path, CreateContainerRequest { container: Some(container) }).await?;
        let rootfs = self.prepare(new.id, &new.unpacked.snapshot, None).await?;
        let log = new.log.display().to_string();
        let request =
            CreateTaskRequest { container_id: new.id.to_owned(), rootfs, stdout: log.clone(), stderr: log };
        let path = "/containerd.services.tasks.v1.Tasks/Create";
        Ok(self.unary::<_, CreateTaskResponse>(path, request).await?.pid)
    }

    /// Lets a task's process run its program.
    pub async fn start(&self, id: &str) -> Result<(), Status> {
        self.unary("/containerd.services.tasks.v1.Tasks/Start", request(id)).await
    }

    /// The task of a container, if it has one.
    pub async fn task(&self, id: &str) -> Result<Option<Task>, Status> {
        let path = "/containerd.services.tasks.v1.Tasks/Get";
        match self.unary::<_, GetTaskResponse>(path, request(id)).await {
            Ok(answer) => Ok(answer.process),
            Err(status) if status.code() == Code::NotFound => Ok(None),
            Err(status) => Err(status),
        }
    }

    /// Waits for the end of a task. Answers its exit status: above 128 it was a signal.
    pub async fn wait(&self, id: &str) -> Result<u32, Status> {
        let path = "/containerd.services.tasks.v1.Tasks/Wait";
        Ok(self.unary::<_, WaitResponse>(path, request(id)).await?.exit_status)
    }

    /// Ends and removes a container with all that belongs to it. One that is not there is removed.
    pub async fn remove(&self, id: &str) -> Result<(), Status> {
        let begin = Instant::now();
        loop {
            match self.end_task(id).await {
                Err(status) if is_between_states(&status) && begin.elapsed() < CLEANED_UP => {
                    tokio::time::sleep(LOOK_PERIOD).await;
                }
                ended => break ended?,
            }
        }
        gone(self.unary("/containerd.services.containers.v1.Containers/Delete", request(id)).await)?;
        self.remove_snapshot(id).await
    }

    async fn end_task(&self, id: &str) -> Result<(), Status> {
        let kill = KillRequest { container_id: id.to_owned(), signal: KILL, all: true };
        // One that has ended cannot be killed.
        let _: Result<(), Status> = self.unary("/containerd.services.tasks.v1.Tasks/Kill", kill).await;
        if self.task(id).await?.is_some() {
            self.wait(id).await?;
        }
        gone(self.unary("/containerd.services.tasks.v1.Tasks/Delete", request(id)).await)
    }
}

/// Whether a task is being made or deleted by another call, of a client that has ended, too: it is there in a moment, or gone.
///
/// containerd lists a task whose shim has not made its container yet; a shim that ends in the middle of a call answers nothing
/// more, and containerd passes that on without a code of its own.
fn is_between_states(status: &Status) -> bool {
    match status.code() {
        Code::NotFound => true,
        Code::Unknown => status.message().ends_with("ttrpc: closed"),
        _ => false,
    }
}

fn request(id: &str) -> ContainerRequest {
    ContainerRequest { id: id.to_owned() }
}

fn gone(removed: Result<(), Status>) -> Result<(), Status> {
    match removed {
        Err(status) if status.code() == Code::NotFound => Ok(()),
        done => done,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_between_two_states_is_known_by_containerds_answer() {
        let of = |code, text| is_between_states(&Status::new(code, text));
        assert!(of(Code::Unknown, "failed to delete task: ttrpc: closed"));
        assert!(of(Code::NotFound, "container not created: not found"));
        assert!(!of(Code::Unknown, "failed to delete task: permission denied"));
    }
}
