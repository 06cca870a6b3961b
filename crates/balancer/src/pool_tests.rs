use super::*;

const A: u16 = 1;
const B: u16 = 2;
const C: u16 = 3;

fn target(port: u16) -> Target {
    Target::Host { name: "api".into(), port }
}

fn upstream(port: u16, priority: u8) -> Upstream {
    Upstream { address: target(port), priority }
}

fn pool(ports: &[u16]) -> (Pool, Vec<Id>) {
    let mut pool = Pool::new(3);
    let list: Vec<Upstream> = ports.iter().map(|port| upstream(*port, 0)).collect();
    let ids = pool.replace(&list).into_iter().map(|(id, _)| id).collect();
    (pool, ids)
}

const FAST: Outcome = Ok(Duration::from_millis(1));

fn refused() -> Outcome {
    Err(Failure { text: "refused".into(), is_of_peer: true })
}

fn is_ended(chosen: &Chosen) -> bool {
    chosen.end.has_changed().unwrap_or(true)
}

#[test]
fn connections_spread_over_equals_and_follow_what_is_open() {
    let (mut pool, _) = pool(&[A, B, C]);
    let mut open: Vec<Chosen> = (0..6).map(|_| pool.choose(&[]).unwrap()).collect();
    let targets: Vec<_> = open.iter().map(|chosen| chosen.target.clone()).collect();
    assert_eq!(targets, [A, B, C, A, B, C].map(target));
    open.retain(|chosen| chosen.target != target(B));
    assert_eq!(pool.choose(&[]).unwrap().target, target(B));
    open.clear();
    let turns: Vec<_> = (0..4).map(|_| pool.choose(&[]).unwrap().target).collect();
    assert_eq!(turns, [A, C, B, A].map(target), "the one that waited longest first");
}

#[test]
fn each_is_tried_once() {
    let (mut pool, ids) = pool(&[A, B]);
    pool.dialled(ids[0], refused());
    let mut tried = Vec::new();
    while let Some(chosen) = pool.choose(&tried) {
        tried.push(chosen.id);
    }
    assert_eq!(tried, [ids[1], ids[0]]);
}

#[test]
fn the_third_failed_probe_in_a_row_ends_connections() {
    let (mut pool, ids) = pool(&[A]);
    let first = pool.choose(&[]).unwrap();
    pool.probed(ids[0], refused());
    pool.probed(ids[0], refused());
    pool.probed(ids[0], FAST);
    pool.probed(ids[0], refused());
    pool.probed(ids[0], refused());
    assert!(!is_ended(&first));
    pool.probed(ids[0], refused());
    assert!(is_ended(&first));
    let second = pool.choose(&[]).unwrap();
    assert!(!is_ended(&second), "a later one is not ended by what was before");
    pool.probed(ids[0], refused());
    assert!(is_ended(&second), "the host is still dead");
    let third = pool.choose(&[]).unwrap();
    pool.dialled(ids[0], FAST);
    pool.probed(ids[0], refused());
    pool.probed(ids[0], refused());
    assert!(!is_ended(&third), "a dial that succeeds counts as a probe that does");
}

#[test]
fn probes_that_fail_here_end_no_connections() {
    let (mut pool, ids) = pool(&[A, B]);
    let open = pool.choose(&[ids[1]]).unwrap();
    pool.probed(ids[0], refused());
    pool.probed(ids[0], refused());
    for _ in 0..9 {
        pool.probed(ids[0], Err(Failure { text: "no descriptors".into(), is_of_peer: false }));
    }
    assert!(!is_ended(&open));
    assert_eq!(pool.health().borrow()[0].error.as_deref(), Some("no descriptors"));
    assert_eq!(pool.choose(&[]).unwrap().id, ids[1], "others come first all the same");
    pool.probed(ids[0], refused());
    assert!(is_ended(&open), "what the peer did before still counts");
}

#[test]
fn failed_dials_end_no_connections() {
    let (mut pool, ids) = pool(&[A]);
    let open = pool.choose(&[]).unwrap();
    for _ in 0..9 {
        pool.dialled(ids[0], refused());
    }
    assert!(!is_ended(&open));
}

#[test]
fn who_stays_in_the_list_keeps_connections_and_health() {
    let (mut pool, ids) = pool(&[A, B]);
    pool.probed(ids[0], FAST);
    let (a, b) = (pool.choose(&[ids[1]]).unwrap(), pool.choose(&[ids[0]]).unwrap());
    let added = pool.replace(&[upstream(C, 0), upstream(A, 7), upstream(A, 0)]);
    assert_eq!(added.iter().map(|(_, target)| target.clone()).collect::<Vec<_>>(), [target(C)]);
    assert!(!is_ended(&a) && is_ended(&b));
    assert!(pool.contains(ids[0]) && !pool.contains(ids[1]));
    let health = pool.health().borrow().clone();
    assert_eq!(health.iter().map(|h| h.address.clone()).collect::<Vec<_>>(), [C, A].map(target));
    assert!(health[1].is_healthy && !health[0].is_healthy && health[0].error.is_none());
    pool.probed(added[0].0, FAST);
    let more: Vec<Chosen> = (0..3).map(|_| pool.choose(&[]).unwrap()).collect();
    assert!(more.iter().all(|chosen| chosen.target == target(C)), "the new priority of the other counts");
    let again = pool.replace(&[upstream(B, 0)]);
    assert_ne!(again[0].0, ids[1], "one that comes back is another");
    pool.probed(ids[1], FAST);
    assert!(!pool.health().borrow()[0].is_healthy, "a late result of the one before says nothing of it");
}

#[test]
fn health_says_what_was_found_last() {
    let (mut pool, ids) = pool(&[A]);
    let mut health = pool.health();
    assert!(!health.borrow_and_update()[0].is_healthy);
    pool.probed(ids[0], FAST);
    let expected = UpstreamHealth {
        address: target(A),
        is_healthy: true,
        error: None,
        connect_time: Some(Duration::from_millis(1)),
    };
    assert_eq!(health.borrow_and_update()[0], expected);
    pool.probed(ids[0], FAST);
    assert!(!health.has_changed().unwrap(), "nothing is new");
    pool.dialled(ids[0], refused());
    let expected = UpstreamHealth { is_healthy: false, error: Some("refused".into()), ..expected };
    assert_eq!(*health.borrow_and_update(), [expected]);
}
