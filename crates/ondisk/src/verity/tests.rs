//! Trees against `veritysetup`, and single flipped bits.

use alloc::string::ToString;
use alloc::vec;
use std::process::Command;

use proptest::prelude::*;

use super::*;

const SALT: Digest = Digest([0x5a; 32]);

fn tree(data: &[u8]) -> Tree {
    let mut builder = TreeBuilder::new(SALT);
    data.chunks(1000).for_each(|piece| builder.push(piece));
    builder.finish().unwrap()
}

fn data(blocks: usize) -> Vec<u8> {
    (0..blocks * BLOCK_BYTES).map(|i| u8::try_from((i / 7 + i / BLOCK_BYTES) % 251).unwrap()).collect()
}

/// Runs a host tool; a missing one fails the test by name.
fn tool(name: &str, args: &[&str]) -> String {
    let output = Command::new(name)
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .args(args)
        .output()
        .unwrap_or_else(|e| panic!("this test needs {name} (Debian package cryptsetup-bin): {e}"));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{name} {args:?}: {text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

/// One block, one level, exactly full, two levels, three levels.
const SIZES: [usize; 8] = [1, 2, 127, 128, 129, 1000, 128 * 128, 128 * 128 + 1];

#[test]
fn veritysetup_makes_the_same_tree() {
    let dir = tempfile::tempdir().unwrap();
    let (data_path, hash_path) = (dir.path().join("data"), dir.path().join("hash"));
    for blocks in SIZES {
        let data = data(blocks);
        std::fs::write(&data_path, &data).unwrap();
        let _ = std::fs::remove_file(&hash_path);
        let printed = tool(
            "veritysetup",
            &[
                "format",
                "--no-superblock",
                "--data-block-size=4096",
                "--hash-block-size=4096",
                "--hash=sha256",
                "--format=1",
                &std::format!("--salt={SALT}"),
                data_path.to_str().unwrap(),
                hash_path.to_str().unwrap(),
            ],
        );
        let ours = tree(&data);
        assert!(printed.contains(&ours.root.to_string()), "{blocks} blocks: {printed}");
        assert_eq!(ours.bytes, std::fs::read(&hash_path).unwrap(), "{blocks} blocks");
        assert_eq!(ours.bytes.len() as u64, tree_bytes(blocks as u64));
    }
}

#[test]
fn every_block_verifies_and_a_flipped_bit_is_named() {
    let data = data(300);
    let tree = tree(&data);
    let check = |tree_bytes: &[u8], index: usize, block: &[u8]| {
        let tree = Tree { bytes: tree_bytes.to_vec(), ..tree };
        tree.verify_block(&SALT, index as u64, block)
    };
    for (index, block) in data.chunks(BLOCK_BYTES).enumerate() {
        assert_eq!(check(&tree.bytes, index, block), Ok(()));
    }
    let mut bad = data[..BLOCK_BYTES].to_vec();
    bad[17] ^= 4;
    assert_eq!(check(&tree.bytes, 0, &bad), Err(Error::Mismatch { level: 0, block: 0 }));
    let mut bad_tree = tree.bytes.clone();
    bad_tree[BLOCK_BYTES + 4000] ^= 1;
    let first = &data[..BLOCK_BYTES];
    assert_eq!(check(&bad_tree, 0, first), Err(Error::Mismatch { level: 1, block: 0 }));
    assert_eq!(check(&tree.bytes[..BLOCK_BYTES], 0, first), Err(Error::TreeTooShort));
    assert_eq!(check(&tree.bytes, 300, first), Err(Error::NoSuchBlock(300)));
}

#[test]
fn partial_and_missing_data_have_no_tree() {
    let mut builder = TreeBuilder::new(SALT);
    builder.push(&[0; 5000]);
    assert_eq!(builder.finish(), Err(Error::PartialBlock { bytes: 904 }));
    assert_eq!(TreeBuilder::new(SALT).finish(), Err(Error::NoData));
}

#[test]
fn table_line() {
    let table = Table {
        data_device: "7:0",
        hash_device: "7:0",
        data_blocks: 10,
        hash_start_block: 10,
        root: &Digest([1; 32]),
        salt: &SALT,
        options: &[],
    };
    let plain = std::format!("1 7:0 7:0 4096 4096 10 10 sha256 {} {}", "01".repeat(32), "5a".repeat(32));
    assert_eq!(table.params(), plain);
    assert_eq!(table.sectors(), 80);
    let with = Table { options: &["ignore_zero_blocks", "check_at_most_once"], ..table };
    assert_eq!(with.params(), plain + " 2 ignore_zero_blocks check_at_most_once");
}

proptest! {
    #[test]
    fn pieces_do_not_matter(cuts in proptest::collection::vec(1usize..9000, 1..20)) {
        let data = data(12);
        let mut builder = TreeBuilder::new(SALT);
        let mut rest = data.as_slice();
        for cut in cuts {
            let (head, tail) = rest.split_at(cut.min(rest.len()));
            builder.push(head);
            rest = tail;
        }
        builder.push(rest);
        prop_assert_eq!(builder.finish().unwrap(), tree(&data));
    }

    #[test]
    fn arbitrary_trees_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..9000), blocks in any::<u64>(), index in any::<u64>()) {
        let block = vec![0; BLOCK_BYTES];
        let tree = Tree { data_blocks: blocks, root: SALT, bytes };
        let _ = tree.verify_block(&SALT, index, &block);
    }
}
