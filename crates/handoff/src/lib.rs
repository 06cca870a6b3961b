//! The protocol between init (PID 1) and machined.
//!
//! Owns: the messages, their framing, the limits both sides rely on.
//! Does not: touch sockets; `sys` sends and receives the frames and the descriptors that ride on them.
//! Order: init sends [`ToMachined::Start`], replays its descriptor store as [`ToMachined::Stored`], unread exits as
//! [`ToMachined::Exited`], then [`ToMachined::Replayed`]. machined answers [`ToInit::Hello`] and, when its API socket
//! listens, [`ToInit::Ready`]. From then on both send at will.
//! Fails by: [`Error`]; a peer that breaks the protocol is treated like a peer that died.
//!
//! A frame is one `SOCK_SEQPACKET` packet: version (u16, little endian), then one postcard value. Every type that
//! crosses the socket after start-up borrows its strings, so that PID 1 decodes and encodes without allocating.

#![cfg_attr(not(any(test, feature = "std")), no_std)]

extern crate alloc;

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use serde::{Deserialize, Serialize};

/// Version of the message set. Both programs come from one image, so a difference is a packaging error.
pub const VERSION: u16 = 1;

/// The descriptor at which machined finds its end of the socket.
pub const MACHINED_FD: i32 = 3;

/// Largest frame, version included. A boot report with a hundred warnings is about 10 KiB.
pub const MAX_FRAME_BYTES: usize = 64 * 1024;

/// Most descriptors that init keeps for machined; a service needs about four.
pub const MAX_STORED: usize = 256;

/// Longest name of a stored descriptor, in bytes.
pub const MAX_NAME_BYTES: usize = 64;

/// Unread exits that init holds; beyond that it counts ([`ToMachined::ExitsLost`]).
pub const MAX_EXITS: usize = 256;

/// machined sends [`ToInit::Heartbeat`] at least this often.
pub const HEARTBEAT_INTERVAL_MS: u64 = 5_000;

/// Without a heartbeat for this long init takes machined for hung: it kills it and starts it again.
pub const HEARTBEAT_DEADLINE_MS: u64 = 60_000;

/// What init tells machined.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToMachined<'a> {
    /// First message after machined was started.
    Start(Start),
    /// A descriptor from the store; it rides on the same packet.
    Stored {
        /// The name under which machined deposited it.
        name: &'a str,
    },
    /// The store and the unread exits have been replayed.
    Replayed,
    /// A process that was not waited for by machined ended (an orphan, or a child of an earlier machined).
    Exited(Exit),
    /// So many exits did not fit the table since the last such message: their status is unknown.
    ExitsLost {
        /// How many.
        count: u32,
    },
    /// A signal or key asked init for the end (SIGINT from Ctrl-Alt-Del, SIGTERM, the ACPI power key).
    Requested(Action),
    /// A [`ToInit`] message was refused.
    Refused {
        /// Why, in one sentence.
        reason: &'a str,
    },
}

/// What machined learns first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start {
    /// How init booted the system; the same at every restart of machined.
    pub report: BootReport,
    /// How many machineds ran before this one since boot.
    pub restarts: u32,
    /// Wait status of the previous machined, `None` for the first.
    pub previous_status: Option<i32>,
    /// What init's allocator holds: from the first start of machined on it must not change.
    pub init_memory: InitMemory,
}

/// The allocator of PID 1, whose steady state allocates nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InitMemory {
    /// Bytes in use.
    pub in_use_bytes: u64,
    /// Allocations since the kernel started init.
    pub allocations: u64,
}

/// How the system was booted: written once by init, before it starts machined.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BootReport {
    /// `uname -r`.
    pub kernel_release: String,
    /// Version in the root manifest.
    pub version: String,
    /// Where the root came from, for people: `initramfs`, `/dev/vda2 (ROOT-A)`, `/dev/sr0 (label BILLET)`.
    pub root_source: String,
    /// The layers, lowest first.
    pub layers: Vec<LayerReport>,
    /// One entry a task of init's boot sequence, in order.
    pub spans: Vec<Span>,
    /// What a person should know: unknown parameters, modules that failed to load.
    pub warnings: Vec<String>,
    /// The partition with the flight recorder. It is machined's from its start until init has reaped it.
    pub recorder: Option<String>,
    /// How STATE was opened, or why not; `None` where META says nothing of an encryption.
    pub unlock: Option<Box<UnlockReport>>,
}

/// What became of an encrypted volume before the root switch.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnlockReport {
    /// `STATE`
    pub volume: String,
    /// The partition: `/dev/vda5`.
    pub device: String,
    /// The open volume; `None`: it is locked.
    pub opened: Option<OpenedVolume>,
    /// Keys that did not open it, in the order in which they were tried.
    pub refused: Vec<RefusedKey>,
    /// Why it is locked where no key is at fault; or what is wrong though it is open.
    pub problem: Option<String>,
    /// How long it took, in milliseconds.
    pub duration_ms: u64,
}

/// An open volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenedVolume {
    /// `/dev/mapper/luks2-STATE`
    pub path: String,
    /// The key slot whose key worked.
    pub slot: u8,
    /// Where that key came from: `nodeID`, `static`.
    pub kind: String,
}

/// A key that did not open a volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedKey {
    /// The key slot that it is for.
    pub slot: u8,
    /// Where it comes from.
    pub kind: String,
    /// Why it did not.
    pub why: String,
}

/// One layer of the root.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayerReport {
    /// Name in the manifest.
    pub name: String,
    /// Version in the manifest.
    pub version: String,
    /// dm-verity root hash, lower-case hex.
    pub root_hash: String,
    /// The verity device, `/dev/dm-0`.
    pub device: String,
}

/// When a step ran, on `CLOCK_BOOTTIME`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    /// Phase name.
    pub phase: String,
    /// Task name.
    pub task: String,
    /// Start, nanoseconds since the kernel started.
    pub start_ns: u64,
    /// End, nanoseconds since the kernel started.
    pub end_ns: u64,
}

/// The end of a process that init reaped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    /// Grows by one an exit; acknowledged by [`ToInit::Acknowledge`].
    pub number: u64,
    /// Process id.
    pub pid: i32,
    /// Field 22 of `/proc/<pid>/stat` (clock ticks since boot): with the pid it names the process for good.
    pub start_ticks: u64,
    /// Wait status as `waitpid` gives it.
    pub status: i32,
}

/// What machined tells init.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToInit<'a> {
    /// machined runs and speaks this protocol.
    Hello,
    /// machined's API socket listens: the restart back-off is reset.
    Ready,
    /// machined is alive.
    Heartbeat,
    /// Keep the descriptor on this packet under a name; an older one of that name is closed.
    Store {
        /// At most [`MAX_NAME_BYTES`].
        name: &'a str,
    },
    /// Close and forget the descriptor of that name; unknown names are ignored.
    Forget {
        /// The name it was stored under.
        name: &'a str,
    },
    /// Exits up to and with this number were read.
    Acknowledge {
        /// [`Exit::number`].
        number: u64,
    },
    /// End the system: stop everything, unmount, then act. There is no answer.
    Finish {
        /// What to do at the end.
        action: Action,
        /// For the log.
        reason: &'a str,
    },
}

/// How the system ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Action {
    /// Restart through the firmware.
    Reboot,
    /// Cut the power.
    PowerOff,
    /// Stop the processors, leave the power on.
    Halt,
    /// Start the kernel that machined loaded with `kexec_file_load`.
    Kexec,
}

/// A frame that is not one of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Error {
    /// Encoding needs more than the buffer holds.
    TooLong,
    /// The peer speaks another version.
    Version(u16),
    /// The bytes are no message of this version.
    Malformed,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong => write!(f, "message longer than {MAX_FRAME_BYTES} bytes"),
            Self::Version(v) => write!(f, "peer speaks handoff version {v}, this program {VERSION}"),
            Self::Malformed => f.write_str("malformed handoff message"),
        }
    }
}

impl core::error::Error for Error {}

/// Writes a frame into `buffer` and returns the part that was used.
pub fn encode<'b, M: Serialize>(message: &M, buffer: &'b mut [u8]) -> Result<&'b [u8], Error> {
    let (head, body) = buffer.split_first_chunk_mut::<2>().ok_or(Error::TooLong)?;
    *head = VERSION.to_le_bytes();
    let used = postcard::to_slice(message, body).map_err(|_| Error::TooLong)?.len();
    Ok(&buffer[..2 + used])
}

/// Reads a frame. What has something behind its end is none.
pub fn decode<'a, M: Deserialize<'a>>(frame: &'a [u8]) -> Result<M, Error> {
    let (head, body) = frame.split_first_chunk::<2>().ok_or(Error::Malformed)?;
    match u16::from_le_bytes(*head) {
        VERSION => match postcard::take_from_bytes(body) {
            Ok((message, [])) => Ok(message),
            Ok(_) | Err(_) => Err(Error::Malformed),
        },
        other => Err(Error::Version(other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_the_frame() {
        let mut buffer = [0; 256];
        let message = ToInit::Finish { action: Action::PowerOff, reason: "asked by the API" };
        let frame = encode(&message, &mut buffer).unwrap();
        assert_eq!(decode::<ToInit<'_>>(frame), Ok(message));

        let exit = ToMachined::Exited(Exit { number: 7, pid: 42, start_ticks: u64::MAX, status: 9 });
        let frame = encode(&exit, &mut buffer).unwrap();
        assert_eq!(decode::<ToMachined<'_>>(frame), Ok(exit));
    }

    #[test]
    fn foreign_frames_are_refused() {
        assert_eq!(decode::<ToInit<'_>>(&[]), Err(Error::Malformed));
        assert_eq!(decode::<ToInit<'_>>(&[9, 0, 0]), Err(Error::Version(9)));
        assert_eq!(decode::<ToInit<'_>>(&[1, 0, 200]), Err(Error::Malformed));
        assert_eq!(decode::<ToInit<'_>>(&[1, 0, 0]), Ok(ToInit::Hello));
        assert_eq!(decode::<ToInit<'_>>(&[1, 0, 0, 0]), Err(Error::Malformed));
        assert_eq!(encode(&ToInit::Hello, &mut [0; 2]), Err(Error::TooLong));
    }
}
