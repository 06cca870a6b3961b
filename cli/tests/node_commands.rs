//! The commands beyond the first ones, as a process against a node on loopback.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod fake;
mod rig;

use rig::Rig;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;

#[tokio::test]
async fn containers_and_their_figures() {
    let rig = Rig::start().await;
    assert_eq!(
        rig.prints("containers").await,
        "NODE        NAMESPACE   ID     IMAGE     PID   STATUS\n127.0.0.1   system      apid   pause:3   9     RUNNING\n"
    );
    assert_eq!(
        rig.prints("-n n1 c -k").await,
        "NODE   NAMESPACE   ID                   IMAGE     PID   STATUS\n\
         n1     k8s.io      kube-system/a        pause:3   7     RUNNING\n\
         n1     k8s.io      └─ kube-system/a:c   pause:3   8     RUNNING\n"
    );
    assert!(rig.prints("stats").await.ends_with("127.0.0.1   system      apid   10.00        42\n"));
    assert_eq!(rig.prints("restart -k kube-system/a:c").await, "");
    rig.asked("RestartRequest { namespace: \"k8s.io\", id: \"kube-system/a:c\", driver: Cri }").await;
}

#[tokio::test]
async fn files_come_as_archive_or_directory() {
    let rig = Rig::start().await;
    let target = rig.path("out/deep");
    assert_eq!(rig.prints(&format!("copy /var/log {}", target.display())).await, "");
    assert_eq!(fs::read(target.join("dir/file")).unwrap(), b"content");
    let raw = rig.output("cp /var/log -").await;
    assert!(raw.status.success() && raw.stdout.starts_with(&[0x1f, 0x8b]));
    let error = rig.fails(&format!("copy /evil {}", rig.path("a/b").display())).await;
    assert!(error.contains("../evil, which is not inside the directory"), "{error}");
    assert!(!rig.path("a/evil").exists());
    assert!(rig.fails("-n n1,n2 copy / -").await.contains("copy is for one node, but 2 are given"));
}

/// In a pipe names are data; on a terminal, and on stderr always, they do not act.
#[tokio::test]
async fn names_of_files_do_not_act_on_the_terminal() {
    let rig = Rig::start().await;
    let output = rig.run("list /acting").await;
    assert!(output.success);
    assert_eq!(output.stdout, "shown\x1b[2J\n");
    assert_eq!(output.stderr, "WARNING: 127.0.0.1: closed\\x1b[2J: permission denied\\x1b[2J\n");
    assert_eq!(rig.on_terminal("list /acting").await, "shown\\x1b[2J\r\n");
}

#[tokio::test]
async fn disk_usage_goes_on_after_what_can_not_be_read() {
    let rig = Rig::start().await;
    let output = rig.run("du -a -d 2 -t 100 /var").await;
    assert_eq!(output.stdout, "SIZE        NAME\n4096        log\n8192        .\n");
    assert_eq!(output.stderr, "WARNING: 127.0.0.1: /var/secret: permission denied\n");
    assert!(!output.success);
    rig.asked("recursion_depth: 3, all: true, threshold: 100, paths: [\"/var\"]").await;
    let output = rig.run("-n n1,n2 usage -H").await;
    assert!(output.stdout.contains("n2           8.2 kB      .\n"), "{}", output.stdout);
}

#[tokio::test]
async fn clock_network_and_disks() {
    let rig = Rig::start().await;
    assert_eq!(
        rig.prints("time").await,
        "NODE        NTP-SERVER         NODE-TIME                       NTP-SERVER-TIME\n\
         127.0.0.1   pool.example.org   1970-01-01 00:01:00 +0000 UTC   1970-01-01 00:01:01 +0000 UTC\n"
    );
    assert!(rig.prints("time --check 10.0.0.9").await.contains("127.0.0.1   10.0.0.9 "));
    assert_eq!(
        rig.prints("interfaces").await,
        "NODE        INDEX   NAME   MAC                 MTU    ADDRESS\n\
         127.0.0.1   2       eth0   52:54:00:00:00:01   1500   10.0.2.15/24\n\
         127.0.0.1   2       eth0   52:54:00:00:00:01   1500   fe80::1/64\n"
    );
    assert_eq!(
        rig.prints("routes").await,
        "NODE        INTERFACE   DESTINATION   GATEWAY       METRIC\n127.0.0.1   eth0        0.0.0.0/0     10.0.2.2/32   1024\n"
    );
    let disks = rig.prints("disks").await;
    assert!(disks.contains("/dev/vda   virtio   -        HDD") && disks.contains("10 GB"), "{disks}");
    assert_eq!(rig.prints("wipe disk sdb --method ZEROES --drop-partition").await, "");
    rig.asked("device: \"sdb\", method: Zeroes, skip_volume_check: false, drop_partition: true").await;
    assert!(
        rig.prints("netstat -tl4").await.contains(
            "127.0.0.1   tcp     0        0        10.0.2.15:50000   10.0.2.2:40000    ESTABLISHED\n"
        )
    );
    rig.asked("filter: Listening").await;
}

#[tokio::test]
async fn packets_as_lines_and_as_file() {
    let rig = Rig::start().await;
    let text = rig.prints("pcap -i eth0 --promiscuous -s 128").await;
    assert!(text.ends_with("IP 10.0.2.15.40000 > 10.0.2.3.53: UDP, length 28\n"), "{text}");
    rig.asked("interface: \"eth0\", promiscuous: true, snap_len: 128").await;
    let file = rig.path("out.pcap");
    assert_eq!(rig.prints(&format!("tcpdump -i eth0 --duration 30s -o {}", file.display())).await, "");
    assert_eq!(fs::read(file).unwrap().len(), 24 + 16 + 28);
    assert!(rig.fails("services -o out.txt").await.contains("it is table, yaml or json"));
}

#[tokio::test]
async fn images_of_new_and_old_nodes() {
    let rig = Rig::start().await;
    assert_eq!(
        rig.prints("image list").await,
        "NODE        IMAGE                          DIGEST       SIZE     CREATED\n\
         127.0.0.1   registry.example.org/pause:3   sha256:abc   300 kB   1970-01-01T00:00:00Z\n"
    );
    assert!(rig.prints("images ls --namespace inmem").await.contains("old.example.org/pause:3"));
    rig.asked("ImageListRequest { namespace: NsSystem }").await;
    let output = rig.run("image pull registry.example.org/a:b").await;
    assert!(output.success);
    assert_eq!(
        output.stderr,
        "127.0.0.1: layer: downloading\n127.0.0.1: layer: extract complete\n127.0.0.1: pulled registry.example.org/a:b\n"
    );
    assert_eq!(rig.prints("image pull a --namespace inmem").await, "");
    rig.asked("ImagePullRequest { namespace: NsSystem, reference: \"a\" }").await;
    assert_eq!(rig.prints("image remove a").await, "");
}

#[tokio::test]
async fn a_cluster_begins_and_hands_out_its_kubeconfig() {
    let rig = Rig::start().await;
    assert_eq!(rig.prints("bootstrap").await, "");
    rig.asked("BootstrapRequest { recover_etcd: false").await;
    assert!(rig.fails("-n n1,n2 bootstrap").await.contains("bootstrap is for one node, but 2 are given"));
    assert_eq!(
        rig.prints("etcd members").await,
        "NODE        ID                 HOSTNAME   PEER URLS               CLIENT URLS             LEARNER\n\
         127.0.0.1   0000000000c0ffee   cp-1       https://10.0.0.1:2380   https://10.0.0.1:2379   false\n"
    );
    let file = rig.path("new/config");
    let here = format!("kubeconfig {}", file.display());
    assert_eq!(rig.prints(&here).await, "");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    // The same cluster once more is a renewal, also where the file is a link.
    let link = rig.path("link");
    std::os::unix::fs::symlink(&file, &link).unwrap();
    assert_eq!(rig.prints(&format!("kubeconfig {}", link.display())).await, "");
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    let error = rig.fails(&format!("{here} --merge=false")).await;
    assert!(error.contains("exists; --force overwrites it"), "{error}");
    assert_eq!(rig.prints(&format!("{here} --merge=false --force --force-context-name mine")).await, "");
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.contains("current-context: mine") && text.contains("https://10.0.0.1:6443"), "{text}");
    assert!(rig.prints("kubeconfig -").await.contains("current-context: admin@test"));
}

#[tokio::test]
async fn what_changes_a_node() {
    let rig = Rig::start().await;
    assert_eq!(rig.prints("meta write 0x0a value").await, "");
    rig.asked("MetaWriteRequest { key: 10, value: [118, 97, 108, 117, 101] }").await;
    assert_eq!(rig.prints("meta delete 10").await, "");
    assert_eq!(rig.prints("rollback").await, "");
    let ack = rig.prints("upgrade -i registry.example.org/installer:v2 -p -s --wait=false").await;
    assert!(ack.starts_with(
        "NODE        ACK                        STARTED\n127.0.0.1   Upgrade request received   20"
    ));
    rig.asked("image: \"registry.example.org/installer:v2\", preserve: true, stage: true, force: false")
        .await;
    let output =
        rig.run("reset --graceful=false --system-labels-to-wipe STATE,EPHEMERAL --timeout 30s").await;
    assert!(
        output.success && output.stderr.contains("127.0.0.1: stopAllServices: STOP"),
        "{}",
        output.stderr
    );
    rig.asked("graceful: false, reboot: false, system_partitions_to_wipe: [ResetPartitionSpec { label: \"STATE\", wipe: true }").await;
}

#[tokio::test]
async fn health_by_the_node_and_by_us() {
    let rig = Rig::start().await;
    let output = rig.run("health --wait-timeout 1m --init-node 10.0.0.1 --worker-nodes 10.0.0.3").await;
    assert!(output.success);
    assert_eq!(output.stderr, "waiting for etcd to be healthy: ...\nwaiting for etcd to be healthy: OK\n");
    rig.asked("control_plane_nodes: [\"10.0.0.1\"], worker_nodes: [\"10.0.0.3\"]").await;
    let output = rig.run("-n n1 health --server=false --wait-timeout 0s").await;
    assert!(
        !output.success
            && output.stderr.contains("waiting for all nodes to finish boot sequence: OK\n")
            && output.stderr.contains("waiting for apid to be ready: OK\n")
            && output.stderr.contains("all services to be healthy: n1: service leaky is Failed"),
        "{}",
        output.stderr
    );
}

#[tokio::test]
async fn graphs_paths_and_scripts() {
    let rig = Rig::start().await;
    let dot = rig.prints("inspect dependencies --with-resources").await;
    assert!(
        dot.contains("\"config.Controller\" -> \"MachineConfigs.config.talos.dev(config/v1alpha1)\""),
        "{dot}"
    );
    assert_eq!(rig.prints("get svc -o jsonpath={.metadata.id}:{.spec.running}").await, "apid:true\n");
    assert!(rig.fails("get svc -o jsonpath={range").await.contains("is no JSONPath template"));
    assert!(rig.fails("get svc -o xml").await.contains("`--output xml` is not known"));
    for shell in ["bash", "zsh", "fish", "powershell"] {
        let script = rig.prints(&format!("completion {shell}")).await;
        assert!(script.contains("billetctl") && script.contains("netstat"), "{shell}");
    }
}

#[tokio::test]
async fn a_node_in_maintenance_needs_its_fingerprint_at_most() {
    let rig = Rig::start_without_clients().await;
    // No talosconfig is needed.
    fs::remove_file(rig.path("talosconfig")).unwrap();
    let node = rig.endpoint.clone();
    assert!(rig.prints(&format!("-n {node} get --insecure svc")).await.contains("apid"));
    assert!(rig.prints(&format!("-n {node} disks -i")).await.contains("/dev/vda"));
    let right = rig.fingerprint();
    assert!(rig.prints(&format!("-n {node} disks -i --cert-fingerprint {right}")).await.contains("/dev/vda"));
    let error = rig.fails(&format!("-n {node} disks -i --cert-fingerprint wrong=")).await;
    assert!(error.contains(&right), "the right one is named: {error}");
    assert!(rig.fails("disks -i").await.contains("--insecure is for one node, but 0 are given"));
}

#[tokio::test]
async fn the_support_bundle_has_everything_but_secrets() {
    let rig = Rig::start().await;
    let file = rig.path("out.zip");
    let output = rig.run(&format!("-n n1,n2 support -O {} -w 2 -v", file.display())).await;
    assert!(output.success, "{}", output.stderr);
    // What is collected is named, and a service's name does not act on the terminal.
    assert!(output.stderr.contains("n1/logs/acting\\x1b[2J.log\n"), "{}", output.stderr);
    use std::os::unix::fs::PermissionsExt;
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let script = "import sys, zipfile\nz = zipfile.ZipFile(sys.argv[1])\nassert z.testzip() is None\n\
                  for i in z.infolist(): print('==', i.filename); print(z.read(i).decode())";
    let listing = std::process::Command::new("python3").args(["-c", script]).arg(&file).output().unwrap();
    let listing = String::from_utf8(listing.stdout).unwrap();
    for part in [
        "n1/version.txt",
        "n1/dmesg.log",
        "n1/services.txt",
        "n1/processes.txt",
        "n1/mounts.txt",
        "n1/containers.txt",
        "n1/events.txt",
        "n1/dependencies.dot",
        "n1/logs/apid.log",
        "n1/logs/leaky.log",
        "n1/resources/services.v1alpha1.talos.dev.yaml",
        "n2/dmesg.log",
    ] {
        assert!(listing.contains(&format!("== {part}\n")), "{part} is missing: {listing}");
    }
    assert!(listing.contains("booted") && listing.contains("running: true"));
    assert!(!listing.contains(fake::SECRET), "a secret is in the bundle");
    assert!(!listing.contains("machineconfigs"), "a sensitive type is in the bundle");
    assert!(listing.contains("logs/controller-runtime.log: NotFound"), "what failed is told");
}

#[tokio::test]
async fn a_support_bundle_tells_what_is_missing() {
    let rig = Rig::start().await;
    let file = rig.path("part.zip");
    let output = rig.run(&format!("-n n1,broken support -O {}", file.display())).await;
    assert!(!output.success && output.stderr.contains("n1/errors.txt names them"), "{}", output.stderr);
    assert!(
        output.stderr.contains("WARNING: ") && output.stderr.contains("broken/errors.txt"),
        "{}",
        output.stderr
    );
    assert!(
        output.stderr.ends_with(&format!("support bundle is in {}\n", file.display())),
        "{}",
        output.stderr
    );
    let script =
        "import sys, zipfile\nprint(zipfile.ZipFile(sys.argv[1]).read('broken/errors.txt').decode())";
    let errors = std::process::Command::new("python3").args(["-c", script]).arg(&file).output().unwrap();
    let errors = String::from_utf8(errors.stdout).unwrap();
    for part in ["version.txt", "dmesg.log", "services.txt", "mounts.txt", "events.txt", "dependencies.dot"] {
        assert!(errors.contains(&format!("{part}: Unavailable: no route to broken")), "{part}: {errors}");
    }
}

#[tokio::test]
async fn a_node_signs_a_new_client_configuration() {
    let rig = Rig::start().await;
    let new = rig.path("reader.yaml");
    let line = format!("config new {} --roles os:reader,os:etcd:backup --crt-ttl 2h", new.display());
    assert_eq!(rig.prints(&line).await, format!("created {}\n", new.display()));
    rig.asked(
        "roles: [\"os:reader\", \"os:etcd:backup\"], crt_ttl: Some(Duration { seconds: 7200, nanos: 0 })",
    )
    .await;
    let mode = std::os::unix::fs::MetadataExt::mode(&fs::metadata(&new).unwrap());
    assert_eq!(mode & 0o777, 0o600);
    // The fake lets in what its authority signed, and listens where the old configuration says.
    let with = |command: &str| format!("--talosconfig {} {command}", new.display());
    assert!(rig.prints(&with("hostname")).await.contains("127.0.0.1"));
    let info = rig.prints(&with("config info")).await;
    assert!(info.contains("signed@test") && info.contains("os:etcd:backup"), "{info}");
    assert!(rig.fails(&line).await.contains("already exists"));
    assert!(rig.fails("-n n1,n2 config new other").await.contains("config new is for one node"));
}

#[tokio::test]
async fn control_groups() {
    let rig = Rig::start().await;
    let text = rig.prints("cgroups --preset process").await;
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0], ["NAME", "PidsCurrent", "PidsPeak", "PidsMax", "Threads", "Processes"]);
    assert_eq!(lines[2], ["├──init", "1", "unset", "unset", "0", "1/init"]);
    assert_eq!(lines[3][..4], ["└──kubepods", "unset", "unset", "max"]);
    assert_eq!(lines[4][0], "└──kube-system/a");
    assert_eq!((lines[5][0], lines[6][0]), ("├──sandbox", "└──c"));
    let bare = rig.prints("cg --preset psi --skip-cri-resolve").await;
    assert!(bare.contains("    └──pod5-5") && bare.contains("        ├──c7"), "{bare}");
    let json = rig.prints("cgroups --preset process -o json").await;
    assert!(json.contains("\"PidsCurrent\": \"4\""), "{json}");
    assert!(rig.prints("-n n1,n2 cgroups --preset swap").await.contains("n2:\nNAME"));
    assert!(rig.fails("cgroups").await.contains("--preset"));
    assert!(rig.fails("cgroups --schema-file x.yaml").await.contains("use one of the presets"));
}
