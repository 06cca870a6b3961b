//! A case: one operation on one disk, recorded, and the rule that every state after a power cut must keep.

use std::ops::{ControlFlow, Range};

use ondisk::ReadAt as _;

use super::Fault;
use super::model::{Judge, System, esp_is_sound, table};
use super::verdicts::Verdicts;
use crate::device::{BlockDevice as _, Event, Memory, Recorder, Recording, State, Tears};
use crate::upgrade::Slot;

/// What a rule asks of a state: the disk, and the promises made.
pub type Demand = Box<dyn Fn(&mut Memory, &[&str]) -> Result<(), String>>;

/// What must hold in every state.
pub struct Rule {
    /// What may be started before the promise, besides what may be started after it.
    pub before: Vec<(String, Slot)>,
    /// What may be started at any time, and is the only thing after the promise.
    pub after: Vec<(String, Slot)>,
    /// Ranges that are as they were.
    pub kept: Vec<Range<u64>>,
    /// Whether the ESP can always be changed again.
    pub esp: bool,
    /// What else must hold.
    pub demand: Option<Demand>,
    /// What must hold of a state that starts nothing; `None`: there must be none.
    pub otherwise: Option<Demand>,
}

impl Rule {
    /// Nothing but this system is ever started.
    #[must_use]
    pub fn always(version: &str, slot: Slot) -> Self {
        let after = vec![(version.to_owned(), slot)];
        Self { before: Vec::new(), after, kept: Vec::new(), esp: true, demand: None, otherwise: None }
    }

    /// The first system until the promise, the second one after it.
    #[must_use]
    pub fn from_to(before: (&str, Slot), after: (&str, Slot)) -> Self {
        let before = vec![(before.0.to_owned(), before.1)];
        Self { before, ..Self::always(after.0, after.1) }
    }

    /// These ranges must not change.
    #[must_use]
    pub fn keeping(mut self, ranges: impl IntoIterator<Item = Range<u64>>) -> Self {
        self.kept.extend(ranges);
        self
    }

    /// More must hold.
    #[must_use]
    pub fn demanding(
        mut self,
        demand: impl Fn(&mut Memory, &[&str]) -> Result<(), String> + 'static,
    ) -> Self {
        self.demand = Some(Box::new(demand));
        self
    }
}

/// One operation on one disk.
pub struct Case {
    /// What was done.
    pub recording: Recording,
    /// The device after it.
    pub after: Memory,
    /// Where a write may be cut between any two sectors.
    pub torn: Vec<Range<u64>>,
    /// Where it may be cut too, and few of the places are looked at.
    pub slots: Vec<Range<u64>>,
    /// Names of parts of the disk, for people.
    pub areas: Vec<(String, Range<u64>)>,
    /// The systems that are on the disk or come to it.
    pub systems: Vec<System>,
    /// What must hold.
    pub rule: Rule,
}

/// A state that breaks the rule.
#[derive(Debug, Clone)]
pub struct Bad {
    /// Its number, from 1.
    pub number: usize,
    /// When the power went and what is missing.
    pub cut: String,
    /// What is wrong.
    pub why: String,
}

impl Case {
    /// Records `operation` on a disk.
    ///
    /// Tables, ESP and META are torn at any sector, the slots in a few places: all but what lies behind META.
    pub fn record(
        before: &Memory,
        areas: Vec<(String, Range<u64>)>,
        systems: &[&System],
        rule: Rule,
        operation: impl FnOnce(&mut Recorder) -> Result<(), Fault>,
    ) -> Result<Self, Fault> {
        let mut recorder = Recorder::new(before.clone());
        operation(&mut recorder)?;
        Ok(Self::of(recorder, areas, systems, rule))
    }

    /// What was recorded already.
    #[must_use]
    pub fn of(recorder: Recorder, areas: Vec<(String, Range<u64>)>, systems: &[&System], rule: Rule) -> Self {
        let (recording, after) = recorder.finish();
        let slots = [Slot::A, Slot::B].map(Slot::partition);
        let whole = ["STATE", "EPHEMERAL", "unused space"];
        let is_slot = |name: &str| slots.contains(&name);
        let ranges = |is_one: &dyn Fn(&str) -> bool| {
            let areas = areas.iter().filter(|(name, _)| is_one(name));
            areas.map(|(_, range)| range.clone()).collect()
        };
        let torn = ranges(&|name| !whole.contains(&name) && !is_slot(name));
        let slots = ranges(&is_slot);
        let systems = systems.iter().map(|system| (*system).clone()).collect();
        Self { recording, after, torn, slots, areas, systems, rule }
    }

    /// A judge who knows this case's systems.
    #[must_use]
    pub fn judge(&self) -> Judge {
        Judge::new(&self.systems.iter().collect::<Vec<_>>())
    }

    /// Whether and where a write to this range may be torn.
    fn tears(&self, range: &Range<u64>, tears: Tears) -> Option<Tears> {
        let is_in = |areas: &[Range<u64>]| {
            areas.iter().any(|area| area.start <= range.start && range.end <= area.end)
        };
        if is_in(&self.torn) {
            return Some(tears);
        }
        is_in(&self.slots).then_some(Tears::Few)
    }

    /// Calls `look` with the number of every state, from 1, until it breaks; the number of states.
    pub fn each_state(
        &self,
        tears: Tears,
        mut look: impl FnMut(usize, State<'_>) -> ControlFlow<()>,
    ) -> usize {
        let mut number = 0;
        self.recording.each_state_until(&|range| self.tears(range, tears), |state| {
            number += 1;
            look(number, state)
        })
    }

    /// Whether a state keeps the rule.
    pub fn check(&self, judge: &mut Judge, state: &mut State<'_>) -> Result<(), String> {
        let promised = !state.promises.is_empty();
        let rule = &self.rule;
        for (at, _) in state.disk.blocks_unlike(&self.recording.before) {
            if let Some(kept) = rule.kept.iter().find(|kept| kept.contains(&at)) {
                return Err(format!("byte {at} changed, in {}", self.area(kept.start)));
            }
        }
        match judge.start(&mut state.disk) {
            Ok(started) => {
                let is = |wanted: &(String, Slot)| (&wanted.0, wanted.1) == (&started.version, started.slot);
                let allowed = rule.after.iter().any(is) || (!promised && rule.before.iter().any(is));
                if !allowed {
                    return Err(format!("it starts {started}"));
                }
                if rule.esp {
                    esp_is_sound(&mut state.disk)?;
                }
            }
            Err(why) => match &rule.otherwise {
                Some(otherwise) => {
                    otherwise(&mut state.disk, &state.promises).map_err(|error| format!("{why}; {error}"))?;
                }
                None => return Err(format!("it starts nothing: {why}")),
            },
        }
        rule.demand.as_ref().map_or(Ok(()), |demand| demand(&mut state.disk, &state.promises))
    }

    /// The first state that breaks the rule, of those with few tears.
    #[must_use]
    pub fn first_bad(&self, verdicts: &mut Verdicts) -> Option<Bad> {
        let mut found = None;
        self.each_state(Tears::Few, |number, mut state| match verdicts.of(self, &mut state) {
            Ok(()) => ControlFlow::Continue(()),
            Err(why) => {
                found = Some(Bad { number, cut: self.describe(&state), why });
                ControlFlow::Break(())
            }
        });
        found
    }

    /// The same case as if one flush had been forgotten.
    #[must_use]
    pub fn without_flush(self, index: usize) -> Option<Self> {
        let recording = self.recording.without_flush(index)?;
        Some(Self { recording, ..self })
    }

    /// When the power went, and what is not on the medium, in words.
    #[must_use]
    pub fn describe(&self, state: &State<'_>) -> String {
        let events = &self.recording.events;
        let mut text = match events.get(state.cut.before) {
            Some(event) => format!("the power goes before event {}: {}", state.cut.before, self.event(event)),
            None => format!("the power goes after the last of {} events", events.len()),
        };
        for damage in &state.cut.damage {
            let event = events.get(damage.write).map_or_else(String::new, |event| self.event(event));
            let what = match damage.sectors {
                0 => "lost is".to_owned(),
                sectors => format!("only the first {sectors} sectors are there of"),
            };
            text.push_str(&format!("; {what} event {}: {event}", damage.write));
        }
        text
    }

    /// What happened, in words.
    #[must_use]
    pub fn event(&self, event: &Event) -> String {
        match event {
            Event::Write { offset, bytes } => {
                format!("write {} bytes at {offset}, {}", bytes.len(), self.area(*offset))
            }
            Event::Zero { range } => {
                format!(
                    "zero {} bytes at {}, {}",
                    range.end - range.start,
                    range.start,
                    self.area(range.start)
                )
            }
            Event::Flush => "flush".into(),
            Event::Acknowledge(promise) => format!("promise {promise:?}"),
        }
    }

    /// The part of the disk that a byte lies in.
    #[must_use]
    pub fn area(&self, at: u64) -> &str {
        self.areas
            .iter()
            .find(|(_, range)| range.contains(&at))
            .map_or("outside of all areas", |(name, _)| name)
    }

    /// For each flush the areas that were written since the one before, and which one it is of those that share this,
    /// counted from the last.
    #[must_use]
    pub fn flushes(&self) -> Vec<String> {
        let mut labels: Vec<String> = Vec::new();
        let mut areas: Vec<&str> = Vec::new();
        for event in &self.recording.events {
            match event {
                Event::Write { offset: at, .. } | Event::Zero { range: Range { start: at, .. } } => {
                    let area = self.area(*at);
                    if !areas.contains(&area) {
                        areas.push(area);
                    }
                }
                Event::Flush => {
                    areas.sort_unstable();
                    labels.push(if areas.is_empty() { "nothing".into() } else { areas.join(" + ") });
                    areas.clear();
                }
                Event::Acknowledge(_) => {}
            }
        }
        let later =
            |at: usize, label: &String| labels.iter().skip(at + 1).filter(|other| *other == label).count();
        let counted = labels.iter().enumerate().map(|(at, label)| match later(at, label) {
            0 => label.clone(),
            more => format!("{label}, {more} before the last"),
        });
        counted.collect()
    }

    /// How many promises are made.
    #[must_use]
    pub fn acknowledgements(&self) -> usize {
        self.recording.events.iter().filter(|event| matches!(event, Event::Acknowledge(_))).count()
    }
}

/// The parts of an installed disk: both tables, what lies on the ESP, each other partition.
pub fn areas(disk: &Memory) -> Result<Vec<(String, Range<u64>)>, Fault> {
    let mut disk = disk.clone();
    let table = table(&mut disk)?;
    let sectors = |count: u64| count * u64::from(table.geometry.sector_bytes);
    let mut areas = vec![("primary table".to_owned(), 0..sectors(table.geometry.first_usable()))];
    for partition in &table.partitions {
        let start = table.offset_bytes(partition);
        let range = start..start + table.size_bytes(partition);
        if partition.name == "EFI" {
            areas.extend(esp_areas(&mut disk, &range)?);
        } else {
            areas.push((partition.name.clone(), range));
        }
    }
    let used = table.partitions.iter().map(|partition| sectors(partition.last_lba + 1)).max().unwrap_or(0);
    areas.push(("unused space".to_owned(), used..sectors(table.geometry.last_usable() + 1)));
    areas.push(("backup table".to_owned(), sectors(table.geometry.last_usable() + 1)..disk.bytes()));
    Ok(areas)
}

/// Boot sectors with FSInfo, the two FATs, and what is behind them.
fn esp_areas(disk: &mut Memory, esp: &Range<u64>) -> Result<[(String, Range<u64>); 3], Fault> {
    let mut boot = [0; 512];
    disk.read_at(esp.start, &mut boot)?;
    let field = |at: usize, length: usize| {
        let bytes = boot.get(at..at + length).unwrap_or(&[]);
        bytes.iter().rev().fold(0_u64, |value, byte| value << 8 | u64::from(*byte))
    };
    let sector = field(11, 2);
    let tables = esp.start + field(14, 2) * sector;
    let files = tables + field(16, 1) * field(36, 4) * sector;
    Ok([
        ("EFI head".to_owned(), esp.start..tables),
        ("EFI tables".to_owned(), tables..files),
        ("EFI files".to_owned(), files..esp.end),
    ])
}
