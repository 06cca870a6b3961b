//! `version`: of the client and of the nodes.

use crate::{
    global::Global,
    output::{self, Cell, Format, Table},
    session::Session,
};
use anyhow::Result;
use api::proto::machine::{Version, VersionInfo};
use api::version;
use std::fmt::Write;

#[derive(Debug, clap::Args)]
pub(crate) struct Flags {
    /// Tags only
    #[arg(long)]
    short: bool,
    /// The client's only; needs no node
    #[arg(long)]
    client: bool,
}

pub(crate) async fn run(global: &Global, flags: &Flags) -> Result<()> {
    if global.output == Format::Table {
        output::print(client_text(&ours(), flags.short))?;
    }
    let mut answers = Vec::new();
    if !flags.client {
        let session = Session::open(global).await?;
        answers =
            session.answers(session.client.machine().version(session.request(())).await, |r| r.messages)?;
    }
    match global.output {
        Format::Table if flags.client => Ok(()),
        Format::Table => Ok(output::print(server_text(&answers, flags.short))?),
        format => output::print_table(&table(&answers), format),
    }
}

fn ours() -> VersionInfo {
    VersionInfo {
        tag: version::tag(env!("CARGO_PKG_VERSION")),
        sha: option_env!("BILLET_SHA").unwrap_or_default().to_owned(),
        built: option_env!("BILLET_BUILT").unwrap_or_default().to_owned(),
        go_version: "none (Rust)".to_owned(),
        os: std::env::consts::OS.to_owned(),
        arch: go_arch(std::env::consts::ARCH).to_owned(),
    }
}

/// Go's names, which both sides print.
fn go_arch(arch: &'static str) -> &'static str {
    match arch {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn client_text(info: &VersionInfo, short: bool) -> String {
    if short { format!("Client {}\n", info.tag) } else { format!("Client:\n{}", block(None, info)) }
}

fn server_text(answers: &[(String, Version)], short: bool) -> String {
    let mut out = String::from("Server:\n");
    for (node, answer) in answers {
        let info = answer.version.clone().unwrap_or_default();
        if short {
            let _ = writeln!(out, "\tNODE:        {node}\n\tTag:         {}", info.tag);
            continue;
        }
        out.push_str(&block(Some(node), &info));
        if answer.features.as_ref().is_some_and(|f| f.rbac) {
            out.push_str("\tEnabled:     RBAC\n");
        }
    }
    out
}

fn block(node: Option<&str>, info: &VersionInfo) -> String {
    let platform = format!("{}/{}", info.os, info.arch);
    let node = node.map(|node| ("NODE:", node));
    let lines = [
        ("Tag:", info.tag.as_str()),
        ("SHA:", &info.sha),
        ("Built:", &info.built),
        ("Go version:", &info.go_version),
        ("OS/Arch:", &platform),
    ];
    node.into_iter().chain(lines).fold(String::new(), |mut out, (label, value)| {
        let _ = writeln!(out, "{}", format!("\t{label:13}{value}").trim_end());
        out
    })
}

fn table(answers: &[(String, Version)]) -> Table {
    let mut table = Table::new(&[
        ("SIDE", "side"),
        ("NODE", "node"),
        ("TAG", "tag"),
        ("BILLET", "billet"),
        ("SHA", "sha"),
        ("BUILT", "built"),
        ("OS", "os"),
        ("ARCH", "arch"),
        ("PLATFORM", "platform"),
        ("RBAC", "rbac"),
    ]);
    let row = |side: &str, node: &str, info: VersionInfo, platform: String, rbac: bool| {
        let billet = version::own(&info.tag).unwrap_or_default().to_owned();
        let whose = [side.to_owned(), node.to_owned()];
        let texts = [info.tag, billet, info.sha, info.built, info.os, info.arch, platform];
        whose.into_iter().chain(texts).map(Cell::from).chain([Cell::new(rbac.to_string(), rbac)]).collect()
    };
    table.push(row("client", "", ours(), String::new(), false));
    for (node, answer) in answers {
        let platform = answer.platform.clone().unwrap_or_default().name;
        let rbac = answer.features.as_ref().is_some_and(|f| f.rbac);
        table.push(row("server", node, answer.version.clone().unwrap_or_default(), platform, rbac));
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::proto::machine::FeaturesInfo;

    fn info() -> VersionInfo {
        VersionInfo {
            tag: "v1.0.0".into(),
            sha: "abc".into(),
            built: String::new(),
            go_version: "none".into(),
            os: "linux".into(),
            arch: "amd64".into(),
        }
    }

    #[test]
    fn blocks() {
        let lines = "\tTag:         v1.0.0\n\tSHA:         abc\n\tBuilt:\n\tGo version:  none\n\tOS/Arch:     linux/amd64\n";
        assert_eq!(client_text(&info(), false), format!("Client:\n{lines}"));
        let features = Some(FeaturesInfo { rbac: true });
        let answer = Version { version: Some(info()), features, ..Version::default() };
        assert_eq!(
            server_text(&[("10.0.0.1".into(), answer)], false),
            format!("Server:\n\tNODE:        10.0.0.1\n{lines}\tEnabled:     RBAC\n")
        );
    }

    /// Extensions for Talos are checked by the version that nodes say they serve.
    #[test]
    fn one_interface_is_served() {
        assert_eq!(installer::custom::INTERFACE, version::INTERFACE);
    }

    #[test]
    fn both_sides_say_which_billet_they_are() {
        let mut node = Version { version: Some(info()), ..Version::default() };
        node.version.as_mut().unwrap().tag = version::tag("0.2.0");
        let foreign = Version { version: Some(info()), ..Version::default() };
        let table = table(&[("a".into(), node), ("b".into(), foreign)]);
        let text = output::json(&table.to_value()).unwrap();
        for line in ["\"billet\": \"0.2.0\"", "\"billet\": \"\"", "\"tag\": \"v1.13.9+billet.0.2.0\""] {
            assert!(text.contains(line), "{text}");
        }
        assert!(text.contains(&format!("\"billet\": \"{}\"", env!("CARGO_PKG_VERSION"))), "{text}");
    }

    #[test]
    fn an_answer_without_version_is_no_crash() {
        assert_eq!(
            server_text(&[("n".into(), Version::default())], true),
            "Server:\n\tNODE:        n\n\tTag:         \n"
        );
    }
}
