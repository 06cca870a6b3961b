//! A small system to build images of, and host tools that check them.

#![allow(dead_code, reason = "each test program uses a part")]

pub(crate) mod modular;

use std::fs;
use std::path::Path;
use std::process::Command;

use installer::tree::{Entry, Node, Tree};

/// What a kernel has built in at least, or as modules.
pub(crate) const BUILTIN: &str =
    "kernel/a/loop.ko\nkernel/squashfs.ko\nkernel/overlay.ko\nkernel/dm-mod.ko\nkernel/dm-verity.ko\n";

/// A bzImage with nothing but the release in it.
pub(crate) fn bzimage(release: &str) -> Vec<u8> {
    let mut image = vec![0; 4096];
    image[0x202..0x206].copy_from_slice(b"HdrS");
    image[0x20e] = 0x10;
    let text = format!("{release} (test)");
    image[0x210..0x210 + text.len()].copy_from_slice(text.as_bytes());
    image
}

/// A kernel for arm64 with nothing but the release in it.
pub(crate) fn arm64_image(release: &str) -> Vec<u8> {
    let mut image = vec![0; 4096];
    image[0x38..0x3c].copy_from_slice(b"ARMd");
    image.extend(format!("Linux version {release} (test)").as_bytes());
    image
}

/// A stub for other processors than it says.
pub(crate) fn for_arm64(stub: &[u8]) -> Vec<u8> {
    let header = usize::try_from(u32::from_le_bytes(stub[0x3c..0x40].try_into().unwrap())).unwrap();
    let mut stub = stub.to_vec();
    stub[header + 4..header + 6].copy_from_slice(&0xaa64_u16.to_le_bytes());
    stub
}

/// A module for amd64: an ELF file with nothing but `.modinfo`, whose words are parted by blanks.
pub(crate) fn module(words: &str) -> Vec<u8> {
    let info: Vec<u8> = words.split(' ').flat_map(|word| [word.as_bytes(), &[0]].concat()).collect();
    let names = b"\0.modinfo\0";
    let mut file = vec![0; 64];
    file[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
    file[0x12] = 62;
    let table = 64 + info.len() + names.len();
    file[0x28..0x30].copy_from_slice(&(table as u64).to_le_bytes());
    file[0x3a..0x40].copy_from_slice(&[64, 0, 2, 0, 1, 0]);
    file.extend([&info[..], names].concat());
    for (name, at, bytes) in [(1_u8, 64, info.len()), (0, 64 + info.len(), names.len())] {
        let mut header = vec![0; 64];
        header[0] = name;
        header[0x18..0x20].copy_from_slice(&(at as u64).to_le_bytes());
        header[0x20..0x28].copy_from_slice(&(bytes as u64).to_le_bytes());
        file.extend(header);
    }
    file
}

/// The same for arm64.
pub(crate) fn arm64_module(words: &str) -> Vec<u8> {
    let mut file = module(words);
    file[0x12] = 183;
    file
}

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
pub(crate) fn write_host_files(directory: &Path) {
    fs::create_dir_all(directory.join("lib/deep")).unwrap();
    fs::write(directory.join("lib/deep/noise"), noise(700_000)).unwrap();
    fs::write(directory.join("lib/zeros"), vec![0; 300_000]).unwrap();
    fs::write(directory.join("lib/empty"), "").unwrap();
    for number in 0..50 {
        fs::write(directory.join(format!("lib/small-{number:02}")), format!("{number}\n").repeat(number))
            .unwrap();
    }
    std::os::unix::fs::symlink("deep/noise", directory.join("lib/link")).unwrap();
}

/// A tree with every kind of entry.
pub(crate) fn tree(directory: &Path) -> Tree {
    let mut tree = Tree::new();
    tree.load("usr/lib", &directory.join("lib")).unwrap();
    tree.bytes("usr/bin/tool", 0o755, noise(5000)).unwrap();
    tree.bytes("etc/secret", 0o640, "secret\n").unwrap();
    tree.dir("tmp", 0o1777).unwrap();
    tree.insert("var/apid", Entry { mode: 0o700, uid: 50, gid: 51, node: Node::Dir }).unwrap();
    tree.symlink("bin", "usr/bin").unwrap();
    tree.char_device("null", 0o666, 1, 3).unwrap();
    tree
}
