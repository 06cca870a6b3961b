//! Everything init asks of the kernel.
//!
//! Owns: the [`Kernel`] trait; init calls nothing else, so that its sequences run on a recording kernel in tests and
//! every single call can be made to fail.
//! Does not: decide; each method is one operation with the errors of its system call.

use alloc::string::String;
use alloc::vec::Vec;
use core::ffi::CStr;

use handoff::InitMemory;
pub use sys::dm::{Mapped, Target};
pub use sys::fs::{Kind, Options, Status};
pub use sys::link::Merging;
pub use sys::packet::Arrived;
pub use sys::process::Ended;
pub use sys::system::End;
use sys::{Errno, Result};
use unlock::{MapError, Plan};

/// Importance of a log line, as in syslog(2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// The one line of a failure.
    Error = 3,
    /// Worth a look.
    Warning = 4,
    /// Progress.
    Info = 6,
}

/// A signal that init acts on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// SIGCHLD.
    Child,
    /// SIGINT: Ctrl-Alt-Del.
    Interrupt,
    /// SIGTERM.
    Terminate,
    /// SIGKILL; only ever sent.
    Kill,
    /// SIGPWR.
    Power,
}

/// A descriptor that the kernel side keeps for init: an index, so that tables of them are plain data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Descriptor(pub usize);

/// A packet from machined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet {
    /// Bytes in the buffer; zero: machined closed its end.
    pub len: usize,
    /// What rode on it.
    pub descriptor: Option<Descriptor>,
}

/// What [`Kernel::wait`] found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Ready {
    /// [`Kernel::next_signal`] has something.
    pub signal: bool,
    /// [`Kernel::receive`] has something.
    pub message: bool,
    /// [`Kernel::send`] can be tried again.
    pub writable: bool,
    /// [`Kernel::next_device_event`] has something.
    pub device: bool,
    /// [`Kernel::helper_answer`] has something, or [`Kernel::reap`] has the helper that was asked.
    pub helper: bool,
    /// [`Kernel::receive_frame`] has something.
    pub frame: bool,
}

/// The kernel as init sees it.
pub trait Kernel {
    /// Whether this PID 1 is a container's: mounts, devices and the log of the kernel are the host's.
    fn is_container(&mut self) -> bool;
    /// Nanoseconds since the kernel started.
    fn now_ns(&mut self) -> u64;
    /// Adds one line to the kernel log.
    fn log(&mut self, level: Level, text: &str);
    /// How long a failure stays readable; also for the panic handler. Zero: for ever.
    fn set_failure_wait(&mut self, seconds: u64);
    /// What was set, or its default.
    fn failure_wait_seconds(&mut self) -> u64;
    /// Waits so long.
    fn pause(&mut self, ns: u64);
    /// Restarts, powers off, halts or starts the loaded kernel; returns only if that failed.
    fn end(&mut self, how: End) -> Errno;
    /// What the allocator holds.
    fn memory(&mut self) -> InitMemory;

    /// Follows links.
    fn status(&mut self, path: &str) -> Result<Status>;
    /// A whole file.
    fn read(&mut self, path: &str, limit_bytes: usize) -> Result<Vec<u8>>;
    /// Part of a file or device.
    fn read_at(&mut self, path: &str, offset: u64, buffer: &mut [u8]) -> Result<()>;
    /// One write to an existing file.
    fn write(&mut self, path: &str, bytes: &[u8]) -> Result<()>;
    /// Makes a file.
    fn create(&mut self, path: &str, mode: u32, bytes: &[u8]) -> Result<()>;
    /// Adds to the end of a file.
    fn append(&mut self, path: &str, bytes: &[u8]) -> Result<()>;
    /// Sorted names.
    fn list(&mut self, path: &str) -> Result<Vec<String>>;
    /// A directory; an existing one is fine.
    fn make_directory(&mut self, path: &str, mode: u32) -> Result<()>;

    /// mount(2).
    fn mount(&mut self, source: &str, target: &str, kind: &str, options: Options, data: &str) -> Result<()>;
    /// Moves a mount.
    fn move_mount(&mut self, from: &str, to: &str) -> Result<()>;
    /// umount2(2); `detach` is lazy.
    fn unmount(&mut self, target: &str, detach: bool) -> Result<()>;
    /// Remounts read-only.
    fn remount_read_only(&mut self, target: &str) -> Result<()>;
    /// Makes a mount the root.
    fn switch_root(&mut self, new_root: &str) -> Result<()>;
    /// Removes the files of the initramfs, after [`Kernel::switch_root`]; returns how many.
    fn free_initramfs(&mut self) -> Result<u32>;
    /// Writes caches of all file systems.
    fn sync(&mut self);

    /// `uname -r`.
    fn kernel_release(&mut self) -> String;
    /// Has every module checked by the kernel, see `sys::module`.
    fn keep_module_signatures(&mut self);
    /// Loads a module file, which the kernel may have to unpack.
    fn load_module(&mut self, path: &str, compressed: bool) -> Result<()>;
    /// Loads a module from memory.
    fn load_module_image(&mut self, image: &[u8]) -> Result<()>;

    /// Starts listening for device events.
    fn watch_devices(&mut self) -> Result<()>;
    /// Stops that.
    fn ignore_devices(&mut self);
    /// The next event, `EAGAIN` if there is none.
    fn next_device_event(&mut self, buffer: &mut [u8]) -> Result<usize>;
    /// Makes a read-only loop device and returns its number.
    fn attach_loop(&mut self, path: &str, offset: u64, size_bytes: u64) -> Result<u32>;
    /// Tells the kernel about a partition, in bytes.
    fn add_partition(&mut self, disk: &str, number: u32, start_bytes: u64, length_bytes: u64) -> Result<()>;
    /// Creates a live read-only mapping and returns its minor number.
    fn map(&mut self, name: &str, uuid: &str, table: &[Target]) -> Result<u32>;
    /// Removes a mapping.
    fn unmap(&mut self, name: &str) -> Result<()>;
    /// Whether dm-verity met a wrong hash in a layer.
    fn is_corrupt(&mut self, layer: &str) -> Result<bool>;
    /// All mappings.
    fn mappings(&mut self) -> Result<Vec<Mapped>>;
    /// Makes the mapping of an open volume, with its link below /dev/mapper.
    fn map_volume(&mut self, plan: &Plan, key: &[u8]) -> core::result::Result<(), MapError>;
    /// Has the TPM carry out a command.
    fn ask_tpm(&mut self, command: &[u8]) -> Result<Vec<u8>>;
    /// Random bytes.
    fn random(&mut self, bytes: &mut [u8]) -> Result<()>;
    /// Takes such a mapping and its link away.
    fn unmap_volume(&mut self, name: &str) -> Result<()>;

    /// Opens the interface with this index for frames, past the kernel's own network.
    fn open_frames(&mut self, interface: u32) -> Result<()>;
    /// Closes it.
    fn close_frames(&mut self);
    /// Sends an Ethernet frame.
    fn send_frame(&mut self, frame: &[u8]) -> Result<()>;
    /// The next Ethernet frame, `EAGAIN` if there is none.
    fn receive_frame(&mut self, buffer: &mut [u8]) -> Result<Arrived>;
    /// How received frames of an interface are merged.
    fn merging(&mut self, interface: &str) -> Result<Merging>;
    /// Has an interface merge them or not.
    fn set_merging(&mut self, interface: &str, wanted: Merging) -> Result<()>;

    /// Keeps the partition with the flight recorder open; what was read of it stays in memory.
    fn open_recorder(&mut self, device: &str) -> Result<()>;
    /// Writes there and has the kernel begin to bring it to the disk; waits for neither disk nor flush.
    fn write_recorder(&mut self, offset: u64, bytes: &[u8]) -> Result<()>;
    /// Has the kernel begin with what it left out then: pages that were on their way already.
    fn hasten_recorder(&mut self, offset: u64, length_bytes: usize) -> Result<()>;
    /// The kernel log's next record, from its oldest on; `EAGAIN` after its newest.
    fn next_log_record(&mut self, buffer: &mut [u8]) -> Result<usize>;
    /// Microseconds since 1970, as far as the clock is right.
    fn wall_clock_us(&mut self) -> u64;

    /// Routes signals to [`Kernel::next_signal`] and Ctrl-Alt-Del to a signal.
    fn catch_signals(&mut self) -> Result<()>;
    /// Waits for anything to happen, until a time on the boot clock. `send` says whether to wait for room as well.
    fn wait(&mut self, until_ns: Option<u64>, send: bool) -> Result<Ready>;
    /// `EAGAIN` if there is none.
    fn next_signal(&mut self) -> Result<Option<Signal>>;
    /// Sends a signal to a process.
    fn kill(&mut self, pid: i32, signal: Signal) -> Result<()>;
    /// Sends a signal to every process but init.
    fn kill_everyone(&mut self, signal: Signal) -> Result<()>;
    /// One ended child.
    fn reap(&mut self) -> Result<Option<Ended>>;
    /// Whether children are left.
    fn has_children(&mut self) -> bool;
    /// Starts machined with a new socket and returns its pid.
    fn start_machined(&mut self) -> Result<i32>;
    /// Starts this program again as a helper and returns its pid.
    fn start_helper(&mut self, job: Helper<'_>) -> Result<i32>;
    /// What the helper that was started last answered: `EAGAIN` while it has not, nothing if it never will.
    fn helper_answer(&mut self, buffer: &mut [u8]) -> Result<usize>;
    /// In a helper: the answer.
    fn answer(&mut self, frame: &[u8]) -> Result<()>;

    /// Sends a packet to machined; `EAGAIN` when its queue is full.
    fn send(&mut self, frame: &[u8], descriptor: Option<Descriptor>) -> Result<()>;
    /// Receives a packet from machined; `EAGAIN` when there is none.
    fn receive(&mut self, buffer: &mut [u8]) -> Result<Packet>;
    /// Closes the socket to machined.
    fn disconnect(&mut self);
    /// Closes a kept descriptor.
    fn close(&mut self, descriptor: Descriptor);
    /// Closes every kept descriptor.
    fn close_all(&mut self);

    /// Arms the watchdog with a timeout and returns the one it took.
    fn open_watchdog(&mut self, path: &str, seconds: u32) -> Result<u32>;
    /// Starts its countdown anew.
    fn feed_watchdog(&mut self) -> Result<()>;
    /// Stops its countdown.
    fn disarm_watchdog(&mut self);
}

/// What a helper process does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Helper<'a> {
    /// [`crate::finish::unmount_everything`].
    Unmount,
    /// [`crate::opener::open_state`]; it answers with a [`handoff::UnlockReport`].
    Open {
        /// The partition with the record.
        meta: &'a str,
        /// The partition to open.
        device: &'a str,
    },
}

impl Helper<'_> {
    /// The argument that names [`Helper::Unmount`].
    pub const UNMOUNT: &'static CStr = c"unmount";
    /// The argument that names [`Helper::Open`]; both paths follow it.
    pub const OPEN: &'static CStr = c"open";
}
