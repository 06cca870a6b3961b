//! `pcap`: packets of a network interface of the node.
//!
//! Owns: the flags, the filter, where the capture goes. Source: docs/users/network.md.

mod packet;

use super::events::duration;
use crate::{output, session::Session};
use anyhow::{Context, Result};
use api::{
    client,
    proto::machine::{BpfInstruction, PacketCaptureRequest},
};
use std::{fs::File, io::Write, path::PathBuf, time::Duration};
use tokio::time::timeout;

#[derive(Debug, clap::Args)]
pub(crate) struct Flags {
    /// Interface to listen at
    #[arg(short, long, default_value = "eth0")]
    interface: String,
    /// Packets for others too
    #[arg(long)]
    promiscuous: bool,
    /// Bytes of each packet to keep
    #[arg(short, long, default_value_t = 4096, value_name = "BYTES")]
    snaplen: u32,
    /// End after this time
    #[arg(long, value_parser = duration, value_name = "TIME")]
    duration: Option<Duration>,
    /// Only packets that this program lets through, as `tcpdump -dd` prints it
    #[arg(long, value_parser = filter, value_name = "PROGRAM")]
    bpf_filter: Option<Filter>,
}

/// A filter program.
#[derive(Debug, Clone, PartialEq)]
struct Filter(Vec<BpfInstruction>);

/// `{ 0x28, 0, 0, 0x0000000c },` a line.
fn filter(text: &str) -> Result<Filter, String> {
    let number = |word: &str| match word.trim().strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => word.trim().parse().ok(),
    };
    let instruction = |line: &str| {
        let numbers: Vec<_> = line.split(',').map(number).collect::<Option<_>>()?;
        let [op, jt, jf, k] = numbers.try_into().ok()?;
        Some(BpfInstruction { op, jt, jf, k })
    };
    let lines = text.split('{').skip(1).map(|l| l.split('}').next().unwrap_or_default());
    let program: Option<Vec<_>> = lines.map(instruction).collect();
    let wrong = || "not a filter program; give what `tcpdump -dd EXPRESSION` prints".to_owned();
    program.filter(|p| !p.is_empty()).map(Filter).ok_or_else(wrong)
}

pub(crate) async fn run(session: &Session, flags: Flags) -> Result<()> {
    let node = session.single_node("pcap")?;
    let request = PacketCaptureRequest {
        interface: flags.interface,
        promiscuous: flags.promiscuous,
        snap_len: flags.snaplen,
        bpf_filter: flags.bpf_filter.map(|f| f.0).unwrap_or_default(),
    };
    let stream = session.client.machine().packet_capture(client::to_nodes(request, node.as_slice())).await;
    let target = session.global.output_word.as_deref();
    let mut file = target.filter(|t| *t != "-").map(PathBuf::from).map(create).transpose()?;
    let mut reader = packet::Reader::default();
    let capturing = session.each(stream, |_, data| match (&mut file, target) {
        (Some(file), _) => file.write_all(&data.bytes).context("write the capture"),
        (None, Some(_)) => Ok(output::print(&data.bytes)?),
        (None, None) => Ok(output::print(reader.push(&data.bytes)?)?),
    });
    match flags.duration {
        // The time is what the user asked for; its end is no error.
        Some(time) => timeout(time, capturing).await.unwrap_or(Ok(())),
        None => capturing.await,
    }
}

fn create(path: PathBuf) -> Result<File> {
    File::create(&path).with_context(|| format!("create {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_as_tcpdump_prints_them() {
        let program = filter("{ 0x28, 0, 0, 0x0000000c },\n{ 0x15, 0, 3, 0x86dd },\n").unwrap();
        assert_eq!(program.0[1], BpfInstruction { op: 0x15, jt: 0, jf: 3, k: 0x86dd });
        assert_eq!(program.0.len(), 2);
        for wrong in ["", "tcp", "{ 1, 2, 3 }", "{ 1, 2, 3, x }"] {
            assert!(filter(wrong).is_err(), "{wrong}");
        }
    }
}
