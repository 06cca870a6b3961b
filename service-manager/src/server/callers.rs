//! Who may speak to machined's socket: apid, which has asked its own callers who they are, and root.
//!
//! Owns: the decision, by the user that the kernel names, and the line about who was refused.
//! Does not: trust the socket's mode alone; trustd and other services have users of their own and nothing to ask here.
//! Source: unix(7), `SO_PEERCRED`.

use std::io;

use runtime::journal::Journal;
use tokio::net::{UnixListener, UnixStream};
use tokio_stream::wrappers::UnixListenerStream;
use tokio_stream::{Stream, StreamExt as _};

use crate::programs::Program;

/// Connections of those who may.
pub(super) fn admitted(
    listener: UnixListener,
    journal: Journal,
) -> impl Stream<Item = io::Result<UnixStream>> {
    let own = rustix::process::geteuid().as_raw();
    UnixListenerStream::new(listener).filter_map(move |accepted| {
        let stream = match accepted {
            Ok(stream) => stream,
            Err(error) => return Some(Err(error)),
        };
        match stream.peer_cred().map(|peer| peer.uid()) {
            Ok(user) if may_call(user, own) => return Some(Ok(stream)),
            Ok(user) => journal.warn(&format!("refused user {user} on machined's socket: it is apid's")),
            Err(error) => journal.warn(&format!("read the peer of machined's socket: {error}")),
        }
        None
    })
}

/// Whether this user may, with machined running as that one; on a node that is root.
fn may_call(user: u32, own: u32) -> bool {
    user == Program::Apid.user() || user == own
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn apid_and_root_may_call_machined_and_trustd_and_others_may_not() {
        assert!(may_call(Program::Apid.user(), 0) && may_call(0, 0));
        for user in [Program::Trustd.user(), 1, 1000, 65534, u32::MAX] {
            assert!(!may_call(user, 0), "{user}");
        }
    }

    /// Another user is another process, as which this program starts again.
    const SOCKET: &str = "BILLET_TEST_SOCKET";

    async fn says_hello(path: &str) -> bool {
        use tokio::io::AsyncReadExt as _;
        let Ok(mut stream) = UnixStream::connect(path).await else { return false };
        stream.read_u8().await.is_ok_and(|byte| byte == b'h')
    }

    #[tokio::test]
    #[ignore = "becomes other users in a root of its own: `cargo xtask test` runs it as root"]
    async fn connections_of_other_users_are_closed_even_in_a_root_of_its_own() {
        use std::os::unix::fs::PermissionsExt as _;
        use tokio::io::AsyncWriteExt as _;
        if let Ok(path) = std::env::var(SOCKET) {
            assert!(says_hello(&path).await, "it was closed");
            return;
        }
        assert!(rustix::process::geteuid().is_root(), "it becomes other users: run this test as root");
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("machine.sock");
        let listener = UnixListener::bind(&path).unwrap();
        // The mode lets everybody in: what refuses is the user.
        for (path, mode) in [(dir.path(), 0o755), (&path, 0o666)] {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        }
        let journal = Journal::new(None, &runtime::logs::Logs::new(dir.path().join("log")));
        tokio::spawn(async move {
            let mut admitted = std::pin::pin!(admitted(listener, journal));
            while let Some(stream) = admitted.next().await {
                stream.unwrap().write_u8(b'h').await.unwrap();
            }
        });
        let place = dir.path().join("root");
        std::fs::create_dir(&place).unwrap();
        for (user, may) in
            [(Program::Apid.user(), true), (Program::Trustd.user(), false), (0, true), (65534, false)]
        {
            let (place, path) = (place.clone(), path.clone());
            let status = tokio::task::spawn_blocking(move || as_user(user, &place, &path)).await.unwrap();
            assert_eq!(status == Some(0), may, "user {user}: {status:?}");
        }
    }

    /// How this program ended that connected as this user, in a root with nothing but itself and the socket.
    fn as_user(user: u32, place: &std::path::Path, socket: &std::path::Path) -> Option<i32> {
        use std::ffi::CString;
        use std::os::fd::AsFd as _;
        use std::os::unix::ffi::OsStrExt as _;
        let of = |path: &std::path::Path| CString::new(path.as_os_str().as_bytes()).unwrap();
        let program = of(&std::env::current_exe().unwrap());
        let root = sys::confine::Root::new(&of(place), &program, &[&of(socket)]).unwrap();
        let test = c"server::callers::tests::connections_of_other_users_are_closed_even_in_a_root_of_its_own";
        let null = std::fs::File::options().read(true).write(true).open("/dev/null").unwrap();
        let child = sys::process::spawn(&sys::process::Spawn {
            program: &program,
            argv: &[&program, c"--exact", test, c"--ignored"],
            env: &[&CString::new(format!("{SOCKET}={}", socket.display())).unwrap()],
            descriptors: &[(null.as_fd(), 0), (null.as_fd(), 1), (null.as_fd(), 2)],
            identity: Some((user, user)),
            root: Some(&root),
            ..Default::default()
        })
        .unwrap();
        sys::process::wait_pidfd(&child.pidfd, true).unwrap()
    }
}
