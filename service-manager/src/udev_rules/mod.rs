//! `machine.udev.rules`: owners, permissions, further names and attributes of devices.
//!
//! | task | reads | writes | ends |
//! |---|---|---|---|
//! | [`follow`] | the config; then every device that is there | the rules in force, `UdevRuleStatuses` | with machined |
//! | udevd, at each event | the rules in force | the device's node, links below /dev, its attributes | with the service |
//!
//! Does not: run a udev daemon: the image has none, and no programs that rules could start. What cannot be done here is
//! an inactive rule whose resource says why; nothing of such a rule is applied.
//! Fails by: a line in the log for each device that a rule could not be applied to.

mod device;
mod rule;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Component, Path};
use std::sync::{Arc, Mutex, PoisonError};

use device::Device;
use rule::{Deed, Rule};
use runtime::Runtime;
use runtime::store::{RuntimeSpec, Spec, UDEV_RULE_STATUS, UdevRule};

/// The rules in force, and what they made.
#[derive(Default)]
pub struct Applied {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    rules: Vec<Rule>,
    /// Links below /dev by device.
    links: BTreeMap<String, Vec<String>>,
}

/// Keeps the rules like the config.
pub(crate) async fn follow(runtime: Arc<Runtime>, applied: Arc<Applied>) {
    let mut config = runtime.config.subscribe();
    while config.changed().await.is_ok() {
        let (worker, applied) = (runtime.clone(), applied.clone());
        // Joined, so that two configs are not applied at once.
        let _ = tokio::task::spawn_blocking(move || take(&worker, &applied)).await;
    }
}

/// Puts the rules of the config into force, for all devices that are there.
fn take(runtime: &Runtime, applied: &Applied) {
    let Some(config) = runtime.config() else { return };
    let lines: Vec<&String> = config.machine.udev.iter().flat_map(|udev| &udev.rules).collect();
    let mut rules = Vec::new();
    let mut statuses = Vec::new();
    for (index, line) in lines.into_iter().enumerate() {
        let read = Rule::parse(line);
        let problem = read.as_ref().err().cloned().unwrap_or_default();
        if !problem.is_empty() {
            runtime.journal.warn(&format!("machine.udev.rules[{index}] has no effect: {problem}"));
        }
        let status = UdevRule { rule: line.clone(), active: read.is_ok(), problem };
        statuses.push((format!("{index:03}"), Spec::Runtime(RuntimeSpec::UdevRule(status))));
        rules.extend(read);
    }
    let any = !rules.is_empty();
    applied.state.lock().unwrap_or_else(PoisonError::into_inner).rules = rules;
    if let Err(error) = runtime.store.replace(UDEV_RULE_STATUS.writer, &UDEV_RULE_STATUS, statuses) {
        runtime.journal.warn(&error.to_string());
    }
    if any {
        for directory in device::all(runtime) {
            apply(runtime, applied, "add", &directory);
        }
    }
}

/// Applies the rules to a device that came, changed or went; `path` is its place below /sys.
pub(crate) fn event(runtime: &Runtime, applied: &Applied, action: &str, path: &str) {
    if applied.state.lock().unwrap_or_else(PoisonError::into_inner).rules.is_empty() {
        return;
    }
    match action {
        "remove" => remove_links(runtime, applied, path),
        "add" | "change" | "bind" => apply(runtime, applied, action, path),
        _ => {}
    }
}

fn apply(runtime: &Runtime, applied: &Applied, action: &str, path: &str) {
    let rules = applied.state.lock().unwrap_or_else(PoisonError::into_inner).rules.clone();
    let Some(device) = Device::read(runtime, path) else { return };
    for rule in rules.iter().filter(|rule| device.fulfils(&rule.matches, action)) {
        for deed in &rule.deeds {
            if let Err(error) = perform(runtime, applied, &device, deed) {
                runtime.journal.warn(&format!("udevd: {path}: {error}"));
            }
        }
    }
}

fn perform(runtime: &Runtime, applied: &Applied, device: &Device, deed: &Deed) -> Result<(), String> {
    if let Deed::Attribute(name, value) = deed {
        let value = device.fill(value)?;
        let file = device.attribute_path(name).ok_or_else(|| format!("{name:?} is no attribute"))?;
        return fs::write(file, value).map_err(|e| format!("write attribute {name}: {e}"));
    }
    // A device without a node has no owner and no names.
    let Some(name) = device.node_name() else { return Ok(()) };
    let path = runtime.path("/dev").join(&name);
    match deed {
        Deed::Mode(mode) => fs::set_permissions(&path, fs::Permissions::from_mode(*mode))
            .map_err(|e| format!("set mode of /dev/{name}: {e}")),
        Deed::Owner(owner) => chown(&path, Some(number(runtime, "/etc/passwd", owner)?), None)
            .map_err(|e| format!("set owner of /dev/{name}: {e}")),
        Deed::Group(group) => chown(&path, None, Some(number(runtime, "/etc/group", group)?))
            .map_err(|e| format!("set group of /dev/{name}: {e}")),
        Deed::Symlink(link) => link_to(runtime, applied, device, &name, &device.fill(link)?),
        Deed::Attribute(..) => Ok(()),
    }
}

/// A number, or a name of the image's own list.
fn number(runtime: &Runtime, list: &str, name: &str) -> Result<u32, String> {
    if let Ok(number) = name.parse() {
        return Ok(number);
    }
    let text = fs::read_to_string(runtime.path(list)).unwrap_or_default();
    let mut fields = text.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let found =
        fields.find(|fields| fields.first() == Some(&name)).and_then(|fields| fields.get(2)?.parse().ok());
    found.ok_or_else(|| format!("{list} has no {name:?}; write the number"))
}

/// A further name of a device, relative so that it holds in every mount namespace.
fn link_to(
    runtime: &Runtime,
    applied: &Applied,
    device: &Device,
    target: &str,
    link: &str,
) -> Result<(), String> {
    let plain = Path::new(link).components().all(|part| matches!(part, Component::Normal(_)));
    if link.is_empty() || !plain {
        return Err(format!("{link:?} is no name below /dev"));
    }
    let path = runtime.path("/dev").join(link);
    let failed = |e: std::io::Error| format!("make link /dev/{link}: {e}");
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).map_err(failed)?;
    }
    match fs::symlink_metadata(&path) {
        Ok(found) if !found.is_symlink() => {
            return Err(format!("/dev/{link} is taken by something that is no link"));
        }
        Ok(_) => fs::remove_file(&path).map_err(failed)?,
        Err(_) => {}
    }
    let up = "../".repeat(Path::new(link).components().count() - 1);
    symlink(format!("{up}{target}"), &path).map_err(failed)?;
    let mut state = applied.state.lock().unwrap_or_else(PoisonError::into_inner);
    let links = state.links.entry(device.path.clone()).or_default();
    if !links.iter().any(|known| known == link) {
        links.push(link.to_owned());
    }
    Ok(())
}

fn remove_links(runtime: &Runtime, applied: &Applied, path: &str) {
    let links = applied.state.lock().unwrap_or_else(PoisonError::into_inner).links.remove(path);
    for link in links.into_iter().flatten() {
        if let Err(error) = fs::remove_file(runtime.path("/dev").join(&link)) {
            runtime.journal.warn(&format!("udevd: remove link /dev/{link}: {error}"));
        }
    }
}

#[cfg(test)]
mod tests;
