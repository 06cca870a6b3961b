//! `Environments`: the variables that services get.
//!
//! Does not: show what may be a secret: every reader sees the type, and the config's section is one of secrets. Of proxies
//! the user and the password are hidden, of every other variable the value.

use std::collections::BTreeMap;

use config::Config;
use config::cmdline::NodeParameters;
use runtime::Runtime;
use runtime::store::{ENVIRONMENT, Fact, MACHINE_CONFIG, Spec};

use super::controller::{Action, Controller, Snapshot};

/// Shown in the place of what is hidden.
const HIDDEN: &str = "***";
/// Variables whose values are addresses.
const SHOWN: [&str; 3] = ["http_proxy", "https_proxy", "no_proxy"];

pub(crate) static CONTROLLER: Controller = Controller {
    name: "runtime.EnvironmentController",
    inputs: &[&MACHINE_CONFIG],
    outputs: &[&ENVIRONMENT],
    reconcile,
};

/// Variables by name. The config wins over the command line.
pub(crate) fn variables(parameters: &NodeParameters, config: Option<&Config>) -> BTreeMap<String, String> {
    let mut variables: BTreeMap<_, _> = parameters.environment.iter().cloned().collect();
    variables.extend(config.iter().flat_map(|config| config.machine.env.clone()));
    variables
}

/// `NAME=value` of every variable that the command line and the config give to services.
pub(crate) fn environment(runtime: &Runtime) -> Vec<String> {
    let variables = variables(&runtime.parameters, runtime.config().as_deref());
    variables.into_iter().map(|(name, value)| format!("{name}={value}")).collect()
}

fn reconcile(snapshot: &Snapshot<'_>) -> Result<Vec<Action>, String> {
    let config = snapshot.machine_config().map(|document| &*document.config);
    let variables = variables(snapshot.parameters, config);
    let variables = variables.iter().map(|(name, value)| format!("{name}={}", shown(name, value))).collect();
    let spec = Spec::Fact(Box::new(Fact::Environment { variables }));
    Ok(vec![Action::Put(&ENVIRONMENT, "machined", spec)])
}

fn shown(name: &str, value: &str) -> String {
    if !SHOWN.contains(&name.to_ascii_lowercase().as_str()) {
        return HIDDEN.to_owned();
    }
    match value.rsplit_once('@') {
        Some((before, host)) => {
            let scheme =
                before.split_once("://").map(|(scheme, _)| format!("{scheme}://")).unwrap_or_default();
            format!("{scheme}{HIDDEN}@{host}")
        }
        None => value.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::testing::{snapshot, store_with_config};

    #[test]
    fn variables_are_shown_without_secrets() {
        let store = store_with_config(
            "  env:\n    TOKEN: hunter2\n    https_proxy: http://me:hunter2@proxy.example:3128\n    no_proxy: 10.0.0.0/8\n",
        );
        let actions = reconcile(&snapshot(&store, &Default::default())).unwrap();
        let [Action::Put(_, "machined", spec)] = actions.as_slice() else { panic!("{actions:?}") };
        let text = spec.yaml().unwrap();
        assert!(!text.contains("hunter2"), "{text}");
        for part in ["TOKEN=***", "https_proxy=http://***@proxy.example:3128", "no_proxy=10.0.0.0/8"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
