//! Clusters on this machine: each node is a container that the image's own init and machined run in.
//!
//! | module | what it does |
//! |---|---|
//! | [`spec`] | what a cluster is made from, and which names and addresses follow |
//! | [`root`] | the image's layers, mounted once, and a root for each node |
//! | [`network`] | a bridge with this machine's address, a network namespace for each node |
//! | `nat` | the way of nodes to the outside |
//! | `cgroups` | the control groups that runc leaves |
//! | [`bundle`] | the OCI configuration of a node |
//! | [`runtime`] | runc: starting, ending, asking |
//! | [`program`] | running host programs |
//!
//! Owns: the state directory of a cluster, from [`create`] to [`Cluster::destroy`].
//! Does not: make configurations, or speak to nodes.
//! Needs: root, runc, iproute2, nftables, loop devices, and a state directory whose file system can hold the upper layer of an overlay.
//! Order: what is made is noted before it is made, so that `destroy` finds everything that a `create` left behind.
//! Fails by: [`Error`], which names the step and what the host's program said.
#![warn(missing_docs)]

pub mod bundle;
mod cgroups;
mod error;
mod nat;
pub mod network;
pub mod program;
pub mod root;
pub mod runtime;
pub mod spec;

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use error::Error;
use spec::{Image, NodeSpec};

/// The record of a cluster in its directory.
const RECORD: &str = "cluster.json";
/// A node's init asks machined to stop its services: pods have their grace periods.
const STOP_DEADLINE: Duration = Duration::from_secs(60);

/// A cluster on this machine.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Cluster {
    /// Its name.
    pub name: String,
    /// The network of its nodes.
    pub network: network::Network,
    /// What its nodes run.
    pub image: Image,
    /// Its nodes, in the order in which they were asked for.
    pub nodes: Vec<Node>,
    /// This machine forwarded nothing before.
    #[serde(default)]
    turned_forwarding_on: bool,
    #[serde(skip)]
    directory: PathBuf,
}

/// A node as the record has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// Its host name.
    pub name: String,
    /// Its address in the cluster's network.
    pub address: std::net::Ipv4Addr,
    /// Whether it is one of the control plane.
    #[serde(default)]
    pub is_control_plane: bool,
}

/// Checks that a cluster of this name can be made: before anything is prepared for it.
///
/// # Errors
/// [`Error::NotRoot`], [`Error::Exists`], [`Error::Spec`] for a name or a state directory that will not do.
pub fn check(state: &Path, name: &str) -> Result<(), Error> {
    spec::check_name("cluster", name)?;
    if !rustix::process::geteuid().is_root() {
        return Err(Error::NotRoot);
    }
    let directory = state.join(name);
    if directory.exists() {
        return Err(Error::Exists { name: name.to_owned(), directory });
    }
    make_directory(state)?;
    root::check_file_system(state)
}

/// Makes a cluster and starts its nodes. `state` has one directory for each cluster; `tell` hears of every step.
///
/// # Errors
/// [`Error`]; what was made until then is there for [`Cluster::destroy`].
pub fn create(
    state: &Path,
    name: &str,
    network: network::Network,
    image: Image,
    nodes: &[NodeSpec],
    tell: &mut dyn FnMut(&str),
) -> Result<Cluster, Error> {
    check(state, name)?;
    spec::check(name, &network, nodes)?;
    let directory = state.join(name);
    make_directory(&directory)?;
    let directory = real(directory)?;
    let known = nodes.iter().map(|node| Node {
        name: node.name.clone(),
        address: node.address,
        is_control_plane: node.is_control_plane,
    });
    let mut cluster = Cluster {
        name: name.to_owned(),
        network,
        image,
        nodes: known.collect(),
        turned_forwarding_on: false,
        directory,
    };
    cluster.write_record()?;
    tell("mounting the image's layers");
    root::mount_layers(&cluster.directory, &cluster.image)?;
    tell(&format!("making the network {}", cluster.network.cidr()));
    cluster.network.make_bridge(&cluster.name)?;
    if nat::make(&cluster.network, &cluster.name)? {
        tell("this machine forwards between networks from now on (net.ipv4.ip_forward)");
        cluster.turned_forwarding_on = true;
        cluster.write_record()?;
    }
    for node in nodes {
        tell(&format!("starting node {} at {}", node.name, node.address));
        cluster.prepare(node)?;
        cluster.start(&node.name)?;
    }
    Ok(cluster)
}

/// The cluster of that name.
///
/// # Errors
/// [`Error::NoCluster`], [`Error::Record`].
pub fn find(state: &Path, name: &str) -> Result<Cluster, Error> {
    let directory = state.join(name);
    let path = directory.join(RECORD);
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(Error::NoCluster { name: name.to_owned(), directory });
        }
        Err(source) => return Err(Error::File { what: "read", path, source }),
    };
    let mut cluster: Cluster =
        serde_json::from_str(&text).map_err(|source| Error::Record { path, source })?;
    cluster.directory = real(directory)?;
    Ok(cluster)
}

/// The clusters of a state directory, by name. What is no cluster is left out.
///
/// # Errors
/// [`Error::File`], [`Error::Record`].
pub fn all(state: &Path) -> Result<Vec<Cluster>, Error> {
    let failed = |source| Error::File { what: "read", path: state.to_owned(), source };
    let listed = match fs::read_dir(state) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        listed => listed.map_err(failed)?,
    };
    let mut names: Vec<_> = listed.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
    names.sort();
    names.retain(|name| state.join(name).join(RECORD).is_file());
    names.iter().map(|name| find(state, name)).collect()
}

impl Cluster {
    /// Where everything of it is.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The directory of one of its nodes.
    #[must_use]
    pub fn node_directory(&self, node: &str) -> PathBuf {
        self.directory.join(node)
    }

    /// What a node's init and machined said.
    #[must_use]
    pub fn log(&self, node: &str) -> PathBuf {
        self.node_directory(node).join("console.log")
    }

    /// The name by which the runtime and iproute2 know a node. No name has a dot: no two clusters share one.
    #[must_use]
    pub fn container(&self, node: &str) -> String {
        format!("{}.{node}", self.name)
    }

    fn is_alone(&self) -> bool {
        let state = self.directory.parent().unwrap_or(&self.directory);
        all(state).is_ok_and(|clusters| clusters.iter().all(|other| other.name == self.name))
    }

    fn runtime(&self) -> runtime::Runtime {
        runtime::Runtime::new(&self.directory)
    }

    fn write_record(&self) -> Result<(), Error> {
        let path = self.directory.join(RECORD);
        let text = serde_json::to_string_pretty(self)
            .map_err(|source| Error::Record { path: path.clone(), source })?;
        write(&path, text.as_bytes())
    }

    fn prepare(&self, node: &NodeSpec) -> Result<(), Error> {
        let directory = self.node_directory(&node.name);
        make_directory(&directory)?;
        root::mount_root(&self.directory, &directory, &self.image)?;
        let namespace = self.network.make_namespace(&self.name, &self.container(&node.name), node.address)?;
        let places = bundle::Places::below(&directory, &namespace);
        for path in places.kept() {
            make_directory(path)?;
        }
        let cgroup = cgroups::of_node(&self.name, &node.name);
        let text = bundle::configuration(node, &places, &cgroup).to_string();
        write(&directory.join("config.json"), text.as_bytes())
    }

    /// Starts a node that is not running.
    ///
    /// # Errors
    /// [`Error::Program`] with runc's words.
    pub fn start(&self, node: &str) -> Result<(), Error> {
        self.runtime().run(&self.container(node), &self.node_directory(node), &self.log(node))
    }

    /// Stops a node: its init is asked first, and killed after a minute.
    ///
    /// # Errors
    /// [`Error::Program`].
    pub fn stop(&self, node: &str) -> Result<(), Error> {
        self.runtime().stop(&self.container(node), STOP_DEADLINE)
    }

    /// Whether a node runs.
    ///
    /// # Errors
    /// [`Error::Program`].
    pub fn is_running(&self, node: &str) -> Result<bool, Error> {
        self.runtime().is_running(&self.container(node))
    }

    /// The process that is a node's init, as this machine counts processes.
    ///
    /// # Errors
    /// [`Error::Program`] for a node that does not exist.
    pub fn pid(&self, node: &str) -> Result<u32, Error> {
        self.runtime().pid(&self.container(node))
    }

    /// Ends the nodes and removes everything that belongs to the cluster. What is gone already is no error.
    ///
    /// # Errors
    /// The first [`Error`]; the steps behind it were tried all the same, so that a second call has less to do.
    pub fn destroy(self, tell: &mut dyn FnMut(&str)) -> Result<(), Error> {
        let mut first = Ok(());
        let mut note = |result: Result<(), Error>| {
            if first.is_ok() {
                first = result;
            }
        };
        for node in self.nodes.iter().rev() {
            tell(&format!("ending node {}", node.name));
            note(self.runtime().kill(&self.container(&node.name)));
            note(self.network.remove_namespace(&self.container(&node.name)));
            note(root::unmount(&self.node_directory(&node.name).join(root::ROOT)));
        }
        tell("removing network and files");
        note(self.network.remove_bridge(&self.name));
        note(nat::remove(&self.name));
        // The other clusters of this directory need it still.
        if self.turned_forwarding_on && self.is_alone() {
            note(nat::turn_off());
        }
        note(root::unmount_layers(&self.directory));
        note(cgroups::remove(&self.name));
        first?;
        let failed = |source| Error::File { what: "remove", path: self.directory.clone(), source };
        fs::remove_dir_all(&self.directory).map_err(failed)
    }
}

/// Secrets lie there: configurations and what nodes keep.
fn make_directory(path: &Path) -> Result<(), Error> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(|source| Error::File { what: "make", path: path.to_owned(), source })
}

/// The path without symbolic links: runc takes no other.
fn real(path: PathBuf) -> Result<PathBuf, Error> {
    fs::canonicalize(&path).map_err(|source| Error::File { what: "resolve", path, source })
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    let mut options = OpenOptions::new();
    let file = options.write(true).create(true).truncate(true).mode(0o600).open(path);
    let written = file.and_then(|mut file| file.write_all(bytes));
    written.map_err(|source| Error::File { what: "write", path: path.to_owned(), source })
}

#[cfg(test)]
mod tests;
