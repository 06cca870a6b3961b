//! A device as rules see it: its directory below /sys, its parents, its properties.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Component, Path, PathBuf};

use super::rule::{Match, Subject};
use runtime::Runtime;

/// No attribute that a rule compares is longer.
const MOST_BYTES: usize = 4096;

pub(super) struct Device {
    /// Its place below /sys: `/devices/…`.
    pub(super) path: String,
    directory: PathBuf,
    root: PathBuf,
    properties: BTreeMap<String, String>,
}

/// The places of all devices that are there.
pub(super) fn all(runtime: &Runtime) -> Vec<String> {
    let sys = runtime.path("/sys");
    let entries = |directory: PathBuf| {
        fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path())
    };
    let classes = entries(sys.join("class"));
    let buses = entries(sys.join("bus")).map(|bus| bus.join("devices"));
    let mut places: Vec<String> = classes
        .chain(buses)
        .flat_map(entries)
        .filter_map(|link| {
            let real = fs::canonicalize(link).ok()?;
            Some(format!("/{}", real.strip_prefix(&sys).ok()?.display()))
        })
        .collect();
    places.sort();
    places.dedup();
    places
}

impl Device {
    /// Reads a device; `None` when it is gone.
    pub(super) fn read(runtime: &Runtime, path: &str) -> Option<Self> {
        let root = runtime.path("/sys");
        let directory = root.join(path.trim_start_matches('/'));
        let uevent = fs::read_to_string(directory.join("uevent")).ok()?;
        let properties = uevent.lines().filter_map(|line| line.split_once('='));
        let properties = properties.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        Some(Self { path: path.to_owned(), directory, root, properties })
    }

    /// Its node below /dev.
    pub(super) fn node_name(&self) -> Option<String> {
        self.properties.get("DEVNAME").filter(|name| !name.contains("..")).cloned()
    }

    /// Whether all conditions hold; those of parents for one and the same of the device and its parents.
    pub(super) fn fulfils(&self, matches: &[Match], action: &str) -> bool {
        let (of_parent, own): (Vec<&Match>, Vec<&Match>) =
            matches.iter().partition(|condition| condition.of_parent);
        own.iter().all(|condition| condition.holds(&self.value(&self.directory, &condition.subject, action)))
            && (of_parent.is_empty()
                || self.with_parents().any(|directory| {
                    of_parent
                        .iter()
                        .all(|condition| condition.holds(&self.value(directory, &condition.subject, action)))
                }))
    }

    fn with_parents(&self) -> impl Iterator<Item = &Path> {
        self.directory.ancestors().take_while(|directory| directory.starts_with(self.root.join("devices")))
    }

    fn value(&self, directory: &Path, subject: &Subject, action: &str) -> String {
        match subject {
            Subject::Action => action.to_owned(),
            Subject::Kernel => file_name(directory),
            Subject::Subsystem => target(&directory.join("subsystem")),
            Subject::Driver => target(&directory.join("driver")),
            Subject::Attribute(name) => attribute(directory, name).unwrap_or_default(),
            Subject::Property(name) => self.properties.get(name).cloned().unwrap_or_default(),
        }
    }

    /// A file of its directory; `None` for a name that leads elsewhere.
    pub(super) fn attribute_path(&self, name: &str) -> Option<PathBuf> {
        let plain = Path::new(name).components().all(|part| matches!(part, Component::Normal(_)));
        (plain && !name.is_empty()).then(|| self.directory.join(name))
    }

    /// Puts names and attributes into a text.
    pub(super) fn fill(&self, text: &str) -> Result<String, String> {
        let mut out = String::new();
        let mut rest = text;
        while let Some(at) = rest.find(['%', '$']) {
            out.push_str(&rest[..at]);
            let (value, after) = self.substitution(&rest[at..])?;
            out.push_str(&value);
            rest = after;
        }
        Ok(out + rest)
    }

    fn substitution<'t>(&self, text: &'t str) -> Result<(String, &'t str), String> {
        let unknown =
            || format!("{text:?}: there are %k %n %M %m %s{{attribute}} %E{{property}} and their long forms");
        const PLAIN: [(&str, &str); 8] = [
            ("%k", "k"),
            ("$kernel", "k"),
            ("%n", "n"),
            ("$number", "n"),
            ("%M", "M"),
            ("$major", "M"),
            ("%m", "m"),
            ("$minor", "m"),
        ];
        for (mark, what) in [("%s{", 's'), ("$attr{", 's'), ("%E{", 'E'), ("$env{", 'E')] {
            if let Some(named) = text.strip_prefix(mark) {
                let (name, after) = named.split_once('}').ok_or_else(unknown)?;
                let value = match what {
                    's' => attribute(&self.directory, name).unwrap_or_default(),
                    _ => self.properties.get(name).cloned().unwrap_or_default(),
                };
                return Ok((safe(&value), after));
            }
        }
        for (mark, what) in PLAIN {
            if let Some(after) = text.strip_prefix(mark) {
                let kernel = file_name(&self.directory);
                let property = |name: &str| self.properties.get(name).cloned().unwrap_or_default();
                let value = match what {
                    "k" => kernel,
                    "n" => kernel
                        .chars()
                        .skip(kernel.trim_end_matches(|c: char| c.is_ascii_digit()).chars().count())
                        .collect(),
                    "M" => property("MAJOR"),
                    _ => property("MINOR"),
                };
                return Ok((value, after));
            }
        }
        for literal in ["%%", "$$"] {
            if let Some(after) = text.strip_prefix(literal) {
                return Ok((literal[1..].to_owned(), after));
            }
        }
        Err(unknown())
    }
}

fn file_name(directory: &Path) -> String {
    directory.file_name().map(|name| name.to_string_lossy().replace('!', "/")).unwrap_or_default()
}

fn target(link: &Path) -> String {
    fs::read_link(link).ok().map(|target| file_name(&target)).unwrap_or_default()
}

fn attribute(directory: &Path, name: &str) -> Option<String> {
    let plain = Path::new(name).components().all(|part| matches!(part, Component::Normal(_)));
    let bytes = fs::read(directory.join(name)).ok().filter(|bytes| plain && bytes.len() <= MOST_BYTES)?;
    Some(String::from_utf8_lossy(&bytes).trim_end().to_owned())
}

/// What a device says of itself must not lead anywhere: other signs than those of names become `_`.
fn safe(value: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "#+-.:=@_".contains(c);
    value.trim().chars().map(|c| if plain(c) { c } else { '_' }).collect()
}
