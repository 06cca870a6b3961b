//! Values against the published schema: what a published pattern takes is taken, what it refuses is refused, and a required field
//! that is absent is named.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::collections::BTreeSet;

use common::places::{Place, places};
use common::published::{Published, Sheet, entry, sheet};
use config::{Diagnostic, Mode, load, schema::Shape};
use regex::Regex;

/// By pattern: values that it takes, and values that it refuses.
const VALUES: &[(&str, &[&str], &[&str])] = &[
    ("^[0-9a-f:]+$", &["02:00:00:00:00:01"], &["02-00-00-00-00-01", "card"]),
    ("^[0-9a-f.:]+$", &["10.0.0.1", "fd00::1"], &["10.0.0.1/24", "host"]),
    ("^([0-9a-fA-F]{2}(:[0-9a-fA-F]{2})+)$", &["00:01:0a:FF"], &["00", "0001", "zz:00", "00-01"]),
    (
        "^(tcp|udp)://",
        &["tcp://10.0.0.1:5000", "udp://10.0.0.1:5000"],
        &["http://10.0.0.1:5000", "10.0.0.1:5000"],
    ),
    (LENGTH, &["1h", "90m", "1h30m10.5s"], &["30", "soon", "1d", "1 h"]),
    (OTHER_LENGTH, &["1h", "90m", "1h30m10.5s"], &["30", "soon", "1d", "1 h"]),
    (
        "^(https|grpc)://",
        &["https://10.0.0.1:443", "grpc://10.0.0.1:443"],
        &["http://10.0.0.1:443", "10.0.0.1:443"],
    ),
    ("^(http|https)://", &["http://10.0.0.1/x", "https://10.0.0.1/x"], &["ftp://10.0.0.1/x", "10.0.0.1"]),
    ("^[0-9a-f.:]+/\\d{1,3}$", &["10.0.0.0/8", "fd00::/64"], &["10.0.0.0", "10.0.0.0/", "net/8"]),
    (
        "^([0-9a-f.:]+|\\[[0-9a-f:.]+\\]):\\d{1,5}$",
        &["10.0.0.1:51820", "\"[fd00::1]:51820\""],
        &["10.0.0.1", "host:51820"],
    ),
    ("^https://", &["https://10.0.0.1:6443"], &["http://10.0.0.1:6443", "10.0.0.1:6443"]),
    (
        "^(http|https|grpc)://",
        &["http://10.0.0.1:80", "https://10.0.0.1:443", "grpc://10.0.0.1:443"],
        &["tcp://10.0.0.1:80", "10.0.0.1:80"],
    ),
];

/// Of lengths of time.
const LENGTH: &str = r"^[-+]?(((\d+(\.\d*)?|\d*(\.\d+)+)([nuµm]?s|m|h))|0)+$";
const OTHER_LENGTH: &str = r"^[-+]?(((\d+(\.\d*)?|\.\d+|\d+)([nuµm]?s|m|h))|0)+$";

/// What is different, and why; `*` stands for any beginning. The test fails for one that is not listed and for a line that is no
/// difference any more.
const DIFFERENCES: &[(&str, &str)] = &[
    ("* hardwareAddr 02-00-00-00-00-01: is not published, and taken here", "clients' own reader takes both"),
    (
        "WireguardConfig peers[].endpoint host:51820: is not published, and taken here",
        "names are looked up, as in sections",
    ),
];

/// What is published of the field that this place is, or is an entry of.
fn published<'a>(sheet: &'a Sheet, place: &Place) -> Option<&'a Published> {
    let mut part = if place.kind.is_empty() { "v1alpha1.Config" } else { place.kind };
    let mut found = None;
    for name in place.fields() {
        let field = sheet.get(part)?.get(name)?;
        part = entry(&field.kind);
        found = Some(field);
    }
    found
}

/// What is wrong with the value that stands here, and nothing else.
fn faults(place: &Place, value: &str) -> Vec<String> {
    let text = place.text(value).text;
    let errors = match load(text.as_bytes()) {
        Ok(loaded) => loaded.validate(Mode::Metal).err(),
        Err(error) => Some(error),
    };
    let errors = errors.map(|error| error.0).unwrap_or_default();
    errors.iter().filter(|error| error.path == place.path()).map(ToString::to_string).collect()
}

/// Compares what was found with the list.
fn compare(found: &BTreeSet<String>, listed: &[(&str, &str)]) {
    let is = |listed: &str, found: &str| match listed.strip_prefix('*') {
        Some(end) => found.ends_with(end),
        None => found == listed,
    };
    let new: Vec<_> =
        found.iter().filter(|found| !listed.iter().any(|(listed, _)| is(listed, found))).collect();
    let gone: Vec<_> = listed
        .iter()
        .map(|(listed, _)| *listed)
        .filter(|listed| !found.iter().any(|found| is(listed, found)))
        .collect();
    assert!(new.is_empty() && gone.is_empty(), "not listed: {new:#?}; no difference any more: {gone:#?}");
    assert!(listed.iter().all(|(_, why)| !why.is_empty()));
}

#[test]
fn what_a_published_pattern_takes_is_taken_and_what_it_refuses_is_refused() {
    let sheet = sheet();
    let mut seen = BTreeSet::new();
    let mut found = BTreeSet::new();
    for place in places().iter().filter(|place| matches!(place.shape, Shape::Single(..) | Shape::Choice(_))) {
        let Some(pattern) = published(&sheet, place).and_then(|field| field.pattern.as_deref()) else {
            continue;
        };
        let (_, taken, refused) = *VALUES.iter().find(|row| row.0 == pattern).unwrap_or_else(|| {
            panic!("{}: a new pattern, {pattern}: say here what it takes and refuses", place.name())
        });
        seen.insert(pattern);
        for value in taken {
            if let Some(fault) = faults(place, value).first() {
                found.insert(format!("{} {value}: is published, and refused here: {fault}", place.name()));
            }
        }
        for value in refused.iter().filter(|value| faults(place, value).is_empty()) {
            found.insert(format!("{} {value}: is not published, and taken here", place.name()));
        }
    }
    let patterns: BTreeSet<_> = VALUES.iter().map(|row| row.0).collect();
    assert_eq!(seen, patterns, "a pattern that no field has");
    compare(&found, DIFFERENCES);
}

#[test]
fn the_values_are_those_of_their_pattern() {
    for (pattern, taken, refused) in VALUES {
        // The library is built without Unicode's tables.
        let pattern = Regex::new(&pattern.replace(r"\d", "[0-9]")).unwrap();
        for value in *taken {
            assert!(pattern.is_match(value.trim_matches('"')), "{pattern} does not take {value}");
        }
        for value in *refused {
            assert!(!pattern.is_match(value), "{pattern} takes {value}");
        }
    }
}

/// Required fields that may be absent here, and why.
const OPTIONAL: &[(&str, &str)] = &[
    (
        "BondConfig bondMode: balance-rr|active-backup|balance-xor|broadcast|802.3ad|balance-tlb|balance-alb",
        "balance-rr, as the kernel and sections have it",
    ),
    ("BridgeConfig links: string[]", "a bridge of virtual machines begins without a link"),
    ("VRFConfig links: string[]", "its links may come later"),
];

#[test]
fn a_required_field_that_is_absent_is_named() {
    let sheet = sheet();
    let places = places();
    let mut found = BTreeSet::new();
    let mut tried = 0;
    // The section around each required field, empty.
    for place in &places {
        let Some(field) = published(&sheet, place).filter(|field| field.required && place.field.is_some())
        else {
            continue;
        };
        tried += 1;
        let path = place.path();
        let text = match path.rsplit_once('.') {
            None => {
                format!("version: v1alpha1\nmachine: {{}}\n---\napiVersion: v1alpha1\nkind: {}\n", place.kind)
            }
            Some((around, _)) => {
                let around =
                    places.iter().find(|other| other.kind == place.kind && other.path() == around).unwrap();
                around.text("{}").text
            }
        };
        let errors = match load(text.as_bytes()) {
            Ok(loaded) => loaded.validate(Mode::Metal).err(),
            Err(error) => Some(error),
        };
        let errors = errors.map(|error| error.0).unwrap_or_default();
        let name = place.fields().pop().unwrap();
        let inside = format!("{path}.");
        let names = |error: &Diagnostic| {
            error.path == path || error.path.starts_with(&inside) || error.message.contains(name)
        };
        let is_named = errors.iter().any(names);
        if !is_named {
            found.insert(format!("{}: {}", place.name(), field.kind));
        }
    }
    assert!(tried > 60, "{tried}");
    compare(&found, OPTIONAL);
}
