//! Tests of process creation and waiting, on real processes.

use std::os::fd::AsFd;

use super::*;

fn output_of(what: Spawn<'_>, pass: &[(BorrowedFd<'_>, RawFd)]) -> (i32, String) {
    let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
    let child = {
        let mut descriptors = vec![(writer.as_fd(), 1)];
        descriptors.extend_from_slice(pass);
        spawn(&Spawn { descriptors: &descriptors, ..what }).unwrap()
    };
    drop(writer);
    let mut text = String::new();
    std::io::Read::read_to_string(&mut std::fs::File::from(reader), &mut text).unwrap();
    (wait_pidfd(&child.pidfd, true).unwrap().unwrap(), text)
}

#[test]
fn a_program_gets_its_arguments_environment_and_directory() {
    let what = Spawn {
        program: c"/bin/sh",
        argv: &[c"sh", c"-c", c"echo $0 $WORD; pwd; exit 7", c"zero"],
        env: &[c"WORD=kettle"],
        directory: Some(c"/usr"),
        ..Spawn::default()
    };
    let (status, text) = output_of(what, &[]);
    assert_eq!(text, "zero kettle\n/usr\n");
    assert_eq!(status, 7 << 8);
}

#[test]
fn only_the_named_descriptors_arrive_even_when_they_cross() {
    let (one, _keep) = crate::seqpacket::pair().unwrap();
    let (two, _keep2) = crate::seqpacket::pair().unwrap();
    let what = Spawn {
        program: c"/bin/sh",
        // What the shell itself has: a pipe behind `ls` would show its own end at times.
        argv: &[c"sh", c"-c", c"readlink /proc/self/fd/3 /proc/self/fd/4; cd /proc/$$/fd; echo *"],
        ..Spawn::default()
    };
    let name = |fd: &OwnedFd| {
        std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd())).unwrap().display().to_string()
    };
    let expected = format!("{}\n{}\n", name(&two), name(&one));
    let (_, text) = output_of(what, &[(two.as_fd(), 3), (one.as_fd(), 4)]);
    assert!(text.starts_with(&expected), "{text} {expected}");
    // The last one is the directory that is being listed.
    assert!(text.ends_with("\n0 1 2 3 4 5\n"), "{text}");
}

#[test]
fn a_program_that_cannot_start_is_an_errno() {
    let missing = Spawn { program: c"/no/such/program", argv: &[c"x"], ..Spawn::default() };
    assert_eq!(spawn(&missing).unwrap_err(), Errno::NOENT);
    let directory = Spawn { program: c"/bin/sh", directory: Some(c"/no/such"), ..Spawn::default() };
    assert_eq!(spawn(&directory).unwrap_err(), Errno::NOENT);
}

#[test]
fn many_arguments_fit() {
    let mut argv = vec![c"sh", c"-c", c"echo $#", c"zero"];
    argv.extend([c"x"; 40]);
    let (_, text) = output_of(Spawn { program: c"/bin/sh", argv: &argv, ..Spawn::default() }, &[]);
    assert_eq!(text, "40\n");
}

#[test]
fn signals_show_in_the_status() {
    let what = Spawn { program: c"/bin/sh", argv: &[c"sh", c"-c", c"kill -9 $$"], ..Spawn::default() };
    let child = spawn(&what).unwrap();
    assert_eq!(wait_pidfd(&child.pidfd, true).unwrap(), Some(9));
}

#[test]
fn wait_statuses_have_the_form_of_waitpid() {
    assert_eq!(wait_status(1, 3), 3 << 8);
    assert_eq!(wait_status(2, 15), 15);
    assert_eq!(wait_status(3, 11), 11 | 0x80);
}

#[test]
fn start_ticks_survive_odd_names() {
    let stat = b"7 (a) b) c) S 1 7 7 0 -1 4 5 6 7 8 9 10 11 12 20 0 1 0 4242 1 2 3";
    assert_eq!(parse_start_ticks(stat), Some(4242));
    assert_eq!(parse_start_ticks(b"7 (sh"), None);
    let own = i32::try_from(std::process::id()).unwrap();
    assert!(start_ticks(own).unwrap() > 0);
}

#[test]
fn numbers_are_written_in_decimal() {
    let mut buffer = [0; 8];
    assert_eq!(decimal(-1000, &mut buffer), b"-1000");
    assert_eq!(decimal(0, &mut buffer), b"0");
    let mut buffer = [0; 32];
    assert_eq!(stat_path(4711, &mut buffer), Some(c"/proc/4711/stat"));
}

/// Two owners would close each other's files.
#[test]
fn a_number_is_taken_over_once() {
    let (one, _other) = crate::seqpacket::pair().unwrap();
    // A number that nothing else of this program opens.
    const NUMBER: RawFd = 61;
    let placed = core::mem::ManuallyDrop::new(rustix::io::fcntl_dupfd_cloexec(&one, NUMBER).unwrap());
    assert_eq!(placed.as_raw_fd(), NUMBER);
    let taken = inherited(NUMBER).unwrap();
    assert_eq!(inherited(NUMBER).unwrap_err(), Errno::BUSY);
    drop(taken);
    assert_eq!(inherited(NUMBER).unwrap_err(), Errno::BUSY);
    for outside in [-1, 64, i32::MAX, i32::MIN] {
        assert_eq!(inherited(outside).unwrap_err(), Errno::INVAL, "{outside}");
    }
    assert_eq!(inherited(62).unwrap_err(), Errno::BADF);
}
