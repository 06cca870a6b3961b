//! `logs`: what a service wrote.
//!
//! Owns: putting each node's bytes together to lines, so that lines of several nodes never mix.

use crate::{output, session::Session};
use anyhow::Result;
use api::proto::{common::ContainerDriver, machine::LogsRequest};
use std::collections::BTreeMap;

#[derive(Debug, clap::Args)]
pub(crate) struct Flags {
    /// Service, or container with --kubernetes
    id: String,
    /// A container of Kubernetes
    #[arg(short, long)]
    kubernetes: bool,
    /// Go on with what it writes next
    #[arg(short, long)]
    follow: bool,
    /// Only the last lines; -1 for all
    #[arg(long, default_value_t = -1, allow_negative_numbers = true, value_name = "LINES")]
    tail: i32,
}

pub(crate) async fn run(session: &Session, flags: Flags) -> Result<()> {
    let (namespace, driver) = namespace(flags.kubernetes);
    let request = LogsRequest {
        namespace: namespace.to_owned(),
        id: flags.id,
        driver: driver.into(),
        follow: flags.follow,
        tail_lines: flags.tail,
    };
    let stream = session.client.machine().logs(session.request(request)).await;
    let mut lines = Lines::default();
    let result = session.each(stream, |node, data| Ok(output::print(lines.push(node, &data.bytes))?)).await;
    output::print(lines.finish())?;
    result
}

/// Namespace and driver of `-k` and its absence.
fn namespace(kubernetes: bool) -> (&'static str, ContainerDriver) {
    if kubernetes { ("k8s.io", ContainerDriver::Cri) } else { ("system", ContainerDriver::Containerd) }
}

/// Bytes of several nodes on their way to lines.
#[derive(Default)]
struct Lines {
    unfinished: BTreeMap<String, Vec<u8>>,
}

impl Lines {
    /// The lines that `bytes` complete, each behind its node's name.
    fn push(&mut self, node: &str, bytes: &[u8]) -> Vec<u8> {
        let buffer = self.unfinished.entry(node.to_owned()).or_default();
        buffer.extend_from_slice(bytes);
        let end = buffer.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
        let rest = buffer.split_off(end);
        let complete = std::mem::replace(buffer, rest);
        prefixed(node, &complete)
    }

    /// What is left without a newline.
    fn finish(self) -> Vec<u8> {
        self.unfinished.iter().flat_map(|(node, rest)| prefixed(node, rest)).collect()
    }
}

fn prefixed(node: &str, bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    for line in bytes.split_inclusive(|b| *b == b'\n') {
        out.extend_from_slice(node.as_bytes());
        out.extend_from_slice(b": ");
        out.extend_from_slice(line);
        if !line.ends_with(b"\n") {
            out.push(b'\n');
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_several_nodes_do_not_mix() {
        let mut lines = Lines::default();
        assert_eq!(lines.push("a", b"one\ntw"), b"a: one\n");
        assert_eq!(lines.push("b", b"x\n\ny"), b"b: x\nb: \n");
        assert_eq!(lines.push("a", b"o\n"), b"a: two\n");
        assert_eq!(lines.push("a", b""), b"");
        assert_eq!(lines.finish(), b"b: y\n");
    }
}
