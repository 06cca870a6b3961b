//! Module sets: which modules an initramfs or a kernel layer holds, as data with reasons.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

use super::ModuleIndex;

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ModuleSet {
    #[serde(rename = "group")]
    groups: Vec<Group>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Group {
    name: String,
    reason: String,
    /// No device asks for these modules: init loads them, in this order.
    #[serde(default)]
    load: bool,
    modules: Vec<String>,
}

impl ModuleSet {
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
        Self::parse(&text).with_context(|| format!("parse {}", path.display()))
    }

    pub(super) fn parse(text: &str) -> Result<Self> {
        let set: Self = toml::from_str(text)?;
        for group in &set.groups {
            ensure!(group.reason.trim().ends_with('.'), "group {}: the reason is a sentence", group.name);
            let sweeping = group.load && group.modules.iter().any(|module| module.ends_with('/'));
            ensure!(!sweeping, "group {}: a folder has no load order", group.name);
        }
        Ok(set)
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.groups.extend(other.groups.iter().cloned());
    }

    /// The content of modules.load: names without those that the kernel has built in.
    pub(crate) fn load_list(&self, index: &ModuleIndex) -> String {
        let mut text = String::new();
        for group in self.groups.iter().filter(|group| group.load) {
            text += &format!("# {}: {}\n", group.name, group.reason);
            let modules = group.modules.iter().filter(|name| !index.get().is_builtin(name));
            modules.for_each(|name| text += &format!("{name}\n"));
        }
        text
    }

    /// Paths of the set's modules and all that they need. Names that a kernel does not have are all reported.
    pub(super) fn resolve(&self, index: &ModuleIndex) -> Result<BTreeSet<String>> {
        let table = index.get();
        let mut wanted = Vec::new();
        let mut unknown = Vec::new();
        for name in self.groups.iter().flat_map(|group| &group.modules) {
            if name.ends_with('/') {
                let before = wanted.len();
                wanted.extend(index.below(name));
                if wanted.len() == before {
                    unknown.push(name.as_str());
                }
            } else if let Some(module) = table.find(name) {
                wanted.push(module);
            } else if !table.is_builtin(name) {
                unknown.push(name.as_str());
            }
        }
        if !unknown.is_empty() {
            bail!("the kernel has no such modules: {}", unknown.join(" "));
        }
        Ok(table.with_dependencies(wanted).iter().map(|module| module.path.to_owned()).collect())
    }
}
