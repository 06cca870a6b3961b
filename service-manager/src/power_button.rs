//! The power button: pressing it shuts the machine down in order.
//!
//! | task | reads | writes | ends |
//! |---|---|---|---|
//! | [`watch`], one a button | `/dev/input/event*` | starts the shutdown sequence | when the device goes |
//!
//! Owns: finding input devices that have the key, and reading them.
//! Does not: load drivers (udevd does: `button` for the ACPI device, then `evdev` for its input device).
//! Source: Documentation/input/event-codes.rst, include/uapi/linux/input.h.

use runtime::sequencer::Start;
use std::collections::BTreeMap;
use std::fs;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use runtime::{Runtime, watched};
use rustix::fs::{Mode, OFlags};
use tokio::task::JoinHandle;

use crate::order::{Order, Orders};

const CLASS: &str = "/sys/class/input";
/// `KEY_POWER`.
const KEY_POWER: u16 = 116;
/// `EV_KEY`.
const EV_KEY: u16 = 1;
/// `struct input_event` on 64-bit machines: two 8-byte times, type (u16) at 16, code (u16) at 18, value (i32) at 20.
const EVENT_BYTES: usize = 24;
/// Bits of one word in the text of a capability mask.
const WORD_BITS: usize = 64;

/// The buttons that are watched, by device name.
#[derive(Default)]
pub(crate) struct Buttons {
    tasks: BTreeMap<String, JoinHandle<()>>,
}

impl Drop for Buttons {
    fn drop(&mut self) {
        self.tasks.values().for_each(JoinHandle::abort);
    }
}

impl Buttons {
    /// Watches every power button that is there and not watched yet.
    pub(crate) fn look(&mut self, runtime: &Arc<Runtime>, orders: &Arc<Orders>) {
        self.tasks.retain(|_, task| !task.is_finished());
        for name in with_power_key(Path::new(CLASS)) {
            if self.tasks.contains_key(&name) {
                continue;
            }
            match open(&name) {
                Ok(device) => {
                    runtime.journal.say(&format!("udevd: watching the power button {name}"));
                    let task = tokio::spawn(watch(runtime.clone(), orders.clone(), name.clone(), device));
                    self.tasks.insert(name, task);
                }
                Err(error) => runtime.journal.warn(&format!("udevd: power button {name}: open: {error}")),
            }
        }
    }
}

/// Names of the event devices that have the key.
fn with_power_key(class: &Path) -> Vec<String> {
    let entries = fs::read_dir(class).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| name.starts_with("event"))
        .filter(|name| {
            let mask = class.join(name).join("device/capabilities/key");
            fs::read_to_string(mask).is_ok_and(|mask| has_bit(&mask, usize::from(KEY_POWER)))
        })
        .collect();
    names.sort();
    names
}

/// A mask is words of hexadecimal text, the highest first.
fn has_bit(mask: &str, bit: usize) -> bool {
    let word = mask.split_whitespace().rev().nth(bit / WORD_BITS).unwrap_or("0");
    u64::from_str_radix(word, 16).is_ok_and(|word| word >> (bit % WORD_BITS) & 1 == 1)
}

fn open(name: &str) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    rustix::fs::open(Path::new("/dev/input").join(name), flags, Mode::empty())
}

async fn watch(runtime: Arc<Runtime>, orders: Arc<Orders>, name: String, device: OwnedFd) {
    let pressed = match watched::readable(device) {
        Ok(device) => wait_for_press(device).await,
        Err(error) => Err(error.to_string()),
    };
    match pressed {
        Ok(()) => {
            runtime.journal.say(&format!("power button {name} was pressed"));
            let start = Start { force: true, ..Start::default() };
            if let Err(locked) = orders.start(Order::Shutdown, start) {
                runtime.journal.warn(&locked.to_string());
            }
        }
        // The usual end of a device that was taken away.
        Err(error) => runtime.journal.say(&format!("udevd: power button {name} is gone: {error}")),
    }
}

async fn wait_for_press(device: tokio::io::unix::AsyncFd<OwnedFd>) -> Result<(), String> {
    let mut buffer = [0; 16 * EVENT_BYTES];
    loop {
        let mut ready = device.readable().await.map_err(|e| e.to_string())?;
        match rustix::io::read(device.get_ref(), &mut buffer) {
            Ok(0) => return Err("it ended".to_owned()),
            Ok(length) if buffer[..length].chunks_exact(EVENT_BYTES).any(is_press) => return Ok(()),
            Ok(_) => {}
            Err(rustix::io::Errno::AGAIN) => ready.clear_ready(),
            Err(errno) => return Err(errno.to_string()),
        }
    }
}

fn is_press(event: &[u8]) -> bool {
    let half = |at: usize| u16::from_ne_bytes([event[at], event[at + 1]]);
    let value = i32::from_ne_bytes([event[20], event[21], event[22], event[23]]);
    (half(16), half(18), value) == (EV_KEY, KEY_POWER, 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_devices_with_the_key_are_buttons() {
        let dir = tempfile::tempdir().unwrap();
        for (name, mask) in [
            ("event0", "10000000000000 0\n"),
            ("event1", "402000000 3803078f800d001 feefffdfffefffff fffffffffffffffe\n"),
            ("mouse0", "10000000000000 0\n"),
            ("event2", "8000 10000000000000 0\n"),
        ] {
            let path = dir.path().join(name).join("device/capabilities");
            fs::create_dir_all(&path).unwrap();
            fs::write(path.join("key"), mask).unwrap();
        }
        assert_eq!(with_power_key(dir.path()), ["event0", "event2"]);
    }

    fn event(kind: u16, code: u16, value: i32) -> Vec<u8> {
        let mut bytes = vec![7; 16];
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(code.to_ne_bytes());
        bytes.extend(value.to_ne_bytes());
        bytes
    }

    #[test]
    fn pressing_counts_and_releasing_does_not() {
        assert!(is_press(&event(EV_KEY, KEY_POWER, 1)));
        for (kind, code, value) in [(EV_KEY, KEY_POWER, 0), (EV_KEY, 30, 1), (0, KEY_POWER, 1)] {
            assert!(!is_press(&event(kind, code, value)));
        }
    }

    #[tokio::test]
    async fn a_press_is_seen_among_other_events() {
        use std::io::Write;
        let (here, there) = std::os::unix::net::UnixStream::pair().unwrap();
        there.set_nonblocking(true).unwrap();
        let waiting = tokio::spawn(wait_for_press(watched::readable(there.into()).unwrap()));
        let mut here = here;
        here.write_all(&[event(EV_KEY, 30, 1), event(0, 0, 0)].concat()).unwrap();
        here.write_all(&[event(EV_KEY, KEY_POWER, 1), event(0, 0, 0)].concat()).unwrap();
        let limit = std::time::Duration::from_secs(5);
        assert_eq!(tokio::time::timeout(limit, waiting).await.unwrap().unwrap(), Ok(()));
    }
}
