//! `support`: one zip file with what somebody needs who helps.
//!
//! Owns: what is collected, one directory a node. Does not: ask for resources that are marked sensitive, and takes keys,
//! certificates' private parts and tokens out of everything else (`scrub`).
//! Order: every part is asked for on its own; what a node can not give is told in its `errors.txt`.
//! Source: docs/users/commands.md (`support`).

mod collect;
mod scrub;
mod zip;

use crate::{output, session::Session};
use anyhow::{Context, Result};
use collect::Part;
use std::{fs::File, io::BufWriter, path::PathBuf, sync::Arc};
use tokio::task::JoinSet;

const DEFAULT_FILE: &str = "support.zip";

#[derive(Debug, clap::Args)]
pub(crate) struct Flags {
    /// The file to write [default: support.zip]
    #[arg(short = 'O', value_name = "FILE")]
    file: Option<PathBuf>,
    /// Nodes to ask at the same time
    #[arg(short = 'w', long, default_value_t = 1, value_name = "NODES")]
    num_workers: usize,
    /// Say what is collected
    #[arg(short, long)]
    verbose: bool,
}

pub(crate) async fn run(session: Session, flags: Flags) -> Result<()> {
    let word = session.global.output_word.as_ref().map(PathBuf::from);
    let path = flags.file.or(word).unwrap_or_else(|| DEFAULT_FILE.into());
    // Before the work: a file that can not be written is found at once. Others may not read logs.
    let file = create(&path).with_context(|| format!("create {}", path.display()))?;
    let mut zip = zip::Writer::new(BufWriter::new(file));
    let session = Arc::new(session);
    let mut nodes = session.each_node().into_iter();
    let mut running = JoinSet::new();
    loop {
        while running.len() < flags.num_workers.max(1)
            && let Some(node) = nodes.next()
        {
            running.spawn(collect::node(Arc::clone(&session), node));
        }
        let Some(parts) = running.join_next().await else { break };
        let parts = parts?;
        tell_missing(&session, &parts);
        for part in parts {
            if flags.verbose {
                output::note(&part.name);
            }
            zip.add(&part.name, &scrub::scrubbed(&part.content))
                .with_context(|| format!("write {}", path.display()))?;
        }
    }
    zip.finish().with_context(|| format!("write {}", path.display()))?;
    eprintln!("support bundle is in {}", path.display());
    Ok(())
}

/// Says what the bundle does not have. A node that gave nothing at all is a failure.
fn tell_missing(session: &Session, parts: &[Part]) {
    let Some(errors) = parts.iter().find(|part| part.name.ends_with(collect::ERRORS)) else { return };
    let count = errors.content.iter().filter(|byte| **byte == b'\n').count();
    let text = format!("{count} parts could not be collected; {} names them", errors.name);
    match parts.len() {
        1 => session.global.part_failed.warn(text),
        _ => output::note(&text),
    }
}

/// A new file that nobody else may read: one that is there may be a link, or open to others.
fn create(path: &std::path::Path) -> std::io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    let created = File::options().write(true).create_new(true).mode(0o600).open(path);
    created.map_err(|error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => {
            std::io::Error::new(error.kind(), "it exists already: remove it, or name another file by -O FILE")
        }
        _ => error,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn the_bundle_is_a_new_file_of_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("support.zip");
        create(&path).unwrap();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        std::fs::write(&path, "kept").unwrap();
        let (link, target) = (dir.path().join("link.zip"), dir.path().join("target"));
        symlink(&target, &link).unwrap();
        for path in [&path, &link] {
            let error = create(path).unwrap_err().to_string();
            assert!(error.contains("exists already") && error.contains("-O FILE"), "{error}");
        }
        assert_eq!(std::fs::read(&path).unwrap(), b"kept");
        assert!(!target.exists(), "nothing is made where a link leads");
    }
}
