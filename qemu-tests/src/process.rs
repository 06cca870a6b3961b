//! Child processes that never outlive the program that started them.
//!
//! Owns: one thread that starts every QEMU and swtpm, and [`Owned`], which ends exactly the process it started.
//! Does not: look processes up by name.
//!
//! The kernel sends a parent-death signal when the *thread* that forked ends. A VM shared by several tests must
//! outlive the test thread that happened to start it and still die with the program, even with a program killed by
//! SIGKILL; hence the one thread, which lives as long as the program.

use std::io;
use std::process::{Child, Command, ExitStatus};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::cost;

/// How often a wait looks again at what it waits for.
pub const POLL_INTERVAL: Duration = Duration::from_millis(20);

type Request = (Command, Sender<io::Result<Child>>);

/// A child that is killed and reaped when this value is dropped.
#[derive(Debug)]
pub struct Owned {
    child: Option<Child>,
    status: Option<ExitStatus>,
    /// What it had used when it was looked at last.
    processor: Duration,
    what: String,
}

impl Owned {
    /// Starts `program` with `setpriv --pdeathsig` in front when `tied`, so that it dies with this program.
    pub fn spawn(what: &str, program: &str, tied: bool, set_up: impl FnOnce(&mut Command)) -> Result<Self> {
        let mut command = if tied { tied_to_us(program) } else { Command::new(program) };
        set_up(&mut command);
        let child = spawn_in_long_lived_thread(command)
            .with_context(|| format!("start {program}; is it installed and in PATH?"))?;
        Ok(Self { child: Some(child), status: None, processor: Duration::ZERO, what: what.to_owned() })
    }

    /// The process id while it is known to run or not yet reaped.
    pub fn id(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// The exit status, once there is one.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        self.look_at_processor_time();
        if let Some(child) = self.child.as_mut() {
            self.status = child.try_wait().with_context(|| format!("wait for {}", self.what))?;
            if self.status.is_some() {
                self.child = None;
            }
        }
        Ok(self.status)
    }

    /// Waits for the end.
    pub fn wait(&mut self, limit: Duration) -> Result<ExitStatus> {
        let end = Instant::now() + limit;
        loop {
            if let Some(status) = self.ended()? {
                return Ok(status);
            }
            if Instant::now() > end {
                bail!("{} did not end within {limit:?}", self.what);
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// Kills and reaps the child if it still runs.
    pub fn kill(&mut self) {
        self.look_at_processor_time();
        if let Some(mut child) = self.child.take() {
            // An error means that it ended by itself in between; the wait reaps it either way.
            let _ = child.kill();
            self.status = child.wait().ok();
        }
    }

    /// The processor time it has used; of one that ended, all of it.
    pub fn processor_time(&mut self) -> Duration {
        self.look_at_processor_time();
        self.processor
    }

    fn look_at_processor_time(&mut self) {
        self.processor = self.id().and_then(cost::processor_time).unwrap_or(self.processor);
    }

    /// Lets the child run on after this program.
    pub fn release(&mut self) -> Option<u32> {
        self.child.take().map(|child| child.id())
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        self.kill();
    }
}

/// `setpriv` executes the program in its own place, so the pid is the program's.
fn tied_to_us(program: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--", program]);
    command
}

fn spawn_in_long_lived_thread(command: Command) -> io::Result<Child> {
    static SPAWNER: OnceLock<Mutex<Sender<Request>>> = OnceLock::new();
    let spawner = SPAWNER.get_or_init(|| {
        let (requests, inbox) = channel::<Request>();
        std::thread::spawn(move || {
            for (mut command, answer) in inbox {
                // The asker is gone only if its thread panicked; then dropping the child is all that is left.
                let _ = answer.send(command.spawn());
            }
        });
        Mutex::new(requests)
    });
    let (answer, result) = channel();
    let gone = || io::Error::other("the thread that starts processes is gone");
    let requests = spawner.lock().map_err(|_| gone())?;
    requests.send((command, answer)).map_err(|_| gone())?;
    drop(requests);
    result.recv().map_err(|_| gone())?
}
