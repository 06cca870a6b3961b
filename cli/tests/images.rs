//! `flash` and `image build` as a process, on files.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::{
    fs::{self, File},
    os::unix::fs::FileExt as _,
    path::Path,
    process::{Command, Output},
};

const MIB: usize = 1 << 20;

fn billetctl(home: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_billetctl"));
    command.env("HOME", home).env_remove("XDG_STATE_HOME").current_dir(home).args(words);
    command.stdin(std::process::Stdio::null()).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn an_image_is_flashed_to_a_file() {
    let home = tempfile::tempdir().unwrap();
    let (image, target) = (home.path().join("disk.raw"), home.path().join("target"));
    let file = File::create(&image).unwrap();
    file.set_len(64 * MIB as u64).unwrap();
    file.write_all_at(&vec![7; 3 * MIB], 20 * MIB as u64 + 4096).unwrap();
    let done = billetctl(home.path(), &["flash", "disk.raw", "target"]);
    let said = text(&done.stderr);
    assert!(done.status.success(), "{said}");
    for part in ["image   disk.raw:", "no GUID partition table", "target  target: a new file", "verify 100 %"]
    {
        assert!(said.contains(part), "{part:?} is not in\n{said}");
    }
    assert!(fs::read(&image).unwrap() == fs::read(&target).unwrap());

    // What is there is not overwritten without a word, nor by something that is longer.
    let again = billetctl(home.path(), &["flash", "disk.raw", "target"]);
    assert!(!again.status.success() && text(&again.stderr).contains("add --yes"), "{}", text(&again.stderr));
    fs::write(home.path().join("small"), "small").unwrap();
    let small = billetctl(home.path(), &["flash", "disk.raw", "small", "--yes"]);
    assert!(text(&small.stderr).contains("choose a larger disk"), "{}", text(&small.stderr));
    let yes = billetctl(home.path(), &["flash", "disk.raw", "target", "--yes"]);
    assert!(yes.status.success(), "{}", text(&yes.stderr));
    let left: Vec<_> = fs::read_dir(home.path().join(".local/state/billetctl")).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn what_cannot_be_flashed_is_said() {
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join("disk.qcow2"), b"QFI\xfb and more").unwrap();
    fs::write(home.path().join("disk.raw"), vec![1; MIB]).unwrap();
    for (words, wanted) in [
        (&["flash", "disk.qcow2", "target"][..], "qemu-img convert -O raw"),
        (&["flash", "none.raw", "target"], "read the image none.raw"),
        (&["flash", "disk.raw", "/dev/sdzz"], "there is no such disk"),
        (&["flash", "disk.raw", "/dev/null"], "neither a disk nor a file"),
        (&["image", "build", "--from", "disk.raw"], "error: "),
        (&["image", "build", "--from", ".", "--kind", "iso"], "has no root.json"),
        (&["image", "build", "--from", ".", "--sector-size", "520"], "512 or 4096"),
    ] {
        let output = billetctl(home.path(), words);
        assert!(
            !output.status.success() && text(&output.stderr).contains(wanted),
            "{}",
            text(&output.stderr)
        );
    }
    let listed = billetctl(home.path(), &["flash", "disk.raw", "-o", "json"]);
    assert!(listed.status.success(), "{}", text(&listed.stderr));
    assert!(!home.path().join("target").exists());
}
