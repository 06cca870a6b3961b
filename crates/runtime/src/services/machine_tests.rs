//! Every cell of the table, written out a second time as a grid.

use super::{Action, Event, Restart, State, step};

const EVENTS: [Event; 14] = [
    Event::StartAsked,
    Event::StopAsked,
    Event::RestartAsked,
    Event::SkipAsked,
    Event::Adopted,
    Event::ConditionsMet,
    Event::Prepared,
    Event::PrepareFailed,
    Event::Spawned,
    Event::SpawnFailed,
    Event::Succeeded,
    Event::Crashed,
    Event::PauseOver,
    Event::TermExpired,
];

/// Two letters a state; `..` stays.
const GRID: &str = "
      start stop  rest  skip  adopt cond  prep  prepF spawn spwnF succ  crash pause term
    In Wa    ..    Wa    Sk    Ru    ..    ..    ..    ..    ..    ..    ..    ..    ..
    Wa ..    Fi    ..    Sk    Ru    Pr    ..    ..    ..    ..    ..    ..    ..    ..
    Pr ..    Fi    ..    Sk    Ru    ..    St    Pa    ..    ..    ..    ..    ..    ..
    St ..    So    ..    ..    Ru    ..    ..    ..    Ru    Pa    ..    ..    ..    ..
    Ru ..    So    Re    So    ..    ..    ..    ..    ..    ..    Pa    Pa    ..    ..
    Pa Pr    Fi    Pr    Sk    Ru    ..    ..    ..    ..    ..    ..    ..    Pr    ..
    So Re    ..    Re    ..    ..    ..    ..    ..    ..    Fi    Fi    Fi    ..    Ki
    Ki Re    ..    Re    ..    ..    ..    ..    ..    ..    Fi    Fi    Fi    ..    ..
    Re ..    So    ..    So    ..    ..    ..    ..    ..    Wa    Wa    Wa    ..    ..
    Fi Wa    ..    Wa    Sk    Ru    ..    ..    ..    ..    ..    ..    ..    ..    ..
    Fa Wa    ..    Wa    Sk    Ru    ..    ..    ..    ..    ..    ..    ..    ..    ..
    Sk Wa    ..    Wa    ..    Ru    ..    ..    ..    ..    ..    ..    ..    ..    ..
";

fn letters(state: State) -> &'static str {
    match state {
        State::Initialized => "In",
        State::Waiting => "Wa",
        State::Preparing => "Pr",
        State::Starting => "St",
        State::Running => "Ru",
        State::Pausing => "Pa",
        State::Stopping => "So",
        State::Killing => "Ki",
        State::Restarting => "Re",
        State::Finished => "Fi",
        State::Failed => "Fa",
        State::Skipped => "Sk",
    }
}

#[test]
fn every_cell_leads_where_the_grid_says() {
    let rows: Vec<Vec<&str>> =
        GRID.lines().filter(|l| !l.trim().is_empty()).map(|l| l.split_whitespace().collect()).collect();
    assert_eq!(rows.len(), State::ALL.len() + 1);
    for (state, row) in State::ALL.into_iter().zip(&rows[1..]) {
        assert_eq!((row[0], row.len()), (letters(state), EVENTS.len() + 1));
        for (event, cell) in EVENTS.into_iter().zip(&row[1..]) {
            let (next, _) = step(Restart::Forever, state, event);
            let wanted = if *cell == ".." { letters(state) } else { cell };
            assert_eq!(letters(next), wanted, "{state:?} on {event:?}");
        }
    }
}

#[test]
fn without_restart_an_end_is_final() {
    let ends = [
        (State::Running, Event::Succeeded, State::Finished),
        (State::Running, Event::Crashed, State::Failed),
        (State::Preparing, Event::PrepareFailed, State::Failed),
        (State::Starting, Event::SpawnFailed, State::Failed),
    ];
    for (state, event, next) in ends {
        assert_eq!(step(Restart::Never, state, event).0, next);
    }
    for state in State::ALL {
        for event in EVENTS {
            if !ends.iter().any(|(s, e, _)| (*s, *e) == (state, event)) {
                assert_eq!(step(Restart::Never, state, event), step(Restart::Forever, state, event));
            }
        }
    }
}

#[test]
fn actions_fit_the_transition() {
    for restart in [Restart::Forever, Restart::Never] {
        for state in State::ALL {
            for event in EVENTS {
                let (next, actions) = step(restart, state, event);
                let has = |action| actions.contains(&action);
                let into = |wanted| next == wanted && state != wanted;
                assert_eq!(into(State::Preparing), has(Action::Prepare), "{state:?} {event:?}");
                assert_eq!(into(State::Waiting), has(Action::AwaitConditions), "{state:?} {event:?}");
                assert_eq!(into(State::Starting), has(Action::Spawn), "{state:?} {event:?}");
                assert_eq!(into(State::Pausing), has(Action::Pause), "{state:?} {event:?}");
                assert_eq!(into(State::Running), has(Action::BeginHealth), "{state:?} {event:?}");
                let leaves_running = state == State::Running && next != State::Running;
                assert_eq!(leaves_running, has(Action::EndHealth), "{state:?} {event:?}");
                if next == state && event != Event::Spawned && event != Event::TermExpired {
                    assert!(actions.is_empty(), "{state:?} {event:?}");
                }
            }
        }
    }
}

#[test]
fn a_process_that_appears_after_a_stop_is_ended() {
    let (state, actions) = step(Restart::Forever, State::Starting, Event::StopAsked);
    assert_eq!((state, actions), (State::Stopping, &[Action::Terminate][..]));
    assert_eq!(step(Restart::Forever, state, Event::Spawned), (State::Stopping, &[Action::Terminate][..]));
}

#[test]
fn words_and_numbers_are_those_of_the_wire() {
    let wire =
        ["Initialized", "Preparing", "Waiting", "Running", "Stopping", "Finished", "Failed", "Skipped"];
    for state in State::ALL {
        let number = usize::try_from(state.number()).unwrap();
        assert_eq!(wire[number], state.text());
    }
}
