//! Additional names of links: those of cards that stay the same in whatever order the kernel finds them, and those of the config.
//!
//! Owns: alternative names of cards by their place on the bus (`enp0s3`) and by their address (`enx020000000001`), as systemd gives
//! them; the alias of a link that `LinkAliasConfig` names.
//! Does not: rename a link. What else names links takes all of these: `network_plan` finds the kernel's name.
//! Fails by: a line for each name that the kernel refuses; it is tried again.
//! Source: systemd.net-naming-scheme(7); ip-link(8), `property` and `alias`.

use netlink_packet_route::link::LinkMessage;
use network_plan::Plan;
use rtnetlink::{Handle, LinkUnspec};
use rustix::io::Errno;

use super::link::Link;

/// The longest name that the kernel takes here, in bytes; a link's first name is shorter.
const MAX_BYTES: usize = 127;

/// Gives links the names that they lack, and takes aliases away that the plan does not have. Answers what was refused.
pub(super) async fn bring(handle: &Handle, plan: &Plan, links: &[Link]) -> Vec<String> {
    let mut refused = Vec::new();
    // Those of other links are their programs' own.
    for link in links.iter().filter(|link| link.device.is_physical) {
        for name in missing(link, links) {
            let added = handle.link().property_add(link.index).alt_ifname(&[&name]).execute().await;
            match added {
                Err(error) if !is_taken(&error) => {
                    refused.push(format!("give link {} the name {name}: {error}", link.name));
                }
                Ok(()) | Err(_) => {}
            }
        }
        let wanted = plan.aliases.get(&link.name).map(String::as_str).unwrap_or_default();
        if link.alias != wanted {
            let message: LinkMessage = LinkUnspec::new_with_index(link.index).alias(wanted).build();
            if let Err(error) = handle.link().set(message).execute().await {
                refused.push(format!("give link {} the alias {wanted:?}: {error}", link.name));
            }
        }
    }
    refused
}

/// Another link has it; `network_plan` takes the first one that has.
fn is_taken(error: &rtnetlink::Error) -> bool {
    matches!(error, rtnetlink::Error::NetlinkError(message) if message.raw_code() == -Errno::EXIST.raw_os_error())
}

/// Names that a card is to have besides the kernel's and those that it has; none for another link.
pub(super) fn missing(link: &Link, links: &[Link]) -> Vec<String> {
    if !link.device.is_physical {
        return Vec::new();
    }
    let address = if link.permanent.is_empty() { &link.hardware } else { &link.permanent };
    let digits: String = address.iter().map(|byte| format!("{byte:02x}")).collect();
    let of_address = if digits.is_empty() { digits } else { format!("enx{digits}") };
    let has = |name: &String| link.alt_names.contains(name) || links.iter().any(|other| other.name == *name);
    [link.device.path_name.clone(), of_address]
        .into_iter()
        .filter(|name| !name.is_empty() && name.len() <= MAX_BYTES && !has(name))
        .collect()
}

/// The name of a PCI card by its place `0000:00:03.0`; `None` for another bus. Of several functions each has its number, and so has
/// every domain but the first.
pub(super) fn of_place(place: &str, is_multi_function: bool) -> Option<String> {
    let (domain, rest) = place.split_once(':')?;
    let (bus, rest) = rest.split_once(':')?;
    let (slot, function) = rest.split_once('.')?;
    let number = |text: &str| u32::from_str_radix(text, 16).ok();
    let (domain, bus, slot, function) = (number(domain)?, number(bus)?, number(slot)?, number(function)?);
    let domain = if domain == 0 { String::new() } else { format!("P{domain}") };
    let function = if function == 0 && !is_multi_function { String::new() } else { format!("f{function}") };
    Some(format!("en{domain}p{bus}s{slot}{function}"))
}

#[cfg(test)]
mod tests {
    use futures_util::TryStreamExt;

    use super::super::link::Device;
    use super::super::testing::{ip, is_inside};
    use super::*;

    #[test]
    fn a_place_has_the_name_that_systemd_gives_it() {
        for (place, is_multi_function, name) in [
            ("0000:00:03.0", false, "enp0s3"),
            ("0000:0a:1f.0", false, "enp10s31"),
            ("0000:02:00.1", false, "enp2s0f1"),
            ("0000:02:00.0", true, "enp2s0f0"),
            ("0001:00:02.0", false, "enP1p0s2"),
        ] {
            assert_eq!(of_place(place, is_multi_function).as_deref(), Some(name), "{place}");
        }
        for other in ["", "1-1:1.0", "virtio0", "0000:zz:00.0"] {
            assert_eq!(of_place(other, false), None, "{other}");
        }
    }

    fn card(index: u32, name: &str) -> Link {
        Link {
            index,
            name: name.to_owned(),
            hardware: vec![2, 0, 0, 0, 0, 1],
            device: Device { is_physical: true, path_name: "enp0s3".into(), ..Device::default() },
            ..Link::default()
        }
    }

    #[test]
    fn a_name_that_a_link_has_is_not_given_again() {
        let link = card(2, "eth0");
        assert_eq!(missing(&link, std::slice::from_ref(&link)), ["enp0s3", "enx020000000001"]);
        let other = Link { name: "enp0s3".into(), ..card(3, "") };
        assert_eq!(missing(&link, &[link.clone(), other]), ["enx020000000001"]);
        let known = Link { alt_names: vec!["enp0s3".into(), "enx020000000001".into()], ..link };
        assert_eq!(missing(&known, std::slice::from_ref(&known)), Vec::<String>::new());
    }

    #[tokio::test]
    async fn a_link_gets_its_names_and_loses_its_alias() {
        if !is_inside("network::names::tests::a_link_gets_its_names_and_loses_its_alias") {
            return;
        }
        ip("link add eth0 type veth peer name eth1");
        let (connection, handle, _) = rtnetlink::new_connection().unwrap();
        tokio::spawn(connection);
        let mut found = handle.link().get().match_name("eth0").execute();
        let index = found.try_next().await.unwrap().unwrap().header.index;
        let shown = || ip("-d link show eth0");
        let mut plan = Plan::default();
        plan.aliases.insert("eth0".into(), "net0".into());
        let mut link = card(index, "eth0");
        assert_eq!(bring(&handle, &plan, &[link.clone()]).await, Vec::<String>::new());
        let text = shown();
        assert!(
            ["altname enp0s3", "altname enx020000000001", "alias net0"]
                .iter()
                .all(|part| text.contains(part)),
            "{text}"
        );
        link.alias = "net0".into();
        assert_eq!(bring(&handle, &Plan::default(), &[link]).await, Vec::<String>::new());
        assert!(!shown().contains("alias net0"), "{}", shown());
    }
}
