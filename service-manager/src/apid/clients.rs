//! What each client of apid may have at once: connections and calls.
//!
//! A client is a certificate, whatever its addresses; in maintenance mode, where no one shows one, an address.
//! Owns: the numbers. Does not: count connections before the end of their handshake (`api::tls`).
//! Fails by: no place, which the caller says to the client; or the end of the oldest connection of who has most.

use std::net::IpAddr;
use std::sync::Arc;

use api::tls::network;
use tokio::sync::oneshot;

use crate::connections::{Held, Most, Places};
use crate::locked::Maintenance;

/// Connections of clients that showed a certificate. Other nodes forward over one connection for each of their clients'.
const CONNECTIONS: Most = Most { of_one: 256, of_all: 512 };
/// The same of one address.
const CONNECTIONS_OF_ADDRESS: Most = Most { of_one: 128, of_all: usize::MAX };
/// Connections in maintenance mode.
const UNKNOWN_CONNECTIONS: Most = Most { of_one: 16, of_all: 64 };
/// Calls under way. Each costs up to what its request may have, and the windows of its answer.
const CALLS: Most = Most { of_one: 256, of_all: 1024 };
/// The same of another node, which passes on what many clients ask.
const CALLS_OF_NODE: usize = 512;
/// Calls in maintenance mode.
const UNKNOWN_CALLS: Most = Most { of_one: 64, of_all: 128 };

/// Whose places count together.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Client {
    /// Who showed this certificate (DER).
    Certificate(Arc<[u8]>),
    /// Whoever comes from this network.
    Address(IpAddr),
}

/// All clients of a server.
#[derive(Debug, Clone)]
pub(super) struct Clients {
    of_address: Places<IpAddr>,
    connections: Places<Client>,
    calls: Places<Client>,
    calls_of_node: usize,
}

/// A connection's places.
#[derive(Debug)]
pub(super) struct Connection {
    _of_address: Option<Held<IpAddr>>,
    _connection: Held<Client>,
    /// Tells that the place is given to another one.
    ended: oneshot::Receiver<()>,
}

impl Connection {
    /// Serves it until it ends, or its place is given to a newer one.
    pub(super) async fn until_ended(mut self, serving: impl Future<Output = ()>) {
        tokio::select! {
            () = serving => {}
            _ = &mut self.ended => {}
        }
    }
}

impl Clients {
    pub(super) fn new(maintenance: &Maintenance) -> Self {
        let known = *maintenance == Maintenance::No;
        let (connections, calls) =
            if known { (CONNECTIONS, CALLS) } else { (UNKNOWN_CONNECTIONS, UNKNOWN_CALLS) };
        Self {
            of_address: Places::new(CONNECTIONS_OF_ADDRESS),
            connections: Places::new(connections),
            calls: Places::new(calls),
            calls_of_node: if known { CALLS_OF_NODE } else { calls.of_one },
        }
    }

    /// A place for a connection. Who has a certificate and as many as it may is refused; who has none gives up its oldest.
    pub(super) fn connect(&self, address: IpAddr, client: &Client) -> Option<Connection> {
        let address = network(address);
        let (of_address, (held, ended)) = match client {
            Client::Certificate(_) => {
                let of_address = self.of_address.hold(&address, 1)?;
                (Some(of_address), self.connections.take_within(client)?)
            }
            Client::Address(_) => (None, self.connections.take(client)),
        };
        Some(Connection { _of_address: of_address, _connection: held, ended })
    }

    /// Places for a call that counts as `weight` ones.
    pub(super) fn call(&self, client: &Client, weight: usize, is_node: bool) -> Option<Held<Client>> {
        if is_node {
            return self.calls.hold_of(client, weight, self.calls_of_node);
        }
        self.calls.hold(client, weight)
    }

    /// Places that are held.
    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.connections.held().saturating_add(self.calls.held())
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot::error::TryRecvError::Closed;

    use super::*;

    #[test]
    fn a_certificate_has_its_share_at_all_addresses_together() {
        let clients = Clients::new(&Maintenance::No);
        let address = |last: usize| IpAddr::from([10, 0, u8::try_from(last / 100).unwrap(), 1]);
        let reader = Client::Certificate(Arc::from(&b"reader"[..]));
        let held: Vec<_> = (0..300).filter_map(|n| clients.connect(address(n), &reader)).collect();
        assert_eq!(held.len(), 256);
        let other = Client::Certificate(Arc::from(&b"other"[..]));
        let others: Vec<_> = (0..300).filter_map(|n| clients.connect(address(n + 1000), &other)).collect();
        assert_eq!(others.len(), 256);
        let admin = Client::Certificate(Arc::from(&b"admin"[..]));
        assert!(clients.connect(IpAddr::from([10, 9, 9, 9]), &admin).is_some());
        let ended =
            |mut connection: Connection| connection.ended.try_recv().is_err_and(|error| error == Closed);
        assert_eq!(held.into_iter().chain(others).filter_map(|c| ended(c).then_some(())).count(), 1);
        let calls: Vec<_> = (0..300).filter_map(|_| clients.call(&reader, 1, false)).collect();
        assert_eq!(calls.len(), 256);
        assert!(clients.call(&admin, 256, false).is_some());
        assert!(clients.call(&admin, 257, false).is_none());
        assert!(clients.call(&admin, 257, true).is_some(), "another node has more");
    }
}
