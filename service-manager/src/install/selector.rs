//! `machine.install.diskSelector`: which disks are meant.
//!
//! Owns: the comparison of sizes, the patterns (`*` stands for anything, `?` for one character), the kinds of disk.
//! Does not: look at disks; choose one of several.
//! Fails by: a sentence that names the field; a selector that says nothing matches nothing.
//! Source: docs/users/disks.md.

use config::schema::ByteSize;
use config::v1alpha1::DiskSelector;

use super::candidate::Candidate;

/// Whether a size stands to a wanted one as it should.
type Comparison = fn(u64, u64) -> bool;
/// What of a disk a pattern is held against.
type Property = fn(&Candidate) -> &str;

/// How a disk's size compares with a number.
const COMPARISONS: [(&str, Comparison); 6] = [
    (">=", |size, wanted| size >= wanted),
    ("<=", |size, wanted| size <= wanted),
    ("==", |size, wanted| size == wanted),
    (">", |size, wanted| size > wanted),
    ("<", |size, wanted| size < wanted),
    ("", |size, wanted| size == wanted),
];

/// A selector that was read.
#[derive(Debug, Clone)]
pub(super) struct Selector {
    size: Option<Size>,
    kind: Option<String>,
    /// Field, pattern, property.
    patterns: Vec<(&'static str, String, Property)>,
}

/// A size as the config has it, and what it asks for.
#[derive(Debug, Clone)]
struct Size {
    text: String,
    compare: Comparison,
    wanted: u64,
}

impl Selector {
    pub(super) fn read(config: &DiskSelector) -> Result<Self, String> {
        let size = match config.size.trim() {
            "" => None,
            text => Some(size(text)?),
        };
        let kind = match config.kind.as_str() {
            "" => None,
            kind @ ("ssd" | "hdd" | "nvme" | "sd") => Some(kind.to_owned()),
            other => {
                return Err(format!(
                    "machine.install.diskSelector.type: {other:?} is none of ssd, hdd, nvme, sd"
                ));
            }
        };
        let fields: [(&'static str, &String, Property); 7] = [
            ("name", &config.name, |disk| &disk.name),
            ("model", &config.model, |disk| &disk.disk.model),
            ("serial", &config.serial, |disk| &disk.disk.serial),
            ("modalias", &config.modalias, |disk| &disk.disk.modalias),
            ("uuid", &config.uuid, |disk| &disk.disk.uuid),
            ("wwid", &config.wwid, |disk| &disk.disk.wwid),
            ("busPath", &config.bus_path, |disk| &disk.disk.bus_path),
        ];
        let given = fields.into_iter().filter(|(_, pattern, _)| !pattern.is_empty());
        let patterns: Vec<_> = given.map(|(field, pattern, of)| (field, pattern.clone(), of)).collect();
        if size.is_none() && kind.is_none() && patterns.is_empty() {
            return Err("machine.install.diskSelector names no property of a disk".to_owned());
        }
        Ok(Self { size, kind, patterns })
    }

    /// Why a disk is not meant.
    pub(super) fn mismatch(&self, disk: &Candidate) -> Option<String> {
        if let Some(Size { text, compare, wanted }) = &self.size
            && !compare(disk.disk.size, *wanted)
        {
            return Some(format!("its size is not {text}"));
        }
        if let Some(kind) = &self.kind
            && !is_of_kind(disk, kind)
        {
            return Some(format!("it is no {kind}"));
        }
        self.patterns.iter().find_map(|(field, pattern, of)| {
            (!matches(pattern, of(disk))).then(|| format!("its {field} {:?} is not {pattern:?}", of(disk)))
        })
    }

    /// The selector in one line, for messages.
    pub(super) fn describe(&self) -> String {
        let size = self.size.iter().map(|size| format!("size {}", size.text));
        let kind = self.kind.iter().map(|kind| format!("type {kind}"));
        let patterns = self.patterns.iter().map(|(field, pattern, _)| format!("{field} {pattern}"));
        size.chain(kind).chain(patterns).collect::<Vec<_>>().join(", ")
    }
}

fn size(text: &str) -> Result<Size, String> {
    let (compare, rest) = COMPARISONS
        .iter()
        .find_map(|(sign, compare)| Some((*compare, text.strip_prefix(sign)?)))
        .unwrap_or((COMPARISONS[5].1, text));
    let wrong = || {
        format!(
            "machine.install.diskSelector.size: {text:?} is no size: \">= 100GB\", \"< 2TiB\", \"== 512MB\""
        )
    };
    let wanted = ByteSize::parse(rest).ok_or_else(wrong)?.0;
    Ok(Size { text: text.to_owned(), compare, wanted })
}

fn is_of_kind(disk: &Candidate, kind: &str) -> bool {
    match kind {
        "nvme" => disk.disk.transport == "nvme",
        "sd" => disk.disk.transport == "mmc",
        "hdd" => disk.disk.rotational,
        _ => !disk.disk.rotational && !disk.disk.cdrom,
    }
}

/// Whether a pattern covers the whole text. Time is at most pattern length times text length.
fn matches(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) = (pattern.chars().collect(), text.chars().collect());
    let (mut at, mut here) = (0, 0);
    // Behind the last star, and where its match ends for now.
    let mut retry: Option<(usize, usize)> = None;
    while here < text.len() {
        match pattern.get(at) {
            Some('*') => {
                at += 1;
                retry = Some((at, here));
            }
            Some(wanted) if *wanted == '?' || text.get(here) == Some(wanted) => {
                (at, here) = (at + 1, here + 1)
            }
            _ => match retry {
                Some((star, from)) => {
                    (at, here) = (star, from + 1);
                    retry = Some((star, from + 1));
                }
                None => return false,
            },
        }
    }
    pattern.get(at..).is_some_and(|rest| rest.iter().all(|letter| *letter == '*'))
}

#[cfg(test)]
mod tests {
    use super::super::choose::tests::disk;
    use super::*;

    fn selector(change: impl FnOnce(&mut DiskSelector)) -> Selector {
        let mut config = DiskSelector::default();
        change(&mut config);
        Selector::read(&config).unwrap()
    }

    #[test]
    fn sizes_are_compared() {
        let fits = |text: &str, size: u64| {
            let mut candidate = disk("vda");
            candidate.disk.size = size;
            selector(|config| config.size = text.to_owned()).mismatch(&candidate).is_none()
        };
        for (text, below, equal, above) in [
            (">= 100GB", false, true, true),
            ("<=100 GB", true, true, false),
            ("> 100GB", false, false, true),
            ("< 100GB", true, false, false),
            ("== 100GB", false, true, false),
            ("100GB", false, true, false),
        ] {
            let found = [99_999_999_999, 100_000_000_000, 100_000_000_001].map(|size| fits(text, size));
            assert_eq!(found, [below, equal, above], "{text}");
        }
        assert!(fits(">= 1GiB", 1 << 30));
        for wrong in ["=> 1GB", "big", ">="] {
            let error =
                Selector::read(&DiskSelector { size: wrong.into(), ..Default::default() }).unwrap_err();
            assert!(error.contains("diskSelector.size"), "{error}");
        }
    }

    #[test]
    fn patterns_cover_the_whole_text() {
        for (pattern, text, fits) in [
            ("Samsung*", "Samsung SSD 970", true),
            ("Samsung*", "A Samsung", false),
            ("*970*", "Samsung SSD 970 PRO", true),
            ("/pci0000:00/*", "/pci0000:00/0000:00:04.0/virtio1", true),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("*", "", true),
            ("", "x", false),
            ("a*b*c", "a__b_b_c", true),
            ("exact", "exactly", false),
        ] {
            assert_eq!(matches(pattern, text), fits, "{pattern} {text}");
        }
    }

    #[test]
    fn all_that_is_given_must_fit() {
        let mut candidate = disk("nvme0n1");
        candidate.disk.transport = "nvme".into();
        candidate.disk.model = "Fast".into();
        candidate.disk.wwid = "eui.0025".into();
        let both = selector(|config| {
            config.kind = "nvme".into();
            config.wwid = "eui.*".into();
        });
        assert_eq!(both.mismatch(&candidate), None);
        assert_eq!(both.describe(), "type nvme, wwid eui.*");
        candidate.disk.wwid.clear();
        assert_eq!(both.mismatch(&candidate).unwrap(), "its wwid \"\" is not \"eui.*\"");
        candidate.disk.transport = "sata".into();
        assert_eq!(both.mismatch(&candidate).unwrap(), "it is no nvme");
        candidate.disk.rotational = true;
        assert_eq!(selector(|config| config.kind = "hdd".into()).mismatch(&candidate), None);
        assert!(selector(|config| config.kind = "ssd".into()).mismatch(&candidate).is_some());
    }

    #[test]
    fn each_property_is_compared_with_its_own_pattern() {
        type Set = fn(&mut DiskSelector, String);
        type Give = fn(&mut Candidate, String);
        let properties: [(&str, Set, Give); 7] = [
            ("name", |c, text| c.name = text, |d, text| d.name = text),
            ("model", |c, text| c.model = text, |d, text| d.disk.model = text),
            ("serial", |c, text| c.serial = text, |d, text| d.disk.serial = text),
            ("modalias", |c, text| c.modalias = text, |d, text| d.disk.modalias = text),
            ("uuid", |c, text| c.uuid = text, |d, text| d.disk.uuid = text),
            ("wwid", |c, text| c.wwid = text, |d, text| d.disk.wwid = text),
            ("busPath", |c, text| c.bus_path = text, |d, text| d.disk.bus_path = text),
        ];
        for (field, set, give) in properties {
            let wanted = selector(|config| set(config, "this*".to_owned()));
            let mut candidate = disk("vda");
            assert!(wanted.mismatch(&candidate).unwrap().starts_with(&format!("its {field} ")), "{field}");
            give(&mut candidate, "this one".to_owned());
            assert_eq!(wanted.mismatch(&candidate), None, "{field}");
        }
    }

    #[test]
    fn a_selector_that_says_nothing_is_refused() {
        assert!(Selector::read(&DiskSelector::default()).is_err());
        assert!(Selector::read(&DiskSelector { kind: "floppy".into(), ..Default::default() }).is_err());
    }
}
