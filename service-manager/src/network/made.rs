//! Links that the configuration makes, and the members of bonds, bridges and VRFs.
//!
//! Owns: which links are the node's own. A file below /system/run keeps their names and kinds, so that a new machined removes
//! what is no longer wanted, and never a link that another program made.
//! Order: what is no longer wanted goes first; a link is made when what it stands on is there; members follow. A name is
//! noted before its link is made, and struck out where that fails.
//! Fails by: one line a refusal, said once; it is tried again with the next change and after a pause.
//! Source: ip-link(8); include/uapi/linux/if_link.h.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use netlink_packet_route::link::{BridgeStpState, InfoBond, LinkAttribute, LinkMessage, VlanProtocol};
use network_plan::link::Wireguard;
use network_plan::{Kind, Plan};
use rtnetlink::{
    Handle, LinkBond, LinkBridge, LinkDummy, LinkUnspec, LinkVeth, LinkVlan, LinkVrf, LinkWireguard,
};
use runtime::Runtime;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use super::link::Link;
use super::owned::Owned;
use super::wireguard;

/// Names of links that are the node's own, with how they were made.
const RECORD: &str = "/system/run/machined/links.json";

/// How a link was made.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
struct How {
    /// The kernel's word. A link of another kind under the same name is another program's.
    kind: String,
    /// What makes it anew when it changes.
    options: String,
    hardware: Option<[u8; 6]>,
    /// Of a bridge: these are changed while it is there.
    stp: bool,
    vlan_filtering: bool,
}

impl How {
    fn of(kind: &Kind, hardware: Option<[u8; 6]>) -> Self {
        let (mut stp, mut vlan_filtering) = (false, false);
        let options = match kind {
            // What it prefers is told when its members are there.
            Kind::Bond { options, .. } => format!("{options:?}"),
            Kind::Bridge { stp: wanted, vlan_filtering: filtering } => {
                (stp, vlan_filtering) = (*wanted, *filtering);
                String::new()
            }
            // Its keys and peers are told when it is there, and are in no file.
            Kind::Wireguard(_) => String::new(),
            Kind::Dummy | Kind::Vlan { .. } | Kind::Vrf { .. } | Kind::Veth { .. } => format!("{kind:?}"),
        };
        Self { kind: kind.word().to_owned(), options, hardware, stp, vlan_filtering }
    }

    /// Whether a link that was made so can become this one.
    fn becomes(&self, wanted: &Self) -> bool {
        (&self.kind, &self.options, self.hardware) == (&wanted.kind, &wanted.options, wanted.hardware)
    }
}

/// The links that are the node's own.
pub(super) struct Made {
    path: PathBuf,
    known: BTreeMap<String, How>,
    /// Members that bonds were told to prefer.
    primaries: BTreeMap<String, u32>,
    /// What keeps the keys and peers of tunnels.
    tunnels: BTreeMap<String, (Wireguard, Owned)>,
    /// One of them was changed, which no notification says.
    pub(super) changed: Arc<Notify>,
    said: BTreeSet<String>,
}

impl Made {
    /// Those of an earlier machined.
    pub(super) fn read(runtime: &Runtime) -> Self {
        let path = runtime.path(RECORD);
        let text = std::fs::read(&path).unwrap_or_default();
        // Without the file nothing is the node's own, and nothing is removed.
        let known = serde_json::from_slice(&text).unwrap_or_default();
        let (primaries, tunnels, changed) = (BTreeMap::new(), BTreeMap::new(), Arc::default());
        Self { path, known, primaries, tunnels, changed, said: BTreeSet::new() }
    }

    /// Makes and removes links, and moves members. Answers whether everything is as it is to be; what else was `refused` is
    /// said with its own faults.
    pub(super) async fn bring(
        &mut self,
        runtime: &Arc<Runtime>,
        handle: &Handle,
        plan: &Plan,
        links: &[Link],
        refused: Vec<String>,
    ) -> bool {
        let mut faults = [plan.faults.clone(), refused].concat();
        let removed = self.remove(handle, plan, links, &mut faults).await;
        for (name, wanted) in &plan.links {
            let Some(kind) = &wanted.kind else { continue };
            // The kernel tells when one that was removed is gone, and then it is made anew.
            if matches!(kind, Kind::Veth { is_second: true, .. }) || removed.contains(name) {
                continue;
            }
            match self.make(handle, wanted, kind, links).await {
                Ok(()) => self.keep_tunnel(runtime, name, kind, links),
                Err(fault) => faults.push(format!("link {name}: {fault}")),
            }
        }
        for link in links {
            let Some(wanted) = plan.links.get(&link.name) else { continue };
            if let Err(fault) = self.join(handle, link, wanted, plan, links).await {
                faults.push(format!("link {}: {fault}", link.name));
            }
        }
        for fault in faults.iter().filter(|fault| !self.said.contains(*fault)) {
            runtime.journal.warn(&format!("networkd: {fault}"));
        }
        self.said = faults.into_iter().collect();
        self.said.is_empty()
    }

    fn note(&mut self, name: &str, how: Option<How>) -> Result<(), String> {
        match how {
            Some(how) => self.known.insert(name.to_owned(), how),
            None => self.known.remove(name),
        };
        let text = serde_json::to_vec(&self.known).map_err(|error| error.to_string())?;
        let new = self.path.with_extension("new");
        let written = std::fs::write(&new, text).and_then(|()| std::fs::rename(&new, &self.path));
        written.map_err(|error| format!("note it in {}: {error}", self.path.display()))
    }

    /// Removes links that are no longer wanted, or that are to be made in another way. Answers which.
    async fn remove(
        &mut self,
        handle: &Handle,
        plan: &Plan,
        links: &[Link],
        faults: &mut Vec<String>,
    ) -> BTreeSet<String> {
        let mut removed = BTreeSet::new();
        for (name, how) in self.known.clone() {
            let wanted = plan.links.get(&name);
            let wanted = wanted.and_then(|link| Some(How::of(link.kind.as_ref()?, link.hardware)));
            if wanted.is_some_and(|wanted| how.becomes(&wanted)) {
                continue;
            }
            if let Some(link) = links.iter().find(|link| link.name == name && link.kind == how.kind) {
                if let Err(error) = handle.link().del(link.index).execute().await
                    // A VLAN goes with its parent.
                    && !is_gone(&error)
                {
                    faults.push(format!("link {name}: remove it: {error}"));
                    continue;
                }
                removed.insert(name.clone());
            }
            self.primaries.remove(&name);
            self.tunnels.remove(&name);
            faults.extend(self.note(&name, None).err().map(|fault| format!("link {name}: {fault}")));
        }
        removed
    }

    async fn make(
        &mut self,
        handle: &Handle,
        wanted: &network_plan::Link,
        kind: &Kind,
        links: &[Link],
    ) -> Result<(), String> {
        let name = &wanted.name;
        let new = How::of(kind, wanted.hardware);
        match (links.iter().find(|link| link.name == *name), self.known.get(name)) {
            (Some(there), Some(how)) if there.kind == how.kind => {
                if *how == new {
                    return Ok(());
                }
                // Only what can be changed while it is there is left.
                let changed = handle.link().change(message(wanted, kind, None, Some(how))).execute().await;
                changed.map_err(|error| format!("change it: {error}"))?;
                self.note(name, Some(new))
            }
            (Some(there), _) => Err(format!(
                "there is one of this name already, of kind {:?}, which the node did not make; choose another name",
                if there.kind.is_empty() { "device" } else { &there.kind }
            )),
            (None, _) => {
                let parent = match kind {
                    Kind::Vlan { parent, .. } => {
                        let parent_link = links.iter().find(|link| link.name == *parent);
                        Some(parent_link.ok_or_else(|| format!("its parent {parent} is not there"))?.index)
                    }
                    _ => None,
                };
                self.note(name, Some(new))?;
                let made = handle.link().add(message(wanted, kind, parent, None)).execute().await;
                if let Err(error) = made {
                    // Another program may have made one: then it is not the node's.
                    self.note(name, None)?;
                    return Err(format!("make it, of kind {}: {error}", kind.word()));
                }
                Ok(())
            }
        }
    }

    /// Has a tunnel that is there kept as it is wanted. Names of endpoints take their time, which no other link is to wait for.
    fn keep_tunnel(&mut self, runtime: &Arc<Runtime>, name: &str, kind: &Kind, links: &[Link]) {
        let Kind::Wireguard(wanted) = kind else { return };
        let is_there = links.iter().any(|link| link.name == name);
        let is_kept = self.tunnels.get(name).is_some_and(|(kept, _)| kept == wanted);
        if is_there && !is_kept {
            let changed = self.changed.clone();
            let task =
                tokio::spawn(wireguard::keep(runtime.clone(), name.to_owned(), wanted.clone(), changed));
            self.tunnels.insert(name.to_owned(), (wanted.clone(), Owned(task.abort_handle())));
        }
    }

    /// Makes a link a member of what it is to be a member of.
    async fn join(
        &mut self,
        handle: &Handle,
        link: &Link,
        wanted: &network_plan::Link,
        plan: &Plan,
        links: &[Link],
    ) -> Result<(), String> {
        let change = async |message: LinkMessage, what: &str| {
            let changed = handle.link().change(message).execute().await;
            changed.map_err(|error| format!("{what}: {error}"))
        };
        let Some(controller) = &wanted.controller else {
            let old = links.iter().find(|other| link.controller == Some(other.index));
            return match old {
                // Other programs have members, too.
                Some(old) if self.known.contains_key(&old.name) => {
                    let leave = LinkUnspec::new_with_index(link.index).nocontroller().build();
                    change(leave, &format!("take it out of {}", old.name)).await
                }
                _ => Ok(()),
            };
        };
        let kind = plan.links.get(controller).and_then(|link| link.kind.as_ref());
        let Some(there) = links.iter().find(|other| other.name == *controller) else {
            // What is made here is said where it cannot be made.
            let fault = || format!("{controller}, of which it is to be a member, is not there");
            return if kind.is_some() { Ok(()) } else { Err(fault()) };
        };
        if link.controller != Some(there.index) {
            // A bond takes links only that are down, and brings them up itself.
            if matches!(kind, Some(Kind::Bond { .. })) && link.up {
                change(LinkUnspec::new_with_index(link.index).down().build(), "set it down").await?;
            }
            let join = LinkUnspec::new_with_index(link.index).controller(there.index).build();
            change(join, &format!("make it a member of {controller}")).await?;
        }
        if let Some(Kind::Bond { primary: Some(primary), .. }) = kind
            && *primary == link.name
            && self.primaries.get(controller) != Some(&link.index)
        {
            let prefer = LinkBond::new(controller).append_info_data(InfoBond::Primary(link.index)).build();
            change(prefer, &format!("have {controller} prefer it")).await?;
            self.primaries.insert(controller.clone(), link.index);
        }
        Ok(())
    }
}

fn is_gone(error: &rtnetlink::Error) -> bool {
    let missing = -Errno::NODEV.raw_os_error();
    matches!(error, rtnetlink::Error::NetlinkError(message) if message.raw_code() == missing)
}

/// `old`: how it was made, if it was.
fn message(wanted: &network_plan::Link, kind: &Kind, parent: Option<u32>, old: Option<&How>) -> LinkMessage {
    let name = wanted.name.as_str();
    let mut message = match kind {
        Kind::Dummy => LinkDummy::new(name).build(),
        Kind::Vlan { id, is_service, .. } => {
            let protocol = if *is_service { VlanProtocol::Ieee8021Ad } else { VlanProtocol::Ieee8021Q };
            let builder = LinkVlan::new(name, parent.unwrap_or_default(), *id);
            builder.protocol(protocol).build()
        }
        Kind::Bond { options, .. } => {
            let builder = LinkBond::new(name);
            options.iter().cloned().fold(builder, |builder, option| builder.append_info_data(option)).build()
        }
        Kind::Bridge { stp, vlan_filtering } => {
            let stp = if *stp { BridgeStpState::KernelStp } else { BridgeStpState::Disabled };
            let bridge = LinkBridge::new(name).stp_state(stp);
            // Not every kernel knows this one.
            let was_filtering = old.is_some_and(|old| old.vlan_filtering);
            let is_as_it_was = *vlan_filtering == was_filtering;
            let bridge = if is_as_it_was { bridge } else { bridge.vlan_filtering(*vlan_filtering) };
            bridge.build()
        }
        Kind::Vrf { table } => LinkVrf::new(name, *table).build(),
        Kind::Wireguard(_) => LinkWireguard::new(name).build(),
        Kind::Veth { peer, .. } => LinkVeth::new(name, peer).build(),
    };
    // Where it is changed in place, its address is as it was.
    if let Some(bytes) = wanted.hardware.filter(|_| old.is_none()) {
        message.attributes.push(LinkAttribute::Address(bytes.to_vec()));
    }
    message
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use runtime::store::LINK_STATUS;

    use super::*;
    use crate::network::testing::{ip, is_inside};

    const TEST: &str = "network::made::tests::what_the_config_names_comes_changes_and_goes_and_nothing_else";

    fn plan(interfaces: &str) -> Plan {
        let text = format!(
            "version: v1alpha1\nmachine:\n  type: worker\n  token: a.b\n  network: {{interfaces: {interfaces}}}\n"
        );
        let config = config::parse(&text).unwrap_or_else(|error| panic!("{error}"));
        network_plan::plan(&Default::default(), Some(&config), &[], &[])
    }

    /// Brings a plan about; what is left to say, and how every link is then.
    async fn bring(
        made: &mut Made,
        runtime: &Arc<Runtime>,
        handle: &Handle,
        plan: &Plan,
    ) -> (String, Vec<Link>) {
        let links = super::super::status::look(runtime).await;
        made.bring(runtime, handle, plan, &links, Vec::new()).await;
        // Members join what was made just now.
        let links = super::super::status::look(runtime).await;
        made.bring(runtime, handle, plan, &links, Vec::new()).await;
        let links = super::super::status::look(runtime).await;
        (made.said.iter().cloned().collect::<Vec<_>>().join("; "), links)
    }

    fn index(links: &[Link], name: &str) -> Option<u32> {
        links.iter().find(|link| link.name == name).map(|link| link.index)
    }

    fn controller(links: &[Link], name: &str) -> Option<u32> {
        links.iter().find(|link| link.name == name).and_then(|link| link.controller)
    }

    #[tokio::test]
    async fn what_the_config_names_comes_changes_and_goes_and_nothing_else() {
        if !is_inside(TEST) {
            return;
        }
        ip("link add other type bridge");
        ip("link add eth0 type veth peer name eth1");
        let dir = tempfile::tempdir().unwrap();
        let runtime = Runtime::detached(dir.path().to_path_buf());
        std::fs::create_dir_all(runtime.path("/system/run/machined")).unwrap();
        let (connection, handle, _) = rtnetlink::new_connection().unwrap();
        tokio::spawn(connection);
        let mut made = Made::read(&runtime);

        let first = plan("[{interface: br0, bridge: {interfaces: [eth0]}}, {interface: other, bridge: {}}]");
        let (said, links) = bring(&mut made, &runtime, &handle, &first).await;
        assert!(said.contains("link other: there is one of this name already, of kind \"bridge\""), "{said}");
        let bridge = index(&links, "br0").unwrap_or_else(|| panic!("{said}"));
        assert_eq!(controller(&links, "eth0"), Some(bridge));

        // Another option changes the bridge that is there; another member leaves.
        let second =
            plan("[{interface: br0, bridge: {interfaces: [eth1], stp: {enabled: true}}}, {interface: eth0}]");
        let (said, links) = bring(&mut made, &runtime, &handle, &second).await;
        assert_eq!((said.as_str(), index(&links, "br0")), ("", Some(bridge)));
        assert_eq!((controller(&links, "eth0"), controller(&links, "eth1")), (None, Some(bridge)));
        let told = Command::new("ip").args(["-details", "link", "show", "br0"]).output().unwrap().stdout;
        let told = String::from_utf8(told).unwrap();
        assert!(told.contains("stp_state 1"), "{told}");
        let status = |name| runtime.store.get(&LINK_STATUS, name).unwrap().spec.yaml().unwrap();
        assert!(status("br0").contains("bridgeMaster:\n  stp:\n    enabled: true\n"), "{}", status("br0"));
        let member = status("eth1");
        assert!(
            member.contains("slaveKind: bridge\n") && member.contains(&format!("masterIndex: {bridge}\n"))
        );

        let third = plan("[{interface: br0, bridge: {interfaces: [eth7]}}]");
        let (said, _) = bring(&mut made, &runtime, &handle, &third).await;
        assert_eq!(said, "", "a link that is not there is no fault of one that is");
        let fourth = plan("[{interface: nowhere.5, vlans: [{vlanId: 5}]}, {interface: br0, bridge: {}}]");
        let (said, _) = bring(&mut made, &runtime, &handle, &fourth).await;
        assert!(said.contains("link nowhere.5.5: its parent nowhere.5 is not there"), "{said}");

        // Another kind under the same name: the old link goes first, which is no fault.
        let of_other_kind = pair("br0", "br1");
        let links = super::super::status::look(&runtime).await;
        made.bring(&runtime, &handle, &of_other_kind, &links, Vec::new()).await;
        assert!(made.said.is_empty(), "{:?}", made.said);
        let (said, _) = bring(&mut made, &runtime, &handle, &of_other_kind).await;
        assert_eq!(said, "");
        assert!(status("br0").contains("kind: veth\n"), "{}", status("br0"));

        // A new machined removes what the old one made, and nothing that others made.
        let mut made = Made::read(&runtime);
        let (said, links) = bring(&mut made, &runtime, &handle, &plan("[]")).await;
        assert_eq!((said.as_str(), index(&links, "br0")), ("", None));
        assert!(index(&links, "other").is_some() && index(&links, "eth0").is_some());
        assert_eq!(std::fs::read_to_string(runtime.path(RECORD)).unwrap(), "{}");

        // Another program puts a link of its own in the place of one of the node's.
        let wanted = plan("[{interface: br0, bridge: {}}]");
        bring(&mut made, &runtime, &handle, &wanted).await;
        for words in ["link del br0", "link add br0 type veth peer name br1"] {
            assert!(Command::new("ip").args(words.split(' ')).status().unwrap().success());
        }
        let (said, _) = bring(&mut made, &runtime, &handle, &wanted).await;
        assert!(said.contains("link br0: there is one of this name already, of kind \"veth\""), "{said}");
        let (_, links) = bring(&mut made, &runtime, &handle, &plan("[]")).await;
        assert!(index(&links, "br0").is_some(), "it is not the node's to remove");
    }

    /// A pair of links and nothing else.
    fn pair(name: &str, peer: &str) -> Plan {
        let head = "version: v1alpha1\nmachine:\n  type: worker\n  token: a.b\n";
        let text = format!(
            "{head}---\napiVersion: v1alpha1\nkind: VethConfig\nname: {name}\npeer: {{name: {peer}}}\n"
        );
        let loaded = config::load(text.as_bytes()).unwrap_or_else(|error| panic!("{error}"));
        network_plan::plan(&Default::default(), None, &loaded.documents, &[])
    }

    #[tokio::test]
    async fn a_pair_of_links_comes_and_goes_together() {
        if !is_inside("network::made::tests::a_pair_of_links_comes_and_goes_together") {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let runtime = Runtime::detached(dir.path().to_path_buf());
        std::fs::create_dir_all(runtime.path("/system/run/machined")).unwrap();
        let (connection, handle, _) = rtnetlink::new_connection().unwrap();
        tokio::spawn(connection);
        let mut made = Made::read(&runtime);
        let pair = |peer| pair("a0", peer);
        let (said, links) = bring(&mut made, &runtime, &handle, &pair("b0")).await;
        assert_eq!(said, "");
        let first = index(&links, "a0");
        assert!(first.is_some() && index(&links, "b0").is_some(), "{links:?}");
        let (said, links) = bring(&mut made, &runtime, &handle, &pair("b0")).await;
        assert_eq!((said.as_str(), index(&links, "a0")), ("", first), "nothing is made anew");
        // Another name of the other end is another pair.
        let (said, links) = bring(&mut made, &runtime, &handle, &pair("c0")).await;
        assert_eq!((said.as_str(), index(&links, "b0")), ("", None));
        assert!(
            index(&links, "a0").is_some_and(|index| Some(index) != first) && index(&links, "c0").is_some()
        );
        // One that another program removed is made again.
        ip("link del c0");
        let (_, links) = bring(&mut made, &runtime, &handle, &pair("c0")).await;
        assert!(index(&links, "a0").is_some() && index(&links, "c0").is_some());
        let mut made = Made::read(&runtime);
        let (said, links) = bring(&mut made, &runtime, &handle, &plan("[]")).await;
        assert_eq!((said.as_str(), index(&links, "a0"), index(&links, "c0")), ("", None, None));
    }
}
