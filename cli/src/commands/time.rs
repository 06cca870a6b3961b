//! `time`: the node's clock beside that of a time server.

use crate::{
    output::{self, Cell, Table},
    session::Session,
};
use anyhow::{Context, Result};
use api::proto::time::{TimeRequest, time_service_client::TimeServiceClient};
use jiff::{Timestamp, tz::TimeZone};

#[derive(Debug, clap::Args)]
pub(crate) struct Flags {
    /// Compare with this server instead of the node's own
    #[arg(short, long, value_name = "SERVER")]
    check: Option<String>,
}

pub(crate) async fn run(session: &Session, flags: Flags) -> Result<()> {
    let mut client = TimeServiceClient::new(session.client.channel());
    let response = match flags.check {
        Some(server) => client.time_check(session.request(TimeRequest { server })).await,
        None => client.time(session.request(())).await,
    };
    let mut table = Table::new(&[
        ("NODE", "node"),
        ("NTP-SERVER", "server"),
        ("NODE-TIME", "nodeTime"),
        ("NTP-SERVER-TIME", "serverTime"),
    ]);
    for (node, answer) in session.answers(response, |r| r.messages)? {
        let local = moment(answer.localtime).with_context(|| format!("the clock of {node}"))?;
        let remote =
            moment(answer.remotetime).with_context(|| format!("the server's time that {node} sent"))?;
        table.push(vec![node.into(), answer.server.into(), local, remote]);
    }
    output::print_table(&table, session.global.output)
}

/// As Go prints a UTC time.
fn moment(time: Option<prost_types::Timestamp>) -> Result<Cell> {
    let time = time.context("there is none in the answer")?;
    let time = Timestamp::new(time.seconds, time.nanos)?;
    let text = time.to_zoned(TimeZone::UTC).strftime("%Y-%m-%d %H:%M:%S%.f +0000 UTC").to_string();
    Ok(Cell::new(text, time.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_look_like_those_of_go() {
        let at = |nanos| moment(Some(prost_types::Timestamp { seconds: 0, nanos })).unwrap();
        assert_eq!(at(0), Cell::new("1970-01-01 00:00:00 +0000 UTC", "1970-01-01T00:00:00Z"));
        assert_eq!(at(120_000_000), Cell::new("1970-01-01 00:00:00.12 +0000 UTC", "1970-01-01T00:00:00.12Z"));
        assert!(moment(None).is_err());
    }
}
