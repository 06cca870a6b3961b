//! `hostname`: the node's name.

use crate::{
    output::{self, Table},
    session::Session,
};
use anyhow::Result;

pub(crate) async fn run(session: &Session) -> Result<()> {
    let response = session.client.machine().hostname(session.request(())).await;
    let mut table = Table::new(&[("NODE", "node"), ("HOSTNAME", "hostname")]);
    for (node, answer) in session.answers(response, |r| r.messages)? {
        table.push(vec![node.into(), answer.hostname.into()]);
    }
    output::print_table(&table, session.global.output)
}
