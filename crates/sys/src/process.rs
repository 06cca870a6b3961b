//! Processes: creation, pidfds, waiting.
//!
//! Owns: [`Spawn`] (descriptors, identity, cgroup and session of a new process are arguments, never inherited by
//! accident) and the two ways of waiting: [`wait_pidfd`] for one's own child, [`reap`] for PID 1.
//! Does not: supervise.
//! Order: in the child, everything that can fail happens before `execve`; its errno comes back through a pipe, so
//! [`spawn`] returns only when the new program runs or the reason why not is known.
//! Source: clone(2) (`clone3`), waitid(2), proc_pid_stat(5).

use alloc::vec::Vec;
use core::ffi::{CStr, c_char};
use core::sync::atomic::{AtomicU64, Ordering};

use linux_raw_sys::general as nr;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::FdFlags;
use rustix::process::Signal;
use rustix::thread::{Gid, Uid};

use crate::{Errno, Result, raw};

/// A process to be.
#[derive(Debug, Clone, Default)]
pub struct Spawn<'a> {
    /// Path of the program; no search.
    pub program: &'a CStr,
    /// Arguments, the name first.
    pub argv: &'a [&'a CStr],
    /// Environment as `NAME=value`.
    pub env: &'a [&'a CStr],
    /// Which descriptor the child finds at which number. 0, 1 and 2 are inherited unless named here; of all others
    /// the child gets only these.
    pub descriptors: &'a [(BorrowedFd<'a>, RawFd)],
    /// User and group; supplementary groups are cleared.
    pub identity: Option<(u32, u32)>,
    /// A cgroup v2 directory that the child is born in.
    pub cgroup: Option<BorrowedFd<'a>>,
    /// Working directory.
    pub directory: Option<&'a CStr>,
    /// A root of its own, and never more rights than it begins with: it sees the program and what the root names.
    #[cfg(any(test, feature = "std"))]
    pub root: Option<&'a crate::confine::Root>,
    /// Starts a session of its own.
    pub session: bool,
    /// Signal to the child when the thread that spawned it ends. Never for services: they outlive machined.
    pub death_signal: Option<Signal>,
    /// For `/proc/self/oom_score_adj`.
    pub oom_score_adj: Option<i16>,
    /// `RLIMIT_NOFILE`, soft and hard.
    pub open_files: Option<u64>,
}

/// A started process.
#[derive(Debug)]
pub struct Child {
    /// Process id.
    pub pid: i32,
    /// Its pidfd, close-on-exec: readable when the process has ended.
    pub pidfd: OwnedFd,
}

/// The end of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    /// Process id.
    pub pid: i32,
    /// When it started, clock ticks since boot (field 22 of its stat file); zero when that could not be read.
    pub start_ticks: u64,
    /// Wait status as `waitpid` gives it.
    pub status: i32,
}

/// Starts a program.
pub fn spawn(what: &Spawn<'_>) -> Result<Child> {
    let argv = Pointers::new(what.argv);
    let env = Pointers::new(what.env);
    let (report, reporter) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    let mut pidfd: RawFd = -1;
    let mut arguments = clone_arguments(what, &mut pidfd);
    // SAFETY:
    // 1. clone3 without CLONE_VM and with a null stack returns twice, each time in a memory of its own, like fork.
    // 2. `arguments` and the `pidfd` it points to outlive the call.
    // 3. The child only makes system calls on data prepared above and never returns from `become_program`: other
    //    threads' locks (allocator, stdio) are not touched.
    let pid = unsafe {
        raw::syscall(nr::__NR_clone3, [raw::write(&mut arguments), size_of::<nr::clone_args>(), 0, 0, 0, 0])
    }?;
    if pid == 0 {
        become_program(what, &argv, &env, &reporter);
    }
    drop(reporter);
    // SAFETY:
    // 1. The kernel wrote a fresh descriptor there (CLONE_PIDFD).
    // 2. Nothing else owns it.
    let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
    let child = Child { pid: i32::try_from(pid).map_err(|_| Errno::OVERFLOW)?, pidfd };
    match read_report(&report)? {
        None => Ok(child),
        Some(errno) => {
            let _ = wait_pidfd(&child.pidfd, true);
            Err(errno)
        }
    }
}

fn clone_arguments(what: &Spawn<'_>, pidfd: &mut RawFd) -> nr::clone_args {
    let into_cgroup = if what.cgroup.is_some() { nr::CLONE_INTO_CGROUP } else { 0 };
    nr::clone_args {
        flags: u64::from(nr::CLONE_PIDFD) | nr::CLONE_CLEAR_SIGHAND | into_cgroup,
        pidfd: core::ptr::from_mut(pidfd) as u64,
        child_tid: 0,
        parent_tid: 0,
        exit_signal: u64::from(nr::SIGCHLD),
        stack: 0,
        stack_size: 0,
        tls: 0,
        set_tid: 0,
        set_tid_size: 0,
        cgroup: what.cgroup.map_or(0, |c| u64::from(c.as_raw_fd().unsigned_abs())),
    }
}

/// Reads the child's errno: end of file means that the program runs.
fn read_report(report: &OwnedFd) -> Result<Option<Errno>> {
    let mut bytes = [0; 4];
    let len = rustix::io::retry_on_intr(|| rustix::io::read(report, &mut bytes[..]))?;
    Ok((len == bytes.len()).then(|| Errno::from_raw_os_error(i32::from_ne_bytes(bytes))))
}

/// The child's side: prepares itself and executes the program, or reports why not and exits.
fn become_program(what: &Spawn<'_>, argv: &Pointers, env: &Pointers, reporter: &OwnedFd) -> ! {
    let errno = match prepare(what, reporter) {
        Ok(reporter) => {
            // SAFETY:
            // 1. The program's path is a C string, both vectors are null-terminated arrays of C strings.
            // 2. All of them live in this process's own copy of the memory.
            let failed = unsafe {
                let arguments =
                    [raw::read(what.program.to_bytes_with_nul()), argv.address(), env.address(), 0, 0, 0];
                raw::syscall(nr::__NR_execve, arguments)
            };
            (failed.err().unwrap_or(Errno::NOEXEC), reporter)
        }
        Err(errno) => (errno, reporter.as_raw_fd()),
    };
    // SAFETY: 1. The number is an open descriptor of this process; nothing closes it before the exit.
    let reporter = unsafe { BorrowedFd::borrow_raw(errno.1) };
    let _ = rustix::io::write(reporter, &errno.0.raw_os_error().to_ne_bytes());
    exit(127)
}

/// Everything between clone and exec. Returns where the reporting end of the pipe moved to.
fn prepare(what: &Spawn<'_>, reporter: &OwnedFd) -> Result<RawFd> {
    crate::signal::unblock_all()?;
    if what.session {
        rustix::process::setsid()?;
    }
    if let Some(score) = what.oom_score_adj {
        set_oom_score_adj(score)?;
    }
    if let Some(limit) = what.open_files {
        let limit = rustix::process::Rlimit { current: Some(limit), maximum: Some(limit) };
        rustix::process::setrlimit(rustix::process::Resource::Nofile, limit)?;
    }
    #[cfg(any(test, feature = "std"))]
    if let Some(root) = what.root {
        root.enter()?;
        crate::confine::give_up_rights()?;
    }
    if let Some(directory) = what.directory {
        rustix::process::chdir(directory)?;
    }
    if let Some((user, group)) = what.identity {
        rustix::thread::set_thread_groups(&[])?;
        let (user, group) = (Uid::from_raw(user), Gid::from_raw(group));
        rustix::thread::set_thread_res_gid(group, group, group)?;
        rustix::thread::set_thread_res_uid(user, user, user)?;
    }
    // After the identity: changing it resets the death signal.
    rustix::process::set_parent_process_death_signal(what.death_signal)?;
    place_descriptors(what.descriptors, reporter)
}

/// Moves the wanted descriptors to their numbers, with all others marked close-on-exec.
///
/// Sources are first duplicated above every target, so that no placement overwrites a source still needed.
fn place_descriptors(wanted: &[(BorrowedFd<'_>, RawFd)], reporter: &OwnedFd) -> Result<RawFd> {
    close_on_exec_from(3)?;
    let above = wanted.iter().map(|(_, target)| *target).max().unwrap_or(2).max(2) + 1;
    let reporter = core::mem::ManuallyDrop::new(rustix::io::fcntl_dupfd_cloexec(reporter, above)?);
    let mut moved = [-1; MAX_DESCRIPTORS];
    let moved = moved.get_mut(..wanted.len()).ok_or(Errno::MFILE)?;
    for ((source, _), slot) in wanted.iter().zip(moved.iter_mut()) {
        *slot = core::mem::ManuallyDrop::new(rustix::io::fcntl_dupfd_cloexec(source, above)?).as_raw_fd();
    }
    for ((_, target), source) in wanted.iter().zip(moved.iter()) {
        // SAFETY: 1. dup3 takes numbers only, which differ; replacing what was at the target is the point, and this process
        //    owns its table alone.
        unsafe { raw::syscall(nr::__NR_dup3, [raw::fd(*source), raw::fd(*target), 0, 0, 0, 0]) }?;
    }
    Ok(reporter.as_raw_fd())
}

/// Most descriptors a [`Spawn`] places; services need five.
pub const MAX_DESCRIPTORS: usize = 32;

/// `int close_range(unsigned first, unsigned last, CLOSE_RANGE_CLOEXEC)`: marks everything from `first` on.
pub fn close_on_exec_from(first: u32) -> Result<()> {
    const CLOSE_RANGE_CLOEXEC: usize = 4;
    // SAFETY: 1. With CLOSE_RANGE_CLOEXEC the call closes nothing, it only sets flags.
    unsafe {
        raw::syscall(nr::__NR_close_range, [first as usize, u32::MAX as usize, CLOSE_RANGE_CLOEXEC, 0, 0, 0])
    }
    .map(drop)
}

fn set_oom_score_adj(score: i16) -> Result<()> {
    let mut text = [0; 8];
    let text = decimal(score, &mut text);
    let file =
        rustix::fs::open(c"/proc/self/oom_score_adj", OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::io::write(file, text).map(drop)
}

/// Decimal text without an allocator.
fn decimal(value: i16, buffer: &mut [u8; 8]) -> &[u8] {
    let mut rest = value.unsigned_abs();
    let mut at = buffer.len();
    loop {
        at -= 1;
        buffer[at] = b'0' + u8::try_from(rest % 10).unwrap_or(0);
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if value < 0 {
        at -= 1;
        buffer[at] = b'-';
    }
    &buffer[at..]
}

/// Ends this process at once.
pub fn exit(status: i32) -> ! {
    loop {
        // SAFETY: 1. exit_group takes a number and does not return.
        let _ = unsafe { raw::syscall(nr::__NR_exit_group, [raw::fd(status), 0, 0, 0, 0, 0]) };
    }
}

/// Waits for a child by its pidfd and returns its wait status; `None` if it still runs and `block` is false.
pub fn wait_pidfd<Fd: AsFd>(pidfd: Fd, block: bool) -> Result<Option<i32>> {
    let flags = nr::WEXITED | if block { 0 } else { nr::WNOHANG };
    let found = waitid(nr::P_PIDFD, pidfd.as_fd().as_raw_fd(), flags)?;
    Ok(found.map(|info| info.status))
}

/// Reaps one ended child of this process, whichever: `None` when none has ended or none exists.
///
/// The start time is read while the process is still a zombie, so the pid cannot have been given away yet.
pub fn reap() -> Result<Option<Ended>> {
    let peeked = match waitid(nr::P_ALL, 0, nr::WEXITED | nr::WNOHANG | nr::WNOWAIT) {
        Err(Errno::CHILD) => return Ok(None),
        other => other?,
    };
    let Some(peeked) = peeked else { return Ok(None) };
    let start_ticks = start_ticks(peeked.pid).unwrap_or(0);
    let info = waitid(nr::P_PID, peeked.pid, nr::WEXITED | nr::WNOHANG)?.unwrap_or(peeked);
    Ok(Some(Ended { start_ticks, ..info }))
}

/// Whether this process has any children, ended or not.
pub fn has_children() -> bool {
    waitid(nr::P_ALL, 0, nr::WEXITED | nr::WNOHANG | nr::WNOWAIT) != Err(Errno::CHILD)
}

/// `int waitid(idtype_t, id_t, siginfo_t *, int, struct rusage *)`.
fn waitid(kind: u32, id: i32, flags: u32) -> Result<Option<Ended>> {
    // siginfo_t is 128 bytes: si_code at 8, for SIGCHLD si_pid at 16 and si_status at 24.
    let mut info = [0_i32; 32];
    let call = |info: &mut [i32; 32]| {
        // SAFETY:
        // 1. `info` has the size and alignment of siginfo_t and is writable.
        // 2. The resource usage pointer may be null.
        unsafe {
            raw::syscall(
                nr::__NR_waitid,
                [kind as usize, raw::fd(id), raw::write(info), flags as usize, 0, 0],
            )
        }
    };
    rustix::io::retry_on_intr(|| call(&mut info))?;
    let (code, pid, value) = (info[2], info[4], info[6]);
    Ok((pid != 0).then(|| Ended { pid, start_ticks: 0, status: wait_status(code, value) }))
}

/// Wait status in the form of `waitpid`: exit code in bits 8–15, else signal in bits 0–6 and core flag in bit 7.
fn wait_status(code: i32, value: i32) -> i32 {
    const CLD_EXITED: i32 = 1;
    const CLD_DUMPED: i32 = 3;
    match code {
        CLD_EXITED => (value & 0xff) << 8,
        CLD_DUMPED => (value & 0x7f) | 0x80,
        _ => value & 0x7f,
    }
}

/// When a process started, in clock ticks since boot; with the pid it names the process for good.
pub fn start_ticks(pid: i32) -> Result<u64> {
    let mut path = [0; 32];
    let path = stat_path(pid, &mut path).ok_or(Errno::INVAL)?;
    let file = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let mut text = [0; 512];
    let len = rustix::io::read(file, &mut text[..])?;
    parse_start_ticks(&text[..len]).ok_or(Errno::BADMSG)
}

fn stat_path(pid: i32, buffer: &mut [u8; 32]) -> Option<&CStr> {
    let mut at = buffer.len() - 6;
    buffer[at..].copy_from_slice(b"/stat\0");
    let mut rest = u32::try_from(pid).ok()?;
    loop {
        at -= 1;
        buffer[at] = b'0' + u8::try_from(rest % 10).ok()?;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    at -= 6;
    buffer[at..at + 6].copy_from_slice(b"/proc/");
    CStr::from_bytes_with_nul(&buffer[at..]).ok()
}

/// Field 22; fields are counted from the last `)`, since a process may put anything into its name.
fn parse_start_ticks(stat: &[u8]) -> Option<u64> {
    let name_end = stat.iter().rposition(|&b| b == b')')?;
    let field = stat.get(name_end + 2..)?.split(|&b| b == b' ').nth(19)?;
    core::str::from_utf8(field).ok()?.parse().ok()
}

/// `int kill(pid_t pid, int sig)` for one process.
pub fn signal_process(pid: i32, signal: Signal) -> Result<()> {
    let pid = rustix::process::Pid::from_raw(pid).filter(|_| pid > 0).ok_or(Errno::INVAL)?;
    rustix::process::kill_process(pid, signal)
}

/// Whether this process is PID 1.
pub fn is_init() -> bool {
    rustix::process::getpid().is_init()
}

/// Whether this process is in another PID namespace than the machine's first one: on a container's host. Without /proc it is not,
/// as before the first mount of a machine's boot.
pub fn is_in_container() -> bool {
    /// Number of the first PID namespace (`PROC_PID_INIT_INO`, linux/proc_ns.h).
    const FIRST: u64 = 0xefff_fffc;
    rustix::fs::stat("/proc/self/ns/pid").is_ok_and(|namespace| namespace.st_ino != FIRST)
}

/// `int kill(-1, sig)`: every process but this one and init.
pub fn signal_everyone(signal: Signal) -> Result<()> {
    // SAFETY: 1. kill takes numbers only.
    unsafe { raw::syscall(nr::__NR_kill, [raw::fd(-1), raw::fd(signal.as_raw()), 0, 0, 0, 0]) }.map(drop)
}

/// Marks or unmarks a descriptor close-on-exec.
pub fn set_close_on_exec<Fd: AsFd>(fd: Fd, on: bool) -> Result<()> {
    rustix::io::fcntl_setfd(fd, if on { FdFlags::CLOEXEC } else { FdFlags::empty() })
}

/// Numbers below this can be taken over; programs of ours get theirs from 3 on.
const INHERITABLE: u32 = 64;

/// Which of them were, a bit each.
static TAKEN: AtomicU64 = AtomicU64::new(0);

/// Takes over a descriptor that was inherited under a number, such as `handoff::MACHINED_FD`, and marks it
/// close-on-exec. `EBADF` if nothing is open there, `EINVAL` from 64 on, `EBUSY` the second time: what is open there then
/// belongs to whoever has it from the first time, or opened something else since.
///
/// Call it at the start of the program, before anything else is opened.
pub fn inherited(number: RawFd) -> Result<OwnedFd> {
    let shift = u32::try_from(number).ok().filter(|shift| *shift < INHERITABLE).ok_or(Errno::INVAL)?;
    if TAKEN.fetch_or(1 << shift, Ordering::Relaxed) & (1 << shift) != 0 {
        return Err(Errno::BUSY);
    }
    // SAFETY: 1. The borrow is only used to ask whether the number is open; the kernel checks it.
    let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
    set_close_on_exec(borrowed, true)?;
    // SAFETY:
    // 1. The number is open (asked above).
    // 2. It was inherited, so no value of this program owned it before the first call, and this is that: the bit was clear.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// A null-terminated vector of C strings: on the stack up to a size, so that PID 1 restarts machined without
/// allocating.
struct Pointers<'a> {
    short: [*const c_char; SHORT_VECTOR + 1],
    long: Vec<*const c_char>,
    strings: core::marker::PhantomData<&'a CStr>,
}

const SHORT_VECTOR: usize = 16;

impl<'a> Pointers<'a> {
    fn new(strings: &'a [&'a CStr]) -> Self {
        let mut short = [core::ptr::null(); SHORT_VECTOR + 1];
        let mut long = Vec::new();
        if strings.len() <= SHORT_VECTOR {
            for (slot, string) in short.iter_mut().zip(strings) {
                *slot = string.as_ptr();
            }
        } else {
            long.extend(strings.iter().map(|s| s.as_ptr()));
            long.push(core::ptr::null());
        }
        Self { short, long, strings: core::marker::PhantomData }
    }

    fn address(&self) -> usize {
        if self.long.is_empty() { self.short.as_ptr() as usize } else { self.long.as_ptr() as usize }
    }
}

#[cfg(test)]
#[path = "process_tests.rs"]
mod tests;
