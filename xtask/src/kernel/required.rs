//! The options that a node's kernel must have: a list in groups with reasons, compared with a `.config`.
//!
//! Source: Kconfig's `.config` form (Documentation/kbuild/kconfig.rst).

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Required {
    #[serde(rename = "group")]
    groups: Vec<Group>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Group {
    name: String,
    reason: String,
    #[serde(default)]
    builtin: Vec<String>,
    #[serde(default)]
    available: Vec<String>,
    #[serde(default)]
    off: Vec<String>,
}

impl Required {
    pub(super) fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
        Self::parse(&text).with_context(|| format!("parse {}", path.display()))
    }

    pub(super) fn parse(text: &str) -> Result<Self> {
        let required: Self = toml::from_str(text)?;
        for group in &required.groups {
            ensure!(group.reason.trim().ends_with('.'), "group {}: the reason is a sentence", group.name);
        }
        Ok(required)
    }

    /// Ok, or one line for every option that is not as it must be, under its group and reason.
    pub(super) fn check(&self, config: &str) -> Result<()> {
        let options = options(config);
        let mut report = String::new();
        for group in &self.groups {
            let faults = group.faults(&options);
            if !faults.is_empty() {
                let _ = write!(report, "\n  {}: {}\n    {}", group.name, group.reason, faults.join("\n    "));
            }
        }
        if report.is_empty() {
            return Ok(());
        }
        bail!("its configuration lacks what a node needs:{report}")
    }
}

impl Group {
    fn faults(&self, options: &BTreeMap<&str, &str>) -> Vec<String> {
        let value = |name: &String| options.get(name.as_str()).copied();
        let mut faults = Vec::new();
        for name in self.builtin.iter().filter(|name| value(name) != Some("y")) {
            faults.push(format!("CONFIG_{name} must be y, is {}", value(name).unwrap_or("not set")));
        }
        for name in self.available.iter().filter(|name| !matches!(value(name), Some("y" | "m"))) {
            faults.push(format!("CONFIG_{name} must be y or m, is {}", value(name).unwrap_or("not set")));
        }
        for name in self.off.iter().filter(|name| value(name).is_some()) {
            faults.push(format!("CONFIG_{name} must not be set, is {}", value(name).unwrap_or_default()));
        }
        faults
    }
}

/// Name and value of every option that is set; `is not set` lines are comments.
fn options(config: &str) -> BTreeMap<&str, &str> {
    config.lines().filter_map(|line| line.strip_prefix("CONFIG_")?.split_once('=')).collect()
}
