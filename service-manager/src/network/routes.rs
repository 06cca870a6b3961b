//! The kernel's routes as resources, changed one by one.
//!
//! Owns: which route is shown where several have one id: the first of the table. What it is told may be older than the last list:
//! whatever is told twice, or after it is over, changes nothing.
//! Does not: keep resources. The store asks for them, and they are made then.
//! Fails by: [`Verdict::Doubtful`], where only a list tells what the kernel has.
//! Source: net/ipv4/fib_trie.c and net/ipv6/ip6_fib.c of Linux: what is told of a change.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use runtime::clock;
use runtime::store::{
    ChangeKind, ROUTE_STATUS, Resource, RouteStatus, Source, Spec, Store, StoreError, Tell,
};

use super::route::{Address, AnyRoute, Route, id};

/// What is known after a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(super) enum Verdict {
    /// The table is as the kernel says.
    Known,
    /// The kernel has something else than was thought.
    Doubtful,
}

/// What the kernel did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Deed {
    Added,
    /// `NLM_F_REPLACE`: in the place of another one.
    Replaced,
    Removed,
}

/// Of a route that is shown.
#[derive(Debug, Clone, Copy)]
struct Stamp {
    /// Microseconds since 1970.
    created: i64,
    updated: i64,
    version: u32,
    /// The last list that had it.
    list: u32,
}

impl Stamp {
    fn new(now: i64, list: u32) -> Self {
        Self { created: now, updated: now, version: 1, list }
    }
}

type Table<A> = BTreeMap<Route<A>, Stamp>;
type Names = BTreeMap<u32, Arc<str>>;

#[derive(Debug, Default)]
struct Tables {
    v4: Table<Ipv4Addr>,
    v6: Table<Ipv6Addr>,
    /// Of links, by index.
    names: Names,
    /// Lists so far.
    list: u32,
    /// A default route changed.
    has_new_default: bool,
}

/// The routes of both families.
#[derive(Debug, Default)]
pub(super) struct Routes(Mutex<Tables>);

impl Source for Routes {
    fn get(&self, wanted: &str) -> Option<Arc<Resource>> {
        let tables = self.tables();
        let found =
            find(&tables.v4, &tables.names, wanted).or_else(|| find(&tables.v6, &tables.names, wanted));
        found.map(Arc::new)
    }

    fn list(&self) -> Vec<Arc<Resource>> {
        let tables = self.tables();
        let mut all = shown(&tables.v4, &tables.names, |_| true);
        all.extend(shown(&tables.v6, &tables.names, |_| true));
        drop(tables);
        all.sort_by(|a, b| a.metadata.id.cmp(&b.metadata.id));
        all
    }
}

impl Routes {
    /// Those of a node whose kernel has told nothing yet.
    pub(super) fn serve(store: &Store) -> Result<Arc<Self>, StoreError> {
        let routes = Arc::new(Self::default());
        store.serve(ROUTE_STATUS.writer, &ROUTE_STATUS, routes.clone())?;
        Ok(routes)
    }

    fn tables(&self) -> MutexGuard<'_, Tables> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<T>(
        &self,
        store: &Store,
        change: impl FnOnce(&mut Tables, &mut Tell<'_>) -> T,
    ) -> Result<T, StoreError> {
        store.change(ROUTE_STATUS.writer, &ROUTE_STATUS, |tell| change(&mut self.tables(), tell))
    }

    /// The kernel told of one change.
    pub(super) fn hear(&self, store: &Store, told: AnyRoute, deed: Deed) -> Result<Verdict, StoreError> {
        self.change(store, |tables, tell| {
            let Tables { v4, v6, names, list, has_new_default } = tables;
            match told {
                AnyRoute::V4(route) => {
                    *has_new_default |= route.is_default();
                    turn(v4, names, *list, tell).hear(route, deed, false)
                }
                AnyRoute::V6 { route, is_multipath } => {
                    *has_new_default |= route.is_default();
                    turn(v6, names, *list, tell).hear(route, deed, is_multipath)
                }
            }
        })
    }

    /// A list begins. Until it ends nothing goes.
    pub(super) fn begin_list(&self) {
        let mut tables = self.tables();
        tables.list = tables.list.wrapping_add(1);
        tables.has_new_default = true;
    }

    /// A part of a list.
    pub(super) fn take(&self, store: &Store, part: &[AnyRoute]) -> Result<(), StoreError> {
        self.change(store, |Tables { v4, v6, names, list, .. }, tell| {
            for told in part {
                match *told {
                    AnyRoute::V4(route) => turn(v4, names, *list, tell).take(route),
                    AnyRoute::V6 { route, .. } => turn(v6, names, *list, tell).take(route),
                }
            }
        })
    }

    /// The list is whole: what it did not have is gone.
    pub(super) fn end_list(&self, store: &Store) -> Result<(), StoreError> {
        self.change(store, |Tables { v4, v6, names, list, .. }, tell| {
            turn(v4, names, *list, tell).sweep();
            turn(v6, names, *list, tell).sweep();
        })
    }

    /// A link has this name from now on, and its routes other ids.
    pub(super) fn name(&self, store: &Store, link: u32, name: &str) -> Result<(), StoreError> {
        if self.tables().names.get(&link).is_some_and(|known| &**known == name) {
            return Ok(());
        }
        self.change(store, |Tables { v4, v6, names, list, has_new_default }, tell| {
            let (of_v4, of_v6) = (of_link(v4, link), of_link(v6, link));
            for &route in &of_v4 {
                turn(v4, names, *list, tell).change(Some(route), None);
            }
            for &route in &of_v6 {
                turn(v6, names, *list, tell).change(Some(route), None);
            }
            names.insert(link, name.into());
            for route in of_v4 {
                turn(v4, names, *list, tell).change(None, Some(route));
            }
            for route in of_v6 {
                turn(v6, names, *list, tell).change(None, Some(route));
            }
            *has_new_default = true;
        })
    }

    /// Forgets names of links that are gone, once their routes are.
    pub(super) fn keep_names(&self, is_there: impl Fn(u32) -> bool) {
        self.tables().names.retain(|link, _| is_there(*link));
    }

    /// The default routes, if one of them may be another one than at the last call.
    pub(super) fn new_defaults(&self) -> Option<Vec<(String, RouteStatus)>> {
        let mut tables = self.tables();
        if !std::mem::take(&mut tables.has_new_default) {
            return None;
        }
        let mut found = shown(&tables.v4, &tables.names, |route| route.is_default());
        found.extend(shown(&tables.v6, &tables.names, |route| route.is_default()));
        let status = |resource: Arc<Resource>| match &resource.spec {
            Spec::RouteStatus(status) => Some((resource.metadata.id.clone(), status.clone())),
            _ => None,
        };
        Some(found.into_iter().filter_map(status).collect())
    }
}

/// The name of the link over which the main table leads to an address, by the longest match.
pub(crate) fn link_towards(store: &Store, to: IpAddr) -> Option<String> {
    let routes = store.source::<Routes>(&ROUTE_STATUS)?;
    let tables = routes.tables();
    let link = match to {
        IpAddr::V4(to) => towards(&tables.v4, to),
        IpAddr::V6(to) => towards(&tables.v6, to),
    }?;
    Some(link_name(&tables.names, link).to_owned())
}

fn towards<A: Address>(table: &Table<A>, to: A) -> Option<u32> {
    let leading = (0..=A::MOST).rev().find_map(|prefix| {
        let first = Route::first_to(to.network(prefix), prefix);
        let (found, _) = table.range(first..).next()?;
        // Those of one destination are sorted by their metric.
        ((found.table, found.destination, found.prefix) == (first.table, first.destination, prefix))
            .then_some(found)
    });
    leading.map(|route| route.link)
}

fn of_link<A: Address>(table: &Table<A>, link: u32) -> Vec<Route<A>> {
    table.keys().filter(|route| route.link == link).copied().collect()
}

/// Whether this is the one of its id that is shown.
fn is_shown<A: Address>(table: &Table<A>, route: &Route<A>) -> bool {
    first_named(table, route).is_some_and(|(first, _)| first == *route)
}

/// The route that is shown by the id of this one.
fn first_named<A: Address>(table: &Table<A>, route: &Route<A>) -> Option<(Route<A>, Stamp)> {
    let beside = table.range(route.first_beside()..).take_while(|(other, _)| other.is_beside(route));
    beside.map(|(other, stamp)| (*other, *stamp)).find(|(other, _)| other.is_named_as(route))
}

fn shown<A: Address>(
    table: &Table<A>,
    names: &Names,
    is_wanted: impl Fn(&Route<A>) -> bool,
) -> Vec<Arc<Resource>> {
    let wanted = table.iter().filter(|(route, _)| is_wanted(route) && is_shown(table, route));
    wanted.map(|(route, stamp)| Arc::new(resource(route, stamp, names))).collect()
}

fn find<A: Address>(table: &Table<A>, names: &Names, wanted: &str) -> Option<Resource> {
    // The id ends with the metric: most routes have another one.
    let priority: u32 = wanted.rsplit('/').next()?.parse().ok()?;
    let mut found = table.iter().filter(|(route, _)| route.priority == priority);
    let named = |route: &Route<A>| id(&route.status(link_name(names, route.link))) == wanted;
    found
        .find(|(route, _)| named(route) && is_shown(table, route))
        .map(|(route, stamp)| resource(route, stamp, names))
}

fn link_name(names: &Names, link: u32) -> &str {
    names.get(&link).map(|name| &**name).unwrap_or_default()
}

fn resource<A: Address>(route: &Route<A>, stamp: &Stamp, names: &Names) -> Resource {
    let status = route.status(link_name(names, route.link));
    let time = |us| Timestamp::from_microsecond(us).unwrap_or_default();
    let (created, updated) = (time(stamp.created), time(stamp.updated));
    Resource::at(
        &ROUTE_STATUS,
        id(&status),
        Spec::RouteStatus(status),
        stamp.version.into(),
        created,
        updated,
    )
}

fn turn<'a, 'b, A>(
    table: &'a mut Table<A>,
    names: &'a Names,
    list: u32,
    tell: &'a mut Tell<'b>,
) -> Turn<'a, 'b, A> {
    Turn { table, names, list, tell }
}

/// One table while it changes.
struct Turn<'a, 'b, A> {
    table: &'a mut Table<A>,
    names: &'a Names,
    list: u32,
    tell: &'a mut Tell<'b>,
}

impl<A: Address> Turn<'_, '_, A> {
    fn hear(&mut self, route: Route<A>, deed: Deed, is_multipath: bool) -> Verdict {
        let has_it = self.table.contains_key(&route);
        let in_place = self.in_place(&route);
        match deed {
            Deed::Removed if has_it => {
                self.change(Some(route), None);
                Verdict::Known
            }
            // It was gone before the last list.
            Deed::Removed if in_place.is_empty() => Verdict::Known,
            Deed::Removed => Verdict::Doubtful,
            Deed::Added if has_it => Verdict::Known,
            // Several of one place are told as one: which of those that are known?
            Deed::Added if is_multipath && !in_place.is_empty() => Verdict::Doubtful,
            Deed::Added => {
                self.change(None, Some(route));
                Verdict::Known
            }
            Deed::Replaced => match in_place[..] {
                [before] if before == route => Verdict::Known,
                [before] => {
                    self.change(Some(before), Some(route));
                    Verdict::Known
                }
                _ => Verdict::Doubtful,
            },
        }
    }

    /// Those that have the place of this one.
    fn in_place(&self, route: &Route<A>) -> Vec<Route<A>> {
        let beside = self.table.range(route.first_beside()..).take_while(|(other, _)| other.is_beside(route));
        beside.map(|(other, _)| *other).filter(|other| other.is_in_place_of(route)).collect()
    }

    fn take(&mut self, route: Route<A>) {
        match self.table.get_mut(&route) {
            Some(stamp) => stamp.list = self.list,
            None => self.change(None, Some(route)),
        }
    }

    fn sweep(&mut self) {
        let list = self.list;
        let gone: Vec<Route<A>> =
            self.table.iter().filter(|(_, stamp)| stamp.list != list).map(|(route, _)| *route).collect();
        gone.into_iter().for_each(|route| self.change(Some(route), None));
    }

    /// Takes one route away and adds one, and tells what became of what is shown.
    fn change(&mut self, removed: Option<Route<A>>, added: Option<Route<A>>) {
        let is_same_id = removed.zip(added).is_some_and(|(removed, added)| removed.is_named_as(&added));
        let first = removed.or(added).map(|route| (route, first_named(self.table, &route)));
        let second = added.filter(|_| removed.is_some() && !is_same_id);
        let second = second.map(|route| (route, first_named(self.table, &route)));
        if let Some(route) = removed {
            self.table.remove(&route);
        }
        if let Some(route) = added {
            let now = clock::now().as_microsecond();
            self.table.insert(route, Stamp::new(now, self.list));
        }
        for (route, before) in first.into_iter().chain(second) {
            self.compare(&route, before);
        }
    }

    /// Tells what became of the id of a route, by which another one may have been shown before.
    fn compare(&mut self, route: &Route<A>, before: Option<(Route<A>, Stamp)>) {
        let after = first_named(self.table, route);
        let of = |(route, stamp): &(Route<A>, Stamp)| Arc::new(resource(route, stamp, self.names));
        match (before, after) {
            (None, None) => {}
            (None, Some(after)) => (self.tell)(ChangeKind::Created, of(&after), None),
            (Some(before), None) => (self.tell)(ChangeKind::Destroyed, of(&before), None),
            (Some(before), Some(after)) if before.0 == after.0 => {}
            (Some(before), Some(mut after)) => {
                let old = of(&before);
                let is_shown_so = old.spec == of(&after).spec;
                (after.1.created, after.1.updated) = (before.1.created, before.1.updated);
                after.1.version = before.1.version;
                if !is_shown_so {
                    after.1.version = after.1.version.saturating_add(1);
                    after.1.updated = clock::now().as_microsecond();
                }
                self.table.insert(after.0, after.1);
                if !is_shown_so {
                    (self.tell)(ChangeKind::Updated, of(&after), Some(old));
                }
            }
        }
    }
}

#[cfg(test)]
#[path = "routes_tests.rs"]
mod tests;
