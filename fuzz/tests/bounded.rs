//! Each target for a bounded count, as CI runs it.
//!
//! `BILLET_SEED` chooses the inputs, `BILLET_FUZZ_COUNT` how many of them; the seed is printed.

#![allow(clippy::print_stdout, reason = "the seed of a run belongs into its output")]

use fuzz::{
    Finding, Session, findings_directory, replay,
    targets::{TARGETS, Target, regressions},
};

/// Inputs of one target where nothing else is said: some seconds each in a debug build.
const COUNT: u64 = 4000;

/// Inputs of targets whose single call takes milliseconds in a debug build, by name; their seeds come first.
const COUNTS: &[(&str, u64)] = &[("tpm", 800), ("meta", 800), ("netroot-http", 1500)];

fn number(name: &str, or: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(or)
}

fn target(name: &str) -> &'static Target {
    fuzz::targets::target(name).unwrap_or_else(|| panic!("no target {name}"))
}

fn fail(finding: &Finding, seed: u64) -> ! {
    let kept = finding.keep(&findings_directory());
    let (_, command) = kept.unwrap_or_else(|error| panic!("write the finding: {error}; {finding:?}"));
    panic!("{}: {}\nBILLET_SEED={seed}; replay it with:\n{command}", finding.target, finding.message);
}

/// Calls the target with its old findings, its seeds and `COUNT` inputs made from them.
fn bounded(name: &str) {
    let (target, seed) = (target(name), number("BILLET_SEED", 20_261_121));
    println!("BILLET_SEED={seed}");
    let mut session = Session::new(target, seed, regressions(target));
    let count = COUNTS.iter().find(|(own, _)| *own == name).map_or(COUNT, |(_, count)| *count);
    for _ in 0..number("BILLET_FUZZ_COUNT", count) {
        let input = session.next_input();
        if let Err(finding) = session.call(&input) {
            fail(&finding, seed);
        }
    }
    println!("{}", session.progress());
    let (calls, accepted) = session.counts();
    assert!(accepted > 0 && accepted < calls, "the inputs are too weak: {}", session.progress());
}

#[test]
fn config() {
    bounded("config");
}

#[test]
fn patch() {
    bounded("patch");
}

#[test]
fn command_line() {
    bounded("command-line");
}

#[test]
fn talosconfig() {
    bounded("talosconfig");
}

#[test]
fn luks2_header() {
    bounded("luks2-header");
}

#[test]
fn luks2_json() {
    bounded("luks2-json");
}

#[test]
fn config_bundle() {
    bounded("config-bundle");
}

#[test]
fn tpm() {
    bounded("tpm");
}

#[test]
fn handoff() {
    bounded("handoff");
}

#[test]
fn meta() {
    bounded("meta");
}

#[test]
fn oci() {
    bounded("oci");
}

#[test]
fn tar_layer() {
    bounded("tar-layer");
}

#[test]
fn tar_add() {
    bounded("tar-add");
}

#[test]
fn netroot_http() {
    bounded("netroot-http");
}

#[test]
fn netboot_tftp() {
    bounded("netboot-tftp");
}

#[test]
fn netboot_dhcp() {
    bounded("netboot-dhcp");
}

#[test]
fn dhcp_client() {
    bounded("dhcp-client");
}

#[test]
fn dhcp6_client() {
    bounded("dhcp6-client");
}

#[test]
fn dns() {
    bounded("dns");
}

#[test]
fn requests() {
    bounded("requests");
}

#[test]
fn every_target_is_run_here() {
    let names: Vec<_> = TARGETS.iter().map(|target| target.name).collect();
    let bounded = [
        "config",
        "patch",
        "command-line",
        "talosconfig",
        "luks2-header",
        "luks2-json",
        "config-bundle",
        "tpm",
        "handoff",
        "meta",
        "oci",
        "tar-layer",
        "tar-add",
        "netroot-http",
        "netboot-tftp",
        "netboot-dhcp",
        "dhcp-client",
        "dhcp6-client",
        "dns",
        "requests",
    ];
    assert_eq!(names, bounded);
}

#[test]
fn seeds_and_old_findings_break_nothing() {
    for target in TARGETS {
        let inputs: Vec<_> = (target.seeds)().into_iter().chain(regressions(target)).collect();
        assert!(inputs.len() > 2, "{} has hardly any seeds", target.name);
        for input in inputs {
            if let Err(finding) = replay(target, &input) {
                fail(&finding, 0);
            }
        }
    }
}

#[test]
fn a_broken_property_is_kept_with_its_command() {
    static BROKEN: Target = Target {
        name: "broken",
        about: "fails on a word",
        seeds: || vec![b"fine".to_vec()],
        words: &["not"],
        run: |input| {
            assert!(!input.windows(3).any(|word| word == b"not"), "it has the word");
            fuzz::targets::Outcome { accepted: true, shapes: Vec::new() }
        },
    };
    let mut session = Session::new(&BROKEN, 1, Vec::new());
    let found = (0..10_000).find_map(|_| {
        let input = session.next_input();
        session.call(&input).err()
    });
    let finding = found.expect("the word is put in sooner or later");
    assert_eq!(finding.message, "it has the word");
    let directory = std::env::temp_dir().join(format!("billet-fuzz-{}", std::process::id()));
    let (path, command) = finding.keep(&directory).expect("a directory for temporary files");
    assert_eq!(std::fs::read(&path).expect("the finding's file"), finding.input);
    assert_eq!(command, format!("cargo xtask fuzz broken --replay {}", path.display()));
    let kept = std::fs::read(&path).expect("the finding's file");
    assert_eq!(replay(&BROKEN, &kept).expect_err("it is broken still").message, "it has the word");
    std::fs::remove_dir_all(&directory).expect("our own directory");
}
