//! Where lines come from: the logs of all services, the log of the kernel.
//!
//! Order: a log's kept lines first, then each as it is written.
//! Fails by: counting what a reader missed.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use runtime::kmsg;
use runtime::logs::{Follower, Tail};
use tokio::task::JoinSet;

use super::line::{self, Tags};
use super::queue::Queue;
use runtime::Runtime;

/// A longer line is sent in parts, so that one fits into a packet whatever its characters.
const MOST_LINE_BYTES: usize = 8 * 1024;
/// Before a log that could not be read is tried again.
const RETRY: Duration = Duration::from_secs(5);

/// Feeds the lines of every service, also of those that come later.
pub(super) async fn services(runtime: Arc<Runtime>, queue: Arc<Queue>, tags: Tags) {
    let mut registered = runtime.logs.registered();
    let mut known = BTreeSet::new();
    // Ends its tasks with this one.
    let mut readers = JoinSet::new();
    loop {
        registered.mark_unchanged();
        for id in runtime.logs.sources() {
            if !known.contains(&id)
                && let Some(follower) = runtime.logs.follow(&id, Tail::All)
            {
                readers.spawn(service(id.clone(), follower, queue.clone(), tags.clone()));
                known.insert(id);
            }
        }
        if registered.changed().await.is_err() {
            return std::future::pending().await;
        }
    }
}

async fn service(id: String, mut follower: Follower, queue: Arc<Queue>, tags: Tags) {
    let mut rest: Vec<u8> = Vec::new();
    loop {
        match follower.read_available() {
            Ok(bytes) if bytes.is_empty() => follower.grown().await,
            Ok(bytes) => {
                rest.extend(bytes);
                for text in take_lines(&mut rest) {
                    queue.push(line::of_service(&id, &text, &tags));
                }
            }
            Err(_) => tokio::time::sleep(RETRY).await,
        }
        match follower.take_gaps() {
            0 => {}
            // How many lines a file held that is gone, nobody knows: at least one each.
            gaps => queue.lost(gaps),
        }
        tokio::task::yield_now().await;
    }
}

/// Takes whole lines, and parts of one that is too long.
fn take_lines(rest: &mut Vec<u8>) -> Vec<String> {
    let mut lines = Vec::new();
    let mut from = 0;
    while from < rest.len() {
        let slice = &rest[from..];
        let end = slice.iter().take(MOST_LINE_BYTES).position(|byte| *byte == b'\n');
        let (length, step) = match end {
            Some(end) => (end, end + 1),
            None if slice.len() >= MOST_LINE_BYTES => (MOST_LINE_BYTES, MOST_LINE_BYTES),
            None => break,
        };
        let text = String::from_utf8_lossy(&slice[..length]).trim_end_matches('\r').to_owned();
        if !text.is_empty() {
            lines.push(text);
        }
        from += step;
    }
    rest.drain(..from);
    lines
}

/// Feeds the records of the kernel's log.
pub(super) async fn kernel(runtime: Arc<Runtime>, queue: Arc<Queue>, tags: Tags) {
    let mut next = None;
    loop {
        if let Err(error) = follow_kernel(&runtime, &queue, &tags, &mut next).await {
            runtime.journal.warn(&format!("send the kernel's log: read /dev/kmsg: {error}"));
        }
        tokio::time::sleep(RETRY).await;
    }
}

async fn follow_kernel(
    runtime: &Runtime,
    queue: &Queue,
    tags: &Tags,
    next: &mut Option<u64>,
) -> std::io::Result<()> {
    let reader = kmsg::Reader::open(&runtime.path("/dev/kmsg"), false)?;
    loop {
        let read = reader.next_record(|record| {
            // A record that was sent before the reader was opened anew.
            if next.is_some_and(|next| record.sequence < next) {
                return;
            }
            queue.lost(next.map_or(0, |next| record.sequence - next));
            *next = Some(record.sequence + 1);
            queue.push(line::of_kernel(record, tags));
        })?;
        if !read {
            reader.wait().await?;
        }
        tokio::task::yield_now().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_become_lines_wherever_they_are_cut() {
        let mut rest = b"one\ntwo\r\n\nthr".to_vec();
        assert_eq!(take_lines(&mut rest), ["one", "two"]);
        rest.extend(b"ee\n");
        assert_eq!(take_lines(&mut rest), ["three"]);
        rest.extend(vec![b'x'; MOST_LINE_BYTES + 5]);
        let parts = take_lines(&mut rest);
        assert_eq!((parts.len(), parts[0].len(), rest.len()), (1, MOST_LINE_BYTES, 5));
    }
}
