//! The view beside the kernel's own lists, in a network namespace.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use fastrand::Rng;
use runtime::Runtime;
use runtime::store::{
    ADDRESS_STATUS, DEFAULT_ROUTE, Definition, LINK_STATUS, ROUTE_STATUS, ROUTING_RULE_STATUS,
};

use crate::network::news::News;
use crate::network::status::Status;
use crate::network::testing::{ip, is_inside, until};

const KINDS: [&Definition; 5] =
    [&LINK_STATUS, &ADDRESS_STATUS, &ROUTE_STATUS, &DEFAULT_ROUTE, &ROUTING_RULE_STATUS];
/// Between changes of the kernel and the last word of them.
const QUIET: Duration = Duration::from_millis(60);
/// How late the kernel may tell.
const DELAY: Duration = Duration::from_secs(5);

/// A view that follows the kernel.
struct Followed {
    runtime: std::sync::Arc<Runtime>,
    status: Status,
    news: News,
    _root: tempfile::TempDir,
}

impl Followed {
    async fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let runtime = Runtime::detached(root.path().to_owned());
        let news = News::open().unwrap();
        let status = Status::new(&runtime).unwrap();
        let mut followed = Self { runtime, status, news, _root: root };
        followed.publish().await;
        followed
    }

    async fn publish(&mut self) {
        self.status.publish(&self.runtime, false).await.unwrap();
    }

    fn hear(&mut self) {
        let view = self.status.view().unwrap();
        if self.news.read(|message| view.hear(message).map_err(std::io::Error::other)).unwrap() {
            view.lost();
        }
    }

    /// Follows what is told until nothing more is.
    async fn follow(&mut self) {
        while let Ok(heard) = tokio::time::timeout(QUIET, self.news.wait()).await {
            heard.unwrap();
            self.hear();
            self.publish().await;
        }
    }

    fn shown(&self) -> BTreeMap<(&'static str, String), String> {
        let all = KINDS.into_iter().flat_map(|kind| self.runtime.store.list(kind));
        let text = |resource: &runtime::store::Resource| resource.spec.yaml().unwrap();
        all.map(|resource| ((resource.metadata.kind, resource.metadata.id.clone()), text(&resource)))
            .collect()
    }

    fn routes(&self) -> Vec<String> {
        self.runtime.store.list(&ROUTE_STATUS).iter().map(|resource| resource.metadata.id.clone()).collect()
    }
}

/// Fails for what differs from what the kernel lists. It tells of some carriers up to a second after it lists them so.
async fn assert_same(followed: &mut Followed, what: &str) {
    let begin = Instant::now();
    loop {
        let (here, there) = (followed.shown(), Followed::new().await.shown());
        if here == there {
            return;
        }
        let differs = |key: &&(&'static str, String)| here.get(*key) != there.get(*key);
        let keys: BTreeSet<_> = here.keys().chain(there.keys()).filter(differs).collect();
        let differences: Vec<_> = keys.into_iter().map(|key| (key, here.get(key), there.get(key))).collect();
        assert!(begin.elapsed() < DELAY, "{what}: here, and listed: {differences:#?}");
        followed.follow().await;
    }
}

/// The kernel tells of an IPv6 address when no other machine has it, which takes it a second: here there is no other machine.
fn trust_neighbours() {
    for links in ["all", "default"] {
        std::fs::write(format!("/proc/sys/net/ipv6/conf/{links}/accept_dad"), "0").unwrap();
    }
    ip("link set lo up");
}

fn try_ip(words: &str) {
    // Of random changes the kernel refuses many.
    std::process::Command::new("ip").args(words.split(' ')).output().unwrap();
}

fn random_change(random: &mut Rng) -> String {
    let link = format!("d{}", random.u8(0..4));
    let other = format!("d{}", random.u8(0..4));
    let (net, host, number) = (random.u8(0..3), random.u8(1..4), random.u8(0..4));
    let verb = ["add", "replace", "append", "del", "change", "prepend"][random.usize(..6)];
    let metric = ["", " metric 5", " metric 9", " tos 8"][random.usize(..4)];
    let table = ["", " table 100"][random.usize(..2)];
    match random.u8(0..28) {
        0 => format!("link add {link} type veth peer name {other}"),
        1 => format!("link del {link}"),
        2..=4 => format!("link set {link} up"),
        5 => format!("link set {link} down"),
        6 => format!("link set {link} mtu {}", 1400 + u32::from(number)),
        7 => format!("link set {link} down name {other}"),
        8 => format!("link set {link} master v{}", random.u8(0..2)),
        9 => format!("link set {link} nomaster"),
        10 | 11 => format!("address add 10.{net}.0.{host}/24 dev {link}"),
        12 => format!("address del 10.{net}.0.{host}/24 dev {link}"),
        13 => format!("address add fd00:{net}::{host}/64 dev {link} nodad"),
        14 => format!("address del fd00:{net}::{host}/64 dev {link}"),
        15 | 16 => format!("route {verb} 10.2{number}.0.0/16 via 10.{net}.0.{host}{metric}{table}"),
        17 => format!("route {verb} 10.2{number}.0.0/16 dev {link} src 10.{net}.0.{host}{metric}"),
        18 => format!("route {verb} default via 10.{net}.0.{host}{metric}"),
        19 => format!(
            "route {verb} 10.2{number}.0.0/16 nexthop via 10.{net}.0.{host} nexthop via 10.0.0.{host}"
        ),
        20 => format!(
            "route {verb} {} 10.2{number}.0.0/16{table}",
            ["blackhole", "prohibit"][random.usize(..2)]
        ),
        21 => format!("route flush proto boot table {}", ["100", "main"][random.usize(..2)]),
        22 | 23 => format!("-6 route {verb} fd00:2{number}::/32 via fd00:{net}::{host}{metric}")
            .replace(" tos 8", " metric 7"),
        24 => format!("-6 route {verb} fd00:2{number}::/32 dev {link}{table}"),
        25 => format!(
            "-6 route {verb} fd00:2{number}::/32 nexthop via fd00:{net}::{host} nexthop via fd00:0::{host}"
        ),
        26 => {
            format!("rule {} pref {number} from 10.{net}.0.0/16 table 100", ["add", "del"][random.usize(..2)])
        }
        _ => match number {
            0 => format!("nexthop replace id {host} via 10.{net}.0.{host} dev {link}"),
            1 => format!("nexthop del id {host}"),
            2 => format!("route {verb} 10.2{number}.0.0/16 nhid {host}{metric}"),
            _ => format!(
                "-6 rule {} pref {host} from fd00:{net}::/32 table 100",
                ["add", "del"][random.usize(..2)]
            ),
        },
    }
}

#[tokio::test]
async fn a_view_that_hears_of_every_change_is_what_the_kernel_lists() {
    const TEST: &str = "network::view::tests::a_view_that_hears_of_every_change_is_what_the_kernel_lists";
    if !is_inside(TEST) {
        return;
    }
    let given = std::env::var("BILLET_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = given.unwrap_or_else(|| Rng::new().u64(..));
    eprintln!("BILLET_SEED={seed}");
    let mut random = Rng::with_seed(seed);
    let rounds = if std::env::var_os("BILLET_LONG").is_some() { 400 } else { 25 };
    trust_neighbours();
    for number in 0..2 {
        // Not every kernel has both kinds.
        try_ip(&format!("link add v{number} type {}", ["bridge", "vrf table 100"][number]));
        try_ip(&format!("link set v{number} up"));
        try_ip(&format!("link add d{number} type veth peer name d{}", number + 2));
    }
    let mut followed = Followed::new().await;
    for round in 0..rounds {
        let changes: Vec<String> = (0..12).map(|_| random_change(&mut random)).collect();
        for change in &changes {
            try_ip(change);
            // Some are heard together, some one by one.
            if random.bool() {
                followed.hear();
            }
            if random.u8(..4) == 0 {
                followed.publish().await;
            }
        }
        followed.follow().await;
        assert_same(&mut followed, &format!("BILLET_SEED={seed}, round {round}, {changes:#?}")).await;
    }
}

#[tokio::test]
async fn routes_that_the_kernel_drops_without_a_word_are_gone() {
    const TEST: &str = "network::view::tests::routes_that_the_kernel_drops_without_a_word_are_gone";
    if !is_inside(TEST) {
        return;
    }
    trust_neighbours();
    // Not every kernel has them.
    try_ip("link add v0 type vrf table 100");
    try_ip("link set v0 up");
    let mut followed = Followed::new().await;
    let has_vrfs = followed.shown().keys().any(|(_, id)| id == "v0");
    for (what, drops, stays) in [
        ("a link goes down", "link set eth0 down", false),
        ("a link goes", "link del eth0", false),
        ("the last address of a link goes", "address del 10.9.0.1/24 dev eth0", false),
        ("the address goes that the route comes from", "address del 10.9.1.1/24 dev eth1", false),
        ("a link without an end", "link set end0 down", true),
        ("a link moves to a VRF", "link set eth0 master v0", false),
        ("a next hop goes", "nexthop del id 7", false),
        ("a next hop becomes another one", "nexthop replace id 7 via 10.9.0.3 dev eth0", true),
        ("an address goes that no route needs", "address del 10.9.2.1/24 dev eth1", true),
    ] {
        if what.contains("VRF") && !has_vrfs {
            continue;
        }
        for made in [
            "link add eth0 type veth peer name end0",
            "link add eth1 type veth peer name end1",
            "link set end0 up",
            "link set end1 up",
            "link set eth0 up",
            "link set eth1 up",
            "address add 10.9.0.1/24 dev eth0",
            "address add 10.9.1.1/24 dev eth1",
            "address add 10.9.2.1/24 dev eth1",
            "nexthop add id 7 via 10.9.0.2 dev eth0",
            if what.contains("next hop") {
                "route add 10.8.0.0/16 nhid 7"
            } else {
                "route add 10.8.0.0/16 via 10.9.0.2 src 10.9.1.1"
            },
        ] {
            ip(made);
        }
        followed.follow().await;
        let has_it = |followed: &Followed| followed.routes().iter().any(|id| id.contains("/10.8.0.0/16/"));
        assert!(has_it(&followed), "{what}: {:?}", followed.routes());
        ip(drops);
        followed.follow().await;
        assert_eq!(has_it(&followed), stays, "{what}: {:?}", followed.routes());
        assert_same(&mut followed, what).await;
        for link in ["eth0", "eth1"] {
            try_ip(&format!("link del {link}"));
        }
        followed.follow().await;
    }
}

#[tokio::test]
async fn what_was_lost_is_listed_anew() {
    const TEST: &str = "network::view::tests::what_was_lost_is_listed_anew";
    if !is_inside(TEST) {
        return;
    }
    trust_neighbours();
    ip("link add eth0 type veth peer name end0");
    ip("link set end0 up");
    ip("link set eth0 up");
    ip("address add 10.9.0.1/24 dev eth0");
    let mut followed = Followed::new().await;
    // A socket that has no room.
    followed.news.shrink();
    for number in 0..100 {
        ip(&format!("route add 10.8.{number}.0/24 via 10.9.0.2"));
    }
    ip("rule add pref 7 table 100");
    ip("link add eth1 type veth");
    followed.follow().await;
    assert_same(&mut followed, "after an overrun").await;
    assert!(followed.routes().len() > 100);
    // What cannot be read is listed, too: here no message at all, and one whose header is cut off.
    let mut deaf = Followed::new().await;
    ip("route add 10.7.0.0/16 via 10.9.0.2");
    let mut short = vec![0; 20];
    (short[0], short[4]) = (20, 24);
    deaf.status.view().unwrap().hear(Some(&short)).unwrap();
    deaf.publish().await;
    assert_same(&mut deaf, "after a route that cannot be read").await;
    ip("link add eth2 type veth");
    deaf.status.view().unwrap().hear(None).unwrap();
    deaf.publish().await;
    assert_same(&mut deaf, "after no message").await;
}

#[tokio::test]
async fn networkd_follows_the_kernel_while_it_runs() {
    const TEST: &str = "network::view::tests::networkd_follows_the_kernel_while_it_runs";
    if !is_inside(TEST) {
        return;
    }
    trust_neighbours();
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(root.path().join("system/run/machined")).unwrap();
    let runtime = Runtime::detached(root.path().to_owned());
    let disk = tokio::sync::watch::channel(None::<crate::network::testing::Directory>).1;
    let service = tokio::spawn(crate::network::run(runtime.clone(), disk, std::future::pending()));
    let has =
        |kind, part: &str| runtime.store.list(kind).iter().any(|found| found.metadata.id.contains(part));
    until("loopback", || has(&LINK_STATUS, "lo")).await;
    ip("link add d0 type veth peer name d1");
    ip("link set d1 up");
    ip("link set d0 up");
    ip("address add 10.9.0.1/24 dev d0");
    ip("route add default via 10.9.0.2");
    until("a default route", || has(&DEFAULT_ROUTE, "d0/inet4/10.9.0.2//0")).await;
    until("an address", || has(&ADDRESS_STATUS, "d0/10.9.0.1/24")).await;
    ip("link del d0");
    until("nothing of it", || !KINDS.iter().any(|kind| has(kind, "d0/"))).await;
    assert!(!service.is_finished());
    service.abort();
}
