//! `events`: what happens on the node.

use crate::{
    output::{self, Format, StreamTable},
    session::Session,
};
use anyhow::{Context, Result, bail};
use api::{
    event::Payload,
    proto::machine::{
        Event, EventsRequest, machine_status_event::MachineStage, phase_event, sequence_event,
        service_state_event, task_event,
    },
};
use serde_json::json;
use std::time::Duration;

#[derive(Debug, clap::Args)]
pub(crate) struct Flags {
    /// The last events first; -1 for all that the node remembers
    #[arg(long, default_value_t = 0, allow_negative_numbers = true, value_name = "EVENTS")]
    tail: i32,
    /// Events of this long ago first: 30s, 10m, 1h
    #[arg(long, value_parser = duration, value_name = "TIME")]
    duration: Option<Duration>,
    /// Events after the one of this id first
    #[arg(long, value_name = "ID")]
    since: Option<String>,
    /// Only events of this actor
    #[arg(long, value_name = "ID")]
    actor_id: Option<String>,
}

/// A Go duration of whole units: `90`, `30s`, `1h30m`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("`{text}` is not a time; write 30s, 10m or 1h30m");
    if let Ok(seconds) = text.parse() {
        return Ok(Duration::from_secs(seconds));
    }
    let (mut total, mut digits) = (0_u64, String::new());
    for c in text.chars() {
        let unit = match c {
            '0'..='9' => {
                digits.push(c);
                continue;
            }
            'h' => 3600,
            'm' => 60,
            's' => 1,
            _ => return Err(wrong()),
        };
        let amount: u64 = std::mem::take(&mut digits).parse().map_err(|_| wrong())?;
        total = amount.checked_mul(unit).and_then(|s| total.checked_add(s)).ok_or_else(wrong)?;
    }
    if digits.is_empty() && !text.is_empty() { Ok(Duration::from_secs(total)) } else { Err(wrong()) }
}

pub(crate) async fn run(session: &Session, flags: Flags) -> Result<()> {
    let request = request(&flags)?;
    let stream = session.client.machine().events(session.request(request)).await;
    let mut table = StreamTable::with_widths(&[10, 20, 25, 20, 16]);
    if session.global.output == Format::Table {
        output::print(table.line(&["NODE", "ID", "EVENT", "ACTOR", "SOURCE", "MESSAGE"]))?;
    }
    session
        .each(stream, |node, event| {
            let Some(line) = described(&event)? else { return Ok(()) };
            let cells = [node, &event.id, line.kind, &event.actor_id, &line.source, &line.message];
            let text = match session.global.output {
                Format::Table => table.line(&cells),
                format => document(cells, format)?,
            };
            Ok(output::print(text)?)
        })
        .await
}

fn request(flags: &Flags) -> Result<EventsRequest> {
    let given = usize::from(flags.tail != 0)
        + usize::from(flags.duration.is_some())
        + usize::from(flags.since.is_some());
    if given > 1 {
        bail!("--tail, --duration and --since exclude each other");
    }
    let seconds = flags.duration.map_or(0, |d| d.as_secs());
    Ok(EventsRequest {
        tail_events: flags.tail,
        tail_id: flags.since.clone().unwrap_or_default(),
        tail_seconds: i32::try_from(seconds).context("--duration is too long")?,
        with_actor_id: flags.actor_id.clone().unwrap_or_default(),
    })
}

fn document([node, id, event, actor, source, message]: [&str; 6], format: Format) -> Result<String> {
    let value =
        json!({"node": node, "id": id, "event": event, "actor": actor, "source": source, "message": message});
    match format {
        Format::Json => Ok(format!("{value}\n")),
        _ => Ok(format!("{}---\n", output::yaml(&value)?)),
    }
}

/// An event in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Line {
    /// Name of the payload's type.
    pub(crate) kind: &'static str,
    /// What it is about.
    pub(crate) source: String,
    /// What happened.
    pub(crate) message: String,
}

/// `None` for the empty event that begins a stream and for types that are not known here.
pub(crate) fn described(event: &Event) -> Result<Option<Line>> {
    let Some(data) = &event.data else { return Ok(None) };
    let payload = Payload::unpack(data).with_context(|| format!("event {}", event.id))?;
    Ok(payload.as_ref().map(words))
}

fn words(payload: &Payload) -> Line {
    let line = |kind, source: &str, message: String| Line { kind, source: source.to_owned(), message };
    match payload {
        Payload::Sequence(e) => {
            let action = sequence_event::Action::try_from(e.action).map_or("?", |a| a.as_str_name());
            let message = e
                .error
                .as_ref()
                .map_or_else(|| action.to_owned(), |error| format!("error: {}", error.message));
            line("machine.SequenceEvent", &e.sequence, message)
        }
        Payload::Phase(e) => {
            let action = phase_event::Action::try_from(e.action).map_or("?", |a| a.as_str_name());
            line("machine.PhaseEvent", &e.phase, action.to_owned())
        }
        Payload::Task(e) => {
            let action = task_event::Action::try_from(e.action).map_or("?", |a| a.as_str_name());
            line("machine.TaskEvent", &e.task, action.to_owned())
        }
        Payload::ServiceState(e) => {
            let action = service_state_event::Action::try_from(e.action).map_or("?", |a| a.as_str_name());
            line("machine.ServiceStateEvent", &e.service, format!("{action}: {}", e.message))
        }
        Payload::ConfigLoadError(e) => line("machine.ConfigLoadErrorEvent", "error", e.error.clone()),
        Payload::ConfigValidationError(e) => {
            line("machine.ConfigValidationErrorEvent", "error", e.error.clone())
        }
        Payload::Address(e) => {
            line("machine.AddressEvent", &e.hostname, format!("ADDRESSES: {}", e.addresses.join(",")))
        }
        Payload::MachineStatus(e) => {
            let stage = MachineStage::try_from(e.stage).map_or("?", |s| s.as_str_name());
            let status = e.status.clone().unwrap_or_default();
            let unmet: Vec<_> = status.unmet_conditions.iter().map(|c| c.name.as_str()).collect();
            line(
                "machine.MachineStatusEvent",
                stage,
                format!("ready: {}, unmet conditions: [{}]", status.ready, unmet.join(" ")),
            )
        }
        Payload::Restart(e) => line("machine.RestartEvent", "restart", format!("cmd: {}", e.cmd)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::proto::{common::Error, machine};

    fn flags(tail: i32, duration: Option<u64>, since: Option<&str>) -> Flags {
        Flags {
            tail,
            duration: duration.map(Duration::from_secs),
            since: since.map(str::to_owned),
            actor_id: None,
        }
    }

    #[test]
    fn one_way_to_look_back() {
        assert_eq!(request(&flags(-1, None, None)).unwrap().tail_events, -1);
        assert_eq!(request(&flags(0, Some(600), None)).unwrap().tail_seconds, 600);
        assert!(request(&flags(1, Some(600), None)).is_err());
        assert!(request(&flags(0, Some(u64::MAX), None)).is_err());
    }

    #[test]
    fn durations() {
        for (text, seconds) in [("90", 90), ("30s", 30), ("10m", 600), ("1h30m", 5400), ("0s", 0)] {
            assert_eq!(duration(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for wrong in ["", "x", "1d", "m", "10m5", "-1s", "99999999999999999999s"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn events_in_words() {
        let described = |payload: Payload| {
            let event = Event { data: Some(payload.pack()), ..Event::default() };
            let line = described(&event).unwrap().unwrap();
            format!("{} {} {}", line.kind, line.source, line.message)
        };
        let error = Some(Error { message: "sequence failed: x".into(), ..Default::default() });
        let sequence = machine::SequenceEvent { sequence: "boot".into(), action: 0, error };
        assert_eq!(
            described(Payload::Sequence(sequence)),
            "machine.SequenceEvent boot error: sequence failed: x"
        );
        let task = machine::TaskEvent { task: "startServices".into(), action: 1 };
        assert_eq!(described(Payload::Task(task)), "machine.TaskEvent startServices STOP");
        let state = machine::ServiceStateEvent {
            service: "apid".into(),
            action: 3,
            message: "up".into(),
            health: None,
        };
        assert_eq!(described(Payload::ServiceState(state)), "machine.ServiceStateEvent apid RUNNING: up");
    }

    #[test]
    fn the_empty_first_event_is_no_line() {
        assert_eq!(described(&Event::default()).unwrap(), None);
    }
}
