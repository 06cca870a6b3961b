//! `interfaces` and `routes`, as the first client generation prints them.
//!
//! Source: docs/users/commands.md. `get links`, `get addresses` and `get routes` are
//! what the current generation has instead.

use crate::{
    output::{self, Cell, Table},
    session::Session,
};
use anyhow::Result;
use api::proto::network::{Interfaces, Routes, network_service_client::NetworkServiceClient};

pub(crate) async fn interfaces(session: &Session) -> Result<()> {
    let mut client = NetworkServiceClient::new(session.client.channel());
    let answers = session.answers(client.interfaces(session.request(())).await, |r| r.messages)?;
    output::print_table(&interface_table(answers), session.global.output)
}

pub(crate) async fn routes(session: &Session) -> Result<()> {
    let mut client = NetworkServiceClient::new(session.client.channel());
    let answers = session.answers(client.routes(session.request(())).await, |r| r.messages)?;
    output::print_table(&route_table(answers), session.global.output)
}

/// One row an address.
fn interface_table(answers: Vec<(String, Interfaces)>) -> Table {
    let mut table = Table::new(&[
        ("NODE", "node"),
        ("INDEX", "index"),
        ("NAME", "name"),
        ("MAC", "mac"),
        ("MTU", "mtu"),
        ("ADDRESS", "address"),
    ]);
    for (node, answer) in answers {
        for link in answer.interfaces {
            for address in link.ipaddress {
                table.push(vec![
                    node.as_str().into(),
                    Cell::new(link.index.to_string(), link.index),
                    link.name.as_str().into(),
                    link.hardwareaddr.as_str().into(),
                    Cell::new(link.mtu.to_string(), link.mtu),
                    address.into(),
                ]);
            }
        }
    }
    table
}

fn route_table(answers: Vec<(String, Routes)>) -> Table {
    let mut table = Table::new(&[
        ("NODE", "node"),
        ("INTERFACE", "interface"),
        ("DESTINATION", "destination"),
        ("GATEWAY", "gateway"),
        ("METRIC", "metric"),
    ]);
    for (node, answer) in answers {
        for route in answer.routes {
            table.push(vec![
                node.as_str().into(),
                route.interface.into(),
                route.destination.into(),
                route.gateway.into(),
                Cell::new(route.metric.to_string(), route.metric),
            ]);
        }
    }
    table
}
