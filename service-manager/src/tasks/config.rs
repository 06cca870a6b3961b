//! Waiting for the machine config.
//!
//! Order: an earlier machined's copy; STATE; everything else, in [`source`]'s order; else maintenance mode. A source
//! that should have a config and has none, or a wrong one, is said on the console and tried again: when a block
//! device appears, when somebody has unlocked STATE, and at growing intervals.
//! Does not: open the node to everybody while a server that someone named does not answer: it may be back soon. A
//! volume that is not there is another matter: without it the machine is blank.
//! Source: spec/machine-facts.md §4.5.

use std::sync::Arc;
use std::time::Duration;

use api::event::Payload;
use api::proto::machine::{ConfigLoadErrorEvent, ConfigValidationErrorEvent};
use config::cmdline::ConfigSource;
use zeroize::Zeroizing;

use crate::configuration::source::{self, Candidate, Origin, Search};
use crate::configuration::{self, change, pending};
use crate::node::Node;
use crate::sequencer::TaskFuture;
use crate::tasks::{Stage, publish_stage};
use crate::volumes;

const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// How long the drivers of all disks may take before a config is taken from elsewhere than STATE.
const SETTLE_DEADLINE: Duration = Duration::from_secs(10);

/// Why there is no config yet.
enum Trouble {
    /// It was not found or not readable.
    Load(String),
    /// It was read and is wrong.
    Invalid(String),
    /// Nobody has given this node one: not an error. Where one may still come from.
    Nothing(Option<String>),
}

/// Waits for a config.
pub fn load_config(node: Arc<Node>) -> TaskFuture {
    Box::pin(async move {
        let mut devices = node.devices.subscribe();
        let mut config = node.config.subscribe();
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
                Err(trouble) => {
                    report(&node, &trouble, wait);
                    if matches!(trouble, Trouble::Nothing(_))
                        && !node.configuration.maintenance.send_replace(true)
                    {
                        publish_stage(&node, "", &Stage::Maintenance);
                    }
                }
            }
            node.config_misses.send_modify(|count| *count += 1);
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

/// Opening it derives keys, and may wait for a server.
async fn find_state(node: &Arc<Node>) -> Result<bool, String> {
    let worker = node.clone();
    let looked = tokio::task::spawn_blocking(move || configuration::find_state(&worker)).await;
    looked.unwrap_or_else(|error| Err(error.to_string()))
}

/// Waits until STATE, if this machine has one, can be there: whatever another source says, STATE is newer.
async fn settle(node: &Arc<Node>) {
    // init found the root on the disk where STATE would be.
    if node.boot.root_source.contains("(ROOT-") {
        return;
    }
    let mut devices = node.devices.subscribe();
    let mut settled = node.configuration.disks_settled.subscribe();
    let due = async {
        // The fast drivers first: with a STATE behind one of them nothing else is waited for.
        while !find_state(node).await.unwrap_or(true) {
            tokio::select! {
                _ = devices.changed() => {}
                _ = settled.wait_for(|settled| *settled) => return,
            }
        }
    };
    node.config_misses.send_modify(|count| *count += 1);
    if tokio::time::timeout(SETTLE_DEADLINE, due).await.is_err() {
        let seconds = SETTLE_DEADLINE.as_secs();
        node.journal.warn(&format!(
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
    state_trouble: String,
}

impl Looking {
    async fn look(&mut self, node: &Arc<Node>) -> Result<(), Trouble> {
        if let Err(error) = find_state(node).await {
            self.say_once(node, error);
        }
        let pending = if node.configuration.state().is_some() && !std::mem::replace(&mut self.begun, true) {
            configuration::begin_boot(node)
        } else {
            None
        };
        let mut kept = source::from_state(node);
        if let Search::Found(candidate) = &kept
            && change::is_not_for_keeps(&candidate.text)
            && node.parameters.config.as_ref().is_some_and(|source| *source != ConfigSource::None)
        {
            self.say_once(
                node,
                "found existing config, but persistence is disabled, downloading config".to_owned(),
            );
            kept = Search::Nothing;
        }
        match kept {
            Search::Found(candidate) => match enter(node, candidate) {
                Ok(()) => {
                    if let Some(pending) = pending {
                        pending::arm(node, pending);
                    }
                    return Ok(());
                }
                Err(Trouble::Load(error) | Trouble::Invalid(error)) => {
                    self.state_trouble_with(node, pending, &error)?;
                }
                Err(Trouble::Nothing(_)) => {}
            },
            Search::Failed(error) | Search::Absent(error) => self.say_once(node, error),
            Search::Nothing => {}
        }
        match source::from_outside(node).await {
            Search::Found(candidate) => enter_from_outside(node, candidate).await,
            Search::Failed(error) => Err(Trouble::Load(error)),
            Search::Absent(text) => Err(Trouble::Nothing(Some(text))),
            Search::Nothing => Err(Trouble::Nothing(None)),
        }
    }

    /// A config on STATE that this version cannot use: one that nobody confirmed gives way to the one before.
    fn state_trouble_with(
        &mut self,
        node: &Arc<Node>,
        pending: Option<pending::Pending>,
        error: &str,
    ) -> Result<(), Trouble> {
        self.say_once(node, format!("the configuration on STATE cannot be used: {error}"));
        match pending {
            Some(pending) => {
                pending::give_up(node, &pending, "the configuration could not be used");
                Err(Trouble::Load("trying the last confirmed configuration".to_owned()))
            }
            None => Ok(()),
        }
    }

    fn say_once(&mut self, node: &Node, text: String) {
        if self.state_trouble != text {
            for line in text.lines() {
                node.journal.warn(&format!("machine config: {line}"));
            }
            self.state_trouble = text;
        }
    }
}

/// Makes STATE as the candidate wants it, if it is missing, and takes the candidate; a STATE that it opened and that has
/// a config goes before it.
async fn enter_from_outside(node: &Arc<Node>, candidate: Candidate) -> Result<(), Trouble> {
    let config = configuration::read(node, &candidate.text)
        .map_err(|error| Trouble::Invalid(format!("from {}: {error}", candidate.origin)))?;
    if let Err(error) = volumes::provision_system_disk(node, Some(Arc::new(config))).await {
        node.journal.warn(&format!("{error}; without STATE the machine config lasts until a restart"));
    }
    match source::from_state(node) {
        Search::Found(kept) if !change::is_not_for_keeps(&kept.text) => enter(node, kept),
        _ => enter(node, candidate),
    }
}

/// Checks a candidate and takes it.
fn enter(node: &Node, candidate: Candidate) -> Result<(), Trouble> {
    let Candidate { origin, text } = candidate;
    let kept = text.clone();
    configuration::put_into_force(node, text)
        .map_err(|error| Trouble::Invalid(format!("from {origin}: {error}")))?;
    node.journal.say(&format!("machine config: taken from {origin}"));
    if origin != Origin::State {
        configuration::keep_on_state(node, &kept);
    }
    Ok(())
}

fn report(node: &Node, trouble: &Trouble, wait: Duration) {
    let (text, event) = match trouble {
        Trouble::Load(text) | Trouble::Nothing(Some(text)) => {
            (text, Payload::ConfigLoadError(ConfigLoadErrorEvent { error: text.clone() }))
        }
        Trouble::Invalid(text) => {
            (text, Payload::ConfigValidationError(ConfigValidationErrorEvent { error: text.clone() }))
        }
        Trouble::Nothing(None) => return,
    };
    node.events.publish("", &event);
    let seconds = wait.as_secs();
    // One line of the kernel log each: a person reads this on a console.
    for line in text.lines() {
        node.journal.warn(&format!("machine config: {line}"));
    }
    node.journal.warn(&format!("machine config: looking again in {seconds} s, and when a disk appears"));
}

/// Takes the copy of an earlier machined; says whether it could.
pub fn restore_config(node: &Node, text: Zeroizing<String>) -> bool {
    // Found again, so that a later change can be kept.
    if let Err(error) = configuration::find_state(node) {
        node.journal.warn(&error);
    }
    configuration::put_into_force(node, text).is_ok()
}
