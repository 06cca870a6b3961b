//! Arguments of a program: built-in ones, and what a configuration lays over them.
//!
//! Owns: [`Policy`], by which an argument of `extraArgs` meets a built-in one; the order, which is by name, so that equal
//! settings give equal bytes.

use std::collections::BTreeMap;

use config::schema::Arguments as Extra;

use crate::Error;
use crate::version::{ALWAYS, Minors, Version};

/// What an argument of `extraArgs` does to a built-in one of the same name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// It takes its place.
    Replace,
    /// Its values, separated by commas, come behind the built-in ones.
    Add,
    /// It is refused: the node relies on the built-in value.
    Deny,
}

/// A built-in argument.
#[derive(Debug, Clone)]
pub(crate) struct Flag {
    name: &'static str,
    /// Several are several arguments.
    values: Vec<String>,
    policy: Policy,
    minors: Minors,
}

/// An argument that a configuration may replace.
pub(crate) fn flag(name: &'static str, value: impl Into<String>) -> Flag {
    Flag { name, values: vec![value.into()], policy: Policy::Replace, minors: ALWAYS }
}

/// An argument that a configuration adds to.
pub(crate) fn list(name: &'static str, value: impl Into<String>) -> Flag {
    Flag { policy: Policy::Add, ..flag(name, value) }
}

/// An argument that a configuration cannot change.
pub(crate) fn fixed(name: &'static str, value: impl Into<String>) -> Flag {
    Flag { policy: Policy::Deny, ..flag(name, value) }
}

impl Flag {
    /// The same for these versions only.
    pub(crate) fn only(self, minors: Minors) -> Self {
        Self { minors, ..self }
    }

    /// The same if a condition holds.
    pub(crate) fn when(self, condition: bool) -> Self {
        if condition { self } else { Self { values: Vec::new(), ..self } }
    }

    /// The same with further values, each an argument of its own.
    pub(crate) fn and(mut self, values: impl IntoIterator<Item = String>) -> Self {
        self.values.extend(values);
        self
    }
}

/// Arguments by name. A name may have several values, each of which is an argument of its own.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Arguments {
    values: BTreeMap<String, Vec<String>>,
    policies: BTreeMap<&'static str, Policy>,
}

impl Arguments {
    /// The built-in arguments of a version.
    pub(crate) fn built_in(version: Version, flags: impl IntoIterator<Item = Flag>) -> Self {
        let mut arguments = Self::default();
        for flag in flags {
            // Also where this version has no such argument: a configuration that names it means another version.
            arguments.policies.insert(flag.name, flag.policy);
            if flag.minors.contain(version) && !flag.values.is_empty() {
                arguments.values.insert(flag.name.to_owned(), flag.values);
            }
        }
        arguments
    }

    /// Lays the arguments of a configuration over these.
    ///
    /// # Errors
    /// [`Error::Denied`] for one that may not be changed, naming `field`.
    pub(crate) fn with(
        mut self,
        field: &'static str,
        extra: &BTreeMap<String, Extra>,
    ) -> Result<Self, Error> {
        for (name, Extra(given)) in extra {
            // Both generations' configurations are also written with the dashes.
            let name = name.trim_start_matches('-');
            match self.policies.get(name).copied().unwrap_or(Policy::Replace) {
                Policy::Deny => return Err(Error::Denied { field, name: name.to_owned() }),
                Policy::Add => self.add(name, given),
                Policy::Replace => drop(self.values.insert(name.to_owned(), given.clone())),
            }
        }
        Ok(self)
    }

    fn add(&mut self, name: &str, given: &[String]) {
        let known = self.values.entry(name.to_owned()).or_default();
        let mut values: Vec<&str> = known.iter().flat_map(|value| value.split(',')).collect();
        for value in given.iter().flat_map(|value| value.split(',')).filter(|value| !value.is_empty()) {
            if !values.contains(&value) {
                values.push(value);
            }
        }
        *known = vec![values.join(",")];
    }

    /// The values of one argument.
    #[must_use]
    pub fn get(&self, name: &str) -> &[String] {
        self.values.get(name).map_or(&[], Vec::as_slice)
    }

    /// Names of all arguments, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.values.keys().map(String::as_str)
    }

    /// The command line: `--name=value` each.
    #[must_use]
    pub fn to_vec(&self) -> Vec<String> {
        let of = |(name, values): (&String, &Vec<String>)| {
            values.iter().map(|value| format!("--{name}={value}")).collect::<Vec<_>>()
        };
        self.values.iter().flat_map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::version::{since, until};

    const VERSION: Version = Version { major: 1, minor: 30, patch: 0 };

    fn extra(pairs: &[(&str, &[&str])]) -> BTreeMap<String, Extra> {
        let of = |(name, values): &(&str, &[&str])| {
            ((*name).to_owned(), Extra(values.iter().map(|value| (*value).to_owned()).collect()))
        };
        pairs.iter().map(of).collect()
    }

    fn arguments() -> Arguments {
        Arguments::built_in(
            VERSION,
            [
                flag("profiling", "false"),
                list("enable-admission-plugins", "NodeRestriction"),
                fixed("etcd-cafile", "/ca.crt"),
                flag("insecure-port", "0").only(until(23)),
                fixed("newer", "x").only(since(31)),
                flag("issuer", "new").and(["old".to_owned()]),
                flag("unwanted", "x").when(false),
            ],
        )
    }

    #[test]
    fn arguments_meet_by_their_policy() {
        let given = extra(&[
            ("profiling", &["true"]),
            ("enable-admission-plugins", &["PodSecurity,NodeRestriction", "AlwaysPullImages"]),
            ("--v", &["2"]),
            ("audit-webhook", &["a", "b"]),
        ]);
        let laid = arguments().with("cluster.apiServer.extraArgs", &given).unwrap();
        let line = [
            "--audit-webhook=a",
            "--audit-webhook=b",
            "--enable-admission-plugins=NodeRestriction,PodSecurity,AlwaysPullImages",
            "--etcd-cafile=/ca.crt",
            "--issuer=new",
            "--issuer=old",
            "--profiling=true",
            "--v=2",
        ];
        assert_eq!(laid.to_vec(), line);
    }

    #[test]
    fn what_the_node_relies_on_is_refused_with_its_field() {
        for name in ["etcd-cafile", "--etcd-cafile", "newer"] {
            let refused = arguments().with("cluster.apiServer.extraArgs", &extra(&[(name, &["x"])]));
            let text = refused.unwrap_err().to_string();
            assert!(text.starts_with("cluster.apiServer.extraArgs: "), "{text}");
            assert!(text.contains(name.trim_start_matches('-')), "{text}");
        }
    }
}
