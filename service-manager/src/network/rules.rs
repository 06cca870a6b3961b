//! Routing rules: the kernel's as resources, and those of the config in the kernel.
//!
//! Owns: the rules with its own number of a protocol, by which a new machined knows them.
//! Fails by: text for the log; it is tried again.
//! Source: ip-rule(8), include/uapi/linux/fib_rules.h.

use std::collections::BTreeSet;
use std::net::IpAddr;

use netlink_packet_route::route::RouteProtocol;
use network_plan::{Plan, RouteKind, Rule};

use netlink_packet_route::AddressFamily;
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleMessage};
use rtnetlink::Handle;
use runtime::store::{Addressing, ROUTING_RULE_SPEC, ROUTING_RULE_STATUS, RoutingRule, Spec, StoreError};

use super::dump::{DumpError, Tables};
use super::words::table_name;
use runtime::Runtime;

/// Publishes the rules of both families.
pub(super) fn publish(runtime: &Runtime, messages: &[RuleMessage]) -> Result<(), StoreError> {
    let mut ids = BTreeSet::new();
    let statuses = messages.iter().map(|message| {
        let status = status(message);
        (id(&status, &mut ids), Spec::Addressing(Addressing::Rule(status)))
    });
    runtime.store.replace(ROUTING_RULE_STATUS.writer, &ROUTING_RULE_STATUS, statuses.collect())
}

/// Publishes the rules of the plan.
pub(super) fn publish_specs(runtime: &Runtime, plan: &Plan) -> Result<(), String> {
    let mut ids = BTreeSet::new();
    let specs = plan.rules.iter().map(|rule| {
        let rule = of_plan(rule);
        let id = format!("configuration/{}", id(&rule, &mut ids));
        (id, Spec::Addressing(Addressing::RuleSpec { rule, layer: "configuration" }))
    });
    let specs = specs.collect();
    runtime.store.replace(ROUTING_RULE_SPEC.writer, &ROUTING_RULE_SPEC, specs).map_err(|e| e.to_string())
}

/// Marks rules that are the node's own: a number that no routing program has.
const OWN: RouteProtocol = RouteProtocol::Other(98);

/// Makes the node's own rules those of the plan. Answers what the kernel refused.
pub(super) async fn bring(handle: &Handle, plan: &Plan) -> Vec<String> {
    let mut missing: Vec<RoutingRule> = plan.rules.iter().map(of_plan).collect();
    let mut faults = Vec::new();
    for family in [AddressFamily::Inet, AddressFamily::Inet6] {
        let found = list(family).await.unwrap_or_else(|error| {
            faults.push(error.to_string());
            Vec::new()
        });
        for message in found.into_iter().filter(is_own) {
            let present = status(&message);
            match missing.iter().position(|rule| *rule == present) {
                Some(index) => drop(missing.swap_remove(index)),
                None => {
                    let removed = handle.rule().del(message).execute().await;
                    let fault = |error| format!("routing rule {}: remove it: {error}", present.priority);
                    faults.extend(removed.err().map(fault));
                }
            }
        }
    }
    for rule in plan.rules.iter().filter(|rule| missing.contains(&of_plan(rule))) {
        let mut request = handle.rule().add();
        *request.message_mut() = message(rule);
        let added = request.execute().await;
        faults.extend(added.err().map(|error| format!("routing rule {}: add it: {error}", rule.priority)));
    }
    faults
}

fn is_own(message: &RuleMessage) -> bool {
    message.attributes.contains(&RuleAttribute::Protocol(OWN))
}

/// As the kernel tells a rule of the plan.
fn of_plan(rule: &Rule) -> RoutingRule {
    status(&message(rule))
}

fn message(rule: &Rule) -> RuleMessage {
    let mut message = RuleMessage::default();
    message.header.family = if rule.is_v6 { AddressFamily::Inet6 } else { AddressFamily::Inet };
    message.header.action = match rule.action {
        RouteKind::Unicast => RuleAction::ToTable,
        RouteKind::Blackhole => RuleAction::Blackhole,
        RouteKind::Unreachable => RuleAction::Unreachable,
        RouteKind::Prohibit => RuleAction::Prohibit,
    };
    let mut attributes = vec![RuleAttribute::Priority(rule.priority), RuleAttribute::Protocol(OWN)];
    // The kernel keeps no table of a rule that drops.
    if rule.action == RouteKind::Unicast {
        message.header.table = u8::try_from(rule.table).unwrap_or_default();
        attributes.push(RuleAttribute::Table(rule.table));
    }
    if let Some((address, length)) = rule.source {
        message.header.src_len = length;
        attributes.push(RuleAttribute::Source(address));
    }
    if let Some((address, length)) = rule.destination {
        message.header.dst_len = length;
        attributes.push(RuleAttribute::Destination(address));
    }
    let links =
        [(&rule.input, RuleAttribute::Iifname as fn(String) -> _), (&rule.output, RuleAttribute::Oifname)];
    attributes
        .extend(links.into_iter().filter(|(name, _)| !name.is_empty()).map(|(name, of)| of(name.clone())));
    if rule.mark != 0 {
        attributes.push(RuleAttribute::FwMark(rule.mark));
        attributes.push(RuleAttribute::FwMask(if rule.mask == 0 { u32::MAX } else { rule.mask }));
    }
    message.attributes = attributes;
    message
}

/// Those that can be read: `status` says which cannot.
async fn list(family: AddressFamily) -> Result<Vec<RuleMessage>, DumpError> {
    tokio::task::spawn_blocking(move || Ok(Tables::open()?.rules(family)?.found)).await?
}

/// Family and priority; several rules may have the same ones, which are then counted.
fn id(rule: &RoutingRule, taken: &mut BTreeSet<String>) -> String {
    let first = format!("{}/{:05}", rule.family, rule.priority);
    let further = (2_u32..).map(|count| format!("{first}/{count}"));
    let id = std::iter::once(first.clone()).chain(further).find(|id| !taken.contains(id)).unwrap_or(first);
    taken.insert(id.clone());
    id
}

fn status(message: &RuleMessage) -> RoutingRule {
    let header = &message.header;
    let mut rule = RoutingRule {
        family: if header.family == AddressFamily::Inet { "inet4" } else { "inet6" },
        table: table_name(header.table.into()),
        action: action(header.action),
        ..RoutingRule::default()
    };
    let cidr = |address: &IpAddr, length: u8| format!("{address}/{length}");
    for attribute in &message.attributes {
        match attribute {
            RuleAttribute::Source(address) => rule.src = cidr(address, header.src_len),
            RuleAttribute::Destination(address) => rule.dst = cidr(address, header.dst_len),
            RuleAttribute::Table(number) => rule.table = table_name(*number),
            RuleAttribute::Priority(number) => rule.priority = *number,
            RuleAttribute::Iifname(name) => rule.iif_name.clone_from(name),
            RuleAttribute::Oifname(name) => rule.oif_name.clone_from(name),
            RuleAttribute::FwMark(mark) => rule.fw_mark = *mark,
            RuleAttribute::FwMask(mask) => rule.fw_mask = *mask,
            _ => {}
        }
    }
    rule
}

/// The word that clients know, or the kernel's number.
fn action(action: RuleAction) -> Box<str> {
    match action {
        RuleAction::ToTable => "unicast".into(),
        RuleAction::Blackhole => "blackhole".into(),
        RuleAction::Unreachable => "unreachable".into(),
        RuleAction::Prohibit => "prohibit".into(),
        other => u8::from(other).to_string().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::testing::{ip, is_inside};

    const TEST: &str = "network::rules::tests::rules_of_the_config_come_change_and_go_and_no_others";

    fn plan(documents: &str) -> Plan {
        let text = format!("version: v1alpha1\nmachine: {{token: a.b}}\n{documents}");
        let loaded = config::load(text.as_bytes()).unwrap_or_else(|error| panic!("{error}"));
        network_plan::plan(&Default::default(), Some(&loaded.config), &loaded.documents, &[])
    }

    fn rule(name: &str, rest: &str) -> String {
        format!("---\napiVersion: v1alpha1\nkind: RoutingRuleConfig\nname: '{name}'\n{rest}\n")
    }

    /// As iproute2 prints them.
    fn shown(family: &str) -> String {
        let output = std::process::Command::new("ip").args([family, "rule"]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    }

    #[tokio::test]
    async fn rules_of_the_config_come_change_and_go_and_no_others() {
        if !is_inside(TEST) {
            return;
        }
        ip("rule add from 10.9.0.0/16 lookup 9 priority 900");
        let (connection, handle, _) = rtnetlink::new_connection().unwrap();
        tokio::spawn(connection);
        let first = plan(
            &(rule("1000", "src: 10.0.0.0/8\ntable: '100'") + &rule("1001", "fwMark: 3\naction: prohibit")),
        );
        assert_eq!(bring(&handle, &first).await, Vec::<String>::new());
        let text = shown("-4");
        assert!(text.contains("1000:\tfrom 10.0.0.0/8 lookup 100"), "{text}");
        assert!(text.contains("1001:\tfrom all fwmark 0x3 prohibit"), "{text}");
        assert!(shown("-6").contains("1001:\tfrom all fwmark 0x3 prohibit"));
        // Nothing changes where nothing is to change.
        assert_eq!(bring(&handle, &first).await, Vec::<String>::new());
        assert_eq!(shown("-4"), text);
        let second = plan(&rule("1000", "src: 10.0.0.0/8\ntable: '300'"));
        assert_eq!(bring(&handle, &second).await, Vec::<String>::new());
        let text = shown("-4");
        assert!(
            text.contains("lookup 300") && !text.contains("lookup 100") && !text.contains("1001"),
            "{text}"
        );
        assert_eq!(bring(&handle, &Plan::default()).await, Vec::<String>::new());
        let text = shown("-4");
        assert!(!text.contains("1000:") && text.contains("900:\tfrom 10.9.0.0/16 lookup 9"), "{text}");
    }

    fn of_kernel(attributes: &[RuleAttribute]) -> RuleMessage {
        let mut message = RuleMessage::default();
        message.header.family = AddressFamily::Inet6;
        message.header.action = RuleAction::ToTable;
        (message.header.src_len, message.header.dst_len) = (32, 128);
        message.attributes = attributes.to_vec();
        message
    }

    #[test]
    fn a_rule_has_what_it_asks_of_a_packet() {
        let rule = status(&of_kernel(&[
            RuleAttribute::Source("2001:db8::".parse().unwrap()),
            RuleAttribute::Destination("fd00::7".parse().unwrap()),
            RuleAttribute::Table(1000),
            RuleAttribute::Priority(7),
            RuleAttribute::Iifname("eth0".into()),
            RuleAttribute::Oifname("eth1".into()),
            RuleAttribute::FwMark(3),
            RuleAttribute::FwMask(255),
        ]));
        let expected = RoutingRule {
            family: "inet6",
            src: "2001:db8::/32".into(),
            dst: "fd00::7/128".into(),
            table: "1000".into(),
            priority: 7,
            action: "unicast".into(),
            iif_name: "eth0".into(),
            oif_name: "eth1".into(),
            fw_mark: 3,
            fw_mask: 255,
        };
        assert_eq!(rule, expected);
        // A jump to another rule has no word.
        assert_eq!(&*action(RuleAction::Goto), "2");
        for action in ["2", "prohibit"] {
            let spec =
                Spec::Addressing(Addressing::Rule(RoutingRule { action: action.into(), ..rule.clone() }));
            assert!(!spec.binary(ROUTING_RULE_STATUS.kind).unwrap().is_empty());
        }
    }

    #[test]
    fn rules_of_one_priority_are_counted() {
        let (rule, mut taken) = (status(&of_kernel(&[RuleAttribute::Priority(7)])), BTreeSet::new());
        let ids = [(); 3].map(|()| id(&rule, &mut taken));
        assert_eq!(ids, ["inet6/00007", "inet6/00007/2", "inet6/00007/3"]);
    }

    #[test]
    fn the_rules_of_the_config_are_shown_as_it_wants_them() {
        let dir = tempfile::tempdir().unwrap();
        let runtime = Runtime::detached(dir.path().to_path_buf());
        let rule = Rule {
            priority: 1000,
            is_v6: false,
            source: Some(("10.9.0.0".parse().unwrap(), 16)),
            destination: None,
            input: String::new(),
            output: String::new(),
            mark: 0,
            mask: 0,
            table: 9,
            action: RouteKind::Unicast,
        };
        let plan = Plan { rules: vec![rule], ..Plan::default() };
        publish_specs(&runtime, &plan).unwrap();
        let shown = runtime.store.get(&ROUTING_RULE_SPEC, "configuration/inet4/01000").unwrap();
        let text = shown.spec.yaml().unwrap();
        for line in ["src: 10.9.0.0/16", "priority: 1000", "action: unicast", "layer: configuration"] {
            assert!(text.contains(line), "{line}: {text}");
        }
        assert!(!shown.spec.binary(ROUTING_RULE_SPEC.kind).unwrap().is_empty());
        publish_specs(&runtime, &Plan::default()).unwrap();
        assert!(runtime.store.list(&ROUTING_RULE_SPEC).is_empty());
    }

    /// Every network namespace is born with the same three rules of IPv4.
    #[tokio::test]
    async fn the_kernels_own_rules_are_there() {
        let dir = tempfile::tempdir().unwrap();
        let runtime = Runtime::detached(dir.path().to_path_buf());
        publish(&runtime, &list(AddressFamily::Inet).await.unwrap()).unwrap();
        for (id, table) in [("inet4/00000", "local"), ("inet4/32766", "main"), ("inet4/32767", "default")] {
            let found = runtime.store.get(&ROUTING_RULE_STATUS, id).unwrap_or_else(|| panic!("{id}"));
            let text = found.spec.yaml().unwrap();
            assert!(
                text.contains(&format!("table: {table}\n")) && text.contains("action: unicast\n"),
                "{text}"
            );
        }
    }
}
