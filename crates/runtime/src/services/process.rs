//! A service's process: its cgroup, its log pipe, its birth and its end.
//!
//! Owns: what must exist before the program runs and what is left when it has ended.
//! Does not: decide when; the supervisor does.
//! Order: log pipe ends go to init before the process exists, its pidfd right after, so that a machined killed at
//! any point leaves nothing that the next one cannot take over (a process born in between is found in its cgroup).

use std::ffi::{CStr, CString};
use std::fs;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};
use rustix::io::Errno;
use rustix::process::{PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use sys::confine::Root;
use sys::process::{Spawn, spawn, start_ticks, wait_pidfd};
use sys::rights::OwnRights;

use super::definition::{Program, Share, Step};
use crate::init_link::InitLink;
use crate::watched;

/// An empty directory, on which processes with a root of their own mount that, each in its own namespace.
pub(crate) const ROOT_PLACE: &CStr = c"/system/run/root";

/// How long init may take to tell the status of a process that it reaped.
const STATUS_DEADLINE: Duration = Duration::from_secs(2);

/// Both ends of a service's log pipe.
#[derive(Debug)]
pub struct LogPipe {
    /// machined reads here.
    pub read: OwnedFd,
    /// The service writes here.
    pub write: OwnedFd,
}

impl LogPipe {
    /// Names of the two ends in init's store.
    pub fn names(id: &str) -> (String, String) {
        (format!("log-r/{id}"), format!("log-w/{id}"))
    }

    /// Makes a pipe and deposits both ends.
    pub fn create(id: &str, init: &InitLink) -> Result<Self, String> {
        let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
            .map_err(|e| format!("create log pipe: {e}"))?;
        Self::deposit(id, read, write, init)
    }

    /// Makes a FIFO, by whose path an engine writes, and deposits both ends.
    pub fn create_fifo(id: &str, path: &Path, init: &InitLink) -> Result<Self, String> {
        let failed =
            |what: &str, error: std::io::Error| format!("{what} log FIFO {}: {error}", path.display());
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory).map_err(|error| failed("make the directory of", error))?;
        }
        match mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(failed("create", errno.into())),
        }
        // Opened for both, it waits for no other end; and while init holds it, no writer sees a broken pipe.
        let open =
            || rustix::fs::open(path, OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK, Mode::empty());
        let read = open().map_err(|errno| failed("open", errno.into()))?;
        let write = open().map_err(|errno| failed("open", errno.into()))?;
        Self::deposit(id, read, write, init)
    }

    fn deposit(id: &str, read: OwnedFd, write: OwnedFd, init: &InitLink) -> Result<Self, String> {
        let names = Self::names(id);
        init.store(&names.0, read.as_fd()).map_err(|e| format!("deposit log pipe: {e}"))?;
        init.store(&names.1, write.as_fd()).map_err(|e| format!("deposit log pipe: {e}"))?;
        Ok(Self { read, write })
    }
}

/// Name of a service's pidfd in init's store.
pub fn pidfd_name(id: &str) -> String {
    format!("pid/{id}")
}

/// A live process.
#[derive(Debug)]
pub(crate) struct Running {
    /// Process id.
    pub pid: i32,
    /// When it started, ticks since boot.
    pub start_ticks: u64,
    /// Its pidfd.
    pub pidfd: OwnedFd,
}

impl Running {
    /// A process that an engine started.
    pub(crate) fn of_engine(pid: i32) -> Result<Self, String> {
        let gone = || format!("process {pid} ended at once");
        let pidfd = open_pidfd(pid).ok_or_else(gone)?;
        // Read behind the pidfd: then it is that process's.
        let start_ticks = start_ticks(pid).map_err(|_| gone())?;
        Ok(Self { pid, start_ticks, pidfd })
    }

    /// A process that an earlier machined started, if it is still the one that was meant.
    pub(crate) fn adopt(pid: i32, saved_ticks: u64, pidfd: Option<OwnedFd>) -> Option<Self> {
        let pidfd = match pidfd {
            Some(pidfd) => pidfd,
            None if start_ticks(pid).ok()? == saved_ticks => open_pidfd(pid)?,
            None => return None,
        };
        Some(Self { pid, start_ticks: saved_ticks, pidfd })
    }

    /// The process of a service that was born when machined died: the oldest orphan of its cgroup.
    pub(crate) fn find_in_group(group: &Path) -> Option<Self> {
        let members = fs::read_to_string(group.join("cgroup.procs")).ok()?;
        let orphans =
            members.lines().filter_map(|pid| pid.parse().ok()).filter(|&pid| parent(pid) == Some(1));
        let pid = orphans.min_by_key(|&pid| start_ticks(pid).unwrap_or(u64::MAX))?;
        Some(Self { pid, start_ticks: start_ticks(pid).ok()?, pidfd: open_pidfd(pid)? })
    }

    /// Sends a signal.
    pub(crate) fn signal(&self, signal: Signal) -> Result<(), String> {
        pidfd_send_signal(&self.pidfd, signal)
            .map_err(|e| format!("send signal to process {}: {e}", self.pid))
    }
}

fn open_pidfd(pid: i32) -> Option<OwnedFd> {
    pidfd_open(rustix::process::Pid::from_raw(pid)?, PidfdFlags::empty()).ok()
}

fn parent(pid: i32) -> Option<i32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let after_name = &stat[stat.rfind(')')? + 2..];
    after_name.split(' ').nth(1)?.parse().ok()
}

/// Makes the cgroup of a service. Without a tree there is nothing to make.
pub(crate) fn make_group(root: Option<&Path>, share: &Share) -> Result<Option<PathBuf>, String> {
    let Some(root) = root.filter(|_| !share.group.is_empty()) else { return Ok(None) };
    let group = root.join(&share.group);
    fs::create_dir_all(&group).map_err(|e| format!("create cgroup {}: {e}", share.group))?;
    // A kernel without one of the controllers runs the service all the same.
    let _ = fs::write(group.join("cpu.weight"), share.cpu_weight.to_string());
    let _ = fs::write(group.join("pids.max"), share.most_processes.to_string());
    Ok(Some(group))
}

/// Ends everything in a cgroup.
pub(crate) fn kill_group(group: &Path) {
    // The group may be empty or gone, which is what is wanted.
    let _ = fs::write(group.join("cgroup.kill"), "1");
}

/// Starts the program.
pub(crate) fn start(
    program: &Program,
    share: &Share,
    group: Option<&Path>,
    log: BorrowedFd<'_>,
) -> Result<Running, String> {
    let argv = c_strings(&program.argv)?;
    let env = c_strings(&program.env)?;
    let path = argv.first().ok_or("argv is empty")?;
    let null = fs::File::open("/dev/null").map_err(|e| format!("open /dev/null: {e}"))?;
    let mut descriptors = vec![(null.as_fd(), 0), (log, 1), (log, 2)];
    if let Some(listener) = &program.listener {
        descriptors.push((listener.as_fd(), 3));
    }
    let group =
        group.map(fs::File::open).transpose().map_err(|e| format!("open cgroup {}: {e}", share.group))?;
    let root = program.sees.as_ref().map(|files| own_root(path, files)).transpose()?;
    let own = OwnRights::of_this_process();
    let child = spawn(&Spawn {
        program: path,
        argv: &argv.iter().map(CString::as_c_str).collect::<Vec<_>>(),
        env: &env.iter().map(CString::as_c_str).collect::<Vec<_>>(),
        descriptors: &descriptors,
        identity: program.identity.map(|identity| (identity.user, identity.group)),
        cgroup: group.as_ref().map(AsFd::as_fd),
        directory: Some(c"/"),
        root: root.as_ref(),
        session: true,
        death_signal: None,
        oom_score_adj: share.oom_score_adj.map(|score| own.oom_score_adj(score)),
        open_files: share.open_files.map(|limit| own.open_files(limit)),
    })
    .map_err(|e| format!("run {}: {e}", program.argv[0]))?;
    let start_ticks = start_ticks(child.pid).unwrap_or(0);
    Ok(Running { pid: child.pid, start_ticks, pidfd: child.pidfd })
}

/// Made anew for each process: one that ended took its own along.
fn own_root(program: &CString, files: &[String]) -> Result<Root, String> {
    let files = c_strings(files)?;
    let files: Vec<_> = files.iter().map(CString::as_c_str).collect();
    Root::new(ROOT_PLACE, program, &files).map_err(|e| format!("name what {program:?} sees: {e}"))
}

fn c_strings(texts: &[String]) -> Result<Vec<CString>, String> {
    texts
        .iter()
        .map(|text| CString::new(text.as_str()).map_err(|_| format!("{text:?} holds a NUL byte")))
        .collect()
}

/// Waits for the end of a process. `Ok` is exit status 0.
pub(crate) async fn ended(pidfd: OwnedFd, pid: i32, start_ticks: u64, init: InitLink) -> Result<(), String> {
    let pidfd = watched::readable(pidfd).map_err(|e| format!("watch process {pid}: {e}"))?;
    let _ready = pidfd.readable().await.map_err(|e| format!("watch process {pid}: {e}"))?;
    let status = match wait_pidfd(pidfd.get_ref(), false) {
        Ok(status) => status,
        // A child of an earlier machined: init has its status.
        Err(_) => init.exit_status(pid, start_ticks, STATUS_DEADLINE).await,
    };
    describe(status)
}

/// Waits for the end of a process of an engine's, which has its status.
pub(crate) async fn ended_in_engine(pidfd: OwnedFd, pid: i32, ended: Step<()>) -> Result<(), String> {
    let pidfd = watched::readable(pidfd).map_err(|e| format!("watch process {pid}: {e}"))?;
    let _ready = pidfd.readable().await.map_err(|e| format!("watch process {pid}: {e}"))?;
    ended.await
}

fn describe(status: Option<i32>) -> Result<(), String> {
    let Some(status) = status else { return Err("exit status unknown".to_owned()) };
    match (status & 0x7f, (status >> 8) & 0xff) {
        (0, 0) => Ok(()),
        (0, code) => Err(format!("exit status {code}")),
        (signal, _) => Err(format!("signal {signal}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share() -> Share {
        Share {
            group: String::new(),
            cpu_weight: 100,
            oom_score_adj: None,
            open_files: None,
            most_processes: 10,
        }
    }

    fn program(argv: &[&str]) -> Program {
        Program {
            argv: argv.iter().map(|&a| a.to_owned()).collect(),
            env: vec!["WORD=hello".into()],
            identity: None,
            listener: None,
            sees: None,
            ends_group: true,
        }
    }

    #[tokio::test]
    async fn output_and_status_of_a_process_are_seen() {
        let (read, write) = std::io::pipe().unwrap();
        let run =
            start(&program(&["/bin/sh", "-c", "echo $WORD; exit 3"]), &share(), None, write.as_fd()).unwrap();
        drop(write);
        assert_eq!(std::io::read_to_string(read).unwrap(), "hello\n");
        let result = ended(run.pidfd, run.pid, run.start_ticks, InitLink::detached()).await;
        assert_eq!(result, Err("exit status 3".into()));
    }

    #[tokio::test]
    async fn signals_reach_the_process() {
        let (_read, write) = std::io::pipe().unwrap();
        let run = start(&program(&["/bin/sleep", "60"]), &share(), None, write.as_fd()).unwrap();
        run.signal(Signal::TERM).unwrap();
        assert_eq!(
            ended(run.pidfd, run.pid, run.start_ticks, InitLink::detached()).await,
            Err("signal 15".into())
        );
    }

    #[test]
    fn a_missing_program_is_an_error_with_its_name() {
        let (_read, write) = std::io::pipe().unwrap();
        let error = start(&program(&["/nonexistent/tool"]), &share(), None, write.as_fd()).unwrap_err();
        assert!(error.contains("/nonexistent/tool"), "{error}");
    }

    #[test]
    fn a_reused_pid_is_not_adopted() {
        let me = i32::try_from(std::process::id()).unwrap();
        let ticks = start_ticks(me).unwrap();
        assert!(Running::adopt(me, ticks, None).is_some());
        assert!(Running::adopt(me, ticks + 1, None).is_none());
    }

    #[test]
    fn statuses_have_words() {
        assert_eq!(describe(Some(0)), Ok(()));
        assert_eq!(describe(Some(256)), Err("exit status 1".into()));
        assert_eq!(describe(Some(137 & 0x7f)), Err("signal 9".into()));
        assert_eq!(describe(None), Err("exit status unknown".into()));
    }
}
