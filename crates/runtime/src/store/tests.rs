use std::time::Duration;

use super::*;

const WRITER: &str = SERVICE.writer;

fn service(running: bool) -> Spec {
    Spec::Service(ServiceStatus { running, healthy: false, unknown: true })
}

#[test]
fn versions_count_updates_and_equal_specs_do_not() {
    let store = Store::new();
    assert_eq!(store.put(WRITER, &SERVICE, "apid", service(false)), Ok(true));
    assert_eq!(store.put(WRITER, &SERVICE, "apid", service(false)), Ok(false));
    assert_eq!(store.put(WRITER, &SERVICE, "apid", service(true)), Ok(true));
    let resource = store.get(&SERVICE, "apid").unwrap();
    assert_eq!(resource.metadata.version, 2);
    assert_eq!(resource.metadata.owner, WRITER);
    assert_eq!(resource.metadata.namespace, "runtime");
}

#[test]
fn only_the_writer_of_a_type_may_write() {
    let store = Store::new();
    let error = store.put("someone", &SERVICE, "apid", service(true)).unwrap_err();
    assert!(error.to_string().contains("not to someone"), "{error}");
    store.put(WRITER, &SERVICE, "apid", service(true)).unwrap();
    assert!(store.remove("someone", &SERVICE, "apid").is_err());
    assert!(store.get(&SERVICE, "apid").is_some());
}

#[test]
fn lists_are_sorted_and_of_one_type() {
    let store = Store::new();
    for id in ["udevd", "apid", "machined"] {
        store.put(WRITER, &SERVICE, id, service(true)).unwrap();
    }
    let ids: Vec<_> = store.list(&SERVICE).iter().map(|r| r.metadata.id.clone()).collect();
    assert_eq!(ids, ["apid", "machined", "udevd"]);
    let namespaces = store.list(&NAMESPACE);
    assert_eq!(namespaces.len(), NAMESPACES.len());
}

#[tokio::test]
async fn a_watch_sees_the_snapshot_and_then_every_change_once() {
    let store = Store::new();
    store.put(WRITER, &SERVICE, "apid", service(false)).unwrap();
    let (now, mut later) = store.watch(&SERVICE);
    assert_eq!(now.len(), 1);
    store.put(WRITER, &SERVICE, "apid", service(true)).unwrap();
    store.remove(WRITER, &SERVICE, "apid").unwrap();
    let updated = later.recv().await.unwrap();
    assert_eq!(updated.kind, ChangeKind::Updated);
    assert_eq!(updated.old.unwrap().metadata.version, 1);
    assert_eq!(updated.resource.metadata.version, 2);
    let destroyed = later.recv().await.unwrap();
    assert_eq!((destroyed.kind, destroyed.resource.metadata.version), (ChangeKind::Destroyed, 2));
}

#[tokio::test]
async fn a_watcher_that_lags_a_whole_ring_is_told() {
    let store = Store::new();
    let (_, mut later) = store.watch(&SERVICE);
    for round in 0..=RING {
        store.put(WRITER, &SERVICE, "apid", service(round % 2 == 0)).unwrap();
        store.remove(WRITER, &SERVICE, "apid").unwrap();
    }
    assert!(matches!(later.recv().await, Err(broadcast::error::RecvError::Lagged(_))));
}

#[test]
fn replace_keeps_exactly_the_wanted_ids() {
    let store = Store::new();
    store.put(WRITER, &SERVICE, "old", service(true)).unwrap();
    store.put(WRITER, &SERVICE, "kept", service(true)).unwrap();
    store
        .replace(WRITER, &SERVICE, vec![("kept".into(), service(true)), ("new".into(), service(true))])
        .unwrap();
    let list = store.list(&SERVICE);
    let ids: Vec<_> = list.iter().map(|r| (r.metadata.id.as_str(), r.metadata.version)).collect();
    assert_eq!(ids, [("kept", 1), ("new", 1)]);
}

#[test]
fn internal_types_have_no_public_definition() {
    let store = Store::new();
    let ids: Vec<_> = store.list(&RESOURCE_DEFINITION).iter().map(|r| r.metadata.id.clone()).collect();
    assert!(ids.contains(&"services.v1alpha1.talos.dev".to_owned()));
    assert!(!ids.iter().any(|id| id == &API_CERTIFICATE.id()), "{ids:?}");
}

#[test]
fn a_bookmark_continues_where_it_was_made() {
    let store = Store::new();
    store.put(WRITER, &SERVICE, "apid", service(false)).unwrap();
    let first = store.observe(&SERVICE, None).unwrap();
    assert_eq!((first.past.len(), first.now.len()), (1, 1));
    store.put(WRITER, &SERVICE, "apid", service(true)).unwrap();
    store.remove(WRITER, &SERVICE, "apid").unwrap();
    let kept = Bookmark::from_bytes(&first.bookmark.to_bytes()).unwrap();
    let second = store.observe(&SERVICE, Some(kept)).unwrap();
    let kinds: Vec<_> = second.past.iter().map(|change| change.kind).collect();
    assert_eq!(kinds, [ChangeKind::Updated, ChangeKind::Destroyed]);
    let last = second.past[1].bookmark;
    assert!(store.observe(&SERVICE, Some(last)).unwrap().past.is_empty());
}

#[test]
fn bookmarks_of_others_and_of_long_ago_are_refused() {
    let store = Store::new();
    let early = store.observe(&SERVICE, None).unwrap().bookmark;
    let foreign = Store::new().observe(&SERVICE, None).unwrap().bookmark;
    assert_eq!(store.observe(&SERVICE, Some(foreign)).unwrap_err(), BadBookmark::Foreign);
    let future = Bookmark { position: early.position + 1, ..early };
    assert_eq!(store.observe(&SERVICE, Some(future)).unwrap_err(), BadBookmark::Foreign);
    for bytes in [&b""[..], b"short", &[0; 17]] {
        assert_eq!(Bookmark::from_bytes(bytes), Err(BadBookmark::Foreign));
    }
    // Changes of another type do not age it.
    for round in 0..100 {
        store.put(WRITER, &SERVICE, "apid", service(round % 2 == 0)).unwrap();
    }
    assert_eq!(store.observe(&SERVICE, Some(early)).unwrap().past.len(), 100);
    assert!(store.observe(&NAMESPACE, Some(early)).unwrap().past.is_empty());
    store.remove(WRITER, &SERVICE, "apid").unwrap();
    assert_eq!(store.observe(&SERVICE, Some(early)).unwrap_err(), BadBookmark::TooOld);
}

/// What every published type costs that nothing writes: its place in a table of the program, its definition as a
/// resource, and the change that announced it.
#[test]
fn a_type_that_nothing_writes_is_small() {
    assert!(size_of::<Definition>() <= 104, "{}", size_of::<Definition>());
    assert!(
        size_of::<Resource>() + size_of::<Change>() <= 440,
        "{}",
        size_of::<Resource>() + size_of::<Change>()
    );
}

#[tokio::test]
async fn a_type_that_nothing_writes_is_empty_and_can_be_watched() {
    let store = Store::new();
    let kind = resolve("kubespanpeerstatuses").unwrap();
    assert!(kind.writer.is_empty() && store.list(kind).is_empty());
    let watch = store.observe(kind, None).unwrap();
    assert!(watch.past.is_empty() && watch.now.is_empty());
    let spec = Spec::MachineType("worker");
    assert!(store.put("", kind, "x", spec).is_err(), "nothing writes it, whatever the caller is called");
}

#[tokio::test]
async fn only_the_types_that_are_followed_wake() {
    let store = Store::new();
    let mut changes = store.follow(&[&HOSTNAME_STATUS]);
    let servers = Spec::TimeServerStatus(Vec::new());
    store.put(TIME_SERVER_STATUS.writer, &TIME_SERVER_STATUS, "x", servers).unwrap();
    let mut woken = async || tokio::time::timeout(Duration::ZERO, changes.next()).await.is_ok();
    assert!(!woken().await);
    let name = HostnameStatus { hostname: "n".into(), domainname: String::new() };
    store.put(HOSTNAME_STATUS.writer, &HOSTNAME_STATUS, "hostname", Spec::HostnameStatus(name)).unwrap();
    assert!(woken().await);
    assert!(!woken().await);
}
