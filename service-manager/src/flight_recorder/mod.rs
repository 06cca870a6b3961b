//! The flight recorder, as far as it is machined's: the kernel's log onto the disk, and the logs of earlier boots.
//!
//! | task | reads | writes | ends |
//! |---|---|---|---|
//! | [`follow`] | /dev/kmsg, from where init or an earlier machined stopped | the ring in META | with machined, or when the ring fails |
//!
//! Owns: the ring from machined's start to its end; init has it before and afterwards (docs/formats/meta.md).
//! Does not: exist on a node that did not start from a slot of its disk.
//! Order: the earlier boots are read before anything is written, and kept in [`KEPT`], as this boot's lines may go over
//! them: a later machined of this boot shows the same ones.
//! Fails by: a line in the log, and nothing is recorded any more; everything else goes on.

mod pace;
mod queue;
mod ring;
mod summary;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ondisk::recorder::Boot;
use tokio::sync::watch;
use tokio::time::Instant;

use pace::Pace;
use queue::Queue;
use ring::Ring;
use runtime::Runtime;
use runtime::kmsg;
use runtime::store::{EARLIER_BOOT, RuntimeSpec, Spec};

pub use summary::{Stage, Summary, Trial, lines};

/// Where the kernel tells which boot this is.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// The ring as the first machined of this boot found it.
const KEPT: &str = "/run/billet/flight-recorder";

/// Lines come in bursts: so long after the first they are read together.
const GATHER: Duration = Duration::from_millis(20);

/// How long a call waits for the ring to be read, which happens at the start.
const READ_DEADLINE: Duration = Duration::from_secs(10);

/// What earlier boots left; clones share it.
#[derive(Debug, Clone)]
pub struct FlightRecorder {
    earlier: Arc<watch::Sender<Option<Earlier>>>,
}

/// The newest first, or why there are none.
pub type Earlier = Result<Arc<Vec<Boot>>, String>;

impl Default for FlightRecorder {
    fn default() -> Self {
        Self { earlier: Arc::new(watch::channel(None).0) }
    }
}

impl FlightRecorder {
    /// Earlier boots, the newest first; or why nothing is known of any.
    pub async fn earlier(&self) -> Earlier {
        let mut earlier = self.earlier.subscribe();
        let known = tokio::time::timeout(READ_DEADLINE, earlier.wait_for(Option::is_some)).await;
        match known {
            Ok(Ok(found)) => found.clone().unwrap_or_else(|| Ok(Arc::default())),
            _ => Err(format!("the flight recorder was not read within {READ_DEADLINE:?}")),
        }
    }

    /// The last boot of a new system, in short.
    pub async fn last_boot(&self, trial: &Trial<'_>) -> Option<Summary> {
        Summary::of_last(&self.earlier().await.ok()?, trial)
    }

    fn set(&self, earlier: Earlier) {
        self.earlier.send_replace(Some(earlier));
    }
}

/// The kernel's id of this boot, as [`Summary::id`] has it; empty if the kernel tells none.
pub(crate) fn boot_id(runtime: &Runtime) -> String {
    std::fs::read_to_string(runtime.path(BOOT_ID)).unwrap_or_default().trim().to_owned()
}

/// Reads what earlier boots left, and records this one from now on.
pub(crate) fn start(runtime: &Arc<Runtime>, recorder: &FlightRecorder) {
    let Some(device) = runtime.boot.recorder.clone() else {
        let reason = "this node did not start from a slot of its disk: it has no flight recorder";
        recorder.set(Err(reason.to_owned()));
        return;
    };
    let (node, recorder) = (runtime.clone(), recorder.clone());
    runtime.start_task("flight-recorder", "keeps the kernel's log across boots", async move {
        if let Err(error) = follow(&node, &recorder, PathBuf::from(&device)).await {
            node.journal.warn(&format!("flight recorder on {device}: {error}; it is off"));
            if recorder.earlier.borrow().is_none() {
                recorder.set(Err(format!("the flight recorder on {device} failed: {error}")));
            }
        }
    });
}

async fn follow(runtime: &Runtime, recorder: &FlightRecorder, device: PathBuf) -> Result<(), String> {
    let kept = runtime.path(KEPT);
    let boot_id = runtime.path(BOOT_ID);
    let (ring, earlier) = blocking(move || open(&device, &kept, &boot_id)).await?;
    publish(runtime, &earlier);
    recorder.set(Ok(Arc::new(earlier)));
    record(runtime, ring).await
}

fn open(device: &Path, kept: &Path, boot_id: &Path) -> Result<(Ring, Vec<Boot>), String> {
    let id = std::fs::read_to_string(boot_id).map_err(|e| format!("read {}: {e}", boot_id.display()))?;
    let id = ondisk::recorder::parse_boot_id(&id).ok_or("the kernel's boot id is none")?;
    let mut ring = Ring::open(device, id)?;
    let mut boots = ring.earlier(kept)?;
    boots.reverse();
    Ok((ring, boots))
}

/// Puts lines onto the disk as they come, at the pace that flash bears.
async fn record(runtime: &Runtime, ring: Ring) -> Result<(), String> {
    let reader = kmsg::Reader::open(&runtime.path("/dev/kmsg"), false);
    let reader = reader.map_err(|e| format!("open /dev/kmsg: {e}"))?;
    let read = |error: std::io::Error| format!("read /dev/kmsg: {error}");
    let start = Instant::now();
    let (mut pace, mut queue) = (Pace::default(), Queue::new(ring.sequence()));
    let mut ring = ring;
    loop {
        while reader.next_record(|record| queue.push(record, start.elapsed())).map_err(read)? {}
        let Some(first) = queue.first() else {
            reader.wait().await.map_err(read)?;
            tokio::time::sleep(GATHER).await;
            continue;
        };
        let wait = pace.wait(start.elapsed(), first, queue.is_urgent());
        if wait > Duration::ZERO {
            // A line that is urgent shortens the wait.
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                more = reader.wait(), if !queue.is_urgent() => {
                    more.map_err(read)?;
                    tokio::time::sleep(GATHER).await;
                }
            }
            continue;
        }
        let lines = queue.take(pace.pages());
        let started_us = u64::try_from(runtime::clock::unix_ns()).unwrap_or(0) / 1000;
        let started_us = started_us.saturating_sub(runtime::clock::boottime_ns() / 1000);
        let (back, pages) = blocking(move || {
            let pages = ring.append(&lines, started_us)?;
            Ok((ring, pages))
        })
        .await?;
        ring = back;
        pace.wrote(start.elapsed(), pages);
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    runtime::request::blocking(work).await
}

/// Shows earlier boots as resources.
fn publish(runtime: &Runtime, earlier: &[Boot]) {
    for (boot, back) in earlier.iter().zip(1..) {
        let summary = Summary::of(boot);
        let spec = Spec::Runtime(RuntimeSpec::EarlierBoot(summary.resource(back)));
        if let Err(error) = runtime.store.put(EARLIER_BOOT.writer, &EARLIER_BOOT, &summary.id, spec) {
            runtime.journal.warn(&format!("publish earlier boots: {error}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernel prints its command line into its log; META can be read without a key.
    #[tokio::test]
    async fn what_is_recorded_has_no_secret_of_the_command_line() {
        let dir = tempfile::tempdir().unwrap();
        let place = |path: &str| {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            path
        };
        let meta = place("meta");
        std::fs::write(&meta, vec![0; 1 << 20]).unwrap();
        std::fs::write(place("proc/sys/kernel/random/boot_id"), "01020304-0506-0708-090a-0b0c0d0e0f10\n")
            .unwrap();
        place("run/billet/flight-recorder");
        let kernel = crate::server::tests_kernel_log(dir.path());
        // A warning is written at once.
        let record = b"4,1,1000000,-;Kernel command line: billet.config.inline=c2VjcmV0 quiet\n";
        rustix::io::write(&kernel, record).unwrap();
        let (runtime, device) = (Runtime::detached(dir.path().to_owned()), meta.clone());
        tokio::spawn(async move { follow(&runtime, &FlightRecorder::default(), device).await });
        let recorded = async {
            loop {
                let bytes = std::fs::read(&meta).unwrap();
                let boots = ondisk::recorder::boots(&mut bytes.as_slice()).unwrap();
                if let Some(line) = boots.iter().flat_map(|boot| &boot.lines).next() {
                    return line.text.clone();
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let line = tokio::time::timeout(Duration::from_secs(20), recorded).await.expect("a line");
        assert_eq!(line, "Kernel command line: billet.config.inline=<hidden> quiet");
    }
}
