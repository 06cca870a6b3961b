//! What apid's log says of calls that real clients make, and of those that it never lets in.

use std::time::Duration;

use api::pki::{Authority, CA_LIFETIME, Lifetime};
use api::proto::machine as proto;
use tonic::Code;

use super::*;
use crate::apid::tests::{Fixture, in_maintenance, one_node, two_nodes};
use crate::locked::Maintenance;

/// For what takes milliseconds, on a machine that has much else to do.
const SOON: Duration = Duration::from_secs(20);

const VERSION: &str = "/machine.MachineService/Version";
const LOGS: &str = "/machine.MachineService/Logs";

/// The lines, once there are that many about this method.
async fn lines(f: &Fixture, method: &str, count: usize) -> Vec<String> {
    let enough = async {
        loop {
            let said = f.said.lock().unwrap().clone();
            let about: Vec<_> = said.into_iter().filter(|line| line.contains(method)).collect();
            if about.len() >= count {
                return about;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(SOON, enough).await.unwrap_or_else(|_| panic!("{count} lines about {method}"))
}

/// Most lines about one client since then.
fn most_lines(began: Instant) -> usize {
    let seconds = u32::try_from(began.elapsed().as_secs()).unwrap();
    usize::try_from(RATES.of_one.burst + RATES.of_one.per_second * (seconds + 1)).unwrap()
}

fn certificate(pem: &str) -> Client {
    let der = api::pki::certificates("it", pem).unwrap().remove(0);
    Client::Certificate(der.as_ref().into())
}

#[tokio::test]
async fn each_call_is_a_line_with_who_method_code_and_duration() {
    let f = one_node().await;
    let identity = f.identity(Some("os:reader"));
    let facts = CertificateFacts::from_pem("it", &identity.certificate).unwrap();
    let channel = f.channel_of(Some(identity)).await.unwrap();
    let mut client = proto::machine_service_client::MachineServiceClient::new(channel);
    client.version(()).await.unwrap();
    let line = lines(&f, VERSION, 1).await.remove(0);
    let who = format!(" fingerprint {} (os:reader) {VERSION}: OK, ", facts.fingerprint);
    assert!(line.starts_with("127.0.0.1:") && line.contains(&who) && line.ends_with('s'), "{line}");
    let refused = client.reboot(proto::RebootRequest::default()).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    let line = lines(&f, "/Reboot", 1).await.remove(0);
    assert!(line.contains("/machine.MachineService/Reboot: PermissionDenied, "), "{line}");
    // What machined answers.
    let unknown = proto::LogsRequest { id: "nobody".into(), ..Default::default() };
    assert_eq!(client.logs(unknown).await.unwrap_err().code(), Code::NotFound);
    let line = lines(&f, LOGS, 1).await.remove(0);
    assert!(line.contains(": NotFound, ") && !line.contains("nobody"), "{line}");
}

#[tokio::test]
async fn a_stream_is_a_line_at_its_end() {
    let f = one_node().await;
    let mut client = f.client(Some("os:admin")).await;
    let request =
        |follow| proto::LogsRequest { id: "svc".into(), follow, tail_lines: -1, ..Default::default() };
    let mut followed = client.logs(request(true)).await.unwrap().into_inner();
    tokio::time::timeout(SOON, followed.message()).await.unwrap().unwrap().unwrap();
    client.version(()).await.unwrap();
    lines(&f, VERSION, 1).await;
    assert!(!f.said.lock().unwrap().iter().any(|line| line.contains(LOGS)), "it goes on");
    drop(followed);
    assert!(lines(&f, LOGS, 1).await[0].contains(": Canceled, "));
    let mut whole = client.logs(request(false)).await.unwrap().into_inner();
    while whole.message().await.unwrap().is_some() {}
    assert!(lines(&f, LOGS, 2).await[1].contains(": OK, "));
}

/// Each node logs the call, with the roles that the first one vouches for.
#[tokio::test]
async fn a_forwarded_call_is_a_line_on_both_nodes() {
    let (first, second) = two_nodes().await;
    let mut client = first.client(Some("os:reader")).await;
    let mut request = tonic::Request::new(());
    request.metadata_mut().append("nodes", "n1".parse().unwrap());
    request.metadata_mut().append("nodes", "127.0.0.2".parse().unwrap());
    client.version(request).await.unwrap();
    for node in [&first, &second] {
        let line = lines(node, VERSION, 1).await.remove(0);
        assert!(line.contains(" (os:reader) ") && line.contains(": OK, "), "{line}");
    }
}

#[tokio::test]
async fn nothing_of_a_request_is_in_the_log() {
    let f = in_maintenance(Maintenance::Open).await;
    let mut client =
        proto::machine_service_client::MachineServiceClient::new(f.channel_of(None).await.unwrap());
    let data = b"machine:\n  token: the.secret\n  nonsense: x\n".to_vec();
    let request = proto::ApplyConfigurationRequest { data, ..Default::default() };
    assert!(client.apply_configuration(request).await.is_err());
    let line = lines(&f, "ApplyConfiguration", 1).await.remove(0);
    assert!(line.contains(" without a certificate (os:reader) "), "{line}");
    assert!(!f.said.lock().unwrap().iter().any(|line| line.contains("secret")), "{line}");
}

/// A reader that is refused as fast as it can fills no log, and the administrator's call is in it all the same.
#[tokio::test]
async fn a_flood_of_refused_calls_is_no_flood_of_lines() {
    let f = one_node().await;
    let began = Instant::now();
    let mut reader = f.client(Some("os:reader")).await;
    for _ in 0..400 {
        assert!(reader.reboot(proto::RebootRequest::default()).await.is_err());
    }
    let most = most_lines(began);
    f.client(Some("os:admin")).await.version(()).await.unwrap();
    lines(&f, VERSION, 1).await;
    let written = f.said.lock().unwrap().iter().filter(|line| line.contains("/Reboot")).count();
    assert!((1..=most).contains(&written), "{written} of {most}");
}

#[tokio::test]
async fn who_is_not_let_in_is_named_and_counted() {
    let f = one_node().await;
    let stranger = Authority::generate("talos", Lifetime::from_now(CA_LIFETIME)).unwrap();
    let foreign = crate::apid::tests::client_of(&stranger, "os:admin");
    let began = Instant::now();
    for _ in 0..RATES.of_one.burst * 2 {
        if let Ok(channel) = f.channel_of(Some(foreign.clone())).await {
            let mut client = proto::machine_service_client::MachineServiceClient::new(channel);
            assert!(client.version(()).await.is_err());
        }
    }
    let written = lines(&f, "refused 127.0.0.1:", 1).await;
    assert!(!written[0].contains('\n'), "{}", written[0]);
    assert!(f.said.lock().unwrap().len() <= most_lines(began));
}

#[test]
fn names_are_those_of_certificates() {
    let reader = certificate(include_str!("../../../../crates/api/testdata/client-multi-role.crt"));
    let fingerprint = include_str!("../../../../crates/api/testdata/client-multi-role.fingerprint").trim();
    assert_eq!(named(&reader), format!("fingerprint {fingerprint}"));
    let jane = certificate(include_str!("../../../../crates/api/testdata/client-common-name.crt"));
    assert_eq!(named(&jane), r#"CN="jane\u{1b}[2J\u{202e} \"x\"""#);
    let unreadable = Client::Certificate(Arc::from(&b"rubbish"[..]));
    assert_eq!(named(&unreadable), "with a certificate that cannot be read");
    let address = Client::Address([10, 0, 0, 5].into());
    assert_eq!(described(&address, &named(&address)), "10.0.0.5");
    assert_eq!(shortened(&"ä".repeat(65), MOST_NAME_CHARACTERS).chars().count(), 65);
}
