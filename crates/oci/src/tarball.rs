//! Whether a file is a tar file, and what it is instead; tar files that are read without a word of theirs in an error.
//!
//! Owns: the first bytes of the kinds of files that people name by mistake, and what each is called.
//! Does not: read tar files, which the crate `tar` does. Its errors quote the header that it could not read, which may be a
//! secret of a file that is no tar file at all: whoever reads by it takes its errors through [`Failure::of`].
//! Fails by: [`Error::NoTar`].
//! Source: POSIX ustar, "Header Block" (checksum and magic); RFC 1952, RFC 8878, ECMA-119 §8.1 and file(1)'s magic for the rest.

use std::cell::RefCell;
use std::fmt;
use std::io::{self, Read, Seek, SeekFrom};
use std::rc::Rc;

use crate::Error;

/// A tar file's unit.
const BLOCK_BYTES: usize = 512;
/// Where the checksum is in a header, and its length.
const SUM_AT: usize = 148;
const SUM_BYTES: usize = 8;
/// Where a header says of which format it is, and what the formats in use begin with there.
const FORMAT_AT: usize = 257;
const FORMAT: &[u8] = b"ustar";
/// Where an ISO 9660 volume says that it is one (ECMA-119 §8.1.2, the first descriptor in sector 16).
const ISO_AT: usize = 0x8001;
/// So much of a file tells what it is.
pub const HEAD_BYTES: usize = ISO_AT + 5;

/// Kinds of files by their first bytes, and what to do with one where that is clear.
const KINDS: [(&[u8], &str, Option<&str>); 16] = [
    (&[0x1f, 0x8b], "a gzip file", Some("unpack it first (gunzip)")),
    (&[0x28, 0xb5, 0x2f, 0xfd], "a zstd file", Some("unpack it first (unzstd)")),
    (&[0xfd, b'7', b'z', b'X', b'Z', 0], "an xz file", Some("unpack it first (unxz)")),
    (b"BZh", "a bzip2 file", Some("unpack it first (bunzip2)")),
    (b"PK\x03\x04", "a ZIP file", Some("unpack it first (unzip)")),
    (b"hsqs", "a squashfs image", None),
    (b"QFI\xfb", "a qcow2 image", None),
    (b"KDMV", "a VMDK image", None),
    (b"\x7fELF", "a program", None),
    (b"MZ", "an EFI program or a kernel", None),
    (b"!<arch>\ndebian", "a Debian package", None),
    (b"!<arch>", "an ar archive", None),
    (b"070701", "a cpio archive", None),
    (b"-----BEGIN", "a PEM file", None),
    (b"age-encryption.org", "an age file", None),
    (b"#!", "a script", None),
];

/// What a file that begins so is and what to do with it, where both are clear: it is packed, or a damaged tar file.
#[must_use]
pub fn advice(head: &[u8]) -> Option<(&'static str, &'static str)> {
    let (found, advice) = kind(head);
    advice.filter(|_| !is_tar(head)).map(|advice| (found, advice))
}

/// Ok where a file that begins so is a tar file; `head` has [`HEAD_BYTES`] or all there are. `wanted`: what to give.
pub fn check(name: &str, head: &[u8], wanted: &str) -> Result<(), Error> {
    if is_tar(head) {
        return Ok(());
    }
    let (found, advice) = kind(head);
    let advice = advice.unwrap_or(wanted).to_owned();
    Err(Error::NoTar { name: name.to_owned(), found, advice })
}

/// Whether a file that begins so is a tar file; `head` as for [`check`].
#[must_use]
pub fn is_tar(head: &[u8]) -> bool {
    let Some(block) = head.get(..BLOCK_BYTES) else { return false };
    // One without any entries is zeros to its end; there are other files whose first block is.
    if block.iter().all(|byte| *byte == 0) {
        return head.iter().all(|byte| *byte == 0);
    }
    let mut header = tar::Header::new_old();
    header.as_mut_bytes().copy_from_slice(block);
    has_its_sum(&header)
}

/// Whether a file has a tar file's first header, and that is damaged.
#[must_use]
pub fn is_damaged(head: &[u8]) -> bool {
    !is_tar(head) && head.get(FORMAT_AT..).is_some_and(|text| text.starts_with(FORMAT))
}

/// Whether a header has the checksum that it says.
pub(crate) fn has_its_sum(header: &tar::Header) -> bool {
    let sum = |(at, byte): (usize, &u8)| {
        // The checksum counts itself as eight spaces.
        if (SUM_AT..SUM_AT + SUM_BYTES).contains(&at) { 32 } else { u32::from(*byte) }
    };
    let sum: u32 = header.as_bytes().iter().enumerate().map(sum).sum();
    header.cksum().is_ok_and(|found| found == sum)
}

fn is_disk(head: &[u8]) -> bool {
    head.get(510..512) == Some(&[0x55, 0xaa]) || head.get(512..520) == Some(b"EFI PART")
}

fn is_iso(head: &[u8]) -> bool {
    head.get(ISO_AT..HEAD_BYTES) == Some(b"CD001")
}

/// What a file is that begins so, and what to do with it.
fn kind(head: &[u8]) -> (&'static str, Option<&'static str>) {
    if head.is_empty() {
        return ("an empty file", None);
    }
    // Before the others: what is made for sticks and disks too begins with code.
    if is_iso(head) {
        return ("an ISO image", None);
    }
    if is_damaged(head) {
        return ("a damaged tar file", Some("make it once more"));
    }
    if let Some((_, what, advice)) = KINDS.iter().find(|(magic, ..)| head.starts_with(magic)) {
        return (*what, *advice);
    }
    // After them: a kernel has the mark of a boot sector.
    if is_disk(head) {
        return ("an image of a disk", None);
    }
    (text(head).unwrap_or("a file of an unknown kind"), None)
}

/// What a text is; `None`: it is none.
fn text(head: &[u8]) -> Option<&'static str> {
    let text = match std::str::from_utf8(head) {
        Ok(text) => text,
        // The head may end within a character.
        Err(error) if error.error_len().is_none() => {
            std::str::from_utf8(head.get(..error.valid_up_to())?).ok()?
        }
        Err(_) => return None,
    };
    if text.chars().any(|c| c.is_control() && !matches!(c, '\n' | '\r' | '\t')) {
        return None;
    }
    let mut lines = text.lines().map(str::trim_end).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let first = lines.next().unwrap_or_default();
    let is_key = |key: &str| !key.is_empty() && !key.contains(char::is_whitespace);
    let is_yaml = first == "---"
        || first
            .split_once(':')
            .is_some_and(|(key, rest)| is_key(key) && (rest.is_empty() || rest.starts_with(' ')));
    Some(match first.chars().next() {
        Some('[') if first.ends_with(']') => "a TOML file",
        Some('{' | '[') => "a JSON file",
        _ if is_yaml => "a YAML file",
        _ => "a text",
    })
}

/// A source of bytes whose own errors are told from those of whoever reads it.
#[derive(Debug)]
pub struct Watched<R> {
    source: R,
    failure: Failure,
}

/// The first error of a [`Watched`] source.
#[derive(Clone, Default)]
pub struct Failure(Rc<RefCell<Option<io::Error>>>);

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Failure")
    }
}

impl<R> Watched<R> {
    /// Watches a source; its errors are told by the second value.
    pub fn new(source: R) -> (Self, Failure) {
        let failure = Failure::default();
        (Self { source, failure: failure.clone() }, failure)
    }

    fn noted<T>(&self, done: io::Result<T>) -> io::Result<T> {
        done.map_err(|error| {
            let kind = error.kind();
            if kind != io::ErrorKind::Interrupted {
                self.failure.0.borrow_mut().get_or_insert(error);
            }
            kind.into()
        })
    }
}

impl Failure {
    /// What to say when reading a tar file failed: the source's own error, or that the tar file is broken, without a byte
    /// of it.
    #[must_use]
    pub fn of(&self, error: &io::Error) -> io::Error {
        let own = self.0.borrow_mut().take();
        own.unwrap_or_else(|| match error.kind() {
            io::ErrorKind::UnexpectedEof => {
                io::Error::new(error.kind(), "the tar file is cut off: make it once more")
            }
            _ => {
                let reason =
                    "the tar file is damaged, or cut off: a header in it cannot be read; make it once more";
                io::Error::new(io::ErrorKind::InvalidData, reason)
            }
        })
    }
}

impl<R: Read> Read for Watched<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let done = self.source.read(buffer);
        self.noted(done)
    }
}

impl<R: Seek> Seek for Watched<R> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let done = self.source.seek(to);
        self.noted(done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(head: &[u8]) -> String {
        check("x", head, "give a tar file").err().map(|error| error.to_string()).unwrap_or_default()
    }

    #[test]
    fn what_is_no_tar_file_is_called_by_what_it_is() {
        let mut iso = vec![0; HEAD_BYTES];
        iso[ISO_AT..].copy_from_slice(b"CD001");
        let mut disk = vec![0; 1024];
        disk[510..512].copy_from_slice(&[0x55, 0xaa]);
        let mut kernel = disk.clone();
        kernel[..2].copy_from_slice(b"MZ");
        let zeros = [[0; 512], [7; 512]].concat();
        let mut damaged = vec![b'x'; 1024];
        damaged[FORMAT_AT..FORMAT_AT + 5].copy_from_slice(FORMAT);
        for (head, wanted) in [
            (&b""[..], "x is no tar file (it is an empty file): give a tar file"),
            (&[0x1f, 0x8b, 8, 0], "(it is a gzip file): unpack it first (gunzip)"),
            (&[0x28, 0xb5, 0x2f, 0xfd, 0], "(it is a zstd file): unpack it first (unzstd)"),
            (&iso, "(it is an ISO image): give"),
            (&disk, "(it is an image of a disk): give"),
            (b"version: v1alpha1\nmachine:\n  token: abc.def\n", "(it is a YAML file): give"),
            (b"# comment\n---\n", "(it is a YAML file): give"),
            (b"{\"a\": 1}", "(it is a JSON file): give"),
            (b"root:x:0:0:root:/root:/bin/bash\n", "(it is a text): give"),
            (&[b'a'; 5000], "(it is a text): give"),
            (&[7; 5000], "(it is a file of an unknown kind): give"),
            (b"\x7fELF\x02", "(it is a program): give"),
            (&zeros, "(it is a file of an unknown kind): give"),
            (&damaged, "(it is a damaged tar file): make it once more"),
            (&kernel, "(it is an EFI program or a kernel): give"),
        ] {
            let said = said(head);
            assert!(said.ends_with(wanted) || said.contains(wanted), "{wanted:?} is not in {said}");
            assert!(!said.contains("abc") && !said.contains("root:"), "{said}");
        }
    }

    #[test]
    fn advice_is_given_where_it_is_clear_what_to_do() {
        assert_eq!(advice(b"BZh91AY"), Some(("a bzip2 file", "unpack it first (bunzip2)")));
        for head in [&b"\x7fELF\x02"[..], b"a text", b"", &[0; 1024]] {
            assert_eq!(advice(head), None, "{head:?}");
        }
    }

    #[test]
    fn tar_files_are_tar_files() {
        let mut builder = tar::Builder::new(Vec::new());
        let mut header = tar::Header::new_gnu();
        header.set_size(1);
        builder.append_data(&mut header, "a", &b"x"[..]).unwrap();
        assert_eq!(said(&builder.into_inner().unwrap()), "");
        assert_eq!(said(&[0; 10_240]), "", "one without entries");
    }

    #[test]
    fn an_error_has_none_of_the_content() {
        let mut builder = tar::Builder::new(Vec::new());
        let mut header = tar::Header::new_gnu();
        header.set_size(1);
        builder.append_data(&mut header, "a", &b"x"[..]).unwrap();
        let mut bytes = builder.into_inner().unwrap();
        bytes.truncate(1024);
        bytes.extend(b"token: abc.def ".repeat(100));
        let (source, failure) = Watched::new(&bytes[..]);
        let mut archive = tar::Archive::new(source);
        let error = archive.entries().unwrap().find_map(Result::err).unwrap();
        assert!(error.to_string().contains("abc.def"), "what the crate says: {error}");
        let said = failure.of(&error).to_string();
        assert!(said.contains("a header in it cannot be read") && !said.contains("abc"), "{said}");

        struct Broken;
        impl Read for Broken {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::Error::other("another digest"))
            }
        }
        let (source, failure) = Watched::new(Broken);
        let mut archive = tar::Archive::new(source);
        let error = archive.entries().unwrap().find_map(Result::err).unwrap();
        assert_eq!(failure.of(&error).to_string(), "another digest");
    }
}
