//! Properties of the whole schema: what is written is read back. Mutations of texts are the crate `fuzz`'s.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use config::{Mode, load, write};
use proptest::prelude::*;

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
