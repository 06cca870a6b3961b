//! docs/users/encryption.md, keys of a server: sealed at the first boot, away at the second, back again.

use std::net::Ipv4Addr;
use std::time::Duration;

use kms::server::{KEY_BYTES, Server};
use qemu_tests::node::BOOT_LIMIT;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tonic::transport::server::TcpIncoming;

use crate::encryption::{BOOT, MACHINE, node_id, on, section};
use crate::volumes::{BOOTED, Disk, GIB, shut_down};

/// The client's deadline, some slow attempts, and the pause before the next look for a config.
const COME_BACK: Duration = Duration::from_secs(150);

/// The key server of a site, at the host's loopback, which QEMU's user network shows as 10.0.2.2.
pub(crate) struct KeyServer {
    _runtime: Runtime,
    pub(crate) port: u16,
}

impl KeyServer {
    /// At this port; 0 for any. The same key each time, as from a file.
    pub(crate) fn start(port: u16) -> Self {
        Self::with_key(port, 0x4b)
    }

    /// With a key of this byte.
    pub(crate) fn with_key(port: u16, key: u8) -> Self {
        let runtime = Runtime::new().unwrap();
        let listener = runtime.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, port))).unwrap();
        let port = listener.local_addr().unwrap().port();
        let server =
            tonic::transport::Server::builder().add_service(Server::new(&[key; KEY_BYTES]).service());
        runtime.spawn(server.serve_with_incoming(TcpIncoming::from(listener)));
        Self { _runtime: runtime, port }
    }

    pub(crate) fn key(&self, slot: u8) -> String {
        format!("{{kms: {{endpoint: 'grpc://10.0.2.2:{}'}}, slot: {slot}}}", self.port)
    }
}

#[test]
#[ignore = "long run"]
fn a_server_opens_both_volumes_as_soon_as_it_is_there() {
    let disk = Disk::new(4 * GIB);
    let server = KeyServer::start(0);
    let port = server.port;
    let ephemeral = format!("{}, {}", server.key(0), node_id(1));
    let keys = section(&server.key(0), &ephemeral);
    let node = on(&disk, "kms-first", MACHINE).machine_section(&keys).start().unwrap();
    node.wait_api(BOOT).unwrap();
    node.vm().wait_for("STATE is encrypted, opened by the kms key in slot 0", BOOT).unwrap();
    node.vm().wait_for(BOOTED, BOOT).unwrap();
    shut_down(&node);
    drop((node, server));

    // Without the server STATE is locked, the node answers, and nothing is written to it. It takes no config: neither that
    // of its own volume, nor one that somebody applies.
    let node = on(&disk, "kms-away", MACHINE).start().unwrap();
    node.vm()
        .wait_for("STATE on /dev/vda5 is locked: kms key for slot 0: it needs the network", BOOT)
        .unwrap();
    node.vm().wait_for("(deadline kms)", COME_BACK).unwrap();
    node.wait_locked().unwrap();
    let config = node.credentials().machine_config().unwrap();
    let applied = node.apply_in_maintenance(&config).unwrap();
    assert!(
        !applied.success && applied.stderr.contains("is refused, this machine is locked"),
        "{}",
        applied.stderr
    );
    // It comes back: no one has to do anything on the node.
    let server = KeyServer::start(port);
    node.vm().wait_for("machine config: taken from STATE", COME_BACK).unwrap();
    node.vm().wait_for("EPHEMERAL is encrypted, opened by the", BOOT).unwrap();
    node.vm().expect(BOOTED, BOOT_LIMIT).unwrap();
    node.answers(BOOT_LIMIT).unwrap();
    let status = node.admin().ok(&["get", "volumestatus", "-o", "yaml"]).unwrap();
    assert!(status.contains("encryptionKey: kms"), "{status}");
    shut_down(&node);
    drop((node, server));
}
