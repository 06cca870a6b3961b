//! What the kernel has: links, addresses, routes and rules, changed by each message that tells of a change.
//!
//! Owns: when a table is listed anew, and no sooner: at the start; after messages were lost or could not be read; of routes also where
//! the kernel drops some without a word: with a link that goes down, loses its carrier or moves to another controller, with an
//! address, with a next hop of its own; and where a message tells of another route than is known. Of links where a wire's second
//! end comes: the first one was told of without it.
//! Order: a list may be newer than messages that are read after it. Each change holds what was and what is to be by itself, so
//! that those that the list has already end where they began.
//! Fails by: a list that the kernel refuses. What of a message cannot be read is noted, and its table is listed anew.
//! Source: rtnetlink(7); net/ipv4/fib_frontend.c, net/ipv4/fib_semantics.c and net/core/rtnetlink.c of Linux.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use netlink_packet_core::{NLM_F_REPLACE, NetlinkBuffer};
use netlink_packet_route::AddressFamily;
use netlink_packet_route::address::{AddressAttribute, AddressMessage, AddressScope};
use netlink_packet_route::link::{LinkAttribute, LinkMessage};
use netlink_packet_route::rule::{RuleAttribute, RuleFlags, RuleMessage};
use runtime::store::{RouteStatus, Store, StoreError};

use super::dump::{ADDRESSES, DumpError, Dumped, LINKS, Losses, ROUTES, RULES, Tables, What};
use super::link::Link;
use super::routes::{Deed, Routes, Verdict};
use super::{facts, link_status};

/// Types of messages, of linux/rtnetlink.h; each that takes something away is one more than the one that adds it.
const NEW_LINK: u16 = 16;
const DEL_LINK: u16 = 17;
const NEW_ADDRESS: u16 = 20;
const DEL_ADDRESS: u16 = 21;
const NEW_ROUTE: u16 = 24;
const DEL_ROUTE: u16 = 25;
const NEW_RULE: u16 = 32;
const DEL_RULE: u16 = 33;
const NEW_NEXT_HOP: u16 = 104;
const DEL_NEXT_HOP: u16 = 105;
/// `NLMSG_OVERRUN`
const OVERRUN: u16 = 4;

/// Where the family is in a message.
const FAMILY_AT: usize = 16;
/// How often a table is listed that changes meanwhile. What comes after the last one is told.
const LISTS: usize = 3;
/// All tables.
const ALL: [What; 4] = [What::Link, What::Address, What::Route, What::Rule];

/// An address of a link: its index, the address (of the other end, where it has one), the link's own, and the length.
pub(super) type AddressKey = (u32, IpAddr, Option<IpAddr>, u8);

/// A link.
#[derive(Debug)]
pub(super) struct SeenLink {
    pub(super) message: LinkMessage,
    pub(super) link: Link,
}

/// What the kernel has.
#[derive(Debug)]
pub(super) struct View {
    root: PathBuf,
    store: Store,
    pub(super) links: BTreeMap<u32, SeenLink>,
    pub(super) addresses: BTreeMap<AddressKey, AddressScope>,
    /// Those of IPv4 first, each family in the order in which they are asked.
    pub(super) rules: Vec<RuleMessage>,
    routes: Arc<Routes>,
    /// What is to be listed anew.
    stale: BTreeSet<What>,
    /// What changed since it was last asked.
    changed: BTreeSet<What>,
    /// Links whose devices are to be looked at.
    unknown: BTreeSet<u32>,
    /// A link is another one for those who bring it about.
    has_other_links: bool,
    /// A carrier came.
    is_urgent: bool,
    /// Messages were lost, and the next list is of all tables.
    has_lost: bool,
    losses: Losses,
}

impl View {
    /// Of nothing: the first [`Self::list`] fills it.
    pub(super) fn new(root: &Path, store: &Store) -> Result<Self, StoreError> {
        Ok(Self {
            root: root.to_owned(),
            store: store.clone(),
            links: BTreeMap::new(),
            addresses: BTreeMap::new(),
            rules: Vec::new(),
            routes: Routes::serve(store)?,
            stale: ALL.into(),
            changed: ALL.into(),
            unknown: BTreeSet::new(),
            has_other_links: true,
            is_urgent: false,
            has_lost: false,
            losses: Losses::default(),
        })
    }

    /// Whether there is work for [`Self::list`], which may take a while.
    pub(super) fn needs_list(&self) -> bool {
        !self.stale.is_empty() || !self.unknown.is_empty()
    }

    /// Whether links or rules changed.
    pub(super) fn has_news(&self) -> bool {
        self.needs_list() || !self.changed.is_empty()
    }

    /// Whether a carrier came since this was last asked: what waits for it is not to wait longer.
    pub(super) fn is_urgent(&mut self) -> bool {
        std::mem::take(&mut self.is_urgent)
    }

    /// What changed since this was last asked.
    pub(super) fn changed(&mut self) -> BTreeSet<What> {
        std::mem::take(&mut self.changed)
    }

    /// Whether links became other ones since this was last asked.
    pub(super) fn has_other_links(&mut self) -> bool {
        std::mem::take(&mut self.has_other_links)
    }

    /// What could not be read since this was last asked.
    pub(super) fn losses(&mut self) -> Losses {
        std::mem::take(&mut self.losses)
    }

    /// The default routes, if they may be others than when this was last asked.
    pub(super) fn new_defaults(&self) -> Option<Vec<(String, RouteStatus)>> {
        self.routes.new_defaults()
    }

    /// Messages were lost.
    pub(super) fn lost(&mut self) {
        self.has_lost = true;
        self.stale.extend(ALL);
    }

    /// Whether all tables are to be listed because messages were lost.
    pub(super) fn has_lost(&self) -> bool {
        self.has_lost
    }

    /// The kernel tells of a change. None is no message: what was to be there may have told of any.
    pub(super) fn hear(&mut self, message: Option<&[u8]>) -> Result<(), StoreError> {
        let Some(message) = message else {
            self.lost();
            return Ok(());
        };
        let head = NetlinkBuffer::new(message);
        let is_replaced = head.flags() & NLM_F_REPLACE != 0;
        match head.message_type() {
            kind @ (NEW_LINK | DEL_LINK) => return self.hear_link(message, kind == NEW_LINK),
            kind @ (NEW_ADDRESS | DEL_ADDRESS) => self.hear_address(message, kind == NEW_ADDRESS),
            DEL_ROUTE => return self.hear_route(message, Deed::Removed),
            NEW_ROUTE if is_replaced => return self.hear_route(message, Deed::Replaced),
            NEW_ROUTE => return self.hear_route(message, Deed::Added),
            kind @ (NEW_RULE | DEL_RULE) => self.hear_rule(message, kind == NEW_RULE),
            // No route has one that is new; what becomes of those of another one is not told.
            NEW_NEXT_HOP if !is_replaced => {}
            NEW_NEXT_HOP | DEL_NEXT_HOP => drop(self.stale.insert(What::Route)),
            OVERRUN => self.lost(),
            _ => {}
        }
        Ok(())
    }

    fn hear_link(&mut self, message: &[u8], is_there: bool) -> Result<(), StoreError> {
        // Bridges tell of their ports by messages about links, which are not about the link itself.
        if message.get(FAMILY_AT).is_some_and(|family| *family != 0) {
            return Ok(());
        }
        let read = LINKS.read(message, &mut self.losses);
        // An event of a wireless card has its name alone.
        let whole = read.filter(|link| {
            !is_there || link.attributes.iter().any(|attribute| matches!(attribute, LinkAttribute::Mtu(_)))
        });
        match whole {
            Some(link) if is_there => self.put_link(link)?,
            Some(link) => self.drop_link(link.header.index),
            None => self.stale.extend([What::Link, What::Route]),
        }
        Ok(())
    }

    fn put_link(&mut self, message: LinkMessage) -> Result<(), StoreError> {
        let mut link = link_status::link(&message);
        let index = link.index;
        let before = self.links.get(&index).map(|seen| &seen.link);
        if let Some(before) = before.filter(|before| before.name == link.name) {
            link.device = before.device.clone();
        }
        if before.is_some_and(|before| drops_routes(before, &link)) {
            self.stale.insert(What::Route);
        }
        if before != Some(&link) {
            self.has_other_links = true;
            self.is_urgent |= link.carrier
                && before.is_none_or(|before| before.carrier_ups != link.carrier_ups || !before.carrier);
            self.unknown.insert(index);
        }
        let of_other_end = other_end(&message, &link).and_then(|other| self.links.get(&other));
        if before.is_none()
            && of_other_end.is_some_and(|end| other_end(&end.message, &end.link) != Some(index))
        {
            // It was told of before this one was there.
            self.stale.insert(What::Link);
        }
        self.changed.insert(What::Link);
        self.routes.name(&self.store, index, &link.name)?;
        self.links.insert(index, SeenLink { message, link });
        Ok(())
    }

    fn drop_link(&mut self, index: u32) {
        self.has_other_links |= self.links.remove(&index).is_some();
        self.addresses.retain(|(link, ..), _| *link != index);
        self.unknown.remove(&index);
        self.stale.insert(What::Route);
        self.changed.extend([What::Link, What::Address]);
    }

    fn hear_address(&mut self, message: &[u8], is_there: bool) {
        let Some(message) = ADDRESSES.read(message, &mut self.losses) else {
            self.stale.extend([What::Address, What::Route]);
            return;
        };
        if !is_there {
            // The kernel drops routes that come from it, or takes it out of them.
            self.stale.insert(What::Route);
        }
        let Some(key) = address_key(&message) else { return };
        let scope = is_there.then_some(message.header.scope);
        let before = match scope {
            Some(scope) => self.addresses.insert(key, scope),
            None => self.addresses.remove(&key),
        };
        // The kernel also tells that one lives on.
        if before != scope {
            self.changed.insert(What::Address);
        }
    }

    fn hear_route(&mut self, message: &[u8], deed: Deed) -> Result<(), StoreError> {
        let mut losses = Losses::default();
        let told = ROUTES.read(message, &mut losses);
        let verdict = match told {
            Some(told) => self.routes.hear(&self.store, told, deed)?,
            // Of another family.
            None if losses.is_empty() => Verdict::Known,
            None => Verdict::Doubtful,
        };
        self.losses.extend(losses);
        if verdict == Verdict::Doubtful {
            self.stale.insert(What::Route);
        }
        Ok(())
    }

    fn hear_rule(&mut self, message: &[u8], is_there: bool) {
        let Some(rule) = RULES.read(message, &mut self.losses) else {
            self.stale.insert(What::Rule);
            return;
        };
        let Some(rule) = of_ours(rule) else { return };
        let known = self.rules.iter().position(|known| *known == rule);
        match (known, is_there) {
            (Some(_), true) => return,
            (Some(at), false) => drop(self.rules.remove(at)),
            (None, true) => {
                // Behind those of the same priority.
                let at = self.rules.iter().position(|known| place(known) > place(&rule));
                self.rules.insert(at.unwrap_or(self.rules.len()), rule);
            }
            (None, false) if self.rules.iter().any(|known| place(known) == place(&rule)) => {
                self.stale.insert(What::Rule);
            }
            (None, false) => return,
        }
        self.changed.insert(What::Rule);
    }

    /// Lists what is to be listed anew, and looks at what is behind links that are. Waits for the kernel.
    pub(super) fn list(&mut self) -> Result<(), ViewError> {
        self.has_lost = false;
        if !self.stale.is_empty() {
            let tables = Tables::open()?;
            // Routes last: a link that went and an address that is gone may have taken some with them.
            for what in [What::Link, What::Address, What::Rule, What::Route] {
                for attempt in 1..=LISTS {
                    if !self.stale.remove(&what) {
                        break;
                    }
                    let is_torn = match what {
                        What::Link => self.list_links(&tables)?,
                        What::Address => self.list_addresses(&tables)?,
                        What::Rule => self.list_rules(&tables)?,
                        What::Route => self.list_routes(&tables, attempt == LISTS)?,
                    };
                    if is_torn {
                        self.stale.insert(what);
                    }
                }
                self.stale.remove(&what);
            }
        }
        for index in std::mem::take(&mut self.unknown) {
            let Some(seen) = self.links.get_mut(&index) else { continue };
            let device = facts::device(&self.root, &seen.link.name);
            if seen.link.device != device {
                seen.link.device = device;
                self.has_other_links = true;
                self.changed.insert(What::Link);
            }
        }
        Ok(())
    }

    fn list_links(&mut self, tables: &Tables) -> Result<bool, ViewError> {
        let Dumped { found, losses, is_torn } = tables.links()?;
        self.losses.extend(losses);
        let there: BTreeSet<u32> = found.iter().map(|message| message.header.index).collect();
        let gone: Vec<u32> = self.links.keys().filter(|index| !there.contains(index)).copied().collect();
        gone.into_iter().for_each(|index| self.drop_link(index));
        for message in found {
            self.put_link(message)?;
        }
        self.changed.insert(What::Link);
        Ok(is_torn)
    }

    fn list_addresses(&mut self, tables: &Tables) -> Result<bool, ViewError> {
        let Dumped { found, losses, is_torn } = tables.addresses()?;
        self.losses.extend(losses);
        let scoped = found.iter().filter_map(|message| Some((address_key(message)?, message.header.scope)));
        self.addresses = scoped.collect();
        self.changed.insert(What::Address);
        Ok(is_torn)
    }

    fn list_rules(&mut self, tables: &Tables) -> Result<bool, ViewError> {
        let (mut rules, mut is_torn) = (Vec::new(), false);
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            let dumped = tables.rules(family)?;
            self.losses.extend(dumped.losses);
            is_torn |= dumped.is_torn;
            rules.extend(dumped.found.into_iter().filter_map(of_ours));
        }
        self.rules = rules;
        self.changed.insert(What::Rule);
        Ok(is_torn)
    }

    fn list_routes(&mut self, tables: &Tables, is_last: bool) -> Result<bool, ViewError> {
        tables.settle();
        self.routes.begin_list();
        let mut taken = Ok(());
        let Dumped { losses, is_torn, .. } = tables.routes(|part| {
            if taken.is_ok() {
                taken = self.routes.take(&self.store, part);
            }
        })?;
        taken?;
        self.losses.extend(losses);
        // What a torn list did not have may be there; the next one tells.
        if is_last || !is_torn {
            self.routes.end_list(&self.store)?;
            let links = &self.links;
            self.routes.keep_names(|index| links.contains_key(&index));
        }
        Ok(is_torn)
    }
}

/// Why the kernel's state is not known.
#[derive(Debug, thiserror::Error)]
pub(super) enum ViewError {
    /// The kernel tells nothing.
    #[error(transparent)]
    Dump(#[from] DumpError),
    /// The store refuses.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Whether the kernel drops routes of a link without a word when it becomes so.
fn drops_routes(before: &Link, after: &Link) -> bool {
    (before.up && !after.up) || (before.carrier && !after.carrier) || before.controller != after.controller
}

/// Index of the other end of a wire.
fn other_end(message: &LinkMessage, link: &Link) -> Option<u32> {
    let is_wire = ["veth", "netkit"].contains(&link.kind.as_str());
    let ends = message.attributes.iter().filter(|_| is_wire);
    ends.filter_map(|attribute| if let LinkAttribute::Link(end) = attribute { Some(*end) } else { None })
        .next()
}

fn address_key(message: &AddressMessage) -> Option<AddressKey> {
    let (mut address, mut local) = (None, None);
    for attribute in &message.attributes {
        match attribute {
            AddressAttribute::Address(other_end) => address = Some(*other_end),
            AddressAttribute::Local(own) => local = Some(*own),
            _ => {}
        }
    }
    Some((message.header.index, address?, local, message.header.prefix_len))
}

/// A rule of the families that are shown, without flags: the kernel sets those when a link comes or goes, and tells nothing.
fn of_ours(mut rule: RuleMessage) -> Option<RuleMessage> {
    rule.header.flags = RuleFlags::empty();
    matches!(rule.header.family, AddressFamily::Inet | AddressFamily::Inet6).then_some(rule)
}

/// Where a rule is in the order of all.
fn place(rule: &RuleMessage) -> (bool, u32) {
    let priority = rule.attributes.iter().find_map(|attribute| match attribute {
        RuleAttribute::Priority(priority) => Some(*priority),
        _ => None,
    });
    (rule.header.family == AddressFamily::Inet6, priority.unwrap_or_default())
}

#[cfg(test)]
#[path = "view_tests.rs"]
mod tests;
