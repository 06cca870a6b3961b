//! `service`: all services, one, or an action on one.

use crate::{
    output::{self, Cell, Format, StreamTable, Table, go_duration},
    session::Session,
};
use anyhow::{Result, bail};
use api::proto::machine::{
    ServiceEvent, ServiceHealth, ServiceInfo, ServiceList, ServiceRestartRequest, ServiceStartRequest,
    ServiceStopRequest,
};
use clap::ValueEnum;
use prost_types::Timestamp;
use std::time::{Duration, SystemTime};

#[derive(Debug, clap::Args)]
pub(crate) struct Flags {
    /// Service; all if left out
    id: Option<String>,
    /// What to do with it
    #[arg(value_enum, default_value_t = Action::Status)]
    action: Action,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Action {
    Start,
    Stop,
    Restart,
    Status,
}

pub(crate) async fn run(session: &Session, flags: Flags) -> Result<()> {
    match (flags.id, flags.action) {
        (Some(id), Action::Status) => status(session, &id).await,
        (Some(id), action) => act(session, id, action).await,
        (None, _) => {
            let answers = services(session).await?;
            output::print_table(&table(&answers, SystemTime::now()), session.global.output)
        }
    }
}

async fn services(session: &Session) -> Result<Vec<(String, ServiceList)>> {
    session.answers(session.client.machine().service_list(session.request(())).await, |r| r.messages)
}

async fn status(session: &Session, id: &str) -> Result<()> {
    let answers = services(session).await?;
    let found: Vec<(String, ServiceInfo)> = answers
        .into_iter()
        .flat_map(|(node, list)| list.services.into_iter().map(move |s| (node.clone(), s)))
        .filter(|(_, service)| service.id == id)
        .collect();
    if found.is_empty() {
        bail!("service `{id}` is not known to the node; `billetctl services` lists them");
    }
    if session.global.output != Format::Table {
        let lists: Vec<_> = found.into_iter().map(|(node, s)| (node, list_of(s))).collect();
        return output::print_table(&table(&lists, SystemTime::now()), session.global.output);
    }
    for (node, service) in &found {
        output::print(sheet(node, service, SystemTime::now()))?;
    }
    Ok(())
}

fn list_of(service: ServiceInfo) -> ServiceList {
    ServiceList { metadata: None, services: vec![service] }
}

async fn act(session: &Session, id: String, action: Action) -> Result<()> {
    let mut machine = session.client.machine();
    let answers: Vec<(String, String)> = match action {
        Action::Start => {
            let response = machine.service_start(session.request(ServiceStartRequest { id })).await;
            session.answers(response, |r| r.messages)?.into_iter().map(|(n, a)| (n, a.resp)).collect()
        }
        Action::Stop => {
            let response = machine.service_stop(session.request(ServiceStopRequest { id })).await;
            session.answers(response, |r| r.messages)?.into_iter().map(|(n, a)| (n, a.resp)).collect()
        }
        Action::Restart | Action::Status => {
            let response = machine.service_restart(session.request(ServiceRestartRequest { id })).await;
            session.answers(response, |r| r.messages)?.into_iter().map(|(n, a)| (n, a.resp)).collect()
        }
    };
    let mut table = Table::new(&[("NODE", "node"), ("RESPONSE", "response")]);
    for (node, response) in answers {
        table.push(vec![node.into(), response.into()]);
    }
    output::print_table(&table, session.global.output)
}

fn table(answers: &[(String, ServiceList)], now: SystemTime) -> Table {
    let mut table = Table::new(&[
        ("NODE", "node"),
        ("SERVICE", "service"),
        ("STATE", "state"),
        ("HEALTH", "health"),
        ("LAST CHANGE", "lastChange"),
        ("LAST EVENT", "lastEvent"),
    ]);
    for (node, list) in answers {
        for service in &list.services {
            let last = events(service).last();
            let time = last.and_then(|e| e.ts);
            table.push(vec![
                node.as_str().into(),
                service.id.as_str().into(),
                service.state.as_str().into(),
                health(service.health.as_ref()).into(),
                Cell::new(ago(time, now), time.map_or_else(String::new, |t| t.to_string())),
                last.map_or("", |e| e.msg.as_str()).into(),
            ]);
        }
    }
    table
}

/// One service with its events, newest first.
fn sheet(node: &str, service: &ServiceInfo, now: SystemTime) -> String {
    let mut rows = vec![
        ("NODE", node.to_owned()),
        ("ID", service.id.clone()),
        ("STATE", service.state.clone()),
        ("HEALTH", health(service.health.as_ref()).to_owned()),
    ];
    if let Some(message) = service.health.as_ref().map(|h| &h.last_message).filter(|m| !m.is_empty()) {
        rows.push(("LAST HEALTH MESSAGE", message.clone()));
    }
    for (index, event) in events(service).iter().rev().enumerate() {
        let label = if index == 0 { "EVENTS" } else { "" };
        rows.push((label, format!("[{}]: {} ({})", event.state, event.msg, ago(event.ts, now))));
    }
    let widest = rows.iter().map(|(label, _)| label.len()).max().unwrap_or(0);
    let mut lines = StreamTable::with_widths(&[widest]);
    rows.iter().map(|(label, value)| lines.line(&[label, value.as_str()])).collect()
}

fn events(service: &ServiceInfo) -> &[ServiceEvent] {
    service.events.as_ref().map_or(&[], |e| e.events.as_slice())
}

fn health(health: Option<&ServiceHealth>) -> &'static str {
    match health {
        None => "?",
        Some(h) if h.unknown => "?",
        Some(h) if h.healthy => "OK",
        Some(_) => "Fail",
    }
}

fn ago(time: Option<Timestamp>, now: SystemTime) -> String {
    let then = time.and_then(|t| SystemTime::try_from(t).ok());
    let Some(then) = then else { return "?".to_owned() };
    // A node whose clock is ahead of ours changed "0s ago".
    format!("{} ago", go_duration(now.duration_since(then).unwrap_or(Duration::ZERO)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::proto::machine::ServiceEvents;

    fn at(seconds: i64) -> Option<Timestamp> {
        Some(Timestamp { seconds, nanos: 0 })
    }

    fn event(state: &str, msg: &str, seconds: i64) -> ServiceEvent {
        ServiceEvent { msg: msg.into(), state: state.into(), ts: at(seconds) }
    }

    fn apid() -> ServiceInfo {
        let events = vec![
            event("Waiting", "Waiting for service \"networkd\" to be \"up\"", 10),
            event("Running", "Health check successful", 97),
        ];
        let health =
            ServiceHealth { healthy: false, last_message: "dial failed".into(), ..Default::default() };
        ServiceInfo {
            id: "apid".into(),
            state: "Running".into(),
            events: Some(ServiceEvents { events }),
            health: Some(health),
        }
    }

    fn now() -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(100)
    }

    #[test]
    fn the_list() {
        let machined = ServiceInfo { id: "machined".into(), state: "Running".into(), ..Default::default() };
        let list = ServiceList { metadata: None, services: vec![apid(), machined] };
        assert_eq!(
            table(&[("10.0.0.1".into(), list)], now()).to_string(),
            "NODE       SERVICE    STATE     HEALTH   LAST CHANGE   LAST EVENT\n\
             10.0.0.1   apid       Running   Fail     3s ago        Health check successful\n\
             10.0.0.1   machined   Running   ?        ?\n"
        );
    }

    #[test]
    fn one_service() {
        assert_eq!(
            sheet("10.0.0.1", &apid(), now()),
            "NODE                  10.0.0.1\n\
             ID                    apid\n\
             STATE                 Running\n\
             HEALTH                Fail\n\
             LAST HEALTH MESSAGE   dial failed\n\
             EVENTS                [Running]: Health check successful (3s ago)\n                      \
             [Waiting]: Waiting for service \"networkd\" to be \"up\" (1m30s ago)\n"
        );
    }

    #[test]
    fn a_clock_ahead_of_ours_is_now() {
        assert_eq!(ago(at(200), now()), "0s ago");
    }
}
