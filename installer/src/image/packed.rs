//! A disk, packed: by zstd, by gzip, or as a tar file of one member that is packed by gzip.
//!
//! Owns: the bytes of gzip and tar files; where the pieces of a disk begin, so that the same disk gives the same bytes wherever
//! its file has holes.
//! Does not: make the disk.
//! Source: for gzip RFC 1952 §2.3, RFC 1951 §3.2.3; for tar POSIX pax, `ustar`, with GNU's lengths.

use std::fs::File;
use std::io::{self, BufWriter, Read as _, Seek as _, SeekFrom, Write};
use std::path::Path;

use flate2::{Compress, Compression, Crc, FlushCompress};
use rustix::fs::SeekFrom as Place;

use crate::output::Output;
use crate::{Error, Progress};

/// zstd level: layers are packed already, the rest is kernel, initramfs and zeros.
const ZSTD_LEVEL: i32 = 3;

/// A gzip file without a time and a name, from Unix.
const GZIP_HEAD: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3];

/// A last block of deflate with nothing in it.
const DEFLATE_END: [u8; 2] = [3, 0];

/// What a tar file and its members are a multiple of.
const TAR_BLOCK_BYTES: usize = 512;

/// How much is packed at once.
const CHUNK_BYTES: usize = 1 << 20;

/// How a disk is packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packed<'n> {
    /// One frame of zstd that says how long its content is.
    Zstd,
    /// One member of gzip.
    Gzip,
    /// The same, of a tar file in which the disk has this name.
    TarGzip(&'n str),
}

impl Packed<'_> {
    /// Packs a disk, of which holes are not read.
    pub fn write(self, disk: &Path, path: &Path, progress: &mut dyn FnMut(Progress)) -> Result<(), Error> {
        let mut disk = Disk { file: File::open(disk).map_err(Error::read(disk))?, progress };
        let mut output = Output::create(path)?;
        let out = &mut output.file;
        let packed = match self {
            Self::Zstd => zstd(&mut disk, out),
            Self::Gzip => gzip(&mut disk, None, out),
            Self::TarGzip(name) => gzip(&mut disk, Some(name), out),
        };
        packed.map_err(Error::write(path))?;
        output.keep(path)
    }
}

fn zstd(disk: &mut Disk<'_>, out: &mut File) -> io::Result<()> {
    let mut packer = zstd::Encoder::new(out, ZSTD_LEVEL)?;
    packer.set_pledged_src_size(Some(disk.bytes()?))?;
    packer.include_checksum(true)?;
    disk.each_chunk(&mut |chunk| match chunk {
        Chunk::Data(bytes) | Chunk::Zeros(bytes) => packer.write_all(bytes),
    })?;
    packer.finish().map(drop)
}

fn gzip(disk: &mut Disk<'_>, tar_name: Option<&str>, out: &mut File) -> io::Result<()> {
    let bytes = disk.bytes()?;
    let mut packer = Gzip::new(BufWriter::new(out))?;
    if let Some(name) = tar_name {
        packer.data(&tar_header(name, bytes)?)?;
    }
    disk.each_chunk(&mut |chunk| match chunk {
        Chunk::Zeros(zeros) if zeros.len() == CHUNK_BYTES => packer.zeros(),
        Chunk::Data(bytes) | Chunk::Zeros(bytes) => packer.data(bytes),
    })?;
    if tar_name.is_some() {
        // The rest of the last block, and two of zeros as the end.
        let block_bytes = TAR_BLOCK_BYTES as u64;
        let rest = usize::try_from(bytes.next_multiple_of(block_bytes) - bytes).unwrap_or(0);
        packer.data(&vec![0; rest + 2 * TAR_BLOCK_BYTES])?;
    }
    packer.finish()
}

/// A file of root, of 1970.
fn tar_header(name: &str, bytes: u64) -> io::Result<[u8; TAR_BLOCK_BYTES]> {
    let mut header = tar::Header::new_gnu();
    header.set_path(name)?;
    header.set_size(bytes);
    header.set_mode(0o644);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_entry_type(tar::EntryType::Regular);
    header.set_cksum();
    Ok(*header.as_bytes())
}

/// A gzip file of which every chunk is packed by itself, so that one of zeros is packed once.
struct Gzip<W> {
    out: W,
    crc: Crc,
    zeros: (Vec<u8>, Crc),
}

impl<W: Write> Gzip<W> {
    fn new(mut out: W) -> io::Result<Self> {
        out.write_all(&GZIP_HEAD)?;
        let zeros = vec![0; CHUNK_BYTES];
        let mut crc = Crc::new();
        crc.update(&zeros);
        Ok(Self { out, crc: Crc::new(), zeros: (deflated(&zeros)?, crc) })
    }

    fn data(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.crc.update(bytes);
        self.out.write_all(&deflated(bytes)?)
    }

    /// [`CHUNK_BYTES`] of them.
    fn zeros(&mut self) -> io::Result<()> {
        let (packed, crc) = &self.zeros;
        self.crc.combine(crc);
        self.out.write_all(packed)
    }

    fn finish(mut self) -> io::Result<()> {
        self.out.write_all(&DEFLATE_END)?;
        self.out.write_all(&self.crc.sum().to_le_bytes())?;
        // The length as far as its field goes.
        self.out.write_all(&self.crc.amount().to_le_bytes())?;
        self.out.flush()
    }
}

/// Whole blocks that end at a byte and look at nothing before them.
fn deflated(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut packer = Compress::new(Compression::fast(), false);
    // What does not pack grows by less than a thousandth, and by a few bytes.
    let mut packed = Vec::with_capacity(bytes.len() + bytes.len() / 8 + 64);
    loop {
        let taken = usize::try_from(packer.total_in()).unwrap_or(usize::MAX);
        let left = bytes.get(taken..).unwrap_or(&[]);
        packer.compress_vec(left, &mut packed, FlushCompress::Sync).map_err(io::Error::other)?;
        // With space left over nothing is kept back (zlib.h, deflate, Z_SYNC_FLUSH).
        if packed.len() < packed.capacity() {
            return Ok(packed);
        }
        packed.reserve(CHUNK_BYTES);
    }
}

/// A piece of a disk, at most [`CHUNK_BYTES`] long.
enum Chunk<'c> {
    Data(&'c [u8]),
    Zeros(&'c [u8]),
}

/// A disk that is read.
struct Disk<'d> {
    file: File,
    progress: &'d mut dyn FnMut(Progress),
}

impl Disk<'_> {
    fn bytes(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    /// The pieces from the start.
    fn each_chunk(&mut self, each: &mut dyn FnMut(Chunk<'_>) -> io::Result<()>) -> io::Result<()> {
        let total_bytes = self.bytes()?;
        let (zeros, mut chunk) = (vec![0; CHUNK_BYTES], vec![0; CHUNK_BYTES]);
        let (mut at, mut data) = (0, 0);
        while at < total_bytes {
            let length = usize::try_from(total_bytes - at).unwrap_or(CHUNK_BYTES).min(CHUNK_BYTES);
            let end = at + length as u64;
            if data <= at {
                data = self.next_data(at, total_bytes);
            }
            let zeros = zeros.get(..length).unwrap_or(&[]);
            let chunk = chunk.get_mut(..length).unwrap_or_default();
            if data < end {
                self.file.seek(SeekFrom::Start(at))?;
                self.file.read_exact(chunk)?;
            }
            // Zeros are zeros, in a hole or not.
            each(if data >= end || chunk == zeros { Chunk::Zeros(zeros) } else { Chunk::Data(chunk) })?;
            at = end;
            (self.progress)(Progress { step: "pack", done_bytes: at, total_bytes });
        }
        Ok(())
    }

    /// Where there is something behind this place at the earliest.
    fn next_data(&self, at: u64, total_bytes: u64) -> u64 {
        match rustix::fs::seek(&self.file, Place::Data(at)) {
            Ok(data) => data,
            Err(sys::Errno::NXIO) => total_bytes,
            // A file system that knows no holes.
            Err(_) => at,
        }
    }
}
