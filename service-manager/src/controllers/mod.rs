//! The controller runtime.
//!
//! A controller is data: a name, the types it reads, the types it writes, and a pure function from a snapshot of the
//! former to actions. The runtime calls it at the start and after every change of an input, performs the actions,
//! and after a failure tries again, ever more slowly, saying why in the log `controller-runtime`. Nothing else stops.
//!
//! | task | reads | writes | ends |
//! |---|---|---|---|
//! | [`drive`], one a controller | changes of its inputs | its outputs, its effects | with machined |

mod addresses;
mod api_certificate;
mod cluster;
mod controller;
pub mod dependencies;
mod diagnostics;
mod environment;
mod etc_files;
mod hostname;
mod hosts;
mod kernel_params;
mod machine_type;
mod network_reasons;
mod network_status;
mod resolver;
mod root_secrets;
mod sections;
mod volume_mounts;

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use runtime::Runtime;
use runtime::journal::Journal;

use controller::{Action, Controller, Snapshot};

const FIRST_BACK_OFF: Duration = Duration::from_secs(1);
const LONGEST_BACK_OFF: Duration = Duration::from_secs(60);

pub(crate) use environment::{environment, variables};
pub(crate) use etc_files::publish_as as publish_etc_file;
pub(crate) use kernel_params::NEEDED as NEEDED_KERNEL_PARAMS;

/// Every controller.
pub(crate) static ALL: [&Controller; 16] = [
    &addresses::CONTROLLER,
    &addresses::HARDWARE,
    &api_certificate::CONTROLLER,
    &cluster::CONTROLLER,
    &diagnostics::CONTROLLER,
    &environment::CONTROLLER,
    &hostname::CONTROLLER,
    &hosts::CONTROLLER,
    &kernel_params::CONTROLLER,
    &machine_type::CONTROLLER,
    &network_status::CONTROLLER,
    &resolver::CONTROLLER,
    &root_secrets::ROOT,
    &root_secrets::NAMES,
    &sections::CONTROLLER,
    &volume_mounts::CONTROLLER,
];

/// Starts every controller.
pub(crate) fn start(runtime: &Arc<Runtime>) {
    for controller in ALL {
        runtime.start_task(controller.name, "a controller", drive(runtime.clone(), controller));
    }
}

async fn drive(runtime: Arc<Runtime>, controller: &'static Controller) {
    let mut changes = runtime.store.follow(controller.inputs);
    let mut back_off = FIRST_BACK_OFF;
    runtime.journal.controller(&format!("{}: controller starting", controller.name));
    loop {
        match turn(&runtime, controller) {
            Ok(()) => {
                back_off = FIRST_BACK_OFF;
                changes.next().await;
            }
            Err(error) => {
                let seconds = back_off.as_secs();
                let text = format!("{}: controller failed: {error}; again in {seconds} s", controller.name);
                runtime.journal.controller(&text);
                let _ = tokio::time::timeout(back_off, changes.next()).await;
                back_off = (back_off * 2).min(LONGEST_BACK_OFF);
            }
        }
    }
}

fn turn(runtime: &Runtime, controller: &'static Controller) -> Result<(), String> {
    let resources = controller.inputs.iter().map(|kind| (kind.kind, runtime.store.list(kind))).collect();
    let snapshot = Snapshot { resources, parameters: &runtime.parameters };
    for action in (controller.reconcile)(&snapshot)? {
        perform(runtime, controller, action, &runtime.journal)?;
    }
    Ok(())
}

fn perform(
    runtime: &Runtime,
    controller: &Controller,
    action: Action,
    journal: &Journal,
) -> Result<(), String> {
    match action {
        Action::Put(kind, ..) if !controller.outputs.contains(&kind) => {
            Err(format!("{} is no declared output", kind.kind))
        }
        Action::Put(kind, id, spec) => {
            if runtime.store.put(controller.name, kind, id, spec).map_err(|e| e.to_string())? {
                journal.controller(&format!("{}: updated {} {id}", controller.name, kind.kind));
            }
            Ok(())
        }
        Action::Replace(kind, _) if !controller.outputs.contains(&kind) => {
            Err(format!("{} is no declared output", kind.kind))
        }
        Action::Replace(kind, wanted) => {
            runtime.store.replace(controller.name, kind, wanted).map_err(|e| e.to_string())
        }
        Action::SetHostname { hostname, domain } => set_hostname(&hostname, &domain),
        Action::KernelParams(wanted) => kernel_params::perform(runtime, &wanted),
        Action::WriteFile { path, text } => {
            write_file(path, &text)?;
            etc_files::publish(runtime, path, &text)
        }
    }
}

fn set_hostname(hostname: &str, domain: &str) -> Result<(), String> {
    rustix::system::sethostname(hostname.as_bytes()).map_err(|e| format!("set host name {hostname}: {e}"))?;
    rustix::system::setdomainname(domain.as_bytes()).map_err(|e| format!("set domain name {domain}: {e}"))
}

/// Writes in place: the file is the source of a bind mount, which follows the inode and not the name.
fn write_file(path: &str, text: &str) -> Result<(), String> {
    if fs::read_to_string(path).is_ok_and(|present| present == text) {
        return Ok(());
    }
    fs::write(path, text).map_err(|e| format!("write {path}: {e}"))
}

#[cfg(test)]
pub(crate) mod testing {
    use config::cmdline::NodeParameters;
    use runtime::store::{MACHINE_CONFIG, MachineDocument, Spec};

    use super::*;

    /// A snapshot of resources made for a test.
    pub(crate) fn snapshot<'a>(
        store: &runtime::store::Store,
        parameters: &'a NodeParameters,
    ) -> Snapshot<'a> {
        let resources = runtime::store::ALL.iter().map(|kind| (kind.kind, store.list(kind))).collect();
        Snapshot { resources, parameters }
    }

    /// A store that holds a machine config with this `machine` section besides the type.
    pub(crate) fn store_with_config(machine: &str) -> runtime::store::Store {
        let text = format!(
            "version: v1alpha1\nmachine:\n  type: controlplane\n  token: aaaaaa.bbbbbbbbbbbbbbbb\n{machine}"
        );
        let loaded = config::load(text.as_bytes()).unwrap_or_else(|e| panic!("{e}"));
        let (config, documents) = (loaded.config, loaded.documents);
        let store = runtime::store::Store::new();
        let spec = Spec::MachineConfig(Arc::new(MachineDocument::new(
            zeroize::Zeroizing::new(text),
            config,
            documents,
        )));
        store.put(MACHINE_CONFIG.writer, &MACHINE_CONFIG, "v1alpha1", spec).unwrap();
        store
    }

    #[test]
    fn every_output_has_its_controller_as_writer_and_no_two_share_one() {
        let mut seen = Vec::new();
        for controller in ALL {
            for kind in controller.outputs {
                assert_eq!(kind.writer, controller.name);
                assert!(!seen.contains(&kind.kind), "{}", kind.kind);
                seen.push(kind.kind);
            }
        }
    }

    #[test]
    fn files_keep_their_inode() {
        use std::os::unix::fs::MetadataExt;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("hosts");
        let name = path.to_str().unwrap();
        write_file(name, "a longer text\n").unwrap();
        let before = fs::metadata(&path).unwrap().ino();
        write_file(name, "short\n").unwrap();
        assert_eq!(
            (fs::metadata(&path).unwrap().ino(), fs::read_to_string(&path).unwrap()),
            (before, "short\n".into())
        );
    }
}
