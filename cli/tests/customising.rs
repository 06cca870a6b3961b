//! `image build --profile` and `image add-layer` as a process.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod parts;

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

use installer::image::Source;

/// One that OpenSSL made.
const CERTIFICATE: &str = include_str!("../../crates/api/testdata/client-multi-role.crt");

fn billetctl(home: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_billetctl"));
    command.env("HOME", home).env_remove("XDG_STATE_HOME").current_dir(home).args(words);
    command.stdin(std::process::Stdio::null()).output().unwrap()
}

/// What a command said that succeeded.
fn said(home: &Path, words: &[&str]) -> String {
    let output = billetctl(home, words);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{words:?}: {said}");
    said
}

/// What a command said that failed.
fn refused(home: &Path, words: &[&str]) -> String {
    let output = billetctl(home, words);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "{words:?}: {said}");
    said
}

fn write(home: &Path, name: &str, content: &str) {
    let path = home.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

fn layers(home: &Path, image: &str) -> Vec<String> {
    let work = tempfile::tempdir().unwrap();
    let source = Source::open(&home.join(image), work.path()).unwrap();
    source.system.manifest.layers.iter().map(|layer| layer.name.clone()).collect()
}

/// What is left in the directory beside what was made.
fn hidden(home: &Path) -> Vec<String> {
    let names = fs::read_dir(home).unwrap().map(|item| item.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.starts_with(".billetctl-") || name.ends_with("-partial")).collect()
}

#[test]
fn a_profile_makes_an_image_and_a_layer_is_added_to_that() {
    let dir = tempfile::tempdir().unwrap();
    let home = dir.path();
    parts::parts(home);
    said(home, &["gen", "config", "demo", "https://10.0.0.1:6443", "-t", "worker", "-o", "machine.yaml"]);
    write(home, "profile/ca.pem", CERTIFICATE);
    write(home, "profile/files/usr/share/words", "words");
    write(home, "profile/tool", "#!");
    write(home, "firmware/card.bin", "firmware");
    let extension = "version: v1alpha1\nmetadata:\n  name: tools\n  version: '1.2'\n";
    write(home, "profile/tools/manifest.yaml", extension);
    write(home, "profile/tools/rootfs/usr/local/etc/containers/tool.yaml", "name: tool\n");
    write(
        home,
        "profile/profile.toml",
        "remove = '/etc/os-release /not/there'\ncertificates = ['ca.pem']\nextensions = ['tools']\n\
         config = '../machine.yaml'\n[[add]]\ndirectory = 'files'\n[[add]]\nfile = 'tool'\nto = '/usr/local/bin'\n",
    );
    let build = ["image", "build", "--from", "parts", "--kind", "installer", "--output", "out"];
    let told =
        said(home, &[&build[..], &["--profile", "profile/profile.toml", "--firmware", "firmware"]].concat());
    for warning in [
        "warning: remove: the image has no /not/there",
        "warning: extension tools: nodes do not run the services that /usr/local/etc/containers/tool.yaml",
    ] {
        assert!(told.contains(warning), "{warning:?} is not in {told}");
    }
    assert_eq!(layers(home, "out/installer-amd64.tar"), ["base", "removed", "tools", "custom"]);

    let add = ["image", "add-layer", "out/installer-amd64.tar", "--output", "more.tar"];
    let told =
        said(home, &[&add[..], &["--add", "profile/tool:/usr/local/sbin", "--remove=-nothere"]].concat());
    assert!(told.contains("warning: remove: the image has no -nothere"), "{told}");
    assert_eq!(layers(home, "more.tar"), ["base", "removed", "tools", "custom", "custom-2"]);
    write(home, "empty.toml", "# nothing yet\n");
    let told = said(home, &[&build[..], &["--profile", "empty.toml"]].concat());
    assert!(told.contains("warning: empty.toml changes nothing"), "{told}");
    assert!(hidden(home).is_empty() && hidden(&home.join("out")).is_empty());
}

/// A run that was killed left these; nobody holds the lock of its directory, as a run does that goes on.
#[test]
fn what_a_killed_run_left_is_swept() {
    let dir = tempfile::tempdir().unwrap();
    let home = dir.path();
    parts::parts(home);
    write(home, "out/.billetctl-17/base.layer", "x");
    write(home, "out/metal-amd64.raw.17-0.billet-partial", "x");
    write(home, "out/metal-amd64.raw.zst.17.billet-partial", "x");
    write(home, "out/.billetctl-18/base.layer", "x");
    let lock = fs::File::open(home.join("out/.billetctl-18")).unwrap();
    lock.lock().unwrap();
    write(home, "out/words.17.partial", "x");
    said(home, &["image", "build", "--from", "parts", "--kind", "uki", "--output", "out"]);
    let mut left: Vec<_> = fs::read_dir(home.join("out"))
        .unwrap()
        .map(|item| item.unwrap().file_name().into_string().unwrap())
        .collect();
    left.sort();
    assert_eq!(left, [".billetctl-18", "metal-amd64-uki.efi", "words.17.partial"]);
}

#[test]
fn a_run_that_is_ended_or_fails_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let home = dir.path();
    parts::parts(home);
    refused(home, &["image", "build", "--from", "parts", "--add", "none", "--output", "new/out"]);
    assert!(!home.join("new").exists(), "directories that were made for the output");
    // Long enough for any machine: it is squashed, and takes no room here.
    fs::create_dir(home.join("long")).unwrap();
    fs::File::create(home.join("long/zeros")).unwrap().set_len(1 << 40).unwrap();
    for (signal, code) in [("-INT", 130), ("-TERM", 143)] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_billetctl"));
        command.env("HOME", home).current_dir(home).stderr(std::process::Stdio::piped());
        let words =
            ["image", "build", "--from", "parts", "--kind", "uki", "--add", "long", "--output", "new/out"];
        let mut running = command.args(words).spawn().unwrap();
        let work = home.join(format!("new/out/.billetctl-{}", running.id()));
        let is_squashed = || {
            let files = fs::read_dir(&work).into_iter().flatten().flatten();
            files.filter(|file| file.file_name().to_string_lossy().ends_with("-partial")).count() > 0
        };
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(120);
        while !is_squashed() {
            assert!(running.try_wait().unwrap().is_none() && std::time::Instant::now() < deadline);
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let pid = running.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
        let output = running.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(code));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("interrupted: what was not finished is removed"), "{said}");
        assert!(!home.join("new").exists(), "{said}");
    }
}

#[test]
fn what_cannot_be_added_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let home = dir.path();
    parts::parts(home);
    write(home, "machine.yaml", "version: v1alpha1\nmachine:\n  tokne: 4hrlfe.secret\n");
    write(home, "profile.toml", "certificates = ['a.pem']\n[[add]]\ndirectory = 'b'\n");
    write(home, "tar.toml", "[[add]]\ntar = 'machine.yaml'\n");
    write(home, "unknown.toml", "removes = []\n");
    fs::write(home.join("tools.tar.xz"), b"\xfd7zXZ\0\0").unwrap();
    write(home, "build/installer.oci.tar", "");
    write(home, "build/root.json", "{}");
    let build = ["image", "build", "--from", "parts", "--kind", "uki"];
    for (more, wanted) in [
        (
            &["--profile", "profile.toml"][..],
            "line 1, column 17: a.pem is not there\nline 3, column 13: b is not there",
        ),
        (&["--profile", "unknown.toml"], "line 1, column 1: unknown field `removes`"),
        (&["--profile", "tar.toml"], "machine.yaml is no tar file (it is a YAML file)"),
        (&["--profile", "machine.yaml"], "machine.yaml: line 1"),
        (
            &["--add", "machine.yaml"],
            "machine.yaml is no tar file (it is a YAML file): name a directory, a tar file",
        ),
        (&["--add", "none"], "read none"),
        (
            &["--add", "tools.tar.xz:/usr/local"],
            "tools.tar.xz is an xz file: unpack it first (unxz); to have it in",
        ),
        (&["--system-extension-image", "machine.yaml"], "machine.yaml is no tar file (it is a YAML file)"),
        (&["--embedded-config-path", "machine.yaml"], "machine.yaml is not valid"),
        (&["--certificate", "machine.yaml"], "machine.yaml has no certificate in PEM form"),
        (&["--extra-kernel-arg", ""], "correct --extra-kernel-arg"),
        (&["--add", "machine.yaml:/usr/lib/billet/boot"], "what lies there is made with the image"),
        (&["--kernel-path", "machine.yaml"], "it is no kernel for amd64"),
    ] {
        let said = refused(home, &[&build[..], more].concat());
        assert!(said.contains(wanted), "{wanted:?} is not in {said}");
        // A config's own errors show its lines, secrets hidden.
        assert!(!said.contains("secret"), "{said}");
    }
    let said = refused(home, &["image", "build", "--from", "build"]);
    assert!(said.contains("give build/installer.oci.tar"), "{said}");
    let said = refused(home, &["image", "add-layer", "machine.yaml", "--add", "parts", "--output", "x.tar"]);
    assert!(
        said.contains("machine.yaml is no tar file (it is a YAML file)") && !said.contains("secret"),
        "{said}"
    );
    let said = refused(home, &["image", "add-layer", "parts", "--output", "x.tar"]);
    assert!(said.contains("nothing is changed"), "{said}");
    assert!(!home.join("x.tar").exists() && hidden(home).is_empty());
}
