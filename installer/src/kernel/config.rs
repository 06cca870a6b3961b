//! The configuration that a user's kernel was built with, where it can be found.
//!
//! Owns: the places: a file that is named, one beside the kernel, one beside its modules, the kernel itself.
//! Does not: unpack kernels that are packed other than by gzip or zstd; such a kernel's configuration is a file or unknown.
//! Source: kernel Makefile (`make install` writes config-RELEASE), kernel/configs.c (IKCONFIG).

use std::borrow::Cow;
use std::fs;
use std::io::Read;
use std::path::Path;

use flate2::read::GzDecoder;
use ondisk::{Architecture, bzimage, kernel};

use crate::Error;

/// Largest kernel unpacked, in bytes; Debian's has 60 MB.
const MOST_KERNEL_BYTES: u64 = 512 << 20;
/// Largest configuration, in bytes; a whole one has 300 kB.
const MOST_CONFIG_BYTES: u64 = 16 << 20;
/// How zstd (RFC 8878 §3.1.1) and gzip files (RFC 1952 §2.3.1) begin.
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// The text of a kernel's `.config`; `None`: nobody knows it.
pub(super) fn find(
    named: Option<&Path>,
    vmlinuz: &Path,
    modules: Option<&Path>,
    release: &str,
    image: &[u8],
) -> Result<Option<String>, Error> {
    if let Some(path) = named {
        return named_one(path, release).map(Some);
    }
    let directory = vmlinuz.parent().unwrap_or(Path::new(""));
    let beside = directory.join(format!("config-{release}"));
    let built = modules.map(|modules| modules.join("config"));
    let names = [beside, directory.join("config"), directory.join(".config")];
    for path in names.into_iter().chain(built) {
        // What is called so may be something else.
        if path.is_file()
            && let Some(text) = text(&fs::read(&path).map_err(Error::read(&path))?)
        {
            return Ok(Some(text));
        }
    }
    Ok(inside(image))
}

/// A file that a person says is the configuration.
fn named_one(path: &Path, release: &str) -> Result<String, Error> {
    let bad = |reason: String| Error::Kernel { kernel: path.display().to_string(), reason };
    let text = text(&fs::read(path).map_err(Error::read(path))?).ok_or_else(|| {
        bad("it is no configuration of a kernel, which has lines as CONFIG_SQUASHFS=y: give the .config that the kernel was \
             built with"
            .to_owned())
    })?;
    let version = text.lines().find_map(|line| {
        let words = line.strip_prefix("# Linux/")?.strip_suffix(" Kernel Configuration")?;
        Some(words.split_once(' ')?.1)
    });
    match version.filter(|version| series(version) != series(release)) {
        Some(other) => Err(bad(format!(
            "it is of Linux {other}, and the kernel is {release}: give the one that it was built with"
        ))),
        None => Ok(text),
    }
}

/// The first two numbers: distributions put other things behind them.
fn series(version: &str) -> Vec<&str> {
    version.split(['.', '-']).take(2).collect()
}

/// The text of a configuration, which gzip may have packed as in /proc/config.gz; `None`: it is none.
fn text(bytes: &[u8]) -> Option<String> {
    let mut text = String::new();
    if bytes.starts_with(&GZIP_MAGIC) {
        GzDecoder::new(bytes).take(MOST_CONFIG_BYTES).read_to_string(&mut text).ok()?;
    } else {
        std::str::from_utf8(bytes).ok()?.clone_into(&mut text);
    }
    let is_option = |line: &str| line.starts_with("CONFIG_") && line.contains('=');
    text.lines().any(is_option).then_some(text)
}

/// The kernel that a bzImage holds, as the ELF file that was linked; `None`: no bzImage, or packed in another way.
pub fn unpacked(image: &[u8]) -> Option<Vec<u8>> {
    let packed = bzimage::payload(image)?;
    let mut kernel = Vec::new();
    // Behind the packed kernel lies its length: what follows the end of the stream is no fault.
    let read = if packed.starts_with(&GZIP_MAGIC) {
        GzDecoder::new(packed).take(MOST_KERNEL_BYTES).read_to_end(&mut kernel)
    } else if packed.starts_with(&ZSTD_MAGIC) {
        let decoder = zstd::Decoder::new(packed).map(zstd::Decoder::single_frame);
        decoder.and_then(|decoder| decoder.take(MOST_KERNEL_BYTES).read_to_end(&mut kernel))
    } else {
        return None;
    };
    read.ok()?;
    Some(kernel)
}

/// The same of a kernel that lay in an image: in one of the files that may be its configuration, or in the kernel.
pub(super) fn among(files: &[Vec<u8>], image: &[u8]) -> Option<String> {
    files.iter().find_map(|bytes| text(bytes)).or_else(|| inside(image))
}

/// What the kernel itself carries.
fn inside(image: &[u8]) -> Option<String> {
    let mut text = String::new();
    let kernel = match kernel::architecture(image)? {
        Architecture::Amd64 => Cow::Owned(unpacked(image)?),
        // Not packed.
        Architecture::Arm64 => Cow::Borrowed(image),
    };
    GzDecoder::new(bzimage::configuration(&kernel)?)
        .take(MOST_CONFIG_BYTES)
        .read_to_string(&mut text)
        .ok()?;
    Some(text)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        out.write_all(bytes).unwrap();
        out.finish().unwrap()
    }

    /// A bzImage with nothing but header and payload.
    fn image(payload: &[u8]) -> Vec<u8> {
        let mut image = vec![0; 1024];
        image[0x1f1] = 1;
        image[0x202..0x206].copy_from_slice(b"HdrS");
        image[0x24c..0x250].copy_from_slice(&u32::try_from(payload.len()).unwrap().to_le_bytes());
        image.extend(payload);
        image
    }

    #[test]
    fn a_kernel_carries_its_configuration_however_it_is_packed() {
        let kernel = [&b"code IKCFG_ST"[..], &gzip(b"CONFIG_A=y\n"), b"IKCFG_ED more"].concat();
        for packed in [gzip(&kernel), zstd::bulk::compress(&kernel, 3).unwrap()] {
            let image = image(&[&packed[..], &7_u32.to_le_bytes()].concat());
            assert_eq!(inside(&image).as_deref(), Some("CONFIG_A=y\n"));
        }
        assert_eq!(inside(&image(b"LZMA")), None);
        assert_eq!(inside(b"no kernel"), None);
    }

    #[test]
    fn a_file_goes_before_what_the_kernel_carries() {
        let dir = tempfile::tempdir().unwrap();
        let kernel = dir.path().join("vmlinuz");
        let found = |named| find(named, &kernel, None, "6.1.0-27-amd64", b"").unwrap();
        assert_eq!(found(None), None);
        fs::write(dir.path().join("config"), "something else").unwrap();
        assert_eq!(found(None), None, "nobody said that it is a configuration");
        fs::write(dir.path().join(".config"), "CONFIG_A=y").unwrap();
        assert_eq!(found(None).as_deref(), Some("CONFIG_A=y"));
        fs::write(dir.path().join("config-6.1.0-27-amd64"), "CONFIG_B=y").unwrap();
        assert_eq!(found(None).as_deref(), Some("CONFIG_B=y"));
        let other = dir.path().join("other");
        let text = "# Linux/x86 6.1.115 Kernel Configuration\nCONFIG_C=y\n";
        for bytes in [text.as_bytes().to_vec(), gzip(text.as_bytes())] {
            fs::write(&other, bytes).unwrap();
            assert_eq!(found(Some(&other)).as_deref(), Some(text));
        }
        for (content, wanted) in [
            (
                &b"machine:\n  token: secret\n"[..],
                "other: it is no configuration of a kernel, which has lines as",
            ),
            (&[0xff, 0, 1], "it is no configuration of a kernel"),
            (b"", "it is no configuration of a kernel"),
            (
                b"# Linux/x86 6.12.1 Kernel Configuration\nCONFIG_C=y\n",
                "it is of Linux 6.12.1, and the kernel is 6.1.0-27",
            ),
        ] {
            fs::write(&other, content).unwrap();
            let error = find(Some(&other), &kernel, None, "6.1.0-27-amd64", b"").unwrap_err().to_string();
            assert!(error.contains(wanted) && !error.contains("secret"), "{wanted:?} is not in {error}");
        }
    }
}
