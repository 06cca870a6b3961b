//! What a cluster is made from.

use std::net::Ipv4Addr;
use std::path::PathBuf;

use config::Secret;
use serde::{Deserialize, Serialize};

use crate::Error;
use crate::network::Network;

/// The longest name of a cluster or a node: together they name containers and namespaces.
const LONGEST_NAME: usize = 40;

/// What nodes run: an image's parts, as `cargo xtask build` leaves them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Image {
    /// squashfs files, the lowest first, without that of the kernel.
    pub layers: Vec<PathBuf>,
    /// The program that is PID 1.
    pub init: PathBuf,
    /// The root manifest that belongs to the layers.
    pub manifest: PathBuf,
}

/// A node to be made. Its configuration is a secret: no `Debug`.
#[derive(Clone)]
pub struct NodeSpec {
    /// Its host name: letters, digits and `-`.
    pub name: String,
    /// Its address, in the cluster's network.
    pub address: Ipv4Addr,
    /// Whether it is one of the control plane.
    pub is_control_plane: bool,
    /// Its configuration; without one it waits for one.
    pub config: Option<Secret>,
}

/// Checks names and addresses.
///
/// # Errors
/// [`Error::Spec`] with the name or address that is wrong.
pub(crate) fn check(name: &str, network: &Network, nodes: &[NodeSpec]) -> Result<(), Error> {
    check_name("cluster", name)?;
    for (index, node) in nodes.iter().enumerate() {
        check_name("node", &node.name)?;
        if !network.has(node.address) {
            let text = format!(
                "node {:?}: {} is no address for a node in {}: use one between {} and the broadcast address",
                node.name,
                node.address,
                network.cidr(),
                network.host()
            );
            return Err(Error::Spec(text));
        }
        let before = nodes.get(..index).unwrap_or_default();
        if let Some(other) =
            before.iter().find(|other| other.name == node.name || other.address == node.address)
        {
            let text = format!("nodes {:?} and {:?} have the same name or address", other.name, node.name);
            return Err(Error::Spec(text));
        }
    }
    Ok(())
}

pub(crate) fn check_name(what: &str, name: &str) -> Result<(), Error> {
    let is_good = (1..=LONGEST_NAME).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
        && !name.starts_with('-')
        && !name.ends_with('-');
    if is_good {
        return Ok(());
    }
    Err(Error::Spec(format!(
        "{what} name {name:?}: use 1 to {LONGEST_NAME} lowercase letters, digits and `-`, as in `billet-default`"
    )))
}
