//! A new FAT32 volume with its files.
//!
//! Owns: allocation in one go (every chain is contiguous), directories, both FATs.
//! Order: boot area, FATs, root directory, other directories, files; the same files in any order give the same bytes.

use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

use super::edit::SPARE_SLOTS;
use super::geometry::{Geometry, RESERVED_SECTORS};
use super::name::{self, ShortName};
use super::{Error, FIRST_CLUSTER, MAX_DEPTH, MAX_DIR_BYTES, SLOT_BYTES, attribute};
use crate::Extent;
use crate::field::put;

/// What a volume shall be.
#[derive(Debug, Clone, Copy)]
pub struct Volume<'a> {
    /// 1 to 11 ASCII letters; case is kept.
    pub label: &'a str,
    /// The number that `blkid` shows as `XXXX-XXXX`.
    pub volume_id: u32,
    /// 512 to 4096, that of the disk.
    pub sector_bytes: u32,
    /// Length of the volume.
    pub bytes: u64,
}

/// A file to put on a volume.
#[derive(Debug, Clone, Copy)]
pub struct File<'a> {
    /// Path with `/` between its parts; with one at its end it is an empty directory.
    pub path: &'a str,
    /// What the file holds.
    pub content: &'a [u8],
}

/// The extents of a new volume with these files. What they leave out is free space and need not be zero.
pub fn format<'a>(volume: &Volume<'_>, files: &[File<'a>]) -> Result<Vec<Extent<'a>>, Error> {
    let geometry = Geometry::new(volume)?;
    let label = pack_label(volume.label)?;
    let tree = Tree::build(files, &geometry)?;
    let places = tree.allocate(&geometry)?;
    let mut extents = vec![Extent::new(0, geometry.boot_area(volume, &label, places.next))];
    let fat = geometry.fat(&places.chains);
    extents.push(Extent::new(geometry.offset(RESERVED_SECTORS), fat.clone()));
    extents.push(Extent::new(geometry.second_fat_offset(), fat));
    for (index, chain) in places.dirs.iter().enumerate() {
        let bytes = tree.render(index, &label, &geometry, &places);
        extents.push(Extent::new(geometry.cluster_offset(chain.first), bytes));
    }
    for (file, chain) in tree.files.iter().zip(&places.files) {
        if !file.is_empty() {
            extents.push(Extent::new(geometry.cluster_offset(chain.first), *file));
        }
    }
    Ok(extents)
}

fn pack_label(label: &str) -> Result<ShortName, Error> {
    let good = |byte: u8| (byte.is_ascii_graphic() || byte == b' ') && !b"\"*+,./:;<=>?[\\]|".contains(&byte);
    let blank = label.starts_with(' ') || label.is_empty();
    if blank || label.len() > 11 || !label.bytes().all(good) {
        return Err(Error::Label(label.into()));
    }
    let mut packed = [b' '; 11];
    put(&mut packed, 0, label.as_bytes());
    Ok(packed)
}

/// Consecutive clusters; none for an empty file.
#[derive(Clone, Copy)]
pub(super) struct Chain {
    pub(super) first: u32,
    pub(super) clusters: u32,
}

struct Places {
    dirs: Vec<Chain>,
    files: Vec<Chain>,
    chains: Vec<Chain>,
    /// First cluster that is free.
    next: u32,
}

#[derive(Clone, Copy)]
enum Target {
    Dir(usize),
    File(usize),
}

struct Node {
    name: String,
    short: ShortName,
    target: Target,
}

#[derive(Default)]
struct Dir {
    path: String,
    parent: usize,
    nodes: Vec<Node>,
}

/// Directories by number, the root first, and the contents of files.
struct Tree<'a> {
    dirs: Vec<Dir>,
    files: Vec<&'a [u8]>,
}

impl<'a> Tree<'a> {
    fn build(files: &[File<'a>], geometry: &Geometry) -> Result<Self, Error> {
        let mut tree = Self { dirs: vec![Dir::default()], files: Vec::new() };
        let mut sorted: Vec<_> = files.iter().collect();
        sorted.sort_by_key(|file| file.path);
        sorted.into_iter().try_for_each(|file| tree.insert(file, geometry))?;
        tree.dirs.iter_mut().try_for_each(Dir::name_shortly)?;
        Ok(tree)
    }

    fn insert(&mut self, file: &File<'a>, geometry: &Geometry) -> Result<(), Error> {
        let (path, is_dir) = match file.path.strip_suffix('/') {
            Some(path) => (path, true),
            None => (file.path, false),
        };
        let parts: Vec<_> = path.split('/').collect();
        let possible = |part: &&str| name::is_possible(part, geometry.sector_slots());
        let bad = parts.len() > MAX_DEPTH || !parts.iter().all(possible);
        let (last, parents) = parts.split_last().filter(|_| !bad).ok_or_else(|| Error::Path(path.into()))?;
        let mut dir = 0;
        for part in parents {
            dir = self.enter(dir, part)?;
        }
        if is_dir {
            return self.enter(dir, last).map(|_| ());
        }
        u32::try_from(file.content.len()).map_err(|_| Error::TooLarge(path.into()))?;
        if self.find(dir, last).is_some() {
            return Err(Error::Conflict(path.into()));
        }
        self.files.push(file.content);
        let target = Target::File(self.files.len() - 1);
        self.add(dir, last, target);
        Ok(())
    }

    /// The directory of this name, made when it is not there.
    fn enter(&mut self, dir: usize, part: &str) -> Result<usize, Error> {
        let path = self.dirs.get(dir).map_or("", |dir| dir.path.as_str()).to_string() + part;
        match self.find(dir, part) {
            Some(node) => match node.target {
                Target::Dir(index) if node.name == part => Ok(index),
                _ => Err(Error::Conflict(path)),
            },
            None => {
                let index = self.dirs.len();
                self.dirs.push(Dir { path: path + "/", parent: dir, nodes: Vec::new() });
                self.add(dir, part, Target::Dir(index));
                Ok(index)
            }
        }
    }

    fn find(&self, dir: usize, part: &str) -> Option<&Node> {
        let wanted = part.to_lowercase();
        self.dirs.get(dir)?.nodes.iter().find(|node| node.name.to_lowercase() == wanted)
    }

    fn add(&mut self, dir: usize, part: &str, target: Target) {
        if let Some(dir) = self.dirs.get_mut(dir) {
            dir.nodes.push(Node { name: part.into(), short: [b' '; 11], target });
        }
    }

    /// Gives every directory and file its clusters, directories first.
    fn allocate(&self, geometry: &Geometry) -> Result<Places, Error> {
        let full = || Error::Full(geometry.clusters * geometry.cluster_bytes());
        let limit = geometry.clusters + u64::from(FIRST_CLUSTER);
        let mut places =
            Places { dirs: Vec::new(), files: Vec::new(), chains: Vec::new(), next: FIRST_CLUSTER };
        let mut take = |bytes: u64| {
            let clusters = u32::try_from(bytes.div_ceil(geometry.cluster_bytes())).map_err(|_| full())?;
            let first = if clusters == 0 { 0 } else { places.next };
            let next = places.next.checked_add(clusters).filter(|next| u64::from(*next) <= limit);
            places.next = next.ok_or_else(full)?;
            let chain = Chain { first, clusters };
            places.chains.push(chain);
            Ok(chain)
        };
        for (index, dir) in self.dirs.iter().enumerate() {
            let bytes = dir.layout(index == 0, geometry).0 * SLOT_BYTES;
            if bytes > MAX_DIR_BYTES {
                return Err(Error::DirFull(dir.path.clone()));
            }
            let bytes = (bytes + SPARE_SLOTS * SLOT_BYTES).min(MAX_DIR_BYTES);
            places.dirs.push(take(bytes as u64)?);
        }
        for file in &self.files {
            places.files.push(take(file.len() as u64)?);
        }
        Ok(places)
    }

    /// The clusters of a directory, filled up with zeros.
    fn render(&self, index: usize, label: &ShortName, geometry: &Geometry, places: &Places) -> Vec<u8> {
        let (Some(dir), Some(chain)) = (self.dirs.get(index), places.dirs.get(index)) else {
            return Vec::new();
        };
        let mut bytes = Vec::new();
        if index == 0 {
            bytes.extend(name::short_slot(label, attribute::VOLUME_LABEL, 0, 0));
        } else {
            // The root directory is called cluster 0 here.
            let parent = if dir.parent == 0 { 0 } else { places.dirs.get(dir.parent).map_or(0, |c| c.first) };
            bytes.extend(name::short_slot(b".          ", attribute::DIR, chain.first, 0));
            bytes.extend(name::short_slot(b"..         ", attribute::DIR, parent, 0));
        }
        let (_, starts) = dir.layout(index == 0, geometry);
        for (node, start) in dir.nodes.iter().zip(starts) {
            while bytes.len() < start * SLOT_BYTES {
                // A deleted entry: an unused one would end the directory.
                let mut gap = [0; SLOT_BYTES];
                put(&mut gap, 0, &[0xE5]);
                bytes.extend(gap);
            }
            bytes.extend(self.render_node(node, places));
        }
        let length = u64::from(chain.clusters) * geometry.cluster_bytes();
        bytes.resize(usize::try_from(length).unwrap_or(0), 0);
        bytes
    }

    fn render_node(&self, node: &Node, places: &Places) -> Vec<u8> {
        let mut slots = Vec::new();
        if name::exact_short(&node.name).is_none() {
            slots = name::long_slots(&node.name, &node.short);
        }
        slots.extend(match node.target {
            Target::Dir(index) => {
                let first = places.dirs.get(index).map_or(0, |chain| chain.first);
                name::short_slot(&node.short, attribute::DIR, first, 0)
            }
            Target::File(index) => {
                let first = places.files.get(index).map_or(0, |chain| chain.first);
                let bytes =
                    self.files.get(index).and_then(|file| u32::try_from(file.len()).ok()).unwrap_or(0);
                name::short_slot(&node.short, attribute::ARCHIVE, first, bytes)
            }
        });
        slots
    }
}

impl Dir {
    /// Gives every node its short name: those that have one by nature first, so that no alias takes it.
    fn name_shortly(&mut self) -> Result<(), Error> {
        let mut taken: Vec<_> = self.nodes.iter().filter_map(|node| name::exact_short(&node.name)).collect();
        for node in &mut self.nodes {
            node.short = match name::exact_short(&node.name) {
                Some(short) => short,
                None => {
                    let short = name::make_short(&node.name, &taken);
                    let short = short.ok_or_else(|| Error::DirFull(self.path.clone()))?;
                    taken.push(short);
                    short
                }
            };
        }
        Ok(())
    }

    /// How many slots the directory takes, and the first slot of each node's set: none straddles a sector.
    fn layout(&self, is_root: bool, geometry: &Geometry) -> (usize, Vec<usize>) {
        let per_sector = geometry.sector_slots();
        // The label, or `.` and `..`.
        let mut next = if is_root { 1 } else { 2 };
        let mut starts = Vec::new();
        for node in &self.nodes {
            let slots = name::slots(&node.name);
            if next % per_sector + slots > per_sector {
                next = next.next_multiple_of(per_sector);
            }
            starts.push(next);
            next += slots;
        }
        (next, starts)
    }
}
