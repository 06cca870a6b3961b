//! What a controller is: data, and a pure function.
//!
//! Owns: what a controller may want, and what it sees. Does not: run one; [`super`] does.

use std::collections::BTreeMap;
use std::sync::Arc;

use config::cmdline::NodeParameters;
use runtime::store::{Definition, IN_FORCE, MACHINE_CONFIG, MachineDocument, Resource, Spec};

/// A controller.
pub(crate) struct Controller {
    /// As in the owner field of its outputs.
    pub(crate) name: &'static str,
    /// Types it reads.
    pub(crate) inputs: &'static [&'static Definition],
    /// Types it writes.
    pub(crate) outputs: &'static [&'static Definition],
    /// What follows from the inputs.
    pub(crate) reconcile: fn(&Snapshot<'_>) -> Result<Vec<Action>, String>,
}

/// What a controller wants.
#[derive(Debug, PartialEq)]
pub(crate) enum Action {
    /// One resource to be so.
    Put(&'static Definition, &'static str, Spec),
    /// The resources of a type to be these.
    Replace(&'static Definition, Vec<(String, Spec)>),
    /// The kernel's host and domain name.
    SetHostname { hostname: String, domain: String },
    /// Kernel parameters to be so, and no others.
    KernelParams(KernelParams),
    /// The text of a file that lies on /system.
    WriteFile { path: &'static str, text: String },
}

/// Parameters and values, by id: `proc.sys.net.ipv4.ip_forward`, `sys.block.sda.queue.scheduler`.
pub(crate) type KernelParams = BTreeMap<String, String>;

/// The inputs of a controller at one moment.
pub(crate) struct Snapshot<'a> {
    pub(super) resources: BTreeMap<&'static str, Vec<Arc<Resource>>>,
    pub(crate) parameters: &'a NodeParameters,
}

impl Snapshot<'_> {
    /// The resources of a type, sorted by id.
    pub(crate) fn list(&self, kind: &'static Definition) -> impl Iterator<Item = &Resource> {
        self.resources.get(kind.kind).into_iter().flatten().map(|resource| &**resource)
    }

    /// The machine config in force, once there is one.
    pub(crate) fn machine_config(&self) -> Option<&Arc<MachineDocument>> {
        let in_force = self.list(&MACHINE_CONFIG).find(|resource| resource.metadata.id == IN_FORCE);
        match &in_force?.spec {
            Spec::MachineConfig(document) => Some(document),
            _ => None,
        }
    }
}
