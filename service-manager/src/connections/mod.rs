//! Connections of clients to apid and trustd: how many there may be, and HTTP/2 on each.
//!
//! Owns: places with limits ([`Places`]), the greeting's deadline and HTTP/2's limits ([`http2`]).
//! Does not: shake hands (`api::tls`); answer requests.

pub(crate) mod http2;
mod places;

pub(crate) use places::{Held, Most, Places};
