//! `dmesg`: the kernel's log.

use crate::{output, session::Session};
use anyhow::Result;
use api::proto::machine::DmesgRequest;

#[derive(Debug, clap::Args)]
pub(crate) struct Flags {
    /// Go on with what the kernel says next
    #[arg(short, long)]
    follow: bool,
    /// With --follow: only what the kernel says from now on
    #[arg(long)]
    tail: bool,
}

pub(crate) async fn run(session: &Session, flags: &Flags) -> Result<()> {
    let request = session.request(DmesgRequest { follow: flags.follow, tail: flags.tail });
    let stream = session.client.machine().dmesg(request).await;
    session.each(stream, |node, data| Ok(output::print(line(node, &data.bytes))?)).await
}

/// Each message of the stream is one line that ends in a newline.
fn line(node: &str, bytes: &[u8]) -> String {
    format!("{node}: {}\n", String::from_utf8_lossy(bytes).trim_end_matches('\n'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_prefixed_with_its_node() {
        assert_eq!(line("10.0.0.1", b"kern:    info: [2026]: hi\n"), "10.0.0.1: kern:    info: [2026]: hi\n");
        assert_eq!(line("n", b"cut \xff"), "n: cut \u{fffd}\n");
    }
}
