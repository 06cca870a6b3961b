//! Drawing the screen.
//!
//! Owns: the layout: nodes on top, resources below, then the chosen page, keys at the bottom. What a node says is drawn as
//! [`text`] has it: the library leaves controls out without a word, and lets what turns the direction of text through.

use super::{
    app::{App, NodeView, PAGES, Page},
    snapshot::Snapshot,
};
use crate::output::{self, bytes_si};
use api::proto::machine::ServiceInfo;
use ratatui::{
    Frame,
    layout::{Constraint, Layout, Rect},
    style::{Color, Modifier, Style},
    text::Line,
    widgets::{Block, Cell, Gauge, Paragraph, Row, Table, Tabs},
};

/// Bytes of a unit in /proc/meminfo.
const KB: u64 = 1024;

/// What somebody else wrote, in one line on which nothing acts.
fn text(of: &str) -> String {
    output::line(of).replace('\t', " ")
}

/// Draws everything.
pub(super) fn draw(frame: &mut Frame<'_>, app: &App) {
    let rows = [
        Constraint::Length(1),
        Constraint::Length(6),
        Constraint::Length(1),
        Constraint::Fill(1),
        Constraint::Length(1),
    ];
    let [nodes, resources, tabs, page, keys] = Layout::vertical(rows).areas(frame.area());
    let names = app.nodes.iter().map(|n| text(&n.name));
    frame.render_widget(Tabs::new(names).select(app.node).highlight_style(chosen()), nodes);
    let titles = PAGES.iter().zip(1..).map(|((_, title), key)| format!("{key} {title}"));
    frame.render_widget(Tabs::new(titles).select(app.page).highlight_style(chosen()), tabs);
    frame.render_widget(
        Line::from("←/→ node   Tab page   ↑/↓ service   Enter its log   q leave").style(dim()),
        keys,
    );
    let Some(node) = app.current() else { return };
    let Some(snapshot) = &node.latest else {
        let said = node.error.as_deref().map_or_else(|| "waiting for the node …".to_owned(), text);
        frame.render_widget(Paragraph::new(said).block(Block::bordered()), page);
        return;
    };
    draw_resources(frame, resources, node, snapshot);
    match PAGES.get(app.page).map(|(page, _)| *page) {
        Some(Page::Logs) => draw_log(frame, page, app, snapshot),
        Some(Page::Network) => draw_network(frame, page, node, snapshot),
        Some(Page::Processes) => draw_processes(frame, page, snapshot),
        _ => draw_services(frame, page, app, snapshot),
    }
}

fn chosen() -> Style {
    Style::new().add_modifier(Modifier::REVERSED)
}

fn dim() -> Style {
    Style::new().fg(Color::DarkGray)
}

fn draw_resources(frame: &mut Frame<'_>, area: Rect, node: &NodeView, s: &Snapshot) {
    let title = text(&format!("{} {} {}", s.hostname, s.version, s.processor));
    let mut block = Block::bordered().title(title);
    if let Some(error) = &node.error {
        block = block.title_bottom(Line::from(text(error)).style(Style::new().fg(Color::Red)));
    }
    let inside = block.inner(area);
    frame.render_widget(block, area);
    let [cpu, memory, load, counts] = Layout::vertical([Constraint::Length(1); 4]).areas(inside);
    gauge(frame, cpu, "CPU", node.busy, &format!("{:.0}%", node.busy * 100.0));
    let m = &s.memory;
    let used = m.memtotal.saturating_sub(m.memavailable);
    let used_of_all =
        format!("{} of {}", bytes_si(used.saturating_mul(KB)), bytes_si(m.memtotal.saturating_mul(KB)));
    gauge(frame, memory, "MEM", ratio(used, m.memtotal), &used_of_all);
    let [one, five, fifteen] = s.load;
    frame.render_widget(Line::from(format!("LOAD {one:.2} {five:.2} {fifteen:.2}  {}", stage(s))), load);
    let processes = format!(
        "PROC {}  running {}  blocked {}",
        s.processes.len(),
        s.stat.process_running,
        s.stat.process_blocked
    );
    frame.render_widget(Line::from(processes), counts);
}

/// How far the node is, and what keeps it from being ready.
fn stage(s: &Snapshot) -> String {
    let Some(status) = &s.status else { return "STAGE ?".to_owned() };
    let name = status.stage().as_str_name();
    let name = name.strip_prefix("RUNTIME_MACHINE_STAGE_").unwrap_or(name).replace('_', " ").to_lowercase();
    let of = status.status.clone().unwrap_or_default();
    let unmet = of.unmet_conditions.iter().map(|unmet| format!("  {}: {}", unmet.name, unmet.reason));
    let ready = if of.ready { "yes" } else { "no" };
    text(&format!("STAGE {name}  READY {ready}{}", unmet.collect::<String>()))
}

fn gauge(frame: &mut Frame<'_>, area: Rect, name: &str, ratio: f64, figure: &str) {
    let [label, bar] = Layout::horizontal([Constraint::Length(5), Constraint::Fill(1)]).areas(area);
    frame.render_widget(Line::from(name), label);
    let colour = if ratio > 0.9 { Color::Red } else { Color::Green };
    let bar_widget =
        Gauge::default().ratio(ratio.clamp(0.0, 1.0)).label(figure).gauge_style(Style::new().fg(colour));
    frame.render_widget(bar_widget, bar);
}

/// A part of a whole; exact enough for a bar.
fn ratio(part: u64, whole: u64) -> f64 {
    let permille = u128::from(part) * 1000 / u128::from(whole.max(1));
    f64::from(u32::try_from(permille.min(1000)).unwrap_or(1000)) / 1000.0
}

fn draw_services(frame: &mut Frame<'_>, area: Rect, app: &App, s: &Snapshot) {
    let rows = s.services.iter().enumerate().map(|(index, service)| {
        let last = service.events.as_ref().and_then(|e| e.events.last()).map_or("", |e| e.msg.as_str());
        let (health, colour) = health(service);
        let cells = [
            Cell::from(text(&service.id)),
            Cell::from(text(&service.state)),
            Cell::from(health).style(Style::new().fg(colour)),
            Cell::from(text(last)),
        ];
        Row::new(cells).style(if index == app.chosen { chosen() } else { Style::new() })
    });
    let widths = [Constraint::Length(16), Constraint::Length(12), Constraint::Length(8), Constraint::Fill(1)];
    table(frame, area, rows.collect(), widths, ["SERVICE", "STATE", "HEALTH", "LAST EVENT"]);
}

fn health(service: &ServiceInfo) -> (&'static str, Color) {
    match &service.health {
        Some(h) if !h.unknown && h.healthy => ("OK", Color::Green),
        Some(h) if !h.unknown => ("Fail", Color::Red),
        _ => ("?", Color::DarkGray),
    }
}

/// The last lines that there is room for.
fn draw_log(frame: &mut Frame<'_>, area: Rect, app: &App, s: &Snapshot) {
    let room = usize::from(area.height.saturating_sub(2));
    let from = s.log.len().saturating_sub(room);
    let lines: Vec<_> = s.log[from..].iter().map(|l| Line::from(text(l))).collect();
    let title = text(&app.service().unwrap_or_default());
    frame.render_widget(Paragraph::new(lines).block(Block::bordered().title(title)), area);
}

fn draw_network(frame: &mut Frame<'_>, area: Rect, node: &NodeView, s: &Snapshot) {
    let rows = s.devices.iter().enumerate().map(|(index, d)| {
        let (rx, tx) = node.rates.get(index).copied().unwrap_or_default();
        Row::new([
            text(&d.name),
            bytes_si(d.rx_bytes),
            bytes_si(rx),
            bytes_si(d.tx_bytes),
            bytes_si(tx),
            d.rx_errors.saturating_add(d.tx_errors).to_string(),
            d.rx_dropped.saturating_add(d.tx_dropped).to_string(),
        ])
    });
    let widths = [16, 12, 12, 12, 12, 8, 8].map(Constraint::Length);
    let headings = ["DEVICE", "RECEIVED", "SINCE", "SENT", "SINCE", "ERRORS", "DROPPED"];
    table(frame, area, rows.collect(), widths, headings);
}

fn draw_processes(frame: &mut Frame<'_>, area: Rect, s: &Snapshot) {
    let mut processes: Vec<_> = s.processes.iter().collect();
    processes.sort_by(|a, b| b.resident_memory.cmp(&a.resident_memory).then(a.pid.cmp(&b.pid)));
    let rows = processes.into_iter().take(usize::from(area.height)).map(|p| {
        let command = if p.args.is_empty() { &p.command } else { &p.args };
        Row::new([
            p.pid.to_string(),
            text(&p.state),
            p.threads.to_string(),
            format!("{:.2}", p.cpu_time),
            bytes_si(p.resident_memory),
            text(command),
        ])
    });
    let widths = [
        Constraint::Length(8),
        Constraint::Length(6),
        Constraint::Length(8),
        Constraint::Length(10),
        Constraint::Length(10),
        Constraint::Fill(1),
    ];
    table(frame, area, rows.collect(), widths, ["PID", "STATE", "THREADS", "CPU-TIME", "RESMEM", "COMMAND"]);
}

fn table<const N: usize>(
    frame: &mut Frame<'_>,
    area: Rect,
    rows: Vec<Row<'_>>,
    widths: [Constraint; N],
    headings: [&'static str; N],
) {
    let header = Row::new(headings).style(Style::new().add_modifier(Modifier::BOLD));
    frame.render_widget(Table::new(rows, widths).header(header).block(Block::bordered()), area);
}
