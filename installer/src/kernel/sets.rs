//! Module sets: which modules an initramfs or a kernel layer holds, as data with reasons.

use std::collections::BTreeSet;

use ondisk::Architecture;
use ondisk::kmod::{Index, Module};
use serde::Deserialize;

use crate::Error;

/// The initramfs profile that images are made with.
const DEFAULT: &str = include_str!("../../../initramfs/modules-default.toml");
/// What a root on the network takes besides.
const NETWORK: &str = include_str!("../../../initramfs/modules-network.toml");

/// Modules that belong together, in groups.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModuleSet {
    #[serde(rename = "group")]
    groups: Vec<Group>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Group {
    name: String,
    reason: String,
    /// The architecture that it is for, by its name; every one where none is named.
    only: Option<String>,
    /// No device asks for these modules: init loads them, in this order.
    #[serde(default)]
    load: bool,
    /// Without these no root can be mounted, whatever hardware there is.
    #[serde(default)]
    needed: bool,
    modules: Vec<String>,
}

/// What a set comes to with one kernel.
#[derive(Debug, Default)]
pub struct Resolved<'a> {
    /// Paths of the modules and all that they need.
    pub paths: BTreeSet<&'a str>,
    /// Entries that the kernel does not have.
    pub unknown: Vec<String>,
    /// Those of them that nothing starts without.
    pub needed: Vec<String>,
}

impl ModuleSet {
    /// The initramfs's.
    pub fn initramfs(architecture: Architecture) -> Result<Self, Error> {
        Self::parse("initramfs/modules-default.toml", DEFAULT, architecture)
    }

    /// What an initramfs that fetches its root has besides: drivers of network cards.
    pub fn network(architecture: Architecture) -> Result<Self, Error> {
        Self::parse("initramfs/modules-network.toml", NETWORK, architecture)
    }

    /// Reads a list; `name` is what errors call it. Groups for other architectures are left out.
    pub fn parse(name: &str, text: &str, architecture: Architecture) -> Result<Self, Error> {
        let bad = |reason: String| Error::BadList { name: name.to_owned(), reason };
        let mut set: Self = toml::from_str(text).map_err(|error| bad(error.to_string()))?;
        for group in &set.groups {
            if !group.reason.trim().ends_with('.') {
                return Err(bad(format!("group {}: the reason is a sentence", group.name)));
            }
            if group.load && group.modules.iter().any(|module| module.ends_with('/')) {
                return Err(bad(format!("group {}: a directory has no load order", group.name)));
            }
            only(group.only.as_deref()).map_err(|word| bad(format!("group {}: {word}", group.name)))?;
        }
        set.groups.retain(|group| group.only.as_deref().is_none_or(|only| only == architecture.name()));
        Ok(set)
    }

    /// Adds the groups of another set.
    pub fn add(&mut self, other: &Self) {
        self.groups.extend(other.groups.iter().cloned());
    }

    /// The content of modules.load: names without those that the kernel has built in.
    #[must_use]
    pub fn load_list(&self, index: &Index<'_>) -> String {
        self.load_list_of(|name| !index.is_builtin(name))
    }

    /// The same without those that the kernel does not have either.
    #[must_use]
    pub fn load_list_of_present(&self, index: &Index<'_>) -> String {
        self.load_list_of(|name| index.find(name).is_some())
    }

    fn load_list_of(&self, wanted: impl Fn(&str) -> bool) -> String {
        let mut text = String::new();
        for group in self.groups.iter().filter(|group| group.load) {
            text += &format!("# {}: {}\n", group.name, group.reason);
            group.modules.iter().filter(|name| wanted(name)).for_each(|name| text += &format!("{name}\n"));
        }
        text
    }

    /// The modules that are named, directories left out.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        let all = self.groups.iter().flat_map(|group| &group.modules);
        all.map(String::as_str).filter(|name| !name.ends_with('/'))
    }

    /// The set's modules in a kernel's index.
    #[must_use]
    pub fn resolve<'a>(&self, index: &Index<'a>) -> Resolved<'a> {
        let (mut wanted, mut resolved) = (Vec::new(), Resolved::default());
        for group in &self.groups {
            for name in &group.modules {
                let before = wanted.len();
                if name.ends_with('/') {
                    wanted.extend(below(index, name));
                } else {
                    wanted.extend(index.find(name));
                }
                if wanted.len() == before && !index.is_builtin(name) {
                    resolved.unknown.push(name.clone());
                    if group.needed {
                        resolved.needed.push(name.clone());
                    }
                }
            }
        }
        resolved.paths = index.with_dependencies(wanted).iter().map(|module| module.path).collect();
        resolved
    }
}

/// Ok for the name of an architecture, and for none.
pub(super) fn only(name: Option<&str>) -> Result<(), String> {
    match name.filter(|name| Architecture::named(name).is_none()) {
        Some(other) => Err(format!("only = {other:?} is no architecture, which amd64 and arm64 are")),
        None => Ok(()),
    }
}

/// Every module below a directory of the release's `kernel/`.
fn below<'a>(index: &Index<'a>, directory: &str) -> impl Iterator<Item = Module<'a>> + use<'a> {
    let prefix = format!("kernel/{directory}");
    let paths = index.dep.lines().filter_map(|line| line.split_once(':').map(|(path, _)| path));
    paths.filter(move |path| path.starts_with(&prefix)).map(|path| Module { path })
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEP: &str = "kernel/fs/a.ko.xz: kernel/lib/b-c.ko.xz\nkernel/lib/b-c.ko.xz:\nkernel/lib/d.ko.xz:\nkernel/libx/e.ko.xz:\n";

    fn set(modules: &str, flags: &str) -> ModuleSet {
        let text = format!("[[group]]\nname = \"g\"\nreason = \"Why.\"\n{flags}\nmodules = [{modules}]\n");
        ModuleSet::parse("test", &text, Architecture::Amd64).unwrap()
    }

    fn index() -> Index<'static> {
        Index { dep: DEP, alias: "", softdep: "softdep b_c pre: d\n", builtin: "kernel/mm/builtin_one.ko\n" }
    }

    #[test]
    fn dependencies_come_along() {
        let resolved = set("\"a\", \"builtin-one\"", "").resolve(&index());
        let paths: Vec<&str> = resolved.paths.into_iter().collect();
        assert_eq!(paths, ["kernel/fs/a.ko.xz", "kernel/lib/b-c.ko.xz", "kernel/lib/d.ko.xz"]);
        assert!(resolved.unknown.is_empty());
    }

    #[test]
    fn a_directory_takes_its_own_modules_only() {
        assert_eq!(set("\"lib/\"", "").resolve(&index()).paths.len(), 2);
    }

    #[test]
    fn all_modules_that_a_kernel_lacks_are_named() {
        let resolved = set("\"a\", \"nix\", \"none/\"", "needed = true").resolve(&index());
        assert_eq!(
            (&resolved.unknown, &resolved.needed),
            (&vec!["nix".into(), "none/".into()], &resolved.unknown)
        );
        assert!(set("\"nix\"", "").resolve(&index()).needed.is_empty());
    }

    #[test]
    fn the_load_list_keeps_its_order_and_leaves_out_what_is_built_in() {
        let loaded = set("\"d\", \"builtin_one\", \"gone\", \"a\"", "load = true");
        assert_eq!(loaded.load_list(&index()), "# g: Why.\nd\ngone\na\n");
        assert_eq!(loaded.load_list_of_present(&index()), "# g: Why.\nd\na\n");
        assert_eq!(set("\"a\"", "").load_list(&index()), "");
    }

    #[test]
    fn a_list_that_says_no_reason_is_refused() {
        assert!(
            ModuleSet::parse(
                "x",
                "[[group]]\nname = 'a'\nreason = 'why'\nmodules = []\n",
                Architecture::Amd64
            )
            .is_err()
        );
        let directory = "[[group]]\nname = 'a'\nreason = 'Why.'\nload = true\nmodules = ['lib/']\n";
        assert!(ModuleSet::parse("x", directory, Architecture::Amd64).is_err());
        for architecture in Architecture::ALL {
            ModuleSet::initramfs(architecture).unwrap();
        }
    }

    #[test]
    fn groups_of_other_architectures_are_left_out() {
        let text = "[[group]]\nname = 'a'\nreason = 'Why.'\nonly = 'arm64'\nmodules = ['a']\n";
        let names = |architecture| {
            let set = ModuleSet::parse("x", text, architecture).unwrap();
            set.names().map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(names(Architecture::Arm64), ["a"]);
        assert!(names(Architecture::Amd64).is_empty());
        let error = ModuleSet::parse("x", &text.replace("arm64", "arm"), Architecture::Arm64).unwrap_err();
        assert!(
            error.to_string().contains("\"arm\" is no architecture, which amd64 and arm64 are"),
            "{error}"
        );
    }
}
