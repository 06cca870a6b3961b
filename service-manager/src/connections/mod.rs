//! Connections of clients to apid and trustd: how many there may be, and HTTP/2 on each.
//!
//! Owns: places with limits ([`Places`]), the preface's deadline and HTTP/2's limits ([`http2`]), and how many lines of the
//! log are about clients ([`Lines`]).
//! Does not: shake hands (`api::tls`); answer requests.

// Numbers come from clients: a sum that overflows would end the program for everyone.
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

pub(crate) mod http2;
mod lines;
mod places;

pub(crate) use lines::{Lines, Rate, Rates};
pub(crate) use places::{Held, Most, Places};
