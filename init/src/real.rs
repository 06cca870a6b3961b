//! The kernel, for real.
//!
//! Owns: the descriptors behind [`Kernel`]: kernel log, device events, signals, machined's socket, what machined
//! deposited, the watchdog, a helper and its answer, the packet socket of a root from the network.
//! Does not: decide.

use alloc::ffi::CString;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::ffi::CStr;

use handoff::{InitMemory, MACHINED_FD, MAX_STORED};
use sys::process::{Child, Spawn};
use sys::{AsFd, BorrowedFd, Errno, OwnedFd, Result};
use tpm::Transport as _;
use unlock::{MapError, Plan};

use crate::kernel::{
    Arrived, Descriptor, End, Ended, Helper, Kernel, Level, Mapped, Merging, Options, Packet, Ready, Signal,
    Status, Target,
};
use crate::line::Line;
use crate::modules::MAX_MODULE_BYTES;
use crate::tasks::mapping::MAPPING_PREFIX;

/// machined's environment.
const PATH: &CStr = c"PATH=/sbin:/bin:/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin:/opt/cni/bin";

/// What a container's runtime shows of it.
const STANDARD_ERROR: i32 = 2;

/// Where a helper finds the socket for its answer.
const ANSWER_FD: i32 = 3;

/// Descriptors on their way into the store.
const SPARE: usize = 8;

/// What the kernel holds of frames that were not read yet: several times what netroot lets be on its way, since each
/// frame takes a page or two.
const FRAME_QUEUE_BYTES: usize = 8 << 20;

/// The running kernel.
pub struct RealKernel {
    is_container: bool,
    /// A container's runtime reads there.
    output: Option<OwnedFd>,
    kmsg: Option<OwnedFd>,
    failure_wait_seconds: u64,
    devices: Option<OwnedFd>,
    signals: Option<OwnedFd>,
    machined: Option<OwnedFd>,
    kept: Vec<Option<OwnedFd>>,
    old_root: Option<OwnedFd>,
    mapper: Option<OwnedFd>,
    loops: Vec<OwnedFd>,
    watchdog: Option<OwnedFd>,
    recorder: Option<OwnedFd>,
    log_reader: Option<OwnedFd>,
    /// The helper that was asked something, until it was reaped.
    helper: Option<Child>,
    /// Where it answers, until it did.
    answers: Option<OwnedFd>,
    frames: Option<OwnedFd>,
    /// The TPM, in a helper.
    tpm: Option<tpm::Device>,
}

impl RealKernel {
    /// Opens the kernel log; works before /dev is mounted. In a container the log is the host's and stays closed.
    pub fn new() -> Self {
        let is_container = sys::process::is_in_container();
        Self {
            is_container,
            output: if is_container { sys::process::inherited(STANDARD_ERROR).ok() } else { None },
            kmsg: if is_container { None } else { sys::console::open_kmsg_anywhere().ok() },
            failure_wait_seconds: 10,
            devices: None,
            signals: None,
            machined: None,
            kept: (0..MAX_STORED + SPARE).map(|_| None).collect(),
            old_root: None,
            mapper: None,
            loops: Vec::new(),
            watchdog: None,
            recorder: None,
            log_reader: None,
            helper: None,
            answers: None,
            frames: None,
            tpm: None,
        }
    }

    /// Whether this process is PID 1.
    pub fn is_init(&self) -> bool {
        sys::process::is_init()
    }

    fn mapper(&mut self) -> Result<&OwnedFd> {
        if self.mapper.is_none() {
            self.mapper = Some(sys::dm::control()?);
        }
        self.mapper.as_ref().ok_or(Errno::NODEV)
    }

    fn keep(&mut self, fd: OwnedFd) -> Result<Descriptor> {
        let index = self.kept.iter().position(Option::is_none).ok_or(Errno::MFILE)?;
        self.kept[index] = Some(fd);
        Ok(Descriptor(index))
    }
}

impl Default for RealKernel {
    fn default() -> Self {
        Self::new()
    }
}

/// Starts this program again, as another process.
fn start_again(words: &[&CStr], descriptors: &[(BorrowedFd<'_>, i32)]) -> Result<Child> {
    sys::process::spawn(&Spawn { program: c"/proc/self/exe", argv: words, descriptors, ..Spawn::default() })
}

fn number(signal: Signal) -> sys::signal::Signal {
    match signal {
        Signal::Child => sys::signal::Signal::CHILD,
        Signal::Interrupt => sys::signal::Signal::INT,
        Signal::Terminate => sys::signal::Signal::TERM,
        Signal::Kill => sys::signal::Signal::KILL,
        Signal::Power => sys::signal::Signal::POWER,
    }
}

const SIGNALS: [Signal; 4] = [Signal::Child, Signal::Interrupt, Signal::Terminate, Signal::Power];

impl Kernel for RealKernel {
    fn is_container(&mut self) -> bool {
        self.is_container
    }

    fn now_ns(&mut self) -> u64 {
        sys::system::boot_time_ns()
    }

    fn log(&mut self, level: Level, text: &str) {
        let priority = match level {
            Level::Error => 3,
            Level::Warning => 4,
            Level::Info => 6,
        };
        // Nowhere is left to report a failure to.
        if let Some(kmsg) = &self.kmsg {
            let line = Line::new(format_args!("<{priority}>billet: init: {text}"));
            let _ = sys::console::write_record(kmsg, line.as_str());
        } else if let Some(output) = &self.output {
            let line = Line::new(format_args!("billet: init: {text}\n"));
            let _ = sys::console::write_record(output, line.as_str());
        }
    }

    fn set_failure_wait(&mut self, seconds: u64) {
        self.failure_wait_seconds = seconds;
        sys::freestanding::set_failure_wait(seconds);
    }

    fn failure_wait_seconds(&mut self) -> u64 {
        self.failure_wait_seconds
    }

    fn pause(&mut self, ns: u64) {
        sys::system::sleep_ns(ns);
    }

    fn end(&mut self, how: End) -> Errno {
        sys::system::end(how)
    }

    fn memory(&mut self) -> InitMemory {
        let counters = sys::freestanding::heap_counters();
        InitMemory { in_use_bytes: counters.in_use_bytes, allocations: counters.allocations }
    }

    fn status(&mut self, path: &str) -> Result<Status> {
        sys::fs::status(path)
    }

    fn read(&mut self, path: &str, limit_bytes: usize) -> Result<Vec<u8>> {
        sys::fs::read(path, limit_bytes)
    }

    fn read_at(&mut self, path: &str, offset: u64, buffer: &mut [u8]) -> Result<()> {
        sys::fs::read_at(path, offset, buffer)
    }

    fn write(&mut self, path: &str, bytes: &[u8]) -> Result<()> {
        sys::fs::write(path, bytes)
    }

    fn create(&mut self, path: &str, mode: u32, bytes: &[u8]) -> Result<()> {
        sys::fs::create(path, mode, bytes)
    }

    fn append(&mut self, path: &str, bytes: &[u8]) -> Result<()> {
        sys::fs::append(path, bytes)
    }

    fn list(&mut self, path: &str) -> Result<Vec<String>> {
        sys::fs::list(path)
    }

    fn make_directory(&mut self, path: &str, mode: u32) -> Result<()> {
        sys::fs::make_directory(path, mode)
    }

    fn mount(&mut self, source: &str, target: &str, kind: &str, options: Options, data: &str) -> Result<()> {
        sys::fs::mount(source, target, kind, options, data)
    }

    fn move_mount(&mut self, from: &str, to: &str) -> Result<()> {
        sys::fs::move_mount(from, to)
    }

    fn unmount(&mut self, target: &str, detach: bool) -> Result<()> {
        sys::fs::unmount(target, detach)
    }

    fn remount_read_only(&mut self, target: &str) -> Result<()> {
        sys::fs::remount_read_only(target)
    }

    fn switch_root(&mut self, new_root: &str) -> Result<()> {
        self.old_root = Some(sys::fs::switch_root(new_root)?);
        Ok(())
    }

    fn free_initramfs(&mut self) -> Result<u32> {
        let old = self.old_root.take().ok_or(Errno::BADF)?;
        sys::fs::remove_contents(&old)
    }

    fn sync(&mut self) {
        sys::fs::sync();
    }

    fn kernel_release(&mut self) -> String {
        sys::system::kernel_release()
    }

    fn keep_module_signatures(&mut self) {
        sys::module::keep_signatures();
    }

    fn load_module(&mut self, path: &str, compressed: bool) -> Result<()> {
        if compressed {
            sys::module::load_compressed_file(path, c"")
        } else {
            sys::module::load_file(path, MAX_MODULE_BYTES, c"")
        }
    }

    fn load_module_image(&mut self, image: &[u8]) -> Result<()> {
        sys::module::load_image(image, c"")
    }

    fn watch_devices(&mut self) -> Result<()> {
        self.devices = Some(sys::uevent::open()?);
        Ok(())
    }

    fn ignore_devices(&mut self) {
        self.devices = None;
    }

    fn next_device_event(&mut self, buffer: &mut [u8]) -> Result<usize> {
        sys::uevent::receive(self.devices.as_ref().ok_or(Errno::AGAIN)?, buffer)
    }

    fn attach_loop(&mut self, path: &str, offset: u64, size_bytes: u64) -> Result<u32> {
        let (number, device) = sys::block::attach_loop(sys::fs::open(path)?, offset, size_bytes)?;
        self.loops.push(device);
        Ok(number)
    }

    fn add_partition(&mut self, disk: &str, number: u32, start_bytes: u64, length_bytes: u64) -> Result<()> {
        sys::block::add_partition(sys::fs::open(disk)?, number, start_bytes, length_bytes)
    }

    fn map(&mut self, name: &str, uuid: &str, table: &[Target]) -> Result<u32> {
        Ok(sys::dm::create(self.mapper()?, name, uuid, true, table)?.minor)
    }

    fn unmap(&mut self, name: &str) -> Result<()> {
        sys::dm::remove(self.mapper()?, name, false)
    }

    fn is_corrupt(&mut self, layer: &str) -> Result<bool> {
        let name = format!("{MAPPING_PREFIX}{layer}");
        Ok(sys::dm::status(self.mapper()?, &name)?.starts_with('C'))
    }

    fn mappings(&mut self) -> Result<Vec<Mapped>> {
        sys::dm::list(self.mapper()?)
    }

    fn map_volume(&mut self, plan: &Plan, key: &[u8]) -> core::result::Result<(), MapError> {
        plan.make(key).map(drop)
    }

    fn ask_tpm(&mut self, command: &[u8]) -> Result<Vec<u8>> {
        let device = match self.tpm.take() {
            Some(device) => device,
            None => tpm::Device::open(tpm::PATH)?,
        };
        self.tpm.insert(device).exchange(command)
    }

    fn random(&mut self, bytes: &mut [u8]) -> Result<()> {
        sys::system::random(bytes)
    }

    fn unmap_volume(&mut self, name: &str) -> Result<()> {
        unlock::remove(name)
    }

    fn open_frames(&mut self, interface: u32) -> Result<()> {
        let socket = sys::packet::open(interface, false, &[])?;
        sys::packet::watch_cards(&socket, FRAME_QUEUE_BYTES)?;
        self.frames = Some(socket);
        Ok(())
    }

    fn close_frames(&mut self) {
        self.frames = None;
    }

    fn send_frame(&mut self, frame: &[u8]) -> Result<()> {
        sys::packet::send(self.frames.as_ref().ok_or(Errno::NOTCONN)?, frame)
    }

    fn receive_frame(&mut self, buffer: &mut [u8]) -> Result<Arrived> {
        sys::packet::receive_whole(self.frames.as_ref().ok_or(Errno::NOTCONN)?, buffer)
    }

    fn merging(&mut self, interface: &str) -> Result<Merging> {
        sys::link::merging(interface)
    }

    fn set_merging(&mut self, interface: &str, wanted: Merging) -> Result<()> {
        sys::link::set_merging(interface, wanted)
    }

    fn open_recorder(&mut self, device: &str) -> Result<()> {
        self.recorder = Some(sys::block::open_writable(device)?);
        Ok(())
    }

    fn write_recorder(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        sys::block::write_soon(self.recorder.as_ref().ok_or(Errno::NODEV)?, offset, bytes)
    }

    fn hasten_recorder(&mut self, offset: u64, length_bytes: usize) -> Result<()> {
        sys::block::begin_to_bring(self.recorder.as_ref().ok_or(Errno::NODEV)?, offset, length_bytes)
    }

    fn next_log_record(&mut self, buffer: &mut [u8]) -> Result<usize> {
        if self.log_reader.is_none() {
            self.log_reader = Some(sys::console::open_kmsg_reader()?);
        }
        sys::console::read_record(self.log_reader.as_ref().ok_or(Errno::BADF)?, buffer)
    }

    fn wall_clock_us(&mut self) -> u64 {
        sys::system::wall_clock_us()
    }

    fn catch_signals(&mut self) -> Result<()> {
        self.signals = Some(sys::signal::descriptor(&SIGNALS.map(number))?);
        // The keys are the host's: a container's PID 1 may not ask for them.
        if self.is_container { Ok(()) } else { sys::system::catch_ctrl_alt_del() }
    }

    fn wait(&mut self, until_ns: Option<u64>, send: bool) -> Result<Ready> {
        let now = self.now_ns();
        let wanted = [
            (self.signals.as_ref().map(AsFd::as_fd), false),
            (self.machined.as_ref().map(AsFd::as_fd), send),
            (self.devices.as_ref().map(AsFd::as_fd), false),
            (self.helper.as_ref().map(|helper| helper.pidfd.as_fd()), false),
            (self.helper.as_ref().and(self.answers.as_ref()).map(AsFd::as_fd), false),
            (self.frames.as_ref().map(AsFd::as_fd), false),
        ];
        let timeout_ns = until_ns.map(|until| until.saturating_sub(now));
        let [signal, machined, device, ended, answer, frame] = sys::poll::wait(wanted, timeout_ns)?;
        Ok(Ready {
            signal: signal.readable,
            message: machined.readable,
            writable: machined.writable,
            device: device.readable,
            helper: ended.readable || answer.readable,
            frame: frame.readable,
        })
    }

    fn next_signal(&mut self) -> Result<Option<Signal>> {
        let raw = sys::signal::read(self.signals.as_ref().ok_or(Errno::AGAIN)?)?;
        Ok(SIGNALS.into_iter().find(|s| number(*s).as_raw() == raw))
    }

    fn kill(&mut self, pid: i32, signal: Signal) -> Result<()> {
        sys::process::signal_process(pid, number(signal))
    }

    fn kill_everyone(&mut self, signal: Signal) -> Result<()> {
        sys::process::signal_everyone(number(signal))
    }

    fn reap(&mut self) -> Result<Option<Ended>> {
        let ended = sys::process::reap()?;
        // Its end would be there to be waited for, time and again.
        self.helper.take_if(|helper| ended.is_some_and(|ended| ended.pid == helper.pid));
        Ok(ended)
    }

    fn has_children(&mut self) -> bool {
        sys::process::has_children()
    }

    fn start_machined(&mut self) -> Result<i32> {
        let (ours, theirs) = sys::seqpacket::pair()?;
        sys::seqpacket::set_nonblocking(&ours)?;
        let opened;
        let console = if let Some(output) = &self.output {
            output
        } else {
            opened = sys::console::open_console().or_else(|_| sys::console::open_null())?;
            &opened
        };
        let console = console.as_fd();
        let child = sys::process::spawn(&Spawn {
            program: c"/usr/bin/machined",
            argv: &[c"machined"],
            env: &[PATH],
            descriptors: &[(console, 0), (console, 1), (console, 2), (theirs.as_fd(), MACHINED_FD)],
            session: true,
            ..Spawn::default()
        })?;
        self.machined = Some(ours);
        Ok(child.pid)
    }

    fn start_helper(&mut self, job: Helper<'_>) -> Result<i32> {
        match job {
            Helper::Unmount => Ok(start_again(&[c"init", Helper::UNMOUNT], &[])?.pid),
            Helper::Open { meta, device } => {
                let path = |path: &str| CString::new(path).map_err(|_| Errno::INVAL);
                let (meta, device) = (path(meta)?, path(device)?);
                let (ours, theirs) = sys::seqpacket::pair()?;
                sys::seqpacket::set_nonblocking(&ours)?;
                let words = [c"init", Helper::OPEN, &*meta, &*device];
                let helper = start_again(&words, &[(theirs.as_fd(), ANSWER_FD)])?;
                let pid = helper.pid;
                (self.helper, self.answers) = (Some(helper), Some(ours));
                Ok(pid)
            }
        }
    }

    fn helper_answer(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let answers = self.answers.as_ref().ok_or(Errno::NOTCONN)?;
        let answer = sys::seqpacket::receive(answers, buffer).map(|packet| packet.len);
        if answer != Err(Errno::AGAIN) {
            self.answers = None;
        }
        answer
    }

    fn answer(&mut self, frame: &[u8]) -> Result<()> {
        sys::seqpacket::send(sys::process::inherited(ANSWER_FD)?, frame, None)
    }

    fn send(&mut self, frame: &[u8], descriptor: Option<Descriptor>) -> Result<()> {
        let gift = match descriptor {
            Some(Descriptor(index)) => {
                Some(self.kept.get(index).and_then(Option::as_ref).ok_or(Errno::BADF)?)
            }
            None => None,
        };
        sys::seqpacket::send(self.machined.as_ref().ok_or(Errno::NOTCONN)?, frame, gift.map(AsFd::as_fd))
    }

    fn receive(&mut self, buffer: &mut [u8]) -> Result<Packet> {
        let packet = sys::seqpacket::receive(self.machined.as_ref().ok_or(Errno::AGAIN)?, buffer)?;
        let descriptor = packet.descriptor.map(|fd| self.keep(fd)).transpose()?;
        Ok(Packet { len: packet.len, descriptor })
    }

    fn disconnect(&mut self) {
        self.machined = None;
    }

    fn close(&mut self, descriptor: Descriptor) {
        if let Some(slot) = self.kept.get_mut(descriptor.0) {
            *slot = None;
        }
    }

    fn close_all(&mut self) {
        self.kept.fill_with(|| None);
    }

    fn open_watchdog(&mut self, path: &str, seconds: u32) -> Result<u32> {
        let device = sys::watchdog::open(path)?;
        // A device that cannot change its timeout keeps its own: then the wanted one is a guess, fed four times as
        // often as it says.
        let taken = sys::watchdog::set_timeout(&device, seconds).unwrap_or(seconds.min(10));
        self.watchdog = Some(device);
        Ok(taken)
    }

    fn feed_watchdog(&mut self) -> Result<()> {
        sys::watchdog::feed(self.watchdog.as_ref().ok_or(Errno::NODEV)?)
    }

    fn disarm_watchdog(&mut self) {
        if let Some(device) = self.watchdog.take() {
            let _ = sys::watchdog::disarm(&device);
        }
    }
}
