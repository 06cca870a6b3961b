//! billetctl's command lines.
//!
//! An input is a command line without the program's name, one word a line.
//! What must hold: nothing panics, and what is refused says why.

use crate::shape;
use crate::target::{Outcome, Target};
use billetctl::{NotRun, understood};
use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStrExt,
};

pub(super) const TARGET: Target =
    Target { name: "command-line", about: "command lines of billetctl", seeds, words: WORDS, run };

/// Lines that users of talosctl type; the grammar's own test reads the same file.
const HABITS: &str = include_str!("../../../cli/testdata/habits.txt");

const WORDS: &[&str] = &[
    "\n--help",
    "\n-h",
    "\n--",
    "\n-",
    "\n--nodes\n10.0.0.1,10.0.0.2",
    "\n--output=",
    "\njsonpath={.spec}",
    "\n--insecure",
    "\n--timeout\n5m",
    "\n-o\nyaml",
    "\n--cert-fingerprint\nabc=",
    "\nhelp",
    "=",
    ",",
    "1h",
    "\n--wait=false",
];

fn seeds() -> Vec<Vec<u8>> {
    HABITS.lines().map(|line| line.replace(' ', "\n").into_bytes()).collect()
}

fn run(input: &[u8]) -> Outcome {
    let words = input.split(|byte| *byte == b'\n').map(|word| OsStr::from_bytes(word).to_owned());
    match understood([OsString::from("billetctl")].into_iter().chain(words)) {
        Ok(command) => Outcome { accepted: true, shapes: vec![structure(&command)] },
        Err(NotRun::Shown(text)) => {
            assert!(!text.trim().is_empty(), "help without a text");
            Outcome { accepted: true, shapes: vec![shape::of(&text)] }
        }
        Err(NotRun::Refused(text)) => {
            assert!(!text.trim().is_empty(), "refused without a reason");
            Outcome::refused(&text)
        }
    }
}

/// The command and which of its flags are given, without their values.
fn structure(command: &str) -> String {
    let mut in_text = false;
    let kept = command.chars().filter(|c| {
        in_text ^= *c == '"';
        !in_text && !c.is_ascii_digit()
    });
    kept.take(400).collect()
}
