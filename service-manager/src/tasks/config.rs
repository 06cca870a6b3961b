//! Waiting for the machine config.
//!
//! Order: an earlier machined's copy; STATE; everything else, in [`source`]'s order; else maintenance mode. A source
//! that should have a config and has none, or a wrong one, is said on the console and tried again: when a block
//! device appears, when somebody has unlocked STATE, and at growing intervals.
//! A node that has a config which it cannot open is locked ([`locked`]): STATE alone is tried again, also
//! with a key server that is away, and every other source is left alone.
//! Does not: open the node to everybody while a server that someone named does not answer: it may be back soon. A
//! volume that is not there is another matter: without it the machine is blank.
//! Source: docs/users/config-lifecycle.md.

use runtime::sequencer::TaskFuture;
use std::sync::Arc;
use std::time::Duration;

use api::event::Payload;
use api::proto::machine::{ConfigLoadErrorEvent, ConfigValidationErrorEvent};
use config::cmdline::ConfigSource;
use zeroize::Zeroizing;

use super::status::{Stage, publish_stage};
use crate::configuration::found::{Candidate, Origin, Search};
use crate::configuration::refused::{self, Place};
use crate::configuration::source;
use crate::configuration::waiting::Pending;
use crate::configuration::{self, change, pending};
use crate::locked::{Look, Maintenance, Memory, decide};
use crate::node::Node;
use crate::volumes;

const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// How long the drivers of all disks may take before a config is taken from elsewhere than STATE.
const SETTLE_DEADLINE: Duration = Duration::from_secs(10);

/// Why there is no config yet.
enum LookError {
    /// It was not found or not readable.
    Load(String),
    /// It was read and is wrong.
    Invalid(String),
    /// This node was never given one: no fault. Where one may still come from.
    Nothing(Option<String>),
    /// There is one, which cannot be opened now; why.
    Locked(String),
}

/// Waits for a config.
pub fn load_config(node: Arc<Node>) -> TaskFuture {
    Box::pin(async move {
        let mut devices = node.devices.subscribe();
        let mut config = node.runtime.config.subscribe();
        let mut opened = node.volumes.openings();
        if config.borrow().is_some() {
            return Ok(());
        }
        settle(&node).await;
        let mut search = Looking::default();
        let mut wait = FIRST_WAIT;
        loop {
            devices.mark_unchanged();
            opened.mark_unchanged();
            match search.look(&node).await {
                Ok(()) => return Ok(()),
                Err(error) => {
                    search.report(&node, &error, wait);
                    wait_in_maintenance(&node, &error);
                }
            }
            node.configuration.misses.send_modify(|count| *count += 1);
            tokio::select! {
                // Someone applied one.
                _ = config.wait_for(|config| config.is_some()) => return Ok(()),
                _ = devices.changed() => {}
                _ = opened.changed() => {}
                () = tokio::time::sleep(wait) => {}
            }
            wait = (wait * 2).min(LONGEST_WAIT);
        }
    })
}

/// Opens the API without certificates, as far as the reason allows that.
fn wait_in_maintenance(node: &Node, error: &LookError) {
    let next = match error {
        LookError::Nothing(_) => Maintenance::Open,
        LookError::Locked(why) => Maintenance::Locked(why.clone()),
        // A node that was locked stays so until it is known to be open.
        LookError::Load(_) | LookError::Invalid(_) => return,
    };
    let stage = match &next {
        Maintenance::Locked(why) => Stage::Locked(why.clone()),
        Maintenance::Open | Maintenance::No => Stage::Maintenance,
    };
    let is_new = node.configuration.maintenance.send_if_modified(|now| {
        // Somebody gave it a config meanwhile.
        let is_new = *now != next && node.runtime.config.borrow().is_none();
        if is_new {
            *now = next;
        }
        is_new
    });
    if is_new {
        publish_stage(node, "", &stage);
    }
}

/// Opening it derives keys, and may wait for a server.
async fn look_for_state(node: &Arc<Node>) -> Look {
    let worker = node.clone();
    let looked =
        tokio::task::spawn_blocking(move || configuration::look_for_state(&worker.configuration)).await;
    looked.unwrap_or_else(|error| Look::Closed(error.to_string()))
}

async fn memory(node: &Arc<Node>) -> Memory {
    let worker = node.clone();
    let read = tokio::task::spawn_blocking(move || configuration::memory(&worker.configuration)).await;
    read.unwrap_or_else(|error| Memory::Unreadable(error.to_string()))
}

/// Waits until STATE, if this machine has one, can be there: whatever another source says, STATE is newer.
async fn settle(node: &Arc<Node>) {
    // init found the root on the disk where STATE would be.
    if node.runtime.boot.root_source.contains("(ROOT-") {
        return;
    }
    let mut devices = node.devices.subscribe();
    let mut settled = node.configuration.disks_settled.subscribe();
    let due = async {
        // The fast drivers first: with a STATE behind one of them nothing else is waited for.
        while look_for_state(node).await.may_be_late() {
            tokio::select! {
                _ = devices.changed() => {}
                _ = settled.wait_for(|settled| *settled) => return,
            }
        }
    };
    node.configuration.misses.send_modify(|count| *count += 1);
    if tokio::time::timeout(SETTLE_DEADLINE, due).await.is_err() {
        let seconds = SETTLE_DEADLINE.as_secs();
        node.runtime.journal.warn(&format!(
            "drivers of disks took longer than {seconds} s (deadline settle): going on without STATE"
        ));
    }
}

/// What one wait for a config remembers between two looks.
#[derive(Default)]
struct Looking {
    /// This boot was counted for a config that waits for confirmation.
    begun: bool,
    /// What is wrong with STATE, so that it is said once.
    state_error: String,
    /// Why the node is locked, for the same reason: it may be so for days.
    lock: String,
}

impl Looking {
    async fn look(&mut self, node: &Arc<Node>) -> Result<(), LookError> {
        let mut look = look_for_state(node).await;
        let pending = if node.volumes.state().is_some() && !std::mem::replace(&mut self.begun, true) {
            pending::begin_boot(&node.configuration)
        } else {
            None
        };
        let mut kept = source::from_state(&node.configuration);
        if let Search::Found(candidate) = &kept
            && !change::is_for_keeps(&candidate.text)
            && node.runtime.parameters.config.as_ref().is_some_and(|source| *source != ConfigSource::None)
        {
            self.say_once(
                node,
                "found existing config, but persistence is disabled, downloading config".to_owned(),
            );
            kept = Search::Nothing;
        }
        match kept {
            Search::Found(candidate) => match take_kept(node, candidate).await {
                Ok(()) => {
                    if let Some(pending) = pending {
                        pending::arm(&node.configuration, pending);
                    }
                    return Ok(());
                }
                Err(LookError::Load(error) | LookError::Invalid(error)) => {
                    look = Look::Unusable(self.state_error_with(node, pending, &error)?);
                }
                Err(error) => return Err(error),
            },
            Search::Failed(error) | Search::Absent(error) => look = Look::Unusable(error),
            Search::Nothing => {}
        }
        let is_open_wanted = node.runtime.parameters.open_maintenance;
        match &look {
            Look::Unusable(why) => refused::note(&node.runtime, Place::State, why),
            _ => refused::forget(&node.runtime, Place::State),
        }
        if let Maintenance::Locked(why) = decide(&look, &memory(node).await, is_open_wanted) {
            return Err(LookError::Locked(why));
        }
        if let Some(problem) = look.problem() {
            self.say_once(node, format!("{problem}; billet.maintenance=open: going on without STATE"));
        }
        let taken = look_outside(node).await;
        match &taken {
            Err(LookError::Load(why) | LookError::Invalid(why)) => {
                refused::note(&node.runtime, Place::Outside, why)
            }
            Ok(()) | Err(LookError::Nothing(_) | LookError::Locked(_)) => {
                refused::forget(&node.runtime, Place::Outside)
            }
        }
        taken
    }

    /// A config on STATE that this version cannot use: one that nobody confirmed gives way to the one before.
    fn state_error_with(
        &mut self,
        node: &Arc<Node>,
        pending: Option<Pending>,
        error: &str,
    ) -> Result<String, LookError> {
        let text = format!("the configuration on STATE cannot be used: {error}");
        match pending {
            Some(pending) => {
                pending::give_up(&node.configuration, &pending, "the configuration could not be used");
                self.say_once(node, text);
                Err(LookError::Load("trying the last confirmed configuration".to_owned()))
            }
            None => Ok(text),
        }
    }

    fn report(&mut self, node: &Node, error: &LookError, wait: Duration) {
        let lock = match error {
            LookError::Locked(why) => why.as_str(),
            _ => "",
        };
        if lock.is_empty() || self.lock != lock {
            report(node, error, wait);
        }
        lock.clone_into(&mut self.lock);
    }

    fn say_once(&mut self, node: &Node, text: String) {
        if self.state_error != text {
            for line in text.lines() {
                node.runtime.journal.warn(&format!("machine config: {line}"));
            }
            self.state_error = text;
        }
    }
}

/// Takes the first config that a source but STATE has.
async fn look_outside(node: &Arc<Node>) -> Result<(), LookError> {
    match source::from_outside(&node.configuration).await {
        Search::Found(candidate) => enter_from_outside(node, candidate).await,
        Search::Failed(error) => Err(LookError::Load(error)),
        Search::Absent(text) => Err(LookError::Nothing(Some(text))),
        Search::Nothing => Err(LookError::Nothing(None)),
    }
}

/// Takes the config on STATE.
async fn take_kept(node: &Arc<Node>, candidate: Candidate) -> Result<(), LookError> {
    admit(node, &candidate).await?;
    enter(node, candidate)
}

/// Before a config does anything: the TPM hears of one that whoever holds the machine may have written.
async fn admit(node: &Arc<Node>, candidate: &Candidate) -> Result<(), LookError> {
    let (trust, is_for_keeps) = (candidate.origin.trust(), change::is_for_keeps(&candidate.text));
    node.register.admit_soon(trust, is_for_keeps).await.map_err(LookError::Load)
}

/// Makes STATE as the candidate wants it, if it is missing, and takes the candidate; a STATE that it opened and that has
/// a config goes before it.
async fn enter_from_outside(node: &Arc<Node>, candidate: Candidate) -> Result<(), LookError> {
    let config = configuration::read(&node.runtime, &candidate.text)
        .map_err(|error| LookError::Invalid(format!("from {}: {error}", candidate.origin)))?;
    admit(node, &candidate).await?;
    if let Err(error) = volumes::provision_system_disk(&node.volumes, Some(Arc::new(config))).await {
        node.runtime
            .journal
            .warn(&format!("{error}; without STATE the machine config lasts until a restart"));
    }
    match source::from_state(&node.configuration) {
        Search::Found(kept) if change::is_for_keeps(&kept.text) => enter(node, kept),
        _ => enter(node, candidate),
    }
}

/// Checks a candidate and takes it.
fn enter(node: &Node, candidate: Candidate) -> Result<(), LookError> {
    let Candidate { origin, text } = candidate;
    let kept = text.clone();
    configuration::put_into_force(&node.configuration, text)
        .map_err(|error| LookError::Invalid(format!("from {origin}: {error}")))?;
    node.runtime.journal.say(&format!("machine config: taken from {origin}"));
    match origin {
        Origin::State => configuration::remember(&node.configuration),
        _ => configuration::keep_on_state(&node.configuration, &kept),
    }
    Ok(())
}

fn report(node: &Node, error: &LookError, wait: Duration) {
    let (text, event) = match error {
        LookError::Load(text) | LookError::Nothing(Some(text)) | LookError::Locked(text) => {
            (text, Payload::ConfigLoadError(ConfigLoadErrorEvent { error: text.clone() }))
        }
        LookError::Invalid(text) => {
            (text, Payload::ConfigValidationError(ConfigValidationErrorEvent { error: text.clone() }))
        }
        LookError::Nothing(None) => return,
    };
    node.runtime.events.publish("", &event);
    let seconds = wait.as_secs();
    // One line of the kernel log each: a person reads this on a console.
    for line in text.lines() {
        node.runtime.journal.warn(&format!("machine config: {line}"));
    }
    node.runtime
        .journal
        .warn(&format!("machine config: looking again in {seconds} s, and when a disk appears"));
}

/// Takes the copy of an earlier machined; says whether it could.
pub fn restore_config(node: &Node, text: Zeroizing<String>) -> bool {
    // Found again, so that a later change can be kept.
    if let Some(problem) = configuration::look_for_state(&node.configuration).problem() {
        node.runtime.journal.warn(problem);
    }
    configuration::put_into_force(&node.configuration, text).is_ok()
}

#[cfg(test)]
mod tests {
    use runtime::store::CONFIG_REFUSAL;

    use super::*;

    #[test]
    fn a_lock_is_kept_while_other_sources_fail_and_ends_with_a_config() {
        let dir = tempfile::tempdir().unwrap();
        let node = crate::server::tests_node(dir.path().to_owned());
        let kind = || node.configuration.maintenance.borrow().clone();
        wait_in_maintenance(&node, &LookError::Load("unreachable".to_owned()));
        assert_eq!(kind(), Maintenance::No, "a server that was named opens the node to nobody");
        wait_in_maintenance(&node, &LookError::Nothing(None));
        assert_eq!(kind(), Maintenance::Open);
        // A disk with STATE appears late.
        wait_in_maintenance(&node, &LookError::Locked("no key matched".to_owned()));
        assert_eq!(kind().lock(), Some("no key matched"));
        wait_in_maintenance(&node, &LookError::Invalid("x".to_owned()));
        assert_eq!(kind().lock(), Some("no key matched"));
        configuration::put_into_force(&node.configuration, Zeroizing::new(CONFIG.to_owned())).unwrap();
        assert_eq!(kind(), Maintenance::No);
        // A look that began before that.
        wait_in_maintenance(&node, &LookError::Locked("late".to_owned()));
        assert_eq!(kind(), Maintenance::No);
    }

    const CONFIG: &str = "version: v1alpha1\nmachine: {type: worker, token: a.b, install: {disk: /dev/vda}}\n\
        cluster: {controlPlane: {endpoint: 'https://10.0.0.1:6443'}}\n";

    fn refusal(node: &Node, id: &str) -> Option<String> {
        node.runtime.store.get(&CONFIG_REFUSAL, id).map(|found| found.spec.yaml().unwrap())
    }

    fn inline(text: &str) -> Option<String> {
        use base64::Engine;
        Some(base64::engine::general_purpose::STANDARD.encode(text))
    }

    /// From a kernel parameter, and from STATE, whose one goes before it; each is gone with a config that is taken.
    #[tokio::test]
    async fn a_config_that_is_refused_at_boot_is_among_the_diagnostics() {
        let dir = tempfile::tempdir().unwrap();
        let bad = CONFIG.replace("type: worker", "type: woker, password: geheim");
        let node = crate::server::tests_node_of(dir.path().join("root"), |runtime| {
            runtime.parameters.config_inline = inline(&bad);
        });
        let looked = Looking::default().look(&node).await;
        assert!(matches!(looked, Err(LookError::Invalid(_))));
        let reason = refusal(&node, "outside").unwrap();
        assert!(reason.contains("talos.config.inline") && reason.contains("machine.type"), "{reason}");
        assert!(!reason.contains("geheim"), "{reason}");
        // STATE appears, with one that is no better.
        let state = dir.path().join("state");
        std::fs::create_dir(&state).unwrap();
        std::fs::write(state.join("config.yaml"), &bad).unwrap();
        node.volumes.set_state(volumes::State::at(&state));
        let looked = Looking::default().look(&node).await;
        assert!(matches!(looked, Err(LookError::Locked(_))));
        assert!(refusal(&node, "state").unwrap().contains("on STATE cannot be used"));
        std::fs::write(state.join("config.yaml"), CONFIG).unwrap();
        assert!(Looking::default().look(&node).await.is_ok());
        assert_eq!((refusal(&node, "state"), refusal(&node, "outside")), (None, None));
    }

    /// Every source but STATE, here the one of the command line, is left alone while META says that there is a config.
    #[tokio::test]
    async fn a_locked_machine_takes_no_config_from_anywhere() {
        let dir = tempfile::tempdir().unwrap();
        let configured = |is_opened: bool| {
            let node = crate::server::tests_node_of(dir.path().to_owned(), |runtime| {
                runtime.parameters.config_inline = inline(CONFIG);
                runtime.parameters.open_maintenance = is_opened;
            });
            node.meta.set_now(installer::meta::tags::CONFIGURED, b"1").unwrap();
            node
        };
        let node = configured(false);
        let looked = Looking::default().look(&node).await;
        assert!(matches!(looked, Err(LookError::Locked(why)) if why.contains("STATE is not there")));
        assert!(node.runtime.config().is_none());
        // Only by an explicit parameter.
        let node = configured(true);
        let looked = Looking::default().look(&node).await;
        assert!(!matches!(looked, Err(LookError::Locked(_))));
        assert!(node.runtime.config().is_some());
    }
}
