//! `dmesg`: the kernel's log, of this boot and of earlier ones.
//!
//! Owns: `--boot`, which counts as journalctl does, and the list of boots: the resource
//! `EarlierBoots.runtime.billet.dev`.

use super::get;
use crate::{
    output::{self, Cell, Table},
    session::Session,
};
use anyhow::{Context, Result, bail};
use api::client;
use api::proto::billet::{EarlierDmesgRequest, machine_service_client::MachineServiceClient};
use api::proto::machine::DmesgRequest;
use serde::Deserialize;

const KIND: &str = "EarlierBoots.runtime.billet.dev";

/// The resource's spec, as far as the list shows it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct EarlierBoot {
    back: u32,
    version: String,
    slot: String,
    started: String,
    last_heard_of: String,
    stage: String,
    end: String,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Flags {
    /// Go on with what the kernel says next
    #[arg(short, long)]
    follow: bool,
    /// With --follow: only what the kernel says from now on
    #[arg(long)]
    tail: bool,
    /// Log of an earlier boot, from the node's flight recorder: -1 for the boot before this one
    #[arg(short, long, value_name = "-N", allow_negative_numbers = true, default_value_t = 0, conflicts_with_all = ["follow", "tail"])]
    boot: i32,
    /// Boots that the flight recorder knows, and how they ended
    #[arg(long, conflicts_with_all = ["follow", "tail", "boot"])]
    list_boots: bool,
}

pub(crate) async fn run(session: &Session, flags: &Flags) -> Result<()> {
    if flags.list_boots {
        return list_boots(session).await;
    }
    if flags.boot != 0 {
        return earlier(session, flags.boot).await;
    }
    let request = session.request(DmesgRequest { follow: flags.follow, tail: flags.tail });
    let stream = session.client.machine().dmesg(request).await;
    session.each(stream, |node, data| Ok(output::print(line(node, &data.bytes))?)).await
}

/// The log of a boot before this one, of one node after the other.
async fn earlier(session: &Session, boot: i32) -> Result<()> {
    if boot > 0 {
        bail!("--boot {boot}: 0 is this boot, -1 the one before it");
    }
    let back = boot.unsigned_abs();
    for node in session.each_node() {
        let name = session.name_of(node.as_deref()).to_owned();
        let failed = |status: tonic::Status| session.error(&status);
        let mut service = MachineServiceClient::new(session.client.channel());
        let request = client::to_node(EarlierDmesgRequest { back }, node.as_deref());
        let answer = service.earlier_dmesg(request).await.map_err(failed);
        let mut stream = answer.with_context(|| format!("log of boot {boot} of {name}"))?.into_inner();
        while let Some(data) = stream.message().await.map_err(failed)? {
            output::print(line(&name, &data.bytes))?;
        }
    }
    Ok(())
}

async fn list_boots(session: &Session) -> Result<()> {
    let mut table = Table::new(&[
        ("NODE", "node"),
        ("BOOT", "boot"),
        ("STARTED", "started"),
        ("LAST HEARD OF", "lastHeardOf"),
        ("SLOT", "slot"),
        ("RUNS", "version"),
        ("STAGE", "stage"),
        ("END", "end"),
    ]);
    for node in session.each_node() {
        let name = session.name_of(node.as_deref()).to_owned();
        let resources = get::fetch_all(session, node.as_deref(), KIND).await?;
        let specs = resources.iter().filter_map(|resource| resource.spec.as_ref());
        let read = |text: &str| serde_saphyr::from_str::<EarlierBoot>(text);
        let boots: Result<Vec<_>, _> = specs.map(|spec| read(&spec.yaml_spec)).collect();
        let mut boots = boots.with_context(|| format!("boots of {name}"))?;
        boots.sort_by_key(|boot| boot.back);
        boots.into_iter().for_each(|boot| table.push(row(&name, boot)));
    }
    output::print_table(&table, session.global.output)
}

fn row(node: &str, boot: EarlierBoot) -> Vec<Cell> {
    let back = -i64::from(boot.back);
    let EarlierBoot { version, slot, started, last_heard_of, stage, end, .. } = boot;
    let texts = [started, last_heard_of, slot, version, stage, end];
    [Cell::from(node), Cell::new(back.to_string(), back)].into_iter().chain(texts.map(Cell::from)).collect()
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
