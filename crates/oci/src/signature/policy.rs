//! Rules on images: the first that fits counts.
//!
//! Source: the public reference of Talos 1.13, `ImageVerificationConfig`: patterns are compared with registry and
//! repository, never with tag or digest. A node has no names that leave the registry out, so none is made longer first.

use std::fmt;

use super::Key;
use crate::Reference;

/// Rules in their order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Policy {
    /// The first that fits counts.
    pub rules: Vec<Rule>,
}

/// What is done with some images.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// Registry and repository; `*` stands for any text, slashes included.
    pub images: String,
    /// What is done.
    pub action: Action,
}

/// What is done with an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// It is taken as it is.
    Skip,
    /// It is refused.
    Deny,
    /// It must be signed by way of somebody's sign-in; that cannot be checked here, so it is refused.
    Keyless,
    /// It must be signed with this key.
    Signed(Key),
}

impl Policy {
    /// The rule for an image; without one it is taken as it is.
    #[must_use]
    pub fn rule_for(&self, reference: &Reference) -> Option<&Rule> {
        let name = format!("{}/{}", reference.registry, reference.repository);
        self.rules.iter().find(|rule| fits(&rule.images, &name))
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the rule for {:?} in ImageVerificationConfig", self.images)
    }
}

/// Whether a text is one that a pattern stands for. Each `*` takes as little as it can: what is left between two of them
/// only has to come in that order.
fn fits(pattern: &str, text: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(mut text) = text.strip_prefix(start) else { return false };
    let mut parts: Vec<&str> = rest.split('*').collect();
    let end = parts.pop().unwrap_or_default();
    for part in parts {
        let Some(at) = text.find(part) else { return false };
        text = text.get(at + part.len()..).unwrap_or_default();
    }
    text.ends_with(end)
}
