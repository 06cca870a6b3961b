//! `disks` and `wipe`: the node's block devices.

use crate::{
    output::{self, Cell, Table, bytes_si},
    session::Session,
};
use anyhow::Result;
use api::proto::storage::{
    BlockDeviceWipeDescriptor, BlockDeviceWipeRequest, Disks, block_device_wipe_descriptor::Method,
    disk::DiskType, storage_service_client::StorageServiceClient,
};
use clap::ValueEnum;
use tonic::transport::Channel;

#[derive(Debug, clap::Args)]
pub(crate) struct Flags {
    #[command(flatten)]
    pub(crate) maintenance: crate::session::Maintenance,
}

#[derive(Debug, clap::Subcommand)]
pub(crate) enum WipeCommand {
    /// Make block devices that no volume uses look empty
    Disk(WipeFlags),
}

#[derive(Debug, clap::Args)]
pub(crate) struct WipeFlags {
    /// Names without /dev/: sdb, nvme0n1p3
    #[arg(required = true)]
    devices: Vec<String>,
    /// FAST removes signatures, ZEROES writes every byte
    #[arg(long, value_enum, ignore_case = true, default_value = "FAST")]
    method: WipeMethod,
    /// Remove the partition from its table as well
    #[arg(long)]
    drop_partition: bool,
    /// Do not check whether a volume uses it
    #[arg(long, hide = true)]
    skip_volume_check: bool,
    /// Do not check whether another device is made of it
    #[arg(long, hide = true)]
    skip_secondary_check: bool,
    #[command(flatten)]
    pub(crate) maintenance: crate::session::Maintenance,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "UPPER")]
enum WipeMethod {
    Fast,
    Zeroes,
}

fn storage(session: &Session) -> StorageServiceClient<Channel> {
    StorageServiceClient::new(session.client.channel())
}

pub(crate) async fn run(session: &Session) -> Result<()> {
    let answers = session.answers(storage(session).disks(session.request(())).await, |r| r.messages)?;
    output::print_table(&table(answers), session.global.output)
}

pub(crate) async fn wipe(session: &Session, flags: WipeFlags) -> Result<()> {
    let method = match flags.method {
        WipeMethod::Fast => Method::Fast,
        WipeMethod::Zeroes => Method::Zeroes,
    };
    let devices = flags.devices.into_iter().map(|device| BlockDeviceWipeDescriptor {
        device,
        method: method.into(),
        skip_volume_check: flags.skip_volume_check,
        drop_partition: flags.drop_partition,
        skip_secondary_check: flags.skip_secondary_check,
    });
    let request = session.request(BlockDeviceWipeRequest { devices: devices.collect() });
    session.answers(storage(session).block_device_wipe(request).await, |r| r.messages).map(drop)
}

fn table(answers: Vec<(String, Disks)>) -> Table {
    let mut table = Table::new(&[
        ("NODE", "node"),
        ("DEV", "dev"),
        ("MODEL", "model"),
        ("SERIAL", "serial"),
        ("TYPE", "type"),
        ("UUID", "uuid"),
        ("WWID", "wwid"),
        ("MODALIAS", "modalias"),
        ("NAME", "name"),
        ("SIZE", "size"),
        ("BUS_PATH", "busPath"),
        ("SUBSYSTEM", "subsystem"),
        ("READ_ONLY", "readonly"),
        ("SYSTEM_DISK", "systemDisk"),
    ]);
    for (node, answer) in answers {
        for disk in answer.disks {
            let kind = DiskType::try_from(disk.r#type).unwrap_or(DiskType::Unknown).as_str_name();
            let known = |text: String| if text.is_empty() { Cell::new("-", "") } else { text.into() };
            let mark = |is: bool| Cell::new(if is { "*" } else { "" }, is);
            table.push(vec![
                node.as_str().into(),
                disk.device_name.into(),
                known(disk.model),
                known(disk.serial),
                kind.into(),
                known(disk.uuid),
                known(disk.wwid),
                known(disk.modalias),
                known(disk.name),
                Cell::new(bytes_si(disk.size), disk.size),
                known(disk.bus_path),
                known(disk.subsystem),
                mark(disk.readonly),
                mark(disk.system_disk),
            ]);
        }
    }
    table
}
