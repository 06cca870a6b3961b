//! Images that hold something else than they should, and images that are damaged.

use std::io::{Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::FileExt as _;

use super::*;
use crate::layer::SQUASHFS_BLOCK_BYTES as BLOCK_BYTES;

fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 7_u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state.to_le_bytes()[3]
    };
    (0..bytes).map(|_| next()).collect()
}

/// Every type, files of several blocks with and without holes, a directory of more names than one header has.
fn tree() -> Tree {
    let mut tree = Tree::new();
    let block = usize::try_from(BLOCK_BYTES).unwrap();
    tree.bytes("usr/lib/noise", 0o4755, noise(2 * block + 77)).unwrap();
    tree.bytes("usr/lib/holes", 0o644, [vec![0; 2 * block], b"end".to_vec()].concat()).unwrap();
    tree.bytes("usr/lib/empty", 0o600, "").unwrap();
    tree.insert(
        "usr/lib/owned",
        Entry { mode: 0o640, uid: 50, gid: 70_000, node: Node::Bytes(b"x".to_vec()) },
    )
    .unwrap();
    tree.symlink("usr/lib/link", "../lib/noise").unwrap();
    tree.char_device("dev/null", 0o666, 1, 3).unwrap();
    tree.insert("dev/sda", Entry::new(0o660, Node::BlockDevice(259, 0x12345))).unwrap();
    for number in 0..600 {
        tree.bytes(&format!("many/{number:03}"), 0o644, format!("{number}")).unwrap();
    }
    tree.dir("empty", 0o1777).unwrap();
    tree
}

fn packed(tree: &Tree) -> File {
    let mut file = tempfile::tempfile().unwrap();
    write(tree, 3, BLOCK_BYTES, &mut file, &mut crate::silent).unwrap();
    file
}

fn compared(tree: &Tree, file: &File) -> Result<(), String> {
    check(tree, file, BLOCK_BYTES, &mut crate::silent).map_err(|error| error.to_string())
}

#[test]
fn what_was_packed_reads_back() {
    let tree = tree();
    assert_eq!(compared(&tree, &packed(&tree)), Ok(()));
    let nothing = Tree::new();
    assert_eq!(compared(&nothing, &packed(&nothing)), Ok(()));
}

/// What the writer makes of these without a word: they are refused before it by `Tree::insert`, and found after it.
#[test]
fn what_the_writer_packs_wrong_is_found() {
    let long = "n".repeat(257);
    for (path, node, found) in [
        (long.as_str(), Node::Bytes(b"x".to_vec()), "of the image that was just made"),
        ("m/link", Node::Symlink(String::new()), "/m/link of the image that was just made"),
    ] {
        let mut tree = tree();
        tree.bytes("zz/behind", 0o644, "hidden").unwrap();
        tree.insert_unchecked(path, Entry::new(0o777, node));
        let error = compared(&tree, &packed(&tree)).unwrap_err();
        assert!(error.contains(found), "{error}");
    }
}

/// The image of one tree, compared with another one.
#[test]
fn every_difference_is_named_with_its_path() {
    type Change = fn(&mut Tree);
    type Edit = fn(&mut Entry);
    let image = packed(&tree());
    let replaced = |tree: &mut Tree, path: &str, change: Edit| {
        let mut entry = tree.get(path).unwrap().clone();
        change(&mut entry);
        tree.insert_unchecked(path, entry);
    };
    let cases: [(&str, Edit); 9] = [
        ("usr/lib/owned of the image that was just made belongs to 50:70000, not to 51:70000", |entry| {
            entry.uid = 51
        }),
        ("usr/lib/noise of the image that was just made has mode 4755, not 755", |entry| entry.mode = 0o755),
        ("usr/lib/noise of the image that was just made has other content, from byte 262144 on", |entry| {
            let Node::Bytes(bytes) = &mut entry.node else { panic!() };
            *bytes.last_mut().unwrap() ^= 1;
        }),
        ("usr/lib/holes of the image that was just made has 262147 bytes", |entry| {
            let Node::Bytes(bytes) = &mut entry.node else { panic!() };
            bytes.push(0);
        }),
        ("usr/lib/empty of the image that was just made is of another type", |entry| entry.node = Node::Dir),
        ("usr/lib/link of the image that was just made is a link to something else", |entry| {
            entry.node = Node::Symlink("../lib/noisy".into());
        }),
        ("dev/null of the image that was just made is another device", |entry| {
            entry.node = Node::CharDevice(1, 5)
        }),
        ("dev/sda of the image that was just made is another device", |entry| {
            entry.node = Node::BlockDevice(259, 0x2345);
        }),
        ("empty of the image that was just made has mode 1777, not 777", |entry| entry.mode = 0o777),
    ];
    for (wanted, change) in cases {
        let mut other = tree();
        replaced(&mut other, wanted.split(' ').next().unwrap(), change);
        let error = compared(&other, &image).unwrap_err();
        assert!(error.starts_with(&format!("/{wanted}")), "{error}");
    }
    let names: [(&str, Change); 2] = [
        ("/many/3000 of the image that was just made is not in the image", |tree| {
            tree.bytes("many/3000", 0o644, "x").unwrap();
        }),
        ("/many/300 of the image that was just made is in the image and was not to be packed", |tree| {
            tree.remove_unchecked("many/300");
        }),
    ];
    for (wanted, change) in names {
        let mut other = tree();
        change(&mut other);
        let error = compared(&other, &image).unwrap_err();
        assert!(error.starts_with(wanted), "{error}");
    }
}

/// A byte of the image is another one: found, but for the few that nothing of what was packed depends on.
#[test]
fn a_damaged_image_is_found() {
    let mut tree = Tree::new();
    tree.bytes("usr/lib/noise", 0o755, noise(300_000)).unwrap();
    tree.bytes("etc/small", 0o644, "small").unwrap();
    tree.symlink("etc/link", "small").unwrap();
    let file = packed(&tree);
    let length = usize::try_from(file.metadata().unwrap().len()).unwrap();
    let mut image = vec![0; length];
    file.read_exact_at(&mut image, 0).unwrap();
    let used = usize::try_from(u64::from_le_bytes(image[40..48].try_into().unwrap())).unwrap();
    let inodes = usize::try_from(u64::from_le_bytes(image[64..72].try_into().unwrap())).unwrap();
    let spots = (0..200).chain((200..inodes).step_by(997)).chain(inodes..used);
    let (mut tried, mut passed) = (0, Vec::new());
    for at in spots {
        for bit in [0x01, 0x80] {
            file.write_all_at(&[image[at] ^ bit], at as u64).unwrap();
            tried += 1;
            if compared(&tree, &file).is_ok() {
                passed.push(at);
            }
        }
        file.write_all_at(&image[at..=at], at as u64).unwrap();
    }
    assert_eq!(compared(&tree, &file), Ok(()));
    // The image's time, flags, options of the compression, links of directories, the unused word of fragments.
    assert!(tried > 500 && passed.len() < 60, "{} of {tried}: {passed:?}", passed.len());
    for end in [0, 50, 95, inodes, used - 1] {
        file.set_len(end as u64).unwrap();
        let error = compared(&tree, &file).unwrap_err();
        assert!(
            error.starts_with("/ of the image that was just made ") || error.contains("read "),
            "{error}"
        );
    }
}

/// Offsets and counts at their extremes.
#[test]
fn no_number_makes_it_read_elsewhere() {
    let tree = tree();
    let mut file = packed(&tree);
    let mut head = [0; 96];
    file.read_exact_at(&mut head, 0).unwrap();
    for at in (0..96).step_by(2) {
        for value in [[0xff; 8], [0; 8], 1_u64.to_le_bytes(), (1_u64 << 62).to_le_bytes()] {
            for width in [2, 4, 8] {
                file.seek(SeekFrom::Start(at)).unwrap();
                let width = width.min(96 - usize::try_from(at).unwrap());
                file.write_all(&value[..width]).unwrap();
                let _ = compared(&tree, &file);
                file.write_all_at(&head, 0).unwrap();
            }
        }
    }
    assert_eq!(compared(&tree, &file), Ok(()));
}
