//! The decision of what to do with a config that someone wants applied.
//!
//! Owns: the table of modes, the sentences that clients print, the refusals.
//! Does not: touch the node: what it needs to know of it is in [`Situation`].
//! Source: docs/users/config-lifecycle.md.

use std::time::Duration;

use api::proto::machine::ApplyConfigurationRequest;
use api::proto::machine::apply_configuration_request::Mode;

use super::change::Change;

/// How long a try lasts unless the client says otherwise.
const TRY_TIMEOUT: Duration = Duration::from_secs(60);

/// What is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Plan {
    /// Taken into force and kept.
    Live,
    /// Kept; the machine restarts with it.
    Reboot,
    /// Kept; the next restart takes it.
    Staged,
    /// Taken into force for so long, not kept.
    Try(Duration),
}

/// What the plan depends on besides the request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Situation {
    /// The difference to the config in force; `None` in maintenance, where there is none.
    pub(crate) change: Option<Change>,
    /// The difference as text.
    pub(crate) diff: String,
    /// Whether a config can be kept on this node.
    pub(crate) has_state: bool,
}

/// Why nothing is done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    /// Not while the node has no config.
    #[error("apply configuration on reboot is not supported in maintenance mode")]
    StagedInMaintenance,
    /// Nor this.
    #[error("{0} needs a configuration to return to, and a node in maintenance mode has none")]
    NothingToReturnTo(&'static str),
    /// It would need a restart.
    #[error(
        "this config change can't be applied in immediate mode\ndiff: {diff}\nthese fields need a reboot: {fields}"
    )]
    NeedsReboot {
        /// The whole difference.
        diff: String,
        /// What is in the way.
        fields: String,
    },
    /// A restart would lose it.
    #[error(
        "this node has no partition labelled STATE, so a restart would lose the configuration; \
         apply it without a reboot (--mode=no-reboot), or change it at its source"
    )]
    NoState,
    /// A try ends by itself.
    #[error("a try returns by itself: leave out the time for confirmation, or use another mode")]
    ConfirmedTry,
}

/// The mode that a request of either generation asks for.
pub(crate) fn requested(request: &ApplyConfigurationRequest) -> Mode {
    match request.mode() {
        Mode::Reboot if request.on_reboot => Mode::Staged,
        Mode::Reboot if request.immediate => Mode::NoReboot,
        mode => mode,
    }
}

/// The length of a try.
pub(crate) fn try_timeout(request: &ApplyConfigurationRequest) -> Duration {
    super::duration(request.try_mode_timeout.as_ref()).unwrap_or(TRY_TIMEOUT)
}

/// Decides.
pub(crate) fn decide(
    request: &ApplyConfigurationRequest,
    confirm: bool,
    now: &Situation,
) -> Result<Plan, Refusal> {
    let mode = requested(request);
    let Some(change) = &now.change else { return in_maintenance(mode, confirm) };
    let blocked = change.need_reboot();
    if confirm && mode == Mode::Try {
        return Err(Refusal::ConfirmedTry);
    }
    let plan = match mode {
        Mode::Staged => Plan::Staged,
        Mode::Reboot => Plan::Reboot,
        Mode::Auto if blocked.is_empty() => Plan::Live,
        Mode::Auto => Plan::Reboot,
        Mode::NoReboot | Mode::Try if !blocked.is_empty() => {
            return Err(Refusal::NeedsReboot { diff: now.diff.clone(), fields: blocked.join(", ") });
        }
        Mode::NoReboot => Plan::Live,
        Mode::Try => Plan::Try(try_timeout(request)),
    };
    if matches!(plan, Plan::Reboot | Plan::Staged) && !now.has_state {
        return Err(Refusal::NoState);
    }
    Ok(plan)
}

fn in_maintenance(mode: Mode, confirm: bool) -> Result<Plan, Refusal> {
    match mode {
        Mode::Staged => Err(Refusal::StagedInMaintenance),
        Mode::Try => Err(Refusal::NothingToReturnTo("a try")),
        _ if confirm => Err(Refusal::NothingToReturnTo("a change that is to be confirmed")),
        Mode::Reboot | Mode::Auto | Mode::NoReboot => Ok(Plan::Live),
    }
}

impl Plan {
    /// The mode that the answer names.
    pub(crate) fn mode(self) -> Mode {
        match self {
            Self::Live => Mode::NoReboot,
            Self::Reboot => Mode::Reboot,
            Self::Staged => Mode::Staged,
            Self::Try(_) => Mode::Try,
        }
    }

    /// What happened, for people.
    pub(crate) fn details(self) -> String {
        match self {
            Self::Live => "Applied configuration without a reboot".to_owned(),
            Self::Reboot => "Applied configuration with a reboot".to_owned(),
            Self::Staged => "Staged configuration to be applied after the next reboot".to_owned(),
            Self::Try(time) => {
                format!("Applied configuration in try mode; the node returns to the previous one in {time:?}")
            }
        }
    }

    /// What would happen, for people.
    pub(crate) fn dry_run(self, now: &Situation) -> String {
        let (what, diff) = (self.details(), now.diff.trim_end());
        let fields: Vec<&str> = now.change.iter().flat_map(Change::need_reboot).collect();
        let mut text = format!("Dry run summary:\n{what} (skipped in dry-run).\n");
        if !fields.is_empty() {
            text.push_str(&format!("These fields need a reboot: {}.\n", fields.join(", ")));
        }
        if now.change.as_ref().is_some_and(Change::is_empty) {
            text.push_str("No changes.\n");
        }
        if !diff.is_empty() {
            text.push_str(&format!("Config diff:\n\n{diff}\n"));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: &str = "version: v1alpha1\nmachine: {type: worker, network: {hostname: a}}\n";
    const LIVE: &str = "version: v1alpha1\nmachine: {type: worker, network: {hostname: b}}\n";
    const DEEP: &str = "version: v1alpha1\nmachine: {type: init, network: {hostname: b}}\n";

    fn to(new: &str, has_state: bool) -> Situation {
        let change = Some(Change::between(OLD, new).unwrap());
        Situation { change, diff: super::super::change::diff(OLD, new), has_state }
    }

    fn maintenance() -> Situation {
        Situation { change: None, diff: String::new(), has_state: true }
    }

    fn request(mode: Mode) -> ApplyConfigurationRequest {
        ApplyConfigurationRequest { mode: mode.into(), ..Default::default() }
    }

    fn decided(mode: Mode, now: &Situation) -> Result<Plan, Refusal> {
        decide(&request(mode), false, now)
    }

    #[test]
    fn both_generations_name_modes_in_their_way() {
        let flags =
            |on_reboot, immediate| ApplyConfigurationRequest { on_reboot, immediate, ..Default::default() };
        assert_eq!(requested(&flags(false, false)), Mode::Reboot);
        assert_eq!(requested(&flags(true, false)), Mode::Staged);
        assert_eq!(requested(&flags(false, true)), Mode::NoReboot);
        assert_eq!(
            requested(&ApplyConfigurationRequest { immediate: true, ..request(Mode::Try) }),
            Mode::Try
        );
    }

    #[test]
    fn the_table_of_modes() {
        let (live, deep) = (to(LIVE, true), to(DEEP, true));
        assert_eq!(decided(Mode::Reboot, &live), Ok(Plan::Reboot));
        assert_eq!(decided(Mode::Staged, &live), Ok(Plan::Staged));
        assert_eq!(decided(Mode::Auto, &live), Ok(Plan::Live));
        assert_eq!(decided(Mode::Auto, &deep), Ok(Plan::Reboot));
        assert_eq!(decided(Mode::NoReboot, &live), Ok(Plan::Live));
        assert_eq!(decided(Mode::Try, &live), Ok(Plan::Try(Duration::from_secs(60))));
        for mode in [Mode::NoReboot, Mode::Try] {
            let text = decided(mode, &deep).unwrap_err().to_string();
            assert!(
                text.starts_with("this config change can't be applied in immediate mode\ndiff: "),
                "{text}"
            );
            assert!(text.ends_with("these fields need a reboot: machine.type"), "{text}");
        }
    }

    #[test]
    fn without_state_nothing_outlives_a_restart() {
        let now = to(LIVE, false);
        for mode in [Mode::Reboot, Mode::Staged] {
            assert_eq!(decided(mode, &now), Err(Refusal::NoState));
        }
        assert_eq!(decided(Mode::Auto, &now), Ok(Plan::Live));
        assert_eq!(decided(Mode::Auto, &to(DEEP, false)), Err(Refusal::NoState));
    }

    #[test]
    fn maintenance_applies_at_once_or_not_at_all() {
        for mode in [Mode::Reboot, Mode::Auto, Mode::NoReboot] {
            assert_eq!(decided(mode, &maintenance()), Ok(Plan::Live));
            assert!(decide(&request(mode), true, &maintenance()).is_err());
        }
        let text = decided(Mode::Staged, &maintenance()).unwrap_err().to_string();
        assert_eq!(text, "apply configuration on reboot is not supported in maintenance mode");
        assert!(decided(Mode::Try, &maintenance()).is_err());
    }

    #[test]
    fn a_try_cannot_be_confirmed() {
        assert_eq!(decide(&request(Mode::Try), true, &to(LIVE, true)), Err(Refusal::ConfirmedTry));
        assert_eq!(decide(&request(Mode::Auto), true, &to(LIVE, true)), Ok(Plan::Live));
    }

    #[test]
    fn a_dry_run_says_what_it_would_take() {
        let now = to(DEEP, true);
        let text = decided(Mode::Auto, &now).unwrap().dry_run(&now);
        for word in
            ["with a reboot (skipped in dry-run)", "need a reboot: machine.type", "Config diff:", "+machine"]
        {
            assert!(text.contains(word), "{word} in {text}");
        }
        let same = to(OLD, true);
        assert!(decided(Mode::Auto, &same).unwrap().dry_run(&same).ends_with("No changes.\n"));
    }
}
