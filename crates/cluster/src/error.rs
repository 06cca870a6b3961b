//! What can go wrong with a cluster.

use std::path::PathBuf;

/// Why something about a cluster was not done.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Namespaces, mounts and devices of the network take root.
    #[error("nodes that are containers need root: run this as root, or with sudo")]
    NotRoot,
    /// One name, one cluster.
    #[error("cluster {name:?} exists in {}: destroy it first, or choose another name", .directory.display())]
    Exists {
        /// Its name.
        name: String,
        /// Its directory.
        directory: PathBuf,
    },
    /// It is not there.
    #[error("there is no cluster {name:?}: {} has no record of it", .directory.display())]
    NoCluster {
        /// Its name.
        name: String,
        /// Where it would be.
        directory: PathBuf,
    },
    /// Something else wrote there, or another version.
    #[error("read the record {}: {source}", .path.display())]
    Record {
        /// The file.
        path: PathBuf,
        /// Why.
        source: serde_json::Error,
    },
    /// What was asked for contradicts itself.
    #[error("{0}")]
    Spec(String),
    /// A file or a directory.
    #[error("{what} {}: {source}", .path.display())]
    File {
        /// `make`, `read`, `resolve`, `write`, `remove`.
        what: &'static str,
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A mount.
    #[error("{what} {}: {source}", .path.display())]
    Mount {
        /// `mount an overlay on`, `unmount`.
        what: &'static str,
        /// Where.
        path: PathBuf,
        /// Why.
        source: rustix::io::Errno,
    },
    /// A program of the host that is not there.
    #[error("start {program}: {source}; install {package}")]
    NoProgram {
        /// Its name.
        program: &'static str,
        /// What has it, on Debian.
        package: &'static str,
        /// Why.
        source: std::io::Error,
    },
    /// A program of the host that failed.
    #[error("{command} failed: {said}")]
    Program {
        /// Its words.
        command: String,
        /// What it wrote, and how it ended.
        said: String,
    },
}
