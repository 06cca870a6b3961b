//! `kubeconfig`: the administrator's kubeconfig, merged into the one of this user or written to a file.
//!
//! Owns: which file is written.
//! Does not: know what is in a kubeconfig; [`merge`] does.

mod merge;

use std::env;
use std::ffi::OsString;
use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use api::client;
use clap::ArgAction;
use config::Secret;
use flate2::read::GzDecoder;

use crate::output;
use crate::private_file;
use crate::session::Session;

/// Name of the file where a directory is given, and in the node's answer.
const FILE: &str = "kubeconfig";
/// A kubeconfig is a few KiB; an answer beyond this is none.
const LIMIT: u64 = 1 << 20;

#[derive(Debug, clap::Args)]
pub(crate) struct Flags {
    /// File or directory to write, `-` for stdout [default: first file of $KUBECONFIG, else ~/.kube/config; with --merge=false ./kubeconfig]
    #[arg(value_name = "FILE")]
    path: Option<PathBuf>,
    /// Overwrite the file; with --merge, overwrite entries of other clusters that have the same name
    #[arg(short, long)]
    force: bool,
    /// Name of the context instead of admin@CLUSTER
    #[arg(long, value_name = "NAME")]
    force_context_name: Option<String>,
    /// Keep what the file holds of other clusters
    #[arg(short, long, default_value_t = true, num_args = 0..=1, default_missing_value = "true", require_equals = true, action = ArgAction::Set)]
    merge: bool,
}

pub(crate) async fn run(session: &Session, flags: Flags) -> Result<()> {
    let text = fetch(session).await?;
    let mut fresh = merge::Kubeconfig::parse(&text).context("read the node's answer")?;
    if let Some(name) = &flags.force_context_name {
        fresh.rename_context(name);
    }
    if flags.path.as_deref() == Some(Path::new("-")) {
        return Ok(output::print(fresh.text()?.expose_secret())?);
    }
    let path = target(&flags, |name| env::var_os(name))?;
    let Some(old) = read(&path)? else { return write(&path, &fresh.text()?) };
    if !flags.merge {
        if !flags.force {
            bail!("{} exists; --force overwrites it, --merge keeps what else it holds", path.display());
        }
        return write(&path, &fresh.text()?);
    }
    let mut old = merge::Kubeconfig::parse(&old).with_context(|| format!("merge into {}", path.display()))?;
    old.merge(&fresh, flags.force).with_context(|| format!("merge into {}", path.display()))?;
    write(&path, &old.text()?)
}

/// The file that kubectl reads, unless one is given.
pub(crate) fn default_target(given: Option<&Path>) -> Result<PathBuf> {
    let flags =
        Flags { path: given.map(Path::to_owned), force: false, force_context_name: None, merge: true };
    target(&flags, |name| env::var_os(name))
}

/// Adds the entries of a kubeconfig to a file.
pub(crate) fn merge_into(path: &Path, text: &Secret) -> Result<()> {
    change(path, text, |old, fresh| old.merge(fresh, false))
}

/// Removes the entries of a kubeconfig's clusters from a file.
pub(crate) fn remove(path: &Path, text: &Secret) -> Result<()> {
    if !path.exists() {
        return Ok(());
    }
    change(path, text, |old, gone| {
        old.remove(gone);
        Ok(())
    })
}

fn change(
    path: &Path,
    text: &Secret,
    change: impl FnOnce(&mut merge::Kubeconfig, &merge::Kubeconfig) -> Result<()>,
) -> Result<()> {
    let context = || format!("change {}", path.display());
    let old = read(path)?.unwrap_or_default();
    let mut old = merge::Kubeconfig::parse(&old).with_context(context)?;
    change(&mut old, &merge::Kubeconfig::parse(text)?).with_context(context)?;
    write(path, &old.text()?)
}

/// What the node hands out: a tar.gz with one file.
pub(crate) async fn fetch(session: &Session) -> Result<Secret> {
    let node = session.single_node("kubeconfig")?;
    let stream = session.client.machine().kubeconfig(client::to_nodes((), node.as_slice())).await;
    let mut packed = Vec::new();
    let taken = session.each(stream, |_, data| {
        packed.extend_from_slice(&data.bytes);
        if packed.len() as u64 > LIMIT {
            bail!("the answer is longer than {LIMIT} bytes")
        }
        Ok(())
    });
    taken.await?;
    unpack(&packed).context("unpack the node's answer")
}

fn unpack(packed: &[u8]) -> Result<Secret> {
    let mut archive = tar::Archive::new(GzDecoder::new(packed).take(LIMIT));
    for entry in archive.entries()? {
        let mut entry = entry?;
        if entry.path()?.as_ref() == Path::new(FILE) {
            let mut text = String::new();
            entry.read_to_string(&mut text)?;
            return Ok(Secret::new(text));
        }
    }
    bail!("it holds no file `{FILE}`")
}

/// The file to write.
fn target(flags: &Flags, variable: impl Fn(&str) -> Option<OsString>) -> Result<PathBuf> {
    match &flags.path {
        Some(path) if path.is_dir() => Ok(path.join(FILE)),
        Some(path) => Ok(path.clone()),
        None if !flags.merge => Ok(PathBuf::from(FILE)),
        None => {
            let set = |name| variable(name).filter(|value| !value.is_empty());
            let listed = set("KUBECONFIG")
                .and_then(|list| env::split_paths(&list).find(|path| !path.as_os_str().is_empty()));
            let at_home = || set("HOME").map(|home| Path::new(&home).join(".kube/config"));
            listed
                .or_else(at_home)
                .context("neither KUBECONFIG nor HOME says where the kubeconfig lies; name a file")
        }
    }
}

/// What is in the file; `None` without one.
fn read(path: &Path) -> Result<Option<Secret>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(Secret::new(text))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("read {}", path.display())),
    }
}

/// Replaces the file. Where it is a link, as dotfiles often are, what it leads to is replaced.
fn write(path: &Path, text: &Secret) -> Result<()> {
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    private_file::write(&path, text.expose_secret())
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        flags: Flags,
    }

    fn target_of(words: &[&str], variables: &[(&str, &str)]) -> Result<PathBuf> {
        let flags = Line::parse_from([&["kubeconfig"], words].concat()).flags;
        target(&flags, |name| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into())
        })
    }

    #[test]
    fn the_file_is_the_one_that_kubectl_reads() {
        let home = ("HOME", "/users/me");
        let is = |words: &[&str], variables: &[(&str, &str)], path: &str| {
            assert_eq!(target_of(words, variables).unwrap(), Path::new(path), "{words:?} {variables:?}");
        };
        is(&[], &[home], "/users/me/.kube/config");
        is(&[], &[home, ("KUBECONFIG", "")], "/users/me/.kube/config");
        is(&[], &[home, ("KUBECONFIG", "/a:/b")], "/a");
        is(&["/c"], &[home, ("KUBECONFIG", "/a")], "/c");
        is(&["-m=false"], &[home, ("KUBECONFIG", "/a")], "kubeconfig");
        let directory = tempfile::tempdir().unwrap();
        let named = directory.path().join("kubeconfig");
        is(&[directory.path().to_str().unwrap()], &[home], named.to_str().unwrap());
        let error = target_of(&[], &[]).unwrap_err().to_string();
        assert_eq!(error, "neither KUBECONFIG nor HOME says where the kubeconfig lies; name a file");
    }

    #[test]
    fn an_answer_without_the_file_is_told() {
        let mut tar =
            tar::Builder::new(flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast()));
        let mut header = tar::Header::new_gnu();
        header.set_size(0);
        tar.append_data(&mut header, "other", &b""[..]).unwrap();
        let packed = tar.into_inner().unwrap().finish().unwrap();
        assert_eq!(unpack(&packed).err().unwrap().to_string(), "it holds no file `kubeconfig`");
        assert!(unpack(&packed[..20]).is_err());
    }
}
