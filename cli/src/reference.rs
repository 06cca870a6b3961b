//! The two pages that are made from the code: docs/users/commands.md and docs/compatibility.md.
//!
//! `BILLET_BLESS=1 cargo test -p billetctl reference` writes them anew.
//! Owns: which call, which command and which resource type exist, read from the wire contract
//! (crates/api/testdata/wire.txt), the grammar and the server's sources; which types there are, from the sheets' facts
//! (crates/api/tests/data/resources.tsv); what talosctl has, from cli/testdata/compatibility (copied from
//! shared/spec/api-wire-facts.md §1, §2 and §5), and v1.14.txt there what is known of the newest one, and faults.txt what real ones found; `documents` the
//! part on config documents. The state of the node may lag behind on the page, so that building a
//! call does not break this test; the page never says of a call that it exists when it does not.

mod documents;

use crate::args::Args;
use clap::{Arg, Command, CommandFactory};
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
const SHEETS: &str = include_str!("../../crates/api/tests/data/resources.tsv");

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
    fn read(folder: &Path, out: &mut String) {
        let mut entries: Vec<_> = fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
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
    read(&root().join("crates/runtime/src"), &mut out);
    out
}

/// Methods that the server names as missing: in the list of a `missing!` block or by a call of `missing`.
fn missing(sources: &str) -> BTreeSet<String> {
    let mut out = BTreeSet::new();
    for block in sources.split("missing! {").skip(1) {
        let lines = block.split("\n    }").next().unwrap_or_default().lines();
        out.extend(lines.filter_map(|l| Some(l.split_once(": ")?.0.trim().to_owned())));
    }
    for call in sources.split("missing(\"").skip(1) {
        out.extend(call.split('"').next().map(str::to_owned));
    }
    out
}

/// `EtcdRemoveMemberByID` as Rust writes it.
fn snake(name: &str) -> String {
    let name = name.replace("CPU", "Cpu").replace("ByID", "ById");
    name.chars().fold(String::new(), |mut out, c| {
        if c.is_ascii_uppercase() && !out.is_empty() {
            out.push('_');
        }
        out.push(c.to_ascii_lowercase());
        out
    })
}

const BUILT: &str = "implemented";
const UNIMPLEMENTED: &str = "answers Unimplemented";

/// Whether the node answers a call.
fn state(call: &str, reason: &str, sources: &str, missing: &BTreeSet<String>) -> String {
    if let Some(why) = reason.strip_prefix("refused: ") {
        return format!("refused: {why}");
    }
    if reason != "-" {
        return format!("not applicable: {reason}");
    }
    let (service, method) = call.trim_start_matches('/').split_once('/').unwrap();
    let (package, service) = service.rsplit_once('.').unwrap();
    // Two packages have a MachineService.
    let server = match package {
        "billet" => "billet::machine_service_server".to_owned(),
        _ => format!("{service}Server::new"),
    };
    let is_machine = call.starts_with("/machine.MachineService/");
    let exists = sources.contains(&server) && !(is_machine && missing.contains(&snake(method)));
    (if exists { BUILT } else { UNIMPLEMENTED }).to_owned()
}

/// The state of each call.
fn states() -> BTreeMap<&'static str, String> {
    let sources = server_sources();
    let missing = missing(&sources);
    rows(CALLS).into_iter().map(|r| (r[0], state(r[0], r[4], &sources, &missing))).collect()
}

/// What is known of a call or command in talosctl v1.14; of Billet's own there is nothing to know.
fn newest(name: &str, generations: &str) -> &'static str {
    let known = rows(NEWEST).into_iter().find(|row| row[0] == name).map(|row| row[1]);
    known.unwrap_or(if generations.starts_with("none") { "–" } else { "unknown" })
}

const HEAD: &str = "# Compatibility with talosctl\n\n\
    Generated by `BILLET_BLESS=1 cargo test -p billetctl reference` from the wire contract, the server's sources, \
    billetctl's grammar, the schema of configs and `cli/testdata/compatibility`. Versions are those of talosctl that send a \
    call or have a command: v0.9.3, v1.13.9 or both. The published schema of v1.14 has resources and documents and \
    no calls: *types* is one whose types are below, *tried* one that its release candidate ran against a node, \
    *unknown* any other.\n\n## Calls\n\n\
    | call | talosctl | v1.14 | node | billetctl | test |\n|---|---|---|---|---|---|\n";

fn compatibility() -> String {
    let mut out = HEAD.to_owned();
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
    out.push_str(RESOURCES);
    for kind in resources() {
        let _ = writeln!(out, "{}", kind.line());
    }
    out
}

const FAULTS_HEAD: &str = "\n## What real clients found\n\n\
    talosctl of three generations was run against a node. Each row is a fault that one of them met, and the test that \
    makes its calls now.\n\n| what was wrong | test |\n|---|---|\n";

/// What each word of the table's last column stands for.
const TESTS: [(&str, &str); 2] = [
    (
        "typed",
        "service-manager/src/server/typed_tests.rs::a_client_of_binary_forms_alone_sees_every_value_of_every_type",
    ),
    ("sheet", "crates/runtime/src/store/sheet_tests.rs::every_type_of_the_sheets_is_registered_as_they_say"),
];

const RESOURCES: &str = "\n## Resources\n\n\
    Every type is registered with the columns, aliases and sensitivity of v1.14. *has its facts*: something of the node \
    writes it; *empty*: the node lacks what it tells of, `get` prints the heading and a watch waits. *changed*: v1.14 added to \
    the type, all of which a client of v1.13 skips. Tests: *typed* is \
    `service-manager/src/server/typed_tests.rs::a_client_of_binary_forms_alone_sees_every_value_of_every_type`, *sheet* is \
    `crates/runtime/src/store/sheet_tests.rs::every_type_of_the_sheets_is_registered_as_they_say`; fields of both are in \
    `crates/api/tests/sheets.rs::every_type_field_and_value_of_the_sheets_is_ours`.\n\n\
    | type | v1.13 | v1.14 | node | readers | test |\n|---|---|---|---|---|---|\n";

/// A published resource type.
struct Resource {
    name: &'static str,
    in_older: bool,
    changed: bool,
    is_written: bool,
    sensitive: bool,
}

impl Resource {
    fn line(&self) -> String {
        let older = if self.in_older { "yes" } else { "–" };
        let newer = match (self.in_older, self.changed) {
            (false, _) => "new",
            (true, true) => "changed",
            (true, false) => "yes",
        };
        let readers = if self.sensitive { "`os:admin`" } else { "all roles" };
        let (state, test) = if self.is_written { ("has its facts", "typed") } else { ("empty", "sheet") };
        format!("| `{}` | {older} | {newer} | {state} | {readers} | {test} |", self.name)
    }
}

/// Every published type, sorted by name; of one that both generations have differently the newer line counts.
fn resources() -> Vec<Resource> {
    let sources = server_sources();
    let rows = |kind: &'static str| {
        let lines = SHEETS.lines().map(|line| line.split('\t').collect::<Vec<_>>());
        lines.filter(move |cells| cells[0] == kind)
    };
    let changed: BTreeSet<&str> =
        rows("field").filter(|cells| cells[1] != "both").map(|cells| cells[2]).collect();
    let mut found = BTreeMap::<&str, Resource>::new();
    for cells in rows("type") {
        let [_, generation, name, _, sensitive, message, ..] = cells[..] else { panic!("{cells:?}") };
        let was = found.contains_key(name);
        let resource = Resource {
            name,
            in_older: was || generation != "v1.14",
            changed: was || changed.contains(message),
            is_written: sources.contains(&format!("kind: \"{name}\""))
                || sources.contains(&format!("published(\"{name}\"")),
            sensitive: sensitive == "sensitive",
        };
        found.insert(name, resource);
    }
    found.into_values().collect()
}

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
        assert!(listed.contains_key(name), "there is no call or command {name}");
        assert!(["types", "tried"].contains(&word) && !source.is_empty(), "{row:?}");
        assert!(HEAD.contains(&format!("*{word}*")), "the page does not say what {word} is");
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
fn every_resource_type_is_in_the_compatibility_table() {
    let page = blessed("docs/compatibility.md", &compatibility());
    let all = resources();
    assert!(all.len() >= 195 && all.iter().filter(|kind| kind.is_written).count() >= 50);
    for kind in &all {
        assert!(
            page.contains(&kind.line()),
            "{} is not on the page as it is; BILLET_BLESS=1 writes it anew",
            kind.name
        );
    }
    assert!(TESTS.iter().all(|(word, test)| RESOURCES.contains(&format!("*{word}* is `{test}`"))));
}

#[test]
fn the_tests_that_the_table_names_exist() {
    let commands = rows(COMMANDS).into_iter().filter(|r| our_commands().contains(r[0])).map(|r| r[2]);
    let calls = rows(CALLS).into_iter().map(|r| r[3]);
    let resources = TESTS.iter().chain(&documents::TESTS).map(|(_, test)| *test);
    let faults = rows(FAULTS).into_iter().map(|r| r[1]);
    for test in calls.chain(commands).chain(resources).chain(faults).filter(|t| *t != "-") {
        let (file, name) = test.split_once("::").unwrap();
        // A module may be a file or a folder.
        let files = [file.to_owned(), file.replace("/mod.rs", ".rs")];
        let text: String = files.iter().filter_map(|f| fs::read_to_string(root().join(f)).ok()).collect();
        assert!(text.contains(&format!("fn {name}(")), "there is no {test}");
    }
}

#[test]
fn the_server_s_list_of_missing_calls_is_understood() {
    let sources =
        "missing! {\n        a_b: proto::X => Y;\n        c: () => Z;\n    }\n fn x() { missing(\"d\") }";
    assert_eq!(missing(sources).into_iter().collect::<Vec<_>>(), ["a_b", "c", "d"]);
    assert_eq!(
        (snake("EtcdRemoveMemberByID"), snake("CPUFreqStats")),
        ("etcd_remove_member_by_id".into(), "cpu_freq_stats".into())
    );
    let missing = BTreeSet::from(["copy".to_owned()]);
    let at = |call| state(call, "-", "MachineServiceServer::new(x)", &missing);
    assert_eq!(at("/machine.MachineService/Copy"), UNIMPLEMENTED);
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
