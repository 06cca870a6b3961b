//! What a node says of its machine, and what the config makes of names, modules, devices and logs.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use api::proto::cosi::resource::ListRequest;
use api::proto::talos::resource::definitions::config::MachineConfigSpec;
use api::proto::talos::resource::definitions::enums::RuntimeMachineStage;
use api::proto::talos::resource::definitions::network::LinkStatusSpec;
use api::proto::talos::resource::definitions::runtime::MachineStatusSpec;
use prost::Message;
use qemu_tests::credentials::ADMIN;
use qemu_tests::node::BOOT_LIMIT;
use qemu_tests::rpc::Rpc;
use qemu_tests::{TestNode, deadline};

/// Lines that a receiver of logs got.
type Lines = Arc<Mutex<Vec<String>>>;

/// A receiver on loopback, which a VM reaches as 10.0.2.2. It listens as long as this program runs.
fn receiver() -> (u16, Lines) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let lines = Lines::default();
    let sink = lines.clone();
    std::thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            let sink = sink.clone();
            std::thread::spawn(move || {
                for line in BufReader::new(stream).lines().map_while(Result::ok) {
                    sink.lock().unwrap().push(line);
                }
            });
        }
    });
    (port, lines)
}

struct Fixture {
    node: TestNode,
    services: Lines,
    kernel: Lines,
}

/// One node for all tests of this file: none of them changes it.
fn fixture() -> &'static Fixture {
    static FIXTURE: OnceLock<Fixture> = OnceLock::new();
    FIXTURE.get_or_init(|| {
        let ((services_port, services), (kernel_port, kernel)) = (receiver(), receiver());
        let section = format!(
            r#"  kernel:
    modules:
      - {{name: dummy, parameters: [numdummies=2]}}
      - {{name: no_such_module}}
  udev:
    rules:
      - 'SUBSYSTEM=="mem", KERNEL=="zero", MODE="0640", GROUP="44", SYMLINK+="billet/nothing"'
      - 'KERNEL=="zero", RUN+="/bin/true"'
  logging:
    destinations:
      - {{endpoint: "tcp://10.0.2.2:{services_port}", format: json_lines, extraTags: {{rack: r7}}}}
"#
        );
        let documents = format!(
            "apiVersion: v1alpha1\nkind: KmsgLogConfig\nname: far\nurl: tcp://10.0.2.2:{kernel_port}/\n\
             ---\napiVersion: v1alpha1\nkind: StaticHostConfig\nname: 192.0.2.7\nhostnames: [far.example, far]\n\
             ---\napiVersion: v1alpha1\nkind: ResolverConfig\nsearchDomains: {{domains: [search.example]}}\n"
        );
        let builder = TestNode::builder("resources").machine_section(&section).documents(&documents);
        let node = builder.boot().unwrap();
        node.wait_services().unwrap();
        Fixture { node, services, kernel }
    })
}

fn ok(words: &[&str]) -> String {
    fixture().node.admin().ok(words).unwrap()
}

/// Repeats a look until it holds.
fn eventually(mut look: impl FnMut() -> Result<(), String>) {
    let end = Instant::now() + deadline(BOOT_LIMIT);
    while let Err(seen) = look() {
        assert!(Instant::now() < end, "{seen}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

fn prints(words: &[&str], wanted: &[&str]) {
    eventually(|| {
        let text = fixture().node.admin().ok(words).unwrap_or_default();
        if wanted.iter().all(|word| text.contains(word)) {
            Ok(())
        } else {
            Err(format!("no {wanted:?} in\n{text}"))
        }
    });
}

#[test]
fn the_machine_is_described() {
    prints(&["get", "systeminformation"], &["PRODUCTNAME", "QEMU"]);
    prints(&["get", "processors"], &["CORES", "CPU-0"]);
    prints(&["get", "memorymodules"], &["SIZEMIB", "DIMM-0"]);
    prints(&["get", "pcidevices"], &["SUBCLASS", "Ethernet controller", "Bridge"]);
    prints(&["get", "machinestatus"], &["STAGE", "running", "true"]);
    prints(&["get", "securitystate"], &["SECUREBOOT"]);
    prints(&["get", "blockdevices"], &["PARENT"]);
    prints(&["get", "nodeaddresses"], &["current", "10.0.2.15/24"]);
    prints(&["get", "networkstatus"], &["CONNECTIVITY", "true"]);
    prints(&["get", "identities"], &["local"]);
}

/// A client that never looks at the YAML form, as Go programs with the published messages.
#[test]
fn typed_clients_read_the_binary_form() {
    prints(&["get", "machinestatus"], &["running", "true"]);
    let fixture = fixture();
    let identity = fixture.node.credentials().client(Some(ADMIN)).unwrap();
    let rpc = Rpc::connect(&fixture.node, Some(&identity)).unwrap();
    let specs = |kind: &str, namespace: &str| -> Vec<Vec<u8>> {
        let request = ListRequest { namespace: namespace.into(), r#type: kind.into(), options: None };
        rpc.call(|client| async move {
            let mut stream = client.state().list(request).await?.into_inner();
            let mut found = Vec::new();
            while let Some(message) = stream.message().await? {
                found.push(message.resource.unwrap().spec.unwrap().proto_spec);
            }
            Ok(found)
        })
        .unwrap()
    };
    let status = specs("MachineStatuses.runtime.talos.dev", "runtime").remove(0);
    let status = MachineStatusSpec::decode(status.as_slice()).unwrap();
    assert_eq!(status.stage(), RuntimeMachineStage::Running);
    assert!(status.status.unwrap().ready);
    let config = specs("MachineConfigs.config.talos.dev", "config").remove(0);
    let text =
        String::from_utf8(MachineConfigSpec::decode(config.as_slice()).unwrap().yaml_marshalled).unwrap();
    assert!(text.contains("numdummies=2"), "not the whole document: {} bytes", text.len());
    let links = specs("LinkStatuses.net.talos.dev", "network");
    let links: Vec<_> = links.iter().map(|link| LinkStatusSpec::decode(link.as_slice()).unwrap()).collect();
    assert!(
        links.iter().any(|link| link.r#type == 1 && link.operational_state == 6 && link.mtu > 0),
        "{links:?}"
    );

    // Every published type of the node: each resource has its binary form, or the call would fail.
    let mut seen = 0;
    for known in api::definitions::published() {
        let list =
            ListRequest { namespace: known.namespace.into(), r#type: known.kind.into(), options: None };
        let found = rpc.call(|client| async move {
            let mut stream = client.state().list(list).await?.into_inner();
            let mut count = 0;
            while let Some(message) = stream.message().await? {
                let spec = message.resource.unwrap().spec.unwrap();
                count += usize::from(!spec.proto_spec.is_empty() && !spec.yaml_spec.is_empty());
            }
            Ok(count)
        });
        match found {
            Ok(count) => seen += usize::from(count > 0),
            // A type that this node does not have.
            Err(status) => {
                assert_eq!(status.code(), tonic::Code::PermissionDenied, "{}: {status:?}", known.kind);
            }
        }
    }
    assert!(seen > 20, "{seen} types have resources");
}

#[test]
fn names_of_the_config_are_in_the_files_that_programs_read() {
    let hosts = ok(&["read", "/etc/hosts"]);
    assert!(hosts.contains("192.0.2.7       far.example far\n"), "{hosts}");
    let resolvers = ok(&["read", "/etc/resolv.conf"]);
    assert!(resolvers.contains("search search.example"), "{resolvers}");
    prints(&["get", "resolvers"], &["SEARCH DOMAINS", "search.example"]);
}

#[test]
fn modules_get_their_parameters_and_missing_ones_are_told() {
    prints(&["get", "links"], &["dummy0", "dummy1"]);
    prints(&["get", "kernelmodulespecs"], &["numdummies=2", "the image has no such module"]);
}

#[test]
fn rules_change_devices_or_say_why_not() {
    prints(&["ls", "-l", "/dev/billet"], &["nothing"]);
    let listing = ok(&["ls", "-l", "/dev"]);
    let zero = listing.lines().find(|line| line.ends_with("zero")).unwrap_or(&listing);
    assert!(zero.contains("rw-r-----") && zero.contains("44"), "{zero}");
    prints(&["get", "udevrules"], &["true", "false", "RUN cannot be set"]);
}

#[test]
fn logs_arrive_where_the_config_sends_them() {
    let holds = |lines: &Lines, wanted: &[&str]| {
        let lines = lines.lock().unwrap();
        let found = lines.iter().any(|line| wanted.iter().all(|word| line.contains(word)));
        if found {
            Ok(())
        } else {
            Err(format!("no {wanted:?} among {} lines: {:?}", lines.len(), lines.first()))
        }
    };
    let fixture = fixture();
    eventually(|| {
        holds(&fixture.services, &["\"talos-service\":\"machined\"", "\"rack\":\"r7\"", "talos-time"])
    });
    eventually(|| holds(&fixture.services, &["\"talos-service\":\"controller-runtime\""]));
    eventually(|| holds(&fixture.kernel, &["\"facility\":\"kern\"", "\"seq\":", "Linux version"]));
    prints(&["get", "logdestinationstatuses"], &["services", "kernel", "sending"]);
}
