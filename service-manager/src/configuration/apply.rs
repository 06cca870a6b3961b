//! One change of the machine config, from request to answer.
//!
//! Order: validate the text, decide (`plan`), and then, under the lock: META's record of STATE's encryption, STATE, the
//! answer's content next with what clients read, the effect last. A restart begins only when its sequence can have the sequencer.
//! Fails by: [`Failure`], with nothing changed unless it says so.

use runtime::sequencer::{Locked, Start};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use api::proto::machine::apply_configuration_request::Mode;
use api::proto::machine::{ApplyConfiguration, ApplyConfigurationRequest};
use runtime::clock;
use runtime::events;
use runtime::request;
use runtime::store::{IN_FORCE, PERSISTENT, Resource};
use zeroize::Zeroizing;

use super::change::{self, Change, diff};
use super::files::{CONFIG, RETURNED};
use super::handle::Configuration;
use super::pending;
use super::plan::{self, Plan, Refusal, Situation};
use super::refused::{self, Place};
use super::waiting::{Kind, Pending};
use super::{Wrong, check, kept, publish, text_in_force, way_back};
use crate::container::{self, NOT_SUPPORTED};
use crate::install;
use crate::order::Order;
use crate::register::Trust;
use crate::volumes::{self, State};

/// How long the answer may take to leave the node before the config takes effect: its effect may be another address.
const ANSWER_LEAVES: Duration = Duration::from_millis(200);

/// Why a config was not applied.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The text.
    #[error(transparent)]
    Wrong(#[from] Wrong),
    /// The mode.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// Someone else is at it.
    #[error("another apply configuration is already in progress")]
    Busy,
    /// The change was made from a config that is not the one in force any more.
    #[error(
        "the configuration has changed since it was read (version {read}, now {now}): read it again and make the change \
         from that"
    )]
    Outdated {
        /// Version that the change was made from.
        read: String,
        /// Version in force; 0 if there is none.
        now: u64,
    },
    /// The change was made from the config in force while another one waits for the restart.
    #[error(
        "another configuration waits for the restart (--mode staged), and this change was made without it: make it from the \
         resource `MachineConfigs/persistent`, as `billetctl patch` and `billetctl edit` of this version do, or restart first"
    )]
    Waiting,
    /// The last change has not taken effect yet.
    #[error(
        "configuration was already applied and node is rebooting, cannot apply more configuration changes until next reboot"
    )]
    Rebooting,
    /// The node has a config that it cannot open: nobody gives it another.
    #[error("{0}")]
    Closed(String),
    /// A sequence runs that a restart may not end.
    #[error(transparent)]
    Locked(#[from] Locked),
    /// STATE.
    #[error("{0}")]
    Keep(String),
    /// Only its runtime can start a container again.
    #[error(
        "{NOT_SUPPORTED}: this change takes a restart; apply it with --mode=staged, and restart the container"
    )]
    InContainer,
    /// Its way back would be lost.
    #[error("the configuration in force waits for confirmation: confirm it before trying another one")]
    Unconfirmed,
    /// The encryption of a volume.
    #[error(transparent)]
    Encryption(#[from] volumes::Refusal),
    /// There is no disk to install to.
    #[error(transparent)]
    Install(#[from] install::Failure),
    /// There is nothing to confirm.
    #[error("no configuration waits for confirmation on this node")]
    NothingPending,
}

impl Failure {
    /// Whether the config itself is what was wrong, so that the same one is refused again.
    fn is_of_the_config(&self) -> bool {
        matches!(self, Self::Wrong(_) | Self::Encryption(_) | Self::Install(_))
    }
}

/// Applies a config, or says what applying it would do. `Diagnostics` has a refused one until another is taken.
pub(crate) async fn apply(
    configuration: &Arc<Configuration>,
    request: &ApplyConfigurationRequest,
    confirm: Option<Duration>,
) -> Result<ApplyConfiguration, Failure> {
    let done = attempt(configuration, request, confirm).await;
    if let Err(failure) = &done
        && failure.is_of_the_config()
        && !request.dry_run
    {
        refused::note(&configuration.runtime, Place::Call, &failure.to_string());
    }
    done
}

async fn attempt(
    configuration: &Arc<Configuration>,
    request: &ApplyConfigurationRequest,
    confirm: Option<Duration>,
) -> Result<ApplyConfiguration, Failure> {
    let text =
        std::str::from_utf8(&request.data).map_err(|_| Wrong::Parse("it is not UTF-8 text".to_owned()))?;
    let text = Zeroizing::new(text.to_owned());
    if let Some(why) = configuration.maintenance.borrow().lock() {
        return Err(Failure::Closed(crate::locked::refusal(
            "/machine.MachineService/ApplyConfiguration",
            why,
        )));
    }
    let super::CheckedConfig { mut warnings, config, documents, out_of_reach } =
        check(&configuration.runtime, &text)?;
    if let Some(fault) = out_of_reach {
        // A node that has such a config already can have everything else of it changed.
        let is_error = fault.severity == config::Severity::Error;
        if is_error && !configuration.runtime.config().is_some_and(|config| config::lacks_authority(&config))
        {
            return Err(Wrong::Validate(fault.to_string()).into());
        }
        warnings.push(super::bare(&fault));
    }
    let _busy = configuration.busy.try_lock().map_err(|_| Failure::Busy)?;
    if configuration.rebooting.load(Ordering::SeqCst) {
        return Err(Failure::Rebooting);
    }
    is_made_from_the_newest(configuration, request)?;
    let taken_back = kept::taken_back(configuration, &text);
    if !taken_back.is_empty() && plan::requested(request) != Mode::Try {
        let fields = taken_back.join(", ");
        warnings.push(format!("a configuration waited for the restart; this one takes back of it: {fields}"));
    }
    if plan::requested(request) == Mode::Try && waits_for_confirmation(configuration) {
        return Err(Failure::Unconfirmed);
    }
    let now = situation(configuration, &text)?;
    let plan = plan::decide(request, confirm.is_some(), &now)?;
    let config = Arc::new(config);
    let asked = volumes::Asked {
        config: config.clone(),
        documents,
        staged: matches!(plan, Plan::Staged),
        way_back: way_back(configuration),
    };
    warnings.extend(volumes::check_change(&configuration.volumes, asked).await?);
    if matches!(plan, Plan::Reboot) {
        if container::is_one(&configuration.runtime) {
            return Err(Failure::InContainer);
        }
        configuration.orders.may_start(Order::ApplyConfiguration)?;
    }
    let mut mode_details = if request.dry_run { plan.dry_run(&now) } else { plan.details() };
    // The first config of this machine: it is refused while whoever gives it can still give another.
    if now.change.is_none()
        && let Some(text) = install::preview(&configuration.install, &config, request.dry_run).await?
    {
        mode_details.push_str(&format!("\n{text}"));
    }
    if !request.dry_run {
        if now.change.is_none() {
            // Nobody has a certificate of this node yet.
            configuration
                .register
                .admit_soon(Trust::Outside, change::is_for_keeps(&text))
                .await
                .map_err(Failure::Keep)?;
            if let Err(error) =
                volumes::provision_system_disk(&configuration.volumes, Some(config.clone())).await
            {
                configuration
                    .runtime
                    .journal
                    .warn(&format!("{error}; without STATE the machine config lasts until a restart"));
            }
        }
        carry_out(configuration, plan, &now, Applied { text, config }, confirm)?;
    }
    Ok(ApplyConfiguration { metadata: None, warnings, mode: plan.mode().into(), mode_details })
}

/// Of two changes that were made from one config, the second would take the first back. A client that says what it read is
/// told.
fn is_made_from_the_newest(
    configuration: &Configuration,
    request: &ApplyConfigurationRequest,
) -> Result<(), Failure> {
    let read = &request.base_version;
    if read.is_empty() {
        return Ok(());
    }
    // Versions begin anew with each start of machined, times do not.
    let is_it = |resource: &Arc<Resource>| {
        let metadata = &resource.metadata;
        metadata.version.to_string() == *read && request.base_updated == Some(clock::proto(metadata.updated))
    };
    let store = &configuration.runtime.store;
    let in_force = store.get(&super::MACHINE_CONFIG, IN_FORCE);
    // What is tried is gone before the restart.
    let waiting = kept::waiting(configuration).filter(|_| plan::requested(request) != Mode::Try);
    let newest = match waiting {
        Some(waiting) if in_force.as_ref().is_some_and(is_it) && !is_it(&waiting) => {
            return Err(Failure::Waiting);
        }
        Some(waiting) => Some(waiting),
        // Both are one text.
        None => store.get(&super::MACHINE_CONFIG, PERSISTENT).filter(is_it).or(in_force),
    };
    if newest.as_ref().is_some_and(is_it) {
        return Ok(());
    }
    Err(Failure::Outdated { read: read.clone(), now: newest.map_or(0, |newest| newest.metadata.version) })
}

fn waits_for_confirmation(configuration: &Configuration) -> bool {
    configuration.pending().is_some_and(|pending| pending.kind == Kind::Confirm)
}

fn situation(configuration: &Configuration, new: &str) -> Result<Situation, Failure> {
    let has_state = configuration.volumes.state().is_some();
    let Some(old) = text_in_force(&configuration.runtime) else {
        return Ok(Situation { change: None, diff: diff("", new), has_state });
    };
    let change = Change::between(&old, new).map_err(Wrong::Parse)?;
    Ok(Situation { change: Some(change), diff: diff(&old, new), has_state })
}

/// The config that is applied.
struct Applied {
    text: Zeroizing<String>,
    config: Arc<config::Config>,
}

fn carry_out(
    configuration: &Arc<Configuration>,
    plan: Plan,
    now: &Situation,
    Applied { text, config }: Applied,
    confirm: Option<Duration>,
) -> Result<(), Failure> {
    // Files, clocks and the config in force change together.
    let _outside = request::outside();
    let old = text_in_force(&configuration.runtime);
    let back = back(plan, old, confirm);
    if !matches!(plan, Plan::Try(_))
        && let Some(state) = configuration.volumes.state()
    {
        // Should the power go in between, what META says is tried first, and one key of it is the old config's.
        volumes::keep_record(&configuration.volumes, &config).map_err(Failure::Keep)?;
        save(&state, &text, back.as_ref()).map_err(Failure::Keep)?;
        super::remember(configuration);
        super::show_kept(configuration);
    }
    // A change by someone who reached the node ends every earlier clock; one that waits for a restart is started by it.
    let first = pending::disarm(configuration);
    let fields = now.change.iter().flat_map(Change::paths).collect::<Vec<_>>().join(", ");
    configuration.runtime.journal.say(&format!("{}: {}", plan.details(), what(now, &fields)));
    match plan {
        Plan::Live | Plan::Try(_) => {
            let back = back.map(|back| with_first_way_back(back, first));
            take_effect(configuration, text, back)?;
        }
        Plan::Reboot => {
            configuration.rebooting.store(true, Ordering::SeqCst);
            let how = Start { actor_id: events::actor_id(), ..Start::default() };
            configuration.orders.start(Order::ApplyConfiguration, how)?;
        }
        Plan::Staged => {}
    }
    Ok(())
}

/// The names of what differs; values may be secret.
fn what<'a>(now: &Situation, fields: &'a str) -> &'a str {
    match (&now.change, fields) {
        (None, _) => "the first one of this machine",
        (Some(_), "") => "no field differs",
        (Some(_), fields) => fields,
    }
}

/// The way back of this change, if it has one.
fn back(plan: Plan, old: Option<Zeroizing<String>>, confirm: Option<Duration>) -> Option<Pending> {
    let previous = old?;
    let (kind, timeout) = match (plan, confirm) {
        (Plan::Try(timeout), _) => (Kind::Try, timeout),
        (_, Some(timeout)) => (Kind::Confirm, timeout),
        (_, None) => return None,
    };
    Some(Pending { kind, timeout, deadline_ns: None, previous })
}

/// A change on top of an unconfirmed one returns to where that one would have returned to.
fn with_first_way_back(back: Pending, first: Option<Pending>) -> Pending {
    match first {
        Some(first) if (back.kind, first.kind) == (Kind::Confirm, Kind::Confirm) => {
            Pending { previous: first.previous, ..back }
        }
        _ => back,
    }
}

/// The order of writes is the promise of [`pending`].
fn save(state: &State, text: &str, back: Option<&Pending>) -> Result<(), String> {
    if let Some(back) = back {
        pending::prepare(state, &back.previous, back.timeout)?;
    }
    state.write(CONFIG, text)?;
    if back.is_none() {
        pending::clear(state)?;
    }
    state.remove(RETURNED)
}

/// Publishes a config before the answer, since the next patch starts from what it reads; puts it into force once the
/// answer has left.
fn take_effect(
    configuration: &Arc<Configuration>,
    text: Zeroizing<String>,
    back: Option<Pending>,
) -> Result<(), Failure> {
    publish(configuration, text)?;
    if let Some(back) = back {
        pending::arm(configuration, back);
    }
    let configuration = configuration.clone();
    tokio::spawn(async move {
        tokio::time::sleep(ANSWER_LEAVES).await;
        super::take_effect(&configuration);
    });
    Ok(())
}

/// Makes an unconfirmed config the confirmed one.
pub(crate) async fn confirm(configuration: &Arc<Configuration>) -> Result<(), Failure> {
    let _busy = configuration.busy.lock().await;
    if !waits_for_confirmation(configuration) {
        return Err(Failure::NothingPending);
    }
    if let Some(state) = configuration.volumes.state() {
        pending::clear(&state).map_err(Failure::Keep)?;
    }
    drop(pending::disarm(configuration));
    configuration.runtime.journal.say("the configuration was confirmed");
    Ok(())
}

#[cfg(test)]
mod tests {
    use runtime::store::CONFIG_REFUSAL;

    use super::*;
    use crate::configuration::put_into_force;

    const CONFIG: &str = "version: v1alpha1\n\
        cluster: {controlPlane: {endpoint: 'https://10.0.0.1:6443'}}\n\
        machine:\n  type: worker\n  token: a.b\n  install: {disk: /dev/vda}\n  sysctls:\n    vm.start: '1'\n";

    async fn add(configuration: &Arc<Configuration>, name: &str) {
        let base = text_in_force(&configuration.runtime).unwrap();
        let data = format!("{}    vm.{name}: '1'\n", base.as_str()).into_bytes();
        let request = ApplyConfigurationRequest { data, mode: Mode::NoReboot.into(), ..Default::default() };
        apply(configuration, &request, None).await.unwrap();
    }

    /// After an upgrade, too: what is on STATE comes into force, with a warning.
    #[tokio::test]
    async fn a_worker_without_a_ca_is_refused_as_a_new_config_and_kept_as_an_old_one() {
        let dir = tempfile::tempdir().unwrap();
        let configuration = crate::server::tests_node(dir.path().to_owned()).configuration.clone();
        let request = |dry_run| ApplyConfigurationRequest {
            data: CONFIG.as_bytes().to_vec(),
            mode: Mode::NoReboot.into(),
            dry_run,
            ..Default::default()
        };
        for dry_run in [true, false] {
            let error = apply(&configuration, &request(dry_run), None).await.unwrap_err().to_string();
            assert!(error.contains("machine.ca: a worker needs the certificate of the API's CA"), "{error}");
        }
        assert!(configuration.runtime.config().is_none());
        put_into_force(&configuration, Zeroizing::new(CONFIG.to_owned())).unwrap();
        assert!(configuration.runtime.config().is_some());
        let answer = apply(&configuration, &request(true), None).await.unwrap();
        assert!(answer.warnings.iter().any(|warning| warning.contains("machine.ca: a worker needs")));
        assert!(answer.warnings.iter().all(|warning| !warning.contains("warning:")), "{:?}", answer.warnings);
    }

    /// Two clients read one config and both change it: the second is told, and loses nothing that it did not see.
    #[tokio::test]
    async fn two_changes_of_one_base_do_not_both_win() {
        let dir = tempfile::tempdir().unwrap();
        let configuration = crate::server::tests_node(dir.path().to_owned()).configuration.clone();
        put_into_force(&configuration, Zeroizing::new(CONFIG.to_owned())).unwrap();
        let metadata = configuration
            .runtime
            .store
            .get(&super::super::MACHINE_CONFIG, "v1alpha1")
            .unwrap()
            .metadata
            .clone();
        let change = |name: &str, base_version: &str| ApplyConfigurationRequest {
            data: format!("{CONFIG}    vm.{name}: '1'\n").into_bytes(),
            mode: Mode::NoReboot.into(),
            base_version: base_version.to_owned(),
            base_updated: Some(clock::proto(metadata.updated)),
            ..Default::default()
        };
        let base = metadata.version.to_string();
        apply(&configuration, &change("first", &base), None).await.unwrap();
        let second = apply(&configuration, &change("second", &base), None).await.unwrap_err();
        assert!(
            matches!(&second, Failure::Outdated { read, now } if *read == base && *now == metadata.version + 1)
        );
        assert!(text_in_force(&configuration.runtime).unwrap().contains("vm.first:"));
        // The same version of another start of machined.
        let now = (metadata.version + 1).to_string();
        assert!(matches!(
            apply(&configuration, &change("third", &now), None).await,
            Err(Failure::Outdated { .. })
        ));
        // A client that says nothing replaces what is there, as ever.
        apply(&configuration, &change("last", ""), None).await.unwrap();
        assert!(text_in_force(&configuration.runtime).unwrap().contains("vm.last:"));
    }

    /// `patch --mode staged -p A; patch --mode staged -p B`, and a live one behind them.
    #[tokio::test]
    async fn what_waits_for_the_restart_is_lost_by_no_later_change() {
        let dir = tempfile::tempdir().unwrap();
        let configuration = crate::server::tests_node(dir.path().to_owned()).configuration.clone();
        let state = dir.path().join("state");
        std::fs::create_dir(&state).unwrap();
        configuration.volumes.set_state(State::at(&state));
        std::fs::write(state.join("config.yaml"), CONFIG).unwrap();
        put_into_force(&configuration, Zeroizing::new(CONFIG.to_owned())).unwrap();
        let get = |id: &str| configuration.runtime.store.get(&super::super::MACHINE_CONFIG, id).unwrap();
        let text = |id: &str| match &get(id).spec {
            runtime::store::Spec::MachineConfig(document) => document.text.to_string(),
            _ => unreachable!(),
        };
        assert_eq!(text(PERSISTENT), CONFIG);
        let change = |base: Option<&str>, name: &str, mode: Mode| {
            let metadata = base.map(|id| get(id).metadata.clone());
            ApplyConfigurationRequest {
                data: format!("{}    vm.{name}: '1'\n", text(base.unwrap_or(IN_FORCE))).into_bytes(),
                mode: mode.into(),
                base_version: metadata.as_ref().map(|base| base.version.to_string()).unwrap_or_default(),
                base_updated: metadata.map(|base| clock::proto(base.updated)),
                ..Default::default()
            }
        };
        // Nothing waits: what is in force is what the next start takes.
        apply(&configuration, &change(Some(IN_FORCE), "a", Mode::Staged), None).await.unwrap();
        assert!(text(PERSISTENT).contains("vm.a:") && !text(IN_FORCE).contains("vm.a:"));
        let error =
            apply(&configuration, &change(Some(IN_FORCE), "b", Mode::Staged), None).await.unwrap_err();
        assert!(matches!(error, Failure::Waiting), "{error}");
        apply(&configuration, &change(Some(PERSISTENT), "b", Mode::Staged), None).await.unwrap();
        assert!(text(PERSISTENT).contains("vm.a:") && text(PERSISTENT).contains("vm.b:"));
        // A try takes nothing of it along, and leaves it.
        apply(&configuration, &change(Some(IN_FORCE), "t", Mode::Try), None).await.unwrap();
        assert!(text(PERSISTENT).contains("vm.b:") && text(IN_FORCE).contains("vm.t:"));
        assert!(!text(IN_FORCE).contains("vm.b:"));
        // Live: all of it is in force.
        apply(&configuration, &change(Some(PERSISTENT), "c", Mode::NoReboot), None).await.unwrap();
        assert_eq!(text(IN_FORCE), text(PERSISTENT));
        assert!(["a", "b", "c"].iter().all(|name| text(IN_FORCE).contains(&format!("vm.{name}:"))));
        // A client that does not say what it read is told.
        apply(&configuration, &change(Some(PERSISTENT), "d", Mode::Staged), None).await.unwrap();
        let answer = apply(&configuration, &change(None, "e", Mode::NoReboot), None).await.unwrap();
        let warning = answer.warnings.iter().find(|warning| warning.contains("waited for the restart"));
        assert!(
            warning.is_some_and(|warning| warning.ends_with("machine.sysctls.vm.d")),
            "{:?}",
            answer.warnings
        );
    }

    #[tokio::test]
    async fn a_refused_config_is_among_the_diagnostics_until_one_is_taken() {
        let dir = tempfile::tempdir().unwrap();
        let configuration = crate::server::tests_node(dir.path().to_owned()).configuration.clone();
        put_into_force(&configuration, Zeroizing::new(CONFIG.to_owned())).unwrap();
        let bad = |dry_run| ApplyConfigurationRequest {
            data: CONFIG.replace("type: worker", "type: woker").into_bytes(),
            mode: Mode::NoReboot.into(),
            dry_run,
            ..Default::default()
        };
        let refusal = || {
            configuration.runtime.store.get(&CONFIG_REFUSAL, "call").map(|found| found.spec.yaml().unwrap())
        };
        apply(&configuration, &bad(true), None).await.unwrap_err();
        assert_eq!(refusal(), None, "whoever only asks leaves nothing");
        apply(&configuration, &bad(false), None).await.unwrap_err();
        assert!(refusal().unwrap().contains("machine.type"), "{refusal:?}", refusal = refusal());
        add(&configuration, "good").await;
        assert_eq!(refusal(), None);
    }

    /// Two patches, one after the other's answer, each from what it reads: `patch mc -p A; patch mc -p B`.
    #[tokio::test]
    async fn lost_updates_of_two_hundred_pairs() {
        let dir = tempfile::tempdir().unwrap();
        let configuration = crate::server::tests_node(dir.path().to_owned()).configuration.clone();
        put_into_force(&configuration, Zeroizing::new(CONFIG.to_owned())).unwrap();
        for pair in 0..200 {
            add(&configuration, &format!("a{pair}")).await;
            add(&configuration, &format!("b{pair}")).await;
            let text = text_in_force(&configuration.runtime).unwrap();
            assert!(text.contains(&format!("vm.a{pair}:")) && text.contains(&format!("vm.b{pair}:")));
        }
        let mut config = configuration.runtime.config.subscribe();
        let all = |config: &Option<Arc<config::Config>>| {
            config.as_ref().is_some_and(|config| config.machine.sysctls.len() == 401)
        };
        tokio::time::timeout(Duration::from_secs(60), config.wait_for(all)).await.unwrap().unwrap();
    }
}
