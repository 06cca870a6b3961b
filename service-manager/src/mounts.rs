//! `MountStatuses`: what is mounted, as it changes.
//!
//! | task | reads | writes | ends |
//! |---|---|---|---|
//! | [`watch`] | /proc/self/mountinfo, whenever the kernel says that it changed | `MountStatuses` | with machined |
//!
//! Owns: the format of mountinfo. Does not: mount. Source: proc_pid_mountinfo(5), poll(2).

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use runtime::Runtime;
use runtime::store::{MOUNT_STATUS, MountStatus, Spec};
use runtime::watched;
use tokio::io::unix::AsyncFd;

const MOUNTINFO: &str = "/proc/self/mountinfo";

/// Keeps the resources like the table. Says why when it cannot.
pub async fn watch(runtime: Arc<Runtime>) {
    if let Err(error) = follow(&runtime).await {
        runtime.journal.warn(&format!("watch {MOUNTINFO}: {error}; mount statuses stay as they are"));
    }
}

async fn follow(runtime: &Runtime) -> std::io::Result<()> {
    let mut table = File::open(MOUNTINFO)?;
    let changes = watched::exceptional(OwnedFd::from(table.try_clone()?))?;
    loop {
        publish(runtime, &read(&mut table)?);
        changed(&changes).await?;
    }
}

/// The kernel reports a changed table as an error and a priority event of the open file.
async fn changed(changes: &AsyncFd<OwnedFd>) -> std::io::Result<()> {
    changes.ready(tokio::io::Interest::PRIORITY).await?.clear_ready();
    Ok(())
}

fn read(table: &mut File) -> std::io::Result<String> {
    let mut text = String::new();
    table.rewind()?;
    table.read_to_string(&mut text)?;
    Ok(text)
}

/// Publishes the table as it is now.
pub fn publish_now(runtime: &Runtime) -> std::io::Result<()> {
    publish(runtime, &read(&mut File::open(MOUNTINFO)?)?);
    Ok(())
}

fn publish(runtime: &Runtime, text: &str) {
    // A later line covers an earlier one of the same target.
    let mounts: BTreeMap<_, _> =
        text.lines().filter_map(parse).map(|mount| (mount.target.clone(), mount)).collect();
    let wanted = mounts.into_iter().map(|(target, mount)| (target, Spec::MountStatus(mount)));
    if let Err(error) = runtime.store.replace(MOUNT_STATUS.writer, &MOUNT_STATUS, wanted.collect()) {
        runtime.journal.warn(&error.to_string());
    }
}

/// What is mounted now, the lower first.
pub(crate) fn table() -> std::io::Result<Vec<MountStatus>> {
    Ok(read(&mut File::open(MOUNTINFO)?)?.lines().filter_map(parse).collect())
}

/// `id parent major:minor root target options [tags…] - type source super-options`
fn parse(line: &str) -> Option<MountStatus> {
    let (left, right) = line.split_once(" - ")?;
    let mut left = left.split(' ').skip(4);
    let mut right = right.split(' ');
    let (target, options) = (left.next()?, left.next()?);
    let (kind, source) = (right.next()?, right.next()?);
    let mut all: Vec<String> = options.split(',').map(str::to_owned).collect();
    for option in right.next().unwrap_or_default().split(',').filter(|option| !option.is_empty()) {
        if !all.iter().any(|known| known == option) {
            all.push(option.to_owned());
        }
    }
    Some(MountStatus {
        source: unescape(source),
        target: unescape(target),
        filesystem_type: kind.to_owned(),
        options: all,
    })
}

/// Blank, tab, newline and backslash are octal escapes.
fn unescape(text: &str) -> String {
    text.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_with_their_optional_fields() {
        let line =
            "36 35 98:0 /mnt1 /mnt\\0402 rw,noatime master:1 shared:2 - ext3 /dev/root rw,errors=continue";
        let mount = parse(line).unwrap();
        assert_eq!((mount.source.as_str(), mount.target.as_str()), ("/dev/root", "/mnt 2"));
        assert_eq!(mount.filesystem_type, "ext3");
        assert_eq!(mount.options, ["rw", "noatime", "errors=continue"]);
        assert!(parse("36 35 98:0 /mnt1").is_none());
    }

    #[test]
    fn the_upper_of_two_mounts_is_the_one_that_counts() {
        let dir = tempfile::tempdir().unwrap();
        let node = crate::server::tests_node(dir.path().to_owned());
        publish(&node.runtime, "1 0 0:1 / /a rw - tmpfs low rw\n2 0 0:2 / /a ro - tmpfs high rw\n");
        let all = node.runtime.store.list(&MOUNT_STATUS);
        assert_eq!(all.len(), 1);
        let Spec::MountStatus(mount) = &all[0].spec else { panic!("not a mount") };
        assert_eq!((mount.source.as_str(), all[0].metadata.id.as_str()), ("high", "/a"));
        publish(&node.runtime, "");
        assert!(node.runtime.store.list(&MOUNT_STATUS).is_empty());
    }

    /// Needs the privilege to mount.
    #[tokio::test]
    async fn a_new_mount_is_noticed() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let node = crate::server::tests_node(dir.path().to_owned());
        let target = dir.path().join("m");
        std::fs::create_dir(&target).unwrap();
        let (_, mut later) = node.runtime.store.watch(&MOUNT_STATUS);
        tokio::spawn(watch(node.runtime.clone()));
        let id = target.to_str().unwrap().to_owned();
        let seen = async |later: &mut tokio::sync::broadcast::Receiver<runtime::store::Change>, kind| {
            let wait = async {
                loop {
                    let change = later.recv().await.unwrap();
                    if change.resource.metadata.id == id && change.kind == kind {
                        return;
                    }
                }
            };
            tokio::time::timeout(std::time::Duration::from_secs(10), wait).await.unwrap();
        };
        // The first look must be over, or the mount would be part of it.
        tokio::time::timeout(std::time::Duration::from_secs(10), later.recv()).await.unwrap().unwrap();
        if rustix::mount::mount("none", &target, "tmpfs", rustix::mount::MountFlags::empty(), None).is_err() {
            return;
        }
        seen(&mut later, runtime::store::ChangeKind::Created).await;
        rustix::mount::unmount(&target, rustix::mount::UnmountFlags::empty()).unwrap();
        seen(&mut later, runtime::store::ChangeKind::Destroyed).await;
    }
}
