//! One line in udev's language, as far as it is understood here.
//!
//! Owns: the keys ACTION, KERNEL, SUBSYSTEM, DRIVER, ATTR, ENV (KERNELS, SUBSYSTEMS, DRIVERS, ATTRS for a parent) as
//! conditions; MODE, OWNER, GROUP, SYMLINK and ATTR as actions; the substitutions of names and attributes.
//! Does not: run programs, rename links, jump: a rule that wants it is refused as a whole, by name.
//! Source: udev(7).

use regex::Regex;

/// What a rule looks at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Subject {
    Action,
    Kernel,
    Subsystem,
    Driver,
    Attribute(String),
    Property(String),
}

/// A condition.
#[derive(Debug, Clone)]
pub(super) struct Match {
    pub(super) subject: Subject,
    /// Of the device or one of its parents: all such conditions of a rule hold for the same one.
    pub(super) of_parent: bool,
    wanted: Regex,
    negated: bool,
}

impl Match {
    /// Whether a value fulfils it; what is not there is like an empty text.
    pub(super) fn holds(&self, value: &str) -> bool {
        self.wanted.is_match(value) != self.negated
    }
}

/// What a rule does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Deed {
    Mode(u32),
    Owner(String),
    Group(String),
    /// Below /dev.
    Symlink(String),
    /// A file of the device's directory, and what is written there.
    Attribute(String, String),
}

/// A rule that can be applied.
#[derive(Debug, Clone)]
pub(super) struct Rule {
    pub(super) matches: Vec<Match>,
    pub(super) deeds: Vec<Deed>,
}

impl Rule {
    /// Reads a line. Comments and empty lines are rules that do nothing.
    pub(super) fn parse(line: &str) -> Result<Self, String> {
        let mut rule = Self { matches: Vec::new(), deeds: Vec::new() };
        let mut rest = line.trim();
        if rest.starts_with('#') {
            return Ok(rule);
        }
        while !rest.is_empty() {
            let (key, operator, value, after) = token(rest)?;
            rule.add(key, operator, value)?;
            rest = after.trim_start_matches(|c: char| c == ',' || c.is_whitespace());
        }
        Ok(rule)
    }

    fn add(&mut self, key: &str, operator: &str, value: &str) -> Result<(), String> {
        let (name, argument) = match key.split_once('{') {
            Some((name, argument)) => (name, argument.trim_end_matches('}')),
            None => (key, ""),
        };
        if matches!(operator, "==" | "!=") {
            self.matches.push(condition(name, argument, operator == "!=", value)?);
            return Ok(());
        }
        match name {
            "MODE" => {
                let mode = u32::from_str_radix(value, 8).ok().filter(|mode| *mode <= 0o7777);
                self.deeds
                    .push(Deed::Mode(mode.ok_or_else(|| format!("MODE {value:?} is no octal number"))?));
            }
            "OWNER" => self.deeds.push(Deed::Owner(value.to_owned())),
            "GROUP" => self.deeds.push(Deed::Group(value.to_owned())),
            "SYMLINK" => {
                self.deeds.extend(value.split_whitespace().map(|name| Deed::Symlink(name.to_owned())))
            }
            "ATTR" if !argument.is_empty() => {
                self.deeds.push(Deed::Attribute(argument.to_owned(), value.to_owned()));
            }
            // They order and mark devices for programs that this system does not have.
            "TAG" | "OPTIONS" => {}
            _ => {
                return Err(format!(
                    "{key} cannot be set on this system; there are MODE, OWNER, GROUP, SYMLINK, ATTR{{…}}"
                ));
            }
        }
        Ok(())
    }
}

fn condition(name: &str, argument: &str, negated: bool, value: &str) -> Result<Match, String> {
    let named = |make: fn(String) -> Subject| {
        if argument.is_empty() {
            Err(format!("{name} needs a name in braces"))
        } else {
            Ok(make(argument.to_owned()))
        }
    };
    let (subject, of_parent) = match name {
        "ACTION" => (Subject::Action, false),
        "KERNEL" => (Subject::Kernel, false),
        "SUBSYSTEM" => (Subject::Subsystem, false),
        "DRIVER" => (Subject::Driver, false),
        "ATTR" => (named(Subject::Attribute)?, false),
        "ENV" => (named(Subject::Property)?, false),
        "KERNELS" => (Subject::Kernel, true),
        "SUBSYSTEMS" => (Subject::Subsystem, true),
        "DRIVERS" => (Subject::Driver, true),
        "ATTRS" => (named(Subject::Attribute)?, true),
        _ => return Err(format!("{name} is no condition that this system knows")),
    };
    Ok(Match { subject, of_parent, wanted: pattern(value)?, negated })
}

/// `KEY{argument} operator "value"`, and what follows.
fn token(text: &str) -> Result<(&str, &str, &str, &str), String> {
    let at = text.find(['=', '!', '+', '-', ':']).ok_or_else(|| format!("{text:?} has no operator"))?;
    let (key, rest) = text.split_at(at);
    let operator =
        ["==", "!=", "+=", "-=", ":=", "="].into_iter().find(|operator| rest.starts_with(operator));
    let operator = operator.ok_or_else(|| format!("{key} has no operator"))?;
    let value = rest[operator.len()..].trim_start();
    let value = value.strip_prefix('"').ok_or_else(|| format!("the value of {key} is not quoted"))?;
    let end = value.find('"').ok_or_else(|| format!("the value of {key} does not end"))?;
    Ok((key.trim(), operator, &value[..end], &value[end + 1..]))
}

/// A shell pattern; `|` separates several.
fn pattern(value: &str) -> Result<Regex, String> {
    let mut text = String::from("^(?s:");
    let mut in_brackets = false;
    for c in value.chars() {
        match (in_brackets, c) {
            (true, ']') => (in_brackets, text) = (false, text + "]"),
            (true, '!') if text.ends_with('[') => text.push('^'),
            (true, '[' | '\\' | '&' | '~') => text.extend(['\\', c]),
            (true, c) => text.push(c),
            (false, '[') => (in_brackets, text) = (true, text + "["),
            (false, '*') => text.push_str(".*"),
            (false, '?') => text.push('.'),
            (false, '|') => text.push_str(")$|^(?s:"),
            (false, c) => text.push_str(&regex::escape(&c.to_string())),
        }
    }
    text.push_str(")$");
    Regex::new(&text).map_err(|_| format!("{value:?} is no pattern"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_of_the_documents_is_read() {
        let rule = Rule::parse(
            "SUBSYSTEM==\"drm\", KERNEL==\"renderD*\", GROUP=\"44\", MODE=\"0660\", SYMLINK+=\"dri/by-me gpu\"",
        )
        .unwrap();
        assert_eq!(rule.matches.len(), 2);
        assert!(rule.matches[1].holds("renderD128") && !rule.matches[1].holds("card0"));
        let expected = [
            Deed::Group("44".into()),
            Deed::Mode(0o660),
            Deed::Symlink("dri/by-me".into()),
            Deed::Symlink("gpu".into()),
        ];
        assert_eq!(rule.deeds, expected);
        assert!(Rule::parse("# a comment").unwrap().deeds.is_empty());
    }

    #[test]
    fn what_is_not_understood_is_named() {
        for (line, word) in [
            ("KERNEL==\"sda\", RUN+=\"/bin/true\"", "RUN"),
            ("SUBSYSTEM==\"net\", NAME=\"lan0\"", "NAME"),
            ("PROGRAM==\"/bin/true\", MODE=\"0600\"", "PROGRAM"),
            ("KERNEL==sda", "not quoted"),
            ("KERNEL==\"sda", "does not end"),
            ("KERNEL==\"sda\", MODE=\"rw\"", "octal"),
            ("ATTR==\"x\"", "braces"),
            ("nonsense", "operator"),
        ] {
            let error = Rule::parse(line).unwrap_err();
            assert!(error.contains(word), "{line}: {error}");
        }
    }

    #[test]
    fn patterns_are_those_of_the_shell() {
        let holds = |wanted: &str, value: &str| pattern(wanted).unwrap().is_match(value);
        assert!(holds("sd[a-c]|nvme?n1", "sdb") && holds("sd[a-c]|nvme?n1", "nvme0n1"));
        assert!(!holds("sd[!a-c]", "sdb") && holds("sd[!a-c]", "sdx"));
        assert!(!holds("a.c", "abc") && !holds("sd", "sda") && holds("", ""));
        let not = condition("KERNEL", "", true, "loop*").unwrap();
        assert!(not.holds("sda") && !not.holds("loop0"));
    }
}
