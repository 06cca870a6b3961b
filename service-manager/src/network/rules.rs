//! The kernel's routing rules as resources.
//!
//! Does not: make rules. Source: ip-rule(8), include/uapi/linux/fib_rules.h.

use std::collections::BTreeSet;
use std::net::IpAddr;

use futures_util::TryStreamExt;
use netlink_packet_route::AddressFamily;
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleMessage};
use rtnetlink::{Handle, IpVersion};
use runtime::store::{Addressing, ROUTING_RULE_STATUS, RoutingRule, Spec};
use rustix::io::Errno;

use super::status::table_name;
use runtime::Runtime;

/// Reads the rules of both families and publishes them.
pub(super) async fn publish(runtime: &Runtime, handle: &Handle) -> Result<(), String> {
    let (mut ids, mut statuses) = (BTreeSet::new(), Vec::new());
    for version in [IpVersion::V4, IpVersion::V6] {
        for message in list(handle, version).await? {
            let status = status(&message);
            statuses.push((id(&status, &mut ids), Spec::Addressing(Addressing::Rule(status))));
        }
    }
    runtime
        .store
        .replace(ROUTING_RULE_STATUS.writer, &ROUTING_RULE_STATUS, statuses)
        .map_err(|e| e.to_string())
}

/// A kernel without routing rules, or without the family, has none.
async fn list(handle: &Handle, version: IpVersion) -> Result<Vec<RuleMessage>, String> {
    let missing = [Errno::OPNOTSUPP, Errno::AFNOSUPPORT].map(|errno| -errno.raw_os_error());
    match handle.rule().get(version).execute().try_collect().await {
        Err(rtnetlink::Error::NetlinkError(error)) if missing.contains(&error.raw_code()) => Ok(Vec::new()),
        found => found.map_err(|e| format!("list routing rules: {e}")),
    }
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

    fn message(attributes: &[RuleAttribute]) -> RuleMessage {
        let mut message = RuleMessage::default();
        message.header.family = AddressFamily::Inet6;
        message.header.action = RuleAction::ToTable;
        (message.header.src_len, message.header.dst_len) = (32, 128);
        message.attributes = attributes.to_vec();
        message
    }

    #[test]
    fn a_rule_has_what_it_asks_of_a_packet() {
        let rule = status(&message(&[
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
        let (rule, mut taken) = (status(&message(&[RuleAttribute::Priority(7)])), BTreeSet::new());
        let ids = [(); 3].map(|()| id(&rule, &mut taken));
        assert_eq!(ids, ["inet6/00007", "inet6/00007/2", "inet6/00007/3"]);
    }

    /// Every network namespace is born with the same three rules of IPv4.
    #[tokio::test]
    async fn the_kernels_own_rules_are_there() {
        let dir = tempfile::tempdir().unwrap();
        let runtime = Runtime::detached(dir.path().to_path_buf());
        let (connection, handle, _) = rtnetlink::new_connection().unwrap();
        let connection = tokio::spawn(connection);
        publish(&runtime, &handle).await.unwrap();
        connection.abort();
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
