//! The two pages that are made from the code: docs/users/commands.md and docs/compatibility.md.
//!
//! `BILLET_BLESS=1 cargo test -p billetctl reference` writes them anew.
//! Owns: which call and which command exist, read from the wire contract (crates/api/testdata/wire.txt), the grammar and the
//! server's sources; what talosctl has, from cli/testdata/compatibility, whose v1.14.txt has what is known of the newest one, and
//! faults.txt what real ones found; `documents` the part on config documents, `resources` that on resources. A call is on the
//! page as there once its service is served.

mod documents;
mod resources;

use crate::args::Args;
use clap::{Arg, Command, CommandFactory};
use runtime::store::{ALL, Definition, Sensitivity};
use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    fmt::Write,
    fs,
    path::{Path, PathBuf},
};

const WIRE: &str = include_str!("../../crates/api/testdata/wire.txt");
const CALLS: &str = include_str!("../testdata/compatibility/calls.txt");
const COMMANDS: &str = include_str!("../testdata/compatibility/commands.txt");
const NEWEST: &str = include_str!("../testdata/compatibility/v1.14.txt");
const FAULTS: &str = include_str!("../testdata/compatibility/faults.txt");

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn blessed(path: &str, text: &str) -> String {
    let path = root().join(path);
    if env::var_os("BILLET_BLESS").is_some() {
        fs::write(&path, text).unwrap();
    }
    fs::read_to_string(&path).unwrap_or_default()
}

/// Lines of a data file: cells parted by ` | `.
fn rows(text: &'static str) -> Vec<Vec<&'static str>> {
    let lines = text.lines().filter(|l| !l.starts_with('#') && !l.is_empty());
    lines.map(|l| l.split(" | ").map(str::trim).collect()).collect()
}

/// Every command that does something, by its full name.
fn leaves(command: &Command, prefix: &str, out: &mut BTreeSet<String>) {
    for sub in command.get_subcommands().filter(|s| s.get_name() != "help") {
        let name = format!("{prefix}{}", sub.get_name());
        if sub.get_subcommands().any(|s| s.get_name() != "help") {
            leaves(sub, &format!("{name} "), out);
        } else {
            out.insert(name);
        }
    }
}

fn our_commands() -> BTreeSet<String> {
    let mut out = BTreeSet::new();
    leaves(&Args::command(), "", &mut out);
    out
}

/// The server's sources in one text.
fn server_sources() -> String {
    fn read(directory: &Path, out: &mut String) {
        let mut entries: Vec<_> = fs::read_dir(directory).unwrap().map(|e| e.unwrap().path()).collect();
        entries.sort();
        for path in entries {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() {
                read(&path, out);
            } else if name.ends_with(".rs") && !name.ends_with("tests.rs") {
                out.push_str(&fs::read_to_string(&path).unwrap());
            }
        }
    }
    let mut out = String::new();
    read(&root().join("service-manager/src"), &mut out);
    out
}

const BUILT: &str = "implemented";
const UNIMPLEMENTED: &str = "answers Unimplemented";

/// Whether the node answers a call.
fn state(call: &str, reason: &str, sources: &str) -> String {
    if let Some(why) = reason.strip_prefix("refused: ") {
        return format!("refused: {why}");
    }
    if reason != "-" {
        return format!("not applicable: {reason}");
    }
    let (service, _) = call.trim_start_matches('/').split_once('/').unwrap();
    let (package, service) = service.rsplit_once('.').unwrap();
    // Two packages have a MachineService.
    let server = match package {
        "billet" => "billet::machine_service_server".to_owned(),
        _ => format!("{service}Server::new"),
    };
    (if sources.contains(&server) { BUILT } else { UNIMPLEMENTED }).to_owned()
}

/// The state of each call.
fn states() -> BTreeMap<&'static str, String> {
    let sources = server_sources();
    rows(CALLS).into_iter().map(|r| (r[0], state(r[0], r[4], &sources))).collect()
}

/// What v1.14.txt says of a call or command, in a word, and what each word stands for.
const WORDS: [(&str, &str); 8] = [
    ("yes", "its reference has it"),
    ("new", "its reference has it, and no earlier generation had"),
    ("replaced", "its reference has it, and another call to use in its place"),
    ("gone", "its reference does not have it"),
    ("unlisted", "its reference does not list it, nor any hidden command"),
    ("types", "one whose types are below"),
    ("tried", "one that its release candidate ran against a node"),
    ("unknown", "any other, with the reason"),
];

/// What is known of a call or command in talosctl v1.14; of Billet's own there is nothing to know.
fn newest(name: &str, generations: &str) -> String {
    if generations.starts_with("none") {
        return "–".to_owned();
    }
    let known = rows(NEWEST).into_iter().find(|row| row[0] == name);
    let known = known.unwrap_or_else(|| panic!("{name} has no row in cli/testdata/compatibility/v1.14.txt"));
    if known[1] == "unknown" { format!("unknown: {}", known[2]) } else { known[1].to_owned() }
}

/// The first lines of the page.
fn head() -> String {
    let words: Vec<_> = WORDS.iter().map(|(word, meaning)| format!("*{word}*: {meaning}")).collect();
    format!("{HEAD} {}.{CALLS_HEAD}", words.join("; "))
}

const HEAD: &str = "# Compatibility with talosctl\n\n\
    Generated by `BILLET_BLESS=1 cargo test -p billetctl reference` from the wire contract, the server's sources, \
    billetctl's grammar, the schema of configs, the registry of resources and `cli/testdata/compatibility`. Versions are those \
    of talosctl that send a call or have a command: v0.9.3, v1.13.9 or both, v1.14 where that is the first. The column v1.14 \
    is from its published reference (`website/content/v1.14/reference` of siderolabs/talos):";

const CALLS_HEAD: &str = "\n\n## Calls\n\n\
    | call | talosctl | v1.14 | node | billetctl | test |\n|---|---|---|---|---|---|\n";

fn compatibility() -> String {
    let mut out = head();
    let states = states();
    for row in rows(CALLS) {
        let _ = writeln!(
            out,
            "| `{}` | {} | {} | {} | {} | {} |",
            row[0],
            row[1],
            newest(row[0], row[1]),
            states[row[0]],
            row[2],
            named(row[3])
        );
    }
    out.push_str(
        "\n## Commands\n\n| command | talosctl | v1.14 | billetctl | test |\n|---|---|---|---|---|\n",
    );
    let ours = our_commands();
    for row in rows(COMMANDS) {
        let state = match (ours.contains(row[0]), row[3]) {
            (true, _) => BUILT.to_owned(),
            (false, "-") => "not built yet".to_owned(),
            (false, reason) => format!("no: {reason}"),
        };
        let test = if ours.contains(row[0]) { named(row[2]) } else { "–".to_owned() };
        let known = newest(row[0], row[1]);
        let _ = writeln!(out, "| `{}` | {} | {known} | {state} | {test} |", row[0], row[1]);
    }
    out.push_str(FAULTS_HEAD);
    for row in rows(FAULTS) {
        let _ = writeln!(out, "| {} | {} |", row[0], named(row[1]));
    }
    out.push_str(documents::HEAD);
    for line in documents::lines() {
        let _ = writeln!(out, "{line}");
    }
    out.push_str(&resources::head());
    for line in resources::lines() {
        let _ = writeln!(out, "{line}");
    }
    out
}

const FAULTS_HEAD: &str = "\n## What real clients found\n\n\
    talosctl of three generations was run against a node. Each row is a fault that one of them met, and the test that \
    makes its calls now.\n\n| what was wrong | test |\n|---|---|\n";

fn named(test: &str) -> String {
    if test == "-" { "–".to_owned() } else { format!("`{test}`") }
}

#[test]
fn every_call_and_command_is_in_the_compatibility_table() {
    let page = blessed("docs/compatibility.md", &compatibility());
    let wire: BTreeSet<_> =
        WIRE.lines().filter_map(|l| l.strip_prefix("rpc ")?.split_once('(')).map(|(call, _)| call).collect();
    let listed: BTreeSet<_> = rows(CALLS).into_iter().map(|r| r[0]).collect();
    assert_eq!(wire, listed, "cli/testdata/compatibility/calls.txt and the wire contract differ");
    let known: BTreeSet<_> = rows(COMMANDS).into_iter().map(|r| r[0].to_owned()).collect();
    let unknown: Vec<_> = our_commands().difference(&known).cloned().collect();
    assert!(
        unknown.is_empty(),
        "commands without a row in cli/testdata/compatibility/commands.txt: {unknown:?}"
    );
    for row in rows(COMMANDS).iter().filter(|row| our_commands().contains(row[0])) {
        assert!(
            row[2] != "-" && row[3] == "-",
            "{} is built: name the test that shows it, and no reason",
            row[0]
        );
    }
    // The test of refusals shows nothing of a call that is served.
    let refused_only = |row: &Vec<&str>| row[4] == "-" && row[3].contains("/absent.rs::");
    let untested: Vec<_> = rows(CALLS).into_iter().filter(refused_only).map(|row| row[0]).collect();
    assert!(untested.is_empty(), "calls that are served and whose test is that of refusals: {untested:?}");
    let states = states();
    for name in listed.iter().map(|c| c.to_string()).chain(known) {
        assert!(
            page.contains(&format!("| `{name}` |")),
            "{name} is not on the page; BILLET_BLESS=1 writes it anew"
        );
    }
    for line in page.lines().filter(|l| l.starts_with("| `/") && l.contains(&format!("| {BUILT} |"))) {
        let call = line.split('`').nth(1).unwrap_or_default();
        assert_eq!(
            states.get(call).map(String::as_str),
            Some(BUILT),
            "the page claims {call}; BILLET_BLESS=1 writes it anew"
        );
    }
}

#[test]
fn what_is_known_of_the_newest_generation_is_in_the_compatibility_table() {
    let page = blessed("docs/compatibility.md", &compatibility());
    let listed: BTreeMap<_, _> =
        rows(CALLS).into_iter().chain(rows(COMMANDS)).map(|row| (row[0], row[1])).collect();
    for row in rows(NEWEST) {
        let [name, word, source] = row[..] else { panic!("{row:?}") };
        let generations = listed.get(name).unwrap_or_else(|| panic!("there is no call or command {name}"));
        assert!(WORDS.iter().any(|(known, _)| *known == word), "{row:?}");
        // What is not known says why, in words.
        assert!(!source.is_empty() && (word != "unknown" || source.contains(' ')), "{row:?}");
        assert_eq!(word == "new", *generations == "v1.14", "{row:?}");
    }
    for (name, generations) in listed {
        let cells = format!("| `{name}` | {generations} | {} |", newest(name, generations));
        assert!(page.contains(&cells), "{cells} is not on the page; BILLET_BLESS=1 writes it anew");
    }
    let faults = rows(FAULTS).into_iter().map(|row| format!("| {} | {} |", row[0], named(row[1])));
    for line in documents::lines().into_iter().chain(faults) {
        assert!(page.contains(&line), "{line} is not on the page; BILLET_BLESS=1 writes it anew");
    }
}

#[test]
fn the_tests_that_the_table_names_exist() {
    let commands = rows(COMMANDS).into_iter().filter(|r| our_commands().contains(r[0])).map(|r| r[2]);
    let calls = rows(CALLS).into_iter().map(|r| r[3]);
    let resources = resources::TESTS.iter().chain(&documents::TESTS).map(|(_, test)| *test);
    let faults = rows(FAULTS).into_iter().map(|r| r[1]);
    for test in calls.chain(commands).chain(resources).chain(faults).filter(|t| *t != "-") {
        let (file, name) = test.split_once("::").unwrap();
        // A module may be a file or a directory.
        let files = [file.to_owned(), file.replace("/mod.rs", ".rs")];
        let text: String = files.iter().filter_map(|f| fs::read_to_string(root().join(f)).ok()).collect();
        assert!(text.contains(&format!("fn {name}(")), "there is no {test}");
    }
}

#[test]
fn a_call_is_there_when_its_service_is() {
    let at = |call| state(call, "-", "MachineServiceServer::new(x)");
    assert_eq!(at("/machine.MachineService/Read"), BUILT);
    assert_eq!(at("/time.TimeService/Time"), UNIMPLEMENTED);
}

#[test]
fn the_commands_page_is_the_grammar() {
    let mut command = Args::command();
    command.build();
    let mut text = String::from(
        "# billetctl\n\nGenerated from billetctl's own grammar by `BILLET_BLESS=1 cargo test -p billetctl reference`.\n\n",
    );
    let global: Vec<_> = command.get_arguments().filter(|a| a.is_global_set()).cloned().collect();
    text.push_str("## Flags of every command\n\n");
    arguments(&mut text, &global);
    page(&mut text, &command, "billetctl");
    let found = blessed("docs/users/commands.md", &text);
    assert!(
        found == text,
        "docs/users/commands.md is not what the grammar says; BILLET_BLESS=1 writes it anew"
    );
}

fn page(out: &mut String, command: &Command, path: &str) {
    for sub in command.get_subcommands().filter(|s| s.get_name() != "help") {
        let name = format!("{path} {}", sub.get_name());
        let _ = writeln!(
            out,
            "## {name}\n\n{}.\n",
            sub.get_about().map_or_else(String::new, ToString::to_string)
        );
        let aliases: Vec<_> = sub.get_all_aliases().map(|a| format!("`{a}`")).collect();
        if !aliases.is_empty() {
            let _ = writeln!(out, "Also: {}.\n", aliases.join(", "));
        }
        let own: Vec<_> = sub.get_arguments().filter(|a| !is_common(a)).cloned().collect();
        arguments(out, &own);
        page(out, sub, &name);
    }
}

/// Flags of every command are told once.
fn is_common(arg: &Arg) -> bool {
    arg.is_hide_set()
        || ["help", "talosconfig", "context", "nodes", "endpoints", "output_word"]
            .contains(&arg.get_id().as_str())
}

fn arguments(out: &mut String, list: &[Arg]) {
    if list.is_empty() {
        return;
    }
    out.push_str("| argument | default | meaning |\n|---|---|---|\n");
    for arg in list {
        let flag = match (arg.get_short(), arg.get_long()) {
            (Some(short), Some(long)) => format!("-{short}, --{long}"),
            (Some(short), None) => format!("-{short}"),
            (None, Some(long)) => format!("--{long}"),
            (None, None) => String::new(),
        };
        let values = arg.get_value_names().unwrap_or_default().join(" ");
        let takes = arg.get_action().takes_values();
        let text = if takes { format!("{flag} {values}") } else { flag };
        let default: Vec<_> = arg.get_default_values().iter().map(|v| v.to_string_lossy()).collect();
        let default = if takes { default.join(" ") } else { String::new() };
        let help = arg
            .get_help()
            .map_or_else(String::new, ToString::to_string)
            .replace('|', "\\|")
            .replace('\n', " ");
        let _ = writeln!(out, "| `{}` | {default} | {help} |", text.trim());
    }
    out.push('\n');
}

/// The cells of a type on a page.
fn cells<'a>(page: &'a str, kind: &str) -> Vec<&'a str> {
    let start = format!("| `{kind}` |");
    let line = page.lines().find(|line| line.starts_with(&start));
    let line = line.unwrap_or_else(|| panic!("{kind} is not on the page; BILLET_BLESS=1 writes it anew"));
    line.trim_matches('|').split('|').map(str::trim).collect()
}

#[test]
fn every_resource_type_is_on_the_page_as_the_registry_has_it() {
    let page = blessed("docs/compatibility.md", &compatibility());
    let mut written = 0;
    let published = |kind: &&&Definition| api::definitions::published().iter().any(|p| p.kind == kind.kind);
    for kind in ALL.iter().filter(published) {
        let cells = cells(&page, kind.kind);
        let (state, test) =
            if kind.writer.is_empty() { ("empty", "sheet") } else { ("has its facts", "typed") };
        let readers = if kind.sensitivity == Sensitivity::Sensitive { "`os:admin`" } else { "all roles" };
        assert_eq!([cells[3], cells[4], cells[6]], [state, readers, test], "{}", kind.kind);
        written += usize::from(!kind.writer.is_empty());
    }
    assert!(written > 100, "{written}");
    for line in resources::lines() {
        assert!(page.contains(&line), "{line} is not on the page; BILLET_BLESS=1 writes it anew");
    }
    assert!(resources::lines().len() >= 195);
}

/// The definitions of these are written in more than one line, or say only a part themselves.
#[test]
fn types_are_told_however_their_definition_is_written() {
    let page = compatibility();
    for (kind, readers) in [
        ("AdmissionControlConfigs.kubernetes.talos.dev", "all roles"),
        ("AuthorizationConfigs.kubernetes.talos.dev", "`os:admin`"),
        ("BootstrapManifestsConfigs.kubernetes.talos.dev", "all roles"),
        ("ControllerManagerConfigs.kubernetes.talos.dev", "`os:admin`"),
        ("ExtraManifestsConfigs.kubernetes.talos.dev", "`os:admin`"),
        ("Manifests.kubernetes.talos.dev", "`os:admin`"),
        ("SchedulerConfigs.kubernetes.talos.dev", "`os:admin`"),
    ] {
        assert_eq!(cells(&page, kind)[3..5], ["has its facts", readers], "{kind}");
    }
    let columns = cells(&page, "NodeAddresses.net.talos.dev")[5];
    assert_eq!(columns, "columns: addresses are sorted one way only");
    // That an older generation has it otherwise is no difference from the newer one.
    assert_eq!(cells(&page, "TimeServerSpecs.net.talos.dev")[5], "–");
}
