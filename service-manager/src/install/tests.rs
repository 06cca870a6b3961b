use super::*;

fn config(machine: &str) -> Config {
    let text = format!("version: v1alpha1\nmachine:\n  type: worker\n  token: a.b\n{machine}");
    config::parse(&text).unwrap_or_else(|e| panic!("{e}"))
}

/// A node whose root came from there.
fn node(root_source: &str, command_line: &str) -> Arc<crate::node::Node> {
    let dir = tempfile::tempdir().unwrap();
    crate::server::tests_node_of(dir.path().to_owned(), |runtime| {
        runtime.boot.root_source = root_source.into();
        runtime.parameters = config::cmdline::CommandLine::parse(command_line).node();
    })
}

#[test]
fn only_what_runs_from_elsewhere_and_names_a_disk_installs_itself() {
    let (disk, selector) = ("  install: {disk: /dev/vda}\n", "  install: {diskSelector: {type: ssd}}\n");
    for (source, line, machine, due) in [
        ("initramfs", "", disk, true),
        ("/dev/sr0 (label BILLET)", "", selector, true),
        ("initramfs", "", "", false),
        ("initramfs", "billet.install=no", disk, false),
        ("initramfs", "talos.install=no", disk, false),
        ("initramfs", "talos.platform=container", disk, false),
        ("/dev/vda2 (ROOT-A)", "", disk, false),
        ("/dev/nvme0n1p3 (ROOT-B)", "", selector, false),
    ] {
        assert_eq!(
            is_due(&node(source, line).install, &config(machine)),
            due,
            "{source} {line:?} {machine:?}"
        );
    }
}

#[test]
fn progress_is_told_in_steps() {
    let mut told = ProgressReport::default();
    let mut lines = Vec::new();
    for (step, done_bytes) in [
        ("write", 0),
        ("write", 9),
        ("write", 10),
        ("write", 29),
        ("write", 30),
        ("verify", 5),
        ("verify", 100),
    ] {
        lines.extend(told.next(installer::Progress { step, done_bytes, total_bytes: 100 }));
    }
    assert_eq!(lines, ["write 0 %", "write 10 %", "write 29 %", "write 30 %", "verify 5 %", "verify 100 %"]);
    assert_eq!(
        told.next(installer::Progress { step: "x", done_bytes: 0, total_bytes: 0 }).unwrap(),
        "x 100 %"
    );
}

#[tokio::test]
async fn a_machine_without_disks_is_told_so_before_a_config_is_taken() {
    let node = node("initramfs", "");
    let given = config("  install: {disk: /dev/vdz}\n");
    let text = preview(&node.install, &given, false).await.unwrap_err().to_string();
    assert_eq!(text, "specified install disk does not exist: \"/dev/vdz\"\nthis machine has no disks");
    assert!(preview(&node.install, &config(""), false).await.unwrap().is_none());
}
