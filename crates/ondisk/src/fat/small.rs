//! Reading one file of the root directory of a FAT12 or FAT16 volume: what a small stick or a floppy disk has.
//!
//! Owns: the fixed root directory, chains of 12 and 16 bits; every walk ends with the file's length.
//! Does not: read directories or long chains beyond what the caller takes.
//! Source: Microsoft "FAT: General Overview of On-Disk Format" 1.03; offsets in the boot sector: sector size 11, sectors a cluster 13,
//! reserved 14, FATs 16, root entries 17, sectors 19 or 32, FAT sectors 22.

use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use super::read::{find, parse_dir};
use super::{Error, FIRST_CLUSTER, SLOT_BYTES};
use crate::ReadAt;
use crate::field::{le16, le32, u8_at};

/// Fewer clusters make a FAT12.
const FAT12_CLUSTERS: u64 = 4085;
/// Fewer clusters make a FAT16.
const FAT16_CLUSTERS: u64 = 65525;

struct Small {
    wide: bool,
    fat_offset: u64,
    root_offset: u64,
    root_bytes: usize,
    data_offset: u64,
    cluster_bytes: u64,
    clusters: u64,
}

impl Small {
    fn from_boot(boot: &[u8]) -> Option<Self> {
        super::identify(boot)?;
        let sector_bytes = u64::from(le16(boot, 11)?);
        let cluster_sectors = u64::from(u8_at(boot, 13)?);
        let reserved = u64::from(le16(boot, 14)?);
        let fats = u64::from(u8_at(boot, 16)?);
        let root_bytes = usize::from(le16(boot, 17)?) * SLOT_BYTES;
        let few_sectors = u64::from(le16(boot, 19)?);
        let sectors = if few_sectors == 0 { u64::from(le32(boot, 32)?) } else { few_sectors };
        let fat_sectors = u64::from(le16(boot, 22)?);
        let root = reserved + fats * fat_sectors;
        let data = root + (root_bytes as u64).div_ceil(sector_bytes);
        let clusters = sectors.checked_sub(data)? / cluster_sectors;
        let wide = clusters >= FAT12_CLUSTERS;
        let entry_bits = if wide { 16 } else { 12 };
        let entries = fat_sectors * sector_bytes * 8 / entry_bits;
        let fits = clusters < FAT16_CLUSTERS && clusters + u64::from(FIRST_CLUSTER) <= entries;
        (fat_sectors > 0 && fits).then_some(Self {
            wide,
            fat_offset: reserved * sector_bytes,
            root_offset: root * sector_bytes,
            root_bytes,
            data_offset: data * sector_bytes,
            cluster_bytes: cluster_sectors * sector_bytes,
            clusters,
        })
    }

    /// The cluster behind this one; `None` at the end of the chain.
    fn next<R: ReadAt>(&self, volume: &mut R, cluster: u32) -> Result<Option<u32>, Error> {
        let mut entry = [0; 2];
        let number = u64::from(cluster);
        let at = if self.wide { number * 2 } else { number + number / 2 };
        volume.read_at(self.fat_offset + at, &mut entry).map_err(Error::Read)?;
        let entry = u32::from(u16::from_le_bytes(entry));
        let (value, end) = match (self.wide, cluster.is_multiple_of(2)) {
            (true, _) => (entry, 0xFFF8),
            (false, true) => (entry & 0xFFF, 0xFF8),
            (false, false) => (entry >> 4, 0xFF8),
        };
        Ok((value < end).then_some(value))
    }

    fn content<R: ReadAt>(&self, volume: &mut R, first: u32, bytes: usize) -> Result<Vec<u8>, Error> {
        let cluster_bytes = usize::try_from(self.cluster_bytes).map_err(|_| Error::NotFat32)?;
        let mut content = Vec::new();
        let mut next = Some(first);
        while content.len() < bytes {
            let cluster = next.ok_or(Error::BadChain(first))?;
            let index = cluster.checked_sub(FIRST_CLUSTER).map(u64::from);
            let index = index.filter(|index| *index < self.clusters).ok_or(Error::BadChain(cluster))?;
            let mut piece = vec![0; cluster_bytes];
            volume.read_at(self.data_offset + index * self.cluster_bytes, &mut piece).map_err(Error::Read)?;
            content.append(&mut piece);
            next = self.next(volume, cluster)?;
        }
        content.truncate(bytes);
        Ok(content)
    }
}

/// The content of a file in the root directory of a volume of 12, 16 or 32 bits, if it is a regular file of at most `limit` bytes.
/// Case does not matter.
pub fn read_in_root<R: ReadAt>(mut volume: R, name: &str, limit: u32) -> Result<Vec<u8>, Error> {
    let mut boot = [0; 512];
    volume.read_at(0, &mut boot).map_err(Error::Read)?;
    let Some(small) = Small::from_boot(&boot) else {
        return super::Reader::open(volume)?.read(name, limit);
    };
    let mut root = vec![0; small.root_bytes];
    volume.read_at(small.root_offset, &mut root).map_err(Error::Read)?;
    let entries = parse_dir(&root);
    let entry = find(&entries, name).ok_or_else(|| Error::NotFound(String::from(name)))?;
    if entry.is_dir {
        return Err(Error::WrongKind(String::from(name)));
    }
    let too_long = || Error::TooLong(entry.bytes.into());
    let bytes = usize::try_from(entry.bytes).ok().filter(|_| entry.bytes <= limit).ok_or_else(too_long)?;
    small.content(&mut volume, entry.cluster, bytes)
}

#[cfg(test)]
mod tests {
    use std::format;
    use std::path::Path;
    use std::process::Command;

    use super::*;

    fn tool(name: &str, args: &[&str]) {
        let output = Command::new(name).env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").args(args).output();
        let output = output
            .unwrap_or_else(|e| panic!("this test needs {name} (Debian packages dosfstools, mtools): {e}"));
        assert!(output.status.success(), "{name} {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// A volume by mkfs.vfat with `config.yaml` and a directory by mtools.
    fn volume(dir: &Path, width: &str, kibibytes: &str, content: &[u8]) -> Vec<u8> {
        let (image, file) = (dir.join("image"), dir.join("content"));
        let _ = std::fs::remove_file(&image);
        let text = |path: &Path| path.to_str().unwrap().to_owned();
        tool("mkfs.vfat", &["-F", width, "-n", "metal-iso", "-C", &text(&image), kibibytes]);
        std::fs::write(&file, content).unwrap();
        tool("mcopy", &["-i", &text(&image), &text(&file), "::config.yaml"]);
        tool("mmd", &["-i", &text(&image), "::directory.yaml"]);
        std::fs::read(&image).unwrap()
    }

    #[test]
    fn volumes_of_every_width_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let content: Vec<u8> = (0..30_000_u32).flat_map(u32::to_le_bytes).collect();
        for (width, kibibytes) in
            [("12", "1440"), ("12", "8192"), ("16", "16384"), ("16", "120000"), ("32", "65536")]
        {
            let image = volume(dir.path(), width, kibibytes, &content);
            let read = |name: &str, limit| read_in_root(image.as_slice(), name, limit);
            assert_eq!(
                read("config.yaml", 120_000).as_deref(),
                Ok(content.as_slice()),
                "{width} {kibibytes}"
            );
            assert_eq!(read("CONFIG.YAML", 119_999), Err(Error::TooLong(120_000)));
            assert!(matches!(read("directory.yaml", 1000), Err(Error::WrongKind(_))), "{width}");
            assert!(matches!(read("gone.yaml", 1000), Err(Error::NotFound(_))), "{width}");
        }
    }

    /// Every byte of the boot sector and the tables: an answer or an error, soon.
    #[test]
    fn no_damage_makes_it_read_for_ever() {
        let dir = tempfile::tempdir().unwrap();
        for (width, kibibytes) in [("12", "1440"), ("16", "16384")] {
            let whole = volume(dir.path(), width, kibibytes, &[7; 9000]);
            for at in (0..64).chain(512..600) {
                for value in [0, 1, 0x7F, 0xFF] {
                    let mut image = whole.clone();
                    image[at] = value;
                    let read = read_in_root(image.as_slice(), "config.yaml", 1 << 20);
                    assert!(
                        read.is_err() || read == Ok(vec![7; 9000]) || at >= 11,
                        "{}",
                        format!("{at} {value}")
                    );
                }
            }
            assert!(read_in_root(&whole[..1000], "config.yaml", 1 << 20).is_err());
        }
    }
}
