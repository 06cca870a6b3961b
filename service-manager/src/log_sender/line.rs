//! A line of a log as the JSON object that receivers get.
//!
//! Owns: the fields `msg`, `talos-level`, `talos-service`, `talos-time`; for the kernel `clock`, `facility`,
//! `priority`, `seq` instead of the service; and the tags of the config, which never replace one of these.

use std::collections::BTreeMap;

use jiff::Timestamp;
use ondisk::kmsg::Record;
use runtime::clock;
use runtime::kmsg;
use serde_json::{Map, Value};

pub(super) type Tags = BTreeMap<String, String>;

fn object(tags: &Tags, fields: Vec<(&str, Value)>) -> Vec<u8> {
    let mut all: Map<String, Value> =
        tags.iter().map(|(name, value)| (name.clone(), Value::from(value.as_str()))).collect();
    all.extend(fields.into_iter().map(|(name, value)| (name.to_owned(), value)));
    Value::Object(all).to_string().into_bytes()
}

/// A line of a service. Those of machined begin with their time, all others get the time of now.
pub(super) fn of_service(service: &str, text: &str, tags: &Tags) -> Vec<u8> {
    let stamped =
        text.split_once(' ').and_then(|(stamp, rest)| Some((stamp.parse::<Timestamp>().ok()?, rest)));
    let (time, text) = match stamped {
        Some((time, rest)) if service == "machined" => (time, rest),
        _ => (clock::now(), text),
    };
    message(service, "info", time, text, tags)
}

/// That lines are missing.
pub(super) fn of_loss(service: &str, lost: u64, tags: &Tags) -> Vec<u8> {
    let text = format!("{lost} log lines before this one were dropped");
    message(service, "warn", clock::now(), &text, tags)
}

fn message(service: &str, level: &str, time: Timestamp, text: &str, tags: &Tags) -> Vec<u8> {
    object(
        tags,
        vec![
            ("msg", text.into()),
            ("talos-level", level.into()),
            ("talos-service", service.into()),
            ("talos-time", time.to_string().into()),
        ],
    )
}

/// A record of the kernel's log.
pub(super) fn of_kernel(record: &Record<'_>, tags: &Tags) -> Vec<u8> {
    let level = match record.priority() {
        0..=3 => "error",
        4 => "warn",
        5 | 6 => "info",
        _ => "debug",
    };
    object(
        tags,
        vec![
            ("clock", record.stamp_us.into()),
            ("facility", kmsg::facility_name(record.prefix).into()),
            ("msg", record.text.into()),
            ("priority", kmsg::priority_name(record.prefix).into()),
            ("seq", record.sequence.into()),
            ("talos-level", level.into()),
            ("talos-time", clock::at_boot_us(record.stamp_us).to_string().into()),
        ],
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &[u8]) -> Value {
        serde_json::from_slice(line).unwrap()
    }

    #[test]
    fn a_service_s_line_has_the_four_fields_and_the_tags() {
        let tags =
            Tags::from([("server".to_owned(), "s03".to_owned()), ("msg".to_owned(), "mine".to_owned())]);
        let line = read(&of_service("apid", "a \"quoted\" text", &tags));
        assert_eq!(line["msg"], "a \"quoted\" text", "a tag replaces no field");
        assert_eq!((&line["talos-level"], &line["talos-service"]), (&"info".into(), &"apid".into()));
        assert_eq!(line["server"], "s03");
        assert!(line["talos-time"].as_str().unwrap().parse::<Timestamp>().is_ok());
    }

    #[test]
    fn machined_s_own_stamp_is_the_time() {
        let line = read(&of_service("machined", "2026-01-02T03:04:05.5Z said it", &Tags::new()));
        assert_eq!(
            (&line["msg"], &line["talos-time"]),
            (&"said it".into(), &"2026-01-02T03:04:05.5Z".into())
        );
        let other = read(&of_service("cri", "2026-01-02T03:04:05Z said it", &Tags::new()));
        assert_eq!(other["msg"], "2026-01-02T03:04:05Z said it");
    }

    #[test]
    fn a_record_of_the_kernel_has_its_own_fields() {
        let record = Record::parse(b"12,711,6252819,-;hello").unwrap();
        let line = read(&of_kernel(&record, &Tags::new()));
        assert_eq!((&line["seq"], &line["clock"]), (&711.into(), &6_252_819.into()));
        assert_eq!((&line["facility"], &line["priority"]), (&"user".into(), &"warning".into()));
        assert_eq!((&line["talos-level"], &line["msg"]), (&"warn".into(), &"hello".into()));
        assert!(line.get("talos-service").is_none());
    }
}
