//! What a node of a Kubernetes cluster runs, rendered from its configuration. Pure: no I/O, no clock, no keys.
//!
//! | module | what it renders |
//! |---|---|
//! | [`version`] | versions of Kubernetes and etcd, and ranges of them: what differs between versions is data |
//! | [`cluster`] | [`Cluster`] and [`Node`]: a configuration with its defaults, and what rendering needs of the machine |
//! | [`arguments`] | arguments of a program: built-in ones by version, `extraArgs` laid over them by a policy |
//! | [`images`] | the image of each program, and the list of all that a node pulls |
//! | [`api_server`], [`controller_manager`], [`scheduler`] | the static pods of a control plane, by [`pod`] |
//! | [`static_pods`] | the static pods that the configuration names |
//! | [`etcd`], [`kubelet`] | arguments and files of the two that machined runs itself |
//! | [`certificates`] | each certificate: who signs it, for whom, for how long, into which file |
//! | [`kubeconfig`] | client configurations |
//! | [`manifests`] | objects that a bootstrap creates: roles, kube-proxy, CoreDNS, flannel |
//! | [`resources`] | what clients see of all this |
//! | [`paths`] | where all of it lies on a node |
//!
//! Fails by: [`Error`], which names the field of the configuration.
#![warn(missing_docs)]

pub mod api_server;
pub mod arguments;
pub mod certificates;
pub mod cluster;
pub mod controller_manager;
mod error;
pub mod etcd;
mod file;
pub mod images;
pub mod kubeconfig;
pub mod kubelet;
pub mod manifests;
pub mod paths;
pub mod pod;
pub mod resources;
pub mod scheduler;
pub mod snapshot;
pub mod static_pods;
pub mod version;

pub use cluster::{Cluster, Node};
pub use error::Error;
pub use file::{File, Owner, yaml};
pub use version::Version;
