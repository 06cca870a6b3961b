//! The API over mutual TLS, through billetctl as a person uses it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::OnceLock;
use std::time::Duration;

use qemu_tests::TestNode;
use qemu_tests::credentials::{ADMIN, Credentials, HOSTNAME, READER};
use qemu_tests::rpc::Rpc;

/// Enough for a line that is to come.
const STEP_LIMIT: Duration = Duration::from_secs(20);

/// One node for all tests of this file: none of them changes it. It ends with this program.
fn node() -> &'static TestNode {
    static NODE: OnceLock<TestNode> = OnceLock::new();
    NODE.get_or_init(|| {
        let node = TestNode::boot("api").unwrap();
        node.wait_services().unwrap();
        node
    })
}

fn ok(words: &[&str]) -> String {
    node().admin().ok(words).unwrap()
}

fn assert_holds(text: &str, words: &[&str]) {
    for word in words {
        assert!(text.contains(word), "no {word} in\n{text}");
    }
}

#[test]
fn version_names_both_sides() {
    let build = qemu_tests::artifacts::build();
    let tag = api::version::tag(&build.version);
    assert_holds(&ok(&["version"]), &["Client", "Server", &tag, "linux/amd64"]);
    assert_holds(&ok(&["get", "versions", "-o", "yaml"]), &["name: Billet", &format!("version: {tag}")]);
    assert_holds(&ok(&["read", "/etc/os-release"]), &[&format!("VERSION_ID={}\n", build.version)]);
}

#[test]
fn services_run() {
    let table = ok(&["services"]);
    assert_holds(&table, &["NODE", "SERVICE", "STATE", "HEALTH", "LAST CHANGE", "LAST EVENT"]);
    for service in ["machined", "udevd", "networkd", "apid", "trustd", "containerd", "test-agent"] {
        let row = table.lines().find(|line| line.split_whitespace().any(|word| word == service));
        let row = row.unwrap_or_else(|| panic!("no service {service} in\n{table}"));
        assert!(row.contains("Running"), "{row}");
    }
    assert_holds(&ok(&["service", "apid"]), &["ID", "apid", "STATE", "Running", "EVENTS"]);
}

#[test]
fn components_have_logs_and_calls_are_in_apids() {
    assert_holds(&ok(&["logs", "kernel"]), &["kern:", "Linux version"]);
    for task in ["networkd", "timed", "udevd"] {
        assert_holds(&ok(&["logs", task]), &[&format!("service[{task}](Running)")]);
    }
    is_denied("logs-reader", READER, &["reboot", "--wait=false"], "MachineService/Reboot: PermissionDenied");
    let log = ok(&["logs", "apid"]);
    assert_holds(&log, &["(os:admin) /machine.MachineService/Logs: OK, "]);
    assert_holds(&log, &["(os:reader) /machine.MachineService/Reboot: PermissionDenied, "]);
}

#[test]
fn logs_are_printed_cut_and_followed() {
    let agent = node().agent().unwrap();
    let first = agent.flood("logs", 20, Duration::ZERO).unwrap();
    agent.wait_child(first, STEP_LIMIT).unwrap();
    let follower = node().admin().follow(&["logs", "-f", "test-agent"]).unwrap();
    follower.expect("flood logs 19", STEP_LIMIT).unwrap();
    let second = agent.flood("more", 3, Duration::ZERO).unwrap();
    follower.expect("flood more 2", STEP_LIMIT).unwrap();
    agent.wait_child(second, STEP_LIMIT).unwrap();
    let tail = ok(&["logs", "--tail", "2", "test-agent"]);
    assert_eq!(tail.lines().count(), 2, "{tail}");
    assert!(node().admin().refused(&["logs", "nobody"]).unwrap().contains("nobody"));
}

#[test]
fn dmesg_is_printed_and_followed() {
    assert_holds(&ok(&["dmesg"]), &["Linux version", "billet: init:", "kern:"]);
    let follower = node().admin().follow(&["dmesg", "-f"]).unwrap();
    follower.expect("Linux version", STEP_LIMIT).unwrap();
    // The kernel holds a record without a newline back until the next one comes.
    let write = serde_json::json!({ "op": "write", "path": "/dev/kmsg", "text": "said by a test\n" });
    node().agent().unwrap().ask(write).unwrap();
    follower.expect("said by a test", STEP_LIMIT).unwrap();
}

#[test]
fn files_are_listed_and_read() {
    let names = ok(&["ls", "/"]);
    for name in ["bin", "dev", "etc", "proc", "run", "sys", "system", "tmp", "usr", "var"] {
        assert!(
            names.lines().any(|line| line.split_whitespace().last() == Some(name)),
            "no {name} in\n{names}"
        );
    }
    assert_holds(
        &ok(&["ls", "-l", "/usr/bin"]),
        &["MODE", "SIZE(B)", "LASTMOD", "machined", "apid -> machined"],
    );
    let release = &qemu_tests::artifacts::build().kernel_release;
    assert_holds(&ok(&["read", "/proc/version"]), &["Linux version", release]);
    assert!(node().admin().refused(&["read", "/etc/none"]).unwrap().contains("/etc/none"));
    assert!(node().admin().refused(&["read", "/etc"]).unwrap().contains("must be a regular file"));
}

/// What the network reaches has no rights, and can name nothing but itself, its sockets and how names are found.
#[test]
fn apid_and_trustd_have_no_rights_and_roots_of_their_own() {
    let agent = node().agent().unwrap();
    let sockets = "/system/run/machined";
    let names = ["/etc/hosts", "/etc/nsswitch.conf", "/etc/resolv.conf"].map(str::to_owned);
    let of_apid = ["machine.sock", "apid.sock"].map(|name| format!("{sockets}/{name}"));
    for (program, files) in
        [("apid", [&of_apid[..], &names].concat()), ("trustd", vec![format!("{sockets}/trustd.sock")])]
    {
        let pid = agent.process(program).unwrap().pid;
        let status = ok(&["read", &format!("/proc/{pid}/status")]);
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            line.unwrap_or_else(|| panic!("no {name} in\n{status}")).trim().to_owned()
        };
        assert_eq!(field("NoNewPrivs"), "1", "{program}");
        for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
            assert_eq!(field(set), "0".repeat(16), "{set} of {program}");
        }
        // Its mounts are all that it can name: the root, itself, and these files, none to be written to.
        let mounts = ok(&["read", &format!("/proc/{pid}/mountinfo")]);
        let mut shown: Vec<String> = Vec::new();
        for line in mounts.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            shown.push(words[4].to_owned());
            assert!(words[5].split(',').any(|option| option == "ro"), "{program}: {line}");
        }
        shown.sort();
        let own = ["/".to_owned(), format!("/usr/bin/{program}")];
        let mut expected = [&own[..], &files].concat();
        expected.sort();
        assert_eq!(shown, expected, "{program}: {mounts}");
        // Its root, by procfs.
        let beside = ["/proc", &pid.to_string(), "root", "usr/bin/machined"].join("/");
        assert!(node().admin().refused(&["read", &beside]).unwrap().contains("machined"));
    }
}

#[test]
fn memory_mounts_and_processes_are_shown() {
    let memory = ok(&["memory"]);
    assert_holds(&memory, &["NODE", "TOTAL", "USED", "FREE", "SHARED", "BUFFERS", "CACHE", "AVAILABLE"]);
    let total: u64 = memory.lines().nth(1).unwrap().split_whitespace().nth(1).unwrap().parse().unwrap();
    assert!((700..=1024).contains(&total), "a VM of 1024 MiB shows {total}");
    assert_holds(&ok(&["memory", "-v"]), &["MemTotal", "MemAvailable", "kB"]);
    assert_holds(&ok(&["mounts"]), &["FILESYSTEM", "SIZE(GB)", "MOUNTED ON", "/run", "tmpfs"]);
    let processes = ok(&["processes"]);
    assert_holds(
        &processes,
        &["PID", "STATE", "THREADS", "CPU-TIME", "VIRTMEM", "RESMEM", "machined", "apid"],
    );
}

#[test]
fn resources_are_listed_got_and_watched() {
    assert_holds(&ok(&["get", "services"]), &["NAMESPACE", "TYPE", "ID", "VERSION", "apid", "containerd"]);
    assert_holds(&ok(&["get", "service", "apid", "-o", "yaml"]), &["metadata:", "id: apid", "spec:"]);
    let json: serde_json::Value =
        serde_json::from_str(&ok(&["get", "service", "apid", "-o", "json"])).unwrap();
    assert_eq!(json["metadata"]["id"], "apid", "{json}");
    let watcher = node().admin().follow(&["get", "services", "--watch"]).unwrap();
    watcher.expect("apid", STEP_LIMIT).unwrap();
    assert!(node().admin().refused(&["get", "unicorns"]).unwrap().contains("unicorns"));
}

#[test]
fn the_graph_of_controllers_has_types_or_single_resources() {
    let types = ok(&["inspect", "dependencies"]);
    assert_holds(&types, &["digraph", "\"HostnameStatuses.net.talos.dev\""]);
    let resources = ok(&["inspect", "dependencies", "--with-resources"]);
    assert_holds(&resources, &["\"HostnameStatuses.net.talos.dev(network/hostname)\""]);
    // A reader sees the types whose resources hold keys, and none of these.
    let identity = node().credentials().client(Some(READER)).unwrap();
    let reader = node().client("reader-of-the-graph", Some(&identity)).unwrap();
    let seen = reader.ok(&["inspect", "dependencies", "--with-resources"]).unwrap();
    assert_holds(&seen, &["HostnameStatuses.net.talos.dev(network/hostname)"]);
    assert!(!seen.contains("MachineConfigs.config.talos.dev(config/v1alpha1)"), "{seen}");
}

#[test]
fn events_tell_the_boot() {
    let events = node().admin().follow(&["events", "--tail", "-1"]).unwrap();
    events.expect("boot", STEP_LIMIT).unwrap();
    let text = events.text();
    assert_holds(&text, &["NODE", "ID", "EVENT"]);
}

#[test]
fn boot_shows_where_the_time_went() {
    let text = ok(&["boot"]);
    for part in ["kernel", "map_layers", "switch_root", "apid"] {
        assert!(text.contains(part), "no {part} in\n{text}");
    }
    let json: serde_json::Value = serde_json::from_str(&ok(&["boot", "-o", "json"])).unwrap();
    assert!(json.is_object() || json.is_array(), "{json}");
}

#[test]
fn the_hostname_is_the_configured_one() {
    assert_eq!(ok(&["read", "/proc/sys/kernel/hostname"]).trim(), HOSTNAME);
}

/// Waits until apid's log says it.
fn assert_logged(text: &str) {
    let log = node().admin().follow(&["logs", "-f", "apid"]).unwrap();
    log.expect(text, STEP_LIMIT).unwrap();
}

/// A client that must not get as far as a call: connecting or the first call fails, apid's log says why, and an
/// admin is served as before.
fn is_refused(identity: Option<&api::pki::Identity>, logged: &str) {
    let call = Rpc::connect(node(), identity).and_then(|rpc| {
        Ok(rpc.call(|client| async move { client.machine().version(tonic::Request::new(())).await })?)
    });
    assert!(call.is_err(), "the call was answered: {call:?}");
    assert_logged(logged);
    ok(&["version"]);
}

#[test]
fn a_client_without_a_certificate_is_refused() {
    is_refused(None, "no certificate was shown");
    let client = node().client("no-certificate", None).unwrap();
    assert_holds(&client.refused(&["version"]).unwrap(), &["certificate"]);
}

#[test]
fn a_client_with_an_expired_certificate_is_refused() {
    let identity = node().credentials().expired().unwrap();
    is_refused(Some(&identity), "the certificate expired");
    let client = node().client("expired", Some(&identity)).unwrap();
    assert_holds(&client.refused(&["version"]).unwrap(), &["expired", "talosconfig"]);
}

#[test]
fn a_client_of_another_ca_is_refused() {
    let identity = Credentials::generate().unwrap().client(Some(ADMIN)).unwrap();
    is_refused(Some(&identity), "signed by another CA");
    let client = node().client("other-ca", Some(&identity)).unwrap();
    assert_holds(&client.refused(&["version"]).unwrap(), &["CA"]);
}

/// A client that is let in but may not do this; apid's log holds `logged`.
fn is_denied(name: &str, role: &str, words: &[&str], logged: &str) {
    let identity = node().credentials().client(Some(role)).unwrap();
    let client = node().client(name, Some(&identity)).unwrap();
    assert_holds(&client.refused(words).unwrap(), &["PermissionDenied"]);
    assert_logged(logged);
    ok(&["version"]);
}

#[test]
fn a_reader_may_read_and_not_reboot() {
    let identity = node().credentials().client(Some(READER)).unwrap();
    let reader = node().client("reader", Some(&identity)).unwrap();
    reader.ok(&["version"]).unwrap();
    reader.ok(&["services"]).unwrap();
    is_denied(
        "reader-reboot",
        READER,
        &["reboot", "--wait=false"],
        "MachineService/Reboot: PermissionDenied",
    );
    is_denied("reader-read", READER, &["read", "/etc/hostname"], "MachineService/Read: PermissionDenied");
}

#[test]
fn a_role_that_is_none_may_do_nothing() {
    is_denied("nobody", "os:nobody", &["version"], "MachineService/Version: PermissionDenied");
}

#[test]
fn a_call_that_cannot_be_served_says_why() {
    let identity = node().credentials().client(Some(ADMIN)).unwrap();
    let rpc = Rpc::connect(node(), Some(&identity)).unwrap();
    let call = |client: api::client::Client| async move {
        client.machine().remove_bootkube_initialized_key(()).await
    };
    let status = rpc.call(call).unwrap_err();
    assert_eq!(status.code(), tonic::Code::Unimplemented, "{status:?}");
    assert!(status.message().contains("bootkube"), "{status:?}");
    let status = rpc.call(|client| async move { client.machine().etcd_status(()).await }).unwrap_err();
    assert_eq!(status.code(), tonic::Code::FailedPrecondition, "{status:?}");
    assert!(status.message().contains("etcd"), "{status:?}");
}

#[test]
fn a_node_without_an_installed_disk_rolls_nothing_back() {
    let said = node().admin().refused(&["rollback"]).unwrap();
    assert!(said.contains("does not run from an installed disk"), "{said}");
}

#[test]
fn a_certificate_without_a_role_is_an_admins() {
    let identity = node().credentials().client(None).unwrap();
    node().client("no-role", Some(&identity)).unwrap().ok(&["read", "/proc/version"]).unwrap();
}
