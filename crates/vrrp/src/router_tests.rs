//! Every event in every state.

use super::*;

const SECOND: Duration = Duration::from_secs(1);
const T: Duration = Duration::from_secs(1000);
const NONE: &[Action] = &[];
const GIVEN_UP: &[Action] = &[Action::Drop, Action::Send(0)];
const TAKEN: &[Action] = &[Action::Hold, Action::Send(100), Action::Announce];
const DEFENDED: &[Action] = &[Action::Send(100), Action::Announce];

fn address(last: u8) -> IpAddr {
    IpAddr::from([10, 9, 0, last])
}

const OWN: u8 = 5;

/// Priority 100 at 10.9.0.5.
fn router(state: State) -> Router {
    router_with(state, Settings::default())
}

fn router_with(state: State, settings: Settings) -> Router {
    let mut router = Router::new(settings, true);
    if state != State::Initialize {
        assert_eq!(router.step(Event::Startup(address(OWN)), T), NONE);
    }
    if state == State::Active {
        let late = router.deadline().unwrap();
        assert_eq!(router.step(Event::Timer, late).len(), 3);
    }
    assert_eq!(router.state(), state);
    router
}

fn heard(last: u8, priority: u8) -> Event {
    Event::Advertisement(Heard { sender: address(last), priority, interval: Interval::DEFAULT })
}

/// Active_Down_Interval of priority 100 at intervals of a second: 3 s and 156/256 s.
const DOWN: Duration = Duration::from_nanos(3_609_375_000);
const SKEW: Duration = Duration::from_nanos(609_375_000);

#[test]
fn every_event_in_every_state() {
    use State::{Active, Backup, Initialize};
    let far = T + 100 * SECOND;
    let deadline = |state| router(state).deadline();
    let kept = |state| deadline(state);
    let down = Some(far + DOWN);
    let skew = Some(far + SKEW);
    let next = Some(far + SECOND);
    // Where, what happens, what is done, where it is then, until when. `far` is past every timer.
    for (state, event, actions, then, until) in [
        (Initialize, Event::Startup(address(OWN)), NONE, Backup, down),
        (Initialize, Event::Shutdown, NONE, Initialize, None),
        (Initialize, Event::Fit(true), NONE, Initialize, None),
        (Initialize, Event::Fit(false), NONE, Initialize, None),
        (Initialize, heard(9, 0), NONE, Initialize, None),
        (Initialize, heard(9, 200), NONE, Initialize, None),
        (Initialize, Event::Timer, NONE, Initialize, None),
        (Backup, Event::Startup(address(6)), NONE, Backup, kept(Backup)),
        (Backup, Event::Shutdown, NONE, Initialize, None),
        (Backup, Event::Fit(true), NONE, Backup, kept(Backup)),
        (Backup, Event::Fit(false), NONE, Initialize, None),
        (Backup, heard(9, 0), NONE, Backup, skew),
        (Backup, heard(9, 99), NONE, Backup, kept(Backup)),
        (Backup, heard(1, 100), NONE, Backup, down),
        (Backup, heard(9, 100), NONE, Backup, down),
        (Backup, heard(9, 101), NONE, Backup, down),
        (Backup, heard(OWN, 200), NONE, Backup, kept(Backup)),
        (Backup, Event::Timer, TAKEN, Active, next),
        (Active, Event::Startup(address(6)), NONE, Active, kept(Active)),
        (Active, Event::Shutdown, GIVEN_UP, Initialize, None),
        (Active, Event::Fit(true), NONE, Active, kept(Active)),
        (Active, Event::Fit(false), GIVEN_UP, Initialize, None),
        (Active, heard(9, 0), &[Action::Send(100)], Active, next),
        (Active, heard(9, 99), DEFENDED, Active, next),
        (Active, heard(4, 100), DEFENDED, Active, next),
        (Active, heard(6, 100), &[Action::Drop], Backup, down),
        (Active, heard(1, 101), &[Action::Drop], Backup, down),
        (Active, heard(OWN, 200), NONE, Active, kept(Active)),
        (Active, Event::Timer, &[Action::Send(100)], Active, next),
    ] {
        let mut router = router(state);
        let done = router.step(event, far);
        assert_eq!(
            (&done[..], router.state(), router.deadline()),
            (actions, then, until),
            "{event:?} in {state:?}"
        );
    }
}

#[test]
fn timers_do_nothing_before_their_time() {
    for state in [State::Backup, State::Active] {
        let mut router = router(state);
        let deadline = router.deadline().unwrap();
        assert_eq!(router.step(Event::Timer, deadline - Duration::from_nanos(1)), NONE);
        assert_eq!((router.state(), router.deadline()), (state, Some(deadline)));
    }
}

#[test]
fn startup_waits_until_the_machine_is_fit() {
    let mut router = Router::new(Settings::default(), false);
    assert_eq!(router.step(Event::Startup(address(OWN)), T), NONE);
    assert_eq!(router.state(), State::Initialize);
    assert_eq!(router.step(Event::Fit(true), T + SECOND), NONE);
    assert_eq!((router.state(), router.deadline()), (State::Backup, Some(T + SECOND + DOWN)));
    let _ = router.step(Event::Fit(false), T);
    let _ = router.step(Event::Shutdown, T);
    assert_eq!((router.step(Event::Fit(true), T), router.state()), (vec![], State::Initialize));
}

#[test]
fn who_does_not_preempt_follows_a_lower_priority() {
    let settings = Settings { preempts: false, ..Settings::default() };
    let mut router = router_with(State::Backup, settings);
    assert_eq!(router.step(heard(9, 1), T + SECOND), NONE);
    assert_eq!(router.deadline(), Some(T + SECOND + DOWN));
    assert_eq!(router.active(), Some(address(9)));
    // Once it has the addresses it defends them all the same.
    let late = router.deadline().unwrap();
    assert_eq!(router.step(Event::Timer, late), TAKEN);
    assert_eq!(router.step(heard(9, 1), late), DEFENDED);
}

#[test]
fn the_active_routers_interval_counts() {
    let mut router = router(State::Backup);
    let interval = Interval::from_centiseconds(10).unwrap();
    let slow = Heard { sender: address(9), priority: 200, interval };
    let _ = router.step(Event::Advertisement(slow), T);
    assert_eq!(router.deadline(), Some(T + DOWN / 10));
    assert_eq!(router.step(heard(9, 0), T), NONE);
    assert_eq!((router.deadline(), router.active()), (Some(T + SKEW / 10), None));
    // Its own when it begins anew.
    let _ = router.step(Event::Shutdown, T);
    let _ = router.step(Event::Startup(address(OWN)), T);
    assert_eq!(router.deadline(), Some(T + DOWN));
}

#[test]
fn the_owner_of_the_addresses_has_them_at_once() {
    let settings = Settings { priority: OWNER, accepts: false, ..Settings::default() };
    let mut router = Router::new(settings, true);
    let taken = [Action::Hold, Action::Send(255), Action::Announce];
    assert_eq!(router.step(Event::Startup(address(OWN)), T), taken);
    assert_eq!(router.skew_time(), SECOND / 256);
    assert!(router.accepts());
    assert_eq!(router.step(Event::Fit(false), T), GIVEN_UP);
    assert_eq!(router.step(Event::Fit(true), T), taken);
    // Two machines that both say they own the addresses.
    assert_eq!(router.step(heard(6, 255), T), [Action::Drop]);
}

#[test]
fn accept_mode_is_of_the_active_router() {
    for (accepts, state, expected) in [
        (true, State::Active, true),
        (false, State::Active, false),
        (true, State::Backup, false),
        (true, State::Initialize, false),
    ] {
        let settings = Settings { accepts, ..Settings::default() };
        assert_eq!(router_with(state, settings).accepts(), expected, "{state:?}");
    }
}

#[test]
fn who_has_the_addresses_is_known() {
    assert_eq!(router(State::Initialize).active(), None);
    let mut router = router(State::Active);
    assert_eq!(router.active(), Some(address(OWN)));
    let _ = router.step(heard(9, 101), T);
    assert_eq!(router.active(), Some(address(9)));
    let mut backup = self::router(State::Backup);
    assert_eq!(backup.active(), None);
    let _ = backup.step(heard(9, 1), T);
    assert_eq!(backup.active(), Some(address(9)), "also one that is not followed");
}

#[test]
fn addresses_are_compared_as_numbers() {
    // As text 10.9.0.30 would come before 10.9.0.5.
    let mut router = router(State::Active);
    assert_eq!(router.step(heard(30, 100), T), [Action::Drop]);
}
