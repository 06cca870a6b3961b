//! billetctl as a process, against a node on loopback: what is asked, printed, and said when it goes wrong.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod fake;
mod rig;

use rig::{DEADLINE, Rig};
use std::{io::Read, process::Stdio};
use tokio::{task::spawn_blocking, time::timeout};

#[tokio::test]
async fn tables_of_the_endpoint_itself() {
    let rig = Rig::start().await;
    assert_eq!(rig.prints("hostname").await, "NODE        HOSTNAME\n127.0.0.1   billet-1\n");
    assert_eq!(
        rig.prints("services").await,
        "NODE        SERVICE   STATE     HEALTH   LAST CHANGE   LAST EVENT\n127.0.0.1   apid      Running   ?        ?\n"
    );
    assert_eq!(
        rig.prints("service apid restart").await,
        "NODE        RESPONSE\n127.0.0.1   Service \"apid\" restarted\n"
    );
    assert!(
        rig.prints("memory")
            .await
            .ends_with("127.0.0.1   2000    1000   1000   0        0         0       0\n")
    );
    assert!(
        rig.prints("mounts").await.ends_with("2.00       1.00       1.00            50.00%         /run\n")
    );
    assert!(
        rig.prints("ps")
            .await
            .ends_with("127.0.0.1   1     S       1         0.00       0 B       0 B      init\n")
    );
    let version = rig.prints("version").await;
    assert!(
        version.starts_with("Client:\n\tTag:")
            && version.contains("Server:\n\tNODE:        127.0.0.1\n\tTag:         v9.9.9\n")
    );
}

#[tokio::test]
async fn streams() {
    let rig = Rig::start().await;
    assert_eq!(rig.prints("logs apid").await, "127.0.0.1: one\n127.0.0.1: two\n127.0.0.1: unfinished\n");
    assert_eq!(rig.prints("dmesg").await, "127.0.0.1: kern:    info: [2026-11-21T00:00:00Z]: booted\n");
    assert_eq!(rig.prints("read /proc/version").await, "Linux version\n");
    assert_eq!(rig.prints("ls /").await, ".\netc\n");
    assert!(
        rig.prints("ls -l /")
            .await
            .contains("drwxr-xr-x   0     0     0         Jan 1 1970 00:00:00           etc\n")
    );
    let events = rig.prints("events --tail 1").await;
    assert!(events.contains("machine.MachineStatusEvent") && events.contains("ready: true"), "{events}");
}

#[tokio::test]
async fn logs_of_earlier_boots() {
    let rig = Rig::start().await;
    let line = "127.0.0.1: kern:    info: [2026-11-20T00:00:00Z]: before\n";
    assert_eq!(rig.prints("dmesg --boot -1").await, line);
    let error = rig.fails("dmesg --boot=-7").await;
    assert!(error.contains("log of boot -7 of 127.0.0.1") && error.contains("none -7"), "{error}");
    assert!(rig.fails("dmesg --boot 1").await.contains("-1 the one before it"));
    assert_eq!(
        rig.prints("dmesg --list-boots").await,
        "NODE        BOOT   STARTED                LAST HEARD OF          SLOT     RUNS   STAGE     END\n\
         127.0.0.1   -1     2026-11-20T00:00:01Z   2026-11-20T00:00:09Z   ROOT-A   1.1    running   cut off\n\
         127.0.0.1   -2     2026-11-20T00:00:02Z   2026-11-20T00:00:09Z   ROOT-A   1.2    running   rebooted\n"
    );
}

#[tokio::test]
async fn several_nodes_and_one_that_is_broken() {
    let rig = Rig::start().await;
    assert_eq!(rig.prints("-n n1,n2 hostname").await, "NODE   HOSTNAME\nn1     billet-1\nn2     billet-1\n");
    assert_eq!(
        rig.prints("-n n1 -n n2 list").await,
        "NODE   NAME\nn1     .\nn1     etc\nn2     .\nn2     etc\n"
    );
    let partly = rig.run("-n n1,broken hostname").await;
    assert!(!partly.success && partly.stdout.ends_with("n1     billet-1\n"), "{}", partly.stdout);
    assert_eq!(partly.stderr, "WARNING: broken: rpc error: code = Unavailable desc = no route\n");
    assert!(rig.fails("-n broken hostname").await.contains("broken: rpc error"));
    assert!(rig.fails("-n n1,n2 read /proc/version").await.contains("read is for one node, but 2 are given"));
}

#[tokio::test]
async fn resources_in_three_forms_and_watched() {
    let rig = Rig::start().await;
    let table = "NODE        NAMESPACE   TYPE      ID     VERSION   RUNNING\n127.0.0.1   runtime     Service   apid   3         true\n";
    assert_eq!(rig.prints("get svc").await, table);
    assert_eq!(rig.prints("get Services apid").await, table);
    let yaml = rig.prints("get svc apid -o yaml").await;
    assert!(
        yaml.starts_with("node: 127.0.0.1\nmetadata:\n    namespace: runtime\n")
            && yaml.ends_with("spec:\n    running: true\n    healthy: false\n---\n"),
        "{yaml}"
    );
    let json: serde_json::Value = serde_json::from_str(&rig.prints("get svc -o json").await).unwrap();
    assert_eq!(json["spec"]["healthy"], false);
    let watched = rig.prints("get svc -w").await;
    let signs: Vec<_> = watched.lines().map(|l| l.get(12..13).unwrap_or_default()).collect();
    assert_eq!(signs, ["*", "+", " ", "-"], "{watched}");
    assert!(
        rig.fails("get nonsense")
            .await
            .contains("there is no type of resource `nonsense`; `billetctl get rd` lists them")
    );
    assert!(rig.fails("get svc none").await.contains("NotFound: resource Services"));
}

#[tokio::test]
async fn a_reboot_is_waited_for_and_a_failed_shutdown_is_told() {
    let rig = Rig::start().await;
    let output = rig.run("reboot --timeout 30s").await;
    assert!(output.success && output.stderr.contains("127.0.0.1: reboot: START"), "{}", output.stderr);
    assert_eq!(rig.prints("reboot --wait=false").await, "");
    let error = rig.fails("shutdown --timeout 30s").await;
    assert!(error.contains("127.0.0.1: sequence failed: disk is busy"), "{error}");
}

#[tokio::test]
async fn errors_say_what_where_and_what_to_do() {
    let rig = Rig::start().await;
    assert!(rig.fails("logs nothing").await.contains("NotFound: service \"nothing\" not defined"));
    let error = rig.fails("service nothing").await;
    assert!(
        error.contains("service `nothing` is not known to the node; `billetctl services` lists them"),
        "{error}"
    );
    assert!(rig.fails("boot").await.contains("there is no type of resource `BootTimelines"));
    assert!(rig.fails("service apid stop").await.contains("compare `billetctl version`"));
    assert!(
        rig.fails("--context other hostname").await.contains("there is no context `other`; there are: test")
    );
    assert!(
        rig.fails("--talosconfig /nonexistent hostname")
            .await
            .contains("no client configuration at /nonexistent; give one")
    );
    let error = rig.fails("-e 127.0.0.1:1 hostname").await;
    assert!(error.contains("127.0.0.1:1: ") && error.contains("refused"), "{error}");
    rig.write_config("not an endpoint");
    assert!(
        rig.fails("hostname").await.contains("`not an endpoint` is not an endpoint; write host or host:port")
    );
}

#[tokio::test]
async fn a_reader_that_has_seen_enough_is_no_error() {
    let rig = Rig::start().await;
    let mut child = rig.command("logs apid").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let ended = spawn_blocking(move || {
        let mut stderr = String::new();
        child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        (child.wait().unwrap(), stderr)
    });
    let (status, stderr) = timeout(DEADLINE, ended).await.expect("billetctl ends in time").unwrap();
    assert!(status.success() && stderr.is_empty(), "{stderr}");
}

#[tokio::test]
async fn certificates_are_made_anew_and_what_stayed_is_told() {
    let rig = Rig::start().await;
    let output = rig.run("certs renew").await;
    assert_eq!(output.stdout, "127.0.0.1: api is another one\n127.0.0.1: etcd-peer is another one\n");
    assert_eq!(output.stderr, "WARNING: 127.0.0.1: kubelet: no answer; its certificates stay\n");
    // What stayed is not nothing.
    assert!(!output.success);
}
