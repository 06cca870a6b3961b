//! A config that is in force for a while only: a try, or a change that nobody has confirmed yet.
//!
//! | kind | the config on STATE | when the time is over | survives |
//! |---|---|---|---|
//! | try | the old one | the old one is taken back | machined's death; a restart of the machine ends it anyway |
//! | confirm | the new one, the old one beside it | the old one is put back, live or by a restart | both |
//!
//! Owns: the clock of both, and what lies on STATE for the second.
//! Order: the old config and the marker are on the disk before the new config is; the marker goes last. A power cut
//! in between leaves a node that returns to a config that was good.
//! Fails by: a line in the log; a STATE that cannot be written any more does not keep the node from returning.

use runtime::sequencer::Start;
use std::sync::Arc;
use std::time::Duration;

use api::event::Payload;
use api::proto::machine::ConfigLoadErrorEvent;
use runtime::checkpoint::Keep;
use runtime::clock;
use serde::{Deserialize, Serialize};

use super::change::Change;
use super::files::{CONFIG, CONFIRMED, MARKER, RETURNED};
use super::handle::Configuration;
use super::waiting::{Kind, Pending, milliseconds};
use crate::order::Order;
use crate::readiness::API_READY_DEADLINE;
use crate::volumes::State;

/// Boots that an unconfirmed config gets: one for the change, two for a person who restarts the machine meanwhile.
const MOST_BOOTS: u32 = 3;

/// What lies on STATE while a config waits for confirmation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Marker {
    timeout_ms: u64,
    /// Boots with the config so far.
    boots: u32,
}

/// When the time is over, on the clock of `now_ns`. A time that the clock does not count has no end.
fn deadline(now_ns: u64, time: Duration) -> u64 {
    now_ns.saturating_add(milliseconds(time).saturating_mul(1_000_000))
}

/// Lays the old config and the marker on STATE. An earlier unconfirmed change keeps its way back.
pub(super) fn prepare(state: &State, previous: &str, timeout: Duration) -> Result<(), String> {
    if state.read(MARKER)?.is_none() {
        state.write(CONFIRMED, previous)?;
    }
    write_marker(state, Marker { timeout_ms: milliseconds(timeout), boots: 0 })
}

fn write_marker(state: &State, marker: Marker) -> Result<(), String> {
    state.write(MARKER, &serde_json::to_string(&marker).map_err(|e| e.to_string())?)
}

/// Takes marker and old config off STATE: what is in force now is confirmed.
pub(super) fn clear(state: &State) -> Result<(), String> {
    state.remove(MARKER)?;
    state.remove(CONFIRMED)
}

/// What the start of a machine finds.
pub(super) enum AtBoot {
    /// Nothing waits.
    Settled,
    /// The config waits for confirmation.
    Waits(Pending),
    /// It was given up: STATE holds the old one again. The reason.
    GivenUp(String),
}

/// Counts this boot, and puts the old config back after too many.
pub(super) fn at_boot(state: &State) -> Result<AtBoot, String> {
    let Some(text) = state.read(MARKER)? else { return Ok(AtBoot::Settled) };
    let Some(previous) = state.read(CONFIRMED)? else {
        clear(state)?;
        return Ok(AtBoot::Settled);
    };
    // A marker that cannot be read was written by another version: its config gets one more boot.
    let marker: Marker =
        serde_json::from_str(&text).unwrap_or(Marker { timeout_ms: 60_000, boots: MOST_BOOTS - 1 });
    if marker.boots >= MOST_BOOTS {
        let reason = format!("the configuration was not confirmed in {MOST_BOOTS} boots");
        put_back(state, &previous, &reason)?;
        return Ok(AtBoot::GivenUp(reason));
    }
    write_marker(state, Marker { boots: marker.boots + 1, ..marker })?;
    let timeout = Duration::from_millis(marker.timeout_ms);
    Ok(AtBoot::Waits(Pending { kind: Kind::Confirm, timeout, deadline_ns: None, previous }))
}

/// The old config becomes the config again, and the reason is kept for the next start.
pub(super) fn put_back(state: &State, previous: &str, reason: &str) -> Result<(), String> {
    state.write(CONFIG, previous)?;
    // Only a note: the node is right without it.
    let _ = state.write(RETURNED, &format!("{reason}\n"));
    clear(state)
}

/// Looks whether the config on STATE waits for confirmation. Once a boot, before it is read.
pub(crate) fn begin_boot(configuration: &Arc<Configuration>) -> Option<Pending> {
    let state = configuration.volumes.state()?;
    match at_boot(&state) {
        Ok(AtBoot::Waits(pending)) => Some(pending),
        Ok(AtBoot::GivenUp(reason)) => {
            report(configuration, &reason);
            None
        }
        Ok(AtBoot::Settled) => {
            if let Ok(Some(note)) = state.read(RETURNED) {
                report(configuration, note.trim());
                // Said once; the log and the events have it now.
                let _ = state.remove(RETURNED);
            }
            None
        }
        Err(error) => {
            configuration.runtime.journal.warn(&format!("read what is pending on STATE: {error}"));
            None
        }
    }
}

/// Starts the clock of a pending config, in place of any other.
pub(crate) fn arm(configuration: &Arc<Configuration>, pending: Pending) {
    let generation = configuration.set_pending(Some(pending.clone()));
    keep(configuration, Some(&pending));
    tokio::spawn(watch(configuration.clone(), pending, generation));
}

/// Stops the clock. Says what was pending.
pub(super) fn disarm(configuration: &Configuration) -> Option<Pending> {
    let pending = configuration.pending();
    configuration.set_pending(None);
    keep(configuration, None);
    pending
}

/// Goes on with what an earlier machined watched.
pub(crate) fn resume(configuration: &Arc<Configuration>, text: &str) {
    if let Some(pending) = Pending::from_text(text) {
        arm(configuration, pending);
    }
}

fn keep(configuration: &Configuration, pending: Option<&Pending>) {
    let text = pending.map(Pending::to_text).unwrap_or_default();
    if let Err(error) = Keep::save(Keep::RETURN, &text, &configuration.runtime.init) {
        configuration.runtime.journal.warn(&format!("keep the way back to the last configuration: {error}"));
    }
}

async fn watch(configuration: Arc<Configuration>, mut pending: Pending, generation: u64) {
    let deadline = match pending.deadline_ns {
        Some(deadline) => deadline,
        None => {
            // The node is back when its API answers. A config that keeps it from that must not keep us waiting.
            let mut readiness = configuration.readiness.clone();
            let back = readiness.wait_for(|readiness| readiness.announced);
            let _ = tokio::time::timeout(API_READY_DEADLINE, back).await;
            let deadline = deadline(clock::boottime_ns(), pending.timeout);
            pending.deadline_ns = Some(deadline);
            if configuration.generation() == generation {
                keep(&configuration, Some(&pending));
            }
            deadline
        }
    };
    if configuration.generation() == generation {
        let left = Duration::from_nanos(deadline.saturating_sub(clock::boottime_ns()));
        let seconds = left.as_secs();
        configuration.runtime.journal.say(&match pending.kind {
            Kind::Try => format!("the configuration is a try: the node returns to the previous one in {seconds} s"),
            Kind::Confirm => format!(
                "the configuration waits for confirmation: without it the node returns to the last confirmed one in {seconds} s"
            ),
        });
        tokio::time::sleep(left).await;
    }
    // An apply or a confirmation under way decides first.
    let _busy = configuration.busy.lock().await;
    if configuration.generation() == generation {
        go_back(&configuration, &pending);
    }
}

/// Returns to the previous config, by a restart where it takes one.
fn go_back(configuration: &Arc<Configuration>, pending: &Pending) {
    let time = pending.timeout;
    let reason = match pending.kind {
        Kind::Try => format!("the try of {time:?} is over"),
        Kind::Confirm => format!("the configuration was not confirmed within {time:?}"),
    };
    if let (Kind::Confirm, Some(state)) = (pending.kind, configuration.volumes.state())
        && let Err(error) = put_back(&state, &pending.previous, &reason)
    {
        configuration.runtime.journal.warn(&format!("put the last confirmed configuration back: {error}"));
    }
    // Its clock is this one.
    drop(disarm(configuration));
    report(configuration, &reason);
    let needs_reboot = super::text_in_force(&configuration.runtime)
        .and_then(|now| Change::between(&now, &pending.previous).ok())
        .is_some_and(|change| !change.need_reboot().is_empty());
    if let Err(error) = super::put_into_force(configuration, pending.previous.clone()) {
        configuration.runtime.journal.warn(&format!("return to the previous configuration: {error}"));
    }
    if needs_reboot {
        let how = Start { force: true, ..Start::default() };
        if let Err(locked) = configuration.orders.start(Order::Reboot, how) {
            configuration.runtime.journal.warn(&locked.to_string());
        }
    }
}

/// Puts the old config back without waiting for the time: the new one cannot be used at all.
pub(crate) fn give_up(configuration: &Configuration, pending: &Pending, reason: &str) {
    if let Some(state) = configuration.volumes.state()
        && let Err(error) = put_back(&state, &pending.previous, reason)
    {
        return configuration
            .runtime
            .journal
            .warn(&format!("put the last confirmed configuration back: {error}"));
    }
    report(configuration, reason);
}

/// Says on the console and to every client that the node went back.
pub(super) fn report(configuration: &Configuration, reason: &str) {
    let text = format!("{reason}: returned to the last confirmed configuration");
    configuration.runtime.journal.warn(&text);
    configuration.runtime.events.publish("", &Payload::ConfigLoadError(ConfigLoadErrorEvent { error: text }));
}

#[cfg(test)]
mod tests {
    use zeroize::Zeroizing;

    use super::*;

    fn state() -> (tempfile::TempDir, State) {
        let dir = tempfile::tempdir().unwrap();
        let state = State::at(dir.path());
        (dir, state)
    }

    fn config(state: &State) -> String {
        state.read(CONFIG).unwrap().unwrap().as_str().to_owned()
    }

    const TIME: Duration = Duration::from_secs(90);

    /// What a request can say: the sum would begin again at zero, and the change would be taken back at once.
    #[test]
    fn the_longest_time_does_not_end_before_it_began() {
        assert_eq!(deadline(7, Duration::from_millis(2)), 2_000_007);
        for seconds in [i64::MAX.unsigned_abs(), u64::MAX, 18_446_744_073] {
            assert!(deadline(1_000_000_000, Duration::from_secs(seconds)) > u64::MAX / 2, "{seconds}");
        }
    }

    #[test]
    fn an_unconfirmed_config_gets_three_boots_and_then_the_old_one_is_back() {
        let (_dir, state) = state();
        state.write(CONFIG, "old").unwrap();
        prepare(&state, "old", TIME).unwrap();
        state.write(CONFIG, "new").unwrap();
        for _ in 0..MOST_BOOTS {
            let AtBoot::Waits(pending) = at_boot(&state).unwrap() else { panic!("it does not wait") };
            assert_eq!((pending.timeout, pending.previous.as_str()), (TIME, "old"));
            assert_eq!(config(&state), "new");
        }
        assert!(matches!(at_boot(&state).unwrap(), AtBoot::GivenUp(reason) if reason.contains("3 boots")));
        assert_eq!(config(&state), "old");
        assert!(matches!(at_boot(&state).unwrap(), AtBoot::Settled));
        assert!(state.read(RETURNED).unwrap().unwrap().contains("not confirmed"));
    }

    #[test]
    fn a_second_unconfirmed_change_keeps_the_way_back_of_the_first() {
        let (_dir, state) = state();
        prepare(&state, "good", TIME).unwrap();
        state.write(CONFIG, "bad").unwrap();
        prepare(&state, "bad", TIME).unwrap();
        assert_eq!(state.read(CONFIRMED).unwrap().unwrap().as_str(), "good");
        clear(&state).unwrap();
        assert!(matches!(at_boot(&state).unwrap(), AtBoot::Settled));
        assert_eq!(config(&state), "bad");
    }

    #[test]
    fn every_cut_of_a_change_leaves_a_config_that_was_good() {
        // The steps of a change in their order; the power goes after so many of them.
        type Step = fn(&State) -> Result<(), String>;
        let steps: [Step; 2] = [|state| prepare(state, "old", TIME), |state| state.write(CONFIG, "new")];
        for done in 0..=steps.len() {
            let (_dir, state) = state();
            state.write(CONFIG, "old").unwrap();
            for step in steps.iter().take(done) {
                step(&state).unwrap();
            }
            while let AtBoot::Waits(pending) = at_boot(&state).unwrap() {
                put_back(&state, &pending.previous, "time").unwrap();
            }
            assert_eq!(config(&state), "old", "cut after {done}");
        }
    }

    #[test]
    fn a_foreign_marker_gets_one_boot() {
        let (_dir, state) = state();
        prepare(&state, "old", TIME).unwrap();
        state.write(CONFIG, "new").unwrap();
        state.write(MARKER, "from another version").unwrap();
        assert!(matches!(at_boot(&state).unwrap(), AtBoot::Waits(_)));
        assert!(matches!(at_boot(&state).unwrap(), AtBoot::GivenUp(_)));
    }

    #[test]
    fn the_next_machined_finds_what_this_one_watched() {
        let pending = Pending {
            kind: Kind::Try,
            timeout: TIME,
            deadline_ns: Some(7),
            previous: Zeroizing::new("a: 1\nb: 2\n".into()),
        };
        assert!(Pending::from_text(&pending.to_text()) == Some(pending));
        assert!(Pending::from_text("").is_none());
    }
}
