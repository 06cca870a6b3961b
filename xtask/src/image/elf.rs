//! What the dynamic linker reads of an ELF file: needed libraries, search path, interpreter.
//!
//! Owns: 64-bit little-endian files, which is all that an amd64 image holds.
//! Does not: touch symbols or relocations.
//! Fails by: `None` from [`parse`] for what is no ELF file, an error for one that contradicts itself.
//! Source: System V ABI, "Object Files" and "Program Loading and Dynamic Linking"; elf(5).

use anyhow::{Context, Result, ensure};

const MAGIC: &[u8] = b"\x7fELF";
/// EI_CLASS 64-bit, EI_DATA little-endian.
const CLASS_AND_DATA: &[u8] = &[2, 1];
const PT_LOAD: u64 = 1;
pub(crate) const PT_DYNAMIC: u64 = 2;
pub(crate) const PT_INTERP: u64 = 3;
pub(crate) const PT_TLS: u64 = 7;
const DT_NULL: u64 = 0;
const DT_NEEDED: u64 = 1;
const DT_STRTAB: u64 = 5;
const DT_RPATH: u64 = 15;
const DT_RUNPATH: u64 = 29;

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Dynamic {
    pub(crate) needed: Vec<String>,
    pub(crate) interpreter: Option<String>,
    /// DT_RPATH or DT_RUNPATH: a path of the machine that the file was built on.
    pub(crate) search_path: Option<String>,
}

/// `None` when the bytes are no ELF file.
pub(crate) fn parse(file: &[u8]) -> Result<Option<Dynamic>> {
    if !file.starts_with(MAGIC) {
        return Ok(None);
    }
    ensure!(file.get(4..6) == Some(CLASS_AND_DATA), "not a 64-bit little-endian ELF file");
    let segments = segments(file).context("program headers")?;
    let mut dynamic = Dynamic::default();
    for segment in &segments {
        match segment.kind {
            PT_INTERP => dynamic.interpreter = Some(text(file, segment.offset).context("interpreter")?),
            PT_DYNAMIC => read_dynamic(file, segment, &segments, &mut dynamic).context("dynamic section")?,
            _ => {}
        }
    }
    Ok(Some(dynamic))
}

/// The kinds of all segments (`p_type`).
pub(crate) fn segment_kinds(file: &[u8]) -> Result<Vec<u64>> {
    ensure!(file.starts_with(MAGIC), "not an ELF file");
    Ok(segments(file)?.iter().map(|segment| segment.kind).collect())
}

struct Segment {
    kind: u64,
    offset: u64,
    address: u64,
    file_bytes: u64,
}

fn segments(file: &[u8]) -> Result<Vec<Segment>> {
    let (start, size, count) = (read(file, 32, 8)?, read(file, 54, 2)?, read(file, 56, 2)?);
    (0..count)
        .map(|number| {
            let at =
                number.checked_mul(size).and_then(|offset| start.checked_add(offset)).context("offset")?;
            let field = |offset: u64, width| read(file, at.checked_add(offset).context("offset")?, width);
            Ok(Segment {
                kind: field(0, 4)?,
                offset: field(8, 8)?,
                address: field(16, 8)?,
                file_bytes: field(32, 8)?,
            })
        })
        .collect()
}

fn read_dynamic(file: &[u8], table: &Segment, segments: &[Segment], dynamic: &mut Dynamic) -> Result<()> {
    let mut entries = Vec::new();
    for number in 0..table.file_bytes / 16 {
        let at = table.offset.checked_add(number * 16).context("offset")?;
        let (tag, value) = (read(file, at, 8)?, read(file, at.checked_add(8).context("offset")?, 8)?);
        if tag == DT_NULL {
            break;
        }
        entries.push((tag, value));
    }
    let Some((_, strings)) = entries.iter().find(|(tag, _)| *tag == DT_STRTAB) else {
        return Ok(());
    };
    let strings = file_offset(*strings, segments).context("string table")?;
    for (tag, value) in &entries {
        let at = || strings.checked_add(*value).context("string offset");
        match *tag {
            DT_NEEDED => dynamic.needed.push(text(file, at()?)?),
            DT_RPATH | DT_RUNPATH => dynamic.search_path = Some(text(file, at()?)?),
            _ => {}
        }
    }
    Ok(())
}

/// Addresses of the dynamic section are those in memory.
fn file_offset(address: u64, segments: &[Segment]) -> Option<u64> {
    let holds = |segment: &&Segment| {
        segment.kind == PT_LOAD
            && address.checked_sub(segment.address).is_some_and(|at| at < segment.file_bytes)
    };
    let segment = segments.iter().find(holds)?;
    address.checked_sub(segment.address)?.checked_add(segment.offset)
}

/// A little-endian number of `width` bytes.
fn read(file: &[u8], at: u64, width: usize) -> Result<u64> {
    let at = usize::try_from(at).context("offset")?;
    let end = at.checked_add(width).context("offset")?;
    let bytes = file.get(at..end).with_context(|| format!("the file ends before byte {end}"))?;
    Ok(bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

fn text(file: &[u8], at: u64) -> Result<String> {
    let rest = file.get(usize::try_from(at).context("offset")?..).context("a text lies beyond the end")?;
    let end = rest.iter().position(|byte| *byte == 0).context("a text has no end")?;
    Ok(String::from_utf8_lossy(rest.get(..end).unwrap_or_default()).into_owned())
}
