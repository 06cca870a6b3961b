//! The dashboard as a process on a real pseudo terminal, against a node on loopback.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod fake;
mod rig;

use rig::{DEADLINE, Rig};
use rustix::{
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize},
};
use std::{
    fs::File,
    io::{Read, Write},
    process::{Child, Stdio},
    time::{Duration, Instant},
};
use tokio::{sync::mpsc, time::timeout};

/// A terminal with the dashboard on it.
struct Screen {
    child: Child,
    keys: File,
    /// Kept open, so that its settings can be looked at when the dashboard has ended.
    terminal: File,
    output: mpsc::UnboundedReceiver<Vec<u8>>,
    shown: String,
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Screen {
    fn open(rig: &Rig, line: &str) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
        let terminal = File::options().read(true).write(true).open(name).unwrap();
        let size = Winsize { ws_row: 30, ws_col: 100, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&terminal, size).unwrap();
        let end = || Stdio::from(terminal.try_clone().unwrap());
        let mut command = rig.command(line);
        let child = command.env("TERM", "xterm").stdin(end()).stdout(end()).stderr(end()).spawn().unwrap();
        let keys = File::from(master);
        let mut reading = keys.try_clone().unwrap();
        let (sender, output) = mpsc::unbounded_channel();
        std::thread::spawn(move || {
            let mut piece = [0; 4096];
            while let Ok(length) = reading.read(&mut piece) {
                if length == 0 || sender.send(piece[..length].to_vec()).is_err() {
                    return;
                }
            }
        });
        Self { child, keys, terminal, output, shown: String::new() }
    }

    fn is_raw(&self) -> bool {
        !tcgetattr(&self.terminal).unwrap().local_modes.contains(LocalModes::ICANON)
    }

    /// Waits until the terminal was sent all of these, in any order.
    async fn shows(&mut self, parts: &[&str]) {
        let seen = async {
            while !parts.iter().all(|part| self.shown.contains(part)) {
                let piece = self.output.recv().await.expect("the terminal is open");
                self.shown.push_str(&String::from_utf8_lossy(&piece));
            }
        };
        if timeout(DEADLINE, seen).await.is_err() {
            panic!("{parts:?} within {} s (deadline screen): {}", DEADLINE.as_secs(), self.shown);
        }
    }

    fn press(&mut self, keys: &[u8]) {
        self.keys.write_all(keys).unwrap();
    }

    /// Waits for the end; says whether it went well.
    async fn ends(mut self) -> (bool, bool, String) {
        let begin = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(begin.elapsed() < DEADLINE, "the dashboard does not end (deadline end): {}", self.shown);
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        self.shows(&["\x1b[?1049l"]).await;
        (status.success(), self.is_raw(), std::mem::take(&mut self.shown))
    }
}

#[tokio::test]
async fn the_dashboard_draws_a_node_and_gives_the_terminal_back() {
    let rig = Rig::start().await;
    for leave in [&b"q"[..], b"\x03"] {
        let mut screen = Screen::open(&rig, "dashboard -d 1s");
        screen.shows(&["\x1b[?1049h", "v9.9.9", "LOAD", "STAGE", "READY", "yes", "apid", "127.0.0.1"]).await;
        assert!(screen.is_raw(), "keys come one by one");
        screen.press(leave);
        let (well, raw, shown) = screen.ends().await;
        assert!(well && !raw, "{leave:?}: {shown}");
    }
}

#[tokio::test]
async fn a_node_that_does_not_answer_is_told_on_the_screen() {
    let rig = Rig::start().await;
    let mut screen = Screen::open(&rig, "-n broken dashboard -d 1s");
    screen.shows(&["broken", "Unavailable"]).await;
    screen.press(b"q");
    let (well, raw, shown) = screen.ends().await;
    assert!(well && !raw, "{shown}");
}

#[tokio::test]
async fn without_a_terminal_it_says_what_else_there_is() {
    let rig = Rig::start().await;
    let error = rig.fails("dashboard").await;
    assert!(error.contains("dashboard needs a terminal") && error.contains("-o json"), "{error}");
}
