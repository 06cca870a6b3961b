//! Client configurations.
//!
//! What must hold: nothing panics; no error shows what stands in the file; what is accepted is written and read back
//! the same; merging keeps every context.

use crate::target::{Outcome, Target};
use api::talosconfig::Talosconfig;

pub(super) const TARGET: Target =
    Target { name: "talosconfig", about: "client configurations", seeds, words: WORDS, run };

/// Stands for a key; no error may show it.
const SECRET: &str = "aHVudGVyMg";

const WORDS: &[&str] = &[
    "context: ",
    "contexts:\n",
    "  default:\n",
    "endpoints: [10.0.0.1]",
    "nodes: [10.0.0.2:50000]",
    "target: 10.0.0.1",
    "ca: LS0t",
    "key: aHVudGVyMg==",
    "auth: {siderov1: {identity: a}}",
    "basic: {username: a, password: aHVudGVyMg}",
];

fn seeds() -> Vec<Vec<u8>> {
    [
        "context: default\ncontexts:\n  default:\n    endpoints: [10.0.0.1, \"[fd00::1]:50000\"]\n    nodes: [10.0.0.1]\n    ca: LS0t\n    crt: LS0t\n    key: aHVudGVyMg==\n",
        "context: a\ncontexts:\n    a:\n        target: 10.0.0.1\n        key: |\n          aHVudGVyMg\n          ==\n    b:\n        endpoints: []\n        cluster: c\n        auth:\n            siderov1:\n                identity: someone\n",
        "contexts:\n  x: {endpoints: [a], auth: {basic: {username: u, password: aHVudGVyMg}}}\ncontext: \"\"\n",
        "",
    ]
    .iter()
    .map(|text| text.as_bytes().to_vec())
    .collect()
}

fn run(input: &[u8]) -> Outcome {
    let text = String::from_utf8_lossy(input);
    let file = match Talosconfig::parse(&text) {
        Ok(file) => file,
        Err(reason) => {
            assert!(!reason.contains(SECRET), "the error shows the file's content: {reason}");
            return Outcome::refused(&reason);
        }
    };
    let again = Talosconfig::parse(file.to_yaml().expose_secret())
        .unwrap_or_else(|reason| panic!("what was written is refused: {reason}"));
    assert!(again == file, "what was written is read as something else");
    let mut merged = file.clone();
    merged.merge(file.clone());
    assert_eq!(merged.contexts.len(), 2 * file.contexts.len(), "merging lost a context");
    Outcome { accepted: true, shapes: contexts(&file) }
}

fn contexts(file: &Talosconfig) -> Vec<String> {
    let mut shapes = vec![file.choose(None).err().map_or("chosen".to_owned(), |_| "no context".to_owned())];
    for context in file.contexts.values() {
        let authority = context.authority().err().map(|error| error.to_string());
        let identity = context.identity().err().map(|error| error.to_string());
        let told = format!("{authority:?} {identity:?}");
        assert!(!told.contains(SECRET), "an error shows the key: {told}");
        shapes.push(told);
    }
    shapes
}
