//! A reader of the squashfs images that are written here, which shares no code with their writer.
//!
//! Owns: superblock, inodes, directories, fragments, data blocks; every contradiction is a [`Fault`].
//! Does not: know other compressions than zstd, extended attributes, hard links, FIFOs, sockets: none is written here.
//! Source: kernel Documentation/filesystems/squashfs.rst and fs/squashfs/squashfs_fs.h, whose names the constants cite.

use std::cell::RefCell;
use std::fs::File;
use std::rc::Rc;

use super::metadata::{BLOCK_BYTES, Cursor, Disk, Fault, Table, array};

const SUPERBLOCK_BYTES: usize = 96;
/// SQUASHFS_MAGIC
const MAGIC: &[u8] = b"hsqs";
/// ZSTD_COMPRESSION
const ZSTD: u16 = 6;
/// SQUASHFS_COMP_OPT: options of the compression, which are not needed to read, lie behind the superblock. Bit 6 says that
/// duplicate files share their data.
const KNOWN_FLAGS: u16 = 1 << 10 | 1 << 6;
/// SQUASHFS_INVALID_BLK: a table that there is not.
const NO_TABLE: u64 = u64::MAX;
/// SQUASHFS_INVALID_FRAG, and an inode without extended attributes.
const NONE: u32 = u32::MAX;
/// SQUASHFS_COMPRESSED_BIT_BLOCK: set for data that is not packed.
const PLAIN: u32 = 1 << 24;
/// What a directory's size counts besides its listing (`.` and `..`).
const EXTRA_BYTES: u32 = 3;
/// SQUASHFS_DIR_COUNT
const MOST_ENTRIES: u32 = 256;
/// NAME_MAX of limits.h; SQUASHFS_NAME_LEN is 256.
const MOST_NAME_BYTES: usize = 255;
/// PATH_MAX of limits.h without its NUL.
const MOST_TARGET_BYTES: u32 = 4095;
/// Bytes of an entry of the tables of IDs and of fragments.
const ID_BYTES: usize = 4;
const FRAGMENT_BYTES: usize = 16;

/// Where an inode lies: the place of its block in the table, and the place in what that unpacks to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reference {
    block: u64,
    offset: u16,
}

/// An inode.
#[derive(Debug)]
pub(super) struct Inode {
    pub(super) number: u32,
    pub(super) mode: u16,
    pub(super) uid: u32,
    pub(super) gid: u32,
    /// Seconds since 1970.
    pub(super) modified: u32,
    pub(super) kind: Kind,
}

/// What an inode is.
#[derive(Debug)]
pub(super) enum Kind {
    Directory(Directory),
    File(Content),
    Symlink(Vec<u8>),
    /// With the number as the kernel's `new_encode_dev` makes it.
    BlockDevice(u32),
    CharDevice(u32),
}

impl Kind {
    /// SQUASHFS_DIR_TYPE and the next ones, which directories have.
    fn code(&self) -> u16 {
        match self {
            Self::Directory(_) => 1,
            Self::File(_) => 2,
            Self::Symlink(_) => 3,
            Self::BlockDevice(_) => 4,
            Self::CharDevice(_) => 5,
        }
    }
}

#[derive(Debug)]
pub(super) struct Directory {
    block: u32,
    offset: u16,
    /// Of its listing.
    bytes: u32,
    /// Number of the directory that it lies in.
    pub(super) parent: u32,
}

/// Where a file's bytes lie.
#[derive(Debug)]
pub(super) struct Content {
    start: u64,
    pub(super) bytes: u64,
    sizes: Vec<u32>,
    fragment: Option<(u32, u32)>,
}

/// A name in a directory.
#[derive(Debug)]
pub(super) struct Name {
    pub(super) bytes: Vec<u8>,
    inode: Reference,
    number: u32,
    code: u16,
}

/// An image.
pub(super) struct Image<'f> {
    disk: Disk<'f>,
    block_bytes: u32,
    /// How many inodes there are.
    pub(super) inodes: u32,
    root: Reference,
    inode_table: Table,
    directory_table: Table,
    ids: Vec<u32>,
    fragments: Vec<(u64, u32)>,
    /// The fragment block that was read last: files lie in the order of their paths.
    fragment: RefCell<Option<(u32, Rc<Vec<u8>>)>>,
}

impl<'f> Image<'f> {
    pub(super) fn open(file: &'f File, block_bytes: u32) -> Result<Self, Fault> {
        let disk = Disk::new(file)?;
        let bytes = disk.read(0, SUPERBLOCK_BYTES)?;
        let head = Head(&bytes);
        head.check(block_bytes)?;
        let (used, inodes, directories) = (head.u64(40), head.u64(64), head.u64(72));
        let end = file.metadata().map_or(0, |status| status.len());
        let lookup = |name, at: usize, count, entry| lookup(&disk, name, (head.u64(at), used), count, entry);
        let (fragments, first_fragment) =
            lookup("the fragment table", 80, usize::try_from(head.u32(16)).unwrap_or(0), FRAGMENT_BYTES)?;
        let (ids, first_id) = lookup("the table of owners", 48, usize::from(head.u16(26)), ID_BYTES)?;
        let tables = SUPERBLOCK_BYTES as u64 <= inodes
            && inodes < directories
            && directories <= first_fragment.min(first_id)
            && first_fragment.max(first_id) <= used
            && used <= end;
        if !tables {
            return Err(head.fault("its tables are not in order, or do not lie in the image"));
        }
        let inode_table = Table { name: "the inode table", start: inodes, end: directories };
        let end = first_fragment.min(first_id);
        let directory_table = Table { name: "the directory table", start: directories, end };
        let ids = ids.chunks_exact(ID_BYTES).filter_map(array).map(u32::from_le_bytes).collect();
        let fragments =
            fragments.chunks_exact(FRAGMENT_BYTES).map(Head).map(|entry| (entry.u64(0), entry.u32(8)));
        let (inodes, root, fragments) = (head.u32(4), reference(head.u64(32)), fragments.collect());
        let fragment = RefCell::new(None);
        Ok(Self { disk, block_bytes, inodes, root, inode_table, directory_table, ids, fragments, fragment })
    }

    pub(super) fn root(&self) -> Result<Inode, Fault> {
        let root = self.inode(self.root)?;
        match root.kind {
            Kind::Directory(_) => Ok(root),
            _ => Err(self.inode_table.fault(self.inode_table.start, "the root is no directory")),
        }
    }

    /// The inode of a name, which both describe alike.
    pub(super) fn named(&self, name: &Name) -> Result<Inode, Fault> {
        let inode = self.inode(name.inode)?;
        if (inode.number, inode.kind.code()) != (name.number, name.code) {
            let at = self.inode_table.start + name.inode.block;
            return Err(self.inode_table.fault(at, "an inode has another number or type than its name says"));
        }
        Ok(inode)
    }

    fn inode(&self, at: Reference) -> Result<Inode, Fault> {
        let table = self.inode_table;
        let block = table.start.saturating_add(at.block);
        let mut cursor = self.disk.cursor(table, block, at.offset.into())?;
        let (code, mode) = (cursor.u16()?, cursor.u16()?);
        let mut id = || -> Result<u32, Fault> {
            let id = self.ids.get(usize::from(cursor.u16()?)).copied();
            id.ok_or_else(|| table.fault(block, "an owner is not in the table of owners"))
        };
        let (uid, gid) = (id()?, id()?);
        let (modified, number) = (cursor.u32()?, cursor.u32()?);
        let kind = match code {
            1 => small_directory(&mut cursor)?,
            8 => large_directory(&mut cursor)?,
            2 => self.small_file(&mut cursor)?,
            9 => self.large_file(&mut cursor)?,
            3 => symlink(&mut cursor)?,
            4 => (cursor.u32()? == 1).then_some(cursor.u32()?).map(Kind::BlockDevice),
            5 => (cursor.u32()? == 1).then_some(cursor.u32()?).map(Kind::CharDevice),
            _ => return Err(table.fault(block, "an inode is of a type that is not written here")),
        };
        let wrong = "an inode has hard links, extended attributes, or a size that is none";
        let kind = kind.ok_or_else(|| table.fault(block, wrong))?;
        Ok(Inode { number, mode, uid, gid, modified, kind })
    }

    fn small_file(&self, cursor: &mut Cursor<'_, '_>) -> Result<Option<Kind>, Fault> {
        let start = cursor.u32()?.into();
        let fragment = (cursor.u32()?, cursor.u32()?);
        let bytes = cursor.u32()?.into();
        self.file(cursor, start, bytes, fragment).map(Some)
    }

    fn large_file(&self, cursor: &mut Cursor<'_, '_>) -> Result<Option<Kind>, Fault> {
        let (start, bytes, _sparse) = (cursor.u64()?, cursor.u64()?, cursor.u64()?);
        let links = cursor.u32()?;
        let fragment = (cursor.u32()?, cursor.u32()?);
        let is_ours = links == 1 && cursor.u32()? == NONE;
        if is_ours { self.file(cursor, start, bytes, fragment).map(Some) } else { Ok(None) }
    }

    fn file(
        &self,
        cursor: &mut Cursor<'_, '_>,
        start: u64,
        bytes: u64,
        (fragment, offset): (u32, u32),
    ) -> Result<Kind, Fault> {
        let fragment = (fragment != NONE).then_some((fragment, offset));
        let block_bytes = u64::from(self.block_bytes);
        // What is left for the fragment is in no block of its own.
        let blocks = if fragment.is_some() { bytes / block_bytes } else { bytes.div_ceil(block_bytes) };
        // One by one: a wrong number of them ends with the table.
        let mut sizes = Vec::new();
        for _ in 0..blocks {
            sizes.push(cursor.u32()?);
        }
        Ok(Kind::File(Content { start, bytes, sizes, fragment }))
    }

    /// The names in a directory, which are sorted.
    pub(super) fn names(&self, directory: &Directory) -> Result<Vec<Name>, Fault> {
        let mut names = Vec::<Name>::new();
        // An empty one lies nowhere.
        if directory.bytes == 0 {
            return Ok(names);
        }
        let table = self.directory_table;
        let at = table.start.saturating_add(directory.block.into());
        let mut cursor = self.disk.cursor(table, at, directory.offset.into())?;
        let mut left = directory.bytes;
        let mut take = |bytes: u32| {
            left =
                left.checked_sub(bytes).ok_or_else(|| table.fault(at, "a directory ends within a name"))?;
            Ok::<_, Fault>(left)
        };
        while take(0)? > 0 {
            take(12)?;
            let (count, block, base) = (cursor.u32()?.saturating_add(1), cursor.u32()?, cursor.u32()?);
            if count > MOST_ENTRIES {
                return Err(table.fault(at, "a directory has more than 256 names behind one header"));
            }
            for _ in 0..count {
                take(8)?;
                let (offset, delta, code) = (cursor.u16()?, cursor.u16()?, cursor.u16()?);
                let length = usize::from(cursor.u16()?) + 1;
                take(u32::try_from(length).unwrap_or(u32::MAX))?;
                let bytes = cursor.bytes(length)?;
                if !is_name(&bytes) {
                    return Err(table.fault(at, "a directory has a name that is none"));
                }
                if names.last().is_some_and(|last| last.bytes >= bytes) {
                    return Err(table.fault(at, "the names of a directory are not sorted"));
                }
                let number = base.wrapping_add_signed(i16::from_le_bytes(delta.to_le_bytes()).into());
                let inode = Reference { block: block.into(), offset };
                names.push(Name { bytes, inode, number, code });
            }
        }
        Ok(names)
    }

    /// Hands out the bytes of a file, a block at a time, until `each` says that it is enough.
    pub(super) fn each_block(
        &self,
        content: &Content,
        each: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<(), Fault> {
        let (mut at, mut left) = (content.start, content.bytes);
        for size in &content.sizes {
            let length = usize::try_from(left.min(self.block_bytes.into())).unwrap_or(0);
            let block = if *size == 0 { vec![0; length] } else { self.data(at, *size)? };
            if block.len() != length {
                return Err(data_fault(at, "a block is not as long as its file says"));
            }
            at += u64::from(size & !PLAIN);
            left -= length as u64;
            if !each(&block) {
                return Ok(());
            }
        }
        let Some((number, offset)) = content.fragment else { return Ok(()) };
        let block = self.fragment(number)?;
        let from = usize::try_from(offset).unwrap_or(usize::MAX);
        let to = usize::try_from(left).ok().and_then(|left| from.checked_add(left));
        let piece = to.and_then(|to| block.get(from..to)).filter(|piece| !piece.is_empty());
        each(piece.ok_or_else(|| data_fault(content.start, "a file's end lies outside of its fragment"))?);
        Ok(())
    }

    fn fragment(&self, number: u32) -> Result<Rc<Vec<u8>>, Fault> {
        if let Some((held, block)) = &*self.fragment.borrow()
            && *held == number
        {
            return Ok(block.clone());
        }
        let found = usize::try_from(number).ok().and_then(|number| self.fragments.get(number));
        let (start, size) = *found.ok_or_else(|| data_fault(0, "a file's fragment is not in the table"))?;
        let block = Rc::new(self.data(start, size)?);
        *self.fragment.borrow_mut() = Some((number, block.clone()));
        Ok(block)
    }

    /// A block of data, unpacked.
    fn data(&self, start: u64, size: u32) -> Result<Vec<u8>, Fault> {
        let length = size & !PLAIN;
        let end = start.checked_add(length.into());
        if length > self.block_bytes || end.is_none_or(|end| end > self.inode_table.start) {
            return Err(data_fault(start, "a block is too long, or does not lie before the tables"));
        }
        let most = usize::try_from(self.block_bytes).unwrap_or(0);
        let bytes = self.disk.read(start, usize::try_from(length).unwrap_or(0))?;
        if size & PLAIN != 0 {
            return Ok(bytes);
        }
        self.disk.unpacked(&bytes, most).ok_or_else(|| data_fault(start, "a block does not unpack"))
    }
}

fn data_fault(offset: u64, reason: &'static str) -> Fault {
    Fault::Format { part: "data", offset, reason }
}

fn small_directory(cursor: &mut Cursor<'_, '_>) -> Result<Option<Kind>, Fault> {
    let (block, _links, size) = (cursor.u32()?, cursor.u32()?, cursor.u16()?);
    let (offset, parent) = (cursor.u16()?, cursor.u32()?);
    let bytes = u32::from(size).checked_sub(EXTRA_BYTES);
    Ok(bytes.map(|bytes| Kind::Directory(Directory { block, offset, bytes, parent })))
}

fn large_directory(cursor: &mut Cursor<'_, '_>) -> Result<Option<Kind>, Fault> {
    let (_links, size, block, parent) = (cursor.u32()?, cursor.u32()?, cursor.u32()?, cursor.u32()?);
    let (_index, offset, attributes) = (cursor.u16()?, cursor.u16()?, cursor.u32()?);
    let bytes = size.checked_sub(EXTRA_BYTES).filter(|_| attributes == NONE);
    Ok(bytes.map(|bytes| Kind::Directory(Directory { block, offset, bytes, parent })))
}

fn symlink(cursor: &mut Cursor<'_, '_>) -> Result<Option<Kind>, Fault> {
    let (links, length) = (cursor.u32()?, cursor.u32()?);
    if links != 1 || !(1..=MOST_TARGET_BYTES).contains(&length) {
        return Ok(None);
    }
    cursor.bytes(usize::try_from(length).unwrap_or(0)).map(|target| Some(Kind::Symlink(target)))
}

fn is_name(bytes: &[u8]) -> bool {
    bytes.len() <= MOST_NAME_BYTES
        && !matches!(bytes, b"" | b"." | b"..")
        && !bytes.iter().any(|byte| matches!(byte, b'/' | 0))
}

fn reference(packed: u64) -> Reference {
    let offset = u16::try_from(packed & 0xffff).unwrap_or(0);
    Reference { block: packed >> 16, offset }
}

/// The entries of a table that is found by a list of its blocks, and where the first of those lies.
fn lookup(
    disk: &Disk<'_>,
    name: &'static str,
    (start, end): (u64, u64),
    count: usize,
    entry_bytes: usize,
) -> Result<(Vec<u8>, u64), Fault> {
    let table = Table { name, start: SUPERBLOCK_BYTES as u64, end };
    let bytes = count.saturating_mul(entry_bytes);
    let blocks = bytes.div_ceil(BLOCK_BYTES);
    let list_bytes = blocks.saturating_mul(8);
    if start.checked_add(list_bytes as u64).is_none_or(|list_end| list_end > end) {
        return Err(table.fault(start, "it does not lie in the image"));
    }
    let list = disk.read(start, list_bytes)?;
    let (mut entries, mut first) = (Vec::new(), start);
    for (number, place) in list.chunks_exact(8).filter_map(array).map(u64::from_le_bytes).enumerate() {
        if number == 0 {
            first = place;
        }
        let wanted = BLOCK_BYTES.min(bytes - number * BLOCK_BYTES);
        // A block of its own each, before the list.
        entries.extend(disk.cursor(Table { end: start, ..table }, place, 0)?.bytes(wanted)?);
    }
    Ok((entries, first))
}

/// Fields of something whose length is known.
struct Head<'b>(&'b [u8]);

impl Head<'_> {
    fn array<const N: usize>(&self, at: usize) -> [u8; N] {
        self.0.get(at..).and_then(array).unwrap_or([0; N])
    }

    fn u16(&self, at: usize) -> u16 {
        u16::from_le_bytes(self.array(at))
    }

    fn u32(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.array(at))
    }

    fn u64(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.array(at))
    }

    fn fault(&self, reason: &'static str) -> Fault {
        Fault::Format { part: "the superblock", offset: 0, reason }
    }

    /// Whether it is one of an image as it is written here. Offsets: magic 0, block size 12, compression 20, its logarithm 22,
    /// flags 24, version 28 and 30, table of extended attributes 56, table for NFS 88.
    fn check(&self, block_bytes: u32) -> Result<(), Fault> {
        if !self.0.starts_with(MAGIC) || (self.u16(28), self.u16(30)) != (4, 0) {
            return Err(self.fault("it is not one of squashfs 4.0"));
        }
        if self.u32(12) != block_bytes || 1_u32.checked_shl(self.u16(22).into()) != Some(block_bytes) {
            return Err(self.fault("it has another block size"));
        }
        if self.u16(20) != ZSTD || self.u16(24) & !KNOWN_FLAGS != 0 {
            return Err(self.fault("it has another compression, or flags that are not written here"));
        }
        if (self.u64(56), self.u64(88)) != (NO_TABLE, NO_TABLE) {
            return Err(self.fault("it has tables that are not written here"));
        }
        Ok(())
    }
}
