//! Images by xorriso with every kind of name, what is no regular file, and damage.

use std::path::Path;
use std::process::Command;

use super::*;

const TEXT: &[u8] = b"version: v1alpha1\n";

fn image(dir: &Path, args: &[&str]) -> Vec<u8> {
    let (source, image) = (dir.join("source"), dir.join("image"));
    let output = Command::new("xorriso")
        .args(["-as", "mkisofs", "-quiet", "-V", "metal-iso"])
        .args(args)
        .arg("-o")
        .args([&image, &source])
        .output()
        .unwrap_or_else(|e| panic!("this test needs xorriso (Debian package xorriso): {e}"));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    std::fs::read(image).unwrap()
}

fn source(dir: &Path) -> std::path::PathBuf {
    let source = dir.join("source");
    std::fs::create_dir(&source).unwrap();
    source
}

#[test]
fn a_file_is_found_under_every_kind_of_name() {
    let dir = tempfile::tempdir().unwrap();
    let source = source(dir.path());
    std::fs::write(source.join("config.yaml"), TEXT).unwrap();
    for number in 0..200 {
        std::fs::write(source.join(format!("another-file-with-a-long-name-{number}")), "x").unwrap();
    }
    for args in [&["-r"][..], &["-R", "-J"], &["-J"], &["-r", "-iso-level", "1"], &["-iso-level", "3"]] {
        let image = image(dir.path(), args);
        assert_eq!(read_in_root(image.as_slice(), "config.yaml", 18).as_deref(), Ok(TEXT), "{args:?}");
        assert_eq!(read_in_root(image.as_slice(), "config.yaml", 17), Err(Unreadable::TooLong(18)));
        let gone = read_in_root(image.as_slice(), "other.yaml", 17);
        assert_eq!(gone, Err(Unreadable::NotFound("other.yaml".into())));
    }
}

#[test]
fn what_is_no_regular_file_is_refused_by_name() {
    let refused = |make: &dyn Fn(&Path)| {
        let dir = tempfile::tempdir().unwrap();
        make(&source(dir.path()));
        read_in_root(image(dir.path(), &["-r"]).as_slice(), "config.yaml", 100).unwrap_err().to_string()
    };
    let link = refused(&|source| {
        std::fs::write(source.join("real"), TEXT).unwrap();
        std::os::unix::fs::symlink("real", source.join("config.yaml")).unwrap();
    });
    assert_eq!(link, "iso9660: \"config.yaml\" is a symbolic link: put a regular file there");
    let directory = refused(&|source| std::fs::create_dir(source.join("config.yaml")).unwrap());
    assert!(directory.contains("is no regular file") || directory.contains("is a directory"), "{directory}");
    let fifo = refused(&|source| {
        assert!(Command::new("mkfifo").arg(source.join("config.yaml")).status().unwrap().success());
    });
    assert!(fifo.contains("is no regular file"), "{fifo}");
}

/// Each byte of the descriptors and of the root directory: an answer or an error, and no walk without an end.
#[test]
fn no_damage_makes_it_panic_or_read_for_ever() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(source(dir.path()).join("config.yaml"), TEXT).unwrap();
    let whole = image(dir.path(), &["-r", "-J"]);
    let root = usize::try_from(le32(&whole, DESCRIPTOR_OFFSET + 158).unwrap()).unwrap() * 2048;
    let spots = (DESCRIPTOR_OFFSET..DESCRIPTOR_OFFSET + 200).chain(root..root + 700);
    for at in spots {
        for value in [0, 1, 4, 0x7F, 0xFF] {
            let mut damaged = whole.clone();
            damaged[at] = value;
            let _ = read_in_root(damaged.as_slice(), "config.yaml", 1 << 20);
        }
    }
    for end in [0, DESCRIPTOR_OFFSET, DESCRIPTOR_OFFSET + 2048, root, root + 10] {
        assert!(read_in_root(&whole[..end], "config.yaml", 1 << 20).is_err(), "{end}");
    }
}
