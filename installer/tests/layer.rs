//! Layer files as unsquashfs and veritysetup see them, and damage.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::fs;
use std::path::Path;

use common::{text, tool};
use installer::layer::{self, Spec};
use installer::tree::{Entry, Node, Tree};
use ondisk::manifest::{Layer, RootManifest};
use ondisk::squashfs::{Compression, Superblock};
use proptest::prelude::*;

fn build(directory: &Path) -> Layer {
    common::write_host_files(directory);
    let tree = common::tree(directory);
    layer::build(&tree, &Spec::new("base", "1.0"), directory, &mut installer::silent).unwrap()
}

#[test]
fn unsquashfs_extracts_what_went_in() {
    let dir = tempfile::tempdir().unwrap();
    let layer = build(dir.path());
    let file = dir.path().join(layer.file_name());
    let list = tool("unsquashfs", &["-lln", text(&file)]);
    for line in [
        "drwxr-xr-x 0/0",
        "drwxrwxrwt 0/0",
        "-rw-r----- 0/0",
        "drwx------ 50/51",
        "crw-rw-rw- 0/0                   1,  3 1970-01-01 00:00 squashfs-root/null",
        "squashfs-root/bin -> usr/bin",
        "squashfs-root/usr/lib/link -> deep/noise",
    ] {
        assert!(list.contains(line), "{line} in {list}");
    }
    assert!(list.lines().filter(|l| l.contains("squashfs-root")).all(|l| l.contains("1970-01-01")), "{list}");

    let out = dir.path().join("out");
    // The device cannot be made without root; nothing else is left out.
    tool("unsquashfs", &["-d", text(&out), text(&file), "usr", "etc", "bin", "tmp", "var"]);
    let same = |path: &str, from: &str| {
        assert!(fs::read(out.join(path)).unwrap() == fs::read(dir.path().join(from)).unwrap(), "{path}");
    };
    same("usr/lib/deep/noise", "lib/deep/noise");
    same("usr/lib/zeros", "lib/zeros");
    same("usr/lib/empty", "lib/empty");
    (0..50).for_each(|n| same(&format!("usr/lib/small-{n:02}"), &format!("lib/small-{n:02}")));
    assert_eq!(fs::read(out.join("etc/secret")).unwrap(), b"secret\n");
    let superblock = Superblock::parse(&fs::read(&file).unwrap()).unwrap();
    assert_eq!(superblock.compression, Compression::Zstd);
    assert_eq!(superblock.block_bytes, layer::SQUASHFS_BLOCK_BYTES);
}

#[test]
fn veritysetup_verifies_the_file_and_finds_a_flipped_bit() {
    let dir = tempfile::tempdir().unwrap();
    let layer = build(dir.path());
    let file = dir.path().join(layer.file_name());
    let verify = |layer: &Layer| {
        std::process::Command::new("veritysetup")
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .args(["verify", "--no-superblock", "--data-block-size=4096", "--hash-block-size=4096"])
            .args(["--format=1", "--hash=sha256", &format!("--salt={}", layer.salt)])
            .arg(format!("--data-blocks={}", layer.data_bytes / 4096))
            .arg(format!("--hash-offset={}", layer.hash_offset))
            .args([&file, &file])
            .arg(layer.root_hash.to_string())
            .output()
            .unwrap_or_else(|e| panic!("this test needs veritysetup (Debian package cryptsetup-bin): {e}"))
    };
    let verdict = verify(&layer);
    assert!(verdict.status.success(), "{}", String::from_utf8_lossy(&verdict.stderr));
    assert_eq!(layer::check(&layer, dir.path()).unwrap(), file);

    let good = fs::read(&file).unwrap();
    let hash_at = usize::try_from(layer.hash_offset).unwrap();
    for at in [4096 * 3 + 17, hash_at, hash_at + 5000] {
        let mut bad = good.clone();
        bad[at] ^= 0x10;
        fs::write(&file, &bad).unwrap();
        assert!(!verify(&layer).status.success(), "veritysetup took byte {at}");
        let error = layer::check(&layer, dir.path()).unwrap_err().to_string();
        assert!(error.contains("root hash") || error.contains("hash tree"), "{error}");
    }
    fs::write(&file, &good[..good.len() - 1]).unwrap();
    let error = layer::check(&layer, dir.path()).unwrap_err().to_string();
    assert!(error.contains("length"), "{error}");
}

#[test]
fn layers_lie_behind_each_other() {
    let dir = tempfile::tempdir().unwrap();
    let base = build(dir.path());
    let mut modules = Tree::new();
    modules.bytes("usr/lib/modules/6.12/modules.dep", 0o644, "").unwrap();
    let spec = Spec { kernel_release: Some("6.12"), ..Spec::new("kernel", "6.12") };
    let kernel = layer::build(&modules, &spec, dir.path(), &mut installer::silent).unwrap();
    let manifest = layer::stack("0.1.0", [base.clone(), kernel]).unwrap();
    assert_eq!(manifest.layers[0].offset, 0);
    assert_eq!(manifest.layers[1].offset, base.total_bytes());
    assert_eq!(manifest.kernel().unwrap().kernel_release.as_deref(), Some("6.12"));
    assert_eq!(RootManifest::parse(manifest.to_json().as_bytes()), Ok(manifest));
    let twice = layer::stack("0.1.0", [base.clone(), base]).unwrap_err();
    assert_eq!(twice.to_string(), "root manifest: two layers named base");
}

#[test]
fn progress_reaches_its_total() {
    let dir = tempfile::tempdir().unwrap();
    common::write_host_files(dir.path());
    let mut last = std::collections::BTreeMap::new();
    let tree = common::tree(dir.path());
    let mut report = |progress: installer::Progress| {
        last.insert(progress.step, (progress.done_bytes, progress.total_bytes));
    };
    layer::build(&tree, &Spec::new("base", "1"), dir.path(), &mut report).unwrap();
    assert_eq!(last.keys().copied().collect::<Vec<_>>(), ["compare", "hash", "squash"]);
    assert!(last.values().all(|(done, total)| done == total), "{last:?}");
}

#[test]
fn a_missing_file_is_named_and_nothing_is_left_behind() {
    let dir = tempfile::tempdir().unwrap();
    let mut tree = Tree::new();
    tree.file("etc/gone", 0o644, dir.path().join("no-such-file")).unwrap();
    let error = layer::build(&tree, &Spec::new("base", "1"), dir.path(), &mut installer::silent).unwrap_err();
    assert!(error.to_string().contains("no-such-file"), "{error}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

/// A tree of random entries, with a directory of many names.
fn random_tree() -> impl Strategy<Value = Tree> {
    let name =
        prop_oneof!["[a-d]", "[a-z]{3,8}\\.[a-z]", "[\u{e4}-\u{fc}\u{4e00}]{1,3}", Just("n".repeat(255))];
    let path = prop::collection::vec(name, 1..5).prop_map(|names| names.join("/"));
    let content = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..200),
        (0_usize..300_000, any::<u8>()).prop_map(|(bytes, value)| vec![value; bytes]),
        (1_usize..5).prop_map(|blocks| [vec![0; blocks * 65_536], b"end".to_vec()].concat()),
        (0_usize..4).prop_map(|blocks| common::noise(blocks * 131_072)),
    ];
    let node = prop_oneof![
        Just(Node::Dir),
        content.prop_map(Node::Bytes),
        "[a-z/.]{1,60}".prop_map(Node::Symlink),
        // unsquashfs lists minors from 256 on as the kernel did before Linux 2.6.
        (0_u32..4096, 0_u32..256).prop_map(|(major, minor)| Node::CharDevice(major, minor)),
        (0_u32..4096, 0_u32..256).prop_map(|(major, minor)| Node::BlockDevice(major, minor)),
    ];
    let entry = (0_u32..0o10000, 0_u32..100_000, 0_u32..3, node).prop_map(|(mode, uid, gid, node)| {
        // The kernel shows every link so.
        let mode = if matches!(node, Node::Symlink(_)) { 0o777 } else { mode };
        Entry { mode, uid, gid, node }
    });
    (prop::collection::vec((path, entry), 0..40), 0_usize..700).prop_map(|(entries, many)| {
        let mut tree = Tree::new();
        for (path, entry) in entries {
            // What does not fit is refused, and something else is tested.
            let _ = tree.insert(&path, entry);
        }
        for number in 0..many {
            let _ = tree.bytes(&format!("many/{number:04}"), 0o644, format!("{}", number % 7));
        }
        tree
    })
}

/// A line of `unsquashfs -lln` as it should be, without the time.
fn listed(path: &str, entry: &Entry) -> (String, String) {
    let (kind, end) = match &entry.node {
        Node::Dir => ('d', String::new()),
        Node::Symlink(target) => ('l', format!(" -> {target}")),
        Node::CharDevice(..) => ('c', String::new()),
        Node::BlockDevice(..) => ('b', String::new()),
        Node::Bytes(_) | Node::File(_) => ('-', String::new()),
    };
    let size = match &entry.node {
        Node::CharDevice(major, minor) | Node::BlockDevice(major, minor) => format!("{major},{minor}"),
        // The listing of a directory, whose length is the writer's affair.
        Node::Dir => String::new(),
        _ => entry.content().unwrap().len().to_string(),
    };
    let bits = |shift: u32, special: u32, set: char, unset: char| {
        let bit = |value: u32, letter: char| if entry.mode >> shift & value != 0 { letter } else { '-' };
        let last = match (entry.mode & special != 0, entry.mode >> shift & 1 != 0) {
            (true, true) => set,
            (true, false) => unset,
            (false, true) => 'x',
            (false, false) => '-',
        };
        [bit(4, 'r'), bit(2, 'w'), last].iter().collect::<String>()
    };
    let mode = [bits(6, 0o4000, 's', 'S'), bits(3, 0o2000, 's', 'S'), bits(0, 0o1000, 't', 'T')].concat();
    (format!("squashfs-root/{path}{end}"), format!("{kind}{mode} {}/{} {size}", entry.uid, entry.gid))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(40) })]
    /// Two readers of others' writing and of ours agree with what was asked for: ours within `build`, and unsquashfs.
    #[test]
    fn random_trees_are_read_alike_by_unsquashfs(tree in random_tree()) {
        let dir = tempfile::tempdir().unwrap();
        let layer = layer::build(&tree, &Spec { zstd_level: 1, ..Spec::new("base", "1") }, dir.path(), &mut installer::silent);
        let file = dir.path().join(layer.unwrap().file_name());
        let list = tool("unsquashfs", &["-lln", text(&file)]);
        let mut found: Vec<(String, String)> = Vec::new();
        for line in list.lines().filter(|line| line.contains(" 1970-01-01 00:00 squashfs-root/")) {
            let (head, path) = line.split_once(" 1970-01-01 00:00 ").unwrap();
            let words: Vec<&str> = head.split_whitespace().collect();
            let size = if head.starts_with('d') { String::new() } else { words[2..].concat() };
            found.push((path.to_owned(), format!("{} {} {size}", words[0], words[1])));
        }
        let mut wanted: Vec<_> = tree.iter().map(|(path, entry)| listed(path, entry)).collect();
        wanted.sort();
        found.sort();
        prop_assert_eq!(found, wanted);
        let files: Vec<_> = tree.iter().filter(|(_, entry)| matches!(entry.node, Node::Bytes(_))).collect();
        if !files.is_empty() {
            let out = dir.path().join("out");
            let only = dir.path().join("only");
            fs::write(&only, files.iter().map(|(path, _)| format!("{path}\n")).collect::<String>()).unwrap();
            tool("unsquashfs", &["-quiet", "-no-wildcards", "-d", text(&out), "-extract-file", text(&only), text(&file)]);
            for (path, entry) in files {
                prop_assert!(fs::read(out.join(path)).unwrap() == entry.content().unwrap(), "{}", path);
            }
        }
    }
}
