//! Images are made by anybody, on a machine without a network: no root, no loop devices, nothing fetched.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod parts;

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Command, Stdio},
};

use parts::parts;

/// `nobody`, and its group.
const NOBODY: &str = "65534";

/// Runs a program in a network namespace of its own, without any right of root's; it has to succeed.
fn without_rights(home: &Path, program: &str, words: &[&str]) -> String {
    let is_root = rustix::process::geteuid().is_root();
    let mut command = Command::new("unshare");
    command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env("HOME", home).env_remove("XDG_STATE_HOME");
    command.current_dir(home).stdin(Stdio::null());
    if is_root {
        command.args(["--net", "setpriv", "--reuid", NOBODY, "--regid", NOBODY, "--clear-groups"]);
        command.args(["--bounding-set=-all", "--inh-caps=-all", "--no-new-privs"]);
    } else {
        command.args(["--user", "--map-current-user", "--net"]);
    }
    let output = command.arg("--").arg(program).args(words).output().unwrap();
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{program} {words:?}: {said}");
    said
}

#[test]
fn anybody_makes_and_customises_images_without_a_network() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    fs::set_permissions(home, fs::Permissions::from_mode(0o777)).unwrap();
    parts(home);
    // Its own place may be closed to others.
    let billetctl = home.join("billetctl");
    fs::copy(env!("CARGO_BIN_EXE_billetctl"), &billetctl).unwrap();
    let billetctl = billetctl.to_str().unwrap();
    // What is meant by "without" holds: nobody's number, and not even a loopback that is up.
    assert_ne!(without_rights(home, "id", &["-u"]).trim(), "0");
    let links = without_rights(home, "ip", &["-brief", "link"]);
    assert!(links.lines().any(|line| line.split_whitespace().next() == Some("lo")), "{links}");
    assert!(links.lines().all(|line| line.contains("DOWN")), "{links}");

    let kinds = "disk,disk.zst,iso,uki,installer,docker,qcow2,vhd,vmdk";
    without_rights(
        home,
        billetctl,
        &["image", "build", "--from", "parts", "--kind", kinds, "--output", "out"],
    );
    let made = fs::read_dir(home.join("out")).unwrap().count();
    assert_eq!(made, kinds.split(',').count());
    fs::create_dir(home.join("files")).unwrap();
    fs::write(home.join("files/words"), "words").unwrap();
    let add = ["image", "add-layer", "out/installer-amd64.tar", "--add", "files", "--output", "more.tar"];
    without_rights(home, billetctl, &add);
    let disk = ["image", "build", "--from", "more.tar", "--kind", "disk", "--output", "more"];
    without_rights(home, billetctl, &disk);
    assert!(fs::metadata(home.join("more/metal-amd64.raw")).unwrap().len() > 1 << 20);
}
