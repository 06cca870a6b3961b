//! A boot in short.
//!
//! Owns: how far it came, and how it ended, from what it left in the flight recorder.

use jiff::Timestamp;
use ondisk::recorder::{Boot, Line};
use runtime::kmsg;
use runtime::store::EarlierBoot;

/// The lines that lead to an end.
const LAST_LINES: usize = 20;

/// What machined and init say on their way.
const DONE: &str = "billet: boot sequence: done";
const READY: &str = "billet: init: machined is ready";
const MACHINED: &str = "billet: machined: ";
const MACHINED_ENDED: &str = "billet: init: machined ended: ";

/// How far a boot came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// machined did not run, as far as is known.
    Init,
    /// machined ran; its API socket did not listen.
    Machined,
    /// Services were started.
    Services,
    /// The boot sequence was done.
    Running,
}

/// Which boots are those of a new system.
#[derive(Debug, Clone, Copy)]
pub struct Trial<'t> {
    /// Its version.
    pub version: &'t str,
    /// The boot that installed it: an earlier one is of another trial. Empty: not known.
    pub since: &'t str,
    /// How often it was started.
    pub starts: u32,
}

/// A boot in short.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// The kernel's boot id.
    pub id: String,
    /// The version that ran; empty: unknown.
    pub version: String,
    /// `ROOT-A`, `ROOT-B`; empty: unknown.
    pub slot: String,
    /// How far it came.
    pub stage: Stage,
    /// How it ended, in a few words.
    pub end: String,
    /// How often machined ended by itself.
    pub machined_ends: usize,
    /// When its kernel started and when it was last heard of.
    pub span: (Timestamp, Timestamp),
    /// What it said last, as `dmesg` prints it, without newlines.
    pub last_lines: Vec<String>,
}

impl Summary {
    /// What is left of a boot.
    pub fn of(boot: &Boot) -> Self {
        let fact =
            |name| boot.begin.as_ref().and_then(|facts| facts.get(name)).unwrap_or_default().to_owned();
        let from = boot.lines.len().saturating_sub(LAST_LINES);
        let last = boot.lines.iter().skip(from);
        Self {
            id: uuid(&boot.id),
            version: fact("version"),
            slot: fact("slot"),
            stage: stage(&boot.lines),
            end: end(boot),
            machined_ends: boot.lines.iter().filter(|line| line.text.starts_with(MACHINED_ENDED)).count(),
            span: (time(boot, 0), time(boot, boot.last_us)),
            last_lines: last.map(|line| print(boot, line).trim_end().to_owned()).collect(),
        }
    }

    /// The last boot of a trial; `boots`: the newest first.
    pub(super) fn of_last(boots: &[Boot], trial: &Trial<'_>) -> Option<Self> {
        let starts = usize::try_from(trial.starts).unwrap_or(usize::MAX);
        // Not by its slot: where both have its layers, either is taken.
        let is_it = |boot: &Self| boot.version == trial.version;
        // One that ended before init leaves nothing: then the most recent ones are not all of this trial.
        let since = boots.iter().take(starts).map(Self::of).take_while(|boot| boot.id != trial.since);
        since.into_iter().find(is_it)
    }

    /// As `get` shows it.
    pub(super) fn resource(&self, back: u32) -> EarlierBoot {
        EarlierBoot {
            back,
            version: self.version.clone(),
            slot: self.slot.clone(),
            started: self.span.0.to_string(),
            last_heard_of: self.span.1.to_string(),
            stage: self.stage.as_str(),
            end: self.end.clone(),
            machined_ends: self.machined_ends,
            last_lines: self.last_lines.clone(),
        }
    }
}

impl Stage {
    /// In a word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Init => "init",
            Self::Machined => "machined",
            Self::Services => "services",
            Self::Running => "running",
        }
    }
}

/// All lines of a boot, as `dmesg` prints them.
pub fn lines(boot: &Boot) -> impl Iterator<Item = String> + '_ {
    boot.lines.iter().map(|line| print(boot, line))
}

fn print(boot: &Boot, line: &Line) -> String {
    kmsg::line(line.prefix, time(boot, line.time_us), &line.text)
}

/// By the clock as the boot's last slot has it: it may have been set after its first lines.
fn time(boot: &Boot, since_start_us: u64) -> Timestamp {
    let us = i64::try_from(boot.started_us.saturating_add(since_start_us)).unwrap_or(i64::MAX);
    Timestamp::from_microsecond(us).unwrap_or(Timestamp::MAX)
}

fn stage(lines: &[Line]) -> Stage {
    let said = |start: &str| lines.iter().any(|line| line.text.starts_with(start));
    match () {
        () if said(DONE) => Stage::Running,
        () if said(READY) => Stage::Services,
        () if said(MACHINED) => Stage::Machined,
        () => Stage::Init,
    }
}

fn end(boot: &Boot) -> String {
    let fact = |name| boot.end.as_ref().and_then(|facts| facts.get(name));
    match (fact("failed"), fact("action")) {
        (Some(task), _) => format!("failed in {task}: {}", fact("reason").unwrap_or("reason unknown")),
        (None, Some("PowerOff")) => "powered off".to_owned(),
        (None, Some("Reboot")) => "rebooted".to_owned(),
        (None, Some("Halt")) => "halted".to_owned(),
        (None, Some(other)) => other.to_lowercase(),
        (None, None) => "cut off: power, reset, watchdog or kernel panic".to_owned(),
    }
}

/// Eight, four, four, four and twelve digits.
fn uuid(id: &[u8; 16]) -> String {
    let digits: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
    let group = |from: usize, to: usize| digits.get(from..to).unwrap_or_default();
    [group(0, 8), group(8, 12), group(12, 16), group(16, 20), group(20, 32)].join("-")
}

#[cfg(test)]
mod tests {
    use ondisk::recorder::{Facts, Writer};

    use super::*;

    fn boot(lines: &[&str], end: Option<&str>) -> Boot {
        let line = |(text, at): (&&str, u64)| Line {
            prefix: 6,
            time_us: at * 1_000_000,
            writer: Writer::Init,
            text: (*text).to_owned(),
        };
        Boot {
            id: [0xAB; 16],
            started_us: 1_000_000,
            last_us: 9_000_000,
            begin: Some(Facts("version=1.2\nslot=ROOT-B\nkernel=6.12\n".into())),
            end: end.map(|text| Facts(text.into())),
            lines: lines.iter().zip(1..).map(line).collect(),
        }
    }

    #[test]
    fn a_boot_is_known_by_what_it_said() {
        let of = |lines: &[&str], end| Summary::of(&boot(lines, end));
        let failed = of(&["billet: init: Billet 1.2"], Some("failed=find_layers\nreason=no disk\n"));
        assert_eq!((failed.stage, failed.end.as_str()), (Stage::Init, "failed in find_layers: no disk"));
        assert_eq!((failed.version.as_str(), failed.slot.as_str()), ("1.2", "ROOT-B"));
        assert_eq!(failed.id, "abababab-abab-abab-abab-abababababab");
        let loops = ["billet: machined: version 1.2", "billet: init: machined ended: signal 6"].repeat(3);
        let looped = of(&loops, Some("action=Reboot\n"));
        assert_eq!(
            (looped.stage, looped.machined_ends, looped.end.as_str()),
            (Stage::Machined, 3, "rebooted")
        );
        let cut = of(&["billet: init: machined is ready; x", "billet: boot sequence: done: 2s"], None);
        assert_eq!(cut.stage, Stage::Running);
        assert!(cut.end.starts_with("cut off"));
    }

    #[test]
    fn the_boots_of_a_trial_are_told_from_older_ones() {
        let mut rootless = boot(&[], Some("failed=find_layers\nreason=no layers\n"));
        rootless.begin = Some(Facts("version=1.2\nslot=\n".into()));
        let other = Boot { begin: Some(Facts("version=1.1\nslot=ROOT-A\n".into())), ..boot(&[], None) };
        let boots = [other.clone(), rootless, boot(&[], Some("action=Halt\n"))];
        let trial = |version, starts| Trial { version, since: "", starts };
        let end = |version, starts| Summary::of_last(&boots, &trial(version, starts)).map(|boot| boot.end);
        assert_eq!(end("1.2", 2).unwrap(), "failed in find_layers: no layers");
        assert_eq!((end("1.2", 1), end("1.2", 0)), (None, None));
        assert!(end("1.1", 3).unwrap().starts_with("cut off"));
        assert_eq!(end("1.3", 3), None);
        // Three starts that left nothing, behind the boot that installed it, behind an earlier trial.
        let boots = [Boot { id: [1; 16], ..other }, boot(&[], Some("failed=start_machined\n"))];
        let since = uuid(&[1; 16]);
        assert_eq!(Summary::of_last(&boots, &Trial { since: &since, ..trial("1.2", 3) }), None);
        let without = Summary::of_last(&boots, &trial("1.2", 3));
        assert!(without.is_some(), "without it the earlier one is told of");
    }

    #[test]
    fn the_last_lines_have_their_time() {
        let many: Vec<String> = (0..50).map(|n| format!("line {n}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let found = Summary::of(&boot(&many, None));
        assert_eq!(found.last_lines.len(), LAST_LINES);
        assert_eq!(found.last_lines[19], "kern:    info: [1970-01-01T00:00:51Z]: line 49");
        assert_eq!(found.span.1.as_second(), 10);
    }
}
