//! What the users' pages tell people to type: commands that billetctl understands, configuration that it accepts.
//!
//! Does not: run the commands; `qemu-tests` does so for docs/users/first-node.md.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const PROGRAM: &str = env!("CARGO_BIN_EXE_billetctl");

/// A fenced block: its place, its language, its text.
struct Block {
    place: String,
    language: String,
    text: String,
}

fn pages() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let folder = std::fs::read_dir(root.join("docs/users")).unwrap();
    let pages =
        folder.map(|entry| entry.unwrap().path()).filter(|path| path.extension().is_some_and(|e| e == "md"));
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
