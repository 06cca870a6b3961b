//! Looking for STATE on every disk, where the node was not started from one that says where it is.
//!
//! Owns: what becomes of a partition that is found: mounted, or the reason why not.
//! Does not: make one.
//! Source: docs/decisions/0019.

use std::path::{Path, PathBuf};

use super::handle::Volumes;
use super::state_files::{self, Found, State};
use crate::block::CLASS;
use crate::locked::Look;

impl Volumes {
    /// Mounts STATE if it is there; says what keeps it from that. Blocks.
    pub(crate) fn look_for_state(&self) -> Look {
        look_in(self, Path::new(CLASS))
    }
}

fn several(devices: &[PathBuf]) -> Look {
    let names: Vec<String> = devices.iter().map(|device| device.display().to_string()).collect();
    let names = names.join(", ");
    Look::Several(format!(
        "several partitions are labelled STATE ({names}): none is used; detach or relabel all but one"
    ))
}

fn look_in(volumes: &Volumes, class: &Path) -> Look {
    if volumes.state().is_some() {
        return Look::Mounted;
    }
    if let Some(state) = State::mounted() {
        volumes.set_state(state);
        return Look::Mounted;
    }
    let device = match state_files::find(class) {
        Found::Nothing => return Look::Nothing,
        Found::One(device) => device,
        Found::Several(devices) => return several(&devices),
    };
    let mounted = match super::state::usable(volumes, &device) {
        Ok(None) => return Look::Empty,
        Ok(Some(device)) => State::mount(&device).map(|state| (state, device)),
        Err(why) => return Look::Closed(why),
    };
    match mounted {
        Ok((state, device)) => {
            // Opening and mounting take time, in which another disk may have come.
            if let Found::Several(devices) = state_files::find(class) {
                if let Err(why) = State::unmount() {
                    volumes.runtime.journal.warn(&format!("STATE on {}: {why}", device.display()));
                }
                return several(&devices);
            }
            volumes.runtime.journal.say(&format!("STATE is {}", device.display()));
            // Set twice only by two looks at the same partition.
            volumes.set_state(state);
            Look::Mounted
        }
        Err(why) => Look::Closed(why),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::locked::Memory;

    #[test]
    fn two_states_are_named_and_lock_the_machine() {
        let dir = tempfile::tempdir().unwrap();
        let volumes = crate::server::tests_node(dir.path().join("root")).volumes.clone();
        let class = dir.path().join("class");
        std::fs::create_dir(&class).unwrap();
        assert_eq!(look_in(&volumes, &class), Look::Nothing);
        for name in ["vda5", "vdb1"] {
            std::fs::create_dir(class.join(name)).unwrap();
            std::fs::write(class.join(name).join("uevent"), "PARTNAME=STATE\n").unwrap();
        }
        let look = look_in(&volumes, &class);
        assert!(matches!(&look, Look::Several(why) if why.contains("(/dev/vda5, /dev/vdb1)")), "{look:?}");
        assert!(crate::locked::decide(&look, &Memory::Nothing, false).lock().is_some());
    }
}
