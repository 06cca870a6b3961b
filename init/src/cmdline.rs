//! Kernel command line.
//!
//! Owns: splitting it as the kernel does, and the parameters that init has. Each of ours is accepted under
//! `billet.` and under `talos.`; a name that neither knows becomes a warning, a second value an error.
//! Does not: judge values meant for machined (platform, config, hostname).
//! Source: Documentation/admin-guide/kernel-parameters.rst; lib/cmdline.c (`next_arg`); docs/users/kernel-parameters.md.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use netroot::Url;

use crate::failure::Failure;

mod network;

pub use network::Network;

/// Our parameters, without prefix. The flag says whether a parameter may have several values.
const KNOWN: &[(&str, bool)] = &[
    ("board", false),
    ("config", false),
    ("config.early", false),
    ("config.inline", false),
    ("environment", true),
    ("experimental.wipe", false),
    ("generation", false),
    ("hostname", false),
    ("install", false),
    ("interface", false),
    ("logging.kernel", false),
    ("maintenance", false),
    ("module.signatures", false),
    ("network.interface.ignore", true),
    ("platform", false),
    ("root", false),
    ("shutdown", false),
    ("slot", false),
    ("trial", false),
    ("watchdog", false),
];

/// Watchdog timeout when the command line says nothing: a stalled disk may hold everything up for half of it.
const WATCHDOG_SECONDS: u32 = 60;

/// Which transport carries the layers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Transport {
    /// Files in the initramfs.
    Initramfs,
    /// Slot of a disk.
    Disk,
    /// Files on a medium with this label.
    Label(String),
    /// Files behind one of these addresses.
    Network(Vec<Url>),
}

/// One of the two root slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Slot {
    /// `ROOT-A`
    A,
    /// `ROOT-B`
    B,
}

impl Slot {
    /// Name of its partition.
    pub fn partition(self) -> &'static str {
        match self {
            Self::A => "ROOT-A",
            Self::B => "ROOT-B",
        }
    }
}

/// What the command line asks of init.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parameters {
    /// `billet.root=`
    pub transport: Option<Transport>,
    /// How the servers of a root from the network are reached.
    pub network: Network,
    /// `billet.slot=`
    pub slot: Option<Slot>,
    /// `billet.watchdog=`; `None`: off.
    pub watchdog_seconds: Option<u32>,
    /// `billet.shutdown=halt`
    pub halt_on_shutdown: bool,
    /// `billet.module.signatures=verify`
    pub keep_module_signatures: bool,
    /// `panic=`; `None`: not given.
    pub panic_seconds: Option<u64>,
    /// What a person should know.
    pub warnings: Vec<String>,
}

impl Default for Parameters {
    fn default() -> Self {
        Self {
            transport: None,
            network: Network::default(),
            slot: None,
            watchdog_seconds: Some(WATCHDOG_SECONDS),
            halt_on_shutdown: false,
            keep_module_signatures: false,
            panic_seconds: None,
            warnings: Vec::new(),
        }
    }
}

/// Splits a command line into names and values. Double quotes keep spaces together, around a value or around the
/// whole parameter; what follows `--` is not ours.
pub fn split(line: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut word = String::new();
    let mut quoted = false;
    for c in line.trim_end_matches('\n').chars() {
        match c {
            '"' => quoted = !quoted,
            c if c.is_ascii_whitespace() && !quoted => {
                if word == "--" {
                    return found;
                }
                push_word(&mut found, &word);
                word.clear();
            }
            c => word.push(c),
        }
    }
    push_word(&mut found, &word);
    found
}

fn push_word(found: &mut Vec<(String, String)>, word: &str) {
    if !word.is_empty() {
        let (name, value) = word.split_once('=').unwrap_or((word, ""));
        found.push((name.to_string(), value.to_string()));
    }
}

/// The value of `panic=`, read before anything can fail; a value that is no number counts as absent.
pub fn panic_seconds(line: &str) -> Option<u64> {
    let last = split(line).into_iter().rev().find(|(name, _)| name == "panic")?.1;
    // A negative value asks the kernel to restart at once.
    last.parse().ok().or_else(|| last.starts_with('-').then_some(1))
}

/// Reads a command line.
pub fn parse(line: &str) -> Result<Parameters, Failure> {
    let mut parameters = Parameters { panic_seconds: panic_seconds(line), ..Parameters::default() };
    let mut seen: Vec<(String, String)> = Vec::new();
    for (name, value) in split(line) {
        let Some(own) = name.strip_prefix("billet.").or_else(|| name.strip_prefix("talos.")) else {
            continue;
        };
        let Some((known, many)) = KNOWN.iter().find(|(known, _)| same_parameter(known, own)) else {
            parameters.warnings.push(format!("kernel parameter {name} is not known and has no effect"));
            continue;
        };
        if let Some((_, earlier)) = seen.iter().find(|(n, v)| n == known && *v != value)
            && !many
            && !are_mirrors(known, earlier, &value)
        {
            let reason = format!("has two values, {earlier} and {value}; give one");
            return Err(Failure::reason("read kernel parameter", &name, reason));
        }
        apply(&mut parameters, known, &name, &value)?;
        seen.push(((*known).to_string(), value));
    }
    if let Some(Transport::Network(_)) = parameters.transport {
        parameters.network = network::parse(&split(line))?;
    }
    Ok(parameters)
}

/// Several addresses of the same root are no contradiction.
fn are_mirrors(known: &str, earlier: &str, value: &str) -> bool {
    known == "root" && earlier.contains("://") && value.contains("://")
}

/// As in the kernel, `-` and `_` are one letter in names.
fn same_parameter(a: &str, b: &str) -> bool {
    let fold = |byte: u8| if byte == b'-' { b'_' } else { byte };
    a.len() == b.len() && a.bytes().map(fold).eq(b.bytes().map(fold))
}

fn apply(parameters: &mut Parameters, known: &str, name: &str, value: &str) -> Result<(), Failure> {
    let wrong = |wanted: &str| {
        Failure::reason("read kernel parameter", name, format!("\"{value}\" is not one of {wanted}"))
    };
    match known {
        "root" if value.contains("://") => add_mirrors(&mut parameters.transport, name, value)?,
        "root" => {
            let known =
                transport(value).ok_or_else(|| wrong("initramfs, disk, label:NAME, http://…, https://…"))?;
            parameters.transport = Some(known);
        }
        "slot" => parameters.slot = Some(slot(value).ok_or_else(|| wrong("A, B"))?),
        "watchdog" => {
            parameters.watchdog_seconds =
                watchdog(value).ok_or_else(|| wrong("off, 1 to 65535 (seconds)"))?;
        }
        "module.signatures" => {
            parameters.keep_module_signatures = signatures(value).ok_or_else(|| wrong("auto, verify"))?;
        }
        "shutdown" => parameters.halt_on_shutdown = value == "halt",
        _ => {}
    }
    Ok(())
}

/// One address or several with commas between them, behind those that were given before.
fn add_mirrors(transport: &mut Option<Transport>, name: &str, value: &str) -> Result<(), Failure> {
    let mut mirrors = match transport.take() {
        Some(Transport::Network(mirrors)) => mirrors,
        _ => Vec::new(),
    };
    for text in value.split(',').filter(|text| !text.is_empty()) {
        let url = Url::parse(text)
            .map_err(|e| Failure::reason("read kernel parameter", name, format!("\"{text}\": {e}")))?;
        if !mirrors.contains(&url) {
            mirrors.push(url);
        }
    }
    *transport = Some(Transport::Network(mirrors));
    Ok(())
}

fn transport(value: &str) -> Option<Transport> {
    match value {
        "initramfs" => Some(Transport::Initramfs),
        "disk" => Some(Transport::Disk),
        _ => value.strip_prefix("label:").filter(|l| !l.is_empty()).map(|l| Transport::Label(l.to_string())),
    }
}

fn signatures(value: &str) -> Option<bool> {
    match value {
        "verify" => Some(true),
        "auto" => Some(false),
        _ => None,
    }
}

fn slot(value: &str) -> Option<Slot> {
    match value {
        "A" | "a" => Some(Slot::A),
        "B" | "b" => Some(Slot::B),
        _ => None,
    }
}

#[allow(clippy::option_option, reason = "outer: valid, inner: on")]
fn watchdog(value: &str) -> Option<Option<u32>> {
    match value {
        "off" => Some(None),
        _ => value.parse().ok().filter(|s| (1..=65_535).contains(s)).map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(line: &str) -> Vec<String> {
        split(line).into_iter().map(|(name, value)| format!("{name}={value}")).collect()
    }

    #[test]
    fn quotes_keep_spaces_together() {
        assert_eq!(
            names("a b=1 \tc=\"x y\" \"d=p q\" e=f\"g h\"i\n"),
            ["a=", "b=1", "c=x y", "d=p q", "e=fg hi"]
        );
        assert_eq!(names("a -- b"), ["a="]);
        assert_eq!(names(""), Vec::<String>::new());
        assert_eq!(names("open=\"never closed"), ["open=never closed"]);
    }

    #[test]
    fn both_prefixes_work() {
        let parameters =
            parse("talos.root=disk billet.slot=B talos.shutdown=halt billet.watchdog=off").unwrap();
        assert_eq!(parameters.transport, Some(Transport::Disk));
        assert_eq!(parameters.slot, Some(Slot::B));
        assert_eq!(parameters.watchdog_seconds, None);
        assert!(parameters.halt_on_shutdown);
        assert!(parameters.warnings.is_empty());
    }

    #[test]
    fn unknown_parameters_warn_and_foreign_ones_do_not() {
        let parameters = parse("quiet billet.rooot=disk talos.platform=metal nvme_core.x=1").unwrap();
        assert_eq!(parameters.warnings, ["kernel parameter billet.rooot is not known and has no effect"]);
    }

    #[test]
    fn a_second_value_is_an_error_and_a_repeated_one_is_not() {
        assert!(parse("billet.root=disk talos.root=disk").is_ok());
        let failure = parse("billet.root=disk talos.root=initramfs").unwrap_err();
        let text = "read kernel parameter talos.root: has two values, disk and initramfs; give one";
        assert_eq!(failure.to_string(), text);
        assert!(parse("talos.network.interface.ignore=eth0 talos.network.interface.ignore=eth1").is_ok());
    }

    #[test]
    fn mirrors_add_up() {
        let line =
            "billet.root=http://a/x,http://b/x talos.root=http://c/ billet.root=http://a/x ip=eth1:dhcp";
        let parameters = parse(line).unwrap();
        let Some(Transport::Network(mirrors)) = parameters.transport else { panic!("{parameters:?}") };
        let mirrors: Vec<String> = mirrors.iter().map(ToString::to_string).collect();
        assert_eq!(mirrors, ["http://a/x", "http://b/x", "http://c/"]);
        assert_eq!(parameters.network.cards, ["eth1"]);
        assert!(parse("billet.root=http://a/ billet.root=disk").is_err());
        let failure = parse("billet.root=tftp://a/").unwrap_err().to_string();
        let wanted = "read kernel parameter billet.root: \"tftp://a/\": is no http:// or https:// address";
        assert_eq!(failure, wanted);
        assert!(parse("billet.root=https://a/").is_ok());
        // Without a root from the network these words are machined's alone.
        assert!(parse("billet.root=disk ip=10.0.0.x:::24").is_ok());
    }

    #[test]
    fn wrong_values_are_named() {
        for line in ["billet.root=floppy", "billet.root=label:", "billet.slot=C", "billet.watchdog=0"] {
            assert!(parse(line).unwrap_err().to_string().contains("is not one of"), "{line}");
        }
    }

    #[test]
    fn the_last_panic_value_counts() {
        assert_eq!(panic_seconds("panic=3 x panic=0"), Some(0));
        assert_eq!(panic_seconds("panic=-1"), Some(1));
        assert_eq!(panic_seconds("panic=soon"), None);
        assert_eq!(panic_seconds("oops=panic"), None);
    }
}
