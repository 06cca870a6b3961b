//! What a module file says of itself, and the lines of the index that follow from it.
//!
//! Owns: the section `.modinfo` of an ELF file, and depmod's lines for a module.
//! Does not: resolve symbols: since Linux 2.6 a module names the modules that it needs; ask which processors it is for
//! ([`super::machine`]).
//! Fails by: `None` for what is no 64-bit little-endian ELF file with that section.
//! Source: elf(5); kernel scripts/mod/modpost.c (`depends=`), include/linux/module.h (`alias=`, `softdep=`).

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::{Index, Module, same_name, stem};
use crate::field::{bytes, le16, le32, le64};

/// ELF, 64 bits, little-endian, version 1.
const MAGIC: &[u8] = b"\x7fELF\x02\x01\x01";
/// Offsets in the file header: place of the section headers (8 bytes), length of one, how many, which has names (2 each).
const SECTIONS_AT: usize = 0x28;
const SECTION_BYTES_AT: usize = 0x3a;
const SECTION_COUNT_AT: usize = 0x3c;
const NAMES_AT: usize = 0x3e;
/// Offsets in a section header: its name (4 bytes), place and length of its content (8 each).
const NAME_AT: usize = 0;
const CONTENT_AT: usize = 0x18;
const CONTENT_BYTES_AT: usize = 0x20;
const WANTED: &[u8] = b".modinfo\0";

/// The words `key=value` of a module, in their order.
pub fn modinfo(module: &[u8]) -> Option<impl Iterator<Item = (&str, &str)>> {
    let content = section(module)?;
    let words = content.split(|byte| *byte == 0);
    Some(words.filter_map(|word| core::str::from_utf8(word).ok()?.split_once('=')))
}

fn section(module: &[u8]) -> Option<&[u8]> {
    if !module.starts_with(MAGIC) {
        return None;
    }
    let place = |offset: usize| usize::try_from(le64(module, offset)?).ok();
    let table = place(SECTIONS_AT)?;
    let length = usize::from(le16(module, SECTION_BYTES_AT)?);
    let header =
        |number: u16| bytes(module, table.checked_add(usize::from(number).checked_mul(length)?)?, length);
    let content = |header: &[u8]| {
        let at = usize::try_from(le64(header, CONTENT_AT)?).ok()?;
        bytes(module, at, usize::try_from(le64(header, CONTENT_BYTES_AT)?).ok()?)
    };
    let names = content(header(le16(module, NAMES_AT)?)?)?;
    let mut headers = (0..le16(module, SECTION_COUNT_AT)?).filter_map(header);
    let wanted = headers.find(|header| {
        let at = le32(header, NAME_AT).and_then(|at| usize::try_from(at).ok());
        at.and_then(|at| names.get(at..)).is_some_and(|name| name.starts_with(WANTED))
    });
    content(wanted?)
}

/// The texts of an index, as depmod would write them, with their lines sorted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Texts {
    /// modules.dep.
    pub dep: String,
    /// modules.alias.
    pub alias: String,
    /// modules.softdep.
    pub softdep: String,
    /// modules.builtin.
    pub builtin: String,
}

impl Texts {
    /// The index that they are.
    #[must_use]
    pub fn index(&self) -> Index<'_> {
        Index { dep: &self.dep, alias: &self.alias, softdep: &self.softdep, builtin: &self.builtin }
    }

    /// These modules and no others, by their paths; the names of built-in ones stay.
    #[must_use]
    pub fn only(&self, paths: &[&str]) -> Self {
        let has = |name: &str| paths.iter().any(|path| same_name(stem(path), name));
        let keep = |text: &str, of: fn(&str) -> Option<&str>| {
            sorted(text.lines().filter(|line| of(line).is_some_and(has)))
        };
        Self {
            dep: sorted(
                self.index()
                    .entries()
                    .filter(|(path, _)| has(stem(path)))
                    .map(|(path, needs)| format!("{path}:{needs}")),
            ),
            alias: keep(&self.alias, |line| line.strip_prefix("alias ")?.rsplit(' ').next()),
            softdep: keep(&self.softdep, |line| line.strip_prefix("softdep ")?.split(' ').next()),
            builtin: sorted(super::lines(&self.builtin)),
        }
    }
}

/// Modules that are put to an index, or make one.
#[derive(Debug, Default)]
pub struct Builder {
    /// Path and the names of what is needed.
    needs: BTreeMap<String, Vec<String>>,
    alias: Vec<String>,
    softdep: Vec<String>,
    builtin: Vec<String>,
}

impl Builder {
    /// Adds a module by its path below the release's directory; false: it is no module.
    pub fn add(&mut self, path: &str, module: &[u8]) -> bool {
        let Some(words) = modinfo(module) else { return false };
        let name = stem(path).replace('-', "_");
        let needs = self.needs.entry(path.into()).or_default();
        for (key, value) in words {
            match key {
                "depends" => needs.extend(value.split(',').filter(|name| !name.is_empty()).map(Into::into)),
                "alias" => self.alias.push(format!("alias {value} {name}")),
                "softdep" => self.softdep.push(format!("softdep {name} {value}")),
                _ => {}
            }
        }
        true
    }

    /// Adds modules by what another index says of them. What they need is found by name: it may lie elsewhere here, or not packed.
    pub fn add_index(&mut self, other: &Texts) {
        for (path, needs) in other.index().entries() {
            let names = needs.split_ascii_whitespace().map(|path| stem(path).into());
            self.needs.entry(path.into()).or_default().extend(names);
        }
        self.alias.extend(other.alias.lines().map(Into::into));
        self.softdep.extend(other.softdep.lines().map(Into::into));
        self.builtin.extend(other.builtin.lines().map(Into::into));
    }

    /// The index with these modules; one that it has already is replaced, also for those that need it. What is needed and not
    /// there is left out: it is built in, or loading says so.
    #[must_use]
    pub fn finish(self, before: &Texts) -> Texts {
        let replaced = |name: &str| self.needs.keys().any(|path| same_name(stem(path), name));
        let old = before.index();
        let kept: Vec<&str> =
            old.entries().map(|(path, _)| path).filter(|path| !replaced(stem(path))).collect();
        let before = before.only(&kept);
        let mut paths: BTreeMap<String, &str> = BTreeMap::new();
        for path in kept.iter().copied().chain(self.needs.keys().map(String::as_str)) {
            paths.insert(stem(path).replace('-', "_"), path);
        }
        let place = |name: &str| paths.get(&name.replace('-', "_")).copied();
        let line = |path: &str, needs: &mut dyn Iterator<Item = &str>| {
            needs.fold(format!("{path}:"), |line, path| line + " " + path)
        };
        let direct = self
            .needs
            .iter()
            .map(|(path, needs)| line(path, &mut needs.iter().filter_map(|name| place(name))));
        let rest = before.index();
        let needs_new = |needs: &str| needs.split_ascii_whitespace().any(|path| replaced(stem(path)));
        let (moved, stays): (Vec<_>, Vec<_>) = rest.entries().partition(|(_, needs)| needs_new(needs));
        let now = |path| place(stem(path)).unwrap_or(path);
        let moved_lines =
            moved.iter().map(|(path, needs)| line(path, &mut needs.split_ascii_whitespace().map(now)));
        let stays = || stays.iter().map(|(path, needs)| format!("{path}:{needs}"));
        let dep = sorted(direct.chain(moved_lines).chain(stays()));
        // What is loaded first is named last, and all of it, as depmod does.
        let index = Index { dep: &dep, ..Index::default() };
        let changed = self.needs.keys().map(String::as_str).chain(moved.iter().map(|(path, _)| *path));
        let whole = changed.map(|path| {
            let mut order = index.with_dependencies([Module { path }]);
            order.retain(|module| module.path != path);
            line(path, &mut order.iter().rev().map(|module| module.path))
        });
        let both =
            |before: &str, more: &[String]| sorted(before.lines().chain(more.iter().map(String::as_str)));
        Texts {
            dep: sorted(whole.chain(stays())),
            alias: both(&before.alias, &self.alias),
            softdep: both(&before.softdep, &self.softdep),
            builtin: both(&before.builtin, &self.builtin),
        }
    }
}

/// Lines in order, each once.
fn sorted<T: Into<String>>(lines: impl Iterator<Item = T>) -> String {
    let mut lines: Vec<String> = lines.map(Into::into).collect();
    lines.sort();
    lines.dedup();
    lines.into_iter().fold(String::new(), |text, line| text + &line + "\n")
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;
    use alloc::vec;

    use proptest::prelude::*;

    use super::*;

    /// An ELF file with nothing but the section and its names.
    fn module(words: &str) -> Vec<u8> {
        let info: Vec<u8> = words
            .split(' ')
            .flat_map(|word| word.replace('+', " ").into_bytes().into_iter().chain([0]))
            .collect();
        let names = b"\0.modinfo\0.shstrtab\0";
        let (info_at, names_at) = (64, 64 + info.len());
        let table = names_at + names.len();
        let mut file = vec![0; 64];
        file[..7].copy_from_slice(MAGIC);
        file[SECTIONS_AT..SECTIONS_AT + 8].copy_from_slice(&(table as u64).to_le_bytes());
        file[SECTION_BYTES_AT] = 64;
        file[SECTION_COUNT_AT] = 3;
        file[NAMES_AT] = 2;
        file.extend(&info);
        file.extend(names);
        for (name, at, bytes) in [(0_u8, 0, 0), (1, info_at, info.len()), (10, names_at, names.len())] {
            let mut header = vec![0; 64];
            header[NAME_AT] = name;
            header[CONTENT_AT..CONTENT_AT + 8].copy_from_slice(&(at as u64).to_le_bytes());
            header[CONTENT_BYTES_AT..CONTENT_BYTES_AT + 8].copy_from_slice(&(bytes as u64).to_le_bytes());
            file.extend(header);
        }
        file
    }

    #[test]
    fn an_index_is_made_of_what_modules_say() {
        let mut builder = Builder::default();
        assert!(builder.add(
            "kernel/fs/a.ko",
            &module("license=GPL depends=b-c,gone alias=fs-a alias=pci:v1* softdep=pre:+d")
        ));
        assert!(builder.add("kernel/lib/b_c.ko", &module("depends=d")));
        assert!(builder.add("kernel/lib/d.ko", &module("depends=")));
        assert!(!builder.add("kernel/lib/e.ko", b"no module"));
        let builtin = "kernel/mm/one.ko\n".to_string();
        let texts = builder.finish(&Texts { builtin: builtin.clone(), ..Texts::default() });
        assert_eq!(
            texts.dep,
            "kernel/fs/a.ko: kernel/lib/b_c.ko kernel/lib/d.ko\nkernel/lib/b_c.ko: kernel/lib/d.ko\nkernel/lib/d.ko:\n"
        );
        assert_eq!(texts.alias, "alias fs-a a\nalias pci:v1* a\n");
        assert_eq!((texts.softdep.as_str(), &texts.builtin), ("softdep a pre: d\n", &builtin));
        // One more that needs what is there, and another of a name that is there.
        let mut more = Builder::default();
        more.add("extra/f.ko", &module("depends=b_c"));
        more.add("updates/a.ko", &module("alias=new"));
        let more = more.finish(&texts);
        assert_eq!(
            more.dep,
            "extra/f.ko: kernel/lib/b_c.ko kernel/lib/d.ko\nkernel/lib/b_c.ko: kernel/lib/d.ko\nkernel/lib/d.ko:\nupdates/a.ko:\n"
        );
        assert_eq!((more.alias.as_str(), more.softdep.as_str()), ("alias new a\n", ""));
        // What needs a module that is replaced needs the new one, and what that needs.
        let mut newer = Builder::default();
        newer.add("updates/d.ko", &module("depends=g"));
        newer.add("updates/g.ko", &module("depends="));
        assert_eq!(
            newer.finish(&texts).dep,
            "kernel/fs/a.ko: kernel/lib/b_c.ko updates/d.ko updates/g.ko\nkernel/lib/b_c.ko: updates/d.ko updates/g.ko\n\
             updates/d.ko: updates/g.ko\nupdates/g.ko:\n"
        );
        let own =
            Texts { dep: "updates/a.ko.xz:\n".into(), alias: "alias new a\n".into(), ..Texts::default() };
        let with = |own: &Texts| {
            let mut builder = Builder::default();
            builder.add_index(own);
            builder.finish(&texts)
        };
        let both = with(&own);
        assert_eq!(both.dep, "kernel/lib/b_c.ko: kernel/lib/d.ko\nkernel/lib/d.ko:\nupdates/a.ko.xz:\n");
        assert_eq!((both.alias.as_str(), both.softdep.as_str()), ("alias new a\n", ""));
        assert_eq!(both.builtin, builtin);
        // Of another index, whose modules lie packed and elsewhere.
        let dep = "updates/a.ko.xz: kernel/b-c.ko.xz kernel/d.ko.xz gone.ko.xz\nupdates/d.ko.xz:\n";
        let both = with(&Texts { dep: dep.into(), ..Texts::default() });
        assert_eq!(
            both.dep,
            "kernel/lib/b_c.ko: updates/d.ko.xz\nupdates/a.ko.xz: kernel/lib/b_c.ko updates/d.ko.xz\nupdates/d.ko.xz:\n"
        );
        let few = texts.only(&["kernel/lib/d.ko"]);
        assert_eq!((few.dep.as_str(), few.alias.as_str()), ("kernel/lib/d.ko:\n", ""));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(at in 0_usize..300, value: u8, length in 0_usize..400) {
            let mut file = module("depends=a,b alias=x softdep=pre:+d");
            if let Some(byte) = file.get_mut(at) {
                *byte = value;
            }
            file.truncate(length);
            let _ = modinfo(&file).map(Iterator::count);
        }
    }
}
