//! What the users' pages tell people to type: commands that billetctl understands, configuration and profiles that it
//! accepts, Dockerfiles that tests build.
//!
//! Does not: run the commands; `qemu-tests` does so for docs/users/first-node.md. Nor build the Dockerfiles: `buildah.rs`
//! does.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use installer::custom::Profile;

const PROGRAM: &str = env!("CARGO_BIN_EXE_billetctl");

/// A fenced block: its place, its language, its text.
struct Block {
    place: String,
    language: String,
    text: String,
}

fn pages() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let directory = std::fs::read_dir(root.join("docs/users")).unwrap();
    let pages = directory
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "md"));
    pages.chain([root.join("README.md")]).collect()
}

/// Blocks in lists are indented; their text is not.
fn blocks(page: &Path) -> Vec<Block> {
    let text = std::fs::read_to_string(page).unwrap();
    let mut found = Vec::new();
    let mut lines = text.lines().zip(1..);
    while let Some((line, number)) = lines.next() {
        let indent = line.len() - line.trim_start().len();
        let Some(language) = line.trim_start().strip_prefix("```") else { continue };
        let body = lines.by_ref().map(|(line, _)| line).take_while(|line| line.trim() != "```");
        let body: String = body.map(|line| format!("{}\n", line.get(indent..).unwrap_or_default())).collect();
        let place = format!("{}:{number}", page.display());
        found.push(Block { place, language: language.to_owned(), text: body });
    }
    found
}

fn all_blocks() -> Vec<Block> {
    pages().iter().flat_map(|page| blocks(page)).collect()
}

fn billetctl(dir: &Path, words: &[&str]) -> Output {
    Command::new(PROGRAM).current_dir(dir).args(words).output().unwrap()
}

#[test]
fn every_command_is_understood() {
    let dir = tempfile::tempdir().unwrap();
    let bin = Path::new(PROGRAM).parent().unwrap();
    let mut tried = 0;
    for block in all_blocks() {
        for line in block.text.replace("\\\n", " ").lines().filter(|line| line.starts_with("billetctl ")) {
            let command = line.split(" | ").next().unwrap().split(" #").next().unwrap();
            let command = command.split(" && ").next().unwrap().split(" > ").next().unwrap();
            // Everything in front of it is read before the help is printed.
            let output = Command::new("sh")
                .args(["-c", &format!("{command} --help")])
                .env("PATH", format!("{}:/usr/bin:/bin", bin.display()))
                .env("NODE", "10.0.0.2")
                .env("NAME", "endpoint.example.org")
                .current_dir(dir.path())
                .output()
                .unwrap();
            let errors = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.success(), "{}: {command}\n{errors}", block.place);
            tried += 1;
        }
    }
    assert!(tried > 30, "only {tried} commands were found");
}

#[test]
fn every_piece_of_configuration_is_accepted() {
    let dir = tempfile::tempdir().unwrap();
    let made =
        billetctl(dir.path(), &["gen", "config", "demo", "https://10.0.0.2:6443", "--output-dir", "."]);
    assert!(made.status.success(), "{made:?}");
    let mut tried = 0;
    for block in all_blocks() {
        let is_config = block.text.starts_with("machine:") || block.text.starts_with("cluster:");
        if block.language != "yaml" || !is_config {
            continue;
        }
        // What stands for a secret or a long text is no base64.
        let text = block.text.replace("<base64 of PEM>", "LS0tLS0K");
        std::fs::write(dir.path().join("patch.yaml"), text).unwrap();
        let words =
            ["machineconfig", "patch", "controlplane.yaml", "-p", "@patch.yaml", "-o", "patched.yaml"];
        let steps = [&words[..], &["validate", "-m", "metal", "-c", "patched.yaml"]];
        for step in steps {
            let output = billetctl(dir.path(), step);
            let errors = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.success(), "{}: {}\n{errors}", block.place, block.text);
        }
        tried += 1;
    }
    assert!(tried >= 8, "only {tried} pieces were found");
}

/// Files that the page's profile names; it is read with these beside it.
const PROFILE_FILES: [&str; 9] = [
    "nvme-tools.tar",
    "corporate-ca.pem",
    "machine.yaml",
    "devices.pub",
    "boot/vmlinuz-6.13.0",
    "boot/config-6.13.0",
    "tools.tar.gz",
    "extension.tar",
    "tool",
];

/// The same for directories.
const PROFILE_DIRECTORIES: [&str; 3] = ["firmware", "lib/modules/6.13.0", "overlay"];

/// Reads a profile in a directory where all is that the page's profiles name.
fn profile(text: &str) -> Result<Profile, String> {
    let directory = tempfile::tempdir().unwrap();
    for name in PROFILE_FILES {
        let path = directory.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, "").unwrap();
    }
    for name in PROFILE_DIRECTORIES {
        std::fs::create_dir_all(directory.path().join(name)).unwrap();
    }
    let path = directory.path().join("profile.toml");
    std::fs::write(&path, text).unwrap();
    Profile::read(&path).map_err(|error| error.to_string())
}

/// The keys that a table takes, as the reader says them of one that it does not take.
fn keys(text: &str) -> Vec<String> {
    let said = profile(&format!("{text}no-such-key = 1\n")).unwrap_err();
    let (_, expected) = said.split_once("expected one of ").unwrap_or_else(|| panic!("{said}"));
    expected.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// Whether a key is an earlier name of another one: a table that has both has a key twice.
fn is_earlier_name(table: &str, key: &str, others: &[String]) -> bool {
    others.iter().filter(|other| *other != key).any(|other| {
        let both = profile(&format!("{table}{key} = 'overlay'\n{other} = 'overlay'\n"));
        both.is_err_and(|said| said.contains(&format!("duplicate field `{other}`")))
    })
}

/// The keys that a profile has, each with its table's line as [`keys`] takes it; a table is a key of the root besides.
fn shown(text: &str) -> BTreeSet<(String, String)> {
    let (mut table, mut shown) = (String::new(), BTreeSet::new());
    for line in text.lines() {
        if line.starts_with('[') {
            let head = line.split('#').next().unwrap().trim_end();
            table = format!("{head}\n");
            shown.insert((String::new(), head.trim_matches(['[', ']']).to_owned()));
        } else if let Some((key, _)) = line.split_once(" = ").filter(|_| !line.starts_with('#')) {
            shown.insert((table.clone(), key.to_owned()));
        }
    }
    shown
}

#[test]
fn keys_of_one_name_are_told_apart_by_table() {
    let found =
        shown("# a = 1\nconfig = \"[\"  # b = 2\n\n[kernel]    # another\npath = 1\n[[add]]\nto = 1\n");
    let wanted = [("", "add"), ("", "config"), ("", "kernel"), ("[[add]]\n", "to"), ("[kernel]\n", "path")];
    assert_eq!(found, wanted.map(|(table, key)| (table.to_owned(), key.to_owned())).into());
}

#[test]
fn every_profile_is_accepted_and_the_pages_name_every_key() {
    let blocks: Vec<Block> = all_blocks().into_iter().filter(|block| block.language == "toml").collect();
    let (mut named, mut renamed) = (BTreeSet::new(), 0);
    for block in &blocks {
        let read = profile(&block.text).unwrap_or_else(|error| panic!("{}: {error}", block.place));
        assert!(!read.is_empty(), "{} asks for nothing", block.place);
        named.append(&mut shown(&block.text));
        // What the test would be blind without.
        let other = block.text.replace("config-key = ", "configs-key = ");
        if other != block.text {
            assert!(profile(&other).unwrap_err().contains("unknown field `configs-key`"), "{}", block.place);
            renamed += 1;
        }
    }
    assert!(renamed > 0, "no page shows the key config-key");
    for table in ["", "[kernel]\n", "[[add]]\n"] {
        let keys = keys(table);
        assert!(keys.len() >= 3, "{table}: {keys:?}");
        for key in &keys {
            let is_named = named.contains(&(table.to_owned(), key.clone()));
            assert!(
                is_named || is_earlier_name(table, key, &keys),
                "no page shows the key {key} of a profile{}",
                table.trim_end()
            );
        }
    }
}

/// Those of the guides are in the pages, and the pages have no others; `distribution` is the tests' own.
#[test]
fn every_dockerfile_is_one_that_the_tests_build() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/dockerfiles");
    let file = |guide: &str| std::fs::read_to_string(directory.join(guide).join("Dockerfile")).unwrap();
    let mut guides: BTreeMap<String, &str> = ["kernel", "rootfs"].map(|guide| (file(guide), guide)).into();
    for block in all_blocks().into_iter().filter(|block| block.language == "dockerfile") {
        let known = guides.remove(&block.text);
        let Block { place, text, .. } = block;
        assert!(
            known.is_some(),
            "{place}: no directory of {} has this Dockerfile:\n{text}",
            directory.display()
        );
    }
    assert!(guides.is_empty(), "in no page, or not like this: {guides:?}");
}
