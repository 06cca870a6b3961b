//! Tar files: layers of images as they are walked for an installation, and what is added to an image.
//!
//! An input is flags, and a tar file, whose headers get right sums unless a flag says otherwise.
//! What must hold: nothing panics; memory is bounded by the file's bytes, and no byte is read twice; a refusal is short and has
//! nothing of a content in it; what is read from a layer is as long as it was said to be, is written and read back the same;
//! what is added has only names that an image holds, and nothing is gone that no whiteout took away.

use std::collections::BTreeMap;
use std::io::{self, Cursor, Read, Write as _};
use std::path::Path;

use installer::custom::entries_of_tar;
use installer::tree::{Entry, Node, Tree};
use oci::files::{Files, Source};

use crate::check;
use crate::target::{Outcome, Target};

pub(super) const LAYER: Target = Target {
    name: "tar-layer",
    about: "tar files that are layers of images",
    seeds,
    words: WORDS,
    run: layer,
};

pub(super) const ADD: Target =
    Target { name: "tar-add", about: "tar files that are added to an image", seeds, words: WORDS, run: add };

const WORDS: &[&str] = &[
    "ustar\u{0}00",
    "ustar  \u{0}",
    "././@LongLink",
    "13 path=a/b\n",
    "12 size=100\n",
    "30 size=18446744073709551615\n",
    "22 GNU.sparse.major=1\n",
    ".wh.",
    ".wh..wh..opq",
    "../",
    "0000644\u{0}",
    "77777777777\u{0}",
    "K",
    "L",
    "x",
    "g",
    "S",
    "1",
    "2",
];

/// Flags: sums stay as they are; the file is packed; a second layer is the same file.
const AS_IT_IS: u8 = 1;
const PACKED: u8 = 2;
const TWICE: u8 = 4;

const BLOCK: usize = 512;
/// Buffers of readers and of a decompressor.
const MOST_BYTES: usize = 1 << 20;
/// Bytes held for each of an input: a header of 512 becomes an entry with a name of some hundred, and a content is held once,
/// twice while it grows.
const HELD_PER_BYTE: usize = 8;
/// A text that is in contents and in no name.
const SECRET: &str = "geheim-7Kq";

/// Puts the sums of headers right, as far as one can be found behind another.
pub(super) fn mend(bytes: &mut [u8]) {
    let mut at = 0_usize;
    while let Some(block) = at.checked_add(BLOCK).and_then(|end| bytes.get_mut(at..end)) {
        at += BLOCK;
        if block.iter().all(|byte| *byte == 0) {
            continue;
        }
        let mut header = tar::Header::new_old();
        header.as_mut_bytes().copy_from_slice(block);
        header.set_cksum();
        block.copy_from_slice(header.as_bytes());
        let size = header.entry_size().ok().and_then(|size| usize::try_from(size).ok()).unwrap_or(0);
        at = size.checked_next_multiple_of(BLOCK).and_then(|size| at.checked_add(size)).unwrap_or(usize::MAX);
    }
}

/// An entry as a seed has it.
fn put(out: &mut tar::Builder<Vec<u8>>, kind: tar::EntryType, path: &str, content: &[u8]) {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(0o644);
    header.set_size(0);
    let done = if kind.is_symlink() || kind.is_hard_link() {
        out.append_link(&mut header, path, std::str::from_utf8(content).expect("a path"))
    } else {
        header.set_size(content.len() as u64);
        out.append_data(&mut header, path, content)
    };
    done.expect("a tar file in memory");
}

fn seeds() -> Vec<Vec<u8>> {
    use tar::EntryType as Kind;
    let long = "a-long-name/".repeat(14);
    let secret = SECRET.repeat(20);
    let made = |work: &dyn Fn(&mut tar::Builder<Vec<u8>>)| {
        let mut out = tar::Builder::new(Vec::new());
        work(&mut out);
        out.into_inner().expect("a tar file in memory")
    };
    let plain = made(&|out| {
        put(out, Kind::Directory, "etc", b"");
        put(out, Kind::Regular, "./etc/one", secret.as_bytes());
        put(out, Kind::Symlink, "etc/link", b"one");
        put(out, Kind::Link, "etc/two", b"./etc/one");
    });
    let extended = made(&|out| {
        out.append_pax_extensions([("path", &b"by/pax"[..]), ("mtime", b"1.5"), ("size", b"2")])
            .expect("a tar file in memory");
        put(out, Kind::Regular, "short", b"xy");
        put(out, Kind::Regular, &format!("{long}file"), b"z");
        put(out, Kind::Symlink, "far", long.as_bytes());
    });
    let whiteouts = made(&|out| {
        put(out, Kind::Regular, "a/b/c", b"1");
        put(out, Kind::Regular, "a/d", b"2");
        put(out, Kind::Regular, "a/b/.wh.c", b"");
        put(out, Kind::Regular, "a/.wh..wh..opq", b"");
        put(out, Kind::Regular, "a", b"3");
        put(out, Kind::Regular, "e/.wh.f", b"");
    });
    let sparse = made(&|out| {
        out.append_pax_extensions([("GNU.sparse.major", &b"1"[..]), ("GNU.sparse.name", b"hole")])
            .expect("a tar file in memory");
        put(out, Kind::Regular, "GNUSparseFile.0/hole", b"1\n0\n");
        put(out, Kind::GNUSparse, "old", b"x");
    });
    let flagged = |flags: u8, file: &[u8]| [&[flags], file].concat();
    vec![
        flagged(0, &plain),
        flagged(TWICE, &extended),
        flagged(0, &whiteouts),
        flagged(0, &sparse),
        flagged(PACKED, &plain),
        flagged(AS_IT_IS, &plain),
        flagged(AS_IT_IS, &plain[..700]),
    ]
}

/// The tar file, and what it is packed as.
fn files(input: &[u8]) -> Option<(u8, Vec<u8>, Vec<u8>)> {
    let (flags, file) = input.split_first()?;
    let mut file = file.to_vec();
    if flags & AS_IT_IS == 0 {
        mend(&mut file);
    }
    let mut packed = file.clone();
    if flags & PACKED != 0 {
        let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        out.write_all(&file).expect("memory takes every byte");
        packed = out.finish().expect("memory takes every byte");
    }
    Some((*flags, file, packed))
}

fn refused(text: &str) -> Outcome {
    check::shown(text);
    check::without(text, SECRET);
    Outcome::refused(text)
}

/// What a layer's files are, one after the other.
type Walked = Vec<(String, Vec<u8>)>;

fn walk(layers: Vec<Vec<u8>>) -> io::Result<Walked> {
    let open = move |number: usize| {
        Ok(layers.get(number).map(|layer| Box::new(Cursor::new(layer.clone())) as Source))
    };
    let mut files = Files::new(Box::new(open));
    let mut found = Vec::new();
    while let Some(file) = files.next_file()? {
        let mut content = Vec::new();
        // One in three is left unread.
        if found.len() % 3 != 2 {
            files.read_to_end(&mut content)?;
            assert!(content.len() as u64 == file.bytes, "{} of {} bytes", content.len(), file.bytes);
        }
        found.push((file.path, content));
    }
    Ok(found)
}

fn layer(input: &[u8]) -> Outcome {
    let Some((flags, file, packed)) = files(input) else { return Outcome::refused("nothing") };
    let count = if flags & TWICE == 0 { 1 } else { 2 };
    let layers = vec![packed.clone(); count];
    let most = MOST_BYTES + count * HELD_PER_BYTE * (file.len() + packed.len());
    let found = match check::within(most, || walk(layers)) {
        Ok(found) => found,
        Err(error) => return refused(&error.to_string()),
    };
    let read: usize = found.iter().map(|(_, content)| content.len()).sum();
    // A packed file that somebody else packed holds more than it has bytes.
    assert!(file.starts_with(&[0x1f, 0x8b]) || read <= count * file.len(), "{read} bytes of {}", file.len());
    if let Some(written) = written(&found) {
        let again = walk(vec![written]).expect("what was written is a tar file");
        let unread = |files: &Walked| files.iter().map(|(path, _)| path.clone()).collect::<Vec<_>>();
        assert!(unread(&again) == unread(&found), "{:?} is read as {:?}", unread(&found), unread(&again));
        assert!(again == found, "a content changed");
    }
    let longest = found.iter().map(|(path, _)| path.len()).max().unwrap_or(0);
    Outcome { accepted: true, shapes: vec![format!("{} files, long {}", found.len().min(5), longest > 100)] }
}

/// `None`: a name that another program would not write.
fn written(files: &Walked) -> Option<Vec<u8>> {
    let mut out = tar::Builder::new(Vec::new());
    for (path, content) in files {
        if path.is_empty()
            || path.contains('\0')
            || path.split('/').any(|part| matches!(part, "" | "." | ".."))
        {
            return None;
        }
        put(&mut out, tar::EntryType::Regular, path, content);
    }
    out.into_inner().ok()
}

fn add(input: &[u8]) -> Outcome {
    let Some((_, file, packed)) = files(input) else { return Outcome::refused("nothing") };
    // What somebody packed is as long as it wants to be, and all of it is held.
    if [&[0x1f, 0x8b][..], &[0x28, 0xb5, 0x2f, 0xfd]].iter().any(|magic| file.starts_with(magic)) {
        return Outcome::refused("packed by somebody else");
    }
    let most = MOST_BYTES + HELD_PER_BYTE * (file.len() + packed.len());
    let found = match check::within(most, || entries_of_tar(packed.as_slice(), Path::new("/a.tar"))) {
        Ok(found) => found,
        Err(error) => {
            let causes =
                std::iter::successors(Some(&error as &dyn std::error::Error), |error| error.source());
            let text: Vec<_> = causes.map(ToString::to_string).collect();
            assert!(text[0].contains("/a.tar"), "{text:?} names no file");
            return refused(&text.join(": "));
        }
    };
    nothing_is_lost(&file, &found);
    let mut tree = Tree::new();
    let fits = found.iter().try_for_each(|(path, entry)| tree.insert(path, entry.clone()));
    let shape = fits.err().map_or_else(|| "all fit".to_owned(), |error| crate::shape::of(&error.to_string()));
    Outcome { accepted: true, shapes: vec![format!("{} entries, {shape}", found.len().min(5))] }
}

/// Compares the names with what the rules of whiteouts leave, looked through from the start for every entry.
fn nothing_is_lost(file: &[u8], found: &BTreeMap<String, Entry>) {
    let mut left: BTreeMap<String, bool> = BTreeMap::new();
    let mut archive = tar::Archive::new(file);
    for item in archive.entries().expect("it was read before") {
        let item = item.expect("it was read before");
        let name = String::from_utf8(item.path_bytes().into_owned()).expect("names are UTF-8");
        let parts: Vec<&str> = name.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
        let Some((last, above)) = parts.split_last() else { continue };
        let (name, above) = (parts.join("/"), above.join("/"));
        let is_below =
            |path: &str, directory: &str| directory.is_empty() || path.starts_with(&format!("{directory}/"));
        if *last == ".wh..wh..opq" {
            left.retain(|path, _| !is_below(path, &above));
        } else if let Some(gone) = last.strip_prefix(".wh.") {
            assert!(!gone.is_empty(), "{name:?} takes away a name that is none");
            let gone = if above.is_empty() { gone.to_owned() } else { format!("{above}/{gone}") };
            left.retain(|path, _| *path != gone && !is_below(path, &gone));
        } else {
            let target = item.link_name_bytes().map(|link| String::from_utf8_lossy(&link).into_owned());
            let target = target.map(|target| {
                target.split('/').filter(|part| !matches!(*part, "" | ".")).collect::<Vec<_>>().join("/")
            });
            let is_dir = match item.header().entry_type() {
                tar::EntryType::Directory => true,
                tar::EntryType::Link => target.and_then(|target| left.get(&target).copied()).unwrap_or(false),
                _ => false,
            };
            if !is_dir {
                left.retain(|path, _| !is_below(path, &name));
            }
            left.insert(name, is_dir);
        }
    }
    let found: BTreeMap<_, _> =
        found.iter().map(|(path, entry)| (path.clone(), entry.node == Node::Dir)).collect();
    assert!(found == left, "{left:?} should be there, and there is {found:?}");
}
