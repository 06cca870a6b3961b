//! This program again, in a root of its own; it is linked statically and needs no library.

use std::fs;
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use super::*;
use crate::process::{Spawn, spawn, wait_pidfd};

/// Set in the program that is confined: what it was told to look at.
const CONFINED: &str = "BILLET_TEST_CONFINED";

fn path_of(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).unwrap()
}

/// Everything below a directory, with slashes behind directories.
fn below(directory: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let is_directory = path.is_dir();
        found.push(format!("{}{}", path.display(), if is_directory { "/" } else { "" }));
        if is_directory {
            below(&path, found);
        }
    }
}

/// What the confined program says of itself, a line each.
fn look(files: &str) {
    let [file, socket] = files.split(':').collect::<Vec<_>>()[..] else { panic!("{files}") };
    let mut found = Vec::new();
    below(Path::new("/"), &mut found);
    found.sort();
    println!("sees {}", found.join(" "));
    println!("reads {:?}", fs::read_to_string(file).map_err(|error| error.kind()));
    println!("writes {:?}", fs::write(file, "x").map_err(|error| error.raw_os_error()));
    println!("makes {:?}", fs::write("/new", "x").map_err(|error| error.raw_os_error()));
    println!("connects {:?}", UnixStream::connect(socket).map(drop).map_err(|error| error.kind()));
    println!("works in {:?}", std::env::current_dir().unwrap());
    let sets = rustix::thread::capabilities(None).unwrap();
    println!("may {:?} {:?} {:?}", sets.effective.bits(), sets.permitted.bits(), sets.inheritable.bits());
    let bound = (0..64).filter(|capability| {
        let capability = rustix::thread::CapabilitySet::from_bits_retain(1 << capability);
        rustix::thread::capability_is_in_bounding_set(capability).unwrap_or(false)
    });
    println!("could have {}", bound.count());
    println!("no new privileges: {}", rustix::thread::no_new_privs().unwrap());
    println!("runs as {}", rustix::process::getuid().as_raw());
}

#[test]
#[ignore = "makes a mount namespace: `cargo xtask test` runs it as root"]
fn a_program_in_a_root_of_its_own_sees_and_may_nothing_else() {
    if let Ok(files) = std::env::var(CONFINED) {
        return look(&files);
    }
    assert!(rustix::process::geteuid().is_root(), "it mounts file systems: run this test as root");
    let directory = tempfile::tempdir().unwrap();
    let (at, shown, socket) =
        (directory.path().join("at"), directory.path().join("shown"), directory.path().join("socket"));
    fs::create_dir(&at).unwrap();
    fs::write(&shown, "content").unwrap();
    fs::write(directory.path().join("hidden"), "secret").unwrap();
    let _listener = UnixListener::bind(&socket).unwrap();
    // Its user may pass: what holds it is not a directory's mode.
    for (path, mode) in [(directory.path(), 0o755), (&shown, 0o666), (&socket, 0o666)] {
        fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
    }
    let program = path_of(&std::env::current_exe().unwrap());
    let root = Root::new(&path_of(&at), &program, &[&path_of(&shown), &path_of(&socket)]).unwrap();
    let test = c"confine::tests::a_program_in_a_root_of_its_own_sees_and_may_nothing_else";
    let told = CString::new(format!("{CONFINED}={}:{}", shown.display(), socket.display())).unwrap();
    let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
    let child = spawn(&Spawn {
        program: &program,
        argv: &[&program, c"--exact", test, c"--ignored", c"--nocapture"],
        env: &[&told],
        descriptors: &[(writer.as_fd(), 1), (writer.as_fd(), 2)],
        identity: Some((50, 50)),
        root: Some(&root),
        directory: Some(c"/"),
        ..Spawn::default()
    })
    .unwrap();
    drop(writer);
    let said = std::io::read_to_string(fs::File::from(reader)).unwrap();
    assert_eq!(wait_pidfd(&child.pidfd, true).unwrap(), Some(0), "{said}");
    let mut expected = Vec::new();
    for path in [Path::new(program.to_str().unwrap()), &shown, &socket] {
        let directories = path.ancestors().skip(1).filter(|directory| directory.parent().is_some());
        expected.extend(directories.map(|directory| format!("{}/", directory.display())));
        expected.push(path.display().to_string());
    }
    expected.sort();
    expected.dedup();
    for line in [
        format!("sees {}", expected.join(" ")),
        "reads Ok(\"content\")".to_owned(),
        // EROFS.
        "writes Err(Some(30))".to_owned(),
        "makes Err(Some(30))".to_owned(),
        "connects Ok(())".to_owned(),
        "works in \"/\"".to_owned(),
        "may 0 0 0".to_owned(),
        "could have 0".to_owned(),
        "no new privileges: true".to_owned(),
        "runs as 50".to_owned(),
    ] {
        assert!(said.lines().any(|said| said == line), "{line}:\n{said}");
    }
    // Nothing of it is seen here.
    assert_eq!(fs::read_dir(&at).unwrap().count(), 0);
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains(at.to_str().unwrap()), "{mounts}");
}

#[test]
#[ignore = "makes a mount namespace: `cargo xtask test` runs it as root"]
fn a_file_that_is_not_there_is_said_before_anything_runs_in_a_root_of_its_own() {
    assert!(rustix::process::geteuid().is_root(), "it mounts file systems: run this test as root");
    let directory = tempfile::tempdir().unwrap();
    let root = Root::new(&path_of(directory.path()), c"/bin/true", &[c"/no/such/file"]).unwrap();
    let what = Spawn { program: c"/bin/true", argv: &[c"true"], root: Some(&root), ..Spawn::default() };
    assert_eq!(spawn(&what).unwrap_err(), Errno::NOENT);
}

#[test]
fn directories_are_made_once_and_from_the_top() {
    let root = Root::new(c"/at", c"/usr/bin/apid", &[c"/usr/lib/a", c"/etc/hosts", c"/top"]).unwrap();
    let directories: Vec<_> = root.directories.iter().map(|directory| directory.to_str().unwrap()).collect();
    assert_eq!(directories, ["usr", "usr/bin", "usr/lib", "etc"]);
    let programs = root.files.iter().filter(|file| file.is_program).map(|file| file.target.to_str().unwrap());
    assert_eq!(programs.collect::<Vec<_>>(), ["usr/bin/apid"]);
    for bad in [c"relative", c"/a/../b", c"/a//b", c"/a/./b", c"/", c"/a/", c""] {
        assert_eq!(Root::new(c"/at", c"/usr/bin/apid", &[bad]), Err(Errno::INVAL), "{bad:?}");
    }
}
