//! `dashboard`: the nodes on one screen.
//!
//! | task | in | out | ends |
//! |---|---|---|---|
//! | one `poll` a node | calls of the node API | a [`Snapshot`] each interval | when the screen is left |
//! | keyboard (a thread) | key presses | keys | with the process; it waits in a read |
//! | the loop of [`run`] | snapshots, keys | the screen | at `q`, Esc or Ctrl-C |
//!
//! Owns: the terminal while it runs, and giving it back whatever happens.
//! Source: docs/users/commands.md (`dashboard`).

mod app;
mod snapshot;
#[cfg(test)]
mod tests;
mod view;

use super::events::duration;
use crate::session::Session;
use anyhow::{Result, bail};
use app::{Answer, App};
use ratatui::crossterm::event::{self, Event, KeyEvent};
use snapshot::Snapshot;
use std::{
    io::{self, IsTerminal},
    sync::Arc,
    time::Duration,
};
use tokio::{
    sync::{mpsc, watch},
    time::{sleep, timeout},
};

/// Updates and keys that may wait.
const QUEUE: usize = 16;
/// One question to a node.
const ANSWER: Duration = Duration::from_secs(10);

#[derive(Debug, clap::Args)]
pub(crate) struct Flags {
    /// Time between two looks at the nodes
    #[arg(short = 'd', long, default_value = "3s", value_parser = duration, value_name = "TIME")]
    update_interval: Duration,
}

/// A node's number and what was found out about it.
type Update = (usize, Result<Snapshot, String>);

pub(crate) async fn run(session: Session, flags: &Flags) -> Result<()> {
    if !(io::stdout().is_terminal() && io::stdin().is_terminal()) {
        bail!(
            "dashboard needs a terminal; for scripts there are `services`, `memory`, `processes` with -o json"
        );
    }
    let session = Arc::new(session);
    let nodes = session.each_node();
    let names = nodes.iter().map(|n| session.name_of(n.as_deref()).to_owned()).collect();
    let (updates, mut received) = mpsc::channel(QUEUE);
    // What the user looks at decides whose log is fetched.
    let (looking, looked_at) = watch::channel(String::new());
    for (index, node) in nodes.into_iter().enumerate() {
        let (session, updates) = (Arc::clone(&session), updates.clone());
        tokio::spawn(poll(session, node, index, flags.update_interval, updates, looked_at.clone()));
    }
    let mut keys = keyboard();
    let mut app = App::new(names);
    // Gives the terminal back on a panic, too.
    let mut terminal = ratatui::try_init()?;
    let result = loop {
        if let Err(error) = terminal.draw(|frame| view::draw(frame, &app)) {
            break Err(error.into());
        }
        tokio::select! {
            Some((node, snapshot)) = received.recv() => app.update(node, snapshot),
            key = keys.recv() => match key.map(|key| app.press(key)) {
                Some(Answer::Stay) => {}
                Some(Answer::Leave) | None => break Ok(()),
            },
        }
        looking.send_if_modified(|service| {
            let wanted = app.service().unwrap_or_default();
            let changed = *service != wanted;
            *service = wanted;
            changed
        });
    };
    ratatui::restore();
    result
}

/// Looks at one node again and again; at once when the user looks at another service.
async fn poll(
    session: Arc<Session>,
    node: Option<String>,
    index: usize,
    interval: Duration,
    updates: mpsc::Sender<Update>,
    mut service: watch::Receiver<String>,
) {
    loop {
        let id = service.borrow_and_update().clone();
        let asked = timeout(ANSWER, Snapshot::fetch(&session, node.as_deref(), &id)).await;
        let snapshot = match asked {
            Ok(found) => found.map_err(|e| format!("{e:#}")),
            Err(_) => Err(format!("no answer within {} s", ANSWER.as_secs())),
        };
        // Without a receiver the screen was left.
        if updates.send((index, snapshot)).await.is_err() {
            return;
        }
        tokio::select! {
            () = sleep(interval) => {}
            changed = service.changed() => if changed.is_err() { return },
        }
    }
}

/// Key presses; the channel closes when the terminal is gone.
fn keyboard() -> mpsc::Receiver<KeyEvent> {
    let (sender, receiver) = mpsc::channel(QUEUE);
    std::thread::spawn(move || {
        while let Ok(event) = event::read() {
            // A changed size is drawn with the next update; an unknown key only draws again.
            let key = match event {
                Event::Key(key) if key.is_press() => key,
                Event::Resize(..) => KeyEvent::from(event::KeyCode::Null),
                _ => continue,
            };
            if sender.blocking_send(key).is_err() {
                return;
            }
        }
    });
    receiver
}
