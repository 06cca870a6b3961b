//! A small system to build images of, and host tools that check them.

#![allow(dead_code, reason = "each test program uses a part")]

use std::fs;
use std::path::Path;
use std::process::Command;

use installer::tree::{Entry, Node, Tree};

/// Runs a host tool and returns what it printed; a missing tool fails the test by name.
pub(crate) fn tool(name: &str, args: &[&str]) -> String {
    let output = Command::new(name)
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .env("LC_ALL", "C.UTF-8")
        .env("TZ", "UTC")
        .args(args)
        .output()
        .unwrap_or_else(|e| panic!("this test needs the host tool {name}: {e}"));
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name} {args:?}: {text}");
    text
}

pub(crate) fn text(path: &Path) -> &str {
    path.to_str().expect("test paths are UTF-8")
}

/// Bytes that do not compress, the same on every call.
pub(crate) fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3]
    };
    (0..bytes).map(|_| next()).collect()
}

/// Writes the files of the host that [`tree`] reads.
pub(crate) fn write_host_files(folder: &Path) {
    fs::create_dir_all(folder.join("lib/deep")).unwrap();
    fs::write(folder.join("lib/deep/noise"), noise(700_000)).unwrap();
    fs::write(folder.join("lib/zeros"), vec![0; 300_000]).unwrap();
    fs::write(folder.join("lib/empty"), "").unwrap();
    for number in 0..50 {
        fs::write(folder.join(format!("lib/small-{number:02}")), format!("{number}\n").repeat(number))
            .unwrap();
    }
    std::os::unix::fs::symlink("deep/noise", folder.join("lib/link")).unwrap();
}

/// A tree with every kind of entry.
pub(crate) fn tree(folder: &Path) -> Tree {
    let mut tree = Tree::new();
    tree.load("usr/lib", &folder.join("lib")).unwrap();
    tree.bytes("usr/bin/tool", 0o755, noise(5000)).unwrap();
    tree.bytes("etc/secret", 0o640, "secret\n").unwrap();
    tree.dir("tmp", 0o1777).unwrap();
    tree.insert("var/apid", Entry { mode: 0o700, uid: 50, gid: 51, node: Node::Dir }).unwrap();
    tree.symlink("bin", "usr/bin").unwrap();
    tree.char_device("null", 0o666, 1, 3).unwrap();
    tree
}
