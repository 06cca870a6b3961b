//! Taking volumes out of use: before a reset, and before the machine ends.
//!
//! Order: what is mounted later first; then the mappings, and with them the keys in the kernel.

use std::fs;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};

use super::handle::Volumes;
use super::mount::VAR;
use super::specs::SYSTEM;
use super::state_files::MOUNT_POINT;
use super::{further, mapping, status};

/// How long the last user of a volume may take to leave it.
const BUSY_DEADLINE: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(100);

/// Takes STATE and EPHEMERAL, and what is mounted below /var, out of use, and their keys out of the kernel. Blocks.
pub(crate) fn release(volumes: &Volumes) -> Result<(), String> {
    volumes.forget_state();
    further::stop(volumes);
    let mounts = fs::read_to_string("/proc/self/mounts").map_err(|e| format!("read the mounts: {e}"))?;
    let end = Instant::now() + BUSY_DEADLINE;
    for target in ours(&mounts) {
        loop {
            match unmount(target.as_str(), UnmountFlags::NOFOLLOW) {
                Ok(()) | Err(Errno::INVAL) => break,
                Err(Errno::BUSY) if Instant::now() < end => std::thread::sleep(LOOK),
                Err(errno) => return Err(format!("unmount {target}: {errno}")),
            }
        }
    }
    further::release(volumes);
    close(volumes, &[])
}

/// What is to be unmounted, later mounts first: what lies below, and overlays that write there.
fn ours(mounts: &str) -> Vec<String> {
    let below =
        |target: &str, directory: &str| target == directory || target.starts_with(&format!("{directory}/"));
    let is_ours = |target: &str, options: &str| {
        let upper = options.split(',').find_map(|option| option.strip_prefix("upperdir="));
        below(target, VAR) || below(target, MOUNT_POINT) || upper.is_some_and(|upper| below(upper, VAR))
    };
    let mut found: Vec<String> = mounts
        .lines()
        .filter_map(|line| {
            let mut words = line.split(' ').skip(1);
            let (target, options) = (words.next()?, words.nth(1)?);
            is_ours(target, options).then(|| target.replace("\\040", " "))
        })
        .collect();
    found.reverse();
    found
}

/// Takes the mappings of volumes that are to be wiped away. Blocks.
pub(crate) fn close(volumes: &Volumes, partitions: &[String]) -> Result<(), String> {
    for volume in SYSTEM {
        if partitions.is_empty() || partitions.iter().any(|name| name == volume) {
            mapping::close(volume)?;
            status::closed(volumes, volume);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::mount::MOUNTS;
    use super::*;

    #[test]
    fn mounts_are_left_in_reverse_order() {
        assert_eq!(ours(MOUNTS), ["/opt", "/var/mnt/a b", "/var", "/system/state", "/var"]);
    }
}
