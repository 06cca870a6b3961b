//! The question for a recovery key on the console, while a volume is locked that one opens.
//!
//! | task | reads | writes | ends |
//! |---|---|---|---|
//! | [`watch`] | volumes that could not be opened | starts the next one, once at a time | with machined |
//! | a thread | lines of all consoles | the question, the outcome | when nothing is locked any more |
//!
//! Owns: what is typed, which is not shown and zeroised; the terminals' settings, which are put back.
//! Does not: log what is typed; ask for anything else: there is no other input on a console.
//! Fails by: a line on the console and the question again; a console that cannot be opened is left out.
//! Source: termios(3), tty(4), Documentation/ABI/testing/sysfs-tty (`console/active`).

use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::termios::{LocalModes, OptionalActions, QueueSelector, Termios, tcflush, tcgetattr, tcsetattr};
use zeroize::Zeroizing;

use super::handle::Volumes;
use super::recovery::{unlock, waits_for_an_operator};
use super::specs;

/// The consoles of the kernel, the preferred one last.
const ACTIVE: &str = "/sys/class/tty/console/active";
/// How long a volume that was opened otherwise is still asked for.
const LOOK: Duration = Duration::from_secs(1);
/// What the line discipline takes in one line, and more than any key.
const MOST_LINE_BYTES: usize = 4096;

/// Asks whenever a volume could not be opened.
pub(crate) async fn watch(volumes: Arc<Volumes>) {
    let mut failed = volumes.failed.subscribe();
    // It may be older than this task.
    failed.mark_changed();
    while failed.changed().await.is_ok() {
        let (done, ended) = tokio::sync::oneshot::channel::<()>();
        let worker = volumes.clone();
        // Not one of the runtime's threads: somebody may come in an hour.
        let thread = std::thread::Builder::new().name("unlock-prompt".to_owned()).spawn(move || {
            ask(&worker);
            drop(done);
        });
        if let Err(error) = thread {
            volumes.runtime.journal.warn(&format!("ask for a recovery key on the console: {error}"));
        }
        let _ = ended.await;
    }
}

fn ask(volumes: &Volumes) {
    let next = || specs::all(volumes).into_iter().find(|volume| waits_for_an_operator(volumes, volume));
    while let Some(name) = next() {
        let mut consoles = open(&volumes.runtime.path(ACTIVE), &volumes.runtime.path("/dev"));
        if consoles.is_empty() {
            return;
        }
        tell(&mut consoles, &format!("\n{name} is locked. Its recovery key (it is not shown): "));
        let is_locked = || volumes.problem(&name).is_some();
        let Some(typed) = line(&mut consoles, &is_locked) else {
            tell(&mut consoles, &format!("{name} is open\n"));
            continue;
        };
        tell(&mut consoles, "\n");
        if let Err(error) = unlock(volumes, &name, &typed) {
            tell(&mut consoles, &format!("{error}\n"));
        }
    }
}

/// A terminal that does not show what is typed until this goes.
struct Console {
    file: File,
    before: Termios,
}

impl Drop for Console {
    fn drop(&mut self) {
        let _ = tcsetattr(&self.file, OptionalActions::Now, &self.before);
    }
}

impl Console {
    fn open(path: &Path) -> Option<Self> {
        let flags = (OFlags::NOCTTY | OFlags::NONBLOCK).bits();
        let flags = i32::try_from(flags).ok()?;
        let file = OpenOptions::new().read(true).write(true).custom_flags(flags).open(path).ok()?;
        let before = tcgetattr(&file).ok()?;
        let mut quiet = before.clone();
        quiet.local_modes -= LocalModes::ECHO | LocalModes::ISIG;
        // The end of the line is shown, or the next text stands behind the question.
        quiet.local_modes |= LocalModes::ICANON | LocalModes::ECHONL;
        tcsetattr(&file, OptionalActions::Now, &quiet).ok()?;
        // What somebody typed before there was a question.
        let _ = tcflush(&file, QueueSelector::IFlush);
        Some(Self { file, before })
    }
}

fn open(active: &Path, devices: &Path) -> Vec<Console> {
    let names = fs::read_to_string(active).unwrap_or_default();
    names.split_whitespace().filter_map(|name| Console::open(&devices.join(name))).collect()
}

fn tell(consoles: &mut [Console], text: &str) {
    for console in consoles {
        // One that nobody reads may be full.
        let _ = console.file.write_all(text.replace('\n', "\r\n").as_bytes());
    }
}

/// The first line that somebody types on any of them; `None` once it is not needed any more.
fn line(consoles: &mut [Console], is_needed: &dyn Fn() -> bool) -> Option<Zeroizing<String>> {
    let limit = Timespec::try_from(LOOK).ok()?;
    while is_needed() {
        let mut waits: Vec<PollFd<'_>> = consoles
            .iter()
            .map(|console| PollFd::from_borrowed_fd(console.file.as_fd(), PollFlags::IN))
            .collect();
        let happened = poll(&mut waits, Some(&limit));
        let ready: Vec<bool> = waits.iter().map(|wait| wait.revents().contains(PollFlags::IN)).collect();
        let mut is_over = happened != Ok(0);
        for (console, _) in consoles.iter_mut().zip(ready).filter(|(_, ready)| *ready) {
            // All at once: a buffer that grows leaves copies behind.
            let mut bytes = Zeroizing::new(vec![0; MOST_LINE_BYTES]);
            let count = console.file.read(&mut bytes).unwrap_or(0);
            is_over &= count == 0;
            let typed = std::str::from_utf8(bytes.get(..count)?).map(str::trim).unwrap_or_default();
            if !typed.is_empty() {
                return Some(Zeroizing::new(typed.to_owned()));
            }
        }
        if is_over {
            // A terminal that hung up, or a signal: it would be told at once again.
            std::thread::sleep(LOOK);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;

    use super::*;

    /// A terminal: the far end, and a directory with the near one as the only console.
    fn terminal() -> (File, tempfile::TempDir) {
        let dir = tempfile::tempdir().unwrap();
        let flags = rustix::pty::OpenptFlags::RDWR | rustix::pty::OpenptFlags::NOCTTY;
        let far: OwnedFd = rustix::pty::openpt(flags).unwrap();
        rustix::pty::unlockpt(&far).unwrap();
        let near = rustix::pty::ptsname(&far, Vec::new()).unwrap();
        std::os::unix::fs::symlink(near.to_str().unwrap(), dir.path().join("ttyS0")).unwrap();
        fs::write(dir.path().join("active"), "tty7 ttyS0\n").unwrap();
        (File::from(far), dir)
    }

    fn read_until(far: &mut File, end: &str) -> String {
        let mut text = String::new();
        while !text.ends_with(end) {
            let mut byte = [0];
            far.read_exact(&mut byte).unwrap();
            text.push(byte[0].into());
        }
        text
    }

    #[test]
    fn what_is_typed_is_read_and_not_shown() {
        let (mut far, dir) = terminal();
        // A terminal that nobody has open is hung up: the far end reads an error, and not what is still on its way.
        let flags = i32::try_from(OFlags::NOCTTY.bits()).unwrap();
        let near = dir.path().join("ttyS0");
        let _kept = OpenOptions::new().read(true).custom_flags(flags).open(near).unwrap();
        let mut consoles = open(&dir.path().join("active"), dir.path());
        assert_eq!(consoles.len(), 1);
        tell(&mut consoles, "\nkey: ");
        assert!(read_until(&mut far, "key: ").ends_with("\nkey: "));
        far.write_all(b"\n  secret-key\n").unwrap();
        assert_eq!(line(&mut consoles, &|| true).unwrap().as_str(), "secret-key");
        tell(&mut consoles, "done");
        let shown = read_until(&mut far, "done");
        assert!(!shown.contains("secret"), "{shown}");
        drop(consoles);
        // As it was: what is typed is shown again.
        far.write_all(b"visible\n").unwrap();
        assert!(read_until(&mut far, "visible").ends_with("visible"));
    }

    #[test]
    fn nobody_is_asked_once_the_volume_is_open() {
        let (_far, dir) = terminal();
        let mut consoles = open(&dir.path().join("active"), dir.path());
        assert!(line(&mut consoles, &|| false).is_none());
        assert!(open(&dir.path().join("nothing"), dir.path()).is_empty());
    }
}
