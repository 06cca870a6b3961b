//! Whether modules are for the processors that an image is for: others are refused by the kernel that should load them, one
//! by one, and a node without them finds no root.
//!
//! Owns: the look into each module, however it is packed.
//! Does not: say that something is no module, or cannot be unpacked: who makes the index does, where one is made.
//! Fails by: [`Error::Kernel`], naming the module, what it is for and what the image is for.

use flate2::read::GzDecoder;
use lzma_rust2::XzReader;
use ondisk::Architecture;
use ondisk::kmod::{MACHINE_BYTES, Machine, machine};
use std::fs::File;
use std::io::{self, BufReader, Read};

use super::modules::{Files, is_module};
use crate::Error;
use crate::tree::Node;

/// Packed bytes that the first [`MACHINE_BYTES`] come out of: a chunk of LZMA2 has 64 KiB at most (kernel
/// lib/xz/xz_dec_lzma2.c), a block of zstd 128 KiB (RFC 8878, 3.1.1.2.4), and headers are short.
const MOST_PACKED_BYTES: u64 = 256 << 10;

/// Refuses modules among these files of a release that are for other processors.
pub(crate) fn check_machines(release: &str, files: &Files, architecture: Architecture) -> Result<(), Error> {
    for (path, entry) in files.iter().filter(|(path, _)| is_module(path)) {
        let head = match &entry.node {
            Node::Bytes(stored) => head(path, stored.as_slice()),
            Node::File(host) => head(path, BufReader::new(File::open(host).map_err(Error::read(host))?)),
            Node::Dir | Node::Symlink(_) | Node::CharDevice(..) | Node::BlockDevice(..) => continue,
        };
        let found = head.ok().and_then(|head| machine(&head));
        if let Some(found) = found.filter(|found| *found != Machine::Of(architecture)) {
            let wanted = architecture.name();
            let reason = format!(
                "module {path} is for {found}, and the image is for {wanted}: give modules that were built for {wanted}"
            );
            return Err(Error::Kernel { kernel: release.to_owned(), reason });
        }
    }
    Ok(())
}

/// The first bytes of a module, unpacked. No more than [`MOST_PACKED_BYTES`] of it are read.
fn head(path: &str, stored: impl Read) -> io::Result<Vec<u8>> {
    let (mut head, stored) = (Vec::new(), stored.take(MOST_PACKED_BYTES));
    let limit = MACHINE_BYTES as u64;
    match path.rsplit('.').next() {
        Some("zst") => zstd::Decoder::new(stored)?.take(limit).read_to_end(&mut head)?,
        Some("gz") => GzDecoder::new(stored).take(limit).read_to_end(&mut head)?,
        Some("xz") => return xz_head(stored),
        _ => stored.take(limit).read_to_end(&mut head)?,
    };
    Ok(head)
}

fn xz_head(mut stored: impl Read) -> io::Result<Vec<u8>> {
    let (mut head, mut packed) = (vec![0; MACHINE_BYTES], Vec::new());
    stored.read_to_end(&mut packed)?;
    // Init has this crate without std, whose trait it brings itself.
    let read = lzma_rust2::Read::read_exact(&mut XzReader::new(packed.as_slice(), false), &mut head);
    read.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, format!("{error:?}")))?;
    Ok(head)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;
    use crate::tree::Entry;

    /// What `xz --check=crc32 --lzma2=dict=1MiB` (5.4.1), as the kernel's makefiles have it, makes of [`header`] with 183.
    const XZ_ARM64: &[u8] = &[
        253, 55, 122, 88, 90, 0, 0, 1, 105, 34, 222, 54, 2, 0, 33, 1, 16, 0, 0, 0, 168, 112, 142, 134, 224,
        0, 63, 0, 17, 93, 0, 63, 145, 69, 132, 104, 61, 137, 166, 218, 217, 0, 165, 127, 60, 3, 32, 0, 0, 0,
        0, 0, 132, 141, 110, 74, 0, 1, 41, 64, 80, 107, 28, 18, 144, 66, 153, 13, 1, 0, 0, 0, 0, 1, 89, 90,
    ];

    /// The beginning of a module for processors of this number.
    fn header(number: u8) -> Vec<u8> {
        let mut header = vec![0; 64];
        header[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
        header[MACHINE_BYTES - 2] = number;
        header
    }

    fn gzip(content: &[u8]) -> Vec<u8> {
        let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packer.write_all(content).unwrap();
        packer.finish().unwrap()
    }

    fn checked(name: &str, content: &[u8], architecture: Architecture) -> Result<(), String> {
        let path = format!("kernel/fs/{name}");
        let files = Files::from([(path, Entry::new(0o644, Node::Bytes(content.to_vec())))]);
        check_machines("6.13.0-own", &files, architecture).map_err(|error| error.to_string())
    }

    #[test]
    fn modules_for_other_processors_are_refused_however_they_are_packed() {
        let (amd64, arm64) = (header(62), header(183));
        let zst = |content: &[u8]| zstd::encode_all(content, 3).unwrap();
        for (name, ours, others) in [
            ("vfat.ko", amd64.clone(), arm64.clone()),
            ("vfat.ko.gz", gzip(&amd64), gzip(&arm64)),
            ("vfat.ko.zst", zst(&amd64), zst(&arm64)),
        ] {
            for (architecture, fits, foreign, found) in [
                (Architecture::Amd64, &ours, &others, "arm64"),
                (Architecture::Arm64, &others, &ours, "amd64"),
            ] {
                checked(name, fits, architecture).unwrap();
                let wanted = architecture.name();
                assert_eq!(
                    checked(name, foreign, architecture).unwrap_err(),
                    format!(
                        "kernel 6.13.0-own: module kernel/fs/{name} is for {found}, and the image is for {wanted}: give \
                         modules that were built for {wanted}"
                    )
                );
            }
        }
        checked("vfat.ko.xz", XZ_ARM64, Architecture::Arm64).unwrap();
        let error = checked("vfat.ko.xz", XZ_ARM64, Architecture::Amd64).unwrap_err();
        assert!(error.contains("kernel/fs/vfat.ko.xz is for arm64, and the image is for amd64"), "{error}");
    }

    #[test]
    fn only_the_head_of_a_file_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let zst = zstd::encode_all(&header(183)[..], 3).unwrap();
        for (name, content) in [
            ("a.ko", header(183)),
            ("a.ko.gz", gzip(&header(183))),
            ("a.ko.xz", XZ_ARM64.to_vec()),
            ("a.ko.zst", zst),
        ] {
            let host = directory.path().join(name);
            std::fs::write(&host, content).unwrap();
            // With holes, and longer than any memory.
            File::options().write(true).open(&host).unwrap().set_len(4 << 40).unwrap();
            let files = Files::from([(name.to_owned(), Entry::new(0o644, Node::File(host)))]);
            check_machines("6.13.0-own", &files, Architecture::Arm64).unwrap();
            let error = check_machines("6.13.0-own", &files, Architecture::Amd64).unwrap_err().to_string();
            assert!(error.contains(&format!("module {name} is for arm64")), "{error}");
        }
        let missing = Entry::new(0o644, Node::File(directory.path().join("none")));
        let files = Files::from([("b.ko".to_owned(), missing)]);
        let error = check_machines("6.13.0-own", &files, Architecture::Arm64).unwrap_err();
        assert!(matches!(error, Error::Read { .. }), "{error}");
    }

    #[test]
    fn what_says_nothing_of_processors_is_not_checked_here() {
        for name in ["a.ko", "a.ko.gz", "a.ko.xz", "a.ko.zst"] {
            checked(name, b"no module", Architecture::Amd64).unwrap();
        }
        checked("modules.dep", &header(183), Architecture::Amd64).unwrap();
        let error = checked("a.ko", &header(243), Architecture::Amd64).unwrap_err();
        assert!(error.contains("is for other processors (number 243 of ELF), and the image"), "{error}");
    }
}
