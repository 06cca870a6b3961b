//! Listening sockets that outlive machined.
//!
//! Owns: their names in init's store: `listen/tcp/NAME` and `listen/unix/NAME`. A client that connects while machined is away waits in the queue of a socket
//! that never closed, instead of being refused.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use socket2::{Domain, Protocol, Socket, Type};

use crate::init_link::InitLink;

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 128;

/// A socket that could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The TCP socket.
    #[error("listen on {0}")]
    Tcp(SocketAddr, #[source] std::io::Error),
    /// The unix socket.
    #[error("listen on {0}")]
    Unix(String, #[source] std::io::Error),
    /// init did not take it.
    #[error("deposit listening socket {0:?}")]
    Deposit(String, #[source] crate::init_link::LinkError),
}

/// Sockets by name: found in init's store, or opened and deposited.
#[derive(Debug)]
pub struct Listeners {
    found: Mutex<BTreeMap<String, OwnedFd>>,
    init: InitLink,
}

impl Listeners {
    /// Takes every `listen/…` descriptor out of what init gave back.
    pub fn new(stored: &mut BTreeMap<String, OwnedFd>, init: InitLink) -> Self {
        let names: Vec<String> = stored.keys().filter(|name| name.starts_with("listen/")).cloned().collect();
        let found = names.into_iter().filter_map(|name| stored.remove_entry(&name)).collect();
        Self { found: Mutex::new(found), init }
    }

    fn take(&self, name: &str) -> Option<OwnedFd> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner).remove(name)
    }

    /// A TCP socket on all addresses of both families.
    pub fn tcp(&self, name: &str, port: u16) -> Result<OwnedFd, ListenError> {
        let name = format!("listen/tcp/{name}");
        if let Some(socket) = self.take(&name) {
            return Ok(socket);
        }
        let (socket, _) = open_tcp(port)?;
        self.deposit(&name, &socket)?;
        Ok(socket)
    }

    /// A unix socket that root and one group may connect to.
    pub fn unix(&self, name: &str, path: &Path, group: u32) -> Result<UnixListener, ListenError> {
        let name = format!("listen/unix/{name}");
        if let Some(socket) = self.take(&name) {
            return Ok(UnixListener::from(socket));
        }
        let listener =
            open_unix(path, group).map_err(|e| ListenError::Unix(path.display().to_string(), e))?;
        self.deposit(&name, &listener)?;
        Ok(listener)
    }

    fn deposit(&self, name: &str, socket: &impl AsFd) -> Result<(), ListenError> {
        self.init.store(name, socket.as_fd()).map_err(|e| ListenError::Deposit(name.to_owned(), e))
    }
}

fn open_tcp(port: u16) -> Result<(OwnedFd, SocketAddr), ListenError> {
    let both: SocketAddr = (std::net::Ipv6Addr::UNSPECIFIED, port).into();
    let v4: SocketAddr = (std::net::Ipv4Addr::UNSPECIFIED, port).into();
    // A kernel without IPv6 still has an API.
    let open = |address: SocketAddr| {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        if address.is_ipv6() {
            socket.set_only_v6(false)?;
        }
        socket.set_reuse_address(true)?;
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        let bound = socket.local_addr()?.as_socket().unwrap_or(address);
        Ok((OwnedFd::from(socket), bound))
    };
    open(both).or_else(|_: std::io::Error| open(v4)).map_err(|e| ListenError::Tcp(v4, e))
}

fn open_unix(path: &Path, group: u32) -> std::io::Result<UnixListener> {
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)?;
        fs::set_permissions(directory, fs::Permissions::from_mode(0o711))?;
    }
    if let Err(error) = fs::remove_file(path)
        && error.kind() != std::io::ErrorKind::NotFound
    {
        return Err(error);
    }
    let listener = UnixListener::bind(path)?;
    chown(path, None, Some(group))?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o660))?;
    Ok(listener)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stored_socket_is_used_again() {
        let (socket, address) = open_tcp(0).unwrap();
        let mut stored = BTreeMap::from([
            ("listen/tcp/apid".to_owned(), socket),
            ("log-r/x".to_owned(), {
                let (read, _) = std::io::pipe().unwrap();
                read.into()
            }),
        ]);
        let listeners = Listeners::new(&mut stored, InitLink::detached());
        assert_eq!(stored.len(), 1, "other descriptors stay");
        let again = Socket::from(listeners.tcp("apid", 0).unwrap());
        assert_eq!(again.local_addr().unwrap().as_socket(), Some(address));
    }

    #[test]
    fn a_program_may_have_one_socket_of_each_kind() {
        let dir = tempfile::tempdir().unwrap();
        let (socket, address) = open_tcp(0).unwrap();
        let path = dir.path().join("apid.sock");
        let group = rustix::process::getgid().as_raw();
        let unix = open_unix(&path, group).unwrap();
        let mut stored = BTreeMap::from([
            ("listen/tcp/apid".to_owned(), socket),
            ("listen/unix/apid".to_owned(), OwnedFd::from(unix)),
        ]);
        let listeners = Listeners::new(&mut stored, InitLink::detached());
        let unix = listeners.unix("apid", Path::new("/nonexistent/apid.sock"), group).unwrap();
        assert_eq!(unix.local_addr().unwrap().as_pathname(), Some(path.as_path()));
        let tcp = Socket::from(listeners.tcp("apid", 0).unwrap());
        assert_eq!(tcp.local_addr().unwrap().as_socket(), Some(address));
    }

    #[test]
    fn a_unix_socket_replaces_a_stale_one_and_keeps_others_out() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run/machine.sock");
        let listeners = Listeners::new(&mut BTreeMap::new(), InitLink::detached());
        let group = rustix::process::getgid().as_raw();
        drop(listeners.unix("machine", &path, group).unwrap());
        let _second = listeners.unix("machine", &path, group).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o660);
    }
}
