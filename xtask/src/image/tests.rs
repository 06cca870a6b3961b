//! The list of the repository parses; trees refuse what no image may hold; libraries are followed.

use std::fs;
use std::path::PathBuf;

use installer::tree::{Node, Tree};

use super::list::{FileList, arrow, fits, matching};
use super::paths::resolve;
use super::{check, elf, libraries};
use crate::place;
use crate::target::Architecture;

const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";

fn list() -> FileList {
    FileList::read(&place::repository().join("xtask/image/base.toml"), Architecture::Amd64).unwrap()
}

/// A minimal 64-bit ELF file: one PT_LOAD over all of it, PT_DYNAMIC with the given libraries.
fn elf_with(needed: &[&str]) -> Vec<u8> {
    let strings_at = 64 + 2 * 56 + 16 * (needed.len() + 2);
    let mut strings = vec![0];
    let mut dynamic: Vec<(u64, u64)> = vec![(5, strings_at as u64)];
    for name in needed {
        dynamic.push((1, strings.len() as u64));
        strings.extend(name.bytes().chain([0]));
    }
    dynamic.push((0, 0));
    let mut file = b"\x7fELF\x02\x01\x01".to_vec();
    file.resize(64, 0);
    file[32] = 64;
    (file[54], file[56]) = (56, 2);
    let size = (strings_at + strings.len()) as u64;
    let dynamic_at = 64 + 2 * 56;
    for (kind, offset, bytes) in [(1_u32, 0, size), (2, dynamic_at, 16 * dynamic.len() as u64)] {
        file.extend(kind.to_le_bytes());
        file.extend([0; 4]);
        for value in [offset, offset, offset, bytes, bytes, 8] {
            file.extend(u64::to_le_bytes(value));
        }
    }
    file.extend(dynamic.iter().flat_map(|(tag, value)| [tag.to_le_bytes(), value.to_le_bytes()]).flatten());
    file.extend(strings);
    file
}

#[test]
fn needed_libraries_are_read() {
    let found = elf::parse(&elf_with(&["libc.so.6", "libm.so.6"])).unwrap().unwrap();
    assert_eq!(found.needed, ["libc.so.6", "libm.so.6"]);
    assert_eq!(elf::parse(b"#!/bin/sh\n").unwrap(), None);
}

#[test]
fn the_running_program_is_read_as_well() {
    let own = fs::read(std::env::current_exe().unwrap()).unwrap();
    let found = elf::parse(&own).unwrap().unwrap();
    assert!(found.needed.is_empty(), "built with +crt-static, but needs {:?}", found.needed);
}

#[test]
fn a_cut_or_mangled_elf_file_is_an_error_and_no_panic() {
    let whole = elf_with(&["libc.so.6"]);
    for end in 6..whole.len() {
        assert!(elf::parse(&whole[..end]).is_err(), "cut at {end}");
    }
    for at in 6..whole.len() {
        let mut mangled = whole.clone();
        mangled[at] ^= 0xff;
        let _ = elf::parse(&mangled);
    }
}

#[test]
fn libraries_are_followed_through_libraries() {
    let package = tempfile::tempdir().unwrap();
    let directory = package.path().join(LIBRARIES);
    fs::create_dir_all(&directory).unwrap();
    fs::write(directory.join("liba.so.1"), elf_with(&["libb.so.2"])).unwrap();
    fs::write(directory.join("libb.so.2"), elf_with(&["liba.so.1"])).unwrap();
    fs::write(directory.join("libunused.so"), elf_with(&[])).unwrap();
    let mut files = Tree::new();
    files.bytes("usr/bin/program", 0o755, elf_with(&["liba.so.1"])).unwrap();
    assert!(libraries::check(&files, LIBRARIES).unwrap_err().to_string().contains("needs liba.so.1"));
    libraries::add(&mut files, &[package.path().to_owned()], LIBRARIES).unwrap();
    libraries::check(&files, LIBRARIES).unwrap();
    let found = files.iter().filter(|(_, entry)| matches!(entry.node, Node::File(_))).count();
    assert_eq!(found, 2);
}

#[test]
fn a_library_of_no_listed_package_is_named() {
    let mut files = Tree::new();
    files.bytes("usr/bin/program", 0o755, elf_with(&["libz.so.1"])).unwrap();
    let error = libraries::add(&mut files, &[PathBuf::from("/nowhere")], LIBRARIES).unwrap_err().to_string();
    assert_eq!(
        error,
        "libz.so.1, needed by /usr/bin/program: add its package to the list of files in xtask/image"
    );
}

#[test]
fn shells_scripts_and_dead_links_are_refused() {
    let forbidden = list().forbidden;
    let refused = |path: &str, bytes: &[u8]| {
        let mut files = Tree::new();
        files.bytes(path, 0o755, bytes).unwrap();
        check::check(&files, &forbidden, LIBRARIES).err().map(|error| error.to_string())
    };
    for name in ["sh", "bash", "python3.13", "perl5.40", "apt-get", "dpkg-deb", "busybox", "x.py"] {
        let error = refused(&format!("usr/bin/{name}"), b"").unwrap_or_else(|| panic!("{name} was accepted"));
        assert!(error.contains("forbidden"), "{error}");
    }
    assert!(refused("usr/bin/hook", b"#!/bin/x\n").unwrap().contains("script"));
    assert_eq!(refused("usr/bin/machined", b"\x7f"), None);
    let mut files = Tree::new();
    files.symlink("etc/resolv.conf", "../run/resolv.conf").unwrap();
    check::check(&files, &forbidden, LIBRARIES).unwrap();
    files.symlink("usr/bin/apid", "machined").unwrap();
    assert!(
        check::check(&files, &forbidden, LIBRARIES).unwrap_err().to_string().contains("link to machined")
    );
}

#[test]
fn links_are_followed_inside_the_tree() {
    let mut files = Tree::new();
    files.bytes("usr/lib/x86/ld.so", 0o755, "x").unwrap();
    files.symlink("usr/lib64/ld.so", "../lib/x86/ld.so").unwrap();
    files.symlink("lib64", "usr/lib64").unwrap();
    files.symlink("loop", "/loop").unwrap();
    assert_eq!(resolve(&files, "/lib64/ld.so").as_deref(), Some("usr/lib/x86/ld.so"));
    assert_eq!(resolve(&files, "loop"), None);
    assert_eq!(resolve(&files, "usr/none"), None);
}

#[test]
fn patterns_and_arrows() {
    assert!(
        fits("*.so", "a.so") && fits("lib*t_*.so", "libxt_a.so") && !fits("*.so", "a.so.1") && fits("a", "a")
    );
    assert_eq!(arrow("a/* => b/"), ("a/*", "b/"));
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("one"), "").unwrap();
    assert_eq!(matching(directory.path(), "two*").unwrap_err().to_string(), "the package has no two*");
}
