//! Archives against GNU cpio, and back.

use alloc::vec;
use std::io::Write as _;
use std::process::{Command, Stdio};

use proptest::prelude::*;

use super::*;

fn entry<'a>(name: &'a str, mode: u32, kind: Kind<'a>) -> Entry<'a> {
    Entry { name, mode, uid: 0, gid: 0, kind }
}

fn archive() -> Vec<u8> {
    let mut writer = Writer::new();
    for entry in [
        entry("etc", 0o755, Kind::Dir),
        Entry { uid: 50, gid: 51, ..entry("etc/hello", 0o640, Kind::File(b"hello")) },
        entry("etc/link", 0o777, Kind::Symlink("hello")),
        entry("null", 0o666, Kind::CharDevice(1, 3)),
        entry("init", 0o755, Kind::File(&[7; 4097])),
    ] {
        writer.push(&entry).unwrap();
    }
    writer.finish()
}

#[test]
fn gnu_cpio_lists_what_was_written() {
    let mut child = Command::new("cpio")
        .args(["--list", "--verbose", "--numeric-uid-gid", "--quiet"])
        .env("LC_ALL", "C")
        .env("TZ", "UTC")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap_or_else(|e| panic!("this test needs cpio (Debian package cpio): {e}"));
    child.stdin.take().unwrap().write_all(&archive()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    let list = String::from_utf8(output.stdout).unwrap();
    let expected = "\
drwxr-xr-x   2 0        0               0 Jan  1  1970 etc
-rw-r-----   1 50       51              5 Jan  1  1970 etc/hello
lrwxrwxrwx   1 0        0               5 Jan  1  1970 etc/link -> hello
crw-rw-rw-   1 0        0          1,   3 Jan  1  1970 null
-rwxr-xr-x   1 0        0            4097 Jan  1  1970 init
";
    assert_eq!(list, expected);
}

#[test]
fn segments_follow_each_other() {
    let mut bytes = archive();
    assert_eq!(bytes.len() % ALIGNMENT, 0);
    bytes.extend_from_slice(&[0; 8]);
    bytes.extend(archive());
    let mut reader = Reader::new(&bytes);
    let names: Vec<_> = reader.by_ref().map(|entry| entry.unwrap().name).collect();
    assert_eq!(names.len(), 10);
    assert_eq!(&names[..2], ["etc", "etc/hello"]);
    assert_eq!(reader.position(), bytes.len());
}

#[test]
fn names_that_the_kernel_would_misread_are_refused() {
    let long = "a".repeat(MAX_NAME_BYTES);
    for name in ["", "/etc", "etc/", "a//b", "a/../b", "./a", "a\0b", TRAILER, &long] {
        let refused = Writer::new().push(&entry(name, 0o644, Kind::Dir));
        assert_eq!(refused, Err(Error::Name(name.into())));
    }
}

#[test]
fn truncated_archives_say_where() {
    let bytes = archive();
    let cut = &bytes[..bytes.len() - 1000];
    let last = Reader::new(cut).last().unwrap();
    assert!(matches!(last, Err(Error::Truncated(at)) if at > 0), "{last:?}");
    let not_cpio = Reader::new(&[b'x'; 200]).next();
    assert_eq!(not_cpio, Some(Err(Error::BadHeader(0))));
}

proptest! {
    #[test]
    fn files_survive_the_round_trip(files in proptest::collection::vec(("[a-z]{1,20}", proptest::collection::vec(any::<u8>(), 0..50), 0u32..0o10000), 0..10)) {
        let mut writer = Writer::new();
        for (name, content, mode) in &files {
            writer.push(&entry(name, *mode, Kind::File(content))).unwrap();
        }
        let bytes = writer.finish();
        let back: Vec<_> = Reader::new(&bytes).map(|e| e.unwrap()).map(|e| (e.name.into(), e.content.to_vec(), e.mode & 0o7777)).collect();
        prop_assert_eq!(back, files);
    }

    #[test]
    fn mutated_archives_never_panic(changes in proptest::collection::vec((0usize..5000, any::<u8>()), 1..6)) {
        let mut bytes = archive();
        for (at, with) in changes {
            let at = at % bytes.len();
            bytes[at] = with;
        }
        prop_assert!(Reader::new(&bytes).count() < 100);
    }

    #[test]
    fn hostile_sizes_never_panic(digits in "[0-9a-fA-F]{104}") {
        let mut bytes = vec![b'0'; 6];
        bytes.copy_from_slice(b"070701");
        bytes.extend_from_slice(digits.as_bytes());
        bytes.extend_from_slice(&[0; 64]);
        let _ = Reader::new(&bytes).count();
    }
}
