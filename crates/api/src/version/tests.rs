//! The tag under the rules by which clients read it, each written from its source.

use std::cmp::Ordering;

use super::*;

/// A pre-release identifier, ordered as semver.org §11.4 has it: numbers before words.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Identifier {
    Number(u64),
    Word(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Version {
    core: Vec<u64>,
    pre: Vec<Identifier>,
}

impl Version {
    /// Build metadata has no rank. A version without pre-release is above the same with one.
    fn compare(&self, other: &Self) -> Ordering {
        let released = |version: &Self| version.pre.is_empty();
        let core = self.core.cmp(&other.core);
        core.then(released(self).cmp(&released(other))).then(self.pre.cmp(&other.pre))
    }
}

fn identifiers(text: &str) -> Option<Vec<Identifier>> {
    let word = |word: &str| {
        let fine = !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
        fine.then(|| word.parse().map_or_else(|_| Identifier::Word(word.to_owned()), Identifier::Number))
    };
    text.split('.').map(word).collect()
}

/// blang/semver `ParseTolerant`, the parser of talosctl since v1.13: a leading v, three numbers, pre-release behind the
/// first `-`, build metadata behind the first `+`, no empty identifier.
fn tolerant(tag: &str) -> Option<Version> {
    let text = tag.trim();
    let text = text.strip_prefix('v').unwrap_or(text);
    let (text, build) = text.split_once('+').map_or((text, None), |(text, build)| (text, Some(build)));
    if let Some(build) = build {
        identifiers(build)?;
    }
    let (numbers, pre) = text.split_once('-').map_or((text, None), |(text, pre)| (text, Some(pre)));
    let core: Vec<u64> = numbers.split('.').map(|n| n.parse().ok()).collect::<Option<_>>()?;
    let pre = pre.map_or(Some(Vec::new()), identifiers)?;
    (core.len() == 3).then_some(Version { core, pre })
}

/// hashicorp/go-version, the parser of older talosctl and of Terraform's provider: any count of numbers, a pre-release that
/// may begin without `-`, and `~` in words.
fn hashicorp(tag: &str) -> Option<Version> {
    let text = tag.strip_prefix('v').unwrap_or(tag);
    let (text, build) = text.split_once('+').map_or((text, None), |(text, build)| (text, Some(build)));
    let word =
        |word: &str| !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric() || "-~".contains(c));
    if build.is_some_and(|build| !build.split('.').all(word)) {
        return None;
    }
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (numbers, pre) = text.split_at(end);
    let mut core: Vec<u64> = numbers.split('.').map(|n| n.parse().ok()).collect::<Option<_>>()?;
    core.resize(core.len().max(3), 0);
    let pre = pre.strip_prefix('-').unwrap_or(pre);
    let pre = if pre.is_empty() { Vec::new() } else { identifiers(pre)? };
    Some(Version { core, pre })
}

type Parser = fn(&str) -> Option<Version>;
const PARSERS: [Parser; 2] = [tolerant, hashicorp];

/// `server version … is older than client version …`, which both generations' `ClientVersionCheck` prints.
fn is_older(parse: Parser, server: &str, client: &str) -> Option<bool> {
    Some(parse(server)?.compare(&parse(client)?) == Ordering::Less)
}

/// The range in which `talosctl upgrade` takes the image and lifecycle services.
fn has_lifecycle_service(server: &str) -> bool {
    let (from, below) = (tolerant("1.13.0-alpha.2").unwrap(), tolerant("2.0.0").unwrap());
    tolerant(server).is_some_and(|version| {
        version.compare(&from) == Ordering::Greater && version.compare(&below) == Ordering::Less
    })
}

/// `upgrade-k8s`: the versions that a client of this minor version has Kubernetes ranges for begin at 1.2.
fn is_known_to_upgrade_k8s(server: &str, client_minor: u64) -> bool {
    tolerant(server).is_some_and(|v| v.core[0] == 1 && (2..=client_minor).contains(&v.core[1]))
}

/// `^v(\d+)\.(\d+)($|\.)`, by which `gen config --talos-version` and providers read a tag.
fn contract(tag: &str) -> Option<(u64, u64)> {
    let mut parts = tag.strip_prefix('v')?.splitn(3, '.');
    let number = |text: Option<&str>| text?.parse().ok();
    Some((number(parts.next())?, number(parts.next())?))
}

/// A constraint `>= minimum` of Masterminds/semver or node-semver: a pre-release never fits one that has none.
fn fits_constraint(tag: &str, minimum: &str) -> bool {
    tolerant(tag).is_some_and(|v| v.pre.is_empty() && v.compare(&tolerant(minimum).unwrap()).is_ge())
}

#[test]
fn the_tag_names_the_interface_and_billet() {
    assert_eq!(tag("0.1.0"), "v1.13.9+billet.0.1.0");
    assert_eq!(tag("v0.1.0"), tag("0.1.0"));
    assert_eq!(own(&tag("0.2.0-rc.1")), Some("0.2.0-rc.1"));
    for other in ["v1.13.9", "v1.13.9+dirty", "v1.13.9+billetx.1", "v0.1.0", ""] {
        assert_eq!(own(other), None, "{other}");
    }
}

#[test]
fn clients_up_to_the_interface_s_version_do_not_call_the_node_older() {
    let server = tag(env!("CARGO_PKG_VERSION"));
    for parse in PARSERS {
        for client in ["v0.9.3", "v1.12.4", "v1.13.0", "v1.13.8", "v1.13.9", "v1.13.9-4-gabcdef0-dirty"] {
            assert_eq!(is_older(parse, &server, client), Some(false), "{client}");
        }
        // What a client of a newer minor version says of v1.13.9 as well, and rightly.
        assert_eq!(is_older(parse, &server, "v1.14.0"), Some(true));
        assert_eq!(is_older(parse, &server, "v1.14.0-rc.1"), Some(true));
    }
}

#[test]
fn upgrades_take_the_services_of_their_generation() {
    assert!(has_lifecycle_service(&tag("0.1.0")));
    for client_minor in [13, 14] {
        assert!(is_known_to_upgrade_k8s(&tag("0.1.0"), client_minor));
    }
}

#[test]
fn other_readers_find_the_interface_too() {
    assert_eq!(contract(&tag("0.1.0")), Some((1, 13)));
    assert!(fits_constraint(&tag("0.1.0"), "1.13.0"));
    assert_eq!(tag("0.1.0").parse(), Ok(crate::generate::Contract::NEWEST));
}

/// The two forms that were considered fail by the same rules.
#[test]
fn the_rules_refuse_the_tags_that_clients_refuse() {
    for parse in PARSERS {
        assert_eq!(is_older(parse, "v0.1.0", "v1.13.9"), Some(true));
        assert_eq!(is_older(parse, "v1.13.9-billet.0.1.0", "v1.13.9"), Some(true));
        assert_eq!(is_older(parse, "v1.13.9+billet..1", "v1.13.9"), None);
    }
    assert!(!has_lifecycle_service("v0.1.0") && !is_known_to_upgrade_k8s("v0.1.0", 13));
    assert!(!fits_constraint("v1.13.9-billet.0.1.0", "1.13.0"));
    // A v1.14 that a client of v1.13 has no ranges for.
    assert!(!is_known_to_upgrade_k8s("v1.14.0+billet.0.1.0", 13));
}

#[test]
fn whatever_the_version_is_clients_can_read_the_tag() {
    let versions =
        ["", ".", "1..2", "1.2.3+dirty", "a b", "ü", "0.1.0-rc.1", "v", "1.0\n", "-", "+", "1.0~x"];
    for version in versions {
        let tag = tag(version);
        for parse in PARSERS {
            assert_eq!(is_older(parse, &tag, "v1.13.9"), Some(false), "{version:?}: {tag:?}");
        }
        assert!(tag.starts_with("v1.13.9+billet"), "{tag:?}");
    }
}
