//! `mounts`: mounted file systems that have a size.

use crate::{
    output::{self, Cell, Table},
    session::Session,
};
use anyhow::Result;
use api::proto::machine::Mounts;

pub(crate) async fn run(session: &Session) -> Result<()> {
    let answers =
        session.answers(session.client.machine().mounts(session.request(())).await, |r| r.messages)?;
    output::print_table(&table(&answers), session.global.output)
}

pub(super) fn table(answers: &[(String, Mounts)]) -> Table {
    let mut table = Table::new(&[
        ("NODE", "node"),
        ("FILESYSTEM", "filesystem"),
        ("SIZE(GB)", "size"),
        ("USED(GB)", "used"),
        ("AVAILABLE(GB)", "available"),
        ("PERCENT USED", "percentUsed"),
        ("MOUNTED ON", "mountedOn"),
    ]);
    for (node, mounts) in answers {
        for stat in mounts.stats.iter().filter(|s| s.size > 0) {
            let used = stat.size.saturating_sub(stat.available);
            let percent = u128::from(used) * 10_000 / u128::from(stat.size);
            let percent_text = format!("{}.{:02}%", percent / 100, percent % 100);
            table.push(vec![
                node.as_str().into(),
                stat.filesystem.as_str().into(),
                Cell::new(gigabytes(stat.size), stat.size),
                Cell::new(gigabytes(used), used),
                Cell::new(gigabytes(stat.available), stat.available),
                percent_text.into(),
                stat.mounted_on.as_str().into(),
            ]);
        }
    }
    table
}

/// Billions of bytes with two decimals.
fn gigabytes(bytes: u64) -> String {
    let hundredths = (u128::from(bytes) + 5_000_000) / 10_000_000;
    format!("{}.{:02}", hundredths / 100, hundredths % 100)
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::proto::machine::MountStat;

    #[test]
    fn file_systems_without_a_size_are_left_out() {
        let stat = |filesystem: &str, size, available, on: &str| MountStat {
            filesystem: filesystem.into(),
            size,
            available,
            mounted_on: on.into(),
        };
        let stats = vec![stat("proc", 0, 0, "/proc"), stat("tmpfs", 2_004_000_000, 1_002_000_000, "/run")];
        assert_eq!(
            table(&[("n".into(), Mounts { metadata: None, stats })]).to_string(),
            "NODE   FILESYSTEM   SIZE(GB)   USED(GB)   AVAILABLE(GB)   PERCENT USED   MOUNTED ON\n\
             n      tmpfs        2.00       1.00       1.00            50.00%         /run\n"
        );
    }
}
