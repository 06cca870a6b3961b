//! Sections appended to a stub by the GNU linker, read back by us and by objdump.

use std::process::Command;

use proptest::prelude::*;

use super::*;
use crate::field::put;

const STUB: &[u8] = include_bytes!("../../testdata/stub.efi");

fn add<'a>(name: &'a str, content: &'a [u8]) -> NewSection<'a> {
    NewSection { name, content }
}

fn uki() -> Vec<u8> {
    let stub = Image::parse(STUB).unwrap();
    let new = [
        add(".osrel", b"ID=billet\n"),
        add(".cmdline", b"console=ttyS0"),
        add(".initrd", &[1; 5000]),
        add(".linux", &[2; 4096]),
    ];
    stub.append(&new).unwrap()
}

#[test]
fn the_linker_and_we_agree_on_the_checksum() {
    let stub = Image::parse(STUB).unwrap();
    assert!(stub.checksum_is_right());
    let names: Vec<_> = stub.sections().iter().map(|section| section.name).collect();
    assert_eq!(names, [".text", ".data", ".idata"]);
    let mut changed = STUB.to_vec();
    changed[1025] ^= 1;
    assert!(!Image::parse(&changed).unwrap().checksum_is_right());
}

#[test]
fn appended_sections_read_back() {
    let file = uki();
    let image = Image::parse(&file).unwrap();
    assert_eq!(image.section(".cmdline"), Some(&b"console=ttyS0"[..]));
    assert_eq!(image.section(".initrd"), Some(&[1; 5000][..]));
    assert_eq!(image.section(".linux"), Some(&[2; 4096][..]));
    assert_eq!(image.section(".text"), Image::parse(STUB).unwrap().section(".text"));
    assert!(image.checksum_is_right());
    assert_eq!(image.sections().last().unwrap().name, ".linux");
    let mut end = 0;
    for section in image.sections() {
        assert_eq!(section.address % image.headers.section_alignment, 0, "{}", section.name);
        assert_eq!(section.file_offset % image.headers.file_alignment, 0, "{}", section.name);
        assert!(section.address >= end);
        end = section.address + section.virtual_bytes;
    }
    let size_of_image = le32(&file, image.headers.optional + 56).unwrap();
    assert_eq!(size_of_image, end.next_multiple_of(image.headers.section_alignment));
    // Headers that change: section count, three sizes, the table. The rest of the stub stays.
    assert_eq!(file[1024..STUB.len()], STUB[1024..]);
}

/// Who sends a file piece by piece has the same bytes.
#[test]
fn a_head_and_the_contents_at_their_offsets_are_the_file() {
    let stub = Image::parse(STUB).unwrap();
    let contents: [(&str, &[u8]); 3] =
        [(".cmdline", b"quiet"), (".initrd", &[0xf1; 5001]), (".linux", &[2; 4096])];
    let layout = stub.layout(&contents.map(|(name, content)| (name, content.len() as u64))).unwrap();
    let sum = contents.iter().map(|(_, content)| words(content)).sum();
    let mut file = stub.head(&layout, sum).unwrap();
    file.resize(usize::try_from(layout.file_bytes()).unwrap(), 0);
    for (offset, (_, content)) in layout.offsets().zip(contents) {
        put(&mut file, usize::try_from(offset).unwrap(), content);
    }
    assert_eq!(file, stub.append(&contents.map(|(name, content)| add(name, content))).unwrap());
    assert!(Image::parse(&file).unwrap().checksum_is_right());
}

#[test]
fn objdump_sees_the_same_sections() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("uki.efi");
    std::fs::write(&path, uki()).unwrap();
    let output = Command::new("objdump")
        .arg("-h")
        .arg(&path)
        .output()
        .unwrap_or_else(|e| panic!("this test needs objdump (Debian package binutils): {e}"));
    assert!(output.status.success());
    let list = String::from_utf8(output.stdout).unwrap();
    for (name, bytes) in [(".osrel", 10), (".cmdline", 13), (".initrd", 5000), (".linux", 4096)] {
        let line = list.lines().find(|line| line.contains(name)).unwrap_or_else(|| panic!("{list}"));
        assert!(line.contains(&std::format!(" {bytes:08x} ")), "{line}");
    }
}

#[test]
fn what_cannot_be_appended_is_refused() {
    let stub = Image::parse(STUB).unwrap();
    let refuse = |new: &[NewSection<'_>]| stub.append(new).unwrap_err();
    assert_eq!(refuse(&[add(".toolongname", b"x")]), Error::Name(".toolongname".into()));
    assert_eq!(refuse(&[add("", b"x")]), Error::Name(String::new()));
    assert_eq!(refuse(&[add(".text", b"x")]), Error::Duplicate(".text".into()));
    assert_eq!(refuse(&[add(".a", b"x"), add(".a", b"y")]), Error::Duplicate(".a".into()));
    assert_eq!(refuse(&[add(".a", b"")]), Error::Empty(".a".into()));
    let names: Vec<_> = (0..40).map(|i| std::format!(".s{i}")).collect();
    let many: Vec<_> = names.iter().map(|name| add(name, b"x")).collect();
    assert_eq!(refuse(&many), Error::NoRoom(40));
    let mut signed = STUB.to_vec();
    put(&mut signed, stub.headers.optional + 144, &1_u32.to_le_bytes());
    let error = Image::parse(&signed).unwrap().append(&[add(".a", b"x")]).unwrap_err();
    assert_eq!(error, Error::Signed);
}

#[test]
fn files_that_are_no_image_are_refused() {
    for file in [&b""[..], b"MZ", &[0; 4096], &STUB[..300]] {
        assert_eq!(Image::parse(file).unwrap_err(), Error::NotPe);
    }
    let cut = Image::parse(&STUB[..1100]).unwrap_err();
    assert_eq!(cut, Error::BadSection(".data".into()));
}

proptest! {
    #[test]
    fn damaged_images_never_panic(changes in proptest::collection::vec((0usize..1024, any::<u8>()), 1..12)) {
        let mut file = uki();
        for (at, with) in changes {
            file[at] = with;
        }
        if let Ok(image) = Image::parse(&file) {
            let _ = image.append(&[add(".new", b"content")]);
            let _ = image.checksum_is_right();
        }
    }

    #[test]
    fn any_contents_survive(contents in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..3000), 1..5)) {
        let names = [".a", ".b", ".c", ".d", ".e"];
        let new: Vec<_> = names.iter().zip(&contents).map(|(name, content)| add(name, content)).collect();
        let file = Image::parse(STUB).unwrap().append(&new).unwrap();
        let image = Image::parse(&file).unwrap();
        for section in &new {
            prop_assert_eq!(image.section(section.name), Some(section.content));
        }
    }
}
