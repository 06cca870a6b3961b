//! Properties of the whole schema: what is written is read back, nothing makes the reader panic.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use config::{Mode, load, write};
use proptest::prelude::*;
use std::{fs, path::Path};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn what_is_written_is_read_back(seed in any::<u64>()) {
        let text = common::Maker::new(false, Some(seed)).stream();
        let first = load(text.as_bytes()).map_err(|e| TestCaseError::fail(format!("{e}\n{text}")))?;
        prop_assert!(first.text.as_slice() == text.as_bytes());
        let written = write(&first.config, &first.documents).unwrap();
        let second = load(written.as_bytes()).map_err(|e| TestCaseError::fail(format!("{e}\n{written}")))?;
        prop_assert!(first.config == second.config, "{}\n---- written\n{}", text, written);
        prop_assert!(first.documents == second.documents, "{}\n---- written\n{}", text, written);
        for mode in [Mode::Metal, Mode::Cloud, Mode::Container] {
            let _ = first.validate(mode);
        }
    }
}

/// Mutations of one run: enough for CI, more by `BILLET_FUZZ_CASES`.
const CASES: u64 = 600;

struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % limit.max(1)
    }
}

fn mutated(text: &[u8], random: &mut Random) -> Vec<u8> {
    const PIECES: &[&[u8]] = &[
        b":",
        b"{",
        b"}",
        b"[",
        b"]",
        b"&a ",
        b"*a",
        b"!x ",
        b"|",
        b">",
        b"\"",
        b"'",
        b"\t",
        b"- ",
        b"#",
        b"%",
        b"\n",
        b"...",
        b"---\n",
        b"<<: ",
        b"\xff",
        b"\r\n",
        b"~",
        b"\xe2\x80\xa8",
        b"kind: X\n",
        b"0x",
        b"-1",
        b"99999999999999999999",
    ];
    let mut out = text.to_vec();
    for _ in 0..=random.below(4) {
        let at = random.below(out.len());
        match random.below(5) {
            0 => out.truncate(at),
            1 => drop(out.splice(at..at, PIECES[random.below(PIECES.len())].iter().copied())),
            2 if at < out.len() => out[at] = u8::try_from(random.below(256)).unwrap(),
            3 => drop(out.drain(at..(at + random.below(40)).min(out.len()))),
            _ => {
                let end = (at + random.below(200)).min(out.len());
                let piece = out[at..end].to_vec();
                let to = random.below(out.len());
                drop(out.splice(to..to, piece));
            }
        }
    }
    out
}

#[test]
fn no_mutation_of_a_fixture_makes_the_reader_panic() {
    let number = |name: &str, or: u64| std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(or);
    let seed = number("BILLET_FUZZ_SEED", 20_261_121);
    let testdata = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata");
    let guides = fs::read_dir(testdata.join("guides")).unwrap().map(|e| e.unwrap().path());
    let mut corpus: Vec<_> = guides.collect();
    corpus.sort();
    corpus.push(testdata.join("all-fields-v0.9.yaml"));
    let corpus: Vec<_> = corpus.iter().map(|path| fs::read(path).unwrap()).collect();
    let (mut random, mut refused) = (Random(seed), 0);
    for case in 0..number("BILLET_FUZZ_CASES", CASES) {
        let text = mutated(&corpus[random.below(corpus.len())], &mut random);
        let shown = || format!("BILLET_FUZZ_SEED={seed}, case {case}:\n{}", String::from_utf8_lossy(&text));
        let result = std::panic::catch_unwind(|| load(&text).map(|loaded| loaded.validate(Mode::Metal)));
        let result = result.unwrap_or_else(|_| panic!("the reader panicked; {}", shown()));
        let Err(error) = result.and_then(|judged| judged) else { continue };
        refused += 1;
        let placed =
            |d: &config::Diagnostic| d.line > 0 && d.column > 0 && d.document > 0 && !d.message.is_empty();
        assert!(
            !error.0.is_empty() && error.0.iter().all(placed),
            "an error without a place: {error:?}; {}",
            shown()
        );
    }
    assert!(refused > 0, "no mutation was refused: the mutations are too weak");
}
