//! A new image: what lies where, and the sectors that say so.
//!
//! Owns: descriptors, path tables, directories, the El Torito catalogue, the place of every file and of the boot image.
//! Does not: hold what files contain: they are copied to the places that [`Layout`] names.
//! Order: 16 sectors for a partition table, descriptors, tables, directories, files, the boot image, room for the table's copy.
//! Source: ECMA-119; "El Torito" Bootable CD-ROM Format 1.0; UEFI specification 2.10 §13.3.2 (platform 0xEF, sector count 0).

use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

use super::directory::{Place, Tree, continuation, root_record};
use crate::Extent;
use crate::field::put;

/// Bytes of a sector.
pub const SECTOR_BYTES: usize = 2048;

/// Sectors before the first descriptor, which a partition table may use.
const SYSTEM_SECTORS: u32 = 16;

/// The boot image begins at a multiple of this: partitions do everywhere.
const BOOT_ALIGNMENT_SECTORS: u32 = (1 << 20) / 2048;

/// Behind everything: a partition table's copy, and what drives read ahead.
const END_SECTORS: u32 = 160;

/// 1980-01-01, in the form of descriptors.
const TIME: &[u8; 17] = b"1980010100000000\0";

/// No time.
const NO_TIME: &[u8; 17] = b"0000000000000000\0";

/// A file of an image.
#[derive(Debug, Clone, Copy)]
pub struct File<'a> {
    /// Path with `/` between its parts.
    pub path: &'a str,
    /// Its length.
    pub bytes: u64,
}

/// What an image shall be.
#[derive(Debug, Clone, Copy)]
pub struct Image<'a> {
    /// At most 32 letters, digits and underscores, upper case.
    pub label: &'a str,
    /// Its files.
    pub files: &'a [File<'a>],
    /// Length of the FAT volume that UEFI starts from.
    pub boot_bytes: u64,
}

/// Where everything lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// All that is neither a file nor the boot image.
    pub extents: Vec<Extent<'static>>,
    /// Where each file's bytes go, in the order of [`Image::files`].
    pub files: Vec<u64>,
    /// Where the boot image goes.
    pub boot: u64,
    /// Length of the image.
    pub bytes: u64,
}

/// Why there is no such image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    /// A label with other letters, or too long.
    Label(String),
    /// A path that is impossible, there twice, a file and a directory, or too long.
    Path(String),
    /// A file of 4 GiB or more, or more of them than an image takes.
    TooLarge,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("iso9660: ")?;
        match self {
            Self::Label(label) => write!(f, "{label:?} cannot be a volume label"),
            Self::Path(path) => write!(f, "{path:?} cannot be a path, or is there twice"),
            Self::TooLarge => f.write_str("a file has 4 GiB or more, or all together are too much"),
        }
    }
}

impl core::error::Error for Error {}

/// Decides where everything goes.
pub fn lay_out(image: &Image<'_>) -> Result<Layout, Error> {
    let of_label = |letter: u8| letter.is_ascii_uppercase() || letter.is_ascii_digit() || letter == b'_';
    if image.label.is_empty() || image.label.len() > 32 || !image.label.bytes().all(of_label) {
        return Err(Error::Label(image.label.into()));
    }
    let tree = Tree::of(image.files.iter().map(|file| file.path))?;
    let mut next = Next(SYSTEM_SECTORS + 3);
    let table_bytes =
        tree.path_table(&vec![Place { sector: 0, bytes: 0 }; tree.directories.len()], true).len();
    let tables = [next.take(table_bytes as u64)?, next.take(table_bytes as u64)?];
    let directories =
        tree.sizes().into_iter().map(|bytes| next.take(bytes.into())).collect::<Result<Vec<_>, _>>()?;
    let more = next.take(SECTOR_BYTES as u64)?;
    let catalogue = next.take(SECTOR_BYTES as u64)?;
    let files = image.files.iter().map(|file| next.take(file.bytes)).collect::<Result<Vec<_>, _>>()?;
    next.0 = next.0.next_multiple_of(BOOT_ALIGNMENT_SECTORS);
    let boot = next.take(image.boot_bytes)?;
    let sectors = next.0.checked_add(END_SECTORS).ok_or(Error::TooLarge)?;

    let root = directories.first().copied().ok_or(Error::TooLarge)?;
    let mut extents = vec![
        at(SYSTEM_SECTORS, primary(image.label, sectors, table_bytes, &tables, root)),
        at(SYSTEM_SECTORS + 1, boot_record(catalogue.sector)),
        at(SYSTEM_SECTORS + 2, terminator()),
        at(more.sector, continuation()),
        at(catalogue.sector, boot_catalogue(boot)),
    ];
    for (place, little) in tables.iter().zip([true, false]) {
        extents.push(at(place.sector, tree.path_table(&directories, little)));
    }
    for (number, place) in directories.iter().enumerate() {
        extents.push(at(place.sector, tree.render(number, &directories, &files, more.sector)));
    }
    Ok(Layout {
        extents,
        files: files.iter().map(|place| offset(place.sector)).collect(),
        boot: offset(boot.sector),
        bytes: offset(sectors),
    })
}

/// The next free sector.
struct Next(u32);

impl Next {
    fn take(&mut self, bytes: u64) -> Result<Place, Error> {
        let place = Place { sector: self.0, bytes: u32::try_from(bytes).map_err(|_| Error::TooLarge)? };
        let sectors = place.bytes.div_ceil(2048);
        self.0 = self.0.checked_add(sectors).ok_or(Error::TooLarge)?;
        Ok(place)
    }
}

fn offset(sector: u32) -> u64 {
    u64::from(sector) * SECTOR_BYTES as u64
}

fn at(sector: u32, bytes: Vec<u8>) -> Extent<'static> {
    Extent::new(offset(sector), bytes)
}

/// A number with its low byte first, then with its high byte first.
pub(super) fn both16(value: u16) -> [u8; 4] {
    let ([a, b], [c, d]) = (value.to_le_bytes(), value.to_be_bytes());
    [a, b, c, d]
}

/// The same of 32 bits.
pub(super) fn both32(value: u32) -> [u8; 8] {
    let mut both = [0; 8];
    put(&mut both, 0, &value.to_le_bytes());
    put(&mut both, 4, &value.to_be_bytes());
    both
}

fn descriptor(kind: u8) -> Vec<u8> {
    let mut bytes = vec![0; SECTOR_BYTES];
    put(&mut bytes, 0, &[kind]);
    put(&mut bytes, 1, b"CD001\x01");
    bytes
}

fn padded(bytes: &mut [u8], start: usize, length: usize, text: &[u8]) {
    put(bytes, start, &vec![b' '; length]);
    put(bytes, start, text);
}

fn primary(label: &str, sectors: u32, table_bytes: usize, tables: &[Place; 2], root: Place) -> Vec<u8> {
    let mut bytes = descriptor(1);
    padded(&mut bytes, 8, 32, b"");
    padded(&mut bytes, 40, 32, label.as_bytes());
    put(&mut bytes, 80, &both32(sectors));
    // A set of one volume.
    put(&mut bytes, 120, &both16(1));
    put(&mut bytes, 124, &both16(1));
    put(&mut bytes, 128, &both16(2048));
    put(&mut bytes, 132, &both32(u32::try_from(table_bytes).unwrap_or(0)));
    let [little, big] = tables;
    put(&mut bytes, 140, &little.sector.to_le_bytes());
    put(&mut bytes, 148, &big.sector.to_be_bytes());
    put(&mut bytes, 156, &root_record(root));
    // Volume set, publisher, preparer, application; then three file names.
    padded(&mut bytes, 190, 4 * 128, b"");
    padded(&mut bytes, 702, 3 * 37, b"");
    put(&mut bytes, 813, TIME);
    put(&mut bytes, 830, TIME);
    put(&mut bytes, 847, NO_TIME);
    put(&mut bytes, 864, NO_TIME);
    put(&mut bytes, 881, &[1]);
    bytes
}

fn boot_record(catalogue: u32) -> Vec<u8> {
    let mut bytes = descriptor(0);
    put(&mut bytes, 7, b"EL TORITO SPECIFICATION");
    put(&mut bytes, 71, &catalogue.to_le_bytes());
    bytes
}

fn terminator() -> Vec<u8> {
    descriptor(255)
}

/// One entry: the FAT volume, for UEFI.
fn boot_catalogue(boot: Place) -> Vec<u8> {
    let mut bytes = vec![0; SECTOR_BYTES];
    put(&mut bytes, 0, &[1, 0xEF]);
    put(&mut bytes, 30, &[0x55, 0xAA]);
    let words = bytes.get(..32).unwrap_or(&[]).chunks_exact(2);
    let sum = words.fold(0_u16, |sum, pair| match pair {
        [low, high] => sum.wrapping_add(u16::from_le_bytes([*low, *high])),
        _ => sum,
    });
    put(&mut bytes, 28, &sum.wrapping_neg().to_le_bytes());
    // Bootable, without emulation.
    put(&mut bytes, 32, &[0x88, 0]);
    // What does not fit the field is said as "up to the end".
    let sectors = u16::try_from(boot.bytes.div_ceil(512)).unwrap_or(0);
    put(&mut bytes, 38, &sectors.to_le_bytes());
    put(&mut bytes, 40, &boot.sector.to_le_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::process::Command;

    use super::*;

    fn written(directory: &std::path::Path, files: &[(&str, Vec<u8>)]) -> std::path::PathBuf {
        let described: Vec<File<'_>> =
            files.iter().map(|(path, content)| File { path, bytes: content.len() as u64 }).collect();
        let image = Image { label: "BILLET", files: &described, boot_bytes: 3 << 20 };
        let layout = lay_out(&image).unwrap();
        assert_eq!(lay_out(&image).unwrap(), layout);
        let mut bytes = vec![0; usize::try_from(layout.bytes).unwrap()];
        for extent in &layout.extents {
            put(&mut bytes, usize::try_from(extent.offset).unwrap(), &extent.bytes);
        }
        for ((_, content), at) in files.iter().zip(&layout.files) {
            put(&mut bytes, usize::try_from(*at).unwrap(), content);
        }
        put(&mut bytes, usize::try_from(layout.boot).unwrap(), &[0xB0; 3 << 20]);
        let path = directory.join("image.iso");
        std::fs::File::create(&path).unwrap().write_all(&bytes).unwrap();
        path
    }

    fn xorriso(words: &[&std::ffi::OsStr]) -> String {
        let output = Command::new("xorriso").args(words).output();
        let output =
            output.unwrap_or_else(|e| panic!("this test needs xorriso (Debian package xorriso): {e}"));
        let text =
            String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{text}");
        text
    }

    #[test]
    fn xorriso_reads_back_what_was_written() {
        let dir = tempfile::tempdir().unwrap();
        let long = "0123456789abcdef".repeat(4) + ".layer";
        let other = "01234567ffffffff".repeat(4) + ".layer";
        // More names than one sector takes, and two that are alike in their first letters.
        let mut files: Vec<(String, Vec<u8>)> = (0..40_u8)
            .map(|n| (format!("many/a-file-with-a-name-{n}.txt"), vec![n; 3000 + usize::from(n)]))
            .collect();
        files.push((format!("billet/layers/{long}"), vec![1; 100_000]));
        files.push((format!("billet/layers/{other}"), vec![2; 5]));
        files.push(("empty".into(), Vec::new()));
        let borrowed: Vec<(&str, Vec<u8>)> = files.iter().map(|(p, c)| (p.as_str(), c.clone())).collect();
        let image = written(dir.path(), &borrowed);
        let out = dir.path().join("out");
        let words = ["-osirrox", "on", "-indev"].map(std::ffi::OsStr::new);
        let told = [image.as_os_str(), "-report_el_torito".as_ref(), "plain".as_ref()];
        let text = xorriso(&[&words[..], &told].concat());
        assert!(text.contains("UEFI"), "{text}");
        let extract = [image.as_os_str(), "-extract".as_ref(), "/".as_ref(), out.as_os_str()];
        let text = xorriso(&[&words[..], &extract].concat());
        for problem in ["WARNING", "FAILURE", "SORRY", "damaged"] {
            assert!(!text.contains(problem), "{text}");
        }
        for (path, content) in &files {
            assert!(std::fs::read(out.join(path)).unwrap() == *content, "{path}");
        }
        let start = std::fs::read(&image).unwrap();
        assert_eq!(super::super::parse(&start).unwrap().label, "BILLET");
    }

    #[test]
    fn impossible_images_are_refused() {
        let layout = |label: &str, paths: &[&str]| {
            let files: Vec<File<'_>> = paths.iter().map(|path| File { path, bytes: 1 }).collect();
            lay_out(&Image { label, files: &files, boot_bytes: 0 })
        };
        for label in ["", "lower", "WITH SPACE", &"A".repeat(33)] {
            assert_eq!(layout(label, &[]), Err(Error::Label(label.into())));
        }
        let long = "a".repeat(250);
        for path in ["", "a/", "a/../b", "a\0b", &long] {
            assert!(matches!(layout("L", &[path]), Err(Error::Path(_))), "{path:?}");
        }
        assert!(layout("L", &["a", "a"]).is_err() && layout("L", &["a", "a/b"]).is_err());
        let huge = [File { path: "a", bytes: 1 << 32 }];
        assert_eq!(lay_out(&Image { label: "L", files: &huge, boot_bytes: 0 }), Err(Error::TooLarge));
    }
}
