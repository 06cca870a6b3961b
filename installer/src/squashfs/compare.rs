//! What was packed, read back and compared with what was asked for.
//!
//! Owns: the comparison of every path, type, mode, owner, time, size, link target, device number and content.
//! Order: by paths, as a person would list them; the first one that differs is named.
//! Fails by: [`Error::ReadBack`].

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Cursor, Read};

use super::metadata::Fault;
use super::reader::{Content, Image, Inode, Kind};
use crate::tree::{Entry, Node, Tree, shown};
use crate::{Error, Progress};

/// The root's mode, which no entry says.
pub(super) const ROOT_MODE: u16 = 0o755;

/// Compares the image at the start of `file` with the tree that it was made of.
pub(crate) fn check(
    tree: &Tree,
    file: &File,
    block_bytes: u32,
    progress: &mut dyn FnMut(Progress),
) -> Result<(), Error> {
    let image = Image::open(file, block_bytes).map_err(|fault| faulty("", &fault))?;
    let mut comparison = Comparison {
        image: &image,
        wanted: Wanted::of(tree),
        numbers: BTreeSet::new(),
        done: Progress { step: "compare", done_bytes: 0, total_bytes: tree.content_bytes() },
        progress,
    };
    let root = image.root().map_err(|fault| faulty("", &fault))?;
    comparison.header("", &root, &Entry::new(ROOT_MODE.into(), Node::Dir))?;
    comparison.directory("", &root)?;
    if comparison.numbers.len() as u64 != u64::from(image.inodes) {
        return Err(differs("", "it counts other inodes than its directories have"));
    }
    Ok(())
}

fn differs(path: &str, reason: impl Into<String>) -> Error {
    Error::ReadBack { path: shown(path), reason: reason.into() }
}

fn faulty(path: &str, fault: &Fault) -> Error {
    differs(path, fault.to_string())
}

/// The entries of a tree by the directory that they lie in.
struct Wanted<'t>(BTreeMap<&'t str, BTreeMap<&'t [u8], (&'t str, &'t Entry)>>);

impl<'t> Wanted<'t> {
    fn of(tree: &'t Tree) -> Self {
        let mut directories = BTreeMap::<_, BTreeMap<_, _>>::new();
        for (path, entry) in tree.iter() {
            let (directory, name) = path.rsplit_once('/').unwrap_or(("", path));
            directories.entry(directory).or_default().insert(name.as_bytes(), (path, entry));
        }
        Self(directories)
    }
}

struct Comparison<'c, 'f> {
    image: &'c Image<'f>,
    wanted: Wanted<'c>,
    /// Of inodes that were come to.
    numbers: BTreeSet<u32>,
    done: Progress,
    progress: &'c mut dyn FnMut(Progress),
}

impl Comparison<'_, '_> {
    /// A directory with all that lies in it. As deep as the tree at most: nothing else is entered.
    fn directory(&mut self, path: &str, inode: &Inode) -> Result<(), Error> {
        let Kind::Directory(directory) = &inode.kind else { return Err(differs(path, "is no directory")) };
        let names = self.image.names(directory).map_err(|fault| faulty(path, &fault))?;
        let mut names = names.iter().peekable();
        let surplus = |name: &[u8]| {
            let whole = format!("{path}/{}", String::from_utf8_lossy(name));
            differs(whole.trim_start_matches('/'), "is in the image and was not to be packed")
        };
        for (name, (path, entry)) in self.wanted.0.remove(path).unwrap_or_default() {
            match names.next_if(|found| found.bytes == name) {
                Some(found) => {
                    let child = self.image.named(found).map_err(|fault| faulty(path, &fault))?;
                    self.entry(path, entry, &child, inode.number)?;
                }
                None => {
                    let before = names.peek().filter(|found| found.bytes.as_slice() < name);
                    return Err(before.map_or_else(
                        || differs(path, "is not in the image"),
                        |found| surplus(&found.bytes),
                    ));
                }
            }
        }
        names.next().map_or(Ok(()), |found| Err(surplus(&found.bytes)))
    }

    fn entry(&mut self, path: &str, entry: &Entry, inode: &Inode, parent: u32) -> Result<(), Error> {
        self.header(path, inode, entry)?;
        match (&entry.node, &inode.kind) {
            (Node::Dir, Kind::Directory(directory)) if directory.parent != parent => {
                Err(differs(path, "names another directory as the one that it lies in"))
            }
            (Node::Dir, Kind::Directory(_)) => self.directory(path, inode),
            (Node::Bytes(bytes), Kind::File(content)) => self.content(path, content, Cursor::new(bytes)),
            (Node::File(host), Kind::File(content)) => {
                self.content(path, content, File::open(host).map_err(Error::read(host))?)
            }
            (Node::Symlink(target), Kind::Symlink(found)) if target.as_bytes() == found => Ok(()),
            (Node::Symlink(_), Kind::Symlink(_)) => Err(differs(path, "is a link to something else")),
            (Node::CharDevice(major, minor), Kind::CharDevice(number))
            | (Node::BlockDevice(major, minor), Kind::BlockDevice(number)) => {
                let same = (rdev_major(*number), rdev_minor(*number)) == (*major, *minor);
                if same { Ok(()) } else { Err(differs(path, "is another device")) }
            }
            _ => Err(differs(path, "is of another type")),
        }
    }

    fn header(&mut self, path: &str, inode: &Inode, entry: &Entry) -> Result<(), Error> {
        if !self.numbers.insert(inode.number) {
            return Err(differs(path, format!("shares inode {} with another entry", inode.number)));
        }
        if (inode.uid, inode.gid) != (entry.uid, entry.gid) {
            let found = format!("belongs to {}:{}", inode.uid, inode.gid);
            return Err(differs(path, format!("{found}, not to {}:{}", entry.uid, entry.gid)));
        }
        if u32::from(inode.mode) != entry.mode & 0o7777 {
            return Err(differs(path, format!("has mode {:o}, not {:o}", inode.mode, entry.mode & 0o7777)));
        }
        if inode.modified == 0 { Ok(()) } else { Err(differs(path, "has a time")) }
    }

    fn content(&mut self, path: &str, content: &Content, mut wanted: impl Read) -> Result<(), Error> {
        let mut failed = None;
        let (mut at, mut expected) = (0, Vec::new());
        let read = self.image.each_block(content, &mut |block| {
            expected.resize(block.len(), 0);
            let same = match wanted.read_exact(&mut expected) {
                Ok(()) => expected == block,
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => false,
                Err(error) => {
                    failed = Some(differs(path, format!("cannot be read again: {error}")));
                    return false;
                }
            };
            if !same {
                failed = Some(differs(path, format!("has other content, from byte {at} on")));
            }
            at += block.len() as u64;
            self.done.done_bytes += block.len() as u64;
            (self.progress)(self.done);
            same
        });
        read.map_err(|fault| faulty(path, &fault))?;
        if let Some(error) = failed {
            return Err(error);
        }
        let longer = wanted.read(&mut [0]).map_err(|error| differs(path, error.to_string()))? > 0;
        if at != content.bytes || longer {
            return Err(differs(
                path,
                format!("has {} bytes, of which {at} lie in the image", content.bytes),
            ));
        }
        Ok(())
    }
}

/// The kernel's `new_decode_dev`: major in bits 8 to 19.
fn rdev_major(number: u32) -> u32 {
    number >> 8 & 0xfff
}

/// Minor in bits 0 to 7 and 20 to 31.
fn rdev_minor(number: u32) -> u32 {
    number & 0xff | number >> 12 & 0xfff00
}
