//! The machine's role, from its config.

use config::MachineType;
use runtime::store::{MACHINE_CONFIG, MACHINE_TYPE, Spec};

use super::controller::{Action, Controller, Snapshot};

pub(crate) static CONTROLLER: Controller = Controller {
    name: "config.MachineTypeController",
    inputs: &[&MACHINE_CONFIG],
    outputs: &[&MACHINE_TYPE],
    reconcile,
};

fn reconcile(snapshot: &Snapshot<'_>) -> Result<Vec<Action>, String> {
    let name = match snapshot.machine_config().map(|document| document.config.machine.machine_type) {
        Some(MachineType::Init) => "init",
        Some(MachineType::ControlPlane) => "controlplane",
        Some(MachineType::Worker) => "worker",
        None => "unknown",
    };
    Ok(vec![Action::Put(&MACHINE_TYPE, "machine-type", Spec::MachineType(name))])
}

#[cfg(test)]
mod tests {
    use runtime::store::Store;

    use super::*;
    use crate::controllers::testing::{snapshot, store_with_config};

    #[test]
    fn the_type_is_unknown_until_there_is_a_config() {
        let none = reconcile(&snapshot(&Store::new(), &Default::default())).unwrap();
        assert_eq!(none, [Action::Put(&MACHINE_TYPE, "machine-type", Spec::MachineType("unknown"))]);
        let some = reconcile(&snapshot(&store_with_config(""), &Default::default())).unwrap();
        assert_eq!(some, [Action::Put(&MACHINE_TYPE, "machine-type", Spec::MachineType("controlplane"))]);
    }
}
