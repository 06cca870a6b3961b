//! What unmodified clients met once, by the calls that they make.
//!
//! The register of these faults is cli/testdata/compatibility/faults.txt.

use api::proto::common::{ContainerdInstance, ContainerdNamespace};
use api::proto::cosi::resource as cosi;
use api::proto::cosi::resource::state_client::StateClient;
use api::proto::machine as proto;
use api::proto::machine::apply_configuration_request::Mode;
use api::proto::machine::image_service_client::ImageServiceClient;
use api::proto::machine::netstat_request::Feature;
use api::proto::network::network_service_client::NetworkServiceClient;
use runtime::store::{ROUTE_STATUS, SYSTEM_INFORMATION, samples};
use tonic::{Code, Request, Status};
use zeroize::Zeroizing;

use super::tests::{Fixture, fixture};
use crate::configuration::put_into_force;

/// What `apply-config --dry-run` and `validate` begin with.
const CONFIG: &str = "version: v1alpha1\n\
    cluster: {controlPlane: {endpoint: 'https://10.0.0.1:6443'}}\n\
    machine: {type: worker, token: a.b, install: {disk: /dev/vda}, ca: {crt: YQ==}}\n";

/// Id of a resource that a test makes.
const SAMPLE: &str = "sample";

fn as_admin<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("talos-role", "os:admin".parse().unwrap());
    request
}

/// A node that has [`CONFIG`].
async fn configured() -> Fixture {
    let f = fixture().await;
    put_into_force(&f.node.configuration, Zeroizing::new(CONFIG.to_owned())).unwrap();
    f
}

/// Sends a config that is checked and changes nothing. Answers the warnings.
async fn checked(f: &Fixture, text: &str) -> Result<Vec<String>, Status> {
    let request = proto::ApplyConfigurationRequest {
        data: text.as_bytes().to_vec(),
        mode: Mode::NoReboot.into(),
        dry_run: true,
        ..Default::default()
    };
    let answer = f.machine().apply_configuration(as_admin(request)).await?.into_inner();
    Ok(answer.messages.into_iter().flat_map(|message| message.warnings).collect())
}

/// Has the firmware tell the machine's UUID, which keys are made of.
fn give_uuid(f: &Fixture) {
    // A structure of type 1 with its length, its handle and four names that it has not; the UUID; the rest, and the end of names.
    let head = [1, 27, 0, 0, 0, 0, 0, 0];
    let uuid: Vec<u8> = (0x10..0x20).collect();
    let table = [&head[..], &uuid, &[6, 0, 0], &[0, 0]].concat();
    let directory = f.dir.path().join("sys/firmware/dmi/tables");
    std::fs::create_dir_all(&directory).unwrap();
    std::fs::write(directory.join("DMI"), table).unwrap();
}

fn with_document(document: &str) -> String {
    format!("{CONFIG}---\napiVersion: v1alpha1\n{document}")
}

/// In the `machine` of [`CONFIG`].
fn with_machine(section: &str) -> String {
    CONFIG.replace("token: a.b,", &format!("token: a.b, {section},"))
}

#[tokio::test]
async fn documents_of_current_clients_are_taken_by_the_call() {
    let f = configured().await;
    give_uuid(&f);
    for document in include_str!("../../../crates/config/testdata/current-clients.yaml").split("---\n") {
        checked(&f, &with_document(document)).await.unwrap_or_else(|status| panic!("{document}: {status:?}"));
    }
    let empty = with_machine(
        "network: {interfaces: [{interface: bond0, bond: {mode: '', lacpRate: '', interfaces: [eth0]}}]}",
    );
    checked(&f, &empty).await.unwrap();
}

#[tokio::test]
async fn an_address_without_a_prefix_length_is_taken_with_a_warning() {
    let f = configured().await;
    for address in ["addresses: [10.0.0.2]", "cidr: 10.0.0.2"] {
        let text = with_machine(&format!("network: {{interfaces: [{{interface: eth0, {address}}}]}}"));
        let warnings = checked(&f, &text).await.unwrap();
        assert!(warnings.iter().any(|warning| warning.contains("read as 10.0.0.2/32")), "{warnings:?}");
        // The client that prints it says that it is a warning.
        assert!(warnings.iter().all(|warning| !warning.to_lowercase().contains("warning:")), "{warnings:?}");
    }
}

#[tokio::test]
async fn rubbish_is_refused_by_the_call_with_its_place() {
    let f = configured().await;
    let login = "kind: RegistryAuthConfig\nname: a.example.org\nusername: a\npassword: b\nauth: c\n";
    for (text, part) in [
        (
            with_document("kind: RegistryTLSConfig\nname: a.example.org\nca: rubbish\n"),
            "it has no PEM of a certificate",
        ),
        (with_document(login), "more than one way to log in"),
        (with_document("kind: EnvironmentConfig\nvariables: {1BAD: a}\n"), "1BAD"),
        (with_machine("env: {1BAD: a}"), "1BAD"),
        (CONFIG.replace(", ca: {crt: YQ==}", ""), "a worker needs the certificate of the API's CA"),
    ] {
        let status = checked(&f, &text).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
        assert!(status.message().contains(part) && status.message().contains("line "), "{part}: {status:?}");
    }
}

/// `image pull alpine`, by the calls of either generation.
#[tokio::test]
async fn image_pull_alpine_is_refused_with_what_to_write() {
    let f = fixture().await;
    let namespace = ContainerdNamespace::NsCri.into();
    let legacy = proto::ImagePullRequest { namespace, reference: "alpine".into() };
    let legacy = f.machine().image_pull(as_admin(legacy)).await.unwrap_err();
    let containerd = Some(ContainerdInstance { namespace, ..Default::default() });
    let current = proto::ImageServicePullRequest { containerd, image_ref: "alpine".into() };
    let current = match ImageServiceClient::new(f.channel.clone()).pull(as_admin(current)).await {
        Ok(stream) => stream.into_inner().message().await.unwrap_err(),
        Err(status) => status,
    };
    for status in [legacy, current] {
        assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
        assert!(status.message().contains("write HOST/library/alpine:latest"), "{status:?}");
    }
}

/// `netstat -p`, which named init for the socket that apid was given.
#[tokio::test]
async fn netstat_names_the_process_that_serves_a_socket() {
    let f = fixture().await;
    f.write(
        "proc/net/tcp",
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n   \
         0: 00000000:C350 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 77 1 0 100 0 0 10 0\n",
    );
    for (pid, name, started) in [(1, "init", 2), (310, "apid", 900)] {
        f.write(&format!("proc/{pid}/comm"), &format!("{name}\n"));
        f.write(&format!("proc/{pid}/stat"), &format!("{pid} ({name}) S {}{started} 0 0", "0 ".repeat(18)));
        f.write(&format!("proc/{pid}/fd/.made"), "");
        std::os::unix::fs::symlink("socket:[77]", f.dir.path().join(format!("proc/{pid}/fd/3"))).unwrap();
    }
    let request = proto::NetstatRequest { feature: Some(Feature { pid: true }), ..Default::default() };
    let answer = f.machine().netstat(as_admin(request)).await.unwrap().into_inner();
    let records = &answer.messages[0].connectrecord;
    assert_eq!((records.len(), records[0].localport), (1, 50000));
    let process = records[0].process.as_ref().unwrap();
    assert_eq!((process.pid, process.name.as_str()), (310, "apid"));
}

async fn get(f: &Fixture, kind: &str, id: &str) -> Result<cosi::Resource, Status> {
    let get =
        cosi::GetRequest { namespace: "hardware".into(), r#type: kind.into(), id: id.into(), options: None };
    let answer = StateClient::new(f.channel.clone()).get(as_admin(get)).await?;
    Ok(answer.into_inner().resource.unwrap())
}

/// What an administrator asks for and is not there is `NotFound`: only others learn no more than that they have no access.
#[tokio::test]
async fn an_administrator_hears_that_something_is_not_there() {
    let f = fixture().await;
    for (kind, id) in [("Unicorns.hardware.talos.dev", "a"), (SYSTEM_INFORMATION.kind, "systeminformation")] {
        let status = get(&f, kind, id).await.unwrap_err();
        assert_eq!(status.code(), Code::NotFound, "{status:?}");
    }
    let get = cosi::GetRequest {
        namespace: "hardware".into(),
        r#type: "Unicorns.hardware.talos.dev".into(),
        id: "a".into(),
        options: None,
    };
    let status = StateClient::new(f.channel.clone()).get(get).await.unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied, "{status:?}");
}

fn put_samples(f: &Fixture, kind: &'static runtime::store::Definition) {
    for (_, spec) in samples().into_iter().filter(|(of, _)| of.kind == kind.kind) {
        f.node.runtime.store.put(kind.writer, kind, SAMPLE, spec).unwrap();
    }
}

#[tokio::test]
async fn the_serial_number_of_a_machine_has_the_key_of_the_interface() {
    let f = fixture().await;
    put_samples(&f, &SYSTEM_INFORMATION);
    let found = get(&f, SYSTEM_INFORMATION.kind, SAMPLE).await.unwrap();
    let yaml = found.spec.unwrap().yaml_spec;
    assert!(yaml.contains("\nserialnumber: "), "{yaml}");
}

/// `routes` of the first generation.
#[tokio::test]
async fn routes_are_answered_to_the_first_generation() {
    let f = fixture().await;
    put_samples(&f, &ROUTE_STATUS);
    let answer =
        NetworkServiceClient::new(f.channel.clone()).routes(as_admin(())).await.unwrap().into_inner();
    assert!(answer.messages[0].metadata.is_none() && !answer.messages[0].routes.is_empty(), "{answer:?}");
}
