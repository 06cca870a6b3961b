//! `cosi.resource.State` over the wire: queries, bookmarks, tails, versions of the protocol, refused writes.

use api::proto::cosi::resource as proto;
use api::proto::cosi::resource::EventType;
use api::proto::cosi::resource::state_client::StateClient;
use runtime::store::SERVICE;
use tonic::transport::Channel;
use tonic::{Code, Streaming};

use super::tests::{Fixture, fixture, next, put};

type Client = StateClient<Channel>;

fn watch(options: proto::WatchOptions) -> proto::WatchRequest {
    proto::WatchRequest {
        namespace: "runtime".into(),
        r#type: SERVICE.kind.into(),
        id: None,
        options: Some(options),
        api_version: 1,
    }
}

async fn open(client: &mut Client, request: proto::WatchRequest) -> Streaming<proto::WatchResponse> {
    let mut stream = client.watch(request).await.unwrap().into_inner();
    assert!(next(&mut stream).await.event.is_empty(), "the first message is empty");
    stream
}

async fn event(stream: &mut Streaming<proto::WatchResponse>) -> proto::Event {
    let mut message = next(stream).await;
    assert_eq!(message.event.len(), 1);
    let event = message.event.remove(0);
    let resource = event.resource.as_ref().unwrap();
    assert!(resource.metadata.is_some() && resource.spec.is_some(), "both submessages, always");
    event
}

fn id(event: &proto::Event) -> &str {
    &event.resource.as_ref().unwrap().metadata.as_ref().unwrap().id
}

async fn three() -> (Fixture, Client) {
    let f = fixture().await;
    for id in ["apid", "machined", "udevd"] {
        put(&f.node, id, true);
    }
    let client = StateClient::new(f.channel.clone());
    (f, client)
}

#[tokio::test]
async fn id_queries_select_in_lists_and_watches() {
    let (f, mut client) = three().await;
    let query = |regexp: &str| Some(proto::IdQuery { regexp: regexp.into() });
    let list = |regexp: &str| proto::ListRequest {
        namespace: "runtime".into(),
        r#type: SERVICE.kind.into(),
        options: Some(proto::ListOptions { id_query: query(regexp), ..Default::default() }),
    };
    let mut stream = client.list(list("d$")).await.unwrap().into_inner();
    let mut count = 0;
    while stream.message().await.unwrap().is_some() {
        count += 1;
    }
    assert_eq!(count, 3);
    assert_eq!(client.list(list("(")).await.unwrap_err().code(), Code::InvalidArgument);
    let options =
        proto::WatchOptions { bootstrap_contents: true, id_query: query("^m"), ..Default::default() };
    let mut stream = open(&mut client, watch(options)).await;
    assert_eq!(id(&event(&mut stream).await), "machined");
    assert_eq!(event(&mut stream).await.event_type(), EventType::Bootstrapped);
    put(&f.node, "apid", false);
    put(&f.node, "machined", false);
    let update = event(&mut stream).await;
    assert_eq!((id(&update), update.event_type()), ("machined", EventType::Updated));
    let old = update.old.unwrap();
    assert_eq!(old.metadata.unwrap().version, "1");
}

#[tokio::test]
async fn label_queries_without_a_match_select_nothing() {
    let (_f, mut client) = three().await;
    let term = proto::LabelTerm { key: "none".into(), ..Default::default() };
    let query = proto::LabelQuery { terms: vec![term] };
    let options = proto::ListOptions { label_query: vec![query], id_query: None };
    let request = proto::ListRequest {
        namespace: "runtime".into(),
        r#type: SERVICE.kind.into(),
        options: Some(options),
    };
    let mut stream = client.list(request).await.unwrap().into_inner();
    assert!(stream.message().await.unwrap().is_none());
}

#[tokio::test]
async fn a_broken_watch_goes_on_from_its_last_bookmark() {
    let (f, mut client) = three().await;
    let options = proto::WatchOptions { bootstrap_contents: true, ..Default::default() };
    let mut stream = open(&mut client, watch(options)).await;
    let mut bookmark = None;
    for _ in 0..4 {
        bookmark = event(&mut stream).await.bookmark;
    }
    drop(stream);
    f.node.runtime.store.remove(SERVICE.writer, &SERVICE, "udevd").unwrap();
    put(&f.node, "apid", false);
    let from = |bookmark: Option<Vec<u8>>| proto::WatchOptions {
        start_from_bookmark: bookmark,
        ..Default::default()
    };
    let mut stream = open(&mut client, watch(from(bookmark.clone()))).await;
    let first = event(&mut stream).await;
    assert_eq!((id(&first), first.event_type()), ("udevd", EventType::Destroyed));
    let second = event(&mut stream).await;
    assert_eq!((id(&second), second.event_type()), ("apid", EventType::Updated));
    put(&f.node, "late", true);
    assert_eq!(id(&event(&mut stream).await), "late");
    let bad = client.watch(watch(from(Some(b"nonsense".to_vec())))).await.unwrap_err();
    assert_eq!(bad.code(), Code::FailedPrecondition);
    let both = proto::WatchOptions { bootstrap_contents: true, ..from(bookmark) };
    assert_eq!(client.watch(watch(both)).await.unwrap_err().code(), Code::InvalidArgument);
}

#[tokio::test]
async fn tails_bookmarks_and_aggregation_are_as_asked_for() {
    let (f, mut client) = three().await;
    let mut stream =
        open(&mut client, watch(proto::WatchOptions { tail_events: 2, ..Default::default() })).await;
    let seen = [event(&mut stream).await, event(&mut stream).await];
    assert_eq!(seen.iter().map(id).collect::<Vec<_>>(), ["machined", "udevd"]);
    let options = proto::WatchOptions { bootstrap_bookmark: true, ..Default::default() };
    let mut stream = open(&mut client, watch(options)).await;
    let noop = event(&mut stream).await;
    assert_eq!((noop.event_type(), noop.bookmark.is_some()), (EventType::Noop, true));
    put(&f.node, "late", true);
    assert_eq!(id(&event(&mut stream).await), "late");
    let options = proto::WatchOptions { bootstrap_contents: true, aggregated: true, ..Default::default() };
    let mut stream = open(&mut client, watch(options)).await;
    assert_eq!(next(&mut stream).await.event.len(), 5);
}

#[tokio::test]
async fn an_old_protocol_gets_no_bootstrapped_event() {
    let (f, mut client) = three().await;
    let options = proto::WatchOptions { bootstrap_contents: true, ..Default::default() };
    let request = proto::WatchRequest { api_version: 0, ..watch(options) };
    let mut stream = open(&mut client, request).await;
    for expected in ["apid", "machined", "udevd"] {
        assert_eq!(id(&event(&mut stream).await), expected);
    }
    put(&f.node, "late", true);
    let next = event(&mut stream).await;
    assert_eq!((id(&next), next.event_type()), ("late", EventType::Created));
}

#[tokio::test]
async fn another_namespace_is_empty_and_stays_so() {
    let (f, mut client) = three().await;
    let options = proto::WatchOptions { bootstrap_contents: true, ..Default::default() };
    let request = proto::WatchRequest { namespace: "network".into(), ..watch(options) };
    let mut stream = open(&mut client, request).await;
    assert_eq!(event(&mut stream).await.event_type(), EventType::Bootstrapped);
    put(&f.node, "late", true);
    let mut own =
        open(&mut client, watch(proto::WatchOptions { tail_events: 1, ..Default::default() })).await;
    assert_eq!(id(&event(&mut own).await), "late");
    let nothing = tokio::time::timeout(std::time::Duration::from_millis(50), stream.message()).await;
    assert!(nothing.is_err(), "{nothing:?}");
}

#[tokio::test]
async fn a_refused_create_update_or_destroy_is_the_state_apis_own_conflict() {
    let (_f, mut client) = three().await;
    let metadata = |id: &str| proto::Metadata {
        namespace: "runtime".into(),
        r#type: SERVICE.kind.into(),
        id: id.into(),
        ..Default::default()
    };
    let resource = |id: &str| Some(proto::Resource { metadata: Some(metadata(id)), spec: None });
    let update = proto::UpdateRequest { new_resource: resource("apid"), ..Default::default() };
    let error = client.update(update).await.unwrap_err();
    assert_eq!(error.code(), Code::PermissionDenied);
    let text = format!("resource {}(runtime/apid) is owned by \"{}\"", SERVICE.kind, SERVICE.writer);
    assert!(error.message().starts_with(&text), "{}", error.message());
    let update = proto::UpdateRequest { new_resource: resource("nobody"), ..Default::default() };
    assert_eq!(client.update(update).await.unwrap_err().code(), Code::NotFound);
    for (id, code) in [("mine", Code::PermissionDenied), ("apid", Code::AlreadyExists)] {
        let create = proto::CreateRequest { resource: resource(id), ..Default::default() };
        assert_eq!(client.create(create).await.unwrap_err().code(), code, "{id}");
    }
    let destroy = |id: &str| proto::DestroyRequest {
        namespace: "runtime".into(),
        r#type: SERVICE.kind.into(),
        id: id.into(),
        ..Default::default()
    };
    assert_eq!(client.destroy(destroy("apid")).await.unwrap_err().code(), Code::PermissionDenied);
    assert_eq!(client.destroy(destroy("nobody")).await.unwrap_err().code(), Code::NotFound);
    let empty = proto::CreateRequest::default();
    assert_eq!(client.create(empty).await.unwrap_err().code(), Code::InvalidArgument);
}
