//! The boot as an SVG picture: one bar a task, on one time axis from power-on.
//!
//! Owns: the layout. Text is drawn by the viewer, nothing is fetched, nothing runs.
//! Source: SVG 1.1.

use super::timeline::{Entry, Timeline, seconds};
use std::fmt::Write;

/// Height of a row and of the text in it, in user units (pixels at 100 %).
const ROW: u64 = 18;
/// Where bars begin: the names stand to the left.
const LEFT: u64 = 280;
/// Width of the time axis.
const WIDTH: u64 = 900;
/// Room to the right for the last bar's time.
const RIGHT: u64 = 90;
/// Rows above a node's first bar: its name and the axis.
const HEAD_ROWS: u64 = 3;
/// Lines of the axis at most.
const TICKS: u64 = 10;

/// The picture of all nodes, one below the other.
pub(super) fn svg(nodes: &[(String, Timeline)]) -> String {
    let (mut body, mut top) = (String::new(), 0);
    for (node, timeline) in nodes {
        top += draw(&mut body, node, timeline, top);
    }
    let width = LEFT + WIDTH + RIGHT;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{top}\" viewBox=\"0 0 {width} {top}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"{width}\" height=\"{top}\" fill=\"white\"/>\n{body}</svg>\n"
    )
}

/// Draws one node from `top` on; answers the height.
fn draw(out: &mut String, node: &str, timeline: &Timeline, top: u64) -> u64 {
    let rows = rows(timeline);
    let end = rows.iter().map(|r| r.end_ns).max().unwrap_or(0).max(1);
    let count = u64::try_from(rows.len()).unwrap_or(0);
    let bottom = top + (HEAD_ROWS + count) * ROW;
    let _ = writeln!(
        out,
        "<text x=\"8\" y=\"{}\" font-size=\"14\" font-weight=\"bold\">{}: {}</text>",
        top + ROW,
        escaped(node),
        seconds(end)
    );
    for tick in ticks(end) {
        let (x, y) = (place(tick, end), top + 2 * ROW);
        let _ =
            writeln!(out, "<line x1=\"{x}\" y1=\"{}\" x2=\"{x}\" y2=\"{bottom}\" stroke=\"#ddd\"/>", y + 4);
        let _ = writeln!(out, "<text x=\"{x}\" y=\"{y}\" fill=\"#666\">{}</text>", seconds(tick));
    }
    for (index, row) in (HEAD_ROWS..).zip(&rows) {
        bar(out, row, end, top + index * ROW - ROW / 2);
    }
    bottom + ROW - top
}

/// All spans on the axis that begins with power-on.
fn rows(timeline: &Timeline) -> Vec<Entry> {
    let before = timeline.firmware_ns + timeline.loader_ns;
    let span = |source: &str, start_ns, end_ns| Entry {
        source: source.to_owned(),
        start_ns,
        end_ns,
        ..Entry::default()
    };
    let first = [
        span("firmware", 0, timeline.firmware_ns),
        span("loader", timeline.firmware_ns, before),
        span("kernel", before, before + timeline.kernel_ns),
    ];
    let shifted = timeline.entries.iter().map(|e| Entry {
        start_ns: e.start_ns + before,
        end_ns: e.end_ns.max(e.start_ns) + before,
        ..e.clone()
    });
    let mut rows: Vec<_> = first.into_iter().filter(|e| e.end_ns > e.start_ns).chain(shifted).collect();
    rows.sort_by_key(|e| (e.start_ns, e.end_ns));
    rows
}

fn bar(out: &mut String, row: &Entry, end: u64, y: u64) {
    let (from, to) = (place(row.start_ns, end), place(row.end_ns, end));
    let colour = match row.source.as_str() {
        "firmware" | "loader" => "#bbbbbb",
        "kernel" => "#e0a458",
        "init" => "#6a994e",
        "service" => "#9b72aa",
        _ => "#457b9d",
    };
    let words = [row.source.as_str(), &row.phase, &row.task];
    let name = words.into_iter().filter(|w| !w.is_empty()).collect::<Vec<_>>().join(" · ");
    let name = escaped(&name);
    let time = seconds(row.end_ns - row.start_ns);
    let (width, text_y) = ((to - from).max(1), y + ROW - 5);
    let _ = writeln!(
        out,
        "<g><title>{name}: from {} for {time}</title><text x=\"{}\" y=\"{text_y}\" text-anchor=\"end\">{name}</text>\
         <rect x=\"{from}\" y=\"{}\" width=\"{width}\" height=\"{}\" fill=\"{colour}\"/>\
         <text x=\"{}\" y=\"{text_y}\" fill=\"#444\">{time}</text></g>",
        seconds(row.start_ns),
        LEFT - 8,
        y + 2,
        ROW - 4,
        from + width + 4,
    );
}

/// Horizontal place of a time.
fn place(ns: u64, end: u64) -> u64 {
    let x = u128::from(ns.min(end)) * u128::from(WIDTH) / u128::from(end.max(1));
    LEFT + u64::try_from(x).unwrap_or(0)
}

/// Round times on the axis: 1, 2 or 5 times a power of ten apart.
fn ticks(end: u64) -> Vec<u64> {
    let steps = (0..19).flat_map(|e| [1, 2, 5].map(|m| m * 10_u64.pow(e)));
    let step = steps.into_iter().find(|step| end / step <= TICKS).unwrap_or(u64::MAX);
    (0..=end / step).map(|n| n * step).collect()
}

fn escaped(text: &str) -> String {
    let plain = text.chars().filter(|c| !c.is_control());
    plain.fold(String::new(), |mut out, c| {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c => out.push(c),
        }
        out
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timeline() -> Timeline {
        let entry = |source: &str, task: &str, start_ns, end_ns| Entry {
            source: source.into(),
            phase: "root".into(),
            task: task.into(),
            start_ns,
            end_ns,
        };
        Timeline {
            firmware_ns: 0,
            loader_ns: 500_000_000,
            kernel_ns: 500_000_000,
            entries: vec![
                entry("service", "<apid>", 1_000_000_000, 1_500_000_000),
                entry("init", "open", 500_000_000, 1_000_000_000),
            ],
        }
    }

    #[test]
    fn bars_stand_where_their_time_is() {
        let text = svg(&[("n".into(), timeline())]);
        // 2 s in all: the loader's half second is a quarter of the axis, init's bar begins in its middle.
        assert!(
            text.contains("<rect x=\"280\" y=\"47\" width=\"225\" height=\"14\" fill=\"#bbbbbb\"/>"),
            "{text}"
        );
        assert!(
            text.contains("<rect x=\"730\" y=\"83\" width=\"225\" height=\"14\" fill=\"#6a994e\"/>"),
            "{text}"
        );
        assert!(text.contains("service · root · &lt;apid&gt;") && !text.contains("<apid>"));
        assert!(!text.contains("firmware"), "an unknown time is no bar");
        assert!(text.starts_with("<svg ") && text.ends_with("</svg>\n"));
        assert_eq!(text.matches("<g>").count(), text.matches("</g>").count());
    }

    #[test]
    fn the_axis_has_round_times() {
        assert_eq!(ticks(10), (0..=10).collect::<Vec<_>>());
        assert_eq!(ticks(2_000_000_000).len(), 11);
        assert_eq!(ticks(7_300_000_000).last(), Some(&7_000_000_000));
        assert!(ticks(u64::MAX).len() <= 11);
    }

    #[test]
    fn nothing_is_a_picture_too() {
        assert!(svg(&[]).contains("height=\"0\""));
        assert!(svg(&[("n".into(), Timeline::default())]).contains(">n: "));
    }
}
