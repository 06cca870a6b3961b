//! A zip file, written from front to back.
//!
//! Owns: local headers, deflated contents, the directory at the end. Does not: Zip64; a bundle beyond 4 GiB or 65,535
//! files is an error. All numbers are little-endian.
//! Source: APPNOTE.TXT 6.3.3, §4.3.

use anyhow::{Context, Result};
use flate2::{Compression, Crc, write::DeflateEncoder};
use std::io::Write;

const LOCAL: u32 = 0x0403_4b50;
const CENTRAL: u32 = 0x0201_4b50;
const END: u32 = 0x0605_4b50;
/// 2.0: deflate and directories.
const VERSION: u16 = 20;
/// Made on Unix, so that the mode counts.
const MADE_BY: u16 = (3 << 8) | VERSION;
/// Names are UTF-8.
const UTF8: u16 = 1 << 11;
const DEFLATE: u16 = 8;
/// 1980-01-01, the first day that the format knows: the bundle's own time says when.
const DATE: u16 = (1 << 5) | 1;
/// A regular file that only its owner reads, in the upper half.
const MODE: u32 = 0o100_600 << 16;

/// A zip file in the making.
pub(super) struct Writer<W: Write> {
    out: W,
    offset: u32,
    directory: Vec<u8>,
    files: u16,
}

impl<W: Write> Writer<W> {
    pub(super) fn new(out: W) -> Self {
        Self { out, offset: 0, directory: Vec::new(), files: 0 }
    }

    /// Adds one file.
    pub(super) fn add(&mut self, name: &str, content: &[u8]) -> Result<()> {
        let mut crc = Crc::new();
        crc.update(content);
        let mut encoder = DeflateEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(content)?;
        let packed = encoder.finish()?;
        let common = Common {
            crc: crc.sum(),
            packed: u32::try_from(packed.len()).context("a part is too large for a zip file")?,
            size: u32::try_from(content.len()).context("a part is too large for a zip file")?,
            name: u16::try_from(name.len()).context("a name is too long for a zip file")?,
        };
        let mut local = LOCAL.to_le_bytes().to_vec();
        common.write(&mut local);
        local.extend(name.as_bytes());
        self.directory.extend(CENTRAL.to_le_bytes());
        self.directory.extend(MADE_BY.to_le_bytes());
        common.write(&mut self.directory);
        // Comment, disk and internal attributes: none.
        self.directory.extend([0; 6]);
        self.directory.extend(MODE.to_le_bytes());
        self.directory.extend(self.offset.to_le_bytes());
        self.directory.extend(name.as_bytes());
        self.write(&local)?;
        self.write(&packed)?;
        self.files = self.files.checked_add(1).context("too many parts for a zip file")?;
        Ok(())
    }

    /// Writes the directory.
    pub(super) fn finish(mut self) -> Result<W> {
        let (begin, directory) = (self.offset, std::mem::take(&mut self.directory));
        self.write(&directory)?;
        let mut end = END.to_le_bytes().to_vec();
        // This disk and the directory's: the first.
        end.extend([0; 4]);
        end.extend(self.files.to_le_bytes());
        end.extend(self.files.to_le_bytes());
        end.extend((self.offset - begin).to_le_bytes());
        end.extend(begin.to_le_bytes());
        end.extend([0; 2]);
        self.write(&end)?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.out.write_all(bytes)?;
        let length = u32::try_from(bytes.len()).ok();
        self.offset = length.and_then(|l| self.offset.checked_add(l)).context("too much for a zip file")?;
        Ok(())
    }
}

/// What both headers of a file have.
struct Common {
    crc: u32,
    packed: u32,
    size: u32,
    name: u16,
}

impl Common {
    fn write(&self, out: &mut Vec<u8>) {
        for number in [VERSION, UTF8, DEFLATE, 0, DATE] {
            out.extend(number.to_le_bytes());
        }
        for number in [self.crc, self.packed, self.size] {
            out.extend(number.to_le_bytes());
        }
        out.extend(self.name.to_le_bytes());
        // No extra field.
        out.extend([0; 2]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// Python's reader checks every header and checksum.
    #[test]
    fn another_reader_finds_the_same_files() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.zip");
        let mut zip = Writer::new(std::fs::File::create(&path).unwrap());
        zip.add("node/dmesg.log", &b"line\n".repeat(1000)).unwrap();
        zip.add("node/ü", b"").unwrap();
        zip.finish().unwrap();
        let script = "import sys, zipfile\nz = zipfile.ZipFile(sys.argv[1])\nassert z.testzip() is None\n\
                      print([(i.filename, i.file_size, oct(i.external_attr >> 16)) for i in z.infolist()])";
        let output = Command::new("python3")
            .args(["-c", script])
            .arg(&path)
            .env("PYTHONIOENCODING", "utf-8")
            .output()
            .unwrap();
        assert_eq!(
            String::from_utf8_lossy(&output.stdout).trim(),
            "[('node/dmesg.log', 5000, '0o100600'), ('node/ü', 0, '0o100600')]",
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}
