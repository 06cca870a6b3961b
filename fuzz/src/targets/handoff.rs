//! Messages between init and machined, both ways, and the report of a volume's opening.
//!
//! An input is a direction, and a frame; its version may be put right, without which nothing else is read.
//! What must hold: nothing panics; what init reads and writes while it supervises allocates nothing; a frame that is cut
//! off anywhere, or has something behind its end, is refused; what is read is written and read back the same, no longer
//! than it came.

use handoff::{
    Action, BootReport, Error, Exit, InitMemory, LayerReport, MAX_FRAME_BYTES, OpenedVolume, RefusedKey,
    Span, Start, ToInit, ToMachined, UnlockReport, VERSION, decode, encode,
};

use crate::check;
use crate::target::{Outcome, Target};

pub(super) const TARGET: Target = Target {
    name: "handoff",
    about: "messages between init and machined",
    seeds,
    words: &["STATE", "/dev/vda5", "nodeID", "\u{0}", "\u{1}", "\u{7f}"],
    run,
};

/// A start has lists, of which the decoder makes room for 1 MiB each before it sees what is in them.
const MOST_BYTES: usize = 8 << 20;
/// Cuts of a frame that are tried.
const MOST_CUTS: usize = 200;

const TO_INIT: u8 = 0;
const TO_MACHINED: u8 = 1;
const UNLOCK: u8 = 2;
/// The version is put right.
const MENDED: u8 = 0x80;

fn framed<M: serde::Serialize>(direction: u8, message: &M) -> Vec<u8> {
    let mut buffer = vec![0; MAX_FRAME_BYTES];
    let frame = encode(message, &mut buffer).expect("a seed fits");
    [&[direction | MENDED], frame].concat()
}

fn report() -> UnlockReport {
    let opened = OpenedVolume { path: "/dev/mapper/luks2-STATE".into(), slot: 1, kind: "nodeID".into() };
    let refused = vec![RefusedKey { slot: 0, kind: "tpm".into(), why: "PCR 7 changed".into() }];
    UnlockReport {
        volume: "STATE".into(),
        device: "/dev/vda5".into(),
        opened: Some(opened),
        refused,
        problem: Some("a".into()),
        duration_ms: 700,
    }
}

fn start() -> Start {
    let layer = |name: &str| LayerReport {
        name: name.into(),
        version: "1.0.0".into(),
        root_hash: "ab".repeat(32),
        device: "/dev/dm-0".into(),
    };
    let span =
        |task: &str| Span { phase: "root".into(), task: task.into(), start_ns: 1 << 40, end_ns: u64::MAX };
    let report = BootReport {
        kernel_release: "6.12.1".into(),
        version: "1.0.0".into(),
        root_source: "/dev/vda2 (ROOT-A)".into(),
        layers: vec![layer("base"), layer("custom")],
        spans: vec![span("find"), span("verify")],
        warnings: vec!["unknown parameter".into()],
        recorder: Some("/dev/vda4".into()),
        unlock: Some(Box::new(report())),
    };
    let init_memory = InitMemory { in_use_bytes: 1 << 20, allocations: 77 };
    Start { report, restarts: 1, previous_status: Some(-9), init_memory }
}

fn seeds() -> Vec<Vec<u8>> {
    let finish = ToInit::Finish { action: Action::Kexec, reason: "asked by the API" };
    let exit = Exit { number: u64::MAX, pid: -1, start_ticks: 1 << 63, status: 0x8b };
    let to_init = [
        ToInit::Hello,
        ToInit::Ready,
        ToInit::Heartbeat,
        ToInit::Store { name: "log/containerd" },
        ToInit::Forget { name: "listen/machine" },
        ToInit::Acknowledge { number: 300 },
        finish,
    ];
    let to_machined = [
        ToMachined::Start(start()),
        ToMachined::Stored { name: "log/containerd" },
        ToMachined::Replayed,
        ToMachined::Exited(exit),
        ToMachined::ExitsLost { count: 300 },
        ToMachined::Requested(Action::PowerOff),
        ToMachined::Refused { reason: "the store is full" },
    ];
    let to_init = to_init.iter().map(|message| framed(TO_INIT, message));
    let to_machined = to_machined.iter().map(|message| framed(TO_MACHINED, message));
    to_init.chain(to_machined).chain([framed(UNLOCK, &report())]).collect()
}

fn run(input: &[u8]) -> Outcome {
    let Some((direction, frame)) = input.split_first() else { return Outcome::refused("nothing") };
    let mut frame = frame[..frame.len().min(MAX_FRAME_BYTES)].to_vec();
    if direction & MENDED != 0 && frame.len() >= 2 {
        frame[..2].copy_from_slice(&VERSION.to_le_bytes());
    }
    let mut buffer = vec![0; MAX_FRAME_BYTES];
    let written = match direction & 3 {
        TO_INIT => {
            let message = check::without_heap(|| decode::<ToInit<'_>>(&frame));
            message.map(|message| {
                let length = check::without_heap(|| length(encode(&message, &mut buffer)));
                (format!("{message:?}"), length)
            })
        }
        TO_MACHINED => {
            let message = check::within(MOST_BYTES, || decode::<ToMachined<'_>>(&frame));
            message.map(|message| {
                let length = check::without_heap(|| length(encode(&message, &mut buffer)));
                (format!("{message:?}"), length)
            })
        }
        _ => {
            let message = check::within(MOST_BYTES, || decode::<UnlockReport>(&frame));
            message.map(|message| (format!("{message:?}"), length(encode(&message, &mut buffer))))
        }
    };
    let (message, length) = match written {
        Ok(written) => written,
        Err(error) => {
            check::shown(&error.to_string());
            return Outcome::refused(&error.to_string());
        }
    };
    assert!(length <= frame.len(), "{length} bytes were made of {}", frame.len());
    whole_or_nothing(direction & 3, &mut buffer[..=length], &message);
    let kind = message.split([' ', '(']).next().unwrap_or_default();
    Outcome { accepted: true, shapes: vec![format!("read {kind}")] }
}

fn length(frame: Result<&[u8], Error>) -> usize {
    frame.expect("a message that was read fits a frame").len()
}

/// The message as it is read again from a frame.
fn read(direction: u8, frame: &[u8]) -> Result<String, Error> {
    match direction {
        TO_INIT => decode::<ToInit<'_>>(frame).map(|message| format!("{message:?}")),
        TO_MACHINED => decode::<ToMachined<'_>>(frame).map(|message| format!("{message:?}")),
        _ => decode::<UnlockReport>(frame).map(|message| format!("{message:?}")),
    }
}

/// `longer` is the frame and one byte behind it.
fn whole_or_nothing(direction: u8, longer: &mut [u8], message: &str) {
    let end = longer.len() - 1;
    longer[end] = 0;
    let again = read(direction, &longer[..end]);
    assert!(again.as_deref() == Ok(message), "{message} is read again as {again:?}");
    let step = end.div_ceil(MOST_CUTS).max(1);
    for cut in (0..end).step_by(step) {
        let cut = read(direction, &longer[..cut]);
        assert!(cut.is_err(), "a frame of {message} that was cut off is read as {cut:?}");
    }
    let longer = read(direction, longer);
    assert!(longer.is_err(), "a frame of {message} with a byte behind its end is read as {longer:?}");
}
