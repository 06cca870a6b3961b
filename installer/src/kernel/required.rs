//! The options that a node's kernel must have: a list in groups with reasons, compared with a `.config`.
//!
//! Source: Kconfig's `.config` form (Documentation/kbuild/kconfig.rst).

use std::collections::BTreeMap;
use std::fmt::Write as _;

use ondisk::Architecture;
use serde::Deserialize;

use super::sets::only;
use crate::Error;

/// The list of the repository.
const LIST: &str = include_str!("../../../kernel-config/required.toml");

/// What a kernel must have.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Required {
    #[serde(rename = "group")]
    groups: Vec<Group>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Group {
    name: String,
    reason: String,
    /// The architecture that it is for, by its name; every one where none is named.
    only: Option<String>,
    #[serde(default)]
    builtin: Vec<String>,
    #[serde(default)]
    available: Vec<String>,
    #[serde(default)]
    off: Vec<String>,
}

impl Required {
    /// kernel-config/required.toml.
    pub fn list(architecture: Architecture) -> Result<Self, Error> {
        Self::parse("kernel-config/required.toml", LIST, architecture)
    }

    /// Reads a list; `name` is what errors call it. Groups for other architectures are left out.
    pub fn parse(name: &str, text: &str, architecture: Architecture) -> Result<Self, Error> {
        let bad = |reason: String| Error::BadList { name: name.to_owned(), reason };
        let mut required: Self = toml::from_str(text).map_err(|error| bad(error.to_string()))?;
        for group in &required.groups {
            if !group.reason.trim().ends_with('.') {
                return Err(bad(format!("group {}: the reason is a sentence", group.name)));
            }
            only(group.only.as_deref()).map_err(|word| bad(format!("group {}: {word}", group.name)))?;
        }
        required.groups.retain(|group| group.only.as_deref().is_none_or(|only| only == architecture.name()));
        Ok(required)
    }

    /// Ok, or one line for every option that is not as it must be, under its group and reason. `kernel` is what errors
    /// call it.
    pub fn check(&self, kernel: &str, config: &str) -> Result<(), Error> {
        self.judge(kernel, config, Group::faults)
    }

    /// The same for a kernel without modules: what may be one elsewhere must be built in.
    pub fn check_without_modules(&self, kernel: &str, config: &str) -> Result<(), Error> {
        self.judge(kernel, config, Group::faults_without_modules)
    }

    fn judge(&self, kernel: &str, config: &str, faults: Judge) -> Result<(), Error> {
        let options = options(config);
        let mut report = String::new();
        for group in &self.groups {
            let faults = faults(group, &options);
            if !faults.is_empty() {
                let _ = write!(report, "\n  {}: {}\n    {}", group.name, group.reason, faults.join("\n    "));
            }
        }
        if report.is_empty() {
            return Ok(());
        }
        Err(Error::KernelLacks { kernel: kernel.to_owned(), report })
    }
}

/// What is wrong with a kernel's options, as a group sees it.
type Judge = fn(&Group, &BTreeMap<&str, &str>) -> Vec<String>;

impl Group {
    fn faults_without_modules(&self, options: &BTreeMap<&str, &str>) -> Vec<String> {
        let mut faults = self.faults(options);
        let modules = self.available.iter().filter(|name| options.get(name.as_str()) == Some(&"m"));
        faults.extend(modules.map(|name| format!("CONFIG_{name} must be y, is m, and there are no modules")));
        faults
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "[[group]]\nname = \"a\"\nreason = \"Why.\"\nbuiltin = [\"B\"]\navailable = [\"C\", \"D\"]\noff = [\"E\"]\n";

    #[test]
    fn a_kernel_that_will_do() {
        let required = Required::parse("test", LIST, Architecture::Amd64).unwrap();
        let config = "# comment\nCONFIG_B=y\nCONFIG_C=m\nCONFIG_D=y\n# CONFIG_E is not set\n";
        required.check("1.0", config).unwrap();
    }

    #[test]
    fn every_missing_option_is_named_under_its_reason() {
        let required = Required::parse("test", LIST, Architecture::Amd64).unwrap();
        let config = "CONFIG_B=m\nCONFIG_C=n\nCONFIG_E=y\nCONFIG_DD=y\n";
        assert_eq!(
            required.check("1.0", config).unwrap_err().to_string(),
            "kernel 1.0 will not do: its configuration lacks what a node needs:\n  a: Why.\n    CONFIG_B must be y, is m\n    \
             CONFIG_C must be y or m, is n\n    CONFIG_D must be y or m, is not set\n    CONFIG_E must not be set, is y"
        );
    }

    #[test]
    fn a_list_with_an_unknown_key_or_no_reason_is_refused() {
        assert!(Required::parse("test", &LIST.replace("builtin", "buildin"), Architecture::Amd64).is_err());
        assert!(Required::parse("test", &LIST.replace("Why.", "why"), Architecture::Amd64).is_err());
        for architecture in Architecture::ALL {
            Required::list(architecture).unwrap();
        }
    }
}
