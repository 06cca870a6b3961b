//! A kernel for tests: a fake world that writes down every call.
//!
//! Owns: files, disks and events of a scenario, the transcript, and the one call that is made to fail.
//! Does not: model more than init looks at; a mount changes nothing but the transcript.

mod cable;

use std::collections::{BTreeMap, VecDeque};

use handoff::{InitMemory, ToInit, ToMachined};
use netroot::peer::{self, Peer};
use sys::{Errno, Result};
use unlock::{MapError, Plan};

use cable::Cable;

use crate::kernel::{
    Arrived, Descriptor, End, Ended, Helper, Kernel, Kind, Level, Mapped, Merging, Options, Packet, Ready,
    Signal, Status, Target,
};

/// Something that happens while init waits, in order, one a wait.
#[derive(Debug, Clone)]
pub(crate) enum Event {
    /// machined sends this, with or without a descriptor.
    Message(Vec<u8>, Option<usize>),
    /// machined closes its socket.
    Close,
    /// A signal arrives.
    Signal(Signal),
    /// A process ends; zero is the present machined.
    Exit(i32, i32),
    /// A device event; `field=value` parts.
    Device(&'static [&'static str]),
    /// A file appears, with a device event.
    File(&'static str, Vec<u8>),
    /// Nothing, so long.
    Time(u64),
}

/// A message as an event.
pub(crate) fn message(message: &ToInit<'_>) -> Event {
    let mut frame = [0; 512];
    Event::Message(handoff::encode(message, &mut frame).unwrap().to_vec(), None)
}

/// The fake kernel.
#[derive(Debug, Clone, Default)]
pub(crate) struct Recording {
    /// It is a container's.
    pub(crate) is_container: bool,
    /// Every call, with `-> errno` behind the one that failed.
    pub(crate) calls: Vec<String>,
    pub(crate) logs: Vec<(Level, String)>,
    pub(crate) files: BTreeMap<String, Vec<u8>>,
    pub(crate) sizes: BTreeMap<String, u64>,
    pub(crate) events: VecDeque<Event>,
    pub(crate) ends: Vec<End>,
    pub(crate) paused_ns: u64,
    pub(crate) sent: Vec<ToMachined<'static>>,
    pub(crate) open: Vec<usize>,
    /// What was open when [`Kernel::close_all`] came.
    pub(crate) kept_to_the_end: Vec<usize>,
    /// Which fallible call fails, counted from one, and how.
    pub(crate) fail: Option<(usize, Errno)>,
    /// Calls whose text starts so fail every time.
    pub(crate) always_fail: Vec<(&'static str, Errno)>,
    /// Fallible calls so far.
    pub(crate) count: usize,
    pub(crate) now: u64,
    pub(crate) wait_seconds: u64,
    signals: VecDeque<Signal>,
    inbox: VecDeque<(Vec<u8>, Option<usize>)>,
    exits: VecDeque<Ended>,
    devices: VecDeque<Vec<u8>>,
    machined: i32,
    children: bool,
    minors: u32,
    /// Names and UUIDs of mappings.
    mapped: Vec<(String, String)>,
    /// Devices whose file system is empty: nothing of `files` and `sizes` below where they are mounted is there.
    pub(crate) empty: Vec<&'static str>,
    /// Mounts of such devices.
    emptied: Vec<String>,
    loops: u32,
    waits: usize,
    recorder: Option<String>,
    log_read: usize,
    /// A helper that was asked something does nothing, until it is killed.
    pub(crate) helper_hangs: bool,
    answer: Option<Vec<u8>>,
    /// The key that a volume was mapped with.
    pub(crate) mapped_with: Option<Vec<u8>>,
    /// What is at the other end of the cable.
    pub(crate) network: peer::Plan,
    pub(crate) cable: Cable,
}

/// What a frame takes on the way.
const FRAME_NS: u64 = 50_000;

/// A scenario that has not ended after so many waits never will.
const MOST_WAITS: usize = 2000;

const FIRST_PID: i32 = 100;

const HELPER_PID: i32 = 900;

impl Recording {
    pub(crate) fn new() -> Self {
        Self { wait_seconds: 10, now: 1_000_000_000, machined: FIRST_PID, ..Self::default() }
    }

    pub(crate) fn file(mut self, path: &str, bytes: impl Into<Vec<u8>>) -> Self {
        self.files.insert(path.to_string(), bytes.into());
        self
    }

    pub(crate) fn errors(&self) -> Vec<&str> {
        self.logs.iter().filter(|(l, _)| *l == Level::Error).map(|(_, t)| t.as_str()).collect()
    }

    pub(crate) fn warnings(&self) -> Vec<&str> {
        self.logs.iter().filter(|(l, _)| *l == Level::Warning).map(|(_, t)| t.as_str()).collect()
    }

    /// Notes a call that may fail, and says whether it does.
    fn call(&mut self, text: String) -> Result<()> {
        self.count += 1;
        let always = self.always_fail.iter().find(|(prefix, _)| text.starts_with(prefix)).map(|(_, e)| *e);
        let once = self.fail.filter(|(at, _)| *at == self.count).map(|(_, e)| e);
        match once.or(always) {
            Some(errno) => {
                let name = sys::errno::name(errno).unwrap_or("errno");
                self.calls.push(format!("{text} -> {name}"));
                Err(errno)
            }
            None => {
                self.calls.push(text);
                Ok(())
            }
        }
    }

    fn push_device(&mut self, fields: &[&str]) {
        self.devices.push_back(format!("change@/x\0{}\0", fields.join("\0")).into_bytes());
    }

    /// Makes something happen before the first wait.
    pub(crate) fn happen_now(&mut self, event: Event) {
        self.happen(event);
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Message(bytes, gift) => {
                self.open.extend(gift);
                self.inbox.push_back((bytes, gift));
            }
            Event::Close => self.inbox.push_back((Vec::new(), None)),
            Event::Signal(signal) => self.signals.push_back(signal),
            Event::Exit(0, status) => self.exits.push_back(ended(self.machined, status)),
            Event::Exit(pid, status) => self.exits.push_back(ended(pid, status)),
            Event::Device(fields) => self.push_device(fields),
            Event::File(path, bytes) => {
                self.files.insert(path.to_string(), bytes);
                self.push_device(&["ACTION=add"]);
            }
            Event::Time(ns) => self.now += ns,
        }
    }
}

fn ended(pid: i32, status: i32) -> Ended {
    Ended { pid, start_ticks: 7, status }
}

impl Kernel for Recording {
    fn is_container(&mut self) -> bool {
        self.is_container
    }

    fn now_ns(&mut self) -> u64 {
        self.now
    }

    fn log(&mut self, level: Level, text: &str) {
        self.calls.push(format!("log {level:?} {text}"));
        self.logs.push((level, text.to_string()));
    }

    fn set_failure_wait(&mut self, seconds: u64) {
        self.wait_seconds = seconds;
    }

    fn failure_wait_seconds(&mut self) -> u64 {
        self.wait_seconds
    }

    fn pause(&mut self, ns: u64) {
        self.calls.push(format!("pause {ns}"));
        self.paused_ns = self.paused_ns.saturating_add(ns);
        self.now = self.now.saturating_add(ns.min(1 << 60));
    }

    fn end(&mut self, how: End) -> Errno {
        self.calls.push(format!("end {how:?}"));
        self.ends.push(how);
        Errno::INVAL
    }

    fn memory(&mut self) -> InitMemory {
        InitMemory::default()
    }

    fn status(&mut self, path: &str) -> Result<Status> {
        self.call(format!("status {path}"))?;
        if self.emptied.iter().any(|mounted| path.starts_with(mounted)) {
            return Err(Errno::NOENT);
        }
        let directory = format!("{path}/");
        if let Some(size_bytes) = self.sizes.get(path) {
            return Ok(Status { kind: Kind::File, size_bytes: *size_bytes });
        }
        if let Some(bytes) = self.files.get(path) {
            return Ok(Status { kind: Kind::File, size_bytes: bytes.len() as u64 });
        }
        match self.files.keys().any(|k| k.starts_with(&directory)) {
            true => Ok(Status { kind: Kind::Directory, size_bytes: 0 }),
            false => Err(Errno::NOENT),
        }
    }

    fn read(&mut self, path: &str, limit_bytes: usize) -> Result<Vec<u8>> {
        self.call(format!("read {path}"))?;
        let bytes = self.files.get(path).ok_or(Errno::NOENT)?;
        if bytes.len() > limit_bytes { Err(Errno::FBIG) } else { Ok(bytes.clone()) }
    }

    fn read_at(&mut self, path: &str, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.call(format!("read {} bytes of {path} at {offset}", buffer.len()))?;
        let bytes = self.files.get(path).ok_or(Errno::NOENT)?;
        let start = usize::try_from(offset).unwrap();
        buffer.copy_from_slice(bytes.get(start..start + buffer.len()).ok_or(Errno::NODATA)?);
        Ok(())
    }

    fn write(&mut self, path: &str, bytes: &[u8]) -> Result<()> {
        self.call(format!("write {path} {}", String::from_utf8_lossy(bytes)))
    }

    fn create(&mut self, path: &str, mode: u32, bytes: &[u8]) -> Result<()> {
        self.call(format!("create {path} {mode:o}, {} bytes", bytes.len()))?;
        self.files.insert(path.to_string(), bytes.to_vec());
        Ok(())
    }

    fn append(&mut self, path: &str, bytes: &[u8]) -> Result<()> {
        self.call(format!("append {} bytes to {path}", bytes.len()))?;
        self.files.get_mut(path).ok_or(Errno::NOENT)?.extend_from_slice(bytes);
        Ok(())
    }

    fn list(&mut self, path: &str) -> Result<Vec<String>> {
        self.call(format!("list {path}"))?;
        let directory = format!("{path}/");
        let below = self.files.keys().filter_map(|k| k.strip_prefix(&directory));
        let mut names: Vec<String> = below.map(|k| k.split('/').next().unwrap_or(k).to_string()).collect();
        names.dedup();
        if names.is_empty() { Err(Errno::NOENT) } else { Ok(names) }
    }

    fn make_directory(&mut self, path: &str, mode: u32) -> Result<()> {
        self.call(format!("make directory {path} {mode:o}"))
    }

    fn mount(&mut self, source: &str, target: &str, kind: &str, options: Options, data: &str) -> Result<()> {
        let mut flags = String::new();
        for (on, name) in [
            (options.read_only, "ro"),
            (options.no_suid, "nosuid"),
            (options.no_dev, "nodev"),
            (options.no_exec, "noexec"),
        ] {
            if on {
                flags.push_str(name);
                flags.push(',');
            }
        }
        self.call(format!("mount {source} {target} {kind} {flags}{data}"))?;
        if self.empty.contains(&source) {
            self.emptied.push(target.to_string());
        }
        Ok(())
    }

    fn move_mount(&mut self, from: &str, to: &str) -> Result<()> {
        self.call(format!("move mount {from} {to}"))
    }

    fn unmount(&mut self, target: &str, detach: bool) -> Result<()> {
        self.call(format!("unmount {target}{}", if detach { " lazily" } else { "" }))?;
        self.emptied.retain(|mounted| mounted != target);
        Ok(())
    }

    fn remount_read_only(&mut self, target: &str) -> Result<()> {
        self.call(format!("remount read-only {target}"))
    }

    fn switch_root(&mut self, new_root: &str) -> Result<()> {
        self.call(format!("switch root {new_root}"))
    }

    fn free_initramfs(&mut self) -> Result<u32> {
        self.call("free initramfs".to_string()).map(|()| 9)
    }

    fn sync(&mut self) {
        self.calls.push("sync".to_string());
    }

    fn kernel_release(&mut self) -> String {
        "6.12.0-test".to_string()
    }

    fn keep_module_signatures(&mut self) {
        self.calls.push("keep module signatures".to_string());
    }

    fn load_module(&mut self, path: &str, compressed: bool) -> Result<()> {
        self.call(format!("load module {path}{}", if compressed { " compressed" } else { "" }))
    }

    fn load_module_image(&mut self, image: &[u8]) -> Result<()> {
        self.call(format!("load module image of {} bytes", image.len()))
    }

    fn watch_devices(&mut self) -> Result<()> {
        self.call("watch devices".to_string())
    }

    fn ignore_devices(&mut self) {
        self.calls.push("ignore devices".to_string());
        self.devices.clear();
    }

    fn next_device_event(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let event = self.devices.pop_front().ok_or(Errno::AGAIN)?;
        self.call("next device event".to_string())?;
        buffer[..event.len()].copy_from_slice(&event);
        Ok(event.len())
    }

    fn attach_loop(&mut self, path: &str, offset: u64, size_bytes: u64) -> Result<u32> {
        self.call(format!("attach loop {path} {offset} {size_bytes}"))?;
        self.loops += 1;
        Ok(self.loops - 1)
    }

    fn add_partition(&mut self, disk: &str, number: u32, start_bytes: u64, length_bytes: u64) -> Result<()> {
        self.call(format!("add partition {disk} {number} {start_bytes} {length_bytes}"))
    }

    fn map(&mut self, name: &str, uuid: &str, table: &[Target]) -> Result<u32> {
        let lines: Vec<String> = table
            .iter()
            .map(|t| format!("{} {} {} {}", t.start_sectors, t.length_sectors, t.kind, t.parameters))
            .collect();
        self.call(format!("map {name} {uuid} {}", lines.join("; ")))?;
        // As the kernel has it: DM_NAME_LEN and DM_UUID_LEN, and neither twice.
        if name.len() >= 128 || uuid.len() >= 129 {
            return Err(Errno::NAMETOOLONG);
        }
        if self.mapped.iter().any(|(other, its)| other == name || its == uuid) {
            return Err(Errno::BUSY);
        }
        self.mapped.push((name.to_string(), uuid.to_string()));
        self.minors += 1;
        Ok(self.minors - 1)
    }

    fn unmap(&mut self, name: &str) -> Result<()> {
        self.call(format!("unmap {name}"))
    }

    fn is_corrupt(&mut self, layer: &str) -> Result<bool> {
        self.call(format!("corrupt? {layer}"))?;
        Ok(layer == "kernel")
    }

    fn mappings(&mut self) -> Result<Vec<Mapped>> {
        self.call("mappings".to_string())?;
        Ok(["billet-base", "luks2-STATE"]
            .iter()
            .map(|n| Mapped { name: (*n).to_string(), minor: 0 })
            .collect())
    }

    fn map_volume(&mut self, plan: &Plan, key: &[u8]) -> std::result::Result<(), MapError> {
        let target = plan.crypt().target("key");
        let text = format!("map volume {} {} {}", plan.name, target.length_sectors, target.parameters);
        let refused =
            |errno| MapError::Kernel { name: plan.name.clone(), device: plan.device.clone(), errno };
        self.call(text).map_err(refused)?;
        self.mapped_with = Some(key.to_vec());
        Ok(())
    }

    fn ask_tpm(&mut self, command: &[u8]) -> Result<Vec<u8>> {
        let number =
            command.get(6..10).map(|bytes| bytes.iter().fold(0, |all, byte| all << 8 | u32::from(*byte)));
        self.call(format!("ask tpm {:#x}", number.unwrap_or(0)))?;
        // A machine without one.
        Err(Errno::NOENT)
    }

    fn random(&mut self, bytes: &mut [u8]) -> Result<()> {
        self.call("random".to_string())?;
        bytes.fill(7);
        Ok(())
    }

    fn unmap_volume(&mut self, name: &str) -> Result<()> {
        self.call(format!("unmap volume {name}"))?;
        self.mapped_with.take().map(drop).ok_or(Errno::NXIO)
    }

    fn open_frames(&mut self, interface: u32) -> Result<()> {
        self.call(format!("open frames {interface}"))?;
        self.cable = Cable(Some(Peer::new(&self.network)));
        Ok(())
    }

    fn close_frames(&mut self) {
        self.calls.push("close frames".to_string());
        self.cable = Cable(None);
    }

    fn send_frame(&mut self, frame: &[u8]) -> Result<()> {
        self.call(format!("send frame of {} bytes", frame.len()))?;
        self.cable.0.as_mut().ok_or(Errno::NOTCONN)?.take(frame);
        Ok(())
    }

    fn receive_frame(&mut self, buffer: &mut [u8]) -> Result<Arrived> {
        let peer = self.cable.0.as_mut().ok_or(Errno::NOTCONN)?;
        let (frame, tag) = peer.give().ok_or(Errno::AGAIN)?;
        self.call(format!("receive frame of {} bytes", frame.len()))?;
        buffer[..frame.len()].copy_from_slice(&frame);
        Ok(Arrived { length: frame.len(), tag, checksum_missing: self.network.checksum_missing })
    }

    fn merging(&mut self, interface: &str) -> Result<Merging> {
        self.call(format!("merging of {interface}"))?;
        Ok(Merging { kernel: true, card: false })
    }

    fn set_merging(&mut self, interface: &str, wanted: Merging) -> Result<()> {
        self.call(format!("set merging of {interface}: kernel {}, card {}", wanted.kernel, wanted.card))
    }

    fn open_recorder(&mut self, device: &str) -> Result<()> {
        self.call(format!("open recorder {device}"))?;
        self.recorder = Some(device.to_string());
        if self.files.contains_key(device) { Ok(()) } else { Err(Errno::NOENT) }
    }

    fn write_recorder(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.call(format!("write {} bytes to recorder at {offset}", bytes.len()))?;
        let device = self.recorder.as_ref().ok_or(Errno::NODEV)?;
        let file = self.files.get_mut(device).ok_or(Errno::NODEV)?;
        let start = usize::try_from(offset).unwrap();
        file.get_mut(start..start + bytes.len()).ok_or(Errno::NOSPC)?.copy_from_slice(bytes);
        Ok(())
    }

    fn hasten_recorder(&mut self, offset: u64, length_bytes: usize) -> Result<()> {
        self.call(format!("hasten {length_bytes} bytes of recorder at {offset}"))
    }

    /// The kernel's log is init's lines alone.
    fn next_log_record(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let (level, text) = self.logs.get(self.log_read).ok_or(Errno::AGAIN)?;
        let (level, sequence) = (*level as u8, self.log_read);
        let record = format!("{level},{sequence},{},-;billet: init: {text}\n", sequence * 10);
        self.call("next log record".to_string())?;
        self.log_read += 1;
        buffer[..record.len()].copy_from_slice(record.as_bytes());
        Ok(record.len())
    }

    fn wall_clock_us(&mut self) -> u64 {
        1_700_000_000_000_000 + self.now / 1000
    }

    fn catch_signals(&mut self) -> Result<()> {
        self.call("catch signals".to_string())
    }

    fn wait(&mut self, until_ns: Option<u64>, _send: bool) -> Result<Ready> {
        if let Some(peer) = &mut self.cable.0 {
            let until = until_ns.unwrap_or(self.now);
            peer.turn(self.now);
            if peer.has_frames() {
                self.now += FRAME_NS;
            } else {
                self.now = peer.next_ns().map_or(until, |next| next.min(until)).max(self.now + 1);
                peer.turn(self.now);
            }
            let frame = peer.has_frames();
            self.call("wait for frames".to_string())?;
            return Ok(Ready { frame, ..Ready::default() });
        }
        self.waits += 1;
        assert!(self.waits < MOST_WAITS, "no end in sight: {:#?}", &self.calls[self.calls.len() - 40..]);
        self.call("wait".to_string())?;
        match self.events.pop_front() {
            Some(event) => self.happen(event),
            None if self.children => {
                // The scenario is over: someone presses the power button.
                self.happen(Event::Signal(Signal::Terminate));
                self.now += 1_000_000_000;
            }
            None => self.now = until_ns.unwrap_or(self.now).max(self.now + 1),
        }
        Ok(Ready {
            signal: !self.signals.is_empty(),
            message: !self.inbox.is_empty(),
            writable: true,
            device: !self.devices.is_empty(),
            helper: self.answer.is_some(),
            frame: false,
        })
    }

    fn next_signal(&mut self) -> Result<Option<Signal>> {
        let signal = self.signals.pop_front().ok_or(Errno::AGAIN)?;
        self.call(format!("signal {signal:?}"))?;
        Ok(Some(signal))
    }

    fn kill(&mut self, pid: i32, signal: Signal) -> Result<()> {
        self.call(format!("kill {pid} {signal:?}"))?;
        self.exits.push_back(ended(pid, 9));
        Ok(())
    }

    fn kill_everyone(&mut self, signal: Signal) -> Result<()> {
        self.call(format!("kill everyone {signal:?}"))?;
        if std::mem::take(&mut self.children) {
            self.exits.push_back(ended(self.machined, 15));
        }
        Ok(())
    }

    fn reap(&mut self) -> Result<Option<Ended>> {
        let Some(ended) = self.exits.pop_front() else { return Ok(None) };
        if let Err(errno) = self.call(format!("reap {}", ended.pid)) {
            // The exit is still there for the next attempt.
            self.exits.push_front(ended);
            return Err(errno);
        }
        Ok(Some(ended))
    }

    fn has_children(&mut self) -> bool {
        self.children
    }

    fn start_machined(&mut self) -> Result<i32> {
        self.call("start machined".to_string())?;
        self.machined += 1;
        self.children = true;
        self.inbox.clear();
        Ok(self.machined)
    }

    fn start_helper(&mut self, job: Helper<'_>) -> Result<i32> {
        self.call(format!("start helper {job:?}"))?;
        self.answer = None;
        match job {
            Helper::Unmount => self.exits.push_back(ended(HELPER_PID, 0)),
            Helper::Open { .. } if self.helper_hangs => {}
            // It is another process and has the same world: it runs to its end before anybody waits for it.
            Helper::Open { meta, device } => {
                let status = crate::opener::open_state(self, meta, device);
                self.exits.push_back(ended(HELPER_PID, status << 8));
            }
        }
        Ok(HELPER_PID)
    }

    fn helper_answer(&mut self, buffer: &mut [u8]) -> Result<usize> {
        self.call("helper's answer".to_string())?;
        let answer = self.answer.take().ok_or(Errno::AGAIN)?;
        buffer[..answer.len()].copy_from_slice(&answer);
        Ok(answer.len())
    }

    fn answer(&mut self, frame: &[u8]) -> Result<()> {
        self.call("answer".to_string())?;
        self.answer = Some(frame.to_vec());
        Ok(())
    }

    fn send(&mut self, frame: &[u8], descriptor: Option<Descriptor>) -> Result<()> {
        let decoded: ToMachined<'_> = handoff::decode(frame).unwrap();
        let text = format!("{decoded:?}");
        let name = text.split(['(', ' ']).next().unwrap_or_default().to_string();
        self.call(format!("send {name}{}", descriptor.map_or(String::new(), |d| format!(" with {}", d.0))))?;
        self.sent.push(own(decoded));
        Ok(())
    }

    fn receive(&mut self, buffer: &mut [u8]) -> Result<Packet> {
        let (bytes, descriptor) = self.inbox.pop_front().ok_or(Errno::AGAIN)?;
        self.call(format!("receive {} bytes", bytes.len()))?;
        buffer[..bytes.len()].copy_from_slice(&bytes);
        Ok(Packet { len: bytes.len(), descriptor: descriptor.map(Descriptor) })
    }

    fn disconnect(&mut self) {
        self.calls.push("disconnect".to_string());
        self.inbox.clear();
    }

    fn close(&mut self, descriptor: Descriptor) {
        self.calls.push(format!("close {}", descriptor.0));
        self.open.retain(|d| *d != descriptor.0);
    }

    fn close_all(&mut self) {
        self.calls.push("close all".to_string());
        self.kept_to_the_end = std::mem::take(&mut self.open);
    }

    fn open_watchdog(&mut self, path: &str, seconds: u32) -> Result<u32> {
        self.call(format!("open watchdog {path} {seconds}"))?;
        if self.files.contains_key(path) { Ok(seconds) } else { Err(Errno::NOENT) }
    }

    fn feed_watchdog(&mut self) -> Result<()> {
        self.call("feed watchdog".to_string())
    }

    fn disarm_watchdog(&mut self) {
        self.calls.push("disarm watchdog".to_string());
    }
}

/// Messages borrow; what tests keep must not.
fn own(message: ToMachined<'_>) -> ToMachined<'static> {
    match message {
        ToMachined::Start(start) => ToMachined::Start(start),
        ToMachined::Stored { name } => ToMachined::Stored { name: name.to_string().leak() },
        ToMachined::Replayed => ToMachined::Replayed,
        ToMachined::Exited(exit) => ToMachined::Exited(exit),
        ToMachined::ExitsLost { count } => ToMachined::ExitsLost { count },
        ToMachined::Requested(action) => ToMachined::Requested(action),
        ToMachined::Refused { reason } => ToMachined::Refused { reason: reason.to_string().leak() },
    }
}
