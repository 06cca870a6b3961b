//! Text for logs without the secrets that a kernel command line may hold.
//!
//! Owns: which arguments are secret, and which parts of an address are.
//! Does not: know secrets of a machine config; no log line is made of one.
//! The kernel prints its command line into its log more than once, and who reads logs may not read configs.
//! Source: docs/users/kernel-parameters.md; RFC 3986 for addresses.

use alloc::borrow::Cow;
use alloc::string::String;

/// What stands in a secret's place.
pub const HIDDEN: &str = "<hidden>";

/// Init's and machined's own arguments, which have two prefixes.
const PREFIXES: [&str; 2] = ["billet.", "talos."];

/// Arguments whose value is secret: whole configs.
const CONFIGS: [&str; 2] = ["config.early=", "config.inline="];

/// The argument that gives services a variable: its name may be read, its value may be a password.
const ENVIRONMENT: &str = "environment=";

/// The text without values of secret arguments, and without user information and queries of addresses.
#[must_use]
pub fn redacted(text: &str) -> Cow<'_, str> {
    let may_name = PREFIXES.iter().any(|prefix| text.contains(prefix));
    let may_address = text.contains("://");
    match (may_name, may_address) {
        (false, false) => Cow::Borrowed(text),
        (false, true) => Cow::Owned(without_address_secrets(text)),
        (true, false) => Cow::Owned(without_values(text)),
        (true, true) => Cow::Owned(without_address_secrets(&without_values(text))),
    }
}

fn without_values(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, behind)) = next_value(rest) {
        out.push_str(before);
        out.push_str(HIDDEN);
        let end = value_end(behind, before);
        rest = behind.get(end..).unwrap_or_default();
    }
    out.push_str(rest);
    out
}

/// The text up to the next secret value, and from it on.
fn next_value(text: &str) -> Option<(&str, &str)> {
    let mut at = 0;
    while let Some(found) =
        PREFIXES.iter().filter_map(|prefix| Some((at + text.get(at..)?.find(prefix)?, prefix.len()))).min()
    {
        at = found.0 + found.1;
        let name = text.get(at..)?;
        let value = if let Some(config) = CONFIGS.iter().find(|config| name.starts_with(*config)) {
            at + config.len()
        } else if let Some(variable) = name.strip_prefix(ENVIRONMENT) {
            let word = variable.split(char::is_whitespace).next().unwrap_or_default();
            at + ENVIRONMENT.len() + word.find('=').map_or(0, |equals| equals + 1)
        } else {
            continue;
        };
        return Some((text.get(..value)?, text.get(value..)?));
    }
    None
}

/// Where a value ends that begins here: at a blank, or at the quote that was opened in or before it.
fn value_end(value: &str, before: &str) -> usize {
    let word = before.rsplit(char::is_whitespace).next().unwrap_or_default();
    let begins = usize::from(value.starts_with('"'));
    if begins == 1 || word.matches('"').count() % 2 == 1 {
        let inside = value.get(begins..).unwrap_or_default();
        return inside.find('"').map_or(value.len(), |end| begins + end);
    }
    value.find(char::is_whitespace).unwrap_or(value.len())
}

fn without_address_secrets(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once("://") {
        out.push_str(before);
        out.push_str("://");
        let end = behind.find(is_behind_address).unwrap_or(behind.len());
        let (address, next) = behind.split_at_checked(end).unwrap_or((behind, ""));
        let (place, query) = match address.split_once('?') {
            Some((place, _)) => (place, true),
            None => (address, false),
        };
        let host_end = place.find('/').unwrap_or(place.len());
        match place.get(..host_end).and_then(|authority| authority.rsplit_once('@')) {
            Some((_, host)) => {
                out.push_str(HIDDEN);
                out.push('@');
                out.push_str(host);
                out.push_str(place.get(host_end..).unwrap_or_default());
            }
            None => out.push_str(place),
        }
        if query {
            out.push('?');
            out.push_str(HIDDEN);
        }
        rest = next;
    }
    out.push_str(rest);
    out
}

/// Blanks and quotes end an address in a sentence; other signs may be part of it.
fn is_behind_address(sign: char) -> bool {
    sign.is_whitespace() || matches!(sign, '"' | '\'' | '`' | '<' | '>')
}

#[cfg(test)]
mod tests {
    use alloc::format;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_the_kernel_prints_of_its_command_line_has_no_secret() {
        for (line, shown) in [
            (
                "Kernel command line: console=ttyS0 billet.config.inline=c2VjcmV0 panic=10",
                "Kernel command line: console=ttyS0 billet.config.inline=<hidden> panic=10",
            ),
            ("Command line: talos.config.early=c2VjcmV0", "Command line: talos.config.early=<hidden>"),
            (
                "Unknown kernel command line parameters \"talos.config.inline=c2V billet.x=1\", will be passed",
                "Unknown kernel command line parameters \"talos.config.inline=<hidden>\", will be passed",
            ),
            (
                "    billet.config=https://me:secret@h.example:8443/c.yaml?token=secret&uuid=1 quiet",
                "    billet.config=https://<hidden>@h.example:8443/c.yaml?<hidden> quiet",
            ),
            (
                "billet.environment=https_proxy=http://u:secret@p:3128 billet.environment=A=secret x",
                "billet.environment=https_proxy=<hidden> billet.environment=A=<hidden> x",
            ),
            ("\"billet.environment=A=b secret c\" x", "\"billet.environment=A=<hidden>\" x"),
            ("billet.environment=A=\"b secret c\" x", "billet.environment=A=<hidden>\" x"),
            ("billet.environment=secret", "billet.environment=<hidden>"),
        ] {
            assert_eq!(redacted(line), shown);
        }
    }

    #[test]
    fn other_text_stays_as_it_is() {
        for line in [
            "billet: machined: API ready on :50000",
            "billet.platform=metal talos.hostname=n1",
            "fetch https://10.0.0.1:8443/layers/base.img: connection refused",
            "mail me@example.org",
            "://",
            "",
        ] {
            assert_eq!(redacted(line), line);
        }
        assert!(matches!(redacted("nothing of this kind"), Cow::Borrowed(_)));
    }

    proptest! {
        #[test]
        fn a_secret_is_nowhere_whatever_is_around_it(
            before in "[ a-z=\"?@:/]{0,20}",
            behind in "[ a-z=\"?@:/]{0,20}",
            form in 0..5_usize,
        ) {
            let form = [
                "billet.config.inline=SECRET",
                "talos.config.early=SECRET",
                "billet.environment=N=SECRET",
                "https://user:SECRET@host/path",
                "http://host/path?x=SECRET",
            ][form];
            let text = format!("{before} {form} {behind}");
            prop_assert!(!redacted(&text).contains("SECRET"), "{text}");
        }

        #[test]
        fn arbitrary_text_is_no_fault(text in "\\PC{0,200}") {
            let once = redacted(&text).into_owned();
            prop_assert_eq!(redacted(&once).into_owned(), once);
        }
    }
}
