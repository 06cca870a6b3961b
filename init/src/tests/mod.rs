//! Sequences on the recording kernel.
//!
//! Golden transcripts live in testdata/; `BILLET_BLESS=1 cargo test -p init` writes them anew.

mod boots;
mod faults;
mod network;
mod recorder;
mod supervision;
mod sweep;
mod unlock;
mod watchdog;
mod world;

/// Compares with a golden file.
fn golden(name: &str, actual: &str) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(name);
    if std::env::var_os("BILLET_BLESS").is_some() {
        std::fs::write(&path, actual).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    for (number, (want, got)) in expected.lines().zip(actual.lines()).enumerate() {
        assert_eq!(got, want, "{name}, line {}", number + 1);
    }
    assert_eq!(actual.lines().count(), expected.lines().count(), "{name} has another length");
}

#[test]
fn the_plan_is_as_agreed() {
    let mut plan = String::new();
    crate::sequences::print_plan(&mut plan).unwrap();
    golden("plan.txt", &plan);
}
