//! Settings of cards: features, queues, what wakes the machine; and what each card does.
//!
//! Owns: what a card had before the config changed it, in a file below /system/run, so that a setting which the config no longer
//! has goes back also after machined started again.
//! Order: what is to be is compared with what is, and only the difference is set: a card restarts its queues at each change. What
//! a card had is noted before it is set.
//! Fails by: one line a refusal, said once; tried again after a pause, and when link or config change.
//! Source: Documentation/networking/ethtool-netlink.rst of Linux; ethtool(8).

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use network_plan::{Ethernet, Plan};
use runtime::Runtime;
use runtime::store::{
    ETHERNET_SPEC, ETHERNET_STATUS, EthernetFeature, EthernetSpec, EthernetStatus, NetworkSpec, Spec,
};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::ethtool::{Attributes, Ethtool, Subject, Value};
use super::link::Link;
use super::media::Media;

const RECORD: &str = "/system/run/machined/ethernet.json";
/// Between two attempts at what a card refused.
const RETRY: Duration = Duration::from_secs(10);
/// Attributes of features: all that the card has with what may be changed, those that are on, those that are fixed.
const FEATURES_HW: u16 = 2;
const FEATURES_WANTED: u16 = 3;
const FEATURES_ACTIVE: u16 = 4;
const FEATURES_NOCHANGE: u16 = 5;
const WAKE_MODES: u16 = 2;

/// A number of a card: its name, its attribute, that of its maximum, and its form.
struct Number {
    name: &'static str,
    attribute: u16,
    most: Option<u16>,
    form: Form,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Number,
    /// 0 or 1.
    Switch,
    /// 0: the card chooses; 1: off; 2: on.
    Choice,
}

const fn number(name: &'static str, attribute: u16, most: Option<u16>) -> Number {
    Number { name, attribute, most, form: Form::Number }
}

const RINGS: [Number; 10] = [
    number("rx", 6, Some(2)),
    number("rx-mini", 7, Some(3)),
    number("rx-jumbo", 8, Some(4)),
    number("tx", 9, Some(5)),
    number("rx-buf-len", 10, None),
    Number { name: "tcp-data-split", attribute: 11, most: None, form: Form::Choice },
    number("cqe-size", 12, None),
    Number { name: "tx-push", attribute: 13, most: None, form: Form::Switch },
    Number { name: "rx-push", attribute: 14, most: None, form: Form::Switch },
    number("tx-push-buf-len", 15, Some(16)),
];

const CHANNELS: [Number; 4] = [
    number("rx", 6, Some(2)),
    number("tx", 7, Some(3)),
    number("other", 8, Some(4)),
    number("combined", 9, Some(5)),
];

impl Number {
    fn read(&self, told: &Attributes) -> Option<u32> {
        let found = told.number(self.attribute)?;
        match self.form {
            Form::Number | Form::Switch => Some(found),
            Form::Choice => found.checked_sub(1),
        }
    }

    fn value(&self, wanted: u32) -> Value {
        // Truth values are 0 and 1.
        let byte = u8::try_from(wanted.min(1)).unwrap_or_default();
        match self.form {
            Form::Number => Value::Number(self.attribute, wanted),
            Form::Switch => Value::Byte(self.attribute, byte),
            Form::Choice => Value::Byte(self.attribute, byte + 1),
        }
    }
}

/// The cards' settings.
pub(super) struct Cards {
    path: PathBuf,
    before: BTreeMap<String, Known>,
    /// What was done to a card by index, and as what it was seen then.
    done: BTreeMap<u32, Done>,
    faults: BTreeMap<u32, Vec<String>>,
}

/// As it is in the file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Known {
    features: BTreeMap<String, bool>,
    rings: BTreeMap<String, u32>,
    channels: BTreeMap<String, u32>,
    wake_on_lan: Option<Vec<String>>,
}

/// The file, as it is and as it is to be.
struct Record {
    path: PathBuf,
    all: BTreeMap<String, Known>,
}

impl Record {
    fn note(&mut self, link: &str, before: &Known) -> Result<(), String> {
        put(&mut self.all, link, before);
        let text = serde_json::to_vec(&self.all).map_err(|error| error.to_string())?;
        // Without the file no card was changed.
        let present = std::fs::read(&self.path).unwrap_or_else(|_| b"{}".to_vec());
        if present == text {
            return Ok(());
        }
        let new = self.path.with_extension("new");
        let written = std::fs::write(&new, text).and_then(|()| std::fs::rename(&new, &self.path));
        written.map_err(|error| format!("note it in {}: {error}", self.path.display()))
    }
}

fn put(all: &mut BTreeMap<String, Known>, link: &str, before: &Known) {
    if *before == Known::default() {
        all.remove(link);
    } else {
        all.insert(link.to_owned(), before.clone());
    }
}

struct Done {
    wanted: Option<Ethernet>,
    link: Link,
    status: Option<EthernetStatus>,
    retry: Option<Instant>,
}

impl Cards {
    /// With what an earlier machined noted.
    pub(super) fn read(runtime: &Runtime) -> Self {
        let path = runtime.path(RECORD);
        let text = std::fs::read(&path).unwrap_or_default();
        // Without the file no card was changed.
        let before = serde_json::from_slice(&text).unwrap_or_default();
        Self { path, before, done: BTreeMap::new(), faults: BTreeMap::new() }
    }

    /// Makes cards what is wanted, and publishes what they do. Answers what they refused.
    pub(super) async fn bring(&mut self, runtime: &Runtime, plan: &Plan, links: &[Link]) -> Vec<String> {
        let is_there = |index: &u32| links.iter().any(|link| link.index == *index);
        let gone = self.done.extract_if(.., |index, _| !is_there(index)).count();
        self.faults.retain(|index, _| is_there(index));
        let mut has_news = gone > 0;
        for link in links {
            let wanted = plan.links.get(&link.name).and_then(|wanted| wanted.ethernet.clone());
            let is_card = link.kind.is_empty() && link.hardware.len() == 6;
            if is_card || wanted.is_some() || self.before.contains_key(&link.name) {
                has_news |= self.one(link, wanted).await;
            }
        }
        if has_news {
            self.publish(runtime, plan);
        }
        self.faults.values().flatten().cloned().collect()
    }

    async fn one(&mut self, link: &Link, wanted: Option<Ethernet>) -> bool {
        let now = Instant::now();
        if let Some(done) = self.done.get(&link.index)
            && done.wanted == wanted
            && done.link == *link
            && done.retry.is_none_or(|retry| now < retry)
        {
            return false;
        }
        let (name, before) = (link.name.clone(), self.before.get(&link.name).cloned().unwrap_or_default());
        let (asked, mut record) =
            (wanted.clone(), Record { path: self.path.clone(), all: self.before.clone() });
        // A card may take its time, for instance to make its queues anew.
        let work = tokio::task::spawn_blocking(move || {
            let mut note = |before: &Known| record.note(&name, before);
            apply(&name, &asked.unwrap_or_default(), before, &mut note)
        });
        let Ok((before, status, faults)) = work.await else { return false };
        put(&mut self.before, &link.name, &before);
        let retry = (!faults.is_empty()).then(|| now + RETRY);
        let named = faults.into_iter().map(|fault| format!("link {}: {fault}", link.name)).collect();
        self.faults.insert(link.index, named);
        self.done.insert(link.index, Done { wanted, link: link.clone(), status, retry });
        true
    }

    fn publish(&self, runtime: &Runtime, plan: &Plan) {
        let spec = |spec| Spec::Network(Box::new(spec));
        let wanted =
            plan.links.values().filter_map(|link| Some((link.name.clone(), link.ethernet.as_ref()?)));
        let wanted = wanted.map(|(name, ethernet)| {
            let shown = EthernetSpec {
                rings: numbers(&ethernet.rings, &RINGS),
                features: ethernet.features.clone(),
                channels: numbers(&ethernet.channels, &CHANNELS),
                wake_on_lan: ethernet.wake_on_lan.clone().unwrap_or_default(),
            };
            (name, spec(NetworkSpec::Ethernet(shown)))
        });
        let statuses = self.done.values().filter_map(|done| {
            let status = done.status.clone()?;
            Some((done.link.name.clone(), spec(NetworkSpec::EthernetStatus(Box::new(status)))))
        });
        for (kind, all) in [(&ETHERNET_SPEC, wanted.collect()), (&ETHERNET_STATUS, statuses.collect())] {
            if let Err(error) = runtime.store.replace(kind.writer, kind, all) {
                runtime.journal.warn(&format!("networkd: {error}"));
            }
        }
    }
}

/// As YAML has them: truth values where the card has switches.
fn numbers(given: &BTreeMap<String, u32>, table: &[Number]) -> BTreeMap<String, serde_json::Value> {
    let form = |name: &str| table.iter().find(|number| number.name == name).map(|number| number.form);
    let one = |(name, value): (&String, &u32)| match form(name) {
        Some(Form::Number) | None => (name.clone(), (*value).into()),
        Some(_) => (name.clone(), (*value != 0).into()),
    };
    given.iter().map(one).collect()
}

/// Notes what a card had.
type Note<'a> = &'a mut dyn FnMut(&Known) -> Result<(), String>;

/// Sets the difference; what the card had before, what it does now, what it refused.
fn apply(
    link: &str,
    wanted: &Ethernet,
    mut before: Known,
    note: Note<'_>,
) -> (Known, Option<EthernetStatus>, Vec<String>) {
    let mut ethtool = match Ethtool::open() {
        Ok(ethtool) => ethtool,
        Err(error) => return (before, None, vec![error.to_string()]),
    };
    let mut card = Card { ethtool: &mut ethtool, link, note };
    let results = [
        set_features(&mut card, wanted, &mut before),
        set_rings(&mut card, wanted, &mut before),
        set_channels(&mut card, wanted, &mut before),
        set_wake(&mut card, wanted, &mut before),
    ];
    let mut faults: Vec<String> = results.into_iter().filter_map(Result::err).collect();
    faults.extend((card.note)(&before).err());
    (before, Some(status(&mut ethtool, link)), faults)
}

/// A card that is set.
struct Card<'a> {
    ethtool: &'a mut Ethtool,
    link: &'a str,
    note: Note<'a>,
}

/// What is to be: what the config says, else what was there before it said something else.
fn target<T: Clone>(wanted: &BTreeMap<String, T>, before: &BTreeMap<String, T>) -> BTreeMap<String, T> {
    before.iter().chain(wanted).map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// Remembers what was there, of what the config says.
fn remember<T: Clone>(
    before: &mut BTreeMap<String, T>,
    wanted: &BTreeMap<String, T>,
    present: &BTreeMap<String, T>,
) {
    for (name, value) in present.iter().filter(|(name, _)| wanted.contains_key(*name)) {
        before.entry(name.clone()).or_insert_with(|| value.clone());
    }
}

fn set_features(card: &mut Card<'_>, wanted: &Ethernet, before: &mut Known) -> Result<(), String> {
    let wanted = &wanted.features;
    let target = target(wanted, &before.features);
    if target.is_empty() {
        return Ok(());
    }
    let (failed, link) = (|error| format!("features: {error}"), card.link);
    let told = card.ethtool.get(link, Subject::Features).map_err(failed)?;
    let (switchable, present) = features(&told);
    if let Some(name) = wanted.keys().find(|name| !switchable.contains_key(*name)) {
        return Err(format!("features: the kernel has none called `{name}`; `get ethtool {link}` shows all"));
    }
    let can = |name: &String| switchable.get(name) == Some(&true);
    let fixed = wanted.iter().filter(|(name, on)| !can(name) && present.get(*name) != Some(*on));
    let fixed: Vec<&str> = fixed.map(|(name, _)| name.as_str()).collect();
    let is_new = |name: &String, on: &bool| can(name) && present.get(name) != Some(on);
    let change: BTreeMap<String, bool> = target.into_iter().filter(|(name, on)| is_new(name, on)).collect();
    remember(&mut before.features, wanted, &present);
    if !change.is_empty() {
        (card.note)(before)?;
        card.ethtool.set(link, Subject::Features, &[Value::Bits(FEATURES_WANTED, change)]).map_err(failed)?;
    }
    before.features.retain(|name, _| wanted.contains_key(name));
    match fixed.as_slice() {
        [] => Ok(()),
        fixed => Err(format!("features: this card cannot switch {}", fixed.join(", "))),
    }
}

/// Features by name: whether each can be switched, and whether it is on.
fn features(told: &Attributes) -> (BTreeMap<String, bool>, BTreeMap<String, bool>) {
    let (mut card, fixed, active) =
        (told.bits(FEATURES_HW), told.bits(FEATURES_NOCHANGE), told.bits(FEATURES_ACTIVE));
    for (name, can) in &mut card {
        *can &= fixed.get(name) != Some(&true);
    }
    let present = card.keys().map(|name| (name.clone(), active.get(name) == Some(&true))).collect();
    (card, present)
}

fn set_rings(card: &mut Card<'_>, wanted: &Ethernet, before: &mut Known) -> Result<(), String> {
    set_numbers(card, ("rings", Subject::Rings, &RINGS), &wanted.rings, before, |known| &mut known.rings)
}

fn set_channels(card: &mut Card<'_>, wanted: &Ethernet, before: &mut Known) -> Result<(), String> {
    let table = ("channels", Subject::Channels, &CHANNELS[..]);
    set_numbers(card, table, &wanted.channels, before, |known| &mut known.channels)
}

/// `of`: where the numbers stand in what is known.
fn set_numbers(
    card: &mut Card<'_>,
    (word, subject, table): (&str, Subject, &[Number]),
    wanted: &BTreeMap<String, u32>,
    before: &mut Known,
    of: fn(&mut Known) -> &mut BTreeMap<String, u32>,
) -> Result<(), String> {
    let target = target(wanted, of(before));
    if target.is_empty() {
        return Ok(());
    }
    let failed = |error| format!("{word}: {error}");
    let told = card.ethtool.get(card.link, subject).map_err(failed)?;
    let present: BTreeMap<String, u32> =
        table.iter().filter_map(|number| Some((number.name.to_owned(), number.read(&told)?))).collect();
    let mut change = Vec::new();
    for number in table {
        let Some(value) = target.get(number.name) else { continue };
        if present.get(number.name) == Some(value) {
            continue;
        }
        let most = number.most.and_then(|most| told.number(most));
        if let Some(most) = most.filter(|most| value > most) {
            return Err(format!("{word}.{}: {value} is more than the card takes, {most}", number.name));
        }
        change.push(number.value(*value));
    }
    remember(of(before), wanted, &present);
    if !change.is_empty() {
        (card.note)(before)?;
        card.ethtool.set(card.link, subject, &change).map_err(failed)?;
    }
    of(before).retain(|name, _| wanted.contains_key(name));
    Ok(())
}

fn set_wake(card: &mut Card<'_>, wanted: &Ethernet, before: &mut Known) -> Result<(), String> {
    let wanted = wanted.wake_on_lan.as_ref();
    let Some(target) = wanted.or(before.wake_on_lan.as_ref()).cloned() else { return Ok(()) };
    let failed = |error| format!("wakeOnLan: {error}");
    let modes = card.ethtool.get(card.link, Subject::WakeOnLan).map_err(failed)?.bits(WAKE_MODES);
    if let Some(unknown) = target.iter().find(|mode| !modes.contains_key(*mode)) {
        let known: Vec<&str> = modes.keys().map(String::as_str).collect();
        return Err(format!("wakeOnLan: this card has no mode `{unknown}`; it has: {}", known.join(", ")));
    }
    let present = switched_on(&modes);
    before.wake_on_lan.get_or_insert_with(|| present.clone());
    let is_other = present.iter().any(|mode| !target.contains(mode));
    if is_other || target.iter().any(|mode| !present.contains(mode)) {
        (card.note)(before)?;
        let modes = [Value::AllBits(WAKE_MODES, target)];
        card.ethtool.set(card.link, Subject::WakeOnLan, &modes).map_err(failed)?;
    }
    if wanted.is_none() {
        before.wake_on_lan = None;
    }
    Ok(())
}

/// What a card does; what it does not tell is left out.
fn status(ethtool: &mut Ethtool, link: &str) -> EthernetStatus {
    let mut get = |subject| ethtool.get(link, subject).unwrap_or_default();
    let (state, modes, info) = (get(Subject::LinkState), get(Subject::LinkModes), get(Subject::LinkInfo));
    let media = Media::of(&modes, &info);
    let (card, present) = features(&get(Subject::Features));
    let features = present.into_iter().map(|(name, on)| {
        let fixed = if card.get(&name) == Some(&true) { "" } else { " [fixed]" };
        EthernetFeature { name, status: format!("{}{fixed}", if on { "on" } else { "off" }) }
    });
    let (rings, channels) = (get(Subject::Rings), get(Subject::Channels));
    EthernetStatus {
        link_state: state.number(2).map(|state| state == 1),
        speed_mbit: media.speed_mbit,
        port: media.port,
        duplex: media.duplex,
        our_modes: switched_on(&modes.bits(3)),
        peer_modes: switched_on(&modes.bits(4)),
        rings: told_numbers(&rings, &RINGS),
        features: features.collect(),
        channels: told_numbers(&channels, &CHANNELS),
        wake_on_lan: switched_on(&get(Subject::WakeOnLan).bits(WAKE_MODES)),
    }
}

fn switched_on(bits: &BTreeMap<String, bool>) -> Vec<String> {
    bits.iter().filter(|(_, on)| **on).map(|(name, _)| name.clone()).collect()
}

/// Numbers and maxima that a card told. Zero of both is a queue that it does not have.
fn told_numbers(told: &Attributes, table: &[Number]) -> BTreeMap<String, serde_json::Value> {
    let mut found = BTreeMap::new();
    for number in table {
        let most = number.most.and_then(|most| told.number(most)).filter(|most| *most != 0);
        let present = number.read(told);
        if let Some(most) = most {
            found.insert(format!("{}-max", number.name), most.into());
        }
        match (present, number.form) {
            (Some(value), Form::Number) if value != 0 || most.is_some() => {
                found.insert(number.name.to_owned(), value.into());
            }
            (Some(value), Form::Switch | Form::Choice) => {
                found.insert(number.name.to_owned(), (value != 0).into());
            }
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::testing::{ip, is_inside};

    fn read(link: &str) -> (BTreeMap<String, bool>, Option<u32>) {
        let mut ethtool = Ethtool::open().unwrap();
        let features = features(&ethtool.get(link, Subject::Features).unwrap()).1;
        (features, ethtool.get(link, Subject::Channels).unwrap().number(6))
    }

    /// The plan of a document about eth0.
    fn plan(settings: &str) -> Plan {
        let head = "version: v1alpha1\nmachine:\n  type: worker\n  token: a.b\n";
        let document = "---\napiVersion: v1alpha1\nkind: EthernetConfig\nname: eth0\n";
        let text = if settings.is_empty() { head.into() } else { format!("{head}{document}{settings}\n") };
        let loaded = config::load(text.as_bytes()).unwrap_or_else(|error| panic!("{error}"));
        network_plan::plan(&Default::default(), None, &loaded.documents, &[])
    }

    #[tokio::test]
    async fn a_card_is_set_and_set_back() {
        if !is_inside("network::ethernet::tests::a_card_is_set_and_set_back") {
            return;
        }
        ip("link add eth0 numrxqueues 4 numtxqueues 4 type veth peer name eth1 numrxqueues 4 numtxqueues 4");
        let dir = tempfile::tempdir().unwrap();
        let runtime = Runtime::detached(dir.path().to_path_buf());
        std::fs::create_dir_all(runtime.path("/system/run/machined")).unwrap();
        let links = super::super::status::look(&runtime).await;
        let first = read("eth0");
        assert_eq!(first.0.get("tx-tcp-segmentation"), Some(&true));

        let mut cards = Cards::read(&runtime);
        let wanted = plan("features: {tx-tcp-segmentation: false}\nchannels: {rx: 2}\n");
        assert_eq!(cards.bring(&runtime, &wanted, &links).await, Vec::<String>::new());
        let second = read("eth0");
        assert_eq!((second.0.get("tx-tcp-segmentation"), second.1), (Some(&false), Some(2)));
        let status = runtime.store.get(&ETHERNET_STATUS, "eth0").unwrap().spec.yaml().unwrap();
        assert!(status.contains("rx: 2\n") && status.contains("rx-max: 4\n"), "{status}");
        assert!(status.contains("- name: tx-tcp-segmentation\n  status: \"off\"\n"), "{status}");
        let shown = runtime.store.get(&ETHERNET_SPEC, "eth0").unwrap().spec.yaml().unwrap();
        assert!(shown.contains("channels:\n  rx: 2\n"), "{shown}");

        // What cannot be is refused with a reason, and the rest stays.
        let wrong = plan(
            "features: {tx-nothing: true, tx-tcp-segmentation: false}\nchannels: {rx: 5}\nrings: {rx: 100}\nwakeOnLan: [magic]\n",
        );
        let faults = cards.bring(&runtime, &wrong, &links).await.join("\n");
        assert!(faults.contains("link eth0: features: the kernel has none called `tx-nothing`"), "{faults}");
        assert!(faults.contains("link eth0: channels.rx: 5 is more than the card takes, 4"), "{faults}");
        assert!(faults.contains("link eth0: wakeOnLan: ask the kernel for ethtool: "), "{faults}");
        assert_eq!(read("eth0").1, Some(2));

        // A new machined sets back what the old one changed.
        let mut cards = Cards::read(&runtime);
        assert_eq!(cards.bring(&runtime, &plan(""), &links).await, Vec::<String>::new());
        assert_eq!(read("eth0"), first);
        assert_eq!(std::fs::read_to_string(runtime.path(RECORD)).unwrap(), "{}");
        assert!(runtime.store.get(&ETHERNET_STATUS, "eth0").is_some());
        cards.bring(&runtime, &plan(""), &[]).await;
        assert!(runtime.store.get(&ETHERNET_STATUS, "eth0").is_none(), "a card that is gone does nothing");
    }
}
