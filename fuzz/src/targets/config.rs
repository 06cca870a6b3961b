//! Machine configurations.
//!
//! What must hold: nothing panics; whatever is refused is refused with a place; what is accepted is written and read
//! back the same.

use super::files;
use crate::shape;
use crate::target::{Outcome, Target};
use config::{Diagnostic, Loaded, Mode, load, write};

pub(super) const TARGET: Target =
    Target { name: "config", about: "machine configurations", seeds, words: WORDS, run };

const WORDS: &[&str] = &[
    "machine:\n",
    "cluster:\n",
    "version: v1alpha1\n",
    "---\napiVersion: v1alpha1\nkind: LinkConfig\nname: eth0\n",
    "kind: ",
    "name: ",
    "interface: eth0",
    "addresses: [10.0.0.2/24]",
    "10.0.0.0/8",
    "fd00::1",
    "1h30m",
    "1GiB",
    "0644",
    "https://10.0.0.1:6443",
    "YTpi",
    "controlplane",
    "*: {}",
    "lo0",
];

/// The guides' snippets, and every document of the two full configurations for itself.
fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = files("crates/config/testdata/guides");
    for stream in files("crates/config/testdata") {
        let text = String::from_utf8_lossy(&stream);
        for (index, document) in text.split("\n---\n").enumerate() {
            let head = if index == 0 { "" } else { "machine: {token: a.b}\n---\n" };
            seeds.push(format!("{head}{document}\n").into_bytes());
        }
    }
    seeds
}

fn run(input: &[u8]) -> Outcome {
    match load(input) {
        Ok(loaded) => accepted(input, &loaded),
        Err(error) => {
            assert!(!error.0.is_empty(), "refused without an error");
            Outcome { accepted: false, shapes: placed(&error.0, input) }
        }
    }
}

fn accepted(input: &[u8], loaded: &Loaded) -> Outcome {
    let mut shapes = placed(&loaded.warnings, input);
    for mode in [Mode::Metal, Mode::Cloud, Mode::Container] {
        match loaded.validate(mode) {
            Ok(warnings) => shapes.extend(placed(&warnings, input)),
            Err(error) => shapes.extend(placed(&error.0, input)),
        }
    }
    written_and_read(loaded);
    Outcome { accepted: true, shapes }
}

fn written_and_read(loaded: &Loaded) {
    let written = write(&loaded.config, &loaded.documents)
        .unwrap_or_else(|error| panic!("it was read, but it can not be written: {error}"));
    let again = load(written.as_bytes()).unwrap_or_else(|error| {
        panic!("what was written is refused: {error}\n---- written\n{}", written.as_str())
    });
    assert!(again.config == loaded.config, "the configuration changed:\n{}", written.as_str());
    assert!(again.documents == loaded.documents, "a document changed:\n{}", written.as_str());
}

/// Checks the places of remarks, and answers their shapes.
fn placed(remarks: &[Diagnostic], input: &[u8]) -> Vec<String> {
    for remark in remarks {
        let good = remark.document > 0
            && (1..=input.len() + 1).contains(&remark.line)
            && (1..=input.len() + 1).contains(&remark.column)
            && !remark.message.is_empty();
        assert!(good, "a remark without a place: {remark:?}");
    }
    remarks.iter().map(|remark| shape::of(&remark.message)).collect()
}
