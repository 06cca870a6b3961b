//! `xtask clean`: removes what builds have made.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::cache::Cache;
use crate::place;
use crate::step::note;

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Also empty the cache that all checkouts share; the next build fetches everything anew.
    #[arg(long)]
    cache: bool,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    for directory in place::all_artefacts()? {
        remove(&directory)?;
    }
    if options.cache {
        let root = place::cache()?;
        // Another run that is making something holds locks: the shared one of apt is waited for, the rest renamed
        // away at once, so that no run sees half an entry.
        let _lock = Cache::open(&root)?.lock("apt")?;
        for item in fs::read_dir(&root).with_context(|| format!("list {}", root.display()))? {
            let path = item.with_context(|| format!("list {}", root.display()))?.path();
            if !path.ends_with("locks") {
                remove(&path)?;
            }
        }
    }
    Ok(())
}

/// Renames first: what is left of a half removed directory must not pass for a whole one.
fn remove(directory: &Path) -> Result<()> {
    if !directory.exists() {
        return Ok(());
    }
    let doomed = directory.with_extension("removing");
    if doomed.exists() {
        fs::remove_dir_all(&doomed).with_context(|| format!("remove {}", doomed.display()))?;
    }
    fs::rename(directory, &doomed).with_context(|| format!("rename {}", directory.display()))?;
    fs::remove_dir_all(&doomed).with_context(|| format!("remove {}", doomed.display()))?;
    note(&format!("removed {}", directory.display()));
    Ok(())
}
