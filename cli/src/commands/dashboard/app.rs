//! What the screen shows, and what keys do to it.
//!
//! Owns: the chosen node, page and service. Does not: draw or ask.

use super::snapshot::Snapshot;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// A page of the screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Page {
    Services,
    Logs,
    Network,
    Processes,
}

/// In the order of their keys, which begin with 1.
pub(super) const PAGES: [(Page, &str); 4] = [
    (Page::Services, "Services"),
    (Page::Logs, "Logs"),
    (Page::Network, "Network"),
    (Page::Processes, "Processes"),
];

/// What a key means for the loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    Stay,
    Leave,
}

/// A node as far as it is known.
#[derive(Debug, Clone, Default)]
pub(super) struct NodeView {
    pub(super) name: String,
    pub(super) latest: Option<Snapshot>,
    /// Part of the processors' time that was work.
    pub(super) busy: f64,
    /// Bytes received and sent by device since the look before.
    pub(super) rates: Vec<(u64, u64)>,
    /// Why the last look failed.
    pub(super) error: Option<String>,
}

/// The whole screen.
#[derive(Debug, Clone)]
pub(super) struct App {
    pub(super) nodes: Vec<NodeView>,
    pub(super) node: usize,
    pub(super) page: usize,
    pub(super) chosen: usize,
}

impl App {
    pub(super) fn new(names: Vec<String>) -> Self {
        let nodes = names.into_iter().map(|name| NodeView { name, ..NodeView::default() }).collect();
        Self { nodes, node: 0, page: 0, chosen: 0 }
    }

    /// Takes in what was found out about a node.
    pub(super) fn update(&mut self, node: usize, found: Result<Snapshot, String>) {
        let Some(view) = self.nodes.get_mut(node) else { return };
        match found {
            Err(error) => view.error = Some(error),
            Ok(snapshot) => {
                if let Some(before) = &view.latest {
                    view.busy = snapshot.busy_since(before);
                    view.rates = rates(&snapshot, before);
                }
                view.error = None;
                view.latest = Some(snapshot);
            }
        }
        self.chosen = self.chosen.min(self.services().saturating_sub(1));
    }

    /// Does what a key says.
    pub(super) fn press(&mut self, key: KeyEvent) -> Answer {
        let last_node = self.nodes.len().saturating_sub(1);
        match key.code {
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return Answer::Leave,
            KeyCode::Char('q') | KeyCode::Esc => return Answer::Leave,
            KeyCode::Left => self.node = self.node.checked_sub(1).unwrap_or(last_node),
            KeyCode::Right => self.node = if self.node == last_node { 0 } else { self.node + 1 },
            KeyCode::Up => self.chosen = self.chosen.saturating_sub(1),
            KeyCode::Down => self.chosen = (self.chosen + 1).min(self.services().saturating_sub(1)),
            KeyCode::Tab => self.page = (self.page + 1) % PAGES.len(),
            KeyCode::BackTab => self.page = (self.page + PAGES.len() - 1) % PAGES.len(),
            KeyCode::Enter => self.page = 1,
            KeyCode::Char(c @ '1'..='4') => self.page = usize::from(c as u8 - b'1'),
            _ => {}
        }
        self.chosen = self.chosen.min(self.services().saturating_sub(1));
        Answer::Stay
    }

    /// The chosen node.
    pub(super) fn current(&self) -> Option<&NodeView> {
        self.nodes.get(self.node)
    }

    /// The chosen service of the chosen node.
    pub(super) fn service(&self) -> Option<String> {
        let services = &self.current()?.latest.as_ref()?.services;
        services.get(self.chosen).map(|s| s.id.clone())
    }

    fn services(&self) -> usize {
        self.current().and_then(|n| n.latest.as_ref()).map_or(0, |s| s.services.len())
    }
}

fn rates(now: &Snapshot, before: &Snapshot) -> Vec<(u64, u64)> {
    let rate = |device: &api::proto::machine::NetDev| {
        let old = before.devices.iter().find(|d| d.name == device.name);
        old.map_or((0, 0), |old| {
            (device.rx_bytes.saturating_sub(old.rx_bytes), device.tx_bytes.saturating_sub(old.tx_bytes))
        })
    };
    now.devices.iter().map(rate).collect()
}
