//! A machined for trying init by hand in a VM: speaks the handoff protocol, does what `standin=` on the kernel command
//! line says (`poweroff`, `reboot`, `die`), and ends the system.
//!
//! `die`: deposits the read end of a pipe, kills itself ten times, and checks each time that the pipe came back with
//! what was written, that an orphan's exit was delivered, and that init's memory did not change.

use std::io::Write;
use std::os::fd::AsFd;

use handoff::{Action, InitMemory, MACHINED_FD, ToInit, ToMachined};
use sys::OwnedFd;

const DEATHS: u32 = 10;

struct Init {
    socket: OwnedFd,
    kmsg: std::fs::File,
}

impl Init {
    fn say(&mut self, text: &str) {
        let _ = self.kmsg.write_all(format!("<6>stand-in: {text}").as_bytes());
    }

    fn send(&self, message: &ToInit<'_>, descriptor: Option<&OwnedFd>) {
        let mut frame = [0; 512];
        let frame = handoff::encode(message, &mut frame).expect("small message");
        sys::seqpacket::send(&self.socket, frame, descriptor.map(AsFd::as_fd)).expect("init is there");
    }
}

fn main() {
    let socket = sys::process::inherited(MACHINED_FD).expect("started by init");
    let kmsg = std::fs::File::options().write(true).open("/dev/kmsg").expect("kernel log");
    let mut init = Init { socket, kmsg };
    let line = std::fs::read_to_string("/proc/cmdline").unwrap_or_default();
    let job =
        line.split_whitespace().find_map(|w| w.strip_prefix("standin=")).unwrap_or("poweroff").to_string();
    let (restarts, memory, stored, exits) = replay(&mut init);
    init.send(&ToInit::Hello, None);
    init.send(&ToInit::Ready, None);
    init.say(&format!("start {restarts}, {memory:?}, {} stored, {exits} exits", stored.len()));
    match job.as_str() {
        "die" => die(&mut init, restarts, memory, &stored, exits),
        "reboot" => end(&init, Action::Reboot),
        "stay" => {}
        _ => end(&init, Action::PowerOff),
    }
    loop {
        std::thread::park();
    }
}

fn end(init: &Init, action: Action) {
    init.send(&ToInit::Finish { action, reason: "stand-in was asked to" }, None);
}

fn replay(init: &mut Init) -> (u32, InitMemory, Vec<OwnedFd>, usize) {
    let mut frame = vec![0; handoff::MAX_FRAME_BYTES];
    let (mut restarts, mut memory, mut stored, mut exits) = (0, InitMemory::default(), Vec::new(), 0);
    loop {
        let packet = sys::seqpacket::receive(&init.socket, &mut frame).expect("init sends");
        match handoff::decode::<ToMachined<'_>>(&frame[..packet.len]).expect("init speaks this version") {
            ToMachined::Start(start) => {
                restarts = start.restarts;
                memory = start.init_memory;
                if restarts == 0 {
                    for span in &start.report.spans {
                        let ms = (span.end_ns - span.start_ns) / 1_000_000;
                        init.say(&format!("{}/{} {ms} ms", span.phase, span.task));
                    }
                    init.say(&format!("{:?} {:?}", start.report.root_source, start.report.warnings));
                }
            }
            ToMachined::Stored { .. } => stored.extend(packet.descriptor),
            ToMachined::Exited(_) => exits += 1,
            ToMachined::Replayed => return (restarts, memory, stored, exits),
            other => init.say(&format!("unexpected {other:?}")),
        }
    }
}

fn die(init: &mut Init, restarts: u32, memory: InitMemory, stored: &[OwnedFd], exits: usize) {
    if restarts == 0 {
        let (reader, writer) = rustix_pipe();
        std::io::Write::write_all(&mut std::fs::File::from(writer), b"survives").expect("pipe takes it");
        init.send(&ToInit::Store { name: "pipe" }, Some(&reader));
        orphan();
    } else {
        let what = format!("{memory:?}\n");
        let path = "/run/stand-in-memory";
        if let Ok(first) = std::fs::read_to_string(path) {
            init.say(if first == what { "memory unchanged" } else { "MEMORY CHANGED" });
        } else {
            std::fs::write(path, what).expect("/run is writable");
        }
        init.say(if stored.len() == 1 && (exits >= 1 || restarts == 1) {
            "store and exits came back"
        } else {
            "LOST SOMETHING"
        });
    }
    if restarts == DEATHS {
        let mut text = String::new();
        let file = stored[0].try_clone().expect("descriptor");
        std::io::Read::read_to_string(&mut std::fs::File::from(file), &mut text).expect("pipe is readable");
        init.say(&format!("the pipe {text}"));
        return end(init, Action::PowerOff);
    }
    sys::process::signal_process(std::process::id().cast_signed(), sys::signal::Signal::KILL)
        .expect("own pid");
}

/// A process that ends after this one: init gets its exit.
fn orphan() {
    let sleep = sys::process::Spawn {
        program: c"/usr/bin/machined",
        argv: &[c"machined", c"orphan"],
        ..sys::process::Spawn::default()
    };
    // It fails at its first step, for want of a socket: that is its exit.
    let _ = sys::process::spawn(&sleep);
}

fn rustix_pipe() -> (OwnedFd, OwnedFd) {
    let (reader, writer) = std::io::pipe().expect("pipe");
    (reader.into(), writer.into())
}
