//! The files of an image, one after the other, out of the tar files that its layers are.
//!
//! Owns: the walk over layers and entries; every layer is read to its end, so that its digest is compared.
//! Does not: apply whiteouts or links: who wants a file takes it when it comes.
//! Fails by: an I/O error of the layer; a tar file that contradicts itself or ends early.
//! Source: POSIX pax interchange format (ustar headers, extended headers), GNU's long names; OCI image specification,
//! "Image Layer Filesystem Changeset".

use std::io::{self, BufReader, Read};

use flate2::read::GzDecoder;

use crate::tarball;

/// A tar file's unit.
const BLOCK_BYTES: u64 = 512;
/// Longest extended header: paths are a few hundred bytes.
const MAX_HEADER_BYTES: u64 = 64 << 10;
/// How a gzip file begins (RFC 1952 §2.3.1).
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
/// How a zstd file begins (RFC 8878 §3.1.1).
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// How much is read ahead of a decompressor, and skipped at once.
const CHUNK_BYTES: usize = 64 << 10;

/// Bytes of a layer.
pub type Source = Box<dyn Read + Send>;

/// Opens the layer of that number, counted from 0; `None` behind the last.
pub type Open<'o> = Box<dyn FnMut(usize) -> io::Result<Option<Source>> + Send + 'o>;

/// A regular file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    /// Without `/` or `./` before it.
    pub path: String,
    /// Its length in bytes.
    pub bytes: u64,
}

/// A walk over the files of an image. Reading gives the content of the file that [`Files::next_file`] told last.
pub struct Files<'o> {
    open: Open<'o>,
    number: usize,
    layer: Option<TarReader>,
}

impl<'o> Files<'o> {
    /// A walk over the layers that `open` gives.
    pub fn new(open: Open<'o>) -> Self {
        Self { open, number: 0, layer: None }
    }

    /// Goes on with the first file of this layer, counted from 0. What is left of the current one is not read.
    pub fn go_to(&mut self, layer: usize) {
        (self.number, self.layer) = (layer, None);
    }

    /// Goes to the next regular file. `None`: all layers were read to their ends.
    pub fn next_file(&mut self) -> io::Result<Option<File>> {
        loop {
            if let Some(layer) = &mut self.layer {
                if let Some(file) = layer.next_file()? {
                    return Ok(Some(file));
                }
                self.layer = None;
            }
            let Some(source) = (self.open)(self.number)? else { return Ok(None) };
            self.number += 1;
            self.layer = Some(TarReader::new(source)?);
        }
    }

    /// How many layers were begun: the number of the one that the last file came from, counted from 1.
    pub fn begun(&self) -> usize {
        self.number
    }

    /// The next regular file of the layer that the last file came from. `None`: that layer was read to its end, so its
    /// digest was compared; the next file is the first one of the layer behind it.
    pub fn next_in_layer(&mut self) -> io::Result<Option<File>> {
        let Some(layer) = &mut self.layer else { return Ok(None) };
        let file = layer.next_file()?;
        if file.is_none() {
            self.layer = None;
        }
        Ok(file)
    }

    /// Reads everything that is left, so that every layer's digest is compared.
    pub fn finish(&mut self) -> io::Result<()> {
        while self.next_file()?.is_some() {}
        Ok(())
    }
}

impl Read for Files<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.layer.as_mut().map_or(Ok(0), |layer| layer.read(buffer))
    }
}

/// A layer's bytes with what was looked at put back in front.
type Whole = io::Chain<io::Cursor<Vec<u8>>, Source>;

/// A tar file, however it comes.
enum Stream {
    Plain(Whole),
    Gzip(Box<GzDecoder<BufReader<Whole>>>),
}

impl Stream {
    /// Reads to the end of the layer itself: behind a compressed file's end there may be more, and at the layer's end its
    /// digest is compared.
    fn finish(&mut self) -> io::Result<()> {
        io::copy(self, &mut io::sink())?;
        match self {
            Self::Plain(_) => Ok(()),
            Self::Gzip(decoder) => io::copy(decoder.get_mut(), &mut io::sink()).map(drop),
        }
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(source) => source.read(buffer),
            Self::Gzip(source) => source.read(buffer),
        }
    }
}

/// One layer.
struct TarReader {
    source: Stream,
    /// Bytes of the current file that were not read.
    left: u64,
    /// Zeros behind it.
    padding: u64,
    /// The end mark was there: a layer without it was cut.
    ended: bool,
}

impl TarReader {
    /// Finds out whether the layer is compressed, by its first bytes: types of layers are often wrong.
    fn new(mut source: Source) -> io::Result<Self> {
        let mut start = Vec::new();
        (&mut source).take(ZSTD_MAGIC.len() as u64).read_to_end(&mut start)?;
        if start == ZSTD_MAGIC {
            return Err(broken("is compressed with zstd: push the image with gzip or without compression"));
        }
        let is_gzip = start.starts_with(&GZIP_MAGIC);
        let whole = io::Cursor::new(start).chain(source);
        let source = if is_gzip {
            Stream::Gzip(Box::new(GzDecoder::new(BufReader::with_capacity(CHUNK_BYTES, whole))))
        } else {
            Stream::Plain(whole)
        };
        Ok(Self { source, left: 0, padding: 0, ended: false })
    }

    fn next_file(&mut self) -> io::Result<Option<File>> {
        let mut long_path = None;
        let mut long_size = None;
        loop {
            self.skip_rest()?;
            let Some(header) = self.header()? else { return Ok(None) };
            self.left = match long_size.take() {
                Some(bytes) => bytes,
                // The crate's error quotes the header.
                None => header.entry_size().map_err(|_| broken("has a file without a length"))?,
            };
            let whole = self.left.checked_next_multiple_of(BLOCK_BYTES);
            self.padding = whole.ok_or_else(|| broken("has a file whose length is no length"))? - self.left;
            match header.entry_type() {
                tar::EntryType::XHeader => (long_path, long_size) = self.extension(long_path)?,
                tar::EntryType::GNULongName => {
                    let name = self.small()?;
                    let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
                    long_path = name.get(..end).map(<[u8]>::to_vec);
                }
                tar::EntryType::Regular | tar::EntryType::Continuous => {
                    let path = long_path.take().unwrap_or_else(|| header.path_bytes().into_owned());
                    let path = String::from_utf8_lossy(&path).into_owned();
                    let path = path.trim_start_matches("./").trim_start_matches('/').to_owned();
                    return Ok(Some(File { path, bytes: self.left }));
                }
                // Directories, links, devices, global headers: nothing that is looked for.
                _ => long_path = None,
            }
        }
    }

    /// The next header; `None` at the end of the tar file, with the source read to its own end.
    fn header(&mut self) -> io::Result<Option<tar::Header>> {
        if self.ended {
            return Ok(None);
        }
        let mut header = tar::Header::new_old();
        self.source.read_exact(header.as_mut_bytes()).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => broken("ends before the end of its tar file"),
            _ => error,
        })?;
        if header.as_bytes().iter().all(|byte| *byte == 0) {
            self.ended = true;
            self.source.finish()?;
            return Ok(None);
        }
        if !tarball::has_its_sum(&header) {
            return Err(broken("is no tar file, or a damaged one"));
        }
        Ok(Some(header))
    }

    /// Path and size out of an extended header.
    fn extension(&mut self, path: Option<Vec<u8>>) -> io::Result<(Option<Vec<u8>>, Option<u64>)> {
        let content = self.small()?;
        let (mut path, mut size) = (path, None);
        for record in tar::PaxExtensions::new(&content) {
            let record = record?;
            match record.key_bytes() {
                b"path" => path = Some(record.value_bytes().to_vec()),
                b"size" => size = record.value().ok().and_then(|text| text.parse().ok()),
                _ => {}
            }
        }
        Ok((path, size))
    }

    /// The content of a header that describes the next entry.
    fn small(&mut self) -> io::Result<Vec<u8>> {
        if self.left > MAX_HEADER_BYTES {
            return Err(broken("has a header that is too long"));
        }
        let mut content = Vec::new();
        self.read_to_end(&mut content)?;
        Ok(content)
    }

    fn skip_rest(&mut self) -> io::Result<()> {
        let rest = self.left.saturating_add(self.padding);
        let skipped = io::copy(&mut (&mut self.source).take(rest), &mut io::sink())?;
        (self.left, self.padding) = (0, 0);
        if skipped == rest { Ok(()) } else { Err(broken("ends within a file")) }
    }
}

impl Read for TarReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let room = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        let Some(buffer) = buffer.get_mut(..room).filter(|buffer| !buffer.is_empty()) else { return Ok(0) };
        let count = self.source.read(buffer)?;
        if count == 0 {
            return Err(broken("ends within a file"));
        }
        self.left -= count as u64;
        Ok(count)
    }
}

fn broken(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("a layer of the image {what}"))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use proptest::prelude::*;

    use super::*;

    const LONG: &str = "a-name-that-is-longer-than-the-hundred-bytes-of-a-header/\
        and-goes-on-for-long-enough-that-a-prefix-does-not-help-either-because-one-part-alone-is-longer-than-a-hundred-bytes-\
        and-then-some";

    fn tar(files: &[(&str, &[u8])]) -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        for (path, content) in files {
            let mut header = tar::Header::new_gnu();
            header.set_size(content.len() as u64);
            header.set_mode(0o644);
            builder.append_data(&mut header, path, *content).unwrap();
        }
        builder.into_inner().unwrap()
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        out.write_all(bytes).unwrap();
        out.finish().unwrap()
    }

    fn walk(layers: Vec<Vec<u8>>) -> io::Result<Vec<(String, Vec<u8>)>> {
        let open = move |number: usize| {
            Ok(layers.get(number).map(|layer| Box::new(io::Cursor::new(layer.clone())) as Source))
        };
        let mut files = Files::new(Box::new(open));
        let mut found = Vec::new();
        while let Some(file) = files.next_file()? {
            let mut content = Vec::new();
            // Every second file is left unread.
            if found.len() % 2 == 0 {
                files.read_to_end(&mut content)?;
                assert_eq!(content.len() as u64, file.bytes);
            }
            found.push((file.path, content));
        }
        Ok(found)
    }

    #[test]
    fn files_come_in_order_from_plain_and_compressed_layers() {
        let big = vec![7; 200_000];
        let first = tar(&[("./a", b"one"), ("skipped", &big), (LONG, &big)]);
        let second = gzip(&tar(&[("b", b"two"), ("c", b"three")]));
        let found = walk(vec![first, second]).unwrap();
        let names: Vec<_> = found.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["a", "skipped", LONG, "b", "c"]);
        assert_eq!(
            (found[0].1.as_slice(), &found[2].1, found[4].1.as_slice()),
            (&b"one"[..], &big, &b"three"[..])
        );
    }

    #[test]
    fn extended_headers_count_and_other_entries_are_passed_over() {
        let mut builder = tar::Builder::new(Vec::new());
        builder.append_pax_extensions([("path", &b"by/pax"[..]), ("mtime", b"1.5")]).unwrap();
        let mut header = tar::Header::new_ustar();
        header.set_size(2);
        builder.append_data(&mut header, "short", &b"xy"[..]).unwrap();
        let mut link = tar::Header::new_ustar();
        link.set_entry_type(tar::EntryType::Symlink);
        link.set_size(0);
        builder.append_link(&mut link, "link", "short").unwrap();
        let found = walk(vec![builder.into_inner().unwrap()]).unwrap();
        assert_eq!(found, [("by/pax".to_owned(), b"xy".to_vec())]);
    }

    #[test]
    fn a_cut_layer_is_an_error_wherever_it_is_cut() {
        let whole = tar(&[("a", &[1; 700]), ("b", &[2; 10])]);
        for end in (0..whole.len() - 1024).step_by(100) {
            assert!(walk(vec![whole[..end].to_vec()]).is_err(), "cut at {end}");
        }
        assert!(
            walk(vec![[0x28, 0xb5, 0x2f, 0xfd, 0, 0].to_vec()]).unwrap_err().to_string().contains("zstd")
        );
    }

    /// A digest that does not fit is an error behind the last byte.
    #[test]
    fn the_end_of_a_layer_is_read_whether_it_is_compressed_or_not() {
        struct Broken;
        impl Read for Broken {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::Error::other("another digest"))
            }
        }
        let plain = tar(&[("a", b"one")]);
        for layer in [gzip(&plain), plain] {
            let open = move |number: usize| {
                let source = io::Cursor::new(layer.clone()).chain(Broken);
                Ok((number == 0).then(|| Box::new(source) as Source))
            };
            let mut files = Files::new(Box::new(open));
            assert_eq!(files.next_file().unwrap().unwrap().path, "a");
            assert!(files.finish().unwrap_err().to_string().contains("another digest"));
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(at in 0_usize..2048, value: u8, noise in proptest::collection::vec(any::<u8>(), 0..2000)) {
            let mut bytes = tar(&[("a", &[1; 700]), (LONG, &[2; 10])]);
            bytes[at] = value;
            let _ = walk(vec![bytes]);
            let _ = walk(vec![noise]);
        }
    }
}
