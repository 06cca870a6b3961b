//! What becomes of the table and its resources when the kernel tells something.

use std::net::Ipv4Addr;

use runtime::store::Change;
use tokio::sync::broadcast::Receiver;

use super::*;

const BASE: Route<Ipv4Addr> = Route {
    table: 254,
    destination: Ipv4Addr::new(10, 8, 0, 0),
    prefix: 16,
    priority: 7,
    tos: 0,
    link: 2,
    gateway: Ipv4Addr::new(10, 9, 0, 1),
    source: Ipv4Addr::UNSPECIFIED,
    scope: 0,
    kind: 1,
    protocol: 4,
    rest: 0,
};
const ID: &str = "eth0/inet4/10.9.0.1/10.8.0.0/16/7";

struct Fixture {
    store: Store,
    routes: Arc<Routes>,
    later: Receiver<Change>,
}

impl Fixture {
    fn new() -> Self {
        let store = Store::new();
        let routes = Routes::serve(&store).unwrap();
        routes.name(&store, 2, "eth0").unwrap();
        routes.name(&store, 3, "eth1").unwrap();
        let later = store.changes();
        Self { store, routes, later }
    }

    fn hear(&self, route: Route<Ipv4Addr>, deed: Deed) -> Verdict {
        self.routes.hear(&self.store, AnyRoute::V4(route), deed).unwrap()
    }

    fn list(&self, all: &[Route<Ipv4Addr>]) {
        self.routes.begin_list();
        let told: Vec<AnyRoute> = all.iter().copied().map(AnyRoute::V4).collect();
        self.routes.take(&self.store, &told).unwrap();
        self.routes.end_list(&self.store).unwrap();
    }

    fn ids(&self) -> Vec<String> {
        self.store.list(&ROUTE_STATUS).iter().map(|resource| resource.metadata.id.clone()).collect()
    }

    /// Kinds and ids of changes since the last call.
    fn changes(&mut self) -> Vec<(ChangeKind, String)> {
        let next =
            || self.later.try_recv().ok().map(|change| (change.kind, change.resource.metadata.id.clone()));
        std::iter::from_fn(next).collect()
    }

    fn status(&self, id: &str) -> (RouteStatus, u64) {
        let resource = self.store.get(&ROUTE_STATUS, id).unwrap_or_else(|| panic!("{id}: {:?}", self.ids()));
        match &resource.spec {
            Spec::RouteStatus(status) => (status.clone(), resource.metadata.version),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_route_comes_changes_and_goes_as_one_resource() {
    let mut f = Fixture::new();
    assert_eq!(f.hear(BASE, Deed::Added), Verdict::Known);
    assert_eq!(f.changes(), [(ChangeKind::Created, ID.into())]);
    let other = Route { protocol: 186, ..BASE };
    assert_eq!(f.hear(other, Deed::Replaced), Verdict::Known);
    assert_eq!(f.changes(), [(ChangeKind::Updated, ID.into())]);
    let (status, version) = f.status(ID);
    assert_eq!((status.protocol.as_str(), version), ("bgp", 2));
    let moved = Route { gateway: [10, 9, 0, 2].into(), ..BASE };
    assert_eq!(f.hear(moved, Deed::Replaced), Verdict::Known);
    let new = "eth0/inet4/10.9.0.2/10.8.0.0/16/7";
    assert_eq!(f.changes(), [(ChangeKind::Destroyed, ID.into()), (ChangeKind::Created, new.into())]);
    assert_eq!(f.hear(moved, Deed::Removed), Verdict::Known);
    assert_eq!(f.changes(), [(ChangeKind::Destroyed, new.into())]);
    assert!(f.ids().is_empty());
}

#[test]
fn what_is_told_twice_or_too_late_changes_nothing() {
    let mut f = Fixture::new();
    f.list(&[BASE]);
    f.changes();
    for deed in [Deed::Added, Deed::Replaced] {
        assert_eq!(f.hear(BASE, deed), Verdict::Known, "{deed:?}");
    }
    let gone = Route { destination: [10, 7, 0, 0].into(), ..BASE };
    assert_eq!(f.hear(gone, Deed::Removed), Verdict::Known);
    assert!(f.changes().is_empty());
    // A list that is newer than what is heard after it.
    let (a, b, c) = (BASE, Route { protocol: 5, ..BASE }, Route { protocol: 6, ..BASE });
    f.list(&[c]);
    assert_eq!([f.hear(b, Deed::Replaced), f.hear(c, Deed::Replaced)], [Verdict::Known; 2]);
    f.list(&[]);
    for (route, deed) in [(a, Deed::Added), (b, Deed::Replaced), (b, Deed::Removed)] {
        let verdict = f.hear(route, deed);
        assert_eq!(verdict, Verdict::Known, "{deed:?}");
    }
    assert!(f.ids().is_empty());
}

#[test]
fn where_another_route_is_known_than_is_told_of_only_a_list_tells() {
    let f = Fixture::new();
    let appended = Route { protocol: 5, ..BASE };
    type Case<'a> = (&'a str, &'a [Route<Ipv4Addr>], Route<Ipv4Addr>, Deed, Verdict);
    let cases: [Case<'_>; 7] = [
        ("replaces what is not known", &[], BASE, Deed::Replaced, Verdict::Doubtful),
        (
            "replaces one of two",
            &[BASE, appended],
            Route { protocol: 6, ..BASE },
            Deed::Replaced,
            Verdict::Doubtful,
        ),
        (
            "replaces beside another type of service",
            &[Route { tos: 8, ..BASE }],
            BASE,
            Deed::Replaced,
            Verdict::Doubtful,
        ),
        ("removes another one of its place", &[BASE], appended, Deed::Removed, Verdict::Doubtful),
        ("removes one of two", &[BASE, appended], appended, Deed::Removed, Verdict::Known),
        ("adds one to its place", &[BASE], appended, Deed::Added, Verdict::Known),
        (
            "adds one that differs in what is not shown",
            &[BASE],
            Route { rest: 9, ..BASE },
            Deed::Added,
            Verdict::Known,
        ),
    ];
    for (what, known, route, deed, verdict) in cases {
        f.list(known);
        assert_eq!(f.hear(route, deed), verdict, "{what}");
    }
}

#[test]
fn several_next_hops_in_a_place_that_is_taken_are_doubtful() {
    let f = Fixture::new();
    let route = Route {
        table: 254,
        destination: "fd00:8::".parse::<Ipv6Addr>().unwrap(),
        prefix: 32,
        priority: 1024,
        tos: 0,
        link: 2,
        gateway: "fd00:9::1".parse().unwrap(),
        source: Ipv6Addr::UNSPECIFIED,
        scope: 0,
        kind: 1,
        protocol: 4,
        rest: 0,
    };
    let several = Route { link: 0, gateway: Ipv6Addr::UNSPECIFIED, rest: 5, ..route };
    let hear = |route, is_multipath, deed| {
        f.routes.hear(&f.store, AnyRoute::V6 { route, is_multipath }, deed).unwrap()
    };
    assert_eq!(hear(several, true, Deed::Added), Verdict::Known);
    assert_eq!(hear(route, false, Deed::Removed), Verdict::Doubtful, "one of several");
    assert_eq!(hear(several, true, Deed::Removed), Verdict::Known);
    assert_eq!(hear(route, false, Deed::Added), Verdict::Known);
    // That of another router.
    assert_eq!(hear(Route { link: 3, ..route }, false, Deed::Added), Verdict::Known);
    assert_eq!(hear(several, true, Deed::Added), Verdict::Doubtful);
    assert_eq!(f.ids(), ["eth0/inet6/fd00:9::1/fd00:8::/32/1024", "eth1/inet6/fd00:9::1/fd00:8::/32/1024"]);
}

#[test]
fn of_several_routes_of_one_id_the_first_is_shown() {
    let mut f = Fixture::new();
    let second = Route { tos: 8, protocol: 186, ..BASE };
    let first = BASE;
    assert_eq!(f.hear(second, Deed::Added), Verdict::Known);
    assert_eq!(f.hear(first, Deed::Added), Verdict::Known);
    assert_eq!(f.changes(), [(ChangeKind::Created, ID.into()), (ChangeKind::Updated, ID.into())]);
    assert_eq!((f.ids(), f.status(ID).0.protocol.as_str()), (vec![ID.to_owned()], "static"));
    assert_eq!(f.hear(second, Deed::Removed), Verdict::Known);
    assert!(f.changes().is_empty(), "it was not shown");
    assert_eq!(f.hear(second, Deed::Added), Verdict::Known);
    assert!(f.changes().is_empty());
    assert_eq!(f.hear(first, Deed::Removed), Verdict::Known);
    assert_eq!(f.changes(), [(ChangeKind::Updated, ID.into())]);
    let (status, version) = f.status(ID);
    assert_eq!((status.protocol.as_str(), version), ("bgp", 3));
    // One that looks the same takes its place without a word.
    let same = Route { tos: 16, ..second };
    assert_eq!(f.hear(same, Deed::Added), Verdict::Known);
    assert_eq!(f.hear(second, Deed::Removed), Verdict::Known);
    assert!(f.changes().is_empty());
    assert_eq!(f.status(ID).1, 3);
}

#[test]
fn a_list_adds_and_removes_what_differs_and_no_more() {
    let mut f = Fixture::new();
    let [a, b, c] = [1, 2, 3].map(|number| Route { destination: [10, number, 0, 0].into(), ..BASE });
    f.list(&[a, b]);
    f.changes();
    f.list(&[b, c]);
    let id = |number: u8| format!("eth0/inet4/10.9.0.1/10.{number}.0.0/16/7");
    assert_eq!(f.changes(), [(ChangeKind::Created, id(3)), (ChangeKind::Destroyed, id(1))]);
    // Until a list ends nothing goes.
    f.routes.begin_list();
    assert_eq!(f.ids(), [id(2), id(3)]);
    assert_eq!(f.hear(a, Deed::Added), Verdict::Known);
    f.routes.take(&f.store, &[AnyRoute::V4(c)]).unwrap();
    f.routes.end_list(&f.store).unwrap();
    assert_eq!(f.ids(), [id(1), id(3)], "what was told while it was listed stays");
}

#[test]
fn routes_of_a_link_with_another_name_have_other_ids() {
    let mut f = Fixture::new();
    f.list(&[BASE, Route { link: 3, ..BASE }]);
    f.changes();
    f.routes.name(&f.store, 2, "eth0").unwrap();
    assert!(f.changes().is_empty());
    f.routes.name(&f.store, 2, "up0").unwrap();
    let new = "up0/inet4/10.9.0.1/10.8.0.0/16/7";
    assert_eq!(f.changes(), [(ChangeKind::Destroyed, ID.into()), (ChangeKind::Created, new.into())]);
    f.routes.keep_names(|link| link != 2);
    assert_eq!(f.ids()[0], "/inet4/10.9.0.1/10.8.0.0/16/7");
}

#[test]
fn default_routes_are_told_apart_when_one_changes() {
    let f = Fixture::new();
    let default = Route { destination: Ipv4Addr::UNSPECIFIED, prefix: 0, ..BASE };
    assert!(f.routes.new_defaults().is_some());
    assert_eq!(f.hear(BASE, Deed::Added), Verdict::Known);
    assert!(f.routes.new_defaults().is_none());
    assert_eq!(f.hear(default, Deed::Added), Verdict::Known);
    let defaults = f.routes.new_defaults().unwrap();
    assert_eq!(defaults.len(), 1);
    assert_eq!(
        (defaults[0].0.as_str(), defaults[0].1.gateway.as_str()),
        ("eth0/inet4/10.9.0.1//7", "10.9.0.1")
    );
    assert!(f.routes.new_defaults().is_none());
    assert_eq!(f.hear(default, Deed::Removed), Verdict::Known);
    assert!(f.routes.new_defaults().unwrap().is_empty());
}

#[test]
fn the_longest_match_of_the_main_table_leads() {
    let f = Fixture::new();
    let to = |network: [u8; 4], prefix, link| Route { destination: network.into(), prefix, link, ..BASE };
    f.list(&[
        to([0, 0, 0, 0], 0, 2),
        to([10, 8, 0, 0], 16, 3),
        Route { priority: 1, ..to([10, 8, 1, 0], 24, 2) },
        to([10, 8, 1, 0], 24, 3),
        Route { table: 100, ..to([10, 8, 1, 7], 32, 3) },
        to([10, 8, 2, 1], 32, 2),
    ]);
    let link = |to: &str| link_towards(&f.store, to.parse().unwrap()).unwrap_or_default();
    for (address, expected) in [
        ("9.9.9.9", "eth0"),
        ("10.8.3.4", "eth1"),
        ("10.8.1.7", "eth0"),
        ("10.8.2.1", "eth0"),
        ("10.8.2.2", "eth1"),
    ] {
        assert_eq!(link(address), expected, "{address}");
    }
    assert_eq!(link("fd00::1"), "");
    assert_eq!(link_towards(&Store::new(), "10.8.1.7".parse().unwrap()), None);
}
