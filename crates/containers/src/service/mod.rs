//! Services of the node's own that run as containers, for etcd and the kubelet.
//!
//! Owns: that the image is here and unpacked, that a running container stays, and that what an earlier run left is removed.
//! Does not: know what runs; a service brings its [`Description`].
//! Order: image, files of the service, container, task. A machined that dies anywhere leaves what the next one finds: content
//! under a lease, snapshots under their digests, a task under the service's id.
//! Fails by: a sentence for people, which the service shows; it is tried again.

mod description;
mod once;
#[cfg(test)]
mod tests;

use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use runtime::services::{Container, Step};
use sys::rights::OwnRights;

pub use description::{Description, Mount, Rights};
pub use once::{Ended, Once, OnceError};

use crate::{Client, NewContainer, TaskStatus, Unpacked};

/// A container whose process has ended: how long containerd may take to say how.
const END_DEADLINE: Duration = Duration::from_secs(30);
/// Removing an earlier container and making the next one takes seconds, on a slow disk some tens of them.
const CREATE_DEADLINE: Duration = Duration::from_secs(180);
/// A created container starts at once.
const START_DEADLINE: Duration = Duration::from_secs(60);

/// Fetches an image into containerd's store: why not, for people.
pub type Fetch =
    Arc<dyn Fn(Client, String) -> Pin<Box<dyn Future<Output = Result<(), String>> + Send>> + Send + Sync>;
/// Writes what the program reads and answers what runs: why not, for people.
pub type Describe = Arc<dyn Fn(Unpacked) -> Step<Description> + Send + Sync>;

/// A service as a container.
#[derive(Clone)]
pub struct Boxed {
    id: String,
    client: Client,
    image: Arc<dyn Fn() -> Step<String> + Send + Sync>,
    fetch: Fetch,
    describe: Describe,
    /// What the last preparation found.
    prepared: Arc<Mutex<Option<Prepared>>>,
}

#[derive(Clone)]
struct Prepared {
    image: String,
    unpacked: Unpacked,
    description: Description,
}

impl Boxed {
    /// A container under the service's id. `image` is asked before each start, since a configuration may change it; it may wait
    /// until the service is wanted.
    pub fn new(
        id: &str,
        client: Client,
        image: impl Fn() -> Step<String> + Send + Sync + 'static,
        fetch: Fetch,
        describe: Describe,
    ) -> Self {
        let (image, prepared) = (Arc::new(image), Arc::default());
        Self { id: id.to_owned(), client, image, fetch, describe, prepared }
    }

    async fn make_ready(&self) -> Result<Prepared, String> {
        let name = (self.image)().await?;
        let image = self.image_here(&name).await?;
        let unpacked = self.client.unpack(&image).await.map_err(|status| said("unpack", &name, &status))?;
        let description = (self.describe)(unpacked.clone()).await?;
        Ok(Prepared { image: name, unpacked, description })
    }

    async fn image_here(&self, name: &str) -> Result<crate::Image, String> {
        let find = async || self.client.image(name).await.map_err(|status| said("find", name, &status));
        if let Some(image) = find().await? {
            return Ok(image);
        }
        (self.fetch)(self.client.clone(), name.to_owned()).await?;
        find().await?.ok_or_else(|| format!("image {name} is gone again"))
    }

    /// The process of a task that runs under this id.
    async fn running(&self) -> Result<Option<i32>, String> {
        let task = self.client.task(&self.id).await.map_err(|status| self.failed("ask for", &status))?;
        let task = task.filter(|task| task.status() == TaskStatus::Running);
        Ok(task.and_then(|task| i32::try_from(task.pid).ok()))
    }

    async fn make(&self, log: PathBuf) -> Result<i32, String> {
        if let Some(pid) = self.running().await? {
            return Ok(pid);
        }
        let prepared = self.prepared.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let prepared = prepared.ok_or("it is not prepared")?;
        self.client.remove(&self.id).await.map_err(|status| self.failed("remove the earlier", &status))?;
        let new = NewContainer {
            id: &self.id,
            image: &prepared.image,
            unpacked: &prepared.unpacked,
            spec: &prepared.description.to_spec(&OwnRights::of_this_process()),
            log: &log,
        };
        let pid = self.client.create(&new).await.map_err(|status| self.failed("create", &status))?;
        i32::try_from(pid).map_err(|_| format!("container {}: {pid} is no process id", self.id))
    }

    async fn run(&self) -> Result<(), String> {
        if self.running().await?.is_some() {
            return Ok(());
        }
        self.client.start(&self.id).await.map_err(|status| self.failed("start", &status))
    }

    async fn end(&self) -> Result<(), String> {
        let waited = tokio::time::timeout(END_DEADLINE, self.client.wait(&self.id)).await;
        let status = match waited {
            Ok(Ok(status)) => status,
            Ok(Err(status)) => return Err(format!("exit status unknown: {}", status.message())),
            Err(_) => return Err(format!("exit status unknown within {} s", END_DEADLINE.as_secs())),
        };
        // A next start removes it too.
        let removed = self.client.remove(&self.id).await;
        drop(removed);
        match status {
            0 => Ok(()),
            // As shells count signals.
            status @ 129..=192 => Err(format!("signal {}", status.saturating_sub(128))),
            status => Err(format!("exit status {status}")),
        }
    }

    /// A next attempt removes what the call made after all.
    fn unanswered(&self, what: &str, deadline: Duration) -> String {
        format!("{what} container {}: containerd gave no answer within {} s", self.id, deadline.as_secs())
    }

    fn failed(&self, what: &str, status: &tonic::Status) -> String {
        format!("{what} container {}: {}", self.id, status.message())
    }
}

fn said(what: &str, image: &str, status: &tonic::Status) -> String {
    format!("{what} image {image}: {}", status.message())
}

impl Container for Boxed {
    fn prepare(&self) -> Step<()> {
        let this = self.clone();
        Box::pin(async move {
            let prepared = this.make_ready().await?;
            *this.prepared.lock().unwrap_or_else(PoisonError::into_inner) = Some(prepared);
            Ok(())
        })
    }

    fn create(&self, log: PathBuf) -> Step<i32> {
        let this = self.clone();
        Box::pin(async move {
            let made = tokio::time::timeout(CREATE_DEADLINE, this.make(log)).await;
            made.unwrap_or_else(|_| Err(this.unanswered("create", CREATE_DEADLINE)))
        })
    }

    fn start(&self) -> Step<()> {
        let this = self.clone();
        Box::pin(async move {
            let started = tokio::time::timeout(START_DEADLINE, this.run()).await;
            started.unwrap_or_else(|_| Err(this.unanswered("start", START_DEADLINE)))
        })
    }

    fn ended(&self) -> Step<()> {
        let this = self.clone();
        Box::pin(async move { this.end().await })
    }
}
