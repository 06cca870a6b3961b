//! The file that etcd is recovered from.
//!
//! Owns: that it is verified before a byte of it is sent, and that an upload which breaks off never looks like a whole one.
//! Does not: hold more of the file in memory than one block.
//! Fails by: an error with the file's name, or what the node answered, also when that comes before the file's end.

use crate::{
    output::{self, bytes_si, progress::Shown},
    session::Session,
};
use anyhow::{Context as _, Result, anyhow, bail};
use api::{client, proto::common::Data};
use installer::Progress;
use kubernetes::snapshot::{SnapshotError, Verifier};
use std::{
    fs::{self, File},
    io::{self, Read as _, Seek as _},
    path::Path,
};
use tokio::{io::AsyncReadExt as _, sync::mpsc};
use tokio_stream::{Stream, StreamExt as _, wrappers::ReceiverStream};

/// Bytes of a message, as talosctl sends them.
const CHUNK_BYTES: usize = 4096;
/// How many messages wait for the network.
const CHUNKS: usize = 64;
/// Bytes that are read at once: whole messages, and few enough to be no burden.
const BLOCK_BYTES: usize = CHUNKS * CHUNK_BYTES;

/// What the file must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Check {
    /// A snapshot with the digest of its bytes at its end.
    Digest,
    /// A copy of the database's file has no digest.
    NotEmpty,
}

/// A file that may be sent.
#[derive(Debug)]
pub(super) struct Snapshot {
    file: File,
    name: String,
    size_bytes: u64,
    check: Check,
}

impl Snapshot {
    /// Opens and checks the file; blocks for as long as it takes to read it.
    pub(super) fn open(path: &Path, check: Check) -> Result<Self> {
        let name = path.display().to_string();
        let opening = || format!("open the snapshot {name}");
        // Before the open: that of a named pipe waits for a writer.
        if !fs::metadata(path).with_context(opening)?.is_file() {
            bail!("{name} is no regular file; name one that `billetctl etcd snapshot` wrote");
        }
        let mut file = File::open(path).with_context(opening)?;
        let size_bytes = file.metadata().with_context(opening)?.len();
        let verified = match check {
            _ if size_bytes == 0 => Err(SnapshotError::Empty),
            Check::Digest => verify(&mut file, size_bytes).with_context(|| format!("read {name}"))?,
            Check::NotEmpty => Ok(size_bytes),
        };
        verified.map_err(|error| refusal(&name, error))?;
        Ok(Self { file, name, size_bytes, check })
    }

    /// Sends it to the node.
    pub(super) async fn send(self, session: &Session, node: Option<&str>) -> Result<()> {
        let Self { file, name, size_bytes, check } = self;
        let shown_node = session.name_of(node);
        let digest = match check {
            Check::Digest => "its digest is right",
            Check::NotEmpty => "its digest is not checked",
        };
        let size = bytes_si(size_bytes);
        output::note(&format!("{shown_node}: recovering from snapshot {name:?}: size {size}, {digest}"));
        let (sender, receiver) = mpsc::channel(CHUNKS);
        // To one node the body goes as it comes; for a list of nodes it would be kept until it is whole.
        let request = client::to_node(until_end(receiver), node);
        let mut machine = session.client.machine();
        let mut call = std::pin::pin!(machine.etcd_recover(request));
        let mut shown = Shown::new();
        let answer = tokio::select! {
            biased;
            // Before the end of the file: the node wants no more of it, and says why.
            answer = &mut call => answer,
            read = feed(file, size_bytes, &sender, &mut shown) => match read {
                Ok(()) => call.await,
                Err(error) => {
                    shown.end();
                    return Err(error).with_context(|| format!("read {name}"));
                }
            },
        };
        shown.end();
        answer.map(drop).map_err(|status| anyhow!("{shown_node}: send {name}: {}", session.error(&status)))
    }
}

/// Reads the file from its start to its end, and goes back to its start.
fn verify(file: &mut File, total_bytes: u64) -> io::Result<Result<u64, SnapshotError>> {
    let mut verifier = Verifier::default();
    let mut shown = Shown::new();
    let mut block = Vec::with_capacity(BLOCK_BYTES);
    let mut done_bytes = 0;
    while done_bytes < total_bytes {
        block.clear();
        let most = (total_bytes - done_bytes).min(BLOCK_BYTES as u64);
        done_bytes += io::Read::by_ref(file).take(most).read_to_end(&mut block)? as u64;
        if block.is_empty() {
            break;
        }
        verifier.take(&block);
        shown.tell(Progress { step: "verify", done_bytes, total_bytes });
    }
    shown.end();
    file.rewind()?;
    Ok(verifier.finish())
}

/// A file that is refused here is wrong for the node, too.
fn refusal(name: &str, error: SnapshotError) -> anyhow::Error {
    let advice = match error {
        // Its text says what to do.
        SnapshotError::NoDigest(_) => "",
        _ => "; copy it again, or recover from another snapshot",
    };
    anyhow!("{name}: {error}{advice}. Nothing was sent to the node")
}

/// Hands on the file in messages, and behind them the mark that it was whole; stops early where none are taken any more.
async fn feed(
    file: File,
    total_bytes: u64,
    sender: &mpsc::Sender<Option<Data>>,
    shown: &mut Shown,
) -> io::Result<()> {
    let mut file = tokio::fs::File::from_std(file);
    let mut block = Vec::with_capacity(BLOCK_BYTES);
    let mut done_bytes = 0;
    while done_bytes < total_bytes {
        block.clear();
        let most = (total_bytes - done_bytes).min(BLOCK_BYTES as u64);
        done_bytes += (&mut file).take(most).read_to_end(&mut block).await? as u64;
        if block.is_empty() {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it became shorter while it was sent"));
        }
        for chunk in block.chunks(CHUNK_BYTES) {
            if sender.send(Some(Data { metadata: None, bytes: chunk.to_vec() })).await.is_err() {
                return Ok(());
            }
        }
        shown.tell(Progress { step: "send", done_bytes, total_bytes });
    }
    // Without a receiver the node's answer is the one that counts.
    let _ = sender.send(None).await;
    Ok(())
}

/// The messages up to the mark. Without the mark there is no end: half a snapshot must not look like a whole one, and a
/// call that is given up breaks off.
fn until_end(receiver: mpsc::Receiver<Option<Data>>) -> impl Stream<Item = Data> {
    ReceiverStream::new(receiver).chain(tokio_stream::pending()).map_while(|part| part)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{io::Write as _, time::Duration};

    fn file(size: usize) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&vec![7; size]).unwrap();
        file.rewind().unwrap();
        file
    }

    async fn fed(file: File, total_bytes: u64) -> (io::Result<()>, mpsc::Receiver<Option<Data>>) {
        let (sender, receiver) = mpsc::channel(CHUNKS);
        (feed(file, total_bytes, &sender, &mut Shown::new()).await, receiver)
    }

    #[tokio::test]
    async fn a_file_goes_in_full_chunks_up_to_the_size_that_was_checked() {
        let (read, receiver) = fed(file(10_000), 9_000).await;
        read.unwrap();
        let sizes: Vec<usize> = until_end(receiver).map(|data| data.bytes.len()).collect().await;
        assert_eq!(sizes, [4096, 4096, 808]);
    }

    #[tokio::test]
    async fn half_a_file_never_ends() {
        let (read, receiver) = fed(file(5_000), 9_000).await;
        assert!(read.unwrap_err().to_string().contains("became shorter"));
        let mut stream = std::pin::pin!(until_end(receiver));
        assert!(stream.next().await.is_some() && stream.next().await.is_some());
        let ended = tokio::time::timeout(Duration::ZERO, stream.next()).await;
        assert!(ended.is_err(), "{ended:?}");
    }
}
