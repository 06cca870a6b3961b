//! Config bundles as they lie on a boot medium.
//!
//! What must hold: nothing panics; what is read is written back to the same bytes, but for selectors that two entries share,
//! which are read and refused when written; every refusal names a byte.

use ondisk::Digest;
use ondisk::bundle::{
    Entry, Frame, KEY_BYTES, Parts, Payload, SIGNATURE_BYTES, Sealed, Selector, blank, message,
};

use crate::target::{Outcome, Target};

pub(super) const TARGET: Target =
    Target { name: "config-bundle", about: "config bundles of boot media", seeds, words: WORDS, run };

const WORDS: &[&str] =
    &["BILLETCB", "serial", "version: v1alpha1\n", "\0\0\0\0", "\u{1}\u{6}", "\u{3}\u{10}"];

fn seeds() -> Vec<Vec<u8>> {
    let key = [3; KEY_BYTES];
    let mac = Selector::mac("52:54:00:12:34:56").expect("an address");
    let serial = Selector::serial("A-17").expect("a serial number");
    let uuid = Selector::uuid("4c4c4544-0039-3510-8059-b7c04f333231").expect("a UUID");
    let tpm = Selector::tpm_key(&"ab".repeat(32)).expect("a digest");
    let plain = Entry { selectors: vec![mac, serial], payload: Payload::Plain(b"version: v1alpha1\n") };
    let parts = Parts { device: Digest([8; 32]), public: &[6; 12], private: &[7; 20], seed: &[5; 9] };
    let mut payload = parts.head().expect("short parts");
    payload.extend([9; 40]);
    let sealed = Sealed::read(&payload).expect("what was just written");
    let sealed = Entry { selectors: vec![uuid, tpm], payload: Payload::Sealed(sealed) };
    let mut two = message(&key, &[plain, sealed]).expect("a bundle").to_vec();
    two.extend([5; SIGNATURE_BYTES]);
    // One that was cut off.
    let half = two[..two.len() / 2].to_vec();
    vec![blank(&key), two, half]
}

fn run(input: &[u8]) -> Outcome {
    let read = Frame::read(input).and_then(|frame| Ok((frame, frame.entries()?)));
    let (frame, entries) = match read {
        Ok(read) => read,
        Err(error) => {
            let text = error.to_string();
            assert!(text.contains("byte"), "{text:?} names no place");
            return Outcome::refused(&text);
        }
    };
    for entry in &entries {
        if let Payload::Sealed(sealed) = entry.payload {
            let head = sealed.parts.head().expect("no part is longer than its length says");
            assert!(head == sealed.head, "the parts of a sealed config are written as something else");
        }
    }
    let shape = match message(&frame.key, &entries) {
        // What is reserved is not kept.
        Ok(again) => {
            assert!(again[32..] == frame.message[32..], "what was read is written as something else");
            format!("{} entries", entries.len())
        }
        Err(error) => error.to_string(),
    };
    let own: Vec<Selector> = entries.iter().flat_map(|entry| entry.selectors.clone()).collect();
    let found = ondisk::bundle::matching(&entries, &own).len();
    assert!(found == entries.len(), "{found} of {} entries are found by their selectors", entries.len());
    Outcome { accepted: true, shapes: vec![shape] }
}
